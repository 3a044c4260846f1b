"""Where words go: results to stdout, everything else to stderr, and with --json only JSON to stdout."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from meganeura.errors import MeganeuraError


class Output:
    """The two streams of a command.

    Args:
        as_json: results are one JSON value on stdout; what a person would read is left out.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.results = _console(sys.stdout)
        self.notices = _console(sys.stderr)

    def json(self, value: Any) -> None:
        """Write one JSON value; numbers that JSON lacks (NaN, infinity) become null."""
        self.write(json.dumps(_plain(value), ensure_ascii=False, indent=2, allow_nan=False) + "\n")

    def write(self, text: str) -> None:
        """Write text to stdout as it stands, at once."""
        with naming_stdout():
            sys.stdout.write(text)
            sys.stdout.flush()

    def result(self, text: str = "", style: str | None = None, end: str = "\n") -> None:
        """A line of the result for a person; nothing with --json."""
        if not self.as_json:
            with naming_stdout():
                self.results.print(text, style=style, markup=False, end=end, soft_wrap=True)

    def table(self, headings: tuple[str, ...], rows: list[tuple[Any, ...]], title: str = "") -> None:
        """A table of the result for a person; numbers are set to the right."""
        if self.as_json:
            return
        numeric = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(headings))]
        table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for heading, is_number in zip(headings, numeric, strict=True):
            table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
        with naming_stdout(), self.results.capture() as drawn:
            self.results.print(table, markup=False)
        self.write("".join(line.rstrip() + "\n" for line in drawn.get().splitlines()))

    def notice(self, text: str, style: str | None = None) -> None:
        """A line for whoever watches, never part of the result."""
        self.notices.print(text, style=style, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Show that something is under way: a spinner on a terminal, one line elsewhere."""
        if self.notices.is_terminal:
            with self.notices.status(f"{text} ..."):
                yield
        else:
            self.notice(f"{text} ...")
            yield

    @contextmanager
    def download(self, text: str) -> Iterator[Any]:
        """Gives a function of bytes so far and in all that draws a bar, or one line where there is no terminal."""
        if not self.notices.is_terminal:
            said = False

            def tell(_done: int, total: int) -> None:
                nonlocal said
                if not said:
                    self.notice(f"{text} ({total / 1e6:.0f} MB) ...")
                    said = True

            yield tell
            return
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self.notices, transient=True) as bar:
            task = bar.add_task(text, total=None, visible=False)
            yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # the frame decides what becomes of the process: rich would end it with 1, our code of a mismatch


def _console(stream: Any) -> Console:
    # A pipe has no width: each row of a table stays on one line there.
    return _Console(file=stream, highlight=False, width=None if stream.isatty() else 1000)


@contextmanager
def naming_stdout() -> Iterator[None]:
    """Let a failure to write say that it was stdout which could not be written."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def settle(stream: Any) -> None:
    """Write out what a stream still holds, or give it up: Python would complain about it while closing."""
    try:
        stream.flush()
    except (OSError, ValueError):
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            stream.flush()
        except (OSError, ValueError):  # a stream without a file of its own
            return


def error_fields(problem: BaseException) -> dict[str, Any]:
    """What is said about a failure, as the fields of the JSON error object."""
    if isinstance(problem, MeganeuraError):
        return problem.as_dict()
    if isinstance(problem, click.ClickException):
        return {"type": "InputError", "message": problem.format_message()}
    if isinstance(problem, OSError) and problem.strerror:
        where = f"{problem.filename}: " if problem.filename else ""
        return {"type": type(problem).__name__, "message": f"{where}{problem.strerror}"}
    if isinstance(problem, MemoryError):
        return {"type": "MemoryError", "message": "not enough memory"}
    return {"type": type(problem).__name__, "message": str(problem) or type(problem).__name__}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)
