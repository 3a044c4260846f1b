"""The memory plan: which temporary values share a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A temporary value: its size, and the first and last dispatch that touch it (both inclusive)."""

    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """Result of planning.

    Attributes:
        slot: for every value the index of its buffer. sizes: bytes of every buffer.
        lower_bound: bytes of the largest set of values alive at once; no plan needs less.
    """

    slot: tuple[int, ...]
    sizes: tuple[int, ...]
    lower_bound: int

    @property
    def total(self) -> int:
        """Bytes of all buffers."""
        return sum(self.sizes)


def plan_memory(values: Sequence[Lifetime]) -> MemoryPlan:
    """Assign values to reusable buffers, larger values first.

    Two values share a buffer only if their lifetimes are disjoint. Placing large values first means that a buffer
    rarely grows, so the total stays near the lower bound.
    """
    slot = [-1] * len(values)
    tenants: list[list[Lifetime]] = []
    sizes: list[int] = []
    order = sorted(range(len(values)), key=lambda i: (-values[i].nbytes, values[i].first, i))
    for index in order:
        value = values[index]
        free = [s for s, others in enumerate(tenants) if all(_apart(value, other) for other in others)]
        if free:
            # The tightest fit; all are large enough because sizes only fall.
            best = min(free, key=lambda s: (sizes[s], s))
        else:
            best = len(tenants)
            tenants.append([])
            sizes.append(value.nbytes)
        tenants[best].append(value)
        slot[index] = best
    return MemoryPlan(tuple(slot), tuple(sizes), _largest_live_set(values))


def separate_memory(values: Sequence[Lifetime]) -> MemoryPlan:
    """A buffer of its own for every value: what a shared plan is compared with."""
    return MemoryPlan(tuple(range(len(values))), tuple(v.nbytes for v in values), _largest_live_set(values))


def _apart(a: Lifetime, b: Lifetime) -> bool:
    return a.last < b.first or b.last < a.first


def _largest_live_set(values: Sequence[Lifetime]) -> int:
    change: dict[int, int] = {}
    for value in values:
        change[value.first] = change.get(value.first, 0) + value.nbytes
        change[value.last + 1] = change.get(value.last + 1, 0) - value.nbytes
    live = most = 0
    for step in sorted(change):
        live += change[step]
        most = max(most, live)
    return most
