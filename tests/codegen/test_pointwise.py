"""The pointwise family: index arithmetic in isolation, and generated kernels against the reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meganeura.ops  # noqa: F401
from meganeura.codegen.indices import Digit, Index, Literal, Sum, Variable, coordinates_of, linear, weighted_sum
from meganeura.codegen.pointwise import render_pointwise
from meganeura.ir import Graph, Tensor
from meganeura.lower.pointwise import pointwise_kernel
from meganeura.lower.schedule import Layout, Operand
from meganeura.reference import evaluate
from meganeura.runtime.device import Device

GUARD = 256


def number(index: Index, values: dict[str, int]) -> int:
    """Value of an index expression for given variables."""
    if isinstance(index, Literal):
        return index.value
    if isinstance(index, Variable):
        return values[index.name]
    if isinstance(index, Digit):
        return number(index.base, values) // index.stride % index.size
    return index.constant + sum(number(t, values) * f for t, f in index.terms)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_indices_mean_what_numpy_means(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    count = math.prod(sizes)
    element = Variable("e", count)
    at = coordinates_of(element, sizes)
    source = np.arange(count).reshape(sizes)
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            divisors = [d for d in range(1, count + 1) if count % d == 0]
            first = data.draw(st.sampled_from(divisors))
            second = data.draw(st.sampled_from([d for d in divisors if (count // first) % d == 0]))
            shape = [first, second, count // first // second]
            at = coordinates_of(linear(at, source.shape), shape)
            source = source.reshape(shape)
        else:
            perm = data.draw(st.permutations(range(source.ndim)))
            at = tuple(at[p] for p in perm)
            source = source.transpose(perm)
    # `at` are coordinates in `source` of each element of the original order.
    for value in range(count):
        where = tuple(number(i, {"e": value}) for i in at)
        assert all(w < b.bound for w, b in zip(where, at, strict=True))
        assert source[where] == value


def test_split_and_joined_axes_leave_no_division() -> None:
    row, column = Variable("r", 7), Variable("c", 12)
    split = coordinates_of(linear((row, column), (7, 12)), (7, 3, 4))
    joined = linear(split, (7, 3, 4))
    assert joined == weighted_sum([(row, 12), (column, 1)])
    head, lane = Variable("h", 3), Variable("l", 4)
    assert coordinates_of(linear((row, head, lane), (7, 3, 4)), (7, 12)) == (
        row,
        Sum(((head, 4), (lane, 1)), 0),
    )


def test_joined_digits_of_a_reversed_index_keep_its_constant() -> None:
    reversed_index = weighted_sum([(Variable("e", 4), -1)], 3)
    assert linear(coordinates_of(reversed_index, (2, 2)), (2, 2)) == reversed_index


def run_region(
    device: Device, region: Graph, arrays: dict[str, np.ndarray], operands: dict[str, Operand]
) -> np.ndarray:
    """Run a region on the device; `operands` says how each array lies in its buffer (given flat)."""
    names = list(region.inputs)
    kernel = pointwise_kernel(region.nodes[-1].op, tuple(operands[n] for n in names), region)
    shader = render_pointwise(kernel, device.facts)
    out = kernel.outputs[0]
    stored = np.uint32 if out.dtype.value == "bool" else out.dtype.numpy
    poison = np.full(out.shape, np.nan if out.dtype.is_float else 77).astype(stored)
    buffers = [a.astype(np.uint32) if a.dtype == bool else a for a in (arrays[n] for n in names)]
    flat = device.run(shader, [*buffers, poison], guard=GUARD)[-1].reshape(-1)
    strides = [s * flat.itemsize for s in out.layout.strides]
    result = np.lib.stride_tricks.as_strided(flat, out.shape, strides).copy()
    return result.astype(bool) if out.dtype.value == "bool" else result


def check(device: Device, region: Graph, arrays: dict[str, np.ndarray]) -> None:
    """Device and reference agree, with contiguous operands."""
    operands = {name: Operand.contiguous(node.tensor_type) for name, node in region.inputs.items()}
    got = run_region(device, region, arrays, operands)
    want = evaluate(region, arrays)["out"]
    assert got.shape == want.shape
    assert np.array_equal(np.isnan(got), np.isnan(want)) if want.dtype.kind == "f" else True
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def region_of(*shapes: tuple[int, ...], dtype: str = "f32") -> tuple[Graph, list[Tensor]]:
    graph = Graph("region")
    return graph, [graph.input(f"in{i}", s, dtype) for i, s in enumerate(shapes)]


def random_arrays(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    result = {}
    for name, node in graph.inputs.items():
        kind = node.tensor_type
        values = rng.normal(size=kind.shape) if kind.dtype.is_float else rng.integers(0, 5, kind.shape)  # type: ignore[arg-type]
        result[name] = values.astype(kind.dtype.numpy)
    return result


VIEWS = {
    "transpose": lambda x: x.transpose(2, 0, 1) + 1.0,
    "slice": lambda x: x[1:, ::2, 1:3] * 2.0,
    "flip": lambda x: x.graph.apply("flip", x, axes=(0, 2)) + x,
    "pad": lambda x: x.graph.apply("pad", x, low=(1, 0, 2), high=(0, 3, 1), value=-1.5),
    "concat": lambda x: x.graph.apply("concat", x, x + 1.0, x[:, :1], axis=1),
    "expand": lambda x: x.graph.apply("expand", x[:, :1], shape=(4, *x.shape[:1], 5, x.shape[2])),
    "reshape": lambda x: (x.reshape(-1, 2) + 1.0).reshape(x.shape) * x,
    "slice of concat of transpose": lambda x: x.graph.apply("concat", x, x * 2.0, axis=2).transpose(0, 2, 1)[:, 1:7],
    "rotate half": lambda x: x.graph.apply("concat", -x[..., 2:], x[..., :2], axis=2) * 0.5 + x,
    "pad of empty": lambda x: x.graph.apply("pad", x[:0], low=(2, 0, 0), high=(1, 0, 0), value=3.0),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(device: Device, name: str) -> None:
    graph, (x,) = region_of((3, 5, 4))
    graph.output("out", VIEWS[name](x))
    check(device, graph, random_arrays(graph))


@pytest.mark.parametrize("shape", [(), (1,), (31,), (64,), (65,), (2, 33), (3, 1, 5), (2, 1, 3, 2, 2)])
def test_ranks_and_edges(device: Device, shape: tuple[int, ...]) -> None:
    graph, (x,) = region_of(shape)
    graph.output("out", x * x + 1.0)
    check(device, graph, random_arrays(graph))


def test_broadcasting_between_ranks(device: Device) -> None:
    graph, (a, b, c) = region_of((4, 1, 3), (5, 1), (3,))
    graph.output("out", a * b + c)
    check(device, graph, random_arrays(graph))


@pytest.mark.parametrize("dtype", ["i32", "u32"])
def test_gather(device: Device, dtype: str) -> None:
    graph = Graph("region")
    x, indices = graph.input("in0", (3, 5, 4)), graph.input("in1", (2, 3), dtype)
    graph.output("out", graph.apply("gather", x * 2.0, indices, axis=1))
    arrays = random_arrays(graph)
    if dtype == "i32":
        arrays["in1"][0, 0] = -1
    check(device, graph, arrays)


def test_gather_elements(device: Device) -> None:
    graph = Graph("region")
    x, indices = graph.input("in0", (3, 5)), graph.input("in1", (2, 7), "i32")
    graph.output("out", graph.apply("gather_elements", x, indices, axis=1))
    check(device, graph, random_arrays(graph))


def test_dtypes(device: Device) -> None:
    graph = Graph("region")
    x, i, keep = graph.input("in0", (6,)), graph.input("in1", (6,), "i32"), graph.input("in2", (6,), "bool")
    half = x.astype("f16").astype("f32")
    graph.output("out", graph.apply("where", keep, half + i.astype("f32"), x))
    arrays = random_arrays(graph)
    arrays["in2"] = np.array([True, False] * 3)
    check(device, graph, arrays)
    compare = Graph("region")
    a, b = compare.input("in0", (33,)), compare.input("in1", (33,))
    compare.output("out", a < b)
    check(device, compare, random_arrays(compare))


def test_strided_and_shifted_operands(device: Device) -> None:
    graph, (a, b) = region_of((4, 3), (4, 3))
    graph.output("out", a - b)
    flat = np.random.default_rng(1).normal(size=40).astype(np.float32)
    layouts = {"in0": Layout((4, 3), (1, 4), 5), "in1": Layout((4, 3), (0, 7), 2)}
    arrays = {
        n: np.lib.stride_tricks.as_strided(flat[v.offset :], v.shape, [4 * s for s in v.strides])
        for n, v in layouts.items()
    }
    kinds = {n: Operand(graph.inputs[n].tensor_type.dtype, v) for n, v in layouts.items()}
    got = run_region(device, graph, {"in0": flat, "in1": flat}, kinds)
    np.testing.assert_allclose(got, arrays["in0"] - arrays["in1"], rtol=1e-6)


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_random_chains(device: Device, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    graph, (x,) = region_of(shape)
    for step in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["reshape", "transpose", "slice", "flip", "concat", "pad", "add", "expand"]))
        dims = [int(d) for d in x.shape]  # type: ignore[arg-type]
        axis = data.draw(st.integers(0, len(dims) - 1)) if dims else 0
        if kind == "reshape":
            count = math.prod(dims)
            first = data.draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
            x = x.reshape(first, count // first)
        elif kind == "transpose":
            x = x.transpose(*data.draw(st.permutations(range(len(dims)))))
        elif kind == "slice":
            start = data.draw(st.integers(0, dims[axis] - 1))
            x = x[
                tuple(
                    slice(None) if a != axis else slice(start, None, data.draw(st.integers(1, 2)))
                    for a in range(len(dims))
                )
            ]
        elif kind == "flip":
            x = graph.apply("flip", x, axes=(axis,))
        elif kind == "concat":
            x = graph.apply("concat", x, x * float(step + 2), axis=axis)
        elif kind == "pad":
            low = tuple(data.draw(st.integers(0, 1)) for _ in dims)
            x = graph.apply("pad", x, low=low, high=low[::-1], value=1.0)
        elif kind == "expand":
            x = graph.apply("expand", x, shape=(2, *dims))
        else:
            x = x + float(step + 1)
        if math.prod(int(d) for d in x.shape) > 4096:  # type: ignore[arg-type]
            break
    graph.output("out", x * 1.5)
    check(device, graph, random_arrays(graph))


def test_every_elementwise_op_is_generated() -> None:
    from meganeura.codegen.functions import elementwise_expression
    from meganeura.ir import OPS, DType

    for name, op_class in OPS.items():
        if not op_class.elementwise:
            continue
        op = op_class() if name != "cast" else op_class(DType.I32)  # type: ignore[call-arg]
        counts = op_class.arity if isinstance(op_class.arity, int) else 2
        accepted = 0
        for dtype in DType:
            kinds = [dtype] * counts if name != "where" else [DType.BOOL, dtype, dtype]
            accepts = {
                "float": dtype.is_float,
                "number": dtype is not DType.BOOL,
                "bool": dtype is DType.BOOL,
                "any": True,
            }
            if name == "where" or accepts[op_class.accepts]:  # type: ignore[attr-defined]
                assert elementwise_expression(op, ["a", "b", "c"][:counts], kinds)
                accepted += 1
        assert accepted, name


def test_a_part_that_cannot_be_met_leaves_no_arithmetic(device: Device) -> None:
    """Rolling twice by one: inside the first element's branch some parts of the inner join are out of reach."""
    graph, (x,) = region_of((5,))
    rolled = graph.apply("concat", x[1:], x[:1], axis=0)
    graph.output("out", graph.apply("concat", rolled[1:], rolled[:1], axis=0))
    check(device, graph, random_arrays(graph))
    padded, (y,) = region_of((3,))
    wide = padded.apply("pad", y, low=(2,), high=(1,), value=7.0)
    padded.output("out", padded.apply("concat", wide[:1], wide[5:], wide[2:3], axis=0))
    check(device, padded, random_arrays(padded))
