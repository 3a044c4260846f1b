"""Commands on small model files: what they print, write and return."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from meganeura.cli import verify
from meganeura.cli.app import main
from meganeura.frontends import load
from meganeura.ir.text import parse_graph
from meganeura.reference import evaluate
from meganeura.reference.compare import Difference
from tests.cli.conftest import Shell
from tests.cli.models import VOCABULARY, WIDTH


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("arrays")
    random = np.random.default_rng(3)
    values = {
        "ids": random.integers(0, VOCABULARY, (3, 5)),
        "mask": np.array([[1] * 5, [1] * 3 + [0] * 2, [1] + [0] * 4]),
    }
    files = {name: folder / f"{name}.npy" for name in values}
    for name, value in values.items():
        np.save(files[name], value)
    return files


# ---- run --------------------------------------------------------------------------------------------


def test_run_writes_what_the_reference_computes(
    shell: Shell, encoder: Path, arrays: dict[str, Path], tmp_path: Path
) -> None:
    line = "run {model} --input ids={ids} --input mask={mask} --output {folder} --json"
    told = shell(line, model=encoder, folder=tmp_path / "results", **arrays).done().json
    assert set(told) >= {"outputs", "seconds"} and told["seconds"] > 0
    expected = evaluate(load(encoder).graph({"batch": 3, "length": 5}), {n: np.load(p) for n, p in arrays.items()})
    assert [output["name"] for output in told["outputs"]] == list(expected)
    for output in told["outputs"]:
        array = np.load(output["file"])
        assert output["shape"] == list(array.shape) and output["dtype"] == str(array.dtype) == "float32"
        np.testing.assert_allclose(array, expected[output["name"]], atol=1e-5)


def test_run_describes_results_for_people(shell: Shell, encoder: Path, arrays: dict[str, Path]) -> None:
    typed = shell("run {model} --input ids={ids} --input mask={mask} --no-optimize", model=encoder, **arrays).done()
    assert "hidden" in typed.out and f"[3, {WIDTH}]" in typed.out
    assert " s on " in typed.err


# ---- explain and opt -----------------------------------------------------------------------------------


def test_explain_tells_what_other_tools_rely_on(shell: Shell, encoder: Path) -> None:
    told = shell("explain {model} --dim batch=2 --dim length=9 --json", model=encoder).done().json
    (program,) = told["programs"]
    assert told["adapter"]
    assert program["nodes"]["before"] > program["nodes"]["after"] > 0
    assert program["dispatches"]["unoptimized"] > program["dispatches"]["optimized"] > 0
    assert program["dispatches"]["optimized"] == len(program["kernels"])
    assert all(rule["fired"] > 0 for rule in program["rules"]) and program["rules"]
    assert all(set(kernel) >= {"name", "op", "sources", "rules"} for kernel in program["kernels"])
    assert all(value >= 0 for value in program["seconds"].values())
    (attention,) = [kernel for kernel in program["kernels"] if kernel["op"] == "attention"]
    assert {"score", "normalise", "mix"} <= set(attention["sources"])
    assert attention["rules"]


def test_explain_shows_both_programs_of_a_language_model(shell: Shell, decoder: Path) -> None:
    told = shell("explain {model} --dim n=16 --json", model=decoder).done().json
    assert [program["name"] for program in told["programs"]] == ["prefill", "step"]
    assert [program["ops"].get("attention", 0) for program in told["programs"]] == [2, 0]
    assert [program["ops"].get("cached_attention", 0) for program in told["programs"]] == [0, 2]


def test_explain_for_people(encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(encoder), "--wgsl", "--dim", "length=7"]) == 0
    streams = capsys.readouterr()
    assert "1 tiled" in streams.out and "from look_up" in streams.out
    assert streams.out.count("@compute") == streams.out.count("    op ") > 0
    assert "dimension batch = 1" in streams.err and "length" not in streams.err.replace("compiling", "")


def test_explain_without_the_optimiser_finds_nothing(encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(encoder), "--no-optimize", "--json"]) == 0
    (program,) = json.loads(capsys.readouterr().out)["programs"]
    assert program["rules"] == []
    assert program["dispatches"]["unoptimized"] == program["dispatches"]["optimized"]


@pytest.mark.parametrize("phase", ["import", "optimize"])
def test_printed_graphs_can_be_read_back(encoder: Path, phase: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", str(encoder), "--print-after", phase]) == 0
    text = capsys.readouterr().out
    assert ("attention" in text) == (phase == "optimize")
    constants = load(encoder).graph({"batch": 1, "length": 64}).constants
    if phase == "import":
        assert list(parse_graph(text, constants).outputs) == ["hidden", "pooled"]


def test_later_phases_print_kernels_and_wgsl(encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opt", str(encoder), "--print-after", "lower"]) == 0
    assert "buffer" in capsys.readouterr().out
    assert main(["opt", str(encoder), "--print-after", "codegen", "--json"]) == 0
    (program,) = json.loads(capsys.readouterr().out)["programs"]
    assert program["phase"] == "codegen" and "@compute" in program["text"]


# ---- verify -----------------------------------------------------------------------------------------


def test_verify_agrees_on_invented_inputs(shell: Shell, encoder: Path) -> None:
    told = shell("verify {model} --dim batch=2 --dim length=5 --json", model=encoder).done().json
    assert told["ok"] is True
    assert [output["name"] for output in told["outputs"]] == ["hidden", "pooled"]
    for output in told["outputs"]:
        assert output["ok"] and 0 <= output["max_rel"] < 1e-4 and output["max_abs"] >= 0


def test_verify_covers_both_programs_and_their_caches(decoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(decoder), "--dim", "n=5", "--context", "24", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = [output["name"] for output in told["outputs"]]
    assert "prefill/logits" in names and "step/logits" in names
    assert sum(name.startswith("step/state:") for name in names) == 4


def test_verify_takes_given_inputs(encoder: Path, arrays: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(encoder), "--input", f"mask={arrays['mask']}"]) == 0
    streams = capsys.readouterr()
    assert "ok: worst is" in streams.out
    assert "dimension" not in streams.err  # the given mask says how large everything is


def test_a_mismatch_is_exit_code_one(
    encoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify, "difference", lambda have, want: Difference(0.5, 0.25, True, False))
    assert main(["verify", str(encoder), "--dim", "length=3"]) == 1
    out = capsys.readouterr().out
    assert "MISMATCH: worst is hidden" in out
    assert main(["verify", str(encoder), "--dim", "length=3", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False and told["worst"] == "hidden" and not told["outputs"][0]["ok"]


# ---- language models ------------------------------------------------------------------------------------


def test_generate_streams_text_and_tells_json(shell: Shell, decoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shell("generate {model} --prompt 'in the' --max-tokens 4 --json", model=decoder).done().json
    assert set(told) >= {"text", "token_ids", "prompt_tokens", "tokens_per_second"}
    assert 1 <= len(told["token_ids"]) <= 4 and told["prompt_tokens"] > 6 and told["tokens_per_second"] > 0
    assert main(["generate", str(decoder), "--prompt", "in the", "--max-tokens", "4"]) == 0
    streams = capsys.readouterr()
    assert streams.out == told["text"] + "\n"
    assert "generated" in streams.err


def test_seeds_make_random_answers_repeatable(decoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for seed in ("1", "1", "2"):
        options = ["--raw", "--temperature", "5", "--seed", seed, "--max-tokens", "8", "--json"]
        assert main(["generate", str(decoder), "--prompt", "hi", *options]) == 0
        answers.append(json.loads(capsys.readouterr().out)["token_ids"])
    assert answers[0] == answers[1] != answers[2]


def test_the_contexts_end_is_an_error_after_the_text(shell: Shell, decoder: Path) -> None:
    line = "generate {model} --raw --prompt 'in' --context 6 --temperature 3 --seed 4 --max-tokens 50"
    typed = shell(line, model=decoder).refused("context of 6")
    assert typed.out.endswith("\n")


def test_what_was_made_before_the_contexts_end_is_in_the_json_error(
    decoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--context", "40", "--temperature", "3", "--seed", "4", "--max-tokens", "50", "--json"]
    assert main(["generate", str(decoder), "--raw", "--prompt", "in", *options]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "InputError" and "context of 40" in error["message"]
    assert error["text"] and error["stop_reason"] == "context"
    assert error["prompt_tokens"] + len(error["token_ids"]) == 41  # the last token needs no row
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n"))
    assert main(["chat", str(decoder), *options]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    (answer,) = error["answers"]
    assert error["type"] == "InputError" and answer["text"]
    assert error["messages"] == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": answer["text"]}]


def test_chat_remembers_and_forgets(
    shell: Shell, decoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = shell("chat {model} --max-tokens 3 --json", model=decoder, stdin="hi\n\nthe\n").done().json
    assert len(told["answers"]) == 2
    assert [message["role"] for message in told["messages"]] == ["user", "assistant"] * 2
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n/reset\nthe\n/exit\nno\n"))
    assert main(["chat", str(decoder), "--max-tokens", "3", "--json"]) == 0
    forgot = json.loads(capsys.readouterr().out)
    assert len(forgot["answers"]) == 2 and len(forgot["messages"]) == 2


# ---- rules ----------------------------------------------------------------------------------------------


def test_rules_are_listed_with_what_other_tools_rely_on(shell: Shell) -> None:
    listed = shell("rules list --json").done().json
    assert all(set(rule) >= {"name", "group", "soundness", "why", "file", "line"} for rule in listed)
    for rule in listed[:: max(1, len(listed) // 5)]:
        header = Path(rule["file"]).read_text().splitlines()[rule["line"] - 1]
        assert header == f";; rule: {rule['name']}"
    people = shell("rules list").done().out
    assert all(rule["name"] in people for rule in listed)


def test_a_rule_is_shown_as_written(shell: Shell) -> None:
    shown = shell("rules show softmax-from-pieces").done().out
    assert "(union e (Softmax axis x))" in shown and "softmax.egg" in shown
    shell("rules show softmax-from-peaces").refused("softmax-from-pieces")
    shell("rules list --group nonsense").refused("nonsense", "attention")
