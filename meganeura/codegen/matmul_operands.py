"""WGSL that all matrix product schedules share: operands, starts of batch entries, the epilogue."""

from __future__ import annotations

from typing import Any

from meganeura.codegen import quantised
from meganeura.codegen.functions import helpers_in, literal_expression, storage_type, unary_expression
from meganeura.codegen.template import render_template
from meganeura.ir.types import DType
from meganeura.lower.matmul_problem import Access, Problem


def operands(
    problem: Problem, *, singles: bool = False, a: str = "", b: str = "", step: int = 1, bias_first: bool = False
) -> str:
    """The shared part of every template.

    Args:
        singles: stores go element by element; otherwise four columns at a time.
        a, b: how the operand is loaded: "wide" (four along k at once), "rows" (four along the other axis),
            "quads" (four along k, one by one) or "" (one by one).
        step: how many along k the schedule takes at once.
        bias_first: the schedule adds the bias itself.
    """
    out = problem.output
    out_wide = not singles and out.aligned("inner", problem.n)
    inputs = {"a": (problem.a, a), "b": (problem.b, b)}
    packed = {n for n, (x, mode) in inputs.items() if x.dtype is DType.F16 and mode in ("wide", "rows")}
    packing = problem.b.packing
    alias: dict[str, Any] = {
        "A": "vec2<u32>" if "a" in packed else _element(problem.a, a in ("wide", "rows")),
        "B": "vec2<u32>" if "b" in packed else _element(problem.b, b in ("wide", "rows")),
        "OUT": _element(out, out_wide),
        "OUT_ELEMENT": storage_type(out.dtype),
        "Number": "f32" if out.dtype.is_float else out.dtype.value,
        "M": problem.m,
        "N": problem.n,
        "K": problem.k,
        "BATCHES": problem.batches,
        "ALPHA": literal_expression(problem.alpha, out.dtype if out.dtype.is_integer else DType.F32),
        "GATE": problem.gate or 0,
        "A_ROW": problem.a.outer,
        "A_STEP": problem.a.inner,
        "B_COLUMN": problem.b.outer,
        "B_STEP": problem.b.inner,
        "OUT_ROW": out.outer,
        "OUT_COLUMN": out.inner,
        "BIND_A": int(problem.exchanged),
        "BIND_B": int(not problem.exchanged),
        "BIND_OUT": len(problem.accesses) - 1,
    }
    flags = {
        "f16": any(x.dtype is DType.F16 for name, x in problem.accesses.items() if name not in packed),
        "a_packed": "a" in packed,
        "b_packed": "b" in packed,
        "a_quads": a in ("wide", "quads"),
        "b_quads": b in ("wide", "quads"),
        "a_wide": a == "wide",
        "b_wide": b == "wide",
        "a_vec4": a in ("wide", "rows"),
        "b_vec4": b in ("wide", "rows") and packing is None,
        "b_blocks": packing is not None,
        "ragged": problem.k % step != 0,
        "singles": singles,
        "quad_stores": not singles,
        "out_wide": out_wide,
        "bias_last": problem.bias is not None and not bias_first,
        "alpha": problem.alpha != 1.0,
        "activation": problem.activation != "none",
        "gated": problem.gate is not None,
    }
    binding = 2
    for name, access in (("bias", problem.bias), ("residual", problem.residual)):
        flags[name] = access is not None
        if access is not None:
            wide = not singles and access.aligned("inner", problem.n)
            flags[f"{name}_wide"] = wide
            upper = name.upper()
            alias[upper] = _element(access, wide)
            alias |= {f"{upper}_ROW": access.outer, f"{upper}_COLUMN": access.inner, f"BIND_{upper}": binding}
            binding += 1
    code = {"place": f"    return Place({', '.join(_start(problem, name) for name in _PLACES)});"}
    if packing is not None:
        scheme = packing.scheme
        alias |= {"B": "vec4<u32>", "VECTORS": scheme.vectors, "FIELDS": quantised.fields(scheme)}
        alias["FACTORS"] = packing.blocks * scheme.bits
        code["quantised"] = quantised.functions()
        code["factors"] = f"    return {quantised.factors(scheme, 'word')};"
        code["weights"] = f"    return {quantised.weights(scheme, 'words', 'field', 'factors')};"
    if problem.activation != "none":
        expression = unary_expression(problem.activation, "x")
        code |= {"helpers": helpers_in(expression), "activation": f"    return {expression};"}
    return render_template("matmul_operands", alias, flags, code)


_PLACES = ("a", "b", "bias", "residual", "output")


def _start(problem: Problem, name: str) -> str:
    """Expression of the first element of an operand in batch entry `batch`."""
    access = problem.accesses.get(name)
    if access is None:
        return "0u"
    terms, below = [f"{access.offset}u"], 1
    for axis in reversed(range(len(problem.batch))):
        if access.batch[axis]:
            terms.append(f"batch / {below}u % {problem.batch[axis]}u * {access.batch[axis]}u")
        below *= problem.batch[axis]
    return " + ".join(terms)


def _element(access: Access, wide: bool) -> str:
    scalar = storage_type(access.dtype)
    return f"vec4<{scalar}>" if wide else scalar


def quad_mode(access: Access, problem: Problem) -> str:
    """ "wide" where four neighbours along k can be loaded at once, else "quads"."""
    gate_ok = access is not problem.b or not (problem.gate or 0) % 4
    return "wide" if access.aligned("inner", problem.k) and gate_ok else "quads"


def row_mode(access: Access, length: int, problem: Problem) -> str:
    """As `quad_mode`, or "rows" where four neighbours along the other axis can be loaded at once."""
    gate_ok = access is not problem.b or not (problem.gate or 0) % 4
    mode = quad_mode(access, problem)
    return "rows" if mode != "wide" and access.aligned("outer", length) and gate_ok else mode


def lines(statements: list[str], indent: int) -> str:
    """Generated statements as an indented piece of a template."""
    return "\n".join(" " * indent + statement for statement in statements)
