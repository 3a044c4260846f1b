"""A real sentence encoder as shipped: equal to onnxruntime, imported quickly, with no shape arithmetic left."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest

from meganeura.assets import fetch
from meganeura.frontends import load
from meganeura.ir.types import DType
from meganeura.ir.validate import validate
from meganeura.reference import evaluate

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def path():
    return fetch("minilm")


@pytest.fixture(scope="module")
def model(path):
    return load(path)


@pytest.fixture(scope="module")
def session(path):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def tokens(batch: int, length: int) -> dict[str, np.ndarray]:
    """Random ids, each row shorter than the one before and padded."""
    rng = np.random.default_rng(length)
    ids = rng.integers(1, 30522, (batch, length))
    kept = np.arange(length) < np.maximum(1, length - 2 * np.arange(batch)[:, None])
    return {"input_ids": np.where(kept, ids, 0), "attention_mask": kept.astype(np.int64)}


def test_interface(model):
    assert {name: repr(t) for name, t in model.inputs.items()} == dict.fromkeys(
        ("input_ids", "attention_mask"), "i32[batch_size, sequence_length]"
    )
    assert model.outputs == ("output", "463", "onnx::Shape_422", "461")


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("length", [5, 64, 128])
def test_equals_onnxruntime(model, session, batch, length):
    inputs = tokens(batch, length)
    graph = validate(model.graph({"batch_size": batch, "sequence_length": length}))
    results = evaluate(graph, inputs)
    for name, wanted in zip(model.outputs, session.run(list(model.outputs), inputs), strict=True):
        np.testing.assert_allclose(results[name], wanted, atol=1e-4, rtol=0)


def test_only_the_model_s_arithmetic_is_left(model):
    graph = model.graph({"batch_size": 2, "sequence_length": 16})
    counts = Counter(node.op.name for node in graph.nodes)
    assert counts["matmul"] == 24 and counts["softmax"] == 3 and counts["layer_norm"] == 7 and counts["erf"] == 3
    integers = {
        node.op.name for node in graph.nodes if node.tensor_type.dtype is DType.I32 or node.op.name in ("where", "iota")
    }
    # What is left in integers are the inputs themselves, moved, and known positions.
    assert integers <= {"input", "reshape", "expand", "constant", "full"}


def test_graphs_are_made_quickly_and_share_weights(model):
    first = model.graph({"batch_size": 1, "sequence_length": 7})
    start = time.perf_counter()
    second = model.graph({"batch_size": 3, "sequence_length": 128})
    assert time.perf_counter() - start < 0.5
    large = {key for key, data in first.constants.items() if data.nbytes > 4096}
    assert len(large) > 20 and large <= set(second.constants)
