"""Planted faults are found and named, and the graph left over still fails."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meganeura.bisect import Case, Setting, bisect, setting
from meganeura.cli import verify
from meganeura.cli.app import main
from meganeura.ir.graph import Graph, Node, Tensor
from meganeura.ir.text import format_graph
from meganeura.options import CompileOptions
from meganeura.reference.compare import Difference
from meganeura.runtime.device import Device
from tests.bisect.planted import (
    LOST_SCALE,
    break_memory,
    break_norm,
    break_softmax,
    break_views,
    small_case,
    write_rules,
    write_small,
)
from tests.frontends.gguf.tiny import write_tiny

Captured = pytest.CaptureFixture[str]


def searched(capsys: Captured, folder: Path, *arguments: str, code: int = 1) -> dict[str, Any]:
    """What `verify --bisect --write --json` tells."""
    capsys.readouterr()
    assert main(["verify", *arguments, "--bisect", "--write", str(folder), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def replayed(command: str, *more: str) -> int:
    program, *arguments = shlex.split(command)
    assert program == "meganeura"
    return main([*arguments, *more])


def test_a_rule_that_drops_a_scale(tmp_path: Path, capsys: Captured) -> None:
    model, rules = write_small(tmp_path), write_rules(tmp_path)
    told = searched(capsys, tmp_path / "fault", str(model), "--rules", str(rules))
    (finding,) = told["bisect"]
    assert (finding["stage"], finding["rules"], finding["worst"]) == ("rules", ["lost-scale"], "activated")
    assert finding["nodes"]["after"] <= 4 < finding["nodes"]["before"]
    assert sorted(p.name for p in (tmp_path / "fault").iterdir()) == ["graph.txt", "inputs.npz"]
    text = (tmp_path / "fault" / "graph.txt").read_text()
    assert "tanh" in text and "mul" in text and "f32[1, 1, 1]" in text and "matmul" not in text
    assert replayed(finding["command"]) == 1
    without_rules = finding["command"].partition(" --rules")[0]
    assert replayed(without_rules) == 0


def test_the_guilty_among_rules_that_prepare_its_way(device: Device, tmp_path: Path) -> None:
    rules = tmp_path / "silu.egg"
    text = LOST_SCALE.replace("Tanh", "Silu").replace("(Mul (Silu x) s)", "(Add (Silu x) s)")
    rules.write_text(text)
    graph = Graph("gated")
    x = graph.input("x", (2, 5))
    graph.output("y", x * graph.apply("sigmoid", x) + 3.0)
    case = Case(graph, {"x": np.linspace(-2, 2, 10, dtype=np.float32).reshape(2, 5)})
    (finding,) = bisect(Setting(device, CompileOptions(rules=(str(rules),)), 1e-4), case, 20)
    assert finding.rules == ("lost-scale",) and finding.case is not None
    assert "it rewrites what these make" in finding.notes[0]
    assert [node.op.name for node in finding.case.graph.nodes if node.inputs] == ["silu", "add"]


def test_states_are_given_again(device: Device, tmp_path: Path, capsys: Captured) -> None:
    graph = Graph("counter")
    memory = graph.state("memory", (2, 3))
    graph.update(memory, graph.apply("tanh", memory + graph.input("x", (2, 3))) * 0.5)
    model = tmp_path / "counter.txt"
    model.write_text(format_graph(graph))
    values = {"x": np.ones((2, 3), np.float32), "memory": np.full((2, 3), -1, np.float32)}
    np.savez(tmp_path / "given.npz", **values)  # type: ignore[arg-type]
    given = [argument for name in values for argument in ("--input", f"{name}={tmp_path / 'given.npz'}")]
    rules = ["--rules", str(write_rules(tmp_path))]
    assert main(["verify", str(model), *rules]) == 1
    # The hyperbolic tangent of 0 is not spoilt by a lost factor.
    assert main(["verify", str(model), *given, *rules]) == 0
    (finding,) = searched(capsys, tmp_path / "fault", str(model), *rules)["bisect"]
    assert finding["rules"] == ["lost-scale"] and replayed(finding["command"]) == 1


def test_a_kernel_that_is_wrong(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_small(tmp_path)
    with monkeypatch.context() as patched:
        break_softmax(patched)
        told = searched(capsys, tmp_path / "fault", str(model))
        (finding,) = told["bisect"]
        assert replayed(finding["command"]) == 1
    kernel = finding["kernel"]
    assert (finding["stage"], finding["program"]) == ("kernel", "optimised")
    assert (kernel["op"], kernel["family"]) == ("softmax", "rows")
    assert "normalise" in kernel["sources"] and "LaneSchedule" in kernel["schedule"]
    assert "exp(v * 1.1)" in kernel["wgsl"] and kernel["label"] == "softmax_3x6x16"
    assert abs(kernel["have"] - kernel["want"]) > 1e-3
    assert finding["nodes"]["after"] == 2
    assert replayed(finding["command"]) == 0


def test_memory_that_is_given_away_too_early(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_small(tmp_path)
    with monkeypatch.context() as patched:
        break_memory(patched)
        told = searched(capsys, tmp_path / "fault", str(model), "--seconds", "3")
        finding = next(f for f in told["bisect"] if f["program"] == "optimised")
        # The unoptimised program of the small graph may even be refused.
        assert replayed(finding["command"]) in (1, 2)
    assert {f["stage"] for f in told["bisect"]} == {"memory"}
    overwritten, by = finding["conflict"]["tensors"]
    assert "normalise" in overwritten["sources"]
    assert overwritten["first"] < by["first"] <= overwritten["last"]
    assert finding["nodes"]["after"] < finding["nodes"]["before"]
    assert replayed(finding["command"]) == 0


def test_both_programs_of_a_language_model(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_tiny(tmp_path / "tiny.gguf")
    with monkeypatch.context() as patched:
        break_norm(patched)
        told = searched(capsys, tmp_path / "fault", str(model), "--dim", "n=4", "--context", "8")
        assert {f["model"] for f in told["bisect"]} == {"prefill", "step"}
        for finding in told["bisect"]:
            if finding["program"] == "optimised":
                assert finding["stage"] == "kernel" and "rms_norm" in finding["kernel"]["op"]
                assert replayed(finding["command"]) == 1
    folders = sorted(p.name for p in (tmp_path / "fault").iterdir())
    assert len(folders) == len(told["bisect"]) and folders[0] == "1-prefill-kernel"


def test_tensors_that_lowering_mixes_up(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph("turned")
    x = graph.input("x", (4, 4))
    with graph.scope("first"):
        first = graph.apply("softmax", x, axis=1)
    with graph.scope("second"):
        second = graph.apply("softmax", graph.apply("transpose", first, perm=(1, 0)), axis=1)
    graph.output("y", second)
    case = Case(graph, {"x": np.arange(16, dtype=np.float32).reshape(4, 4) % 5})
    break_views(monkeypatch)
    findings = bisect(Setting(device, CompileOptions(), 1e-4), case, 20)
    finding = findings[0]
    assert finding.stage == "lowering" and finding.kernel is not None and finding.kernel.sources == ("second",)
    assert "lowering" in finding.summary


def test_a_search_that_is_wrong_without_any_rule(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = setting.optimize

    def broken(graph: Graph, *arguments: Any, **options: Any) -> Any:
        result, report = sound(graph, *arguments, **options)

        def visit(new: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
            return new.apply("sigmoid" if node.op.name == "tanh" else node.op, *operands)

        return result.rewrite(visit), report

    monkeypatch.setattr(setting, "optimize", broken)
    graph = Graph("curve")
    graph.output("y", graph.apply("tanh", graph.input("x", (3,))) + 1.0)
    case = Case(graph, {"x": np.array([0.5, 1, 2], np.float32)})
    (finding,) = bisect(Setting(device, CompileOptions(), 1e-4), case, 20)
    assert finding.stage == "search" and finding.rules == () and finding.case is not None
    assert [node.op.name for node in finding.case.graph.nodes] == ["input", "tanh"]


def test_nothing_to_find_in_a_sound_compiler(device: Device) -> None:
    assert bisect(Setting(device, CompileOptions(), 1e-4), small_case()) == []


def test_agreement_is_told_and_writes_nothing(tmp_path: Path, capsys: Captured) -> None:
    model = write_small(tmp_path)
    assert main(["verify", str(model), "--bisect", "--write", str(tmp_path / "fault")]) == 0
    assert "nothing disagrees, so there is nothing to bisect" in capsys.readouterr().out
    assert not (tmp_path / "fault").exists()


def test_what_cannot_be_narrowed_is_told(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_small(tmp_path)
    monkeypatch.setattr(verify, "difference", lambda have, want: Difference(0.5, 0.25, True, False))
    assert main(["verify", str(model), "--bisect"]) == 1
    assert "small: cannot be narrowed further" in capsys.readouterr().out


def test_people_read_what_is_wrong(tmp_path: Path, capsys: Captured) -> None:
    graph = Graph("small")
    graph.output("y", graph.apply("tanh", graph.input("x", (1, 2))) * 0.75)
    model, rules = tmp_path / "small.txt", write_rules(tmp_path)
    model.write_text(format_graph(graph))
    assert main(["verify", str(model), "--rules", str(rules), "--bisect"]) == 1
    out = capsys.readouterr().out
    assert "small: the rule lost-scale changes what the graph computes" in out
    assert "keep it: --write FOLDER" in out and "= tanh(%0)" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--bisect", "--write", "{full}"], "is not empty"), (["--write", "new"], "--bisect")],
)
def test_folders_that_cannot_be_written(arguments: list[str], words: str, tmp_path: Path, capsys: Captured) -> None:
    model = write_small(tmp_path)
    assert main(["verify", str(model), *(a.format(full=tmp_path) for a in arguments)]) == 2
    assert words in capsys.readouterr().err
