"""Options that several commands share, and the types that refuse what makes no sense."""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from meganeura import assets
from meganeura.cli.output import Output
from meganeura.errors import InputError

Function = Callable[..., Any]


@dataclass(frozen=True)
class Common:
    """What every command was told.

    Attributes:
        output: where words go. device: index or part of a name, None for the best.
        optimize: whether rewrite rules are used. dims: values of symbolic dimensions by name.
        weights: storage of weights on the device, as in `CompileOptions`. rules: paths of further rule files.
    """

    output: Output = field(default_factory=Output)
    device: str | None = None
    optimize: bool = True
    dims: dict[str, int] = field(default_factory=dict)
    weights: str = "packed"
    rules: tuple[str, ...] = ()


class Number(click.ParamType):
    """A finite number within bounds, its text shown in the complaint; `above`: the least itself is out of bounds."""

    name = "number"

    def __init__(self, least: float, most: float, *, integer: bool = False, above: bool = False) -> None:
        self.least, self.most, self.integer, self.above = least, most, integer, above
        self.name = "integer" if integer else "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            number = int(value) if self.integer else float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not {'a whole number' if self.integer else 'a number'}", param, ctx)
        if not math.isfinite(number) or not self.least <= number <= self.most:
            self.fail(f"{value} is not between {self.least:g} and {self.most:g}", param, ctx)
        if self.above and number == self.least:
            self.fail(f"{value} is not above {self.least:g}", param, ctx)
        return number


class NewPath(click.Path):
    """Where something is to be written; an empty name, which pathlib takes for the current folder, is refused."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(path_type=Path, **kwargs)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


def check_writable(path: Path, folder: bool = False) -> None:
    """Raise InputError when a file cannot be written there, before work is spent on what is to be in it.

    Args:
        path: a file whose folder has to exist, or with `folder` a folder, made later if need be.
    """
    place = path.absolute()
    if not folder:
        if not place.parent.is_dir():
            raise InputError(f"the folder of {path} is not there", remedy="make it first")
        place = place if place.exists() else place.parent
    else:
        while not os.path.lexists(place):
            place = place.parent
        if not place.is_dir():
            raise InputError(f"{place} is not a folder", source=str(path), remedy="name another")
    if not os.access(place, os.W_OK | (os.X_OK if place.is_dir() else 0)):
        raise InputError(f"{place} cannot be written", source=str(path), remedy="name another place")


def filled(_ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Callback that refuses an empty text, alone or among several."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter("the name is empty", param=param)
    return value


class Binding(click.ParamType):
    """`NAME=VALUE`, split at the first sign; the value is read by another type."""

    name = "binding"

    def __init__(self, value: click.ParamType, metavar: str) -> None:
        self.value, self.metavar = value, metavar

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return self.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        name, sign, text = str(value).partition("=")
        if not sign or not name or not text:
            self.fail(f"{value!r} is not of the form {self.metavar}", param, ctx)
        return name, self.value.convert(text, param, ctx)


DIMENSION = Binding(Number(0, 2**31 - 1, integer=True), "NAME=N")


def once_each(_ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Callback of repeatable `NAME=VALUE` options: a dictionary; the same name twice is a mistake."""
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = sorted({name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1})
        raise click.BadParameter(f"{', '.join(twice)} is given twice", param=param)
    return result


_DEVICE = click.option(
    "--device",
    metavar="WHICH",
    callback=filled,
    help="Index or part of the name of the adapter to use (see `meganeura devices`).",
)
_NO_OPTIMIZE = click.option(
    "--no-optimize", is_flag=True, help="One dispatch per primitive operation, no rewrite rules."
)
_DIM = click.option(
    "--dim",
    "dims",
    type=DIMENSION,
    multiple=True,
    callback=once_each,
    help="Value of a symbolic dimension; repeatable.",
)
_WEIGHTS = click.option(
    "--weights",
    type=click.Choice(["packed", "f32", "f16"]),
    default="packed",
    show_default=True,
    help="How the device stores weights; packed: quantised as in the file, float32 where they are not.",
)
_RULES = click.option(
    "--rules", metavar="FILE", multiple=True, callback=filled, help="A further rule file (.egg); repeatable."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON value to stdout and nothing else there.")
_VERBOSE = click.option("-v", "--verbose", is_flag=True, help="Log what happens, and show traces of errors.")


def common_options(*, compiles: bool = True, device: bool = False) -> Callable[[Function], Function]:
    """Decorator: the options shared by commands, handed over as one `Common` called `common`.

    Args:
        compiles: False for commands without options of the compiler, which only have --json and --verbose.
        device: --device all the same.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def wrapped(*args: Any, as_json: bool, verbose: bool, **kwargs: Any) -> Any:
            start_logging(verbose)
            output = Output(as_json)
            chosen = {key: kwargs.pop(key) for key in ("device", "dims", "weights", "rules") if key in kwargs}
            if compiles:
                chosen["optimize"] = not kwargs.pop("no_optimize")
            return function(*args, common=Common(output=output, **chosen), **kwargs)

        options = [_DEVICE, _NO_OPTIMIZE, _DIM, _WEIGHTS, _RULES] if compiles else [_DEVICE] if device else []
        for option in reversed([*options, _JSON, _VERBOSE]):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def model_argument(function: Function) -> Function:
    """Decorator: the MODEL argument, a path or the name of a model that can be fetched."""
    return click.argument("model", metavar="MODEL", callback=filled)(function)


def find_model(model: str, output: Output) -> Path:
    """The file that MODEL means, fetched when it is a known name and no file is called so."""
    path = Path(model)
    if path.exists() or model not in assets.ASSETS:
        return path
    with output.download(f"fetching {model}") as progress:
        return assets.fetch(model, progress)


def start_logging(verbose: bool) -> None:
    """Send the package's log to stderr, warnings only unless asked for more."""
    logger = logging.getLogger("meganeura")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
