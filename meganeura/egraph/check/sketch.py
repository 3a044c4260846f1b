"""Half-built matching graphs, and the guards that are checked while they grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from meganeura.egraph.check.expressions import Scope, Unbound, Undefined, compute, equal, relation
from meganeura.egraph.check.leaves import Leaf
from meganeura.egraph.schema import FACTS
from meganeura.egraph.sexpr import Atom, Form
from meganeura.egraph.split import is_variable
from meganeura.ir.op import Op
from meganeura.ir.types import TensorType, ValueType


@dataclass(frozen=True)
class Item:
    """One node of a sketch: an op over other items, or a leaf."""

    type: ValueType
    op: Op | None = None
    operands: tuple[str, ...] = ()
    leaf: Leaf | None = None


@dataclass
class Sketch(Scope):
    """A matching graph by class variables, in an order that builds.

    It is also the scope in which guards are computed, while it grows.
    """

    items: dict[str, Item] = field(default_factory=dict)
    pending: list[Form] = field(default_factory=list)

    def copy(self) -> Sketch:
        """A sketch to go on with, leaving this one as it is."""
        return Sketch(dict(self.values), dict(self.types), dict(self.splats), dict(self.items), list(self.pending))


def settle(sketch: Sketch) -> bool:
    """Check and bind whatever can be computed by now; False where a guard fails."""
    changed = True
    while changed:
        changed = False
        rest = []
        for guard in sketch.pending:
            outcome = _check(sketch, guard)
            if outcome is False:
                return False
            if outcome is None:
                rest.append(guard)
            else:
                changed = True
        sketch.pending = rest
    return True


def _check(sketch: Sketch, guard: Form) -> bool | None:
    """True: holds; False: fails; None: can't be told yet."""
    try:
        if guard.head in FACTS:
            bound = relation(guard, sketch)
            if bound is None:
                return False
            sketch.values.update(bound)
            return True
        if guard.head != "=":
            return bool(compute(guard, sketch))
    except Undefined:
        return False
    except Unbound:
        return None
    sides: list[Any] = []
    for item in guard.items[1:]:
        try:
            sides.append((True, compute(item, sketch)))
        except Undefined:
            return False
        except Unbound:
            sides.append((False, item))
    (known_left, left), (known_right, right) = sides
    if known_left and known_right:
        return equal(left, right)
    if known_left != known_right:
        value, open_side = (left, right) if known_left else (right, left)
        if isinstance(open_side, Atom) and is_variable(open_side):
            sketch.values[open_side.text] = value
            return True
    return None


def has_value(op: Op, types: Sequence[ValueType]) -> bool:
    """False for a gather from an axis without elements, which typing lets pass."""
    x = types[0] if types else None
    if op.name in ("gather", "gather_elements", "embedding", "rope_dynamic") and isinstance(x, TensorType):
        source = types[1] if op.name == "rope_dynamic" else x
        assert isinstance(source, TensorType)
        axis = getattr(op, "axis", 0)
        return not 0 <= axis < source.rank or source.dims[axis] > 0
    return True
