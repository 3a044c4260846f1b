"""Text to token ids and back, from the vocabulary inside a GGUF file, through the `tokenizers` library.

Two kinds of vocabulary are read: byte-level BPE (`gpt2`: tokens, merges and the name of a pre-tokenizer) and
SentencePiece's scored pieces with byte fallback (`llama`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from meganeura.errors import ImportFailure, InputError
from meganeura.text.pretokenize import pre_tokenizer

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
"""Token types that matter here, as numbered in `tokenizer.ggml.token_type`."""
_SPACE = "\u2581"
"""SentencePiece's visible space."""
_END_MARKERS = frozenset(
    ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>")
)
"""Control tokens that end a turn or a text wherever a vocabulary has them."""


class Tokenizer:
    """A file's tokenizer.

    Args:
        metadata: the file's metadata. label: the file's name, for messages.
        rows: rows of the embedding table; ids must stay below it.

    Attributes:
        bos_id, eos_id: begin- and end-of-text ids, None where the file names none.
        end_ids: ids after which generation stops.
        size: number of tokens.
    Raises ImportFailure where the vocabulary is missing, unsupported or inconsistent.
    """

    def __init__(self, metadata: Mapping[str, Any], label: str, rows: int | None = None) -> None:
        self._metadata, self._label = metadata, label
        kind = str(metadata.get("tokenizer.ggml.model", "none"))
        self.tokens: list[str] = self._strings("tokenizer.ggml.tokens")
        self.size = len(self.tokens)
        if rows is not None and self.size > rows:
            raise self._failure(f"{self.size} tokens, but the embedding has {rows} rows", "tokenizer.ggml.tokens")
        self._types = self._numbers("tokenizer.ggml.token_type", np.ones(self.size, np.int32))
        if kind == "gpt2":
            self._backend = self._byte_level()
        elif kind == "llama":
            self._backend = self._sentence_pieces()
        else:
            raise self._failure(
                f"tokenizer {kind!r} is not supported", "tokenizer.ggml.model", "use a gpt2 or llama tokenizer"
            )
        self._add_special()
        self.bos_id, self.eos_id = self._id("bos"), self._id("eos")
        named = (self._id(name) for name in ("eos", "eot", "eom"))
        marked = (i for i in np.flatnonzero(self._types == _CONTROL) if self.tokens[i] in _END_MARKERS)
        self.end_ids = frozenset(int(i) for i in (*named, *marked) if i is not None)
        # SentencePiece vocabularies start texts with their begin token unless told otherwise.
        self._adds_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", kind == "llama")) and self.bos_id is not None

    # ---- use ------------------------------------------------------------------------------------------

    def encode(self, text: str, *, begin: bool = False) -> list[int]:
        """Token ids of a text; special tokens written in it (`<|im_start|>`) become their ids.

        Args:
            begin: put the begin-of-text token first if the file asks for one and the text has none yet.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError("the text holds half a surrogate pair and has no UTF-8 form") from None
        ids = list(self._backend.encode(text, add_special_tokens=False).ids)
        if begin and self._adds_bos and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)  # type: ignore[arg-type]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, special tokens left out; bytes that are not UTF-8 become U+FFFD."""
        return self._backend.decode([int(i) for i in ids], skip_special_tokens=True)

    def text_of(self, token_id: int | None) -> str:
        """A token as the vocabulary writes it; empty for None."""
        return "" if token_id is None else self.tokens[token_id]

    def stream(self) -> TextStream:
        """A decoder for ids that arrive one by one."""
        return TextStream(self)

    # ---- building -------------------------------------------------------------------------------------

    def _byte_level(self) -> Any:
        from tokenizers import decoders

        cut = pre_tokenizer(str(self._metadata.get("tokenizer.ggml.pre", "default")), self._label)
        merges = []
        for line in self._strings("tokenizer.ggml.merges"):
            left, space, right = line.partition(" ")
            if not (left and space and right):
                raise self._failure(f"{line!r} is not a merge", "tokenizer.ggml.merges")
            merges.append((left, right))
        backend = self._bpe(merges, ignore_merges=cut.whole_words)
        backend.pre_tokenizer, backend.decoder = cut.build(), decoders.ByteLevel()
        return backend

    def _sentence_pieces(self) -> Any:
        from tokenizers import decoders, normalizers

        unknown = self._id("unknown")
        scores = self._numbers("tokenizer.ggml.scores")
        options: dict[str, Any] = {"byte_fallback": True, "fuse_unk": True}
        if unknown is not None:
            options["unk_token"] = self.tokens[unknown]
        backend = self._bpe(self._merges_by_score(scores), **options)
        prefix = bool(self._metadata.get("tokenizer.ggml.add_space_prefix", True))
        steps: list[Any] = [normalizers.Prepend(_SPACE)] if prefix else []
        backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
        undo: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        backend.decoder = decoders.Sequence([*undo, decoders.Strip(" ", 1, 0)] if prefix else undo)
        return backend

    def _merges_by_score(self, scores: np.ndarray) -> list[tuple[str, str]]:
        """SentencePiece joins the pair whose piece scores best: as merges, every split of every piece, best first."""
        known = set(self.tokens)
        merges: list[tuple[str, str]] = []
        plain = (self._types != _CONTROL) & (self._types != _UNKNOWN)
        for index in np.argsort(-scores, kind="stable"):
            piece = self.tokens[index]
            if plain[index]:
                splits = ((piece[:at], piece[at:]) for at in range(1, len(piece)))
                merges += [pair for pair in splits if pair[0] in known and pair[1] in known]
        return merges

    def _bpe(self, merges: list[tuple[str, str]], **options: Any) -> Any:
        from tokenizers import Tokenizer as Backend
        from tokenizers.models import BPE

        vocabulary: dict[str, int] = {}
        for index, token in enumerate(self.tokens):
            vocabulary.setdefault(token, index)
        try:
            return Backend(BPE(vocab=vocabulary, merges=merges, **options))
        except Exception as error:  # the library raises bare Exception
            raise self._failure(f"the vocabulary is inconsistent: {error}", "tokenizer.ggml.merges") from None

    def _add_special(self) -> None:
        from tokenizers import AddedToken

        def added(kind: int) -> list[Any]:
            texts = (self.tokens[i] for i in np.flatnonzero(self._types == kind))
            return [AddedToken(t, special=kind == _CONTROL, normalized=False) for t in texts if t]

        self._backend.add_special_tokens(added(_CONTROL))
        self._backend.add_tokens(added(_USER_DEFINED))

    # ---- metadata -------------------------------------------------------------------------------------

    def _failure(self, message: str, key: str, remedy: str | None = None) -> ImportFailure:
        return ImportFailure(f"{self._label}: {message}", source=key, remedy=remedy)

    def _strings(self, key: str) -> list[str]:
        value = self._metadata.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._failure(f"the metadata has no list of strings {key!r}", key)
        return value

    def _numbers(self, key: str, default: np.ndarray | None = None) -> np.ndarray:
        value = self._metadata.get(key, default)
        if not isinstance(value, np.ndarray) or value.shape != (self.size,):
            raise self._failure(f"the metadata has no {self.size} numbers {key!r}", key)
        return value

    def _id(self, name: str) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        value = self._metadata.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or not 0 <= value < self.size:
            raise self._failure(f"{key} is {value!r}, outside the vocabulary of {self.size}", key)
        return value


class TextStream:
    """Turns ids into pieces of text that never end within a character; the pieces join to the whole text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._start = self._read = 0
        self._sent = 0

    def push(self, token_id: int) -> str:
        """The text this id completes; empty while a character is still open."""
        self._ids.append(token_id)
        # Decoding from the last clean cut gives the new text with the spacing its left neighbour implies.
        before = self._tokenizer.decode(self._ids[self._start : self._read])
        after = self._tokenizer.decode(self._ids[self._start :])
        if after.endswith("\ufffd") or len(after) <= len(before):
            return ""
        self._start, self._read = self._read, len(self._ids)
        self._sent += len(after) - len(before)
        return after[len(before) :]

    def finish(self) -> str:
        """What is left, with U+FFFD for bytes that never became a character."""
        return self.text[self._sent :]

    @property
    def text(self) -> str:
        """The text of all ids so far."""
        return self._tokenizer.decode(self._ids)

    @property
    def ids(self) -> Sequence[int]:
        """All ids so far."""
        return self._ids
