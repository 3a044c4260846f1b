"""Random attention-like graphs, most of them not quite attention: whatever the rules unite is equal."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meganeura.errors import GraphError
from meganeura.ir import Graph, Tensor
from meganeura.ops import build
from tests.rules.support import assert_agree, assert_every_term_agrees, random_inputs, search

LOWEST = float(np.finfo(np.float32).min)
FACTORS = (1.0, 0.5, 0.3, -0.7, 2.0)
FILLS = (-math.inf, LOWEST, -1e30, -1e3, 0.5)
LEADS = ((), (2,), (2, 3), (2, 2, 3), (1, 3), (2, 1), (4,))


class _Sketch:
    """One random graph: products, factors, masks of many kinds, softmax, product."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(f"attention {seed}")
        self.rows, self.keys, self.width = (int(self.rng.choice(sizes)) for sizes in ((1, 3, 4), (1, 3, 5), (1, 3, 4)))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def one_of(self, values: tuple) -> float:
        return values[self.rng.integers(len(values))]

    def lead(self, lead: tuple[int, ...]) -> tuple[int, ...]:
        """Leading axes, one of them perhaps of length one or missing."""
        if lead and self.chance(0.3):
            at = int(self.rng.integers(len(lead)))
            lead = (*lead[:at], 1, *lead[at + 1 :])
        return lead[1:] if self.chance(0.1) else lead

    def grow(self) -> Graph:
        g, lead = self.graph, self.one_of(LEADS)
        assert isinstance(lead, tuple)
        q = g.input("q", (*self.lead(lead), self.rows, self.width))
        shared, turned = self.lead(lead), self.chance(0.4)
        k = g.input("k", (*shared, self.width, self.keys) if turned else (*shared, self.keys, self.width))
        v = g.input("v", (*(shared if self.chance(0.8) else self.lead(lead)), self.keys, self.width))
        if self.chance(0.3):
            q = q * self.one_of(FACTORS)
        if self.chance(0.2):
            k = k / self.one_of(FACTORS)
        if self.chance(0.1) and k.rank > 2:
            k = k.transpose((1, 0, *range(2, k.rank)))
        scores = q @ k if turned else g.apply("matmul", q, k, transpose_b=True)
        for number in range(self.rng.integers(4)):
            scores = self.step(scores, number)
        axis = -1 if self.chance(0.9) else int(self.rng.integers(scores.rank))
        weights = build.exp(scores - build.max(scores, axis, True))
        weights = build.softmax(scores, axis) if self.chance(0.5) else weights / build.sum(weights, axis, True)
        g.output("y", weights @ v)
        return g

    def step(self, s: Tensor, number: int) -> Tensor:
        """A factor, a cap or a mask."""
        g, fill = self.graph, self.one_of(FILLS)
        match int(self.rng.integers(8)):
            case 0:
                return s * self.one_of(FACTORS)
            case 1:
                return build.tanh(s / 3.0) * self.one_of((3.0, 2.0))
            case 2:
                return build.where(self.mask(s, f"a{number}"), s, fill)
            case 3:
                return build.where(self.mask(s, f"a{number}"), fill, s)
            case 4:
                return s + build.where(self.mask(s, f"a{number}"), g.full(0.0), g.full(fill))
            case 5:
                return build.where(g.apply("and", self.mask(s, f"a{number}"), self.mask(s, f"b{number}")), s, fill)
            case 6:
                keep = self.mask(s, f"a{number}")
                if keep.op.name == "constant":
                    data = g.constants[keep.op.key].load()  # type: ignore[attr-defined]
                    return s + g.constant(np.where(data, 0.0, fill).astype(np.float32))
        return s + g.input(f"m{number}", self.one_of(((self.rows, self.keys), (self.keys,), (self.rows, 1), s.shape)))  # type: ignore[arg-type]

    def mask(self, s: Tensor, name: str) -> Tensor:
        """A boolean mask: given, or causal or nearly so."""
        shapes = ((self.rows, self.keys), (1, self.keys), (self.keys,), (self.rows, 1), s.shape)
        if self.chance(0.4):
            return self.graph.input(name, self.one_of(shapes), "bool")  # type: ignore[arg-type]
        query, key = np.arange(self.rows)[:, None] + self.one_of((0, 0, 1, 2, -1)), np.arange(self.keys)[None]
        keep = (key <= query) & ((key > query - 2) if self.chance(0.3) else True)
        keep = keep[::-1] if self.chance(0.2) else keep
        return self.graph.constant(np.ascontiguousarray(keep[:1] if self.chance(0.2) else keep))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 100_000))
def test_whatever_is_united_is_equal(seed: int) -> None:
    try:
        graph = _Sketch(seed).grow()
    except GraphError:
        return  # shapes that do not go together
    result, _ = search(graph)
    inputs = random_inputs(graph)
    with np.errstate(all="ignore"):
        assert_agree(graph, result, inputs, nan_may_vanish=True)
        assert_every_term_agrees(graph, inputs, None, nan_may_vanish=True)
