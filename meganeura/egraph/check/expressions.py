"""Computes the expressions of guards: arithmetic, vectors, and the engine's facts about types."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from meganeura.egraph import shape_facts
from meganeura.egraph.sexpr import Atom, Form, Sexpr
from meganeura.egraph.split import is_variable
from meganeura.ir.op import sizeof
from meganeura.ir.types import TensorType

Vector = tuple[int, ...]


class Unbound(Exception):
    """The expression names what has no value yet."""


class Undefined(Exception):
    """The expression has no value, as an index out of range; the rule does not match."""


@dataclass
class Scope:
    """Values of attribute variables, types of class variables, values of uniform constants."""

    values: dict[str, Any] = field(default_factory=dict)
    types: dict[str, Any] = field(default_factory=dict)
    splats: dict[str, float] = field(default_factory=dict)


def literal(text: str) -> Any:
    """The value of a number, string or truth value as rules write them."""
    if text.startswith('"'):
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if text in ("inf", "-inf", "NaN"):
        return float(text)
    return float(text) if any(c in text for c in ".e") else int(text)


def compute(item: Sexpr, scope: Scope) -> Any:
    """The value of an expression; raises Unbound or Undefined."""
    if isinstance(item, Atom):
        if not is_variable(item):
            return literal(item.text)
        if item.text not in scope.values:
            raise Unbound(item.text)
        return scope.values[item.text]
    if item.head in _OF_TYPES:
        kind = scope.types.get(str(item.items[1]))
        if kind is None:
            raise Unbound(str(item.items[1]))
        if not isinstance(kind, TensorType):
            raise Undefined
        return _OF_TYPES[item.head](tuple(int(d) for d in kind.shape), kind)  # type: ignore[arg-type]
    if item.head == "splat":
        name = str(item.items[1])
        if name not in scope.splats:
            raise Unbound(name)
        return scope.splats[name]
    function = _FUNCTIONS.get(item.head)
    if function is None:
        raise Unbound(item.head)
    arguments = [compute(part, scope) for part in item.items[1:]]
    try:
        return function(*arguments)
    except (IndexError, ZeroDivisionError, ValueError, OverflowError, TypeError):
        raise Undefined from None


def equal(a: Any, b: Any) -> bool:
    """Equality as the engine sees it: numbers of one sort only, NaN equal to itself."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b


def _needs_rank(least: int, function: Callable[[Vector], Any]) -> Callable[[Vector, TensorType], Any]:
    def of(shape: Vector, _: TensorType) -> Any:
        if len(shape) < least:
            raise Undefined
        return function(shape)

    return of


_OF_TYPES: dict[str, Callable[[Vector, TensorType], Any]] = {
    "shape": _needs_rank(0, lambda s: s),
    "dtype": lambda _, kind: kind.dtype.value,
    "rank": _needs_rank(0, len),
    "last-dim": _needs_rank(1, lambda s: s[-1]),
    "numel": _needs_rank(0, sizeof),
    "zeros": _needs_rank(0, lambda s: (0,) * len(s)),
    "ones": _needs_rank(0, lambda s: (1,) * len(s)),
    "swap-last": _needs_rank(2, lambda s: shape_facts.exchange(len(s), -2, -1)),
    "swap-heads": _needs_rank(3, lambda s: shape_facts.exchange(len(s), -3, -2)),
}


def _get(vector: Vector, index: int) -> int:
    if not 0 <= index < len(vector):
        raise IndexError
    return vector[index]


def _set(vector: Vector, index: int, value: int) -> Vector:
    _get(vector, index)
    return (*vector[:index], value, *vector[index + 1 :])


def _pop(vector: Vector) -> Vector:
    if not vector:
        raise IndexError
    return vector[:-1]


def _divide(a: Any, b: Any) -> Any:
    return a / b if isinstance(a, float) else int(a / b)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "+": lambda *a: sum(a[1:], start=a[0]),
    "-": lambda a, b=None: -a if b is None else a - b,
    "*": lambda *a: math.prod(a),
    "/": _divide,
    "%": lambda a, b: math.fmod(a, b) if isinstance(a, float) else int(math.fmod(a, b)),
    "abs": abs,
    "min": min,
    "max": max,
    "neg": operator.neg,
    "sqrt": math.sqrt,
    "log": math.log,
    "exp": math.exp,
    "to-f64": float,
    "to-i64": int,
    "not": operator.not_,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "!=": lambda a, b: not equal(a, b),
    "vec-of": lambda *a: tuple(a),
    "vec-empty": lambda: (),
    "vec-get": _get,
    "vec-set": _set,
    "vec-pop": _pop,
    "vec-push": lambda v, x: (*v, x),
    "vec-append": lambda *v: sum(v, start=()),
    "vec-length": len,
}


def relation(form: Form, scope: Scope) -> dict[str, Any] | None:
    """Check a fact about vectors; gives what it binds, None where it does not hold; raises Unbound.

    Facts about classes (masks, ramps) are not checked here: generation makes them true, or the rule does not fire.
    """
    name = form.head
    single = {"identity-perm", "swaps-last-two", "swaps-heads"}
    if name in single:
        perm = compute(form.items[1], scope)
        return {} if name in shape_facts.permutation_facts(perm) else None
    if name == "fits":
        return {} if shape_facts.fits(*(compute(i, scope) for i in form.items[1:])) else None
    if name == "unit-perm":
        perm, shape = (compute(i, scope) for i in form.items[1:])
        return {} if len(perm) == len(shape) and shape_facts.keeps_order(perm, shape) else None
    if name in ("compose-perm", "inverse-perm"):
        outer, inner = (compute(i, scope) for i in form.items[1:3])
        if len(outer) != len(inner):
            return None
        both = shape_facts.compose(outer, inner)
        if name == "inverse-perm":
            return {} if "identity-perm" in shape_facts.permutation_facts(both) else None
        return _bind(form.items[3:], [both], scope)
    if name == "repeats-axis":
        found = shape_facts.expand_fact(*(compute(i, scope) for i in form.items[1:3]))
        return None if found is None else _bind(form.items[3:], found, scope)
    if name in ("inserts-axis", "removes-axis", "merges-axes", "splits-axis"):
        old, new = (compute(i, scope) for i in form.items[1:3])
        for found_name, axis in shape_facts.reshape_facts(old, new):
            bound = _bind(form.items[3:], [axis], scope) if found_name == name else None
            if bound is not None:
                return bound
        return None
    raise Unbound(name)


def _bind(items: tuple[Sexpr, ...], found: Any, scope: Scope) -> dict[str, Any] | None:
    bound: dict[str, Any] = {}
    for item, value in zip(items, found, strict=True):
        try:
            if not equal(compute(item, scope), value):
                return None
        except Unbound:
            if isinstance(item, Atom):
                bound[item.text] = value
    return bound
