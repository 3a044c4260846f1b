"""The search from end to end, with small rule books: alarms, limits, provenance, costs, determinism."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meganeura.egraph import optimize
from meganeura.egraph.cost import CostModel, profile_of
from meganeura.errors import GraphError, RuleError
from meganeura.facts import DeviceFacts
from meganeura.ir import ConstantData, DType, Graph, Tensor, TensorType
from meganeura.ir.text import format_graph
from meganeura.ops.attention import Attention
from meganeura.ops.elementwise import Add
from meganeura.ops.matmul import MatMul
from meganeura.ops.shape import Transpose
from meganeura.options import CompileOptions, SearchLimits
from tests.egraph.support import CPU, assert_same, book, ops, rule, search

COMMUTE = rule("commute", "(rewrite (Add a b) (Add b a))")
ALPHA = rule(
    "alpha", "(rewrite (Mul (MatMul ta tb alpha a b) s) (MatMul ta tb (* alpha c) a b) :when ((= c (splat s))))"
)
BIAS = rule(
    "bias",
    '(rewrite (Add p c) (FusedMatMul3 ta tb alpha true "none" false a b c)'
    " :when ((= p (MatMul ta tb alpha a b)) (fits (shape c) (shape p))))",
)
SILU = rule("swish", "(rewrite (Mul x (Sigmoid x)) (Silu x))\n(rewrite (Mul (Sigmoid x) x) (Silu x))")


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def linear() -> Graph:
    g = Graph("linear")
    x = g.input("x", (4, 8))
    with g.scope("product"):
        y = x @ g.constant(values(8, 16))
    with g.scope("scale"):
        y = y * 0.5
    with g.scope("bias"):
        y = g.constant(values(16)) + y
    with g.scope("act"):
        y = y * g.apply("sigmoid", y)
    g.output("y", y)
    return g


def test_rules_combine_and_leave_provenance() -> None:
    graph = linear()
    result, report = search(graph, COMMUTE, ALPHA, BIAS, SILU)
    assert ops(result) == {"input": 1, "constant": 2, "fused_matmul": 1, "silu": 1}
    assert_same(graph, result, {"x": values(4, 8, seed=1)})
    fused = next(node for node in result.nodes if node.op.name == "fused_matmul")
    silu = next(node for node in result.nodes if node.op.name == "silu")
    assert fused.sources == ("product", "scale", "bias") and silu.sources == ("act",)
    # Commuting the sum changed what was there, it made nothing new: it explains nothing.
    assert report.node_rules == {fused.id: ("alpha", "bias"), silu.id: ("swish",)}
    assert report.rules == {"alpha": 1, "bias": 1, "commute": 1, "swish": 1}
    assert (report.nodes_before, report.nodes_after, report.stopped_by) == (9, 5, "saturated")
    assert report.cost_after < report.cost_before
    assert set(report.seconds) == {"rules", "fold", "load", "encode", "saturate", "extract", "decode"}


def test_without_rules_the_graph_stays() -> None:
    graph = linear()
    result, report = search(graph)
    assert ops(result) == ops(graph.rewrite()) and report.node_rules == {}
    assert_same(graph, result, {"x": values(4, 8)})


def test_a_fused_value_that_is_also_an_output_is_kept() -> None:
    g = Graph()
    product = g.input("x", (64, 64)) @ g.constant(values(64, 64))
    g.output("sum", product + g.constant(values(64)))
    g.output("product", product)
    result, _ = search(g, BIAS)
    # Fusing would compute the product twice.
    assert ops(result)["matmul"] == 1 and "fused_matmul" not in ops(result)
    assert_same(g, result, {"x": values(64, 64)})


def test_two_constants_in_a_class_are_an_alarm() -> None:
    g = Graph()
    g.output("y", g.apply("abs", g.input("x", ())) + 2.0)
    with pytest.raises(RuleError, match=r"holds two constants, 2\.0 and 3\.0") as caught:
        search(g, rule("bad", "(rule ((= e (Full 2.0 t s))) ((union e (Full 3.0 t s))))"))
    assert caught.value.source == "bad"
    with pytest.raises(RuleError, match="holds two constants"):
        search(
            g,
            rule("bad", '(rewrite (Add (Abs x) c) (Full 1.0 "f32" (vec-empty)))', "a"),
            rule("worse", '(rewrite (Add (Abs x) c) (Full 2.0 "f32" (vec-empty)))', "b"),
        )


def test_two_shapes_or_dtypes_in_a_class_are_an_alarm() -> None:
    g = Graph()
    x = g.input("x", (2, 3))
    g.output("y", g.apply("neg", x) + g.apply("abs", x).transpose().reshape((2, 3)))
    unequal = "(rule ((= a (Neg x)) (= b (Transpose p y))) ((union a b)))"
    with pytest.raises(RuleError, match="different shape or dtype"):
        search(g, rule("bad", unequal))
    with pytest.raises(RuleError, match=r"gave a class a term that has type f32\[3, 2\], not f32\[2, 3\]") as caught:
        search(g, rule("bad", "(rewrite (Neg x) (Transpose (vec-of 1 0) x))"))
    assert caught.value.source == "bad"


def test_an_ill_typed_term_names_the_rule() -> None:
    g = Graph()
    g.output("y", g.apply("neg", g.input("x", (2, 3))))
    with pytest.raises(RuleError, match="ill-typed") as caught:
        search(g, rule("bad", "(rewrite (Neg x) (Neg (Transpose (vec-of 2 1 0) x)))"))
    assert caught.value.source == "bad" and caught.value.op == "transpose"


def test_symbolic_dimensions_are_refused() -> None:
    g = Graph()
    g.output("y", -g.input("x", ("n",)))
    with pytest.raises(GraphError, match="bind them first"):
        search(g)


# ---- limits -----------------------------------------------------------------------------------------


def endless() -> tuple[Graph, str]:
    g = Graph()
    x = g.input("x", (4,))
    y = x * g.apply("sigmoid", x)
    g.output("y", y + 1.0)
    # -x added and taken away again and again: sound, and without end.
    return g, rule("endless", "(rewrite (Add a b) (Neg (Add (Neg a) (Neg b))))")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (SearchLimits(max_iterations=3), "iterations"),
        (SearchLimits(max_nodes=40), "nodes"),
        (SearchLimits(max_seconds=0.0), "seconds"),
    ],
)
def test_limits_stop_the_search_with_the_best_so_far(limits: SearchLimits, reason: str) -> None:
    graph, text = endless()
    result, report = optimize(graph, CPU, CompileOptions(search=limits), rules=book(text, SILU, iterations=50))
    assert report.stopped_by == reason
    assert ops(result) == {"input": 1, "full": 1, "silu": 1, "add": 1}
    assert_same(graph, result, {"x": values(4)})
    assert sum(stage.iterations for stage in report.stages) <= 12


def test_a_stage_ends_when_nothing_changes() -> None:
    _, report = optimize(linear(), CPU, rules=book(COMMUTE, iterations=50))
    (stage,) = report.stages
    assert stage.iterations <= 3 and report.stopped_by == "saturated"


def test_stage_order_is_kept() -> None:
    g = Graph()
    x = g.input("x", (4,))
    g.output("y", x * g.apply("sigmoid", x))
    early = rule("late", "(rewrite (Silu x) (Mul (Sigmoid x) x))", "z")
    _, report = search(g, early, SILU)
    assert report.rules["late"] == 1


# ---- decoding ---------------------------------------------------------------------------------------


def test_interface_survives_even_unread() -> None:
    g = Graph("interface")
    g.input("unused", (2,))
    s = g.state("s", (2,))
    x = g.input("x", (2,))
    g.output("same", x)
    g.output("again", x)
    g.output("constant", g.full(1.0, (3,)) * 2.0)
    g.update("s", s + x)
    result, _ = search(g, COMMUTE)
    assert result.name == "interface"
    assert list(result.inputs) == ["unused", "x"] and list(result.states) == ["s"]
    assert list(result.outputs) == ["same", "again", "constant"] and list(result.updates) == ["s"]
    assert_same(g, result, {"x": values(2), "s": values(2, seed=1), "unused": values(2)})


def test_packed_weights_become_one_constant_loaded_late() -> None:
    loads: list[str] = []

    def weight(name: str) -> Tensor:
        def load() -> np.ndarray:
            loads.append(name)
            return values(256, 64, seed=len(name))

        return g.constant(ConstantData(name, TensorType(DType.F32, (256, 64)), load))

    g = Graph()
    x = g.input("x", (8, 256))
    left, right = x @ weight("a"), x @ weight("bb")
    g.output("y", left)
    g.output("z", right)
    pack = rule(
        "pack",
        "(rule ((= p (MatMul false false 1.0 x a)) (= q (MatMul false false 1.0 x b)) (< (order p) (order q))"
        " (given p) (given q) (is-constant a) (is-constant b) (= n (last-dim p)) (= m (last-dim q))"
        " (= s (shape p)) (= u (shape q)) (= z (zeros p)) (= o (ones p)))"
        " ((let both (MatMul false false 1.0 x (Concat2 1 a b)))"
        "  (union p (Slice z s o both)) (union q (Slice (vec-set z 1 n) (vec-set u 1 (+ n m)) o both))))",
    )
    result, report = search(g, pack)
    assert ops(result) == {"input": 1, "constant": 1, "matmul": 1, "slice": 2}
    assert loads == []
    (packed,) = result.constants.values()
    assert packed.key == "concat(a,bb,1)" and packed.type.shape == (256, 128)
    assert report.rules == {"pack": 1}
    assert_same(g, result, {"x": values(8, 256)})


def test_two_results_of_one_kernel_are_found_together() -> None:
    g = Graph()
    x, r = g.input("x", (16, 64)), g.input("r", (16, 64))
    total = x + r
    g.output("total", total)
    g.output("normed", g.apply("rms_norm", total, g.constant(values(64)), eps=1e-5))
    joined = rule(
        "join",
        "(rule ((= s (Add x r)) (= e (RmsNorm eps s w)) (= (shape x) (shape r)))"
        " ((let both (ResidualRmsNorm eps x r w)) (union s (Proj 0 both)) (union e (Proj 1 both))))",
    )
    result, _ = search(g, joined)
    assert ops(result) == {"input": 2, "constant": 1, "residual_rms_norm": 1, "proj": 2}
    assert_same(g, result, {"x": values(16, 64), "r": values(16, 64, seed=1)})


def test_cancelling_views_never_make_a_cycle() -> None:
    g = Graph()
    x = g.input("x", (2, 3))
    y = x
    for _ in range(4):
        y = y.transpose().reshape((3, 2)).transpose()
    g.output("y", y * 1.0)
    cancel = rule("cancel", "(rewrite (Transpose (vec-of 1 0) (Transpose (vec-of 1 0) x)) x)")
    same = rule("same", "(rewrite (Reshape s x) x :when ((= s (shape x))))")
    one = rule("one", "(rewrite (Mul x c) x :when ((= 1.0 (splat c))))")
    result, _ = search(g, cancel, same, one)
    assert ops(result) == {"input": 1}
    assert_same(g, result, {"x": values(2, 3)})


def test_variadic_terms_of_any_count() -> None:
    g = Graph()
    x = g.input("x", (2, 3))
    g.output("y", g.apply("concat", *([x] * 11), axis=0))
    arguments = " ".join(f"a{i}" for i in range(11))
    result, report = search(g, rule("wide", f"(rewrite (Concat11 axis {arguments}) (Concat11 axis {arguments}))"))
    assert report.rules == {"wide": 1} and ops(result)["concat"] == 1


def test_attributes_of_every_sort_come_back() -> None:
    g = Graph()
    q = g.input("q", (2, 4, 8))
    op = Attention(scale=0.37, softcap=math.pi, window=3, causal=True, offset=1)
    g.output("y", g.apply(op, q, q, q))
    g.output("z", g.apply("pad", g.input("x", (2,), "i32"), low=(1,), high=(0,), value=-3.0))
    g.output("inf", g.full(-math.inf) + g.input("s", ()))
    result, _ = search(g, COMMUTE)
    assert {node.op for node in result.nodes} == {node.op for node in g.nodes}


def test_results_do_not_depend_on_the_run() -> None:
    texts = (COMMUTE, ALPHA, BIAS, SILU)
    first, second = (format_graph(search(linear(), *texts)[0]) for _ in range(2))
    assert first == second


# ---- costs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cpu", "integrated", "discrete", "unknown"])
def test_costs_are_positive_and_ordered(kind: str) -> None:
    cost = CostModel(DeviceFacts(kind=kind))
    big, small = TensorType(DType.F32, (1024, 1024)), TensorType(DType.F32, (8, 8))
    view = cost.seconds(Transpose((1, 0)), [big], big)
    assert 0 < view < cost.seconds(Add(), [small, small], small) < cost.seconds(Add(), [big, big], big)
    assert cost.seconds(MatMul(), [small, small], small) < cost.seconds(MatMul(), [big, big], big)


@pytest.mark.parametrize("kind", ["cpu", "integrated", "discrete"])
def test_one_row_products_cost_what_they_read(kind: str) -> None:
    cost = CostModel(DeviceFacts(kind=kind))
    row, weight = TensorType(DType.F32, (1, 4096)), TensorType(DType.F32, (4096, 4096))
    seconds = cost.seconds(MatMul(), [row, weight], row)
    assert seconds >= weight.nbytes / profile_of(DeviceFacts(kind=kind)).bandwidth


@pytest.mark.parametrize("kind", ["cpu", "integrated", "discrete"])
@pytest.mark.parametrize("rows", [1, 16, 512])
def test_one_attention_is_cheaper_than_its_pieces(kind: str, rows: int) -> None:
    g = Graph()
    q, k, v = (g.input(name, (8, n, 64)) for name, n in (("q", rows), ("k", 512), ("v", 512)))
    g.output("y", g.apply("softmax", g.apply("matmul", q, k, transpose_b=True, alpha=0.125), axis=2) @ v)
    attention = rule(
        "attention",
        "(rewrite (MatMul false false 1.0 (Softmax 2 (MatMul false true alpha q k)) v)"
        ' (Attention3 alpha 0.0 0 false false "none" 0.0 false 0 false false false q k v))',
    )
    result, _ = search(g, attention, facts=DeviceFacts(kind=kind))
    assert ops(result) == {"input": 3, "attention": 1}
