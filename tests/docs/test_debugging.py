"""The page on finding faults shows what the command really prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meganeura.cli.app import main

DOCUMENT = Path(__file__).parents[2] / "docs" / "debugging.md"


def test_the_rule_example_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = DOCUMENT.read_text()
    monkeypatch.chdir(tmp_path)
    for name, body in re.findall(r"<!-- file: (\S+) -->\n```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        Path(name).write_text(body)
    shown = re.findall(r"<!-- output -->\n```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[0]
    command = re.findall(r"run by `meganeura (verify [^`]*)`", text)[0]
    assert main(command.split()) == 1
    # The table above it rounds as the device does.
    start = "small: the rule"
    assert capsys.readouterr().out.partition(start)[2] == shown.partition(start)[2]
    assert main(shown.splitlines()[-1].partition("meganeura ")[2].split()) == 1
