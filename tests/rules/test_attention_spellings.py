"""Attention is found in every spelling: exactly one node, nothing of the softmax left, the same values."""

from __future__ import annotations

import pytest

from tests.rules.spellings import CHOICES, Spelling, allowed, pairwise
from tests.rules.support import assert_agree, ops_of, random_inputs, search

SPELLINGS = [Spelling(row) for row in pairwise(CHOICES, allowed)]


def test_every_choice_occurs() -> None:
    for name, values in CHOICES.items():
        assert {spelling.choice[name] for spelling in SPELLINGS} == set(values)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=[spelling.label for spelling in SPELLINGS])
def test_attention_is_found(spelling: Spelling) -> None:
    graph = spelling.graph()
    result, report = search(graph)
    ops = ops_of(result)
    assert ops["attention"] == 1, dict(ops)
    assert not {"softmax", "reduce_max", "reduce_sum", "tanh", "div"} & set(ops), dict(ops)
    assert ops["exp"] == 1, "only the output's own exponential is left"
    (node,) = [node for node in result.nodes if node.op.name == "attention"]
    assert node.op.scale == pytest.approx(spelling.scale, rel=1e-6)  # type: ignore[attr-defined]
    assert node.op.softcap == pytest.approx(spelling.cap)  # type: ignore[attr-defined]
    assert node.op.causal == spelling.causal, report.rules  # type: ignore[attr-defined]
    inputs = random_inputs(graph)
    assert_agree(graph, result, inputs, nan_may_vanish=True)
