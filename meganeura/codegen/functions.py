"""WGSL of every elementwise op, in one table: expressions, and the helper functions they call.

Expressions work on values in registers: floats are f32 whatever their storage, booleans are WGSL `bool`
(stored as u32 0 or 1). Arguments may be any expression; they are used once each, except where a table entry
repeats one, and are put in parentheses. The helper functions live in `shaders/functions.wgsl`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Sequence
from functools import cache

from meganeura.codegen.template import literal, template_text
from meganeura.errors import MeganeuraError
from meganeura.ir.op import Op
from meganeura.ir.types import BOOL, F16, F32, I32, U32, DType

# Per op: the expression for floats, and where they differ for i32, u32 and bool.
_UNARY: dict[str, str | dict[DType, str]] = {
    "neg": {F32: "-{x}", I32: "-{x}", U32: "(0u - {x})"},
    "abs": {F32: "abs({x})", I32: "abs({x})", U32: "{x}"},
    "sign": {F32: "sign_of({x})", I32: "sign({x})", U32: "min({x}, 1u)"},
    "exp": "exponential({x})",
    "log": "logarithm({x})",
    "sqrt": "sqrt({x})",
    "rsqrt": "inverseSqrt({x})",
    "reciprocal": "(1.0 / {x})",
    "tanh": "hyperbolic_tangent({x})",
    "sigmoid": "logistic({x})",
    "erf": "error_function({x})",
    "sin": "sine({x})",
    "cos": "cosine({x})",
    "floor": "floor({x})",
    "ceil": "ceil({x})",
    "round": "round({x})",
    "not": {BOOL: "!{x}"},
    "is_nan": "is_nan({x})",
    "relu": "relu({x})",
    "silu": "silu({x})",
    "gelu": "gelu({x})",
    "gelu_tanh": "gelu_tanh({x})",
}
_BINARY: dict[str, str | dict[DType, str]] = {
    "add": dict.fromkeys((F32, I32, U32), "({a} + {b})"),
    "sub": dict.fromkeys((F32, I32, U32), "({a} - {b})"),
    "mul": dict.fromkeys((F32, I32, U32), "({a} * {b})"),
    "div": {F32: "divide_f32({a}, {b})", I32: "divide_i32({a}, {b})", U32: "divide_u32({a}, {b})"},
    "mod": {F32: "remainder_f32({a}, {b})", I32: "remainder_i32({a}, {b})", U32: "remainder_u32({a}, {b})"},
    "pow": "power({a}, {b})",
    "maximum": {F32: "larger({a}, {b})", I32: "max({a}, {b})", U32: "max({a}, {b})"},
    "minimum": {F32: "smaller({a}, {b})", I32: "min({a}, {b})", U32: "min({a}, {b})"},
    "equal": dict.fromkeys((F32, I32, U32, BOOL), "({a} == {b})"),
    "less": dict.fromkeys((F32, I32, U32), "({a} < {b})"),
    "less_equal": dict.fromkeys((F32, I32, U32), "({a} <= {b})"),
    "and": {BOOL: "({a} && {b})"},
    "or": {BOOL: "({a} || {b})"},
    "xor": {BOOL: "({a} != {b})"},
    "swiglu": "(silu({a}) * {b})",
}
_CASTS: dict[tuple[DType, DType], str] = {
    (F32, I32): "to_i32({x})",
    (F32, U32): "to_u32({x})",
    (F32, BOOL): "((bitcast<u32>({x}) & 0x7fffffffu) != 0u)",
    (I32, F32): "f32({x})",
    (I32, U32): "bitcast<u32>({x})",
    (I32, BOOL): "({x} != 0i)",
    (U32, F32): "f32({x})",
    (U32, I32): "bitcast<i32>({x})",
    (U32, BOOL): "({x} != 0u)",
    (BOOL, F32): "select(0.0, 1.0, {x})",
    (BOOL, I32): "select(0i, 1i, {x})",
    (BOOL, U32): "select(0u, 1u, {x})",
}
_FUNCTION = re.compile(r"((?://[^\n]*\n)*)fn (\w+)\(.*?\n}\n", re.DOTALL)
_WORD = re.compile(r"\w+")


def register_type(dtype: DType) -> str:
    """The WGSL type of a value of this dtype in a register: f32 for both floats, `bool` for booleans."""
    return {F32: "f32", F16: "f32", I32: "i32", U32: "u32", BOOL: "bool"}[dtype]


def storage_type(dtype: DType) -> str:
    """The WGSL type of an element of this dtype in a buffer."""
    return "u32" if dtype is BOOL else dtype.value


def unary_expression(op_name: str, x: str, dtype: DType = F32) -> str:
    """The op applied to expression `x` whose operand dtype is `dtype`; raises MeganeuraError for unknown ones."""
    return _pick(_UNARY, op_name, dtype).format(x=_atom(x))


def binary_expression(op_name: str, a: str, b: str, dtype: DType = F32) -> str:
    """The op applied to expressions `a` and `b` of operand dtype `dtype`."""
    return _pick(_BINARY, op_name, dtype).format(a=_atom(a), b=_atom(b))


def select_expression(condition: str, a: str, b: str) -> str:
    """`a` where the WGSL bool `condition` holds, else `b`."""
    return f"select({b}, {a}, {condition})"


def cast_expression(x: str, source: DType, target: DType) -> str:
    """`x` converted as the `cast` op has it; to f16 it is rounded to that precision and stays an f32."""
    if target is F16:
        wide = cast_expression(x, source, F32)
        return x if source is F16 else f"rounded_to_f16({wide})"
    if _family(source) is _family(target):
        return x
    return _CASTS[_family(source), target].format(x=_atom(x))


def literal_expression(value: float, dtype: DType) -> str:
    """A constant of this dtype; infinities and NaN through their bits, integers wrapped to 32 bits."""
    if dtype is BOOL:
        return "true" if value else "false"
    if dtype is U32:
        return literal(int(value) % 2**32, "u32")
    if dtype is I32:
        wrapped = (int(value) + 2**31) % 2**32 - 2**31
        # The least integer has no literal of its own: the minus sign is an operator.
        return f"i32({wrapped})" if wrapped > -(2**31) else "bitcast<i32>(0x80000000u)"
    if dtype is F16:
        # struct refuses what rounds beyond the largest float16, 65504.
        value = (
            math.copysign(math.inf, value) if abs(value) >= 65520 else struct.unpack("<e", struct.pack("<e", value))[0]
        )
    bits = _float_bits(value)
    if bits & 0x7F800000 == 0x7F800000:
        return f"from_bits(0x{bits:08x}u)"
    return literal(struct.unpack("<f", struct.pack("<I", bits))[0], "f32")


def elementwise_expression(op: Op, arguments: Sequence[str], dtypes: Sequence[DType]) -> str:
    """Any elementwise op over argument expressions of these dtypes; raises MeganeuraError for other ops."""
    if op.name == "cast":
        return cast_expression(arguments[0], dtypes[0], op.dtype)  # type: ignore[attr-defined]
    if op.name == "where":
        return select_expression(*arguments)
    if op.name in _UNARY:
        return unary_expression(op.name, arguments[0], dtypes[0])
    return binary_expression(op.name, arguments[0], arguments[1], dtypes[0])


def helper_functions(names: Iterable[str]) -> str:
    """WGSL text of the helper functions that ops call, and of those that they call in turn.

    Args:
        names: op names (`cast` and `full` stand for everything their expressions may call), or helper names.
    """
    return helpers_in(" ".join(_all_forms(name) for name in sorted(set(names))))


def helpers_in(code: str) -> str:
    """WGSL text of the helper functions mentioned in a piece of generated code, each once, callees included."""
    library = _library()
    wanted: set[str] = set()
    pending = set(_WORD.findall(code)) & library.keys()
    while pending:
        name = pending.pop()
        wanted.add(name)
        pending |= (set(_WORD.findall(library[name])) & library.keys()) - wanted
    return "\n".join(text for name, text in library.items() if name in wanted)


@cache
def _library() -> dict[str, str]:
    return {m.group(2): m.group(0) for m in _FUNCTION.finditer(template_text("functions"))}


def _all_forms(name: str) -> str:
    if name == "cast":
        return "to_i32 to_u32 rounded_to_f16"
    if name == "full":
        return "from_bits"
    forms = _UNARY.get(name) or _BINARY.get(name) or name
    return forms if isinstance(forms, str) else " ".join(forms.values())


def _pick(table: dict[str, str | dict[DType, str]], name: str, dtype: DType) -> str:
    entry = table.get(name)
    form = entry if isinstance(entry, str) and dtype.is_float else None
    if isinstance(entry, dict):
        form = entry.get(_family(dtype))
    if form is None:
        raise MeganeuraError(f"no WGSL for {name} on {dtype.value}", op=name)
    return form


def _family(dtype: DType) -> DType:
    return F32 if dtype is F16 else dtype


def _atom(expression: str) -> str:
    # Names, literals and calls need no parentheses; a leading minus would, as in `a - -b`.
    return expression if re.fullmatch(r"[\w.]+|\w+\([^()]*\)", expression) else f"({expression})"


def _float_bits(value: float) -> int:
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0x7F800000 | (0x80000000 if value < 0 else 0)
