"""Rule files: headers, checks and stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from meganeura.egraph import load_rules, read_rules
from meganeura.egraph.sexpr import read
from meganeura.errors import RuleError
from tests.egraph.support import book, rule

GOOD = """\
;; What the file is for,
;; in two lines.

(relation helper (E))
;; rule: first-rule
;; soundness: reassociating
;; why: Because it is so, and
;;   goes on to say so.
;; guards: none to speak of
(rewrite (Add a b) (Add b a)) ; a remark
(rewrite (Mul a b) (Mul b a))

;; rule: second-rule
;; group: other
;; soundness: approximate
;; why: It is nearly so.
(birewrite (Neg (Neg x)) x)
"""


def test_reads_headers_places_and_commands() -> None:
    file = read_rules(GOOD, "dir/good.egg")
    first, second = file.rules
    assert file.purpose == "What the file is for, in two lines."
    assert [d.head for d in file.declarations] == ["relation"]
    assert (first.name, first.group, first.soundness, first.line) == ("first-rule", "good", "reassociating", 5)
    assert first.why == "Because it is so, and goes on to say so."
    assert first.guards == "none to speak of"
    assert first.place == "dir/good.egg:5"
    assert first.text == "(rewrite (Add a b) (Add b a))\n(rewrite (Mul a b) (Mul b a))"
    assert (second.group, second.soundness) == ("other", "approximate")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("(rewrite (Neg x) x)", ":1", "without a"),
        (rule("a", "(rewrite (Neg x)"), ":5", "not closed"),
        (rule("a", "(rewrite (Neg x) x))"), ":5", "too many"),
        (rule("a", '(rewrite (Cast "f32) x)'), ":5", "string"),
        (rule("a", "neg"), ":5", "outside"),
        (rule("a", "(run 5)"), ":5", "not a command"),
        (rule("a", ""), ":1", "followed by no rule"),
        (rule("Big Name", "(rewrite (Neg x) x)"), ":1", "not a rule name"),
        (rule("a", "(rewrite (Neg x) x)", soundness="sure"), ":1", "soundness"),
        (";; rule: a\n;; soundness: exact\n(rewrite (Neg x) x)", ":1", "why"),
        (";; rule: a\n;; soundness: exact\n;; why: x\n;; allows: much\n(rewrite (Neg x) x)", ":1", "allows 'much'"),
        (";; rule: a\n;; wy: a slip\n(rewrite (Neg x) x)", ":2", "not understood"),
        (";; rule: a\n;; why: x\n;; why: y\n(rewrite (Neg x) x)", ":3", "twice"),
    ],
)
def test_mistakes_name_file_and_line(text: str, place: str, words: str) -> None:
    with pytest.raises(RuleError) as caught:
        read_rules(text, "bad.egg")
    assert caught.value.source == f"bad.egg{place}"
    assert words in str(caught.value)


def test_strings_keep_their_parentheses() -> None:
    (form,) = read('(a "b) ; c" d) ; e', "x")
    assert [str(item) for item in form.items] == ["a", '"b) ; c"', "d"]


def test_duplicate_names_are_found_across_files(tmp_path: Path) -> None:
    (tmp_path / "a.egg").write_text(rule("same", "(rewrite (Neg x) x)"))
    (tmp_path / "b.egg").write_text(rule("same", "(rewrite (Abs x) x)"))
    with pytest.raises(RuleError, match="two rules are called 'same'") as caught:
        load_rules(folder=tmp_path)
    assert caught.value.source is not None and caught.value.source.endswith("b.egg:1")
    assert "a.egg:1" in str(caught.value)


def test_stages_come_from_the_data_file_and_the_rest_runs_last(tmp_path: Path) -> None:
    (tmp_path / "a.egg").write_text(rule("one", "(rewrite (Neg x) x)", "first") + rule("two", "(rewrite (Abs x) x)"))
    (tmp_path / "stages.toml").write_text('[[stage]]\nname = "early"\ngroups = ["first"]\niterations = 3\n')
    loaded = load_rules(folder=tmp_path)
    assert [(s.name, s.groups, s.iterations) for s in loaded.stages] == [
        ("early", ("first",), 3),
        ("further", ("test",), 8),
    ]
    (tmp_path / "stages.toml").write_text("[[stage]]\nname = 3\n")
    with pytest.raises(RuleError, match="stages are malformed"):
        load_rules(folder=tmp_path)


def test_selection_by_name_group_and_soundness() -> None:
    rules = book(
        rule("one", "(rewrite (Neg x) x)", "left"),
        rule("two", "(rewrite (Abs x) x)", "right"),
        rule("three", "(rewrite (Exp x) x)", "right", "approximate"),
    )

    def names(**options: tuple[str, ...]) -> list[str]:
        return [r.name for r in rules.select(**options)]

    assert names() == ["one", "two"]
    assert names(disabled=("right",)) == ["one"]
    assert names(enabled=("three",)) == ["one", "two", "three"]
    assert names(enabled=("right",), disabled=("two",)) == ["one", "three"]
    assert names(only=("three", "one")) == ["one", "three"]
    with pytest.raises(RuleError, match="did you mean 'right'"):
        names(disabled=("rigt",))


def test_a_missing_user_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"cannot read the rule file .*none\.egg"):
        load_rules((str(tmp_path / "none.egg"),))
