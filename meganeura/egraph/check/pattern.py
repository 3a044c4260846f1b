"""A rule's left side as a template: terms over class variables, and the guards on what they bind.

Relations that rule files define are unfolded into the left sides of the rules that assert them, chosen at random,
so that a template only speaks of ops and of the engine's own facts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from meganeura.egraph.instrument import directions
from meganeura.egraph.rulefile import RuleInfo
from meganeura.egraph.schema import FACTS, Constructor
from meganeura.egraph.sexpr import Atom, Form, Sexpr, forms
from meganeura.egraph.split import is_variable
from meganeura.egraph.vocabulary import Vocabulary

MOST_TERMS = 40
"""A template that unfolds to more terms is given up."""


class NoTemplate(Exception):
    """This way of unfolding a rule leads nowhere; another may."""


@dataclass(frozen=True)
class Term:
    """`variable` is the constructor applied to attribute variables or literals, then class variables.

    `made` terms are built by a helper rule's actions: guards may read their types, but no graph holds them.
    """

    variable: str
    made_by: Constructor
    attributes: tuple[Sexpr, ...]
    operands: tuple[str, ...]
    made: bool = False


@dataclass
class Template:
    """Terms by the class variable they define, guards, facts about constants, and all class variables."""

    terms: dict[str, Term] = field(default_factory=dict)
    guards: list[Form] = field(default_factory=list)
    facts: list[Form] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Definition:
    """One way to get a row of a relation: the body, and the arguments it is asserted with."""

    body: tuple[Sexpr, ...]
    arguments: tuple[Sexpr, ...]

    def relations(self, vocabulary: Vocabulary) -> int:
        """How many of its facts are rule files' own relations."""
        return sum(isinstance(f, Form) and own_relation(f.head, vocabulary) for f in self.body)


def single_rules(rule: RuleInfo) -> list[RuleInfo]:
    """A rule per command and direction, so that each is seen to fire; numbered from 0."""
    found = []
    for form in rule.commands:
        if form.head == "birewrite":
            head, left, right, *rest = form.items
            rewrite = Atom("rewrite", form.line)
            found += [Form((rewrite, a, b, *rest), form.line) for a, b in ((left, right), (right, left))]
        else:
            found.append(form)
    return [replace(rule, name=f"{rule.name}.{n}", commands=(form,)) for n, form in enumerate(found)]


def body_of(rule: RuleInfo) -> list[Sexpr]:
    """The facts of a rule with one command."""
    return directions(rule.commands[0], rule)[0][0]


def definitions(rules: Sequence[RuleInfo], vocabulary: Vocabulary) -> dict[str, list[Definition]]:
    """By name of a rule files' own relation: the ways rules assert it."""
    found: dict[str, list[Definition]] = {}
    for rule in rules:
        for command in rule.commands:
            for body, actions in directions(command, rule):
                bound = {str(a.items[1]): a.items[2] for a in actions if isinstance(a, Form) and a.head == "let"}
                for action in actions:
                    if isinstance(action, Form) and own_relation(action.head, vocabulary):
                        arguments = tuple(bound.get(str(item), item) for item in action.items[1:])
                        found.setdefault(action.head, []).append(Definition(tuple(body), arguments))
    return found


def own_relation(head: str, vocabulary: Vocabulary) -> bool:
    """Whether a rule file declared the relation (it is no fact of the engine's)."""
    return head in vocabulary.declared and head not in FACTS and head not in vocabulary.functions


def relations_read(rule: RuleInfo, vocabulary: Vocabulary) -> set[str]:
    """The rule files' own relations that stand in a rule's left sides."""
    bodies = [item for command in rule.commands for body, _ in directions(command, rule) for item in body]
    return {f.head for item in bodies for f in forms(item) if own_relation(f.head, vocabulary)}


def unfold(
    body: Sequence[Sexpr],
    vocabulary: Vocabulary,
    defined: Mapping[str, Sequence[Definition]],
    rng: np.random.Generator,
) -> Template:
    """A template of a rule's facts; raises NoTemplate where the random choices contradict each other."""
    return _Unfolder(vocabulary, defined, rng).run(body)


