"""Which state updates may be done in place."""

from __future__ import annotations

from meganeura.ir.graph import Graph


def in_place_updates(graph: Graph) -> set[int]:
    """Ids of state_update nodes that may overwrite their state where it lies.

    An update qualifies when it is on the chain from a state to that state's new value, and nothing computed from the
    updated state also reads the old one (which would then have to survive).
    """
    allowed: set[int] = set()
    descendants = _descendants(graph)
    readers = graph.readers()
    for name, root in graph.updates.items():
        chain = []
        node = graph.nodes[root]
        while node.op.name in ("state_update", "cache_write"):
            chain.append(node.id)
            node = graph.nodes[node.inputs[0]]
        if not chain or node.id != graph.states[name].id:
            continue
        before = node.id
        for update in reversed(chain):
            after = descendants[update] | 1 << update
            others = [r for r in readers[before] if r != update]
            again = [i for i in graph.nodes[update].inputs[1:] if i == before]
            if again or any((descendants[r] | 1 << r) & after for r in others):
                break
            allowed.add(update)
            before = update
    return allowed


def _descendants(graph: Graph) -> list[int]:
    """For every node the set of nodes computed from it, as a bit mask (ids are positions)."""
    result = [0] * len(graph.nodes)
    if not graph.states:
        return result
    readers = graph.readers()
    for node in reversed(graph.nodes):
        for reader in readers[node.id]:
            result[node.id] |= 1 << reader | result[reader]
    return result
