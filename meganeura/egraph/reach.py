"""Which rules can match at all in a graph: the rest isn't loaded, which saves most of a small graph's search time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from meganeura.egraph.rulefile import RuleInfo
from meganeura.egraph.schema import FACTS
from meganeura.egraph.sexpr import Form, Sexpr, forms
from meganeura.egraph.vocabulary import Vocabulary


def reachable(rules: Iterable[RuleInfo], present: Iterable[str], vocabulary: Vocabulary) -> tuple[RuleInfo, ...]:
    """The rules with only those commands whose every term and relation the graph holds or other rules make.

    Args:
        present: constructor names in the graph.
    """
    known = set(present)
    waiting = [
        (rule, position, needs, makes)
        for rule in rules
        for position, command in enumerate(rule.commands)
        for needs, makes in _directions(command, vocabulary)
    ]
    usable: dict[str, set[int]] = {}
    grown = True
    while grown:
        grown, rest = False, []
        for entry in waiting:
            rule, position, needs, makes = entry
            if needs <= known:
                usable.setdefault(rule.name, set()).add(position)
                grown = grown or not makes <= known
                known |= makes
            else:
                rest.append(entry)
        waiting = rest
    kept = []
    for rule in rules:
        positions = usable.get(rule.name)
        if positions:
            kept.append(replace(rule, commands=tuple(c for i, c in enumerate(rule.commands) if i in positions)))
    return tuple(kept)


def _directions(command: Form, vocabulary: Vocabulary) -> list[tuple[set[str], set[str]]]:
    left = _heads(command.items[1], vocabulary)
    right = set().union(*(_heads(item, vocabulary) for item in command.items[2:]))
    if command.head == "birewrite":
        return [(left, right), (right, left)]
    guards = command.items[3:] if command.head == "rewrite" else ()
    return [(left.union(*(_heads(item, vocabulary) for item in guards)), right)]


def _heads(expression: Sexpr, vocabulary: Vocabulary) -> set[str]:
    if not isinstance(expression, Form):
        return set()
    heads = {form.head for form in forms(expression)}
    return {h for h in heads if h in vocabulary.constructors or (h in vocabulary.declared and h not in FACTS)}