class _Unfolder:
    def __init__(
        self, vocabulary: Vocabulary, defined: Mapping[str, Sequence[Definition]], rng: np.random.Generator
    ) -> None:
        self._vocabulary, self._defined, self._rng = vocabulary, defined, rng
        self._terms: list[Term] = []
        self._guards: list[Form] = []
        self._facts: list[Form] = []
        self._classes: dict[str, None] = {}
        self._same: dict[str, str] = {}
        self._count = 0

    def run(self, body: Sequence[Sexpr]) -> Template:
        self._body(body, 0)
        self._merge()
        template = Template(facts=self._facts, guards=self._guards)
        template.terms = {term.variable: term for term in self._terms}
        template.classes = list(dict.fromkeys(self._find(name) for name in self._classes))
        rename = {name: self._find(name) for name in self._classes}
        template.guards = [_renamed(guard, rename) for guard in template.guards]  # type: ignore[misc]
        template.facts = [_renamed(fact, rename) for fact in template.facts]  # type: ignore[misc]
        return template

    def _fresh(self, line: int) -> Atom:
        self._count += 1
        return Atom(f"_u{self._count}", line)

    # ---- taking apart -----------------------------------------------------------------------------

    def _body(self, body: Sequence[Sexpr], depth: int) -> None:
        classes = _class_names(body, self._vocabulary)
        self._classes.update(dict.fromkeys(sorted(classes)))
        for fact in body:
            if isinstance(fact, Form):
                self._fact(fact, depth)

    def _fact(self, fact: Form, depth: int) -> None:
        head = fact.head
        if head == "=":
            for left, right in zip(fact.items[1:], fact.items[2:], strict=False):
                self._equal(left, right, fact.line)
        elif head in self._vocabulary.constructors:
            self._term(fact)
        elif own_relation(head, self._vocabulary):
            self._relation(fact, depth)
        elif head in FACTS and head not in self._vocabulary.functions:
            self._facts.append(Form((fact.items[0], *map(self._plain, fact.items[1:])), fact.line))
        else:
            self._guards.append(Form((fact.items[0], *map(self._plain, fact.items[1:])), fact.line))

    def _equal(self, left: Sexpr, right: Sexpr, line: int) -> None:
        left, right = self._plain(left), self._plain(right)
        if isinstance(left, Atom) and isinstance(right, Atom) and {left.text, right.text} & set(self._classes):
            self._unite(left.text, right.text)
        else:
            self._guards.append(Form((Atom("=", line), left, right), line))

    def _plain(self, item: Sexpr) -> Sexpr:
        """An expression without constructor terms: each becomes a variable that a term defines."""
        if not isinstance(item, Form):
            return self._fresh(item.line) if item.text == "_" else item
        if item.head in self._vocabulary.constructors:
            return self._term(item)
        return Form((item.items[0], *map(self._plain, item.items[1:])), item.line)

    def _term(self, form: Form, made: bool = False) -> Atom:
        if len(self._terms) >= MOST_TERMS:
            raise NoTemplate
        constructor = self._vocabulary.constructors[form.head]
        variable = self._fresh(form.line)
        self._classes[variable.text] = None
        arguments = list(form.items[1:])
        attributes = tuple(self._attribute(item) for item in arguments[: len(constructor.sorts)])
        operands = []
        for item in arguments[len(constructor.sorts) :]:
            plain = self._term(item, made) if made and isinstance(item, Form) else self._plain(item)
            self._classes[str(plain)] = None
            operands.append(str(plain))
        self._terms.append(Term(variable.text, constructor, attributes, tuple(operands), made))
        return variable

    def _attribute(self, item: Sexpr) -> Sexpr:
        item = self._plain(item)
        if isinstance(item, Form):
            name = self._fresh(item.line)
            self._guards.append(Form((Atom("=", item.line), name, item), item.line))
            return name
        return item

    # ---- relations --------------------------------------------------------------------------------

    def _relation(self, fact: Form, depth: int) -> None:
        ways = self._defined.get(fact.head, ())
        # A mark on one class is often implied by the other facts; the rule not firing shows when it is not.
        if len(fact.items) == 2 and self._rng.random() < 0.12:
            return
        if not ways or depth > 5:
            raise NoTemplate
        # Ways that need no further relation are straighter, and more often the ones that others begin with.
        weights = np.array([1.0 / (1 + 3 * way.relations(self._vocabulary)) for way in ways])
        way = ways[int(self._rng.choice(len(ways), p=weights / weights.sum()))]
        self._count += 1
        mark = f"~{self._count}"
        rename = {name: name + mark for name in _names((*way.body, *way.arguments))}
        body = [_renamed(item, rename) for item in way.body]
        arguments = [_renamed(item, rename) for item in way.arguments]
        sorts = self._vocabulary.declared[fact.head]
        own = _class_names(body, self._vocabulary)
        self._classes.update(dict.fromkeys(sorted(own)))
        for sort, given, asserted in zip(sorts, map(self._plain, fact.items[1:]), arguments, strict=True):
            if sort == "E":
                made = self._term(asserted, made=True) if isinstance(asserted, Form) else asserted
                for name in (str(given), str(made)):
                    self._classes[name] = None
                self._unite(str(given), str(made))
            else:
                self._guards.append(Form((Atom("=", fact.line), given, asserted), fact.line))
        self._body(body, depth + 1)

    # ---- equal classes ----------------------------------------------------------------------------

    def _find(self, name: str) -> str:
        while name in self._same:
            name = self._same[name]
        return name

    def _unite(self, left: str, right: str) -> None:
        left, right = self._find(left), self._find(right)
        if left != right:
            self._same[right] = left

    def _merge(self) -> None:
        """One term a class: two of one constructor must agree, two of different ones cannot be written down."""
        changed = True
        while changed:
            changed = False
            known: dict[str, Term] = {}
            for term in self._terms:
                here = replace(term, variable=self._find(term.variable), operands=tuple(map(self._find, term.operands)))
                other = known.get(here.variable)
                if other is None:
                    known[here.variable] = here
                    continue
                if other.made_by != here.made_by:
                    raise NoTemplate
                known[here.variable] = replace(other, made=other.made and here.made)
                for a, b in zip(other.operands, here.operands, strict=True):
                    changed |= self._find(a) != self._find(b)
                    self._unite(a, b)
                for a, b in zip(other.attributes, here.attributes, strict=True):
                    if str(a) != str(b):
                        self._guards.append(Form((Atom("=", a.line), a, b), a.line))
                changed = True
            self._terms = list(known.values())


