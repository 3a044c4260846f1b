"""Random graphs around every rule's own graph: the rule fires among others, and all programs agree."""

from __future__ import annotations

import numpy as np
import pytest

import meganeura as mg
from meganeura.egraph import optimize
from meganeura.ir import Graph, Tensor
from meganeura.ir.validate import validate
from meganeura.reference import evaluate
from tests.property.graphs import Grower
from tests.property.test_random_graphs import assert_close
from tests.rules.support import Case, book, random_inputs
from tests.rules.test_rules import ALL

RULES = {case.rule: case for _, case in reversed(ALL) if not case.refused}
"""For every rule the first graph on which it fires."""
ON_DEVICE = 5
"""every n-th graph also runs on the device."""


def splice(grower: Grower, part: Graph) -> list[Tensor]:
    """Copy a graph into the growing one; its leaves get names of their own."""
    graph = grower.graph
    graph.constants.update(part.constants)
    copies: dict[int, Tensor] = {}
    for node in part.nodes:
        if node.op.name in ("input", "state"):
            name = f"part.{node.op.attributes()['name_of_leaf']}"
            make = graph.input if node.op.name == "input" else graph.state
            copies[node.id] = make(name, node.tensor_type.shape, node.tensor_type.dtype)
        else:
            copies[node.id] = graph.apply(node.op, *(copies[i] for i in node.inputs))
    for name, root in part.updates.items():
        graph.update(f"part.{name}", copies[root])
    return [copies[root] for root in part.outputs.values()]


def grown_around(case: Case, seed: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """A random graph that holds a rule's graph, and values for its inputs."""
    grower = Grower(seed)
    part = case.graph()
    results = splice(grower, part)
    grower.pool += [t for t in results if t.dtype.is_float and t.rank and 0 not in t.shape]
    graph = grower.grow(4)
    for number, tensor in enumerate(results):
        graph.output(f"part{number}", tensor)
    given = {f"part.{name}": value for name, value in random_inputs(part, case.inputs).items()}
    return validate(graph), {**grower.inputs(), **given}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_among_random_ops(device: mg.Device, rule: str) -> None:
    case = RULES[rule]
    number = sorted(RULES).index(rule)
    graph, inputs = grown_around(case, 5000 + number)
    result, report = optimize(graph, rules=book())
    assert rule in report.rules, "the rule did not fire here"
    want = evaluate(graph, inputs)
    got = evaluate(result, inputs)
    if case.nan_may_vanish:
        want = {k: np.where(np.isnan(v) & ~np.isnan(got[k]), got[k], v) for k, v in want.items()}
    for name, value in want.items():
        assert_close(got[name], value, f"{name} around {rule}")
    if number % ON_DEVICE == 0 and not graph.states:
        for optimized in (True, False):
            for name, value in mg.compile(graph, device=device, optimize=optimized)(**inputs).items():
                if not (case.nan_may_vanish and np.isnan(want[name]).any()):
                    assert_close(value, want[name], f"{name} around {rule}, optimize={optimized}")


def test_every_rule_has_a_graph() -> None:
    assert {rule.name for rule in book().rules} == set(RULES)
