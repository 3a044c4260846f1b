"""What the attention family takes, how it lays out results, and which schedule it picks for a device."""

from __future__ import annotations

import dataclasses

import pytest

from meganeura.errors import LimitError
from meganeura.facts import DeviceFacts, Limits
from meganeura.ir.types import F32, DType, TensorType
from meganeura.lower.attention import AttentionKernel, DirectSchedule, LiteralSchedule, attention_kernel, supports
from meganeura.lower.schedule import Operand
from meganeura.ops.attention import Attention
from meganeura.options import CompileOptions
from tests.codegen.attention_cases import Case, kernel_of, make

CPU = DeviceFacts(
    kind="cpu", subgroup_size=8, features=frozenset({"shader-f16"}), limits=Limits(max_storage_buffers=16)
)
GPU = dataclasses.replace(CPU, kind="discrete", subgroup_size=32)


def kernel(case: Case, facts: DeviceFacts = CPU, schedule: str = "auto") -> AttentionKernel:
    return kernel_of(make(case), facts, schedule)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_merging_the_heads_is_a_view(batch: tuple[int, ...]) -> None:
    output = kernel(Case(batch=batch, heads=4, rows=5, d=8, dv=6)).outputs[0]
    n = len(batch)
    assert output.shape == (*batch, 4, 5, 6)
    merged = output.layout.permuted((*range(n), n + 1, n, n + 2)).reshaped((*batch, 5, 24))
    assert merged is not None and merged.is_contiguous and merged.offset == 0


def test_log_sum_exp_is_contiguous() -> None:
    lse = kernel(Case(batch=(2,), heads=4, rows=5, lse=True)).outputs[1]
    assert lse.dtype is DType.F32 and lse.shape == (2, 5, 4, 2) and lse.layout.is_contiguous


def test_the_device_decides_the_schedule() -> None:
    assert isinstance(kernel(Case()).schedule, DirectSchedule)
    assert isinstance(kernel(Case(), GPU).schedule, LiteralSchedule)
    assert isinstance(kernel(Case(), CPU, "literal").schedule, LiteralSchedule)
    assert isinstance(kernel(Case(), GPU, "direct").schedule, DirectSchedule)


@pytest.mark.parametrize(("d", "tree"), [(1, 0), (2, 1), (3, 2), (31, 16), (32, 16), (33, 32), (64, 32), (256, 128)])
def test_literal_tree(d: int, tree: int) -> None:
    assert kernel(Case(d=d, dv=d), GPU).schedule == LiteralSchedule(-(-d // 32) * 32, tree)


def test_direct_modes() -> None:
    prefill = Case(heads=9, group=3, rows=128, keys=128, d=64, dv=64, causal=True)
    step = Case(cached=True, heads=9, group=3, rows=1, keys=2048, d=64, dv=64)
    assert kernel(prefill).schedule == DirectSchedule(3, 8, "shared")
    assert kernel(step).schedule == DirectSchedule(3, 8, "split")
    # Without a known subgroup size nothing is shared.
    unknown = dataclasses.replace(CPU, subgroup_size=0)
    assert kernel(prefill, unknown).schedule == DirectSchedule(3, 32, "plain")
    assert kernel(prefill, GPU, "direct").schedule == DirectSchedule(3, 32, "plain")


@pytest.mark.parametrize(
    ("rows", "group", "d", "tile"),
    [(1, 1, 8, 1), (5, 3, 64, 2), (8, 3, 64, 3), (128, 3, 64, 3), (128, 1, 32, 4), (128, 1, 256, 1), (16, 1, 8, 2)],
)
def test_tiles_fill_subgroups(rows: int, group: int, d: int, tile: int) -> None:
    case = Case(heads=group, group=group, rows=rows, keys=16, d=d, dv=d)
    assert kernel(case).schedule == DirectSchedule(tile, 8, "shared")


def test_split_parts_fit_workgroup_memory() -> None:
    wide = Case(cached=True, heads=2, rows=1, keys=512, d=256, dv=256)
    assert kernel(wide).schedule == DirectSchedule(1, 8, "split")
    small = dataclasses.replace(CPU, limits=dataclasses.replace(CPU.limits, max_workgroup_memory=8256))
    assert kernel(wide, small).schedule == DirectSchedule(1, 8, "split")
    smaller = dataclasses.replace(CPU, limits=dataclasses.replace(CPU.limits, max_workgroup_memory=8192))
    assert kernel(wide, smaller).schedule == DirectSchedule(1, 8, "shared")


@pytest.mark.parametrize(
    ("case", "facts"),
    [
        (Case(d=257), CPU),
        (Case(dv=257), CPU),
        (Case(dv=0), CPU),
        (Case(stored=DType.F16), dataclasses.replace(CPU, features=frozenset())),
        (Case(bias=(5, 9), alibi=True, mask="add", rope=8), dataclasses.replace(CPU, limits=Limits())),
        (Case(scale=1e300), CPU),
        (Case(softcap=1e-42), CPU),
        (Case(mask="fill", fill=float("nan")), CPU),
    ],
    ids=["d", "dv", "empty", "f16", "bindings", "scale", "softcap", "fill"],
)
def test_what_does_not_fit_is_left_to_unfused_kernels(case: Case, facts: DeviceFacts) -> None:
    problem = make(case)
    assert not supports(case.op, problem.operands, facts)
    assert not supports(case.op, problem.types, facts)
    with pytest.raises(LimitError, match="unfused"):
        kernel(case, facts)


def test_widest_heads_fit_the_least_device() -> None:
    problem = make(Case(d=256, dv=256))
    assert supports(problem.case.op, problem.operands, DeviceFacts())


@pytest.mark.parametrize(("schedule", "rows", "keys"), [("direct", 40, 70_000), ("literal", 1, 40_000)])
def test_more_keys_than_a_cpu_adapter_can_loop_over_are_refused(schedule: str, rows: int, keys: int) -> None:
    q, k = (Operand.contiguous(TensorType(F32, (1, n, 8))) for n in (rows, keys))
    with pytest.raises(LimitError, match=r"too long.*keys on a CPU adapter"):
        attention_kernel(Attention(0.1), (q, k, k), q.type, CPU, CompileOptions(attention=schedule))
