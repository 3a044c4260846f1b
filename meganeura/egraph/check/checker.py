"""Checks rules one by one: matching graphs and near-misses, the rule alone, every term against its class."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from meganeura.egraph.check import values
from meganeura.egraph.check.compare import Difference, differences
from meganeura.egraph.check.counterexample import CounterExample, smallest
from meganeura.egraph.check.generate import generate
from meganeura.egraph.check.instance import batch, size
from meganeura.egraph.check.mutate import near_miss
from meganeura.egraph.check.pattern import (
    Definition,
    NoTemplate,
    body_of,
    definitions,
    numbers,
    relations_read,
    single_rules,
    unfold,
)
from meganeura.egraph.check.propose import DIMENSIONS, MOST_ELEMENTS, Proposer
from meganeura.egraph.check.sketch import Item, Sketch
from meganeura.egraph.explore import Exploration, explore
from meganeura.egraph.report import SearchReport
from meganeura.egraph.rulefile import RuleBook, RuleFile, RuleInfo, Stage
from meganeura.egraph.schema import build_schema
from meganeura.egraph.sexpr import forms
from meganeura.egraph.vocabulary import Vocabulary, vocabulary_of
from meganeura.errors import MeganeuraError, RuleError
from meganeura.options import CompileOptions, SearchLimits

OPTIONS = CompileOptions(search=SearchLimits(max_nodes=20_000, max_iterations=5, max_seconds=10.0))
ATTEMPTS = 12
"""Attempts at a matching graph for each one wanted."""
ROUNDS = 6
"""How often a rule's commands are given other graphs until they fire."""
INPUTS = 3
"""Sets of inputs of each kind that a single graph is tried with while it is made smaller."""
NEAR = 2
"""Near-misses for each matching graph."""
Items = dict[str, Item]


@dataclass(frozen=True)
class RuleCheck:
    """What was found about one rule.

    Attributes:
        rule: the rule. cases: matching graphs made. fired: those on which it fired.
        near_misses: graphs with one thing changed. near_fired: those on which it fired all the same.
        silent: numbers of its commands that never fired. ungenerated: numbers of those no graph was made for.
        failure: the smallest graph on which it is wrong, None if there was none.
        commands: how many commands it has, those of a birewrite counted twice.
    """

    rule: RuleInfo
    cases: int
    fired: int
    near_misses: int
    near_fired: int
    silent: tuple[int, ...]
    ungenerated: tuple[int, ...]
    failure: CounterExample | None
    commands: int

    @property
    def verdict(self) -> str:
        """ "wrong", "not generated", "never fired", or "holds"."""
        if self.failure is not None:
            return "wrong"
        if not self.cases:
            return "not generated"
        return "holds" if self.fired else "never fired"


@dataclass(frozen=True)
class Trial:
    """The rules under which a rule's graphs are explored: it alone, and those that note what it reads."""

    rule: RuleInfo
    commands: tuple[RuleInfo, ...]
    book: RuleBook

    def explore(self, sketches: Sequence[Items]) -> Exploration:
        """Everything the rule makes of these graphs, put into one."""
        with np.errstate(all="ignore"):
            return explore(batch(sketches), OPTIONS, SearchReport(), self.book)


