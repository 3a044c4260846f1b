"""The ONNX standard's own tests, run through the front end."""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from meganeura.errors import ImportFailure
from meganeura.frontends.onnx import OnnxModel, load_onnx
from meganeura.frontends.onnx.elements import dtype_of
from meganeura.frontends.onnx.operators import HANDLERS
from meganeura.ir.constants import narrow
from meganeura.ir.types import DType

Runner = Callable[[OnnxModel, Mapping[str, np.ndarray], Mapping[str, int]], Mapping[str, np.ndarray]]
Arrays = list[np.ndarray]

ROUNDING = {
    "test_attention_4d_causal_fp16_expanded": "float16 rounding: two elements of 192 are one unit in the last place "
    "off, because the test's own steps are rounded in another order",
}
"""Tests whose numbers are missed, with the reason."""


@cache
def standard_cases(kind: str = "node") -> dict[str, Any]:
    """Every test of a kind in the installed standard by name: node, simple, pytorch-operator, pytorch-converted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {case.name: case for case in load_model_tests(kind=kind)}


def model_of(case: Any) -> ModelProto:
    """A test's model, wherever the standard keeps it."""
    return case.model or onnx.load(str(Path(case.model_dir) / "model.onnx"))


def data_of(case: Any) -> Iterator[tuple[Arrays, Arrays]]:
    """Inputs and expected outputs of each of a test's data sets."""
    if case.data_sets is not None:
        yield from (([*map(_array, inputs)], [*map(_array, outputs)]) for inputs, outputs in case.data_sets)
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        yield tuple(  # type: ignore[misc]
            [
                _array(TensorProto.FromString((folder / f"{part}_{i}.pb").read_bytes()))
                for i in range(len(list(folder.glob(f"{part}_*.pb"))))
            ]
            for part in ("input", "output")
        )


def _array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """The nodes of a graph and of the graphs nested in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)


def operators_of(graph: GraphProto) -> set[str]:
    """Operator types of a graph, nested graphs included; those of other domains with the domain's name before."""
    return {n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}.{n.op_type}" for n in all_nodes(graph)}


def claimed_cases(kind: str = "node") -> dict[str, Any]:
    """The tests whose every operator is one this front end claims."""
    return {n: c for n, c in standard_cases(kind).items() if operators_of(model_of(c).graph) <= set(HANDLERS)}


@cache
def cases_by_operator() -> dict[str, list[str]]:
    """Names of the node tests by the claimed operator they are about; under "" those that only use claimed ones."""
    found: dict[str, list[str]] = defaultdict(list)
    usable = claimed_cases()
    for name in standard_cases():
        operator = _operator_tested(name)
        if operator in HANDLERS or name in usable:
            found[operator if operator in HANDLERS else ""].append(name)
    return dict(found)


def _operator_tested(name: str) -> str:
    """The operator a node test is about: its only node, or that of the test whose definition it spells out."""
    plain = standard_cases().get(re.sub(r"_expanded(_ver\d+)?$", "", name), standard_cases()[name])
    nodes = plain.model.graph.node
    return nodes[0].op_type if len(nodes) == 1 and nodes[0].domain in ("", "ai.onnx") else ""


def run_case(case: Any, run: Runner) -> None:
    """Import the test's model, run it on the test's inputs, and compare with its outputs.

    Inputs whose values must be known while importing (shapes, axes) are fixed to the test's values.
    """
    proto = model_of(case)
    constants = {tensor.name for tensor in proto.graph.initializer}
    names = [info.name for info in proto.graph.input if info.name not in constants]
    for inputs, outputs in data_of(case):
        given = dict(zip(names, inputs, strict=True))
        model = load_onnx(proto, fixed={name: given[name] for name in values_needed(proto) & set(given)})
        dims: dict[str, int] = {}
        for name, tensor_type in model.inputs.items():
            for dim, length in zip(tensor_type.shape, given[name].shape, strict=True):
                dims |= {} if isinstance(dim, int) else {repr(dim): length}
        fed = {name: as_input(given[name], tensor_type.dtype) for name, tensor_type in model.inputs.items()}
        results = run(model, fed, dims)
        for name, wanted in zip(model.outputs, outputs, strict=True):
            compare(results[name], wanted, case.rtol, case.atol)


def as_input(array: np.ndarray, dtype: DType) -> np.ndarray:
    """An array of the test in the IR's dtype; raises ImportFailure where float32 cannot hold a float64."""
    if array.dtype == np.float64:
        with np.errstate(all="ignore"):
            lost = np.isfinite(array) & ~np.isfinite(array.astype(np.float32))
        if lost.any():
            raise ImportFailure("the test's values lie beyond the range of float32")
    return array.astype(np.uint32) if dtype is DType.U32 else narrow(array, "input").astype(dtype.numpy)


def compare(result: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> None:
    """The standard's own comparison: shape, kind of dtype, and values within its tolerances."""
    assert result.shape == wanted.shape, f"shape {result.shape}, expected {wanted.shape}"
    expected = dtype_of(wanted)
    assert result.dtype == expected.numpy, f"dtype {result.dtype}, expected {expected.numpy}"
    if expected.is_float:
        np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(result, as_input(wanted, expected))


def values_needed(model: ModelProto) -> set[str]:
    """Names of the values that must be known while importing, traced back through the nodes that make them."""
    nodes = list(all_nodes(model.graph))
    makers = {name: node for node in nodes for name in node.output}
    pending = [
        node.input[position]
        for node in nodes
        for position in (HANDLERS[node.op_type].known if node.op_type in HANDLERS else ())
        if position < len(node.input)
    ]
    needed: set[str] = set()
    while pending:
        name = pending.pop()
        if name and name not in needed:
            needed.add(name)
            maker = makers.get(name)
            if maker is not None and maker.op_type not in ("Shape", "Size"):
                pending += maker.input
                # A branch's result is made inside it.
                pending += [output.name for a in maker.attribute if a.HasField("g") for output in a.g.output]
    return needed


def reason_for(name: str, error: Exception) -> str:
    """Why a claimed test does not pass, in the words of docs/onnx.md; raises the error where that is no excuse."""
    text = str(error)
    if isinstance(error, ImportFailure):
        if found := re.search(r"unsupported type (\w+)|Cast to (\w+)", text):
            kind = (found[1] or found[2]).removesuffix("_type")
            return f"values of type {kind}" if kind in ("sequence", "optional") else f"element type {kind}"
        if found := re.search(
            r"uses what is not supported: (.*?); op:|uses what is not supported: (.*?); remedy:", text
        ):
            listed = (found[1] or found[2]).split("; ")
            return f"uses {', '.join(sorted({entry.split(':')[0] for entry in listed}))}"
        for words in ("training mode", "beyond the range of float32"):
            if words in text:
                return {"training mode": "training mode"}.get(words, "float64 values beyond float32's range")
    if isinstance(error, AssertionError) and name in ROUNDING:
        return ROUNDING[name]
    raise error
