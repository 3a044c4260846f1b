"""A sample of the standard's node tests, and MiniLM, compiled and run on the device."""

from __future__ import annotations

import numpy as np
import pytest

import meganeura as mg
from meganeura.assets import fetch
from meganeura.frontends import load
from meganeura.frontends.onnx.operators import HANDLERS
from tests.frontends.onnx_frontend.standard_cases import cases_by_operator, reason_for, run_case, standard_cases
from tests.frontends.onnx_frontend.test_onnx_minilm import tokens

# fmt: off
OPTIMIZED = [
    "Add", "Attention", "Cast", "Clip", "Concat", "Einsum", "Erf", "Expand", "Gather", "Gelu", "Gemm",
    "LayerNormalization", "LogSoftmax", "MatMul", "Max", "Mul", "Pad", "Pow", "RMSNormalization", "ReduceMean",
    "ReduceSum", "Relu", "RotaryEmbedding", "Slice", "Softmax", "Split", "Sqrt", "Transpose", "Trilu", "Where",
]
# fmt: on
"""Operators whose sample also goes through the rewrites."""


FLOAT16_ROUNDING = {"test_attention_4d_fp16", "test_attention_4d_causal_fp16"}
"""Tests that miss by one unit in the last place where every primitive rounds to float16."""


def compiled_on(device, optimize):
    """A runner that compiles a model for the device."""

    def run(model, inputs, dims):
        return mg.compile(model, device=device, optimize=optimize).compile_for(dims).run(inputs)

    return run


def run_sample(operator, device, optimize):
    """The first of an operator's node tests that has no reason to fail."""
    for name in cases_by_operator()[operator]:
        try:
            run_case(standard_cases()[name], compiled_on(device, optimize))
            return
        except Exception as error:
            reason_for(name, error)  # raises where there is none
    raise AssertionError(f"no test of {operator} can be run")


@pytest.mark.parametrize("operator", sorted(HANDLERS))
def test_node_test(operator, device):
    run_sample(operator, device, optimize=False)


@pytest.mark.parametrize("operator", OPTIMIZED)
def test_node_test_optimized(operator, device):
    run_sample(operator, device, optimize=True)


@pytest.mark.slow
@pytest.mark.parametrize("operator", [*sorted(HANDLERS), ""])
def test_every_node_test(operator, device):
    for name in cases_by_operator()[operator]:
        try:
            run_case(standard_cases()[name], compiled_on(device, False))
        except Exception as error:
            if name not in FLOAT16_ROUNDING:
                reason_for(name, error)


@pytest.fixture(scope="module")
def minilm(device):
    path = fetch("minilm")
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return mg.compile(load(path), device=device), session


@pytest.mark.model
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("length", [5, 64, 128])
def test_minilm_equals_onnxruntime(minilm, batch, length):
    compiled, session = minilm
    inputs = tokens(batch, length)
    results = compiled(**inputs)
    for name, wanted in zip(compiled.outputs, session.run(list(compiled.outputs), inputs), strict=True):
        np.testing.assert_allclose(results[name], wanted, atol=1e-4, rtol=0)
    program = compiled.compile_for({"batch_size": batch, "sequence_length": length})
    assert [node.op.name for node in program.graph.nodes].count("attention") == 3
