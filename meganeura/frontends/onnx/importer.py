"""The walk over a model's nodes that builds the graph for concrete dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnx import GraphProto, TensorProto

from meganeura.errors import GraphError, ImportFailure, MeganeuraError
from meganeura.frontends.onnx.elements import ELEMENTS, Element
from meganeura.frontends.onnx.node import OnnxNode, read_node
from meganeura.frontends.onnx.prepare import Prepared, in_order
from meganeura.frontends.onnx.registry import HANDLERS
from meganeura.frontends.onnx.tensors import Known
from meganeura.frontends.onnx.value import Builder, Value
from meganeura.ir.graph import Graph
from meganeura.ir.types import DType, TensorType

DEFAULT_ELEMENTS = {
    DType.F32: TensorProto.FLOAT,
    DType.F16: TensorProto.FLOAT16,
    DType.I32: TensorProto.INT64,
    DType.U32: TensorProto.UINT32,
    DType.BOOL: TensorProto.BOOL,
}
"""The element type assumed of a value that type inference says nothing about."""

WRAPPING = frozenset(
    {"Add", "Sub", "Mul", "Div", "Neg", "Abs", "Pow", "Sum", "Cast", "CastLike", "MatMul", "Gemm"}
    | {"ReduceSum", "ReduceProd", "ReduceSumSquare", "ReduceL1", "CumSum", "Range", "Einsum"}
)
"""Operators whose result can leave the range of 8 and 16-bit integers."""


class Importer(Builder):
    """The state of one import: values by name, and access to the model for handlers that need it.

    Attributes:
        prepared: the model. values: by name, those of enclosing graphs included.
    """

    def __init__(self, prepared: Prepared, graph: Graph) -> None:
        super().__init__(graph)
        self.prepared = prepared
        self.values: dict[str, Value] = {}
        self.elements = prepared.elements

    def attribute_tensor(self, node: OnnxNode, name: str) -> Value:
        """A tensor attribute as a known value."""
        return self.wrap(self.prepared.attribute_tensor(node, name))

    def element(self, name: str) -> Element | None:
        """The ONNX element type of a value, from type inference, or the usual one of its dtype."""
        number = self.elements.get(name, 0)
        if not number and name in self.values:
            number = DEFAULT_ELEMENTS[self.values[name].dtype]
        return ELEMENTS.get(number)

    def run(self, nodes: list[OnnxNode]) -> None:
        """Import nodes in order, adding their outputs to `values`."""
        for node in nodes:
            self.source = node.source
            operands = [self.values[name] if name else None for name in node.inputs]
            results = self._call(node, operands)
            for name, value in zip(node.outputs, results, strict=False):
                if name and value is not None:
                    self.values[name] = self._wrapped(node, name, value)

    def subgraph(self, graph: GraphProto) -> tuple[Value, ...]:
        """The outputs of a nested graph without inputs, imported in place."""
        outer, source = dict(self.values), self.source
        for tensor in graph.initializer:
            self.values[tensor.name] = self.wrap(self.prepared.source.tensor(tensor))
        nodes = [read_node(node, self.prepared.versions) for node in graph.node]
        names = [output.name for output in graph.output]
        self.run(in_order(nodes, set(self.values), names))
        results = tuple(self.values[name] for name in names)
        self.values, self.source = outer, source
        return results

    def function(
        self, nodes: list[OnnxNode], operands: Mapping[str, Value | None], elements: dict[str, int], results: list[str]
    ) -> tuple[Value | None, ...]:
        """The results of a function body over its own names, imported in place; None for those it does not make."""
        outer, known, source = self.values, self.elements, self.source
        self.values = {name: value for name, value in operands.items() if value is not None}
        self.elements = elements
        # The body names left-out operands, too; they stay left out.
        missing = {name for name, value in operands.items() if value is None}
        self.run([replace(n, inputs=tuple("" if i in missing else i for i in n.inputs)) for n in nodes])
        made = self.values
        self.values, self.elements, self.source = outer, known, source
        return tuple(made.get(name) for name in results)

    def _call(self, node: OnnxNode, operands: list[Value | None]) -> tuple[Value | None, ...]:
        handler = HANDLERS[node.op_type]
        for position in handler.known:
            operand = operands[position] if position < len(operands) else None
            if operand is not None and not operand.known:
                operand.array(f"operand {node.inputs[position]!r} of {node.op_type}")
        try:
            result = handler.function(self, node, *operands)
        except ImportFailure:
            raise
        except MeganeuraError as error:
            raise self._failure(node, operands, error.summary, error.shapes, error.remedy) from error
        except (ValueError, IndexError, KeyError, TypeError, ArithmeticError, RuntimeError) as error:
            raise self._failure(node, operands, str(error) or type(error).__name__) from error
        results = result if isinstance(result, tuple) else (result,)
        for position, name in enumerate(node.outputs):
            if name and (position >= len(results) or results[position] is None):
                raise node.unsupported(f"its output {name!r}")
        return results

    def _failure(
        self, node: OnnxNode, operands: list[Value | None], what: str, shapes: object = None, remedy: str | None = None
    ) -> ImportFailure:
        types = ", ".join("-" if o is None else repr(o.type) for o in operands)
        return ImportFailure(
            f"node {node.source!r}: {node.op_type}: {what}",
            op=node.op_type,
            source=node.source,
            shapes=shapes or types,
            remedy=remedy or "the file is inconsistent, or not meant for these dimensions",
        )

    def _wrapped(self, node: OnnxNode, name: str, value: Value) -> Value:
        """The value brought back into its element type's range where arithmetic may have left it."""
        if node.op_type not in WRAPPING or value.dtype is not DType.I32:
            return value
        element = self.element(name)
        if element is None or not element.wraps:
            return value
        span = 1 << element.wraps
        low = -(span >> 1) if element.signed else 0
        # Truncated remainder has the sign of the dividend, so shift into 0..span first and twice.
        return ((value - low) % span + span) % span + low if low else (value % span + span) % span


def import_graph(
    prepared: Prepared, name: str, inputs: Mapping[str, TensorType], fixed: Mapping[str, Known], dims: Mapping[str, int]
) -> Graph:
    """The graph of a model for concrete input types; see `OnnxModel.graph`."""
    graph = Graph(name)
    build = Importer(prepared, graph)
    for label, known in {**prepared.initializers, **fixed}.items():
        build.values[label] = build.wrap(known)
    for label, tensor_type in inputs.items():
        build.values[label] = build.wrap(graph.input(label, tensor_type.shape, tensor_type.dtype))
    try:
        build.run(prepared.nodes)
    except ImportFailure as error:
        bound = ", ".join(f"{name}={value}" for name, value in sorted(dims.items()))
        shapes = " with ".join(part for part in (error.shapes and str(error.shapes), bound) if part) or None
        raise ImportFailure(
            error.summary, op=error.op, source=error.source, shapes=shapes, limit=error.limit, remedy=error.remedy
        ) from error
    for output in prepared.graph.output:
        build.source = output.name
        try:
            graph.output(output.name, build.values[output.name].tensor)
        except GraphError as error:
            raise ImportFailure(error.summary, source=error.source, shapes=error.shapes) from error
    return graph.rewrite()
