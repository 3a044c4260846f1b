"""From the chosen terms back to a graph."""

from __future__ import annotations

from collections.abc import Mapping

from meganeura.egraph.fold import LEAVES, VIEW_ELEMENTS, VIEWS, derive, leaf_constant
from meganeura.egraph.provenance import Provenance
from meganeura.egraph.snapshot import Snapshot, Term
from meganeura.errors import GraphError
from meganeura.ir.constants import ConstantData
from meganeura.ir.graph import Graph, Tensor
from meganeura.ir.op import sizeof
from meganeura.ir.types import TensorType, ValueType
from meganeura.ir.validate import validate


class Decoder:
    """Builds the new graph; constant subprograms become constants that are computed when loaded."""

    def __init__(
        self,
        graph: Graph,
        snapshot: Snapshot,
        chosen: Mapping[int, Term],
        types: Mapping[int, ValueType],
        constants: frozenset[int],
        provenance: Provenance,
    ) -> None:
        self._graph, self._snapshot, self._chosen = graph, snapshot, chosen
        self._types, self._constants, self._provenance = types, constants, provenance
        self.new = Graph(graph.name)
        self.node_rules: dict[int, tuple[str, ...]] = {}
        self._tensors: dict[int, Tensor] = {}
        self._data: dict[int, ConstantData] = {}

    def run(self, order: list[int]) -> Graph:
        """The new graph.

        Args:
            order: the needed classes, operands first.
        """
        graph, new, class_of = self._graph, self.new, self._snapshot.class_of
        for kind, leaves in (("input", graph.inputs), ("state", graph.states)):
            for name, node in leaves.items():
                leaf = getattr(new, kind)(name, node.tensor_type.shape, node.tensor_type.dtype)
                self._tensors[class_of[node.id]] = leaf
        needed = self._needed(order)
        for here in order:
            if here in needed and here not in self._tensors:
                self._tensors[here] = self._build(here)
        for name, root in graph.outputs.items():
            new.output(name, self._tensors[class_of[root]])
        for name, root in graph.updates.items():
            new.update(name, self._tensors[class_of[root]])
        return validate(new, "the e-graph search")

    def _is_folded(self, here: int) -> bool:
        """Whether a class becomes a constant: all it reads is constant, and it isn't a view worth keeping."""
        term, value_type = self._chosen[here], self._types[here]
        if here not in self._constants or not term.operands or not isinstance(value_type, TensorType):
            return False
        return term.op.foldable and not (term.op.name in VIEWS and sizeof(value_type.shape) > VIEW_ELEMENTS)

    def _needed(self, order: list[int]) -> set[int]:
        """The classes that become nodes: those a folded constant alone reads do not."""
        needed = {self._snapshot.class_of[root] for root in self._graph.roots}
        for here in reversed(order):
            if here in needed and not self._is_folded(here):
                needed.update(self._chosen[here].operands)
        return needed

    def _build(self, here: int) -> Tensor:
        term = self._chosen[here]
        with self.new.scope(*self._provenance.sources(here, term)):
            if term.op.name == "constant" or self._is_folded(here):
                result = self.new.constant(self.constant_data(here))
            else:
                result = self.new.apply(term.op, *(self._tensors[o] for o in term.operands))
        rules = self._provenance.rules(here, term)
        if rules:
            self.node_rules[result.id] = rules
        return result

    def constant_data(self, here: int) -> ConstantData:
        """The data of a constant class."""
        known = self._data.get(here)
        if known is None:
            term, value_type = self._chosen[here], self._types[here]
            if not isinstance(value_type, TensorType):
                raise GraphError("a tuple cannot be a constant", op=term.op.name)
            if term.op.name == "constant":
                known = self._graph.constants[term.op.key]  # type: ignore[attr-defined]
            elif term.op.name in LEAVES:
                known = leaf_constant(term.op, value_type)
            else:
                known = derive([self.constant_data(o) for o in term.operands], term.op, value_type)
            self._data[here] = known
        return known
