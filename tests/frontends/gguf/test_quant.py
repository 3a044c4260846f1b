"""Every encoding against its definition, element by element."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from meganeura.errors import ImportFailure
from meganeura.frontends.gguf.quant import ENCODINGS, Encoding, dequantise, packed
from meganeura.ir.packing import unpacked

BY_NAME = {encoding.name: encoding for encoding in ENCODINGS.values()}


def _nibble(block: np.void, i: int, half: int) -> int:
    byte = int(block["q"][i % half])
    return byte >> 4 if i >= half else byte & 15


def _fifth(block: np.void, i: int) -> int:
    return (int(block["h"][i // 8]) >> i % 8 & 1) << 4


def _six_bits(s: np.ndarray, j: int) -> tuple[int, int]:
    b = [int(v) for v in s]
    if j < 4:
        return b[j] & 63, b[j + 4] & 63
    return b[j + 4] & 15 | b[j - 4] >> 6 << 4, b[j + 4] >> 4 | b[j] >> 6 << 4


def _k_nibble(block: np.void, i: int) -> int:
    # Groups of 64 elements share 32 bytes: low nibbles first.
    byte = int(block["q"][i // 64 * 32 + i % 32])
    return byte >> 4 if i % 64 >= 32 else byte & 15


def _two_bits(bytes_: np.ndarray, i: int) -> int:
    # Groups of 128 elements share 32 bytes: four fields each.
    return int(bytes_[i // 128 * 32 + i % 32]) >> 2 * (i % 128 // 32) & 3


def _value(name: str, block: np.void, i: int) -> float:
    """Element i of a block, as the format defines it."""
    names = block.dtype.names or ()
    d = float(block["d"])
    m = float(block["m"]) if "m" in names else 0.0
    if name == "Q8_0":
        return d * int(block["q"][i])
    if name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        q = _nibble(block, i, 16) + (_fifth(block, i) if name[1] == "5" else 0)
        return d * (q - (8 if name == "Q4_0" else 16)) if name.endswith("0") else d * q + m
    if name == "Q2_K":
        s = int(block["s"][i // 16])
        return d * (s & 15) * _two_bits(block["q"], i) - m * (s >> 4)
    if name == "Q3_K":
        j = i // 16
        s = [int(v) for v in block["s"]]
        low = s[j % 8] >> 4 if j >= 8 else s[j]
        scale = (low & 15 | (s[8 + j % 4] >> 2 * (j // 4) & 3) << 4) - 32
        q = _two_bits(block["q"], i) - (0 if int(block["h"][i % 32]) >> i // 32 & 1 else 4)
        return d * scale * q
    if name == "Q4_K":
        s, low = _six_bits(block["s"], i // 32)
        return d * s * _k_nibble(block, i) - m * low
    if name == "Q5_K":
        s, low = _six_bits(block["s"], i // 32)
        return d * s * (_k_nibble(block, i) + (int(block["h"][i % 32]) >> i // 32 & 1) * 16) - m * low
    assert name == "Q6_K"
    byte = int(block["q"][i // 128 * 64 + i % 64])
    q = (byte >> 4 if i % 128 >= 64 else byte & 15) + _two_bits(block["h"], i) * 16 - 32
    return d * int(block["s"][i // 16]) * q


@pytest.mark.parametrize("name", [e.name for e in ENCODINGS.values() if e.layout is not None and e.layout.names])
@pytest.mark.parametrize("count", [1, 3])
def test_blocks_expand_to_what_the_format_says(name: str, count: int) -> None:
    encoding = BY_NAME[name]
    random = np.random.default_rng(count)
    raw = random.integers(0, 256, count * encoding.block_bytes, dtype=np.uint8)
    assert encoding.layout is not None
    blocks = raw.view(encoding.layout)
    for field in ("d", "m"):
        if field in (encoding.layout.names or ()):
            blocks[field] = random.normal(size=count)
    want = [_value(name, block, i) for block in blocks for i in range(encoding.block)]
    got = dequantise(raw, encoding, "t")
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("F32", "<f4"), ("F16", "<f2"), ("F64", "<f8"), ("I8", "i1"), ("I16", "<i2"), ("I32", "<i4"), ("I64", "<i8")],
)
def test_plain_numbers_are_themselves(name: str, dtype: str) -> None:
    values = np.array([0, 1, -3, 100], dtype)
    got = dequantise(values.view(np.uint8), BY_NAME[name], "t")
    assert got.dtype == (np.int32 if name[0] == "I" else np.float32)
    assert np.array_equal(got, values)


def test_bfloat16_is_the_upper_half_of_a_float() -> None:
    values = np.array([1.0, -2.5, 0.0, np.inf, -0.0], np.float32)
    raw = (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    got = dequantise(raw, BY_NAME["BF16"], "t")
    assert np.array_equal(got, values) and np.signbit(got[-1])


def test_many_blocks_are_expanded_in_slices() -> None:
    encoding = BY_NAME["Q8_0"]
    count = (1 << 20) // 32 + 5
    blocks = np.zeros(count, encoding.layout)
    blocks["d"], blocks["q"] = 0.5, np.arange(count)[:, None] % 100
    got = dequantise(blocks.view(np.uint8), encoding, "t").reshape(count, 32)
    assert np.array_equal(got, np.repeat((np.arange(count) % 100 * 0.5)[:, None], 32, axis=1).astype(np.float32))


def test_integers_beyond_32_bits_and_unknown_encodings_are_refused() -> None:
    with pytest.raises(ImportFailure, match="beyond 32 bits"):
        dequantise(np.array([2**40], "<i8").view(np.uint8), BY_NAME["I64"], "t")
    with pytest.raises(ImportFailure, match="type 99"):
        dequantise(np.zeros(4, np.uint8), Encoding("type 99", 1, 0), "t")


@pytest.mark.parametrize("encoding", [e for e in ENCODINGS.values() if e.scheme is not None], ids=lambda e: e.name)
def test_packing_keeps_every_value(encoding: Encoding) -> None:
    """Random bytes, so every integer; factors down to the smallest that float16 has."""
    generator = np.random.default_rng(1)
    raw = generator.integers(0, 256, 300 * encoding.block_bytes, dtype=np.uint8)
    assert encoding.layout is not None
    blocks = raw.view(encoding.layout)
    for factor in {"d", "m"} & set(encoding.layout.names or ()):
        blocks[factor] = generator.standard_normal(300) * 10.0 ** generator.integers(-7, 4, 300)
    form = packed(lambda: nullcontext(raw), encoding, 300 * 32, "t")
    assert form is not None and form.words % 4 == 0
    found = unpacked(form.load(), form.scheme, form.blocks)
    assert np.array_equal(found, dequantise(raw, encoding, "t"))


def test_other_encodings_are_not_packed() -> None:
    names = {name for name, encoding in BY_NAME.items() if packed(lambda: nullcontext(np.empty(0)), encoding, 0, "t")}
    assert names == {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"}
