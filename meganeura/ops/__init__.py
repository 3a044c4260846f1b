"""The ops: per op one class with shape rule, reference, decomposition and cost. Importing registers them all."""

from meganeura.ops import (
    activation,
    attention,
    elementwise,
    index,
    leaf,
    matmul,
    normalization,
    reduce,
    rotary,
    shape,
)

__all__ = [
    "activation",
    "attention",
    "elementwise",
    "index",
    "leaf",
    "matmul",
    "normalization",
    "reduce",
    "rotary",
    "shape",
]
