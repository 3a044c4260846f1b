"""Element types of GGUF tensors and their expansion to float32, vectorised over blocks.

A quantised tensor is a row of blocks; each block holds small integers and the factors that scale them. Blocks
are expanded a slice at a time, so that temporaries stay small beside the result.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from meganeura.errors import ImportFailure
from meganeura.frontends.gguf import kquant
from meganeura.ir.packing import BLOCK, SCHEMES, Packed, Scheme, pack_factors, pack_integers

_Fill = Callable[[np.ndarray, np.ndarray], None]
_SLICE = 1 << 20
"""Elements expanded at a time."""


@dataclass(frozen=True)
class Encoding:
    """How elements are stored.

    Attributes:
        name: the format's name for it. block: elements per block. block_bytes: bytes per block.
        layout: NumPy type of one block. fill: writes blocks `[n]` into floats `[n, block]`; None where the
            layout's own numbers are the values. integer: the values are integers.
        scheme: how its blocks can be packed for the device, None where they can't.
        integers: the 8-bit integers `[n, 32]` to pack, of blocks `[n]` with factors `d` (and minima `m`).
    """

    name: str
    block: int
    block_bytes: int
    layout: np.dtype | None = None
    fill: _Fill | None = None
    integer: bool = False
    scheme: Scheme | None = None
    integers: Callable[[np.ndarray], np.ndarray] | None = None

    @property
    def known(self) -> bool:
        """Whether tensors stored like this can be read."""
        return self.layout is not None


def dequantise(raw: np.ndarray, encoding: Encoding, name: str) -> np.ndarray:
    """Expand bytes into a new flat float32 array (int32 for integer encodings).

    Args:
        raw: uint8, whole blocks. encoding: how they are stored. name: the tensor, for messages.
    """
    if encoding.layout is None:
        raise ImportFailure(f"tensor {name!r} is stored as {encoding.name}, which is not supported", source=name)
    blocks = raw.view(encoding.layout)
    if encoding.integer:
        if blocks.size and (blocks.min() < -(2**31) or blocks.max() >= 2**31):
            raise ImportFailure(f"tensor {name!r} holds integers beyond 32 bits", source=name)
        return blocks.astype(np.int32)
    if encoding.fill is None:
        return blocks.astype(np.float32)
    out = np.empty((blocks.size, encoding.block), np.float32)
    step = max(1, _SLICE // encoding.block)
    with np.errstate(all="ignore"):
        for start in range(0, blocks.size, step):
            encoding.fill(blocks[start : start + step], out[start : start + step])
    return out.reshape(-1)


def packed(
    raw: Callable[[], AbstractContextManager[np.ndarray]], encoding: Encoding, elements: int, key: str
) -> Packed | None:
    """A tensor's blocks as they go to the device, or None for an encoding that doesn't.

    Args:
        raw: lends the tensor's bytes, uint8. encoding: how they are stored. elements: how many there are.
        key: identity of the tensor.
    """
    scheme, integers = encoding.scheme, encoding.integers
    if scheme is None or integers is None or encoding.layout is None:
        return None
    layout = encoding.layout

    def fill(words: np.ndarray, factors: np.ndarray) -> None:
        with raw() as lent:
            blocks, step = lent.view(layout), _SLICE // BLOCK
            for start in range(0, blocks.size, step):
                part = slice(start, start + step)
                pack_integers(integers(blocks[part]), scheme, words[part])
            pack_factors(scheme, blocks["d"], blocks["m"] if scheme.minimum else None, factors)

    return Packed(key, scheme, elements // BLOCK, fill)


def _column(factors: np.ndarray) -> np.ndarray:
    return factors.astype(np.float32)[:, None]


def _nibbles(packed: np.ndarray, out: np.ndarray) -> None:
    # The first half of a block lies in the low nibbles, the second in the high ones.
    half = packed.shape[1]
    np.bitwise_and(packed, 15, out=out[:, :half], casting="unsafe")
    np.right_shift(packed, 4, out=out[:, half:], casting="unsafe")


def _add_fifth_bit(high: np.ndarray, out: np.ndarray) -> None:
    bits = np.unpackbits(high, axis=1, bitorder="little")
    out += bits * np.float32(16)


def _q4_0(blocks: np.ndarray, out: np.ndarray) -> None:
    _nibbles(blocks["q"], out)
    out -= 8
    out *= _column(blocks["d"])


def _q4_1(blocks: np.ndarray, out: np.ndarray) -> None:
    _nibbles(blocks["q"], out)
    out *= _column(blocks["d"])
    out += _column(blocks["m"])


def _q5_0(blocks: np.ndarray, out: np.ndarray) -> None:
    _nibbles(blocks["q"], out)
    _add_fifth_bit(blocks["h"], out)
    out -= 16
    out *= _column(blocks["d"])


def _q5_1(blocks: np.ndarray, out: np.ndarray) -> None:
    _nibbles(blocks["q"], out)
    _add_fifth_bit(blocks["h"], out)
    out *= _column(blocks["d"])
    out += _column(blocks["m"])


def _q8_0(blocks: np.ndarray, out: np.ndarray) -> None:
    np.multiply(blocks["q"], _column(blocks["d"]), out=out)


def _four_bits(blocks: np.ndarray) -> np.ndarray:
    return np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1)


def _five_bits(blocks: np.ndarray) -> np.ndarray:
    return _four_bits(blocks) | np.unpackbits(blocks["h"], axis=1, bitorder="little") << 4


def _bf16(blocks: np.ndarray, out: np.ndarray) -> None:
    # bfloat16 is the upper half of a float32.
    np.left_shift(blocks[:, None], np.uint32(16), out=out.view(np.uint32), dtype=np.uint32, casting="unsafe")


def _plain(name: str, layout: str, integer: bool = False) -> Encoding:
    dtype = np.dtype(layout)
    return Encoding(name, 1, dtype.itemsize, dtype, integer=integer)


def _blocks(name: str, block: int, layout: list[tuple], fill: _Fill, scheme: str = "", integers=None) -> Encoding:
    dtype = np.dtype(layout)
    return Encoding(
        name, block, dtype.itemsize, dtype, fill, scheme=SCHEMES[scheme] if scheme else None, integers=integers
    )


_D, _M = ("d", "<f2"), ("m", "<f2")

ENCODINGS: dict[int, Encoding] = {
    0: _plain("F32", "<f4"),
    1: _plain("F16", "<f2"),
    2: _blocks("Q4_0", 32, [_D, ("q", "u1", 16)], _q4_0, "q4_0", _four_bits),
    3: _blocks("Q4_1", 32, [_D, _M, ("q", "u1", 16)], _q4_1, "q4_1", _four_bits),
    6: _blocks(
        "Q5_0",
        32,
        [_D, ("h", "u1", 4), ("q", "u1", 16)],
        _q5_0,
        "q8_0",
        lambda b: _five_bits(b).view(np.int8) - np.int8(16),
    ),
    7: _blocks("Q5_1", 32, [_D, _M, ("h", "u1", 4), ("q", "u1", 16)], _q5_1, "q8_1", _five_bits),
    8: _blocks("Q8_0", 32, [_D, ("q", "i1", 32)], _q8_0, "q8_0", lambda b: b["q"]),
    10: _blocks("Q2_K", 256, [("s", "u1", 16), ("q", "u1", 64), _D, _M], kquant.q2),
    11: _blocks("Q3_K", 256, [("h", "u1", 32), ("q", "u1", 64), ("s", "u1", 12), _D], kquant.q3),
    12: _blocks("Q4_K", 256, [_D, _M, ("s", "u1", 12), ("q", "u1", 128)], kquant.q4),
    13: _blocks("Q5_K", 256, [_D, _M, ("s", "u1", 12), ("h", "u1", 32), ("q", "u1", 128)], kquant.q5),
    14: _blocks("Q6_K", 256, [("q", "u1", 128), ("h", "u1", 64), ("s", "i1", 16), _D], kquant.q6),
    24: _plain("I8", "i1", integer=True),
    25: _plain("I16", "<i2", integer=True),
    26: _plain("I32", "<i4", integer=True),
    27: _plain("I64", "<i8", integer=True),
    28: _plain("F64", "<f8"),
    30: Encoding("BF16", 1, 2, np.dtype("<u2"), _bf16),
}
"""Supported encodings by their number in the file."""
