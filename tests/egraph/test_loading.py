"""The package's rules all load, and mistakes in rules come out as our errors, before a search."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from meganeura.egraph import check_rules, load_rules, optimize
from meganeura.errors import RuleError
from meganeura.ir import Graph
from meganeura.options import CompileOptions
from tests.egraph.support import book, ops, rule, search


def small() -> Graph:
    graph = Graph()
    x = graph.input("x", (2, 3))
    graph.output("y", graph.apply("neg", -x))
    return graph


def test_every_rule_of_the_package_loads() -> None:
    check_rules(load_rules())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("(rewrite (Negg x) x)", "did you mean Neg"),
        ("(rewrite (Neg x y) x)", "Neg takes 1 arguments, not 2"),
        ("(rewrite (Neg x) y)", "Unbound symbol y"),
        ("(rewrite (Neg x) x :when ((is-constant x x)))", "is-constant takes 1"),
        ("(rewrite (Neg x) x :when ((no-such-fact x)))", "no-such-fact"),
        ("(rewrite (Neg x) x :because (x))", ":because is not understood"),
        ("(rewrite (Neg x) (Cast 3 x))", "test.egg:1"),
        ("(rule ((= e (Neg x))) union)", "needs facts and actions"),
        ("(rewrite (Neg x))", "incomplete"),
    ],
)
def test_a_bad_rule_is_refused_with_its_place(command: str, words: str) -> None:
    with pytest.raises(RuleError) as caught:
        search(small(), rule("bad", command))
    assert words in str(caught.value) and "test.egg:" in str(caught.value), str(caught.value)


def test_unreachable_rules_are_still_checked_for_their_terms() -> None:
    with pytest.raises(RuleError, match="Softmx"):
        search(small(), rule("bad", "(rewrite (Softmx 1 x) x)"))


def test_user_rules_join_the_search(tmp_path: Path) -> None:
    path = tmp_path / "mine.egg"
    path.write_text(rule("my-double-negation", "(rewrite (Neg (Neg x)) x)", "mine"))
    result, report = optimize(small(), options=CompileOptions(rules=(str(path),)), only=("mine",))
    # Twice: once x = --x is known, -x is its own double negation too.
    assert report.rules == {"my-double-negation": 2} and ops(result) == {"input": 1}
    off = CompileOptions(rules=(str(path),), disabled_rules=("mine",))
    assert "my-double-negation" not in optimize(small(), options=off)[1].rules


def test_helper_relations_are_declared_once() -> None:
    check_rules(book("(relation mine (E))", rule("marks", "(rule ((= e (Neg x))) ((mine e)))")))
    with pytest.raises(RuleError, match="declared twice"):
        check_rules(book("(relation mine (E))(relation mine (E))", rule("marks", "(rule ((= e (Neg x))) ((mine e)))")))


def test_a_rule_that_only_marks_is_counted() -> None:
    _, report = search(small(), "(relation mine (E))", rule("marks", "(rule ((= e (Neg x))) ((mine e)))"))
    assert report.rules == {"marks": 2}


def test_egglog_is_not_imported_before_a_search() -> None:
    code = "import sys, meganeura.egraph; assert not [m for m in sys.modules if m.startswith('egglog')]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_egglogs_own_package_can_be_imported_after_a_search() -> None:
    code = (
        "import meganeura as mg; from meganeura.egraph import optimize\n"
        "g = mg.Graph(); g.output('y', -g.input('x', (2,))); optimize(g)\n"
        "import egglog; egglog.EGraph(); import egglog.bindings"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
