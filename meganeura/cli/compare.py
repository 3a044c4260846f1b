"""How far two results are apart; see `meganeura.reference.compare`."""

from meganeura.reference.compare import TOLERANCE, Difference, difference

__all__ = ["TOLERANCE", "Difference", "difference"]
