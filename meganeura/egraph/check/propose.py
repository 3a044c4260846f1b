"""Guesses of types and attributes: random, but near what is already there, so that most of them fit somewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meganeura.ir.op import Op
from meganeura.ir.types import DType, TensorType
from meganeura.ops.activation import ACTIVATIONS

Shape = tuple[int, ...]
MOST_ELEMENTS = 600
"""Larger tensors are not proposed."""
DIMENSIONS: tuple[tuple[int, ...], ...] = (
    (2,),
    (2, 3),
    (1, 2),
    (2, 3, 4),
    (1, 2, 3),
    (2, 4),
    (1,),
    (0, 1, 2),
    (2, 2, 3, 5),
    (4, 2, 1),
)
"""Each attempt draws its dimensions from one of these: equal ones match more often, unequal ones show more."""
_LARGEST = (-3.4028234663852886e38, 3.4028234663852886e38)
_FLOATS = (1.0, 2.0, 0.5, 0.0, -1.0, -0.7, 1e-5, 1e-3, 0.25, 30.0, -math.inf, math.inf, *_LARGEST, -1e30)
_DTYPES = (DType.F32, DType.F32, DType.F32, DType.F32, DType.I32, DType.U32, DType.BOOL, DType.F16)


@dataclass
class Proposer:
    """Draws from one random stream.

    Attributes:
        rng: the stream. dims: lengths of axes to draw from. numbers: those of the rule's own text.
    """

    rng: np.random.Generator
    dims: Sequence[int]
    numbers: Sequence[float]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < probability)

    def pick(self, values: Sequence[Any]) -> Any:
        """One of the values, each as likely."""
        return values[int(self.rng.integers(len(values)))]

    def dim(self) -> int:
        """The length of an axis."""
        return int(self.pick(self.dims))

    # ---- types ------------------------------------------------------------------------------------

    def shape(self, near: Sequence[Shape]) -> Shape:
        """A shape like one of those nearby, or a fresh one."""
        if not near or self.chance(0.08):
            return tuple(self.dim() for _ in range(self.pick((0, 1, 2, 2, 3, 3, 3, 4, 4, 5))))
        shape = self.pick(near)
        for _ in range(self.pick((0, 0, 1, 1, 2))):
            shape = self._changed(shape, near)
        return shape

    def _changed(self, shape: Shape, near: Sequence[Shape]) -> Shape:
        n = len(shape)
        change = int(self.rng.integers(10))
        if n == 0:
            return (self.dim(),)
        at = int(self.rng.integers(n))
        other = self.pick(near)
        match change:
            case 0:
                return shape[1:]
            case 1:
                return (*shape[:at], 1, *shape[at + 1 :])
            case 2 if n > 1:
                return (*shape[:-2], shape[-1], shape[-2])
            case 3:
                return (*shape[:-1], self.dim())
            case 4 if n > 1:
                return (*shape[:-2], self.dim(), shape[-1])
            case 5:
                return shape[-1:]
            case 6 if other:
                return (*shape[:at], other[-1], *shape[at + 1 :])
            case 7:
                return (self.dim(), *shape)
            case 8:
                return shape[-2:]
            case _:
                return (*shape[:at], self.dim(), *shape[at + 1 :])

    def type(self, near: Sequence[TensorType]) -> TensorType:
        """A type like one of those nearby, or a fresh one."""
        shapes = [tuple(int(d) for d in t.shape) for t in near]  # type: ignore[arg-type]
        dtype = self.pick(near).dtype if near and self.chance(0.75) else self.pick(_DTYPES)
        shape = self.shape(shapes)
        while math.prod(shape) > MOST_ELEMENTS:
            shape = shape[1:]
        return TensorType(dtype, shape)

    # ---- attributes -------------------------------------------------------------------------------

    def number(self, dims: Sequence[int] = ()) -> float:
        """A float32 constant: of the rule, near it, the reciprocal of a length, or any."""
        with np.errstate(all="ignore"):
            return float(np.float32(self._number(dims)))

    def _number(self, dims: Sequence[int]) -> float:
        kind = self.rng.random()
        if self.numbers and kind < 0.55:
            value = self.pick(self.numbers)
            if abs(value) > 1e38 and self.chance(0.5):
                # Beyond a bound near float32's largest number there is room for that number only.
                return math.copysign(_LARGEST[1], value)
            return self.pick((value, value, value, -value, value * 1.0001, value * 1.02, value + 0.5))
        if dims and kind < 0.75:
            return 1.0 / max(int(self.pick(dims)), 1)
        if kind < 0.8:
            return float(np.float32(self.rng.normal()))
        return self.pick(_FLOATS)

    def attribute(self, op: type[Op], name: str, sort: str, operands: Sequence[Any]) -> Any:
        """A value for an attribute, given the operands' types."""
        x = operands[0] if operands and isinstance(operands[0], TensorType) else None
        shape: Shape = tuple(int(d) for d in x.shape) if x is not None else ()  # type: ignore[arg-type]
        n = len(shape)
        if sort == "bool":
            return self.chance(0.3)
        if sort == "String":
            return self._word(op, name)
        if sort == "f64":
            near = [int(d) for t in operands if isinstance(t, TensorType) for d in t.shape]  # type: ignore[arg-type]
            value = self.number(near)
            if name != "fill" and name != "value" and not abs(value) < 1e4:
                value = 0.5
            return abs(value) if name in ("eps", "softcap") else value
        if sort == "i64":
            if name == "axis":
                return int(self.pick((n - 1, n - 1, n - 2, n - 3, 0, 1, 2, n)))
            return int(self.pick((0, 0, 1, 2, 3)))
        return self._vector(op.name, name, shape, operands)

    def _word(self, op: type[Op], name: str) -> str:
        if name == "mask":
            return self.pick(("none", "none", "add", "fill"))
        if name == "activation":
            return self.pick(("none", *ACTIVATIONS))
        return self.pick(_DTYPES).value

    def _vector(self, op: str, name: str, shape: Shape, operands: Sequence[Any]) -> Shape:
        n = len(shape)
        if name == "axes":
            if not n or self.chance(0.5):
                return (max(n - 1, 0),)
            return tuple(a for a in range(n) if self.chance(0.4)) or (0,)
        if name == "perm":
            return self._perm(n)
        if op == "reshape":
            return self.reshaped(shape)
        if op == "expand":
            ones = [a for a, d in enumerate(shape) if d == 1]
            one = self.pick(ones) if ones and self.chance(0.6) else -1
            grown = tuple(self.dim() if d == 1 and one in (a, -1) else d for a, d in enumerate(shape))
            return (self.dim(), *grown) if self.chance(0.2) else grown
        if name in ("starts", "stops", "steps"):
            return tuple(self._end(name, d) for d in shape)
        if name in ("low", "high"):
            return tuple(int(self.pick((0, 0, 1, 2))) for _ in shape)
        others = [tuple(t.shape) for t in operands if isinstance(t, TensorType)]
        return self.shape(others)  # type: ignore[arg-type]

    def _end(self, name: str, dim: int) -> int:
        if name == "starts":
            return 0 if self.chance(0.7) else int(self.rng.integers(dim + 1))
        return (
            1 if name == "steps" and self.chance(0.8) else dim if self.chance(0.7) else int(self.rng.integers(dim + 1))
        )

    def _perm(self, n: int) -> Shape:
        axes = list(range(n))
        kind = self.rng.random()
        if kind < 0.4 and n > 1:
            axes[-1], axes[-2] = axes[-2], axes[-1]
        elif kind < 0.65 and n > 2:
            axes[-3], axes[-2] = axes[-2], axes[-3]
        elif kind > 0.75:
            axes = [int(a) for a in self.rng.permutation(n)]
        return tuple(axes)

    def reshaped(self, shape: Shape) -> Shape:
        """Another shape of as many elements: axes inserted, removed, merged, split."""
        for _ in range(self.pick((0, 1, 1, 1, 2, 2, 3))):
            n = len(shape)
            at = int(self.rng.integers(max(n, 1)))
            match int(self.rng.integers(5)):
                case 0:
                    shape = (*shape[: at + (n > 0)], 1, *shape[at + (n > 0) :]) if self.chance(0.7) else (1, *shape)
                case 1 if 1 in shape:
                    at = shape.index(1)
                    shape = (*shape[:at], *shape[at + 1 :])
                case 2 if n > 1:
                    at = min(at, n - 2)
                    shape = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
                case 3 if n and shape[at] > 1:
                    parts = [d for d in range(1, shape[at] + 1) if shape[at] % d == 0]
                    part = int(self.pick(parts))
                    shape = (*shape[:at], part, shape[at] // part, *shape[at + 1 :])
                case 4 if n > 1:
                    shape = tuple(int(shape[int(a)]) for a in self.rng.permutation(n)) if self.chance(0.3) else shape
        return shape
