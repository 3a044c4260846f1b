"""Which tensors share memory wrongly: the plan with reuse held against the lifetimes seen in the plan without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meganeura.bisect.finding import Conflict, Tenant
from meganeura.codegen.program import Program


@dataclass
class _Life:
    """A tensor of the plan without reuse: where it lies in the one with it, and the dispatches that touch it."""

    slot: int
    first: int
    last: int
    nbytes: int


def conflicts(separate: Program, shared: Program) -> Iterator[Conflict]:
    """Pairs of temporary tensors that lie in one buffer while both are needed, and tensors larger than their buffer.

    Args:
        separate: the program without reuse, in which every tensor has a buffer of its own. shared: the same with it.
    """
    lives = _lives(separate, shared)
    tenants: dict[int, list[_Life]] = {}
    for life in lives:
        tenants.setdefault(life.slot, []).append(life)
    for slot, others in tenants.items():
        buffer = shared.plan.buffers[slot]
        for life in others:
            if life.nbytes > buffer.nbytes:
                yield Conflict(buffer.name, buffer.nbytes, _tenant(separate, life))
        # By first use, the next tenant must move in after the last one has been read.
        others.sort(key=lambda life: (life.first, life.last))
        for index, life in enumerate(others):
            for later in others[index + 1 :]:
                if later.first <= life.last:
                    yield Conflict(buffer.name, buffer.nbytes, _tenant(separate, life), _tenant(separate, later))


def _lives(separate: Program, shared: Program) -> list[_Life]:
    lives: dict[int, _Life] = {}
    roles = [buffer.role for buffer in separate.plan.buffers]
    pairs = zip(separate.plan.dispatches, shared.plan.dispatches, strict=True)
    for index, (alone, together) in enumerate(pairs):
        for own, slot in zip(alone.buffers, together.buffers, strict=True):
            if roles[own] == "temp":
                nbytes = separate.plan.buffers[own].nbytes
                lives.setdefault(own, _Life(slot, index, index, nbytes)).last = index
    return list(lives.values())


def _tenant(program: Program, life: _Life) -> Tenant:
    sources = program.plan.dispatches[life.first].sources
    return Tenant(program.shaders[life.first].label, sources, life.first, life.last, life.nbytes)
