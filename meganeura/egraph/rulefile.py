"""Rule files: what a rule is called, why it exists, how sound it is, and where it stands.

The parser of egglog drops comments, so names and documentation are read here, from `;;` headers::

    ;; rule: mul-into-matmul-alpha
    ;; group: matmul
    ;; soundness: reassociating
    ;; why: A uniform factor on a product is the product's alpha, which costs nothing.
    (rewrite (Mul (MatMul ta tb alpha a b) s) (MatMul ta tb (* alpha c) a b) :when ((= c (splat s))))

A header is followed by one or more `rewrite`, `birewrite` or `rule` commands (spellings of one idea). Commands
before the first header declare relations, functions or helper constructors.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from meganeura.egraph.sexpr import Form, read
from meganeura.errors import RuleError
from meganeura.resources import resource_dir

SOUNDNESS = ("exact", "reassociating", "approximate")
ALLOWANCES = ("signed-zero", "nan-to-zero", "non-finite", "overflow", "out-of-range")
"""What a rule may say it does not keep (see `RuleInfo`)."""
_HEADER = re.compile(r"^;;\s?(?P<indent>\s*)(?:(?P<key>[a-z]+):)?\s*(?P<text>.*)$")
_RULE_COMMANDS = ("rewrite", "birewrite", "rule")
_DECLARATIONS = ("relation", "function", "constructor")


@dataclass(frozen=True)
class RuleInfo:
    """One named rule.

    Attributes:
        name: unique over all files. group: the ruleset it runs in. soundness: "exact" (same value bit for bit
            in exact arithmetic and in rounding), "reassociating" (same real number, rounding may differ) or
            "approximate". why: a sentence. guards: what must hold, in words.
        file, line: where its header stands. commands: its egglog commands.
        allows: what its soundness leaves out: "signed-zero", a zero may change its sign; "nan-to-zero", NaN may
            become zero; "non-finite", inputs and results are finite numbers; "overflow", values stay far from the
            limits of their types; "out-of-range", integers are valid indices of whatever they index.
    """

    name: str
    group: str
    soundness: str
    why: str
    guards: str
    file: str
    line: int
    commands: tuple[Form, ...]
    allows: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.file}:{self.line}"

    @property
    def text(self) -> str:
        """The rule's commands, one a line."""
        return "\n".join(map(str, self.commands))


@dataclass(frozen=True)
class RuleFile:
    """One file: its purpose, its declarations, its rules."""

    path: str
    purpose: str
    declarations: tuple[Form, ...]
    rules: tuple[RuleInfo, ...]


@dataclass(frozen=True)
class Stage:
    """Rule groups that run together, at most `iterations` times or until nothing changes."""

    name: str
    groups: tuple[str, ...]
    iterations: int


