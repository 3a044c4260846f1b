"""What a search did, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StageReport:
    """One stage: how many iterations it took, how long, and the terms there were afterwards."""

    name: str
    iterations: int
    seconds: float
    terms: int


@dataclass
class SearchReport:
    """The search's account.

    Attributes:
        rules: how often each rule fired: distinct classes it matched at; rules that never did are left out.
        node_rules: for each node of the result that a rule led to, the rules that did, in name order.
        stages: in the order they ran. seconds: wall time by phase (fold, encode, saturate, extract, decode).
        nodes_before, nodes_after: graph nodes, leaves included. terms, classes: size of the e-graph at its end.
        stopped_by: "saturated", or the limit that was hit: "nodes", "iterations" or "seconds".
        cost_before, cost_after: the cost model's seconds for the graph as encoded and as extracted.
    """

    rules: dict[str, int] = field(default_factory=dict)
    node_rules: dict[int, tuple[str, ...]] = field(default_factory=dict)
    stages: list[StageReport] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    nodes_before: int = 0
    nodes_after: int = 0
    terms: int = 0
    classes: int = 0
    stopped_by: str = "saturated"
    cost_before: float = 0.0
    cost_after: float = 0.0
