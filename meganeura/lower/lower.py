"""Lowering: a concrete graph becomes a plan of kernels in order over planned memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meganeura.facts import DeviceFacts
from meganeura.ir.graph import Graph, Node
from meganeura.ir.types import TupleType
from meganeura.lower.checks import check_buffers
from meganeura.lower.families import build_kernel
from meganeura.lower.legalize import legalize
from meganeura.lower.order import Step, order_steps
from meganeura.lower.places import STRIDED_VIEWS, ConstantStore, Place, Value, view_layout
from meganeura.lower.plan import assemble
from meganeura.lower.pointwise import contiguous_copy_kernel, is_pointwise, pointwise_kernel
from meganeura.lower.regions import RegionCutter
from meganeura.lower.schedule import Operand, Plan, Port
from meganeura.lower.states import in_place_updates
from meganeura.options import CompileOptions


def lower(
    graph: Graph,
    facts: DeviceFacts,
    options: CompileOptions,
    *,
    fuse: bool = True,
    rules: Mapping[int, tuple[str, ...]] | None = None,
) -> Plan:
    """Lower a concrete graph for a device.

    Args:
        graph: any concrete graph; ops without a kernel are decomposed first.
        fuse: cluster pointwise ops and see views as strides; off gives one dispatch per op, reshapes free.
        rules: for nodes of `graph`, the rewrites that led to them, carried into the dispatches.

    Raises:
        LimitError: a kernel or buffer passes a limit of the device.
    """
    legal, carried = legalize(graph, facts, rules or {})
    return _Lowering(legal, facts, options, fuse, carried).run()


class _Lowering:
    def __init__(
        self, graph: Graph, facts: DeviceFacts, options: CompileOptions, fuse: bool, rules: dict[int, tuple[str, ...]]
    ) -> None:
        self.graph, self.facts, self.options, self.fuse, self.rules = graph, facts, options, fuse, rules
        self.constants = ConstantStore(graph, facts, options)
        self.cutter = RegionCutter(graph, fuse, max(1, facts.limits.max_storage_buffers - 1))
        self.in_place = in_place_updates(graph)
        self.places: dict[tuple[int, int], Place] = {}
        self.steps: list[Step] = []

    def run(self) -> Plan:
        inputs = [self._leaf(name, node, "input") for name, node in self.graph.inputs.items()]
        states = [self._leaf(name, node, "state") for name, node in self.graph.states.items()]
        # In graph order whatever is stored at all finds its operands stored; the rest follows on demand.
        for node in self.graph.nodes:
            if node.op.name in ("input", "state", "constant", "proj"):
                continue
            if not is_pointwise(node.op) or (self._locate(node) is None and self.cutter.stored(node)):
                self._store(node)
        outputs = [self._output(name, self.graph.nodes[root]) for name, root in self.graph.outputs.items()]
        for name, root in self.graph.updates.items():
            self._commit(name, self.graph.nodes[root])
        plan = assemble(self.graph, order_steps(self.steps), inputs, outputs, states, self.options.reuse_memory)
        return check_buffers(plan, self.facts)

    def _leaf(self, name: str, node: Node, role: str) -> tuple[Port, Value]:
        operand = Operand.contiguous(node.tensor_type)
        value = Value(role, operand.nbytes, name)
        self.places[(node.id, 0)] = Place(value, operand)
        return Port(name, -1, operand), value

    # ---- places -----------------------------------------------------------------------------------

    def _locate(self, node: Node) -> Place | None:
        """Where a node's value lies already, possibly as a strided view; None if it lies nowhere yet."""
        known = self.places.get((node.id, 0))
        if known is not None:
            return known
        if node.op.name == "constant":
            return self.constants.place(node)
        if node.op.name == "proj":
            return self.places.get((node.inputs[0], node.op.index))  # type: ignore[attr-defined]
        if node.op.name in STRIDED_VIEWS and (self.fuse or node.op.name == "reshape"):
            base = self._locate(self.graph.nodes[node.inputs[0]])
            layout = None if base is None else view_layout(node, base.operand.layout)
            return None if base is None or layout is None else base.seen(layout)
        return None

    def _base(self, node: Node) -> Node:
        while node.op.name in STRIDED_VIEWS and (self.fuse or node.op.name == "reshape"):
            node = self.graph.nodes[node.inputs[0]]
        return node

    def _stored_place(self, node: Node) -> Place:
        """Where a kernel can read the node, storing it first if need be."""
        if node.op.name == "full":
            return self.constants.scalar(node)
        place = self._locate(node)
        if place is None:
            base = self._base(node)
            if base is not node and base.op.name != "full" and self.cutter.stored(base):
                self._stored_place(base)
                place = self._locate(node)
        if place is None:
            self._store(node)
            place = self._locate(node)
        assert place is not None
        return place

    def _reach(self, node: Node) -> Place | None:
        """Where a region can read the node; None if the region is to compute it."""
        if node.op.name == "full":
            return None
        place = self._locate(node)
        if place is not None:
            return place
        base = self._base(node)
        if not is_pointwise(base.op) or (base.op.name != "full" and self.cutter.stored(base)):
            self._stored_place(base)
            place = self._locate(node)
            if place is not None:
                return place
        if self.cutter.stored(node):
            return self._stored_place(node)
        return None

    # ---- kernels ----------------------------------------------------------------------------------

    def _store(self, node: Node) -> None:
        """Emit the dispatch that computes a node into memory."""
        if (node.id, 0) in self.places:
            return
        if node.op.name in ("state_update", "cache_write"):
            self._update(node)
        elif is_pointwise(node.op):
            self._region(node)
        else:
            self._kernel(node)

    def _kernel(self, node: Node) -> None:
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        if all(kind.size == 0 for kind in types):
            self._results(node, [Operand.contiguous(kind) for kind in types])
            return
        inputs = [self._stored_place(self.graph.nodes[i]) for i in node.inputs]
        operands = tuple(p.operand for p in inputs)
        kernel = build_kernel(node.op, operands, node.type, self.facts, self.options)
        outputs = self._results(node, kernel.outputs)
        self._emit(Step(kernel, inputs, outputs, node.id), [node.id, *node.inputs])

    def _results(self, node: Node, operands: Sequence[Operand]) -> list[Place]:
        """New memory for a node's results."""
        places = [Place(Value("temp", operand.nbytes), operand) for operand in operands]
        self.places.update({(node.id, index): place for index, place in enumerate(places)})
        return places

    def _region(self, node: Node) -> None:
        region, places, covered = self.cutter.cut(node, self._reach)
        kernel = pointwise_kernel(node.op, tuple(p.operand for p in places), region)
        place = Place(Value("temp", kernel.outputs[0].nbytes), kernel.outputs[0])
        self.places[(node.id, 0)] = place
        if place.operand.layout.size:
            self._emit(Step(kernel, places, [place], node.id), [node.id, *covered])

    def _update(self, node: Node) -> None:
        state, rows, position = (self.graph.nodes[i] for i in node.inputs)
        old = self._stored_place(state) if node.id in self.in_place else self._copy(state)
        inputs = [old, self._stored_place(rows), self._stored_place(position)]
        kernel = build_kernel(node.op, tuple(p.operand for p in inputs), node.type, self.facts, self.options)
        new = Place(old.value, old.operand, old.version + 1)
        self.places[(node.id, 0)] = new
        if inputs[1].operand.layout.size:
            self._emit(Step(kernel, inputs, [new], node.id), [node.id])

    def _copy(self, node: Node, into: Value | None = None, version: int = 0) -> Place:
        """Copy a node's value to memory of its own, or into given memory."""
        source = self._stored_place(node)
        kernel = contiguous_copy_kernel(node.op, source.operand, node.tensor_type.dtype)
        place = Place(into or Value("temp", kernel.outputs[0].nbytes), kernel.outputs[0], version)
        if place.operand.layout.size:
            self._emit(Step(kernel, [source], [place], node.id), [node.id])
        return place

    def _emit(self, step: Step, covered: list[int]) -> None:
        # A part cut from a packed product stands for a source node that the product computes.
        parts = [r for r in self.cutter.readers[step.node] if self.graph.nodes[r].op.name in ("slice", "proj")]
        sources: dict[str, None] = {}
        rules: dict[str, None] = {}
        for node_id in (*covered, *parts):
            own = node_id == step.node or is_pointwise(self.graph.nodes[node_id].op)
            if own:
                sources.update(dict.fromkeys(self.graph.nodes[node_id].sources))
                rules.update(dict.fromkeys(self.rules.get(node_id, ())))
        step.sources, step.rules = tuple(sources), tuple(rules)
        self.steps.append(step)

    # ---- results ----------------------------------------------------------------------------------

    def _output(self, name: str, node: Node) -> tuple[Port, Value]:
        place = self._stored_place(node)
        if place.value.role not in ("temp", "output") or place.version > 0:
            place = self._copy(node)
        place.value.role = "output"
        return Port(name, -1, place.operand), place.value

    def _commit(self, name: str, node: Node) -> None:
        leaf = self.graph.states[name]
        target = self.places[(leaf.id, 0)]
        place = self._stored_place(node)
        if place.value is target.value and place.operand == target.operand:
            return
        if place.value.role == "state":
            # Another state may be overwritten before this one is read: go through memory of its own.
            temporary = self._copy(node)
            self.places[(node.id, 0)] = temporary
        self._copy(node, into=target.value, version=target.version + 1)
