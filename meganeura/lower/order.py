"""The order of dispatches: after what they read is written, before what they read is overwritten."""

from __future__ import annotations

from dataclasses import dataclass

import networkx

from meganeura.errors import GraphError
from meganeura.lower.places import Place
from meganeura.lower.schedule import Kernel


@dataclass(eq=False)
class Step:
    """A dispatch before buffers are assigned: a kernel over places."""

    kernel: Kernel
    inputs: list[Place]
    outputs: list[Place]
    node: int
    sources: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


def order_steps(steps: list[Step]) -> list[Step]:
    """Sort steps topologically, keeping the given order wherever dependencies allow; updates of states come early.

    An update writes no memory of its own, and what it reads (a layer's keys and values, say) would otherwise live
    until the end of the program.

    A read of version v of a value comes after the write of v (read after write) and before the write of v + 1 (write
    after read); writes of one value come in the order of their versions (write after write).
    """
    written: dict[tuple[int, int], int] = {}
    for index, step in enumerate(steps):
        for place in step.outputs:
            written[(id(place.value), place.version)] = index
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(steps)))
    for index, step in enumerate(steps):
        for place in step.inputs:
            value = id(place.value)
            _after(graph, written.get((value, place.version)), index)
            _after(graph, index, written.get((value, place.version + 1)))
        for place in step.outputs:
            _after(graph, written.get((id(place.value), place.version - 1)), index)
    try:
        order = networkx.lexicographical_topological_sort(graph, key=lambda i: (not steps[i].kernel.in_place, i))
        return [steps[index] for index in order]
    except networkx.NetworkXUnfeasible:
        stuck = steps[networkx.find_cycle(graph)[0][0]]
        raise GraphError("a state is read after it was overwritten in place", op=stuck.kernel.op.name) from None


def _after(graph: networkx.DiGraph, earlier: int | None, later: int | None) -> None:
    if earlier is not None and later is not None and earlier != later:
        graph.add_edge(earlier, later)
