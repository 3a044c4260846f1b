"""The schedule's vocabulary: layouts, operands, kernels, dispatches, buffers, plans.

A kernel is a value: which op, over which memory layouts, by which method. Code generation turns it into
WGSL; nothing here knows how. Every kernel family takes operands of any strides (0 for broadcast), so views
(reshape, transpose, slice, expand) cost nothing wherever strides can express them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from meganeura.ir.constants import ConstantData
from meganeura.ir.op import Op, sizeof
from meganeura.ir.packing import Scheme
from meganeura.ir.types import DType, TensorType


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a tensor lie in its buffer, counted in elements.

    Element `i` stands at `offset + sum(i[a] * strides[a])`. Strides are zero or more.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def contiguous(shape: Sequence[int]) -> Layout:
        """Row-major layout without gaps."""
        strides, step = [], 1
        for dim in reversed(shape):
            strides.append(step)
            step *= dim
        return Layout(tuple(shape), tuple(reversed(strides)))

    @property
    def size(self) -> int:
        return sizeof(self.shape)

    @property
    def extent(self) -> int:
        """One past the last element touched."""
        if self.size == 0:
            return 0
        return self.offset + sum((d - 1) * s for d, s in zip(self.shape, self.strides, strict=True)) + 1

    @property
    def is_contiguous(self) -> bool:
        """Row-major without gaps, wherever it starts (axes of length 1 don't matter)."""
        step = 1
        for dim, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if dim != 1 and stride != step:
                return self.size == 0
            step *= dim
        return True

    def permuted(self, perm: Sequence[int]) -> Layout:
        """Axes reordered."""
        return Layout(tuple(self.shape[p] for p in perm), tuple(self.strides[p] for p in perm), self.offset)

    def sliced(self, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Layout:
        """Basic slicing with positive steps."""
        shape = tuple(-(-(b - a) // s) for a, b, s in zip(starts, stops, steps, strict=True))
        offset = self.offset + sum(a * s for a, s in zip(starts, self.strides, strict=True))
        return Layout(shape, tuple(s * t for s, t in zip(self.strides, steps, strict=True)), offset)

    def expanded(self, shape: Sequence[int]) -> Layout:
        """NumPy broadcasting to `shape`."""
        lead = len(shape) - len(self.shape)
        strides = [0] * lead + [
            0 if have == 1 and want != 1 else s
            for have, want, s in zip(self.shape, shape[lead:], self.strides, strict=True)
        ]
        return Layout(tuple(shape), tuple(strides), self.offset)

    def reshaped(self, shape: Sequence[int]) -> Layout | None:
        """The same elements in row-major order under `shape`, or None where strides can't say it."""
        if self.size == 0 or self.is_contiguous:
            return Layout(tuple(shape), Layout.contiguous(shape).strides, self.offset)
        old = [(d, s) for d, s in zip(self.shape, self.strides, strict=True) if d != 1]
        strides: list[int] = []
        remaining = [d for d in shape if d != 1]
        at = 0
        while remaining:
            # Take the fewest old and new axes that hold equally many elements.
            new_count, taken = remaining[0], [remaining.pop(0)]
            old_count, group = old[at][0], [old[at]]
            at += 1
            while new_count != old_count:
                if new_count < old_count:
                    taken.append(remaining.pop(0))
                    new_count *= taken[-1]
                else:
                    group.append(old[at])
                    old_count *= old[at][0]
                    at += 1
            if any(a[1] != b[0] * b[1] for a, b in zip(group, group[1:], strict=False)):
                return None
            step = group[-1][1]
            inner = []
            for dim in reversed(taken):
                inner.append(step)
                step *= dim
            strides += reversed(inner)
        found = iter(strides)
        return Layout(tuple(shape), tuple(0 if d == 1 else next(found) for d in shape), self.offset)


@dataclass(frozen=True, slots=True)
class Packing:
    """How a binding holds weights in quantised blocks: by which scheme, and how many blocks in all."""

    scheme: Scheme
    blocks: int


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor as a kernel sees it in one of its bindings.

    Attributes:
        dtype: of the elements. layout: where they lie.
        packing: for quantised weights, how the binding holds them; the layout then counts weights in the order of
            the blocks. Only matrix products (as their right operand) and pointwise kernels read such operands.
    """

    dtype: DType
    layout: Layout
    packing: Packing | None = None

    @staticmethod
    def contiguous(tensor_type: TensorType) -> Operand:
        """Row-major operand of a concrete type."""
        return Operand(tensor_type.dtype, Layout.contiguous(tensor_type.dims))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.layout.shape)

    @property
    def nbytes(self) -> int:
        """Bytes the binding must hold: up to the last element touched, a multiple of 4, never 0."""
        if self.packing is not None:
            return self.packing.scheme.words(self.packing.blocks) * 4
        return max(4, -(-self.layout.extent * self.dtype.itemsize // 4) * 4)


@dataclass(frozen=True)
class Kernel:
    """Base of all kernel families.

    Attributes:
        op: the op computed, with its attributes.
        inputs: operands in the op's order. outputs: results in the op's order.
    Class attributes:
        family: short name of the family, also the start of its label.
        in_place: the first output is the first input, updated where it lies (they share one binding).
    """

    family: ClassVar[str] = ""
    in_place: ClassVar[bool] = False
    op: Op
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    @property
    def label(self) -> str:
        """A readable name: family, op and output shape."""
        shape = "x".join(map(str, self.outputs[0].shape)) or "scalar"
        return f"{self.op.name}_{shape}"


@dataclass(frozen=True)
class Buffer:
    """One device buffer of a plan.

    Attributes:
        id: position in the plan. nbytes: size without debug guards, a multiple of 4 and never 0.
        role: "input", "output", "state", "constant" or "temp". name: of the leaf, output or constant key.
        constant: for constants, the data in the element order of this buffer.
    """

    id: int
    nbytes: int
    role: str
    name: str = ""
    constant: ConstantData | None = None


@dataclass(frozen=True)
class Dispatch:
    """One kernel over concrete buffers.

    Attributes:
        buffers: buffer ids, inputs then outputs, in the kernel's order (an in-place kernel names one twice).
        node: id of the graph node it computes. sources: source nodes covered. rules: rewrites that led here.
    """

    kernel: Kernel
    buffers: tuple[int, ...]
    node: int
    sources: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Port:
    """A named input, output or state of a plan: which buffer, seen through which operand."""

    name: str
    buffer: int
    operand: Operand


@dataclass(frozen=True)
class InputRange:
    """Values that an integer input may have, both ends included; the runtime refuses others before anything runs.

    Attributes:
        what: what the values are used as. op, source: the first reader that limits them.
    """

    input: str
    low: int
    high: int
    what: str
    op: str
    source: str = ""


@dataclass(frozen=True)
class Plan:
    """What lowering hands to code generation: kernels in order over planned memory."""

    name: str
    buffers: tuple[Buffer, ...]
    dispatches: tuple[Dispatch, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[Port, ...]
    ranges: tuple[InputRange, ...] = ()
    temp_bytes_without_reuse: int = 0
    notes: dict[str, str] = field(default_factory=dict)
