"""Extraction as an integer program, solved by HiGHS: the oracle of the extraction tests."""

from __future__ import annotations

import pytest

from meganeura.egraph.problem import Problem


def exact_total(problem: Problem, seconds: float = 20.0) -> float:
    """The optimal cost; skips the test where highspy is not installed.

    One binary per term; a class that is needed takes one term; a term's operands are needed; levels, one number per
    class, fall along every chosen edge, which rules out cycles.
    """
    highspy = pytest.importorskip("highspy", reason="highspy, the integer-program oracle, is not installed")
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("time_limit", seconds)
    count = len(problem.classes)
    take = [model.addBinary(obj=cost) for cost in problem.cost]
    level = [model.addVariable(lb=0.0, ub=float(count)) for _ in range(count)]
    for root in problem.roots:
        model.addConstr(sum(take[t] for t in problem.classes[root]) >= 1)
    for term, children in enumerate(problem.children):
        for child in children:
            model.addConstr(sum(take[t] for t in problem.classes[child]) - take[term] >= 0)
            model.addConstr(level[problem.owner[term]] - level[child] - (count + 1) * take[term] >= 1 - (count + 1))
    model.minimize()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        pytest.skip("the integer program found no optimum in time")
    return model.getObjectiveValue()
