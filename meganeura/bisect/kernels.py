"""Which kernel is wrong: every dispatch held against the reference of its own op on the very inputs it got."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from meganeura.bisect.finding import WrongKernel
from meganeura.bisect.setting import Case, Setting, Values, Variant
from meganeura.codegen.program import Program
from meganeura.errors import DeviceError, GraphError
from meganeura.ir.graph import Graph
from meganeura.ir.types import TupleType
from meganeura.lower.legalize import legalize
from meganeura.lower.pointwise import PointwiseKernel
from meganeura.lower.schedule import Dispatch, Kernel, Operand
from meganeura.reference import evaluate, round_to, widen
from meganeura.reference.compare import Difference, difference
from meganeura.runtime.trace import Traced


def first_wrong_kernel(setting: Setting, variant: Variant, values: Values) -> tuple[WrongKernel, Case | None] | None:
    """The first dispatch that computes something else than its op, with a graph of that kernel alone."""
    for program, traced, arrays in _trace(setting, variant, values):
        dispatch = program.plan.dispatches[traced.index]
        for have, want in zip(traced.outputs, expected(dispatch.kernel, arrays), strict=True):
            apart = difference(have, want)
            if not apart.within(setting.tolerance):
                return _wrong(program, traced.index, apart, have, want), alone(dispatch.kernel, arrays)
    return None


def refused_kernel(program: Program, message: str) -> WrongKernel | None:
    """The kernel whose label a device error names."""
    labels = [shader.label for shader in program.shaders]
    found = next((i for i, label in enumerate(labels) if label in message), None)
    return None if found is None else _report(program, found)


def first_stray_value(setting: Setting, variant: Variant, values: Values) -> WrongKernel | None:
    """The first dispatch whose result is not the reference's value of its node, whatever inputs it got.

    Where every kernel computes its op, this is where lowering handed one the wrong tensor, or where rounding grew.
    """
    legal, _ = legalize(variant.graph, setting.device.facts, variant.rules)
    wanted = evaluate(legal, values, every=True)
    for program, traced, _ in _trace(setting, variant, values):
        dispatch = program.plan.dispatches[traced.index]
        node = legal.nodes[dispatch.node]
        items = wanted[node.id] if isinstance(node.type, TupleType) else (wanted[node.id],)
        for have, value, operand in zip(traced.outputs, items, dispatch.kernel.outputs, strict=True):
            if tuple(np.shape(value)) != operand.shape:
                continue
            want = np.asarray(value).astype(operand.dtype.numpy)
            apart = difference(have, want)
            if not apart.within(setting.tolerance):
                return _wrong(program, traced.index, apart, have, want)
    return None


def expected(kernel: Kernel, arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """What a kernel should compute from its operands, in float64 and rounded to its outputs' dtypes."""
    if isinstance(kernel, PointwiseKernel):
        return (evaluate(kernel.region, {f"in{i}": array for i, array in enumerate(arrays)})["out"],)
    types = tuple(operand.type for operand in kernel.outputs)
    single = len(types) == 1
    with np.errstate(all="ignore"):
        result = kernel.op.evaluate([widen(a) for a in arrays], types[0] if single else TupleType(types))
    parts = (result,) if single else result
    return tuple(
        round_to(np.asarray(part), kind.dtype).astype(kind.dtype.numpy) for part, kind in zip(parts, types, strict=True)
    )


def alone(kernel: Kernel, arrays: tuple[np.ndarray, ...]) -> Case | None:
    """A graph of one kernel's op over inputs that hold what it read; None where operands are stored otherwise."""
    if isinstance(kernel, PointwiseKernel):
        return Case(kernel.region, {f"in{i}": array for i, array in enumerate(arrays)})
    graph = Graph(kernel.op.name)
    names = [f"in{i}" for i in range(len(arrays))]
    try:
        leaves = [graph.input(n, o.shape, o.dtype) for n, o in zip(names, kernel.inputs, strict=True)]
        result = graph.apply(kernel.op, *leaves)
        if isinstance(result.node.type, TupleType):
            for index in range(len(result.node.type.items)):
                graph.output(f"out{index}", graph.apply("proj", result, index=index))
        else:
            graph.output("out", result)
    except GraphError:
        return None
    return Case(graph, dict(zip(names, arrays, strict=True)))


def _trace(
    setting: Setting, variant: Variant, values: Values
) -> Iterator[tuple[Program, Traced, tuple[np.ndarray, ...]]]:
    bound = setting.bind(variant, values, reuse=False)
    program = bound.program
    for traced in bound.trace({name: values[name] for name in bound.inputs}):
        dispatch = program.plan.dispatches[traced.index]
        read = zip(traced.inputs, dispatch.kernel.inputs, dispatch.buffers, strict=False)
        arrays = tuple(
            _unpacked(variant.graph, program, operand, buffer) if array is None else array
            for array, operand, buffer in read
        )
        yield program, traced, arrays


def _unpacked(graph: Graph, program: Program, operand: Operand, buffer: int) -> np.ndarray:
    """Weights in quantised blocks, as the kernel sees them: read from the constant they were made of."""
    name = program.plan.buffers[buffer].name
    if name not in graph.constants:
        raise DeviceError(f"the packed constant {name!r} cannot be read back")
    flat = np.ascontiguousarray(graph.constants[name].load()).reshape(-1)
    layout = operand.layout
    strides = tuple(s * flat.itemsize for s in layout.strides)
    return np.lib.stride_tricks.as_strided(flat[layout.offset :], layout.shape, strides)


def _report(program: Program, index: int) -> WrongKernel:
    dispatch: Dispatch = program.plan.dispatches[index]
    kernel = dispatch.kernel
    return WrongKernel(
        index,
        len(program.plan.dispatches),
        program.shaders[index].label,
        kernel.op.name,
        kernel.family,
        str(getattr(kernel, "schedule", "")),
        dispatch.sources,
        dispatch.rules,
        program.shaders[index].text,
    )


def _wrong(program: Program, index: int, apart: Difference, have: np.ndarray, want: np.ndarray) -> WrongKernel:
    element: tuple[int, ...] = ()
    ours = theirs = 0.0
    if have.shape == want.shape and have.size:
        a, b = have.astype(np.float64), want.astype(np.float64)
        with np.errstate(all="ignore"):
            distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        flat = int(np.argmax(np.where(np.isnan(distance), np.inf, distance)))
        element = tuple(int(i) for i in np.unravel_index(flat, have.shape))
        ours, theirs = float(a[element]), float(b[element])
    return replace(_report(program, index), apart=apart, element=element, have=ours, want=theirs)
