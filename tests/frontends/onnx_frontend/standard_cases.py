"""The ONNX standard's own node tests, run through the front end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from meganeura.frontends.onnx import load_onnx
from meganeura.frontends.onnx.elements import dtype_of
from meganeura.frontends.onnx.operators import HANDLERS
from meganeura.ir.constants import narrow
from meganeura.ir.graph import Graph
from meganeura.ir.types import DType

Runner = Callable[[Graph, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


@cache
def standard_cases() -> dict[str, Any]:
    """Every node test of the installed standard by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {case.name: case for case in load_model_tests(kind="node")}


def operators_of(graph: GraphProto) -> set[str]:
    """Operator types of a graph, nested graphs included; those of other domains with the domain's name before."""
    return {n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}.{n.op_type}" for n in all_nodes(graph)}


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """The nodes of a graph and of the graphs nested in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)


def is_claimed(case: Any) -> bool:
    """Whether every operator of the test's model is one this front end claims."""
    return operators_of(case.model.graph) <= set(HANDLERS)


def run_case(case: Any, run: Runner) -> None:
    """Import the test's model, run it on the test's inputs, and compare with its outputs.

    Inputs whose values must be known while importing (shapes, axes) are fixed to the test's values.
    """
    for inputs, outputs in case.data_sets:
        constants = {tensor.name for tensor in case.model.graph.initializer}
        names = [info.name for info in case.model.graph.input if info.name not in constants]
        given = {name: as_array(value) for name, value in zip(names, inputs, strict=True)}
        fixed = {name: given[name] for name in values_needed(case.model) & set(given)}
        model = load_onnx(case.model, fixed=fixed)
        dims: dict[str, int] = {}
        for name, tensor_type in model.inputs.items():
            for dim, length in zip(tensor_type.shape, given[name].shape, strict=True):
                dims |= {} if isinstance(dim, int) else {repr(dim): length}
        graph = model.graph(dims)
        fed = {name: as_input(given[name], tensor_type.dtype) for name, tensor_type in model.inputs.items()}
        results = run(graph, fed)
        for name, wanted in zip(model.outputs, outputs, strict=True):
            compare(results[name], as_array(wanted), case.rtol, case.atol)


def as_array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def as_input(array: np.ndarray, dtype: DType) -> np.ndarray:
    """An array of the test in the IR's dtype, checked to lose no integer."""
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
        for position in HANDLERS[node.op_type].known
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
