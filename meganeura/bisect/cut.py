"""Parts of a graph as graphs of their own, with the reference's values where they were cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from meganeura.bisect.setting import Case
from meganeura.ir.graph import Graph, Node, Tensor
from meganeura.ir.types import TupleType
from meganeura.reference import evaluate


def live_nodes(graph: Graph) -> tuple[int, ...]:
    """Ids of the nodes that compute something from inputs or states, in order."""
    live: set[int] = set()
    for node in graph.nodes:
        if node.op.name in ("input", "state") or any(i in live for i in node.inputs):
            live.add(node.id)
    return tuple(n.id for n in graph.nodes if n.id in live and n.op.name not in ("input", "state"))


def values_of(case: Case, nodes: Iterable[int]) -> dict[int, np.ndarray]:
    """The reference's values of nodes with one output, by id, in their interface dtypes."""
    graph = case.graph
    wanted = [i for i in nodes if not isinstance(graph.nodes[i].type, TupleType)]
    probe = Graph(graph.name)
    probe.nodes, probe.constants, probe._leaves = graph.nodes, graph.constants, graph._leaves
    probe.outputs = {str(i): i for i in wanted}
    return {int(name): array for name, array in evaluate(probe, case.values).items()}


def cut(case: Case, kept: Iterable[int], values: Mapping[int, np.ndarray]) -> Case:
    """The graph of the kept nodes alone; whatever else they read becomes an input that holds its value.

    Results are the kept nodes that were results or that are read by none that is kept. What depends on constants only
    comes along.

    Args:
        kept: ids out of `live_nodes`. values: of all live nodes, as `values_of` gives them.
    """
    graph = case.graph
    inside = _closed(graph, set(kept))
    live = set(live_nodes(graph)) | {n.id for n in graph.nodes if n.op.name in ("input", "state")}
    arrays: dict[str, np.ndarray] = {}
    mapped: dict[int, Tensor] = {}
    new = Graph(graph.name)
    new.constants = dict(graph.constants)

    def visit(node: Node) -> Tensor:
        if node.id not in mapped:
            if node.op.name in ("input", "state"):
                name = node.op.name_of_leaf  # type: ignore[attr-defined]
                mapped[node.id] = new.apply(node.op, source=node.sources)
                new._leaves[name] = mapped[node.id].id
                arrays[name] = _given(case, node)
            elif node.id in live and node.id not in inside:
                name = _free(f"value{node.id}", graph)
                mapped[node.id] = new.input(name, node.tensor_type.shape, node.tensor_type.dtype)
                arrays[name] = values[node.id]
            else:
                operands = [visit(graph.nodes[i]) for i in node.inputs]
                mapped[node.id] = new.apply(node.op, *operands, source=node.sources)
        return mapped[node.id]

    for node in graph.nodes:
        if node.id in inside:
            visit(node)
    _results(graph, new, inside, mapped)
    return Case(_tidy(new), arrays)


def _results(graph: Graph, new: Graph, inside: set[int], mapped: Mapping[int, Tensor]) -> None:
    for name, root in graph.updates.items():
        if root in inside and graph.states[name].id in mapped:
            new.updates[name] = mapped[root].id
    for name, root in graph.outputs.items():
        if root in inside:
            new.outputs[name] = mapped[root].id
    readers = graph.readers()
    named = set(new.roots)
    for node_id in sorted(inside):
        loose = not any(r in inside for r in readers[node_id]) and mapped[node_id].id not in named
        if loose and not isinstance(graph.nodes[node_id].type, TupleType):
            new.outputs[_free(f"value{node_id}", graph)] = mapped[node_id].id


def _closed(graph: Graph, kept: set[int]) -> set[int]:
    """Parts of a node with several outputs go where the node goes: it cannot be an input."""
    for node in graph.nodes:
        if node.op.name == "proj":
            (kept.add if node.inputs[0] in kept else kept.discard)(node.id)
    return kept


def _free(name: str, graph: Graph) -> str:
    while name in graph._leaves or name in graph.outputs:
        name += "_"
    return name


