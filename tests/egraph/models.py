"""Blocks of real architectures in primitives, small."""

from __future__ import annotations

import math

import numpy as np

from meganeura.ir import Graph, Tensor
from meganeura.ir.types import I32
from meganeura.ops import build
from meganeura.ops.rotary import rotary_tables


def weight(g: Graph, *shape: int, seed: int) -> Tensor:
    """A constant of normal values scaled by its rows."""
    values = np.random.default_rng(seed).standard_normal(shape) / math.sqrt(shape[0])
    return g.constant(values.astype(np.float32))


def rms_norm(g: Graph, x: Tensor, w: Tensor) -> Tensor:
    mean_square = g.apply("reduce_mean", x * x, axes=(x.rank - 1,))
    return x * g.apply("rsqrt", mean_square + 1e-5) * w


def layer_norm(g: Graph, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    last = (x.rank - 1,)
    centred = x - g.apply("reduce_mean", x, axes=last)
    variance = g.apply("reduce_mean", centred * centred, axes=last)
    return centred / g.apply("sqrt", variance + 1e-12) * w + b


def softmax(g: Graph, x: Tensor) -> Tensor:
    last = (x.rank - 1,)
    e = g.apply("exp", x - g.apply("reduce_max", x, axes=last))
    return e / g.apply("reduce_sum", e, axes=last)


def rotate(g: Graph, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = int(x.shape[-1]) // 2  # type: ignore[arg-type]
    a, b = x[..., :half], x[..., half:]
    return g.apply("concat", a * cos - b * sin, b * cos + a * sin, axis=x.rank - 1)


def repeat(g: Graph, x: Tensor, times: int) -> Tensor:
    batch, heads, rows, width = x.shape
    wide = x.reshape((batch, heads, 1, rows, width))
    return g.apply("expand", wide, shape=(batch, heads, times, rows, width)).reshape((batch, -1, rows, width))


def decoder(
    layers: int, rows: int, heads: int = 4, groups: int = 2, width: int = 4, hidden: int = 24, words: int = 7
) -> Graph:
    """A decoder of the llama family over a whole prompt: ids i32 `[rows]` to logits `[1, rows, words]`."""
    g = Graph("decoder")
    wide = heads * width
    table = weight(g, words, wide, seed=0)
    x = g.apply("gather", table, g.input("ids", (rows,), "i32"), axis=0).reshape((1, rows, wide))
    tables = [g.constant(t)[:rows] for t in rotary_tables(16, width)]
    key, query = (g.apply("iota", dtype=I32, shape=s, axis=a) for s, a in (((1, rows), 1), ((rows, 1), 0)))
    mask = g.apply("where", g.apply("less_equal", key, query), g.full(0.0), g.full(-math.inf))
    for layer in range(layers):
        seed = 10 * layer
        with g.scope(f"layer{layer}.attention"):
            h = rms_norm(g, x, weight(g, wide, seed=seed + 1))
            q, k, v = (
                build.split_heads(h @ weight(g, wide, n * width, seed=seed + 2 + i), n)
                for i, n in enumerate((heads, groups, groups))
            )
            q, k = rotate(g, q, *tables), rotate(g, k, *tables)
            k, v = (repeat(g, t, heads // groups) for t in (k, v))
            scores = q @ k.transpose(0, 1, 3, 2) * (1 / math.sqrt(width)) + mask
            mixed = build.merge_heads(softmax(g, scores) @ v)
            x = x + mixed @ weight(g, wide, wide, seed=seed + 5)
        with g.scope(f"layer{layer}.feed_forward"):
            h = rms_norm(g, x, weight(g, wide, seed=seed + 6))
            gate, up = (h @ weight(g, wide, hidden, seed=seed + i) for i in (7, 8))
            x = x + (gate * g.apply("sigmoid", gate) * up) @ weight(g, hidden, wide, seed=seed + 9)
    g.output("logits", rms_norm(g, x, weight(g, wide, seed=999)) @ table.transpose())
    return g


def encoder(layers: int, batch: int, rows: int, heads: int = 2, width: int = 4, words: int = 7) -> Graph:
    """A BERT-like encoder: ids i32 `[batch, rows]`, mask i32 (1 for real tokens), to `[batch, rows, heads * width]`."""
    g = Graph("encoder")
    wide = heads * width
    ids, given = g.input("ids", (batch, rows), "i32"), g.input("mask", (batch, rows), "i32")
    x = g.apply("gather", weight(g, words, wide, seed=0), ids, axis=0)
    mask = (1.0 - given.reshape((batch, 1, 1, rows)).astype("f32")) * float(np.finfo(np.float32).min)
    for layer in range(layers):
        seed = 20 * layer
        q, k, v = (
            build.split_heads(x @ weight(g, wide, wide, seed=seed + i) + weight(g, wide, seed=seed + 3 + i), heads)
            for i in range(1, 4)
        )
        scores = (q @ k.transpose(0, 1, 3, 2)) / math.sqrt(width) + mask
        mixed = build.merge_heads(softmax(g, scores) @ v) @ weight(g, wide, wide, seed=seed + 8)
        x = layer_norm(
            g, x + mixed + weight(g, wide, seed=seed + 9), *(weight(g, wide, seed=seed + i) for i in (10, 11))
        )
        h = x @ weight(g, wide, 2 * wide, seed=seed + 12) + weight(g, 2 * wide, seed=seed + 13)
        h = h * 0.5 * (1.0 + g.apply("erf", h / math.sqrt(2)))
        x = x + (h @ weight(g, 2 * wide, wide, seed=seed + 14) + weight(g, wide, seed=seed + 15))
        x = layer_norm(g, x, *(weight(g, wide, seed=seed + i) for i in (16, 17)))
    g.output("hidden", x)
    return g
