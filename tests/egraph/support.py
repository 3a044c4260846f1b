"""What the e-graph tests share: small rule books, searches, and comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from meganeura.egraph import RuleBook, SearchReport, Stage, optimize, read_rules
from meganeura.facts import DeviceFacts
from meganeura.ir import Graph
from meganeura.options import CompileOptions
from meganeura.reference import evaluate

CPU = DeviceFacts(kind="cpu")


def rule(name: str, command: str, group: str = "test", soundness: str = "exact") -> str:
    """One rule with its header."""
    return f";; rule: {name}\n;; group: {group}\n;; soundness: {soundness}\n;; why: For a test.\n{command}\n"


def book(*texts: str, iterations: int = 8) -> RuleBook:
    """A rule book of one file, all groups in one stage."""
    file = read_rules("\n".join(texts), "test.egg")
    groups = tuple(dict.fromkeys(r.group for r in file.rules))
    return RuleBook((file,), (Stage("test", groups, iterations),))


def search(
    graph: Graph, *texts: str, facts: DeviceFacts = CPU, options: CompileOptions | None = None
) -> tuple[Graph, SearchReport]:
    """Optimise with the given rules only."""
    return optimize(graph, facts, options, rules=book(*texts))


def ops(graph: Graph) -> Counter[str]:
    """How often each op occurs."""
    return Counter(node.op.name for node in graph.nodes)


def assert_same(left: Graph, right: Graph, inputs: Mapping[str, np.ndarray]) -> None:
    """Both graphs give the same outputs within rounding."""
    wanted, got = evaluate(left, inputs), evaluate(right, inputs)
    assert list(wanted) == list(got)
    for name, value in wanted.items():
        assert_close(got[name], value, name)


def assert_close(got: np.ndarray, want: np.ndarray, what: str, tolerance: float = 2e-4) -> None:
    """NaN and infinity masks, then values relative to the largest magnitude."""
    assert got.shape == want.shape, what
    if want.dtype.kind != "f":
        assert np.array_equal(got, want), what
        return
    assert np.array_equal(np.isnan(got), np.isnan(want)), what
    infinite = np.isinf(want)
    assert np.array_equal(np.isinf(got), infinite) and np.array_equal(got[infinite], want[infinite]), what
    finite = np.isfinite(want)
    scale = max(1.0, float(np.max(np.abs(want[finite]), initial=0.0)))
    worst = float(np.max(np.abs(got[finite] - want[finite]), initial=0.0))
    assert worst <= tolerance * scale, f"{what}: off by {worst} of {scale}"
