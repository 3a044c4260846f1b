"""Timing every dispatch of a program on its own."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from meganeura.runtime.adapters import wgpu_module
from meganeura.runtime.device import Device
from meganeura.runtime.recording import Step

_QUERIES = 4096
"""WebGPU's limit of one query set."""


def profile_steps(device: Device, steps: Sequence[Step]) -> list[float]:
    """Run steps in order, each in a pass of its own, and return their seconds.

    Timestamps of the device where it has them; otherwise the host's clock around each step alone, submission included.
    """
    if "timestamp-query" in device.facts.features:
        return [s for i in range(0, len(steps), _QUERIES // 2) for s in _stamped(device, steps[i : i + _QUERIES // 2])]
    return [_clocked(device, step) for step in steps]


def _stamped(device: Device, steps: Sequence[Step]) -> list[float]:
    count = 2 * len(steps)
    queries = device.wgpu.create_query_set(type=wgpu_module().QueryType.timestamp, count=count)
    results = device.create_buffer(8 * count, "profile", "query")
    encoder = device.wgpu.create_command_encoder()
    for i, step in enumerate(steps):
        stamps = {
            "query_set": queries,
            "beginning_of_pass_write_index": 2 * i,
            "end_of_pass_write_index": 2 * i + 1,
        }
        compute = encoder.begin_compute_pass(timestamp_writes=stamps)
        device.commands.record(compute, device.commands.prepare([step]))
        compute.end()
    encoder.resolve_query_set(queries, 0, count, results, 0)
    device.wgpu.queue.submit([encoder.finish()])
    stamps = np.frombuffer(device.wgpu.queue.read_buffer(results), np.uint64).reshape(-1, 2)
    ticks = stamps[:, 1].astype(np.int64) - stamps[:, 0].astype(np.int64)
    return [max(0, int(t)) * device.commands.timestamp_period * 1e-9 for t in ticks]


def _clocked(device: Device, step: Step) -> float:
    device.wait()
    start = time.perf_counter()
    encoder = device.wgpu.create_command_encoder()
    compute = encoder.begin_compute_pass()
    device.commands.record(compute, device.commands.prepare([step]))
    compute.end()
    device.commands.submit(encoder.finish())
    device.wait()
    return time.perf_counter() - start
