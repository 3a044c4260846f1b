"""What holds for every command: help, mistakes, exit codes, streams."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import click
import pytest

from meganeura.cli.app import COMMANDS, main
from meganeura.cli.output import error_fields
from meganeura.errors import LimitError
from tests.cli.conftest import Shell, python_with_interrupts


def test_help_lists_every_command(shell: Shell) -> None:
    told = shell("--help").done().out
    for name, sentence in COMMANDS.items():
        assert f"  {name} " in told
        assert sentence.split()[0] in told
    assert shell("").done().out == told


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_by_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    told = capsys.readouterr().out
    assert "Example" in told
    assert f"  meganeura {name}" in told


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("nonsense", "nonsense"),
        ("devices --nonsense", "--nonsense"),
        ("run", "MODEL"),
        ("rules show", "NAME"),
        ("opt model.onnx --print-after nonsense", "nonsense"),
    ],
)
def test_usage_mistakes(shell: Shell, line: str, word: str) -> None:
    typed = shell(line).refused(word)
    assert typed.out == ""
    error = shell(f"{line} --json").refused(word).json["error"]
    assert error["type"] == "InputError"
    assert word in error["message"]


@pytest.mark.parametrize("failure", [LimitError("too big", limit="4"), OSError(28, "no room"), MemoryError()])
def test_failures_become_one_message(
    failure: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def command(as_json: bool) -> None:
        raise failure

    monkeypatch.setattr("meganeura.cli.app._Commands.get_command", lambda *_: command)
    assert main(["run", "--json"]) == 2
    streams = capsys.readouterr()
    assert json.loads(streams.out) == {"error": error_fields(failure)}
    assert streams.err.startswith("error: ") and "Traceback" not in streams.err


def test_a_panic_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Panic(BaseException):
        pass

    @click.command()
    def command() -> None:
        raise Panic("inside a library")

    monkeypatch.setattr("meganeura.cli.app._Commands.get_command", lambda *_: command)
    assert main(["run"]) == 2
    told = capsys.readouterr().err
    assert "inside a library" in told and "Traceback" not in told
    assert main(["run", "-v"]) == 2 or "Traceback" in capsys.readouterr().err


def test_interrupts_are_clean() -> None:
    code = "import time, meganeura.cli.app as a\n"
    code += "a.cli.main = lambda **_: (print('ready', flush=True), time.sleep(60))\n"
    code += "raise SystemExit(a.main([]))"
    _interrupt_when_ready(code)


def test_interrupts_inside_device_calls_are_clean() -> None:
    # An exception raised in there would be printed and lost: wgpu runs Python callbacks inside C calls.
    code = "import meganeura.cli.app as a, time\n"
    code += "inner = {'__name__': 'wgpu.fake', 'time': time}\n"
    code += "exec(\"def call():\\n    try:\\n        print('ready', flush=True); time.sleep(60)\\n"
    code += "    except BaseException: print('lost')\", inner)\n"
    code += "a.cli.main = lambda **_: inner['call']()\n"
    code += "raise SystemExit(a.main([]))"
    assert "lost" not in _interrupt_when_ready(code)


def _interrupt_when_ready(code: str) -> str:
    with python_with_interrupts(code) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err
    return out.decode()


@pytest.mark.parametrize(
    "line",
    [
        "rules list | true",
        "rules list --json | true",
        "rules show nothing --json | true",
        "--help | true",
        "rules --help | true",
        "nonsense --json 2>&1 | true",
    ],
)
def test_a_reader_that_leaves_is_not_a_mismatch(shell: Shell, line: str) -> None:
    typed = shell(line + "; exit ${{PIPESTATUS[0]}}")
    assert typed.code == 2
    assert "Broken" not in typed.err and "Traceback" not in typed.err and "Exception" not in typed.err


def test_a_reader_that_leaves_before_a_large_write(shell: Shell, encoder: Path) -> None:
    typed = shell("explain {model} --wgsl | true; exit ${{PIPESTATUS[0]}}", model=encoder)
    assert typed.code == 2
    assert "error" not in typed.err and "Traceback" not in typed.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("line", ["rules list", "rules list --json", "rules show nothing --json"])
def test_no_room_for_the_result(shell: Shell, line: str) -> None:
    shell(f"{line} >/dev/full").refused("nothing" if "nothing" in line else "standard output: No space")


@pytest.mark.parametrize("line", ["devices", "rules list --json", "--help"])
def test_closed_streams(shell: Shell, line: str) -> None:
    shell(f"{line} >&-").refused("standard output is closed")
    assert shell(f"{line} 2>&- >&-").code == 2
    assert shell(f"{line} 2>&-").done().out


def test_a_closed_stdin_is_told(shell: Shell) -> None:
    shell("chat model.gguf <&-").refused("standard input is closed")


def test_interrupts_while_importing_are_clean() -> None:
    code = "import sys, time\n"
    code += "class Slow:\n"
    code += "    def find_spec(self, name, path=None, target=None):\n"
    code += "        if name == 'meganeura.cli.app': print('ready', flush=True); time.sleep(60)\n"
    code += "sys.meta_path.insert(0, Slow())\n"
    code += "from meganeura.cli import main\nraise SystemExit(main([]))"
    _interrupt_when_ready(code)
