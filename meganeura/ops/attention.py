"""Attention as one node: the tiled form over whole sequences and the cached form for one new token.

Shapes are heads-first: `[.., heads, rows, width]`. The folded layout `[rows, heads * width]` is the same
memory seen through a reshape and a transpose, which lowering turns into strides (see `build.attention`).
What is computed, in this order: `q . k * scale`, soft-cap, bias, ALiBi, mask; softmax over the keys of the
variant's range; weighted sum of v. A row with no key gives zeros. Scores are clamped to +-FLT_MAX before the softmax,
which hides what primitives would show as NaN: NaN in q or k, +inf in a mask or bias and scores that overflow give
finite results (for NaN, which ones is up to the adapter). NaN and infinities in v reach the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from meganeura.errors import GraphError
from meganeura.ir.op import Kind, Op, Work
from meganeura.ir.types import DType, TensorType, TupleType, ValueType, broadcast_shapes
from meganeura.ops.attention_decompose import decompose_attention
from meganeura.ops.rotary import rotate

if TYPE_CHECKING:
    from meganeura.ir.graph import Tensor

FLT_MAX = float(np.finfo(np.float32).max)
"""Scores are clamped to this magnitude, so that no finite input gives NaN."""
EMPTY_ROW_LSE = -1e30
"""Both entries of the saved log-sum-exp of a row without keys."""


@dataclass(frozen=True)
class _AttentionBase(Op):
    """Attributes and checks the two attention ops share.

    Attributes:
        scale: factor on q . k, kept exactly. softcap: c in `c * tanh(s / c)`, 0 for none.
        window: number of keys seen by a causal query, its own included; 0 for no limit.
        bias: an additive array operand broadcasting to `[.., heads, rows, keys]`.
        alibi: an operand of slopes `[heads]`, added times (key position - query position).
        mask: "none"; "add", an additive operand where -inf excludes a key; "fill", a boolean operand where
            False replaces the score by `fill` (and excludes the key if `fill` is -inf).
    """

    kind: ClassVar[Kind] = Kind.COMPOSITE
    scale: float
    softcap: float = 0.0
    window: int = 0
    bias: bool = False
    alibi: bool = False
    mask: str = "none"
    fill: float = 0.0

    def _check_common(self, inputs: Sequence[TensorType], fixed: int, extra: int = 0) -> TensorType:
        q, k, v = inputs[:3]
        wanted = fixed + self.bias + self.alibi + (self.mask != "none") + extra
        if len(inputs) != wanted:
            raise self.fail(f"needs {wanted} operands for these options, got {len(inputs)}", inputs)
        if self.mask not in ("none", "add", "fill") or self.window < 0 or self.softcap < 0:
            raise self.fail("mask must be none, add or fill; window and softcap zero or more", inputs)
        if q.rank < 3 or k.rank != q.rank or v.rank != q.rank or not q.dtype.is_float or k.dtype != v.dtype:
            raise self.fail("q, k and v must be floats [.., heads, rows, width] of one rank", inputs)
        if k.dtype is not q.dtype and k.dtype is not DType.F16:
            raise self.fail("k and v must have q's dtype, or be stored as f16", inputs)
        heads, groups = q.shape[-3], k.shape[-3]
        if isinstance(heads, int) and isinstance(groups, int) and (groups == 0 or heads % groups):
            raise self.fail(f"{heads} query heads do not group over {groups} key/value heads", inputs)
        if q.shape[:-3] != k.shape[:-3] or k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1]:
            raise self.fail("batch, key count or width of q, k and v disagree", inputs)
        scores = (*q.shape[:-1], k.shape[-2])
        for name, operand in self.named_extras(inputs, fixed).items():
            shape = (q.shape[-3],) if name == "slopes" else scores
            fits = operand.shape == shape if name == "slopes" else _broadcasts(operand.shape, shape)
            dtype = DType.BOOL if name == "mask" and self.mask == "fill" else q.dtype
            if name in ("bias", "slopes", "mask") and (not fits or operand.dtype is not dtype):
                raise self.fail(f"{name} must be {dtype.value} and fit {list(shape)}", inputs)
        return TensorType(q.dtype, (*q.shape[:-1], v.shape[-1]))

    def named_extras(self, inputs: Sequence[Any], fixed: int) -> dict[str, Any]:
        """Operands after the first `fixed` ones, by name: bias, slopes, mask, cos, sin."""
        names = [n for n, on in (("bias", self.bias), ("slopes", self.alibi), ("mask", self.mask != "none")) if on]
        if getattr(self, "rope", False):
            names += ["cos", "sin"]
        return dict(zip(names, inputs[fixed:], strict=False))

    def _scores(
        self, q: np.ndarray, k: np.ndarray, extras: dict[str, np.ndarray], query_position: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores `[.., heads, rows, keys]` and which keys a mask leaves in (key ranges not applied)."""
        group = q.shape[-3] // k.shape[-3]
        with np.errstate(all="ignore"):
            score = np.matmul(q, np.swapaxes(np.repeat(k, group, axis=-3), -1, -2)) * self.scale
            if self.softcap:
                score = self.softcap * np.tanh(score / self.softcap)
            if self.bias:
                score = score + extras["bias"]
            if self.alibi:
                distance = np.arange(k.shape[-2]) - query_position[..., None]
                score = score + extras["slopes"][:, None, None] * distance
            included = np.ones(score.shape, bool)
            if self.mask == "add":
                included = np.broadcast_to(extras["mask"] != -np.inf, score.shape)
                score = score + extras["mask"]
            elif self.mask == "fill":
                if self.fill == -np.inf:
                    included = np.broadcast_to(extras["mask"], score.shape)
                score = np.where(extras["mask"], score, self.fill)
        return np.clip(score, -FLT_MAX, FLT_MAX), included

    def _work(self, inputs: Sequence[TensorType], output: TensorType, keys: float) -> Work:
        q, k, v = inputs[:3]
        rows = float(output.size) / max(float(v.shape[-1]), 1)  # type: ignore[arg-type]
        flops = rows * keys * (2.0 * float(q.shape[-1]) + 2.0 * float(v.shape[-1]) + 12)  # type: ignore[arg-type]
        return Work(flops, sum(i.nbytes for i in inputs), output.nbytes, "attention")


