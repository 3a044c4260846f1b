"""The reference evaluator: any graph, node by node, in NumPy.

Each op is computed in float64 (integers in int64) and its result rounded to the node's dtype, so that float32's
minimum in a mask behaves as on the device. The pure mode skips the rounding and serves finite differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from meganeura.errors import InputError
from meganeura.ir.graph import Graph
from meganeura.ir.types import DType, TensorType, TupleType


def widen(array: np.ndarray) -> np.ndarray:
    """An array as the evaluator computes with it: float64, int64 or bool."""
    array = np.asarray(array)
    if array.dtype == np.bool_:
        return array
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def round_to(array: np.ndarray, dtype: DType, pure: bool = False) -> np.ndarray:
    """Round a widened array to the values `dtype` can hold; integers wrap at 32 bits."""
    if dtype is DType.BOOL:
        return np.asarray(array, bool)
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return array if pure else array.astype(dtype.numpy).astype(np.float64)
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(np.int64).astype(dtype.numpy).astype(np.int64)


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Any],
    *,
    pure: bool = False,
    every: bool = False,
) -> dict[Any, np.ndarray]:
    """Compute a concrete graph.

    Args:
        graph: a graph without symbolic dimensions.
        inputs: arrays by the names of inputs and states; missing states start as zeros.
        pure: keep float64 throughout instead of rounding each result to its node's dtype.
        every: return every node's value by id (floats as float64) instead of the outputs.

    Returns:
        Outputs by name in their interface dtypes, and new state values under `state:NAME`.
    """
    values: dict[int, Any] = {}
    last_use = {i: node.id for node in graph.nodes for i in node.inputs}
    roots = set(graph.roots)
    for node in graph.nodes:
        if node.op.name in ("input", "state"):
            values[node.id] = _given(node.op.name_of_leaf, node.tensor_type, inputs, node.op.name)  # type: ignore[attr-defined]
            continue
        if node.op.name == "constant":
            values[node.id] = widen(graph.constants[node.op.key].load())  # type: ignore[attr-defined]
            continue
        with np.errstate(all="ignore"):
            result = node.op.evaluate([values[i] for i in node.inputs], node.type)
        if isinstance(node.type, TupleType):
            values[node.id] = tuple(
                round_to(part, t.dtype, pure) for part, t in zip(result, node.type.items, strict=True)
            )
        else:
            values[node.id] = round_to(np.asarray(result), node.type.dtype, pure)
        if not every:
            for operand in set(node.inputs):
                if last_use[operand] == node.id and operand not in roots:
                    del values[operand]
    if every:
        return values
    results = {name: _interface(graph, root, values[root], pure) for name, root in graph.outputs.items()}
    results |= {f"state:{n}": _interface(graph, root, values[root], pure) for n, root in graph.updates.items()}
    return results


def _given(name: str, wanted: TensorType, inputs: Mapping[str, Any], kind: str) -> np.ndarray:
    if name not in inputs:
        if kind == "state":
            return np.zeros(wanted.shape, np.float64 if wanted.dtype.is_float else np.int64)  # type: ignore[arg-type]
        raise InputError(f"input {name!r} is missing", source=name, shapes=repr(wanted))
    array = np.asarray(inputs[name])
    if array.shape != wanted.shape:
        raise InputError(f"input {name!r} has shape {list(array.shape)}, expected {list(wanted.shape)}", source=name)
    return round_to(widen(array), wanted.dtype)


def _interface(graph: Graph, root: int, value: np.ndarray, pure: bool) -> np.ndarray:
    dtype = graph.nodes[root].tensor_type.dtype
    return np.array(value) if pure and dtype.is_float else np.asarray(value).astype(dtype.numpy)