def _names(items: Sequence[Sexpr]) -> set[str]:
    found: set[str] = set()
    for item in items:
        if isinstance(item, Form):
            found |= _names(item.items[1:])
        elif is_variable(item) and item.text != "_":
            found.add(item.text)
    return found


def _renamed(item: Sexpr, rename: Mapping[str, str]) -> Sexpr:
    if isinstance(item, Form):
        return Form((item.items[0], *(_renamed(part, rename) for part in item.items[1:])), item.line)
    return Atom(rename.get(item.text, item.text), item.line)


def _class_names(items: Sequence[Sexpr], vocabulary: Vocabulary) -> set[str]:
    """Variables of the sort `E`, by where they stand."""
    found: set[str] = set()
    for form in (f for item in items for f in forms(item)):
        sorts = vocabulary.sorts(form.head)
        for sort, item in zip(sorts or (), form.items[1:], strict=False):
            if sort == "E" and isinstance(item, Atom) and item.text != "_":
                found.add(item.text)
        if form.head == "=" and any(isinstance(i, Form) and i.head in vocabulary.constructors for i in form.items[1:]):
            found |= {item.text for item in form.items[1:] if isinstance(item, Atom) and is_variable(item)}
    return found


def numbers(rule: RuleInfo) -> list[float]:
    """The numbers that stand in a rule: guards often speak of constants near them."""
    text = str(Form(rule.commands, 0))
    found = [float(word) for word in re.findall(r"(?<![\w.-])[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])", text)]
    return list(dict.fromkeys(found))
