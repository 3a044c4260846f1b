"""docs/checking-rules.md shows what the checker really says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meganeura.cli.app import main

PAGE = Path(__file__).parents[2] / "docs" / "checking-rules.md"


def test_the_wrong_rule_is_refuted_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rule, shown = re.findall(r"```(?:lisp|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[:2]
    monkeypatch.chdir(tmp_path)
    Path("mine.egg").write_text(rule)
    assert main(["rules", "check", "--rules", "mine.egg"]) == 1
    assert capsys.readouterr().out == shown


def test_every_allowance_is_explained() -> None:
    from meganeura.egraph.rulefile import ALLOWANCES

    text = PAGE.read_text(encoding="utf-8")
    assert [word for word in ALLOWANCES if f"`{word}`" not in text] == []
