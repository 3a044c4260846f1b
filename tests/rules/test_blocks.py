"""Whole decoder and encoder blocks, written in primitives by the front ends: the rules find what they are made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from meganeura.assets import fetch
from meganeura.egraph import SearchReport
from meganeura.frontends import load
from meganeura.frontends.gguf.config import DecoderConfig
from meganeura.frontends.gguf.llama import DecoderGraphs, Weights
from meganeura.ir import DType, Graph
from meganeura.ir.constants import ConstantData, constant_from_array
from meganeura.ops.rotary import rotary_tables
from tests.rules.support import assert_agree, ops_of, random_inputs, search

CONFIG = DecoderConfig(
    architecture="llama", name="tiny", layers=3, width=24, heads=6, kv_heads=2, head_width=8, value_width=8,
    feed_forward=40, vocabulary=50, context=32, rms_eps=1e-5, rotary=8, theta=100.0, interleaved=True,
)  # fmt: skip
CHANGES = {
    "llama": {},
    "halves": {"interleaved": False},
    "partial-rotary": {"rotary": 4},
    "ungrouped": {"kv_heads": 6},
    "biased": {},
}


def decoder(kind: str, layers: int = 3, cache: DType = DType.F32) -> DecoderGraphs:
    """A decoder with random weights; "biased" has biases on its Q, K and V projections."""
    config = replace(CONFIG, layers=layers, **CHANGES[kind])
    rng = np.random.default_rng(0)
    q, k = config.heads * config.head_width, config.kv_heads * config.head_width
    shapes = {"token_embd": (config.vocabulary, config.width), "output_norm": (config.width,)}
    for block in (f"blk.{i}." for i in range(layers)):
        for name, rows, columns in (
            ("attn_q", q, config.width), ("attn_k", k, config.width), ("attn_v", k, config.width),
            ("attn_output", config.width, q), ("ffn_down", config.width, config.feed_forward),
            ("ffn_gate", config.feed_forward, config.width), ("ffn_up", config.feed_forward, config.width),
        ):  # fmt: skip
            shapes[block + name] = (rows, columns)
        shapes |= {f"{block}attn_norm": (config.width,), f"{block}ffn_norm": (config.width,)}
    weights: dict[str, ConstantData] = {}
    for name, shape in shapes.items():
        array = rng.standard_normal(shape) / np.sqrt(shape[-1])
        weights[f"{name}.weight"] = constant_from_array(array.astype(np.float32))
        if kind == "biased" and name[-7:] in (".attn_q", ".attn_k", ".attn_v"):
            weights[f"{name}.bias"] = constant_from_array(rng.standard_normal(shape[:1]).astype(np.float32))
    cos, sin = (constant_from_array(t) for t in rotary_tables(config.context, config.rotary, config.theta))
    return DecoderGraphs(config, Weights(weights.get, cos, sin), config.context, cache)


def optimised(graph: Graph) -> tuple[Counter[str], SearchReport]:
    """Ops after the search, which must have run to its end and kept the values."""
    result, report = search(graph)
    assert report.stopped_by == "saturated"
    inputs = random_inputs(graph, {"position": [5], "last": [3]})
    assert_agree(graph, result, inputs)
    return ops_of(result), report


@pytest.mark.parametrize("kind", CHANGES)
def test_prefill(kind: str) -> None:
    ops, _ = optimised(decoder(kind).prefill(7))
    assert ops["attention"] == 3 and ops["rms_norm"] + ops["residual_rms_norm"] == 7
    assert ops["rope"] == 6 and ops["cache_write"] == 6 and ops["embedding"] >= 1
    assert ops["gated_matmul"] + ops["swiglu"] == 3
    assert not {"softmax", "exp", "where", "rsqrt", "sigmoid", "reduce_max", "expand", "state_update"} & set(ops), ops


@pytest.mark.parametrize("kind", CHANGES)
def test_step(kind: str) -> None:
    ops, report = optimised(decoder(kind).step())
    assert ops["cached_attention"] == 3 and ops["rms_norm"] + ops["residual_rms_norm"] == 7
    assert ops["rope"] + ops["rope_dynamic"] == 6 and report.rules["rope-at-position"] >= 6
    assert ops["cache_write"] == 6 and ops["gated_matmul"] + ops["swiglu"] == 3
    assert not {"softmax", "exp", "where", "rsqrt", "sigmoid", "less_equal", "expand", "state_update"} & set(ops), ops


def test_projections_are_packed() -> None:
    ops, report = optimised(decoder("llama").prefill(7))
    assert report.rules["pack-three"] == 3 and ops["slice"] == 9  # three outputs in each of three layers
    ops, report = optimised(decoder("biased").prefill(7))
    assert report.rules["pack-three-biased"] == 3 and ops["slice"] == 9


def test_half_precision_caches_are_read_as_they_are() -> None:
    graph = decoder("llama", cache=DType.F16).step()
    result, _ = search(graph)
    for node in result.nodes:
        if node.op.name == "cached_attention":
            assert result.nodes[node.inputs[1]].tensor_type.dtype is DType.F16


def test_the_search_grows_linearly_with_layers() -> None:
    terms = [search(decoder("llama", layers).step())[1].terms for layers in (2, 4, 6)]
    assert terms[2] - terms[1] == terms[1] - terms[0]


def test_the_order_of_search_does_not_matter() -> None:
    graph = decoder("llama", 1).step()
    first, second = (search(graph)[0] for _ in range(2))
    assert [repr(n) for n in first.nodes] == [repr(n) for n in second.nodes]


@pytest.mark.model
def test_minilm_has_three_attention_blocks() -> None:
    graph = load(fetch("minilm")).graph({"batch_size": 2, "sequence_length": 5})
    result, _ = search(graph)
    ops = ops_of(result)
    assert ops["attention"] == 3 and ops["layer_norm"] == 7 and not {"softmax", "erf", "gelu"} & set(ops)
    assert Counter(n.op.activation for n in result.nodes if n.op.name == "fused_matmul")["gelu"] == 3  # type: ignore[attr-defined]
    assert ops["slice"] == 9, "Q, K and V of each block are one product"
    ids = np.random.default_rng(0).integers(1, 30000, (2, 5))
    inputs = random_inputs(graph, {"input_ids": ids, "attention_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])})
    assert_agree(graph, result, inputs)
