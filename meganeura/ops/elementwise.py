"""Elementwise ops with NumPy broadcasting: arithmetic, comparison, logic, selection and conversion.

Numbers follow the device: integer arithmetic wraps at 32 bits, `div` and `mod` of integers truncate towards
zero, float to integer conversion truncates and saturates, comparisons with NaN are false.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from meganeura.errors import GraphError
from meganeura.ir.op import Op
from meganeura.ir.types import DType, TensorType, ValueType, broadcast_shapes

_TRANSCENDENTAL = 8.0
_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True)
class Elementwise(Op):
    """Common shape rule: shapes broadcast, dtypes agree, result of the same dtype.

    Class attributes:
        accepts: "float", "number" (floats and integers), "bool" or "any": dtypes of the operands.
        function: the NumPy function on float64, int64 or bool arrays.
    """

    elementwise: ClassVar[bool] = True
    accepts: ClassVar[str] = "number"
    function: ClassVar[Callable[..., Any]]
    flops: ClassVar[float] = 1.0

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        dtype = inputs[0].dtype
        if any(i.dtype != dtype for i in inputs):
            raise self.fail("operands differ in dtype; cast one", inputs)
        allowed = {
            "float": dtype.is_float,
            "number": dtype is not DType.BOOL,
            "bool": dtype is DType.BOOL,
            "any": True,
        }
        if not allowed[self.accepts]:
            raise self.fail(f"does not take {dtype.value}", inputs)
        try:
            shape = broadcast_shapes(*(i.shape for i in inputs))
        except GraphError:
            raise self.fail("shapes do not broadcast", inputs) from None
        return TensorType(self.result_dtype(dtype), shape)

    def result_dtype(self, dtype: DType) -> DType:
        return dtype

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        with np.errstate(all="ignore"):
            return type(self).function(*inputs)

    def flops_per_element(self) -> float:
        return self.flops


def _integer_or(on_float: Callable[..., Any], on_integer: Callable[..., Any]) -> Callable[..., Any]:
    def pick(*arrays: np.ndarray) -> Any:
        return (on_float if arrays[0].dtype == np.float64 else on_integer)(*arrays)

    return pick


def _truncated_division(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    safe = np.where(b == 0, 1, b)
    # WGSL: x / 0 is x.
    return np.where(b == 0, a, np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe)))


def _truncated_remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, 0, a - b * _truncated_division(a, b))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    tail = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + tail), tail / (1 + tail))


def _define(class_name: str, ir_name: str, doc: str, function: Callable[..., Any], **extra: Any) -> Any:
    """Declare one elementwise op; `extra` overrides arity, accepts, flops or the base class."""
    base = extra.pop("base", Elementwise)
    namespace = {"__doc__": doc, "__module__": __name__, "name": ir_name, "function": staticmethod(function), **extra}
    return dataclass(frozen=True)(type(class_name, (base,), namespace))


@dataclass(frozen=True)
class _Comparison(Elementwise):
    arity: ClassVar[int] = 2

    def result_dtype(self, dtype: DType) -> DType:
        return DType.BOOL


Neg = _define("Neg", "neg", "-x.", lambda x: -x)
Abs = _define("Abs", "abs", "|x|.", np.abs)
Sign = _define("Sign", "sign", "-1, 0 or 1.", np.sign)
Exp = _define("Exp", "exp", "e**x.", np.exp, accepts="float", flops=_TRANSCENDENTAL)
Log = _define("Log", "log", "Natural logarithm.", np.log, accepts="float", flops=_TRANSCENDENTAL)
Sqrt = _define("Sqrt", "sqrt", "Square root.", np.sqrt, accepts="float", flops=4.0)
Rsqrt = _define("Rsqrt", "rsqrt", "1/sqrt(x).", lambda x: 1 / np.sqrt(x), accepts="float", flops=4.0)
Reciprocal = _define("Reciprocal", "reciprocal", "1/x.", lambda x: 1 / x, accepts="float", flops=4.0)
Tanh = _define("Tanh", "tanh", "Hyperbolic tangent.", np.tanh, accepts="float", flops=_TRANSCENDENTAL)
Sigmoid = _define("Sigmoid", "sigmoid", "1/(1+exp(-x)).", _sigmoid, accepts="float", flops=_TRANSCENDENTAL)
Erf = _define("Erf", "erf", "Gauss error function.", lambda x: _erf(x) if x.size else x, accepts="float", flops=16.0)
Sin = _define("Sin", "sin", "Sine of radians.", np.sin, accepts="float", flops=_TRANSCENDENTAL)
Cos = _define("Cos", "cos", "Cosine of radians.", np.cos, accepts="float", flops=_TRANSCENDENTAL)
Floor = _define("Floor", "floor", "Largest integer not above x.", np.floor, accepts="float")
Ceil = _define("Ceil", "ceil", "Smallest integer not below x.", np.ceil, accepts="float")
Round = _define("Round", "round", "Nearest integer, ties to even.", np.round, accepts="float")
Not = _define("Not", "not", "Logical negation.", np.logical_not, accepts="bool")
IsNan = _define("IsNan", "is_nan", "True where x is NaN.", np.isnan, accepts="float", base=_Comparison, arity=1)

Add = _define("Add", "add", "a + b.", np.add, arity=2)
Sub = _define("Sub", "sub", "a - b.", np.subtract, arity=2)
Mul = _define("Mul", "mul", "a * b.", np.multiply, arity=2)
Div = _define(
    "Div", "div", "a / b; integers truncate.", _integer_or(np.divide, _truncated_division), arity=2, flops=4.0
)
Mod = _define(
    "Mod", "mod", "Remainder with the sign of a.", _integer_or(np.fmod, _truncated_remainder), arity=2, flops=4.0
)
Pow = _define("Pow", "pow", "a ** b for floats.", np.power, arity=2, accepts="float", flops=2 * _TRANSCENDENTAL)
Maximum = _define("Maximum", "maximum", "Larger of a and b; NaN wins.", np.maximum, arity=2)
Minimum = _define("Minimum", "minimum", "Smaller of a and b; NaN wins.", np.minimum, arity=2)
Equal = _define("Equal", "equal", "a == b.", np.equal, base=_Comparison, accepts="any")
Less = _define("Less", "less", "a < b.", np.less, base=_Comparison)
LessEqual = _define("LessEqual", "less_equal", "a <= b.", np.less_equal, base=_Comparison)
And = _define("And", "and", "Logical and.", np.logical_and, arity=2, accepts="bool")
Or = _define("Or", "or", "Logical or.", np.logical_or, arity=2, accepts="bool")
Xor = _define("Xor", "xor", "Logical exclusive or.", np.logical_xor, arity=2, accepts="bool")


@dataclass(frozen=True)
class Where(Elementwise):
    """`a` where the boolean condition holds, else `b`; inputs: condition, a, b."""

    name: ClassVar[str] = "where"
    arity: ClassVar[int] = 3
    function: ClassVar[Callable[..., Any]] = staticmethod(np.where)

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        condition, a, b = inputs
        if condition.dtype is not DType.BOOL:
            raise self.fail("the condition must be bool", inputs)
        if a.dtype != b.dtype:
            raise self.fail("branches differ in dtype; cast one", inputs)
        try:
            return TensorType(a.dtype, broadcast_shapes(condition.shape, a.shape, b.shape))
        except GraphError:
            raise self.fail("shapes do not broadcast", inputs) from None


@dataclass(frozen=True)
class Cast(Elementwise):
    """Convert to `dtype`: float to integer truncates and saturates, NaN becomes 0, bool is 0 or 1."""

    name: ClassVar[str] = "cast"
    accepts: ClassVar[str] = "any"
    dtype: DType

    def result_dtype(self, dtype: DType) -> DType:
        return self.dtype

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        (x,) = inputs
        if self.dtype is DType.BOOL:
            return x != 0
        if self.dtype.is_float:
            return x.astype(np.float64)
        if x.dtype == np.float64:
            low, high = (-(2**31), 2**31 - 1) if self.dtype is DType.I32 else (0, 2**32 - 1)
            return np.clip(np.nan_to_num(np.trunc(x), nan=0.0), low, high).astype(np.int64)
        return x.astype(np.int64)
