"""The one form of every matrix product: batches of rows times columns over strided memory.

Transposition flags, rank-1 operands, broadcast batches and the packed halves of a gated product all become
strides here, so that schedules and code generation see a single case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meganeura.ir.op import Op
from meganeura.ir.packing import BLOCK
from meganeura.ir.types import DType
from meganeura.lower.schedule import Layout, Operand, Packing


@dataclass(frozen=True, slots=True)
class Access:
    """Where one operand's elements lie: `offset + sum(batch * strides) + outer * i + inner * j`, in elements.

    `a` runs over (row, k), `b` over (column, k), the rest over (row, column). Strides along axes of length 1 are 0.
    Only `b` may be packed.
    """

    dtype: DType
    offset: int
    batch: tuple[int, ...]
    outer: int
    inner: int
    packing: Packing | None = None

    def aligned(self, along: str, length: int) -> bool:
        """Whether groups of four neighbours along "outer" or "inner", of this length, can be loaded as one vec4."""
        if self.packing is not None and along == "outer":
            return False
        step, across = (self.outer, self.inner) if along == "outer" else (self.inner, self.outer)
        return step == 1 and length > 0 and not any(n % 4 for n in (length, across, self.offset, *self.batch))


@dataclass(frozen=True, slots=True)
class Problem:
    """`activation(alpha * a @ b + bias) + residual` for each batch entry, or with `gate` the gated product.

    Attributes:
        batch: lengths of the batch axes, all above 1. m, n, k: rows, columns, length of the sums.
        gate: elements from a gate column of b to the up column it is paired with; None for a plain product.
        activation: an op's name or "none".
        exchanged: the kernel's first operand is `b` and its second `a`.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Access
    b: Access
    output: Access
    bias: Access | None = None
    residual: Access | None = None
    gate: int | None = None
    alpha: float = 1.0
    activation: str = "none"
    exchanged: bool = False

    @property
    def batches(self) -> int:
        count = 1
        for length in self.batch:
            count *= length
        return count

    @property
    def whole_blocks(self) -> bool:
        """Whether every column of b consists of whole quantised blocks, one after another along k."""
        b = self.b
        spans = (self.k, b.outer, b.offset, self.gate or 0, *b.batch)
        return b.packing is not None and b.inner == 1 and not any(n % BLOCK for n in spans)

    @property
    def accesses(self) -> dict[str, Access]:
        """Operands that are there, by name."""
        named = {"a": self.a, "b": self.b, "bias": self.bias, "residual": self.residual, "output": self.output}
        return {name: access for name, access in named.items() if access is not None}

    def with_accesses(self, changed: dict[str, Access], **sizes: object) -> Problem:
        return replace(self, **changed, **sizes)  # type: ignore[arg-type]

    def swapped(self) -> Problem:
        """The transposed product: rows become columns, with a and b in each other's place."""
        changed = {
            name: replace(access, outer=access.inner, inner=access.outer)
            for name, access in self.accesses.items()
            if name in ("bias", "residual", "output")
        }
        exchanged = {**changed, "a": self.b, "b": self.a}
        return self.with_accesses(exchanged, m=self.n, n=self.m, exchanged=not self.exchanged)


def problem_of(op: Op, inputs: Sequence[Operand], output: Operand) -> Problem:
    """Normalise a matmul, fused_matmul or gated_matmul over operands in their layouts."""
    gated = op.name == "gated_matmul"
    transpose_a = bool(getattr(op, "transpose_a", False))
    transpose_b = bool(op.transpose_b)  # type: ignore[attr-defined]
    a, b = inputs[0].layout, inputs[1].layout
    a_vector, b_vector = len(a.shape) == 1, len(b.shape) == 1
    a = _with_axis(a, 0) if a_vector else _swapped(a) if transpose_a else a
    b = _swapped(_with_axis(b, 1)) if b_vector else b if transpose_b else _swapped(b)
    out = _with_axis(output.layout, len(output.shape)) if b_vector else output.layout
    out = _with_axis(out, len(out.shape) - 1) if a_vector else out
    batch, (m, n) = out.shape[:-2], out.shape[-2:]
    k = a.shape[-1]

    def extra(operand: Operand) -> Access:
        layout = operand.layout.expanded(output.shape)
        layout = _with_axis(layout, len(layout.shape)) if b_vector else layout
        return _access(operand.dtype, _with_axis(layout, len(layout.shape) - 1) if a_vector else layout)

    extras = [extra(operand) for operand in inputs[2:]]
    problem = Problem(
        batch,
        m,
        n,
        k,
        _access(inputs[0].dtype, a.expanded((*batch, m, k))),
        replace(_access(inputs[1].dtype, b.expanded((*batch, b.shape[-2], k))), packing=inputs[1].packing),
        _access(output.dtype, out),
        bias=extras.pop(0) if getattr(op, "bias", False) else None,
        residual=extras.pop(0) if getattr(op, "residual", False) else None,
        gate=n * b.strides[-2] if gated else None,
        alpha=float(getattr(op, "alpha", 1.0)),
        activation=str(getattr(op, "activation", "none")),
    )
    return _merged(_dropped(problem))


def _with_axis(layout: Layout, axis: int) -> Layout:
    shape, strides = list(layout.shape), list(layout.strides)
    shape.insert(axis, 1)
    strides.insert(axis, 0)
    return Layout(tuple(shape), tuple(strides), layout.offset)


def _swapped(layout: Layout) -> Layout:
    rank = len(layout.shape)
    return layout.permuted((*range(rank - 2), rank - 1, rank - 2))


def _access(dtype: DType, layout: Layout) -> Access:
    strides = tuple(0 if d == 1 else s for d, s in zip(layout.shape, layout.strides, strict=True))
    return Access(dtype, layout.offset, strides[:-2], strides[-2], strides[-1])


def _dropped(problem: Problem) -> Problem:
    """Without batch axes of length 1."""
    kept = [i for i, length in enumerate(problem.batch) if length != 1]
    changed = {n: replace(x, batch=tuple(x.batch[i] for i in kept)) for n, x in problem.accesses.items()}
    return problem.with_accesses(changed, batch=tuple(problem.batch[i] for i in kept))


def _merged(problem: Problem) -> Problem:
    """With batch axes folded into the rows where b doesn't see them, or into one another."""
    for axis, length in enumerate(problem.batch):
        rows = problem.m
        walkers = {n: x for n, x in problem.accesses.items() if n != "b"}
        folds = all(rows == 1 or x.batch[axis] == rows * x.outer for x in walkers.values())
        if problem.b.batch[axis] == 0 and folds and rows > 0:
            changed = {n: _without(x, axis) for n, x in problem.accesses.items()}
            if rows == 1:
                changed |= {n: replace(changed[n], outer=x.batch[axis]) for n, x in walkers.items()}
            return _merged(_removed(problem.with_accesses(changed, m=rows * length), axis))
        for inner, step in enumerate(problem.batch):
            if inner != axis and all(x.batch[axis] == step * x.batch[inner] for x in problem.accesses.values()):
                changed = {n: _without(x, axis) for n, x in problem.accesses.items()}
                lengths = list(problem.batch)
                lengths[inner] = step * length
                return _merged(_removed(problem.with_accesses(changed, batch=tuple(lengths)), axis))
    return problem


def _without(access: Access, axis: int) -> Access:
    return replace(access, batch=access.batch[:axis] + access.batch[axis + 1 :])


def _removed(problem: Problem, axis: int) -> Problem:
    return replace(problem, batch=problem.batch[:axis] + problem.batch[axis + 1 :])
