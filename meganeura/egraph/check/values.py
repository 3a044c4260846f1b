"""Values for the inputs of generated graphs, from ordinary numbers to what breaks rules."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from meganeura.ir.graph import Graph
from meganeura.ir.types import DType, TensorType

DRAWS = ("ordinary", "whole", "special", "extreme")
"""Normal numbers; small whole numbers, so that ties and zeros occur; zeros of both signs, infinities and NaN
sprinkled in; magnitudes up to the limits of the type, and integers that overflow. Rules of finite numbers get
"masked" instead of "special": minus infinity in what is added to something."""
_SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0)
_LIMITS = {
    DType.F32: (3.4028235e38, -3.4028235e38, 1e-45, -1.2e-38, 1e30, 1e-30, 65504.0, 0.0),
    DType.F16: (65504.0, -65504.0, 6e-8, -6.2e-5, 300.0, 1e-3, 0.0),
    DType.I32: (2**31 - 1, -(2**31), 2**30, -1, 0, 1, 46341, 65536),
    DType.U32: (2**32 - 1, 2**31, 2**31 - 1, 0, 1, 65536, 3),
}


def draws_for(soundness: str, allows: Collection[str]) -> tuple[str, ...]:
    """The kinds of values a rule must stand."""
    kept = ["masked" if d == "special" and "non-finite" in allows else d for d in DRAWS]
    return tuple(d for d in kept if not (d == "extreme" and "overflow" in allows))


def draw(kind: str, wanted: TensorType, rng: np.random.Generator, exact: bool) -> np.ndarray:
    """An array of this type; for rules that are not exact, extremes stay where squares are finite numbers."""
    shape, dtype = wanted.dims, wanted.dtype
    if dtype is DType.BOOL:
        return rng.random(shape) < rng.choice([0.5, 0.8, 0.2])
    if not dtype.is_float:
        values = rng.integers(0, 4, shape)
        if kind == "whole" and dtype is DType.I32:
            values = rng.integers(-3, 4, shape)
        elif kind == "extreme":
            values = rng.choice(np.array(_LIMITS[dtype], dtype=np.int64), shape)
        return np.asarray(values).astype(dtype.numpy)
    values = rng.standard_normal(shape)
    if kind == "whole":
        values = rng.integers(-2, 3, shape).astype(float)
    elif kind == "special":
        values = np.where(rng.random(shape) < 0.25, rng.choice(_SPECIAL, shape), values)
    elif kind == "extreme" and exact:
        values = rng.choice(np.array(_LIMITS[dtype]), shape)
    elif kind == "extreme":
        values = values * 10.0 ** rng.choice([-8, -3, -2, 2, 3] if dtype is DType.F32 else [-2, 1])
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype.numpy)


def inputs_of(
    graph: Graph, kind: str, rng: np.random.Generator, exact: bool, allows: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """An array for every input and state."""
    leaves = {**graph.inputs, **graph.states}
    values = {name: draw(kind, node.tensor_type, rng, exact) for name, node in leaves.items()}
    if "out-of-range" in allows:
        # Whatever is indexed by data has two elements or more wherever it matters.
        values |= {n: np.minimum(np.abs(v), 1) for n, v in values.items() if v.dtype.kind in "iu"}
    if kind == "masked":
        for name in sorted(_masks(graph)):
            if leaves[name].tensor_type.dtype.is_float:
                values[name][rng.random(values[name].shape) < rng.choice([0.3, 0.9])] = -np.inf
    return values


def _masks(graph: Graph) -> set[str]:
    """Inputs that only sums and attention read, the latter after keys and values: they may be additive masks."""
    readers: dict[int, set[bool]] = {}
    for node in graph.nodes:
        for at, operand in enumerate(node.inputs):
            additive = node.op.name == "add" or (node.op.name in ("attention", "cached_attention") and at > 2)
            readers.setdefault(operand, set()).add(additive)
    return {name for name, node in graph.inputs.items() if readers.get(node.id) == {True}}
