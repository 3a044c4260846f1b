"""The textual form: round trips, comments, and clear refusals."""

from __future__ import annotations

import numpy as np
import pytest

import meganeura as mg
from meganeura.errors import ImportFailure
from meganeura.ir.graph import Graph
from meganeura.ir.validate import validate


def sample() -> Graph:
    """A graph with every kind of attribute, leaf and result."""
    g = mg.Graph('a "quoted"\nname')
    x = g.input("x", ("batch", 4))
    position = g.input("position", (1,), "u32")
    cache = g.state("cache", (8, 4))
    weight = g.constant(np.array([[1.5, -0.0], [np.inf, np.nan], [3.4e38, 1e-45], [0, 1]], np.float32), source="w")
    flags = g.constant(np.array([True, False]))
    updated = g.apply("state_update", cache, g.constant(np.ones((1, 4), np.float32)), position, axis=0)
    y = mg.softmax(x @ weight, axis=-1)
    y = mg.where(flags, y, -np.inf)
    total, normal = (
        g.apply("proj", g.apply("residual_rms_norm", y, y, g.constant(np.array([2, 3], np.float32))), index=i)
        for i in (0, 1)
    )
    g.output("y", total + normal.astype("f16").astype("f32"))
    g.output("seen", mg.sum(updated, axis=0))
    g.update("cache", updated)
    return g


def test_round_trip_keeps_everything() -> None:
    graph = validate(sample())
    text = mg.format_graph(graph)
    again = mg.parse_graph(text)
    assert mg.format_graph(again) == text
    assert again.name == graph.name
    assert list(again.inputs) == ["x", "position"]
    assert list(again.states) == ["cache"]
    assert again.nodes[again.outputs["y"]].type == graph.nodes[graph.outputs["y"]].type
    assert [n.sources for n in again.nodes] == [n.sources for n in graph.nodes]
    bits = [
        next(c for c in g.constants.values() if c.type.shape == (4, 2)).load().view(np.uint32) for g in (graph, again)
    ]
    assert np.array_equal(bits[0], bits[1])


def test_large_constants_are_named_only() -> None:
    g = mg.Graph()
    data = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
    g.output("y", g.constant(data) * 2.0)
    text = mg.format_graph(g)
    assert len(text) < 1000
    with pytest.raises(ImportFailure, match="no data for constant"):
        mg.parse_graph(text)
    again = mg.parse_graph(text, constants=g.constants)
    assert np.array_equal(mg.reference(again)()["y"], data * 2)


def test_comments_and_space_are_free() -> None:
    g = mg.parse_graph('graph "g" { # a comment\n%7=input(name_of_leaf="x",dtype=f32,shape=[2]):f32[2] output "y"=%7 }')
    assert list(g.outputs) == ["y"]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("", "expected graph"),
        ('graph "g" {', "expected"),
        ('graph "g" { %0 = nothing() : f32[] }', "line 1: no such op: 'nothing'"),
        ('graph "g" {\n %1 = neg(%0) : f32[]\n}', "line 2: %0 is not defined"),
        ('graph "g" { %0 = full(value=1.0, dtype=f32, shape=[2]) : f32[3] }', "typed f32"),
        ('graph "g" { %0 = full(value=1.0) : f32[] }', "full"),
        ('graph "g" { %0 = full(value=1.0, dtype=f32, shape=[], size=3) : f32[] }', "no attribute 'size'"),
        ('graph "g" { constant "k" : f32[2] = [1.0] }', "1 values"),
        ('graph "g" { $ }', "unreadable"),
    ],
)
def test_mistakes_are_named(broken: str, message: str) -> None:
    with pytest.raises(mg.MeganeuraError) as caught:
        mg.parse_graph(broken)
    assert message in str(caught.value)
