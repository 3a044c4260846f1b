"""Types and facts for the classes that rules have just made: one pass of Python between iterations.

Each new class gets a node id (`N`), the type its op infers, and whatever rules may ask about it. This keeps the
shape rule of an op in one place, the op itself; the e-graph only ever holds results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meganeura.egraph import shape_facts
from meganeura.egraph.constant_facts import ANALYSED_ELEMENTS, constant_facts
from meganeura.egraph.load import Loader
from meganeura.egraph.schema import Constructor, same_number
from meganeura.errors import GraphError, RuleError
from meganeura.ir.graph import Graph
from meganeura.ir.op import Op, sizeof
from meganeura.ir.types import TensorType, ValueType
from meganeura.reference import round_to

if TYPE_CHECKING:
    from meganeura.egraph.engine import Engine, Tables

_VIEWS = ("reshape", "transpose", "slice", "expand")
_MASK_READERS = ("add", "sub", "mul", "where", "cast", "and", "or", "not", "less", "less_equal", "equal", "expand")
Array = Callable[[], np.ndarray]


class Annotator:
    """Knows the type of every class by node id, and what is constant; see `annotate`."""

    def __init__(self, engine: Engine, loader: Loader, schema: dict[str, Constructor], graph: Graph) -> None:
        self._engine, self._loader, self._schema = engine, loader, schema
        self.types: dict[int, ValueType] = {}
        self.constants: set[int] = set()
        self.splats: dict[int, float] = {}
        self._arrays: dict[int, Array] = {}
        self._graph = graph
        self._ops: dict[tuple[Any, ...], Op] = {}
        self._inferred: dict[tuple[Op, tuple[ValueType, ...]], ValueType] = {}
        self._shapes: set[tuple[int, ...]] = set()
        self._perms: set[tuple[int, ...]] = set()
        self._seen_views: set[tuple[Any, ...]] = set()
        self._next = len(graph.nodes)
        self.terms = 0
        self._declare_views = {
            "Slice": self._slice_facts,
            "Reshape": self._reshape_facts,
            "Expand": self._expand_facts,
            "Transpose": self._transpose_facts,
        }

    # ---- one class --------------------------------------------------------------------------------

    def describe(self, node_id: int, op: Op, operands: Sequence[int], value_type: ValueType) -> None:
        """Record a class and load its type and facts."""
        self.types[node_id] = value_type
        self._loader.type(node_id, value_type)
        if not isinstance(value_type, TensorType):
            return
        self._note_shape(tuple(int(d) for d in value_type.shape))  # type: ignore[arg-type]
        if self._is_constant(op, operands):
            self._describe_constant(node_id, op, operands, value_type)

    def _is_constant(self, op: Op, operands: Sequence[int]) -> bool:
        if op.name in ("constant", "full", "iota"):
            return True
        return bool(operands) and op.foldable and all(o in self.constants for o in operands)

    def _describe_constant(self, node_id: int, op: Op, operands: Sequence[int], value_type: TensorType) -> None:
        self.constants.add(node_id)
        self._loader.fact("is-constant", node_id)
        value = self._splat(op, operands, value_type)
        if value is not None:
            self.splats[node_id] = value
            self._loader.fact("splat", node_id, value)
            return
        array = self._array(op, operands, value_type)
        elements = sizeof(value_type.shape)
        if array is not None and elements <= ANALYSED_ELEMENTS:
            self._arrays[node_id] = array
            for name, values in constant_facts(array, elements):
                self._loader.fact(name, node_id, *values)

    def _splat(self, op: Op, operands: Sequence[int], value_type: TensorType) -> float | None:
        if op.name == "full":
            return op.value  # type: ignore[attr-defined]
        if not operands or any(o not in self.splats for o in operands) or sizeof(value_type.shape) == 0:
            return None
        if op.name in _VIEWS:
            return self.splats[operands[0]]
        if not op.elementwise:
            return None
        arrays = []
        for operand in operands:
            dtype = self.types[operand].dtype  # type: ignore[union-attr]
            kind = np.float64 if dtype.is_float else np.int64 if dtype.is_integer else np.bool_
            arrays.append(np.asarray(self.splats[operand], dtype=kind))
        result = op.evaluate(arrays, TensorType(value_type.dtype, ()))
        return float(round_to(np.asarray(result), value_type.dtype))

    def _array(self, op: Op, operands: Sequence[int], value_type: TensorType) -> Array | None:
        """How to get at a constant's elements, for those that may be masks or indices."""
        if op.name == "iota":
            return lambda: np.asarray(op.evaluate([], value_type)).astype(value_type.dtype.numpy)
        if op.name == "constant":
            return self._graph.constants[op.key].load if op.key in self._worth_a_look else None  # type: ignore[attr-defined]
        if op.name in (*_VIEWS, "cast") and operands[0] in self._arrays:
            source = self._arrays[operands[0]]
            return lambda: np.asarray(op.evaluate([source()], value_type)).astype(value_type.dtype.numpy)
        return None

    @property
    def _worth_a_look(self) -> set[str]:
        if not hasattr(self, "_candidates"):
            self._candidates = set(_mask_candidates(self._graph))
        return self._candidates

    def _note_shape(self, shape: tuple[int, ...]) -> None:
        if shape in self._shapes:
            return
        self._shapes.add(shape)
        for other in self._shapes:
            for s, t in {(shape, other), (other, shape)}:
                if shape_facts.fits(s, t):
                    self._loader.vectors("fits", s, t)

    def constant_classes(self, class_of: dict[int, int]) -> set[int]:
        """Class ids of what is constant."""
        return {class_of[node_id] for node_id in self.constants}

    # ---- the pass between iterations --------------------------------------------------------------

    def annotate(self) -> bool:
        """Give types and facts to new classes and new views; whether there was anything to give."""
        rows = self._engine.freeze()
        ids = class_ids(self._engine, rows)
        fresh = [(made, row) for name, made in self._schema.items() for row in rows[name] if row.output not in ids]
        self.terms = sum(len(rows[name]) for name in self._schema)
        before = self._next
        while fresh:
            fresh = self._name_classes(fresh, ids, rows)
        self._adopt_constants(rows, ids)
        for name, describe in self._declare_views.items():
            for row in rows[name]:
                key = (name, row.output, *row.inputs)
                if key not in self._seen_views:
                    self._seen_views.add(key)
                    *attributes, operand = row.inputs
                    if operand in ids and row.output in ids:
                        describe(self.op(self._schema[name], row.inputs), ids[operand], ids[row.output])
        # A new view in an old class brings facts, too.
        return self._loader.flush() or self._next > before

    def _name_classes(self, fresh: list[Any], ids: dict[Any, int], rows: Tables) -> list[Any]:
        """Name the classes whose terms have named operands only; return the terms still to do."""
        best: dict[Any, tuple[Any, ...]] = {}
        waiting = []
        for made, row in fresh:
            if row.output in ids:
                continue
            operands = row.inputs[len(made.sorts) :]
            if any(o not in ids for o in operands):
                waiting.append((made, row))
                continue
            key = (made.name, repr(self.op(made, row.inputs)), tuple(ids[o] for o in operands))
            if row.output not in best or key < best[row.output][0]:
                best[row.output] = (key, made, row)
        if not best:
            # What is left hangs on helper constructors or on itself; it has no value of its own.
            return []
        for output, (key, made, row) in sorted(best.items(), key=lambda item: item[1][0]):
            op, operands = self.op(made, row.inputs), key[2]
            node_id, self._next = self._next, self._next + 1
            value_type = self._infer(op, operands, output, rows)
            ids[output] = node_id
            self._loader.node(node_id, op, operands)
            self.describe(node_id, op, operands, value_type)
        return waiting

    def op(self, made: Constructor, arguments: Sequence[Any]) -> Op:
        """The op of a term's row."""
        inputs = arguments[: len(made.sorts)]
        key = (made.name, *inputs)
        op = self._ops.get(key)
        if op is None:
            literals = [self._engine.literal(sort, value) for sort, value in zip(made.sorts, inputs, strict=True)]
            op = self._ops[key] = made.decode(literals)
        return op

    def infer(self, op: Op, operands: Sequence[int]) -> ValueType:
        """The type of a term over typed classes; raises GraphError when it has none."""
        types = tuple(self.types[o] for o in operands)
        known = self._inferred.get((op, types))
        if known is None:
            known = self._inferred[op, types] = op.infer(types)  # type: ignore[arg-type]
        return known

    def _infer(self, op: Op, operands: Sequence[int], output: Any, rows: Tables) -> ValueType:
        try:
            return self.infer(op, operands)
        except GraphError as error:
            rules = self.rules_at(rows, output)
            raise RuleError(
                f"a rule made an ill-typed term: {error.summary}",
                op=op.name,
                source=", ".join(rules) or None,
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
            made = self._schema[name]
            for row in rows[name]:
                node_id = ids.get(row.output)
                if node_id is None:
                    continue
                op = self.op(made, row.inputs)
                if name == "Full":
                    value = op.value  # type: ignore[attr-defined]
                    if not same_number(values.setdefault(node_id, value), value):
                        rules = self.rules_at(rows, row.output)
                        raise RuleError(
                            f"one class holds two constants, {values[node_id]} and {value}: a rule is unsound",
                            source=", ".join(rules) or None,
                        )
                if node_id not in self.constants:
                    self._describe_constant(node_id, op, (), self.types[node_id])  # type: ignore[arg-type]

    # ---- views ------------------------------------------------------------------------------------

    def shape(self, node_id: int) -> tuple[int, ...]:
        """Concrete shape of a class."""
        return tuple(int(d) for d in self.types[node_id].shape)  # type: ignore[union-attr]

    def _slice_facts(self, op: Any, operand: int, result: int) -> None:
        shape = self.shape(operand)
        ranges = zip(op.starts, op.stops, shape, strict=True)
        cut = [axis for axis, (low, high, dim) in enumerate(ranges) if (low, high) != (0, dim)]
        if len(cut) == 1 and all(step == 1 for step in op.steps):
            axis = cut[0]
            self._loader.fact("slice-range", result, axis, op.starts[axis], op.stops[axis], other=operand)

    def _reshape_facts(self, op: Any, operand: int, result: int) -> None:
        for name, axis in shape_facts.reshape_facts(self.shape(operand), tuple(op.shape)):
            self._loader.vectors(name, self.shape(operand), tuple(op.shape), values=(axis,))

    def _expand_facts(self, op: Any, operand: int, result: int) -> None:
        found = shape_facts.expand_fact(self.shape(operand), tuple(op.shape))
        if found is not None:
            self._loader.vectors("repeats-axis", self.shape(operand), tuple(op.shape), values=found)

    def _transpose_facts(self, op: Any, operand: int, result: int) -> None:
        if shape_facts.keeps_order(op.perm, self.shape(operand)):
            self._loader.vectors("unit-perm", tuple(op.perm), self.shape(operand))
        if op.perm in self._perms:
            return
        new = [tuple(op.perm)]
        while new:
            perm = new.pop()
            if perm in self._perms:
                continue
            self._perms.add(perm)
            for name in shape_facts.permutation_facts(perm):
                self._loader.vectors(name, perm)
            for other in [p for p in self._perms if len(p) == len(perm)]:
                for outer, inner in {(perm, other), (other, perm)}:
                    result_perm = shape_facts.compose(outer, inner)
                    self._loader.vectors("compose-perm", outer, inner, result_perm)
                    if list(result_perm) == list(range(len(perm))):
                        self._loader.vectors("inverse-perm", outer, inner)


def class_ids(engine: Engine, rows: Tables) -> dict[Any, int]:
    """Smallest node id of every named class."""
    ids: dict[Any, int] = {}
    for row in rows["N"]:
        number = engine.literal("i64", row.inputs[0])
        if number < ids.get(row.output, number + 1):
            ids[row.output] = number
    return ids


def _mask_candidates(graph: Graph) -> Iterator[str]:
    """Keys of constants that are read as masks or indices may be: by elementwise ops, not as weights."""
    for node in graph.nodes:
        for operand in node.inputs:
            op = graph.nodes[operand].op
            if op.name == "constant":
                dtype = op.dtype.value  # type: ignore[attr-defined]
                if dtype in ("bool", "i32", "u32") or (node.op.name in _MASK_READERS and len(op.shape) > 1):  # type: ignore[attr-defined]
                    yield op.key  # type: ignore[attr-defined]