@dataclass(frozen=True)
class Attention(_AttentionBase):
    """Softmax attention over whole sequences.

    Inputs: q `[.., heads, q_seq, d]`, k `[.., kv_heads, kv_seq, d]`, v `[.., kv_heads, kv_seq, dv]`, then the
    operands of the options in the order bias, slopes, mask, cos, sin. Output `[.., heads, q_seq, dv]`; with `lse`
    also float32 `[.., q_seq, heads, 2]`: maximum score, and log of the sum of exponentials relative to it.

    Attributes (further to the common ones):
        causal: query `pos` attends keys below `offset + pos + 1`. offset: length already cached.
        rope: q (at `offset + row`) and k (at row) are rotated on load by tables `[positions, r/2]`.
        interleaved: pairing of the rotation, see `rope`.
    """

    name: ClassVar[str] = "attention"
    arity: ClassVar[tuple[int, int]] = (3, 8)
    causal: bool = False
    offset: int = 0
    rope: bool = False
    interleaved: bool = False
    lse: bool = False

    def infer(self, inputs: Sequence[TensorType]) -> ValueType:
        out = self._check_common(inputs, 3, 2 * self.rope)
        if (self.window and not self.causal) or self.offset < 0:
            raise self.fail("a window needs causal=true, and the offset is zero or more", inputs)
        if self.rope:
            cos, sin = inputs[-2:]
            rows = max(_known(inputs[1].shape[-2]), self.offset + _known(inputs[0].shape[-2]))
            fits = cos == sin and cos.rank == 2 and _known(cos.shape[0], rows) >= rows
            if not fits or 2 * _known(cos.shape[1]) > _known(inputs[0].shape[-1], 1 << 30):
                raise self.fail(f"cos and sin must be [{rows} or more, r/2] with r at most the width", inputs)
        if not self.lse:
            return out
        *lead, heads, rows, _ = inputs[0].shape
        return TupleType((out, TensorType(DType.F32, (*lead, rows, heads, 2))))

    def key_range(self, rows: int, keys: int) -> np.ndarray:
        """Boolean `[rows, keys]`: which keys the variant lets each query see."""
        position = self.offset + np.arange(rows)[:, None]
        key = np.arange(keys)[None, :]
        seen = key <= position if self.causal else np.ones((rows, keys), bool)
        return seen & (key > position - self.window) if self.window else seen

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        q, k, v = inputs[:3]
        rows, keys = q.shape[-2], k.shape[-2]
        extras = self.named_extras(inputs, 3)
        if self.rope:
            cos, sin = extras["cos"], extras["sin"]
            at = slice(self.offset, self.offset + rows)
            q = rotate(q, cos[at], sin[at], self.interleaved)
            k = rotate(k, cos[:keys], sin[:keys], self.interleaved)
        score, included = self._scores(q, k, extras, self.offset + np.arange(rows))
        out, top, total = _weighted(score, included & self.key_range(rows, keys), v)
        if not self.lse:
            return out
        with np.errstate(all="ignore"):
            pair = np.where(total > 0, np.concatenate([top, np.log(total)], axis=-1), EMPTY_ROW_LSE)
        return out, np.swapaxes(pair, -2, -3)

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
        return decompose_attention(self, inputs)

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        out = output.items[0] if isinstance(output, TupleType) else output
        rows, keys = float(_known(inputs[0].shape[-2])), float(_known(inputs[1].shape[-2]))
        seen = keys
        if self.causal:
            seen = min(keys, self.offset + (rows + 1) / 2)
            seen = min(seen, self.window) if self.window else seen
        return self._work(inputs, out, seen)


