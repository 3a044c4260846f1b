"""Every term that the rules put in a class computes that class's value: the soundness test of the rule book.

Extraction shows only the chosen terms; here all of them are evaluated, on random graphs and on blocks of real
architectures.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meganeura.egraph import RuleBook, SearchReport, load_rules, optimize
from meganeura.egraph.explore import Exploration, explore
from meganeura.ir import Graph
from meganeura.ir.types import TensorType, TupleType
from meganeura.options import CompileOptions, SearchLimits
from meganeura.reference import evaluate, round_to, widen
from tests.egraph.models import decoder, encoder
from tests.egraph.support import CPU, assert_close, assert_same
from tests.property.graphs import Grower

LIMITS = CompileOptions(search=SearchLimits(max_nodes=20_000, max_seconds=10.0))
MAY_REPLACE_NAN = ("attention", "cached_attention")


@cache
def rules() -> RuleBook:
    return load_rules()


def compute(found: Exploration, here: int, term: Any, values: dict[int, Any]) -> Any:
    """A term's value over known operands, rounded like a node's."""
    kind = found.types[here]
    if term.op.name == "constant":
        return widen(found.graph.constants[term.op.key].load())
    result = term.op.evaluate([values[o] for o in term.operands], kind)
    if isinstance(kind, TupleType):
        return tuple(round_to(np.asarray(part), t.dtype) for part, t in zip(result, kind.items, strict=True))
    assert isinstance(kind, TensorType)
    return round_to(np.asarray(result), kind.dtype)


def class_values(found: Exploration, inputs: dict[str, np.ndarray]) -> dict[int, Any]:
    """A value per class: from the graph's nodes, or from the first term whose operands have one."""
    nodes = evaluate(found.graph, inputs, every=True)
    values = {}
    for node_id, value in nodes.items():
        values.setdefault(found.snapshot.class_of[node_id], value)
    waiting = [here for here in found.snapshot.classes if here not in values]
    while waiting:
        rest = []
        for here in waiting:
            ready = [t for t in found.snapshot.classes[here] if all(o in values for o in t.operands)]
            if ready:
                values[here] = compute(found, here, ready[0], values)
            else:
                rest.append(here)
        assert len(rest) < len(waiting), "classes that nothing grounds"
        waiting = rest
    return values


def check_every_term(graph: Graph, inputs: dict[str, np.ndarray], options: CompileOptions = LIMITS) -> int:
    """Compare all terms of all classes; returns how many there were."""
    found = explore(graph, options, SearchReport(), rules())
    values = class_values(found, inputs)
    count = 0
    for here, terms in found.snapshot.classes.items():
        for term in terms:
            if term.op.name in ("input", "state"):
                continue
            count += 1
            got, want = compute(found, here, term, values), values[here]
            pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
            for new, old in pairs:
                what = f"class {here}: {term.op} of {term.operands}"
                if term.op.name in MAY_REPLACE_NAN:
                    # Rows without keys: NaN in the primitives, zeros in attention.
                    old = np.where(np.isnan(old) & (new == 0), 0, old)
                assert_close(np.asarray(new), np.asarray(old), what, tolerance=1e-3)
    return count


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(2, 10))
def test_random_graphs_term_by_term(seed: int, steps: int) -> None:
    grower = Grower(seed)
    graph = grower.grow(steps)
    with np.errstate(all="ignore"):
        check_every_term(graph, grower.inputs())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(10_001, 20_000), st.integers(2, 12))
def test_random_graphs_as_extracted(seed: int, steps: int) -> None:
    grower = Grower(seed)
    graph = grower.grow(steps)
    result, _ = optimize(graph, CPU, LIMITS, rules=rules())
    assert_same(graph, result, grower.inputs())


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (3, 1)])
def test_decoder_prefill(heads: tuple[int, int]) -> None:
    graph = decoder(layers=1, rows=5, heads=heads[0], groups=heads[1], width=8)
    inputs = {"ids": np.arange(5) % 7}
    assert check_every_term(graph, inputs) > len(graph.nodes)


def test_encoder_with_padding() -> None:
    graph = encoder(layers=1, batch=2, rows=4)
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]])
    assert check_every_term(graph, {"ids": np.arange(8).reshape(2, 4) % 7, "mask": mask}) > len(graph.nodes)


def test_sources_stay_where_they_came_from() -> None:
    graph = decoder(layers=4, rows=4)
    result, report = optimize(graph, CPU, rules=rules())
    named = {source for node in graph.nodes for source in node.sources}
    for node in result.nodes:
        layers = sorted({int(s[5]) for s in node.sources if s.startswith("layer")})
        # A residual sum joins one layer's end and the next one's beginning.
        assert not layers or layers[-1] - layers[0] <= 1, (node.op, node.sources)
        assert named >= set(node.sources)
    attention = [node for node in result.nodes if node.op.name == "attention"]
    assert [node.sources for node in attention] == [(f"layer{i}.attention",) for i in range(4)]
    assert all("attention-additive-mask" in report.node_rules[node.id] for node in attention)


def test_search_time_and_size_grow_linearly_with_layers() -> None:
    few, many = (optimize(decoder(layers=n, rows=4), CPU, rules=rules())[1] for n in (2, 8))
    per_layer = (many.terms - few.terms) / 6
    assert many.terms < few.terms + 6 * per_layer + 1
    assert per_layer < 250
    for rule in ("softmax-from-pieces", "rms-norm-from-pieces"):
        assert many.rules[rule] > 3 * few.rules[rule] > 0
