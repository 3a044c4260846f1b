"""What rules may name, and the check of their terms before egglog sees them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from meganeura.egraph.rulefile import RuleInfo
from meganeura.egraph.schema import FACTS, Constructor
from meganeura.egraph.sexpr import Atom, Form, Sexpr, forms
from meganeura.errors import RuleError


@dataclass(frozen=True)
class Vocabulary:
    """Constructors by name; relations and functions by name with argument sorts; which of them are functions."""

    constructors: Mapping[str, Constructor]
    declared: Mapping[str, tuple[str, ...]]
    functions: frozenset[str]

    def sorts(self, head: str) -> tuple[str, ...] | None:
        """Argument sorts of a constructor, relation or function, None for anything else."""
        made = self.constructors.get(head)
        if made is not None:
            return (*made.sorts, *("E",) * made.arity)
        return self.declared.get(head)

    def check(self, expression: Sexpr, rule: RuleInfo) -> None:
        """Raise RuleError for an unknown constructor or a wrong number of arguments."""
        for form in forms(expression):
            head = form.head
            sorts = self.sorts(head)
            if sorts is not None and len(form.items) - 1 != len(sorts):
                raise RuleError(
                    f"rule {rule.name}: {head} takes {len(sorts)} arguments, not {len(form.items) - 1}",
                    source=f"{rule.file}:{form.line}",
                    shapes=f"({' '.join((head, *sorts))})",
                )
            if sorts is None and head[:1].isupper():
                near = difflib.get_close_matches(head, [*self.constructors, *self.declared], 1)
                raise RuleError(
                    f"rule {rule.name}: there is no constructor {head}",
                    source=f"{rule.file}:{form.line}",
                    remedy=f"did you mean {near[0]}?" if near else None,
                )


def vocabulary_of(declarations: Iterable[Form], constructors: Mapping[str, Constructor]) -> Vocabulary:
    """The schema's constructors, the engine's facts, and what rule files declare."""
    declared: dict[str, tuple[str, ...]] = {name: arguments for name, (arguments, _) in FACTS.items()}
    functions = {name for name, (_, result) in FACTS.items() if result is not None}
    for form in declarations:
        name, arguments = form.items[1:3] if len(form.items) > 2 else (None, None)
        if not isinstance(name, Atom) or not isinstance(arguments, Form):
            raise RuleError(f"a declaration that is not understood: {form}", source=f"line {form.line}")
        if name.text in declared or name.text in constructors:
            raise RuleError(f"{name.text} is declared twice", source=f"line {form.line}")
        declared[name.text] = tuple(str(item) for item in arguments.items)
        if form.head != "relation":
            functions.add(name.text)
    return Vocabulary(constructors, declared, frozenset(functions))
