"""The standard's own tests of every operator the front end claims."""

from __future__ import annotations

import onnx
import pytest

from meganeura.frontends.onnx.operators import HANDLERS
from meganeura.reference import evaluate
from tests.frontends.onnx_frontend.standard_cases import claimed_cases, reason_for, run_case
from tests.frontends.onnx_frontend.support import DOCUMENT, MARK, outcomes, tables


@pytest.mark.parametrize("operator", [*sorted(HANDLERS), ""])
def test_node_tests_pass_or_have_a_reason(operator):
    results = outcomes(operator)  # raises where a test fails without one
    assert "" in results.values(), "no test of this operator passes"


def test_the_document_is_exact():
    text = DOCUMENT.read_text(encoding="utf-8")
    if f"onnx {onnx.__version__} " not in text:
        pytest.skip(f"docs/onnx.md is about another version of the standard than the installed {onnx.__version__}")
    assert text[text.index(MARK) :] == tables(), "run python -m tests.frontends.onnx_frontend.support"


@pytest.mark.parametrize("kind", ["simple", "pytorch-operator", "pytorch-converted"])
def test_converted_graphs(kind):
    passed = 0
    for name, case in claimed_cases(kind).items():
        try:
            run_case(case, lambda model, inputs, dims: evaluate(model.graph(dims), inputs))
            passed += 1
        except Exception as error:
            assert reason_for(name, error) == "float64 values beyond float32's range"
    assert passed >= {"simple": 7, "pytorch-operator": 28, "pytorch-converted": 39}[kind]
