"""Graphs far deeper than Python's recursion limit compile, with and without optimisation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meganeura as mg
from meganeura.reference import evaluate

CHAINS: dict[str, Callable[[mg.Tensor, int], mg.Tensor]] = {
    "activations": lambda y, i: mg.tanh(y) * 1.1,
    "sums": lambda y, i: y + 0.01 * (i % 7 + 1),
    "rolls": lambda y, i: mg.concat([y[1:], y[:1]]),
    "views": lambda y, i: (y.reshape(7, 1).transpose() + 0.5).reshape(7),
}


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_six_hundred(device: mg.Device, name: str, optimize: bool) -> None:
    graph = mg.Graph(name)
    y = graph.input("x", (7,))
    for step in range(600 if name != "rolls" else 100):
        y = CHAINS[name](y, step)
    graph.output("y", y)
    inputs = {"x": np.linspace(-1, 1, 7, dtype=np.float32)}
    got = mg.compile(graph, device=device, optimize=optimize)(**inputs)["y"]
    np.testing.assert_allclose(got, evaluate(graph, inputs)["y"], rtol=1e-4, atol=1e-4)
