"""What the front end makes of a model: constants folded, weights lazy, names kept, dimensions symbolic."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from meganeura.errors import ImportFailure, InputError
from meganeura.frontends.onnx import load_onnx
from meganeura.ir.dims import symbol
from meganeura.ir.model import Model
from meganeura.ir.types import DType, TensorType
from meganeura.ir.validate import validate
from tests.frontends.onnx_frontend.models import model, run, runtime

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ops_of(proto: onnx.ModelProto, **dims: int) -> list[str]:
    return [node.op.name for node in validate(load_onnx(proto).graph(dims)).nodes]


def test_satisfies_the_model_protocol():
    loaded = load_onnx(model("float[n, 4] x, int64[n] i) => (float[n, 4] y", "y = Relu (x)"))
    assert isinstance(loaded, Model)
    assert loaded.inputs == {"x": TensorType(DType.F32, (symbol("n"), 4)), "i": TensorType(DType.I32, (symbol("n"),))}
    assert loaded.outputs == ("y",) and loaded.symbols == {"n"}
    assert list(loaded.graph({"n": 2}).inputs) == ["x", "i"]


def test_dimensions_missing_or_negative():
    loaded = load_onnx(model("float[n, m] x) => (float[n, m] y", "y = Relu (x)"))
    with pytest.raises(InputError, match="m, n"):
        loaded.graph({})
    with pytest.raises(InputError, match="negative"):
        loaded.graph({"n": 1, "m": -1})


def test_unnamed_and_odd_dimensions():
    proto = model("float[n, 2] x, float[n, 2] z) => (float[n, 2] y", "y = Add (x, z)")
    dims = [info.type.tensor_type.shape.dim for info in proto.graph.input]
    dims[0][0].Clear()
    dims[1][0].dim_param = "batch size"
    dims[1][1].dim_param = "past + 1"
    loaded = load_onnx(proto)
    assert loaded.symbols == {"x_0", "batch_size", "past_1"}
    dims[0][0].dim_param = "past"
    assert load_onnx(proto).inputs["z"].shape == (symbol("batch_size"), symbol("past") + 1)


def test_integer_shape_arithmetic_disappears():
    proto = model(
        "float[batch, seq, 12] x) => (float[batch, heads, seq, width] y",
        """s = Shape (x)  zero = Constant <value_int = 0> ()  one = Constant <value_int = 1> ()
           b = Gather (s, zero)  n = Gather (s, one)
           axes = Constant <value_ints = [0]> ()  b1 = Unsqueeze (b, axes)  n1 = Unsqueeze (n, axes)
           rest = Constant <value_ints = [3, -1]> ()  wanted = Concat <axis = 0> (b1, n1, rest)
           split = Reshape (x, wanted)  y = Transpose <perm = [0, 2, 1, 3]> (split)""",
    )
    assert ops_of(proto, batch=2, seq=5) == ["input", "reshape", "transpose"]
    x = floats(2, 5, 12)
    np.testing.assert_array_equal(run(proto, {"x": x})[0], x.reshape(2, 5, 3, 4).transpose(0, 2, 1, 3))


def test_causal_mask_is_one_constant():
    proto = model(
        "float[n, n] scores) => (float[n, n] y",
        """s = Shape (scores)  ones = ConstantOfShape <value = bool[1] {1}> (s)  kept = Trilu <upper = 0> (ones)
           low = Constant <value_float = -10000.0> ()  y = Where (kept, scores, low)""",
    )
    graph = load_onnx(proto).graph({"n": 7})
    assert sorted(node.op.name for node in graph.nodes) == ["constant", "full", "input", "where"]
    (data,) = graph.constants.values()
    np.testing.assert_array_equal(data.load(), np.tri(7, dtype=bool))


def test_large_uniform_tensors_are_never_spelled_out():
    proto = model(
        "float[n, m] x) => (float[n, m] y",
        "s = Shape (x)  c = ConstantOfShape <value = float[1] {0.5}> (s)  y = Add (x, c)",
    )
    assert ops_of(proto, n=1 << 20, m=1 << 10) == ["input", "full", "add"]


def test_small_table_is_not_expanded():
    proto = model(
        "float[n, 4] x) => (float[n, 4] y", "s = Shape (x)  t = Expand (w, s)  y = Add (x, t)", w=floats(1, 4)
    )
    assert "expand" in ops_of(proto, n=4096)


def test_weights_are_shared_and_lazy(tmp_path, monkeypatch):
    weight = floats(64, 64)
    proto = model("float[n, 64] x) => (float[n, 64] y", "y = MatMul (x, w)", w=weight)
    onnx.save(proto, tmp_path / "model.onnx")
    loaded = load_onnx(tmp_path / "model.onnx")
    first, second = loaded.graph({"n": 1}), loaded.graph({"n": 2})
    assert list(first.constants) == list(second.constants) == list(load_onnx(proto).graph({"n": 3}).constants)
    (data,) = first.constants.values()
    np.testing.assert_array_equal(data.load(), weight)
    (tmp_path / "model.onnx").write_bytes(b"changed")
    with pytest.raises(ImportFailure, match="was changed"):
        data.load()


def test_external_data(tmp_path):
    weight = floats(64, 64)
    proto = model("float[n, 64] x) => (float[n, 64] y", "y = MatMul (x, w)", w=weight)
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    loaded = load_onnx(tmp_path / "model.onnx")
    (data,) = loaded.graph({"n": 1}).constants.values()
    np.testing.assert_array_equal(data.load(), weight)
    (tmp_path / "weights.bin").write_bytes(bytes(100))
    with pytest.raises(ImportFailure, match=r"weights.bin is truncated.*'w'"):
        load_onnx(tmp_path / "model.onnx")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ImportFailure, match=r"no such file.*weights.bin"):
        load_onnx(tmp_path / "model.onnx")
    escaped = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    with pytest.raises(ImportFailure, match="without a path"):
        load_onnx(escaped)
    escaped.graph.initializer[0].external_data[0].value = "../weights.bin"
    (tmp_path / "model.onnx").write_bytes(escaped.SerializeToString())
    with pytest.raises(ImportFailure, match="outside the model's folder"):
        load_onnx(tmp_path / "model.onnx")


def test_sources_are_node_names():
    proto = model("float[n, 4] x) => (float[n, 4] y", "h = Relu (x)  y = Add (h, w)", w=floats(4))
    proto.graph.node[1].name = "block/residual"
    graph = load_onnx(proto).graph({"n": 2})
    sources = {node.op.name: node.sources for node in graph.nodes}
    assert sources == {"input": ("x",), "relu": ("Relu(h)",), "constant": ("w",), "add": ("block/residual",)}


def test_initializers_that_are_inputs_are_constants():
    proto = model("float[n, 4] x, float[4] w) => (float[n, 4] y", "y = Mul (x, w)", w=floats(4))
    assert list(load_onnx(proto).inputs) == ["x"]


def test_fixed_inputs():
    proto = model("float[n, 4] x, int64[2] s) => (float[a, b] y", "y = Reshape (x, s)")
    with pytest.raises(ImportFailure, match=r"'s' of Reshape depends on the values of the model's inputs.*fixed="):
        load_onnx(proto).graph({"n": 2})
    loaded = load_onnx(proto, fixed={"s": [4, -1]})
    assert list(loaded.inputs) == ["x"] and loaded.graph({"n": 2}).nodes[-1].tensor_type.shape == (4, 2)
    with pytest.raises(InputError, match="no input is called q"):
        load_onnx(proto, fixed={"q": 1})


def test_if_with_a_known_condition():
    proto = model(
        "float[n] x) => (float[n] y",
        """s = Size (x)  limit = Constant <value_int = 3> ()  long = Greater (s, limit)
           two = Constant <value_float = 2.0> ()
           y = If (long) <then_branch = t () => (float[n] a) { a = Neg (x) },
                          else_branch = e () => (float[n] b) { b = Mul (x, two) }>""",
    )
    np.testing.assert_array_equal(run(proto, {"x": np.ones(2, np.float32)})[0], [2, 2])
    np.testing.assert_array_equal(run(proto, {"x": np.ones(4, np.float32)})[0], [-1] * 4)


def test_functions_of_the_model_are_inlined():
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
           main (float[n] x) => (float[n] y) { y = local.twice <factor = 3.0> (x) }
           <domain: "local", opset_import: ["" : 17]>
           twice <factor> (a) => (b) { f = Constant <value_float: float = @factor> ()  b = Mul (a, f) }"""
    )
    np.testing.assert_array_equal(run(proto, {"x": np.ones(2, np.float32)})[0], [3, 3])


