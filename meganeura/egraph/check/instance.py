"""From sketches to graphs: one graph holds many, and each is known by the names of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from meganeura.egraph.check.sketch import Item, has_value
from meganeura.errors import GraphError
from meganeura.ir.graph import Graph, Tensor
from meganeura.ir.op import sizeof
from meganeura.ir.types import TensorType

Items = Mapping[str, Item]


def build(graph: Graph, items: Items, mark: str = "") -> None:
    """Add a sketch to a graph: inputs `MARKx0`, `MARKx1`, ..., outputs `MARKy0`, ..."""
    made: dict[str, Tensor] = {}
    read = {o for item in items.values() for o in item.operands}
    count = 0
    for name, item in items.items():
        leaf = item.leaf
        if leaf is None:
            assert item.op is not None
            made[name] = graph.apply(item.op, *(made[o] for o in item.operands))
        elif leaf.kind == "full":
            made[name] = graph.full(leaf.value, leaf.type.shape, leaf.type.dtype)
        elif leaf.kind == "constant":
            # A uniform array becomes a `full` here, as in any graph.
            made[name] = graph.constant(leaf.array)
        else:
            make = graph.state if leaf.kind == "state" else graph.input
            made[name] = make(f"{mark}x{count}", leaf.type.shape, leaf.type.dtype)
            count += 1
    sinks = [made[n] for n in items if n not in read and isinstance(made[n].type, TensorType)]
    outputs = sinks or [made[n] for n in items if isinstance(made[n].type, TensorType)][-1:]
    for number, tensor in enumerate(dict.fromkeys(t.id for t in outputs)):
        graph.output(f"{mark}y{number}", Tensor(graph, tensor))


def batch(sketches: Sequence[Items]) -> Graph:
    """One graph of many sketches, the n-th marked `cN_`."""
    graph = Graph("cases")
    for number, items in enumerate(sketches):
        build(graph, items, f"c{number}_")
    return graph


def single(items: Items, name: str) -> Graph:
    """A graph of one sketch."""
    graph = Graph(name)
    build(graph, items)
    return graph


def remade(items: Items) -> dict[str, Item] | None:
    """The items with types inferred anew after a change, None where they don't fit any more."""
    done: dict[str, Item] = {}
    for name, item in items.items():
        if item.leaf is not None:
            done[name] = replace(item, type=item.leaf.type)
            continue
        if item.op is None or any(o not in done for o in item.operands):
            return None
        kinds = [done[o].type for o in item.operands]
        try:
            item.op.check_arity(len(kinds))
            if any(not isinstance(k, TensorType) for k in kinds) and item.op.name != "proj":
                return None
            if not has_value(item.op, kinds):
                return None
            done[name] = replace(item, type=item.op.infer(kinds))  # type: ignore[arg-type]
        except (GraphError, IndexError, ValueError, TypeError, AttributeError):
            return None
    return done


def size(items: Items) -> tuple[int, int]:
    """How large a sketch is: nodes, then elements."""
    elements = sum(sizeof(i.type.shape) for i in items.values() if isinstance(i.type, TensorType))
    return len(items), elements


def pruned(items: Items, root: str) -> dict[str, Item]:
    """Only what one item needs."""
    keep, waiting = set(), [root]
    while waiting:
        name = waiting.pop()
        if name not in keep:
            keep.add(name)
            waiting += items[name].operands
    return {name: item for name, item in items.items() if name in keep}
