"""The e-graph's schema, generated from the registered ops: one constructor per op and operand count.

A term is `(ClassName attributes... operands...)`: attributes in declaration order, then operands of the sort
`E`. Ops that take a varying number of operands have the number appended (`Concat2`, `Attention4`), because
constructors have a fixed arity. A new op needs no change here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache

from meganeura.errors import GraphError
from meganeura.ir.op import OPS, Op
from meganeura.ir.types import DType

Literal = bool | int | float | str | tuple[int, ...]
"""An attribute as the e-graph holds it; tuples are vectors of i64."""

_SORTS = {"bool": "bool", "int": "i64", "float": "f64", "str": "String", "DType": "String", "Shape": "Ints"}
_MOST_OPERANDS = 8
"""Variants of an op of unbounded arity that always exist; more are made when a graph or rule names them."""


@dataclass(frozen=True)
class Constructor:
    """One constructor of the schema.

    Attributes:
        name: as rules write it. op: the op class. sorts: sort of each attribute. arity: number of operands.
    """

    name: str
    op: type[Op]
    sorts: tuple[str, ...]
    arity: int

    @property
    def arguments(self) -> int:
        """How many arguments a term has in all."""
        return len(self.sorts) + self.arity

    def declaration(self) -> str:
        """The egglog command that declares it."""
        return f"(constructor {self.name} ({' '.join((*self.sorts, *['E'] * self.arity))}) E)"

    def decode(self, literals: Iterable[Literal]) -> Op:
        """The op with the given attribute values."""
        return self.op(
            *(
                DType(value) if field.type in ("DType", DType) else value
                for field, value in zip(fields(self.op), literals, strict=True)
            )
        )


@cache
def attribute_sorts(op: type[Op]) -> tuple[str, ...]:
    """Sorts of an op's attributes in declaration order."""
    sorts = []
    for field in fields(op):
        text = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        sort = _SORTS.get(text) or ("Ints" if text.startswith("tuple") else None)
        if sort is None:
            raise GraphError(f"attribute {field.name}: {text} has no sort in the e-graph", op=op.name)
        sorts.append(sort)
    return tuple(sorts)


def constructor(op: type[Op], operands: int) -> Constructor:
    """The constructor of an op with this many operands."""
    suffix = "" if isinstance(op.arity, int) else str(operands)
    return Constructor(op.__name__ + suffix, op, attribute_sorts(op), operands)


def encode_attributes(op: Op) -> tuple[Literal, ...]:
    """An op's attributes as literals; raises GraphError for symbolic dimensions."""
    literals: list[Literal] = []
    for sort, (name, value) in zip(attribute_sorts(type(op)), op.attributes().items(), strict=True):
        if sort == "Ints" and not all(isinstance(item, int) for item in value):
            raise GraphError(
                f"attribute {name}={value} is symbolic", op=op.name, remedy="bind the graph's dimensions first"
            )
        literals.append(
            value.value
            if isinstance(value, DType)
            else float(value)
            if sort == "f64"
            else tuple(map(int, value))
            if sort == "Ints"
            else value
        )
    return tuple(literals)


def build_schema(words: Iterable[str] = (), graph_ops: Iterable[tuple[type[Op], int]] = ()) -> dict[str, Constructor]:
    """All constructors by name.

    Args:
        words: further constructor names that rule files mention (`Concat12`).
        graph_ops: op classes with operand counts that a graph holds.
    """
    schema: dict[str, Constructor] = {}
    by_class = {op.__name__: op for op in OPS.values()}
    if len(by_class) != len(OPS):
        raise GraphError("two op classes have the same name")
    for op in OPS.values():
        least, most = (op.arity, op.arity) if isinstance(op.arity, int) else op.arity
        for count in range(least, (_MOST_OPERANDS if most is None else most) + 1):
            made = constructor(op, count)
            schema[made.name] = made
    for word in words:
        match = re.fullmatch(r"([A-Za-z]+)(\d+)", word)
        op = by_class.get(match[1]) if match else None
        if match and op and word not in schema and not isinstance(op.arity, int):
            least, most = op.arity
            if int(match[2]) >= least and (most is None or int(match[2]) <= most):
                schema[word] = constructor(op, int(match[2]))
    for op, count in graph_ops:
        made = constructor(op, count)
        schema.setdefault(made.name, made)
    return schema


PRELUDE = """
(sort E)
(sort Ints (Vec i64))
(constructor N (i64) E :unextractable)
(relation Fired (String E))
(relation Used (String E E))
(relation Made (String E E))
"""
"""Sorts, node handles and provenance.

`Fired rule root`: a match of the rule at this class. `Used rule root inner`: a class that the match's pattern
went through. `Made rule root class`: a further class that the match gave a term to.
"""

FACTS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "shape": (("E",), "Ints"),
    "dtype": (("E",), "String"),
    "rank": (("E",), "i64"),
    "last-dim": (("E",), "i64"),
    "numel": (("E",), "i64"),
    "zeros": (("E",), "Ints"),
    "ones": (("E",), "Ints"),
    "swap-last": (("E",), "Ints"),
    "swap-heads": (("E",), "Ints"),
    "order": (("E",), "i64"),
    "splat": (("E",), "f64"),
    "varies": (("E",), None),
    "given": (("E",), None),
    "is-constant": (("E",), None),
    "causal-mask": (("E", "i64"), None),
    "causal-keep": (("E", "i64"), None),
    "window-mask": (("E", "i64", "i64"), None),
    "window-keep": (("E", "i64", "i64"), None),
    "mask-value": (("E", "f64"), None),
    "ramp": (("E", "i64", "i64"), None),
    "repeat-indices": (("E", "i64"), None),
    "halves-equal": (("E",), None),
    "slice-range": (("E", "E", "i64", "i64", "i64"), None),
    "fits": (("Ints", "Ints"), None),
    "identity-perm": (("Ints",), None),
    "swaps-last-two": (("Ints",), None),
    "swaps-heads": (("Ints",), None),
    "compose-perm": (("Ints", "Ints", "Ints"), None),
    "unit-perm": (("Ints", "Ints"), None),
    "inverse-perm": (("Ints", "Ints"), None),
    "inserts-axis": (("Ints", "Ints", "i64"), None),
    "removes-axis": (("Ints", "Ints", "i64"), None),
    "merges-axes": (("Ints", "Ints", "i64"), None),
    "splits-axis": (("Ints", "Ints", "i64"), None),
    "repeats-axis": (("Ints", "Ints", "i64", "i64"), None),
}
"""Facts that rules may use, by name: argument sorts, and the result's sort for functions (relations have none).

Python computes them (see `annotate`), for every class, between iterations.
"""

_MERGES = {"order": ":merge (min old new)", "splat": ":merge old"}


def declarations(schema: dict[str, Constructor]) -> str:
    """The egglog program that declares sorts, constructors and facts, a command a line."""
    lines = PRELUDE.strip().splitlines()
    lines += [made.declaration() for _, made in sorted(schema.items())]
    for name, (arguments, result) in FACTS.items():
        signature = f"{name} ({' '.join(arguments)})"
        merge = _MERGES.get(name, ":no-merge")
        lines.append(f"(relation {signature})" if result is None else f"(function {signature} {result} {merge})")
    return "\n".join(lines)


def same_number(a: float, b: float) -> bool:
    """Whether two constants are one value up to float32 rounding; NaN equals NaN."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-37)
