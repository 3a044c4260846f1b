"""Cases of rules/attention_guarded.egg: attention as it decomposes, and near-misses of that."""

from __future__ import annotations

import math

from meganeura.ir import Graph, Tensor
from meganeura.ops import build
from meganeura.ops.attention import Attention, CachedAttention
from tests.rules.algebra_cases import x_of
from tests.rules.attention_cases import ATTENTION, LOWEST, H, S, T, operands, product
from tests.rules.cache_cases import AT_THREE, position, ramp
from tests.rules.support import Cases

CASES = Cases("commute", "algebra", "movement", "matmul", "softmax", "index", *ATTENTION, "attention_guarded")
FOUND = {"finds": ("attention",), "leaves": ("softmax", "exp", "div")}
CACHED = {"finds": ("cached_attention",), "leaves": ("softmax", "exp", "div"), **AT_THREE}


def spelled(g: Graph, extras: tuple[Tensor, ...] = (), **options: object) -> Tensor:
    """An attention node's own decomposition."""
    result = Attention(scale=0.3, **options).decompose([*operands(g), *extras])  # type: ignore[arg-type]
    assert isinstance(result, Tensor)
    return result


def cached(g: Graph, extras: tuple[Tensor, ...] = (), **options: object) -> Tensor:
    """A cached attention node's own decomposition."""
    q, k, v = operands(g, rows=1)
    result = CachedAttention(scale=0.3, **options).decompose([q, k, v, position(g), *extras])  # type: ignore[arg-type]
    assert isinstance(result, Tensor)
    return result


def kept(g: Graph) -> Tensor:
    """A boolean mask."""
    return x_of(g, S, T, name="c", dtype="bool")


def guarded(scores: Tensor, keep: Tensor, v: Tensor, weight_keep: Tensor | None = None, low: float = LOWEST) -> Tensor:
    """Weights outside `keep` are zero, and a sum of zero divides by one."""
    lowered = build.where(keep, scores, low)
    weight_keep = keep if weight_keep is None else weight_keep
    weights = build.where(weight_keep, build.exp(lowered - build.max(lowered, -1, True)), 0.0)
    total = build.sum(weights, -1, True)
    return (weights @ v) / build.where(build.equal(total, 0.0), 1.0, total)


def clamp(x: Tensor, low: float = LOWEST, high: float = -LOWEST) -> Tensor:
    """Bring scores into a range."""
    return build.maximum(build.minimum(x, high), low)


# ---- pieces ----------------------------------------------------------------------------------------


@CASES.fires("sum-of-exponentials-is-positive", **FOUND)
@CASES.fires("clamped-scores", **FOUND)
def clamped(g: Graph) -> Tensor:
    return spelled(g)


@CASES.refuses("sum-of-exponentials-is-positive", "exponentials that may all vanish")
def sum_that_may_vanish(g: Graph) -> Tensor:
    weights = build.exp(x_of(g, S, T) * 1000.0)
    total = build.sum(weights, -1, True)
    return build.where(build.equal(total, 0.0), 1.0, total)


