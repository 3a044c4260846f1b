"""What every front end hands over: a model that gives a concrete graph for concrete dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from meganeura.errors import InputError
from meganeura.ir.graph import Graph
from meganeura.ir.types import TensorType


@runtime_checkable
class Model(Protocol):
    """A source of graphs.

    Attributes:
        name: for reports. inputs: types by name, symbolic dimensions allowed. outputs: names in order.
        symbols: names of all symbolic dimensions.
    """

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> dict[str, TensorType]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def symbols(self) -> set[str]: ...

    def graph(self, dims: Mapping[str, int]) -> Graph:
        """The graph for these dimensions; raises InputError when one is missing or makes no sense."""
        ...


class GraphModel:
    """A `Graph` built by hand, as a model."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.name = graph.name
        self.inputs = {name: node.tensor_type for name, node in graph.inputs.items()}
        self.outputs = tuple(graph.outputs)
        self.symbols = graph.symbols

    def graph(self, dims: Mapping[str, int]) -> Graph:
        """The graph with its symbols bound."""
        check_dims(self.symbols, dims)
        return self._graph.bind(dims)


def check_dims(symbols: set[str], dims: Mapping[str, int]) -> None:
    """Raise InputError unless every symbol has a value of zero or more."""
    missing = sorted(symbols - set(dims))
    if missing:
        raise InputError(
            f"dimension {', '.join(missing)} has no value", remedy="give it with --dim NAME=N or through the inputs"
        )
    for name in sorted(symbols):
        if int(dims[name]) < 0:
            raise InputError(f"dimension {name}={dims[name]} is negative", remedy="use zero or more")