@dataclass(frozen=True)
class CachedAttention(_AttentionBase):
    """Attention of one new token over a cache: keys `0..position`, the token's own included.

    Inputs: q `[.., heads, 1, d]`, k and v caches `[.., kv_heads, max_seq, d or dv]`, position u32 `[1]` or
    `[batch]` (then q has rank 4 and that batch), then bias, slopes, mask as chosen. Output `[.., heads, 1, dv]`.
    """

    name: ClassVar[str] = "cached_attention"
    arity: ClassVar[tuple[int, int]] = (4, 7)

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        if len(inputs) < 4:
            raise self.fail("needs q, k, v and position", inputs)
        q, position = inputs[0], inputs[3]
        out = self._check_common(inputs, 4)
        if q.shape[-2] != 1:
            raise self.fail("takes one query row", inputs)
        batched = q.rank == 4 and position.shape == q.shape[:1]
        if position.dtype is not DType.U32 or not (position.shape == (1,) or batched):
            raise self.fail("position must be u32[1] or u32[batch]", inputs)
        return out

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        q, k, v, position = inputs[:4]
        where = position.reshape(-1, *(1,) * (q.ndim - 1)) if len(position) > 1 else position.reshape((1,) * q.ndim)
        key = np.arange(k.shape[-2])
        seen = key <= where
        if self.window:
            seen = seen & (key > where - self.window)
        score, included = self._scores(q, k, self.named_extras(inputs, 4), where[..., 0])
        return _weighted(score, included & seen, v)[0]

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
        return decompose_attention(self, inputs)

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        assert isinstance(output, TensorType)
        keys = float(_known(inputs[1].shape[-2]))
        return self._work(inputs, output, min(keys, self.window) if self.window else keys)


def _weighted(score: np.ndarray, included: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Softmax-weighted sum of v over the included keys, with each row's maximum and sum."""
    group = score.shape[-3] // v.shape[-3]
    included = np.broadcast_to(included, score.shape)
    top = np.max(np.where(included, score, -np.inf), axis=-1, keepdims=True, initial=-np.inf)
    with np.errstate(all="ignore"):
        weight = np.where(included, np.exp(score - top), 0.0)
        total = weight.sum(axis=-1, keepdims=True)
        out = np.matmul(weight, np.repeat(v, group, axis=-3))
        return np.where(total > 0, out / np.where(total > 0, total, 1.0), 0.0), top, total


def _broadcasts(shape: tuple[Any, ...], target: tuple[Any, ...]) -> bool:
    try:
        return broadcast_shapes(shape, target) == target
    except GraphError:
        return False


def _known(dim: Any, otherwise: int = 0) -> int:
    return dim if isinstance(dim, int) else otherwise
