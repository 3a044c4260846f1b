"""Picks one term per needed class so that the whole program, shared values paid once, is cheapest.

Greedy first, over the strongly connected components of the e-graph from the leaves up: a class's estimate is its
term's cost plus its operands' estimates, each divided by how many classes share it. Then a local search over the
true objective, with reference counts: change one class's term, or the terms of several classes that could share a
new one (packed products, kernels with two results), whenever the whole program gets cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence

from meganeura.egraph.local_search import LocalSearch
from meganeura.egraph.problem import INFINITE, Parts, Problem


def extract(problem: Problem) -> list[int]:
    """Term chosen for every class (-1 where none is possible); only those reachable from the roots count."""
    parts = Parts(problem)
    shared = parts.fanout()
    best: list[int] | None = None
    best_total = INFINITE
    for _ in range(3):
        choice = greedy(problem, parts, shared)
        total = problem.total(choice)
        if best is None or total < best_total * (1 - 1e-9):
            best, best_total = choice, total
        references = _references(problem, choice)
        if references == shared:
            break
        shared = references
    assert best is not None
    unshared = greedy(problem, parts, [1.0] * len(problem.classes))
    return LocalSearch(problem, parts, best, unshared).run()


def greedy(problem: Problem, parts: Parts, shared: Sequence[float]) -> list[int]:
    """The cheapest term of every class by estimates in which `shared[c]` readers divide the cost of c."""
    estimate = [INFINITE] * len(problem.classes)
    choice = [-1] * len(problem.classes)
    for members in parts.ordered:
        number = parts.component[members[0]]
        changed = True
        while changed:
            changed = False
            for here in members:
                for term in problem.classes[here]:
                    value = problem.cost[term]
                    for child in problem.children[term]:
                        # No division inside a component: estimates must grow along every edge, or cycles could win.
                        value += estimate[child] / (1.0 if parts.component[child] == number else shared[child])
                    if value < estimate[here]:
                        estimate[here], choice[here], changed = value, term, True
            changed = changed and len(members) > 1
    return choice


def _references(problem: Problem, choice: Sequence[int]) -> list[float]:
    counts = [0.0] * len(problem.classes)
    for here in problem.order(choice):
        for child in problem.children[choice[here]]:
            counts[child] += 1
    return [max(1.0, count) for count in counts]
