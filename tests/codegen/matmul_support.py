"""Running one matrix product kernel over chosen layouts, and comparing it with the reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meganeura.codegen.matmul import render_matmul
from meganeura.facts import DeviceFacts
from meganeura.ir.types import DType, TensorType, as_dtype
from meganeura.lower.matmul import MatMulKernel, matmul_kernel
from meganeura.lower.schedule import Layout, Operand
from meganeura.options import CompileOptions
from meganeura.runtime.device import Device

GUARD = 256


@dataclass(frozen=True)
class Placed:
    """A tensor and the memory it lies in."""

    values: np.ndarray
    memory: np.ndarray
    layout: Layout

    @property
    def operand(self) -> Operand:
        return Operand(as_dtype(self.values.dtype), self.layout)


def contiguous(values: np.ndarray) -> Placed:
    """A tensor on its own in row-major order."""
    return Placed(values, values, Layout.contiguous(values.shape))


def placed(values: np.ndarray, order: tuple[int, ...] | None = None, padding: int = 0, offset: int = 0) -> Placed:
    """A tensor with its axes stored in another order, NaN between its rows and before its start."""
    order = order or tuple(range(values.ndim))
    stored = values.transpose(order)
    padded = np.full((*stored.shape[:-1], stored.shape[-1] + padding), np.nan, values.dtype)
    padded[..., : stored.shape[-1]] = stored
    memory = np.concatenate([np.full(offset, np.nan, values.dtype), padded.reshape(-1)])
    whole = Layout.contiguous(padded.shape)
    inner = Layout(stored.shape, whole.strides, offset)
    layout = inner.permuted(tuple(int(i) for i in np.argsort(order)))
    # The binding ends where the tensor does: what a kernel reads past it is NaN.
    return Placed(values, memory[: layout.extent], layout)


def random(shape: tuple[int, ...], dtype: DType = DType.F32, seed: int = 0) -> np.ndarray:
    """Normal floats, or small integers."""
    generator = np.random.default_rng([seed, *shape])
    if dtype.is_integer:
        return generator.integers(-9 if dtype is DType.I32 else 0, 10, shape).astype(dtype.numpy)
    return generator.standard_normal(shape).astype(dtype.numpy)


def kernel_of(op, tensors: list[Placed], facts: DeviceFacts, schedule: str | None, out: DType) -> MatMulKernel:
    """The kernel of an op over placed tensors."""
    types = [TensorType(out, tensor.values.shape) for tensor in tensors]
    operands = tuple(tensor.operand for tensor in tensors)
    return matmul_kernel(op, operands, op.infer(types), facts, CompileOptions(), schedule)


def check(
    device: Device,
    op,
    tensors: list[Placed],
    schedule: str | None = None,
    out: DType = DType.F32,
    facts: DeviceFacts | None = None,
) -> MatMulKernel:
    """Run on the device over guarded memory and compare with the reference; returns the kernel."""
    facts = facts or device.facts
    kernel = kernel_of(op, tensors, facts, schedule, out)
    shape = kernel.outputs[0].shape
    poison = np.full(shape, np.nan if out.is_float else 77, out.numpy)
    shader = render_matmul(kernel, facts)
    memories = [tensor.memory for tensor in tensors]
    before = [memory.copy() for memory in memories]
    *after, result = device.run(shader, [*memories, poison], guard=GUARD)
    for one, other in zip(before, after, strict=True):
        assert one.tobytes() == other.tobytes()
    wide = [t.values.astype(np.float64 if t.values.dtype.kind == "f" else np.int64) for t in tensors]
    expected = np.asarray(op.evaluate(wide, kernel.outputs[0].type))
    if out.is_integer:
        assert np.array_equal(result, expected.astype(out.numpy))
        return kernel
    magnitude = np.asarray(op.evaluate([np.abs(w) for w in wide], kernel.outputs[0].type))
    bound = (1e-2 if out is DType.F16 else 2e-5) * (np.abs(magnitude) + 1)
    assert np.isfinite(result).all()
    assert (np.abs(result - expected) <= bound).all()
    return kernel
