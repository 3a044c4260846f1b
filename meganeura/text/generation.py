"""Generating text: one prompt in, tokens out one by one, with the caches' content reused where it fits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from meganeura.errors import InputError
from meganeura.text.runner import Runner, bucket
from meganeura.text.sampling import Sampler, Sampling, require
from meganeura.text.tokenizer import Tokenizer

STEP_IN_PREFILL_ROWS = 8
"""Cost of one step in rows of a prefill: what decides between the two for a prompt whose beginning is cached."""


@dataclass(frozen=True)
class Generation:
    """What a model answered.

    Attributes:
        text: the answer without special tokens.
        token_ids: generated ids only, the end token included.
        prompt_tokens: length of the prompt.
        tokens_per_second: speed of generating, prompt and compilation not counted.
        stop_reason: "end" (an end token), "length" (max_tokens), "context" (no room left) or "running".
    """

    text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    tokens_per_second: float
    stop_reason: str


class Decoder:
    """Feeds a runner token by token and remembers which tokens its caches hold.

    Args:
        runner: computes logits. context: rows of its caches.
    """

    def __init__(self, runner: Runner, context: int) -> None:
        self.runner, self.context = runner, context
        self.cached: list[int] = []
        self._owner: object = None

    def claim(self) -> object:
        """A new right to the caches; whoever held it before may not feed tokens any more."""
        self._owner = object()
        return self._owner

    def plan(self, ids: Sequence[int]) -> int:
        """How many leading tokens of a prompt to take from the caches; the rest is prefilled (0) or stepped."""
        shared = 0
        # The last token is always computed: its logits are what is wanted.
        for have, want in zip(self.cached, ids[:-1], strict=False):
            if have != want:
                break
            shared += 1
        steps = len(ids) - shared
        return shared if steps * STEP_IN_PREFILL_ROWS <= bucket(len(ids), self.context) else 0

    def start(self, ids: Sequence[int], owner: object) -> np.ndarray:
        """Logits after a prompt of 1 to `context` tokens."""
        kept = self.plan(ids)
        if not kept:
            self._check(owner)
            # Forgotten first, so that a failure on the way doesn't leave a wrong belief about the caches.
            self.cached = []
            logits = self.runner.prefill(ids)
            self.cached = list(ids)
            return logits
        del self.cached[kept:]
        for token in ids[kept:]:
            logits = self.feed(token, owner)
        return logits  # type: ignore[possibly-undefined]

    def feed(self, token: int, owner: object) -> np.ndarray:
        """Logits after one further token; InputError when the context is full."""
        self._check(owner)
        position = len(self.cached)
        if position >= self.context:
            raise InputError(
                f"the context of {self.context} tokens is full",
                limit=f"context {self.context}",
                remedy="use a larger context (--context N), a shorter conversation or fewer tokens",
            )
        logits = self.runner.step(token, position)
        self.cached.append(token)
        return logits

    def _check(self, owner: object) -> None:
        if owner is not self._owner:
            raise InputError(
                "another generation was started on this model, which took over its caches",
                remedy="finish one generation before starting the next, or load the model twice",
            )


class TokenStream:
    """An answer under way: iterate over it for pieces of text, none ending within a character.

    `result` is the answer so far, complete once the iteration has ended. The iteration raises InputError when the
    context is full before the answer ended; `result` then holds what there is.
    """

    def __init__(
        self, decoder: Decoder, tokenizer: Tokenizer, ids: Sequence[int], max_tokens: int, sampling: Sampling
    ) -> None:
        _check_request(ids, decoder.context, max_tokens)
        self._decoder, self._tokenizer, self._prompt = decoder, tokenizer, tuple(ids)
        self._max_tokens, self._sampler = max_tokens, Sampler(sampling)
        self._text = tokenizer.stream()
        self._generated: list[int] = []
        self._seconds, self._prompt_seconds = 0.0, 0.0
        self._stop_reason = "running"
        self._pieces = self._run()

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def result(self) -> Generation:
        """The answer so far."""
        steps = len(self._generated) - 1
        # The first token comes out of the prompt's own pass.
        if steps > 0:
            speed = steps / self._seconds
        else:
            speed = len(self._generated) / self._prompt_seconds if self._prompt_seconds else 0.0
        return Generation(
            self._text.text, tuple(self._generated), len(self._prompt), round(speed, 3), self._stop_reason
        )

    def _run(self) -> Iterator[str]:
        decoder = self._decoder
        owner = decoder.claim()
        decoder.runner.prepare(0 if decoder.plan(self._prompt) else len(self._prompt))
        began = time.perf_counter()
        logits = decoder.start(self._prompt, owner)
        token = self._sampler.pick(logits)
        self._prompt_seconds = time.perf_counter() - began
        while True:
            self._generated.append(token)
            if token in self._tokenizer.end_ids:
                self._stop_reason = "end"
                break
            piece = self._text.push(token)
            if piece:
                yield piece
            if len(self._generated) == self._max_tokens:
                self._stop_reason = "length"
                break
            if len(decoder.cached) >= decoder.context:
                self._stop_reason = "context"
                break
            began = time.perf_counter()
            token = self._sampler.pick(decoder.feed(token, owner))
            self._seconds += time.perf_counter() - began
        rest = self._text.finish()
        if rest:
            yield rest
        if self._stop_reason == "context":
            raise InputError(
                f"the context of {decoder.context} tokens is full after a prompt of {len(self._prompt)} and "
                f"{len(self._generated)} generated tokens, before the answer ended",
                limit=f"context {decoder.context}",
                remedy="use a larger context (--context N), a shorter prompt or a smaller max_tokens",
            )


def _check_request(ids: Sequence[int], context: int, max_tokens: int) -> None:
    require("max_tokens", max_tokens, lambda n: n >= 1 and n == int(n), "a whole number of 1 or more")
    if not ids:
        raise InputError("the prompt is empty", remedy="give at least one character")
    if len(ids) > context:
        raise InputError(
            f"the prompt has {len(ids)} tokens, the context holds {context}",
            limit=f"context {context}",
            remedy="shorten the prompt, or use a larger context (--context N)",
        )
