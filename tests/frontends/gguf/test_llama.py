"""The decoder graphs against a plain NumPy decoder, and against each other row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meganeura.errors import ImportFailure, InputError
from meganeura.frontends.gguf.model import DecoderFile
from meganeura.ir.graph import Graph
from meganeura.ir.model import Model
from meganeura.ir.op import Kind
from meganeura.ir.types import DType
from meganeura.ir.validate import validate
from meganeura.reference import evaluate
from tests.frontends.gguf import tiny
from tests.frontends.gguf.tiny import write_tiny
from tests.frontends.gguf.writer import write_gguf

IDS = [5, 77, 130, 9, 201, 44, 8]

VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, quantised": {"encoding": "Q4_0"},
    "llama, own head, biases": {"own_head": True, "biases": True},
    "llama, one key/value head": {"kv_heads": 1, "metadata": {"llama.attention.head_count_kv": 1}},
    "llama, no grouping": {"kv_heads": 4, "metadata": {"llama.attention.head_count_kv": 4}},
    "llama, half rotated": {"metadata": {"llama.rope.dimension_count": 4}},
    "llama, wide heads": {
        "head": 12,
        "metadata": {"llama.attention.key_length": 12, "llama.attention.value_length": 12},
    },
    "llama, stretched": {"metadata": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}},
    "qwen2": {"architecture": "qwen2", "biases": True},
    "qwen3": {"architecture": "qwen3", "head_norms": True},
    "qwen3, half rotated": {
        "architecture": "qwen3",
        "head_norms": True,
        "metadata": {"qwen3.rope.dimension_count": 4},
    },
}


@pytest.fixture
def decoder(tmp_path: Path, request: pytest.FixtureRequest) -> DecoderFile:
    return DecoderFile(write_tiny(tmp_path / "tiny.gguf", **VARIANTS[getattr(request, "param", "llama")]), context=16)


def plain_logits(decoder: DecoderFile, ids: list[int]) -> np.ndarray:
    """Logits after every id, float64 `[n, vocabulary]`: written from the model's definition, rotating complex pairs."""
    c, file = decoder.config, decoder.file

    def get(name: str) -> np.ndarray:
        return file.array(name).astype(np.float64)

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        bias = get(f"{name}.bias") if f"{name}.bias" in file.tensors else 0.0
        return x @ get(f"{name}.weight").T + bias

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + c.rms_eps) * get(f"{name}.weight")

    def rotate(x: np.ndarray) -> np.ndarray:  # [n, heads, d]
        half = c.rotary // 2
        angles = np.arange(len(ids))[:, None, None] * c.theta ** (-np.arange(half) / half) * c.position_scale
        real, imaginary = (slice(0, c.rotary, 2), slice(1, c.rotary, 2)) if c.interleaved else (
            slice(0, half), slice(half, c.rotary)
        )  # fmt: skip
        turned = (x[..., real] + 1j * x[..., imaginary]) * np.exp(1j * angles)
        out = x.copy()
        out[..., real], out[..., imaginary] = turned.real, turned.imag
        return out

    n = len(ids)
    x = get("token_embd.weight")[ids]
    for i in range(c.layers):
        name = f"blk.{i}"
        y = norm(x, f"{name}.attn_norm")
        q = linear(y, f"{name}.attn_q").reshape(n, c.heads, c.head_width)
        k = linear(y, f"{name}.attn_k").reshape(n, c.kv_heads, c.head_width)
        v = linear(y, f"{name}.attn_v").reshape(n, c.kv_heads, c.value_width)
        if f"{name}.attn_q_norm.weight" in file.tensors:
            q, k = norm(q, f"{name}.attn_q_norm"), norm(k, f"{name}.attn_k_norm")
        q, k = rotate(q), rotate(k)
        mixed = np.zeros((n, c.heads, c.value_width))
        for head in range(c.heads):
            group = head // (c.heads // c.kv_heads)
            for row in range(n):
                scores = k[: row + 1, group] @ q[row, head] / c.head_width**0.5
                weights = np.exp(scores - scores.max())
                mixed[row, head] = weights / weights.sum() @ v[: row + 1, group]
        x = x + linear(mixed.reshape(n, -1), f"{name}.attn_output")
        y = norm(x, f"{name}.ffn_norm")
        gate = linear(y, f"{name}.ffn_gate")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(y, f"{name}.ffn_up"), f"{name}.ffn_down")
    x = norm(x, "output_norm")
    return linear(x, "output") if "output.weight" in file.tensors else x @ get("token_embd.weight").T


