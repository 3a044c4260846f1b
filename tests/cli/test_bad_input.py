"""Bad input, each kind refused with exit code 2 and one clear message."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meganeura.cli.app import main
from tests.cli.conftest import Shell, Typed
from tests.cli.models import write_unsupported


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, encoder: Path, decoder: Path) -> dict[str, Path]:
    """Files by the name under which the lines below mention them."""
    folder = tmp_path_factory.mktemp("bad")
    good_onnx, good_gguf = encoder.read_bytes(), decoder.read_bytes()
    contents = {
        "empty": b"",
        "prose": b"Dear reader, this is not a model.\n",
        "noise": np.random.default_rng(0).bytes(4000),
        "short_onnx": good_onnx[: len(good_onnx) // 2],
        "short_gguf": good_gguf[: len(good_gguf) // 2],
    }
    made = {"missing": folder / "missing.onnx", "folder": folder, "onnx": encoder, "gguf": decoder}
    for name, content in contents.items():
        made[name] = folder / f"{name}.bin"
        made[name].write_bytes(content)
    made["unsupported"] = write_unsupported(folder / "unsupported.onnx")
    arrays = {
        "ids": np.ones((2, 5), np.int64),
        "mask": np.ones((2, 5), np.int64),
        "long": np.ones((2, 6), np.int64),
        "flat": np.ones(5, np.int64),
        "real": np.full((2, 5), 0.5, np.float32),
        "huge": np.full((2, 5), 2**40, np.int64),
    }
    for name, array in arrays.items():
        made[name] = folder / f"{name}.npy"
        np.save(made[name], array)
    return made


MODEL_FILES = [
    ("run {missing}", "missing.onnx"),
    ("explain {missing}", "missing.onnx"),
    ("generate {missing} --prompt hi", "missing.onnx"),
    ("verify {folder}", "directory"),
    ("explain {empty}", "empty"),
    ("opt {prose} --print-after import", "prose"),
    ("explain {noise}", "noise"),
    ("explain {short_onnx}", "short_onnx"),
    ("run {short_gguf}", "short_gguf"),
    ("generate {short_gguf} --prompt hi", "short_gguf"),
    ("chat {onnx}", "not a language model"),
    ("run {gguf}", "language model"),
]
INPUTS = [
    ("run {onnx} --input ids={ids}", "mask"),
    ("run {onnx} --input ids={ids} --input mask={long}", "length"),
    ("run {onnx} --input ids={ids} --input mask={flat}", "mask"),
    ("run {onnx} --input ids={real} --input mask={mask}", "ids"),
    ("run {onnx} --input ids={huge} --input mask={mask}", "ids"),
    ("run {onnx} --input ids={ids} --input mask={mask} --input more={mask}", "more"),
    ("run {onnx} --input ids={prose}", "prose"),
    ("run {onnx} --input ids={missing}", "missing"),
    ("run {onnx} --input ids", "NAME=FILE"),
    ("run {onnx} --input ids={ids} --input ids={ids}", "twice"),
    ("run {onnx} --input ids={ids} --input mask={mask} --dim batch=3", "batch"),
    ("explain {onnx} --dim nonsense=3", "nonsense"),
    ("verify {onnx} --input nonsense={ids}", "nonsense"),
]
DEVICES = [
    ("run {onnx} --input ids={ids} --input mask={mask} --device 99", "99"),
    ("explain {onnx} --device nonsense", "nonsense"),
    ("generate {gguf} --prompt hi --device -1", "-1"),
]
LANGUAGE = [
    ("generate {gguf} --raw --prompt ''", "empty"),
    ("generate {gguf} --prompt 'a long prompt' --context 4", "context"),
    ("generate {gguf} --prompt hi --dim n=3", "--context"),
    ("generate {gguf} --raw --system be --prompt hi", "system"),
    ("explain {onnx} --context 3", "language model"),
]


@pytest.mark.parametrize(("line", "word"), INPUTS)
def test_bad_arrays_are_refused(
    files: dict[str, Path], line: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(line.format(**files).split())
    streams = capsys.readouterr()
    assert Typed(line, code, streams.out, streams.err).refused(word).out == ""


@pytest.mark.parametrize(("line", "word"), MODEL_FILES + DEVICES + LANGUAGE)
def test_is_refused_with_one_message(shell: Shell, files: dict[str, Path], line: str, word: str) -> None:
    typed = shell(line, **files).refused(word)
    assert typed.out == ""


def test_unsupported_operators_are_listed_at_once(shell: Shell, files: dict[str, Path]) -> None:
    words = ("Frobnicate", "Defenestrate", "first_trouble", "second_trouble")
    shell("explain {unsupported}", **files).refused(*words)
    error = shell("verify {unsupported} --json", **files).refused(*words).json["error"]
    assert error["type"] == "ImportFailure"


def test_errors_are_json_when_asked(shell: Shell, files: dict[str, Path]) -> None:
    error = shell("run {onnx} --input ids={ids} --json", **files).refused("mask").json["error"]
    assert error["type"] == "InputError" and "mask" in error["message"]


@pytest.mark.parametrize(
    "options",
    [
        ["generate", "m.gguf", "--prompt", "hi", "--max-tokens", "-1"],
        ["generate", "m.gguf", "--prompt", "hi", "--max-tokens", "0"],
        ["generate", "m.gguf", "--prompt", "hi", "--max-tokens", "many"],
        ["generate", "m.gguf", "--prompt", "hi", "--max-tokens", "99999999999"],
        ["generate", "m.gguf", "--prompt", "hi", "--temperature", "-0.5"],
        ["generate", "m.gguf", "--prompt", "hi", "--temperature", "nan"],
        ["generate", "m.gguf", "--prompt", "hi", "--temperature", "inf"],
        ["generate", "m.gguf", "--prompt", "hi", "--seed", "-1"],
        ["generate", "m.gguf", "--prompt", "hi", "--top-k", "-1"],
        ["generate", "m.gguf", "--prompt", "hi", "--top-p", "1.5"],
        ["generate", "m.gguf", "--prompt", "hi", "--top-p", "0"],
        ["chat", "m.gguf", "--top-p", "0"],
        ["run", ""],
        ["bench", ""],
        ["run", "m.onnx", "--device", ""],
        ["run", "m.onnx", "--rules", ""],
        ["run", "m.onnx", "--output", ""],
        ["run", "m.onnx", "--output", "/dev/null/results"],
        ["run", "m.onnx", "--output", "/dev/null"],
        ["verify", "m.onnx", "--bisect", "--write", ""],
        ["verify", "m.onnx", "--bisect", "--write", "/dev/null/results"],
        ["bench", "m.gguf", "--write", ""],
        ["bench", "m.gguf", "--write", "/dev/null/results"],
        ["generate", "m.gguf", "--prompt", "hi", "--min-p", "-1"],
        ["generate", "m.gguf", "--prompt", "hi", "--context", "0"],
        ["generate", "m.gguf"],
        ["chat", "m.gguf", "--context", "-4"],
        ["explain", "m.onnx", "--dim", "batch=-1"],
        ["explain", "m.onnx", "--dim", "batch=1.5"],
        ["explain", "m.onnx", "--dim", "batch=99999999999"],
        ["explain", "m.onnx", "--dim", "batch"],
        ["explain", "m.onnx", "--dim", "batch=1", "--dim", "batch=2"],
        ["explain", "m.onnx", "--weights", "f8"],
        ["verify", "m.onnx", "--tolerance", "-1"],
        ["verify", "m.onnx", "--seed", "x"],
        ["bench", "--repeats", "0"],
    ],
)
def test_senseless_option_values(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(options) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.count("error:") == 1 and "Traceback" not in streams.err
    assert "m.onnx" not in streams.err and "m.gguf" not in streams.err  # refused before the file is looked for
