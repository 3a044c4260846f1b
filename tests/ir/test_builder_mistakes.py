"""Mistakes in building and calling graphs are errors of ours, with words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meganeura as mg


def build(change: Any) -> Any:
    g = mg.Graph()
    return change(g, g.input("x", (2, 3)))


MISTAKES = {
    "a name for a shape": (lambda g, x: g.input("y", "batch"), "tuple of dimensions"),
    "a number for a shape": (lambda g, x: g.input("y", 3), "tuple of dimensions"),
    "half a dimension": (lambda g, x: g.input("y", (3.5,)), "not a dimension"),
    "axes beyond the rank": (lambda g, x: x.transpose(0, 5), "out of range"),
    "a list as index": (lambda g, x: x[[1, 0]], "can't be indexed"),
    "a tensor as index": (lambda g, x: x[x < 0.0], "can't be indexed"),
    "a step backwards": (lambda g, x: x[::-1], "mg.flip"),
    "half to an integer": (lambda g, x: x.astype("i32") + 0.5, "is no i32"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_building(name: str) -> None:
    change, words = MISTAKES[name]
    with pytest.raises(mg.GraphError, match=words):
        build(change)


def test_positions_past_the_end_are_refused_and_the_state_keeps_what_it_held(device: mg.Device) -> None:
    g = mg.Graph()
    x, position, k = g.input("x", (1, 8)), g.input("position", (1,), "u32"), g.state("k", (4, 8))
    new = g.apply("state_update", k, x, position, axis=0)
    g.update("k", new)
    g.output("y", mg.sum(new, axis=0))
    for optimize in (True, False):
        model = mg.compile(g, device=device, optimize=optimize)
        model(x=np.ones((1, 8), np.float32), position=np.array([3], np.uint32))
        for wrong in (4, 9, 2**32 - 1):
            with pytest.raises(mg.InputError, match=r"'position' holds \d+, which is no row of a state.*0 to 3"):
                model(x=np.ones((1, 8), np.float32), position=np.array([wrong], np.uint32))
        assert model.session.read_state("k").sum() == 8


def test_ids_beyond_the_table_are_refused(device: mg.Device) -> None:
    g = mg.Graph()
    ids = g.input("ids", ("n",), "i32")
    g.output("y", mg.embedding(g.constant(np.eye(4, dtype=np.float32)), ids))
    model = mg.compile(g, device=device)
    assert model(ids=np.array([0, -1]))["y"].argmax(1).tolist() == [0, 3]
    for wrong in (4, -5):
        with pytest.raises(mg.InputError, match=f"'ids' holds {wrong}"):
            model(ids=np.array([0, wrong]))


def test_sizes_are_checked_when_compiling(device: mg.Device) -> None:
    g = mg.Graph()
    g.output("y", mg.exp(g.input("x", ("n",))))
    with pytest.raises(mg.LimitError, match="bytes in one binding"):
        mg.compile(g, device=device).compile_for({"n": 2_000_000_000})


class OnlyDlpack:
    """An array that speaks nothing but DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_arrays_of_other_libraries(device: mg.Device) -> None:
    g = mg.Graph()
    g.output("y", g.input("x", ("n", 2)) * 2.0)
    model = mg.compile(g, device=device)
    data = np.arange(6, dtype=np.float32).reshape(3, 2)
    for given in (data, data.tolist(), data.astype(np.float64), OnlyDlpack(data)):
        np.testing.assert_array_equal(model(x=given)["y"], data * 2)
    with pytest.raises(mg.InputError, match="not an array"):
        model(x=[[1.0], [2.0, 3.0]])


def test_reversed_axes() -> None:
    g = mg.Graph()
    g.output("y", mg.flip(g.input("x", (2, 3)), axis=-1))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(mg.reference(g)(x=x)["y"], x[:, ::-1])
