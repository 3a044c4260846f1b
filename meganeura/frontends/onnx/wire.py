"""A scanner for protobuf's wire format: where each field of a message lies in a file.

The protobuf library can only read a model whole. Scanning first lets weights stay in the file until they are
needed, and tells a truncated model from a file of another kind.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# Field numbers of the format's messages (onnx.proto).
MODEL_FIELDS = frozenset({*range(1, 9), 14, 20, 25, 26})
MODEL_IR_VERSION, MODEL_GRAPH, GRAPH_INITIALIZER, TENSOR_NAME, TENSOR_RAW = 1, 7, 5, 8, 9

Buffer = bytes | mmap.mmap


class Malformed(Exception):
    """Bytes that are not a message of the wire format."""


class Truncated(Exception):
    """A field reaches past the end of the file."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its number and wire type, where it starts, and where its payload starts and stops."""

    number: int
    wire: int
    start: int
    payload: int
    stop: int


def fields(data: Buffer, start: int, stop: int) -> Iterator[Field]:
    """The fields of the message in `data[start:stop]`, in file order."""
    at = start
    while at < stop:
        begin = at
        tag, at = _varint(data, at, stop)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise Malformed
        payload = at
        if wire == VARINT:
            _, end = _varint(data, at, stop)
        elif wire == BYTES:
            length, payload = _varint(data, at, stop)
            end = payload + length
        elif wire in (FIXED64, FIXED32):
            end = at + (8 if wire == FIXED64 else 4)
        else:
            raise Malformed
        if end > stop:
            raise Truncated
        yield Field(number, wire, begin, payload, end)
        at = end


def _varint(data: Buffer, at: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= stop:
            raise Truncated
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise Malformed


def looks_like_model(data: Buffer) -> bool:
    """Whether the file begins as a ModelProto: an IR version, or another known field of the right wire type."""
    try:
        first = next(fields(data, 0, len(data)))
    except Truncated:
        # A known tag whose payload is cut off; a lone byte says too little.
        return len(data) > 1 and data[0] >> 3 in MODEL_FIELDS and data[0] & 7 in (VARINT, BYTES)
    except (Malformed, StopIteration):
        return False
    if first.number == MODEL_IR_VERSION:
        return first.wire == VARINT and first.stop - first.payload == 1
    return first.number in MODEL_FIELDS and first.wire in (VARINT, BYTES)


def without_weights(data: Buffer, at_least: int) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The model's bytes without its large raw tensors, and where those lie.

    Args:
        data: a ModelProto. at_least: raw data of fewer bytes stays in.

    Returns:
        The shortened message, and (offset, length) in `data` by initializer name.

    Raises:
        Truncated, Malformed.
    """
    places: dict[str, tuple[int, int]] = {}
    pieces: list[bytes] = []
    for field in fields(data, 0, len(data)):
        if field.number == MODEL_GRAPH and field.wire == BYTES:
            pieces.append(_message(MODEL_GRAPH, _shorten_graph(data, field, at_least, places)))
        else:
            pieces.append(data[field.start : field.stop])
    return b"".join(pieces), places


def _shorten_graph(data: Buffer, graph: Field, at_least: int, places: dict[str, tuple[int, int]]) -> bytes:
    pieces: list[bytes] = []
    for field in fields(data, graph.payload, graph.stop):
        if field.number != GRAPH_INITIALIZER or field.wire != BYTES or field.stop - field.payload < at_least:
            pieces.append(data[field.start : field.stop])
            continue
        kept, name, raw = [], "", None
        for part in fields(data, field.payload, field.stop):
            if part.number == TENSOR_RAW and part.wire == BYTES and part.stop - part.payload >= at_least:
                raw = (part.payload, part.stop - part.payload)
                continue
            if part.number == TENSOR_NAME and part.wire == BYTES:
                name = data[part.payload : part.stop].decode("utf-8", "replace")
            kept.append(data[part.start : part.stop])
        if raw is not None:
            places[name] = raw
        pieces.append(_message(GRAPH_INITIALIZER, b"".join(kept)))
    return b"".join(pieces)


def _message(number: int, payload: bytes) -> bytes:
    return _encoded(number << 3 | BYTES) + _encoded(len(payload)) + payload


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
