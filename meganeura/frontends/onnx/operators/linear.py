"""Matrix products and Einstein sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

from meganeura.frontends.onnx.node import OnnxNode
from meganeura.frontends.onnx.registry import importer
from meganeura.frontends.onnx.value import Builder, Value


@importer("MatMul")
def matmul(build: Builder, node: OnnxNode, a: Value, b: Value) -> Value:
    return a @ b


@importer("Gemm")
def gemm(build: Builder, node: OnnxNode, a: Value, b: Value, c: Value | None = None) -> Value:
    flags = {"transpose_a": bool(node.get("transA", 0)), "transpose_b": bool(node.get("transB", 0))}
    product = build.apply("matmul", a, b, alpha=node.get("alpha", 1.0), **flags)
    beta = node.get("beta", 1.0)
    if c is None or beta == 0:
        return product
    return product + (c if beta == 1 else c * beta)


@importer("Einsum", since=12)
def einsum(build: Builder, node: OnnxNode, *operands: Value) -> Value:
    terms, result = _parse(node, operands)
    value, labels = _diagonal(build, operands[0], terms[0])
    for position in range(1, len(operands)):
        other, other_labels = _diagonal(build, operands[position], terms[position])
        later = {label for term in terms[position + 1 :] for label in term} | set(result)
        value, labels = _product(build, value, labels, other, other_labels, later)
    value, labels = _sum_out(build, value, labels, set(result))
    return value.transpose([labels.index(label) for label in result])


def _parse(node: OnnxNode, operands: Sequence[Value]) -> tuple[list[list[str]], list[str]]:
    """Axis labels of each operand and of the result; an ellipsis becomes the labels `0`, `1`, ... from the right."""
    equation = node.need("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    written = left.split(",")
    if len(written) != len(operands):
        raise node.invalid(f"equation {equation!r} has {len(written)} terms for {len(operands)} operands")
    terms: list[list[str]] = []
    widest = 0
    for term, operand in zip(written, operands, strict=True):
        hidden = operand.rank - len(term.replace("...", ""))
        if hidden < 0 or (hidden and "..." not in term):
            raise node.invalid(f"term {term!r} does not fit rank {operand.rank}")
        widest = max(widest, hidden if "..." in term else 0)
        terms.append(_labels(term, hidden))
    if arrow:
        return terms, _labels(right, widest)
    seen = [label for term in terms for label in term if label.isalpha()]
    once = sorted(label for label in set(seen) if seen.count(label) == 1)
    return terms, [str(i) for i in reversed(range(widest))] + once


def _labels(term: str, hidden: int) -> list[str]:
    before, dots, after = term.partition("...")
    return [*before, *([str(i) for i in reversed(range(hidden))] if dots else []), *after]


def _diagonal(build: Builder, value: Value, labels: list[str]) -> tuple[Value, list[str]]:
    """A repeated label reads the diagonal of its two axes: every (n+1)-th element of them merged."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            order = [a for a in range(value.rank) if a not in (first, second)] + [first, second]
            *lead, n, _ = value.transpose(order).shape
            merged = value.transpose(order).reshape((*lead, n * n))
            value = merged.slice(len(lead), 0, n * n, n + 1)
            labels = [labels[a] for a in order[:-1]]
    return value, labels


def _sum_out(build: Builder, value: Value, labels: list[str], wanted: set[str]) -> tuple[Value, list[str]]:
    axes = tuple(axis for axis, label in enumerate(labels) if label not in wanted)
    if axes:
        value = build.apply("reduce_sum", value, axes=axes, keepdims=False)
    return value, [label for label in labels if label in wanted]


def _product(
    build: Builder, a: Value, a_labels: list[str], b: Value, b_labels: list[str], later: set[str]
) -> tuple[Value, list[str]]:
    """One batched matrix product: shared labels still needed are batch axes, the other shared ones are summed."""
    a, a_labels = _sum_out(build, a, a_labels, later | set(b_labels))
    b, b_labels = _sum_out(build, b, b_labels, later | set(a_labels))
    batch = [label for label in a_labels if label in b_labels and label in later]
    inner = [label for label in a_labels if label in b_labels and label not in later]
    rows = [label for label in a_labels if label not in b_labels]
    columns = [label for label in b_labels if label not in a_labels]
    lengths = dict(zip(a_labels, a.shape, strict=True))
    for label, length in zip(b_labels, b.shape, strict=True):
        # A dimension of 1 under an ellipsis broadcasts against the other operand's.
        lengths[label] = max(length, lengths.get(label, 1)) if 0 not in (length, lengths.get(label)) else 0
    left = _arranged(a, a_labels, batch, rows, inner, lengths)
    right = _arranged(b, b_labels, batch, inner, columns, lengths)
    shape = [lengths[label] for label in (*batch, *rows, *columns)]
    return (left @ right).reshape(shape), [*batch, *rows, *columns]


def _arranged(
    value: Value, labels: list[str], batch: list[str], rows: list[str], columns: list[str], lengths: dict[str, int]
) -> Value:
    order = [labels.index(label) for label in (*batch, *rows, *columns)]
    value = value.transpose(order).expand([lengths[label] for label in (*batch, *rows, *columns)])
    merged = [math.prod(lengths[label] for label in group) for group in (rows, columns)]
    return value.reshape([lengths[label] for label in batch] + merged)
