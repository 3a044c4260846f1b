"""Where values lie: buffers-to-be, and the strided views of them that graph nodes denote."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from meganeura.facts import DeviceFacts
from meganeura.ir.constants import ConstantData, cast_constant, packed_words, transposed_constant
from meganeura.ir.graph import Graph, Node
from meganeura.ir.types import DType, TensorType
from meganeura.lower.matmul import preferred_weight_layout
from meganeura.lower.schedule import Layout, Operand, Packing
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
        return Place(self.value, replace(self.operand, layout=layout), self.version)


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
        self._packed = _packed_weights(graph) if options.weights == "packed" else frozenset()
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
        if data.packed is not None and data.key in self._packed:
            words = packed_words(data)
            packing = Packing(data.packed.scheme, data.packed.blocks)
            if data.packed.transposed:
                layout = Layout.contiguous(shape[::-1]).permuted((1, 0))
            operand = Operand(data.type.dtype, layout, packing)
            return Place(Value("constant", operand.nbytes, data.key, words), operand)
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


def _packed_weights(graph: Graph) -> frozenset[str]:
    """Keys of the packed constants that every reader can take as they are: as columns of weights, or row by row."""
    readers, roots = graph.readers(), frozenset(graph.roots)

    def takes(node: Node, transposed: bool) -> bool:
        return node.id not in roots and all(reads(graph.nodes[r], node.id, transposed) for r in readers[node.id])

    def reads(reader: Node, operand: int, transposed: bool) -> bool:
        op, name = reader.op, reader.op.name
        if name == "transpose":
            return op.perm == (1, 0) and takes(reader, not transposed)  # type: ignore[attr-defined]
        if name == "gather":
            return reader.inputs[1] != operand and op.axis == int(transposed)  # type: ignore[attr-defined]
        # A weight [n, k] has its blocks along k.
        right = name in ("matmul", "fused_matmul", "gated_matmul") and reader.inputs.count(operand) == 1
        return right and reader.inputs[1] == operand and op.transpose_b != transposed  # type: ignore[attr-defined]

    found = [n for n in graph.nodes if n.op.name == "constant" and graph.constants[n.op.key].packed is not None]  # type: ignore[attr-defined]
    refused = {n.op.key for n in found if not takes(n, graph.constants[n.op.key].packed.transposed)}  # type: ignore
    return frozenset(n.op.key for n in found) - refused  # type: ignore[attr-defined]
