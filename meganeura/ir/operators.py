"""NumPy's operators on tensor handles: each adds one node to the handle's graph."""

from __future__ import annotations

from typing import Any

from meganeura.errors import GraphError
from meganeura.ir.indexing import complete_shape, index
from meganeura.ir.types import DType, as_dtype, normalize_axis


class Operators:
    """What `Tensor` inherits; results are handles of the same graph."""

    __slots__ = ()
    __array_priority__ = 1000

    graph: Any
    shape: Any
    rank: int

    def _binary(self, name: str, other: Any, swap: bool = False) -> Any:
        pair = (other, self) if swap else (self, other)
        return self.graph.apply(name, *pair)

    def __add__(self, other: Any) -> Any:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("add", other, swap=True)

    def __sub__(self, other: Any) -> Any:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("sub", other, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("mul", other, swap=True)

    def __truediv__(self, other: Any) -> Any:
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("div", other, swap=True)

    def __pow__(self, other: Any) -> Any:
        return self._binary("pow", other)

    def __neg__(self) -> Any:
        return self.graph.apply("neg", self)

    def __matmul__(self, other: Any) -> Any:
        return self._binary("matmul", other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._binary("matmul", other, swap=True)

    def __lt__(self, other: Any) -> Any:
        return self._binary("less", other)

    def __le__(self, other: Any) -> Any:
        return self._binary("less_equal", other)

    def __gt__(self, other: Any) -> Any:
        return self._binary("less", other, swap=True)

    def __ge__(self, other: Any) -> Any:
        return self._binary("less_equal", other, swap=True)

    def __getitem__(self, item: Any) -> Any:
        """Basic indexing: ints, slices with positive steps, `...` and None, as NumPy reads them."""
        return index(self, item)

    def reshape(self, *shape: Any) -> Any:
        """Same elements in row-major order under another shape; one dimension may be -1."""
        dims = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        return self.graph.apply("reshape", self, shape=complete_shape(self.shape, dims))

    def transpose(self, *perm: Any) -> Any:
        """Axes in the order `perm` (reversed when none is given)."""
        axes = perm[0] if len(perm) == 1 and isinstance(perm[0], tuple | list) else perm
        order = tuple(normalize_axis(a, self.rank, "transpose") for a in axes) or tuple(reversed(range(self.rank)))
        return self.graph.apply("transpose", self, perm=order)

    def astype(self, dtype: DType | str) -> Any:
        """Convert elements; float to integer truncates and saturates."""
        return self.graph.apply("cast", self, dtype=as_dtype(dtype))

    def __iter__(self) -> Any:
        raise GraphError("a tensor can't be iterated over", remedy="index or slice it")

    def __bool__(self) -> bool:
        raise GraphError("a tensor has no truth value while the graph is built", remedy="use where()")
