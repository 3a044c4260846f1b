"""Matrix products: the batched primitive, and the kernel-level forms that rewriting makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from meganeura.errors import GraphError
from meganeura.ir.dims import Dim
from meganeura.ir.op import Kind, Op, Work
from meganeura.ir.types import TensorType, ValueType, broadcast_shapes
from meganeura.ops.activation import ACTIVATIONS

if TYPE_CHECKING:
    from meganeura.ir.graph import Tensor


@dataclass(frozen=True)
class MatMul(Op):
    """`alpha * op(a) @ op(b)` with NumPy's batch broadcasting; `op` swaps the last two axes if asked.

    A rank-1 operand is a row (a) or a column (b) whose extra axis is dropped again, as in NumPy; the
    transposition flags then must be off. float16 operands accumulate in float32.
    """

    name: ClassVar[str] = "matmul"
    arity: ClassVar[int] = 2
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        a, b = inputs
        if a.dtype != b.dtype or not (a.dtype.is_float or a.dtype.is_integer):
            raise self.fail("operands must be numbers of one dtype", inputs)
        if a.rank == 0 or b.rank == 0:
            raise self.fail("operands must have rank 1 or more", inputs)
        if (a.rank == 1 and self.transpose_a) or (b.rank == 1 and self.transpose_b):
            raise self.fail("a rank-1 operand cannot be transposed", inputs)
        rows, inner_a = _matrix(a.shape if a.rank > 1 else (1, *a.shape), self.transpose_a)
        inner_b, columns = _matrix(b.shape if b.rank > 1 else (*b.shape, 1), self.transpose_b)
        if inner_a != inner_b:
            raise self.fail(f"inner dimensions {inner_a} and {inner_b} differ", inputs)
        try:
            batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except GraphError:
            raise self.fail("batch dimensions do not broadcast", inputs) from None
        tail = (() if a.rank == 1 else (rows,)) + (() if b.rank == 1 else (columns,))
        return TensorType(a.dtype, batch + tail)

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        a, b = inputs
        with np.errstate(all="ignore"):
            product = np.matmul(
                np.swapaxes(a, -1, -2) if self.transpose_a else a, np.swapaxes(b, -1, -2) if self.transpose_b else b
            )
            return product if self.alpha == 1.0 else product * self.alpha

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        assert isinstance(output, TensorType)
        a = inputs[0]
        inner = a.shape[-2] if self.transpose_a else a.shape[-1]
        flops = 2.0 * float(output.size) * float(inner)  # type: ignore[arg-type]
        return Work(flops, sum(i.nbytes for i in inputs), output.nbytes, "matmul")


@dataclass(frozen=True)
class FusedMatMul(Op):
    """`activation(alpha * op(a) @ op(b) + bias) + residual`, one kernel.

    Inputs: a, b, then bias if `bias` (broadcasting to the product, usually `[n]`), then residual if
    `residual` (of the product's shape). `activation` is "none" or a unary op's name (see ACTIVATIONS).
    """

    name: ClassVar[str] = "fused_matmul"
    arity: ClassVar[tuple[int, int]] = (2, 4)
    kind: ClassVar[Kind] = Kind.KERNEL
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    bias: bool = False
    activation: str = "none"
    residual: bool = False

    @property
    def product(self) -> MatMul:
        """The bare product this kernel starts from."""
        return MatMul(self.transpose_a, self.transpose_b, self.alpha)

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        if len(inputs) != 2 + self.bias + self.residual:
            raise self.fail("number of operands does not match the flags", inputs)
        if self.activation != "none" and self.activation not in ACTIVATIONS:
            raise self.fail(f"no such activation {self.activation!r}", inputs)
        out = self.product.infer(inputs[:2])
        if not out.dtype.is_float:
            raise self.fail("takes floats", inputs)
        for extra in inputs[2:]:
            if extra.dtype != out.dtype or broadcast_shapes(extra.shape, out.shape) != out.shape:
                raise self.fail("bias and residual must broadcast to the product", inputs)
        return out

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        value = self.product.evaluate(inputs[:2], output)
        rest = list(inputs[2:])
        if self.bias:
            value = value + rest.pop(0)
        if self.activation != "none":
            value = ACTIVATIONS[self.activation].evaluate([value], output)
        return value + rest.pop(0) if self.residual else value

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        graph = inputs[0].graph
        value = graph.apply(self.product, *inputs[:2])
        rest = list(inputs[2:])
        if self.bias:
            value = value + rest.pop(0)
        if self.activation != "none":
            value = graph.apply(ACTIVATIONS[self.activation], value)
        return value + rest.pop(0) if self.residual else value

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        base = self.product.work(inputs[:2], output)
        assert isinstance(output, TensorType)
        epilogue = float(output.size) * (self.bias + self.residual + (self.activation != "none") * 8)  # type: ignore[arg-type]
        return Work(base.flops + epilogue, sum(i.nbytes for i in inputs), base.written, "matmul")


@dataclass(frozen=True)
class GatedMatMul(Op):
    """`activation(x @ gate) * (x @ up)`, one kernel over the packed weight.

    Inputs: x `[.., k]` and weight `[k, 2n]` (`[2n, k]` when `transpose_b`): the gate's n columns, then the up
    projection's. Output `[.., n]`.
    """

    name: ClassVar[str] = "gated_matmul"
    arity: ClassVar[int] = 2
    kind: ClassVar[Kind] = Kind.KERNEL
    transpose_b: bool = False
    activation: str = "silu"

    def infer(self, inputs: Sequence[TensorType]) -> TensorType:
        x, weight = inputs
        if weight.rank != 2 or x.rank < 2 or not x.dtype.is_float or self.activation not in ACTIVATIONS:
            raise self.fail("needs x of rank 2 or more, a packed weight of rank 2 and a known activation", inputs)
        both = MatMul(transpose_b=self.transpose_b).infer(inputs)
        width = both.shape[-1]
        if not isinstance(width, int) or width % 2:
            raise self.fail("the packed width must be even", inputs)
        return TensorType(x.dtype, (*both.shape[:-1], width // 2))

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        both = MatMul(transpose_b=self.transpose_b).evaluate(inputs, output)
        half = both.shape[-1] // 2
        return ACTIVATIONS[self.activation].evaluate([both[..., :half]], output) * both[..., half:]

    def decompose(self, inputs: Sequence[Tensor]) -> Tensor:
        x, weight = inputs
        graph = x.graph
        axis = 0 if self.transpose_b else 1
        half = int(weight.shape[axis]) // 2  # type: ignore[arg-type]
        first, second = (weight[:half], weight[half:]) if axis == 0 else (weight[:, :half], weight[:, half:])
        product = MatMul(transpose_b=self.transpose_b)
        gate = graph.apply(ACTIVATIONS[self.activation], graph.apply(product, x, first))
        return gate * graph.apply(product, x, second)

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        assert isinstance(output, TensorType)
        inner = float(inputs[0].shape[-1])  # type: ignore[arg-type]
        flops = float(output.size) * (4.0 * inner + 10)  # type: ignore[arg-type]
        return Work(flops, sum(i.nbytes for i in inputs), output.nbytes, "matmul")


def _matrix(shape: tuple[Dim, ...], transposed: bool) -> tuple[Dim, Dim]:
    rows, columns = shape[-2:]
    return (columns, rows) if transposed else (rows, columns)
