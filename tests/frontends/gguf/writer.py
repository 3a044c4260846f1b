"""A GGUF writer for tests: any metadata, any tensors, in the encodings that are easily made."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "b1": 7, "u8": 10, "i8": 11, "f8": 12}


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _payload(value: Any) -> tuple[int, bytes]:
    """Type number and bytes of a metadata value; plain ints are u32, floats f32, NumPy values their own type."""
    if isinstance(value, str):
        return 8, _text(value)
    if isinstance(value, bool):
        return 7, bytes([value])
    if isinstance(value, int):
        value = np.uint32(value)
    if isinstance(value, float):
        value = np.float32(value)
    if isinstance(value, np.generic):
        return _TYPES[value.dtype.str[1:]], value.tobytes()
    if isinstance(value, np.ndarray):
        return 9, struct.pack("<IQ", _TYPES[value.dtype.str[1:]], value.size) + value.tobytes()
    items = [_payload(item) for item in value]
    kind = items[0][0] if items else 8
    return 9, struct.pack("<IQ", kind, len(items)) + b"".join(raw for _, raw in items)


def _halves(*columns: np.ndarray) -> np.ndarray:
    return np.stack(columns, axis=1).astype("<f2").view(np.uint8).reshape(len(columns[0]), -1)


def _pack_nibbles(q: np.ndarray) -> np.ndarray:
    q = q.astype(np.uint8)
    return q[:, :16] | q[:, 16:] << 4


def _q8_0(x: np.ndarray) -> bytes:
    d = np.maximum(np.abs(x).max(axis=1), 1e-6) / 127
    return np.concatenate([_halves(d), np.round(x / d[:, None]).astype(np.int8).view(np.uint8)], axis=1).tobytes()


def _q4_0(x: np.ndarray) -> bytes:
    d = np.maximum(np.abs(x).max(axis=1), 1e-6) / 7
    return np.concatenate([_halves(d), _pack_nibbles(np.round(x / d[:, None]) + 8)], axis=1).tobytes()


def _q4_1(x: np.ndarray) -> bytes:
    low = x.min(axis=1)
    d = np.maximum(x.max(axis=1) - low, 1e-6) / 15
    return np.concatenate([_halves(d, low), _pack_nibbles(np.round((x - low[:, None]) / d[:, None]))], axis=1).tobytes()


ENCODERS: dict[str, tuple[int, Callable[[np.ndarray], bytes]]] = {
    "F32": (0, lambda x: x.astype("<f4").tobytes()),
    "F16": (1, lambda x: x.astype("<f2").tobytes()),
    "BF16": (30, lambda x: (x.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()),
    "Q4_0": (2, lambda x: _q4_0(x.reshape(-1, 32))),
    "Q4_1": (3, lambda x: _q4_1(x.reshape(-1, 32))),
    "Q8_0": (8, lambda x: _q8_0(x.reshape(-1, 32))),
}
"""Number of an encoding in the file, and how it is made from floats."""


def write_gguf(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[np.ndarray, str]],
    *,
    version: int = 3,
) -> Path:
    """Write a file; each tensor is its values and the name of an encoding."""
    alignment = int(metadata.get("general.alignment", 32))
    head = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(metadata))]
    for key, value in metadata.items():
        kind, raw = _payload(value)
        head += [_text(key), struct.pack("<I", kind), raw]
    data: list[bytes] = []
    offset = 0
    for name, (values, encoding) in tensors.items():
        code, encode = ENCODERS[encoding]
        raw = encode(values)
        head += [_text(name), struct.pack(f"<I{values.ndim}Q", values.ndim, *values.shape[::-1])]
        head.append(struct.pack("<IQ", code, offset))
        raw += b"\0" * (-len(raw) % alignment)
        offset += len(raw)
        data.append(raw)
    header = b"".join(head)
    path.write_bytes(header + b"\0" * (-len(header) % alignment) + b"".join(data))
    return path
