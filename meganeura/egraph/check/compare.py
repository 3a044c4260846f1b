"""Evaluates every term of an exploration against its class, as strictly as the rules' soundness asks.

Exact rules must give the same bits (of any NaN). Others must give the same real number: they are computed without
rounding, and may differ by what relative noise at every operation of the original makes of its result: that is the
accumulated magnitude, cancellation included. A second comparison, with rounding, shows what casts lose.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meganeura.egraph.explore import Exploration
from meganeura.egraph.snapshot import Term
from meganeura.ir.types import DType, TensorType, TupleType, ValueType
from meganeura.reference import round_to, widen

NOISE, SAMPLES, FACTOR = 2.0**-22, 5, 24.0
"""Relative noise at every operation, how many samples of it, and how much more a rule may differ."""


@dataclass(frozen=True)
class Difference:
    """A term that is not its class's value.

    Attributes:
        here: the class. term: the term. index: the first element that differs. old, new: both values there.
        pure: computed without rounding to the type of each node.
    """

    here: int
    term: Term
    index: tuple[int, ...]
    old: float
    new: float
    pure: bool

    @property
    def message(self) -> str:
        """What differs, in words."""
        where = f", at [{', '.join(map(str, self.index))}]" if self.index else ""
        arithmetic = " in real arithmetic" if self.pure else ""
        return f"a {self.term.op.name} that the rule makes is {self.new!r}, not {self.old!r}{arithmetic}{where}"


def differences(
    found: Exploration, inputs: Mapping[str, np.ndarray], soundness: str, allows: Collection[str], pure: bool
) -> Iterator[Difference]:
    """The terms that differ from their class's value for these inputs.

    Args:
        pure: compute in float64 throughout; exact rules are compared with rounding only.
    """
    exact = soundness == "exact"
    base = _Values(found, inputs, pure, None)
    noisy = [] if exact else [_Values(found, inputs, pure, np.random.default_rng(n)) for n in range(SAMPLES)]
    for here, terms in found.snapshot.classes.items():
        if here not in base.of or len(terms) == 1:
            continue
        sums = any(not t.op.elementwise and not t.op.view for t in terms)
        for term in terms:
            if term.op.name in ("input", "state") or any(o not in base.of for o in term.operands):
                continue
            got = base.compute(here, term)
            kinds = _kinds(found.types[here])
            for part, kind in enumerate(kinds):
                old, new = (_part(value, part) for value in (base.of[here], got))
                spread = [_part(values.of[here], part) for values in noisy]
                bad = _exact(old, new, allows, sums) if exact else _close(old, new, spread, kind, allows, pure)
                if bad.any():
                    index = tuple(int(i) for i in np.argwhere(bad)[0])
                    yield Difference(here, term, index, float(old[index]), float(new[index]), pure)
                    break


def _kinds(kind: ValueType) -> tuple[TensorType, ...]:
    return kind.items if isinstance(kind, TupleType) else (kind,)


def _part(value: Any, part: int) -> np.ndarray:
    return np.asarray(value[part] if isinstance(value, tuple) else value)


class _Values:
    """A value per class: from the graph, or from the first term whose operands have one."""

    def __init__(
        self, found: Exploration, inputs: Mapping[str, np.ndarray], pure: bool, noise: np.random.Generator | None
    ) -> None:
        self._found, self._inputs, self._pure, self._noise = found, inputs, pure, noise
        self.of: dict[int, Any] = {}
        graph, class_of = found.graph, found.snapshot.class_of
        for node in graph.nodes:
            here = class_of[node.id]
            if here not in self.of:
                self.of[here] = self._disturbed(
                    here, self.compute(here, Term(node.op, tuple(class_of[i] for i in node.inputs)))
                )
        waiting = [here for here in found.snapshot.classes if here not in self.of]
        grown = True
        while waiting and grown:
            grown, rest = False, []
            for here in waiting:
                ready = next((t for t in found.snapshot.classes[here] if all(o in self.of for o in t.operands)), None)
                if ready is None:
                    rest.append(here)
                else:
                    self.of[here], grown = self._disturbed(here, self.compute(here, ready)), True
            waiting = rest

    def compute(self, here: int, term: Term) -> Any:
        """A term's value over the values of its operands."""
        kind, op = self._found.types[here], term.op
        if op.name in ("input", "state"):
            assert isinstance(kind, TensorType)
            return round_to(widen(self._inputs[op.name_of_leaf]), kind.dtype)  # type: ignore[attr-defined]
        if op.name == "constant":
            return widen(self._found.graph.constants[op.key].load())  # type: ignore[attr-defined]
        with np.errstate(all="ignore"):
            result = op.evaluate([self.of[o] for o in term.operands], kind)
        if isinstance(kind, TupleType):
            return tuple(
                round_to(np.asarray(part), t.dtype, self._pure) for part, t in zip(result, kind.items, strict=True)
            )
        return round_to(np.asarray(result), kind.dtype, self._pure)

    def _disturbed(self, here: int, value: Any) -> Any:
        if self._noise is None:
            return value
        kind = self._found.types[here]
        if isinstance(kind, TupleType):
            return tuple(self._shaken(part, t.dtype) for part, t in zip(value, kind.items, strict=True))
        return self._shaken(value, kind.dtype)

    def _shaken(self, value: np.ndarray, dtype: DType) -> np.ndarray:
        if not dtype.is_float or self._noise is None:
            return value
        size = 2.0**-10 if dtype is DType.F16 else NOISE
        with np.errstate(all="ignore"):
            return value * (1.0 + size * self._noise.uniform(-1.0, 1.0, value.shape))


