"""The graph: nodes in static single assignment, and the NumPy-like handle that builds them.

A node never changes once added; a phase that rewrites makes a new graph. Node ids are positions in
`Graph.nodes`, and inputs always come before their readers, so the list is a topological order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from meganeura.errors import GraphError
from meganeura.ir.constants import ConstantData, constant_from_array
from meganeura.ir.dims import Dim, as_shape, symbols_of
from meganeura.ir.op import OPS, Kind, Op
from meganeura.ir.operators import Operators
from meganeura.ir.types import DType, TensorType, TupleType, ValueType, as_dtype


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One operation.

    Attributes:
        id: position in the graph. op: op and attributes. inputs: ids of the operands.
        type: type of the result. sources: names of the source nodes this one came from.
    """

    id: int
    op: Op
    inputs: tuple[int, ...]
    type: ValueType
    sources: tuple[str, ...] = ()

    @property
    def tensor_type(self) -> TensorType:
        """The type of a node with one output."""
        if isinstance(self.type, TupleType):
            raise GraphError(f"{self.op.name} has several outputs; read one through proj", op=self.op.name)
        return self.type


class Graph:
    """A typed tensor program.

    Inputs, constants and states are leaf nodes; `outputs` names results, `updates` names the new value
    of each state. Build with `input`, `constant`, `apply` and the operators of `Tensor`::

        g = Graph()
        x = g.input("x", ("batch", 384))
        w = g.constant(np.ones((384, 8), np.float32))
        g.output("y", x @ w)
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.outputs: dict[str, int] = {}
        self.updates: dict[str, int] = {}
        self.constants: dict[str, ConstantData] = {}
        self._leaves: dict[str, int] = {}
        self._interned: dict[tuple[Op, tuple[int, ...]], int] = {}
        self._scope: tuple[str, ...] = ()

    # ---- building ---------------------------------------------------------------------------------

    def input(self, name: str, shape: Iterable[Dim | str] = (), dtype: DType | str = DType.F32) -> Tensor:
        """A value given at every call; string dimensions are symbols bound from the array's shape."""
        return self._leaf("input", name, shape, dtype)

    def state(self, name: str, shape: Iterable[Dim | str], dtype: DType | str = DType.F32) -> Tensor:
        """A value that lives on the device between calls; give its next value with `update`."""
        return self._leaf("state", name, shape, dtype)

    def _leaf(self, op: str, name: str, shape: Iterable[Dim | str], dtype: DType | str) -> Tensor:
        if not name or name in self._leaves:
            raise GraphError(f"{op} name {name!r} is empty or taken", op=op, remedy="give each a name of its own")
        tensor = self.apply(OPS[op](name, as_dtype(dtype), as_shape(shape)), source=name)  # type: ignore[call-arg]
        self._leaves[name] = tensor.id
        return tensor

    def constant(self, value: Any, dtype: DType | str | None = None, source: str | None = None) -> Tensor:
        """A constant from a scalar, an array or a `ConstantData`; uniform arrays become `full`."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, ConstantData):
            data = value
        else:
            array = np.asarray(value)
            if dtype is not None:
                array = array.astype(as_dtype(dtype).numpy)
            data = constant_from_array(array, source or "constant")
            array = data.load()
            if array.size and array.size <= 2**22 and _uniform(array):
                return self.full(array.reshape(-1)[0].item(), array.shape, data.type.dtype, source=source)
        self.constants.setdefault(data.key, data)
        op = OPS["constant"](data.key, data.type.dtype, data.type.shape)  # type: ignore[call-arg]
        return self.apply(op, source=source)

    def full(
        self, value: float, shape: Iterable[Dim | str] = (), dtype: DType | str = DType.F32, source: str | None = None
    ) -> Tensor:
        """A tensor of one repeated value."""
        op = OPS["full"](float(value), as_dtype(dtype), as_shape(shape))  # type: ignore[call-arg]
        return self.apply(op, source=source)

    def apply(self, op: Op | str, *inputs: Any, source: str | Sequence[str] | None = None, **attributes: Any) -> Tensor:
        """Add a node (or find the identical one) and return its handle.

        Args:
            op: an op, or its name with its attributes as keywords.
            inputs: tensors of this graph; Python numbers become `full` of the other operand's dtype.
            source: provenance; defaults to the current `scope`.
        """
        if isinstance(op, str):
            if op not in OPS:
                raise GraphError(f"no such op: {op!r}", remedy="see meganeura.ir.op.OPS for the names")
            try:
                op = OPS[op](**attributes)
            except TypeError as error:
                raise GraphError(f"{op}: {error}", op=op) from None
        op.check_arity(len(inputs))
        dtype = next((t.type.dtype for t in inputs if isinstance(t, Tensor) and isinstance(t.type, TensorType)), None)
        ids = tuple(self._operand(value, dtype) for value in inputs)
        known = self._interned.get((op, ids))
        if known is not None:
            self._note_source(known, source)
            return Tensor(self, known)
        types = [self.nodes[i].type for i in ids]
        if any(isinstance(t, TupleType) for t in types) and op.name != "proj":
            raise op.fail("an operand has several outputs; read one through proj", types)
        sources = self._scope if source is None else (source,) if isinstance(source, str) else tuple(source)
        try:
            node_type = op.infer(cast("list[TensorType]", types))
        except GraphError as error:
            if error.source is None and sources:
                raise GraphError(
                    error.summary, op=op.name, source=sources[0], shapes=error.shapes or ", ".join(map(repr, types))
                ) from None
            raise
        node = Node(len(self.nodes), op, ids, node_type, sources)
        self.nodes.append(node)
        self._interned[(op, ids)] = node.id
        return Tensor(self, node.id)

    def _operand(self, value: Any, dtype: DType | None) -> int:
        if isinstance(value, Tensor):
            if value.graph is not self:
                raise GraphError("an operand belongs to another graph")
            return value.id
        if isinstance(value, bool | int | float | np.generic):
            kind = dtype or DType.F32
            if not kind.is_float and float(value) != int(value):
                raise GraphError(f"the number {value} is no {kind.value}", remedy="cast the tensor with astype first")
            return self.full(float(value), (), kind).id
        return self.constant(value).id

    def _note_source(self, node_id: int, source: str | Sequence[str] | None) -> None:
        extra = () if source is None else (source,) if isinstance(source, str) else tuple(source)
        node = self.nodes[node_id]
        new = tuple(s for s in extra if s not in node.sources)
        if new:
            self.nodes[node_id] = Node(node.id, node.op, node.inputs, node.type, node.sources + new)

    def scope(self, *sources: str) -> _Scope:
        """Context in which nodes added without a source of their own get these sources."""
        return _Scope(self, sources)

    def output(self, name: str, value: Tensor) -> None:
        """Name a result; the order of calls is the order of outputs."""
        if name in self.outputs:
            raise GraphError(f"two outputs are called {name!r}")
        if not isinstance(value.type, TensorType):
            raise GraphError(f"output {name!r} must be one tensor, not {value.type}")
        self.outputs[name] = value.id

    def update(self, state: str | Tensor, value: Tensor) -> None:
        """Give the value a state has after a call; same type as the state."""
        node = state.node if isinstance(state, Tensor) else self.nodes[self._leaves.get(state, -1)]
        if node.op.name != "state":
            raise GraphError(f"{state!r} is not a state of this graph")
        if value.type != node.type:
            raise GraphError(f"state {node.op.name} changes type", shapes=f"{node.type} to {value.type}")
        self.updates[node.op.name_of_leaf] = value.id  # type: ignore[attr-defined]

    # ---- reading ----------------------------------------------------------------------------------

    @property
    def inputs(self) -> dict[str, Node]:
        """Input leaves by name, in the order they were declared."""
        return {n: self.nodes[i] for n, i in self._leaves.items() if self.nodes[i].op.name == "input"}

    @property
    def states(self) -> dict[str, Node]:
        """State leaves by name, in the order they were declared."""
        return {n: self.nodes[i] for n, i in self._leaves.items() if self.nodes[i].op.name == "state"}

    @property
    def roots(self) -> list[int]:
        """Ids that must be computed: outputs, then state updates."""
        return [*self.outputs.values(), *self.updates.values()]

    @property
    def symbols(self) -> set[str]:
        """Names of the symbolic dimensions of inputs and states."""
        leaves = [self.nodes[i].tensor_type for i in self._leaves.values()]
        return set().union(*(symbols_of(t.shape) for t in leaves)) if leaves else set()

    def __getitem__(self, node_id: int) -> Tensor:
        return Tensor(self, node_id)

    def readers(self) -> list[list[int]]:
        """For each node the ids of the nodes that read it (once per operand)."""
        result: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for operand in node.inputs:
                result[operand].append(node.id)
        return result

    # ---- whole-graph transformations ----------------------------------------------------------------

    def rewrite(
        self,
        visit: Callable[[Graph, Node, tuple[Tensor, ...]], Tensor] | None = None,
        leaf: Callable[[Op], Op] = lambda op: op,
    ) -> Graph:
        """A new graph with every live node passed through `visit(new_graph, node, new_operands)`.

        Without `visit` this drops dead nodes and merges duplicates. Inputs and states pass through `leaf`
        instead and are kept even when unread, in their order, because they are the program's interface.
        """
        new = Graph(self.name)
        new.constants = dict(self.constants)
        live = self._live()
        mapped: dict[int, Tensor] = {}
        for node in self.nodes:
            if node.id not in live:
                continue
            operands = tuple(mapped[i] for i in node.inputs)
            with new.scope(*node.sources):
                if node.op.name in ("input", "state"):
                    mapped[node.id] = new.apply(leaf(node.op))
                    new._leaves[node.op.name_of_leaf] = mapped[node.id].id  # type: ignore[attr-defined]
                elif visit is None:
                    mapped[node.id] = new.apply(node.op, *operands, source=node.sources)
                else:
                    mapped[node.id] = visit(new, node, operands)
        for name, root in self.outputs.items():
            new.outputs[name] = mapped[root].id
        for name, root in self.updates.items():
            new.updates[name] = mapped[root].id
        used = {n.op.key for n in new.nodes if n.op.name == "constant"}  # type: ignore[attr-defined]
        new.constants = {k: v for k, v in new.constants.items() if k in used}
        return new

    def _live(self) -> set[int]:
        live = set(self._leaves.values()) | set(self.roots)
        for node in reversed(self.nodes):
            if node.id in live:
                live.update(node.inputs)
        return live

    def bind(self, dims: Mapping[str, int]) -> Graph:
        """A graph with symbolic dimensions replaced by values (all of them, to be compiled)."""
        bound = dict(dims)
        return self.rewrite(
            lambda new, node, operands: new.apply(node.op.bind(bound), *operands), leaf=lambda op: op.bind(bound)
        )

    def decompose(self, keep: Callable[[Op], bool] = lambda op: op.kind is Kind.PRIMITIVE) -> Graph:
        """A graph in which every op that `keep` refuses is replaced by its decomposition, recursively."""

        def visit(new: Graph, node: Node, operands: tuple[Tensor, ...]) -> Tensor:
            return _expand(new, node.op, operands, keep)

        return self.rewrite(visit)

    def expand_into(self, op: Op, operands: Sequence[Tensor], keep: Callable[[Op], bool]) -> Tensor:
        """Add the decomposition of `op`, recursively until `keep` accepts every op, and return its value."""
        return _expand(self, op, operands, keep)

    def __repr__(self) -> str:
        return (
            f"<Graph {self.name!r}: {len(self.nodes)} nodes, {len(self._leaves)} leaves, {len(self.outputs)} outputs>"
        )


def _expand(new: Graph, op: Op, operands: Sequence[Tensor], keep: Callable[[Op], bool]) -> Tensor:
    if op.name == "proj" and isinstance(operands[0], _Parts):
        return operands[0].parts[op.index]  # type: ignore[attr-defined]
    if keep(op):
        return new.apply(op, *operands)
    # Build the decomposition in a scratch graph, then bring it over node by node, expanding again.
    scratch = Graph("scratch")
    scratch.constants = new.constants
    leaves = {}
    arguments = []
    for position, operand in enumerate(operands):
        if operand.id not in leaves:
            leaf = _leaf_like(scratch, operand, position)
            leaves[operand.id] = (leaf, operand)
        arguments.append(leaves[operand.id][0])
    result = op.decompose(arguments)
    mapped: dict[int, Tensor] = {leaf.id: operand for leaf, operand in leaves.values()}
    for node in scratch.nodes:
        if node.id not in mapped:
            mapped[node.id] = _expand(new, node.op, [mapped[i] for i in node.inputs], keep)
    if isinstance(result, tuple):
        return _Parts(new, tuple(mapped[part.id] for part in result))
    return mapped[result.id]


def _leaf_like(scratch: Graph, operand: Tensor, position: int) -> Tensor:
    # Constants stay visible, so that a decomposition may look at a scalar's value.
    if operand.op.name in ("full", "constant"):
        return scratch.apply(operand.op)
    return scratch.input(f"operand{position}", operand.shape, operand.dtype)


class _Scope:
    def __init__(self, graph: Graph, sources: tuple[str, ...]) -> None:
        self._graph, self._sources = graph, sources
        self._saved: tuple[str, ...] = ()

    def __enter__(self) -> None:
        self._saved, self._graph._scope = self._graph._scope, self._sources

    def __exit__(self, *_: object) -> None:
        self._graph._scope = self._saved


class Tensor(Operators):
    """Handle of one node's value: knows its type, and builds nodes through NumPy's operators."""

    __slots__ = ("graph", "id")

    def __init__(self, graph: Graph, node_id: int) -> None:
        self.graph, self.id = graph, node_id

    @property
    def node(self) -> Node:
        return self.graph.nodes[self.id]

    @property
    def op(self) -> Op:
        return self.node.op

    @property
    def type(self) -> ValueType:
        return self.node.type

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.node.tensor_type.shape

    @property
    def dtype(self) -> DType:
        return self.node.tensor_type.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"%{self.id}: {self.op.name} {self.type}"


class _Parts(Tensor):
    """Several values standing for a decomposed multi-output node until `proj` picks one."""

    __slots__ = ("parts",)

    def __init__(self, graph: Graph, parts: tuple[Tensor, ...]) -> None:
        super().__init__(graph, parts[0].id)
        self.parts = parts


def _uniform(array: np.ndarray) -> bool:
    flat = array.reshape(-1)
    # Compare bits, so that -0.0 and 0.0 differ and NaN equals itself.
    first = flat[:1].tobytes()
    return flat.tobytes() == first * flat.size
