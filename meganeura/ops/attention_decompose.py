"""Attention spelled in primitives: what the attention nodes mean, and what the rules must find again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meganeura.ir.types import BOOL, F32, I32

if TYPE_CHECKING:
    from meganeura.ir.graph import Tensor

_FLT_MAX = float(np.finfo(np.float32).max)


def decompose_attention(op: Any, inputs: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Primitive form of `attention` and `cached_attention` with every option.

    Rows that may have no key at all are handled with a separate weight mask, so that they come out as zeros.
    """
    cached = op.name == "cached_attention"
    fixed = 4 if cached else 3
    q, k, v = inputs[:3]
    graph = q.graph
    extras = op.named_extras(inputs, fixed)
    rows, keys, heads = int(q.shape[-2]), int(k.shape[-2]), int(q.shape[-3])  # type: ignore[arg-type]
    if keys == 0:
        zeros = graph.full(0.0, (*q.shape[:-1], v.shape[-1]), q.dtype)
        return (zeros, graph.full(-1e30, (*q.shape[:-3], rows, heads, 2), F32)) if getattr(op, "lse", False) else zeros
    if getattr(op, "rope", False):
        from meganeura.ops.rotary import Rope

        rope, cos, sin = Rope(op.interleaved), extras["cos"], extras["sin"]
        q = graph.apply(rope, q, *(table[op.offset : op.offset + rows] for table in (cos, sin)))
        k = graph.apply(rope, k, *(table[:keys] for table in (cos, sin)))
    if k.dtype is not q.dtype:
        k, v = k.astype(q.dtype), v.astype(q.dtype)
    k, v = (_repeat_heads(t, heads) for t in (k, v))

    score = graph.apply("matmul", q, k, transpose_b=True, alpha=op.scale)
    if op.softcap:
        score = graph.apply("tanh", score * (1.0 / op.softcap)) * op.softcap
    if op.bias:
        score = score + extras["bias"]
    key = graph.apply("iota", dtype=I32, shape=(1, keys), axis=1)
    query = _query_position(op, inputs, rows, cached)
    if op.alibi:
        distance = (key - query).astype(q.dtype)
        score = score + extras["slopes"].reshape((heads, 1, 1)) * distance
    included: Tensor | None = None
    if op.mask == "add":
        included = graph.apply("not", graph.apply("equal", extras["mask"], -np.inf))
        score = score + extras["mask"]
    elif op.mask == "fill":
        included = extras["mask"] if op.fill == -np.inf else None
        score = graph.apply("where", extras["mask"], score, graph.full(op.fill, (), q.dtype))
    if cached or op.causal:
        seen = key <= query
        included = seen if included is None else graph.apply("and", included, seen)
    if op.window:
        included = graph.apply("and", included, query - op.window < key)  # type: ignore[arg-type]

    limit = 65504.0 if q.dtype.value == "f16" else _FLT_MAX
    score = graph.apply("maximum", graph.apply("minimum", score, limit), -limit)
    axis = q.rank - 1
    if included is not None:
        included = graph.apply("and", included, graph.full(1.0, score.shape, BOOL))
        score = graph.apply("where", included, score, graph.full(-limit, (), q.dtype))
    top = graph.apply("reduce_max", score, axes=(axis,))
    weight = graph.apply("exp", score - top)
    if included is not None:
        weight = graph.apply("where", included, weight, graph.full(0.0, (), q.dtype))
    total = graph.apply("reduce_sum", weight, axes=(axis,))
    none = graph.apply("equal", total, 0.0)
    out = graph.apply("matmul", weight, v) / graph.apply("where", none, graph.full(1.0, (), q.dtype), total)
    if not getattr(op, "lse", False):
        return out
    empty = graph.full(-1e30, (), F32)
    columns = [graph.apply("where", none, empty, part.astype(F32)) for part in (top, graph.apply("log", total))]
    pair = graph.apply("concat", *columns, axis=axis)
    order = (*range(q.rank - 3), q.rank - 2, q.rank - 3, q.rank - 1)
    return out, pair.transpose(order)


def _repeat_heads(t: Tensor, heads: int) -> Tensor:
    *lead, groups, rows, width = t.shape
    if groups == heads:
        return t
    each = heads // int(groups)  # type: ignore[arg-type]
    wide = t.reshape((*lead, groups, 1, rows, width))
    wide = t.graph.apply("expand", wide, shape=(*lead, groups, each, rows, width))
    return wide.reshape((*lead, heads, rows, width))


def _query_position(op: Any, inputs: Sequence[Tensor], rows: int, cached: bool) -> Tensor:
    graph = inputs[0].graph
    if not cached:
        return graph.apply("iota", dtype=I32, shape=(rows, 1), axis=0) + op.offset
    position = inputs[3].astype(I32)
    return position.reshape((-1, *(1,) * (inputs[0].rank - 1))) if position.shape != (1,) else position
