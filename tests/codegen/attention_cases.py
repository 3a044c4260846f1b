"""Attention cases for the tests: an op with operands in chosen layouts, run on a device beside the reference."""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import meganeura.ops  # noqa: F401
from meganeura.codegen.attention import render_attention
from meganeura.facts import DeviceFacts
from meganeura.ir.types import DType, TensorType, TupleType
from meganeura.lower.attention import AttentionKernel, attention_kernel
from meganeura.lower.schedule import Layout, Operand
from meganeura.ops.attention import Attention, CachedAttention
from meganeura.ops.rotary import rotary_tables
from meganeura.options import CompileOptions
from meganeura.reference import round_to, widen
from meganeura.runtime.device import Device

GUARD = 256
FLT_MIN = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Case:
    """One attention problem; `values` names how scores and masks are filled, see `make`."""

    batch: tuple[int, ...] = ()
    heads: int = 1
    group: int = 1
    rows: int = 5
    keys: int = 9
    d: int = 8
    dv: int = 8
    cached: bool = False
    positions: tuple[int, ...] = ()
    causal: bool = False
    offset: int = 0
    window: int = 0
    scale: float | None = None
    softcap: float = 0.0
    bias: tuple[int, ...] | None = None
    alibi: bool = False
    mask: str = "none"
    mask_shape: tuple[int, ...] | None = None
    mask_values: str = "random"
    fill: float = 0.0
    rope: int = 0
    interleaved: bool = False
    lse: bool = False
    dtype: DType = DType.F32
    stored: DType = DType.F32
    layout: str = "packed"
    seed: int = 0
    magnitude: float = 1.0

    @property
    def op(self) -> Attention | CachedAttention:
        common: dict[str, Any] = {
            "scale": 1 / math.sqrt(self.d) if self.scale is None else self.scale,
            "softcap": self.softcap,
            "window": self.window,
            "bias": self.bias is not None,
            "alibi": self.alibi,
            "mask": self.mask,
            "fill": self.fill,
        }
        if self.cached:
            return CachedAttention(**common)
        return Attention(
            **common,
            causal=self.causal,
            offset=self.offset,
            rope=self.rope > 0,
            interleaved=self.interleaved,
            lse=self.lse,
        )


@dataclass(frozen=True)
class Problem:
    """Operands of a case: arrays as the op sees them, and where they lie in memory."""

    case: Case
    arrays: tuple[np.ndarray, ...]
    operands: tuple[Operand, ...]

    @property
    def types(self) -> tuple[TensorType, ...]:
        return tuple(o.type for o in self.operands)


