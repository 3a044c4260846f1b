"""The check before importing: every operator, version and operand count, with all complaints in one error."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import GraphProto, TensorProto

from meganeura.errors import ImportFailure
from meganeura.frontends.onnx.elements import ELEMENTS, element_name
from meganeura.frontends.onnx.node import OnnxNode, read_node
from meganeura.frontends.onnx.operators import HANDLERS
from meganeura.frontends.onnx.prepare import Prepared


def check_operators(prepared: Prepared) -> None:
    """Raise one ImportFailure that lists every unsupported operator with the names of its nodes."""
    unsupported: dict[str, list[str]] = {}
    malformed: list[str] = []
    for node in _all_nodes(prepared.nodes, prepared.versions):
        reason = _unsupported(node)
        if reason is not None:
            unsupported.setdefault(reason, []).append(node.source)
        else:
            complaint = _operand_count(node)
            if complaint:
                malformed.append(complaint)
    if unsupported:
        lines = [f"{reason}: {', '.join(names)}" for reason, names in sorted(unsupported.items())]
        raise ImportFailure(
            f"{prepared.source.name} uses what is not supported: " + "; ".join(lines),
            op=", ".join(sorted(unsupported)),
            source=prepared.source.name,
            remedy="docs/onnx.md lists the supported operators",
        )
    if malformed:
        raise ImportFailure(f"{prepared.source.name}: {'; '.join(malformed)}", source=prepared.source.name)


def _all_nodes(nodes: list[OnnxNode], versions: dict[str, int]) -> Iterator[OnnxNode]:
    for node in nodes:
        yield node
        for value in node.attributes.values():
            for graph in [value] if isinstance(value, GraphProto) else value if isinstance(value, tuple) else ():
                if isinstance(graph, GraphProto):
                    yield from _all_nodes([read_node(n, versions) for n in graph.node], versions)


def _unsupported(node: OnnxNode) -> str | None:
    """What is not supported about this node, in a few words, or None."""
    if node.domain:
        return f"{node.domain}.{node.op_type}"
    handler = HANDLERS.get(node.op_type)
    if handler is None:
        return node.op_type
    if node.version < handler.since:
        return f"{node.op_type} before operator set {handler.since} (the file has {node.version})"
    if node.op_type == "Cast" and node.get("to", TensorProto.FLOAT) not in ELEMENTS:
        return f"Cast to {element_name(node.need('to'))}"
    if node.op_type == "Constant":
        foreign = set(node.attributes) - {"value", "value_int", "value_ints", "value_float", "value_floats"}
        if foreign:
            return f"Constant given as {', '.join(sorted(foreign))}"
    for value in node.attributes.values():
        if isinstance(value, TensorProto) and value.data_type not in ELEMENTS:
            return f"{node.op_type} of {element_name(value.data_type)}"
    return None


def _operand_count(node: OnnxNode) -> str | None:
    try:
        schema = onnx.defs.get_schema(node.op_type, node.version, "")
    except onnx.defs.SchemaError:
        return f"{node.source}: {node.op_type} does not exist in operator set {node.version}"
    count = len(node.inputs)
    if not schema.min_input <= count <= schema.max_input:
        wanted = f"{schema.min_input} to {schema.max_input}" if schema.max_input < 2**31 - 1 else schema.min_input
        return f"{node.source}: {node.op_type} takes {wanted} operands, the file gives {count}"
    needed = [p.name for p in schema.inputs[:count] if p.option == onnx.defs.OpSchema.FormalParameterOption.Single]
    missing = [label for label, name in zip(needed, node.inputs, strict=False) if not name]
    return f"{node.source}: {node.op_type} lacks its operand {', '.join(missing)}" if missing else None
