"""`meganeura rules check`: verdicts, exit codes, JSON, and mistakes in what is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meganeura.cli.app import main


def test_a_rule_that_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", "double-not", "--cases", "2", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["name"], found["verdict"], found["counter_example"]) == ("double-not", "holds", None)
    assert found["fired"] == found["graphs"] == 2


def test_a_rule_that_never_fires(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "never.egg"
    path.write_text(
        ";; rule: never\n;; soundness: exact\n;; why: It contradicts itself.\n"
        "(rule ((= e (Neg x)) (< (rank x) 0)) ((union e x)))\n"
    )
    assert main(["rules", "check", "--rules", str(path), "--cases", "1"]) == 0
    assert "not generated" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["no-such-rule"], ["--cases", "0"], ["--rules", "none.egg"], ["--seed", "x"]])
def test_mistakes(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "check", *arguments]) == 2
    assert "error:" in capsys.readouterr().err
