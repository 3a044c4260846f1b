"""Inputs made up for a model, such that they make sense to it: ids below the vocabulary, masks of 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from meganeura.ir.dims import Dim
from meganeura.ir.graph import Graph, Node
from meganeura.ir.types import DType, TensorType

_CARRIERS = ("cast", "where", "concat", "add")
"""Ops besides views through which an index still counts as one on its way to a gather."""


def invent_inputs(graph: Graph, bounds: Mapping[str, Dim] | None = None, seed: int = 0) -> dict[str, np.ndarray]:
    """Values for every input and state of a concrete graph, the same for the same seed.

    Integers that index something are drawn below its length; other integers and booleans, and whatever is called a
    mask, are 0 and 1 with ones first and at least one of them in a row; floats are drawn from a normal distribution.

    Args:
        graph: a graph without symbolic dimensions.
        bounds: values that an integer input's elements must stay below, where the model knows better.
        seed: of the generator.
    """
    random = np.random.default_rng(seed)
    found = index_bounds(graph)
    for name, bound in (bounds or {}).items():
        if isinstance(bound, int):
            found[name] = min(bound, found.get(name, bound))
    values = {}
    for name, node in graph.inputs.items():
        values[name] = _value(name, node.tensor_type, found.get(name), random)
    for name, node in graph.states.items():
        values[name] = _value(name, node.tensor_type, None, random)
    return values


def index_bounds(graph: Graph) -> dict[str, int]:
    """For each integer input that indexes something, the smallest length among what it indexes."""
    readers = graph.readers()
    bounds = {}
    for name, node in graph.inputs.items():
        if node.tensor_type.dtype.is_integer:
            lengths = [length for at in _reached(graph, node, readers) for length in _indexed(graph, at)]
            if lengths:
                bounds[name] = min(lengths)
    return bounds


def _reached(graph: Graph, start: Node, readers: list[list[int]]) -> list[tuple[int, int]]:
    """(reader, operand) pairs that an input reaches unchanged in meaning."""
    pairs, seen, waiting = [], {start.id}, [start.id]
    while waiting:
        value = waiting.pop()
        for reader in readers[value]:
            pairs.append((reader, value))
            op = graph.nodes[reader].op
            if (op.view or op.name in _CARRIERS) and reader not in seen:
                seen.add(reader)
                waiting.append(reader)
    return pairs


def _indexed(graph: Graph, pair: tuple[int, int]) -> list[int]:
    node, operand = graph.nodes[pair[0]], pair[1]
    if len(node.inputs) < 2:
        return []
    first = graph.nodes[node.inputs[0]].type
    if not isinstance(first, TensorType):
        return []
    if node.op.name in ("gather", "gather_elements", "embedding") and operand in node.inputs[1:]:
        table = graph.nodes[node.inputs[1]].tensor_type if operand == node.inputs[0] else first
        return [_length(table.shape[getattr(node.op, "axis", 0)])]
    if node.op.name in ("state_update", "cache_write") and len(node.inputs) > 2 and operand == node.inputs[2]:
        axis = getattr(node.op, "axis", -2)
        rows = graph.nodes[node.inputs[1]].tensor_type.shape[axis]
        return [_length(first.shape[axis]) - _length(rows) + 1]
    return []


def _length(dim: Dim) -> int:
    return int(dim)  # type: ignore[arg-type]  # the graph is concrete


def _value(name: str, kind: TensorType, bound: int | None, random: np.random.Generator) -> np.ndarray:
    shape = tuple(_length(dim) for dim in kind.shape)
    if bound is not None:
        return random.integers(0, max(bound, 1), shape).astype(kind.dtype.numpy)
    if kind.dtype is DType.BOOL or kind.dtype.is_integer or "mask" in name.lower():
        return _ones_first(shape, random).astype(kind.dtype.numpy)
    return random.standard_normal(shape).astype(kind.dtype.numpy)


def _ones_first(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Rows of ones and then zeros, at least one and on average three quarters ones: a padded batch."""
    if not shape or 0 in shape:
        return np.ones(shape, np.int64)
    counts = random.integers((shape[-1] + 1) // 2, shape[-1] + 1, shape[:-1])
    return (np.arange(shape[-1]) < np.maximum(counts, 1)[..., None]).astype(np.int64)
