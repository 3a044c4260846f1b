"""`meganeura generate`: one prompt, one answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from meganeura.cli.options import Common, common_options, model_argument
from meganeura.cli.output import Output
from meganeura.cli.sampling import Choices, generation_options, load_language_model


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
    show_stream(common.output, answer)
    result = answer.result
    if common.output.as_json:
        common.output.json(answer_fields(result))
    common.output.notice(
        f"{result.prompt_tokens} prompt tokens, {len(result.token_ids)} generated, "
        f"{result.tokens_per_second:.1f} tokens/s on {language.runner.device.facts.name}",
        style="dim",
    )


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

    @property
    def _stream(self) -> Any:
        if not self.output.as_json:
            return sys.stdout
        return sys.stderr if self.output.notices.is_terminal else None

    def write(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()
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
