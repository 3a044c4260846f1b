"""What can be checked before anything runs: sizes against the device, and the range of indices given as inputs."""

from __future__ import annotations

from meganeura.errors import LimitError
from meganeura.facts import DeviceFacts
from meganeura.ir.graph import Graph, Node
from meganeura.ir.types import DType
from meganeura.lower.schedule import InputRange, Plan

_PASSED_THROUGH = frozenset({"reshape", "transpose", "expand", "cast"})
"""Ops between an input and its use that keep every value."""
_INDEX_OPERAND = {"gather": 1, "gather_elements": 1, "state_update": 2, "cache_write": 2, "cached_attention": 3}


def input_ranges(graph: Graph) -> tuple[InputRange, ...]:
    """The range that each integer input must keep to, as far as its readers tell.

    Kernels clamp indices and drop rows past a state's end, so that nothing is read or written outside a tensor; a
    caller who passes such a value has made a mistake all the same.
    """
    found: dict[tuple[str, int, int], InputRange] = {}
    for node in graph.nodes:
        operand = _INDEX_OPERAND.get(node.op.name)
        leaf = None if operand is None else _input_behind(graph, graph.nodes[node.inputs[operand]])
        if leaf is None:
            continue
        length, what = _length(graph, node)
        negative = node.op.name.startswith("gather") and leaf.tensor_type.dtype is DType.I32
        low = -length if negative else 0
        name = leaf.op.name_of_leaf  # type: ignore[attr-defined]
        source = node.sources[0] if node.sources else ""
        found.setdefault((name, low, length), InputRange(name, low, length - 1, what, node.op.name, source))
    return tuple(found.values())


def _input_behind(graph: Graph, node: Node) -> Node | None:
    while node.op.name in _PASSED_THROUGH:
        before = graph.nodes[node.inputs[0]]
        if not (node.tensor_type.dtype.is_integer and before.tensor_type.dtype.is_integer):
            return None
        node = before
    return node if node.op.name == "input" and node.tensor_type.dtype.is_integer else None


def _length(graph: Graph, node: Node) -> tuple[int, str]:
    data = graph.nodes[node.inputs[1 if node.op.name == "cached_attention" else 0]].tensor_type
    if node.op.name == "cached_attention":
        return data.dims[-2], "a position in a cache"
    what = "a row of a state" if node.op.name in ("state_update", "cache_write") else "an index"
    return data.dims[node.op.axis], what  # type: ignore[attr-defined]


def check_buffers(plan: Plan, facts: DeviceFacts) -> Plan:
    """Raise LimitError for a buffer larger than the device can bind; return the plan otherwise."""
    most = min(facts.limits.max_binding_size, facts.limits.max_buffer_size)
    for buffer in plan.buffers:
        if buffer.nbytes <= most:
            continue
        reader = next((d for d in plan.dispatches if buffer.id in d.buffers), None)
        raise LimitError(
            f"the {buffer.role} tensor {buffer.name!r} needs {buffer.nbytes} bytes in one binding",
            op=reader.kernel.op.name if reader else None,
            source=reader.sources[0] if reader and reader.sources else buffer.name,
            limit=f"{most} bytes on {facts.name}",
            remedy="use smaller dimensions, weights='f16', or a device with larger bindings",
        )
    return plan
