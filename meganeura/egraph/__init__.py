"""The e-graph search over graphs. egglog is imported when a search runs, not before."""

from meganeura.egraph.explore import check_rules
from meganeura.egraph.optimize import optimize
from meganeura.egraph.report import SearchReport, StageReport
from meganeura.egraph.rulefile import RuleBook, RuleInfo, Stage, load_rules, read_rules

__all__ = [
    "RuleBook",
    "RuleInfo",
    "SearchReport",
    "Stage",
    "StageReport",
    "check_rules",
    "load_rules",
    "optimize",
    "read_rules",
]
