"""Splits a rule into its structure and its guards, so that it is matched in time linear in the graph.

A guard such as `(= (shape c) (shape s))` relates tables that have nothing to do with each other. The engine may
start from it and try all tensors of equal shape against one another: quadratic in the number of layers. So the
terms of a pattern, joined through classes alone, are matched first, into a relation of the rule's own; the guards
then look at those few rows. Both happen in the same iteration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from meganeura.egraph.schema import FACTS
from meganeura.egraph.sexpr import Atom, Form, Sexpr, forms
from meganeura.egraph.vocabulary import Vocabulary

_LITERAL = re.compile(r'"|[+-]?(\d|inf$|NaN$)|(true|false)$')


@dataclass(frozen=True)
class Split:
    """A body in two parts.

    Attributes:
        structure: facts over terms, joined through classes. variables: what they bind, with sorts, in order.
        guards: the other facts, and the equalities of attributes that the structure left open.
    """

    structure: tuple[Sexpr, ...]
    variables: tuple[tuple[str, str], ...]
    guards: tuple[Sexpr, ...]


def is_variable(item: Sexpr) -> bool:
    """Whether an atom is a name that a pattern binds, not a literal."""
    return isinstance(item, Atom) and not _LITERAL.match(item.text)


def split(facts: list[Sexpr], vocabulary: Vocabulary) -> Split | None:
    """The split of a body whose constructor terms are all `(= name (Op ...))`; None where it would gain nothing."""
    atoms = [fact for fact in facts if _sorts(fact, vocabulary) is not None]
    guards = [fact for fact in facts if _sorts(fact, vocabulary) is None]
    lookups = sum(form.head in FACTS for guard in guards for form in forms(guard))
    if not atoms or lookups + len(atoms) < 3 or not _connected(atoms, vocabulary):
        return None
    splitter = _Splitter(vocabulary)
    structure = tuple(splitter.loosen(atom) for atom in atoms)
    return Split(structure, tuple(splitter.variables.items()), (*splitter.guards, *guards))


def _term(fact: Sexpr) -> tuple[Form | None, Form] | None:
    """`(None, form)` of a relation fact, or `(fact, form)` of `(= name (Op ...))`."""
    if not isinstance(fact, Form):
        return None
    if fact.head == "=" and len(fact.items) == 3 and isinstance(fact.items[2], Form) and is_variable(fact.items[1]):
        return fact, fact.items[2]
    return None, fact


def _sorts(fact: Sexpr, vocabulary: Vocabulary) -> tuple[str, ...] | None:
    """Argument sorts of a structural fact: a term, or a relation over classes; None for a guard."""
    found = _term(fact)
    if found is None:
        return None
    equation, form = found
    if equation is not None:
        return vocabulary.sorts(form.head) if form.head in vocabulary.constructors else None
    sorts = vocabulary.declared.get(form.head)
    if sorts is None or form.head in vocabulary.functions or "E" not in sorts:
        return None
    return sorts


def _classes(fact: Sexpr, vocabulary: Vocabulary) -> set[str]:
    equation, form = _term(fact)  # type: ignore[misc]
    sorts = _sorts(fact, vocabulary) or ()
    names = {str(item) for sort, item in zip(sorts, form.items[1:], strict=True) if sort == "E" and is_variable(item)}
    return names | ({str(equation.items[1])} if equation is not None else set())


def _connected(atoms: list[Sexpr], vocabulary: Vocabulary) -> bool:
    """Whether the structure hangs together through classes; if not, only guards keep it from multiplying."""
    groups = [_classes(atom, vocabulary) for atom in atoms]
    reached, rest = groups[0], groups[1:]
    while rest:
        near = [group for group in rest if group & reached]
        if not near:
            return False
        reached = reached.union(*near)
        rest = [group for group in rest if group not in near]
    return True


class _Splitter:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.variables: dict[str, str] = {}
        self.guards: list[Sexpr] = []

    def loosen(self, fact: Sexpr) -> Sexpr:
        """The fact with computed and repeated attributes replaced by variables that a guard compares."""
        equation, form = _term(fact)  # type: ignore[misc]
        sorts = _sorts(fact, self._vocabulary) or ()
        items: list[Sexpr] = [form.items[0]]
        for sort, item in zip(sorts, form.items[1:], strict=True):
            items.append(self._argument(sort, item))
        loosened = Form(tuple(items), form.line)
        if equation is None:
            return loosened
        self.variables.setdefault(str(equation.items[1]), "E")
        return Form((equation.items[0], equation.items[1], loosened), equation.line)

    def _argument(self, sort: str, item: Sexpr) -> Sexpr:
        if isinstance(item, Atom) and not is_variable(item):
            return item
        if isinstance(item, Atom) and item.text != "_" and (sort == "E" or item.text not in self.variables):
            self.variables.setdefault(item.text, sort)
            return item
        name = Atom(f"_a{len(self.variables)}", item.line)
        self.variables[name.text] = sort
        if str(item) != "_":
            self.guards.append(Form((Atom("=", item.line), name, item), item.line))
        return name
