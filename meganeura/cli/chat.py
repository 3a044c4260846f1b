"""`meganeura chat`: a conversation."""

from __future__ import annotations

import sys
from typing import Any

import click

from meganeura.cli.generate import Unfinished, answer_fields, show_stream
from meganeura.cli.options import Common, common_options, model_argument
from meganeura.cli.sampling import Choices, generation_options, load_language_model
from meganeura.errors import InputError


@click.command(
    epilog="""\b
Examples:
  meganeura chat smollm2
  meganeura chat model.gguf --system "Answer in one sentence." --temperature 0.7
  printf 'Hello!\\nWhat did I just say?\\n' | meganeura chat smollm2 --json"""
)
@model_argument
@generation_options
@common_options()
def command(common: Common, model: str, choices: Choices) -> None:
    """Talk with the language model in MODEL (a GGUF file); it remembers what was said.

    Each line is a message. /reset forgets the conversation, /exit or Ctrl-D ends it. With --json the answers are
    written as one list at the end.
    """
    from meganeura.text import Sampling

    if sys.stdin is None:
        raise InputError("standard input is closed", remedy="send messages to it, one a line")
    sampling = Sampling(**choices.sampling)
    language = load_language_model(common, model, choices.context)
    chat = language.chat(choices.system)
    output = common.output
    answers: list[dict[str, Any]] = []
    typed_by_hand = sys.stdin.isatty()
    if typed_by_hand:
        output.notice("one line is one message; /reset forgets, /exit or Ctrl-D ends", style="dim")
    while True:
        text = _read_line(typed_by_hand)
        if text is None or text == "/exit":
            break
        if text == "/reset":
            chat.reset()
            output.notice("forgotten", style="dim")
        elif text:
            answer = None
            try:
                answer = chat.say(text, max_tokens=choices.max_tokens, sampling=sampling)
                show_stream(output, answer, waiting="thinking")
            except InputError as full:
                if not typed_by_hand:
                    if answer is not None and answer.result.token_ids:
                        answers.append(answer_fields(answer.result))
                    raise Unfinished(full, {"answers": answers, "messages": chat.messages}) from full
                output.notice(f"error: {full}; /reset starts over", style="red")
                continue
            answers.append(answer_fields(answer.result))
    if output.as_json:
        output.json({"answers": answers, "messages": chat.messages})


def _read_line(typed_by_hand: bool) -> str | None:
    """The next message, None at the end of the input."""
    if typed_by_hand:
        # Written here because input() would put its prompt on stdout.
        sys.stderr.write("> ")
        sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        if typed_by_hand:
            sys.stderr.write("\n")
        return None
    return line.strip()
