"""What a search for a fault runs in: a device, options, a tolerance, and each step of the chain on its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from meganeura.codegen.program import Program, generate
from meganeura.egraph.optimize import optimize
from meganeura.egraph.report import SearchReport
from meganeura.egraph.rulefile import RuleBook, load_rules
from meganeura.ir.graph import Graph
from meganeura.ir.validate import validate
from meganeura.lower.lower import lower
from meganeura.options import CompileOptions
from meganeura.reference import evaluate
from meganeura.reference.compare import Difference, difference
from meganeura.runtime.bound import BoundProgram
from meganeura.runtime.device import Device
from meganeura.runtime.session import Session

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A concrete graph and arrays for its inputs and states by name."""

    graph: Graph
    values: Values


@dataclass(frozen=True)
class Variant:
    """A graph as it goes into lowering.

    Attributes:
        name: "optimised" or "unoptimised". fuse: whether lowering fuses.
        rules: for nodes of the graph, the rewrites that led to them.
    """

    name: str
    graph: Graph
    fuse: bool
    rules: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """The device and options that showed a disagreement, and the largest difference allowed."""

    device: Device
    options: CompileOptions
    tolerance: float

    @cached_property
    def book(self) -> RuleBook:
        """All rules, read once."""
        return load_rules(self.options.rules)

    def rewrite(self, graph: Graph, only: Iterable[str] | None = None) -> tuple[Graph, SearchReport]:
        """The optimiser's graph; `only` names the rules that may be used, of those the options allow."""
        options, chosen = self.options, self.book.select(self.options.disabled_rules, self.options.enabled_rules)
        if only is not None:
            kept = set(only)
            off = tuple(rule.name for rule in chosen if rule.name not in kept)
            options = replace(options, disabled_rules=(*options.disabled_rules, *off))
        result, report = optimize(graph, self.device.facts, options, rules=self.book)
        return validate(result, "optimize"), report

    def variant(self, graph: Graph, optimized: bool) -> Variant:
        """The optimised or the unoptimised form of a graph."""
        if not optimized:
            return Variant("unoptimised", graph.decompose(), False)
        result, report = self.rewrite(graph)
        return Variant("optimised", result, True, report.node_rules)

    def program(self, variant: Variant, reuse: bool) -> Program:
        """Kernels and memory, with or without shared buffers."""
        options = replace(self.options, optimize=variant.fuse, reuse_memory=reuse)
        plan = lower(variant.graph, self.device.facts, options, fuse=variant.fuse, rules=variant.rules)
        return generate(plan, self.device.facts)

    def bind(self, variant: Variant, values: Values, reuse: bool) -> BoundProgram:
        """The program on the device in a session of its own, its states set."""
        options = replace(self.options, optimize=variant.fuse, reuse_memory=reuse)
        bound = BoundProgram(Session(self.device, options), self.program(variant, reuse))
        for name in bound.session.states:
            if name in values:
                bound.session.write_state(name, values[name])
        return bound

    def run(self, variant: Variant, values: Values, reuse: bool) -> dict[str, np.ndarray]:
        """Results on the device: outputs by name, and new values of states under `state:NAME`.

        Raises:
            DeviceError: a kernel was refused, or the plan binds one buffer twice.
        """
        bound = self.bind(variant, values, reuse)
        results = dict(bound.run({name: values[name] for name in bound.inputs}))
        return results | {f"state:{name}": bound.session.read_state(name) for name in variant.graph.updates}

    def reference(self, graph: Graph, values: Values) -> dict[str, np.ndarray]:
        """Results in float64."""
        return evaluate(graph, values)

    def disagreement(self, have: Values, want: Values) -> tuple[str, Difference] | None:
        """The result that is furthest off with its difference, or None where all are within the tolerance."""
        worst: tuple[str, Difference] | None = None
        for name, expected in want.items():
            apart = difference(have[name], expected)
            if not apart.within(self.tolerance) and (worst is None or _size(apart) > _size(worst[1])):
                worst = name, apart
        return worst


def _size(apart: Difference) -> float:
    return apart.max_rel if apart.same_kind else float("inf")