def prefill(decoder: DecoderFile, ids: list[int], rows: int) -> dict[str, np.ndarray]:
    padded = np.array(ids + [3] * (rows - len(ids)), np.int32)
    inputs = {"ids": padded, "last": np.array([len(ids) - 1], np.uint32)}
    return evaluate(decoder.prefill.graph({"n": rows}), inputs)


def steps(decoder: DecoderFile, ids: list[int], position: int = 0, states: dict | None = None) -> tuple[list, dict]:
    """Logits after each id, fed one by one, and the caches afterwards."""
    states, rows = dict(states or {}), []
    for offset, token in enumerate(ids):
        inputs = {"id": np.array([token], np.int32), "position": np.array([position + offset], np.uint32)}
        results = evaluate(decoder.step.graph({}), {**inputs, **states})
        rows.append(results.pop("logits")[0])
        states = {name.removeprefix("state:"): value for name, value in results.items()}
    return rows, states


def assert_near(got: np.ndarray, want: np.ndarray, tolerance: float = 2e-5) -> None:
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


@pytest.mark.parametrize("decoder", VARIANTS, indirect=True)
def test_both_programs_compute_the_decoder(decoder: DecoderFile) -> None:
    want = plain_logits(decoder, IDS)
    assert_near(prefill(decoder, IDS, len(IDS))["logits"][0], want[-1])
    rows, _ = steps(decoder, IDS)
    assert_near(np.array(rows), want)


def test_row_by_row_equals_the_causal_prefill(decoder: DecoderFile) -> None:
    rows, states = steps(decoder, IDS)
    for count in range(1, len(IDS) + 1):
        results = prefill(decoder, IDS[:count], 8)
        assert_near(results["logits"][0], rows[count - 1])
    for name, value in states.items():
        assert_near(results[f"state:{name}"][: len(IDS)], value[: len(IDS)])


def test_padding_and_what_old_caches_hold_change_nothing(decoder: DecoderFile) -> None:
    short, long = prefill(decoder, IDS, len(IDS)), prefill(decoder, IDS, 16)
    assert_near(long["logits"], short["logits"])
    # The padded prefill has left other rows behind IDS; steps overwrite them before they are seen.
    clean, _ = steps(decoder, [7, 8], len(IDS), {n.removeprefix("state:"): v for n, v in short.items() if ":" in n})
    dirty, _ = steps(decoder, [7, 8], len(IDS), {n.removeprefix("state:"): v for n, v in long.items() if ":" in n})
    assert_near(np.array(dirty), np.array(clean))


def test_float16_caches_stay_close(tmp_path: Path) -> None:
    decoder = DecoderFile(write_tiny(tmp_path / "t.gguf"), context=16, cache="f16")
    graph = validate(decoder.step.graph({}))
    assert {node.tensor_type.dtype for node in graph.states.values()} == {DType.F16}
    assert {node.tensor_type.dtype for node in decoder.prefill.graph({"n": 4}).states.values()} == {DType.F16}
    rows, _ = steps(decoder, IDS)
    assert_near(np.array(rows), plain_logits(decoder, IDS), 1e-2)


def test_rope_factors_divide_the_frequencies(tmp_path: Path) -> None:
    words = tiny.tokenizer_metadata()
    tensors = tiny.decoder_tensors(len(words["tokenizer.ggml.tokens"]))
    factors = np.array([1.0, 2.0, 4.0, 8.0], np.float32)
    tensors["rope_freqs.weight"] = (factors, "F32")
    path = write_gguf(tmp_path / "f.gguf", {**tiny.decoder_metadata(), **words}, tensors)
    decoder = DecoderFile(path, context=8)
    angles = np.arange(8)[:, None] * 10000.0 ** (-np.arange(4) / 4) / factors
    assert np.allclose(decoder.graphs.weights.cos.load(), np.cos(angles), atol=1e-7)


