"""The facts that Python computes for rules: each is seen where it holds, and not where it doesn't."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from meganeura.egraph.constant_facts import halves_equal, mask_facts, ramp_facts, repeat_facts
from meganeura.egraph.shape_facts import compose, expand_fact, fits, keeps_order, permutation_facts, reshape_facts
from meganeura.ir import Graph, Tensor
from meganeura.ir.types import BOOL, F32, I32
from tests.egraph.support import rule, search

Build = Callable[[Graph], Tensor]


def holds(build: Build, *facts: str) -> bool:
    """Whether a rule over `e = (Neg x)` whose x the graph builds fires under these facts."""
    graph = Graph()
    graph.output("y", graph.apply("neg", build(graph)))
    _, report = search(graph, rule("probe", f"(rule ((= e (Neg x)) {' '.join(facts)}) ((union e (Neg x))))"))
    return report.rules.get("probe", 0) > 0


def x_of(*shape: int) -> Build:
    return lambda g: g.input("x", shape)


@pytest.mark.parametrize(
    ("fact", "shape"),
    [
        ("(= (shape x) (vec-of 2 3))", (2, 3)),
        ("(= (shape x) (vec-empty))", ()),
        ('(= (dtype x) "f32")', (2,)),
        ("(= 3 (rank x))", (2, 3, 4)),
        ("(= 4 (last-dim x))", (2, 3, 4)),
        ("(= 24 (numel x))", (2, 3, 4)),
        ("(= 0 (numel x))", (2, 0, 4)),
        ("(= (zeros x) (vec-of 0 0))", (2, 3)),
        ("(= (ones x) (vec-of 1 1))", (2, 3)),
        ("(= (swap-last x) (vec-of 0 2 1))", (2, 3, 4)),
        ("(= (swap-heads x) (vec-of 1 0 2))", (2, 3, 4)),
        ("(given x)", (2,)),
        ("(< (order x) (order e))", (2,)),
        ("(fits (shape x) (shape e))", (2, 3)),
    ],
)
def test_facts_of_every_tensor(fact: str, shape: tuple[int, ...]) -> None:
    assert holds(x_of(*shape), fact)


def test_facts_that_need_axes_are_absent_without_them() -> None:
    assert not holds(x_of(), "(= n (last-dim x))")
    assert not holds(x_of(3), "(= p (swap-last x))")
    assert not holds(x_of(3), "(= p (swap-heads x))")
    assert not holds(x_of(3), "(is-constant x)")


def weight(g: Graph, *shape: int) -> Tensor:
    return g.constant(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def test_uniform_constants() -> None:
    assert holds(lambda g: g.full(2.5, (3, 4)) * g.input("x", ()), "(= x (Mul a b))", "(= 2.5 (splat a))")
    # A view of a large uniform constant stays a node and is uniform all the same.
    assert holds(lambda g: g.input("x", (4, 1)) + g.full(2.0, (1, 3)), "(= x (Add a b))", "(= 2.0 (splat b))")
    assert not holds(lambda g: weight(g, 3) + g.input("x", (3,)), "(= x (Add a b))", "(= v (splat a))")
    assert holds(lambda g: weight(g, 3) + g.input("x", (3,)), "(= x (Add a b))", "(is-constant a)")


def test_slices_of_one_axis() -> None:
    assert holds(lambda g: g.input("x", (4, 6))[:, 3:], "(slice-range x a 1 3 6)")
    assert not holds(lambda g: g.input("x", (4, 6))[1:, 3:], "(slice-range x a b c d)")
    assert not holds(lambda g: g.input("x", (4, 6))[:, 1:5:2], "(slice-range x a b c d)")


def test_views_by_their_shapes() -> None:
    def reshaped(*shape: int) -> Build:
        return lambda g: g.input("x", (2, 6, 5)).reshape(shape)

    assert holds(reshaped(2, 3, 2, 5), "(= x (Reshape t a))", "(splits-axis (shape a) t 1)")
    assert holds(reshaped(12, 5), "(= x (Reshape t a))", "(merges-axes (shape a) t 0)")
    assert holds(reshaped(2, 1, 6, 5), "(= x (Reshape t a))", "(inserts-axis (shape a) t 1)")
    assert not holds(reshaped(10, 6), "(= x (Reshape t a))", "(merges-axes (shape a) t k)")
    repeated: Build = lambda g: g.apply("expand", g.input("x", (2, 1, 5)), shape=(2, 7, 5))  # noqa: E731
    assert holds(repeated, "(= x (Expand t a))", "(repeats-axis (shape a) t 1 7)")


def test_facts_are_there_for_terms_that_rules_made() -> None:
    graph = Graph()
    graph.output("y", graph.apply("exp", graph.apply("abs", graph.input("x", (2, 3)))))
    _, report = search(
        graph,
        rule("makes", "(rewrite (Abs x) (Transpose (vec-of 1 0) (Neg (Transpose (vec-of 1 0) x))))"),
        rule(
            "reads",
            "(rule ((= e (Transpose p n)) (swaps-last-two p) (= (shape n) (vec-of 3 2)) (= n (Neg t))"
            ' (inverse-perm p p) (= "f32" (dtype n))) ((union e e)))',
        ),
    )
    assert report.rules == {"makes": 1, "reads": 1}


# ---- the functions behind them ----------------------------------------------------------------------


def causal(rows: int, keys: int, offset: int) -> np.ndarray:
    return np.arange(keys)[None] <= np.arange(rows)[:, None] + offset


@pytest.mark.parametrize(("rows", "keys", "offset"), [(4, 4, 0), (2, 6, 4), (2, 6, 3), (1, 5, 2), (5, 3, 0)])
def test_causal_masks(rows: int, keys: int, offset: int) -> None:
    keep = causal(rows, keys, offset)
    assert mask_facts(keep) == [("causal-keep", (offset,))]
    assert mask_facts(np.broadcast_to(keep, (2, 3, rows, keys))) == [("causal-keep", (offset,))]
    for value in (-np.inf, -1e30, float(np.finfo(np.float32).min)):
        mask = np.where(keep, 0, value).astype(np.float32)
        assert mask_facts(mask[None]) == [("causal-mask", (offset,)), ("mask-value", (float(np.float32(value)),))]


def test_window_masks() -> None:
    keep = causal(6, 6, 0) & ~causal(6, 6, -3)
    assert mask_facts(keep) == [("window-keep", (0, 3))]
    assert mask_facts(np.where(keep, 0, -np.inf)) == [("window-mask", (0, 3)), ("mask-value", (-np.inf,))]


def test_masks_that_are_not_causal() -> None:
    keep = causal(4, 4, 0)
    assert mask_facts(np.ones((4, 4), bool)) == [] and mask_facts(np.zeros((4, 4), bool)) == []
    assert mask_facts(keep[::-1]) == [] and mask_facts(keep.T) == [("window-keep", (3, 4))]
    # -10000 weakens a key but doesn't exclude it; 1 is no mask at all.
    assert mask_facts(np.where(keep, 0, -1e4)) == [] and mask_facts(np.where(keep, 1.0, -np.inf)) == []
    two = np.stack([keep, np.ones((4, 4), bool)])
    assert mask_facts(two) == []
    hole = keep.copy()
    hole[2, 0] = False
    assert mask_facts(hole) == []


def test_ramps_count_axes_from_the_end() -> None:
    assert ramp_facts(np.arange(5)) == [("ramp", (-1, 0))]
    assert ramp_facts(np.arange(3, 8)[:, None] + np.zeros((1, 2), int)) == [("ramp", (-2, 3))]
    assert ramp_facts(np.array([0, 2, 4])) == [] and ramp_facts(np.array([7])) == []
    assert ramp_facts(np.array([0.5, 1.5])) == []
    assert ramp_facts(np.array([-np.inf, -np.inf, 0.0])) == [] and ramp_facts(np.array([np.nan, 1.0])) == []


def test_other_constants() -> None:
    assert repeat_facts(np.array([0, 0, 0, 1, 1, 1])) == [("repeat-indices", (3,))]
    assert repeat_facts(np.array([0, 1, 2])) == [] and repeat_facts(np.array([0, 0, 1])) == []
    table = np.arange(6.0).reshape(2, 3)
    assert halves_equal(np.concatenate([table, table], axis=1)) and not halves_equal(np.arange(4.0))


def test_shape_functions() -> None:
    assert fits((3,), (2, 3)) and fits((2, 1), (2, 3)) and not fits((2,), (2, 3)) and not fits((2, 3), (1, 3))
    assert list(permutation_facts((0, 2, 1))) == ["swaps-last-two"]
    assert list(permutation_facts((1, 0, 2))) == ["swaps-heads"]
    assert list(permutation_facts((0, 1))) == ["identity-perm"] and list(permutation_facts(())) == ["identity-perm"]
    assert keeps_order((1, 0, 2), (1, 4, 5)) and not keeps_order((1, 0, 2), (3, 4, 5))
    assert set(reshape_facts((2, 1, 3), (2, 3))) == {("removes-axis", 1), ("merges-axes", 0), ("merges-axes", 1)}
    assert expand_fact((1, 3), (1, 3)) is None and expand_fact((1, 1), (2, 3)) is None
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    for outer in ((2, 0, 1), (1, 0, 2)):
        inner = (1, 2, 0)
        assert np.array_equal(x.transpose(inner).transpose(outer), x.transpose(compose(outer, inner)))


def test_masks_made_of_iota_become_constants_with_facts() -> None:
    def masked(g: Graph) -> Tensor:
        key = g.apply("iota", dtype=I32, shape=(1, 4), axis=1)
        query = g.apply("iota", dtype=I32, shape=(3, 1), axis=0)
        keep = g.apply("less_equal", key, query + 1)
        return g.input("x", (3, 4)) + g.apply("where", keep, g.full(0.0, (), F32), g.full(-np.inf, (), F32))

    assert holds(masked, "(= x (Add a m))", "(causal-mask m 1)", "(mask-value m -inf)")


def test_boolean_masks_through_views() -> None:
    def masked(g: Graph) -> Tensor:
        keep = g.constant(causal(3, 4, 1)).reshape((1, 3, 4))
        large = g.apply("expand", keep, shape=(2000, 3, 4))
        assert large.dtype is BOOL
        return g.apply("where", large, g.input("x", (2000, 3, 4)), g.full(-1e9))

    assert holds(masked, "(= x (Where c a b))", "(causal-keep c 1)")
