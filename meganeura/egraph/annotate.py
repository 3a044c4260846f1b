"""Types and facts for the classes that rules have just made: one pass of Python between iterations.

Each new class gets a node id (`N`), the type its op infers, and whatever rules may ask about it. This keeps the
shape rule of an op in one place, the op itself; the e-graph only ever holds results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meganeura.egraph.constants import Constants
from meganeura.egraph.load import Loader
from meganeura.egraph.schema import Constructor, same_number
from meganeura.egraph.views import Views
from meganeura.errors import GraphError, RuleError
from meganeura.ir.graph import Graph
from meganeura.ir.op import Op
from meganeura.ir.types import TensorType, ValueType

if TYPE_CHECKING:
    from meganeura.egraph.engine import Engine, Tables


class Annotator:
    """Knows the type of every class by node id.

    Attributes:
        types: type by node id. constants: which classes are constant. terms: size of the e-graph at the last pass.
    """

    def __init__(self, engine: Engine, loader: Loader, schema: dict[str, Constructor], graph: Graph) -> None:
        self._engine, self._loader, self._schema = engine, loader, schema
        self.types: dict[int, ValueType] = {}
        self.constants = Constants(loader, graph, self.types)
        self.terms = 0
        self._views = Views(loader)
        self._seen_views: set[tuple[Any, ...]] = set()
        self._ops: dict[tuple[Any, ...], Op] = {}
        # By identity: hashing and printing ops again for every term would take longer than all the rest.
        self._labels: dict[int, str] = {}
        self._type_numbers: dict[ValueType, int] = {}
        self._types_by_node: dict[int, int] = {}
        self._inferred: dict[tuple[int, ...], ValueType] = {}
        self._next = len(graph.nodes)

    def describe(self, node_id: int, op: Op, operands: Sequence[int], value_type: ValueType) -> None:
        """Record a class and load its type and facts."""
        self.types[node_id] = value_type
        self._types_by_node[node_id] = self._type_numbers.setdefault(value_type, len(self._type_numbers))
        self._loader.type(node_id, value_type)
        if isinstance(value_type, TensorType):
            self._views.note_shape(tuple(int(d) for d in value_type.shape))  # type: ignore[arg-type]
            if self.constants.includes(op, operands):
                self.constants.describe(node_id, op, operands, value_type)
            if node_id not in self.constants.splats:
                self._loader.fact("varies", node_id)

    def annotate(self) -> bool:
        """Give types and facts to new classes and new views; whether there was anything to give."""
        rows = self._engine.freeze()
        ids = class_ids(self._engine, rows)
        self.terms = sum(len(rows[name]) for name in self._schema)
        fresh = [(made, row) for name, made in self._schema.items() for row in rows[name] if row.output not in ids]
        before = self._next
        while fresh:
            fresh = self._name_classes(fresh, ids, rows)
        self._adopt_constants(rows, ids)
        self._describe_views(rows, ids)
        # A new view in an old class brings facts, too.
        return self._loader.flush() or self._next > before

    def _name_classes(self, fresh: list[Any], ids: dict[Any, int], rows: Tables) -> list[Any]:
        """Name the classes whose terms have named operands only; return the terms still to do."""
        best: dict[Any, tuple[Any, ...]] = {}
        waiting = []
        for made, row in fresh:
            if row.output in ids:
                continue
            inputs = row.inputs
            operands = inputs[len(made.sorts) :]
            if any(o not in ids for o in operands):
                waiting.append((made, row))
                continue
            op = self.op(made, inputs)
            key = (made.name, self.label(op), tuple(ids[o] for o in operands))
            if row.output not in best or key < best[row.output][0]:
                best[row.output] = (key, op)
        if not best:
            # What is left hangs on helper constructors or on itself; it has no value of its own.
            return []
        # The order of naming must not depend on the engine's, which differs between versions.
        for output, (key, op) in sorted(best.items(), key=lambda item: item[1][0]):
            operands = key[2]
            node_id, self._next = self._next, self._next + 1
            value_type = self._infer(op, operands, output, rows)
            ids[output] = node_id
            self._loader.node(node_id, op, operands)
            self.describe(node_id, op, operands, value_type)
        return waiting

    def _describe_views(self, rows: Tables, ids: dict[Any, int]) -> None:
        for name, describe in self._views.describe.items():
            for row in rows[name]:
                key = (name, row.output, *row.inputs)
                if key in self._seen_views:
                    continue
                self._seen_views.add(key)
                operand, result = ids.get(row.inputs[-1]), ids.get(row.output)
                if operand is not None and result is not None:
                    shape = tuple(int(d) for d in self.types[operand].shape)  # type: ignore[union-attr]
                    describe(self.op(self._schema[name], row.inputs), operand, shape, result)

    def op(self, made: Constructor, arguments: Sequence[Any]) -> Op:
        """The op of a term's row."""
        inputs = arguments[: len(made.sorts)]
        key = (made.name, *inputs)
        op = self._ops.get(key)
        if op is None:
            literals = [self._engine.literal(sort, value) for sort, value in zip(made.sorts, inputs, strict=True)]
            op = self._ops[key] = made.decode(literals)
        return op

    def label(self, op: Op) -> str:
        """The op and its attributes as text; `op` must come from `self.op`."""
        label = self._labels.get(id(op))
        if label is None:
            label = self._labels[id(op)] = repr(op)
        return label

    def infer(self, op: Op, operands: Sequence[int]) -> ValueType:
        """The type of a term over typed classes; raises GraphError when it has none. `op` must come from `self.op`."""
        key = (id(op), *map(self._types_by_node.__getitem__, operands))
        known = self._inferred.get(key)
        if known is None:
            known = self._inferred[key] = op.infer([self.types[o] for o in operands])  # type: ignore[misc]
        return known

    def _infer(self, op: Op, operands: Sequence[int], output: Any, rows: Tables) -> ValueType:
        try:
            return self.infer(op, operands)
        except GraphError as error:
            raise RuleError(
                f"a rule made an ill-typed term: {error.summary}",
                op=op.name,
                source=", ".join(self.rules_at(rows, output)) or None,
                shapes=", ".join(repr(self.types[o]) for o in operands),
            ) from None

    def rules_at(self, rows: Tables, output: Any) -> list[str]:
        """Names of the rules that gave a class a term, sorted."""
        names = set()
        for table, position in (("Fired", 1), ("Made", 2)):
            for row in rows[table]:
                if row.inputs[position] == output:
                    names.add(str(self._engine.literal("String", row.inputs[0])).partition("#")[0])
        return sorted(names)

    def _adopt_constants(self, rows: Tables, ids: dict[Any, int]) -> None:
        """Classes that existed before a rule found that they are constant; two values in one class are an error."""
        values: dict[int, float] = {}
        for name in ("Full", "Constant", "Iota"):
            for row in rows[name]:
                node_id = ids.get(row.output)
                if node_id is None:
                    continue
                op = self.op(self._schema[name], row.inputs)
                if name == "Full":
                    value = op.value  # type: ignore[attr-defined]
                    if not same_number(values.setdefault(node_id, value), value):
                        raise RuleError(
                            f"one class holds two constants, {values[node_id]} and {value}: a rule is unsound",
                            source=", ".join(self.rules_at(rows, row.output)) or None,
                        )
                if node_id not in self.constants.known:
                    self.constants.describe(node_id, op, (), self.types[node_id])  # type: ignore[arg-type]


def class_ids(engine: Engine, rows: Tables) -> dict[Any, int]:
    """Smallest node id of every named class."""
    ids: dict[Any, int] = {}
    for row in rows["N"]:
        number = engine.integer(row.inputs[0])
        output = row.output
        known = ids.get(output)
        if known is None or number < known:
            ids[output] = number
    return ids
