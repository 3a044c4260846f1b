"""One node of the source graph with its attributes as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnx import AttributeProto, NodeProto, helper

from meganeura.errors import ImportFailure
from meganeura.frontends.onnx.tensors import Known


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """A node as handlers see it.

    Attributes:
        op_type: the operator. domain: its domain, "" for the standard's own. version: operator set in force.
        source: the node's name; of an unnamed one, the operator and its first output.
        inputs: value names, "" where left out. outputs: likewise.
        attributes: ints, floats, strings, tuples, tensors and subgraphs by name.
        proto: the message it was read from. tensors: tensor attributes by name, kept once they were read.
    """

    op_type: str
    domain: str
    version: int
    source: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: NodeProto
    tensors: dict[str, Known] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or the default where the file does not give it."""
        return self.attributes.get(name, default)

    def need(self, name: str) -> Any:
        """An attribute the operator cannot do without."""
        if name not in self.attributes:
            raise ImportFailure(
                f"{self.source}: {self.op_type} lacks its attribute {name!r}", op=self.op_type, source=self.source
            )
        return self.attributes[name]

    def unsupported(self, what: str) -> ImportFailure:
        """An ImportFailure for a use of the operator that has no translation; the caller raises it."""
        return ImportFailure(
            f"{self.source}: {self.op_type} with {what} is not supported", op=self.op_type, source=self.source
        )

    def invalid(self, what: str) -> ImportFailure:
        """An ImportFailure for a node that breaks the standard; the caller raises it."""
        return ImportFailure(f"{self.source}: {self.op_type}: {what}", op=self.op_type, source=self.source)

    @property
    def wanted(self) -> int:
        """Number of outputs up to the last one that is used."""
        return max((i + 1 for i, name in enumerate(self.outputs) if name), default=0)


def read_node(proto: NodeProto, versions: Mapping[str, int], source: str = "") -> OnnxNode:
    """A node under the operator set versions by domain; `source` is its provenance where it is not its own."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    first = next((name for name in proto.output if name), "?")
    return OnnxNode(
        proto.op_type,
        domain,
        versions.get(domain, 1),
        source or proto.name or f"{proto.op_type}({first})",
        tuple(proto.input),
        tuple(proto.output),
        {a.name: _attribute(a) for a in proto.attribute},
        proto,
    )


def _attribute(proto: AttributeProto) -> Any:
    value = helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if proto.type == AttributeProto.STRINGS:
        return tuple(item.decode("utf-8", "replace") for item in value)
    return tuple(value) if proto.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value
