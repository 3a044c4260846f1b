"""Hand-written programs for tests of the runtime: no lowering, no templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from meganeura.codegen.program import Program
from meganeura.codegen.shader import Shader
from meganeura.ir import OPS, ConstantData, DType, TensorType
from meganeura.lower.schedule import Buffer, Dispatch, Kernel, Layout, Operand, Plan, Port

TYPES = {DType.F32: "f32", DType.F16: "f16", DType.I32: "i32", DType.U32: "u32", DType.BOOL: "u32"}


@dataclass(frozen=True)
class ToyKernel(Kernel):
    family: ClassVar[str] = "toy"


@dataclass(frozen=True)
class ToyInPlace(ToyKernel):
    in_place: ClassVar[bool] = True


def operand(*shape: int, dtype: DType = DType.F32, strides: Sequence[int] | None = None, offset: int = 0) -> Operand:
    """A row-major operand, or one of the given strides."""
    if strides is None:
        return Operand(dtype, Layout(shape, Layout.contiguous(shape).strides, offset))
    return Operand(dtype, Layout(shape, tuple(strides), offset))


def elementwise(body: str, dtypes: Sequence[DType], count: int, label: str = "toy", writes: int = 1) -> Shader:
    """A shader over arrays `b0`, `b1`, ... whose body sets elements `i` below `count` of the last `writes` ones."""
    access = ["read"] * (len(dtypes) - writes) + ["read_write"] * writes
    lines = ["enable f16;"] if DType.F16 in dtypes else []
    lines += [
        f"@group(0) @binding({i}) var<storage, {a}> b{i}: array<{TYPES[d]}>;"
        for i, (d, a) in enumerate(zip(dtypes, access, strict=True))
    ]
    lines += [
        "@compute @workgroup_size(64)",
        f"fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ let i = id.x; if (i < {count}u) {{ {body} }} }}",
    ]
    return Shader(label, "\n".join(lines), (max(1, -(-count // 64)), 1, 1), tuple(access))


@dataclass
class PlanBuilder:
    """Collects buffers, ports and dispatches of a plan."""

    name: str = "toy"
    buffers: list[Buffer] = field(default_factory=list)
    dispatches: list[Dispatch] = field(default_factory=list)
    shaders: list[Shader] = field(default_factory=list)
    ports: dict[str, list[Port]] = field(default_factory=lambda: {"input": [], "output": [], "state": []})

    def buffer(self, role: str, shape: Operand, name: str = "", constant: ConstantData | None = None) -> int:
        """A buffer of an operand's size; inputs, outputs and states get a port."""
        index = len(self.buffers)
        self.buffers.append(Buffer(index, shape.nbytes, role, name, constant))
        if role in self.ports:
            self.ports[role].append(Port(name, index, shape))
        return index

    def constant(self, array: np.ndarray, name: str = "c") -> int:
        kind = TensorType(next(d for d in DType if d.numpy == array.dtype), array.shape)
        return self.buffer("constant", Operand.contiguous(kind), name, ConstantData(name, kind, lambda: array))

    def dispatch(
        self,
        shader: Shader,
        inputs: Sequence[tuple[int, Operand]],
        outputs: Sequence[tuple[int, Operand]],
        in_place: bool = False,
    ) -> None:
        kind = ToyInPlace if in_place else ToyKernel
        kernel = kind(OPS["add"](), tuple(o for _, o in inputs), tuple(o for _, o in outputs))
        ids = tuple(b for b, _ in (*inputs, *outputs))
        self.dispatches.append(Dispatch(kernel, ids, len(self.dispatches), ("here",)))
        self.shaders.append(shader)

    def build(self) -> Program:
        plan = Plan(
            self.name,
            tuple(self.buffers),
            tuple(self.dispatches),
            tuple(self.ports["input"]),
            tuple(self.ports["output"]),
            tuple(self.ports["state"]),
        )
        return Program(plan, tuple(self.shaders))


def doubling(count: int = 100, dtype: DType = DType.F32) -> Program:
    """y = 2 x."""
    build = PlanBuilder()
    shape = operand(count, dtype=dtype)
    x, y = build.buffer("input", shape, "x"), build.buffer("output", shape, "y")
    build.dispatch(elementwise("b1[i] = b0[i] * 2;", [dtype, dtype], count, "double"), [(x, shape)], [(y, shape)])
    return build.build()
