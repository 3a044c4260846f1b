"""What kernels along rows have in common: template parameters of their schedule, and the code that combines lanes."""

from __future__ import annotations

from typing import Any

from meganeura.codegen.template import render_template
from meganeura.errors import LimitError
from meganeura.facts import DeviceFacts
from meganeura.lower.lanes import LaneSchedule


def lane_flags(schedule: LaneSchedule, facts: DeviceFacts) -> dict[str, bool]:
    """The template flags `subgroup` (registers are exchanged) and `shared` (workgroup memory is used)."""
    shared = schedule.name == "workgroup"
    wide = shared and 2 <= facts.subgroup_size < schedule.lanes and not facts.is_cpu
    return {"subgroup": schedule.name == "subgroup" or wide, "shared": shared}


def lane_parameters(schedule: LaneSchedule) -> dict[str, Any]:
    """The constants that say how rows are shared out."""
    return {"LANES": schedule.lanes, "ROWS": schedule.rows, "WORKGROUP": schedule.workgroup}


def lane_code(schedule: LaneSchedule, facts: DeviceFacts, kind: str, combine: str, nbytes: int = 4) -> str:
    """WGSL of `combine` and `row_combine` for values of type `kind`.

    Args:
        combine: statements that return the combination of `a` and `b`. nbytes: size of a value.

    Raises:
        LimitError: the device has too little workgroup memory.
    """
    flags = lane_flags(schedule, facts)
    partials = schedule.lanes // facts.subgroup_size if flags["subgroup"] and flags["shared"] else schedule.lanes
    if flags["shared"] and partials * nbytes > facts.limits.max_workgroup_memory:
        raise LimitError(
            f"a row shared by {schedule.lanes} invocations needs {partials * nbytes} bytes of workgroup memory",
            limit=f"max-compute-workgroup-storage-size is {facts.limits.max_workgroup_memory}",
        )
    parameters: dict[str, Any] = {"T": kind}
    parameters["SUBGROUP"] = max(1, facts.subgroup_size)
    parameters["PARTIALS"] = max(1, partials)
    return render_template("lanes", parameters, flags, {"combine": combine})
