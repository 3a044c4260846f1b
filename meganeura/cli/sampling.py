"""Options of commands that generate text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from meganeura.cli.options import Common, Number
from meganeura.errors import InputError

Function = Callable[..., Any]

_OPTIONS = (
    click.option("--system", metavar="TEXT", help="A system message in place of the chat template's own."),
    click.option(
        "--max-tokens",
        type=Number(1, 2**20, integer=True),
        default=256,
        show_default=True,
        help="Most tokens to answer.",
    ),
    click.option(
        "--temperature", type=Number(0, 100), default=0.0, help="Randomness; 0 takes the likeliest token. [default: 0]"
    ),
    click.option("--top-k", type=Number(0, 2**31 - 1, integer=True), default=0, help="Choose among the K likeliest."),
    click.option(
        "--top-p", type=Number(0, 1, above=True), default=1.0, help="Choose among the likeliest that reach P."
    ),
    click.option("--min-p", type=Number(0, 1), default=0.0, help="Leave out what is below P times the likeliest."),
    click.option("--seed", type=Number(0, 2**63 - 1, integer=True), help="Makes random choices repeatable."),
    click.option("--context", type=Number(1, 2**20, integer=True), help="Most tokens of prompt and answer together."),
)


@dataclass(frozen=True)
class Choices:
    """What was asked for about an answer."""

    system: str | None
    max_tokens: int
    context: int | None
    sampling: dict[str, Any]


def generation_options(function: Function) -> Function:
    """Decorator: the options of sampling and length, handed over as one `Choices` called `choices`."""

    @functools.wraps(function)
    def wrapped(*args: Any, system: str | None, max_tokens: int, context: int | None, **kwargs: Any) -> Any:
        sampling = {name: kwargs.pop(name) for name in ("temperature", "top_k", "top_p", "min_p", "seed")}
        return function(*args, choices=Choices(system, max_tokens, context, sampling), **kwargs)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def load_language_model(common: Common, model: str, context: int | None) -> Any:
    """The language model that MODEL means, on the chosen device."""
    from meganeura.cli import programs
    from meganeura.cli.options import find_model
    from meganeura.text import LanguageModel

    if common.dims:
        raise InputError("a language model has no dimension to choose here", remedy="use --context in place of --dim")
    path = find_model(model, common.output)
    if not programs.is_decoder(path):
        raise InputError(f"{path.name} is not a language model (a GGUF file)", remedy=f"meganeura run {path}")
    with common.output.step("opening the model"):
        return LanguageModel.load(path, device=common.device, context=context, options=programs.options_for(common))
