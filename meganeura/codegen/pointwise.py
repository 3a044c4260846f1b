"""WGSL of the pointwise family: a region graph becomes one function body over the output's elements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from meganeura.codegen import quantised
from meganeura.codegen.functions import (
    elementwise_expression,
    helpers_in,
    literal_expression,
    register_type,
    storage_type,
)
from meganeura.codegen.indices import Digit, Index, Literal, Sum, Variable, coordinates_of, linear, weighted_sum
from meganeura.codegen.render import renders
from meganeura.codegen.shader import Shader, fold_grid
from meganeura.codegen.template import render_template
from meganeura.facts import DeviceFacts
from meganeura.ir.graph import Node
from meganeura.ir.types import DType
from meganeura.lower.pointwise import PointwiseKernel
from meganeura.lower.schedule import Operand, Packing

_NARROW, _WIDE = 64, 256
"""Invocations per workgroup: wide ones cost less per element where there are many, narrow ones fill more cores."""


@renders(PointwiseKernel)
def render_pointwise(kernel: PointwiseKernel, facts: DeviceFacts) -> Shader:
    """The shader of a region: bindings are the region's inputs in order, then the output."""
    output = kernel.outputs[0]
    count = output.layout.size
    width = min(_WIDE if count >= 16 * _WIDE else _NARROW, facts.limits.max_invocations)
    body = _Body(kernel)
    body.store()
    code = "\n".join("    " + line for line in body.lines)
    bindings = [f"@group(0) @binding({i}) var<storage, read> in{i}: array<{_stored(o)}>;"
                for i, o in enumerate(kernel.inputs)]  # fmt: skip
    last = len(kernel.inputs)
    bindings.append(f"@group(0) @binding({last}) var<storage, read_write> out0: array<{storage_type(output.dtype)}>;")
    stored_half = any(o.dtype is DType.F16 for o in (*kernel.inputs, output))
    text = render_template(
        "pointwise",
        {"COUNT": count, "WIDTH": width},
        code={
            "enables": "enable f16;" if stored_half or "f16(" in code else "",
            "bindings": "\n".join(bindings),
            "helpers": helpers_in(code) + (quantised.functions() if any(o.packing for o in kernel.inputs) else ""),
            "body": code,
        },
    )
    groups = fold_grid(-(-count // width), facts.limits, kernel.label)
    return Shader(kernel.label, text, groups, ("read",) * last + ("read_write",))


class _Body:
    """Emits the statements that compute one output element."""

    def __init__(self, kernel: PointwiseKernel) -> None:
        self.kernel, self.region = kernel, kernel.region
        self.lines: list[str] = []
        self._indent = ""
        self._count = 0
        # Names are visible in their own block and the blocks inside it.
        self._values: list[dict[tuple[int, tuple[Index, ...]], str]] = [{}]
        self._indices: list[dict[Index, str]] = [{}]
        self._inputs = {node.id: int(name[2:]) for name, node in self.region.inputs.items()}

    def store(self) -> None:
        output = self.kernel.outputs[0]
        element = Variable("element", output.layout.size)
        root = self.region.nodes[self.region.outputs["out"]]
        # Elements are visited in the order in which they lie in memory.
        order = sorted(range(len(output.shape)), key=lambda a: (-output.layout.strides[a], a))
        visited = coordinates_of(element, [output.shape[axis] for axis in order])
        value = self._value(root, tuple(visited[order.index(axis)] for axis in range(len(order))))
        stored = {DType.BOOL: f"select(0u, 1u, {value})", DType.F16: f"f16({value})"}.get(output.dtype, value)
        self._line(f"out0[element] = {stored};")

    # ---- text -------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self.lines.append(self._indent + text)

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _let(self, prefix: str, expression: str) -> str:
        name = self._name(prefix)
        self._line(f"let {name} = {expression};")
        return name

    def _open(self, header: str) -> None:
        self._line(header + " {")
        self._indent += "    "
        self._values.append({})
        self._indices.append({})

    def _close(self) -> None:
        self._values.pop()
        self._indices.pop()
        self._indent = self._indent[:-4]
        self._line("}")

    def _index(self, index: Index) -> str:
        """Text of an index, emitting its arithmetic once per block."""
        if isinstance(index, Literal):
            return f"{index.value}u"
        if isinstance(index, Variable):
            return index.name
        for scope in reversed(self._indices):
            if index in scope:
                return scope[index]
        if isinstance(index, Digit):
            text = self._index(index.base)
            if index.stride > 1:
                text = f"{text} / {index.stride}u"
            if index.base.bound > index.stride * index.size:
                text = f"({text}) % {index.size}u" if index.stride > 1 else f"{text} % {index.size}u"
        else:
            text = self._sum(index)
        self._indices[-1][index] = self._let("i", text)
        return self._indices[-1][index]

    def _sum(self, index: Sum) -> str:
        def term(inner: Index, factor: int) -> str:
            return self._index(inner) if factor == 1 else f"{self._index(inner)} * {factor}u"

        plus = [term(t, f) for t, f in index.terms if f > 0]
        minus = [term(t, -f) for t, f in index.terms if f < 0]
        if index.constant > 0 or not plus:
            plus.append(f"{max(index.constant, 0)}u")
        if index.constant < 0:
            minus.append(f"{-index.constant}u")
        return " - ".join([" + ".join(plus), *minus])

    # ---- values -----------------------------------------------------------------------------------

    def _value(self, node: Node, at: tuple[Index, ...]) -> str:
        """Text of a node's element at these coordinates, emitting what it needs once per block."""
        key = (node.id, at)
        for scope in reversed(self._values):
            if key in scope:
                return scope[key]
        text = self._compute(node, at)
        self._values[-1][key] = text
        return text

    def _compute(self, node: Node, at: tuple[Index, ...]) -> str:
        op, dtype = node.op, node.tensor_type.dtype
        operands = [self.region.nodes[i] for i in node.inputs]
        if op.name == "input":
            return self._load(self._inputs[node.id], at, dtype)
        if op.name == "full":
            return literal_expression(op.value, dtype)  # type: ignore[attr-defined]
        if op.name == "iota":
            return self._let("v", f"{register_type(dtype)}({self._index(at[op.axis])})")  # type: ignore[attr-defined]
        if op.elementwise:
            arguments = [self._value(o, _broadcast(at, o)) for o in operands]
            kinds = [o.tensor_type.dtype for o in operands]
            return self._let("v", elementwise_expression(op, arguments, kinds))
        if op.name == "concat":
            return self._concat(node, operands, at)
        if op.name == "pad":
            return self._pad(node, operands[0], at)
        if op.name in ("gather", "gather_elements"):
            return self._gather(node, operands, at)
        return self._value(operands[0], _moved(node, operands[0], at))

    def _load(self, number: int, at: tuple[Index, ...], dtype: DType) -> str:
        operand = self.kernel.inputs[number]
        if operand.layout.size == 0:
            return literal_expression(0, dtype)
        place = self._index(weighted_sum(zip(at, operand.layout.strides, strict=True), operand.layout.offset))
        if operand.packing is not None:
            return self._quantised(f"in{number}", place, operand.packing)
        return self._let("v", _loaded(f"in{number}[{place}]", operand))

    def _quantised(self, name: str, place: str, packing: Packing) -> str:
        """One weight out of its block."""
        scheme, per_word = packing.scheme, quantised.fields(packing.scheme)
        # A vector of words holds `4 * per_word` weights, neighbours in neighbouring words.
        vector = f"{place} / {4 * per_word}u * 4u"
        words = self._let("words", f"vec4<u32>({name}[{vector} + {place} % 4u])")
        first = packing.blocks * scheme.bits
        factors = self._let("pair", quantised.factors(scheme, f"{name}[{first}u + {place} / 32u]"))
        field = f"{place} / 4u % {per_word}u"
        return self._let("v", f"({quantised.weights(scheme, words, field, factors)}).x")

    def _concat(self, node: Node, operands: Sequence[Node], at: tuple[Index, ...]) -> str:
        axis = node.op.axis  # type: ignore[attr-defined]
        sizes = [o.tensor_type.dims[axis] for o in operands]
        ends = list(itertools.accumulate(sizes))
        parts = [part for part in zip(operands, sizes, ends, strict=True) if _may_reach(at[axis], *part[1:])]
        if len(parts) == 1:
            # The coordinate is known well enough, and with a part that can't be met goes its arithmetic.
            operand, size, end = parts[0]
            inner = weighted_sum([(at[axis], 1)], size - end)
            return self._value(operand, (*at[:axis], inner, *at[axis + 1 :]))
        along = self._index(at[axis])
        name = self._name("v")
        self._line(f"var {name}: {register_type(node.tensor_type.dtype)};")
        for number, (operand, size, end) in enumerate(parts):
            last = number == len(parts) - 1
            self._open("else" if last and number else f"{'else ' if number else ''}if ({along} < {end}u)")
            inner = self._restricted(at[axis], size - end, size)
            value = self._value(operand, (*at[:axis], inner, *at[axis + 1 :]))
            self._line(f"{name} = {value};")
            self._close()
        return name

    def _restricted(self, index: Index, shift: int, bound: int) -> Index:
        """`index + shift`, known from the enclosing condition to be below `bound`."""
        text = self._index(weighted_sum([(index, 1)], shift))
        return Variable(self._let("i", text), bound)

    def _pad(self, node: Node, operand: Node, at: tuple[Index, ...]) -> str:
        op = node.op
        name = self._name("v")
        shape = list(operand.tensor_type.dims)
        fill = literal_expression(op.value, node.tensor_type.dtype)  # type: ignore[attr-defined]
        if not all(_may_reach(i, size, low + size) for i, low, size in zip(at, op.low, shape, strict=True)):  # type: ignore[attr-defined]
            return fill
        self._line(f"var {name}: {register_type(node.tensor_type.dtype)} = {fill};")
        tests, inner = [], list(at)
        for axis, (low, high, size) in enumerate(zip(op.low, op.high, shape, strict=True)):  # type: ignore[attr-defined]
            if low or high:
                text = self._index(at[axis])
                tests += [f"{text} >= {low}u"] * bool(low) + [f"{text} < {low + size}u"] * bool(high)
        self._open(f"if ({' && '.join(tests) or 'true'})")
        for axis, (low, high, size) in enumerate(zip(op.low, op.high, shape, strict=True)):  # type: ignore[attr-defined]
            if low or high:
                inner[axis] = self._restricted(at[axis], -low, max(size, 1))
        self._line(f"{name} = {self._value(operand, tuple(inner))};")
        self._close()
        return name

    def _gather(self, node: Node, operands: Sequence[Node], at: tuple[Index, ...]) -> str:
        axis = node.op.axis  # type: ignore[attr-defined]
        data, indices = operands
        length = data.tensor_type.dims[axis]
        whole = node.op.name == "gather_elements"
        taken = at if whole else at[axis : axis + indices.tensor_type.rank]
        raw = self._value(indices, taken)
        most = max(length - 1, 0)
        if indices.tensor_type.dtype is DType.U32:
            place = f"min({raw}, {most}u)"
        else:
            place = f"u32(clamp(select({raw}, {raw} + {length}i, {raw} < 0i), 0i, {most}i))"
        found = Variable(self._let("i", place), max(length, 1))
        rest = at[axis + 1 :] if whole else at[axis + indices.tensor_type.rank :]
        return self._value(data, (*at[:axis], found, *rest))


def _stored(operand: Operand) -> str:
    return storage_type(operand.dtype) if operand.packing is None else "u32"


def _may_reach(index: Index, size: int, end: int) -> bool:
    """Whether an index can lie in the `size` places before `end`."""
    if isinstance(index, Literal):
        return end - size <= index.value < end
    return size > 0 and index.bound > end - size


def _loaded(element: str, operand: Operand) -> str:
    """An element as it is held in a register."""
    return {DType.BOOL: f"{element} != 0u", DType.F16: f"f32({element})"}.get(operand.dtype, element)


def _broadcast(at: tuple[Index, ...], operand: Node) -> tuple[Index, ...]:
    shape = operand.tensor_type.shape
    inner = at[len(at) - len(shape) :]
    return tuple(Literal(0) if size == 1 else index for index, size in zip(inner, shape, strict=True))


def _moved(node: Node, operand: Node, at: tuple[Index, ...]) -> tuple[Index, ...]:
    """Coordinates in the operand of a view op for coordinates in its result."""
    op = node.op
    shape = list(operand.tensor_type.dims)
    if op.name == "reshape":
        return coordinates_of(linear(at, node.tensor_type.dims), shape)
    if op.name == "transpose":
        place = {p: at[i] for i, p in enumerate(op.perm)}  # type: ignore[attr-defined]
        return tuple(place[axis] for axis in range(len(shape)))
    if op.name == "expand":
        return _broadcast(at, operand)
    if op.name == "slice":
        return tuple(
            weighted_sum([(index, step)], start)
            for index, start, step in zip(at, op.starts, op.steps, strict=True)  # type: ignore[attr-defined]
        )
    assert op.name == "flip", op.name
    return tuple(
        weighted_sum([(index, -1)], size - 1) if axis in op.axes else index  # type: ignore[attr-defined]
        for axis, (index, size) in enumerate(zip(at, shape, strict=True))
    )
