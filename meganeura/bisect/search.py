"""The search for the guilty: which step of the chain, which rule, kernel or tensors there, and on how small a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from meganeura.bisect.conflicts import conflicts
from meganeura.bisect.finding import Conflict, Finding, WrongKernel
from meganeura.bisect.kernels import first_stray_value, first_wrong_kernel, refused_kernel
from meganeura.bisect.minimal import Budget, minimal
from meganeura.bisect.setting import Case, Setting, Variant
from meganeura.bisect.shrink import shrink
from meganeura.errors import DeviceError
from meganeura.ir.graph import Graph
from meganeura.options import SearchLimits
from meganeura.reference.compare import Difference

_QUICK = (SearchLimits(max_nodes=4_000, max_seconds=0.5), SearchLimits(max_nodes=20_000, max_seconds=2.0))
"""An unsound rule can make the search run to its bounds; most faults show within these, too."""
_ROUNDS = 3
"""Unsound rules found one after the other, each with the earlier ones switched off."""

Tell = Callable[[str], None]


def bisect(setting: Setting, case: Case, seconds: float = 90.0, tell: Tell = lambda text: None) -> list[Finding]:
    """Find what makes a graph's results on the device differ from the reference; empty where nothing does.

    Each step is compared with the one before it, so that faults in several do not hide one another: the rewritten
    graph's reference with the graph's own, the device without shared memory with the reference of the graph it runs,
    and the device with shared memory with that.

    Args:
        setting: where it failed. case: a concrete graph with its inputs and states.
        seconds: time to spend on shrinking what one fault needs. tell: called with what is being done.
    """
    findings: list[Finding] = []
    variants = [setting.variant(case.graph, False)]
    if setting.options.optimize:
        tell("comparing the rewritten graph with the one imported")
        variants.insert(0, setting.variant(case.graph, True))
        findings += _rules(setting, case, variants[0].graph, seconds, tell)
    for variant in variants:
        tell(f"comparing the {variant.name} kernels with the reference")
        findings += _kernels(setting, case, variant, seconds, tell)
        tell(f"comparing {variant.name} results with and without shared memory")
        findings += _memory(setting, case, variant, seconds, tell)
    return findings


# ---- rules ----------------------------------------------------------------------------------------------


def _rules(setting: Setting, case: Case, rewritten: Graph, seconds: float, tell: Tell) -> Iterable[Finding]:
    want = setting.reference(case.graph, case.values)
    for _ in range(_ROUNDS):
        worst = setting.disagreement(setting.reference(rewritten, case.values), want)
        if worst is None:
            return
        budget = Budget(seconds)
        bounded = (replace(setting, options=replace(setting.options, search=limits)) for limits in _QUICK)
        quick = next((b for b in bounded if _rewrites_wrongly(b, case)), setting)
        tell("shrinking the graph on which a rule fails")
        small = shrink(case, lambda c, quick=quick: _rewrites_wrongly(quick, c), budget)
        tell("switching rules off")
        needed = _guilty(quick, small, Budget(seconds))
        guilty, small = _pinned(quick, small, needed)
        finding = _rule_finding(guilty, case, small, budget, worst)
        if len(guilty) < len(needed):
            others = ", ".join(name for name in needed if name not in guilty)
            finding = finding.noted(f"it rewrites what these make: {others}")
        yield finding
        if not guilty:
            return
        off = (*setting.options.disabled_rules, *guilty)
        setting = replace(setting, options=replace(setting.options, disabled_rules=off))
        rewritten, _ = setting.rewrite(case.graph)


def _rewrites_wrongly(setting: Setting, case: Case, only: Iterable[str] | None = None) -> bool:
    rewritten, _ = setting.rewrite(case.graph, only)
    want = setting.reference(case.graph, case.values)
    return setting.disagreement(setting.reference(rewritten, case.values), want) is not None


def _guilty(setting: Setting, case: Case, budget: Budget) -> tuple[str, ...]:
    """The fewest rules that, with all others off, still make a wrong graph; empty where it takes none."""
    _, report = setting.rewrite(case.graph)
    chosen = setting.book.select(setting.options.disabled_rules, setting.options.enabled_rules)
    fired = tuple(rule.name for rule in chosen if rule.name in report.rules)
    every = tuple(rule.name for rule in chosen)

    def fails(names: tuple[str, ...]) -> bool:
        return _rewrites_wrongly(setting, case, names)

    return minimal(fired if fails(fired) else every, fails, budget)


def _pinned(setting: Setting, case: Case, guilty: tuple[str, ...]) -> tuple[tuple[str, ...], Case]:
    """Of rules that fail together, the one that alone spoils what the others made, with a graph that shows it."""
    for name in guilty if len(guilty) > 1 else ():
        prepared, _ = setting.rewrite(case.graph, [other for other in guilty if other != name])
        made = Case(prepared, case.values)
        if _rewrites_wrongly(setting, made, (name,)):
            return (name,), made if _rewrites_wrongly(setting, made) else case
    return guilty, case


def _rule_finding(
    guilty: tuple[str, ...], case: Case, small: Case, budget: Budget, worst: tuple[str, Difference]
) -> Finding:
    if len(guilty) == 1:
        summary = f"the rule {guilty[0]} changes what the graph computes"
    elif guilty:
        summary = f"the rules {', '.join(guilty)} together change what the graph computes; each is needed"
    else:
        summary = "with every rule off the search still changes the graph: folding, extraction or decoding is wrong"
    finding = Finding("rules" if guilty else "search", "optimised", summary, *worst, rules=guilty)
    return _with_case(finding, case, small, budget)


# ---- kernels --------------------------------------------------------------------------------------------


def _kernels(setting: Setting, case: Case, variant: Variant, seconds: float, tell: Tell) -> Iterable[Finding]:
    refused = ""
    worst = None
    try:
        have = setting.run(variant, case.values, reuse=False)
        worst = setting.disagreement(have, setting.reference(variant.graph, case.values))
        if worst is None:
            return
    except DeviceError as error:
        refused = str(error)
    alone: Case | None = None
    stray: WrongKernel | None = None
    if refused:
        kernel = refused_kernel(setting.program(variant, reuse=False), refused)
        summary = f"the device refused a kernel of the {variant.name} program: {refused}"
    else:
        tell(f"running the {variant.name} kernels one by one")
        found = first_wrong_kernel(setting, variant, case.values)
        kernel, alone = found or (None, None)
        summary = "" if kernel is None else _kernel_words(kernel, variant)
        if kernel is None:
            stray = first_stray_value(setting, variant, case.values)
            summary = _stray_words(stray, variant)
    fused = variant.fuse
    hints: list[Case | frozenset[str]] = [] if alone is None else [alone]
    guilty = kernel or stray
    if guilty is not None:
        hints.append(frozenset(guilty.sources))
    budget = Budget(seconds)
    tell("shrinking the graph on which the kernel fails")
    small = shrink(case, lambda c: _computes_wrongly(setting, c, fused, bool(refused)), budget, hints)
    stage = "lowering" if kernel is None and not refused else "kernel"
    finding = Finding(stage, variant.name, summary, *(worst or ("", None)), kernel=guilty)
    yield _with_case(finding, case, small, budget)


def _computes_wrongly(setting: Setting, case: Case, fused: bool, refused: bool) -> bool:
    variant = setting.variant(case.graph, fused)
    try:
        have = setting.run(variant, case.values, reuse=False)
    except DeviceError:
        return refused
    return not refused and setting.disagreement(have, setting.reference(variant.graph, case.values)) is not None


def _kernel_words(kernel: WrongKernel, variant: Variant) -> str:
    how = f" ({kernel.schedule})" if kernel.schedule else ""
    return (
        f"the {kernel.family} kernel {kernel.label}{how}, number {kernel.index} of the "
        f"{kernel.count} dispatches of the {variant.name} program, does not compute {kernel.op} of the inputs it got"
    )


def _stray_words(stray: WrongKernel | None, variant: Variant) -> str:
    if stray is None:
        return (
            f"every kernel of the {variant.name} program agrees with the reference by itself: a result is copied "
            "or named wrongly, or rounding differs from call to call"
        )
    return (
        f"every kernel of the {variant.name} program computes its op, but from {stray.label}, number {stray.index} "
        f"of the {stray.count} dispatches, on the values are off: lowering handed it wrong tensors, or rounding grows "
        "there"
    )


# ---- memory ---------------------------------------------------------------------------------------------


def _memory(setting: Setting, case: Case, variant: Variant, seconds: float, tell: Tell) -> Iterable[Finding]:
    conflict, differs, worst, refused = _shares_wrongly(setting, case, variant)
    if conflict is None and not differs:
        return
    fused, budget = variant.fuse, Budget(seconds)
    hints: list[Case | frozenset[str]] = []
    if conflict is not None and conflict.second is not None:
        plan = setting.program(variant, reuse=False).plan
        last = max(conflict.first.last, conflict.second.last)
        between = plan.dispatches[conflict.first.first : last + 1]
        hints.append(frozenset(source for dispatch in between for source in dispatch.sources))

    def fails(candidate: Case) -> bool:
        part = setting.variant(candidate.graph, fused)
        found, wrong, _, message = _shares_wrongly(setting, candidate, part, conflict is not None)
        # A wrong result shows more than a program that is refused.
        return wrong and bool(message) == bool(refused) and (found is not None or conflict is None)

    summary = _conflict_words(conflict, variant)
    finding = Finding("memory", variant.name, summary, *(worst or ("", None)), conflict=conflict)
    if refused:
        finding = finding.noted(f"the device refuses the program: {refused}")
    if not differs:
        finding = finding.noted("on these inputs the results are the same all the same")
        yield replace(finding, nodes=len(case.graph.nodes))
        return
    tell("shrinking the graph on which memory is shared wrongly")
    yield _with_case(finding, case, shrink(case, fails, budget, hints), budget)


def _shares_wrongly(
    setting: Setting, case: Case, variant: Variant, planned: bool = False
) -> tuple[Conflict | None, bool, tuple[str, Difference] | None, str]:
    """The first wrong pair, if the plan shows one; whether sharing spoils a run; the worst result; the refusal.

    Args:
        planned: run only a program whose plan shows a wrong pair.
    """
    separate, shared = setting.program(variant, False), setting.program(variant, True)
    conflict = next(conflicts(separate, shared), None)
    if planned and conflict is None:
        return None, False, None, ""
    try:
        want = setting.run(variant, case.values, reuse=False)
    except DeviceError:
        return conflict, False, None, ""  # told by the search for kernels
    try:
        worst = setting.disagreement(setting.run(variant, case.values, reuse=True), want)
    except DeviceError as error:
        return conflict, True, None, error.summary
    return conflict, worst is not None, worst, ""


def _conflict_words(conflict: Conflict | None, variant: Variant) -> str:
    if conflict is None:
        return f"the {variant.name} results change when memory is shared, though no two live tensors share a buffer"
    first, second = conflict.first, conflict.second
    if second is None:
        return (
            f"the {variant.name} memory plan gives {first.label} (dispatch {first.first}), which has {first.nbytes} "
            f"bytes, the buffer {conflict.buffer} of {conflict.nbytes}"
        )
    return (
        f"the {variant.name} memory plan lets {second.label} (written by dispatch {second.first}) overwrite "
        f"{first.label} (written by dispatch {first.first}, read until dispatch {first.last}) in {conflict.buffer}"
    )


# ---- the case -------------------------------------------------------------------------------------------


def _with_case(finding: Finding, case: Case, small: Case, budget: Budget) -> Finding:
    finding = replace(finding, case=small, nodes=len(case.graph.nodes))
    if budget.spent:
        finding = finding.noted(f"shrinking stopped for want of time after {budget.tests} attempts")
    elif small is case:
        finding = finding.noted("no smaller graph fails in the same way")
    if any(data.packed is not None for data in small.graph.constants.values()):
        finding = finding.noted("it fails with weights in quantised blocks only, which the text form does not hold")
    return finding
