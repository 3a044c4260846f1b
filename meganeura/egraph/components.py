"""Strongly connected components, operands before readers."""

from __future__ import annotations

from collections.abc import Sequence

import networkx


def components(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """Components of the graph `i -> edges[i]`; every component comes after those it points to, members sorted.

    The order is what the algorithm gives (Tarjan's with Nuutila's changes closes a component after all it reaches);
    a test holds networkx to it.
    """
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(edges)))
    graph.add_edges_from((here, there) for here, targets in enumerate(edges) for there in targets)
    return [sorted(members) for members in networkx.strongly_connected_components(graph)]
