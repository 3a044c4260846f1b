"""Layouts: views as strides, against NumPy's own strides."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meganeura.lower.schedule import Layout


def elements(layout: Layout) -> np.ndarray:
    """The buffer positions a layout denotes."""
    grid = np.indices(layout.shape).reshape(len(layout.shape), -1)
    return (layout.offset + np.array(layout.strides, int) @ grid).reshape(layout.shape)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_views_denote_the_elements_numpy_gives(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    layout, array = Layout.contiguous(shape), np.arange(math.prod(shape)).reshape(shape)
    for _ in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["reshape", "transpose", "slice", "expand"]))
        if kind == "transpose":
            perm = data.draw(st.permutations(range(array.ndim)))
            layout, array = layout.permuted(perm), array.transpose(perm)
        elif kind == "slice":
            starts = [data.draw(st.integers(0, n - 1)) for n in array.shape]
            steps = [data.draw(st.integers(1, 2)) for _ in array.shape]
            layout = layout.sliced(starts, array.shape, steps)
            array = array[tuple(map(slice, starts, array.shape, steps))]
        elif kind == "expand":
            target = (2, *(3 if n == 1 else n for n in array.shape))
            layout, array = layout.expanded(target), np.broadcast_to(array, target)
        else:
            count = array.size
            first = data.draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
            second = data.draw(st.sampled_from([d for d in range(1, count // first + 1) if count // first % d == 0]))
            target = (first, second, count // first // second)
            reshaped = layout.reshaped(target)
            array = array.reshape(target)
            if reshaped is None:
                return
            layout = reshaped
        assert layout.shape == array.shape
        assert np.array_equal(elements(layout), array)
        if array.size:
            assert layout.extent == array.max() + 1


def test_head_splitting_is_free() -> None:
    folded = Layout.contiguous((5, 12))
    heads = folded.reshaped((5, 3, 4))
    assert heads is not None
    assert heads.permuted((1, 0, 2)).permuted((1, 0, 2)).reshaped((5, 12)) == folded
    assert heads.permuted((1, 0, 2)).reshaped((3, 20)) is None


def test_empty_layouts() -> None:
    assert Layout.contiguous((0, 3)).extent == 0
    assert Layout.contiguous(()).extent == 1
    assert Layout.contiguous((0, 3)).reshaped((3, 0)) is not None
