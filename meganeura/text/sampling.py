"""Choosing the next token from logits: greedy, or drawn at random after narrowing the choice."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meganeura.errors import DeviceError, InputError


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. The filters apply in this order, to probabilities at the given temperature.

    Attributes:
        temperature: logits are divided by it; 0 takes the likeliest token always.
        top_k: keep the k likeliest tokens, 0 for all.
        top_p: keep the fewest likeliest tokens whose probabilities reach p, 1 for all.
        min_p: drop tokens less likely than this share of the likeliest one's probability.
        seed: makes the draws repeatable; None for different ones every time.
    Raises InputError for values out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        require("temperature", self.temperature, lambda t: math.isfinite(t) and t >= 0, "a number of 0 or more")
        require("top_k", self.top_k, lambda k: operator.index(k) >= 0, "a whole number of 0 or more")
        require("top_p", self.top_p, lambda p: 0 < p <= 1, "a number above 0, up to 1")
        require("min_p", self.min_p, lambda p: 0 <= p <= 1, "a number from 0 to 1")
        require("seed", self.seed, lambda s: s is None or operator.index(s) >= 0, "a whole number of 0 or more")


def require(name: str, value: Any, good: Callable[[Any], bool], wanted: str) -> None:
    """Raise InputError unless `good(value)`; a value of a type that cannot even be asked is not good either."""
    try:
        fine = good(value)
    except (TypeError, ValueError, OverflowError):
        fine = False
    if not fine:
        raise InputError(f"{name}={value!r} makes no sense", remedy=f"use {wanted}")


class Sampler:
    """Draws token ids as `sampling` says, with a random generator of its own."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def pick(self, logits: np.ndarray) -> int:
        """One token id from logits `[vocabulary]`; the lowest id wins a tie when greedy.

        Raises DeviceError when a logit is NaN or none is finite.
        """
        logits = np.asarray(logits, np.float64).reshape(-1)
        if not logits.size or np.isnan(logits).any() or not np.isfinite(logits.max()):
            raise DeviceError(
                "the logits are not finite numbers",
                remedy="run `meganeura verify` on the model; the file may be damaged or a kernel wrong",
            )
        if self.sampling.temperature == 0:
            return int(np.argmax(logits))
        ids, chances = candidates(logits, self.sampling)
        return int(self._random.choice(ids, p=chances))


def candidates(logits: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """Token ids that may be drawn, likeliest first, and their probabilities (which sum to 1)."""
    order = np.argsort(-logits, kind="stable")
    if sampling.top_k:
        order = order[: sampling.top_k]
    # A tiny temperature overflows; the likeliest token's 0 stays 0 and the rest become 0 probability.
    with np.errstate(over="ignore", under="ignore"):
        chances = np.exp((logits[order] - logits[order[0]]) / sampling.temperature)
    chances /= chances.sum()
    if sampling.top_p < 1:
        # The token that reaches p is still in.
        kept = int(np.searchsorted(np.cumsum(chances), sampling.top_p)) + 1
        order, chances = order[:kept], chances[:kept]
    if sampling.min_p > 0:
        likely = chances >= sampling.min_p * chances[0]
        order, chances = order[likely], chances[likely]
    return order, chances / chances.sum()
