"""Dimensions: plain ints, or polynomials over named symbols until a graph is made concrete.

A symbolic dimension is an integer polynomial such as `batch`, `2*seq` or `batch*heads + 1`. Polynomials
are closed under what shape rules do (add, subtract, multiply, exact division), and two are equal
exactly when their normal forms are, so no solver is needed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from meganeura.errors import GraphError

Monomial: TypeAlias = tuple[str, ...]


class SymDim:
    """An integer polynomial over named symbols; immutable, hashable, never a plain constant.

    Build one with `symbol("batch")` and arithmetic; results that are constant come back as `int`.
    """

    __slots__ = ("terms",)

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms

    def __add__(self, other: Dim) -> Dim:
        total = dict(self.terms)
        for monomial, factor in _terms(other):
            total[monomial] = total.get(monomial, 0) + factor
        return _normal(total)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return _normal({m: -f for m, f in self.terms})

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return (-self) + other

    def __mul__(self, other: Dim) -> Dim:
        total: dict[Monomial, int] = {}
        for left, left_factor in self.terms:
            for right, right_factor in _terms(other):
                monomial = tuple(sorted(left + right))
                total[monomial] = total.get(monomial, 0) + left_factor * right_factor
        return _normal(total)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymDim) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    def __repr__(self) -> str:
        def term(monomial: Monomial, factor: int) -> str:
            if not monomial:
                return str(factor)
            body = "*".join(monomial)
            return body if factor == 1 else f"{factor}*{body}"

        return "+".join(term(m, f) for m, f in self.terms).replace("+-", "-")

    def symbols(self) -> set[str]:
        """The names this dimension depends on."""
        return {name for monomial, _ in self.terms for name in monomial}

    def bind(self, dims: Mapping[str, int]) -> Dim:
        """Replace the symbols found in `dims` by their values."""
        result: Dim = 0
        for monomial, factor in self.terms:
            product: Dim = factor
            for name in monomial:
                product = product * (dims[name] if name in dims else symbol(name))
            result = result + product
        return result


Dim: TypeAlias = int | SymDim
Shape: TypeAlias = tuple[Dim, ...]


def symbol(name: str) -> SymDim:
    """The symbolic dimension called `name` (letters, digits, `_`, `.`, `:`; not starting with a digit)."""
    return SymDim((((name,), 1),))


def _terms(dim: Dim) -> Iterable[tuple[Monomial, int]]:
    return dim.terms if isinstance(dim, SymDim) else (((), int(dim)),)


def _normal(terms: Mapping[Monomial, int]) -> Dim:
    kept = tuple(sorted(((m, f) for m, f in terms.items() if f), key=lambda t: (-len(t[0]), t[0])))
    if not kept:
        return 0
    if len(kept) == 1 and kept[0][0] == ():
        return kept[0][1]
    return SymDim(kept)


def divide(dim: Dim, by: Dim) -> Dim | None:
    """Exact quotient `dim / by`, or None when it is not known to be exact (`by` may be one monomial)."""
    divisor = tuple(_terms(by))
    if len(divisor) != 1:
        return 1 if dim == by else None
    (monomial, factor) = divisor[0]
    if factor == 0:
        return None
    quotient: dict[Monomial, int] = {}
    for left, left_factor in _terms(dim):
        rest = list(left)
        for name in monomial:
            if name not in rest:
                return None
            rest.remove(name)
        if left_factor % factor:
            return None
        quotient[tuple(rest)] = left_factor // factor
    return _normal(quotient)


def size(shape: Iterable[Dim]) -> Dim:
    """Number of elements of a shape (1 for rank 0)."""
    total: Dim = 1
    for dim in shape:
        total = total * dim
    return total


def symbols_of(shape: Iterable[Dim]) -> set[str]:
    """All symbol names in a shape."""
    return {s for dim in shape if isinstance(dim, SymDim) for s in dim.symbols()}


def bind_shape(shape: Shape, dims: Mapping[str, int]) -> Shape:
    """Substitute symbol values in a shape."""
    return tuple(dim.bind(dims) if isinstance(dim, SymDim) else dim for dim in shape)


def concrete(shape: Shape) -> tuple[int, ...]:
    """A shape of ints only; raises GraphError while it has symbols."""
    if symbols_of(shape):
        raise GraphError(f"shape {shape} is not concrete", remedy="bind its symbols first")
    return tuple(dim for dim in shape if isinstance(dim, int))


def parse_dim(text: str) -> Dim:
    """Read a dimension as `repr` prints it: `3`, `batch`, `2*batch*seq+1`."""
    total: Dim = 0
    parts = re.findall(r"[+-]?[^+-]+", text.replace(" ", ""))
    if not parts or "".join(parts) != text.replace(" ", ""):
        raise GraphError(f"not a dimension: {text!r}", remedy="use ints, names, '*', '+' and '-'")
    for part in parts:
        sign, body = (-1, part[1:]) if part[0] == "-" else (1, part.lstrip("+"))
        product: Dim = sign
        for atom in body.split("*"):
            if not re.fullmatch(r"\d+|[A-Za-z_][\w.:/]*", atom):
                raise GraphError(f"not a dimension: {text!r}", remedy="use ints, names, '*', '+' and '-'")
            product = product * (int(atom) if atom.isdigit() else symbol(atom))
        total = total + product
    return total


def as_shape(dims: Iterable[Dim | str]) -> Shape:
    """Turn a user's shape, in which a string names a symbolic dimension, into a `Shape`."""
    if isinstance(dims, str | int) or not hasattr(dims, "__iter__"):
        raise GraphError(f"a shape is a tuple of dimensions, not {dims!r}", remedy="write (n,) for one dimension")
    shape = []
    for dim in dims:
        if isinstance(dim, str):
            shape.append(parse_dim(dim))
        elif isinstance(dim, SymDim):
            shape.append(dim)
        else:
            try:
                value = operator.index(dim)
            except TypeError:
                raise GraphError(f"not a dimension: {dim!r}", remedy="use ints and names") from None
            if value < 0:
                raise GraphError(f"negative dimension {value}", remedy="dimensions are zero or more")
            shape.append(value)
    return tuple(shape)
