"""How far two results are apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

TOLERANCE = {"f32": 1e-4, "f16": 1e-2, "packed": 1e-4}
"""Largest difference allowed, over the largest magnitude of the output, by the storage of the weights."""


@dataclass(frozen=True)
class Difference:
    """Two arrays compared.

    Attributes:
        max_abs: largest difference of finite elements. max_rel: that over the largest magnitude of the expected.
        same_kind: shapes, and which elements are NaN or infinite, agree.
        exact: the arrays hold integers or booleans, which must agree exactly.
    """

    max_abs: float
    max_rel: float
    same_kind: bool
    exact: bool

    def within(self, tolerance: float) -> bool:
        """Whether the arrays agree."""
        return self.same_kind and (self.max_abs == 0 if self.exact else self.max_rel <= tolerance)

    def as_dict(self, tolerance: float) -> dict[str, Any]:
        return {"max_abs": self.max_abs, "max_rel": self.max_rel, "ok": self.within(tolerance)}


def difference(have: np.ndarray, expected: np.ndarray) -> Difference:
    """Compare a result with what it should be; both in their interface dtypes."""
    exact = expected.dtype.kind != "f"
    if have.shape != expected.shape or have.dtype != expected.dtype:
        return Difference(float("inf"), float("inf"), False, exact)
    if not have.size:
        return Difference(0.0, 0.0, True, exact)
    ours, theirs = have.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    # A comparison with a result that is itself NaN proves nothing, so the odd elements must sit in the same places.
    odd_agree = np.array_equal(ours[~finite], theirs[~finite], equal_nan=True)
    if not finite.any():
        return Difference(0.0, 0.0, bool(odd_agree), exact)
    largest = float(np.abs(ours[finite] - theirs[finite]).max())
    scale = float(np.abs(theirs[finite]).max())
    relative = largest / scale if scale else (0.0 if largest == 0 else float("inf"))
    return Difference(largest, relative, bool(odd_agree), exact)
