"""Smaller dimensions: the same graph with every length that is a multiple of some number cut down."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from meganeura.bisect.setting import Case
from meganeura.errors import MeganeuraError
from meganeura.ir.constants import constant_from_array
from meganeura.ir.graph import Graph, Tensor
from meganeura.ir.op import OPS, Op

_LENGTHS = ("shape", "starts", "stops")
"""Attributes that hold lengths and positions, and so scale with a dimension."""


def smaller(case: Case) -> Iterator[Case]:
    """Candidates with some dimensions made 1 or halved, the largest cuts first.

    Each takes one length, and then that length with all its multiples: axes that a reshape merges shrink together.
    Candidates that break a shape rule are left out; what is left may compute something else, so it must be tested.
    """
    lengths = sorted({d for n in case.graph.nodes for d in getattr(n.type, "shape", ()) if int(d) > 1}, reverse=True)
    for target in (1, 2):
        for length in lengths:
            cut = 1 if target == 1 else length // 2
            if target == 2 and length < 4:
                continue
            for multiples in (False, True):
                if multiples and not any(other != length and other % length == 0 for other in lengths):
                    continue
                found = _scaled(case, int(length), int(cut), multiples)
                if found is not None:
                    yield found


def _scaled(case: Case, length: int, cut: int, multiples: bool) -> Case | None:
    def dim(value: int) -> int:
        if value == length or (multiples and value > 0 and value % length == 0):
            return value // length * cut
        return value

    def part(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array[tuple(slice(0, dim(n)) for n in array.shape)])

    graph = case.graph
    new = Graph(graph.name)
    mapped: list[Tensor] = []
    arrays: dict[str, np.ndarray] = {}
    try:
        for node in graph.nodes:
            if node.op.name == "constant":
                data = graph.constants[node.op.key].load()  # type: ignore[attr-defined]
                mapped.append(new.apply(_constant(new, part(data)), source=node.sources))
                continue
            op = _with_lengths(node.op, dim)
            mapped.append(new.apply(op, *(mapped[i] for i in node.inputs), source=node.sources))
            if node.op.name in ("input", "state"):
                name = node.op.name_of_leaf  # type: ignore[attr-defined]
                new._leaves[name] = mapped[-1].id
                arrays[name] = _indices(part(case.values[name]), length, cut)
    except (MeganeuraError, ValueError, TypeError, IndexError):
        return None
    new.outputs = {name: mapped[root].id for name, root in graph.outputs.items()}
    new.updates = {name: mapped[root].id for name, root in graph.updates.items()}
    return Case(new, arrays)


def _constant(new: Graph, array: np.ndarray) -> Op:
    data = constant_from_array(array)
    new.constants.setdefault(data.key, data)
    return OPS["constant"](data.key, data.type.dtype, data.type.shape)  # type: ignore[call-arg]


def _with_lengths(op: Op, dim: Callable[[int], int]) -> Op:
    attributes = op.attributes()
    changed = {k: tuple(map(dim, attributes[k])) for k in _LENGTHS if k in attributes}
    return type(op)(**{**attributes, **changed}) if changed else op


def _indices(array: np.ndarray, length: int, cut: int) -> np.ndarray:
    """Integers that may index an axis of the old length, brought below the new one."""
    if array.dtype.kind in "iu" and array.size and int(array.max()) < length and int(array.max()) >= cut:
        return array % array.dtype.type(cut)
    return array
