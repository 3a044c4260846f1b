"""S-expressions with line numbers: what the rule files are made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from meganeura.errors import RuleError

_TOKEN = re.compile(r'\s+|;[^\n]*|"(?:[^"\\]|\\.)*"|[()]|[^\s()";]+')


@dataclass(frozen=True, slots=True)
class Atom:
    """A symbol, number or quoted string."""

    text: str
    line: int

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Form:
    """A parenthesised list."""

    items: tuple[Sexpr, ...]
    line: int

    @property
    def head(self) -> str:
        """The first item where it is a symbol, else the empty text."""
        return self.items[0].text if self.items and isinstance(self.items[0], Atom) else ""

    def __str__(self) -> str:
        return f"({' '.join(map(str, self.items))})"


Sexpr: TypeAlias = Atom | Form


def read(text: str, source: str) -> list[Form]:
    """All top-level forms of a text; raises RuleError with file and line for unbalanced parentheses."""
    stack: list[tuple[list[Sexpr], int]] = []
    top: list[Form] = []
    for token, line in _tokens(text, source):
        if token == "(":
            stack.append(([], line))
        elif token == ")":
            if not stack:
                raise RuleError("a closing parenthesis too many", source=f"{source}:{line}")
            items, start = stack.pop()
            form = Form(tuple(items), start)
            if stack:
                stack[-1][0].append(form)
            else:
                top.append(form)
        elif stack:
            stack[-1][0].append(Atom(token, line))
        else:
            raise RuleError(f"{token!r} stands outside parentheses", source=f"{source}:{line}")
    if stack:
        raise RuleError("a parenthesis is not closed", source=f"{source}:{stack[0][1]}")
    return top


def _tokens(text: str, source: str) -> Iterator[tuple[str, int]]:
    line, position = 1, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise RuleError("a quoted string is not closed", source=f"{source}:{line}")
        token = match[0]
        if not token[0].isspace() and token[0] != ";":
            yield token, line
        line += token.count("\n")
        position = match.end()


def forms(expression: Sexpr) -> Iterator[Form]:
    """The expression's forms, outermost first."""
    if isinstance(expression, Form):
        yield expression
        for item in expression.items:
            yield from forms(item)
