"""Cases of rules/attention_heads.egg and attention_cache.egg."""

from __future__ import annotations

import math

import numpy as np

from meganeura.ir import DType, Graph, Tensor
from meganeura.ops import build
from tests.rules.algebra_cases import x_of
from tests.rules.attention_cases import ATTENTION, product
from tests.rules.support import Cases

CASES = Cases("commute", "algebra", "movement", "matmul", "softmax", "index", *ATTENTION)
B, H, G, S, T, D = 2, 6, 2, 4, 5, 8
GROUPED = {"finds": ("attention",), "leaves": ("expand", "softmax")}


def repeat(t: Tensor, axis: int, times: int) -> Tensor:
    """Each entry along an axis `times` in a row, through expand and reshape."""
    shape = [int(d) for d in t.shape]  # type: ignore[arg-type]
    lead, rest = shape[: axis + 1], shape[axis + 1 :]
    wide = build.expand(t.reshape((*lead, 1, *rest)), (*lead, times, *rest))
    return wide.reshape((*lead[:-1], lead[-1] * times, *rest))


def tile(t: Tensor, times: int) -> Tensor:
    """All heads one after the other, `times` over: what grouped attention is not."""
    groups, rows, width = (int(d) for d in t.shape)  # type: ignore[arg-type]
    return build.expand(t.reshape(1, groups, rows, width), (times, groups, rows, width)).reshape(
        times * groups, rows, width
    )


# ---- grouped heads ---------------------------------------------------------------------------------


