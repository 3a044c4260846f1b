"""The parts of commands that can be looked at alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from meganeura.cli.arrays import load_arrays, save_arrays
from meganeura.cli.invent import index_bounds, invent_inputs
from meganeura.cli.measure import side_by_side
from meganeura.cli.opt import PHASES
from meganeura.cli.output import Output
from meganeura.compiler import PHASES as REAL_PHASES
from meganeura.errors import InputError
from meganeura.frontends import load
from meganeura.frontends.gguf.model import DecoderFile
from meganeura.ir.graph import Graph
from meganeura.ir.types import DType, TensorType
from meganeura.reference.compare import difference
from tests.cli.models import VOCABULARY


def test_invented_ids_are_below_the_vocabulary_and_masks_are_zero_and_one(encoder: Path) -> None:
    graph = load(encoder).graph({"batch": 6, "length": 40})
    assert index_bounds(graph) == {"ids": VOCABULARY}
    values = invent_inputs(graph)
    assert values["ids"].min() >= 0 and values["ids"].max() < VOCABULARY
    assert len(np.unique(values["ids"])) > VOCABULARY // 2
    assert set(np.unique(values["mask"])) == {0, 1}
    assert (values["mask"][:, 0] == 1).all()
    again = invent_inputs(graph)
    assert all(np.array_equal(values[name], again[name]) for name in values)
    assert not np.array_equal(values["ids"], invent_inputs(graph, seed=1)["ids"])


def test_invented_positions_fit_the_caches(decoder: Path) -> None:
    file = DecoderFile(decoder, context=16)
    graph = file.step.graph({})
    assert index_bounds(graph)["position"] == 16
    values = invent_inputs(graph, file.step.input_limits)
    assert 0 <= values["position"][0] < 16
    states = list(graph.states)
    assert states and all(np.abs(values[name]).max() > 0 for name in states)


def test_invented_values_of_plain_inputs() -> None:
    g = Graph()
    x = g.input("x", (64, 3))
    mask = g.input("attention_mask", (4, 9))
    g.output("y", x * 2.0)
    g.output("z", mask + 1.0)
    values = invent_inputs(g)
    assert values["x"].dtype == np.float32 and values["x"].std() > 0.5
    assert set(np.unique(values["attention_mask"])) <= {0.0, 1.0}


@pytest.mark.parametrize(
    ("have", "expected", "agrees"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.0001], [1.0, 2.0], True),
        ([1.0, 2.01], [1.0, 2.0], False),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, np.inf], [1.0, -np.inf], False),
        ([np.nan, np.nan], [np.nan, np.inf], False),
        ([1e-9, 0.0], [0.0, 0.0], False),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([], [], True),
    ],
)
def test_differences(have: list[float], expected: list[float], agrees: bool) -> None:
    apart = difference(np.array(have, np.float32), np.array(expected, np.float32))
    assert apart.within(1e-4) is agrees


def test_integers_must_be_equal_and_shapes_too() -> None:
    assert not difference(np.array([100000]), np.array([100001])).within(1e-4)
    assert difference(np.array([7]), np.array([7])).within(0)
    assert not difference(np.zeros((2, 1)), np.zeros((1, 2))).within(1)


def test_saved_arrays_keep_apart_and_load_again(tmp_path: Path) -> None:
    arrays = {"a/b": np.ones(2), "a:b": np.zeros(3), "..": np.ones(1)}
    files = save_arrays(tmp_path / "new" / "folder", arrays)
    assert len({path.name for path in files.values()}) == 3
    assert all(path.parent == tmp_path / "new" / "folder" for path in files.values())
    types = {name: TensorType(DType.F32, array.shape) for name, array in arrays.items()}
    loaded = load_arrays(files, types)
    assert all(np.array_equal(loaded[name], arrays[name]) for name in arrays)


def test_an_archive_gives_the_array_of_the_inputs_name(tmp_path: Path) -> None:
    types = {name: TensorType(DType.F32, (2,)) for name in ("x", "y")}
    archive = tmp_path / "x.npz"
    np.savez(archive, x=np.ones(2), other=np.zeros(3))
    assert np.array_equal(load_arrays({"x": archive}, types)["x"], np.ones(2))
    with pytest.raises(InputError, match=r"'y'.*x, other"):
        load_arrays({"y": archive}, types)


def test_objects_are_no_inputs(tmp_path: Path) -> None:
    types = {"x": TensorType(DType.F32, (2,))}
    objects, archive = tmp_path / "o.npy", tmp_path / "o.npz"
    np.save(objects, np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="of numbers"):
        load_arrays({"x": objects}, types)
    np.savez(archive, x=np.array([{}], object))
    with pytest.raises(InputError, match="no numbers"):
        load_arrays({"x": archive}, types)


def test_calls_take_turns() -> None:
    order: list[str] = []
    times = side_by_side([lambda: order.append("a"), lambda: order.append("b")], repeats=2, warm=1)
    assert order == list("ababab") and len(times) == 2


def test_phases_are_the_compilers() -> None:
    assert PHASES == REAL_PHASES


def test_json_has_no_numbers_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).json({"a": float("nan"), "b": [np.float32(1.5), np.int64(2)], "c": {"z", "y"}, "d": Path("p")})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.5, 2], "c": ["y", "z"], "d": "p"}
