"""Inputs and constants of generated graphs, constants among them that carry a fact a guard asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meganeura.egraph.check.expressions import Scope, Unbound, Undefined, compute
from meganeura.egraph.check.propose import Proposer
from meganeura.egraph.sexpr import Atom, Form
from meganeura.ir.types import DType, TensorType


@dataclass(frozen=True, eq=False)
class Leaf:
    """A leaf of a sketch.

    Attributes:
        kind: "input", "state", "constant" or "full". type: its type. value: of a "full". array: of a "constant".
    """

    kind: str
    type: TensorType
    value: float = 0.0
    array: np.ndarray | None = None


def with_facts(facts: Sequence[Form], kind: TensorType, scope: Scope, proposer: Proposer) -> Leaf | None:
    """A leaf of this type of which the facts hold; None where the type does not suit them."""
    heads = {fact.head for fact in facts}
    maker = next((_MAKERS[h] for h in _MAKERS if h in heads), None)
    if maker is not None:
        array = maker([f for f in facts if f.head in _MAKERS or f.head == "mask-value"], kind, scope, proposer)
        return None if array is None else Leaf("constant", kind, array=array.astype(kind.dtype.numpy))
    if "is-constant" in heads or ("varies" not in heads and proposer.chance(0.06)):
        return random_constant(kind, proposer.rng)
    return Leaf("input", kind)


def random_constant(kind: TensorType, rng: np.random.Generator) -> Leaf:
    """A constant of random values."""
    if kind.dtype.is_float:
        array = rng.standard_normal(kind.dims)
    elif kind.dtype is DType.BOOL:
        array = rng.random(kind.dims) < 0.5
    else:
        array = rng.integers(0, 4, kind.dims)
    return Leaf("constant", kind, array=np.asarray(array).astype(kind.dtype.numpy))


def _argument(fact: Form, position: int, otherwise: Any, scope: Scope) -> Any:
    """A fact's argument after the class, bound to `otherwise` if it is open."""
    item = fact.items[position]
    try:
        return compute(item, scope)
    except Undefined:
        return otherwise
    except Unbound:
        if isinstance(item, Atom):
            scope.values[item.text] = otherwise
        return otherwise


def _mask(facts: Sequence[Form], kind: TensorType, scope: Scope, proposer: Proposer) -> np.ndarray | None:
    fact = facts[0]
    boolean = fact.head.endswith("keep")
    if kind.rank < 2 or (kind.dtype is not DType.BOOL if boolean else not kind.dtype.is_float):
        return None
    shape = (*(1,) * (kind.rank - 2), *kind.dims[-2:])
    if shape != kind.dims:
        return None
    rows, keys = shape[-2:]
    offset = _argument(fact, 2, int(proposer.pick((0, 0, 0, 1))), scope)
    query, key = np.arange(rows)[:, None] + offset, np.arange(keys)[None, :]
    keep = key <= query
    if fact.head.startswith("window"):
        keep &= key > query - _argument(fact, 3, int(proposer.pick((1, 2, 2, 3))), scope)
    if boolean:
        return keep.reshape(shape)
    fills = (-np.inf, -np.inf, -1e30, float(np.finfo(np.float32).min))
    fill = proposer.pick(fills if kind.dtype is DType.F32 else fills[:1])
    for other in facts[1:]:
        if other.head == "mask-value":
            fill = _argument(other, 2, fill, scope)
    return np.where(keep, 0.0, fill).reshape(shape)


def _ramp(facts: Sequence[Form], kind: TensorType, scope: Scope, proposer: Proposer) -> np.ndarray | None:
    if kind.dtype is DType.BOOL or not kind.rank:
        return None
    axis = _argument(facts[0], 2, -1, scope)
    start = _argument(facts[0], 3, int(proposer.pick((0, 1, 2))), scope)
    if not -kind.rank <= axis < 0 or kind.dims[axis] < 2:
        return None
    line = (start + np.arange(kind.dims[axis])).reshape([-1 if a == kind.rank + axis else 1 for a in range(kind.rank)])
    return np.array(np.broadcast_to(line, kind.dims))


def _repeats(facts: Sequence[Form], kind: TensorType, scope: Scope, proposer: Proposer) -> np.ndarray | None:
    if not kind.dtype.is_integer or kind.rank != 1:
        return None
    times = _argument(facts[0], 2, 2, scope)
    return np.arange(kind.dims[0]) // times if times > 1 and kind.dims[0] % times == 0 else None


def _halves(facts: Sequence[Form], kind: TensorType, scope: Scope, proposer: Proposer) -> np.ndarray | None:
    if not kind.dtype.is_float or not kind.rank or kind.dims[-1] % 2 or not kind.dims[-1]:
        return None
    half = proposer.rng.standard_normal((*kind.dims[:-1], kind.dims[-1] // 2))
    return np.concatenate([half, half], axis=-1)


_MAKERS = {
    "causal-mask": _mask,
    "causal-keep": _mask,
    "window-mask": _mask,
    "window-keep": _mask,
    "ramp": _ramp,
    "repeat-indices": _repeats,
    "halves-equal": _halves,
}
