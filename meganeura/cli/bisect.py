"""What `verify --bisect` says: each fault found, and how to see it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meganeura.bisect import Case, Conflict, Finding, Setting, WrongKernel, bisect, replay_command, write_cases
from meganeura.cli.options import Common
from meganeura.egraph.rulefile import RuleInfo
from meganeura.ir.text import format_graph

_SHOWN_LINES = 40
_NOTHING = (
    "cannot be narrowed further: rewriting, kernels and memory each agree with what they were given within the "
    "tolerance, so the difference is rounding that adds up, or it comes and goes"
)


def report(
    common: Common, setting: Setting, cases: Mapping[str, Case], folder: Path | None, seconds: float
) -> list[dict[str, Any]]:
    """Find, tell and write what is to blame for each program that disagrees.

    Args:
        cases: by program; empty where all agree. folder: for the shrunk graphs. seconds: of shrinking one of them.

    Returns:
        The findings as JSON-ready data.
    """
    output = common.output
    if not cases:
        output.result("nothing disagrees, so there is nothing to bisect")
        return []
    findings = {}
    for name, case in cases.items():
        findings[name] = bisect(setting, case, seconds, lambda text, name=name: output.notice(f"{name}: {text} ..."))
    written = write_cases(folder, findings) if folder is not None and any(findings.values()) else []
    commands = {id(finding): replay_command(finding, place, _flags(common)) for finding, place in written}
    rules = {rule.name: rule for rule in setting.book.rules}
    told: list[dict[str, Any]] = []
    for name, group in findings.items():
        for finding in group:
            command = commands.get(id(finding))
            fields = {"model": name, **finding.as_dict(), "command": command}
            if finding.case is not None and command is None:
                fields["graph"] = format_graph(finding.case.graph)
            told.append(fields)
            output.result("\n" + "\n".join(_lines(name, finding, command, rules)))
        if not group:
            told.append({"model": name, "stage": None, "summary": _NOTHING})
            output.result(f"\n{name}: {_NOTHING}")
    return told


def _lines(name: str, finding: Finding, command: str | None, rules: Mapping[str, RuleInfo]) -> list[str]:
    lines = [f"{name}: {finding.summary}"]
    lines += [f"  {rule} ({rules[rule].place}): {rules[rule].why}" for rule in finding.rules]
    if finding.apart is not None:
        lines.append(f"  seen in {finding.worst}: {finding.apart.max_rel:.2e} of its largest magnitude")
    if finding.kernel is not None:
        lines += _kernel_lines(finding.kernel)
    if finding.conflict is not None:
        lines += _conflict_lines(finding.conflict)
    lines += [f"  {note}" for note in finding.notes]
    if finding.case is not None:
        graph = finding.case.graph
        lines.append(f"  {finding.nodes} nodes shrunk to {len(graph.nodes)}:")
        lines += _shown(format_graph(graph))
        lines.append(f"  see it again: {command}" if command else "  keep it: --write FOLDER")
    return lines


def _shown(text: str) -> list[str]:
    lines = text.strip().splitlines()
    hidden = len(lines) - _SHOWN_LINES
    shown = [f"    {line}" for line in lines[:_SHOWN_LINES]]
    return [*shown, f"    ... and {hidden} more lines (see --write, --json)"] if hidden > 0 else shown


def _kernel_lines(kernel: WrongKernel) -> list[str]:
    lines = []
    if kernel.apart is not None:
        lines.append(
            f"  at {list(kernel.element)} it gives {kernel.have:.7g} where the reference has {kernel.want:.7g}; "
            f"off by {kernel.apart.max_rel:.2e} of the largest magnitude"
        )
    if kernel.sources:
        lines.append(f"  from {' '.join(kernel.sources)}")
    if kernel.rules:
        lines.append(f"  by {' '.join(kernel.rules)}")
    # What comes before the entry point is bindings and functions.
    return [*lines, "  its WGSL:", *_shown(kernel.wgsl[max(kernel.wgsl.find("@compute"), 0) :])]


def _conflict_lines(conflict: Conflict) -> list[str]:
    lines = []
    for tenant in (conflict.first, conflict.second):
        if tenant is not None:
            sources = f", from {' '.join(tenant.sources)}" if tenant.sources else ""
            lines.append(
                f"  {tenant.label}: {tenant.nbytes} bytes, alive from dispatch {tenant.first} to {tenant.last}{sources}"
            )
    return lines


def _flags(common: Common) -> list[str]:
    """The options of this run that a replay needs."""
    flags = [] if common.device is None else ["--device", common.device]
    flags += [] if common.optimize else ["--no-optimize"]
    flags += [] if common.weights == "packed" else ["--weights", common.weights]
    for path in common.rules:
        flags += ["--rules", path]
    return flags
