"""The command line as a person has it: typed into a shell, looked at through its streams and exit code."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.models import write_encoder
from tests.frontends.gguf.tiny import write_tiny


@dataclass(frozen=True)
class Typed:
    """What one line typed into a shell left behind."""

    line: str
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as JSON: fails when anything else went there."""
        return json.loads(self.out)

    def done(self) -> Typed:
        """The same, after checking that the command went well."""
        assert self.code == 0, f"{self.line}\n{self.err}"
        return self

    def refused(self, *words: str) -> Typed:
        """The same, after checking that it was refused as promised: code 2, one message that names `words`."""
        assert self.code == 2, f"{self.line}: code {self.code}\n{self.err}"
        assert "Traceback" not in self.err and "panicked" not in self.err, self.err
        assert "mistake in meganeura" not in self.err, self.err
        complaints = [line for line in self.err.splitlines() if line.startswith("error:")]
        assert len(complaints) == 1, self.err
        for word in words:
            assert word in complaints[0], self.err
        return self


Shell = Callable[..., Typed]
ROOT = Path(__file__).resolve().parents[2]


def python_with_interrupts(code: str) -> subprocess.Popen[bytes]:
    """Python running `code`, with both streams piped and Ctrl-C as it is in a terminal.

    A background job of a shell, as CI may be one, ignores interrupts, and so would its children.
    """
    first = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", first + code], stdout=pipe, stderr=pipe, env=variables)


@pytest.fixture(scope="session")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Types `meganeura ARGUMENTS` into a shell, in a folder of its own; `{name}` in the line is replaced and quoted."""
    folder = tmp_path_factory.mktemp("shell")

    def type_line(line: str, stdin: str = "", timeout: float = 240, **values: object) -> Typed:
        quoted = {name: shlex.quote(str(value)) for name, value in values.items()}
        command = f"{shlex.quote(sys.executable)} -m meganeura {line.format(**quoted)}"
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=variables,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Typed(line, done.returncode, done.stdout, done.stderr)

    return type_line


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX file of one attention block over ids and a mask."""
    return write_encoder(tmp_path_factory.mktemp("models") / "encoder.onnx")


@pytest.fixture(scope="session")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file of two random layers, with tokenizer and chat template; its context is 128."""
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf")
