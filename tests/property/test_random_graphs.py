"""Random graphs: optimised, unoptimised and reference must agree, and every op must have been met."""

from __future__ import annotations

import numpy as np
import pytest

import meganeura as mg
from meganeura.ir import Kind
from meganeura.ir.validate import validate
from meganeura.reference import evaluate
from tests.property.graphs import MAKERS, Grower, every_op_has_a_maker

SEEDS = range(60)


def assert_close(got: np.ndarray, want: np.ndarray, what: str) -> None:
    """Shapes, NaN and infinity masks, then values relative to the largest magnitude."""
    assert got.shape == want.shape, what
    if want.dtype.kind != "f":
        assert np.array_equal(got, want), what
        return
    assert np.array_equal(np.isnan(got), np.isnan(want)), what
    assert np.array_equal(np.isinf(got), np.isinf(want)), what
    finite = np.isfinite(want)
    scale = max(1.0, float(np.max(np.abs(want[finite]), initial=0.0)))
    assert np.max(np.abs(got[finite] - want[finite]), initial=0.0) <= 2e-4 * scale, what


def test_every_op_has_a_maker() -> None:
    assert not every_op_has_a_maker()


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_decomposition_and_device_agree_per_op(device: mg.Device, name: str) -> None:
    """One graph focused on each op, so that every op is met for sure."""
    check(device, seed=1000 + sorted(MAKERS).index(name), steps=2, focus=name)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs_agree(device: mg.Device, seed: int) -> None:
    check(device, seed, steps=6)


def check(device: mg.Device, seed: int, steps: int, focus: str | None = None) -> None:
    grower = Grower(seed)
    graph = validate(grower.grow(steps, focus))
    inputs = grower.inputs()
    want = {k: v for k, v in evaluate(graph, inputs).items() if not k.startswith("state:")}
    plain = graph.decompose()
    assert all(n.op.kind is Kind.PRIMITIVE for n in plain.nodes)
    for name, value in evaluate(plain, inputs).items():
        if not name.startswith("state:"):
            assert_close(value, want[name], f"decomposed {name}, seed {seed}")
    for optimize in (True, False):
        model = mg.compile(graph, device=device, optimize=optimize)
        for name, value in model(**inputs).items():
            assert_close(value, want[name], f"{'' if optimize else 'un'}optimised {name}, seed {seed}")
