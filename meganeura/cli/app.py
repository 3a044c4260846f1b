"""The frame around every command: which file holds it, what its failures look like, how Ctrl-C ends it.

Exit codes: 0 done; 1 a mismatch was found; 2 a mistake of the user's, a file's or the device's; 130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

import meganeura
from meganeura import interrupt
from meganeura.cli.output import Output, error_fields, naming_stdout, settle
from meganeura.errors import InputError, MeganeuraError

COMMANDS = {
    "demo": "See a language model answer and what the compiler did for it.",
    "run": "Run a model once on arrays from .npy files.",
    "generate": "Answer a prompt with a language model.",
    "chat": "Talk with a language model.",
    "explain": "Show what the compiler makes of a model.",
    "verify": "Compare optimised, unoptimised and reference results.",
    "rules": "List the rewrite rules, or read one.",
    "opt": "Print a model's graph after a phase of the compiler.",
    "devices": "List the adapters that programs can run on.",
    "bench": "Measure a model, optimised and not, beside PyTorch where it is installed.",
}

_EPILOG = """\b
Start here:
  meganeura demo
  meganeura generate smollm2 --prompt "What is the capital of France?"
  meganeura explain model.onnx --dim batch=1 --dim sequence=64

\b
MODEL is a file (.onnx, .gguf), or smollm2 or minilm, which are fetched once into your cache.
Results go to stdout, everything else to stderr; with --json nothing but JSON goes to stdout.
Exit codes: 0 done, 1 results differ, 2 a mistake in what was asked or in a file, 130 interrupted."""


class _ReaderLeft(Exception):
    """Whoever read our output went away."""


@contextmanager
def _noticing_the_reader() -> Iterator[None]:
    # click would end the process with 1 on a BrokenPipeError, which is the code of a mismatch.
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderLeft from error


class _Commands(click.Group):
    """Imports a command's module only when it is asked for: `--help` answers at once."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _noticing_the_reader():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _noticing_the_reader():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"meganeura.cli.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _show_version(context: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"meganeura {meganeura.__version__}")
        context.exit()


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Say which.")
@click.pass_context
def cli(context: click.Context) -> None:
    """Compile neural networks through an e-graph into WGSL kernels, and run them on this machine's GPU or CPU."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; never lets an exception out."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    interrupt.install()
    if sys.stderr is None:  # closed by the caller, who wants to hear nothing
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        # A file opened later could take its number, and a library's print would then go there.
        problem = InputError("standard output is closed", remedy="send it to /dev/null where it is not wanted")
        print(f"error: {problem}", file=sys.stderr)
        return 2
    try:
        return _run(given, Output(as_json="--json" in given))
    finally:
        settle(sys.stdout)
        settle(sys.stderr)


def _run(given: list[str], output: Output) -> int:
    try:
        try:
            result = cli.main(args=given, prog_name="meganeura", standalone_mode=False)
        except click.exceptions.Exit as stop:
            result = stop.exit_code
        with naming_stdout():
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, click.Abort):
        return interrupt.CODE
    except click.ClickException as mistake:
        return _fail(output, mistake, _usage_hint(mistake))
    except (_ReaderLeft, BrokenPipeError):
        return 2  # which is a reader's right, so nothing is said
    except (MeganeuraError, OSError, MemoryError) as problem:
        return _fail(output, problem, _trace_if_verbose(given))
    except BaseException as bug:  # Rust panics derive from BaseException
        if isinstance(bug, (SystemExit, GeneratorExit)):
            raise
        hint = "" if _verbose(given) else "this is a mistake in meganeura; -v shows where"
        return _fail(output, bug, _trace_if_verbose(given) or hint)


def _fail(output: Output, problem: BaseException, hint: str = "") -> int:
    fields = error_fields(problem)
    # What is wrong may be the very stream; the other one and the exit code still tell.
    with suppress(OSError):
        if output.as_json:
            output.json({"error": fields})
    with suppress(OSError):
        output.notice(f"error: {fields['message']}", style="red")
        if hint:
            output.notice(hint)
    return 2


def _usage_hint(mistake: click.ClickException) -> str:
    context = getattr(mistake, "ctx", None)
    return f"try: {context.command_path} --help" if context is not None else ""


def _verbose(given: Sequence[str]) -> bool:
    return "-v" in given or "--verbose" in given


def _trace_if_verbose(given: Sequence[str]) -> str:
    return traceback.format_exc() if _verbose(given) else ""
