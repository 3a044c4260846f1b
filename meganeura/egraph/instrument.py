"""Checks a rule's terms against the schema and rewrites it so that its matches leave provenance.

`(rewrite L R :when (F))` becomes a rule whose pattern is taken apart, a variable per inner term, and whose
actions also assert `(Fired name root)`, `(Used name root inner)` for the terms of the pattern, and
`(Made name root class)` for every further class that gets a term. After the search these rows say which rules
led to which class, and how often each rule really fired.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from meganeura.egraph.rulefile import RuleInfo
from meganeura.egraph.schema import FACTS
from meganeura.egraph.sexpr import Atom, Form, Sexpr
from meganeura.egraph.split import split
from meganeura.egraph.vocabulary import Vocabulary
from meganeura.errors import RuleError


@dataclass
class _Pattern:
    """A pattern taken apart: facts, and the variables of its inner terms in order."""

    vocabulary: Vocabulary
    facts: list[Sexpr] = field(default_factory=list)
    inner: list[Atom] = field(default_factory=list)

    def fresh(self, line: int) -> Atom:
        return Atom(f"_p{len(self.inner)}", line)

    def term(self, form: Form, name: Atom) -> None:
        """Add `name = form` with nested constructor terms named."""
        self.facts.append(Form((Atom("=", form.line), name, self._arguments(form)), form.line))

    def _arguments(self, form: Form) -> Form:
        items: list[Sexpr] = [form.items[0]]
        for item in form.items[1:]:
            if isinstance(item, Form) and item.head in self.vocabulary.constructors:
                variable = self.fresh(item.line)
                self.inner.append(variable)
                self.term(item, variable)
                items.append(variable)
            else:
                items.append(item)
        return Form(tuple(items), form.line)

    def fact(self, form: Sexpr) -> None:
        """Add one fact of a rule's body or a `:when`."""
        if isinstance(form, Form) and form.head == "=" and len(form.items) == 3:
            left, right = form.items[1:]
            if isinstance(left, Form) and left.head in self.vocabulary.constructors and isinstance(right, Atom):
                left, right = right, left
            if isinstance(left, Atom) and isinstance(right, Form) and right.head in self.vocabulary.constructors:
                if not any(str(left) == str(known) for known in self.inner):
                    self.inner.append(left)
                self.term(right, left)
                return
        self.facts.append(form)
        # A rule files' own relation: what it speaks of belongs to the match.
        if isinstance(form, Form) and form.head in self.vocabulary.declared and form.head not in FACTS:
            for sort, argument in zip(self.vocabulary.declared[form.head], form.items[1:], strict=True):
                if sort == "E" and isinstance(argument, Atom) and not any(str(argument) == str(k) for k in self.inner):
                    self.inner.append(argument)


@dataclass
class _Actions:
    """Actions with nested terms of the right-hand side named by `let`."""

    vocabulary: Vocabulary
    actions: list[Sexpr] = field(default_factory=list)
    made: list[Atom] = field(default_factory=list)

    def named(self, item: Sexpr) -> Sexpr:
        """The expression with every nested constructor term bound to a variable first."""
        if not isinstance(item, Form):
            return item
        items = tuple(
            self.bind(part) if isinstance(part, Form) and part.head in self.vocabulary.constructors else part
            for part in item.items
        )
        return Form(items, item.line)

    def bind(self, form: Form) -> Atom:
        """Bind a term to a fresh variable and return it."""
        value = self.named(form)
        variable = Atom(f"_t{len(self.made)}", form.line)
        self.made.append(variable)
        self.actions.append(Form((Atom("let", form.line), variable, value), form.line))
        return variable


def instrument(rule: RuleInfo, vocabulary: Vocabulary, ruleset: str) -> list[str]:
    """The rule's commands, named `NAME#i`, leaving provenance.

    Structure is matched in the ruleset `RULESET-match` (see `split`), the rest runs in `RULESET`.
    """
    commands: list[str] = []
    count = 0
    for form in rule.commands:
        for body, actions in directions(form, rule):
            commands += _commands(body, actions, vocabulary, f"{rule.name}#{count}", ruleset)
            count += 1
    return commands


