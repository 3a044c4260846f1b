"""The README's words hold: its Python runs, its commands and options are there, its links lead somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from meganeura.cli.app import COMMANDS, cli
from tests.frontends.gguf.tiny import write_tiny

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    write_tiny(tmp_path / "model.gguf")
    (tmp_path / "example.py").write_text(code)
    variables = {"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    ours, reference = re.findall(r"\[\[.*?\]\]", done.stdout, re.DOTALL)
    assert ours.split()[0][:6] == reference.split()[0][:6]


def test_commands_and_options_exist() -> None:
    context = click.Context(cli)
    mentioned = re.findall(r"meganeura (\w+)((?: (?:[\w./=]+|--[\w-]+))*)", README)
    assert len(mentioned) > 10
    for name, rest in mentioned:
        if name not in COMMANDS:
            continue
        command = cli.get_command(context, name)
        assert command is not None
        words = rest.split()
        if isinstance(command, click.Group) and words:
            command = command.get_command(context, words[0])
            assert command is not None, f"{name} {words[0]}"
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[\w-]+", rest)) <= known


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)\)", README))
def test_links_lead_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


def test_make_targets_exist() -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
