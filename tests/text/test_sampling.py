"""Sampling: what each filter keeps, repeatability, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meganeura.errors import DeviceError, InputError
from meganeura.text.sampling import Sampler, Sampling, candidates

CHANCES = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
LOGITS = np.log(CHANCES) + 3


def kept(**options: float) -> list[int]:
    ids, chances = candidates(LOGITS, Sampling(**{"temperature": 1.0, **options}))  # type: ignore[arg-type]
    assert np.isclose(chances.sum(), 1) and (np.diff(chances) <= 0).all()
    return ids.tolist()


def test_filters_keep_what_they_say() -> None:
    assert kept() == [1, 3, 4, 0, 2]
    assert kept(top_k=2) == [1, 3] and kept(top_k=99) == [1, 3, 4, 0, 2]
    assert kept(top_p=0.5) == [1, 3] and kept(top_p=0.39) == [1] and kept(top_p=1e-9) == [1]
    assert kept(min_p=0.5) == [1, 3, 4] and kept(min_p=1.0) == [1]
    assert kept(top_k=3, top_p=0.7) == [1, 3]
    # Cold distributions are steep: one token reaches p alone.
    assert kept(temperature=0.1, top_p=0.9) == [1]


def test_temperature_shapes_the_probabilities() -> None:
    ids, chances = candidates(LOGITS, Sampling(temperature=0.5))
    want = CHANCES[ids] ** 2
    assert np.allclose(chances, want / want.sum())


def test_greedy_takes_the_first_of_the_likeliest() -> None:
    sampler = Sampler(Sampling())
    assert sampler.pick(LOGITS) == 1
    assert sampler.pick(np.array([1.0, 2.0, 2.0, -np.inf])) == 1
    assert Sampler(Sampling(temperature=1e-300, seed=0)).pick(LOGITS) == 1


def test_seeds_repeat_and_draws_follow_the_probabilities() -> None:
    def draw(seed: int | None, count: int = 50) -> list[int]:
        sampler = Sampler(Sampling(temperature=1.0, seed=seed))
        return [sampler.pick(LOGITS) for _ in range(count)]

    assert draw(7) == draw(7) != draw(8)
    assert draw(None) != draw(None)
    counts = np.bincount(draw(3, 4000), minlength=5) / 4000
    assert np.abs(counts - CHANCES).max() < 0.03


def test_excluded_tokens_are_never_drawn() -> None:
    sampler = Sampler(Sampling(temperature=5.0, seed=1))
    logits = np.array([0.0, -np.inf, 0.0])
    assert {sampler.pick(logits) for _ in range(100)} == {0, 2}


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=20),
    st.floats(0, 3),
    st.integers(0, 25),
    st.floats(0.01, 1),
    st.floats(0, 1),
)
def test_there_is_always_a_token(logits: list[float], temperature: float, k: int, p: float, least: float) -> None:
    token = Sampler(Sampling(temperature, k, p, least, seed=0)).pick(np.array(logits))
    assert 0 <= token < len(logits)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1.0}, {"temperature": float("nan")}, {"temperature": float("inf")},
        {"top_k": -1}, {"top_k": 1.5}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_p": float("nan")},
        {"min_p": -0.1}, {"min_p": 2.0}, {"seed": -1},
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(options: dict) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options))}=.* makes no sense"):
        Sampling(**options)


@pytest.mark.parametrize("logits", [[np.nan, 1.0], [-np.inf, -np.inf], [np.inf, 0.0], []])
def test_logits_that_are_not_numbers_are_an_error(logits: list[float]) -> None:
    with pytest.raises(DeviceError, match="not finite"):
        Sampler(Sampling()).pick(np.array(logits))
