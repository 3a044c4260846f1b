"""Every op on the device against the reference: edge shapes, ranks 0 to 5, special values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meganeura as mg
from meganeura.ir import OPS, Graph, Tensor
from meganeura.ops.rotary import rotary_tables
from meganeura.reference import evaluate

SHAPES = [(), (1,), (31,), (32, 2), (33,), (3, 63), (64,), (65,), (0,), (2, 0, 3), (2, 1, 3, 1, 4)]
ROW_SHAPES = [(1,), (3, 31), (2, 32), (33,), (2, 63), (1, 64), (5, 65), (0, 4), (2, 1, 3, 2, 4), (1, 700)]
USUAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 20.0, -20.0, 100.0, -100.0]
SPECIAL = np.array([*USUAL, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)

FLOAT_UNARY = sorted(
    name
    for name, op in OPS.items()
    if op.elementwise
    and op.arity == 1
    and name not in ("cast", "not")
    and getattr(op, "accepts", "") in ("float", "number")
)
FLOAT_BINARY = ["add", "sub", "mul", "div", "mod", "pow", "maximum", "minimum", "equal", "less", "less_equal", "swiglu"]


def run(device: mg.Device, graph: Graph, inputs: dict[str, np.ndarray]) -> None:
    """Unoptimised device results against the reference: masks of NaN and infinity first, then values."""
    want = evaluate(graph, inputs)
    got = mg.compile(graph, device=device, optimize=False, guard_bytes=256)(**inputs)
    for name, value in got.items():
        compare(value, want[name], name)


def compare(got: np.ndarray, want: np.ndarray, what: str, magnitude: float | None = None) -> None:
    """Equal masks, exact integers, floats within 2e-4 of the magnitude accumulated."""
    assert got.shape == want.shape and got.dtype == want.dtype, what
    if want.dtype.kind != "f":
        assert np.array_equal(got, want), what
        return
    assert np.array_equal(np.isnan(got), np.isnan(want)), what
    assert np.array_equal(np.where(np.isinf(got), got, 0), np.where(np.isinf(want), want, 0)), what
    finite = np.isfinite(want)
    limit = 2e-4 * np.maximum(np.abs(want[finite]), 1.0 if magnitude is None else magnitude)
    assert np.all(np.abs(got[finite].astype(np.float64) - want[finite]) <= limit), what


def values(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_float_unary_shapes(device: mg.Device, shape: tuple[int, ...]) -> None:
    """All unary float ops at once: each is a dispatch of its own without optimisation."""
    graph = Graph("unary")
    x = graph.input("x", shape)
    for name in ("neg", "exp", "tanh", "gelu", "floor"):
        graph.output(name, graph.apply(name, x))
    run(device, graph, {"x": values(shape)})


@pytest.mark.parametrize("name", FLOAT_UNARY)
def test_float_unary_special_values(device: mg.Device, name: str) -> None:
    graph = Graph(name)
    usual = np.linspace(-9, 9, 47, dtype=np.float32)
    data = np.concatenate([usual, SPECIAL[:-5] if name in ("sin", "cos") else SPECIAL])
    x = graph.input("x", data.shape)
    if OPS[name].kind.value == "composite":
        # The composite itself as one kernel, not its decomposition.
        graph.output("y", graph.apply(name, x))
        want = evaluate(graph, {"x": data})["y"]
        got = mg.compile(graph, device=device)(x=data)["y"]
        plain = evaluate(graph.decompose(), {"x": data})["y"]
        settled = np.isnan(want) == np.isnan(plain)
        compare(got[settled], want[settled], name)
        return
    graph.output("y", graph.apply(name, x))
    run(device, graph, {"x": data})


@pytest.mark.parametrize("name", FLOAT_BINARY)
def test_float_binary(device: mg.Device, name: str) -> None:
    """Every pair of special values, by broadcasting a column with a row."""
    graph = Graph(name)
    # Powers of huge values and remainders of huge quotients are decided by the last bit.
    data = SPECIAL[:10] if name in ("pow", "mod", "swiglu") else SPECIAL
    if name == "pow":
        data = np.array([0.25, 0.5, 1.0, 2.0, 3.0, -1.0, -2.0, 0.0], np.float32)
    if name == "mod":
        data = np.array([7.5, -7.5, 3.25, -3.25, 0.5, 2.0], np.float32)
    a, b = graph.input("a", (len(data), 1)), graph.input("b", (len(data),))
    graph.output("y", graph.apply(name, a, b))
    run(device, graph, {"a": data[:, None], "b": data})


@pytest.mark.parametrize("dtype", ["i32", "u32"])
def test_integers_are_exact(device: mg.Device, dtype: str) -> None:
    graph = Graph(dtype)
    ends = [0, 1, 7, 100, 2**31 - 1] + ([-1, -7, -(2**31)] if dtype == "i32" else [2**32 - 1, 2**31])
    data = np.array(ends).astype({"i32": np.int32, "u32": np.uint32}[dtype])
    a, b = graph.input("a", (len(data), 1), dtype), graph.input("b", (len(data),), dtype)
    for name in ("add", "sub", "mul", "maximum", "minimum", "equal", "less", "less_equal"):
        graph.output(name, graph.apply(name, a, b))
    for name in ("div", "mod"):
        graph.output(name, graph.apply(name, a, graph.apply("maximum", b, 1.0)))
    for name in ("abs", "sign", "neg"):
        graph.output(name, graph.apply(name, a))
    graph.output("float", a.astype("f32"))
    graph.output("bool", a.astype("bool"))
    run(device, graph, {"a": data[:, None], "b": data})


def test_logic_and_selection(device: mg.Device) -> None:
    graph = Graph("logic")
    a, b, x = graph.input("a", (2, 1), "bool"), graph.input("b", (2,), "bool"), graph.input("x", (3, 1, 1))
    for name in ("and", "or", "xor"):
        graph.output(name, graph.apply(name, a, b))
    graph.output("not", graph.apply("not", a))
    graph.output("where", mg.where(a, x, -x * 2.0))
    graph.output("count", mg.sum(a.astype("i32") + b.astype("i32")))
    run(device, graph, {"a": np.array([[True], [False]]), "b": np.array([True, False]), "x": values((3, 1, 1))})


def test_casts_saturate(device: mg.Device) -> None:
    graph = Graph("casts")
    data = np.array([0.0, -0.9, 0.9, 1.5, -1.5, 3e9, -3e9, 5e9, np.inf, -np.inf, np.nan, 2147483520.0], np.float32)
    x = graph.input("x", data.shape)
    for dtype in ("i32", "u32", "bool"):
        graph.output(dtype, x.astype(dtype))
    run(device, graph, {"x": data})


@pytest.mark.parametrize("shape", ROW_SHAPES, ids=str)
def test_rows(device: mg.Device, shape: tuple[int, ...]) -> None:
    """Softmax and the norms as kernels of their own."""
    graph = Graph("rows")
    x = graph.input("x", shape)
    weight = graph.constant(values(shape[-1:], 1))
    graph.output("softmax", mg.softmax(x))
    graph.output("log_softmax", mg.log_softmax(x, axis=0))
    graph.output("layer_norm", mg.layer_norm(x, weight, weight))
    graph.output("rms_norm", mg.rms_norm(x, weight))
    both = graph.apply("residual_rms_norm", x, x, weight)
    graph.output("residual", graph.apply("proj", both, index=1))
    data = {"x": values(shape) * 3 + 1}
    want = evaluate(graph, data)
    for optimize in (True, False):
        for name, got in mg.compile(graph, device=device, optimize=optimize)(**data).items():
            compare(got, want[name], f"{name} optimize={optimize}")


@pytest.mark.parametrize("shape", [*ROW_SHAPES, ()], ids=str)
@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_reductions(device: mg.Device, shape: tuple[int, ...], dtype: str) -> None:
    graph = Graph("reductions")
    x = graph.input("x", shape, dtype)
    data = values(shape) if dtype == "f32" else np.random.default_rng(0).integers(-9, 9, shape).astype(np.int32)
    axes = [tuple(range(len(shape))), (len(shape) - 1,), (0,)] if shape else [()]
    for axis in dict.fromkeys(axes):
        empty = any(shape[a] == 0 for a in axis)
        for name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_mean"):
            if (empty and name in ("reduce_max", "reduce_min", "reduce_mean")) or (
                name == "reduce_mean" and dtype != "f32"
            ):
                continue
            graph.output(f"{name}{axis}", graph.apply(name, x, axes=axis, keepdims=len(axis) != 1))
        if len(axis) == 1 and not empty:
            graph.output(f"argmax{axis}", graph.apply("argmax", x, axis=axis[0], keepdims=False))
    run(device, graph, {"x": data})


MATMULS = [
    ((1, 1), (1, 1)),
    ((31, 33), (33, 32)),
    ((2, 63, 5), (5, 65)),
    ((64, 64), (64, 64)),
    ((1, 65), (65, 31)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((2, 1, 3, 4), (3, 4, 5)),
    ((7,), (7, 3)),
    ((3, 7), (7,)),
    ((7,), (7,)),
]


@pytest.mark.parametrize(("left", "right"), MATMULS, ids=str)
def test_matmul(device: mg.Device, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    graph = Graph("matmul")
    a, b = graph.input("a", left), graph.input("b", right)
    graph.output("plain", a @ b)
    if len(left) > 1 and len(right) > 1:
        order = (*range(len(right) - 2), len(right) - 1, len(right) - 2)
        graph.output("flipped", graph.apply("matmul", a, b.transpose(order), transpose_b=True, alpha=-0.5))
    run(device, graph, {"a": values(left), "b": values(right, 1)})


Maker = Callable[[Graph, Tensor], Tensor]
MOVES: dict[str, Maker] = {
    "reshape": lambda g, x: x.reshape(-1),
    "transpose": lambda g, x: x.transpose(),
    "expand": lambda g, x: mg.expand(x, (3, *x.shape)),
    "slice": lambda g, x: x[..., ::2],
    "flip": lambda g, x: g.apply("flip", x, axes=(x.rank - 1,)),
    "concat": lambda g, x: mg.concat([x, x * 2.0, x], axis=-1),
    "pad": lambda g, x: g.apply("pad", x, low=(1,) * x.rank, high=(0,) * x.rank, value=np.float64(-np.inf)),
    "gather": lambda g, x: mg.gather(x, g.constant(np.array([[0, -1]])), axis=0),
    "gather_elements": lambda g, x: g.apply("gather_elements", x, g.apply("argmax", x, axis=0), axis=0),
}


@pytest.mark.parametrize("name", MOVES)
def test_movement(device: mg.Device, name: str) -> None:
    graph = Graph(name)
    shapes = [(1,), (33,), (3, 5), (2, 3, 4, 5), (2, 1, 3, 2, 2)]
    for index, shape in enumerate(shapes):
        graph.output(f"y{index}", MOVES[name](graph, graph.input(f"x{index}", shape)))
    run(device, graph, {f"x{i}": values(s, i) for i, s in enumerate(shapes)})


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(device: mg.Device, interleaved: bool) -> None:
    graph = Graph("rotary")
    x = graph.input("x", (2, 3, 4, 10))
    cos, sin = (graph.constant(t) for t in rotary_tables(9, 8))
    position = graph.input("position", (1,), "u32")
    graph.output("static", graph.apply("rope", x, cos[:4], sin[:4], interleaved=interleaved))
    graph.output("dynamic", graph.apply("rope_dynamic", x, cos, sin, position, interleaved=interleaved))
    run(device, graph, {"x": values((2, 3, 4, 10)), "position": np.array([5], np.uint32)})


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("batched", [False, True])
def test_state_update(device: mg.Device, axis: int, batched: bool) -> None:
    if batched and axis == 0:
        axis = 2
    graph = Graph("update")
    shape, rows = [3, 5, 6], [3, 5, 6]
    rows[axis] = 2
    state = graph.state("cache", shape)
    position = graph.input("position", (3,) if batched else (1,), "u32")
    new = graph.apply("state_update", state, graph.input("rows", rows), position, axis=axis)
    graph.output("seen", new * 2.0)
    graph.update("cache", new)
    model = mg.compile(graph, device=device, optimize=False)
    known = np.zeros(shape, np.float32)
    for step in range(3):
        where = np.array([step, 0, 1] if batched else [step], np.uint32)
        data = {"rows": values(tuple(rows), step), "position": where}
        want = evaluate(graph, {**data, "cache": known})
        compare(model(**data)["seen"], want["seen"], f"step {step}")
        known = want["state:cache"]
        compare(model.session.read_state("cache"), known, f"state after step {step}")


def test_float16_storage(device: mg.Device) -> None:
    graph = Graph("half")
    x, w = graph.input("x", (5, 33), "f16"), graph.input("w", (33, 7), "f16")
    graph.output("product", x @ w)
    graph.output("norm", mg.softmax(x * 2.0))
    graph.output("total", mg.sum(x, axis=1))
    data = {"x": values((5, 33)).astype(np.float16), "w": values((33, 7), 1).astype(np.float16)}
    want = evaluate(graph, data)
    for optimize in (True, False):
        for name, got in mg.compile(graph, device=device, optimize=optimize)(**data).items():
            assert got.dtype == np.float16
            assert np.max(np.abs(got.astype(np.float64) - want[name])) <= 1e-2 * max(
                1.0, float(np.abs(want[name]).max())
            )
