"""The GGUF container: metadata and tensor table of a memory-mapped file, every read checked against its end.

Layout: magic `GGUF`, version, counts; key/value metadata; one record per tensor (name, dimensions with the
fastest first, element type, offset); padding; tensor data. A file that ends early or says something impossible
raises `ImportFailure` with the byte where reading stopped and what was being read there.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meganeura.errors import ImportFailure
from meganeura.frontends.gguf.quant import ENCODINGS, Encoding, dequantise, packed
from meganeura.ir.constants import ConstantData
from meganeura.ir.types import DType, TensorType

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_RANK = 8
_MAX_NESTING = 4
_STRING, _ARRAY = 8, 9
_SCALARS: dict[int, np.dtype] = {
    code: np.dtype(name)
    for code, name in {
        0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
    }.items()
}  # fmt: skip


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file.

    Attributes:
        name: as in the file. shape: slowest dimension first, as NumPy counts.
        encoding: element type. start: first byte in the file. nbytes: bytes in the file.
    """

    name: str
    shape: tuple[int, ...]
    encoding: Encoding
    start: int
    nbytes: int


class GgufFile:
    """An open GGUF file: `metadata` by key, `tensors` by name, data read when asked for.

    Arrays of numbers in the metadata are NumPy arrays, arrays of strings are lists. The file stays mapped as
    long as this object or one of its constants lives.

    Raises ImportFailure where the file is missing, not GGUF, truncated or corrupt.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._map = _mapped(self.path)
        cursor = _Cursor(self._map, self.path.name)
        tensor_count, pair_count = _header(cursor)
        self.metadata: dict[str, Any] = {}
        for index in range(pair_count):
            key = cursor.string(f"metadata key {index + 1} of {pair_count}")
            if key in self.metadata:
                raise cursor.failure(f"metadata key {key!r} stands there twice")
            self.metadata[key] = cursor.value(cursor.integer("<I", f"type of {key!r}"), f"value of {key!r}")
        if self._whole("split.count", 1) > 1:
            raise cursor.failure("the model is split over several files", remedy="join the parts into one file")
        self.tensors = self._tensor_table(cursor, tensor_count)
        self._identity = self._digest(cursor.at)

    def _whole(self, key: str, default: int) -> int:
        value = self.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ImportFailure(f"{self.path.name}: metadata {key!r} is not a whole number", source=key)
        return value

    def _tensor_table(self, cursor: _Cursor, count: int) -> dict[str, TensorInfo]:
        records = []
        for index in range(count):
            name = cursor.string(f"name of tensor {index + 1} of {count}")
            rank = cursor.integer("<I", f"rank of {name!r}")
            if rank > _MAX_RANK:
                raise cursor.failure(f"tensor {name!r} claims {rank} dimensions")
            shape = tuple(cursor.integer("<Q", f"dimensions of {name!r}") for _ in range(rank))[::-1]
            code = cursor.integer("<I", f"element type of {name!r}")
            records.append((name, shape, code, cursor.integer("<Q", f"offset of {name!r}")))
        alignment = self._whole("general.alignment", 32)
        if alignment < 1 or alignment & (alignment - 1):
            raise cursor.failure(f"general.alignment is {alignment}, not a power of two")
        data = -(-cursor.at // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        for name, shape, code, offset in records:
            info = self._tensor(cursor, name, shape, code, data + offset)
            if name in tensors:
                raise cursor.failure(f"tensor {name!r} stands there twice")
            tensors[name] = info
        return tensors

    def _tensor(self, cursor: _Cursor, name: str, shape: tuple[int, ...], code: int, start: int) -> TensorInfo:
        encoding = ENCODINGS.get(code)
        if encoding is None:
            # Its size is unknown, so nothing more can be checked; using it is refused later, by name.
            return TensorInfo(name, shape, Encoding(f"type {code}", 1, 0), start, 0)
        elements = 1
        for dim in shape:
            elements *= dim
        row = shape[-1] if shape else 1
        if elements == 0 or elements >= 2**48 or row % encoding.block:
            raise ImportFailure(
                f"{cursor.label}: tensor {name!r} has an impossible shape for {encoding.name}",
                source=name,
                shapes=str(list(shape)),
            )
        nbytes = elements // encoding.block * encoding.block_bytes
        if start + nbytes > cursor.end:
            raise ImportFailure(
                f"{cursor.label} is truncated: tensor {name!r} ends at byte {start + nbytes}, "
                f"the file has {cursor.end}",
                source=name,
                remedy="fetch the file again",
            )
        return TensorInfo(name, shape, encoding, start, nbytes)

    def _digest(self, header_end: int) -> str:
        # Header, size and the file's identity on this machine: cheap, and another file never has the same.
        status = self.path.stat()
        digest = hashlib.sha256(self._map[:header_end])
        digest.update(repr((status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino)).encode())
        return digest.hexdigest()[:16]

    # ---- reading tensors ------------------------------------------------------------------------------

    def array(self, name: str) -> np.ndarray:
        """The tensor's values as float32 (integers as int32), dequantised now; a new array of the tensor's shape."""
        info = self.info(name)
        with self._bytes(info) as raw:
            return dequantise(raw, info.encoding, name).reshape(info.shape)

    @contextmanager
    def _bytes(self, info: TensorInfo) -> Iterator[np.ndarray]:
        """A tensor's bytes, for as long as they are needed."""
        yield np.frombuffer(self._map, np.uint8, info.nbytes, info.start)
        self._forget(info)

    def info(self, name: str) -> TensorInfo:
        """The tensor's record; ImportFailure when the file has no such tensor."""
        if name not in self.tensors:
            raise ImportFailure(f"{self.path.name} has no tensor {name!r}", source=name)
        return self.tensors[name]

    def constant(self, name: str) -> ConstantData:
        """The tensor as a constant that is dequantised each time it is loaded; matrices keep their packed form too."""
        info = self.info(name)
        if not info.encoding.known:
            raise ImportFailure(
                f"{self.path.name}: tensor {name!r} is stored as {info.encoding.name}, which is not supported",
                source=name,
                remedy=f"use a file in one of {', '.join(e.name for e in ENCODINGS.values() if e.known)}",
            )
        dtype = DType.I32 if info.encoding.integer else DType.F32
        key, kind, pack = f"gguf:{self._identity}/{name}", TensorType(dtype, info.shape), None
        if len(info.shape) == 2:
            pack = packed(lambda: self._bytes(info), info.encoding, info.shape[0] * info.shape[1], key)
        return ConstantData(key, kind, lambda: self.array(name), pack)

    def _forget(self, info: TensorInfo) -> None:
        # Pages already read count as this process' memory until the kernel is told that they may go.
        advise = getattr(mmap, "MADV_DONTNEED", None)
        if advise is not None:
            first = info.start // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(advise, first, info.start + info.nbytes - first)


