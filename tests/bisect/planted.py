"""A small model, and faults to plant in the compiler while a test runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meganeura.bisect import Case
from meganeura.codegen import render
from meganeura.codegen.shader import Shader
from meganeura.facts import DeviceFacts
from meganeura.ir.graph import Graph
from meganeura.ir.text import format_graph
from meganeura.lower import lower, plan
from meganeura.lower.memory import Lifetime, MemoryPlan
from meganeura.lower.rows import RowsKernel

LOST_SCALE = """\
;; Planted.

;; rule: harmless
;; soundness: exact
;; why: Never the guilty one.
(rewrite (Neg (Neg x)) x)

;; rule: lost-scale
;; soundness: exact
;; why: Planted: the factor on a hyperbolic tangent is lost.
(rewrite (Mul (Tanh x) s) (Tanh x) :when ((= c (splat s))))
"""


def small_graph() -> Graph:
    """Two products, a scaled activation and two softmaxes over `x` f32[3, 6, 8]; one value is read much later."""
    random = np.random.default_rng(0)
    graph = Graph("small")
    x = graph.input("x", (3, 6, 8))
    up = graph.constant(random.standard_normal((8, 16)).astype(np.float32))
    down = graph.constant(random.standard_normal((16, 8)).astype(np.float32))
    with graph.scope("up"):
        wide = x @ up
    with graph.scope("activate"):
        active = graph.apply("tanh", wide) * 0.75
    with graph.scope("normalise"):
        weights = graph.apply("softmax", active, axis=2)
    with graph.scope("down"):
        narrow = weights @ down
    with graph.scope("normalise_again"):
        again = graph.apply("softmax", graph.apply("softmax", narrow, axis=2) @ up, axis=2)
    with graph.scope("join"):
        joined = again + weights
    graph.output("activated", active + 1.0)
    graph.output("joined", joined)
    return graph


def small_case() -> Case:
    values = {"x": np.random.default_rng(1).standard_normal((3, 6, 8)).astype(np.float32)}
    return Case(small_graph(), values)


def write_small(folder: Path) -> Path:
    path = folder / "small.txt"
    path.write_text(format_graph(small_graph(), 1000))
    return path


def write_rules(folder: Path) -> Path:
    path = folder / "planted.egg"
    path.write_text(LOST_SCALE)
    return path


def break_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every softmax kernel takes exponentials of something a tenth too large."""
    _break_rows(monkeypatch, "exp(v)", "exp(v * 1.1)")


def break_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every normalisation kernel scales its rows down by a tenth."""
    _break_rows(monkeypatch, "= 1.0 / sqrt(", "= 0.9 / sqrt(")


def _break_rows(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    sound = render._RENDERERS[RowsKernel]

    def broken(kernel: RowsKernel, facts: DeviceFacts) -> Shader:
        shader = sound(kernel, facts)
        return replace(shader, text=shader.text.replace(old, new))

    monkeypatch.setitem(render._RENDERERS, RowsKernel, broken)


def break_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor's memory is given away two dispatches after it was written, whoever still reads it."""
    sound = plan.plan_memory

    def broken(values: Sequence[Lifetime]) -> MemoryPlan:
        return sound([replace(value, last=min(value.last, value.first + 1)) for value in values])

    monkeypatch.setattr(plan, "plan_memory", broken)


def break_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowering sees transposed matrices as if they were not."""
    sound = lower.view_layout

    def broken(node, layout):  # type: ignore[no-untyped-def]
        seen = sound(node, layout)
        if seen is None or node.op.name != "transpose" or len(seen.shape) != 2 or seen.shape[0] != seen.shape[1]:
            return seen
        return replace(seen, strides=seen.strides[::-1])

    monkeypatch.setattr(lower, "view_layout", broken)
