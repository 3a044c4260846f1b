"""From ordered steps to a plan: lifetimes, shared buffers, buffer numbers, limits."""

from __future__ import annotations

from dataclasses import replace

from meganeura.ir.graph import Graph
from meganeura.lower.checks import input_ranges
from meganeura.lower.memory import Lifetime, plan_memory, separate_memory
from meganeura.lower.order import Step
from meganeura.lower.places import Value
from meganeura.lower.schedule import Buffer, Dispatch, Plan, Port


def assemble(
    graph: Graph,
    steps: list[Step],
    inputs: list[tuple[Port, Value]],
    outputs: list[tuple[Port, Value]],
    states: list[tuple[Port, Value]],
    reuse: bool = True,
) -> Plan:
    """Number the buffers and bind the steps to them.

    Inputs, outputs, states and constants keep buffers of their own; temporaries share them by lifetime, unless
    `reuse` is off.
    """
    buffers: list[Buffer] = []
    number: dict[int, int] = {}

    def pin(value: Value) -> int:
        if id(value) not in number:
            number[id(value)] = len(buffers)
            buffers.append(Buffer(len(buffers), value.nbytes, value.role, value.name, value.constant))
        return number[id(value)]

    for _, value in (*inputs, *states, *outputs):
        pin(value)
    temporaries: dict[int, tuple[Value, int, int]] = {}
    for index, step in enumerate(steps):
        for place in (*step.inputs, *step.outputs):
            if place.value.role != "temp":
                pin(place.value)
                continue
            first = temporaries.get(id(place.value), (place.value, index, index))[1]
            temporaries[id(place.value)] = (place.value, first, index)
    lifetimes = [Lifetime(value.nbytes, first, last) for value, first, last in temporaries.values()]
    memory = plan_memory(lifetimes) if reuse else separate_memory(lifetimes)
    start = len(buffers)
    buffers += [Buffer(start + i, size, "temp", f"temp{i}") for i, size in enumerate(memory.sizes)]
    number.update({key: start + slot for key, slot in zip(temporaries, memory.slot, strict=True)})

    dispatches = tuple(
        Dispatch(
            step.kernel,
            tuple(number[id(p.value)] for p in (*step.inputs, *step.outputs)),
            step.node,
            step.sources,
            step.rules,
        )
        for step in steps
    )

    def ports(pairs: list[tuple[Port, Value]]) -> tuple[Port, ...]:
        return tuple(replace(port, buffer=number[id(value)]) for port, value in pairs)

    return Plan(
        graph.name,
        tuple(buffers),
        dispatches,
        ports(inputs),
        ports(outputs),
        ports(states),
        ranges=input_ranges(graph),
        temp_bytes_without_reuse=sum(v.nbytes for v in lifetimes),
        notes={"temp_bytes": str(memory.total), "temp_lower_bound": str(memory.lower_bound)},
    )
