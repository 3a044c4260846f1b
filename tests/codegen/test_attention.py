"""Attention kernels, tiled form: every variant and option in both schedules, against the reference."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from meganeura.codegen.attention import render_attention
from meganeura.codegen.shader import Shader
from meganeura.codegen.template import render_template
from meganeura.ir.types import DType
from meganeura.lower.attention import DirectSchedule
from meganeura.lower.schedule import Layout, Operand
from meganeura.runtime.device import Device
from tests.codegen.attention_cases import FLT_MIN, Case, Problem, check, covering, kernel_of, make, run

SCHEDULES = ("literal", "direct")
WIDTHS = [
    (1, 1),
    (2, 3),
    (3, 2),
    (8, 8),
    (31, 31),
    (32, 33),
    (33, 32),
    (64, 64),
    (80, 80),
    (96, 64),
    (128, 128),
    (256, 256),
]
VARIANTS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"causal": True, "offset": 6},
    {"causal": True, "window": 3, "offset": 2},
]
OPTIONS: dict[str, list[Any]] = {
    "variant": VARIANTS,
    "mask": [
        {},
        {"mask": "add"},
        {"mask": "add", "mask_shape": (1, 1, 1, 13)},
        {"mask": "fill", "fill": -1e9},
        {"mask": "fill", "fill": -np.inf, "mask_shape": (2, 1, 5, 13)},
    ],
    "bias": [None, (6, 5, 13), (2, 1, 1, 13)],
    "alibi": [False, True],
    "softcap": [0.0, 2.5],
    "rope": [{}, {"rope": 8}, {"rope": 4, "interleaved": True}, {"rope": 6}],
    "types": [{}, {"stored": DType.F16}, {"dtype": DType.F16, "stored": DType.F16}],
    "lse": [False, True],
    "group": [1, 3],
    "layout": ["packed", "contiguous", "odd"],
    "dv": [8, 5],
    "scale": [None, 1.0],
}


def case_of(levels: dict[str, Any], **more: Any) -> Case:
    """A case from one row of the covering array."""
    nested = {k: v for name in ("variant", "mask", "rope", "types") for k, v in levels.get(name, {}).items()}
    plain = {k: v for k, v in levels.items() if k not in ("variant", "mask", "rope", "types")}
    return Case(**{**more, **plain, **nested})


OPTION_CASES = [
    case_of(levels, batch=(2,), heads=6, rows=5, keys=13, d=8, seed=i) for i, levels in enumerate(covering(OPTIONS))
]


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
@pytest.mark.parametrize("width", WIDTHS, ids=lambda w: f"{w[0]}x{w[1]}")
def test_widths(device: Device, width: tuple[int, int], schedule: str) -> None:
    problem = make(Case(heads=2, group=2, rows=5, keys=17, d=width[0], dv=width[1], causal=True, offset=12))
    check(problem, run(problem, device, schedule))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("keys", [0, 1, 7, 8, 9, 17, 64])
def test_lengths(device: Device, keys: int, schedule: str) -> None:
    for i, rows in enumerate((1, 2, 5, 33)):
        # Rows of one, two, five and 33 queries meet the variants in turn.
        problem = make(Case(rows=rows, keys=keys, d=4, dv=4, lse=True, **VARIANTS[(i + keys) % len(VARIANTS)]))
        check(problem, run(problem, device, schedule))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_lowest_masks_give_the_average(device: Device, schedule: str, dtype: DType) -> None:
    case = Case(rows=3, keys=13, mask="add", mask_values="lowest", dtype=dtype, stored=dtype, lse=True)
    needs(device, case)
    problem = make(case)
    found = run(problem, device, schedule)
    check(problem, found)
    if dtype is DType.F32:
        average = np.broadcast_to(problem.arrays[2].mean(axis=-2, keepdims=True), found[0].shape)
        np.testing.assert_allclose(found[0], average, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_lowest_masks_added_twice(device: Device, schedule: str) -> None:
    problem = make(Case(rows=3, keys=9, mask="add", mask_values="lowest", bias=(3, 9)))
    arrays = list(problem.arrays)
    arrays[3] = np.full((3, 9), FLT_MIN, np.float32)
    twice = dataclasses.replace(problem, arrays=tuple(arrays))
    found = run(twice, device, schedule)
    check(twice, found)
    average = np.broadcast_to(arrays[2].mean(axis=-2, keepdims=True), found[0].shape)
    np.testing.assert_allclose(found[0], average, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mask", [{"mask": "add"}, {"mask": "fill", "fill": -np.inf}], ids=["add", "fill"])
def test_rows_without_keys_are_zeros(device: Device, schedule: str, mask: dict[str, Any]) -> None:
    problem = make(Case(rows=3, keys=9, mask_values="excluded", lse=True, **mask))
    out, lse = run(problem, device, schedule)
    assert (out == 0).all()
    assert (lse == np.float32(-1e30)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_some_rows_without_keys(device: Device, schedule: str) -> None:
    problem = make(Case(rows=9, keys=11, mask="add", lse=True))
    arrays = list(problem.arrays)
    arrays[3] = arrays[3].copy()
    arrays[3][::2] = -np.inf
    # The first key of this row is in, so that what follows must not count.
    arrays[3][2, 0] = FLT_MIN
    some = dataclasses.replace(problem, arrays=tuple(arrays))
    out, lse = run(some, device, schedule)
    check(some, [out, lse])
    assert (out[:, [0, 4, 6, 8]] == 0).all()
    np.testing.assert_allclose(out[:, 2], arrays[2][:, 0], rtol=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("magnitude", [30.0, 1e18, 1e25])
def test_large_values_never_give_nan(device: Device, schedule: str, magnitude: float) -> None:
    problem = make(Case(rows=4, keys=11, magnitude=magnitude))
    found = run(problem, device, schedule)
    assert np.isfinite(found[0]).all()
    if magnitude < 1e3:
        check(problem, found, 1e-2)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_infinite_fill_is_clamped(device: Device, schedule: str) -> None:
    problem = make(Case(rows=4, keys=11, mask="fill", fill=np.inf))
    check(problem, run(problem, device, schedule))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stored", [DType.F32, DType.F16])
def test_memory_around_keys_and_values_is_not_read(device: Device, schedule: str, stored: DType) -> None:
    case = Case(heads=2, rows=6, keys=11, causal=True, offset=3, window=7, stored=stored)
    needs(device, case)
    problem = make(case)
    wide = _with_rows_around(problem, 5)
    tight, padded = (run(p, device, schedule) for p in (problem, wide))
    assert tight[0].tobytes() == padded[0].tobytes()
    check(problem, tight)


def _with_rows_around(problem: Problem, rows: int) -> Problem:
    """The same K and V as rows in the middle of larger buffers, whose other rows are NaN (see `scatter`)."""
    operands = list(problem.operands)
    for i in (1, 2):
        layout = operands[i].layout
        step = layout.strides[-2]
        operands[i] = Operand(operands[i].dtype, Layout(layout.shape, layout.strides, layout.offset + rows * step))
    return dataclasses.replace(problem, operands=tuple(operands))


@pytest.mark.parametrize("mode", ["plain", "shared", "split"])
@pytest.mark.parametrize("tile", [1, 4])
def test_direct_modes_agree(device: Device, mode: str, tile: int) -> None:
    lanes = device.facts.subgroup_size
    if mode == "shared" and not (device.facts.is_cpu and lanes):
        pytest.skip("the device's subgroups are not of one known size")
    case = Case(batch=(2,), heads=6, group=3, rows=7, keys=19, d=12, dv=36, causal=True, offset=9, rope=8, lse=True)
    problem = make(dataclasses.replace(case, stored=DType.F16) if tile == 4 and device.facts.has_f16 else case)
    kernel = kernel_of(problem, device.facts, "direct")
    kernel = dataclasses.replace(kernel, schedule=DirectSchedule(tile, lanes or 8, mode))
    check(problem, run(problem, device, "direct", kernel))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_folded_grid_covers_everything(device: Device, schedule: str) -> None:
    problem = make(Case(batch=(3, 2), heads=4, rows=9, keys=5, d=4, dv=4))
    narrow = dataclasses.replace(device.facts, limits=dataclasses.replace(device.facts.limits, max_workgroups=7))
    kernel = kernel_of(problem, device.facts, schedule)
    shader = render_attention(kernel, narrow)
    assert max(shader.workgroups) <= 7 and min(shader.workgroups[:2]) > 1
    check(problem, run(problem, device, schedule, kernel, narrow))


@pytest.mark.parametrize("name", ["literal", "direct", "operands", "scores", "rotary"])
def test_templates_are_valid_with_their_defaults(device: Device, name: str) -> None:
    text = render_template(f"attention_{name}")
    if "@compute" in text:
        device.pipeline(Shader(name, text, (1, 1, 1), ("read", "read", "read", "read_write")))
    else:
        device.wgpu.create_shader_module(code=text)


def test_text_is_the_same_every_time(device: Device) -> None:
    for case, schedule in itertools.product(OPTION_CASES[:5], SCHEDULES):
        kernel = kernel_of(make(case), device.facts, schedule)
        assert render_attention(kernel, device.facts) == render_attention(kernel, device.facts)
