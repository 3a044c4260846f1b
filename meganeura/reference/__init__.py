"""The oracle: see `evaluator`."""

from meganeura.reference.evaluator import evaluate, round_to, widen

__all__ = ["evaluate", "round_to", "widen"]