def directions(form: Form, rule: RuleInfo) -> list[tuple[list[Sexpr], list[Sexpr]]]:
    """Body and actions of a command; a rewrite's are `(= _root L) F...` and `(union _root R)`."""
    items = list(form.items[1:])
    options: dict[str, Sexpr | None] = {}
    while len(items) > 2:
        key = str(items[2])
        if key == ":subsume":
            options[key] = items.pop(2)
        elif key == ":when" and len(items) > 3:
            options[key] = items[3]
            del items[2:4]
        else:
            raise RuleError(f"rule {rule.name}: {key} is not understood", source=f"{rule.file}:{form.line}")
    if len(items) != 2 or not isinstance(items[0], Form):
        raise RuleError(f"rule {rule.name}: ({form.head} ...) is incomplete", source=f"{rule.file}:{form.line}")
    left, right = items
    if form.head == "rule":
        if not isinstance(left, Form) or not isinstance(right, Form) or options:
            raise RuleError(f"rule {rule.name}: needs facts and actions", source=f"{rule.file}:{form.line}")
        return [(list(left.items), list(right.items))]
    when = options.get(":when")
    conditions = list(when.items) if isinstance(when, Form) else []
    root = Atom("_root", form.line)

    def direction(source: Sexpr, target: Sexpr) -> tuple[list[Sexpr], list[Sexpr]]:
        body = [Form((Atom("=", form.line), root, source), form.line), *conditions]
        actions: list[Sexpr] = [Form((Atom("union", form.line), root, target), form.line)]
        if ":subsume" in options:
            actions.append(Form((Atom("subsume", form.line), source), form.line))
        return body, actions

    both = [direction(left, right)]
    if form.head == "birewrite":
        both.append(direction(right, left))
    return both


def _marked(actions: list[Sexpr], vocabulary: Vocabulary) -> Atom | None:
    """For a rule that only notes facts: the first class it notes something about."""
    for action in actions:
        call = action.items[1] if isinstance(action, Form) and action.head == "set" else action
        sorts = vocabulary.sorts(call.head) if isinstance(call, Form) else None
        if sorts is None or not isinstance(call, Form):
            continue
        for sort, argument in zip(sorts, call.items[1:], strict=True):
            if sort == "E" and isinstance(argument, Atom):
                return argument
    return None


def _commands(body: list[Sexpr], actions: list[Sexpr], vocabulary: Vocabulary, name: str, ruleset: str) -> list[str]:
    pattern = _Pattern(vocabulary)
    for fact in body:
        pattern.fact(fact)
    effects = " ".join(map(str, _effects(actions, pattern, vocabulary, name)))
    parts = split(pattern.facts, vocabulary)
    if parts is None:
        facts = " ".join(map(str, pattern.facts))
        return [f'(rule ({facts}) ({effects}) :ruleset {ruleset} :name "{name}")']
    match = f"({name} {' '.join(variable for variable, _ in parts.variables)})"
    sorts = " ".join(sort for _, sort in parts.variables)
    structure, guards = " ".join(map(str, parts.structure)), " ".join(map(str, parts.guards))
    return [
        f"(relation {name} ({sorts}))",
        f'(rule ({structure}) ({match}) :ruleset {ruleset}-match :name "{name}:match")',
        f'(rule ({match} {guards}) ({effects}) :ruleset {ruleset} :name "{name}")',
    ]


def _effects(actions: list[Sexpr], pattern: _Pattern, vocabulary: Vocabulary, name: str) -> list[Sexpr | str]:
    """The actions, right-hand terms bound by `let`, and the provenance they leave."""
    result = _Actions(vocabulary)
    roots: list[Atom] = []
    for action in actions:
        if isinstance(action, Form) and action.head == "union" and len(action.items) == 3:
            left, right = action.items[1:]
            if isinstance(left, Form) and isinstance(right, Atom):
                left, right = right, left
            left = result.bind(left) if isinstance(left, Form) else left
            result.actions.append(Form((action.items[0], left, result.named(right)), action.line))
            if str(left) not in map(str, roots):
                roots.append(left)
        elif isinstance(action, Form) and action.head in ("subsume", "delete"):
            result.actions.append(action)
        else:
            result.actions.append(result.named(action))
    provenance = []
    root = roots[0] if roots else _marked(actions, vocabulary)
    if root is not None:
        provenance.append(f'(Fired "{name}" {root})')
        used = dict.fromkeys(str(v) for v in pattern.inner if str(v) != str(root))
        provenance += [f'(Used "{name}" {root} {variable})' for variable in used]
        made = dict.fromkeys(str(v) for v in (*roots[1:], *result.made) if str(v) != str(root))
        provenance += [f'(Made "{name}" {root} {variable})' for variable in made]
    return [*result.actions, *provenance]