@dataclass(frozen=True)
class RuleBook:
    """All rules of some files, in order, and the stages they run in."""

    files: tuple[RuleFile, ...]
    stages: tuple[Stage, ...]

    @property
    def rules(self) -> tuple[RuleInfo, ...]:
        """Every rule, in file order."""
        return tuple(rule for file in self.files for rule in file.rules)

    def select(
        self, disabled: Iterable[str] = (), enabled: Iterable[str] = (), only: Iterable[str] | None = None
    ) -> tuple[RuleInfo, ...]:
        """The rules to run; names and groups may be mixed.

        Args:
            disabled: left out. enabled: approximate rules to take in. only: if given, nothing else is taken.
        Raises:
            RuleError: for a name that is neither a rule nor a group.
        """
        known = {word for rule in self.rules for word in (rule.name, rule.group)}
        off, on = set(disabled), set(enabled)
        kept = None if only is None else set(only)
        for word in sorted((off | on | (kept or set())) - known):
            near = difflib.get_close_matches(word, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else "see `meganeura rules list`"
            raise RuleError(f"there is no rule or group {word!r}", remedy=hint)
        chosen = []
        for rule in self.rules:
            words = {rule.name, rule.group}
            if words & off or (kept is not None and not words & kept):
                continue
            if rule.soundness == "approximate" and not words & (on | (kept or set())):
                continue
            chosen.append(rule)
        return tuple(chosen)


def load_rules(extra: Sequence[str] = (), folder: Path | None = None) -> RuleBook:
    """Read the package's rule files and further ones of the user's.

    Args:
        extra: paths of further rule files. folder: read this folder instead of the package's `rules`.
    Raises:
        RuleError: naming file and line of what is malformed, a duplicate, or missing.
    """
    root = folder or resource_dir("rules")
    paths = sorted(root.glob("*.egg"))
    files = [read_rules(path.read_text(encoding="utf-8"), f"{root.name}/{path.name}") for path in paths]
    for name in extra:
        path = Path(name)
        try:
            files.append(read_rules(path.read_text(encoding="utf-8"), name))
        except (OSError, UnicodeDecodeError) as error:
            raise RuleError(f"cannot read the rule file {name}: {error}", source=name) from None
    seen: dict[str, RuleInfo] = {}
    for file in files:
        for rule in file.rules:
            if rule.name in seen:
                raise RuleError(
                    f"two rules are called {rule.name!r}",
                    source=rule.place,
                    remedy=f"rename one; the other is at {seen[rule.name].place}",
                )
            seen[rule.name] = rule
    groups = tuple(dict.fromkeys(rule.group for rule in seen.values()))
    return RuleBook(tuple(files), _read_stages(root / "stages.toml", groups))


def read_rules(text: str, source: str) -> RuleFile:
    """Parse one rule file; `source` names it in messages."""
    headers = _headers(text, source)
    starts = [line for line, _ in headers]
    commands: list[list[Form]] = [[] for _ in headers]
    declared: list[Form] = []
    for form in read(text, source):
        at = sum(line < form.line for line in starts) - 1
        if form.head in _DECLARATIONS:
            declared.append(form)
        elif form.head not in _RULE_COMMANDS:
            raise RuleError(
                f"({form.head or '...'} ...) is not a command of a rule file",
                source=f"{source}:{form.line}",
                remedy=f"use {', '.join((*_RULE_COMMANDS, *_DECLARATIONS))}",
            )
        elif at < 0:
            raise RuleError("a rule without a `;; rule: NAME` header", source=f"{source}:{form.line}")
        else:
            commands[at].append(form)
    stem = Path(source).stem
    rules = []
    for (line, fields), forms in zip(headers, commands, strict=True):
        if not forms:
            raise RuleError(f"the header of {fields['rule']!r} is followed by no rule", source=f"{source}:{line}")
        rules.append(_rule(fields, tuple(forms), source, line, stem))
    return RuleFile(source, _purpose(text, starts), tuple(declared), tuple(rules))


def _headers(text: str, source: str) -> list[tuple[int, dict[str, str]]]:
    found: list[tuple[int, dict[str, str]]] = []
    key = ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _HEADER.match(line) if line.startswith(";;") else None
        if match is None:
            key = ""
        elif match["key"] == "rule":
            found.append((number, {"rule": match["text"].strip()}))
            key = "rule"
        elif key and match["key"] in ("group", "soundness", "why", "guards", "allows") and len(match["indent"]) < 2:
            key = match["key"]
            if key in found[-1][1]:
                raise RuleError(f"{key!r} is given twice", source=f"{source}:{number}")
            found[-1][1][key] = match["text"].strip()
        elif key and len(match["indent"]) >= 1:
            found[-1][1][key] += " " + f"{match['key'] + ': ' if match['key'] else ''}{match['text']}".strip()
        elif key:
            raise RuleError(
                f"a header line that is not understood: {line!r}",
                source=f"{source}:{number}",
                remedy="the keys are rule, group, soundness, why, guards, allows; indent continued text",
            )
    return found


def _rule(fields: dict[str, str], forms: tuple[Form, ...], source: str, line: int, stem: str) -> RuleInfo:
    name, place = fields["rule"], f"{source}:{line}"
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise RuleError(f"{name!r} is not a rule name", source=place, remedy="use lower case words joined by '-'")
    soundness = fields.get("soundness", "")
    if soundness not in SOUNDNESS:
        raise RuleError(
            f"rule {name}: soundness {soundness!r} is not known", source=place, remedy=f"use {', '.join(SOUNDNESS)}"
        )
    if not fields.get("why"):
        raise RuleError(f"rule {name} does not say why", source=place, remedy="add a `;; why:` line")
    allows = tuple(fields.get("allows", "").replace(",", " ").split())
    for word in allows:
        if word not in ALLOWANCES:
            raise RuleError(
                f"rule {name}: allows {word!r} is not known", source=place, remedy=f"use {', '.join(ALLOWANCES)}"
            )
    group = fields.get("group") or stem
    return RuleInfo(name, group, soundness, fields["why"], fields.get("guards", ""), source, line, forms, allows)


def _purpose(text: str, starts: list[int]) -> str:
    lines = []
    for line in text.splitlines()[: (starts[0] - 1 if starts else None)]:
        if not line.startswith(";"):
            break
        lines.append(line.lstrip("; ").rstrip())
    return " ".join(lines).strip()


def _read_stages(path: Path, groups: tuple[str, ...]) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    if path.is_file():
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            for entry in table["stage"]:
                stages.append(Stage(str(entry["name"]), tuple(entry["groups"]), int(entry.get("iterations", 8))))
        except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
            raise RuleError(f"the stages are malformed: {error}", source=str(path)) from None
    placed = {group for stage in stages for group in stage.groups}
    rest = tuple(group for group in groups if group not in placed)
    return (*stages, Stage("further", rest, 8)) if rest else tuple(stages)
