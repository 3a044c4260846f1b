"""WGSL of the tiled matrix product: a thread's block of the output, unrolled."""

from __future__ import annotations

from meganeura.codegen.matmul_operands import lines, operands, row_mode
from meganeura.codegen.template import render_template
from meganeura.facts import DeviceFacts
from meganeura.lower.matmul_problem import Problem
from meganeura.lower.matmul_schedules import Tiled


def render_tiled(problem: Problem, schedule: Tiled, facts: DeviceFacts) -> tuple[int, str]:
    """Workgroups and text of a product by the tiled schedule.

    A thread owns groups of four rows and four columns, spread evenly over the tile, so that neighbouring threads
    read neighbouring vectors of workgroup memory.
    """
    gated = problem.gate is not None
    across, down = schedule.columns // schedule.thread_columns, schedule.rows // schedule.thread_rows
    row_tiles, column_tiles = -(-problem.m // schedule.rows), -(-problem.n // schedule.columns)
    count = row_tiles * column_tiles * problem.batches
    a = row_mode(problem.a, problem.m, problem)
    b = row_mode(problem.b, problem.n, problem)
    whole_steps = problem.k % (schedule.step * schedule.parts) == 0
    threads = across * down
    block = _Block(schedule, gated, across, down)
    text = render_template(
        "matmul_tiled",
        {
            "TILE_ROWS": schedule.rows,
            "TILE_COLUMNS": schedule.columns,
            "STEP": schedule.step,
            "PARTS": schedule.parts,
            "ACROSS": across,
            "THREADS": threads,
            "ROW_TILES": row_tiles,
            "COLUMN_TILES": column_tiles,
            "TILES": count,
        },
        {
            "a_rows": a == "rows",
            "b_rows": b == "rows",
            "ragged": not whole_steps,
            # Element by element loads guard themselves.
            "a_ragged": not whole_steps and a == "wide",
            "b_ragged": not whole_steps and b == "wide",
            "parts": schedule.parts > 1,
            "gated": gated,
            "folded": count > facts.limits.max_workgroups,
        },
        {
            "operands": operands(problem, a=a, b=b, step=schedule.step * schedule.parts),
            "slots": lines(block.slots() + [f"var {name} = vec4<f32>();" for name in block.sums], 4),
            "first_fetch": lines([f"var {line}" for line in block.fetch()], 4),
            "fetch": lines(block.fetch(), 12),
            "put": lines(block.put(), 8),
            "products": lines(block.products(), 8),
            **({"give": lines(block.give(), 8), "take": lines(block.take(), 8)} if schedule.parts > 1 else {}),
            "stores": lines(block.stores(), 4),
        },
    )
    return count, text


class _Block:
    """The statements over one thread's block: rows `r`, groups of four columns `c`."""

    def __init__(self, schedule: Tiled, gated: bool, across: int, down: int) -> None:
        self.schedule, self.across, self.down = schedule, across, down
        self.row_groups = range(schedule.thread_rows // 4)
        self.column_groups = range(schedule.thread_columns // 4)
        self.kinds = ("sum", "up") if gated else ("sum",)
        self.sums = [
            f"{kind}_{r}_{c}" for kind in self.kinds for r in range(schedule.thread_rows) for c in self.column_groups
        ]

        threads = across * down
        self.a_slots = range(schedule.step * schedule.rows // 4 // threads)
        self.b_slots = range(schedule.step * schedule.columns // 4 // threads)

    def slots(self) -> list[str]:
        """Which quads of the tiles this thread brings in."""
        statements = [f"let a_slot_{i} = a_slot(thread + {i}u * THREADS, place.a, first_row);" for i in self.a_slots]
        return statements + [
            f"let b_slot_{i} = b_slot(thread + {i}u * THREADS, place.b, first_column);" for i in self.b_slots
        ]

    def fetch(self) -> list[str]:
        """Loads this thread's quads into registers."""
        statements = [f"a_{i} = a_fetch(a_slot_{i}, k);" for i in self.a_slots]
        statements += [f"b_{i} = b_fetch(b_slot_{i}, 0u, k);" for i in self.b_slots]
        if "up" in self.kinds:
            statements += [f"c_{i} = b_fetch(b_slot_{i}, GATE, k);" for i in self.b_slots]
        return statements

    def put(self) -> list[str]:
        """Moves them to workgroup memory."""
        statements = [f"a_put(a_slot_{i}, part, a_{i});" for i in self.a_slots]
        statements += [f"b_put(b_slot_{i}, part, b_{i});" for i in self.b_slots]
        if "up" in self.kinds:
            statements += [f"up_put(b_slot_{i}, part, c_{i});" for i in self.b_slots]
        return statements

    def products(self) -> list[str]:
        """One multiplication of a column of rows by a row of columns for each step along k."""
        statements = []
        whole = self.schedule.unroll == self.schedule.step
        if not whole:
            statements.append(f"for (var first_step = 0u; first_step < STEP; first_step += {self.schedule.unroll}u) {{")
        for unrolled in range(self.schedule.unroll):
            step = unrolled if whole else f"first_step + {unrolled}u"
            statements.append("{")
            statements += [f"let rows_{g} = a_tile[part][{step}][{g * self.down}u + y];" for g in self.row_groups]
            for kind in self.kinds:
                tile = "b_tile" if kind == "sum" else "up_tile"
                for c in self.column_groups:
                    columns = f"{kind}_columns_{c}"
                    statements.append(f"let {columns} = {tile}[part][{step}][{c * self.across}u + x];")
                    for r in range(self.schedule.thread_rows):
                        statements.append(f"{kind}_{r}_{c} += rows_{r // 4}.{'xyzw'[r % 4]} * {columns};")
            statements.append("}")
        return statements if whole else [*statements, "}"]

    def give(self) -> list[str]:
        """Puts the results where the first part finds them."""
        return [f"give(thread + {i}u * THREADS, {name});" for i, name in enumerate(self.sums)]

    def take(self) -> list[str]:
        """Adds the results of another part."""
        return [f"{name} += given(thread + {i}u * THREADS);" for i, name in enumerate(self.sums)]

    def stores(self) -> list[str]:
        """Stores the block, as far as it lies within the output."""
        statements = []
        for r in range(self.schedule.thread_rows):
            row = f"first_row + ({r // 4 * self.down}u + y) * 4u + {r % 4}u"
            for c in self.column_groups:
                column = f"first_column + ({c * self.across}u + x) * 4u"
                up = f"up_{r}_{c}" if "up" in self.kinds else "vec4<f32>()"
                statements.append(f"if ({row} < M && {column} < N) {{")
                statements += [f"    store_quad(place, {row}, {column}, sum_{r}_{c}, {up});", "}"]
        return statements
