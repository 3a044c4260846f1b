"""Two compilations of the same graph, optimised and not, run side by side on the same inputs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meganeura.reference.compare import Difference, difference
from meganeura.report import CompileReport


@dataclass(frozen=True)
class Comparison:
    """What optimising a program changed.

    Attributes:
        report: of the optimised program. apart: the largest difference of an output from the unoptimised program's.
        seconds, seconds_unoptimized: medians of a call, inputs and outputs on the host.
    """

    report: CompileReport
    apart: Difference
    seconds: float
    seconds_unoptimized: float

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.report.as_dict(),
            "attention_nodes": self.report.attention_nodes,
            "difference": {"max_abs": self.apart.max_abs, "max_rel": self.apart.max_rel},
            "seconds_per_call": {"optimized": self.seconds, "unoptimized": self.seconds_unoptimized},
        }


def compare_programs(optimized: Any, plain: Any, inputs: Mapping[str, np.ndarray], repeats: int) -> Comparison:
    """Run two `CompiledProgram`s of one graph on the same inputs, alternating, and compare results and times."""
    ours, theirs = optimized.run(inputs), plain.run(inputs)
    apart = max((difference(ours[name], theirs[name]) for name in theirs), key=_badness)
    fast, slow = side_by_side([lambda: optimized.run(inputs), lambda: plain.run(inputs)], repeats, warm=0)
    return Comparison(optimized.report, apart, fast, slow)


def side_by_side(calls: list[Callable[[], Any]], repeats: int, warm: int) -> list[float]:
    """Median seconds of each call; they take turns, so that a change of the machine's mood touches all of them."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(warm + repeats):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            if turn >= warm:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def _badness(apart: Difference) -> tuple[bool, float]:
    return (not apart.same_kind, apart.max_rel)
