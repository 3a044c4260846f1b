"""What an op is: a frozen dataclass of attributes with its shape rule, reference, decomposition and cost.

Every op class lives in `meganeura/ops`; this module holds the base class and the registry, so that the
graph, the text form and the e-graph schema can treat ops generically. Attributes are limited to `int`,
`float`, `bool`, `str`, `DType` and tuples of dimensions: exactly what the text form prints and the e-graph encodes.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from meganeura.errors import GraphError
from meganeura.ir.dims import Dim, SymDim, bind_shape, concrete
from meganeura.ir.types import TensorType, ValueType

OPS: dict[str, type[Op]] = {}
"""Every op class by its IR name; filled as the modules of `meganeura.ops` are imported."""


class Kind(enum.Enum):
    """Primitive ops define the semantics, composites decompose into them, kernel ops are made by rewriting."""

    PRIMITIVE = "primitive"
    COMPOSITE = "composite"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel for one node must do at least: used by the cost model.

    Attributes:
        flops: multiply-adds counted as two, transcendental functions as eight.
        read: bytes read. written: bytes written.
        kind: which rate of the device profile applies: "elementwise", "matmul", "reduce", "attention", "move".
    """

    flops: float
    read: float
    written: float
    kind: str = "elementwise"


@dataclass(frozen=True)
class Op:
    """Base class of ops. Subclasses are frozen dataclasses whose fields are the attributes.

    Class attributes:
        name: the IR's name, snake case, unique.
        arity: number of inputs, or a `(least, most)` range (`most` None for any number).
        kind: see `Kind`.
        elementwise: each output element depends on the broadcast input elements at its place only.
        view: no arithmetic; lowering may express it as an index map instead of a copy.
        foldable: may be evaluated at compile time when every input is a constant.
    """

    name: ClassVar[str] = ""
    arity: ClassVar[int | tuple[int, int | None]] = 1
    kind: ClassVar[Kind] = Kind.PRIMITIVE
    elementwise: ClassVar[bool] = False
    view: ClassVar[bool] = False
    foldable: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.name:
            if cls.name in OPS and OPS[cls.name].__qualname__ != cls.__qualname__:
                raise GraphError(f"two ops are called {cls.name!r}")
            OPS[cls.name] = cls

    def infer(self, inputs: Sequence[TensorType]) -> ValueType:
        """Output type from the input types; raises GraphError naming the op where they don't fit."""
        raise NotImplementedError(self.name)

    def evaluate(self, inputs: Sequence[np.ndarray], output: ValueType) -> Any:
        """Reference semantics: float64, int64 and bool arrays in, the same out (a tuple for several outputs).

        The evaluator rounds the result to the node's dtype; this function must not.
        """
        raise NotImplementedError(self.name)

    def decompose(self, inputs: Sequence[Any]) -> Any:
        """Composite and kernel ops only: the same value from simpler ops.

        Args:
            inputs: handles (`ir.graph.Tensor`) of the operands; nodes are added to their graph.
        Returns:
            The handle of the result, or a tuple of handles for several outputs.
        """
        raise NotImplementedError(self.name)

    def work(self, inputs: Sequence[TensorType], output: ValueType) -> Work:
        """Operations and bytes of a kernel that computes this node alone."""
        outputs = (output,) if isinstance(output, TensorType) else output.items
        written = sum(o.nbytes for o in outputs)
        elements = sum(sizeof(o.shape) for o in outputs)
        kind = "elementwise" if self.elementwise else "move"
        return Work(self.flops_per_element() * elements, sum(i.nbytes for i in inputs), written, kind)

    def flops_per_element(self) -> float:
        """Operations per output element, for the default `work`."""
        return 1.0

    # ---- generic services -------------------------------------------------------------------------

    def attributes(self) -> dict[str, Any]:
        """Attribute names and values in declaration order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def bind(self, dims: dict[str, int]) -> Op:
        """The same op with the symbols in its attributes replaced."""
        changed = {}
        for key, value in self.attributes().items():
            if isinstance(value, tuple) and any(isinstance(item, SymDim) for item in value):
                changed[key] = bind_shape(value, dims)
            elif isinstance(value, SymDim):
                changed[key] = value.bind(dims)
        return self if not changed else type(self)(**{**self.attributes(), **changed})

    def check_arity(self, count: int) -> None:
        """Raise GraphError when `count` inputs are not what the op takes."""
        least, most = self.arity if isinstance(self.arity, tuple) else (self.arity, self.arity)
        if count < least or (most is not None and count > most):
            wanted = str(least) if least == most else f"{least} to {'any number' if most is None else most}"
            raise GraphError(f"{self.name} takes {wanted} inputs, got {count}", op=self.name)

    def fail(self, message: str, inputs: Sequence[ValueType]) -> GraphError:
        """A GraphError for this op that shows the input types; the caller raises it."""
        return GraphError(f"{self.name}: {message}", op=self.name, shapes=", ".join(map(repr, inputs)))


def sizeof(dims: Sequence[Dim]) -> int:
    """Element count of a concrete shape as an int."""
    return math.prod(concrete(tuple(dims)))
