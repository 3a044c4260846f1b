"""From the file's graph to what importing needs, once per model: nodes in order, tensors, element types."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from onnx import GraphProto, ModelProto, inliner

from meganeura.errors import ImportFailure
from meganeura.frontends.onnx.node import OnnxNode, read_node
from meganeura.frontends.onnx.source import Source
from meganeura.frontends.onnx.tensors import Known


@dataclass
class Prepared:
    """A model ready to be imported for any dimensions.

    Attributes:
        source: where tensors are read from. graph: the main graph. versions: operator set versions by domain.
        nodes: of the main graph, each after the nodes it reads. initializers: by name.
        elements: element type numbers of values, where type inference could tell.
    """

    source: Source
    graph: GraphProto
    versions: dict[str, int]
    nodes: list[OnnxNode]
    initializers: dict[str, Known]
    elements: dict[str, int]

    def attribute_tensor(self, node: OnnxNode, name: str) -> Known:
        """A tensor attribute of a node, read once."""
        if name not in node.tensors:
            node.tensors[name] = self.source.tensor(node.need(name), node.source)
        return node.tensors[name]


def prepare(source: Source) -> Prepared:
    """Inline the model's own functions, read its nodes and tensors, and infer element types."""
    proto = source.proto
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    graph = proto.graph
    if graph.sparse_initializer:
        raise ImportFailure("sparse initializers are not supported", source=source.name)
    initializers = {tensor.name: source.tensor(tensor) for tensor in graph.initializer}
    nodes = [read_node(node, versions) for node in graph.node]
    given = {*initializers, *(info.name for info in graph.input)}
    in_order(nodes, given, [output.name for output in graph.output])
    return Prepared(source, graph, versions, nodes, initializers, _element_types(proto))


def in_order(nodes: list[OnnxNode], given: set[str], results: list[str]) -> list[OnnxNode]:
    """Check that every operand is made before it is read, as the standard asks, and every result at all."""
    made = set(given)
    for node in nodes:
        for name in node.inputs:
            if name and name not in made:
                raise ImportFailure(
                    f"{node.source}: its operand {name!r} is not made by any node before it",
                    op=node.op_type,
                    source=node.source,
                    remedy="the file is damaged or was cut",
                )
        made.update(node.outputs)
    missing = [name for name in results if name not in made]
    if missing:
        raise ImportFailure(
            f"output {missing[0]!r} is made by no node", source=missing[0], remedy="the file is damaged"
        )
    return nodes


def _element_types(proto: ModelProto) -> dict[str, int]:
    """Element types of all values, inferred on a copy without tensor data."""
    bare = ModelProto()
    bare.ir_version = proto.ir_version
    bare.opset_import.extend(proto.opset_import)
    bare.graph.name = proto.graph.name
    bare.graph.node.extend(proto.graph.node)
    named = {info.name for info in proto.graph.input}
    bare.graph.input.extend(proto.graph.input)
    for tensor in proto.graph.initializer:
        if tensor.name not in named:
            bare.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, None))
    bare.graph.output.extend(proto.graph.output)
    try:
        graph = onnx.shape_inference.infer_shapes(bare).graph
    except (onnx.shape_inference.InferenceError, RuntimeError):
        graph = bare.graph
    infos = [*graph.input, *graph.value_info, *graph.output]
    return {i.name: i.type.tensor_type.elem_type for i in infos if i.type.HasField("tensor_type")}
