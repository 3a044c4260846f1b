"""The checker catches rules that are wrong, and lets their right siblings pass."""

from __future__ import annotations

import pytest

from meganeura.egraph import RuleBook, Stage, read_rules
from meganeura.egraph.check.checker import Checker, RuleCheck
from meganeura.ir.text import parse_graph
from tests.egraph.check.unsound import PAIRS, Pair, text


def check(command: str, pair: Pair) -> RuleCheck:
    file = read_rules(text(pair.name, command, pair), "test.egg")
    book = RuleBook((file,), (Stage("test", ("test",), 5),))
    return Checker(book, cases=12).check(file.rules[0])


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.name for pair in PAIRS])
def test_wrong_rules_are_caught(pair: Pair) -> None:
    result = check(pair.wrong, pair)
    assert result.verdict == "wrong", result
    assert result.failure is not None
    parse_graph(result.failure.text)


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.name for pair in PAIRS])
def test_right_siblings_pass(pair: Pair) -> None:
    result = check(pair.right, pair)
    assert result.failure is None, f"{result.failure}"
    assert result.verdict == "holds", result