@CASES.refuses("clamped-scores", "the bounds cut scores off")
def tightly_clamped(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(clamp(product(q, k), -0.1, 0.1)) @ v


@CASES.fires("clamp-before-fill", **FOUND)
def filled_then_clamped(g: Graph) -> Tensor:
    return spelled(g, (kept(g),), mask="fill", fill=-1e4)


@CASES.refuses("clamp-before-fill", "the bounds cut the fill off")
def filled_then_tightly_clamped(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(clamp(build.where(kept(g), product(q, k), -1e4), -1e3)) @ v


@CASES.fires("attention-bias", **FOUND)
def biased(g: Graph) -> Tensor:
    return spelled(g, (x_of(g, S, T, name="b"),), bias=True)


@CASES.refuses("attention-bias", "the bias enlarges the scores", finds=("softmax",))
def widely_biased(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return build.softmax(clamp(product(q, k) + x_of(g, 3, H, S, T, name="b"))) @ v


# ---- guarded sums ----------------------------------------------------------------------------------


@CASES.fires("guarded-attention", **FOUND)
@CASES.fires("attention-of-kept-keys", **FOUND)
def keys_kept_by_mask(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return guarded(product(q, k), kept(g), v)


@CASES.fires("attention-of-kept-keys", **FOUND)
def biased_keys_kept_by_mask(g: Graph) -> Tensor:
    return spelled(g, (x_of(g, S, T, name="b"), kept(g)), bias=True, mask="fill", fill=-math.inf)


@CASES.refuses("guarded-attention", "scores and weights have different masks")
@CASES.refuses("attention-of-kept-keys", "scores and weights have different masks")
def two_masks(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return guarded(product(q, k), kept(g), v, x_of(g, S, T, name="d", dtype="bool"))


@CASES.refuses("kept-by-parts", "left-out scores may be the maximum")
@CASES.refuses("guarded-attention", "left-out scores may be the maximum")
def weakly_lowered(g: Graph) -> Tensor:
    q, k, v = operands(g)
    return guarded(product(q, k), kept(g), v, low=-1.0)


@CASES.fires("kept-by-parts")
@CASES.fires("fill-outside-kept-keys", **FOUND)
def filled_with_infinity(g: Graph) -> Tensor:
    return spelled(g, (kept(g),), mask="fill", fill=-math.inf)


@CASES.refuses("fill-outside-kept-keys", "the fill is by another mask than the kept keys")
def filled_by_another(g: Graph) -> Tensor:
    q, k, v = operands(g)
    filled = build.where(x_of(g, S, T, name="d", dtype="bool"), product(q, k), -2.0)
    return guarded(filled, kept(g), v)


@CASES.fires("kept-keys-in-range", **FOUND)
def causal_with_finite_fill(g: Graph) -> Tensor:
    return spelled(g, (kept(g),), mask="fill", fill=-1e4, causal=True)


@CASES.fires("kept-keys-in-range", **CACHED)
def cached_with_finite_fill(g: Graph) -> Tensor:
    return cached(g, (x_of(g, 1, T, name="c", dtype="bool"),), mask="fill", fill=-1e4)


@CASES.refuses("kept-keys-in-range", "the kept keys are no range", **AT_THREE)
def any_keys_with_finite_fill(g: Graph) -> Tensor:
    q, k, v = operands(g, rows=1)
    keep = position(g).astype("i32") <= ramp(g, 1, T)
    filled = clamp(build.where(x_of(g, 1, T, name="c", dtype="bool"), product(q, k), -1e4))
    return guarded(filled, keep, v)


# ---- with a bias -----------------------------------------------------------------------------------


@CASES.fires("biased-range", **FOUND)
def causal_with_bias(g: Graph) -> Tensor:
    return spelled(g, (x_of(g, S, T, name="b"),), bias=True, causal=True)


@CASES.fires("biased-range", **CACHED)
def cached_with_bias(g: Graph) -> Tensor:
    return cached(g, (x_of(g, 1, T, name="b"),), bias=True)


@CASES.refuses("biased-range", "the mask is no range")
def any_mask_with_bias(g: Graph) -> Tensor:
    return spelled(g, (x_of(g, S, T, name="b"), kept(g)), bias=True, mask="fill", fill=-math.inf)


@CASES.fires("mask-beside-nothing", finds=("attention",), leaves=("and", "softmax"))
def mask_and_true(g: Graph) -> Tensor:
    q, k, v = operands(g)
    keep = g.apply("and", kept(g), g.full(1.0, (H, S, T), "bool"))
    return build.softmax(build.where(keep, product(q, k), -1e4)) @ v


@CASES.refuses("mask-beside-nothing", "both masks drop keys")
def mask_and_mask(g: Graph) -> Tensor:
    q, k, v = operands(g)
    keep = g.apply("and", kept(g), x_of(g, S, T, name="d", dtype="bool"))
    return build.softmax(build.where(keep, product(q, k), -1e4)) @ v


ADDED = {"inputs": {"m": [0.5, -math.inf, 1.0, -math.inf, 0.0]}}


@CASES.fires("bias-that-excludes", finds=("attention",), leaves=("exp", "not"), **ADDED)
def additive_mask(g: Graph) -> Tensor:
    return spelled(g, (x_of(g, 1, T, name="m"),), mask="add")


@CASES.fires(
    "bias-that-excludes", finds=("cached_attention",), leaves=("exp", "not"), inputs={**ADDED["inputs"], "p": [3]}
)
def cached_additive_mask(g: Graph) -> Tensor:
    return cached(g, (x_of(g, 1, T, name="m"),), mask="add")


@CASES.refuses("bias-that-excludes", "keys are left out by another array than the added one")
def excluded_by_another(g: Graph) -> Tensor:
    q, k, v = operands(g)
    keep = g.apply("not", build.equal(x_of(g, S, T, name="n"), -math.inf))
    return guarded(clamp(product(q, k) + x_of(g, S, T, name="m")), keep, v)
