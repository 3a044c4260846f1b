"""The search from end to end: explore the equal programs, extract the cheapest, decode it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from meganeura.egraph.cost import CONSTANT_SECONDS, CostModel, constant_seconds
from meganeura.egraph.decode import Decoder
from meganeura.egraph.explore import Exploration, explore, timed
from meganeura.egraph.extract import extract
from meganeura.egraph.problem import Problem
from meganeura.egraph.provenance import Provenance
from meganeura.egraph.report import SearchReport
from meganeura.egraph.rulefile import RuleBook
from meganeura.egraph.snapshot import Snapshot, Term
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
    found = explore(graph, options, report, rules, only)
    with timed(report, "extract"):
        cost = CostModel(facts)
        candidates = build_problem(found, cost)
        choice = extract(candidates.problem)
        picked = {here: candidates.terms[choice[n]] for n, here in enumerate(candidates.classes) if choice[n] >= 0}
        order = [candidates.classes[n] for n in candidates.problem.order(choice)]
    with timed(report, "decode"):
        provenance = Provenance(found.graph, found.snapshot, found.rule_ops, order)
        decoder = Decoder(found.graph, found.snapshot, picked, found.types, found.constants, provenance)
        result = decoder.run(order)
    report.rules = _counts(found.snapshot)
    report.node_rules = decoder.node_rules
    report.nodes_after, report.classes = len(result.nodes), len(found.snapshot.classes)
    report.terms = sum(map(len, found.snapshot.classes.values()))
    nodes = found.graph.nodes
    report.cost_before = sum(cost.seconds(n.op, [nodes[i].type for i in n.inputs], n.type) for n in nodes)
    report.cost_after = candidates.problem.total(choice)
    _log.info("search: %d to %d nodes, %s", report.nodes_before, report.nodes_after, report.stopped_by)
    return result, report


@dataclass(frozen=True)
class Candidates:
    """An extraction problem, and what its numbers stand for: `classes[n]` is a class id, `terms[t]` a term."""

    problem: Problem
    classes: tuple[int, ...]
    terms: tuple[Term, ...]


def build_problem(found: Exploration, cost: CostModel) -> Candidates:
    """Price every term of an exploration."""
    numbers = {here: number for number, here in enumerate(found.snapshot.classes)}
    terms: list[Term] = []
    classes = []
    for here, candidates in found.snapshot.classes.items():
        entries: list[tuple[float, list[int]]] = []
        for seconds, _, term in sorted(_priced(found, cost, here, candidates, numbers), key=lambda e: e[:2]):
            children = [numbers[o] for o in term.operands]
            # Another order of operands, or more of them for no less: never better.
            if not any(set(known) <= set(children) for _, known in entries):
                entries.append((seconds, children))
                terms.append(term)
        classes.append(entries)
    roots = [numbers[found.snapshot.class_of[root]] for root in found.graph.roots]
    return Candidates(Problem.build(classes, roots), tuple(numbers), tuple(terms))


def _priced(
    found: Exploration, cost: CostModel, here: int, candidates: Iterable[Term], numbers: dict[int, int]
) -> Iterator[tuple[float, int, Term]]:
    for position, term in enumerate(candidates):
        if any(o not in numbers for o in term.operands):
            continue
        if here in found.constants:
            seconds = CONSTANT_SECONDS if not term.operands else constant_seconds(found.types[here])
        else:
            seconds = cost.seconds(term.op, [found.types[o] for o in term.operands], found.types[here])
        yield seconds, position, term


def _counts(snapshot: Snapshot) -> dict[str, int]:
    counts: dict[str, int] = {}
    for rule, _ in sorted({(firing.rule, firing.root) for firing in snapshot.firings}):
        counts[rule] = counts.get(rule, 0) + 1
    return counts
