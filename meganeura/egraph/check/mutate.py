"""Near-misses: a matching graph with one thing changed that a rule must notice, or that makes no difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from meganeura.egraph.check.instance import Items, remade
from meganeura.egraph.check.leaves import Leaf
from meganeura.egraph.check.propose import Proposer
from meganeura.egraph.check.sketch import Item
from meganeura.egraph.schema import attribute_sorts
from meganeura.ir.op import OPS, Op
from meganeura.ir.types import DType, TensorType

Change = Callable[[dict[str, Item], Proposer], bool]
_ALIKE = (
    ("add", "sub", "mul", "div", "maximum", "minimum", "pow"),
    ("exp", "tanh", "sqrt", "rsqrt", "reciprocal", "neg", "erf", "sigmoid", "relu", "log"),
    ("reduce_sum", "reduce_max", "reduce_mean", "reduce_min"),
    ("less", "less_equal", "equal"),
    ("and", "or", "xor"),
    ("sin", "cos"),
)


def near_miss(items: Items, proposer: Proposer) -> dict[str, Item] | None:
    """The items with one random change, None if the change does not fit."""
    changed = dict(items)
    change = proposer.pick(_CHANGES)
    return remade(changed) if change(changed, proposer) else None


def _some(items: dict[str, Item], proposer: Proposer, accept: Callable[[Item], bool]) -> str | None:
    found = [name for name, item in items.items() if accept(item)]
    return proposer.pick(found) if found else None


def _swap_operands(items: dict[str, Item], proposer: Proposer) -> bool:
    name = _some(items, proposer, lambda i: len(i.operands) > 1)
    if name is None:
        return False
    operands = list(items[name].operands)
    a, b = (int(i) for i in proposer.rng.choice(len(operands), 2, replace=False))
    operands[a], operands[b] = operands[b], operands[a]
    items[name] = replace(items[name], operands=tuple(operands))
    return operands[a] != operands[b]


def _other_operand(items: dict[str, Item], proposer: Proposer) -> bool:
    """Another tensor of the same type in one place: one at hand, or a new input."""
    name = _some(items, proposer, lambda i: bool(i.operands))
    if name is None:
        return False
    at = int(proposer.rng.integers(len(items[name].operands)))
    old = items[name].operands[at]
    kind = items[old].type
    earlier = list(items)[: list(items).index(name)]
    alike = [n for n in earlier if n != old and items[n].type == kind]
    if alike and proposer.chance(0.6):
        new = proposer.pick(alike)
    elif isinstance(kind, TensorType):
        new = f"other {old}"
        _insert(items, name, new, Item(kind, leaf=Leaf("input", kind)))
    else:
        return False
    operands = list(items[name].operands)
    operands[at] = new
    items[name] = replace(items[name], operands=tuple(operands))
    return True


def _attribute(items: dict[str, Item], proposer: Proposer) -> bool:
    name = _some(items, proposer, lambda i: i.op is not None and bool(fields(i.op)))
    if name is None:
        return False
    op = items[name].op
    assert op is not None
    at = int(proposer.rng.integers(len(fields(op))))
    field, sort = fields(op)[at], attribute_sorts(type(op))[at]
    old = getattr(op, field.name)
    kinds = [items[o].type for o in items[name].operands]
    new: Any = _changed(old, type(op), field.name, sort, kinds, proposer)
    if new == old:
        return False
    items[name] = replace(items[name], op=replace(op, **{field.name: new}))
    return True


def _changed(old: Any, op: type[Op], name: str, sort: str, kinds: list[Any], proposer: Proposer) -> Any:
    if isinstance(old, bool):
        return not old
    if isinstance(old, DType):
        return proposer.pick(list(DType))
    if isinstance(old, int):
        return max(old + proposer.pick((-1, 1, 1, 2)), 0)
    if isinstance(old, float) and proposer.chance(0.5):
        return old + proposer.pick((0.1, -0.1, 1.0)) if old else proposer.number()
    if isinstance(old, tuple) and old and proposer.chance(0.4):
        return tuple(int(i) for i in proposer.rng.permutation(old))
    return proposer.attribute(op, name, sort, kinds)


def _constant(items: dict[str, Item], proposer: Proposer) -> bool:
    """Another value of a uniform constant, other elements of another, or a constant in place of an input."""
    name = _some(items, proposer, lambda i: i.leaf is not None)
    if name is None:
        return False
    leaf = items[name].leaf
    assert leaf is not None
    if leaf.kind == "full":
        whole = not leaf.type.dtype.is_float
        value = leaf.value + (proposer.pick((1, -1, 2)) if whole else proposer.pick((0.1, -0.5, 1.0, 1e-3)))
        if proposer.chance(0.3):
            value = float(proposer.pick((0, 1, 2)))
        if leaf.type.dtype is DType.BOOL:
            value = 1.0 - leaf.value
        if leaf.type.dtype.is_float:
            value = float(leaf.type.dtype.numpy.type(value))
        if leaf.type.dtype is DType.U32 and value < 0:
            return False
        items[name] = replace(items[name], leaf=replace(leaf, value=value))
        return value != leaf.value
    if leaf.kind == "constant" and leaf.array is not None and leaf.array.size:
        array = np.array(leaf.array)
        at = int(proposer.rng.integers(array.size))
        flat = array.reshape(-1)
        flat[at] = (not flat[at]) if array.dtype == np.bool_ else flat[at - 1] if proposer.chance(0.5) else 1
        items[name] = replace(items[name], leaf=replace(leaf, array=array))
        return not np.array_equal(array, leaf.array)
    return False


def _shape(items: dict[str, Item], proposer: Proposer) -> bool:
    """Another shape of an input: lost or new axes of length one, other lengths."""
    name = _some(items, proposer, lambda i: i.leaf is not None and i.leaf.kind != "constant")
    if name is None:
        return False
    leaf = items[name].leaf
    assert leaf is not None
    others = [t.dims for t in (i.type for i in items.values()) if isinstance(t, TensorType)]
    kind = TensorType(leaf.type.dtype, proposer.shape([leaf.type.dims, *others]))
    items[name] = replace(items[name], leaf=replace(leaf, type=kind))
    return kind != leaf.type


def _between(items: dict[str, Item], proposer: Proposer) -> bool:
    """Something between an op and its operand: a negation, a transposition, a cast to float16 and back."""
    name = _some(items, proposer, lambda i: bool(i.operands))
    if name is None:
        return False
    at = int(proposer.rng.integers(len(items[name].operands)))
    old = items[name].operands[at]
    kind = items[old].type
    if not isinstance(kind, TensorType) or kind.dtype is DType.BOOL:
        return False
    choice = int(proposer.rng.integers(3))
    if choice == 0 and kind.dtype is DType.F32:
        inner = Item(kind, OPS["cast"](DType.F16), (old,))  # type: ignore[call-arg]
        _insert(items, name, f"narrow {old}", inner)
        new = Item(kind, OPS["cast"](DType.F32), (f"narrow {old}",))  # type: ignore[call-arg]
    elif choice == 1 and kind.rank > 1:
        perm = (*range(kind.rank - 2), kind.rank - 1, kind.rank - 2)
        new = Item(kind, OPS["transpose"](perm), (old,))  # type: ignore[call-arg]
    else:
        new = Item(kind, OPS["neg"](), (old,))
    _insert(items, name, f"changed {old}", new)
    operands = list(items[name].operands)
    operands[at] = f"changed {old}"
    items[name] = replace(items[name], operands=tuple(operands))
    return True


def _other_op(items: dict[str, Item], proposer: Proposer) -> bool:
    name = _some(items, proposer, lambda i: i.op is not None and any(i.op.name in group for group in _ALIKE))
    if name is None:
        return False
    op = items[name].op
    assert op is not None
    group = next(group for group in _ALIKE if op.name in group)
    items[name] = replace(items[name], op=OPS[proposer.pick(group)](**op.attributes()))
    return True


def _insert(items: dict[str, Item], before: str, name: str, item: Item) -> None:
    """Put an item in front of another, so that the order still builds."""
    rest = dict(items)
    items.clear()
    for key, value in rest.items():
        if key == before:
            items[name] = item
        items[key] = value


_CHANGES: tuple[Change, ...] = (
    _swap_operands,
    _other_operand,
    _other_operand,
    _attribute,
    _attribute,
    _constant,
    _shape,
    _between,
    _other_op,
)
