"""The order of dispatches: after what they read is written, before what they read is overwritten."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from meganeura.errors import GraphError
from meganeura.lower.places import Place
from meganeura.lower.schedule import Kernel


@dataclass(eq=False)
class Step:
    """A dispatch before buffers are assigned: a kernel over places."""

    kernel: Kernel
    inputs: list[Place]
    outputs: list[Place]
    node: int
    sources: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    before: list[int] = field(default_factory=list)


def order_steps(steps: list[Step]) -> list[Step]:
    """Sort steps topologically, keeping the given order wherever dependencies allow; updates of states come early.

    An update writes no memory of its own, and what it reads (a layer's keys and values, say) would otherwise live
    until the end of the program.

    A read of version v of a value comes after the write of v (read after write) and before the write of v + 1 (write
    after read); writes of one value come in the order of their versions (write after write).
    """
    written: dict[tuple[int, int], int] = {}
    for index, step in enumerate(steps):
        for place in step.outputs:
            written[(id(place.value), place.version)] = index
    successors: list[set[int]] = [set() for _ in steps]
    for index, step in enumerate(steps):
        for place in step.inputs:
            key = (id(place.value), place.version)
            if key in written and written[key] != index:
                successors[written[key]].add(index)
            after = written.get((key[0], key[1] + 1))
            if after is not None and after != index:
                successors[index].add(after)
        for place in step.outputs:
            earlier = written.get((id(place.value), place.version - 1))
            if earlier is not None and earlier != index:
                successors[earlier].add(index)
    waiting = [0] * len(steps)
    for targets in successors:
        for target in targets:
            waiting[target] += 1
    ready = [(not steps[i].kernel.in_place, i) for i, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    ordered: list[Step] = []
    while ready:
        _, index = heapq.heappop(ready)
        ordered.append(steps[index])
        for target in successors[index]:
            waiting[target] -= 1
            if waiting[target] == 0:
                heapq.heappush(ready, (not steps[target].kernel.in_place, target))
    if len(ordered) != len(steps):
        stuck = next(s for s, w in zip(steps, waiting, strict=True) if w)
        raise GraphError("a state is read after it was overwritten in place", op=stuck.kernel.op.name)
    return ordered
