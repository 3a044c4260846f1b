"""Cases of rules/attention.egg and attention_masks.egg; `spellings` has their combinations."""

from __future__ import annotations

import math

import numpy as np

from meganeura.ir import Graph, Tensor
from meganeura.ops import build
from tests.rules.algebra_cases import x_of
from tests.rules.support import Cases, constant

ATTENTION = ("attention", "attention_masks", "attention_heads", "attention_cache")
CASES = Cases("commute", "algebra", "movement", "matmul", "softmax", "index", *ATTENTION)
H, S, T, D = 2, 4, 5, 8
FOUND = {"finds": ("attention",), "leaves": ("softmax", "mul", "div", "add")}
LOWEST = float(np.finfo(np.float32).min)


def operands(g: Graph, rows: int = S, keys: int = T) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of two heads."""
    return x_of(g, H, rows, D, name="q"), x_of(g, H, keys, D, name="k"), x_of(g, H, keys, D, name="v")


def product(q: Tensor, k: Tensor, scale: float = 0.25) -> Tensor:
    """Scaled scores."""
    return q.graph.apply("matmul", q, k, transpose_b=True) * scale


def seen(rows: int = S, keys: int = T, offset: int = 1, window: int = 99) -> np.ndarray:
    """Which keys a causal query sees."""
    query, key = np.arange(rows)[:, None] + offset, np.arange(keys)[None, :]
    return (key <= query) & (key > query - window)


def lowered(keep: np.ndarray, low: float) -> np.ndarray:
    """The additive mask of a boolean one."""
    return np.where(keep, 0.0, low).astype(np.float32)


# ---- scores and values -----------------------------------------------------------------------------


@CASES.fires("attention-weights")
@CASES.fires("logits-under-softmax")
@CASES.fires("scores-of-product")
@CASES.fires("attention", **FOUND)
def plain(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(product(q, k)) @ v


@CASES.fires("attention-weights", finds=("attention",), leaves=("softmax", "is_nan", "where"), nan_may_vanish=True)
def guarded_against_nan(g: Graph) -> Tensor:
    q, k, v = operands(g)
    weights = build.softmax(build.where(x_of(g, S, T, name="c", dtype="bool"), product(q, k), -math.inf))
    return build.where(g.apply("is_nan", weights), 0.0, weights) @ v


@CASES.refuses("attention-weights", "exponentials over another sum")
def no_softmax(g: Graph) -> Tensor:
    q, k, v = operands(g)
    weights = build.exp(product(q, k))
    return weights / build.sum(weights, 0, True) @ v


@CASES.refuses("attention", "NaN is replaced by one, not by zero", finds=("softmax",))
def guarded_by_one(g: Graph) -> Tensor:
    q, k, v = operands(g)
    weights = build.softmax(product(q, k))
    return build.where(g.apply("is_nan", weights), 1.0, weights) @ v


@CASES.refuses("logits-under-softmax", "softmax over the queries")
@CASES.refuses("attention", "softmax over the queries")
def softmax_of_columns(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(product(q, k), axis=1) @ v


@CASES.refuses("scores-of-product", "the logits are no product of queries and keys")
@CASES.refuses("attention", "the logits are no product of queries and keys")
def distances(g: Graph) -> Tensor:
    q, k, v = x_of(g, H, S, 1, D, name="q"), x_of(g, H, 1, T, D, name="k"), x_of(g, H, T, D, name="v")
    return build.softmax(-build.sum((q - k) ** 2.0, -1)) @ v


@CASES.fires("attention", **FOUND)
def permuted_keys(g: Graph) -> Tensor:
    # Keys [rows, width, heads] whose first two axes look like rows and width of a transposition, but are not.
    k, v = x_of(g, T, D, H, name="k").transpose(2, 1, 0), x_of(g, H, T, D, name="v")
    return build.softmax(x_of(g, H, S, D, name="q") @ k) @ v


@CASES.refuses("attention", "the keys have one head, the values several")
def heads_apart(g: Graph) -> Tensor:
    q, _, v = operands(g)
    return build.softmax(product(q, x_of(g, 1, T, D, name="k1"))) @ v


@CASES.refuses("attention", "the queries have one head, the keys several")
def fewer_query_heads(g: Graph) -> Tensor:
    _, k, v = operands(g)
    return build.softmax(product(x_of(g, 1, S, D, name="q1"), k)) @ v


@CASES.fires("scores-of-transposed", **FOUND)
def transposed_keys_and_queries(g: Graph) -> Tensor:
    k, v = x_of(g, H, D, T, name="k"), x_of(g, H, T, D, name="v")
    return build.softmax(g.apply("matmul", x_of(g, H, D, S, name="q"), k, transpose_a=True)) @ v


@CASES.refuses("scores-of-transposed", "no softmax above")
def product_alone(g: Graph) -> Tensor:
    return build.exp(x_of(g, H, S, D, name="q") @ x_of(g, H, D, T, name="k"))


@CASES.fires("values-transposed", **FOUND)
def transposed_values(g: Graph) -> Tensor:
    q, k, _ = operands(g)
    return g.apply("matmul", build.softmax(product(q, k)), x_of(g, H, D, T, name="vt"), transpose_b=True)


@CASES.refuses("values-transposed", "the weights are no softmax")
def transposed_values_of_scores(g: Graph) -> Tensor:
    q, k, _ = operands(g)
    return g.apply("matmul", product(q, k), x_of(g, H, D, T, name="vt"), transpose_b=True)


@CASES.fires("scores-with-soft-cap", finds=("attention",), leaves=("tanh",))
def capped(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(build.tanh(product(q, k) / 5.0) * 5.0) @ v


@CASES.fires("scores-with-soft-cap", finds=("attention",), leaves=("tanh",))
def scaled_after_tanh(g: Graph) -> Tensor:
    # 3 tanh(s/5) is the cap 3 on scores scaled by 3/5.
    q, k, v = operands(g)
    return build.softmax(build.tanh(product(q, k) / 5.0) * 3.0) @ v


@CASES.refuses("scores-with-soft-cap", "the cap varies, or is negative")
def capped_otherwise(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    tanh = build.tanh(product(q, k))
    return build.softmax(tanh * constant(g, T)) @ v, build.softmax(tanh * -2.0) @ v


# ---- masks brought to the front --------------------------------------------------------------------


@CASES.fires("mask-after-scale", finds=("attention",), leaves=("softmax",))
def mask_then_scale(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax((product(q, k) + x_of(g, S, T, name="m")) * 0.5) @ v


@CASES.fires("mask-after-scale", finds=("attention",), leaves=("softmax", "where"), nan_may_vanish=True)
def fill_then_scale(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    keep = x_of(g, S, T, name="c", dtype="bool")
    return tuple(build.softmax(build.where(keep, product(q, k), low) * 0.5) @ v for low in (-1e4, -math.inf))


@CASES.refuses("mask-after-scale", "the scaled fill leaves the range of float32")
def fill_then_enlarge(g: Graph) -> Tensor:
    q, k, v = operands(g)
    keep = x_of(g, S, T, name="c", dtype="bool")
    return build.softmax(build.where(keep, product(q, k), -3e38) * 2.0) @ v


@CASES.fires("mask-fills-second-branch", finds=("attention",), leaves=("softmax", "where"))
def drop_mask(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(build.where(x_of(g, S, T, name="c", dtype="bool"), -1e4, product(q, k))) @ v


@CASES.refuses("mask-fills-second-branch", "the fill varies")
def drop_by_row(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(build.where(x_of(g, S, T, name="c", dtype="bool"), constant(g, T), product(q, k))) @ v


@CASES.fires("masks-add-up", finds=("attention",), leaves=("softmax",))
def two_additive_masks(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(product(q, k) + x_of(g, S, T, name="m") + x_of(g, H, 1, T, name="n")) @ v


@CASES.refuses("masks-add-up", "one mask")
def one_additive_mask(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(product(q, k) + x_of(g, S, T, name="m")) @ v


@CASES.fires("masks-fill-once", finds=("attention", "and"), leaves=("softmax", "where"))
def two_boolean_masks(g: Graph) -> Tensor:
    q, k, v = operands(g)
    a, b = x_of(g, S, T, name="a", dtype="bool"), x_of(g, 1, T, name="b", dtype="bool")
    return build.softmax(build.where(a, build.where(b, product(q, k), -1e4), -1e4)) @ v


@CASES.refuses("masks-fill-once", "different fills")
def two_fills(g: Graph) -> Tensor:
    q, k, v = operands(g)
    a, b = x_of(g, S, T, name="a", dtype="bool"), x_of(g, 1, T, name="b", dtype="bool")
    return build.softmax(build.where(a, build.where(b, product(q, k), -1e4), -1e5)) @ v


@CASES.fires("additive-mask-of-boolean", finds=("attention",), leaves=("softmax", "where"), nan_may_vanish=True)
def boolean_made_additive(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    c = x_of(g, S, T, name="c", dtype="bool")
    keep, drop = build.where(c, g.full(0.0), g.full(-math.inf)), build.where(c, g.full(LOWEST), g.full(0.0))
    return build.softmax(product(q, k) + keep) @ v, build.softmax(drop + product(q, k)) @ v


@CASES.refuses("additive-mask-of-boolean", "scores do not vanish beside the fill")
def boolean_made_slightly_additive(g: Graph) -> Tensor:
    q, k, v = operands(g)
    c = x_of(g, S, T, name="c", dtype="bool")
    return build.softmax(product(q, k) + build.where(c, g.full(0.0), g.full(-1e9))) @ v


@CASES.fires("fill-joins-additive-mask", finds=("attention",), leaves=("softmax",), nan_may_vanish=True)
def additive_inside_fill(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    m, c = x_of(g, S, T, name="m"), x_of(g, S, T, name="c", dtype="bool")
    inside = build.where(c, product(q, k) + m, -math.inf)
    outside = build.where(c, product(q, k), -math.inf) + m
    return build.softmax(inside) @ v, build.softmax(outside) @ v


@CASES.refuses("fill-joins-additive-mask", "the fill is not low enough")
def additive_inside_weak_fill(g: Graph) -> Tensor:
    q, k, v = operands(g)
    m, c = x_of(g, S, T, name="m"), x_of(g, S, T, name="c", dtype="bool")
    return build.softmax(build.where(c, product(q, k) + m, -1e4)) @ v


# ---- attention with masks --------------------------------------------------------------------------


@CASES.fires("attention-additive-mask", finds=("attention",), leaves=("softmax", "add"))
def additive(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(x_of(g, H, S, T, name="m") + product(q, k)) @ v


@CASES.refuses("attention-additive-mask", "the mask enlarges the scores", finds=("softmax",))
def additive_widening(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(x_of(g, 3, H, S, T, name="m") + product(q, k)) @ v


@CASES.fires("attention-boolean-mask", finds=("attention",), leaves=("softmax", "where"))
def boolean(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(build.where(x_of(g, 1, T, name="c", dtype="bool"), product(q, k), -1e4)) @ v


@CASES.refuses("attention-boolean-mask", "the mask enlarges the scores, or the fill varies", finds=("softmax",))
def boolean_widening(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    wide, keep = x_of(g, 3, H, S, T, name="c", dtype="bool"), x_of(g, S, T, name="d", dtype="bool")
    return (
        build.softmax(build.where(wide, product(q, k), -1e4)) @ v,
        build.softmax(build.where(keep, product(q, k), constant(g, T))) @ v,
    )


@CASES.fires("mask-of-nothing", **FOUND)
def masks_that_keep_all(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    return (
        build.softmax(product(q, k) + g.full(0.0, (S, T))) @ v,
        build.softmax(build.where(g.full(1.0, (S, T), "bool"), product(q, k, 0.5), -1e4)) @ v,
    )


@CASES.refuses("mask-of-nothing", "the mask shifts every score, or drops every key")
def masks_that_do_something(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    return (
        build.softmax(product(q, k) + g.full(1.0, (S, T))) @ v,
        build.softmax(build.where(g.full(0.0, (S, T), "bool"), product(q, k, 0.5), -1e4)) @ v,
    )


# ---- causal and sliding-window variants ------------------------------------------------------------


@CASES.fires("causal-mask", **FOUND)
def causal_constants(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    keep, low = g.constant(seen()[None]), g.constant(lowered(seen(offset=0), LOWEST))
    return build.softmax(product(q, k) + low) @ v, build.softmax(build.where(keep, product(q, k), -1e30)) @ v


@CASES.refuses("causal-mask", "the fill is not low enough")
def causal_with_weak_fill(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    weak = g.constant(lowered(seen(offset=0), -1e9))
    return build.softmax(product(q, k) + weak) @ v, build.softmax(
        build.where(g.constant(seen()), product(q, k), -1e9)
    ) @ v


@CASES.refuses("causal-mask", "queries see later keys, or one row of the mask serves all queries")
def not_causal(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    later, padding = g.constant(np.ascontiguousarray(seen(offset=0)[::-1])), g.constant(seen(rows=1, offset=2))
    return tuple(build.softmax(build.where(m, product(q, k), -1e30)) @ v for m in (later, padding))


@CASES.fires("window-mask", **FOUND)
def window_constants(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    near = seen(window=2)
    return (
        build.softmax(product(q, k) + g.constant(lowered(near, -math.inf))) @ v,
        build.softmax(build.where(g.constant(near), product(q, k), -1e30)) @ v,
    )


@CASES.refuses("window-mask", "some queries have no key in their window", nan_may_vanish=True)
def window_past_the_keys(g: Graph) -> Tensor:
    q, k, v = operands(g, rows=8)
    return build.softmax(build.where(g.constant(seen(rows=8, window=2)), product(q, k), -1e30)) @ v


@CASES.fires("causal-beside-mask", finds=("attention",), leaves=("softmax", "and"), nan_may_vanish=True)
def causal_beside_others(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    m, c = x_of(g, 1, T, name="m"), x_of(g, 1, T, name="c", dtype="bool")
    low, keep = g.constant(lowered(seen(), -math.inf)), g.constant(seen())
    return (
        build.softmax(product(q, k) + (low + m)) @ v,
        build.softmax(build.where(keep, product(q, k) + m, -math.inf)) @ v,
        build.softmax(build.where(g.apply("and", keep, c), product(q, k), -math.inf)) @ v,
    )


@CASES.refuses("causal-beside-mask", "a row whose keys are all pushed down would average over other keys")
def finite_causal_beside_others(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = operands(g)
    m, c = x_of(g, 1, T, name="m"), x_of(g, 1, T, name="c", dtype="bool")
    low, keep = g.constant(lowered(seen(), LOWEST)), g.constant(seen())
    return (
        build.softmax(product(q, k) + (low + m)) @ v,
        build.softmax(build.where(g.apply("and", keep, c), product(q, k), LOWEST)) @ v,
    )
