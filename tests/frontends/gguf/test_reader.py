"""The container: values come back as written, and no damage gets past as anything but ImportFailure."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meganeura.errors import ImportFailure
from meganeura.frontends.gguf.model import DecoderFile
from meganeura.frontends.gguf.reader import GgufFile
from meganeura.ir.types import DType
from meganeura.text.tokenizer import Tokenizer
from tests.frontends.gguf.tiny import write_tiny
from tests.frontends.gguf.writer import ENCODERS, write_gguf

METADATA = {
    "general.architecture": "none",
    "a.bool": True,
    "a.text": "grüße",
    "a.empty": "",
    **{f"a.{t.__name__}": t(7) for t in (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32)},
    **{f"a.{t.__name__}": t(7) for t in (np.uint64, np.int64, np.float32, np.float64)},
    "a.numbers": np.arange(5, dtype=np.int16),
    "a.flags": np.array([True, False]),
    "a.texts": ["x", "", "日本"],
    "a.nested": [np.arange(2, dtype=np.int32), np.arange(3, dtype=np.int32)],
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf", encoding="Q4_1")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [None, 1, 64])
def test_metadata_of_every_type_comes_back(tmp_path: Path, version: int, alignment: int | None) -> None:
    metadata = METADATA if alignment is None else {**METADATA, "general.alignment": alignment}
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    file = GgufFile(write_gguf(tmp_path / "f.gguf", metadata, {"t": (values, "F32")}, version=version))
    assert list(file.metadata) == list(metadata)
    for key, value in metadata.items():
        found = file.metadata[key]
        if isinstance(value, np.ndarray):
            assert found.dtype == value.dtype and np.array_equal(found, value)
        elif key == "a.nested":
            assert all(np.array_equal(a, b) for a, b in zip(found, value, strict=True))
        else:
            assert found == value and not isinstance(found, np.generic)
    assert np.array_equal(file.array("t"), values)


@pytest.mark.parametrize("encoding", ENCODERS)
def test_tensors_come_back_within_their_encoding(tmp_path: Path, encoding: str) -> None:
    values = np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)
    file = GgufFile(write_gguf(tmp_path / "f.gguf", {}, {"t": (values, encoding), "u": (values[:1], "F32")}))
    assert file.tensors["t"].shape == (3, 64) and file.tensors["t"].encoding.name == encoding
    step = {"F32": 0, "F16": 1e-3, "BF16": 2e-2, "Q8_0": 0.02, "Q4_0": 0.3, "Q4_1": 0.3}[encoding]
    assert np.abs(file.array("t") - values).max() <= step
    assert np.array_equal(file.array("u"), values[:1])


def test_constants_are_lazy_and_have_stable_keys(tiny: Path) -> None:
    first, second = GgufFile(tiny), GgufFile(tiny)
    name = "blk.0.attn_q.weight"
    one, two = first.constant(name), second.constant(name)
    assert one.key == two.key != first.constant("blk.1.attn_q.weight").key
    assert one.type.dtype is DType.F32 and one.type.shape == (32, 32)
    assert np.array_equal(one.load(), two.load())
    assert one.load() is not one.load()


def test_another_file_has_other_keys(tmp_path: Path, tiny: Path) -> None:
    copy = tmp_path / "copy.gguf"
    data = bytearray(tiny.read_bytes())
    data[-100] ^= 255
    copy.write_bytes(data)
    name = "blk.1.ffn_norm.weight"
    assert GgufFile(copy).constant(name).key != GgufFile(tiny).constant(name).key


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path, tiny: Path) -> None:
    data = tiny.read_bytes()
    header = len(data) - sum(i.nbytes for i in GgufFile(tiny).tensors.values())
    cuts = {0, 3, 4, 8, 23, 24, 30, *range(32, header, 97), *range(header, len(data) - 1, 4001), len(data) - 1}
    target = tmp_path / "cut.gguf"
    for cut in sorted(cuts):
        target.write_bytes(data[:cut])
        with pytest.raises(ImportFailure) as caught:
            GgufFile(target)
        assert "cut.gguf" in str(caught.value)
    message = str(caught.value)
    assert "truncated" in message and "output_norm.weight" in message and str(len(data) - 1) in message


def _patched(path: Path, target: Path, at: int, raw: bytes) -> Path:
    data = bytearray(path.read_bytes())
    data[at : at + len(raw)] = raw
    target.write_bytes(data)
    return target


@pytest.mark.parametrize(
    ("at", "raw", "word"),
    [
        (0, b"GGML", "not a GGUF file"),
        (4, struct.pack("<I", 1), "version 1"),
        (4, struct.pack(">I", 3), "big-endian"),
        (8, struct.pack("<Q", 2**60), "cannot fit"),
        (16, struct.pack("<Q", 2**60), "cannot fit"),
        (24, struct.pack("<Q", 2**63), "truncated or corrupt"),
        (32, b"\xff\xfe", "not UTF-8"),
        (24 + 8 + len("general.architecture"), struct.pack("<I", 99), "unknown type 99"),
    ],
)
def test_a_damaged_header_is_named(tmp_path: Path, tiny: Path, at: int, raw: bytes, word: str) -> None:
    with pytest.raises(ImportFailure, match=word):
        GgufFile(_patched(tiny, tmp_path / "f.gguf", at, raw))


@pytest.mark.parametrize(
    ("metadata", "word"),
    [
        ({"general.alignment": 3}, "power of two"),
        ({"general.alignment": "wide"}, "whole number"),
        ({"split.count": 2}, "several files"),
    ],
)
def test_impossible_metadata_is_named(tmp_path: Path, metadata: dict, word: str) -> None:
    written = {k: v for k, v in metadata.items() if k != "general.alignment"}
    path = write_gguf(tmp_path / "f.gguf", {**written, "general.alignmenu": metadata.get("general.alignment", 0)}, {})
    path.write_bytes(path.read_bytes().replace(b"general.alignmenu", b"general.alignment"))
    with pytest.raises(ImportFailure, match=word):
        GgufFile(path)


def _record(name: bytes, *dims: int, code: int = 0, offset: int = 0) -> bytes:
    head = struct.pack("<Q", len(name)) + name
    return head + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, code, offset)


@pytest.mark.parametrize(
    ("records", "word"),
    [
        ([_record(b"t", 4), _record(b"t", 4)], "twice"),
        ([_record(b"t", *[1] * 9)], "9 dimensions"),
        ([_record(b"t", 2**40, 2**40)], "impossible shape"),
        ([_record(b"t", 0)], "impossible shape"),
        ([_record(b"t", 33, code=8)], "impossible shape"),
        ([_record(b"t", 4, offset=2**62)], "truncated"),
    ],
)
def test_an_impossible_tensor_table_is_named(tmp_path: Path, records: list[bytes], word: str) -> None:
    path = tmp_path / "f.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, len(records), 0) + b"".join(records) + b"\0" * 256)
    with pytest.raises(ImportFailure, match=word):
        GgufFile(path)


def test_an_unknown_encoding_is_refused_when_used(tmp_path: Path) -> None:
    path = tmp_path / "f.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + _record(b"t", 256, code=16) + b"\0" * 512)
    file = GgufFile(path)
    with pytest.raises(ImportFailure, match="type 16"):
        file.constant("t")
    with pytest.raises(ImportFailure, match="no tensor 'missing'"):
        file.constant("missing")


@pytest.mark.parametrize("make", [lambda p: p / "none.gguf", lambda p: p])
def test_what_is_no_file_is_refused(tmp_path: Path, make) -> None:
    with pytest.raises(ImportFailure):
        GgufFile(make(tmp_path))


def test_an_endless_array_is_refused_without_eating_memory(tmp_path: Path) -> None:
    body = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 8, 2**50)
    path = tmp_path / "f.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + body + b"\0" * 64)
    with pytest.raises(ImportFailure, match="truncated or corrupt"):
        GgufFile(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_damage_is_harmless_or_an_import_failure(tmp_path: Path, tiny: Path, data: st.DataObject) -> None:
    raw = bytearray(tiny.read_bytes())
    # Metadata numbers and the tensor table stand near the ends of the header; the vocabulary fills its middle.
    header = len(raw) - sum(i.nbytes for i in GgufFile(tiny).tensors.values())
    place = st.integers(0, 700) | st.integers(header - 1600, header - 1)
    for at in data.draw(st.lists(place, min_size=1, max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    target = tmp_path / "damaged.gguf"
    target.write_bytes(raw)
    try:
        decoder = DecoderFile(target, context=8)
        Tokenizer(decoder.file.metadata, "damaged", decoder.config.vocabulary)
        decoder.prefill.graph({"n": 3})
    except ImportFailure:
        pass
