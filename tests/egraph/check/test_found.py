"""What the checker found in the package's rules: each graph was made ill-typed or wrong once."""

from __future__ import annotations

import numpy as np

from meganeura.ir import Graph, Tensor
from tests.rules.support import assert_agree, assert_every_term_agrees, random_inputs, search


def same(graph: Graph, inputs: dict | None = None) -> None:
    values = random_inputs(graph, inputs)
    result, _ = search(graph)
    assert_agree(graph, result, values)
    assert_every_term_agrees(graph, values, None)


def rotation(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = int(x.shape[-1]) // 2  # type: ignore[arg-type]
    a, b = x[..., :half], x[..., half:]
    return x.graph.apply("concat", a * cos - b * sin, b * cos + a * sin, axis=x.rank - 1)


def test_integers_are_not_rotated_by_the_float_kernel() -> None:
    for tables in ((3, 1), (3, 1, 1)):
        graph = Graph()
        x = graph.input("x", (3, 2, 2) if len(tables) == 3 else (2, 3, 2), "i32")
        graph.output("y", rotation(x, graph.input("c", tables, "i32"), graph.input("s", tables, "i32")))
        same(graph)


def test_a_table_row_stood_on_end_is_not_read_at_a_position() -> None:
    graph = Graph()
    x, at = graph.input("x", (2, 3, 3)), graph.input("at", (1,), "u32")
    cos, sin = (graph.apply("gather", graph.input(n, (4, 3)), at, axis=0).reshape((3, 1)) for n in ("c", "s"))
    graph.output("y", graph.apply("rope", x, cos, sin, interleaved=False))
    same(graph)


def test_no_heads_are_not_folded() -> None:
    graph = Graph()
    q, k, v = graph.input("q", (2, 0, 3, 4, 2)), graph.input("k", (2, 0, 1, 5, 2)), graph.input("v", (2, 0, 1, 5, 2))
    graph.output("y", graph.apply("attention", q, k, v, scale=0.5))
    same(graph)


def test_clamping_to_infinity_clamps_nothing() -> None:
    graph = Graph()
    q, k, v = (graph.input(n, (1, 2, 2)) for n in ("q", "k", "v"))
    scores = graph.apply("matmul", q, k, transpose_b=True) + graph.input("bias", (2, 2))
    scores = graph.apply("maximum", graph.apply("minimum", scores, graph.full(np.inf)), graph.full(-np.inf))
    weights = graph.apply("softmax", scores, axis=2)
    graph.output("y", weights @ v)
    bias = np.array([[0.0, 1.0], [-np.inf, -np.inf]])
    values = random_inputs(graph, {"bias": bias})
    result, _ = search(graph)
    assert_agree(graph, result, values, nan_may_vanish=True)


def test_a_mask_given_to_attention_itself_is_recognised() -> None:
    graph = Graph()
    q, k, v = (graph.input(n, (1, 3, 2)) for n in ("q", "k", "v"))
    mask = graph.constant(np.where(np.tri(3) > 0, 0.0, -np.inf).astype(np.float32))
    graph.output("y", graph.apply("attention", q, k, v, mask, scale=0.5, mask="add"))
    _, report = search(graph)
    assert report.rules.get("causal-mask"), report.rules
    same(graph)


def test_batched_table_rows_stood_on_end_are_not_read_at_positions() -> None:
    graph = Graph()
    x, at = graph.input("x", (2, 3, 1, 2)), graph.input("at", (2,), "u32")
    cos, sin = (graph.apply("gather", graph.input(n, (4, 3)), at, axis=0).reshape((2, 3, 1, 1)) for n in ("c", "s"))
    graph.output("y", rotation(x, cos, sin))
    same(graph, {"at": np.array([1, 3])})


def test_an_infinite_factor_stays_where_it_is() -> None:
    graph = Graph()
    x = graph.input("x", (1, 2))
    graph.output("y", x * -np.inf + -np.inf)
    same(graph, {"x": np.array([[0.0, 1.0]])})
