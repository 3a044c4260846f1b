"""Schedules of kernels in which invocations share a row: who works on it, and how many elements at a time."""

from __future__ import annotations

from dataclasses import dataclass

from meganeura.errors import LimitError
from meganeura.facts import DeviceFacts
from meganeura.lower.schedule import Operand

CPU_LOOP_BUDGET = 65000
"""Loop iterations, of all loops together, that an invocation may run on a CPU adapter.

Mesa's software driver ends every loop silently once an invocation has run 65535 iterations: results are wrong without
any error.
"""


@dataclass(frozen=True)
class LaneSchedule:
    """How rows are shared out.

    Attributes:
        name: "thread", one invocation per row and no barrier; "subgroup", the invocations that run together, without
            workgroup memory; "workgroup", a whole workgroup per row with workgroup memory.
        lanes: invocations per row, a power of two. rows: rows per workgroup.
        vector: elements loaded at a time, 1 or 4.
    """

    name: str
    lanes: int
    rows: int
    vector: int = 1

    @property
    def workgroup(self) -> int:
        """Invocations per workgroup."""
        return self.lanes * self.rows


SCHEDULES = ("thread", "subgroup", "workgroup")
"""Names of the schedules."""


def schedule_named(name: str, length: int, vector: int, facts: DeviceFacts, passes: float) -> LaneSchedule | None:
    """The schedule of this name for rows of `length` elements, or None where the device can't run it.

    Args:
        passes: how often an invocation goes over its part of the row.
    """
    limits = facts.limits
    most = min(limits.max_invocations, limits.max_workgroup_size[0])
    least = 1
    if facts.is_cpu:
        while least * CPU_LOOP_BUDGET < passes * (length / vector + least):
            least *= 2
    if name == "thread":
        found = LaneSchedule(name, 1, min(8 if facts.is_cpu else 64, most), vector)
    elif name == "subgroup":
        if facts.subgroup_size < 2:
            return None
        rows = 1 if facts.is_cpu else max(1, min(128, most) // facts.subgroup_size)
        found = LaneSchedule(name, facts.subgroup_size, rows, vector)
    else:
        # About four loads per invocation, within what every device has.
        lanes = 32
        while lanes * 2 <= min(max(256, least), most) and (lanes * 4 * vector < length or lanes < least):
            lanes *= 2
        found = LaneSchedule(name, lanes, 1, vector)
    return found if least <= found.lanes <= most else None


def choose_schedule(
    op_name: str, rows: int, length: int, vector: int, facts: DeviceFacts, passes: float
) -> LaneSchedule:
    """The schedule for `rows` rows of `length` elements, over which an invocation goes `passes` times.

    On a CPU adapter a workgroup runs on one core and barriers are dear: a row belongs to one invocation, or to a
    subgroup where there are too few rows to fill its lanes. A GPU needs many invocations at once: short rows go to
    subgroups, long or few rows to workgroups.

    Raises:
        LimitError: the rows are too long for any schedule on this device.
    """
    if facts.is_cpu:
        names = ["thread"] if rows >= 2 * max(facts.subgroup_size, 8) or length < 32 else ["subgroup", "thread"]
    elif length <= 4:
        names = ["thread"]
    else:
        names = ["workgroup"] if length > 1024 or rows < 256 else ["subgroup"]
    for name in [*names, "subgroup", "workgroup"]:
        found = schedule_named(name, length, vector, facts, passes)
        if found is not None:
            return found
    raise LimitError(
        f"{op_name} over rows of {length} elements is too long for {facts.name}",
        op=op_name,
        limit=f"{CPU_LOOP_BUDGET} loop iterations per invocation on a CPU adapter",
        remedy="split the axis, or choose another device",
    )


def vector_width(operands: list[tuple[Operand, int]], length: int) -> int:
    """4 where every operand can be read four elements at a time along its given axis, else 1."""
    if length % 4:
        return 1
    for operand, axis in operands:
        layout = operand.layout
        others = [s for a, (d, s) in enumerate(zip(layout.shape, layout.strides, strict=True)) if a != axis and d > 1]
        if layout.strides[axis] != 1 or layout.offset % 4 or any(s % 4 for s in others):
            return 1
    return 4
