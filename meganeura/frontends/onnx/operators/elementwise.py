"""Arithmetic, comparison, logic and conversion."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from meganeura.frontends.onnx.elements import ELEMENTS, Element
from meganeura.frontends.onnx.node import OnnxNode
from meganeura.frontends.onnx.operators.axes import axis_of
from meganeura.frontends.onnx.registry import importer
from meganeura.frontends.onnx.value import Builder, Value
from meganeura.ir.types import DType

if TYPE_CHECKING:
    from meganeura.frontends.onnx.importer import Importer

UNARY = {
    "Abs": "abs",
    "Ceil": "ceil",
    "Cos": "cos",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "is_nan",
    "Log": "log",
    "Neg": "neg",
    "Not": "not",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sqrt": "sqrt",
    "Tanh": "tanh",
}
BINARY = {
    "Add": "add",
    "And": "and",
    "Div": "div",
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Mul": "mul",
    "Or": "or",
    "Sub": "sub",
    "Xor": "xor",
}
"""Operators that are one elementwise op of the IR."""


@importer(*UNARY)
def unary(build: Builder, node: OnnxNode, x: Value) -> Value:
    return build.apply(UNARY[node.op_type], x)


@importer(*BINARY)
def binary(build: Builder, node: OnnxNode, a: Value, b: Value) -> Value:
    return build.apply(BINARY[node.op_type], a, _aligned(node, a, b))


@importer("Greater", "GreaterOrEqual")
def greater(build: Builder, node: OnnxNode, a: Value, b: Value) -> Value:
    b = _aligned(node, a, b)
    return a > b if node.op_type == "Greater" else a >= b


def _aligned(node: OnnxNode, a: Value, b: Value) -> Value:
    """The second operand, placed for broadcasting: operator sets below 7 say at which axis of the first it lies."""
    if node.version >= 7 or "axis" not in node.attributes:
        return b
    return b.reshape((*b.shape, *(1,) * (a.rank - axis_of(node, node.need("axis"), a.rank) - b.rank)))


@importer("Where", since=9)
def where(build: Builder, node: OnnxNode, condition: Value, a: Value, b: Value) -> Value:
    return build.apply("where", condition, a, b)


@importer("Pow")
def power(build: Builder, node: OnnxNode, base: Value, exponent: Value) -> Value:
    """Small constant exponents become products and roots, which are exact for negative bases and cheaper."""
    exponent = _aligned(node, base, exponent)
    if exponent.known and exponent.size == 1 and exponent.rank <= base.rank:
        fixed = float(exponent.scalar("the exponent"))
        shape = base.shape
        if fixed in (1, 2, 3, 4):
            square = base if fixed == 1 else base * base
            return square if fixed <= 2 else square * base if fixed == 3 else square * square
        if base.dtype.is_float and fixed in (0.5, -0.5, -1.0):
            name = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}[fixed]
            return build.apply(name, base)
        if fixed == 0:
            return build.full(1, shape, base.dtype)
    if base.dtype.is_float:
        return build.apply("pow", base, exponent.cast(base.dtype))
    # Integers go through float32, exact up to 2**24.
    raised = build.apply("pow", base.cast(DType.F32), exponent.cast(DType.F32))
    return build.apply("round", raised).cast(base.dtype)


@importer("Mod", since=10)
def modulo(build: Builder, node: OnnxNode, a: Value, b: Value) -> Value:
    remainder = a % b
    if node.get("fmod", 0):
        return remainder
    if a.dtype is DType.U32:
        return remainder
    # The standard's remainder has the sign of the divisor, the IR's that of the dividend.
    differs = build.apply("xor", remainder < 0, b < 0)
    nonzero = build.apply("not", build.apply("equal", remainder, 0))
    return build.apply("where", build.apply("and", differs, nonzero), remainder + b, remainder)


@importer("IsInf", since=10)
def is_inf(build: Builder, node: OnnxNode, x: Value) -> Value:
    wanted = [math.inf] * node.get("detect_positive", 1) + [-math.inf] * node.get("detect_negative", 1)
    if not wanted:
        return build.full(False, x.shape, DType.BOOL)
    tests = [build.apply("equal", x, value) for value in wanted]
    return reduce(lambda a, b: build.apply("or", a, b), tests)


@importer("Max", "Min", "Sum", "Mean")
def variadic(build: Builder, node: OnnxNode, *operands: Value) -> Value:
    name = {"Max": "maximum", "Min": "minimum"}.get(node.op_type, "add")
    total = reduce(lambda a, b: build.apply(name, a, b), operands)
    return total / len(operands) if node.op_type == "Mean" and len(operands) > 1 else total


@importer("Clip", since=6)
def clip(build: Builder, node: OnnxNode, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    bounds: list[Value | float | None] = [low, high]
    if node.version < 11:
        bounds = [node.get("min"), node.get("max")]
    for name, bound in zip(("maximum", "minimum"), bounds, strict=True):
        if isinstance(bound, Value):
            bound = _within(build, bound, x.dtype)
        if bound is not None:
            x = build.apply(name, x, bound)
    return x


def _within(build: Builder, bound: Value, dtype: DType) -> Value:
    """A known bound of 64 bits brought into 32, where it bounds just as well."""
    if not bound.known or not dtype.is_integer:
        return bound
    limits = np.iinfo(dtype.numpy)
    array = bound.array("the bound")
    return build.wrap(np.clip(array, min(limits.min, 0), limits.max).astype(array.dtype))


@importer("Cast", since=6)
def cast(build: Builder, node: OnnxNode, x: Value) -> Value:
    return _convert(build, x, ELEMENTS[node.need("to")])


@importer("CastLike", since=15)
def cast_like(build: Importer, node: OnnxNode, x: Value, like: Value) -> Value:
    element = build.element(node.inputs[1])
    if element is None:
        raise node.unsupported("a target of unsupported element type")
    return _convert(build, x, element)


def _convert(build: Builder, x: Value, element: Element) -> Value:
    if x.known and not x.is_weight:
        return build.wrap(_converted(x.array("the operand"), element))
    return x.cast(element.dtype)


def _converted(array: np.ndarray, element: Element) -> np.ndarray:
    """As the IR's cast: floats to integers truncate and saturate, NaN is 0; 8 and 16-bit integers wrap."""
    if array.dtype.kind == "f" and element.dtype.is_integer:
        limits = np.iinfo(np.int32 if element.wraps else element.numpy)
        # The largest 64-bit integers have no exact float: stay below them.
        highest = float(limits.max) if float(limits.max) <= limits.max else np.nextafter(float(limits.max), 0)
        array = np.clip(np.nan_to_num(array.astype(np.float64), posinf=np.inf), float(limits.min), highest)
        array = array.astype(limits.dtype)
    with np.errstate(over="ignore"):
        return array.astype(element.numpy)
