"""The textual form of a graph: printed after every phase, pasted into bug reports, read back exactly.

```
graph "example" {
  constant "data:f32[2]:0a1b" : f32[2] = [0.5, 1.5]
  %0 = input(name_of_leaf="x", dtype=f32, shape=[batch, 2]) : f32[batch, 2]
  %1 = constant(key="data:f32[2]:0a1b", dtype=f32, shape=[2]) : f32[2]
  %2 = mul(%0, %1) : f32[batch, 2] @ "scale"
  output "y" = %2
}
```
Attributes follow the operands, then the type (checked on reading), then the source names after `@`. Constants up to
`inline` elements are written out; larger ones are only named, and reading needs their data by key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from meganeura.errors import ImportFailure
from meganeura.ir.constants import ConstantData
from meganeura.ir.dims import SymDim, parse_dim
from meganeura.ir.graph import Graph, Tensor
from meganeura.ir.op import OPS, Op
from meganeura.ir.types import DType, TensorType, as_dtype

_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>\#[^\n]*)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<node>%\d+)|(?P<number>-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf|nan)(?![\w.*:/+]))|(?P<word>[\w-][\w.*+:/-]*)|(?P<punct>[{}()\[\],;:=@]))""",
    re.VERBOSE,
)


def format_graph(graph: Graph, inline: int = 64) -> str:
    """The graph as text; constants of at most `inline` elements carry their data."""
    lines = [f"graph {_quote(graph.name)} {{"]
    for key, data in sorted(graph.constants.items()):
        head = f"  constant {_quote(key)} : {data.type!r}"
        count = data.type.size
        lines.append(f"{head} = {_flat(data.load())}" if isinstance(count, int) and count <= inline else head)
    for node in graph.nodes:
        operands = ", ".join(f"%{i}" for i in node.inputs)
        attributes = ", ".join(f"{k}={_value(v)}" for k, v in node.op.attributes().items())
        inside = "; ".join(part for part in (operands, attributes) if part) if operands else attributes
        sources = " @ " + " ".join(map(_quote, node.sources)) if node.sources else ""
        lines.append(f"  %{node.id} = {node.op.name}({inside}) : {node.type!r}{sources}")
    lines += [f"  output {_quote(name)} = %{root}" for name, root in graph.outputs.items()]
    lines += [f"  update {_quote(name)} = %{root}" for name, root in graph.updates.items()]
    return "\n".join([*lines, "}"]) + "\n"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return value.value if isinstance(value, DType) else repr(value)


def _flat(array: np.ndarray) -> str:
    return (
        "["
        + ", ".join(repr(item) for item in array.reshape(-1).tolist()).replace("True", "1").replace("False", "0")
        + "]"
    )


def parse_graph(text: str, constants: Mapping[str, ConstantData] | None = None, source: str = "text") -> Graph:
    """Read a graph from text.

    Args:
        text: as `format_graph` prints it; `#` starts a comment.
        constants: data of constants that the text only names.
        source: file name for messages.

    Raises:
        ImportFailure: with the line of the first mistake.
    """
    return _Parser(text, dict(constants or {}), source).graph()