@pytest.mark.parametrize("build", [lambda d: d.prefill.graph({"n": 4}), lambda d: d.step.graph({})])
def test_the_graphs_are_primitives_with_sources(decoder: DecoderFile, build: Any) -> None:
    graph: Graph = validate(build(decoder))
    assert all(node.op.kind is Kind.PRIMITIVE for node in graph.nodes)
    assert all(node.sources for node in graph.nodes)
    sources = {source for node in graph.nodes for source in node.sources}
    assert {"blk.1.attn_q.weight", "blk.1.attention.scores", "blk.0.ffn.swiglu", "blk.1.rope_k"} <= sources
    assert list(graph.states) == [f"blk.{i}.cache_{s}" for i in range(2) for s in "kv"] == list(graph.updates)
    assert graph.outputs.keys() == {"logits"}


def test_the_programs_are_models(decoder: DecoderFile) -> None:
    assert isinstance(decoder.prefill, Model) and isinstance(decoder.step, Model)
    assert decoder.prefill.symbols == {"n"} and decoder.step.symbols == set()
    graph = decoder.prefill.graph({"n": 5})
    assert {n: node.type for n, node in graph.inputs.items()} == {
        n: t.bind({"n": 5}) for n, t in decoder.prefill.inputs.items()
    }
    assert decoder.prefill.input_limits["ids"] == decoder.config.vocabulary
    assert decoder.step.input_limits["position"] == 16
    for rows in (0, 17):
        with pytest.raises(InputError, match="does not fit a context of 16"):
            decoder.prefill.graph({"n": rows})


def test_constants_are_shared_and_no_weight_is_loaded_early(decoder: DecoderFile, monkeypatch: Any) -> None:
    monkeypatch.setattr(type(decoder.file), "array", None)
    prefill_graph, step_graph = decoder.prefill.graph({"n": 4}), decoder.step.graph({})
    assert set(prefill_graph.constants) == set(step_graph.constants)
    assert len([k for k in step_graph.constants if k.startswith("gguf:")]) == 2 + 9 * tiny.LAYERS


def test_the_context_is_bounded_by_the_model(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "t.gguf")
    assert DecoderFile(path).context == DecoderFile(path, context=4096).context == tiny.CONTEXT
    assert DecoderFile(path, context=7).context == 7
    for wrong in (0, -5):
        with pytest.raises(InputError, match="makes no sense"):
            DecoderFile(path, context=wrong)
    with pytest.raises(InputError, match="f32 or f16"):
        DecoderFile(path, cache="i32")


@pytest.mark.parametrize(
    ("metadata", "word"),
    [
        ({"general.architecture": "bert"}, "'bert' is not supported"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"llama.attention.sliding_window": 64}, "sliding-window"),
        ({"llama.logit_scale": 0.5}, "logit_scale"),
        ({"llama.rope.scaling.type": "yarn"}, "'yarn'"),
        ({"llama.attention.head_count_kv": 3}, "do not group"),
        ({"llama.attention.head_count_kv": np.array([2, 1], np.int32)}, "not one number"),
        ({"llama.attention.head_count": 0}, "not 1 or more"),
        ({"llama.block_count": "two"}, "not one number"),
        ({"llama.rope.dimension_count": 10}, "does not fit heads of 8"),
        ({"llama.rope.freq_base": -1.0}, "makes no sense"),
        ({"llama.embedding_length": 64}, "does not have 64 columns"),
        ({"llama.feed_forward_length": 32}, "blk.0.ffn_gate.weight"),
        ({"llama.block_count": 3}, "no tensor 'blk.2.attn_norm.weight'"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, metadata: dict, word: str) -> None:
    with pytest.raises(ImportFailure, match=word):
        DecoderFile(write_tiny(tmp_path / "t.gguf", metadata=metadata))


def test_a_uniform_array_serves_as_a_number(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "t.gguf", metadata={"llama.attention.head_count_kv": np.array([2, 2], np.int32)})
    assert DecoderFile(path).config.kv_heads == 2


def test_missing_metadata_is_named(tmp_path: Path) -> None:
    words = tiny.tokenizer_metadata()
    entries = {**tiny.decoder_metadata(block_count=None), **words}
    path = write_gguf(tmp_path / "f.gguf", entries, tiny.decoder_tensors(len(words["tokenizer.ggml.tokens"])))
    with pytest.raises(ImportFailure, match=r"llama\.block_count"):
        DecoderFile(path)