@dataclass
class Checker:
    """Checks the rules of a book.

    Args:
        book: the rules; those under test may read relations that others assert. cases: graphs for each command.
        seed: of all random choices; every rule has a stream of its own, so that it is checked alike alone.
        rounds: how often commands that have not fired are tried again.
    """

    book: RuleBook
    cases: int = 6
    seed: int = 0
    rounds: int = ROUNDS
    vocabulary: Vocabulary = field(init=False)
    defined: dict[str, list[Definition]] = field(init=False)

    def __post_init__(self) -> None:
        words = {form.head for rule in self.book.rules for command in rule.commands for form in forms(command)}
        declared = [form for file in self.book.files for form in file.declarations]
        self.vocabulary = vocabulary_of(declared, build_schema(words))
        for rule in self.book.rules:
            for command in rule.commands:
                self.vocabulary.check(command, rule)
        self.defined = definitions(self.book.rules, self.vocabulary)

    def check(self, rule: RuleInfo) -> RuleCheck:
        """Check one rule of the book."""
        rng = np.random.default_rng([self.seed, zlib.crc32(rule.name.encode())])
        trial = self._trial(rule)
        outcome = Outcome()
        made: dict[int, int] = dict.fromkeys(range(len(trial.commands)), 0)
        count = near = 0
        for rounds in range(self.rounds):
            # Commands that have not fired yet are tried again, with other graphs, unless none can be made.
            waiting = [n for n in made if n not in outcome.commands and (made[n] or rounds < 2)]
            if not waiting:
                break
            matching: list[Items] = []
            for number in waiting:
                found = list(self._matching(trial.commands[number], rng, self.cases))
                made[number] += len(found)
                matching += found
            changed = list(self._near(matching, rng, NEAR * len(matching)))
            seen = self._run(trial, [*matching, *changed], rng)
            outcome.fired += len([n for n in seen.fired if n < len(matching)])
            outcome.near_fired += len([n for n in seen.fired if n >= len(matching)])
            outcome.commands |= seen.commands
            outcome.wrong += seen.wrong
            count, near = count + len(matching), near + len(changed)
        failure = None
        if outcome.wrong:
            failure = smallest(outcome.wrong, lambda items: self._probe(trial, items), rule)
        silent = tuple(n for n in made if n not in outcome.commands and made[n])
        ungenerated = tuple(n for n in made if not made[n])
        return RuleCheck(rule, count, outcome.fired, near, outcome.near_fired, silent, ungenerated, failure, len(made))

    # ---- making graphs ----------------------------------------------------------------------------

    def _matching(self, command: RuleInfo, rng: np.random.Generator, wanted: int) -> Iterator[Items]:
        found = 0
        for attempt in range(ATTEMPTS * wanted):
            proposer = Proposer(rng, DIMENSIONS[attempt % len(DIMENSIONS)], numbers(command))
            sketch = self._attempt(command, proposer)
            if sketch is not None and sketch.items:
                yield sketch.items
                found += 1
                if found == wanted:
                    return

    def _attempt(self, command: RuleInfo, proposer: Proposer) -> Sketch | None:
        try:
            return generate(unfold(body_of(command), self.vocabulary, self.defined, proposer.rng), proposer)
        except NoTemplate:
            return None

    def _near(self, matching: Sequence[Items], rng: np.random.Generator, wanted: int) -> Iterator[Items]:
        for attempt in range(3 * wanted):
            proposer = Proposer(rng, (2, 3, 1, 4), ())
            changed = near_miss(matching[attempt % len(matching)], proposer)
            if changed is not None and size(changed)[1] < 10 * MOST_ELEMENTS:
                yield changed
                wanted -= 1
                if not wanted:
                    return

    # ---- running ----------------------------------------------------------------------------------

    def _trial(self, rule: RuleInfo) -> Trial:
        """The rule's commands one by one, and all rules that assert what it reads."""
        helpers: dict[str, RuleInfo] = {}
        waiting = [rule]
        while waiting:
            for relation in relations_read(waiting.pop(), self.vocabulary):
                for other in self.book.rules:
                    asserted = {f.head for c in other.commands for f in forms(c.items[2])}
                    if relation in asserted and other.name not in helpers and other.name != rule.name:
                        helpers[other.name] = other
                        waiting.append(other)
        commands = tuple(single_rules(rule))
        files = []
        for file in self.book.files:
            kept = [r for r in file.rules if r.name in helpers]
            kept += commands if any(r is rule for r in file.rules) else ()
            files.append(RuleFile(file.path, file.purpose, file.declarations, tuple(kept)))
        # Approximate rules are off unless they are named.
        approved = [
            replace(f, rules=tuple(replace(r, soundness="exact", group="check") for r in f.rules)) for f in files
        ]
        return Trial(rule, commands, RuleBook(tuple(approved), (Stage("check", ("check",), 5),)))

    def _run(self, trial: Trial, sketches: list[Items], rng: np.random.Generator) -> _Seen:
        outcome = _Seen()
        if not sketches:
            return outcome
        try:
            found = trial.explore(sketches)
        except MeganeuraError as error:
            if len(sketches) == 1:
                # Only a rule can make a term that has no type, or the type of another class.
                if isinstance(error, RuleError):
                    outcome.wrong.append((sketches[0], error.summary))
                return outcome
            middle = len(sketches) // 2
            first = self._run(trial, sketches[:middle], rng)
            return first.joined(self._run(trial, sketches[middle:], rng), middle)
        owners = _owners(found)
        mine = {command.name: n for n, command in enumerate(trial.commands)}
        for firing in found.snapshot.firings:
            if firing.rule in mine:
                here = set().union(*(owners.get(c, set()) for c in (firing.root, *firing.used)))
                outcome.fired |= here
                if here:
                    outcome.commands.add(mine[firing.rule])
        wrong: dict[int, str] = {}
        for difference in self._differences(trial.rule, found, rng):
            for number in sorted(owners.get(difference.here) or _near_owners(found, owners, difference)):
                wrong.setdefault(number, difference.message)
        outcome.wrong += [(sketches[n], message) for n, message in sorted(wrong.items())]
        return outcome

    def _differences(self, rule: RuleInfo, found: Exploration, rng: np.random.Generator) -> Iterator[Difference]:
        for kind, pure, inputs in trials_of(rule, found, rng):
            del kind
            yield from differences(found, inputs, rule.soundness, rule.allows, pure)

    def _probe(self, trial: Trial, items: Items) -> tuple[Difference, dict[str, np.ndarray]] | str | None:
        """Run one graph alone: the first difference with its inputs, an engine's complaint, or None."""
        rng = np.random.default_rng(self.seed)
        try:
            found = trial.explore([items])
        except RuleError as error:
            return error.summary
        except MeganeuraError:
            return None
        for _ in range(INPUTS):
            for _kind, pure, inputs in trials_of(trial.rule, found, rng):
                for difference in differences(found, inputs, trial.rule.soundness, trial.rule.allows, pure):
                    return difference, inputs
        return None


