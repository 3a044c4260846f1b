"""WGSL of matrix products: the shared operands, and the unrolled bodies of each schedule."""

from __future__ import annotations

from typing import Any

from meganeura.codegen.functions import helpers_in, literal_expression, storage_type, unary_expression
from meganeura.codegen.render import renders
from meganeura.codegen.shader import Shader, fold_grid
from meganeura.codegen.template import render_template
from meganeura.errors import LimitError
from meganeura.facts import DeviceFacts
from meganeura.ir.types import DType
from meganeura.lower.matmul import Blocked, MatMulKernel, Simple, Tiled, Vector
from meganeura.lower.matmul_problem import Access, Problem


@renders(MatMulKernel)
def render_matmul(kernel: MatMulKernel, facts: DeviceFacts) -> Shader:
    """The shader of a matrix product by its schedule; bindings are a, b, the extras that are there, the output."""
    problem, schedule = kernel.problem, kernel.schedule
    bindings = len(problem.accesses)
    if bindings > facts.limits.max_storage_buffers:
        raise LimitError(
            f"{kernel.op.name} reads and writes {bindings} tensors",
            op=kernel.op.name,
            limit=f"max-storage-buffers-per-shader-stage is {facts.limits.max_storage_buffers}",
            remedy="compile without optimisation, so that the epilogue is a kernel of its own",
        )
    if isinstance(schedule, Simple):
        count, text = _simple(problem, schedule)
    elif isinstance(schedule, Vector):
        count, text = _vector(problem, schedule, facts)
    elif isinstance(schedule, Blocked):
        count, text = _blocked(problem, schedule, facts)
    else:
        assert isinstance(schedule, Tiled)
        from meganeura.codegen.matmul_tiled import render_tiled

        count, text = render_tiled(problem, schedule, facts)
    access = ("read",) * (bindings - 1) + ("read_write",)
    return Shader(kernel.label, text, fold_grid(count, facts.limits, kernel.label), access)


