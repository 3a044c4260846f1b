"""The parts of the search by themselves: delta debugging, cutting, shrinking, writing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meganeura.bisect import Case, Finding, write, write_cases
from meganeura.bisect.cut import constants_of, cut, feed, live_nodes, values_of, without_states
from meganeura.bisect.dims import smaller
from meganeura.bisect.minimal import Budget, minimal
from meganeura.bisect.shrink import shrink
from meganeura.frontends import load
from meganeura.ir.graph import Graph
from meganeura.ir.validate import validate
from meganeura.reference import evaluate
from tests.bisect.planted import small_case


@given(st.sets(st.integers(0, 40), max_size=5))
def test_the_smallest_failing_part_is_found(guilty: set[int]) -> None:
    found = minimal(range(41), lambda part: guilty <= set(part), Budget())
    assert found == tuple(sorted(guilty))


def test_a_search_out_of_time_gives_the_best_so_far() -> None:
    budget = Budget(tests=4)
    found = minimal(range(64), lambda part: 5 in part, budget)
    assert budget.spent and 5 in found and len(found) < 64


@given(st.data())
def test_any_part_of_a_graph_keeps_its_values(data: st.DataObject) -> None:
    case = small_case()
    nodes = live_nodes(case.graph)
    kept = data.draw(st.sets(st.sampled_from(nodes), min_size=1))
    values = values_of(case, nodes)
    part = cut(case, kept, values)
    validate(part.graph)
    assert set(part.values) == set(part.graph.inputs)
    for name, array in evaluate(part.graph, part.values).items():
        root = case.graph.outputs[name] if name in case.graph.outputs else int(name.removeprefix("value"))
        np.testing.assert_array_equal(array, values[root])


def test_constants_become_inputs() -> None:
    case = small_case()
    nodes = constants_of(case.graph)
    fed = feed(case, nodes, values_of(case, nodes))
    assert len(nodes) == 2 and not fed.graph.constants and len(fed.graph.inputs) == 3
    for name, array in evaluate(fed.graph, fed.values).items():
        np.testing.assert_array_equal(array, evaluate(case.graph, case.values)[name])


def test_states_become_inputs_and_their_updates_results() -> None:
    graph = Graph()
    memory = graph.state("memory", (4,))
    graph.update(memory, memory + graph.input("x", (4,)))
    plain = without_states(Case(graph, {"x": np.ones(4, np.float32)}))
    assert set(plain.graph.inputs) == {"memory", "x"} and not plain.graph.states
    assert evaluate(plain.graph, plain.values)["new_memory"].tolist() == [1, 1, 1, 1]


def test_merged_axes_shrink_together() -> None:
    graph = Graph()
    x = graph.input("x", (5, 12))
    heads = graph.apply("reshape", x, shape=(5, 3, 4))
    graph.output("y", graph.apply("transpose", heads, perm=(1, 0, 2)))
    case = Case(graph, {"x": np.zeros((5, 12), np.float32)})
    found = {c.graph.nodes[c.graph.outputs["y"]].tensor_type.dims for c in smaller(case)}
    assert (3, 1, 4) in found and (1, 5, 4) in found and (3, 5, 1) in found
    for candidate in smaller(case):
        validate(candidate.graph)
        assert candidate.values["x"].shape == candidate.graph.inputs["x"].tensor_type.dims


def test_indices_stay_within_a_shorter_table() -> None:
    graph = Graph()
    table, at = graph.input("table", (10, 3)), graph.input("at", (4,), "i32")
    graph.output("y", graph.apply("gather", table, at, axis=0))
    case = Case(graph, {"table": np.zeros((10, 3), np.float32), "at": np.array([1, 9, 0, 5], np.int32)})
    for candidate in smaller(case):
        assert candidate.values["at"].max() < candidate.values["table"].shape[0]


def test_shrinking_keeps_what_fails() -> None:
    def fails(case: Case) -> bool:
        return any(node.op.name == "softmax" and node.tensor_type.dims[-1] >= 5 for node in case.graph.nodes)

    small = shrink(small_case(), fails, Budget())
    assert fails(small) and len(small.graph.nodes) == 2
    assert [int(d) for d in small.graph.nodes[1].tensor_type.dims] in ([1, 1, 8], [1, 1, 5])


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("kernel", "optimised", "wrong", case=small_case())
    folder = tmp_path / "fault"

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(write.np, "savez", full)
        with pytest.raises(OSError, match="no space"):
            write_cases(folder, {"small": [finding]})
    assert list(tmp_path.iterdir()) == []
    ((_, place),) = write_cases(folder, {"small": [finding]})
    again = load(place / "graph.txt").graph({})
    want = evaluate(small_case().graph, small_case().values)
    archive = np.load(place / "inputs.npz")
    for name, array in evaluate(again, {n: archive[n] for n in archive.files}).items():
        np.testing.assert_array_equal(array, want[name])
