"""What a search for a fault found, as data and as sentences."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from meganeura.bisect.setting import Case
from meganeura.reference.compare import Difference

STAGES = ("rules", "search", "kernel", "lowering", "memory")
"""Where a fault can be: in rules; in the search around them (folding, extraction, decoding); in one kernel; in how
lowering joins kernels; in which tensors share a buffer."""


@dataclass(frozen=True)
class WrongKernel:
    """The first dispatch whose result is not that of its op on the inputs it got.

    Attributes:
        index: of the dispatch, of `count`. label, op, family, schedule: of its kernel.
        sources, rules: source nodes covered and rewrites that led here. wgsl: its text.
        apart: how far off it is, None where the device refused it. element: where it is furthest off.
        have, want: the result there.
    """

    index: int
    count: int
    label: str
    op: str
    family: str
    schedule: str
    sources: tuple[str, ...]
    rules: tuple[str, ...]
    wgsl: str = field(repr=False)
    apart: Difference | None = None
    element: tuple[int, ...] = ()
    have: float = 0.0
    want: float = 0.0


@dataclass(frozen=True)
class Tenant:
    """A temporary tensor in a shared buffer: what makes it, when, and when it is last read (dispatch numbers)."""

    label: str
    sources: tuple[str, ...]
    first: int
    last: int
    nbytes: int


@dataclass(frozen=True)
class Conflict:
    """Two tensors that share a buffer although both are alive at once; `second` is missing where one is too large."""

    buffer: str
    nbytes: int
    first: Tenant
    second: Tenant | None = None


@dataclass(frozen=True)
class Finding:
    """One fault.

    Attributes:
        stage: one of STAGES. program: "optimised" or "unoptimised". summary: a sentence.
        worst: the result that showed it. apart: how far off that is.
        rules: names of the guilty rules. kernel, conflict: what is guilty in those stages.
        case: the smallest graph that still fails, None when none was found. nodes: nodes of the graph at the start.
        notes: what could not be done.
    """

    stage: str
    program: str
    summary: str
    worst: str = ""
    apart: Difference | None = None
    rules: tuple[str, ...] = ()
    kernel: WrongKernel | None = None
    conflict: Conflict | None = None
    case: Case | None = field(default=None, repr=False)
    nodes: int = 0
    notes: tuple[str, ...] = ()

    def noted(self, *notes: str) -> Finding:
        """The same with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        result: dict[str, Any] = {
            "stage": self.stage,
            "program": self.program,
            "summary": self.summary,
            "worst": self.worst,
            "max_rel": self.apart.max_rel if self.apart else None,
            "rules": list(self.rules),
            "nodes": {"before": self.nodes, "after": len(self.case.graph.nodes) if self.case else None},
            "notes": list(self.notes),
        }
        if self.kernel is not None:
            kernel = self.kernel
            result["kernel"] = {
                "index": kernel.index,
                "label": kernel.label,
                "op": kernel.op,
                "family": kernel.family,
                "schedule": kernel.schedule,
                "sources": list(kernel.sources),
                "rules": list(kernel.rules),
                "max_rel": kernel.apart.max_rel if kernel.apart else None,
                "element": list(kernel.element),
                "have": kernel.have,
                "want": kernel.want,
                "wgsl": kernel.wgsl,
            }
        if self.conflict is not None:
            tenants = [t for t in (self.conflict.first, self.conflict.second) if t is not None]
            result["conflict"] = {
                "buffer": self.conflict.buffer,
                "nbytes": self.conflict.nbytes,
                "tensors": [
                    {
                        "label": t.label,
                        "sources": list(t.sources),
                        "first": t.first,
                        "last": t.last,
                        "nbytes": t.nbytes,
                    }
                    for t in tenants
                ],
            }
        return result