@pytest.mark.parametrize("element", ["uint8", "int8", "uint16", "int16"])
def test_narrow_integers_wrap(element):
    limits = np.iinfo(element)
    a = np.array([limits.min, limits.max, limits.max, 100, 7], element)
    b = np.array([1, 1, limits.max, 3, 5], element)
    proto = model(
        f"{element}[5] a, {element}[5] b) => ({element}[5] s, {element}[5] d, {element}[5] p",
        "s = Add (a, b)  d = Sub (a, b)  p = Mul (a, b)",
    )
    with np.errstate(over="ignore"):
        expected = [a + b, a - b, a * b]
    for got, wanted in zip(run(proto, {"a": a, "b": b}), expected, strict=True):
        np.testing.assert_array_equal(got, wanted.astype(np.int64))


def test_wide_integers_are_checked():
    proto = model("int64[2] x) => (int64[2] y", "y = Add (x, w)", w=np.array([2**40, 0]))
    with pytest.raises(ImportFailure, match="does not fit 32 bits"):
        load_onnx(proto).graph({})


@pytest.mark.parametrize(("to", "expected"), [(6, [2**31 - 1, -(2**31), 0, -3]), (2, [255, 0, 0, 253]), (7, None)])
def test_known_floats_are_cast_as_the_device_does(to, expected):
    values = np.array([np.inf, -np.inf, np.nan, -3.7], np.float32)
    body = f"c = Cast <to = {to}> (w)  y = Add (c, z)"
    proto = model("float[1] x, int64[1] z) => (int64[4] y", body, w=values)
    if expected is None:
        with pytest.raises(ImportFailure, match="does not fit 32 bits"):
            run(proto, {"x": np.zeros(1, np.float32), "z": np.zeros(1, np.int64)})
        return
    np.testing.assert_array_equal(run(proto, {"x": np.zeros(1, np.float32), "z": np.zeros(1, np.int64)})[0], expected)


