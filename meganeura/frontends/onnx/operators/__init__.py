"""The operators, grouped by idea; importing this package fills `HANDLERS`."""

from meganeura.frontends.onnx.operators import (
    activation,
    control,
    elementwise,
    functions,
    host,
    indexing,
    linear,
    normalization,
    reduction,
    shape,
)
from meganeura.frontends.onnx.registry import HANDLERS

__all__ = [
    "HANDLERS",
    "activation",
    "control",
    "elementwise",
    "functions",
    "host",
    "indexing",
    "linear",
    "normalization",
    "reduction",
    "shape",
]
