"""The search from end to end: fold, encode, saturate, extract, decode."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from meganeura.egraph.cost import CONSTANT_SECONDS, CostModel, constant_seconds
from meganeura.egraph.decode import Decoder
from meganeura.egraph.encode import encode
from meganeura.egraph.extract import Problem, extract
from meganeura.egraph.fold import fold
from meganeura.egraph.instrument import instrument
from meganeura.egraph.provenance import Provenance, rule_ops
from meganeura.egraph.reach import reachable
from meganeura.egraph.report import SearchReport
from meganeura.egraph.rulefile import RuleBook, RuleInfo, load_rules
from meganeura.egraph.saturate import ruleset, saturate
from meganeura.egraph.schema import build_schema, constructor, declarations
from meganeura.egraph.sexpr import Form, forms
from meganeura.egraph.snapshot import Snapshot, Term, take_snapshot
from meganeura.egraph.vocabulary import Vocabulary, vocabulary_of
from meganeura.facts import DeviceFacts
from meganeura.ir.graph import Graph
from meganeura.options import CompileOptions

_log = logging.getLogger("meganeura.egraph")


def optimize(
    graph: Graph,
    facts: DeviceFacts | None = None,
    options: CompileOptions | None = None,
    *,
    rules: RuleBook | None = None,
    only: Iterable[str] | None = None,
) -> tuple[Graph, SearchReport]:
    """Rewrite a concrete graph into the cheapest equal one that the rules reach.

    Args:
        facts: the device to optimise for. options: rules to add or leave out, and the search's limits.
        rules: a rule book instead of the package's. only: names or groups of the only rules to run.
    Returns:
        The new graph, with composite and kernel-level ops, and the account of the search.
    Raises:
        GraphError: for a graph with symbolic dimensions. RuleError: for a malformed or unsound rule.
    """
    facts, options = facts or DeviceFacts(), options or CompileOptions()
    report = SearchReport(nodes_before=len(graph.nodes))
    with _timed(report, "rules"):
        book = rules or load_rules(options.rules)
        chosen = book.select(options.disabled_rules, getattr(options, "enabled_rules", ()), only)
    with _timed(report, "fold"):
        folded = fold(graph)
    with _timed(report, "load"):
        from meganeura.egraph.engine import Engine

        words = {form.head for rule in chosen for command in rule.commands for form in forms(command)}
        schema = build_schema(words, ((type(n.op), len(n.inputs)) for n in folded.nodes))
        declared = [form for file in book.files for form in file.declarations]
        vocabulary = vocabulary_of(declared, schema)
        present = {constructor(type(node.op), len(node.inputs)).name for node in folded.nodes}
        engine = Engine(declarations(schema))
        loaded = reachable(chosen, present, vocabulary)
        _load(engine, loaded, declared, vocabulary)
    try:
        with _timed(report, "encode"):
            annotator = encode(folded, engine, schema)
        with _timed(report, "saturate"):
            saturate(engine, annotator, book.stages, loaded, options.search, report)
        with _timed(report, "extract"):
            snapshot = take_snapshot(engine, schema, annotator)
            types = annotator.types
            constants = {snapshot.class_of[node_id] for node_id in annotator.constants.known}
            cost = CostModel(facts)
            terms, problem, numbers = _problem(folded, snapshot, types, constants, cost)
            choice = extract(problem)
            picked = {here: terms[choice[n]] for here, n in numbers.items() if choice[n] >= 0}
            by_number = list(numbers)
            order = [by_number[n] for n in problem.order(choice)]
        with _timed(report, "decode"):
            provenance = Provenance(folded, snapshot, {r.name: rule_ops(r, vocabulary) for r in chosen})
            decoder = Decoder(folded, snapshot, picked, types, constants, provenance)
            result = decoder.run(order)
    finally:
        engine.close()
    report.rules = _counts(snapshot)
    report.node_rules = decoder.node_rules
    report.nodes_after, report.classes = len(result.nodes), len(snapshot.classes)
    report.terms = sum(map(len, snapshot.classes.values()))
    report.cost_before = sum(cost.seconds(n.op, [folded.nodes[i].type for i in n.inputs], n.type) for n in folded.nodes)
    report.cost_after = problem.total(choice)
    _log.info("search: %d to %d nodes, %s", report.nodes_before, report.nodes_after, report.stopped_by)
    return result, report


def _load(engine: object, chosen: Sequence[RuleInfo], declared: Sequence[Form], vocabulary: Vocabulary) -> None:
    from meganeura.egraph.engine import Engine

    assert isinstance(engine, Engine)
    for form in declared:
        engine.execute(str(form), f"line {form.line}", "a declaration")
    for group in dict.fromkeys(rule.group for rule in chosen):
        for name in (ruleset(group), f"{ruleset(group)}-match"):
            engine.execute(f"(ruleset {name})", group, f"group {group}")
    for rule in chosen:
        for command in instrument(rule, vocabulary, ruleset(rule.group)):
            engine.execute(command.text, rule.place, f"rule {rule.name}")


def _problem(
    graph: Graph, snapshot: Snapshot, types: dict, constants: set[int], cost: CostModel
) -> tuple[list[Term], Problem, dict[int, int]]:
    numbers = {here: number for number, here in enumerate(snapshot.classes)}
    terms: list[Term] = []
    classes = []
    for here, candidates in snapshot.classes.items():
        entries = []
        for term in candidates:
            if any(o not in numbers for o in term.operands):
                continue
            terms.append(term)
            if here in constants:
                seconds = CONSTANT_SECONDS if not term.operands else constant_seconds(types[here])
            else:
                seconds = cost.seconds(term.op, [types[o] for o in term.operands], types[here])
            entries.append((seconds, [numbers[o] for o in term.operands]))
        classes.append(entries)
    roots = [numbers[snapshot.class_of[root]] for root in graph.roots]
    return terms, Problem.build(classes, roots), numbers


def _counts(snapshot: Snapshot) -> dict[str, int]:
    counts: dict[str, int] = {}
    for rule, _ in sorted({(firing.rule, firing.root) for firing in snapshot.firings}):
        counts[rule] = counts.get(rule, 0) + 1
    return counts


@contextmanager
def _timed(report: SearchReport, phase: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    report.seconds[phase] = report.seconds.get(phase, 0.0) + time.perf_counter() - start
