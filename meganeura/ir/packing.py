"""Quantised weights as they lie on the device: small integers in blocks of 32 along the last axis, and their factors.

A packed tensor of `n` blocks, in row-major order, is a run of 32-bit words: first the integers of all blocks, then
one word of factors per block, then zeros up to a multiple of four words. Four words form a vector whose fields stand
so that one shift and one mask give four neighbouring weights:

- 4 bits, one vector per block: weight `4 j + w` is nibble `j` of word `w`;
- 8 bits, two vectors per block: weight `16 v + 4 j + w` is byte `j` (two's complement) of word `w` of vector `v`.

A weight is `d * (q - zero)`, with a minimum `d * q + m`, computed in float32. The word of factors is the float32 `d`,
with a minimum the float16 `d` in its low half and `m` in its high half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

BLOCK = 32
"""Weights per block."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a block of weights is packed.

    Attributes:
        name: what it is called. bits: of an integer, 4 (unsigned) or 8 (signed).
        zero: subtracted from every integer. minimum: blocks have a minimum that is added.
    """

    name: str
    bits: int
    zero: int = 0
    minimum: bool = False

    @property
    def vectors(self) -> int:
        """Vectors of four words that hold a block's integers."""
        return self.bits // 4

    def words(self, blocks: int) -> int:
        """32-bit words of a packed tensor of so many blocks."""
        return blocks * self.bits + -(-blocks // 4) * 4


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("q4_0", 4, zero=8),
        Scheme("q4_1", 4, minimum=True),
        Scheme("q8_0", 8),
        Scheme("q8_1", 8, minimum=True),
    )
}
"""Known schemes by name."""

Fill = Callable[[np.ndarray, np.ndarray], None]


@dataclass(frozen=True, eq=False)
class Packed:
    """A constant's packed form.

    Attributes:
        key: identity of the words. scheme: how its blocks are packed. blocks: how many there are, row by row.
        fill: writes the integers into uint32 `[blocks, bits]` and the factors into uint32 `[blocks]`.
        transposed: the constant is the transpose of the matrix that is packed, so that blocks lie along its axis 0.
    """

    key: str
    scheme: Scheme
    blocks: int
    fill: Fill
    transposed: bool = False

    @property
    def words(self) -> int:
        return self.scheme.words(self.blocks)

    def load(self) -> np.ndarray:
        """The words, uint32 `[words]`; made anew each time."""
        words = np.zeros(self.words, np.uint32)
        integers = self.blocks * self.scheme.bits
        self.fill(words[:integers].reshape(self.blocks, -1), words[integers : integers + self.blocks])
        return words


def transposed(packed: Packed) -> Packed:
    """The same words, as those of the transposed constant."""
    return replace(packed, transposed=not packed.transposed)


def joined(parts: Sequence[Packed]) -> Packed:
    """The blocks of several tensors of one scheme and orientation, one tensor after another."""

    def fill(integers: np.ndarray, factors: np.ndarray) -> None:
        start = 0
        for part in parts:
            stop = start + part.blocks
            part.fill(integers[start:stop], factors[start:stop])
            start = stop

    key = f"join({','.join(part.key for part in parts)})"
    return replace(parts[0], key=key, blocks=sum(part.blocks for part in parts), fill=fill)


def pack_integers(values: np.ndarray, scheme: Scheme, out: np.ndarray) -> None:
    """Write 8-bit integers `[blocks, 32]` (unsigned for 4 bits) into words `[blocks, bits]`."""
    if scheme.bits == 4:
        pairs = values.view(np.uint8).reshape(len(values), 4, 2, 4)
        fields = pairs[:, :, 0] | pairs[:, :, 1] << 4  # [blocks, byte, word]
        out.view(np.uint8).reshape(len(values), 4, 4)[...] = fields.transpose(0, 2, 1)
    else:
        fields = values.view(np.uint8).reshape(len(values), 2, 4, 4)  # [blocks, vector, byte, word]
        out.view(np.uint8).reshape(len(values), 2, 4, 4)[...] = fields.transpose(0, 1, 3, 2)


def pack_factors(scheme: Scheme, d: np.ndarray, m: np.ndarray | None, out: np.ndarray) -> None:
    """Write float16 factors `[blocks]` (and minima, where the scheme has them) into words `[blocks]`."""
    if m is None:
        out[...] = d.astype(np.float32).view(np.uint32)
    else:
        halves = out.view(np.uint16).reshape(len(out), 2)
        halves[:, 0], halves[:, 1] = d.view(np.uint16), m.view(np.uint16)


def unpacked(words: np.ndarray, scheme: Scheme, blocks: int) -> np.ndarray:
    """The weights of packed words, float32 `[blocks * 32]`: what kernels compute, in NumPy."""
    integers = words[: blocks * scheme.bits].reshape(blocks, scheme.vectors, 1, 4)
    factors = words[blocks * scheme.bits :][:blocks]
    if scheme.bits == 4:
        q = (integers >> np.arange(0, 32, 4, dtype=np.uint32)[:, None] & 15).astype(np.float32) - scheme.zero
    else:
        up = np.arange(24, -8, -8, dtype=np.uint32)[:, None]
        q = ((integers << up).view(np.int32) >> 24).astype(np.float32) - scheme.zero
    q = q.reshape(blocks, BLOCK)
    if not scheme.minimum:
        return (q * factors.view(np.float32)[:, None]).reshape(-1)
    halves = factors.view(np.float16).reshape(blocks, 2).astype(np.float32)
    return (q * halves[:, :1] + halves[:, 1:]).reshape(-1)
