"""The first half of the search: from a graph to a saturated e-graph, as plain data."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meganeura.egraph.encode import encode
from meganeura.egraph.fold import fold
from meganeura.egraph.instrument import instrument
from meganeura.egraph.provenance import RuleOps, rule_ops
from meganeura.egraph.reach import reachable
from meganeura.egraph.report import SearchReport
from meganeura.egraph.rulefile import RuleBook, RuleInfo, load_rules
from meganeura.egraph.saturate import ruleset, saturate
from meganeura.egraph.schema import build_schema, constructor, declarations
from meganeura.egraph.sexpr import Form, forms
from meganeura.egraph.snapshot import Snapshot, take_snapshot
from meganeura.egraph.vocabulary import Vocabulary, vocabulary_of
from meganeura.ir.graph import Graph
from meganeura.ir.types import ValueType
from meganeura.options import CompileOptions

if TYPE_CHECKING:
    from meganeura.egraph.engine import Engine


@dataclass(frozen=True)
class Exploration:
    """A graph and all that the rules found equal to its values.

    Attributes:
        graph: the graph as encoded, constants folded; its node ids are the first class ids. snapshot: the classes.
        types: type of every class. constants: ids of the classes known at compile time.
        rule_ops: what each rule matches and makes.
    """

    graph: Graph
    snapshot: Snapshot
    types: dict[int, ValueType]
    constants: frozenset[int]
    rule_ops: dict[str, RuleOps]


def explore(
    graph: Graph,
    options: CompileOptions,
    report: SearchReport,
    book: RuleBook | None = None,
    only: Iterable[str] | None = None,
) -> Exploration:
    """Fold, encode and saturate; see `optimize` for the arguments. The report gets the account."""
    with timed(report, "rules"):
        book = book or load_rules(options.rules)
        chosen = book.select(options.disabled_rules, options.enabled_rules, only)
    with timed(report, "fold"):
        folded = fold(graph)
    with timed(report, "load"):
        # egglog is imported by the first search, not with the package.
        from meganeura.egraph.engine import Engine

        words = {form.head for rule in chosen for command in rule.commands for form in forms(command)}
        schema = build_schema(words, ((type(node.op), len(node.inputs)) for node in folded.nodes))
        declared = [form for file in book.files for form in file.declarations]
        vocabulary = vocabulary_of(declared, schema)
        for rule in chosen:
            for command in rule.commands:
                vocabulary.check(command, rule)
        present = {constructor(type(node.op), len(node.inputs)).name for node in folded.nodes}
        loaded = reachable(chosen, present, vocabulary)
        engine = Engine(declarations(schema))
    try:
        with timed(report, "load"):
            load_commands(engine, loaded, declared, vocabulary)
        with timed(report, "encode"):
            annotator = encode(folded, engine, schema)
        with timed(report, "saturate"):
            saturate(engine, annotator, book.stages, loaded, options.search, report)
        with timed(report, "extract"):
            snapshot = take_snapshot(engine, schema, annotator)
    finally:
        engine.close()
    constants = frozenset(snapshot.class_of[node_id] for node_id in annotator.constants.known)
    ops = {rule.name: rule_ops(rule, vocabulary) for rule in chosen}
    return Exploration(folded, snapshot, annotator.types, constants, ops)


def check_rules(book: RuleBook) -> None:
    """Load every rule into an empty e-graph; raises RuleError for the first that egglog refuses."""
    from meganeura.egraph.engine import Engine

    words = {form.head for rule in book.rules for command in rule.commands for form in forms(command)}
    schema = build_schema(words)
    declared = [form for file in book.files for form in file.declarations]
    vocabulary = vocabulary_of(declared, schema)
    engine = Engine(declarations(schema))
    try:
        load_commands(engine, book.rules, declared, vocabulary)
    finally:
        engine.close()


def load_commands(engine: Engine, rules: Sequence[RuleInfo], declared: Sequence[Form], vocabulary: Vocabulary) -> None:
    """Declare the rule files' relations and add the rules, each to its group's ruleset."""
    for form in declared:
        engine.execute(str(form), f"line {form.line}", "a declaration")
    for group in dict.fromkeys(rule.group for rule in rules):
        for name in (ruleset(group), f"{ruleset(group)}-match"):
            engine.execute(f"(ruleset {name})", group, f"group {group}")
    for rule in rules:
        for command in instrument(rule, vocabulary, ruleset(rule.group)):
            engine.execute(command, rule.place, f"rule {rule.name}")


@contextmanager
def timed(report: SearchReport, phase: str) -> Iterator[None]:
    """Add the wall time of a block to a phase of the report."""
    start = time.perf_counter()
    try:
        yield
    finally:
        report.seconds[phase] = report.seconds.get(phase, 0.0) + time.perf_counter() - start
