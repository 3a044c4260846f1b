"""Turns nodes and facts into table rows, and the rules that read those rows.

A *kind* is an op with its attributes; nodes of one kind differ in their ids only, so each kind needs one loading
rule however many layers repeat it. The same holds for types and for facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meganeura.egraph.schema import FACTS, Literal, constructor, encode_attributes
from meganeura.egraph.shape_facts import exchange
from meganeura.ir.op import Op, sizeof
from meganeura.ir.types import TensorType, TupleType, ValueType

if TYPE_CHECKING:
    from meganeura.egraph.engine import Engine

_TABLES = """
(relation Raw-once (i64))
(relation Raw-typed (i64 i64))
(relation Raw-fact (i64 i64))
(relation Raw-fact2 (i64 i64 i64))
(relation Raw-ints2 (i64 i64 i64))
(function ints (i64) Ints :no-merge)
"""


class Loader:
    """Fills an engine with terms, types and facts by node id; nothing happens before `flush`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._arities: set[int] = set()
        self._kinds: dict[tuple[Op, int], int] = {}
        self._types: dict[ValueType, int] = {}
        self._facts: dict[tuple[str, tuple[Literal, ...], int], int] = {}
        self._vectors: dict[tuple[int, ...], int] = {}
        self._actions = 0
        self._asserted: set[tuple[Any, ...]] = set()
        for line in _TABLES.strip().splitlines():
            engine.execute(line, "tables", "declaring tables")

    def flush(self) -> bool:
        """Make everything added so far part of the e-graph; whether there was anything."""
        return self._engine.load()

    def node(self, node_id: int, op: Op, operands: Sequence[int]) -> None:
        """`(N node_id)` is the op applied to these node ids."""
        engine, count = self._engine, len(operands)
        if count not in self._arities:
            self._arities.add(count)
            columns = " ".join(["i64"] * (2 + count))
            engine.execute(f"(relation Raw-node{count} ({columns}))", "tables", "declaring tables")
        kind = self._kinds.get((op, count))
        if kind is None:
            kind = self._kinds[op, count] = len(self._kinds)
            names = [engine.variable(f"x{i}") for i in range(count)]
            here = engine.variable("here")
            made = constructor(type(op), count)
            term = engine.term(made.name, *encode_attributes(op), *(engine.term("N", name) for name in names))
            engine.loading_rule(
                f"node-{kind}",
                [engine.term(f"Raw-node{count}", kind, here, *names)],
                [engine.union(engine.term("N", here), term)],
            )
        engine.row(f"Raw-node{count}", kind, node_id, *operands)

    def type(self, node_id: int, value_type: ValueType) -> None:
        """Order, shape, dtype and what follows from them; tuples have an order only."""
        engine = self._engine
        known = self._types.get(value_type)
        if known is None:
            known = self._types[value_type] = len(self._types)
            here = engine.variable("here")
            node = engine.term("N", here)
            values = {} if isinstance(value_type, TupleType) else _type_facts(value_type)
            actions = [engine.assignment(name, [node], value) for name, value in values.items()]
            actions.append(engine.assignment("order", [node], here))
            engine.loading_rule(f"type-{known}", [engine.term("Raw-typed", known, here)], actions)
        engine.row("Raw-typed", known, node_id)

    def fact(self, name: str, node_id: int, *values: Literal, other: int | None = None) -> None:
        """Assert `(name e [other] values...)`, or set the function `name` of e to the one value."""
        key = (name, node_id, other, values)
        if key in self._asserted:
            return
        self._asserted.add(key)
        engine = self._engine
        signature = (name, values, 1 if other is None else 2)
        known = self._facts.get(signature)
        table = "Raw-fact" if other is None else "Raw-fact2"
        if known is None:
            known = self._facts[signature] = len(self._facts) + 1
            here, there = engine.variable("here"), engine.variable("there")
            arguments = [engine.term("N", here)] + ([] if other is None else [engine.term("N", there)])
            if FACTS[name][1] is None:
                action = engine.assertion(engine.term(name, *arguments, *values))
            else:
                action = engine.assignment(name, [*arguments, *values[:-1]], values[-1])
            facts = [engine.term(table, known, here, *([] if other is None else [there]))]
            engine.loading_rule(f"fact-{known}", facts, [action])
        engine.row(table, known, node_id, *(() if other is None else (other,)))

    def vectors(self, name: str, *vectors: tuple[int, ...], values: tuple[int, ...] = ()) -> None:
        """Assert a relation over integer vectors, such as `(fits s t)`."""
        key = (name, vectors, values)
        if key in self._asserted:
            return
        self._asserted.add(key)
        engine = self._engine
        if len(vectors) != 2:
            action = engine.assertion(engine.term(name, *vectors, *values))
            self._once(action)
            return
        signature = (name, values, -2)
        known = self._facts.get(signature)
        if known is None:
            known = self._facts[signature] = len(self._facts) + 1
            i, j, s, t = map(engine.variable, ("i", "j", "s", "t"))
            facts = [engine.term("Raw-ints2", known, i, j)]
            facts += [engine.equal(s, engine.term("ints", i)), engine.equal(t, engine.term("ints", j))]
            engine.loading_rule(f"fact-{known}", facts, [engine.assertion(engine.term(name, s, t, *values))])
        engine.row("Raw-ints2", known, *(self._vector(v) for v in vectors))

    def _once(self, action: Any) -> None:
        # A rule without a trigger would run again at every load.
        self._actions += 1
        trigger = self._engine.term("Raw-once", self._actions)
        self._engine.loading_rule(f"once-{self._actions}", [trigger], [action])
        self._engine.row("Raw-once", self._actions)

    def _vector(self, vector: tuple[int, ...]) -> int:
        known = self._vectors.get(vector)
        if known is None:
            known = self._vectors[vector] = len(self._vectors)
            engine = self._engine
            self._once(engine.assignment("ints", [known], vector))
        return known


def _type_facts(value_type: TensorType) -> dict[str, Literal]:
    """Values of the functions that rules may read for every tensor of this type."""
    shape = tuple(int(d) for d in value_type.shape)  # type: ignore[arg-type]
    facts: dict[str, Literal] = {
        "shape": shape,
        "dtype": value_type.dtype.value,
        "rank": len(shape),
        "numel": sizeof(shape),
        "zeros": (0,) * len(shape),
        "ones": (1,) * len(shape),
    }
    if shape:
        facts["last-dim"] = shape[-1]
    for name, low, high in (("swap-last", 2, 1), ("swap-heads", 3, 2)):
        if len(shape) >= low:
            facts[name] = exchange(len(shape), -low, -high)
    return facts
