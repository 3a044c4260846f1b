"""Functions a person builds graphs with: thin, NumPy-like, each adding one node or a few."""

from __future__ import annotations

import math
from typing import Any

from meganeura.errors import GraphError
from meganeura.ir.graph import Tensor
from meganeura.ir.types import normalize_axis


def _unary(name: str) -> Any:
    def build(x: Tensor) -> Tensor:
        return x.graph.apply(name, x)

    build.__name__ = name
    build.__doc__ = f"Elementwise `{name}` of a tensor."
    return build


exp, log, sqrt, rsqrt, tanh, sigmoid, erf = map(_unary, ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf"))
sin, cos, floor, ceil, abs, relu, silu = map(_unary, ("sin", "cos", "floor", "ceil", "abs", "relu", "silu"))


def flip(x: Tensor, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Reverse the order along axes (all by default)."""
    axes = range(x.rank) if axis is None else (axis,) if isinstance(axis, int) else axis
    return x.graph.apply("flip", x, axes=tuple(sorted({normalize_axis(a, x.rank, "flip") for a in axes})))


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """GELU: exact (`"none"`, through erf) or the `"tanh"` approximation."""
    if approximate not in ("none", "tanh"):
        raise GraphError(f"gelu: approximate must be 'none' or 'tanh', not {approximate!r}", op="gelu")
    return x.graph.apply("gelu" if approximate == "none" else "gelu_tanh", x)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return gate.graph.apply("swiglu", gate, up)


def maximum(a: Tensor, b: Any) -> Tensor:
    """Elementwise larger value."""
    return a.graph.apply("maximum", a, b)


def minimum(a: Tensor, b: Any) -> Tensor:
    """Elementwise smaller value."""
    return a.graph.apply("minimum", a, b)


def where(condition: Tensor, a: Any, b: Any) -> Tensor:
    """`a` where the condition holds, else `b`; numbers take the other branch's dtype."""
    graph = condition.graph
    dtype = next((t.dtype for t in (a, b) if isinstance(t, Tensor)), None)
    a, b = (t if isinstance(t, Tensor) else graph.constant(t, dtype) for t in (a, b))
    return graph.apply("where", condition, a, b)


def equal(a: Tensor, b: Any) -> Tensor:
    """Elementwise equality (`==` of handles compares identity)."""
    return a.graph.apply("equal", a, b)


def _reduction(name: str, x: Tensor, axis: int | tuple[int, ...] | None, keepdims: bool) -> Tensor:
    axes = range(x.rank) if axis is None else (axis,) if isinstance(axis, int) else axis
    order = tuple(sorted({normalize_axis(a, x.rank, name) for a in axes}))
    return x.graph.apply(name, x, axes=order, keepdims=keepdims)


def sum(x: Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Sum over axes (all by default)."""
    return _reduction("reduce_sum", x, axis, keepdims)


def mean(x: Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Arithmetic mean over axes (all by default)."""
    return _reduction("reduce_mean", x, axis, keepdims)


def max(x: Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Maximum over axes (all by default)."""
    return _reduction("reduce_max", x, axis, keepdims)


def min(x: Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """Minimum over axes (all by default)."""
    return _reduction("reduce_min", x, axis, keepdims)


def argmax(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    """Index of the first largest element along an axis, i32."""
    return x.graph.apply("argmax", x, axis=normalize_axis(axis, x.rank, "argmax"), keepdims=keepdims)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Softmax along an axis."""
    return x.graph.apply("softmax", x, axis=normalize_axis(axis, x.rank, "softmax"))


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Logarithm of the softmax along an axis."""
    return x.graph.apply("log_softmax", x, axis=normalize_axis(axis, x.rank, "log_softmax"))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Layer norm over the last axis."""
    return x.graph.apply("layer_norm", x, weight, bias, eps=eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """Root-mean-square norm over the last axis."""
    return x.graph.apply("rms_norm", x, weight, eps=eps)


def concat(parts: list[Tensor], axis: int = 0) -> Tensor:
    """Join tensors along an axis."""
    if not parts:
        raise GraphError("concat of nothing", op="concat")
    return parts[0].graph.apply("concat", *parts, axis=normalize_axis(axis, parts[0].rank, "concat"))


def expand(x: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """Broadcast to a shape."""
    return x.graph.apply("expand", x, shape=tuple(shape))


def gather(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """`numpy.take(x, indices, axis)`."""
    return x.graph.apply("gather", x, indices, axis=normalize_axis(axis, x.rank, "gather"))


def embedding(table: Tensor, ids: Tensor) -> Tensor:
    """Rows of `table` by id."""
    return table.graph.apply("embedding", table, ids)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """`[.., rows, heads * width]` to `[.., heads, rows, width]`."""
    *lead, rows, width = x.shape
    n = len(lead)
    wide = x.reshape((*lead, rows, heads, width // heads if isinstance(width, int) else -1))
    return wide.transpose((*range(n), n + 1, n, n + 2))


def merge_heads(x: Tensor) -> Tensor:
    """`[.., heads, rows, width]` to `[.., rows, heads * width]`."""
    *lead, heads, rows, width = x.shape
    n = len(lead)
    return x.transpose((*range(n), n + 1, n, n + 2)).reshape((*lead, rows, heads * width))


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    heads: int,
    kv_heads: int | None = None,
    scale: float | None = None,
    extras: tuple[Tensor, ...] = (),
    **options: Any,
) -> Tensor:
    """Attention over the folded layout: q `[.., q_seq, heads*d]`, k and v `[.., kv_seq, kv_heads*d]`.

    Args:
        scale: factor on the scores; `1/sqrt(d)` when None.
        extras: operands of the options, in the order bias, slopes, mask, cos, sin.
        options: attributes of `meganeura.ops.attention.Attention` (causal, offset, window, softcap, ...).
    """
    kv_heads = kv_heads or heads
    q4, k4, v4 = split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads)
    if scale is None:
        scale = 1.0 / math.sqrt(int(q4.shape[-1]))  # type: ignore[arg-type]
    return merge_heads(q.graph.apply("attention", q4, k4, v4, *extras, scale=scale, **options))