class _Cursor:
    """Sequential little-endian reads, each checked against the end of the file."""

    def __init__(self, data: mmap.mmap, label: str) -> None:
        self.data, self.label, self.at, self.end = data, label, 0, len(data)

    def failure(self, message: str, remedy: str | None = None) -> ImportFailure:
        return ImportFailure(f"{self.label}, byte {self.at}: {message}", source=self.label, remedy=remedy)

    def skip(self, count: int, what: str) -> int:
        """Move past `count` bytes and return where they start."""
        if count > self.end - self.at:
            raise ImportFailure(
                f"{self.label} is truncated or corrupt: {what} needs {count} bytes at byte {self.at}, "
                f"the file has {self.end}",
                source=self.label,
                remedy="fetch the file again",
            )
        start, self.at = self.at, self.at + count
        return start

    def integer(self, layout: str, what: str) -> int:
        return struct.unpack_from(layout, self.data, self.skip(struct.calcsize(layout), what))[0]

    def string(self, what: str) -> str:
        length = self.integer("<Q", what)
        start = self.skip(length, what)
        try:
            return self.data[start : start + length].decode("utf-8")
        except UnicodeDecodeError:
            raise self.failure(f"{what} is not UTF-8") from None

    def value(self, code: int, what: str, depth: int = 0) -> Any:
        if code == _STRING:
            return self.string(what)
        if code == _ARRAY:
            return self._array(what, depth)
        if code not in _SCALARS:
            raise self.failure(f"{what} has the unknown type {code}")
        start = self.skip(_SCALARS[code].itemsize, what)
        return np.frombuffer(self.data, _SCALARS[code], 1, start)[0].item()

    def _array(self, what: str, depth: int) -> Any:
        code, count = self.integer("<I", what), self.integer("<Q", what)
        if code in _SCALARS:
            item = _SCALARS[code]
            start = self.skip(count * item.itemsize, what)
            return np.frombuffer(self.data, item, count, start).copy()
        if depth >= _MAX_NESTING:
            raise self.failure(f"{what} nests too deep")
        # Each item takes at least its length field: a made-up count fails here instead of eating memory.
        if count > (self.end - self.at) // 8:
            self.skip(8 * count, what)
        return [self.value(code, what, depth + 1) for _ in range(count)]


def _mapped(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < 24:
                raise ImportFailure(f"{path} is too short to be a GGUF file", source=str(path))
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ImportFailure(f"there is no file {path}", source=str(path)) from None
    except (OSError, ValueError) as error:
        raise ImportFailure(f"{path} cannot be read: {error}", source=str(path)) from None


def _header(cursor: _Cursor) -> tuple[int, int]:
    start = cursor.skip(4, "the magic number")
    if cursor.data[start : start + 4] != MAGIC:
        raise ImportFailure(f"{cursor.label} is not a GGUF file", source=cursor.label)
    version = cursor.integer("<I", "the version")
    if version not in _VERSIONS:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS
        message = "big-endian files are not supported" if swapped else f"GGUF version {version} is not supported"
        raise cursor.failure(message, remedy="convert the file to little-endian GGUF version 3")
    tensors, pairs = cursor.integer("<Q", "the number of tensors"), cursor.integer("<Q", "the number of metadata keys")
    # A tensor record takes 24 bytes or more, a metadata pair 13 or more.
    if 24 * tensors + 13 * pairs > cursor.end:
        raise cursor.failure(f"{tensors} tensors and {pairs} metadata keys cannot fit into {cursor.end} bytes")
    return tensors, pairs
