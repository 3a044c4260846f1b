"""Cached attention kernels: one new token over a cache, in both schedules, against the reference and the tiled form."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from meganeura.ir.types import DType
from meganeura.lower.attention import DirectSchedule
from meganeura.lower.schedule import Layout, Operand
from meganeura.runtime.device import Device
from tests.codegen.attention_cases import Case, Problem, check, covering, expected, kernel_of, make, run

SCHEDULES = ("literal", "direct")
OPTIONS: dict[str, list[Any]] = {
    "window": [0, 5, 100],
    "mask": [
        {},
        {"mask": "add", "mask_shape": (1, 21)},
        {"mask": "fill", "fill": -np.inf, "mask_shape": (3, 1, 1, 21)},
    ],
    "bias": [None, (6, 1, 21)],
    "alibi": [False, True],
    "softcap": [0.0, 2.5],
    "types": [{}, {"stored": DType.F16}, {"dtype": DType.F16, "stored": DType.F16}],
    "group": [1, 3],
    "layout": ["packed", "odd"],
    "dv": [8, 3],
    "positions": [(0, 7, 20), (8, 15, 16)],
}


def case_of(levels: dict[str, Any], seed: int) -> Case:
    """A batched case from one row of the covering array."""
    nested = {k: v for name in ("mask", "types") for k, v in levels[name].items()}
    plain = {k: v for k, v in levels.items() if k not in ("mask", "types")}
    return Case(cached=True, batch=(3,), heads=6, rows=1, keys=21, d=8, seed=seed, **{**plain, **nested})


OPTION_CASES = [case_of(levels, i) for i, levels in enumerate(covering(OPTIONS))]


def needs(device: Device, case: Case) -> None:
    if DType.F16 in (case.dtype, case.stored) and not device.facts.has_f16:
        pytest.skip("the device has no float16 storage")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("case", OPTION_CASES, ids=lambda case: f"options{case.seed}")
def test_options_pairwise(device: Device, case: Case, schedule: str) -> None:
    needs(device, case)
    problem = make(case)
    check(problem, run(problem, device, schedule))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("width", [(1, 3), (33, 31), (64, 64), (128, 96), (256, 256)], ids=lambda w: f"{w[0]}x{w[1]}")
def test_widths(device: Device, width: tuple[int, int], schedule: str) -> None:
    problem = make(Case(cached=True, heads=3, group=3, rows=1, keys=70, positions=(66,), d=width[0], dv=width[1]))
    check(problem, run(problem, device, schedule))


@pytest.mark.parametrize("keys", [8, 16, 17])
@pytest.mark.parametrize("d", [12, 36])
def test_heads_that_do_not_fill_subgroups(device: Device, d: int, keys: int) -> None:
    # Idle lanes of the last subgroup must not keep its loops, and so its barriers, apart from the others'.
    problem = make(Case(cached=True, heads=2, rows=1, keys=keys, d=d, dv=d))
    check(problem, run(problem, device, "literal"))


def at_position(problem: Problem, position: int) -> Problem:
    """The same problem at another position: new data for the same kernel."""
    arrays = list(problem.arrays)
    arrays[3] = np.array([position], np.uint32)
    case = dataclasses.replace(problem.case, positions=(position,))
    return dataclasses.replace(problem, case=case, arrays=tuple(arrays))


@pytest.mark.parametrize("schedule", [*SCHEDULES, "split"])
@pytest.mark.parametrize("window", [0, 9])
def test_every_position(device: Device, schedule: str, window: int) -> None:
    problem = make(Case(cached=True, heads=2, rows=1, keys=80, d=4, dv=4, window=window))
    kernel = None
    if schedule == "split":
        kernel = kernel_of(problem, device.facts, "direct")
        assert isinstance(kernel.schedule, DirectSchedule) and kernel.schedule.mode == "split"
    for position in (0, 1, 6, 7, 8, 9, 15, 16, 17, 63, 64, 79):
        here = at_position(problem, position)
        check(here, run(here, device, "direct" if schedule == "split" else schedule, kernel))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_parts_without_keys_have_no_say(device: Device, schedule: str) -> None:
    # Scores far below the zero that an empty part's maximum starts from.
    problem = make(Case(cached=True, heads=2, rows=1, keys=80, positions=(2,), bias=(1, 80)))
    arrays = list(problem.arrays)
    arrays[4] = np.full((1, 80), -1000.0, np.float32)
    low = dataclasses.replace(problem, arrays=tuple(arrays))
    check(low, run(low, device, schedule), 1e-3)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_keys_after_the_position_are_not_read(device: Device, schedule: str) -> None:
    # The rows of a cache that were never written may hold anything, NaN included.
    problem = make(Case(cached=True, heads=4, group=2, rows=1, keys=40, positions=(12,)))
    arrays = list(problem.arrays)
    for i in (1, 2):
        arrays[i] = arrays[i].copy()
        arrays[i][..., 13:, :] = np.nan
    unwritten = dataclasses.replace(problem, arrays=tuple(arrays))
    assert run(problem, device, schedule)[0].tobytes() == run(unwritten, device, schedule)[0].tobytes()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("position", [40, 4_000_000_000, 2**32 - 1])
def test_a_position_past_the_cache_reads_nothing_outside(device: Device, schedule: str, position: int) -> None:
    problem = at_position(make(Case(cached=True, heads=2, rows=1, keys=40)), position)
    last = at_position(problem, 39)
    assert run(problem, device, schedule)[0].tobytes() == run(last, device, schedule)[0].tobytes()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("options", [{}, {"window": 6, "alibi": True, "softcap": 4.0}], ids=["plain", "options"])
def test_decoding_equals_causal_attention(device: Device, schedule: str, options: dict[str, Any]) -> None:
    rows = 19
    tiled = make(Case(heads=6, group=3, rows=rows, keys=rows, d=16, dv=16, causal=True, **options))
    whole = run(tiled, device, schedule)[0]
    slopes = tiled.arrays[3:]
    case = dataclasses.replace(tiled.case, cached=True, causal=False, rows=1, keys=rows)
    for row in range(rows):
        arrays = (tiled.arrays[0][:, row : row + 1], *tiled.arrays[1:3], np.array([row], np.uint32), *slopes)
        layouts = [
            Layout.contiguous(arrays[0].shape),
            *(o.layout for o in tiled.operands[1:3]),
            Layout.contiguous((1,)),
        ]
        layouts += [Layout.contiguous(a.shape) for a in slopes]
        types = (*(o.dtype for o in tiled.operands[:3]), DType.U32, *(o.dtype for o in tiled.operands[3:]))
        operands = tuple(Operand(t, layout) for t, layout in zip(types, layouts, strict=True))
        step = Problem(dataclasses.replace(case, positions=(row,)), arrays, operands)
        found = run(step, device, schedule)[0]
        np.testing.assert_allclose(found[:, 0], whole[:, row], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole, expected(tiled)[0], rtol=1e-4, atol=1e-5)
