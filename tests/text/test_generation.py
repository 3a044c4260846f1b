"""Generation on the tiny decoder through the reference evaluator: ends, errors, streaming, chats and cache reuse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meganeura.errors import InputError
from meganeura.frontends.gguf.model import DecoderFile
from meganeura.text import LanguageModel, Sampling
from meganeura.text.runner import ReferenceRunner, bucket
from tests.frontends.gguf.tiny import write_tiny


class Watched(ReferenceRunner):
    """The reference, noting its calls; `script` may dictate the tokens that come out."""

    def __init__(self, decoder: DecoderFile) -> None:
        super().__init__(decoder)
        self.calls: list[tuple] = []
        self.script: list[int] = []

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        self.calls.append(("prefill", len(ids)))
        return self._say(super().prefill(ids))

    def step(self, token: int, position: int) -> np.ndarray:
        self.calls.append(("step", token, position))
        return self._say(super().step(token, position))

    def _say(self, logits: np.ndarray) -> np.ndarray:
        return logits if not self.script else np.where(np.arange(len(logits)) == self.script.pop(0), 1.0, 0.0)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("text") / "tiny.gguf")


def model_of(path: Path, context: int | None = None) -> LanguageModel:
    file = DecoderFile(path, context)
    return LanguageModel(file, Watched(file))


@pytest.fixture
def model(tiny: Path) -> LanguageModel:
    return model_of(tiny)


def test_prefill_then_steps_equal_prefills_of_ever_longer_prompts(model: LanguageModel) -> None:
    result = model.generate("hi the", raw=True, max_tokens=5)
    ids, want = model.tokenizer.encode("hi the"), []
    for _ in range(len(result.token_ids)):
        logits = ReferenceRunner(model.file).prefill(ids + want)
        want.append(int(np.argmax(logits)))
    assert list(result.token_ids) == want
    assert result.prompt_tokens == len(ids) and result.tokens_per_second > 0
    assert result.text == model.tokenizer.decode(want)
    assert model.runner.calls == [  # type: ignore[attr-defined]
        ("prefill", len(ids)), *(("step", t, len(ids) + i) for i, t in enumerate(want[:-1]))
    ]  # fmt: skip


def test_the_end_token_stops_and_is_reported_but_not_shown(model: LanguageModel) -> None:
    word = model.tokenizer.encode("in a")
    model.runner.script = [*word, 2, 5]  # type: ignore[attr-defined]
    result = model.generate("x", max_tokens=50)
    assert (result.token_ids, result.text, result.stop_reason) == ((*word, 2), "in a", "end")


def test_max_tokens_stops(model: LanguageModel) -> None:
    model.runner.script = [10] * 9  # type: ignore[attr-defined]
    result = model.generate("x", max_tokens=3)
    assert (len(result.token_ids), result.stop_reason) == (3, "length")


def test_the_template_and_the_system_message_shape_the_prompt(model: LanguageModel) -> None:
    def prompt_tokens(**options) -> int:
        model.runner.script = [2]  # type: ignore[attr-defined]
        return model.generate("hi", **options).prompt_tokens

    default = "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt_tokens() == len(model.tokenizer.encode(default))
    assert prompt_tokens(system="be") == len(model.tokenizer.encode(default.replace(" kind", "")))
    assert prompt_tokens(raw=True) == len(model.tokenizer.encode("hi"))


def test_pieces_join_to_the_text_and_end_in_whole_characters(model: LanguageModel) -> None:
    text = "the é 日 end"
    model.runner.script = [*model.tokenizer.encode(text), 2]  # type: ignore[attr-defined]
    stream = model.stream("x")
    pieces = list(stream)
    assert "".join(pieces) == text == stream.result.text
    assert "é" in pieces and "日" in pieces


def test_sampling_repeats_with_a_seed(model: LanguageModel) -> None:
    def draw(seed: int) -> tuple[int, ...]:
        return model.generate("x", raw=True, max_tokens=8, temperature=3.0, top_k=50, seed=seed).token_ids

    assert draw(1) == draw(1) != draw(2)


def test_a_prompt_longer_than_the_context_is_refused_before_anything_runs(tiny: Path) -> None:
    model = model_of(tiny, context=8)
    with pytest.raises(InputError, match=r"the prompt has 9 tokens, the context holds 8.*--context"):
        model.generate("x" * 9, raw=True)
    assert model.runner.calls == []  # type: ignore[attr-defined]


def test_the_end_of_the_context_is_an_error_that_keeps_the_answer_so_far(tiny: Path) -> None:
    model = model_of(tiny, context=8)
    model.runner.script = [10] * 20  # type: ignore[attr-defined]
    stream = model.stream("x" * 6, raw=True)
    shown = []
    with pytest.raises(InputError, match="the context of 8 tokens is full after a prompt of 6 and 3 generated"):
        for piece in stream:
            shown.append(piece)
    # Two tokens fit behind the prompt, and the logits after the second give a third.
    assert stream.result.stop_reason == "context" and len(stream.result.token_ids) == 3
    assert "".join(shown) == stream.result.text
    assert max(c[-1] for c in model.runner.calls if c[0] == "step") == 7  # type: ignore[attr-defined]
    model.runner.script = [10] * 20  # type: ignore[attr-defined]
    full = model_of(tiny, context=8).generate("x" * 8, raw=True, max_tokens=1)
    assert len(full.token_ids) == 1 and full.stop_reason == "length"


@pytest.mark.parametrize(
    ("prompt", "options", "word"),
    [
        ("", {"raw": True}, "prompt is empty"),
        ("x", {"max_tokens": 0}, "max_tokens"),
        ("x", {"max_tokens": -3}, "max_tokens"),
        ("x", {"max_tokens": "x"}, "max_tokens='x'"),
        ("x", {"max_tokens": None}, "max_tokens"),
        ("x", {"max_tokens": float("nan")}, "max_tokens"),
        ("x", {"temperature": "warm"}, "temperature"),
        ("x", {"top_k": 2.5}, "top_k"),
        ("x", {"top_p": None}, "top_p"),
        ("x", {"min_p": "x"}, "min_p"),
        ("x", {"seed": 1.5}, "seed"),
        (7, {}, "prompt=7"),
        (None, {"raw": True}, "prompt"),
        ("x", {"temperature": -1.0}, "temperature"),
        ("x", {"raw": True, "system": "s"}, "raw prompt takes no system"),
    ],
)
def test_requests_that_make_no_sense_are_refused(model: LanguageModel, prompt: Any, options: dict, word: str) -> None:
    with pytest.raises(InputError, match=word):
        model.generate(prompt, **options)
    assert model.runner.calls == []  # type: ignore[attr-defined]


def test_a_file_without_a_template_takes_raw_prompts_only(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "t.gguf")
    path.write_bytes(path.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_templat_"))
    model = model_of(path)
    with pytest.raises(InputError, match="no chat template"):
        model.generate("hi")
    assert model.generate("hi", raw=True, max_tokens=1).prompt_tokens == 2


def test_a_second_generation_takes_the_caches_over(model: LanguageModel) -> None:
    model.runner.script = [10] * 30  # type: ignore[attr-defined]
    first = model.stream("one")
    next(first)
    assert len(model.generate("two", max_tokens=2).token_ids) == 2
    with pytest.raises(InputError, match="another generation was started"):
        list(first)


def test_a_chat_remembers_and_computes_only_what_is_new(tiny: Path) -> None:
    model = model_of(tiny)
    runner: Watched = model.runner  # type: ignore[assignment]
    chat = model.chat("be")
    answer = model.tokenizer.encode("in the")
    runner.script = [*answer, 2]
    first = chat.say("hi" * 75)
    assert "".join(first) == "in the" and chat.last == first.result
    assert [m["role"] for m in chat.messages] == ["system", "user", "assistant"]

    held = first.result.prompt_tokens + len(answer)
    runner.calls.clear()
    # The script says nothing while the rest of the prompt is stepped through.
    second = chat.say("a")
    whole = model.prompt_ids([*chat.messages, {"role": "user", "content": "a"}])
    runner.script = [0] * (len(whole) - held - 1) + [2]
    assert "".join(second) == ""
    assert [c[2] for c in runner.calls] == list(range(held, len(whole)))
    assert chat.messages[-2:] == [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]
    chat.reset()
    assert [m["role"] for m in chat.messages] == ["system"]


def test_reused_caches_give_the_same_answer(tiny: Path) -> None:
    fresh, used = model_of(tiny), model_of(tiny)
    used.generate("the other thing a", raw=True, max_tokens=3)
    used.runner.calls.clear()  # type: ignore[attr-defined]
    again = used.generate("the other thing in", raw=True, max_tokens=6)
    assert again.token_ids == fresh.generate("the other thing in", raw=True, max_tokens=6).token_ids
    assert used.runner.calls[0][0] == "step"  # type: ignore[attr-defined]


def test_a_chat_that_outgrows_the_context_says_so_and_stays_as_it_was(tiny: Path) -> None:
    model = model_of(tiny, context=60)
    chat = model.chat()
    with pytest.raises(InputError, match="the context holds 60"):
        chat.say("x" * 60)
    assert chat.messages == []
    model.runner.script = [2]  # type: ignore[attr-defined]
    assert list(chat.say("hi", sampling=Sampling(), max_tokens=4)) == []


def test_buckets_are_few_and_waste_little() -> None:
    asked = {1: 16, 16: 16, 17: 32, 37: 48, 64: 64, 65: 96, 128: 128, 129: 192, 2048: 2048}
    assert {n: bucket(n, 2048) for n in asked} == asked
    assert bucket(30, 20) == 20
    sizes = {bucket(n, 2048) for n in range(1, 2049)}
    assert len(sizes) <= 16 and all(bucket(n, 2048) <= max(16, 2 * n) for n in range(1, 2049))
