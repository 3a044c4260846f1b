"""The check that runs between phases: structure, types recomputed, constants present."""

from __future__ import annotations

from meganeura.errors import GraphError
from meganeura.ir.graph import Graph


def validate(graph: Graph, phase: str = "") -> Graph:
    """Raise GraphError when the graph breaks an invariant of the IR; return it otherwise.

    Args:
        graph: any graph. phase: name of the phase that made it, for the message.
    """
    where = f" after {phase}" if phase else ""
    for position, node in enumerate(graph.nodes):
        name = f"%{node.id} ({node.op.name}){where}"
        if node.id != position:
            raise GraphError(f"node {name} stands at position {position}", op=node.op.name)
        if any(not 0 <= i < position for i in node.inputs):
            raise GraphError(f"node {name} reads a later node", op=node.op.name)
        node.op.check_arity(len(node.inputs))
        operands = [graph.nodes[i].type for i in node.inputs]
        inferred = node.op.infer(operands)  # type: ignore[arg-type]
        if inferred != node.type:
            raise GraphError(
                f"node {name} is typed {node.type} but its op gives {inferred}",
                op=node.op.name,
                source=node.sources[0] if node.sources else None,
            )
        if node.op.name == "constant":
            data = graph.constants.get(node.op.key)  # type: ignore[attr-defined]
            if data is None or data.type != node.type:
                raise GraphError(f"node {name}: the data of its constant is missing or of another type")
    for kind, table in (("output", graph.outputs), ("update", graph.updates)):
        for label, root in table.items():
            if not 0 <= root < len(graph.nodes):
                raise GraphError(f"{kind} {label!r}{where} names no node")
    for label, root in graph.updates.items():
        if label not in graph.states or graph.states[label].type != graph.nodes[root].type:
            raise GraphError(f"update {label!r}{where} has no state of the same type")
    return graph
