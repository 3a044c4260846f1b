"""Activation functions: composites of elementwise primitives, each also a matmul epilogue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from meganeura.ir.op import Kind, Op
from meganeura.ir.types import ValueType
from meganeura.ops.elementwise import Elementwise, Erf, Maximum, Sigmoid, Tanh

if TYPE_CHECKING:
    from meganeura.ir.graph import Tensor

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
"""Factor of the tanh approximation of GELU."""
GELU_CUBIC = 0.044715
"""Cubic coefficient of the tanh approximation of GELU (Hendrycks and Gimpel, 2016)."""


@dataclass(frozen=True)
class _Activation(Elementwise):
    kind: ClassVar[Kind] = Kind.COMPOSITE
    accepts: ClassVar[str] = "float"
    flops: ClassVar[float] = 16.0


@dataclass(frozen=True)
class Relu(_Activation):
    """max(x, 0)."""

    name: ClassVar[str] = "relu"
    flops: ClassVar[float] = 1.0

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return np.maximum(inputs[0], 0.0)

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        return inputs[0].graph.apply(Maximum(), inputs[0], 0.0)


@dataclass(frozen=True)
class Silu(_Activation):
    """x * sigmoid(x), also called swish."""

    name: ClassVar[str] = "silu"

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return inputs[0] * Sigmoid().evaluate(inputs, output)

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        return inputs[0] * inputs[0].graph.apply(Sigmoid(), inputs[0])


@dataclass(frozen=True)
class Gelu(_Activation):
    """x * (1 + erf(x / sqrt 2)) / 2, the exact form."""

    name: ClassVar[str] = "gelu"

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        (x,) = inputs
        return 0.5 * x * (1 + Erf().evaluate([x / math.sqrt(2)], output))

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        (x,) = inputs
        return x * 0.5 * (x.graph.apply(Erf(), x * (1 / math.sqrt(2))) + 1.0)


@dataclass(frozen=True)
class GeluTanh(_Activation):
    """x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x**3))) / 2, the tanh approximation."""

    name: ClassVar[str] = "gelu_tanh"

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        (x,) = inputs
        with np.errstate(all="ignore"):
            return 0.5 * x * (1 + np.tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x**3)))

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        (x,) = inputs
        inner = (x + x * x * x * GELU_CUBIC) * SQRT_2_OVER_PI
        return x * 0.5 * (x.graph.apply(Tanh(), inner) + 1.0)


@dataclass(frozen=True)
class SwiGlu(_Activation):
    """silu(gate) * up; inputs gate and up, of one shape."""

    name: ClassVar[str] = "swiglu"
    arity: ClassVar[int] = 2

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        return Silu().evaluate(inputs[:1], output) * inputs[1]

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        return inputs[0].graph.apply(Silu(), inputs[0]) * inputs[1]


ACTIVATIONS: dict[str, Op] = {op.name: op for op in (Relu(), Silu(), Gelu(), GeluTanh(), Tanh(), Sigmoid())}
"""Unary functions a matmul kernel can apply to its product, by IR name."""
