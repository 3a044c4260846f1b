"""Symbolic dimensions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meganeura.errors import GraphError
from meganeura.ir.dims import Dim, as_shape, bind_shape, divide, parse_dim, size, symbol, symbols_of

B, S = symbol("batch"), symbol("seq")
VALUES = {"batch": 3, "seq": 5}


def value(dim: Dim) -> int:
    return dim if isinstance(dim, int) else int(dim.bind(VALUES))  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.sampled_from("+-*"), st.sampled_from([B, S, 1, 2, 7])), max_size=6))
def test_arithmetic_is_that_of_integers(steps: list[tuple[str, Dim]]) -> None:
    dim: Dim = B
    number = VALUES["batch"]
    for sign, other in steps:
        dim = dim + other if sign == "+" else dim - other if sign == "-" else dim * other
        number = (
            number + value(other) if sign == "+" else number - value(other) if sign == "-" else number * value(other)
        )
    assert value(dim) == number
    assert parse_dim(repr(dim)) == dim


def test_equal_polynomials_are_equal() -> None:
    assert B * S + 2 * S == S * (B + 2)
    assert B - B == 0
    assert isinstance(B - B, int)
    assert hash(B + S) == hash(S + B)
    assert B != S


def test_division_is_exact_or_refused() -> None:
    assert divide(6 * B * S, 2 * B) == 3 * S
    assert divide(B + 1, 2) is None
    assert divide(7, 2) is None
    assert divide(B, S) is None
    assert divide(B + S, B + S) == 1
    assert divide(B, 0) is None


def test_shapes() -> None:
    shape = as_shape(("batch", 3, S + 1))
    assert size(shape) == 3 * B * (S + 1)
    assert symbols_of(shape) == {"batch", "seq"}
    assert bind_shape(shape, VALUES) == (3, 3, 6)
    assert size(()) == 1


@pytest.mark.parametrize("text", ["a!", "2**x", "-", "1.5*a", "3a"])
def test_unreadable_dimensions_are_refused(text: str) -> None:
    with pytest.raises(GraphError):
        parse_dim(text)


def test_negative_dimensions_are_refused() -> None:
    with pytest.raises(GraphError, match="negative"):
        as_shape((2, -1))
