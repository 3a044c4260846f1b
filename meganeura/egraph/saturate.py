"""Runs the rules, stage by stage, one iteration a call, within the options' limits.

The engine has no limit of its own and cannot be interrupted, so size and clock are checked between iterations;
whatever has been found by then is what extraction works with.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from meganeura.egraph.annotate import Annotator
from meganeura.egraph.report import SearchReport, StageReport
from meganeura.egraph.rulefile import RuleInfo, Stage
from meganeura.errors import RuleError
from meganeura.options import SearchLimits

if TYPE_CHECKING:
    from meganeura.egraph.engine import Engine


def ruleset(group: str) -> str:
    """The egglog ruleset of a rule group."""
    return f"group-{group}"


def saturate(
    engine: Engine,
    annotator: Annotator,
    stages: Iterable[Stage],
    rules: Sequence[RuleInfo],
    limits: SearchLimits,
    report: SearchReport,
) -> None:
    """Run every stage until nothing changes or a limit is hit; notes the outcome in the report.

    Args:
        rules: the rules that were loaded; groups without one are skipped.
    """
    start = time.perf_counter()
    groups = {rule.group for rule in rules}
    total = 0
    for stage in stages:
        present = [ruleset(group) for group in stage.groups if group in groups]
        rulesets = [name for group in present for name in (f"{group}-match", group)]
        if not rulesets:
            continue
        began, count, terms = time.perf_counter(), 0, annotator.terms
        while count < stage.iterations and report.stopped_by in ("saturated", "iterations"):
            if total >= limits.max_iterations:
                report.stopped_by = "iterations"
                break
            changed = _iterate(engine, rulesets, stage)
            changed |= annotator.annotate()
            count, total = count + 1, total + 1
            before, terms = terms, annotator.terms
            # An iteration can't be interrupted: one that would grow past the limit, at this pace, isn't begun.
            if terms > limits.max_nodes or terms * (terms / max(before, 1)) > limits.max_nodes:
                report.stopped_by = "nodes"
            elif time.perf_counter() - start > limits.max_seconds:
                report.stopped_by = "seconds"
            if not changed:
                break
        report.stages.append(StageReport(stage.name, count, time.perf_counter() - began, terms))
        if report.stopped_by in ("nodes", "seconds"):
            break


def _iterate(engine: Engine, rulesets: list[str], stage: Stage) -> bool:
    try:
        return engine.iterate(rulesets)
    except RuleError as error:
        if "merge" not in error.summary:
            raise
        raise RuleError(
            f"stage {stage.name}: a rule united two values of different shape or dtype ({error.summary})",
            remedy=f"run its groups one by one: {', '.join(stage.groups)}",
        ) from None
