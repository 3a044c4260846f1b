"""Front ends: from a model file or message to a `Model` that gives graphs. `load` picks one by the content."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from meganeura.errors import ImportFailure
from meganeura.ir.model import GraphModel, Model

if TYPE_CHECKING:
    from onnx import ModelProto

_HEAD = 1024
_TEXT_FORM = re.compile(r"(\s|#[^\n]*\n)*graph\s")


def load(source: str | Path | ModelProto) -> Model:
    """Read a model.

    Args:
        source: an ONNX file, a GGUF file, a graph in text form, or an ONNX model in memory. A file's kind is told
            by its content, not its name.

    Raises:
        ImportFailure: there is no such file, it is a directory, not a model, damaged, truncated, or uses something
            that is not supported.
    """
    if not isinstance(source, str | Path):
        return _load_onnx(source)
    path = Path(source)
    head = read_head(path)
    if head.startswith(b"GGUF"[: len(head)]):
        # Imported late, as are the others: reading one format should not cost the libraries of another.
        from meganeura.frontends.gguf import load_gguf

        return load_gguf(path)
    text = _text(head)
    if text is None:
        return _load_binary(path, head)
    if not _TEXT_FORM.match(text):
        raise ImportFailure(
            f"{path} is a text file, not a model",
            source=str(path),
            remedy="give an ONNX or GGUF file, or a graph in text form, which begins with the word graph",
        )
    return _load_text(path)


def read_head(path: Path) -> bytes:
    """The first bytes of a model file; raises ImportFailure when there is no such file, or nothing in it."""
    if path.is_dir():
        raise ImportFailure(f"{path} is a directory, not a model file", source=str(path), remedy="name the file in it")
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except FileNotFoundError:
        raise ImportFailure(f"no such file: {path}", source=str(path), remedy="check the path") from None
    except (OSError, ValueError) as error:
        raise ImportFailure(f"{path} cannot be read: {error}", source=str(path)) from None
    if not head:
        raise ImportFailure(f"{path} is empty", source=str(path), remedy="fetch the file again")
    return head


def _load_binary(path: Path, head: bytes) -> Model:
    from meganeura.frontends.onnx.wire import looks_like_model

    if not looks_like_model(head):
        raise ImportFailure(
            f"{path} is not a model: neither an ONNX or GGUF file nor a graph in text form", source=str(path)
        )
    return _load_onnx(path)


def _load_onnx(source: Path | ModelProto) -> Model:
    from meganeura.frontends.onnx import load_onnx

    return load_onnx(source)


def _load_text(path: Path) -> Model:
    from meganeura.ir.text import parse_graph

    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ImportFailure(f"{path} is not a graph in text form: {error}", source=str(path)) from None
    return GraphModel(parse_graph(text, source=str(path)))


def _text(head: bytes) -> str | None:
    """The head as text, or None when it is binary (an ONNX file begins with a control character)."""
    try:
        # The last character may be cut in two.
        text = head.decode("utf-8", "ignore" if len(head) == _HEAD else "strict")
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c.isspace() for c in text) else None
