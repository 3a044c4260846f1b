"""Every rule fires on a graph made for it, leaves a near-miss alone, and both sides agree."""

from __future__ import annotations

import pytest

from tests.rules import (
    algebra_cases,
    attention_cases,
    cache_cases,
    composite_cases,
    guarded_cases,
    index_cases,
    matmul_cases,
    movement_cases,
    normalization_cases,
)
from tests.rules.support import Case, Cases, book

MODULES = (
    algebra_cases,
    movement_cases,
    composite_cases,
    normalization_cases,
    matmul_cases,
    index_cases,
    attention_cases,
    cache_cases,
    guarded_cases,
)
ALL = [(module.CASES, case) for module in MODULES for case in module.CASES.all]


@pytest.mark.parametrize(("cases", "case"), ALL, ids=[case.label for _, case in ALL])
def test_case(cases: Cases, case: Case) -> None:
    cases.check(case)


def test_every_rule_is_seen_to_fire_and_to_refuse() -> None:
    rules = {rule.name for rule in book().rules}
    fires = {case.rule for _, case in ALL if not case.refused}
    refuses = {case.rule for _, case in ALL if case.refused}
    assert sorted(rules - fires) == [], "rules without a graph on which they fire"
    assert sorted(rules - refuses) == [], "rules without a near-miss that they refuse"
    assert sorted((fires | refuses) - rules) == [], "cases of rules that are not there"
