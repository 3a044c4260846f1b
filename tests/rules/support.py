"""What the rule tests share: running the search, comparing both sides, and registering cases by rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from meganeura.egraph import RuleBook, SearchReport, load_rules, optimize
from meganeura.egraph.explore import explore
from meganeura.ir import DType, Graph, Tensor, validate
from meganeura.options import CompileOptions
from meganeura.reference import evaluate
from tests.egraph.test_alternatives import class_values, compute

Build = Callable[[Graph], Tensor | tuple[Tensor, ...]]


@cache
def book() -> RuleBook:
    """The package's rules, read once."""
    return load_rules()


def search(graph: Graph, only: tuple[str, ...] | None = None) -> tuple[Graph, SearchReport]:
    """Optimise with the package's rules, and check the result's structure."""
    result, report = optimize(graph, rules=book(), only=only)
    return validate(result, "search"), report


def random_inputs(graph: Graph, given: Mapping[str, Any] | None = None, seed: int = 0) -> dict[str, np.ndarray]:
    """Values for every input and state that is not given: normal floats, small integers, coin tosses."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, node in {**graph.inputs, **graph.states}.items():
        kind, shape = node.tensor_type.dtype, tuple(int(d) for d in node.tensor_type.shape)  # type: ignore[arg-type]
        if given and name in given:
            value = np.asarray(given[name])
        elif kind.is_float:
            value = rng.standard_normal(shape)
        elif kind is DType.BOOL:
            value = rng.random(shape) < 0.7
        else:
            value = rng.integers(0, 4, shape)
        values[name] = np.asarray(value).astype(kind.numpy).reshape(shape)
    return values


def assert_agree(before: Graph, after: Graph, inputs: Mapping[str, np.ndarray], nan_may_vanish: bool = False) -> None:
    """Both graphs give the same outputs: NaN and infinity masks first, then values relative to the largest.

    Args:
        nan_may_vanish: rows that are NaN before may be zeros after (attention without any key).
    """
    wanted, got = evaluate(before, inputs), evaluate(after, inputs)
    assert list(wanted) == list(got)
    for name, old in wanted.items():
        assert_close(got[name], old, name, nan_may_vanish)


def assert_close(new: np.ndarray, old: np.ndarray, what: str, nan_may_vanish: bool, limit: float = 2e-4) -> None:
    """One value against another: see `assert_agree`."""
    assert new.shape == old.shape, what
    if old.dtype.kind != "f":
        assert np.array_equal(old, new), what
        return
    if nan_may_vanish:
        gone = np.isnan(old) & ~np.isnan(new)
        assert np.all(new[gone] == 0), f"{what}: NaN became something else than zero"
        old = np.where(gone, 0, old)
    assert np.array_equal(np.isnan(old), np.isnan(new)), f"{what}: NaN in different places"
    assert np.array_equal(np.isinf(old), np.isinf(new)), f"{what}: infinities in different places"
    usual = np.isfinite(old)
    scale = max(1e-6, float(np.abs(old[usual].astype(float)).max(initial=0.0)))
    limit = 1e-2 if old.dtype == np.float16 else limit
    worst = np.abs(old[usual].astype(float) - new[usual].astype(float)).max(initial=0.0) / scale
    assert worst <= limit, f"{what}: relative difference {worst:.2e}"


def assert_every_term_agrees(
    graph: Graph, inputs: Mapping[str, np.ndarray], only: tuple[str, ...] | None, nan_may_vanish: bool = False
) -> None:
    """All that the rules united is equal, also what the search did not choose."""
    found = explore(graph, CompileOptions(), SearchReport(), book(), only)
    values = class_values(found, dict(inputs))
    for here, terms in found.snapshot.classes.items():
        for term in terms:
            if term.op.name in ("input", "state"):
                continue
            got, want = compute(found, here, term, values), values[here]
            limit = 1e-2 if getattr(found.types[here], "dtype", None) is DType.F16 else 5e-4
            for new, old in zip(got, want, strict=True) if isinstance(want, tuple) else ((got, want),):
                assert_close(np.asarray(new), np.asarray(old), f"{term.op} of {term.operands}", nan_may_vanish, limit)


def ops_of(graph: Graph) -> Counter[str]:
    """How often each op occurs."""
    return Counter(node.op.name for node in graph.nodes)


@dataclass(frozen=True)
class Case:
    """One graph for one rule.

    Attributes:
        rule: the rule's name. refused: why the rule must not fire, empty if it must.
        build: adds the graph's ops and returns its outputs. inputs: values that matter.
        finds: ops that must be in the result. leaves: ops that must not. nan_may_vanish: see `assert_agree`.
    """

    rule: str
    refused: str
    build: Build
    inputs: Mapping[str, Any] = field(default_factory=dict)
    finds: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    nan_may_vanish: bool = False

    @property
    def label(self) -> str:
        """The test's id."""
        return f"{self.rule}:{self.refused or self.build.__name__}".replace(" ", "_")

    def graph(self) -> Graph:
        """The case's graph."""
        graph = Graph(self.rule)
        result = self.build(graph)
        for number, tensor in enumerate(result if isinstance(result, tuple) else (result,)):
            graph.output(f"y{number}", tensor)
        return graph


class Cases:
    """The cases of one module, collected by decorators."""

    def __init__(self, *groups: str) -> None:
        self.only, self.all = groups or None, list[Case]()

    def fires(self, rule: str, **options: Any) -> Callable[[Build], Build]:
        """The decorated graph must make the rule fire."""

        def note(build: Build) -> Build:
            self.all.append(Case(rule, "", build, **options))
            return build

        return note

    def refuses(self, rule: str, reason: str, **options: Any) -> Callable[[Build], Build]:
        """The decorated graph must leave the rule alone."""

        def note(build: Build) -> Build:
            self.all.append(Case(rule, reason, build, **options))
            return build

        return note

    def check(self, case: Case) -> None:
        """Search the case's graph and hold the result against what the case says."""
        graph = case.graph()
        result, report = search(graph, self.only)
        fired = report.rules.get(case.rule, 0)
        assert (fired == 0) == bool(case.refused), f"{case.rule} fired {fired} times; all: {sorted(report.rules)}"
        inputs = random_inputs(graph, case.inputs)
        assert_agree(graph, result, inputs, case.nan_may_vanish)
        assert_every_term_agrees(graph, inputs, self.only, case.nan_may_vanish)
        ops = ops_of(result)
        assert not [op for op in case.finds if op not in ops], dict(ops)
        assert not [op for op in case.leaves if op in ops], dict(ops)


def constant(graph: Graph, *shape: int, seed: int = 1) -> Tensor:
    """A float32 constant of normal values."""
    return graph.constant(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))
