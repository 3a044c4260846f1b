"""What a node costs on a device: the extractor's objective.

A kernel takes the larger of bytes over bandwidth and operations over rate, and the overhead of its dispatch.
Views are free: lowering turns them into strides. Elementwise nodes are clustered after extraction, so a lone one
is charged a share of a kernel. Constants cost next to nothing at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meganeura.facts import DeviceFacts
from meganeura.ir.op import Op, sizeof
from meganeura.ir.types import TensorType, TupleType, ValueType

STRIDED = frozenset({"reshape", "transpose", "slice", "expand", "proj"})
"""Ops that strides can express."""
VIEW_SECONDS = 1e-8
"""Charge of a view: enough to prefer fewer of them, and to keep every term's cost positive."""
CONSTANT_SECONDS = 1e-10
"""Charge of a term known at compile time."""
CLUSTER_SHARE = 0.3
"""Part of an elementwise kernel's cost that one of its nodes bears after clustering."""
_LEAVES = frozenset({"input", "state", "constant", "full", "iota"})


@dataclass(frozen=True)
class Profile:
    """Rates of one device.

    Attributes:
        bandwidth: bytes per second. rates: operations per second by kind of work. dispatch: seconds per kernel.
        lanes: output elements that keep the device busy; smaller grids run at a part of the rate.
    """

    bandwidth: float
    rates: tuple[tuple[str, float], ...]
    dispatch: float
    lanes: int


def _rates(matmul: float, elementwise: float) -> tuple[tuple[str, float], ...]:
    # Row operations count a dozen operations an element and yet move at the memory's speed, like elementwise ones.
    return (
        ("matmul", matmul),
        ("attention", matmul),
        ("elementwise", elementwise),
        ("reduce", elementwise),
        ("move", elementwise),
    )


_PROFILES = {
    "cpu": Profile(5e9, _rates(matmul=1.2e10, elementwise=2e10), dispatch=3e-5, lanes=1),
    "integrated": Profile(5e10, _rates(matmul=5e11, elementwise=5e11), dispatch=8e-6, lanes=2048),
    "discrete": Profile(1e12, _rates(matmul=1.5e13, elementwise=1.5e13), dispatch=4e-6, lanes=16384),
}


def profile_of(facts: DeviceFacts) -> Profile:
    """Defaults for the kind of device; an unknown kind counts as integrated."""
    return _PROFILES.get(facts.kind, _PROFILES["integrated"])


class CostModel:
    """Seconds per node, remembered by op and types."""

    def __init__(self, facts: DeviceFacts) -> None:
        self.profile = profile_of(facts)
        self._rates = dict(self.profile.rates)
        self._known: dict[tuple[Op, tuple[ValueType, ...], ValueType], float] = {}

    def seconds(self, op: Op, inputs: Sequence[ValueType], output: ValueType) -> float:
        """Cost of the kernel of one node, always positive."""
        key = (op, tuple(inputs), output)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._seconds(op, inputs, output)
        return known

    def _seconds(self, op: Op, inputs: Sequence[ValueType], output: ValueType) -> float:
        if op.name in _LEAVES:
            return CONSTANT_SECONDS
        if op.name in STRIDED:
            return VIEW_SECONDS
        profile = self.profile
        work = op.work(inputs, output)  # type: ignore[arg-type]
        first = output.items[0] if isinstance(output, TupleType) else output
        busy = min(1.0, max(sizeof(first.shape), 1) / profile.lanes)
        rate = self._rates.get(work.kind, self._rates["elementwise"]) * max(busy, 1 / 64)
        moved = (work.read + work.written) / profile.bandwidth
        if op.elementwise:
            return CLUSTER_SHARE * (moved + profile.dispatch) + work.flops / rate + VIEW_SECONDS
        return max(moved, work.flops / rate) + profile.dispatch


def constant_seconds(value_type: ValueType) -> float:
    """Charge of a term that is folded after extraction: memory, not time."""
    nbytes = value_type.nbytes if isinstance(value_type, TensorType) else 0
    return CONSTANT_SECONDS * (1 + nbytes / 2**20)
