"""Text of index expressions: where the row or element of a strided operand starts."""

from __future__ import annotations

from collections.abc import Sequence

from meganeura.codegen.indices import Digit, Index, Literal, Sum, Variable, coordinates_of, weighted_sum


def place_of(position: str, shape: Sequence[int], strides: Sequence[int], offset: int = 0, step: int = 1) -> str:
    """WGSL expression of the place of row-major `position` in `shape` among elements of these strides.

    Args:
        position: name of a u32 below the size of `shape`. offset: place of position 0.
        step: the result is counted in units of so many elements (vectors); strides and offset must divide.
    """
    count = 1
    for dim in shape:
        count *= dim
    coordinates = coordinates_of(Variable(position, count), shape)
    pairs = [(index, stride // step) for index, stride in zip(coordinates, strides, strict=True)]
    return index_text(weighted_sum(pairs, offset // step))


def index_text(index: Index) -> str:
    """WGSL expression of an index without negative terms."""
    if isinstance(index, Literal):
        return f"{index.value}u"
    if isinstance(index, Variable):
        return index.name
    if isinstance(index, Digit):
        text = _factor(index.base)
        if index.stride > 1:
            text = f"{text} / {index.stride}u"
        return f"{text} % {index.size}u" if index.base.bound > index.stride * index.size else text
    terms = [_factor(t) if f == 1 else f"{_factor(t)} * {f}u" for t, f in index.terms]
    return " + ".join([*terms, f"{index.constant}u"] if index.constant else terms)


def _factor(index: Index) -> str:
    text = index_text(index)
    return f"({text})" if isinstance(index, Sum | Digit) and " " in text else text
