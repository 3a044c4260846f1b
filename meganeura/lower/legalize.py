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
_PRODUCTS = ("matmul", "fused_matmul", "gated_matmul")
_LONGEST_PRODUCT = 49152
"""Inner dimension that every schedule sums within the loop iterations of a CPU adapter."""
_JOINED_AT_ONCE = 4
"""WebGPU promises eight storage buffers to a kernel; this leaves some to what is computed around a join."""


def legalize(graph: Graph, facts: DeviceFacts, rules: Mapping[int, tuple[str, ...]]) -> tuple[Graph, Rules]:
    """A graph of ops that kernels compute, and the rule names of its nodes carried over.

    Args:
        rules: for nodes of `graph`, the rewrites that led to them.
    """
    _check_features(graph, facts)
    graph, rules = _with_short_products(graph, facts, rules)
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


def _with_short_products(
    graph: Graph, facts: DeviceFacts, rules: Mapping[int, tuple[str, ...]]
) -> tuple[Graph, Mapping[int, tuple[str, ...]]]:
    """On a CPU adapter: products along very long inner dimensions as sums of shorter ones.

    Mesa's software driver ends the loops of an invocation silently after 65535 iterations (see `lanes`).
    """
    long = {n.id for n in graph.nodes if n.op.name in _PRODUCTS and _inner(n, graph) > _LONGEST_PRODUCT}
    if not facts.is_cpu or not long:
        return graph, rules
    carried: Rules = {}

    def visit(new: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
        before = len(new.nodes)
        if node.id not in long:
            result = new.expand_into(node.op, operands, lambda op: True)
        elif node.op.name == "matmul":
            result = _sum_of_products(new, node.op, operands)
        else:
            result = new.expand_into(node.op, operands, lambda op: op.name not in _PRODUCTS[1:])
        carried.update({i: rules[node.id] for i in range(before, len(new.nodes)) if node.id in rules})
        return result

    shorter = graph.rewrite(visit)
    # Fused products became plain ones, which are split in the next round.
    return _with_short_products(shorter, facts, carried)


def _inner(node: Node, graph: Graph) -> int:
    shape = graph.nodes[node.inputs[0]].tensor_type.dims
    return shape[-2] if getattr(node.op, "transpose_a", False) else shape[-1]


def _sum_of_products(new: Graph, op: Op, operands: tuple[Tensor, ...]) -> Tensor:
    a, b = operands
    along_a = a.rank - 2 if op.transpose_a else a.rank - 1  # type: ignore[attr-defined]
    along_b = max(b.rank - (1 if op.transpose_b else 2), 0)  # type: ignore[attr-defined]
    length = int(a.shape[along_a])  # type: ignore[arg-type]
    total: Tensor | None = None
    for start in range(0, length, _LONGEST_PRODUCT):
        part = slice(start, min(start + _LONGEST_PRODUCT, length))
        pieces = [
            t[tuple(part if axis == along else slice(None) for axis in range(t.rank))]
            for t, along in ((a, along_a), (b, along_b))
        ]
        product = new.apply(op, *pieces)
        total = product if total is None else total + product
    assert total is not None
    return total


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
