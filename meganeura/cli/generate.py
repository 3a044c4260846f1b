"""`meganeura generate`: one prompt, one answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click

from meganeura.cli.options import Common, common_options, model_argument
from meganeura.cli.output import Output
from meganeura.cli.sampling import Choices, generation_options, load_language_model
from meganeura.errors import InputError


@click.command(
    epilog="""\b
Examples:
  meganeura generate smollm2 --prompt "What is the capital of France?"
  meganeura generate model.gguf --prompt "Write a haiku." --temperature 0.8 --seed 1
  meganeura generate model.gguf --prompt "Once upon a time" --raw --max-tokens 40
  meganeura generate smollm2 --prompt "Name a colour." --json"""
)
@model_argument
@click.option("--prompt", metavar="TEXT", required=True, help="What to answer.")
@click.option("--raw", is_flag=True, help="Go on from the prompt as it is, without the file's chat template.")
@generation_options
@common_options()
def command(common: Common, model: str, prompt: str, raw: bool, choices: Choices) -> None:
    """Answer a prompt with the language model in MODEL (a GGUF file), streaming the text.

    The answer is the likeliest one (greedy) unless --temperature says otherwise, and ends with the model's end token
    or after --max-tokens.
    """
    language = load_language_model(common, model, choices.context)
    answer = language.stream(prompt, system=choices.system, raw=raw, max_tokens=choices.max_tokens, **choices.sampling)
    try:
        show_stream(common.output, answer)
    except InputError as full:
        raise Unfinished(full, answer_fields(answer.result)) from full
    result = answer.result
    if common.output.as_json:
        common.output.json(answer_fields(result))
    common.output.notice(
        f"{result.prompt_tokens} prompt tokens, {len(result.token_ids)} generated, "
        f"{result.tokens_per_second:.1f} tokens/s on {language.runner.device.facts.name}",
        style="dim",
    )


class Unfinished(InputError):
    """A request that failed on the way, with what there is of its result as further fields of the JSON error.

    Args:
        cause: what went wrong. partial: the fields.
    """

    def __init__(self, cause: InputError, partial: Mapping[str, Any]) -> None:
        super().__init__(
            cause.summary,
            op=cause.op,
            source=cause.source,
            shapes=cause.shapes,
            limit=cause.limit,
            remedy=cause.remedy,
        )
        self.partial = dict(partial)

    def as_dict(self) -> dict[str, Any]:
        return {**self.partial, **super().as_dict(), "type": InputError.__name__}


def show_stream(output: Output, pieces: Iterator[str], waiting: str = "compiling and reading the prompt") -> None:
    """Write an answer as it comes: to stdout, or to stderr where JSON has stdout and somebody watches."""
    writer = _Writer(output)
    with output.step(waiting):
        first = next(pieces, None)
    try:
        if first is not None:
            writer.write(first)
            for piece in pieces:
                writer.write(piece)
    finally:
        writer.end()


@dataclass
class _Writer:
    output: Output
    began: bool = False

    def write(self, text: str) -> None:
        if not self.output.as_json:
            self.output.write(text)
        elif self.output.notices.is_terminal:
            sys.stderr.write(text)
            sys.stderr.flush()
        else:
            return
        self.began = True

    def end(self) -> None:
        if self.began or not self.output.as_json:
            self.write("\n")


def answer_fields(result: Any) -> dict[str, Any]:
    """A `Generation` as JSON."""
    return {
        "text": result.text,
        "token_ids": list(result.token_ids),
        "prompt_tokens": result.prompt_tokens,
        "tokens_per_second": result.tokens_per_second,
        "stop_reason": result.stop_reason,
    }
