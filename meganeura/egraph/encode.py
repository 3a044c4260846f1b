"""From a graph to an e-graph: one class per node, its handle `(N id)` the node's id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meganeura.egraph.annotate import Annotator
from meganeura.egraph.load import Loader
from meganeura.egraph.schema import Constructor
from meganeura.errors import GraphError
from meganeura.ir.graph import Graph

if TYPE_CHECKING:
    from meganeura.egraph.engine import Engine


def encode(graph: Graph, engine: Engine, schema: dict[str, Constructor]) -> Annotator:
    """Load every node of a concrete graph with its type and facts."""
    if graph.symbols:
        raise GraphError(
            f"the graph still has symbolic dimensions: {', '.join(sorted(graph.symbols))}", remedy="bind them first"
        )
    loader = Loader(engine)
    annotator = Annotator(engine, loader, schema, graph)
    for node in graph.nodes:
        loader.node(node.id, node.op, node.inputs)
        annotator.describe(node.id, node.op, node.inputs, node.type)
        loader.fact("given", node.id)
    loader.flush()
    annotator.annotate()
    return annotator
