"""Which classes are constant, and what rules may know about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from meganeura.egraph.constant_facts import ANALYSED_ELEMENTS, constant_facts
from meganeura.egraph.fold import LEAVES, VIEWS, scalar
from meganeura.egraph.load import Loader
from meganeura.ir.graph import Graph
from meganeura.ir.op import Op, sizeof
from meganeura.ir.types import TensorType, ValueType
from meganeura.reference import round_to, widen

_MASK_READERS = (
    "add",
    "sub",
    "mul",
    "where",
    "cast",
    "and",
    "or",
    "not",
    "less",
    "less_equal",
    "equal",
    "expand",
    "gather",
    "attention",
    "cached_attention",
)


class Constants:
    """Constant classes by node id; `describe` loads their facts."""

    def __init__(self, loader: Loader, graph: Graph, types: Mapping[int, ValueType]) -> None:
        self._loader, self._graph, self._types = loader, graph, types
        self._worth_a_look = frozenset(_mask_candidates(graph))
        self._arrays: dict[int, Callable[[], np.ndarray]] = {}
        self.known: set[int] = set()
        self.splats: dict[int, float] = {}

    def includes(self, op: Op, operands: Sequence[int]) -> bool:
        """Whether a term over these classes is known at compile time."""
        if op.name in LEAVES:
            return True
        return bool(operands) and op.foldable and all(operand in self.known for operand in operands)

    def describe(self, node_id: int, op: Op, operands: Sequence[int], value_type: TensorType) -> None:
        """Record a constant class and load what is known of its value."""
        self.known.add(node_id)
        self._loader.fact("is-constant", node_id)
        value = self._splat(op, operands, value_type)
        if value is not None:
            self.splats[node_id] = value
            self._loader.fact("splat", node_id, value)
            return
        array = self._array(op, operands, value_type)
        elements = sizeof(value_type.shape)
        if array is not None and elements <= ANALYSED_ELEMENTS:
            self._arrays[node_id] = array
            for name, values in constant_facts(array, elements):
                self._loader.fact(name, node_id, *values)

    def _splat(self, op: Op, operands: Sequence[int], value_type: TensorType) -> float | None:
        if op.name == "full":
            return op.value  # type: ignore[attr-defined]
        if not operands or any(o not in self.splats for o in operands) or sizeof(value_type.shape) == 0:
            return None
        if op.name in VIEWS:
            return self.splats[operands[0]]
        if not op.elementwise:
            return None
        values = [scalar(self.splats[o], self._types[o].dtype) for o in operands]  # type: ignore[union-attr]
        result = op.evaluate(values, TensorType(value_type.dtype, ()))
        return float(round_to(np.asarray(result), value_type.dtype))

    def _array(self, op: Op, operands: Sequence[int], value_type: TensorType) -> Callable[[], np.ndarray] | None:
        """How to get at a constant's elements, for those that may be masks or indices."""
        if op.name == "iota":
            return lambda: np.asarray(op.evaluate([], value_type)).astype(value_type.dtype.numpy)
        if op.name == "constant":
            key = op.key  # type: ignore[attr-defined]
            return self._graph.constants[key].load if key in self._worth_a_look else None
        if op.name in (*VIEWS, "cast") and operands and operands[0] in self._arrays:
            source = self._arrays[operands[0]]
            return lambda: np.asarray(op.evaluate([source()], value_type)).astype(value_type.dtype.numpy, copy=False)
        if op.elementwise and operands and all(o in self._arrays or o in self.splats for o in operands):
            return lambda: self._computed(op, operands, value_type)
        return None

    def _computed(self, op: Op, operands: Sequence[int], value_type: TensorType) -> np.ndarray:
        """A mask that rules made of masks: negated, joined, scaled."""
        values = [
            widen(self._arrays[o]()) if o in self._arrays else scalar(self.splats[o], self._types[o].dtype)  # type: ignore[union-attr]
            for o in operands
        ]
        result = np.asarray(op.evaluate(values, value_type))
        return round_to(result, value_type.dtype).astype(value_type.dtype.numpy)


def _mask_candidates(graph: Graph) -> Iterator[str]:
    """Keys of constants that may be masks, tables or indices: read by elementwise ops, not as weights."""
    for node in graph.nodes:
        for operand in node.inputs:
            op = graph.nodes[operand].op
            if op.name != "constant":
                continue
            few_bits = not op.dtype.is_float  # type: ignore[attr-defined]
            if few_bits or (node.op.name in _MASK_READERS and len(op.shape) > 1):  # type: ignore[attr-defined]
                yield op.key  # type: ignore[attr-defined]