def test_bounds_of_64_bits_clip_alike():
    proto = model("int64[3] x) => (int64[3] y", "y = Clip (x, low, high)", low=np.int64(-(2**63)), high=np.int64(5))
    np.testing.assert_array_equal(run(proto, {"x": np.array([-7, 3, 9])})[0], [-7, 3, 5])


OLD = {
    "softmax of the rest": (11, "float[2, 3, 4] x) => (float[2, 3, 4] y", "y = Softmax <axis = 1> (x)"),
    "log-softmax of the rest": (11, "float[2, 3, 4] x) => (float[2, 3, 4] y", "y = LogSoftmax <axis = -1> (x)"),
    "clip by attributes": (10, "float[2, 3, 4] x) => (float[2, 3, 4] y", "y = Clip <min = -0.5, max = 0.25> (x)"),
    "sum over attribute axes": (
        11,
        "float[2, 3, 4] x) => (float[2, 4] y",
        "y = ReduceSum <axes = [1], keepdims = 0> (x)",
    ),
    "mean over attribute axes": (13, "float[2, 3, 4] x) => (float[2, 1, 4] y", "y = ReduceMean <axes = [-2]> (x)"),
    "squeeze by attribute": (11, "float[2, 3, 4] x) => (float[2, 1, 3, 4] y", "y = Unsqueeze <axes = [1]> (x)"),
    "slice by attributes": (
        9,
        "float[2, 3, 4] x) => (float[2, 1, 3] y",
        "y = Slice <starts = [1, -3], ends = [2, 99], axes = [1, 2]> (x)",
    ),
    "pad by attributes": (
        10,
        "float[2, 3, 4] x) => (float[2, 4, 6] y",
        'y = Pad <pads = [0, 1, 0, 0, 0, 2], value = 3.0, mode = "constant"> (x)',
    ),
    "split by attribute": (
        11,
        "float[2, 3, 4] x) => (float[2, 1, 4] y, float[2, 2, 4] z",
        "y, z = Split <axis = 1, split = [1, 2]> (x)",
    ),
    "dropout": (11, "float[2, 3, 4] x) => (float[2, 3, 4] y", "y = Dropout <ratio = 0.5> (x)"),
}