@CASES.fires("repeated-heads")
@CASES.fires("grouped-heads", **GROUPED)
def repeated(g: Graph) -> Tensor:
    k, v = (repeat(x_of(g, G, T, D, name=name), 0, H // G) for name in "kv")
    return build.softmax(product(x_of(g, H, S, D, name="q"), k)) @ v


@CASES.fires("repeated-heads", **GROUPED)
def repeated_before_heads_first(g: Graph) -> Tensor:
    k, v = (repeat(x_of(g, T, G, D, name=name), 1, H // G).transpose(1, 0, 2) for name in "kv")
    return build.softmax(product(x_of(g, H, S, D, name="q"), k)) @ v


@CASES.fires("repeated-heads", finds=("attention",), leaves=("gather", "softmax"))
def repeated_by_gather(g: Graph) -> Tensor:
    order = g.constant(np.arange(H, dtype=np.int32) // (H // G))
    k = build.gather(x_of(g, B, G, T, D, name="k"), order, axis=1)
    v = build.gather(x_of(g, B, T, G, D, name="v"), order, axis=2).transpose(0, 2, 1, 3)
    return build.softmax(product(x_of(g, B, H, S, D, name="q"), k)) @ v


@CASES.refuses("repeated-heads", "tiled, not repeated", finds=("attention", "expand"))
@CASES.refuses("grouped-heads", "tiled, not repeated", finds=("attention", "expand"))
def tiled(g: Graph) -> Tensor:
    k, v = (tile(x_of(g, G, T, D, name=name), H // G) for name in "kv")
    return build.softmax(product(x_of(g, H, S, D, name="q"), k)) @ v


@CASES.refuses("grouped-heads", "the keys are repeated, the values are not")
def keys_repeated_alone(g: Graph) -> Tensor:
    k = repeat(x_of(g, G, T, D, name="k"), 0, H // G)
    return build.softmax(product(x_of(g, H, S, D, name="q"), k)) @ x_of(g, H, T, D, name="v")


@CASES.fires("shared-head", **GROUPED)
def one_head_for_all(g: Graph) -> tuple[Tensor, ...]:
    q = x_of(g, B, H, S, D, name="q")
    k, v = (build.expand(x_of(g, B, 1, T, D, name=name), (B, H, T, D)) for name in "kv")
    return build.softmax(product(q, k)) @ v, build.softmax(product(q, k) + x_of(g, S, T, name="m")) @ v


@CASES.refuses("shared-head", "expanded over the batch", finds=("attention", "expand"))
def one_batch_for_all(g: Graph) -> Tensor:
    k, v = (build.expand(x_of(g, 1, H, T, D, name=name), (B, H, T, D)) for name in "kv")
    return build.softmax(product(x_of(g, B, H, S, D, name="q"), k)) @ v


def with_group_axis(g: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """q `[b, g, h/g, s, d]` beside k and v `[b, g, 1, t, d]`."""
    return x_of(g, B, G, H // G, S, D, name="q"), *(x_of(g, B, G, 1, T, D, name=n) for n in "kv")  # type: ignore[return-value]


@CASES.fires("group-axis-into-heads", finds=("attention",))
def group_axis(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = with_group_axis(g)
    masks = (x_of(g, S, T, name="m"), x_of(g, B, 1, 1, S, T, name="n"), x_of(g, 1, G, H // G, S, T, name="o"))
    return build.softmax(product(q, k)) @ v, *(build.softmax(product(q, k) + m) @ v for m in masks)


@CASES.refuses("group-axis-into-heads", "the keys differ along the group, or the mask varies within groups alike")
def group_axis_that_counts(g: Graph) -> tuple[Tensor, ...]:
    q, k, v = with_group_axis(g)
    k2, v2 = (x_of(g, B, G, H // G, T, D, name=name) for name in ("k2", "v2"))
    return build.softmax(product(q, k2)) @ v2, build.softmax(product(q, k) + x_of(g, H // G, S, T, name="m")) @ v


@CASES.refuses("group-axis-into-heads", "a batch axis before the heads", finds=("attention",), leaves=("softmax",))
def batch_axis(g: Graph) -> Tensor:
    q, k, v = x_of(g, B, H, S, D, name="q"), *(x_of(g, B, 1, T, D, name=n) for n in "kv")
    return build.softmax(product(q, k)) @ v


@CASES.fires("half-precision-keys", finds=("attention",), leaves=("cast",))
def keys_stored_as_half(g: Graph) -> tuple[Tensor, ...]:
    q, m = x_of(g, H, S, D, name="q"), x_of(g, S, T, name="m")
    k, v = (x_of(g, H, T, D, name=name, dtype="f16").astype("f32") for name in "kv")
    return build.softmax(product(q, k)) @ v, build.softmax(product(q, k) + m) @ v


@CASES.refuses("half-precision-keys", "the values are float32", finds=("cast",))
def only_keys_stored_as_half(g: Graph) -> Tensor:
    k = x_of(g, H, T, D, name="k", dtype="f16").astype("f32")
    return build.softmax(product(x_of(g, H, S, D, name="q"), k)) @ x_of(g, H, T, D, name="v")


# ---- caches ----------------------------------------------------------------------------------------

AT_THREE = {"inputs": {"p": [3]}}
CACHED = {"finds": ("cached_attention",), "leaves": ("softmax", "where", "less_equal"), **AT_THREE}


def ramp(g: Graph, *shape: int, dtype: str = "i32") -> Tensor:
    """Key indices along the last axis."""
    return g.apply("iota", dtype=DType(dtype), shape=shape, axis=len(shape) - 1)


def cached(g: Graph, keep: Tensor, low: float = -1e30, heads: int = H, groups: int = H, dtype: str = "f32") -> Tensor:
    """One query over caches that are written at p, masked by `keep`."""
    p = g[g.inputs["p"].id]
    caches = []
    for name in "kv":
        state = g.state(f"{name}_cache", (T, groups * D), dtype)
        new = g.apply("state_update", state, x_of(g, 1, groups * D, name=name, dtype=dtype), p, axis=0)
        g.update(state, new)
        rows = new.reshape(T, groups, D).transpose(1, 0, 2)
        rows = rows.astype("f32")
        caches.append(rows if groups == heads else repeat(rows, 0, heads // groups))
    q = x_of(g, heads, 1, D, name="q")
    return build.softmax(build.where(keep, product(q, caches[0]), low)) @ caches[1]


def position(g: Graph, name: str = "p") -> Tensor:
    """A position on the device."""
    return x_of(g, 1, name=name, dtype="u32")


@CASES.fires("keys-up-to-position")
@CASES.fires("cached-attention", **CACHED)
def up_to_position(g: Graph) -> Tensor:
    return cached(g, ramp(g, 1, T, dtype="u32") <= position(g))


@CASES.fires("cached-attention", **CACHED)
def up_to_signed_position(g: Graph) -> Tensor:
    return cached(g, ramp(g, T) <= position(g).astype("i32"), low=-math.inf)


@CASES.fires("cached-attention", **CACHED)
def not_beyond_position(g: Graph) -> Tensor:
    return cached(g, g.apply("not", position(g).astype("i32").reshape(1, 1, 1) < ramp(g, 1, 1, T)))


@CASES.fires("cached-attention", **CACHED)
def below_length(g: Graph) -> Tensor:
    return cached(g, ramp(g, T) < position(g).astype("i32") + 1)


@CASES.fires("keys-up-to-position", **CACHED)
def reshaped_and_expanded(g: Graph) -> Tensor:
    return cached(g, build.expand((ramp(g, T, dtype="u32") <= position(g)).reshape(1, 1, T), (H, 1, T)))


@CASES.fires("cached-attention", finds=("cached_attention",), leaves=("softmax", "where"), inputs={"p": [3, 1]})
def a_position_per_entry(g: Graph) -> Tensor:
    p = x_of(g, B, name="p", dtype="u32")
    k, v = (
        g.apply("state_update", g.state(f"c{n}", (B, H, T, D)), x_of(g, B, H, 1, D, name=n), p, axis=2) for n in "kv"
    )
    keep = ramp(g, T) <= p.astype("i32").reshape(B, 1, 1, 1)
    return build.softmax(build.where(keep, product(x_of(g, B, H, 1, D, name="q"), k), -math.inf)) @ v


@CASES.refuses("keys-up-to-position", "indices that start at one, run backwards, or along the heads", **AT_THREE)
@CASES.refuses("cached-attention", "indices that start at one, run backwards, or along the heads", **AT_THREE)
def other_indices(g: Graph) -> tuple[Tensor, ...]:
    p = position(g).astype("i32")
    q, k, v = (x_of(g, H, n, D, name=name) for name, n in (("q", 1), ("k", T), ("v", T)))
    heads = g.apply("iota", dtype=DType.I32, shape=(H, 1, 1), axis=0)
    keeps = ((ramp(g, T) + 1) <= p, (4 - ramp(g, T)) <= p, heads <= p, p <= ramp(g, T), ramp(g, T) < p)
    return tuple(build.softmax(build.where(keep, product(q, k), -1e30)) @ v for keep in keeps)


@CASES.refuses("cached-attention", "the fill is not low enough", **AT_THREE)
def weak_fill(g: Graph) -> Tensor:
    return cached(g, ramp(g, T, dtype="u32") <= position(g), low=-1e9)


@CASES.refuses("cached-attention", "two query rows", **AT_THREE)
def two_rows(g: Graph) -> Tensor:
    keep = ramp(g, T, dtype="u32") <= position(g)
    q, k, v = (x_of(g, H, n, D, name=name) for name, n in (("q", 2), ("k", T), ("v", T)))
    return build.softmax(build.where(keep, product(q, k), -1e30)) @ v


@CASES.refuses("cached-attention", "positions laid along the heads", inputs={"p": [3, 1]})
def positions_by_head(g: Graph) -> Tensor:
    keep = ramp(g, T) <= x_of(g, 2, name="p", dtype="u32").astype("i32").reshape(1, 2, 1, 1)
    q, k, v = (x_of(g, 2, 2, n, D, name=name) for name, n in (("q", 1), ("k", T), ("v", T)))
    return build.softmax(build.where(keep, product(q, k), -1e30)) @ v


@CASES.fires(
    "cached-attention-masked", finds=("cached_attention",), leaves=("softmax", "and"), **AT_THREE, nan_may_vanish=True
)
def position_and_mask(g: Graph) -> Tensor:
    keep = ramp(g, T, dtype="u32") <= position(g)
    return cached(g, g.apply("and", keep, x_of(g, 1, T, name="c", dtype="bool")), low=-math.inf)


@CASES.refuses("cached-attention-masked", "a row whose keys are all pushed down would average over others", **AT_THREE)
def position_and_finite_mask(g: Graph) -> Tensor:
    keep = ramp(g, T, dtype="u32") <= position(g)
    return cached(g, g.apply("and", keep, x_of(g, 1, T, name="c", dtype="bool")), low=-1e30)


@CASES.fires("keys-in-window")
@CASES.fires("cached-attention-window", finds=("cached_attention",), leaves=("softmax", "and"), **AT_THREE)
def window_behind_position(g: Graph) -> Tensor:
    p, key = position(g).astype("i32"), ramp(g, T)
    return cached(g, g.apply("and", key <= p, p - 2 < key))


@CASES.fires("keys-in-window", finds=("cached_attention",), leaves=("softmax", "and"), **AT_THREE)
def window_ahead_of_key(g: Graph) -> Tensor:
    p, key = position(g).astype("i32"), ramp(g, T)
    return cached(g, g.apply("and", key <= p, p < key + 2))


@CASES.refuses("keys-in-window", "the window varies", **AT_THREE)
def varying_window(g: Graph) -> Tensor:
    p, key = position(g).astype("i32"), ramp(g, T)
    return cached(g, g.apply("and", key <= p, p - x_of(g, T, name="w", dtype="i32") < key))


@CASES.refuses("cached-attention-window", "the window is behind another position", inputs={"p": [3], "r": [2]})
def window_behind_another(g: Graph) -> Tensor:
    p, r, key = position(g).astype("i32"), position(g, "r").astype("i32"), ramp(g, T)
    return cached(g, g.apply("and", key <= p, r - 2 < key))


@CASES.fires("cached-grouped-heads", finds=("cached_attention",), leaves=("softmax", "expand"), **AT_THREE)
def grouped_cache(g: Graph) -> Tensor:
    return cached(g, ramp(g, T, dtype="u32") <= position(g), groups=G)


@CASES.refuses("cached-grouped-heads", "every head has a cache of its own", **AT_THREE)
def ungrouped_cache(g: Graph) -> Tensor:
    return cached(g, ramp(g, T, dtype="u32") <= position(g))


@CASES.fires("cached-half-precision-keys", finds=("cached_attention",), leaves=("softmax", "cast"), **AT_THREE)
def half_cache(g: Graph) -> Tensor:
    return cached(g, ramp(g, T, dtype="u32") <= position(g), dtype="f16")


@CASES.refuses("cached-half-precision-keys", "the caches are float32", **AT_THREE)
def single_cache(g: Graph) -> Tensor:
    return cached(g, ramp(g, T, dtype="u32") <= position(g))
