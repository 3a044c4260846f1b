"""Every rule of the package holds on graphs generated from its own text, and nearly all are seen to fire."""

from __future__ import annotations

from functools import cache

import pytest

from meganeura.egraph import load_rules
from meganeura.egraph.check.checker import Checker, RuleCheck

RULES = load_rules()
NAMES = [rule.name for rule in RULES.rules]
SHARE = 0.9
"""Least part of the rules, and of their commands, that must be seen to fire without hand-written graphs."""


@cache
def result(name: str) -> RuleCheck:
    return Checker(RULES, cases=2, rounds=3).check(next(rule for rule in RULES.rules if rule.name == name))


@pytest.mark.parametrize("name", NAMES)
def test_rule_holds(name: str) -> None:
    found = result(name)
    assert found.failure is None, f"{found.failure.message}\n{found.failure.text}"


def test_nearly_all_rules_and_commands_fire() -> None:
    results = [result(name) for name in NAMES]
    fired = [r for r in results if r.verdict == "holds"]
    unseen = [(r.rule.name, r.verdict) for r in results if r.verdict != "holds"]
    assert len(fired) >= SHARE * len(NAMES), unseen
    commands = sum(r.commands for r in results)
    missed = [(r.rule.name, r.silent, r.ungenerated) for r in results if r.silent or r.ungenerated]
    assert sum(len(silent) + len(ungenerated) for _, silent, ungenerated in missed) <= (1 - SHARE) * commands, missed
