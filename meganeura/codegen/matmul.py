"""WGSL of matrix products: from a kernel to its shader, and the unrolled bodies of the schedules without tiles."""

from __future__ import annotations

import math

from meganeura.codegen.matmul_columns import render_columns
from meganeura.codegen.matmul_operands import lines, operands, quad_mode, row_mode
from meganeura.codegen.matmul_tiled import render_tiled
from meganeura.codegen.render import renders
from meganeura.codegen.shader import Shader, fold_grid
from meganeura.codegen.template import render_template
from meganeura.errors import LimitError
from meganeura.facts import DeviceFacts
from meganeura.lower.matmul import Blocked, Columns, MatMulKernel, Simple, Tiled, Vector
from meganeura.lower.matmul_problem import Problem


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
    elif isinstance(schedule, Columns):
        count, text = render_columns(problem, schedule, facts)
    elif isinstance(schedule, Blocked):
        count, text = _blocked(problem, schedule, facts)
    else:
        assert isinstance(schedule, Tiled)
        count, text = render_tiled(problem, schedule, facts)
    access = ("read",) * (bindings - 1) + ("read_write",)
    return Shader(kernel.label, text, fold_grid(count, facts.limits, kernel.label), access)


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

    def products(step: int) -> list[str]:
        at = f"k + {step}u * TEAM * 4u"
        loads = [f"let x_{r}_{step} = a_quad(place.a + {r}u * A_ROW, {at});" for r in rows]
        sums = []
        for c in columns:
            loads.append(f"let w_{c}_{step} = b_quad(column_{c}, {at});")
            sums += [f"sum_{r}_{c} += dot(x_{r}_{step}, w_{c}_{step});" for r in rows]
            if gated:
                loads.append(f"let v_{c}_{step} = b_quad(column_{c} + GATE, {at});")
                sums += [f"up_{r}_{c} += dot(x_{r}_{step}, v_{c}_{step});" for r in rows]
        return loads + sums

    several = [line for step in range(schedule.unroll) for line in products(step)]
    several = sorted(several, key=lambda line: not line.startswith("let"))  # all loads first
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
            "UNROLL": schedule.unroll,
            "COLUMN_BLOCKS": blocks,
            "BLOCKS": count,
        },
        {
            "subgroups": schedule.subgroups,
            "folded": count > facts.limits.max_workgroups,
            "unrolled": schedule.unroll > 1,
        },
        {
            "operands": operands(problem, singles=True, a=a, b=b, step=4),
            "starts": lines(starts, 4),
            **({"several": lines(several, 8)} if schedule.unroll > 1 else {}),
            "products": lines(products(0), 8),
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
        starts.append(f"var sum_{r} = start;")
        products.append(f"let y_{r} = {row};")
        products.append(f"sum_{r} += y_{r} * weights;")
        if gated:
            starts.append(f"var up_{r} = vec4<f32>();")
            products.append(f"up_{r} += y_{r} * up_weights;")
    kinds = ("sum", "up") if gated else ("sum",)
    stored = math.gcd(schedule.rows, 4)
    stores = []
    for r in range(stored):
        up = f"up_{r}" if gated else "vec4<f32>()"
        stores.append(f"if (row + {r}u < M) {{")
        stores += [f"    store_quad(place, row + {r}u, column, sum_{r}, {up});", "}"]
    # The next rows move to the place of those just stored, so that nothing is indexed while running.
    stores += [f"{kind}_{r} = {kind}_{r + stored};" for kind in kinds for r in range(schedule.rows - stored)]
    row_blocks, column_blocks = -(-problem.m // schedule.rows), -(-problem.n // (4 * lanes))
    count = row_blocks * column_blocks * problem.batches
    a, b = quad_mode(problem.a, problem), row_mode(problem.b, problem.n, problem)
    # A bias that all rows share is loaded once, as what the sums start from.
    bias_first = problem.bias is not None and problem.bias.outer == 0 and problem.alpha == 1.0
    text = render_template(
        "matmul_blocked",
        {
            "LANES": lanes,
            "ROWS": schedule.rows,
            "STORED": stored,
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
            "bias_first": bias_first,
            "whole_blocks": problem.whole_blocks,
        },
        {
            "operands": operands(problem, a=a, b=b, step=4, bias_first=bias_first),
            "starts": lines(starts, 4),
            **({"block_products": lines(products, 12)} if problem.whole_blocks else {"products": lines(products, 8)}),
            "stores": lines(stores, 8),
        },
    )
    return count, text
