"""The one module that calls egglog.

It speaks egglog's low-level bindings, because only they take rule text; their API changes with every major
version, so nothing of it leaves this file except opaque, hashable values. Bulk data enters through tables of
integers, read by egglog from files and turned into terms by a rule per kind of row: fifteen times faster than
running one action a term.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import tempfile
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

from meganeura.egraph.schema import Literal
from meganeura.errors import RuleError


def _load_bindings() -> Any:
    """egglog's extension module without its Python package, whose import takes a quarter of a second.

    The package imports formatters and notebook widgets that nothing here needs. Registered under its own name,
    the module is the one that a later `import egglog` finds.
    """
    if "egglog" not in sys.modules and "egglog.bindings" not in sys.modules:
        package = importlib.util.find_spec("egglog")
        folders = package.submodule_search_locations if package else None
        found = importlib.machinery.PathFinder.find_spec("egglog.bindings", folders) if folders else None
        if found is not None and found.loader is not None:
            module = importlib.util.module_from_spec(found)
            sys.modules["egglog.bindings"] = module
            found.loader.exec_module(module)
    return sys.modules.get("egglog.bindings") or importlib.import_module("egglog.bindings")


bindings = _load_bindings()
LOADING = "loading"
"""The ruleset that turns table rows into terms."""
_LITERALS = ((bool, bindings.Bool), (int, bindings.Int), (float, bindings.Float), (str, bindings.String))


class Tables:
    """Rows of a frozen e-graph by function name, fetched when asked for: a row has `inputs`, `output`, `subsumed`."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self._functions = functions
        self._rows: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        rows = self._rows.get(name)
        if rows is None:
            function = self._functions.get(name)
            rows = self._rows[name] = [] if function is None else function.rows
        return rows


