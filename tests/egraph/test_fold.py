"""Constants folded outside the e-graph."""

from __future__ import annotations

import numpy as np

from meganeura.egraph import fold as fold_module
from meganeura.egraph.fold import fold
from meganeura.ir import ConstantData, DType, Graph, TensorType
from meganeura.reference import evaluate
from tests.egraph.support import ops


def weight(g: Graph, name: str, *shape: int, loads: list[str] | None = None):
    """A constant that notes when it is loaded."""

    def load() -> np.ndarray:
        if loads is not None:
            loads.append(name)
        size = int(np.prod(shape))
        return (np.arange(size, dtype=np.float32) / max(size, 1)).reshape(shape)

    return g.constant(ConstantData(name, TensorType(DType.F32, shape), load))


def test_small_constants_are_computed_and_uniform_ones_become_full() -> None:
    g = Graph()
    x = g.input("x", (2, 3))
    mask = g.apply("where", g.constant(np.array([True, False, True])), g.full(0.0), g.full(-1.0))
    g.output("y", x + mask * 2.0 + (weight(g, "w", 3) - weight(g, "w", 3)))
    folded = fold(g)
    assert ops(folded) == {"input": 1, "constant": 1, "full": 1, "add": 2}
    values = {"x": np.ones((2, 3), np.float32)}
    assert np.array_equal(evaluate(folded, values)["y"], evaluate(g, values)["y"])


def test_uniform_arithmetic_needs_no_arrays() -> None:
    g = Graph()
    big = g.full(3.0, (1 << 14, 1 << 14))
    g.output("y", g.input("x", ()) + g.apply("exp", big.transpose() / 2.0)[0, 0])
    folded = fold(g)
    assert ops(folded) == {"input": 1, "full": 1, "add": 1}
    assert evaluate(folded, {"x": np.float32(0)})["y"] == np.float32(np.exp(1.5))


def test_large_weights_are_not_loaded_and_views_of_them_stay() -> None:
    loads: list[str] = []
    g = Graph()
    w = weight(g, "w", 2048, 4096, loads=loads)
    g.output("y", g.input("x", (1, 4096)) @ w.transpose())
    g.output("z", g.input("h", (1, 2048), "f16") @ w.astype("f16"))
    folded = fold(g)
    assert loads == []
    assert ops(folded) == {"input": 2, "constant": 2, "transpose": 1, "matmul": 2}
    (half,) = [d for d in folded.constants.values() if d.type.dtype is DType.F16]
    assert half.load().dtype == np.float16 and loads == ["w"]


def test_growing_expansions_stay_in_the_graph() -> None:
    g = Graph()
    w = weight(g, "w", 1, 1000)
    g.output("y", g.input("x", (10000, 1000)) + g.apply("expand", w, shape=(10000, 1000)))
    assert ops(fold(g))["expand"] == 1


def test_derived_constants_know_their_derivation_and_evaluate_alike() -> None:
    g = Graph()
    a, b = weight(g, "a", 4, 6), weight(g, "b", 4, 2)
    joined = g.apply("concat", a, b, axis=1)
    values = (
        joined.transpose(),
        joined[1:3, ::2],
        joined.reshape((8, 4)),
        g.apply("exp", joined),
        joined @ joined.transpose(),
        g.apply("reduce_sum", joined, axes=(0,)),
        g.apply("gather", joined, g.constant(np.array([1, -1])), axis=0),
        joined.astype("i32"),
    )
    for index, value in enumerate(values):
        g.output(f"y{index}", value)
    folded = fold(g)
    assert set(ops(folded)) <= {"constant", "full"}
    assert len(folded.constants) == len({data.key for data in folded.constants.values()})
    for name, want in evaluate(g, {}).items():
        got = evaluate(folded, {})[name]
        assert got.dtype == want.dtype and np.array_equal(got, want), name


def test_lazy_and_eager_folding_agree(monkeypatch) -> None:
    g = Graph()
    g.output("y", g.apply("tanh", weight(g, "a", 8, 8) @ weight(g, "b", 8, 8)))
    eager = evaluate(fold(g), {})["y"]
    monkeypatch.setattr(fold_module, "EAGER_ELEMENTS", 1)
    lazy = fold(g)
    assert ops(lazy) == {"constant": 1} and np.array_equal(evaluate(lazy, {})["y"], eager)


def test_states_inputs_and_sources_survive() -> None:
    g = Graph()
    s, _ = g.state("s", (2,)), g.input("unused", (3,))
    with g.scope("layer"):
        g.update("s", s + (g.full(1.0) + 1.0))
    folded = fold(g)
    assert list(folded.inputs) == ["unused"] and list(folded.updates) == ["s"]
    assert folded.nodes[folded.updates["s"]].sources == ("layer",)
