"""`meganeura rules check`: every rule against graphs generated from its own text."""

from __future__ import annotations

from typing import Any

import click

from meganeura.cli.options import Common, Number, common_options


@click.command(
    "check",
    epilog="""\b
Examples:
  meganeura rules check softmax-from-pieces
  meganeura rules check --rules mine.egg my-rule --cases 50
Exit codes: 0 every rule holds, 1 a rule is wrong, 2 a mistake in what was asked or in a file.""",
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--rules", metavar="FILE", multiple=True, help="A further rule file (.egg); repeatable.")
@click.option(
    "--cases", type=Number(1, 10_000, integer=True), default=6, show_default=True, help="Graphs for each command."
)
@click.option("--seed", type=Number(0, 2**31 - 1, integer=True), default=0, show_default=True, help="Of all choices.")
@common_options(compiles=False)
def check_rules(common: Common, names: tuple[str, ...], cases: int, seed: int) -> int:
    """Check rules against graphs made from their own text.

    NAME is a rule or a group. With --rules and no NAME the rules of those files are checked, otherwise all. Each rule
    is tried on graphs that match its left side and on near-misses, with ordinary and extreme values; a wrong one is
    shown with the smallest graph that was found.
    """
    from meganeura.egraph import load_rules
    from meganeura.egraph.check.checker import Checker, RuleCheck

    book = load_rules(common.rules)
    if names:
        chosen = book.select(only=names)
    else:
        chosen = tuple(r for r in book.rules if not common.rules or r.file in common.rules)
    checker = Checker(book, cases, seed)
    results: list[RuleCheck] = []
    for number, rule in enumerate(chosen, 1):
        with common.output.step(f"{rule.name} ({number} of {len(chosen)})"):
            results.append(checker.check(rule))
    if common.output.as_json:
        common.output.json([_fields(result) for result in results])
    else:
        _show(common, results)
    return int(any(result.failure is not None for result in results))


def _show(common: Common, results: list[Any]) -> None:
    rows = [
        (r.rule.name, r.rule.soundness, r.cases, r.fired, r.near_misses, r.near_fired, _verdict(r)) for r in results
    ]
    common.output.table(("rule", "soundness", "graphs", "fired", "near-misses", "fired", "verdict"), rows)
    for result in results:
        if result.failure is not None:
            write = common.output.result
            write()
            write(f"{result.rule.name} is wrong ({result.rule.place}): {result.failure.message}", style="bold")
            write(result.failure.text)
    counts = {verdict: [r.verdict for r in results].count(verdict) for verdict in _VERDICTS}
    common.output.result()
    common.output.result(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))


_VERDICTS = ("holds", "wrong", "never fired", "not generated")


def _verdict(result: Any) -> str:
    """The verdict, and which of several commands were never seen."""
    words = [result.verdict]
    for numbers, what in ((result.silent, "never fired"), (result.ungenerated, "not generated")):
        if numbers and result.verdict != what:
            words.append(f"{what}: command {', '.join(str(n + 1) for n in numbers)}")
    return "; ".join(words)


def _fields(result: Any) -> dict[str, Any]:
    return {
        "name": result.rule.name,
        "soundness": result.rule.soundness,
        "allows": list(result.rule.allows),
        "verdict": result.verdict,
        "graphs": result.cases,
        "fired": result.fired,
        "near_misses": result.near_misses,
        "near_misses_fired": result.near_fired,
        "commands_never_fired": [n + 1 for n in result.silent],
        "commands_not_generated": [n + 1 for n in result.ungenerated],
        "message": result.failure.message if result.failure else None,
        "counter_example": result.failure.text if result.failure else None,
    }
