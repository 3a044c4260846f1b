"""Building, rewriting, binding and validating graphs."""

from __future__ import annotations

import numpy as np
import pytest

import meganeura as mg
from meganeura.errors import GraphError
from meganeura.ir.constants import constant_from_array, narrow
from meganeura.ir.graph import Graph, Node
from meganeura.ir.op import Kind
from meganeura.ir.types import DType, TensorType, as_dtype
from meganeura.ir.validate import validate
from meganeura.reference import evaluate


def test_builder_reads_like_numpy() -> None:
    g = mg.Graph()
    x = g.input("x", ("batch", 6))
    y = (2.0 * x + 1.0 - x / 4.0) ** 2.0
    y = -y[:, None, 1:5].reshape(-1, 2, 2).transpose(0, 2, 1)[..., -1]
    g.output("y", y)
    data = np.arange(12, dtype=np.float32).reshape(2, 6)
    want = -((2 * data + 1 - data / 4) ** 2)[:, None, 1:5].reshape(-1, 2, 2).transpose(0, 2, 1)[..., -1]
    np.testing.assert_allclose(evaluate(g.bind({"batch": 2}), {"x": data})["y"], want, rtol=1e-6)


def test_identical_nodes_are_one_and_keep_both_sources() -> None:
    g = mg.Graph()
    x = g.input("x", (2,))
    first = g.apply("exp", x, source="a")
    second = g.apply("exp", x, source="b")
    assert first.id == second.id
    assert g.nodes[first.id].sources == ("a", "b")


def test_uniform_arrays_become_full() -> None:
    g = mg.Graph()
    assert g.constant(np.zeros((3, 4), np.float32)).op.name == "full"
    assert g.constant(np.array([0.0, -0.0], np.float32)).op.name == "constant"
    assert g.constant(2.0).shape == ()
    assert g.constant(np.array(7)).dtype is DType.I32


def test_wide_integers_are_checked() -> None:
    assert narrow(np.array([2**32 - 1]), "x").dtype == np.uint32
    with pytest.raises(GraphError, match="does not fit"):
        narrow(np.array([2**40]), "ids")
    with pytest.raises(GraphError, match="does not fit"):
        narrow(np.array([-(2**31) - 1]), "ids")
    assert constant_from_array(np.array([1.0])).type == TensorType(DType.F32, (1,))


def test_errors_show_op_source_and_shapes() -> None:
    g = mg.Graph()
    x = g.input("x", (2, 3))
    with pytest.raises(GraphError) as caught:
        g.apply("matmul", x, x, source="/layer/MatMul")
    for part in ("matmul", "/layer/MatMul", "f32[2, 3]"):
        assert part in str(caught.value)
    with pytest.raises(GraphError, match="no such op"):
        g.apply("nothing", x)
    with pytest.raises(GraphError, match="takes 1 inputs"):
        g.apply("exp", x, x)
    with pytest.raises(GraphError, match="another graph"):
        g.apply("exp", mg.Graph().input("x", ()))
    with pytest.raises(GraphError, match="taken"):
        g.input("x", ())
    with pytest.raises(GraphError, match="truth value"):
        bool(x < 1.0)
    with pytest.raises(GraphError, match="iterated"):
        list(x)
    with pytest.raises(GraphError, match="no such dtype"):
        as_dtype("f8")


def test_dead_nodes_go_and_leaves_stay() -> None:
    g = mg.Graph()
    x, _ = g.input("x", (2,)), g.input("unused", (3,))
    mg.exp(x)
    g.output("y", mg.tanh(x))
    slim = g.rewrite()
    assert [n.op.name for n in slim.nodes] == ["input", "input", "tanh"]
    assert list(slim.inputs) == ["x", "unused"]


def test_decompose_leaves_primitives_with_the_same_meaning() -> None:
    g = mg.Graph()
    x = g.input("x", (3, 8))
    w = g.constant(np.linspace(0.5, 1.5, 8, dtype=np.float32))
    g.output("y", mg.gelu(mg.layer_norm(mg.softmax(x), w, w)))
    plain = g.decompose()
    assert all(n.op.kind is Kind.PRIMITIVE for n in validate(plain).nodes)
    data = {"x": np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)}
    np.testing.assert_allclose(evaluate(g, data)["y"], evaluate(plain, data)["y"], rtol=1e-5, atol=1e-6)


def test_validate_finds_broken_graphs() -> None:
    def broken(change: object) -> Graph:
        g = mg.Graph()
        x = g.input("x", (2,))
        g.output("y", mg.exp(x))
        change(g)  # type: ignore[operator]
        return g

    def wrong_type(g: Graph) -> None:
        g.nodes[1] = Node(1, g.nodes[1].op, (0,), TensorType(DType.F32, (3,)))

    def forward(g: Graph) -> None:
        g.nodes[1] = Node(1, g.nodes[1].op, (1,), g.nodes[1].type)

    for change, message in ((wrong_type, "typed"), (forward, "later"), (lambda g: g.outputs.update(z=9), "no node")):
        with pytest.raises(GraphError, match=message):
            validate(broken(change), "test")


def test_states_update_with_their_own_type() -> None:
    g = mg.Graph()
    state = g.state("n", (2,))
    g.update("n", state + 1.0)
    with pytest.raises(GraphError, match="changes type"):
        g.update("n", mg.sum(state))
    assert evaluate(g, {})["state:n"].tolist() == [1, 1]