class _Parser:
    def __init__(self, text: str, constants: dict[str, ConstantData], source: str) -> None:
        self.text, self.constants, self.source = text, constants, source
        self.at = 0
        self.nodes: dict[str, Tensor] = {}

    def fail(self, message: str) -> ImportFailure:
        line = self.text.count("\n", 0, self.at) + 1
        return ImportFailure(f"{self.source}, line {line}: {message}", source=f"{self.source}:{line}")

    def next(self, *kinds: str, value: str | None = None) -> str:
        kind, token, end = self._match()
        if (kinds and kind not in kinds) or (value is not None and token != value):
            raise self.fail(f"expected {value or ' or '.join(kinds)}, found {token or 'the end of the text'!r}")
        self.at = end
        return token

    def peek(self) -> str:
        return self._match()[1]

    def _match(self) -> tuple[str, str, int]:
        while True:
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                if self.text[self.at :].strip():
                    raise self.fail(f"unreadable text: {self.text[self.at :].strip()[:20]!r}")
                return "end", "", self.at
            kind = match.lastgroup or ""
            if kind != "comment":
                return kind, match[kind], match.end()
            self.at = match.end()

    def string(self) -> str:
        raw = self.next("string")[1:-1]
        return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], raw)

    def graph(self) -> Graph:
        self.next(value="graph")
        graph = Graph(self.string())
        self.next(value="{")
        while self.peek() != "}":
            word = self.peek()
            if word == "constant":
                self._constant()
            elif word in ("output", "update"):
                self.next()
                name = self.string()
                self.next(value="=")
                (graph.outputs if word == "output" else graph.updates)[name] = self._node(self.next("node")).id
            else:
                self._statement(graph)
        self.next(value="}")
        graph.constants = {key: self.constants[key] for key in sorted(self._used(graph))}
        return graph

    def _used(self, graph: Graph) -> set[str]:
        used = {n.op.key for n in graph.nodes if n.op.name == "constant"}  # type: ignore[attr-defined]
        missing = used - set(self.constants)
        if missing:
            raise self.fail(f"no data for constant {sorted(missing)[0]!r}")
        return used

    def _node(self, name: str) -> Tensor:
        if name not in self.nodes:
            raise self.fail(f"{name} is not defined")
        return self.nodes[name]

    def _constant(self) -> None:
        self.next()
        key = self.string()
        self.next(value=":")
        kind = self._type()
        if self.peek() != "=":
            return
        self.next()
        values = self._list()
        try:
            array = np.array(values, dtype=np.float64).astype(kind.dtype.numpy).reshape(kind.shape)  # type: ignore[arg-type]
        except ValueError:
            raise self.fail(f"{len(values)} values for a constant of type {kind}") from None
        self.constants[key] = ConstantData(key, kind, lambda: array)

    def _statement(self, graph: Graph) -> None:
        name = self.next("node")
        self.next(value="=")
        op_name = self.next("word", "number")
        if op_name not in OPS:
            raise self.fail(f"no such op: {op_name!r}")
        self.next(value="(")
        operands: list[Tensor] = []
        attributes: dict[str, Any] = {}
        while self.peek() != ")":
            if self.peek().startswith("%"):
                operands.append(self._node(self.next("node")))
            else:
                key = self.next("word")
                self.next(value="=")
                attributes[key] = self._attribute()
            if self.peek() in (",", ";"):
                self.next()
        self.next(value=")")
        op = self._op(op_name, attributes)
        self.next(value=":")
        declared = self._type_text()
        sources: list[str] = []
        if self.peek() == "@":
            self.next()
            while self.peek().startswith('"'):
                sources.append(self.string())
        tensor = graph.apply(op, *operands, source=sources)
        if repr(tensor.type).replace(" ", "") != declared:
            raise self.fail(f"{name} is typed {declared} but its op gives {tensor.type}")
        if op_name in ("input", "state"):
            graph._leaves[op.name_of_leaf] = tensor.id  # type: ignore[attr-defined]
        self.nodes[name] = tensor

    def _op(self, name: str, attributes: dict[str, Any]) -> Op:
        declared = {f.name: f for f in fields(OPS[name])}
        for key, value in attributes.items():
            if key not in declared:
                raise self.fail(f"{name} has no attribute {key!r}")
            if "DType" in str(declared[key].type):
                attributes[key] = as_dtype(str(value))
            elif str(declared[key].type) == "float":
                attributes[key] = float(value)
            elif isinstance(value, list):
                attributes[key] = tuple(value)
        try:
            return OPS[name](**attributes)
        except TypeError as error:
            raise self.fail(f"{name}: {error}") from None

    def _attribute(self) -> Any:
        token = self.peek()
        if token.startswith('"'):
            return self.string()
        if token == "[":
            return self._list()
        self.next()
        return self._scalar(token)

    def _scalar(self, token: str) -> Any:
        if token in ("true", "false"):
            return token == "true"
        if re.fullmatch(r"-?\d+", token):
            return int(token)
        try:
            return float(token)
        except ValueError:
            if token in {d.value for d in DType}:
                return token
            return parse_dim(token)

    def _list(self) -> list[Any]:
        self.next(value="[")
        items = []
        while self.peek() != "]":
            items.append(self._scalar(self.next("number", "word")))
            if self.peek() == ",":
                self.next()
        self.next(value="]")
        return items

    def _type(self) -> TensorType:
        dtype = as_dtype(self.next("word"))
        dims: list[int | SymDim] = self._list()
        return TensorType(dtype, tuple(dims))

    def _type_text(self) -> str:
        """A type, possibly of a tuple, as printed but without spaces."""
        if self.peek() != "(":
            return repr(self._type()).replace(" ", "")
        self.next()
        parts = []
        while self.peek() != ")":
            parts.append(repr(self._type()).replace(" ", ""))
            if self.peek() == ",":
                self.next()
        self.next(value=")")
        return f"({','.join(parts)})"