def make(case: Case) -> Problem:
    """Random operands of a case, masks as `mask_values` says: random, lowest, excluded, or mixed of those."""
    rng = np.random.default_rng(case.seed)
    float_type = case.dtype.numpy
    lead = case.batch
    q = rng.standard_normal((*lead, case.heads, case.rows, case.d)) * case.magnitude
    k = rng.standard_normal((*lead, case.heads // case.group, case.keys, case.d)) * case.magnitude
    v = rng.standard_normal((*lead, case.heads // case.group, case.keys, case.dv))
    arrays: list[tuple[np.ndarray, DType]] = [(q, case.dtype), (k, case.stored), (v, case.stored)]
    if case.cached:
        arrays.append((np.array(case.positions or (case.keys - 1,)), DType.U32))
    if case.bias is not None:
        arrays.append((rng.standard_normal(case.bias), case.dtype))
    if case.alibi:
        arrays.append((2.0 ** -np.arange(1.0, case.heads + 1), case.dtype))
    if case.mask == "fill":
        shape = case.mask_shape or (case.rows, case.keys)
        kept = {"random": rng.random(shape) < 0.6, "excluded": np.zeros(shape, bool)}[case.mask_values]
        arrays.append((kept, DType.BOOL))
    elif case.mask == "add":
        arrays.append((_additive(case, rng), case.dtype))
    if case.rope:
        cos, sin = rotary_tables(max(case.keys, case.offset + case.rows) + 2, case.rope)
        arrays += [(cos, DType.F32), (sin, DType.F32)]
    rounded = tuple(round_to(widen(a), t).astype(t.numpy) for a, t in arrays)
    assert rounded[0].dtype == float_type
    operands = tuple(
        Operand(t, _layout(case, i, a.shape, rng)) for i, (a, (_, t)) in enumerate(zip(rounded, arrays, strict=True))
    )
    return Problem(case, rounded, operands)


def _additive(case: Case, rng: np.random.Generator) -> np.ndarray:
    shape = case.mask_shape or (case.rows, case.keys)
    lowest = FLT_MIN if case.dtype is DType.F32 else -65504.0
    if case.mask_values == "lowest":
        return np.full(shape, lowest)
    if case.mask_values == "excluded":
        return np.full(shape, -np.inf)
    choice = rng.random(shape)
    values = np.where(choice < 0.4, rng.standard_normal(shape), 0.0)
    values = np.where((choice > 0.6) & (choice < 0.75), lowest, values)
    return np.where(choice > 0.75, -np.inf, values)


def _layout(case: Case, index: int, shape: tuple[int, ...], rng: np.random.Generator) -> Layout:
    """Where an operand lies: packed heads, row-major, or anything strides can say."""
    if index < 3 and case.layout == "packed":
        *lead, heads, rows, width = shape
        n = len(lead)
        return Layout.contiguous((*lead, rows, heads, width)).permuted((*range(n), n + 1, n, n + 2))
    if case.layout != "odd":
        return Layout.contiguous(shape)
    order = rng.permutation(len(shape))
    # The last axis stays innermost half of the time, so that neighbours and strangers both occur.
    step, strides = int(rng.integers(1, 3)), [0] * len(shape)
    for axis in reversed(order):
        strides[axis] = step
        step = step * shape[axis] + int(rng.integers(0, 3))
    return Layout(shape, tuple(strides), int(rng.integers(0, 6)))


def scatter(array: np.ndarray, operand: Operand) -> np.ndarray:
    """An operand's memory: its elements where its layout says, all bits set (NaN, or a huge integer) elsewhere."""
    stored = array.astype(np.uint32) if operand.dtype is DType.BOOL else array
    memory = np.frombuffer(b"\xff" * (operand.layout.extent * stored.itemsize), stored.dtype).copy()
    memory[_places(operand.layout)] = stored.reshape(-1)
    return memory


def gather(memory: np.ndarray, operand: Operand) -> np.ndarray:
    """The tensor that lies in an operand's memory."""
    return memory[_places(operand.layout)].reshape(operand.shape)


def _places(layout: Layout) -> np.ndarray:
    at = np.full(layout.shape, layout.offset)
    for axis, (size, stride) in enumerate(zip(layout.shape, layout.strides, strict=True)):
        at = at + (np.arange(size) * stride).reshape(-1, *(1,) * (len(layout.shape) - axis - 1))
    return at.reshape(-1)


def kernel_of(problem: Problem, facts: DeviceFacts, schedule: str) -> AttentionKernel:
    """The kernel lowering would make for a problem."""
    output = problem.case.op.infer(problem.types)
    return attention_kernel(problem.case.op, problem.operands, output, facts, CompileOptions(attention=schedule))


def run(
    problem: Problem,
    device: Device,
    schedule: str,
    kernel: AttentionKernel | None = None,
    facts: DeviceFacts | None = None,
) -> list[np.ndarray]:
    """Outputs on the device, whose memory starts as NaN and is guarded by NaN, as is every operand's."""
    kernel = kernel or kernel_of(problem, device.facts, schedule)
    shader = render_attention(kernel, facts or device.facts)
    memories = [scatter(a, o) for a, o in zip(problem.arrays, kernel.inputs, strict=True)]
    for operand in kernel.outputs:
        item = operand.dtype.numpy
        memories.append(np.frombuffer(b"\xff" * (operand.layout.extent * item.itemsize), item).copy())
    results = device.run(shader, memories, guard=GUARD)
    for before, after in zip(memories[: len(kernel.inputs)], results, strict=False):
        assert before.tobytes() == after.tobytes(), "an input was written"
    return [gather(m, o) for m, o in zip(results[len(kernel.inputs) :], kernel.outputs, strict=True)]


def expected(problem: Problem) -> list[np.ndarray]:
    """Outputs of the reference, in float64."""
    op = problem.case.op
    output = op.infer(problem.types)
    found = op.evaluate([widen(a) for a in problem.arrays], output)
    return list(found) if isinstance(output, TupleType) else [found]


def magnitude(problem: Problem) -> np.ndarray:
    """What the absolute terms of each output element add up to."""
    op = dataclasses.replace(problem.case.op, **({} if problem.case.cached else {"lse": False}))
    arrays = [widen(a) for a in problem.arrays]
    arrays[2] = np.abs(arrays[2])
    return np.asarray(op.evaluate(arrays, op.infer(problem.types)))


def check(problem: Problem, found: list[np.ndarray], tolerance: float = 2e-4) -> None:
    """Compare with the reference: within `tolerance` of the accumulated magnitude, and never NaN."""
    wanted = expected(problem)
    if problem.case.dtype is DType.F16:
        tolerance = max(tolerance, 2e-3)
    assert found[0].dtype == problem.case.dtype.numpy
    assert np.isfinite(found[0]).all(), "NaN or infinity, or an element that was not written"
    worst = np.abs(found[0] - wanted[0]) - tolerance * (magnitude(problem) + 1e-3)
    assert (worst <= 0).all(), f"off by {np.abs(found[0] - wanted[0]).max()}"
    if problem.case.lse:
        assert found[1].dtype == np.float32
        # Scores of a large magnitude are themselves coarse.
        top = np.abs(wanted[1][..., :1])
        coarse = 2.0**-23 * np.where(top < 1e6, top, 0.0)
        bound = 2e-4 * (max(1.0, problem.case.magnitude**2) + np.abs(wanted[1])) + coarse
        assert (np.abs(found[1] - wanted[1]) <= bound).all(), f"lse is off:\n{found[1]}\n{wanted[1]}"


def covering(factors: dict[str, list[Any]], seed: int = 0) -> list[dict[str, Any]]:
    """Few combinations of the factors' levels in which every pair of levels of two factors occurs."""
    rng = np.random.default_rng(seed)
    names = list(factors)
    missing = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(names, 2)
        for i in range(len(factors[a]))
        for j in range(len(factors[b]))
    }
    rows: list[dict[str, int]] = []

    def pairs(row: dict[str, int]) -> set[Any]:
        return {((a, row[a]), (b, row[b])) for a, b in itertools.combinations(names, 2) if a in row and b in row}

    while missing:
        row = dict(sorted(missing)[int(rng.integers(len(missing)))])
        for name in rng.permutation([n for n in names if n not in row]):
            gains = [len(pairs({**row, name: i}) & missing) for i in range(len(factors[name]))]
            row[str(name)] = int(np.argmax(gains))
        missing -= pairs(row)
        rows.append(row)
    return [{n: factors[n][row[n]] for n in names} for row in rows]
