"""Where values lie: buffers-to-be, and the strided views of them that graph nodes denote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from meganeura.facts import DeviceFacts
from meganeura.ir.constants import ConstantData, cast_constant, transposed_constant
from meganeura.ir.graph import Graph, Node
from meganeura.ir.types import DType, TensorType
from meganeura.lower.matmul import preferred_weight_layout
from meganeura.lower.schedule import Layout, Operand
from meganeura.options import CompileOptions

_HALVED_FROM = 4096
"""Constants of rank 2 or more with at least this many elements are stored as f16 when asked for."""


@dataclass(eq=False)
class Value:
    """A piece of device memory with one meaning: a leaf, a constant, or the result of a dispatch."""

    role: str
    nbytes: int
    name: str = ""
    constant: ConstantData | None = None
    version: int = 0
    writers: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """A tensor in memory: which value, seen through which operand, and at which version of it."""

    value: Value
    operand: Operand
    version: int = 0

    def seen(self, layout: Layout) -> Place:
        """The same memory through another layout."""
        return Place(self.value, Operand(self.operand.dtype, layout), self.version)


def view_layout(node: Node, layout: Layout) -> Layout | None:
    """The layout of a view op's result from its operand's, or None where strides can't express it."""
    op = node.op
    shape = node.tensor_type.dims
    if op.name == "reshape":
        return layout.reshaped(shape)
    if op.name == "transpose":
        return layout.permuted(op.perm)  # type: ignore[attr-defined]
    if op.name == "expand":
        return layout.expanded(shape)
    if op.name == "slice":
        return layout.sliced(op.starts, op.stops, op.steps)  # type: ignore[attr-defined]
    return None


STRIDED_VIEWS = frozenset({"reshape", "transpose", "expand", "slice"})
"""View ops that strides can often express."""


class ConstantStore:
    """Chooses for every constant of a graph its one layout and storage dtype in device memory."""

    def __init__(self, graph: Graph, facts: DeviceFacts, options: CompileOptions) -> None:
        self._graph, self._options = graph, options
        self._orders = _weight_orders(graph, facts)
        self._places: dict[str, Place] = {}

    def place(self, node: Node) -> Place:
        """Place of a `constant` node."""
        key = node.op.key  # type: ignore[attr-defined]
        if key not in self._places:
            self._places[key] = self._make(self._graph.constants[key])
        return self._places[key]

    def _make(self, data: ConstantData) -> Place:
        shape = data.type.dims
        layout = Layout.contiguous(shape)
        stored = data
        if self._orders.get(data.key) == (1, 0):
            stored = transposed_constant(data, (1, 0))
            layout = Layout.contiguous(shape[::-1]).permuted((1, 0))
        halved = self._options.weights == "f16" and data.type.dtype is DType.F32 and len(shape) > 1
        if halved and layout.size >= _HALVED_FROM:
            stored = cast_constant(stored, DType.F16)
        operand = Operand(stored.type.dtype, layout)
        return Place(Value("constant", operand.nbytes, stored.key, stored), operand)

    def scalar(self, node: Node) -> Place:
        """Place of a `full` node that a kernel reads: one element, stretched by strides of zero."""
        op = node.op
        kind = TensorType(node.tensor_type.dtype, (1,))
        key = f"scalar({op.value!r},{kind.dtype.value})"  # type: ignore[attr-defined]
        if key not in self._places:
            import numpy as np

            array = np.array([op.value], kind.dtype.numpy)  # type: ignore[attr-defined]
            data = ConstantData(key, kind, lambda: array)
            operand = Operand.contiguous(kind)
            self._places[key] = Place(Value("constant", operand.nbytes, key, data), operand)
        shape = node.tensor_type.dims
        return self._places[key].seen(Layout(shape, (0,) * len(shape)))


def _weight_orders(graph: Graph, facts: DeviceFacts) -> dict[str, tuple[int, int]]:
    """For rank-2 constants that a matmul reads as its right operand: the axis order to store them in."""
    orders: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        if node.op.name not in ("matmul", "fused_matmul", "gated_matmul"):
            continue
        flipped = bool(node.op.transpose_b)  # type: ignore[attr-defined]
        operand = graph.nodes[node.inputs[1]]
        while operand.op.name == "transpose" and operand.op.perm == (1, 0):  # type: ignore[attr-defined]
            flipped = not flipped
            operand = graph.nodes[operand.inputs[0]]
        if operand.op.name != "constant" or operand.tensor_type.rank != 2:
            continue
        # As the constant stands it is [n, k] when flipped, else [k, n].
        wanted = preferred_weight_layout(node.op, facts)
        stands = "nk" if flipped else "kn"
        orders.setdefault(operand.op.key, (0, 1) if wanted == stands else (1, 0))  # type: ignore[attr-defined]
    return orders


Materialize = Callable[[int], Place]
