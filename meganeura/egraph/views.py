"""Facts about the views that occur: slices, reshapes, expansions and transposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meganeura.egraph import shape_facts
from meganeura.egraph.load import Loader

Vector = tuple[int, ...]


class Views:
    """Loads what rules may know of view terms and of shapes; each fact once."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._shapes: set[Vector] = set()
        self._perms: set[Vector] = set()
        self.describe: dict[str, Callable[[Any, int, Vector, int], None]] = {
            "Slice": self._slice,
            "Reshape": self._reshape,
            "Expand": self._expand,
            "Transpose": self._transpose,
        }
        """By constructor: a function of the op, the operand's class and shape, and the result's class."""

    def note_shape(self, shape: Vector) -> None:
        """Relate a shape to all others by broadcasting."""
        if shape in self._shapes:
            return
        self._shapes.add(shape)
        for other in self._shapes:
            for s, t in {(shape, other), (other, shape)}:
                if shape_facts.fits(s, t):
                    self._loader.vectors("fits", s, t)

    def _slice(self, op: Any, operand: int, shape: Vector, result: int) -> None:
        ranges = zip(op.starts, op.stops, shape, strict=True)
        cut = [axis for axis, (low, high, dim) in enumerate(ranges) if (low, high) != (0, dim)]
        if len(cut) == 1 and all(step == 1 for step in op.steps):
            axis = cut[0]
            self._loader.fact("slice-range", result, axis, op.starts[axis], op.stops[axis], other=operand)

    def _reshape(self, op: Any, operand: int, shape: Vector, result: int) -> None:
        for name, axis in shape_facts.reshape_facts(shape, tuple(op.shape)):
            self._loader.vectors(name, shape, tuple(op.shape), values=(axis,))

    def _expand(self, op: Any, operand: int, shape: Vector, result: int) -> None:
        found = shape_facts.expand_fact(shape, tuple(op.shape))
        if found is not None:
            self._loader.vectors("repeats-axis", shape, tuple(op.shape), values=found)

    def _transpose(self, op: Any, operand: int, shape: Vector, result: int) -> None:
        perm = tuple(op.perm)
        if shape_facts.keeps_order(perm, shape):
            self._loader.vectors("unit-perm", perm, shape)
        if perm in self._perms:
            return
        self._perms.add(perm)
        for name in shape_facts.permutation_facts(perm):
            self._loader.vectors(name, perm)
        for other in [p for p in self._perms if len(p) == len(perm)]:
            for outer, inner in {(perm, other), (other, perm)}:
                both = shape_facts.compose(outer, inner)
                self._loader.vectors("compose-perm", outer, inner, both)
                if list(both) == list(range(len(perm))):
                    self._loader.vectors("inverse-perm", outer, inner)
