"""What a composite op decomposes into is found again as that op."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from meganeura.ir import OPS, Graph
from meganeura.ir.op import Kind
from meganeura.ops.rotary import rotary_tables
from tests.rules.support import assert_agree, ops_of, random_inputs, search

X, ROW = (3, 8), (8,)
Q, K, V, SCORES = (4, 5, 8), (2, 6, 8), (2, 6, 8), (5, 6)
ONE, STEP = (4, 1, 8), (1, 6)
Operand = Any
"""A shape, or a shape and a dtype, or an array (a constant)."""
COS, SIN = rotary_tables(16, 8)
INFINITE = np.where(np.random.default_rng(0).random(SCORES) < 0.3, -np.inf, 0.5)


def attention(*extras: Operand, **options: Any) -> tuple[str, tuple[Operand, ...], dict[str, Any]]:
    """A row of the table below."""
    return "attention", (Q, K, V, *extras), {"scale": 0.3, **options}


def cached(*extras: Operand, **options: Any) -> tuple[str, tuple[Operand, ...], dict[str, Any]]:
    """A row of the table below."""
    return "cached_attention", (ONE, K, V, ((1,), "u32"), *extras), {"scale": 0.3, **options}


TABLE = [
    *((name, (X,), {}) for name in ("relu", "silu", "gelu", "gelu_tanh")),
    ("swiglu", (X, X), {}),
    ("softmax", (X,), {"axis": 0}),
    ("log_softmax", (X,), {"axis": 1}),
    ("layer_norm", (X, ROW, ROW), {"eps": 1e-6}),
    ("rms_norm", (X, ROW), {"eps": 1e-6}),
    ("embedding", (X, ((2, 2), "i32")), {}),
    ("cache_write", ((4, 6, 8), (4, 1, 8), ((1,), "u32")), {"axis": 1}),
    *(("rope", ((2, 5, width), COS[:5], SIN[:5]), {"interleaved": i}) for i in (False, True) for width in (8, 11)),
    *(("rope_dynamic", ((2, 3, 8), COS, SIN, ((1,), "u32")), {"interleaved": i}) for i in (False, True)),
    ("rope_dynamic", ((2, 3, 1, 8), COS, SIN, ((2,), "u32")), {}),
    attention(),
    attention(causal=True),
    attention(causal=True, offset=1),
    attention(causal=True, window=2),
    attention(softcap=3.0),
    attention(SCORES, bias=True),
    attention(SCORES, bias=True, causal=True),
    attention(SCORES, mask="add"),
    attention(SCORES, mask="add", causal=True),
    attention((SCORES, "bool"), mask="fill", fill=-1e4),
    attention((SCORES, "bool"), mask="fill", fill=-math.inf),
    attention((SCORES, "bool"), mask="fill", fill=-1e4, causal=True),
    attention((SCORES, "bool"), mask="fill", fill=-math.inf, causal=True),
    attention(SCORES, (SCORES, "bool"), bias=True, mask="fill", fill=-math.inf),
    cached(),
    cached(window=2),
    cached(softcap=3.0),
    cached(STEP, bias=True),
    cached(STEP, mask="add"),
    cached((STEP, "bool"), mask="fill", fill=-1e4),
    cached((STEP, "bool"), mask="fill", fill=-math.inf),
    ("cached_attention", ((3, 4, 1, 8), (3, 2, 6, 8), (3, 2, 6, 8), ((3,), "u32")), {"scale": 0.3}),
]


def build_graph(name: str, operands: tuple[Operand, ...], options: dict[str, Any]) -> Graph:
    """One node over inputs and constants."""
    g = Graph(name)
    tensors = []
    for number, operand in enumerate(operands):
        if isinstance(operand, np.ndarray):
            tensors.append(g.constant(operand))
        elif isinstance(operand[0], tuple):
            tensors.append(g.input(f"x{number}", *operand))
        else:
            tensors.append(g.input(f"x{number}", operand))
    g.output("y", g.apply(name, *tensors, **options))
    return g


def test_the_table_has_every_composite() -> None:
    assert {name for name, *_ in TABLE} == {name for name, op in OPS.items() if op.kind is Kind.COMPOSITE}


@pytest.mark.parametrize(("name", "operands", "options"), TABLE)
def test_the_composite_is_found_again(name: str, operands: tuple[Operand, ...], options: dict[str, Any]) -> None:
    graph = build_graph(name, operands, options)
    primitive = graph.decompose()
    assert name not in ops_of(primitive)
    result, report = search(primitive)
    assert ops_of(result)[name] == 1, (dict(ops_of(result)), report.rules)
    assert not {"exp", "where", "reduce_max", "reduce_sum", "concat"} & (set(ops_of(result)) - {"where"})
    inputs = random_inputs(graph)
    inputs |= {key: np.maximum(value, 1) for key, value in inputs.items() if value.dtype == np.uint32}
    if options.get("mask") == "add":
        key = list(inputs)[-1]
        inputs[key] = np.broadcast_to(INFINITE, inputs[key].shape[:-2] + SCORES)[: inputs[key].shape[0]].astype(
            np.float32
        )
    assert_agree(primitive, result, inputs)
    assert_agree(graph, result, inputs)
