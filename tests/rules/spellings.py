"""Attention in all the spellings that front ends and people write, from one table of choices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meganeura.ir import DType, Graph, Tensor
from meganeura.ops import build

CHOICES: dict[str, tuple[str, ...]] = {
    "layout": ("rank2", "rank3", "rank4", "folded", "grouped5", "repeated", "repeated-rows-first", "gathered",
        "shared"),
    "scale": ("scores*", "scores/", "q/", "k*", "both", "projection*", "none", "odd", "late-k"),
    "mask": (
        "none", "add", "add-left", "add-before-scale", "add-batch", "add-twice",
        "fill", "fill-inf", "fill-swapped", "fill-not", "fill-before-scale", "add-of-boolean",
        "causal-add-inf", "causal-add-min", "causal-keep", "causal-iota", "causal-offset",
        "causal+add", "causal-keep+fill", "window-add", "window-keep",
    ),
    "keys": ("flag", "swapped", "rows-first", "given-transposed"),
    "softmax": ("whole", "pieces", "reciprocal", "dropped-axes"),
    "cap": ("none", "divided", "multiplied"),
}  # fmt: skip
B, H, G, S, T, D = 2, 4, 2, 6, 6, 8
"""Batch, heads, key/value heads, queries, keys, width."""


@dataclass(frozen=True)
class Spelling:
    """One choice of each kind, and what the attention node must then carry."""

    choice: Mapping[str, str]

    @property
    def label(self) -> str:
        """The choices, as a test id."""
        return "-".join(f"{value}" for value in self.choice.values()).replace(" ", "")

    @property
    def cap(self) -> float:
        """The soft-cap."""
        return 0.0 if self.choice["cap"] == "none" else 3.0

    @property
    def scale(self) -> float:
        """The factor on q . k."""
        return {"none": 1.0, "odd": 0.3}.get(self.choice["scale"], 1 / math.sqrt(D))

    @property
    def causal(self) -> bool:
        """Whether the mask is (or contains) a causal one that must be recognised."""
        return self.choice["mask"].startswith(("causal", "window"))

    def graph(self) -> Graph:
        """The attention in primitives."""
        return _Builder(self.choice, self.scale, self.cap).graph


def pairwise(
    choices: Mapping[str, Sequence[str]], fits: Callable[[Mapping[str, str]], bool] = lambda row: True
) -> list[dict[str, str]]:
    """Rows in which every two choices of different kinds meet (greedy, deterministic).

    Args:
        fits: which rows make sense; pairs that occur in no such row are left out.
    """
    names = list(choices)
    missing = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in choices[a] for y in choices[b]}
    rows = []
    while missing:
        row = dict(min(missing))
        for name in names:
            if name not in row:
                trials = [{**row, name: value} for value in choices[name]]
                row = max(trials, key=lambda trial: (fits(trial), len(_pairs(trial, names) & missing)))
        met = _pairs(row, names) & missing
        missing -= met if met and fits(row) else {min(missing)}
        if fits(row):
            rows.append({name: row[name] for name in names})
    return rows


def _pairs(row: Mapping[str, str], names: Sequence[str]) -> set[tuple[tuple[str, str], tuple[str, str]]]:
    return set(itertools.combinations([(name, row[name]) for name in names if name in row], 2))


def allowed(row: Mapping[str, str]) -> bool:
    """Choices that can be combined: masks before the scale need a scale on the scores, and so on."""
    before = row.get("mask", "") in ("add-before-scale", "fill-before-scale")
    if before and (row.get("scale", "scores*") not in ("scores*", "scores/") or row.get("cap", "none") != "none"):
        return False
    batchless = row.get("layout", "") in ("rank2", "rank3")
    return not (batchless and row.get("mask") == "add-batch")


class _Builder:
    def __init__(self, choice: Mapping[str, str], scale: float, cap: float) -> None:
        self.choice, self.scale, self.cap = choice, scale, cap
        self.graph = g = Graph("attention")
        layout = choice["layout"]
        self.heads = {"rank2": 1, "rank3": B}.get(layout, H)
        q, k, v = self._operands(layout)
        scores = self._scores(q, k)
        out = self._unfolded_weights(self._softmax(self._masked(scores)), layout) @ v
        g.output("y", build.exp(out * 0.1))

    # ---- operands ---------------------------------------------------------------------------------

    def _operands(self, layout: str) -> tuple[Tensor, Tensor, Tensor]:
        g = self.graph
        x = g.input("x", (B, S, 16))
        rng = np.random.default_rng(3)

        def projected(width: int) -> Tensor:
            return x @ g.constant(rng.standard_normal((16, width)).astype(np.float32) / 4)

        if layout == "rank2":
            return (g.input("q", (S, D)), g.input("k", (T, D)), g.input("v", (T, D)))
        if layout == "rank3":
            return (projected(D), projected(D), projected(D))
        q = projected(H * D)
        if self.choice["scale"] == "projection*":
            q = q * self.scale
        q = q.reshape(B, S, H, D).transpose(0, 2, 1, 3)
        groups = {"rank4": H, "folded": H, "shared": 1}.get(layout, G)
        k, v = (projected(groups * D).reshape(B, T, groups, D) for _ in range(2))
        if layout == "repeated-rows-first":
            k, v = (self._repeat(t.reshape(B, T, G, 1, D), (B, T, G, H // G, D), (B, T, H, D)) for t in (k, v))
        k, v = k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
        if layout == "repeated":
            k, v = (self._repeat(t.reshape(B, G, 1, T, D), (B, G, H // G, T, D), (B, H, T, D)) for t in (k, v))
        if layout == "gathered":
            order = g.constant(np.arange(H, dtype=np.int32) // (H // G))
            k, v = build.gather(k, order, axis=1), build.gather(v, order, axis=1)
        if layout == "folded":
            q, k, v = (t.reshape(B * H, n, D) for t, n in ((q, S), (k, T), (v, T)))
        if layout == "grouped5":
            return q.reshape(B, G, H // G, S, D), k.reshape(B, G, 1, T, D), v.reshape(B, G, 1, T, D)
        return q, k, v

    def _repeat(self, t: Tensor, wide: tuple[int, ...], merged: tuple[int, ...]) -> Tensor:
        return build.expand(t, wide).reshape(merged)

    # ---- scores -----------------------------------------------------------------------------------

    def _scores(self, q: Tensor, k: Tensor) -> Tensor:
        how, c = self.choice["scale"], self.scale
        if how == "projection*" and self.choice["layout"] in ("rank2", "rank3"):
            q = q * c
        if how == "odd":
            q = q * c
        elif how == "q/":
            q = q / (1 / c)
        elif how == "k*":
            k = c * k
        elif how == "both":
            q, k = q * math.sqrt(c), k * math.sqrt(c)
        scores = self._product(q, k, c if how == "late-k" else 1.0)
        if how in ("scores*", "scores/") and "before-scale" not in self.choice["mask"]:
            scores = self._scaled(scores)
        if self.choice["layout"] == "folded":
            scores = scores.reshape(B, H, S, T)
        if self.cap:
            inner = scores / self.cap if self.choice["cap"] == "divided" else scores * (1 / self.cap)
            scores = build.tanh(inner) * self.cap
        return scores

    def _scaled(self, scores: Tensor) -> Tensor:
        return scores * self.scale if self.choice["scale"] == "scores*" else scores / (1 / self.scale)

    def _product(self, q: Tensor, k: Tensor, late: float) -> Tensor:
        g, how, rank = self.graph, self.choice["keys"], k.rank
        swap = (*range(rank - 2), rank - 1, rank - 2)
        if how == "flag":
            return g.apply("matmul", q, k * late if late != 1.0 else k, transpose_b=True)
        if how == "rows-first" and rank == 4 and k.op.name == "transpose":
            base = k.node.inputs[0]
            turned = g[base].transpose(0, 2, 3, 1)
        elif how == "given-transposed" and self.choice["layout"] == "rank2":
            factor = {"k*": self.scale, "both": math.sqrt(self.scale)}.get(self.choice["scale"])
            turned = g.input("kt", (D, T))
            turned = turned * factor if factor else turned
        else:
            turned = k.transpose(swap)
        return q @ (turned * late if late != 1.0 else turned)

    # ---- masks ------------------------------------------------------------------------------------

    def _masked(self, s: Tensor) -> Tensor:
        g, mask = self.graph, self.choice["mask"]
        lowest = float(np.finfo(np.float32).min)
        query, key = np.arange(S)[:, None], np.arange(T)[None, :]
        seen = key <= query + (2 if mask == "causal-offset" else 0)
        near = seen & (key > query - 3)

        def boolean() -> Tensor:
            return g.input("keep", (S, T), DType.BOOL)

        def additive(shape: tuple[int, ...] = (S, T), name: str = "bias") -> Tensor:
            return g.input(name, shape)

        def constant(keep: np.ndarray, low: float) -> Tensor:
            return g.constant(np.where(keep, 0.0, low).astype(np.float32).reshape((1,) * (s.rank - 2) + keep.shape))

        def fill(keep: Tensor, scores: Tensor, low: float) -> Tensor:
            return build.where(keep, scores, low)

        match mask:
            case "none":
                return s
            case "add":
                return s + additive()
            case "add-left":
                return additive() + s
            case "add-batch":
                lead = (B, 1, 1, 1) if s.rank == 5 else (B, 1, 1)
                return s + additive((*lead, T))
            case "add-twice":
                return (s + additive()) + additive((1, T), "more")
            case "add-before-scale":
                return self._scaled(s + additive())
            case "fill-before-scale":
                return self._scaled(fill(boolean(), s, -1e9))
            case "fill":
                return fill(boolean(), s, -1e4)
            case "fill-inf":
                return fill(boolean(), s, -math.inf)
            case "fill-swapped":
                drop = g.apply("equal", boolean(), g.full(0.0, (), DType.BOOL))
                return build.where(drop, g.full(lowest), s)
            case "fill-not":
                return build.where(g.apply("not", boolean()), g.full(-math.inf), s)
            case "add-of-boolean":
                return s + build.where(boolean(), g.full(0.0), g.full(-math.inf))
            case "causal-add-inf":
                return s + constant(seen, -math.inf)
            case "causal-add-min":
                return constant(seen, lowest) + s
            case "causal-keep":
                return fill(g.constant(seen), s, lowest)
            case "causal-offset":
                return fill(g.constant(seen), s, -math.inf)
            case "causal-iota":
                rows = g.apply("iota", dtype=DType.I32, shape=(S, 1), axis=0)
                columns = g.apply("iota", dtype=DType.I32, shape=(1, T), axis=1)
                return build.where(rows < columns, g.full(lowest), s)
            case "causal+add":
                return (s + constant(seen, -math.inf)) + additive()
            case "causal-keep+fill":
                return fill(g.apply("and", g.constant(seen), boolean()), s, -math.inf)
            case "window-add":
                return s + constant(near, -math.inf)
            case "window-keep":
                return fill(g.constant(near), s, lowest)
        raise AssertionError(mask)

    # ---- softmax ----------------------------------------------------------------------------------

    def _softmax(self, s: Tensor) -> Tensor:
        how = self.choice["softmax"]
        if how == "whole":
            return build.softmax(s)
        keep = how != "dropped-axes"
        shape = (*s.shape[:-1], 1)
        top = build.max(s, -1, keep)
        weights = build.exp(s - (top if keep else top.reshape(shape)))
        total = build.sum(weights, -1, keep)
        if how == "reciprocal":
            return weights * self.graph.apply("reciprocal", total)
        return weights / (total if keep else total.reshape(shape))

    def _unfolded_weights(self, weights: Tensor, layout: str) -> Tensor:
        return weights.reshape(B * H, S, T) if layout == "folded" else weights
