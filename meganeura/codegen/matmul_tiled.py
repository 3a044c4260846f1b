"""WGSL of the tiled matrix product: a thread's block of the output, unrolled."""

from __future__ import annotations

from meganeura.codegen.matmul_operands import lines, operands, row_mode
from meganeura.codegen.template import render_template
from meganeura.facts import DeviceFacts
from meganeura.lower.matmul import Tiled
from meganeura.lower.matmul_problem import Problem


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
    tiles = schedule.step * (schedule.rows + schedule.columns * (1 + gated)) // 4
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
            "PART_QUADS": tiles,
            "STAGE_QUADS": schedule.workgroup_memory(gated) // 16,
            "BLOCK_QUADS": len(block.sums),
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
            "sums": lines([f"var {name} = vec4<f32>();" for name in block.sums], 4),
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

    def products(self) -> list[str]:
        """One multiplication of a column of rows by a row of columns for each step along k."""
        statements = []
        for step in range(self.schedule.step):
            a = f"a_tile + {step * self.schedule.rows // 4}u"
            statements.append("{")
            statements += [f"let rows_{g} = stage[{a} + {g * self.down}u + y];" for g in self.row_groups]
            for kind in self.kinds:
                b = f"b_tile + {step * self.schedule.columns // 4}u" + (" + B_QUADS" if kind == "up" else "")
                for c in self.column_groups:
                    statements.append(f"let {kind}_columns_{c} = stage[{b} + {c * self.across}u + x];")
                    for r in range(self.schedule.thread_rows):
                        row = f"rows_{r // 4}.{'xyzw'[r % 4]}"
                        statements.append(f"{kind}_{r}_{c} += {row} * {kind}_columns_{c};")
            statements.append("}")
        return statements

    def give(self) -> list[str]:
        """Puts the results where the first part finds them."""
        return [f"stage[mine + {i}u * THREADS] = {name};" for i, name in enumerate(self.sums)]

    def take(self) -> list[str]:
        """Adds the results of another part."""
        return [f"{name} += stage[theirs + {i}u * THREADS];" for i, name in enumerate(self.sums)]

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