@dataclass
class Outcome:
    """What all rounds of a rule have shown: how often it fired, which commands did, where it is wrong."""

    fired: int = 0
    near_fired: int = 0
    commands: set[int] = field(default_factory=set)
    wrong: list[tuple[Items, str]] = field(default_factory=list)


@dataclass
class _Seen:
    """Numbers of the graphs on which a rule fired, of its commands that fired, and the graphs on which it is wrong."""

    fired: set[int] = field(default_factory=set)
    commands: set[int] = field(default_factory=set)
    wrong: list[tuple[Items, str]] = field(default_factory=list)

    def joined(self, other: _Seen, shift: int) -> _Seen:
        """Both, the other's graphs numbered after these."""
        fired = self.fired | {n + shift for n in other.fired}
        return _Seen(fired, self.commands | other.commands, self.wrong + other.wrong)


def trials_of(
    rule: RuleInfo, found: Exploration, rng: np.random.Generator
) -> Iterator[tuple[str, bool, dict[str, np.ndarray]]]:
    """Draw, whether to compute without rounding, and inputs."""
    exact = rule.soundness == "exact"
    for kind in values.draws_for(rule.soundness, rule.allows):
        inputs = values.inputs_of(found.graph, kind, rng, exact, rule.allows)
        yield kind, not exact, inputs
        if not exact and kind == "ordinary":
            yield kind, False, inputs


def _owners(found: Exploration) -> dict[int, set[int]]:
    """By class: the graphs of the batch that hold it, shared leaves left out."""
    graph, class_of = found.graph, found.snapshot.class_of
    owners: dict[int, set[int]] = {}
    for name, root in graph.outputs.items():
        number = int(name[1:].partition("_")[0])
        waiting, seen = [root], set()
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if graph.nodes[node].inputs or not seen - {node}:
                owners.setdefault(class_of[node], set()).add(number)
            waiting += graph.nodes[node].inputs
    return owners


def _near_owners(found: Exploration, owners: dict[int, set[int]], difference: Difference) -> set[int]:
    """Owners of a class that only rules made: of the classes its term is computed from or used by."""
    seen: set[int] = set()
    for firing in found.snapshot.firings:
        if difference.here in firing.made:
            seen |= owners.get(firing.root, set())
    return seen