class Engine:
    """An e-graph: declared once, filled from tables, run one iteration at a time, read as a snapshot."""

    def __init__(self, declarations: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="meganeura-egraph-")
        self._graph: Any = bindings.EGraph(fact_directory=self._folder.name)
        # Anything but a span of text makes egglog panic when it prints an error.
        self._span = bindings.EgglogSpan(bindings.SrcFile("meganeura", " "), 0, 0)
        self._literals: dict[tuple[str, Hashable], Any] = {}
        self._integers: dict[Any, int] = {}
        self._pending: list[Any] = []
        self._rows: dict[str, list[Sequence[int]]] = {}
        self._files = 0
        self._schedules: dict[tuple[str, ...], Any] = {}
        lines = [*declarations.splitlines(), f"(ruleset {LOADING})"]
        # Each parsed span keeps a copy of the whole text in egglog 13.2: small pieces.
        for start in range(0, len(lines), 40):
            self._run(self._graph.parse_program("\n".join(lines[start : start + 40]), "schema"))

    def close(self) -> None:
        """Let go of the e-graph, and remove the folder that tables pass through.

        egglog complains when an e-graph is dropped by another thread than its own, as the collector may do later.
        """
        self._graph = None
        self._folder.cleanup()

    def execute(self, text: str, source: str, what: str) -> None:
        """Run one command written as text; RuleError names `what` and `source`."""
        try:
            self._graph.run_program(*self._graph.parse_program(text, source))
        except BaseException as error:
            raise self._translated(error, what, source) from None

    def _run(self, commands: Sequence[Any]) -> list[Any]:
        try:
            return self._graph.run_program(*commands)
        except BaseException as error:
            raise self._translated(error, "the e-graph refused a command", None) from None

    def _translated(self, error: BaseException, what: str, source: str | None) -> BaseException:
        # A Rust panic arrives as a BaseException of its own; what Python itself raises must pass.
        if isinstance(error, bindings.EggSmolError) or type(error).__name__ == "PanicException":
            lines = [line for line in str(error).splitlines() if line.strip()]
            return RuleError(f"{what}: {' / '.join(lines)[:300]}", source=source)
        return error

    # ---- filling ----------------------------------------------------------------------------------

    def term(self, head: str, *arguments: Any) -> Any:
        """A call expression; arguments are expressions, or literals to be converted."""
        return bindings.Call(self._span, head, [self._expression(a) for a in arguments])

    def variable(self, name: str) -> Any:
        """A variable of a loading rule."""
        return bindings.Var(self._span, name)

    def _expression(self, value: Any) -> Any:
        if isinstance(value, bindings.Call | bindings.Var | bindings.Lit):
            return value
        if isinstance(value, tuple):
            return bindings.Call(self._span, "vec-of", [self._expression(int(item)) for item in value])
        for kind, literal in _LITERALS:
            if isinstance(value, kind):
                return bindings.Lit(self._span, literal(value))
        raise TypeError(f"{value!r} is no literal of the e-graph")

    def union(self, left: Any, right: Any) -> Any:
        """An action of a loading rule."""
        return bindings.Union(self._span, left, right)

    def assertion(self, term: Any) -> Any:
        """An action that asserts a relation."""
        return bindings.Expr_(self._span, term)

    def assignment(self, function: str, arguments: Sequence[Any], value: Any) -> Any:
        """An action that sets a function."""
        return bindings.Set(self._span, function, [self._expression(a) for a in arguments], self._expression(value))

    def loading_rule(self, name: str, facts: Sequence[Any], actions: Sequence[Any]) -> None:
        """Add a rule that turns table rows into terms (run by `load`)."""
        rule = bindings.Rule(self._span, list(actions), [self._fact(fact) for fact in facts], name, LOADING)
        self._pending.append(bindings.RuleCommand(rule))

    def equal(self, left: Any, right: Any) -> Any:
        """A fact of a loading rule: two expressions are equal."""
        return bindings.Eq(self._span, self._expression(left), self._expression(right))

    def _fact(self, fact: Any) -> Any:
        return fact if isinstance(fact, bindings.Eq) else bindings.Fact(fact)

    def row(self, table: str, *values: int) -> None:
        """Put a row of integers in a table (loaded by `load`)."""
        self._rows.setdefault(table, []).append(values)

    def load(self) -> bool:
        """Load the pending rows and run the loading rules; whether there were any."""
        if not self._pending and not self._rows:
            return False
        commands, self._pending = self._pending, []
        for table, rows in self._rows.items():
            self._files += 1
            path = Path(self._folder.name, f"{self._files}.tsv")
            path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
            commands.append(bindings.Input(self._span, table, path.name))
        self._rows = {}
        # Twice, because relations over vectors read the vectors that the first run puts in place.
        commands.append(self._schedule((LOADING, LOADING)))
        self._run(commands)
        return True

    # ---- running ----------------------------------------------------------------------------------

    def _schedule(self, rulesets: tuple[str, ...]) -> Any:
        if rulesets not in self._schedules:
            runs = " ".join(f"(run {name})" for name in rulesets)
            (self._schedules[rulesets],) = self._graph.parse_program(f"(run-schedule (seq {runs}))", "schedule")
        return self._schedules[rulesets]

    def iterate(self, rulesets: Iterable[str]) -> bool:
        """Run each ruleset once, in order; whether anything changed."""
        (output,) = self._run([self._schedule(tuple(rulesets))])
        return bool(output.report.updated)

    # ---- reading ----------------------------------------------------------------------------------

    def freeze(self) -> Tables:
        """The e-graph as it is now; a few milliseconds."""
        return Tables(self._graph.freeze().functions)

    def integer(self, value: Any) -> int:
        """The Python value of an i64."""
        found = self._integers.get(value)
        if found is None:
            found = self._integers[value] = self._graph.value_to_i64(value)
        return found

    def literal(self, sort: str, value: Any) -> Literal:
        """The Python value of an attribute."""
        key = (sort, value)
        found = self._literals.get(key)
        if found is None:
            if sort == "Ints":
                found = tuple(self._graph.value_to_i64(item) for item in self._graph.value_to_vec(value))
            else:
                convert = {
                    "i64": self._graph.value_to_i64,
                    "f64": self._graph.value_to_f64,
                    "String": self._graph.value_to_string,
                    "bool": self._graph.value_to_bool,
                }[sort]
                found = convert(value)
            self._literals[key] = found
        return found
