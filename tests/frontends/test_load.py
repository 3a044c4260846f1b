"""`meganeura.load` tells a file's kind by its content, and says what is wrong with what is no model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import meganeura as mg
from meganeura.errors import ImportFailure
from meganeura.frontends import load
from meganeura.ir.text import format_graph
from tests.frontends.onnx_frontend.models import model


def onnx_model() -> onnx.ModelProto:
    weight = np.arange(4096, dtype=np.float32).reshape(64, 64)
    return model("float[n, 64] x) => (float[n, 64] y", "y = MatMul (x, w)", w=weight)


def test_onnx_by_content(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(onnx_model().SerializeToString())
    for source in (path, str(path), onnx_model()):
        assert load(source).outputs == ("y",)


def test_text_form_by_content(tmp_path):
    graph = mg.Graph("example")
    x = graph.input("x", ("n", 2))
    graph.output("y", x * 2.0)
    path = tmp_path / "graph.onnx"
    path.write_text("# a comment\n\n" + format_graph(graph))
    loaded = load(path)
    assert loaded.symbols == {"n"} and format_graph(loaded.graph({"n": 3})) == format_graph(graph.bind({"n": 3}))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"hello\n", "text file, not a model"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "is not a model"),
        (b"PK\x03\x04" + bytes(64), "is not a model"),
        (bytes(64), "is not a model"),
        (b"graph { %0 = }", "line 1"),
        (b"GGUF", "GGUF|truncated|short"),
        (b"GGUF\x03\x00\x00\x00" + bytes(8), "GGUF|truncated|short"),
    ],
)
def test_not_a_model(tmp_path, content, words):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ImportFailure, match=words):
        load(path)


def test_truncated_onnx(tmp_path):
    path, data = tmp_path / "model.onnx", onnx_model().SerializeToString()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ImportFailure, match="truncated"):
        load(path)


def test_no_file_or_a_directory(tmp_path):
    with pytest.raises(ImportFailure, match=r"no such file: .*missing\.onnx"):
        load(tmp_path / "missing.onnx")
    with pytest.raises(ImportFailure, match="is a directory"):
        load(tmp_path)
