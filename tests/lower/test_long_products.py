"""Inner dimensions longer than a software driver's loops allow are summed in parts."""

from __future__ import annotations

import numpy as np
import pytest

import meganeura as mg


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("rows", [1, 9])
def test_a_very_long_inner_dimension(device: mg.Device, rows: int, optimize: bool) -> None:
    rng = np.random.default_rng(0)
    left = rng.normal(size=(rows, 300_000)).astype(np.float32)
    right = rng.normal(size=(300_000, 8)).astype(np.float32)
    graph = mg.Graph("long")
    a, b = graph.input("a", left.shape), graph.input("b", right.shape)
    graph.output("plain", a @ b)
    graph.output("fused", mg.relu(a @ b + graph.constant(np.arange(8, dtype=np.float32))))
    got = mg.compile(graph, device=device, optimize=optimize)(a=left, b=right)
    want = left.astype(np.float64) @ right
    magnitude = np.abs(left).astype(np.float64) @ np.abs(right)
    assert np.all(np.abs(got["plain"] - want) <= 2e-4 * magnitude)
    assert np.all(np.abs(got["fused"] - np.maximum(want + np.arange(8), 0)) <= 2e-4 * magnitude)


def test_integers_too(device: mg.Device) -> None:
    left = np.ones((2, 100_000), np.int32)
    graph = mg.Graph("long integers")
    graph.output("y", graph.input("a", left.shape, "i32") @ graph.full(1.0, (100_000, 3), "i32"))
    assert np.array_equal(mg.compile(graph, device=device)(a=left)["y"], np.full((2, 3), 100_000))
