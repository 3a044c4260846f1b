"""What rules may know about constants: uniform values, causal masks, index ramps, repeated indices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from meganeura.egraph.schema import Literal

MASKED = -1e30
"""An additive mask at or below this excludes a key."""
ANALYSED_ELEMENTS = 1 << 22
"""Larger constants are not looked into."""
HALVES_ELEMENTS = 1 << 20
"""Larger tables are not compared by halves."""
Fact = tuple[str, tuple[Literal, ...]]
"""Name of a fact, and its arguments after the class."""


def constant_facts(load: Callable[[], np.ndarray], elements: int) -> list[Fact]:
    """Facts of a constant with more than one value; `load` is called only if it is small enough."""
    if not 1 < elements <= ANALYSED_ELEMENTS:
        return []
    array = load()
    facts = mask_facts(array) if array.ndim >= 2 and array.dtype.kind in "bf" else []
    if array.dtype.kind in "iuf":
        facts += ramp_facts(array)
    if array.dtype.kind == "f" and elements <= HALVES_ELEMENTS and halves_equal(array):
        facts.append(("halves-equal", ()))
    if array.dtype.kind in "iu" and array.ndim == 1:
        facts += repeat_facts(array)
    return facts


def _one_matrix(array: np.ndarray) -> np.ndarray | None:
    """The last two axes, if all leading axes repeat one matrix."""
    lead = array.ndim - 2
    first = array[(0,) * lead]
    # Broadcast axes (stride 0) repeat by construction.
    varied = array[tuple(slice(1) if s == 0 else slice(None) for s in array.strides[:lead])]
    return first if varied.size == first.size or np.array_equal(varied, np.broadcast_to(first, varied.shape)) else None


def mask_facts(array: np.ndarray) -> list[Fact]:
    """Causal or sliding-window masks `[.., queries, keys]`, boolean (true keeps) or additive (0 keeps)."""
    matrix = _one_matrix(array)
    if matrix is None:
        return []
    kind, keep = ("keep", matrix) if matrix.dtype == np.bool_ else ("mask", matrix == 0)
    facts: list[Fact] = []
    if kind == "mask":
        others = matrix[~keep]
        if not others.size or not np.all(others <= MASKED):
            return []
        if np.all(others == others[0]):
            facts.append(("mask-value", (float(others[0]),)))
    rows, keys = keep.shape
    query, key = np.arange(rows)[:, None], np.arange(keys)[None, :]
    seen = np.flatnonzero(keep[0])
    if not seen.size or keep.all():
        return []
    offset = int(seen[-1])
    if np.array_equal(keep, key <= query + offset):
        return [(f"causal-{kind}", (offset,)), *facts]
    last = np.flatnonzero(keep[-1])
    if last.size and last[0] > 0:
        window = rows + offset - int(last[0])
        if np.array_equal(keep, (key <= query + offset) & (key > query + offset - window)):
            return [(f"window-{kind}", (offset, window)), *facts]
    return []


def ramp_facts(array: np.ndarray) -> list[Fact]:
    """`start + index` along one axis, counted from the end, the same along all others."""
    for axis, length in enumerate(array.shape):
        line = array[tuple(slice(None) if a == axis else 0 for a in range(array.ndim))]
        # Infinity and large floats are their own successors.
        if length < 2 or not abs(float(line[0])) < 2**31 or line[1] != line[0] + 1 or line[0] != int(line[0]):
            continue
        expected = (line[0] + np.arange(length)).reshape([-1 if a == axis else 1 for a in range(array.ndim)])
        if np.array_equal(array, np.broadcast_to(expected, array.shape)):
            return [("ramp", (axis - array.ndim, int(line[0])))]
    return []


def repeat_facts(array: np.ndarray) -> list[Fact]:
    """0,0,..,1,1,..: each index repeated equally often."""
    times = int(np.count_nonzero(array == 0))
    if times > 1 and array.size % times == 0 and np.array_equal(array, np.arange(array.size) // times):
        return [("repeat-indices", (times,))]
    return []


def halves_equal(array: np.ndarray) -> bool:
    """Whether the two halves of the last axis agree, as in tables for the rotation of whole heads."""
    width = array.shape[-1] if array.ndim else 0
    return width > 0 and width % 2 == 0 and np.array_equal(array[..., : width // 2], array[..., width // 2 :])
