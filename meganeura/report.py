"""What a compilation did, as data: for the command line, for tests, and for a person in a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from meganeura.codegen.program import Program


@dataclass(frozen=True)
class KernelReport:
    """One dispatch: its label, op, the source nodes it covers, the rules that led to it, its schedule and WGSL."""

    name: str
    op: str
    family: str
    schedule: str
    sources: tuple[str, ...]
    rules: tuple[str, ...]
    workgroups: tuple[int, int, int]
    wgsl: str = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "op": self.op,
            "family": self.family,
            "schedule": self.schedule,
            "sources": list(self.sources),
            "rules": list(self.rules),
            "workgroups": list(self.workgroups),
        }


@dataclass(frozen=True)
class CompileReport:
    """What became of one graph on one device.

    Attributes:
        nodes_before, nodes_after: nodes of the graph as imported, and after rewriting.
        dispatches, dispatches_unoptimized: kernels launched a call, with and without optimisation.
        rules: how often each rewrite fired. ops: how many nodes of each op the rewritten graph has.
        seconds: time by phase. memory: bytes by role, with "temp_without_reuse" and "temp_lower_bound".
        stopped_by: which bound ended the search early, or "".
    """

    name: str
    adapter: str
    nodes_before: int
    nodes_after: int
    dispatches: int
    dispatches_unoptimized: int
    rules: dict[str, int]
    ops: dict[str, int]
    kernels: tuple[KernelReport, ...]
    seconds: dict[str, float]
    memory: dict[str, int]
    stopped_by: str = ""

    @property
    def attention_nodes(self) -> int:
        """Attention kernels of either form."""
        return self.ops.get("attention", 0) + self.ops.get("cached_attention", 0)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, with the keys the command line promises."""
        return {
            "name": self.name,
            "nodes": {"before": self.nodes_before, "after": self.nodes_after},
            "dispatches": {"unoptimized": self.dispatches_unoptimized, "optimized": self.dispatches},
            "rules": [{"name": name, "fired": count} for name, count in sorted(self.rules.items())],
            "ops": dict(sorted(self.ops.items())),
            "kernels": [kernel.as_dict() for kernel in self.kernels],
            "seconds": {phase: round(value, 6) for phase, value in self.seconds.items()},
            "memory": self.memory,
            "stopped_by": self.stopped_by,
        }


def kernel_reports(program: Program) -> tuple[KernelReport, ...]:
    """A report per dispatch of a program, in order."""
    reports = []
    for dispatch, shader in zip(program.plan.dispatches, program.shaders, strict=True):
        kernel = dispatch.kernel
        reports.append(
            KernelReport(
                name=shader.label,
                op=kernel.op.name,
                family=kernel.family,
                schedule=str(getattr(kernel, "schedule", "")),
                sources=dispatch.sources,
                rules=dispatch.rules,
                workgroups=shader.workgroups,
                wgsl=shader.text,
            )
        )
    return tuple(reports)


def memory_report(program: Program) -> dict[str, int]:
    """Planned bytes by buffer role."""
    plan = program.plan
    result: dict[str, int] = dict.fromkeys(("input", "output", "state", "constant", "temp"), 0)
    for buffer in plan.buffers:
        result[buffer.role] += buffer.nbytes
    result["temp_without_reuse"] = plan.temp_bytes_without_reuse
    result["temp_lower_bound"] = int(plan.notes.get("temp_lower_bound", "0"))
    return result
