"""How byte-pair vocabularies cut text into words before merging, by the name in `tokenizer.ggml.pre`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meganeura.errors import ImportFailure

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words(digits: str) -> str:
    """Contractions; letters with one leading other character; runs of digits; punctuation; white space."""
    return rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"


def _cased_words(suffix: str, digits: str) -> str:
    """The same with words cut where lower case turns to upper case; `suffix` may follow a word."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = rf"{lead}{upper}*{lower}+{suffix}|{lead}{upper}+{lower}*{suffix}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


@dataclass(frozen=True)
class PreTokenizer:
    """One way to cut text.

    Attributes:
        pattern: regular expression of a word; empty for GPT-2's own, which the library has built in.
        single_digits: every digit is a word of its own, cut before anything else.
        whole_words: a word that is in the vocabulary is taken whole, merges or not.
    """

    pattern: str = ""
    single_digits: bool = False
    whole_words: bool = False

    def build(self) -> Any:
        """The `tokenizers` object."""
        from tokenizers import Regex, pre_tokenizers

        steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if self.single_digits else []
        if self.pattern:
            steps.append(pre_tokenizers.Split(Regex(self.pattern), behavior="isolated"))
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not self.pattern))
        return pre_tokenizers.Sequence(steps)


_GPT2 = PreTokenizer()
_DIGITS = PreTokenizer(single_digits=True)
_THREE_DIGITS = PreTokenizer(_words(r"\p{N}{1,3}"), whole_words=True)
_ONE_DIGIT = PreTokenizer(_words(r"\p{N}"))

_BY_NAME: dict[str, PreTokenizer] = {
    **dict.fromkeys(("default", "gpt-2", "phi-2", "mpt", "olmo", "roberta-bpe", "jina-v2-code"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "smaug-bpe", "dbrx"), _THREE_DIGITS),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"), _ONE_DIGIT),
    "tekken": PreTokenizer(_cased_words("", r"\p{N}"), whole_words=True),
    "gpt-4o": PreTokenizer(_cased_words(rf"{_CONTRACTION}?", r"\p{N}{1,3}")),
}


def pre_tokenizer(name: str, label: str) -> PreTokenizer:
    """The way of cutting called `name`; ImportFailure when unknown, because a wrong one gives wrong tokens silently."""
    if name not in _BY_NAME:
        raise ImportFailure(
            f"{label}: pre-tokenizer {name!r} is not supported",
            source="tokenizer.ggml.pre",
            remedy=f"known are {', '.join(sorted(_BY_NAME))}",
        )
    return _BY_NAME[name]
