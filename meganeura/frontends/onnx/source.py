"""Reading a model: from a file or a message, checked to be whole, with its large tensors left where they are."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto, TensorProto

from meganeura.errors import ImportFailure
from meganeura.frontends.onnx import wire
from meganeura.frontends.onnx.tensors import FileSlice, Known, known_tensor

_STAYS_IN_FILE = 4096
"""Raw tensor data of at least this many bytes is not read with the model."""


@dataclass(frozen=True)
class Source:
    """A model as read.

    Attributes:
        name: the file's or graph's name. proto: the model, perhaps without large raw tensors.
        folder: where external data lies, None for a model given as a message.
        places: raw data left in the file, by initializer name.
    """

    name: str
    proto: ModelProto
    folder: Path | None
    places: Mapping[str, FileSlice]

    def tensor(self, proto: TensorProto, name: str = "") -> Known:
        """A tensor of this model as a lazily loaded value."""
        name = name or proto.name
        return known_tensor(proto, name, self.places.get(proto.name), self.folder)


def read_proto(proto: ModelProto, name: str = "") -> Source:
    """A model given as a message (its external data, if any, already loaded)."""
    _check_whole(proto, name or "the model")
    return Source(name or proto.graph.name or "model", proto, None, {})


def read_file(path: Path) -> Source:
    """Read a model file.

    Raises:
        ImportFailure: no such file, or it is not an ONNX model, or is truncated.
    """
    if not path.is_file():
        what = "is a directory, not a model file" if path.is_dir() else "does not exist"
        raise ImportFailure(f"{path} {what}", source=str(path), remedy="check the path")
    if path.stat().st_size == 0:
        raise ImportFailure(f"{path} is empty", source=str(path), remedy="fetch the file again")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if not wire.looks_like_model(data):
            raise ImportFailure(f"{path} is not an ONNX model", source=str(path))
        try:
            skeleton, places = wire.without_weights(data, _STAYS_IN_FILE)
        except wire.Truncated:
            raise _truncated(path, len(data)) from None
        except wire.Malformed:
            raise ImportFailure(
                f"{path} is not an ONNX model, or a damaged one", source=str(path), remedy="fetch the file again"
            ) from None
    try:
        proto = onnx.load_model_from_string(skeleton)
    except (DecodeError, ValueError) as error:
        raise ImportFailure(f"{path} is not an ONNX model, or a damaged one: {error}", source=str(path)) from None
    _check_whole(proto, str(path))
    slices = {name: FileSlice.of(path, offset, length) for name, (offset, length) in places.items()}
    return Source(path.name, proto, path.parent, slices)


def _truncated(path: Path, size: int) -> ImportFailure:
    return ImportFailure(
        f"{path} is truncated", source=str(path), limit=f"the file has {size} bytes", remedy="fetch the file again"
    )


def _readable(message: Message) -> bool:
    """Whether every string in a message is text: the protobuf library hands out damaged ones as bytes."""
    if isinstance(message, TensorProto):
        return isinstance(message.name, str)
    for field, value in message.ListFields():
        items: Any = [value] if isinstance(value, str | bytes | Message) else value
        if field.type == FieldDescriptor.TYPE_STRING and not all(isinstance(item, str) for item in items):
            return False
        if field.type == FieldDescriptor.TYPE_MESSAGE and not all(map(_readable, items)):
            return False
    return True


def _check_whole(proto: ModelProto, name: str) -> None:
    try:
        readable = _readable(proto)
    except UnicodeDecodeError:
        readable = False
    if not readable:
        raise ImportFailure(f"{name} is damaged: a name in it is not text", source=name, remedy="fetch the file again")
    # A file cut between two top-level fields still parses: it only lacks what came later.
    if not proto.HasField("graph") or not proto.opset_import:
        missing = "graph" if not proto.HasField("graph") else "operator set version"
        raise ImportFailure(
            f"{name} has no {missing}: it is not an ONNX model, or a truncated one",
            source=name,
            remedy="fetch the file again",
        )
    if not proto.graph.output:
        raise ImportFailure(f"{name} has no outputs: it is not an ONNX model, or a truncated one", source=name)
