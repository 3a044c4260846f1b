"""`meganeura rules`: the rewrite rules as they stand in the rule files."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import click

from meganeura.cli.options import Common, common_options
from meganeura.cli.rules_check import check_rules
from meganeura.errors import RuleError


@click.group(
    epilog="""\b
Examples:
  meganeura rules list
  meganeura rules list --group attention
  meganeura rules show RULE-NAME
  meganeura rules check RULE-NAME""",
    invoke_without_command=True,
)
@click.pass_context
def command(context: click.Context) -> None:
    """List the rewrite rules, or read one.

    Rules are what the optimiser knows: each says that one form of a computation equals another, and why.
    They stand in .egg files, which --rules of other commands can add to.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


command.add_command(check_rules)


@command.command("list", epilog="\b\nExample:\n  meganeura rules list --json")
@click.option("--group", metavar="GROUP", help="Only the rules of this group.")
@common_options(compiles=False)
def list_rules(common: Common, group: str | None) -> None:
    """List every rule: its name, group, soundness and why it exists."""
    from meganeura.egraph import load_rules

    found = load_rules().rules
    if group is not None:
        groups = sorted({rule.group for rule in found})
        found = tuple(rule for rule in found if rule.group == group)
        if not found:
            raise RuleError(f"there is no group {group!r}", remedy=f"groups are {', '.join(groups)}")
    if common.output.as_json:
        common.output.json([_fields(rule) for rule in found])
        return
    common.output.table(("rule", "group", "soundness", "why"), [(r.name, r.group, r.soundness, r.why) for r in found])


@command.command("show", epilog="\b\nExample:\n  meganeura rules show RULE-NAME")
@click.argument("name", metavar="NAME")
@common_options(compiles=False)
def show_rule(common: Common, name: str) -> None:
    """Print one rule: what it says, why it holds, and the file and line it stands at."""
    from meganeura.egraph import load_rules

    rules = {rule.name: rule for rule in load_rules().rules}
    rule = rules.get(name)
    if rule is None:
        near = difflib.get_close_matches(name, rules, 3)
        remedy = f"did you mean {', '.join(near)}?" if near else "see `meganeura rules list`"
        raise RuleError(f"there is no rule {name!r}", remedy=remedy)
    if common.output.as_json:
        common.output.json({**_fields(rule), "guards": rule.guards, "text": rule.text})
        return
    write = common.output.result
    write(rule.name, style="bold")
    write(f"  {rule.why}")
    if rule.guards:
        write(f"  holds when: {rule.guards}")
    write(f"  group {rule.group}, {rule.soundness}, {rule.file}:{rule.line}")
    write()
    write(_as_written(rule) or rule.text)


def _fields(rule: Any) -> dict[str, Any]:
    return {
        "name": rule.name,
        "group": rule.group,
        "soundness": rule.soundness,
        "why": rule.why,
        "file": str(_path(rule)),
        "line": rule.line,
    }


def _path(rule: Any) -> Path:
    """The file that holds a rule; the package's own are known by a path relative to the folder that holds `rules`."""
    from meganeura.resources import resource_dir

    path = Path(rule.file)
    own = resource_dir("rules").parent / path
    return own if not path.is_absolute() and own.is_file() else path.absolute()


def _as_written(rule: Any) -> str:
    """The rule's text with its own line breaks: from below its header to the next one."""
    lines = _path(rule).read_text(encoding="utf-8").splitlines()[rule.line - 1 :]
    while lines and lines[0].lstrip().startswith(";;"):
        lines.pop(0)
    end = next((at for at, line in enumerate(lines) if line.startswith(";;")), len(lines))
    return "\n".join(lines[:end]).strip()
