"""The table of operators: which handler imports which, from which operator set on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True)
class Handler:
    """How an operator is imported.

    Attributes:
        function: called with the builder, the node and its operands (None where left out); returns the value of
            the first output, or a tuple of values.
        known: positions of operands whose values, not only types, must be known while importing.
        since: lowest operator set version that is read right.
    """

    function: Function
    known: tuple[int, ...] = ()
    since: int = 1


HANDLERS: dict[str, Handler] = {}
"""Handlers of the standard's operators by type; filled as `meganeura.frontends.onnx.operators` is imported."""


def importer(*op_types: str, known: tuple[int, ...] = (), since: int = 1) -> Callable[[Function], Function]:
    """Register the decorated function as the handler of these operators."""

    def register(function: Function) -> Function:
        for op_type in op_types:
            HANDLERS[op_type] = Handler(function, known, since)
        return function

    return register
