"""Writes docs/rules.md from the rule files; `tests/rules/test_catalogue.py` checks that it is current.

Run from the repository's root: `python docs/make_rules_catalogue.py`.
"""

from __future__ import annotations

from pathlib import Path

from meganeura.egraph import RuleBook, load_rules

HEAD = """# The rewrite rules

What the e-graph search knows, file by file. This page is generated from `rules/*.egg` by
`python docs/make_rules_catalogue.py`; change the rules, not the page. `meganeura rules show NAME` prints a rule's
text, `docs/architecture.md` shows rules at work, and `docs/checking-rules.md` how each is checked.

*Soundness* says what a rule may change: **exact** nothing, **reassociating** only rounding, **approximate** more
than rounding, and such a rule is off unless asked for. One difference is allowed beyond that: a row of attention that
its scores make NaN in the primitives becomes finite, because attention clamps scores to the finite numbers. A row
whose every key is masked by -inf becomes zeros; NaN in queries or keys, +inf in a mask and scores that overflow give
ordinary numbers, and are no longer to be seen in the output. NaN in values still is.
Rules that only mark something for other rules (they unite no values) are marked *helper*.
"""


def catalogue(book: RuleBook) -> str:
    """The page's text."""
    parts = [HEAD, "## Stages\n", "| stage | groups | at most |", "|---|---|---|"]
    for stage in book.stages:
        parts.append(f"| {stage.name} | {', '.join(stage.groups)} | {stage.iterations} iterations |")
    for file in book.files:
        parts.append(f"\n## {file.path}\n\n{file.purpose}\n")
        parts += ["| rule | soundness | why | guards |", "|---|---|---|---|"]
        for rule in file.rules:
            helper = "" if "(union " in rule.text or "(rewrite " in rule.text else ", *helper*"
            cells = (f"`{rule.name}`", rule.soundness + helper, rule.why, rule.guards)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("rules.md").write_text(catalogue(load_rules()), encoding="utf-8")
