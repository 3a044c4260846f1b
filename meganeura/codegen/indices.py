"""Unsigned index arithmetic, simplified while it is built.

Coordinates of one tensor are turned into those of another by sums with factors and by division with remainder. Bounds
are tracked, so that a reshape that only splits or joins axes leaves neither division nor remainder behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """A known index."""

    value: int

    @property
    def bound(self) -> int:
        return self.value + 1


@dataclass(frozen=True, slots=True)
class Variable:
    """A named u32 in the generated code that is below `bound`."""

    name: str
    bound: int


@dataclass(frozen=True, slots=True)
class Digit:
    """`(base / stride) % size`: one coordinate of a linear index."""

    base: Index
    stride: int
    size: int

    @property
    def bound(self) -> int:
        return min(self.size, max(1, -(-self.base.bound // self.stride)))


@dataclass(frozen=True, slots=True)
class Sum:
    """`constant + sum(term * factor)`; never negative as a whole."""

    terms: tuple[tuple[Index, int], ...]
    constant: int

    @property
    def bound(self) -> int:
        return self.constant + sum((t.bound - 1) * f for t, f in self.terms if f > 0) + 1


Index: TypeAlias = Literal | Variable | Digit | Sum


def weighted_sum(pairs: Iterable[tuple[Index, int]], constant: int = 0) -> Index:
    """`constant + sum(index * factor)` in its simplest form; digits of one linear index are joined again."""
    factors: dict[Index, int] = {}

    def collect(index: Index, factor: int) -> None:
        nonlocal constant
        if factor == 0 or index.bound == 1:
            return
        if isinstance(index, Literal):
            constant += index.value * factor
        elif isinstance(index, Sum):
            constant += index.constant * factor
            for term, inner in index.terms:
                collect(term, inner * factor)
        else:
            factors[index] = factors.get(index, 0) + factor

    for index, factor in pairs:
        collect(index, factor)
    constant += _join_digits(factors)
    terms = tuple((i, f) for i, f in factors.items() if f)
    if not terms:
        return Literal(constant)
    if constant == 0 and len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    return Sum(terms, constant)


def _join_digits(factors: dict[Index, int]) -> int:
    """Join adjacent digits of one linear index in place; returns what that adds to the constant."""
    constant = 0
    joined = True
    while joined:
        joined = False
        for low in [i for i in factors if isinstance(i, Digit)]:
            for high in [i for i in factors if isinstance(i, Digit)]:
                adjacent = high.base == low.base and high.stride == low.stride * low.size
                if high is low or not adjacent or factors.get(high) != factors.get(low, 0) * low.size:
                    continue
                factor = factors.pop(low)
                del factors[high]
                both = digit(low.base, low.stride, low.size * high.size)
                if isinstance(both, Sum):
                    factors.update({t: factors.get(t, 0) + f * factor for t, f in both.terms})
                    constant += both.constant * factor
                else:
                    factors[both] = factors.get(both, 0) + factor
                joined = True
                break
            if joined:
                break
    return constant


def digit(base: Index, stride: int, size: int) -> Index:
    """`(base / stride) % size`, simplified by what is known of `base`."""
    if size <= 1:
        return Literal(0)
    if isinstance(base, Literal):
        return Literal(base.value // stride % size)
    quotient = _quotient(base, stride)
    if quotient is not None:
        reduced = _remainder(quotient, size)
        if reduced is not None:
            return reduced
        base, stride = quotient, 1
    if isinstance(base, Digit) and stride < base.size:
        # A digit of a digit is a digit of the same linear index, if the sizes nest.
        inner = base.size // stride
        if base.size % stride == 0 and (inner % size == 0 or inner <= size):
            return digit(base.base, base.stride * stride, min(size, inner))
    if stride == 1 and base.bound <= size:
        return base
    return Digit(base, stride, size)


def _quotient(base: Index, stride: int) -> Index | None:
    """`base / stride` where the division comes out in the terms, else None."""
    if stride == 1:
        return base
    if base.bound <= stride:
        return Literal(0)
    if not isinstance(base, Sum) or base.constant < 0 or any(f < 0 for _, f in base.terms):
        return None
    whole = [(t, f // stride) for t, f in base.terms if f % stride == 0]
    rest = [(t, f) for t, f in base.terms if f % stride]
    below = base.constant % stride + sum((t.bound - 1) * f for t, f in rest)
    if not whole or below >= stride:
        return None
    return weighted_sum(whole, base.constant // stride)


def _remainder(base: Index, size: int) -> Index | None:
    """`base % size` where it comes out in the terms, else None."""
    if base.bound <= size:
        return base
    if not isinstance(base, Sum) or base.constant < 0 or any(f < 0 for _, f in base.terms):
        return None
    rest = [(t, f) for t, f in base.terms if f % size]
    below = base.constant % size + sum((t.bound - 1) * f for t, f in rest)
    if len(rest) == len(base.terms) or below >= size:
        return None
    return weighted_sum(rest, base.constant % size)


def linear(coordinates: Sequence[Index], shape: Sequence[int]) -> Index:
    """Row-major position of coordinates in a shape."""
    pairs, step = [], 1
    for index, size in zip(reversed(coordinates), reversed(shape), strict=True):
        pairs.append((index, step))
        step *= size
    return weighted_sum(reversed(pairs))


def coordinates_of(position: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """Coordinates in a shape of a row-major position."""
    result, step = [], 1
    for size in reversed(shape):
        result.append(digit(position, step, size))
        step *= size
    return tuple(reversed(result))