def _tidy(graph: Graph) -> Graph:
    used = {n.op.key for n in graph.nodes if n.op.name == "constant"}  # type: ignore[attr-defined]
    graph.constants = {key: data for key, data in graph.constants.items() if key in used}
    return graph


def constants_of(graph: Graph) -> tuple[int, ...]:
    """Ids of the nodes known without inputs that a live node reads, uniform values and ramps left out."""
    live = set(live_nodes(graph))
    known = {i for n in live for i in graph.nodes[n].inputs} - live
    names = ("input", "state", "full", "iota")
    return tuple(sorted(i for i in known if graph.nodes[i].op.name not in names))


def feed(case: Case, nodes: Iterable[int], values: Mapping[int, np.ndarray]) -> Case:
    """The same graph with nodes known without inputs turned into inputs that hold their values."""
    chosen = set(nodes)

    def leaf(node: Node) -> tuple[str, np.ndarray] | None:
        return (_free(f"value{node.id}", case.graph), values[node.id]) if node.id in chosen else None

    return _rebuilt(case, leaf)


def without_states(case: Case) -> Case:
    """States as inputs and their updates as outputs."""

    def leaf(node: Node) -> tuple[str, np.ndarray] | None:
        return (node.op.name_of_leaf, _given(case, node)) if node.op.name == "state" else None  # type: ignore[attr-defined]

    outputs = dict(case.graph.outputs)
    outputs |= {_free(f"new_{name}", case.graph): root for name, root in case.graph.updates.items()}
    return _rebuilt(case, leaf, outputs=outputs, updates={})


def bypass(case: Case, node_id: int, operand: int) -> Case:
    """The same graph with the readers of a node reading one of its operands, of the same type, instead."""
    return _rebuilt(case, lambda node: None, {node_id: operand})


def _rebuilt(
    case: Case,
    leaf: Callable[[Node], tuple[str, np.ndarray] | None],
    through: Mapping[int, int] | None = None,
    outputs: Mapping[str, int] | None = None,
    updates: Mapping[str, int] | None = None,
) -> Case:
    """A copy of what the results need.

    Args:
        leaf: name and value of the input that a node becomes, None for a node that stays.
        through: ids of nodes to be read in the place of others. outputs, updates: other results than the graph's.
    """
    graph, around = case.graph, dict(through or {})
    outputs = graph.outputs if outputs is None else outputs
    updates = graph.updates if updates is None else updates
    needed = {around.get(root, root) for root in (*outputs.values(), *updates.values())}
    for node in reversed(graph.nodes):
        if node.id in needed and leaf(node) is None:
            needed.update(around.get(i, i) for i in node.inputs)
    new = Graph(graph.name)
    new.constants = dict(graph.constants)
    arrays: dict[str, np.ndarray] = {}
    mapped: dict[int, Tensor] = {}
    for node in graph.nodes:
        if node.id not in needed:
            continue
        made = leaf(node)
        if made is not None:
            mapped[node.id] = new.input(made[0], node.tensor_type.shape, node.tensor_type.dtype)
            arrays[made[0]] = made[1]
            continue
        operands = (mapped[around.get(i, i)] for i in node.inputs)
        mapped[node.id] = new.apply(node.op, *operands, source=node.sources)
        if node.op.name in ("input", "state"):
            name = node.op.name_of_leaf  # type: ignore[attr-defined]
            new._leaves[name], arrays[name] = mapped[node.id].id, _given(case, node)
    new.outputs = {name: mapped[around.get(root, root)].id for name, root in outputs.items()}
    new.updates = {name: mapped[around.get(root, root)].id for name, root in updates.items()}
    return Case(_tidy(new), arrays)


def _given(case: Case, node: Node) -> np.ndarray:
    """The value of an input or state; states that are not set are zeros."""
    kind = node.tensor_type
    return case.values.get(node.op.name_of_leaf, np.zeros(kind.dims, kind.dtype.numpy))  # type: ignore[attr-defined]
