"""WGSL of the product of a few rows with weights in quantised blocks: the unrolled body of a lane's columns."""

from __future__ import annotations

from meganeura.codegen.matmul_operands import lines, operands, quad_mode
from meganeura.codegen.quantised import fields
from meganeura.codegen.template import render_template
from meganeura.facts import DeviceFacts
from meganeura.ir.packing import BLOCK
from meganeura.lower.matmul_problem import Problem
from meganeura.lower.matmul_schedules import Columns


def render_columns(problem: Problem, schedule: Columns, facts: DeviceFacts) -> tuple[int, str]:
    """Workgroups and text of a product by the columns schedule."""
    assert problem.b.packing is not None
    blocks = -(-problem.n // (schedule.columns * schedule.lanes))
    count = blocks * problem.batches
    body = _Body(problem, schedule)
    a, b = quad_mode(problem.a, problem), quad_mode(problem.b, problem)
    text = render_template(
        "matmul_columns",
        {"LANES": schedule.lanes, "COLUMNS": schedule.columns, "COLUMN_BLOCKS": blocks, "BLOCKS": count},
        {"subgroups": schedule.subgroups, "folded": count > facts.limits.max_workgroups},
        {
            "operands": operands(problem, singles=True, a=a, b=b, step=BLOCK),
            "starts": lines(body.starts(), 4),
            "products": lines(body.products(), 8),
            "stores": lines(body.stores(), 4),
        },
    )
    return count, text


class _Body:
    """The statements over rows `r`, columns `c` of a lane, and the quads along k of a block."""

    def __init__(self, problem: Problem, schedule: Columns) -> None:
        assert problem.b.packing is not None
        self.schedule, self.scheme = schedule, problem.b.packing.scheme
        self.rows, self.columns = range(problem.m), range(schedule.columns)
        # A sum's name, the kind of column it is over, and how far that column's blocks are from the first kind's.
        self.kinds = [("sum", "")] if problem.gate is None else [("sum", ""), ("up", " + GATE / 32u")]

    def starts(self) -> list[str]:
        """First block of each column, sums at zero."""
        statements = [
            f"let block_{c} = (place.b + min(column + {c}u * LANES, N - 1u) * B_COLUMN) / 32u;" for c in self.columns
        ]
        return statements + [
            f"var {kind}_{r}_{c} = vec4<f32>();" for kind, _ in self.kinds for r in self.rows for c in self.columns
        ]

    def products(self) -> list[str]:
        """All that happens for one block along k."""
        statements = []
        for kind, gate in self.kinds:
            for c in self.columns:
                statements.append(f"let {kind}_block_{c} = block_{c}{gate} + block;")
                statements.append(f"let {kind}_factors_{c} = b_factors({kind}_block_{c});")
                for v in range(self.scheme.vectors):
                    statements.append(f"let {kind}_words_{c}_{v} = b[{kind}_block_{c} * VECTORS + {v}u];")
        statements += self._loads()
        for quad in range(BLOCK // 4):
            vector, field = divmod(quad, fields(self.scheme))
            statements += [f"let y_{r}_{quad} = {self._element(r, quad)};" for r in self.rows]
            for kind, _ in self.kinds:
                for c in self.columns:
                    arguments = f"{kind}_words_{c}_{vector}, {field}u, {kind}_factors_{c}"
                    statements.append(f"let {kind}_weights_{c}_{quad} = b_weights({arguments});")
                    statements += [f"{kind}_{r}_{c} += y_{r}_{quad} * {kind}_weights_{c}_{quad};" for r in self.rows]
        return statements

    def _loads(self) -> list[str]:
        if not self.schedule.subgroups:
            return []
        lanes = self.schedule.lanes
        return [
            f"let x_{r}_{first} = a_quad(place.a + {r}u * A_ROW, k + ({first}u + lane) % 8u * 4u);"
            for r in self.rows
            for first in range(0, BLOCK // 4, lanes)
        ]

    def _element(self, row: int, quad: int) -> str:
        """Four elements of a row, known to all lanes."""
        if not self.schedule.subgroups:
            return f"a_quad(place.a + {row}u * A_ROW, k + {4 * quad}u)"
        lane = quad % self.schedule.lanes
        return f"subgroupBroadcast(x_{row}_{quad - lane}, {lane}u)"

    def stores(self) -> list[str]:
        """Stores the lane's columns that are there."""
        statements = []
        for c in self.columns:
            column = f"column + {c}u * LANES"
            statements.append(f"if ({column} < N) {{")
            for r in self.rows:
                up = f"total(up_{r}_{c})" if len(self.kinds) > 1 else "0.0"
                statements.append(f"    store_one(place, {r}u, {column}, total(sum_{r}_{c}), {up});")
            statements.append("}")
        return statements
