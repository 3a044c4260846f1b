"""Rotary position embedding, with tables of cosines and sines computed in float64 on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from meganeura.errors import GraphError
from meganeura.ir.op import Kind, Op, Work
from meganeura.ir.types import DType, TensorType, ValueType
from meganeura.ops.index import Gather

if TYPE_CHECKING:
    from meganeura.ir.graph import Tensor


def rotary_tables(positions: int, rotary: int, theta: float = 10000.0) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of `row * theta**(-2j/rotary)`, float32 `[positions, rotary // 2]` each.

    Angles are computed in float64: a float32 angle is off by more than the tolerance at position 8191.
    """
    if rotary <= 0 or rotary % 2:
        raise GraphError(f"rotary width {rotary} must be even and positive", op="rope")
    angles = np.arange(positions)[:, None] * float(theta) ** (-np.arange(0, rotary, 2) / rotary)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    """Rotate the first `2 * cos.shape[-1]` elements of the last axis; tables broadcast over leading axes."""
    half = cos.shape[-1]
    turned = x[..., : 2 * half]
    first, second = (turned[..., 0::2], turned[..., 1::2]) if interleaved else (turned[..., :half], turned[..., half:])
    pair = (first * cos - second * sin, second * cos + first * sin)
    joined = np.stack(pair, axis=-1).reshape(turned.shape) if interleaved else np.concatenate(pair, axis=-1)
    return np.concatenate([joined, x[..., 2 * half :]], axis=-1)


@dataclass(frozen=True)
class Rope(Op):
    """Rotate every head of x by its row's angles.

    Inputs: x `[.., rows, d]` (heads, if any, are leading axes), cos and sin `[rows, r/2]`, r <= d.
    Pairs are `(j, j + r/2)`, or `(2j, 2j+1)` when `interleaved`. The rest of a head passes through.
    """

    name: ClassVar[str] = "rope"
    arity: ClassVar[int] = 3
    kind: ClassVar[Kind] = Kind.COMPOSITE
    interleaved: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        x, cos, sin = inputs[:3]
        if x.rank < 2 or not x.dtype.is_float or cos != sin or cos.rank != 2 or cos.dtype != x.dtype:
            raise self.fail("needs x of rank 2 or more, and cos and sin [rows, r/2] of its dtype", inputs)
        width, half = x.shape[-1], cos.shape[-1]
        if isinstance(width, int) and isinstance(half, int) and 2 * half > width:
            raise self.fail("the tables are wider than the head", inputs)
        self._check_rows(x, cos, inputs)
        return x

    def _check_rows(self, x: TensorType, cos: TensorType, inputs: Sequence[TensorType]) -> None:
        if cos.shape[0] != x.shape[-2]:
            raise self.fail("needs one table row per row of x", inputs)

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        x, cos, sin = inputs
        return rotate(x, cos, sin, self.interleaved)

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        x, cos, sin = inputs
        graph, half = x.graph, int(cos.shape[-1])  # type: ignore[arg-type]
        turned, rest = x[..., : 2 * half], x[..., 2 * half :]
        lead, axis = turned.shape[:-1], x.rank - 1
        if self.interleaved:
            pairs = turned.reshape((*lead, half, 2))
            first, second = pairs[..., 0], pairs[..., 1]
            parts = (first * cos - second * sin, second * cos + first * sin)
            columns = [p.reshape((*lead, half, 1)) for p in parts]
            joined = graph.apply("concat", *columns, axis=axis + 1).reshape(turned.shape)
        else:
            first, second = turned[..., :half], turned[..., half:]
            joined = graph.apply("concat", first * cos - second * sin, second * cos + first * sin, axis=axis)
        return joined if x.shape[-1] == 2 * half else graph.apply("concat", joined, rest, axis=axis)

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        assert isinstance(output, TensorType)
        return Work(4.0 * float(output.size), sum(i.nbytes for i in inputs), output.nbytes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class RopeDynamic(Rope):
    """`rope` whose first row stands at a position read from the device.

    Inputs: x `[.., rows, d]`, cos and sin tables `[positions, r/2]`, and position u32 `[1]` (row i is rotated by table
    row `position + i`) or, with one row per entry, u32 `[batch]` where `batch == x.shape[0]`.
    """

    name: ClassVar[str] = "rope_dynamic"
    arity: ClassVar[int] = 4

    def _check_rows(self, x: TensorType, cos: TensorType, inputs: Sequence[TensorType]) -> None:
        position = inputs[3]
        batched = x.rank > 2 and position.shape == x.shape[:1] and x.shape[-2] == 1
        if position.dtype is not DType.U32 or not (position.shape == (1,) or batched):
            raise self.fail("position must be u32[1], or u32[batch] for one row per entry", inputs)

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        x, cos, sin, position = inputs
        rows = position[:, None] + np.arange(x.shape[-2])
        rows = np.clip(rows, 0, cos.shape[0] - 1)
        lead = (x.shape[0],) + (1,) * (x.ndim - 3) if len(position) > 1 else ()
        shape = (*lead, x.shape[-2], cos.shape[-1])
        return rotate(x, cos[rows].reshape(shape), sin[rows].reshape(shape), self.interleaved)

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        x, cos, sin, position = inputs
        graph, count = x.graph, x.shape[-2]
        if position.shape != (1,):
            lead = (x.shape[0],) + (1,) * (x.rank - 2)
            rows = [graph.apply(Gather(0), table, position).reshape((*lead, table.shape[-1])) for table in (cos, sin)]
            return Rope(self.interleaved).decompose([x, *rows])
        ramp = graph.apply("iota", dtype=DType.U32, shape=(count,), axis=0)
        rows = [graph.apply(Gather(0), table, position + ramp) for table in (cos, sin)]
        return Rope(self.interleaved).decompose([x, *rows])