def operands(problem: Problem, *, singles: bool = False, a: str = "", b: str = "", step: int = 1) -> str:
    """The shared part of every template.

    Args:
        singles: stores go element by element; otherwise four columns at a time.
        a, b: how the operand is loaded: "wide" (four along k at once), "rows" (four along the other axis),
            "quads" (four along k, one by one) or "" (one by one).
        step: how many along k the schedule takes at once.
    """
    out = problem.output
    out_wide = not singles and out.aligned("inner", problem.n)
    alias: dict[str, Any] = {
        "A": _element(problem.a, a in ("wide", "rows")),
        "B": _element(problem.b, b in ("wide", "rows")),
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
        "BIND_OUT": len(problem.accesses) - 1,
    }
    flags = {
        "f16": any(x.dtype is DType.F16 for x in problem.accesses.values()),
        "a_quads": a in ("wide", "quads"),
        "b_quads": b in ("wide", "quads"),
        "a_wide": a == "wide",
        "b_wide": b == "wide",
        "a_vec4": a in ("wide", "rows"),
        "b_vec4": b in ("wide", "rows"),
        "ragged": problem.k % step != 0,
        "singles": singles,
        "quad_stores": not singles,
        "out_wide": out_wide,
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


def _simple(problem: Problem, schedule: Simple) -> tuple[int, str]:
    text = render_template(
        "matmul_simple",
        {"WIDTH": schedule.width},
        {"gated": problem.gate is not None},
        {"operands": operands(problem, singles=True)},
    )
    return -(-problem.batches * problem.m * problem.n // schedule.width), text


def _vector(problem: Problem, schedule: Vector, facts: DeviceFacts) -> tuple[int, str]:
    gated = problem.gate is not None
    rows, columns = range(problem.m), range(schedule.columns)
    kinds = ("sum", "up") if gated else ("sum",)
    starts = [f"let column_{c} = place.b + min(first_column + {c}u, N - 1u) * B_COLUMN;" for c in columns]
    starts += [f"var {kind}_{r}_{c} = 0.0;" for kind in kinds for r in rows for c in columns]
    products = [f"let x_{r} = a_quad(place.a + {r}u * A_ROW, k);" for r in rows]
    for c in columns:
        products.append(f"let w_{c} = b_quad(column_{c}, k);")
        products += [f"sum_{r}_{c} += dot(x_{r}, w_{c});" for r in rows]
        if gated:
            products.append(f"let v_{c} = b_quad(column_{c} + GATE, k);")
            products += [f"up_{r}_{c} += dot(x_{r}, v_{c});" for r in rows]
    totals = []
    for r in rows:
        totals.append("{")
        for kind in ("sum", "up"):
            totals.append(f"var {kind} = 0.0;")
            if kind in kinds:
                for c in columns:
                    totals.append(f"let {kind}_of_{c} = team_sum({kind}_{r}_{c}, thread);")
                    totals.append(f"{kind} = select({kind}, {kind}_of_{c}, lane == {c}u);")
        totals += ["if (stores) {", f"    store_one(place, {r}u, column, sum, up);", "}", "}"]
    blocks = -(-problem.n // (schedule.columns * schedule.teams))
    count = blocks * problem.batches
    a, b = quad_mode(problem.a, problem), quad_mode(problem.b, problem)
    text = render_template(
        "matmul_vector",
        {
            "TEAM": schedule.team,
            "TEAMS": schedule.teams,
            "COLUMNS": schedule.columns,
            "COLUMN_BLOCKS": blocks,
            "BLOCKS": count,
        },
        {"subgroups": schedule.subgroups, "folded": count > facts.limits.max_workgroups},
        {
            "operands": operands(problem, singles=True, a=a, b=b, step=4),
            "starts": lines(starts, 4),
            "products": lines(products, 8),
            "totals": lines(totals, 4),
        },
    )
    return count, text


def _blocked(problem: Problem, schedule: Blocked, facts: DeviceFacts) -> tuple[int, str]:
    gated = problem.gate is not None
    rows, lanes = range(schedule.rows), schedule.lanes
    starts, products = [], []
    for r in rows:
        group, lane = divmod(r, lanes) if schedule.subgroups else (r, 0)
        if lane == 0:
            index = f"{group * lanes}u + lane" if schedule.subgroups else f"{r}u"
            starts.append(f"let row_{group} = place.a + min(first_row + {index}, M - 1u) * A_ROW;")
            products.append(f"let x_{group} = a_quad(row_{group}, k);")
    for r in rows:
        group, lane = divmod(r, lanes) if schedule.subgroups else (r, 0)
        row = f"subgroupBroadcast(x_{group}, {lane}u)" if schedule.subgroups else f"x_{group}"
        starts.append(f"var sum_{r} = vec4<f32>();")
        products.append(f"let y_{r} = {row};")
        products.append(f"sum_{r} += y_{r} * weights;")
        if gated:
            starts.append(f"var up_{r} = vec4<f32>();")
            products.append(f"up_{r} += y_{r} * up_weights;")
    results = [
        f"var {kind}s = array<vec4<f32>, {schedule.rows}>({', '.join(f'{kind}_{r}' for r in rows)});"
        for kind in (("sum", "up") if gated else ("sum",))
    ]
    row_blocks, column_blocks = -(-problem.m // schedule.rows), -(-problem.n // (4 * lanes))
    count = row_blocks * column_blocks * problem.batches
    a, b = quad_mode(problem.a, problem), row_mode(problem.b, problem.n, problem)
    text = render_template(
        "matmul_blocked",
        {
            "LANES": lanes,
            "ROWS": schedule.rows,
            "ROW_BLOCKS": row_blocks,
            "COLUMN_BLOCKS": column_blocks,
            "BLOCKS": count,
        },
        {
            "subgroups": schedule.subgroups,
            "folded": count > facts.limits.max_workgroups,
            "b_rows": b == "rows",
            "ragged": problem.k % 4 != 0,
            "gated": gated,
        },
        {
            "operands": operands(problem, a=a, b=b, step=4),
            "starts": lines(starts, 4),
            "products": lines(products, 8),
            "results": lines(results, 4),
        },
    )
    return count, text


def lines(statements: list[str], indent: int) -> str:
    """Generated statements as an indented piece of a template."""
    return "\n".join(" " * indent + statement for statement in statements)
