"""Matrix products: the kernel value, and the choice among the schedules that it can run by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from meganeura.errors import LimitError
from meganeura.facts import DeviceFacts
from meganeura.ir.op import Op
from meganeura.ir.types import DType, TensorType
from meganeura.lower.matmul_problem import Problem, problem_of
from meganeura.lower.matmul_schedules import Blocked, Columns, Schedule, Simple, Tiled, Vector
from meganeura.lower.schedule import Kernel, Operand
from meganeura.options import CompileOptions


@dataclass(frozen=True)
class MatMulKernel(Kernel):
    """A matrix product with its epilogue.

    Attributes:
        problem: the product over strides. schedule: the method.
    """

    family: ClassVar[str] = "matmul"
    problem: Problem
    schedule: Schedule

    @property
    def label(self) -> str:
        return f"{super().label}_k{self.problem.k}_{self.schedule.name}"


def matmul_kernel(
    op: Op,
    inputs: tuple[Operand, ...],
    output_type: TensorType,
    facts: DeviceFacts,
    options: CompileOptions,
    schedule: str | None = None,
) -> MatMulKernel:
    """The kernel of a matmul, fused_matmul or gated_matmul, writing a contiguous result.

    Args:
        op, inputs, output_type: the node; float operands may be stored as f32 or f16 each.
        schedule: a name of `SCHEDULES` to force; chosen for the device and the shapes when None.

    Raises:
        LimitError: the forced schedule is not possible here.
    """
    output = Operand.contiguous(output_type)
    problem = problem_of(op, inputs, output)
    if output_type.dtype.is_integer and not problem.alpha.is_integer():
        raise LimitError(
            f"{op.name} of integers has the factor {problem.alpha}",
            op=op.name,
            limit="integer products take whole factors",
            remedy="cast to a float dtype first",
        )
    if schedule is None:
        problem, chosen = _choose(problem, facts)
    else:
        chosen = SCHEDULES[schedule](problem, facts)
    if chosen is None:
        raise LimitError(
            f"{op.name} cannot run by the {schedule} schedule here",
            op=op.name,
            shapes=", ".join(repr(operand.type) for operand in inputs),
            limit=f"{facts.limits.max_workgroup_memory} bytes of workgroup memory, "
            f"{facts.limits.max_invocations} invocations per workgroup",
            remedy=f"use another of {', '.join(SCHEDULES)}",
        )
    return MatMulKernel(op, inputs, (output,), problem, chosen)


def preferred_weight_layout(op: Op, facts: DeviceFacts) -> str:
    """How a constant right operand should lie in memory: "nk", each column's weights contiguous.

    Matrix-vector products then read it in order, on CPU and GPU adapters alike, and wide loads along k serve
    the other schedules as well as wide loads along n.
    """
    return "nk"


# ---- schedules ---------------------------------------------------------------------------------------


def _simple(problem: Problem, facts: DeviceFacts) -> Schedule | None:
    return Simple(min(64, facts.limits.max_invocations))


def _vector(problem: Problem, facts: DeviceFacts) -> Schedule | None:
    if not problem.output.dtype.is_float or problem.m > _VECTOR_ROWS:
        return None
    lanes = facts.subgroup_size
    subgroups = lanes > 0
    if facts.is_cpu:
        team, teams = (lanes, 1) if subgroups else (8, 1)
        # Loads of a are shared by the columns, sums and gated pairs fill the registers.
        columns = max(1, 16 // problem.m // (1 if problem.gate is None else 2))
        return Vector(team, teams, min(8, columns), subgroups)
    # Few columns: one small workgroup each, so that all of the device takes part. Many: several to a workgroup,
    # because there are only so many workgroups in flight.
    many = problem.n * problem.batches >= _MANY_COLUMNS
    team, teams = (lanes, 4 if many else 1) if subgroups else (32, 2) if many else (64, 1)
    small = problem.b.dtype is DType.F16 or problem.b.packing is not None
    columns = 2 if many and small and problem.m == 1 else 1
    schedule = Vector(team, teams, columns, subgroups, unroll=max(1, 4 // (problem.m * columns)))
    fits = team * teams <= facts.limits.max_invocations and (
        schedule.workgroup_memory <= facts.limits.max_workgroup_memory
    )
    return schedule if fits else None


def _blocked(problem: Problem, facts: DeviceFacts) -> Schedule | None:
    if not problem.output.dtype.is_float:
        return None
    lanes = facts.subgroup_size or 8
    if lanes > facts.limits.max_invocations:
        return None
    return Blocked(_block_rows(problem, lanes), lanes, facts.subgroup_size > 0)


def _block_rows(problem: Problem, lanes: int) -> int:
    # ns of a block for four steps along k, measured on a software adapter: loads of a, one for as many rows as there
    # are lanes, then arithmetic, then loads of b. Results are kept twice for a gated product.
    kept, fixed = (1, 46.0) if problem.gate is None else (2, 70.0)
    column_blocks = -(-problem.n // (4 * lanes)) * problem.batches

    def cost(blocks: int) -> float:
        rows = -(-problem.m // blocks)
        one = 16.0 * -(-rows // lanes) + 1.75 * rows * kept + fixed
        return max(blocks * column_blocks, _BUSY_BLOCKS) / column_blocks * one

    least = -(-problem.m // _BLOCK_ROWS)
    blocks = min(range(least, min(problem.m, least + 8) + 1), key=cost)
    return -(-problem.m // blocks)


def _columns(problem: Problem, facts: DeviceFacts) -> Schedule | None:
    lanes = facts.subgroup_size or 8
    if not (problem.output.dtype.is_float and problem.whole_blocks and problem.m <= _VECTOR_ROWS):
        return None
    if lanes > facts.limits.max_invocations:
        return None
    # On a GPU lanes take turns, and loads of one address are one load: more lanes are worth more than wider ones.
    columns = max(1, min(4, 8 // _sums(problem))) if facts.is_cpu else 1
    return Columns(lanes, columns, facts.subgroup_size > 0)


def _sums(problem: Problem) -> int:
    """Sums per column."""
    return problem.m * (1 if problem.gate is None else 2)


def _tiled(problem: Problem, facts: DeviceFacts) -> Schedule | None:
    if not problem.output.dtype.is_float:
        return None
    legal = [t for t in _TILES if _fits(t, problem, facts)]
    if not legal:
        return None

    def cost(tile: Tiled) -> float:
        alone, busy = _TILES[tile]
        tiles = -(-problem.m // tile.rows) * -(-problem.n // tile.columns) * problem.batches
        return max(alone, busy * tiles / _UNITS)

    best = min(legal, key=cost)
    # A software adapter gains nothing by long bodies, which its compiler takes seconds for.
    return replace(best, unroll=2) if facts.is_cpu else best


def _fits(tile: Tiled, problem: Problem, facts: DeviceFacts) -> bool:
    gated = problem.gate is not None
    limits = facts.limits
    registers = tile.thread_rows * tile.thread_columns * (1 + gated)
    return (
        tile.threads <= min(limits.max_invocations, limits.max_workgroup_size[0])
        and tile.workgroup_memory(gated) <= limits.max_workgroup_memory
        and registers <= 64
        # Results travel between the parts where the tiles of a lie.
        and (tile.parts == 1 or tile.columns * (1 + gated) <= tile.parts * tile.step)
        # Every thread brings in as many quads of each tile as the others.
        and not any(tile.step * side // 4 % (tile.threads // tile.parts) for side in (tile.rows, tile.columns))
    )


SCHEDULES: dict[str, Callable[[Problem, DeviceFacts], Schedule | None]] = {
    "simple": _simple,
    "vector": _vector,
    "blocked": _blocked,
    "tiled": _tiled,
    "columns": _columns,
}
"""Per schedule name, its parameters for a problem on a device, or None where it is not possible."""

_VECTOR_ROWS = 16
_COLUMN_SUMS = 4
_MANY_COLUMNS = 8192
_LANE_COLUMNS = 32768
_BLOCK_ROWS = 40
_BUSY_BLOCKS = 8
_UNITS = 132
_TILES = {
    Tiled(128, 128, 8, 8): (105.0, 96.0),
    Tiled(128, 64, 8, 8): (62.0, 66.0),
    Tiled(64, 64, 8, 8): (58.0, 26.0),
    Tiled(64, 64, 8, 4): (39.0, 30.0),
    Tiled(64, 64, 4, 4): (41.0, 36.0),
    Tiled(32, 32, 4, 4): (23.0, 13.2),
    Tiled(32, 32, 4, 4, parts=2): (18.6, 14.2),
    Tiled(32, 32, 8, 4, parts=4): (18.0, 15.0),
}
"""Tiles, and what a step along k costs in ns when a tile has a multiprocessor for itself, and when all are
busy: measured on a GPU of 132 multiprocessors (docs/benchmarks/matmul-gpu.md)."""


def _choose(problem: Problem, facts: DeviceFacts) -> tuple[Problem, Schedule | None]:
    if not problem.output.dtype.is_float or problem.k == 0:
        return problem, _simple(problem, facts)
    if problem.gate is None and problem.n < min(problem.m, 4) and problem.b.packing is None:
        problem = problem.swapped()
    few = _sums(problem) <= _COLUMN_SUMS if facts.is_cpu else problem.m == 1 and problem.n >= _LANE_COLUMNS
    if few and problem.whole_blocks:
        schedule = _columns(problem, facts)
        if schedule is not None:
            return problem, schedule
    if _walks_along_k(problem) and problem.m <= (2 if facts.is_cpu else 8):
        schedule = _vector(problem, facts)
        if schedule is not None:
            return problem, schedule
    method = _blocked if facts.is_cpu else _tiled
    return problem, method(problem, facts) or _simple(problem, facts)


def _walks_along_k(problem: Problem) -> bool:
    """Whether lanes that stand side by side along k read neighbours."""
    return problem.b.inner == 1 or problem.k == 1
