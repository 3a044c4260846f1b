"""NumPy's basic indexing and shape completion in terms of slice and reshape nodes."""

from __future__ import annotations

import operator
from typing import Any

from meganeura.errors import GraphError
from meganeura.ir.dims import Dim, SymDim, as_shape, divide, size


def complete_shape(old: tuple[Dim, ...], dims: Any) -> tuple[Dim, ...]:
    """Fill in a single -1 so that the element count matches `old`."""
    wanted = list(dims)
    holes = [i for i, d in enumerate(wanted) if isinstance(d, int) and d == -1]
    if len(holes) > 1:
        raise GraphError(f"reshape to {tuple(wanted)}: more than one -1", op="reshape")
    if holes:
        known = size(as_shape(d for i, d in enumerate(wanted) if i != holes[0]))
        missing = divide(size(old), known) if known != 0 else 0
        if missing is None:
            raise GraphError(f"reshape of {old} to {tuple(wanted)}: sizes don't divide", op="reshape")
        wanted[holes[0]] = missing
    return as_shape(wanted)


def index(tensor: Any, item: Any) -> Any:
    """Basic indexing of a tensor handle with ints, slices, Ellipsis and None; returns a handle."""
    items = list(item) if isinstance(item, tuple) else [item]
    if items.count(Ellipsis) > 1:
        raise GraphError("an index can have only one ellipsis", op="slice")
    taken = sum(1 for i in items if i is not None and i is not Ellipsis)
    if taken > tensor.rank:
        raise GraphError(f"{taken} indices for rank {tensor.rank}", op="slice")
    if Ellipsis not in items:
        items.append(Ellipsis)
    at = items.index(Ellipsis)
    items[at : at + 1] = [slice(None)] * (tensor.rank - taken)
    starts: list[Dim] = []
    stops: list[Dim] = []
    steps: list[int] = []
    shape: list[Dim] = []
    axis = 0
    for entry in items:
        if entry is None:
            shape.append(1)
            continue
        dim = tensor.shape[axis]
        axis += 1
        if isinstance(entry, slice):
            start, stop, step = _bounds(entry, dim)
            length: Dim
            if step == 1:
                length = stop - start
            elif isinstance(stop, int) and isinstance(start, int):
                length = max(0, -(-(stop - start) // step))
            else:
                raise GraphError("a stepped slice of a symbolic dimension", op="slice", shapes=str(tensor.shape))
            shape.append(length)
        else:
            position = _position(entry)
            if isinstance(dim, int) and not -dim <= position < dim:
                raise GraphError(f"index {position} is out of range for {dim}", op="slice", shapes=str(tensor.shape))
            start = position if position >= 0 else dim + position
            stop, step = start + 1, 1
        starts.append(start)
        stops.append(stop)
        steps.append(step)
    result = tensor
    if tuple(starts) != (0,) * tensor.rank or tuple(stops) != tensor.shape or any(s != 1 for s in steps):
        result = tensor.graph.apply("slice", tensor, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
    if tuple(shape) != result.shape:
        result = tensor.graph.apply("reshape", result, shape=tuple(shape))
    return result


def _position(entry: Any) -> int:
    try:
        return operator.index(entry)
    except TypeError:
        raise GraphError(
            f"a tensor can't be indexed with {entry!r}", op="slice", remedy="use gather or where"
        ) from None


def _bounds(entry: slice, dim: Dim) -> tuple[Dim, Dim, int]:
    step = 1 if entry.step is None else int(entry.step)
    if step <= 0:
        raise GraphError("slices need a positive step", op="slice", remedy="use mg.flip for a reversed axis")
    if isinstance(dim, int):
        start, stop, _ = slice(entry.start, entry.stop, step).indices(dim)
        return start, max(start, stop), step

    def bound(value: Any, default: Dim) -> Dim:
        if value is None:
            return default
        if isinstance(value, SymDim) or value >= 0:
            return value
        return dim + value

    return bound(entry.start, 0), bound(entry.stop, dim), step