def _exact(old: np.ndarray, new: np.ndarray, allows: Collection[str], sums: bool) -> np.ndarray:
    """Where two values are not the same bits, up to which NaN it is; `sums`: of an op that adds up many numbers."""
    if old.dtype.kind != "f":
        return np.asarray(old != new)
    bad = ~((old == new) | (np.isnan(old) & np.isnan(new)))
    if sums:
        # NumPy adds up in an order that depends on shapes and strides; in float64 that is far below a float32.
        finite = np.isfinite(old) & np.isfinite(new)
        with np.errstate(all="ignore"):
            largest = np.max(np.abs(old[np.isfinite(old)]), initial=0.0)
            bad &= ~(finite & (np.abs(old - new) <= 2.0**-23 * np.abs(old) + 1e-14 * largest))
    elif "signed-zero" not in allows:
        bad |= (old == 0) & (new == 0) & (np.signbit(old) != np.signbit(new))
    return _forgiven(bad, old, new, allows)


def _close(
    old: np.ndarray, new: np.ndarray, noisy: list[np.ndarray], kind: TensorType, allows: Collection[str], pure: bool
) -> np.ndarray:
    """Where two values differ by more than noise in the original explains."""
    if old.dtype.kind != "f":
        # Whole numbers and truth values that noise changes hang on a rounding.
        steady = np.all([n == old for n in noisy], axis=0)
        return np.asarray((old != new) & steady)
    with np.errstate(all="ignore"):
        spread = np.max([np.abs(n - old) for n in noisy], axis=0)
        same = (old == new) | (np.isnan(old) & np.isnan(new))
        # Below what float32 can hold nothing counts.
        limit = FACTOR * spread + (1e-9 if pure else 4 * NOISE) * np.abs(old) + 1e-38
        if kind.dtype is DType.F16:
            limit = limit + 2e-3 * np.abs(old) + 1e-6
        bad = ~same & ~(np.abs(new - old) <= limit)
    # Where noise alone makes the original infinite or NaN, or finite again, it is on an edge.
    finite = np.isfinite(old)
    steady = np.all([np.isfinite(n) == finite for n in noisy], axis=0)
    if not pure:
        # Overflow of intermediates is rounding, too; without rounding it shows whether both are infinite.
        bad &= finite & np.isfinite(new)
    return _forgiven(bad & steady, old, new, allows)


def _forgiven(bad: np.ndarray, old: np.ndarray, new: np.ndarray, allows: Collection[str]) -> np.ndarray:
    if "nan-to-zero" in allows:
        bad = bad & ~(np.isnan(old) & (new == 0))
    if "non-finite" in allows:
        bad = bad & (np.isnan(old) & ("nan-to-zero" in allows) | np.isfinite(old))
    if "overflow" in allows:
        bad = bad & ~(np.isfinite(old) & (np.abs(old) > 1e20))
    return bad
