"""`meganeura bench` on a tiny decoder: the rows are there and the file says where they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meganeura.cli import bench
from meganeura.cli.app import main
from meganeura.reference.compare import Difference
from tests.cli.conftest import Shell


def test_rows_and_their_circumstances(shell: Shell, decoder: Path, tmp_path: Path) -> None:
    typed = shell("bench {model} --repeats 1 --warm 0 --write {file} --json", model=decoder, file=tmp_path / "b.json")
    told = typed.done().json
    assert told == json.loads((tmp_path / "b.json").read_text())
    assert {"adapter", "driver", "processor", "versions", "commit"} <= set(told["machine"])
    names = " / ".join(row["name"] for row in told["rows"])
    for part in ("prefill, 128 tokens", "cached token at 128 keys", "dispatches", "e-graph search", "peak memory"):
        assert part in names
    assert all(row["value"] > 0 for row in told["rows"])
    assert all(row["cache_rows"] == 256 for row in told["rows"] if "against" in row["name"])
    (memory,) = [row for row in told["rows"] if "memory" in row["name"]]
    assert 1e7 < memory["bytes"] < 1e9


def test_wrong_results_are_not_timed(
    decoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "difference", lambda have, want: Difference(1.0, 0.5, True, False))
    assert main(["bench", str(decoder), "--repeats", "1", "--warm", "0"]) == 2
    assert "nothing was timed" in capsys.readouterr().err


def test_what_bench_cannot_use_is_refused(shell: Shell, encoder: Path, tmp_path: Path) -> None:
    shell("bench {model}", model=encoder).refused("not a language model")
    shell("bench {model} --write {file}", model=encoder, file=tmp_path / "no" / "b.json").refused("folder")
    shell("bench --dim n=3").refused("--dim")
