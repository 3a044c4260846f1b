"""The e-graph as plain data: classes by node id, each with its terms, in an order that never varies."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meganeura.egraph.annotate import Annotator
from meganeura.egraph.schema import Constructor
from meganeura.errors import GraphError, RuleError
from meganeura.ir.op import Op

if TYPE_CHECKING:
    from meganeura.egraph.engine import Engine, Tables


@dataclass(frozen=True, slots=True)
class Term:
    """One way to compute a class: an op over classes, known by their smallest node ids."""

    op: Op
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Firing:
    """A match of a rule: the class it matched at, the classes its pattern went through, those it gave terms to."""

    rule: str
    root: int
    used: tuple[int, ...]
    made: tuple[int, ...]


@dataclass(frozen=True)
class Snapshot:
    """All that extraction and provenance read.

    Attributes:
        classes: terms by class id (the smallest node id in it), subsumed ones left out where others remain.
        class_of: class id of every node id. firings: matches, ordered.
    """

    classes: dict[int, tuple[Term, ...]]
    class_of: dict[int, int]
    firings: tuple[Firing, ...]


def take_snapshot(engine: Engine, schema: dict[str, Constructor], annotator: Annotator) -> Snapshot:
    """Read the whole e-graph and check that every term has its class's type."""
    rows = engine.freeze()
    ids: dict[object, int] = {}
    members: list[tuple[object, int]] = []
    for row in rows["N"]:
        number = engine.integer(row.inputs[0])
        members.append((row.output, number))
        if number < ids.get(row.output, number + 1):
            ids[row.output] = number
    classes: dict[int, dict[Term, bool]] = defaultdict(dict)
    for name, made in schema.items():
        count = len(made.sorts)
        for row in rows[name]:
            here = ids.get(row.output)
            inputs = row.inputs
            operands = tuple(ids.get(value, -1) for value in inputs[count:])
            if here is None or -1 in operands:
                continue
            term = Term(annotator.op(made, inputs), operands)
            classes[here][term] = row.subsumed and classes[here].get(term, True)
            _check_type(engine, annotator, term, here, row.output, rows)
    kept: dict[int, tuple[Term, ...]] = {}
    for here in sorted(classes):
        terms = classes[here]
        chosen = [term for term, subsumed in terms.items() if not subsumed] or list(terms)
        kept[here] = (
            tuple(chosen)
            if len(chosen) == 1
            else tuple(sorted(chosen, key=lambda t: (annotator.label(t.op), t.operands)))
        )
    class_of = {number: ids[value] for value, number in sorted(members, key=lambda member: member[1])}
    return Snapshot(kept, class_of, _firings(engine, rows, ids))


def _check_type(engine: Engine, annotator: Annotator, term: Term, here: int, output: object, rows: Tables) -> None:
    try:
        found = annotator.infer(term.op, term.operands)
        if found == annotator.types[here]:
            return
        problem = f"has type {found}, not {annotator.types[here]}"
    except GraphError as error:
        problem = f"is ill-typed: {error.summary}"
    rules = annotator.rules_at(rows, output)
    raise RuleError(
        f"a rule gave a class a term that {problem}",
        op=term.op.name,
        source=", ".join(rules) or None,
        shapes=", ".join(repr(annotator.types[o]) for o in term.operands),
    )


def _firings(engine: Engine, rows: Tables, ids: dict[object, int]) -> tuple[Firing, ...]:
    used: dict[tuple[str, int], set[int]] = defaultdict(set)
    made: dict[tuple[str, int], set[int]] = defaultdict(set)
    roots: set[tuple[str, int]] = set()
    for row in rows["Fired"]:
        name, root = row.inputs
        if root in ids:
            roots.add((str(engine.literal("String", name)), ids[root]))
    for table, target in (("Used", used), ("Made", made)):
        for row in rows[table]:
            name, root, inner = row.inputs
            if root in ids and inner in ids:
                target[str(engine.literal("String", name)), ids[root]].add(ids[inner])
    return tuple(
        Firing(name.partition("#")[0], root, tuple(sorted(used[name, root])), tuple(sorted(made[name, root])))
        for name, root in sorted(roots)
    )
