"""Where a node of the result came from: the source nodes it stands for, and the rules that led to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from meganeura.egraph.rulefile import RuleInfo
from meganeura.egraph.schema import FACTS
from meganeura.egraph.sexpr import Form, forms
from meganeura.egraph.snapshot import Firing, Snapshot, Term
from meganeura.egraph.vocabulary import Vocabulary
from meganeura.ir.graph import Graph

_REGION_NODES = 1000
"""A new node that covers more original nodes than this gets the sources of the nearest ones."""


@dataclass(frozen=True)
class RuleOps:
    """Names of the ops in a rule's patterns and in what it makes; a rule file's own relations as `(name)`."""

    consumes: frozenset[str]
    produces: frozenset[str]


def rule_ops(rule: RuleInfo, vocabulary: Vocabulary) -> RuleOps:
    """Read a rule's commands for the ops it matches and makes."""
    consumed: set[str] = set()
    produced: set[str] = set()
    for form in rule.commands:
        left, right, *guards = form.items[1:]
        for guard in guards:
            consumed |= _ops(guard, vocabulary)
        sides = [(left, right)] + ([(right, left)] if form.head == "birewrite" else [])
        for source, target in sides:
            consumed |= _ops(source, vocabulary)
            produced |= _ops(target, vocabulary)
    return RuleOps(frozenset(consumed), frozenset(produced))


def _ops(expression: object, vocabulary: Vocabulary) -> set[str]:
    heads = {form.head for form in forms(expression)} if isinstance(expression, Form) else set()
    ops = {vocabulary.constructors[head].op.name for head in heads if head in vocabulary.constructors}
    return ops | {f"({head})" for head in heads if head in vocabulary.declared and head not in FACTS}


class Provenance:
    """Answers for one search; `graph` is the graph that was encoded, `chosen` the classes of the result."""

    def __init__(
        self, graph: Graph, snapshot: Snapshot, ops: Mapping[str, RuleOps], chosen: Collection[int] = ()
    ) -> None:
        self._graph, self._snapshot, self._ops = graph, snapshot, ops
        self._chosen = frozenset(chosen)
        self._originals: dict[int, list[int]] = defaultdict(list)
        self._original_terms: set[tuple[int, Term]] = set()
        self._original_ops: dict[int, set[str]] = defaultdict(set)
        for node in graph.nodes:
            here = snapshot.class_of[node.id]
            self._originals[here].append(node.id)
            self._original_terms.add((here, Term(node.op, tuple(snapshot.class_of[i] for i in node.inputs))))
            self._original_ops[here].add(node.op.name)
        self._firings: dict[int, list[Firing]] = defaultdict(list)
        for firing in snapshot.firings:
            for here in dict.fromkeys((firing.root, *firing.made)):
                self._firings[here].append(firing)

    def rules(self, here: int, term: Term) -> tuple[str, ...]:
        """Names of the rules by which the class got this term, sorted; none for a term of the original graph."""
        if (here, term) in self._original_terms:
            return ()
        waiting = [f for f in self._firings[here] if term.op.name in self._ops[f.rule].produces]
        seen: set[Firing] = set()
        while waiting:
            firing = waiting.pop()
            if firing in seen:
                continue
            seen.add(firing)
            wanted = self._ops[firing.rule].consumes
            for inner in (firing.root, *firing.used):
                # What the original graph offered needs no rule to explain it; relations always do.
                missing = wanted
                if self._original_ops[inner] & wanted:
                    missing = frozenset(name for name in wanted if name.startswith("("))
                waiting += [f for f in self._firings[inner] if self._ops[f.rule].produces & missing]
        return tuple(sorted({firing.rule for firing in seen}))

    def sources(self, here: int, term: Term) -> tuple[str, ...]:
        """Names of the source nodes that only this term stands for, in graph order.

        The region reaches down from the class to whatever another node of the result computes: operands of the term
        need not have stood in the original graph, but what they were made from did.
        """
        stop = (self._chosen | set(term.operands)) - {here}
        waiting = list(self._start(here))
        region: set[int] = set()
        while waiting and len(region) < _REGION_NODES:
            node = waiting.pop()
            if node in region:
                continue
            region.add(node)
            for operand in self._graph.nodes[node].inputs:
                if self._snapshot.class_of[operand] not in stop and self._graph.nodes[operand].inputs:
                    waiting.append(operand)
        found = (source for node in sorted(region) for source in self._graph.nodes[node].sources)
        return tuple(dict.fromkeys(found))

    def _start(self, here: int) -> Sequence[int]:
        """Original nodes of the class, or of the classes whose rewriting made it."""
        seen = {here}
        level = [here]
        while level:
            nodes = [node for at in level for node in self._originals[at]]
            if nodes:
                return nodes
            level = [f.root for at in level for f in self._firings[at] if f.root not in seen]
            seen.update(level)
        return ()
