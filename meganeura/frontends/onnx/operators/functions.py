"""Operators that the standard itself defines by simpler ones: the definition is imported in place.

Attention becomes the IR's composite where that says the same; all else about it is taken from the standard's
definition, like the other operators here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto
from onnx.defs import OpSchema

from meganeura.frontends.onnx.elements import ELEMENTS
from meganeura.frontends.onnx.node import OnnxNode, read_node
from meganeura.frontends.onnx.registry import importer
from meganeura.frontends.onnx.value import Value
from meganeura.ir.types import DType

if TYPE_CHECKING:
    from meganeura.frontends.onnx.importer import Importer

_NUMBERS = {element: number for number, element in ELEMENTS.items()}


@importer("RotaryEmbedding", since=23)
@importer("AffineGrid", known=(1,), since=20)
@importer("CenterCropPad", known=(1,), since=18)
@importer("SpaceToDepth")
@importer("SwiGLU", since=28)
def expand_function(build: Importer, node: OnnxNode, *operands: Value | None) -> tuple[Value | None, ...]:
    """The operator through the standard's own definition of it."""
    schema = onnx.defs.get_schema(node.op_type, node.version)
    attributes = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
    attributes |= {a.name: a for a in node.proto.attribute}
    types = {name: _type(build, name, v) for name, v in zip(node.inputs, operands, strict=True) if v is not None}
    body = _definition(schema, node, attributes, [types.get(name, TypeProto()) for name in node.inputs])
    versions = {entry.domain: entry.version for entry in body.opset_import}
    nodes = [read_node(_with_attributes(n, attributes), versions, node.source) for n in body.node]
    padded = [*operands, *[None] * (len(body.input) - len(operands))]
    elements = {
        formal: types[name].tensor_type.elem_type
        for formal, name in zip(body.input, node.inputs, strict=False)
        if name in types
    }
    return build.function(nodes, dict(zip(body.input, padded, strict=True)), elements, list(body.output))


def _definition(
    schema: OpSchema, node: OnnxNode, attributes: Mapping[str, AttributeProto], types: Sequence[TypeProto]
) -> FunctionProto:
    """The standard's function body, the newest not above the model's operator set."""

    def newest(versions: Sequence[int]) -> int:
        return max([v for v in versions if v <= node.version] or [min(versions)])

    if not schema.has_context_dependent_function:  # type: ignore[attr-defined]
        version = newest(schema.function_opset_versions)  # type: ignore[attr-defined]
        return FunctionProto.FromString(schema.get_function_with_opset_version(version))  # type: ignore[attr-defined]
    proto = NodeProto(op_type=node.op_type, input=node.inputs, output=node.outputs, attribute=attributes.values())
    return FunctionProto.FromString(
        schema.get_context_dependent_function_with_opset_version(  # type: ignore[attr-defined]
            newest(schema.context_dependent_function_opset_versions),  # type: ignore[attr-defined]
            proto.SerializeToString(),
            [t.SerializeToString() for t in types],
        )
    )


def _type(build: Importer, name: str, value: Value) -> TypeProto:
    element = build.element(name)
    number = _NUMBERS[element] if element is not None else 0
    return onnx.helper.make_tensor_type_proto(number, value.shape)


def _with_attributes(proto: NodeProto, attributes: Mapping[str, AttributeProto]) -> NodeProto:
    """A body's node with the references to the function's attributes replaced, those left out dropped."""
    result = NodeProto()
    result.CopyFrom(proto)
    del result.attribute[:]
    for attribute in proto.attribute:
        copy = result.attribute.add()
        if not attribute.ref_attr_name:
            copy.CopyFrom(attribute)
        elif attribute.ref_attr_name in attributes:
            copy.CopyFrom(attributes[attribute.ref_attr_name])
            copy.name = attribute.name
        else:
            del result.attribute[-1]
        if copy.HasField("g"):
            bodies = [_with_attributes(inner, attributes) for inner in copy.g.node]
            del copy.g.node[:]
            copy.g.node.extend(bodies)
    return result


_PLAIN_ATTENTION = {"scale", "softcap", "is_causal", "q_num_heads", "kv_num_heads", "softmax_precision"}


@importer("Attention", since=23)
def attention(
    build: Importer,
    node: OnnxNode,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    *cache: Value | None,
) -> tuple[Value | None, ...]:
    """The IR's attention for whole sequences; caches, lengths and further outputs through the definition."""
    operands = (q, k, v, mask, *cache)[: len(node.inputs)]
    softcap = node.get("softcap", 0.0)
    plain = _PLAIN_ATTENTION.issuperset(node.attributes) and node.wanted == 1
    if not plain or any(item is not None for item in cache) or (softcap and mask is not None):
        return expand_function(build, node, *operands)
    folded = q.rank == 3
    heads, groups = node.get("q_num_heads", 0), node.get("kv_num_heads", 0)
    parts = [_split_heads(x, n) for x, n in ((q, heads), (k, groups), (v, groups))] if folded else [q, k, v]
    scores = (*parts[0].shape[:3], parts[1].shape[2])
    extras = []
    if mask is not None:
        if any(have not in (1, want) for have, want in zip(mask.shape[::-1], scores[::-1], strict=False)):
            return expand_function(build, node, *operands)
        extras.append(mask)
    options = {"scale": node.get("scale") or 1 / math.sqrt(parts[0].shape[3]), "softcap": softcap}
    if mask is not None:
        options |= {"mask": "fill", "fill": -math.inf} if mask.dtype is DType.BOOL else {"mask": "add"}
    out = build.apply("attention", *parts, *extras, causal=bool(node.get("is_causal", 0)), **options)
    return (_merge_heads(out) if folded else out,)


def _split_heads(x: Value, heads: int) -> Value:
    batch, rows, width = x.shape
    return x.reshape((batch, rows, heads, width // heads)).transpose((0, 2, 1, 3))


def _merge_heads(x: Value) -> Value:
    batch, heads, rows, width = x.shape
    return x.transpose((0, 2, 1, 3)).reshape((batch, rows, heads * width))
