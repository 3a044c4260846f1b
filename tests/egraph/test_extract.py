"""Extraction against the optimum: exhaustive search on small problems, an integer program on larger ones."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meganeura.egraph.components import components
from meganeura.egraph.extract import extract
from meganeura.egraph.problem import Problem
from meganeura.errors import GraphError
from tests.egraph.exact import exact_total


def exhaustive(problem: Problem) -> float:
    """The optimum by trying every combination of terms."""
    best = math.inf
    for choice in itertools.product(*(terms or (-1,) for terms in problem.classes)):
        try:
            best = min(best, problem.total(choice))
        except GraphError:
            continue
    return best


@st.composite
def problems(draw: st.DrawFn, most: int = 7) -> Problem:
    """Random problems, cycles and dead ends included, whose roots can be computed."""
    count = draw(st.integers(2, most))
    classes = []
    for here in range(count):
        terms = []
        for _ in range(draw(st.integers(1, 3))):
            children = draw(st.lists(st.integers(0, count - 1), max_size=3))
            terms.append((float(draw(st.integers(1, 20))), children))
        # Something grounded somewhere below keeps most problems solvable.
        if here < 2:
            terms.append((30.0, []))
        classes.append(terms)
    return Problem.build(classes, draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3)))


@settings(max_examples=300, deadline=None)
@given(problems())
def test_small_problems(problem: Problem) -> None:
    best = exhaustive(problem)
    if math.isinf(best):
        with pytest.raises(GraphError):
            extract(problem)
        return
    total = problem.total(extract(problem))
    # A local search can miss the optimum, but never by much at this size.
    assert best - 1e-9 <= total <= 1.6 * best + 1e-9


def fused_value_still_needed() -> Problem:
    """A fused term saves its input's class, unless that class is a root as well (saved activations)."""
    # 0 leaf, 1 a = f(leaf), 2 b = g(a) or fused(leaf)
    return Problem.build([[(1.0, [])], [(10.0, [0])], [(10.0, [1]), (15.0, [0])]], [1, 2])


def packed() -> Problem:
    """Three products, alone 10 each, or slices of one product of 12: only the joint exchange pays."""
    classes = [[(1.0, [])], [(12.0, [0])]]
    classes += [[(10.0, [0]), (0.1, [1])] for _ in range(3)]
    return Problem.build(classes, [2, 3, 4])


def packing_two_of_three() -> Problem:
    """Packing pays for the classes that are needed only."""
    classes = [[(1.0, [])], [(25.0, [0])]]
    classes += [[(10.0, [0]), (0.1, [1])] for _ in range(3)]
    return Problem.build(classes, [2, 3])


def identity_cycle() -> Problem:
    """x = Reshape(y), y = Reshape(x): views are cheap, but one of the two must be computed."""
    return Problem.build([[(0.01, [1]), (5.0, [2])], [(0.01, [0]), (7.0, [2])], [(1.0, [])]], [0, 1])


@pytest.mark.parametrize(
    ("problem", "best"),
    [
        (fused_value_still_needed(), 21.0),
        (packed(), 13.3),
        (packing_two_of_three(), 21.0),
        (identity_cycle(), 6.01),
    ],
)
def test_known_problems(problem: Problem, best: float) -> None:
    assert problem.total(extract(problem)) == pytest.approx(best) == pytest.approx(exhaustive(problem))


def test_nothing_to_choose_from_is_an_error() -> None:
    with pytest.raises(GraphError, match="no way to compute"):
        extract(Problem.build([[(1.0, [1])], []], [0]))


def layered(layers: int, seed: int) -> Problem:
    """Residual layers of alternatives, as a decoder has them: tree costs would be astronomic."""
    rng = np.random.default_rng(seed)
    classes: list[list[tuple[float, list[int]]]] = [[(1.0, [])]]
    last = 0
    for _ in range(layers):
        base = len(classes)
        for _ in range(3):
            classes.append([(float(rng.integers(5, 15)), [last])])
        classes.append([(float(rng.integers(8, 30)), [last])])
        for part in range(3):
            classes[base + part].append((0.1, [base + 3]))
        classes.append([(6.0, [base, base + 1]), (float(rng.integers(3, 20)), [last])])
        classes.append([(2.0, [base + 4, base + 2, last]), (float(rng.integers(10, 40)), [last])])
        last = base + 5
    return Problem.build(classes, [last])


@pytest.mark.parametrize("seed", range(6))
def test_layers_against_the_integer_program(seed: int) -> None:
    problem = layered(12, seed)
    best = exact_total(problem)
    assert problem.total(extract(problem)) <= best * 1.03 + 1e-9


def test_deep_graphs_neither_overflow_nor_recurse() -> None:
    problem = layered(2000, 0)
    total = problem.total(extract(problem))
    assert 0 < total < 2000 * 60


def test_extraction_is_deterministic() -> None:
    assert extract(layered(20, 3)) == extract(layered(20, 3))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=10, max_size=10))
def test_components_come_operands_first(edges: list[list[int]]) -> None:
    found = components(edges)
    place = {member: number for number, members in enumerate(found) for member in members}
    assert sorted(place) == list(range(10))

    def reaches(start: int) -> set[int]:
        seen, stack = set(), [start]
        while stack:
            for target in edges[stack.pop()]:
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return seen

    for a in range(10):
        for b in reaches(a):
            assert place[b] <= place[a]
            assert (place[a] == place[b]) == (a == b or a in reaches(b))
