"""Vocabularies from metadata: both kinds, special tokens, streaming, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meganeura.errors import ImportFailure, InputError
from meganeura.text.pretokenize import pre_tokenizer
from meganeura.text.tokenizer import Tokenizer
from tests.frontends.gguf.tiny import tokenizer_metadata

BYTE_LEVEL = Tokenizer(tokenizer_metadata(), "tiny")


def piece_metadata(**changes: Any) -> dict[str, Any]:
    """A SentencePiece vocabulary: three specials, all bytes, letters, and pieces with scores."""
    pieces = {"\u2581": -1.0, "a": -2.0, "b": -3.0, "c": -4.0, "ab": -0.5, "bc": -0.2, "\u2581a": -0.7, "abc": -0.1}
    pieces |= {"\u2581abc": -0.05, "cc": -0.9}
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array([0.0] * 259 + list(pieces.values()), np.float32),
        "tokenizer.ggml.token_type": np.array([2, 3, 3] + [6] * 256 + [1] * len(pieces), np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **changes,
    }


PIECES = Tokenizer(piece_metadata(), "pieces")


def pieces_by_hand(text: str) -> list[str]:
    """SentencePiece's algorithm: join the neighbours whose piece scores best, until none is left."""
    meta = piece_metadata()
    score = dict(zip(meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.scores"], strict=True))
    parts = list("\u2581" + text.replace(" ", "\u2581"))
    while True:
        joins = [(score[a + b], -i) for i, (a, b) in enumerate(zip(parts, parts[1:], strict=False)) if a + b in score]
        if not joins:
            break
        at = -max(joins)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [p for part in parts for p in ([part] if part in score else [f"<0x{b:02X}>" for b in part.encode()])]


def test_byte_level_merges_and_single_digits() -> None:
    tokens = [BYTE_LEVEL.tokens[i] for i in BYTE_LEVEL.encode("the 12 other thing in a")]
    words = ["the", " ", "1", "2", " ", "o", "the", "r", " ", "th", "in", "g", " ", "in", " a"]
    assert [token.replace("\u0120", " ") for token in tokens] == words


def test_special_tokens_in_the_text_become_their_ids() -> None:
    assert BYTE_LEVEL.encode("<|im_start|>") == [1]
    assert BYTE_LEVEL.encode("a<|im_end|>b")[1] == 2
    assert BYTE_LEVEL.decode([1, *BYTE_LEVEL.encode("hi"), 2]) == "hi"
    assert (BYTE_LEVEL.bos_id, BYTE_LEVEL.eos_id, BYTE_LEVEL.end_ids) == (1, 2, {0, 2})
    assert BYTE_LEVEL.text_of(2) == "<|im_end|>" and BYTE_LEVEL.text_of(None) == ""


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_every_text_comes_back_and_streams_in_whole_characters(text: str) -> None:
    ids = BYTE_LEVEL.encode(text)
    assert BYTE_LEVEL.decode(ids) == text
    stream = BYTE_LEVEL.stream()
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) + stream.finish() == text == stream.text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_that_never_ends_is_shown_as_such() -> None:
    ids = BYTE_LEVEL.encode("né")
    stream = BYTE_LEVEL.stream()
    assert [stream.push(i) for i in ids[:2]] == ["n", ""]
    assert stream.finish() == "\ufffd"


@settings(max_examples=60, deadline=None)
@given(st.text("abc é", min_size=1, max_size=12))
def test_pieces_are_joined_by_score(text: str) -> None:
    assert [PIECES.tokens[i] for i in PIECES.encode(text)] == pieces_by_hand(text)
    assert PIECES.decode(PIECES.encode(text)) == text
    stream = PIECES.stream()
    assert "".join(stream.push(i) for i in PIECES.encode(text)) + stream.finish() == text


def test_pieces_fall_back_to_bytes_and_have_a_begin_token() -> None:
    assert [PIECES.tokens[i] for i in PIECES.encode("aé")] == ["\u2581a", "<0xC3>", "<0xA9>"]
    assert PIECES.encode("a", begin=True)[0] == 1
    assert PIECES.encode("<s>a", begin=True).count(1) == 1
    assert PIECES.end_ids == {2}
    without = Tokenizer(piece_metadata(**{"tokenizer.ggml.add_space_prefix": False}), "pieces")
    assert [without.tokens[i] for i in without.encode("ab c")] == ["ab", "\u2581", "c"]
    assert without.decode(without.encode(" ab")) == " ab"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("gpt-2", "I'm 123  x\n", ["I", "'m", " 123", " ", " x", "\n"]),
        ("smollm", "a12 b", ["a", "1", "2", " b"]),
        ("llama-bpe", "x12345 I'M!\n\n y", ["x", "123", "45", " I", "'M", "!\n\n", " y"]),
        ("qwen2", "x12 Ünï", ["x", "1", "2", " Ünï"]),
        ("tekken", "fooBar 12", ["foo", "Bar", " ", "1", "2"]),
        ("gpt-4o", "FooBAR's 1234", ["Foo", "BAR's", " ", "123", "4"]),
    ],
)
def test_words_are_cut_as_the_name_says(name: str, text: str, words: list[str]) -> None:
    # `build` maps bytes to printable characters; the offsets say what was cut.
    cut = pre_tokenizer(name, "file").build().pre_tokenize_str(text)
    assert [text[a:b] for _, (a, b) in cut] == words


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"tokenizer.ggml.model": "bert"}, "'bert' is not supported"),
        ({"tokenizer.ggml.pre": "martian"}, "'martian' is not supported"),
        ({"tokenizer.ggml.tokens": 5}, "no list of strings"),
        ({"tokenizer.ggml.merges": ["thin"]}, "'thin' is not a merge"),
        ({"tokenizer.ggml.merges": ["q\u0142 x"]}, "inconsistent"),
        ({"tokenizer.ggml.token_type": np.zeros(3, np.int32)}, "token_type"),
        ({"tokenizer.ggml.eos_token_id": 10**6}, "outside the vocabulary"),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_named(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ImportFailure, match=word):
        Tokenizer({**tokenizer_metadata(), **changes}, "file")


def test_more_tokens_than_rows_and_missing_scores_are_refused() -> None:
    with pytest.raises(ImportFailure, match="embedding has 5 rows"):
        Tokenizer(tokenizer_metadata(), "file", rows=5)
    meta = piece_metadata()
    del meta["tokenizer.ggml.scores"]
    with pytest.raises(ImportFailure, match="scores"):
        Tokenizer(meta, "file")
    with pytest.raises(ImportFailure, match="no list of strings"):
        Tokenizer({}, "file")


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InputError, match="surrogate"):
        BYTE_LEVEL.encode("a\ud800")
