"""Before lowering: replace every op that no kernel family computes by its decomposition."""

from __future__ import annotations

from collections.abc import Mapping

from meganeura.errors import DeviceError
from meganeura.facts import DeviceFacts
from meganeura.ir.graph import Graph, Node, Tensor
from meganeura.ir.op import Kind, Op
from meganeura.ir.types import DType, TensorType
from meganeura.lower.families import has_kernel
from meganeura.lower.pointwise import is_pointwise

Rules = dict[int, tuple[str, ...]]
_JOINED_AT_ONCE = 4
"""WebGPU promises eight storage buffers to a kernel; this leaves some to what is computed around a join."""


def legalize(graph: Graph, facts: DeviceFacts, rules: Mapping[int, tuple[str, ...]]) -> tuple[Graph, Rules]:
    """A graph of ops that kernels compute, and the rule names of its nodes carried over.

    Args:
        rules: for nodes of `graph`, the rewrites that led to them.
    """
    _check_features(graph, facts)
    carried: Rules = {}

    def visit(new: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        before = len(new.nodes)
        types = [o.node.type for o in operands]
        if node.op.name == "concat":
            result = _join(new, node.op, operands)
        elif _direct(node.op, types, facts):
            result = new.apply(node.op, *operands)
        else:
            result = new.expand_into(node.op, operands, lambda op: _keeps(op, facts))
        names = rules.get(node.id, ())
        if names:
            carried.update(dict.fromkeys(range(before, len(new.nodes)), names))
        return result

    return graph.rewrite(visit), carried


def _join(new: Graph, op: Op, operands: tuple[Tensor, ...]) -> Tensor:
    """A concatenation as a tree of small ones, so that no kernel has to bind more operands than a device allows."""
    while len(operands) > _JOINED_AT_ONCE:
        groups = [operands[i : i + _JOINED_AT_ONCE] for i in range(0, len(operands), _JOINED_AT_ONCE)]
        operands = tuple(group[0] if len(group) == 1 else new.apply(op, *group) for group in groups)
    return new.apply(op, *operands)


def _direct(op: Op, types: list, facts: DeviceFacts) -> bool:
    if op.name in ("constant", "proj"):
        return True
    return (is_pointwise(op) and not _needs_expansion(op)) or has_kernel(op, types, facts)


def _keeps(op: Op, facts: DeviceFacts) -> bool:
    """Inside a decomposition: keep primitives and activations, expand the rest."""
    return op.kind is Kind.PRIMITIVE or (op.elementwise and not _needs_expansion(op))


def _needs_expansion(op: Op) -> bool:
    # A two-operand activation has no single expression; its pieces do.
    return op.name == "swiglu"


def _check_features(graph: Graph, facts: DeviceFacts) -> None:
    if facts.has_f16:
        return
    for node in graph.nodes:
        if isinstance(node.type, TensorType) and node.type.dtype is DType.F16:
            raise DeviceError(
                f"{facts.name} cannot store float16",
                op=node.op.name,
                source=node.sources[0] if node.sources else None,
                remedy="choose a device with the shader-f16 feature, or use float32",
            )