@pytest.mark.parametrize("name", OLD)
def test_older_operator_sets(name):
    opset, signature, body = OLD[name]
    proto = model(signature, body, opset)
    x = floats(2, 3, 4)
    for got, wanted in zip(run(proto, {"x": x}), runtime(proto, {"x": x}), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


SPELLINGS = {
    "backward slice": (
        "float[5, 4] x) => (float[a, b] y",
        "y = Slice (x, s, e, a, st)",
        {"s": [-1, 3], "e": [-99, 0], "a": [0, 1], "st": [-2, -1]},
    ),
    "reflected": ("float[5, 4] x) => (float[a, b] y", 'y = Pad <mode = "reflect"> (x, p)', {"p": [2, 1, 1, 3]}),
    "cut and padded": ("float[5, 4] x) => (float[a, b] y", "y = Pad (x, p)", {"p": [-1, 0, 2, -2]}),
    "running sum": ("float[5, 4] x) => (float[5, 4] y", "y = CumSum <exclusive = 1, reverse = 1> (x, a)", {"a": 0}),
    "square": ("float[5, 4] x) => (float[5, 4] y", "e = Constant <value_float = 2.0> ()  y = Pow (x, e)", {}),
    "cube": ("float[5, 4] x) => (float[5, 4] y", "e = Constant <value_float = 3.0> ()  y = Pow (x, e)", {}),
    "integer power": ("int64[5, 4] i) => (int64[5, 4] y", "e = Constant <value_int = 5> ()  y = Pow (i, e)", {}),
    "floor remainder": ("int64[5, 4] i) => (int64[5, 4] y", "e = Constant <value_int = -3> ()  y = Mod (i, e)", {}),
    "truncated quotient": ("int64[5, 4] i) => (int64[5, 4] y", "e = Constant <value_int = -3> ()  y = Div (i, e)", {}),
    "last maximum": (
        "int64[5, 4] i) => (int64[5] y",
        "y = ArgMax <axis = 1, keepdims = 0, select_last_index = 1> (i)",
        {},
    ),
    "minimum": ("int64[5, 4] i) => (int64[1, 4] y", "y = ArgMin <axis = 0> (i)", {}),
    "hot": (
        "int64[5, 4] i) => (float[a, b, c] y",
        "y = OneHot <axis = 1> (i, d, v)",
        {"d": 6, "v": np.array([-1, 2], np.float32)},
    ),
    "repeated": ("float[5, 4] x) => (float[a, b] y", "y = Tile (x, r)", {"r": [2, 3]}),
    "gemm": (
        "float[5, 4] x) => (float[4, 5] y",
        "y = Gemm <alpha = 0.5, beta = 2.0, transA = 1> (x, w, c)",
        {"w": floats(5, 5), "c": floats(4, 1)},
    ),
    "norm over two axes": (
        "float[5, 4] x) => (float[5, 4] y, float[1, 1] m",
        "y, m = LayerNormalization <axis = 0> (x, w)",
        {"w": floats(5, 4)},
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_agrees_with_onnxruntime(name):
    signature, body, tensors = SPELLINGS[name]
    proto = model(signature, body, 17, **tensors)
    given_inputs = {"x": floats(5, 4), "i": RNG.integers(-5, 6, (5, 4))}
    inputs = {info.name: given_inputs[info.name] for info in proto.graph.input}
    for got, wanted in zip(run(proto, inputs), runtime(proto, inputs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_einsum_agrees_with_numpy(data):
    lengths = dict(zip("abcd", (2, 3, 4, 1), strict=True))
    terms = data.draw(st.lists(st.text("abcd", min_size=1, max_size=4), min_size=1, max_size=3))
    used = sorted(set("".join(terms)))
    result = "".join(data.draw(st.permutations(used))[: data.draw(st.integers(0, len(used)))])
    equation = ",".join(terms) + "->" + result
    arrays = [floats(*(lengths[label] for label in term)) for term in terms]
    names = [f"x{i}" for i in range(len(terms))]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in zip(names, arrays, strict=True)]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    proto = helper.make_model(helper.make_graph([node], "g", inputs, [output]))
    wanted = np.einsum(equation, *(a.astype(np.float64) for a in arrays))
    np.testing.assert_allclose(run(proto, dict(zip(names, arrays, strict=True)))[0], wanted, rtol=1e-4, atol=1e-5)


def test_typed_data_fields_are_read():
    proto = model("float[2] x) => (float[2] y", "y = Add (x, w)")
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [2], [0.5, 1.5]))
    assert not proto.graph.initializer[0].raw_data
    np.testing.assert_array_equal(run(proto, {"x": np.zeros(2, np.float32)})[0], [0.5, 1.5])
    assert numpy_helper.to_array(proto.graph.initializer[0]).dtype == np.float32
