"""The "K" encodings: blocks of 256 elements whose sub-blocks have small integer scales of their own.

Each function writes blocks `[n]` (NumPy records, fields named in `quant.ENCODINGS`) into floats `[n, 256]`. A
value is `d * scale * q`, for the encodings with a minimum `d * scale * q - m * minimum`.
"""

from __future__ import annotations

import numpy as np


def _factor(blocks: np.ndarray, field: str) -> np.ndarray:
    return blocks[field].astype(np.float32)[:, None]


def _scale(out: np.ndarray, scales: np.ndarray, minima: np.ndarray | None = None) -> None:
    """Apply one scale (and minimum) per sub-block: both `[n, sub-blocks]`."""
    parts = out.reshape(len(out), scales.shape[1], -1)
    parts *= scales[:, :, None]
    if minima is not None:
        parts -= minima[:, :, None]


def _six_bit_pairs(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight 6-bit scales and eight 6-bit minima from 12 bytes: `[n, 8]` each.

    Bytes 0-3 and 4-7 hold the first four of each in their low six bits; bytes 8-11 the low nibbles of the last
    four, whose upper two bits are the upper bits of bytes 0-3 and 4-7.
    """
    a, b, c = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([a & 63, (c & 15) | (a >> 6) << 4], axis=1)
    minima = np.concatenate([b & 63, (c >> 4) | (b >> 6) << 4], axis=1)
    return scales, minima


def _nibble_groups(packed: np.ndarray) -> np.ndarray:
    """`[n, 4 * 32]` bytes to `[n, 4, 2, 32]`: per group of 32 bytes the low nibbles, then the high ones."""
    groups = packed.reshape(len(packed), 4, 1, 32)
    return groups >> np.array([0, 4], np.uint8)[:, None] & 15


def _two_bit_groups(packed: np.ndarray) -> np.ndarray:
    """`[n, 2 * 32]` bytes to `[n, 2, 4, 32]`: per group of 32 bytes the four 2-bit fields, lowest first."""
    groups = packed.reshape(len(packed), 2, 1, 32)
    return groups >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3


def _bit_planes(packed: np.ndarray) -> np.ndarray:
    """`[n, 32]` bytes to `[n, 8, 32]`: bit 0 of every byte, then bit 1, and so on."""
    return packed[:, None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1


def q2(blocks: np.ndarray, out: np.ndarray) -> None:
    """2-bit elements, 16 sub-blocks with 4-bit scale and minimum."""
    out[:] = _two_bit_groups(blocks["q"]).reshape(out.shape)
    _scale(out, _factor(blocks, "d") * (blocks["s"] & 15), _factor(blocks, "m") * (blocks["s"] >> 4))


def q3(blocks: np.ndarray, out: np.ndarray) -> None:
    """3-bit elements (two bits, and a mask of the third), 16 sub-blocks with signed 6-bit scales."""
    high = _bit_planes(blocks["h"]).reshape(out.shape)
    out[:] = _two_bit_groups(blocks["q"]).reshape(out.shape)
    out += high * np.float32(4)
    out -= 4
    packed = blocks["s"]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    # Byte 8 + j holds the upper two bits of the scales j, j + 4, j + 8 and j + 12.
    top = packed[:, None, 8:12] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    scales = (low | top.reshape(-1, 16) << 4).astype(np.float32) - 32
    _scale(out, _factor(blocks, "d") * scales)


def q4(blocks: np.ndarray, out: np.ndarray) -> None:
    """4-bit elements, eight sub-blocks with 6-bit scale and minimum."""
    out[:] = _nibble_groups(blocks["q"]).reshape(out.shape)
    scales, minima = _six_bit_pairs(blocks["s"])
    _scale(out, _factor(blocks, "d") * scales, _factor(blocks, "m") * minima)


def q5(blocks: np.ndarray, out: np.ndarray) -> None:
    """5-bit elements (a nibble, and a plane of fifth bits), eight sub-blocks with 6-bit scale and minimum."""
    out[:] = _nibble_groups(blocks["q"]).reshape(out.shape)
    out += _bit_planes(blocks["h"]).reshape(out.shape) * np.float32(16)
    scales, minima = _six_bit_pairs(blocks["s"])
    _scale(out, _factor(blocks, "d") * scales, _factor(blocks, "m") * minima)


def q6(blocks: np.ndarray, out: np.ndarray) -> None:
    """6-bit elements (a nibble and two upper bits), 16 sub-blocks with signed 8-bit scales."""
    # Per half of 128 elements: 64 bytes whose low nibbles hold elements 0..63 and whose high ones 64..127.
    halves = blocks["q"].reshape(-1, 2, 1, 64)
    low = halves >> np.array([0, 4], np.uint8)[:, None] & 15
    out[:] = low.reshape(out.shape)
    out += _two_bit_groups(blocks["h"]).reshape(out.shape) * np.float32(16)
    out -= 32
    _scale(out, _factor(blocks, "d") * blocks["s"].astype(np.float32))
