"""Control flow whose course is known while importing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meganeura.frontends.onnx.node import OnnxNode
from meganeura.frontends.onnx.registry import importer
from meganeura.frontends.onnx.value import Value

if TYPE_CHECKING:
    from meganeura.frontends.onnx.importer import Importer


@importer("If", known=(0,))
def if_(build: Importer, node: OnnxNode, condition: Value) -> tuple[Value, ...]:
    """The branch that a known condition takes, in place."""
    return build.subgraph(node.need("then_branch" if condition.scalar("the condition") else "else_branch"))
