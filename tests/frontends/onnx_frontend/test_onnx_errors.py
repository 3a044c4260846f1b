"""Files that cannot be read: one error of our own, naming what is wrong and where."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from meganeura.errors import ImportFailure, MeganeuraError
from meganeura.frontends.onnx import load_onnx
from tests.frontends.onnx_frontend.models import model

RNG = np.random.default_rng(0)


def failure(proto: onnx.ModelProto, **dims: int) -> ImportFailure:
    with pytest.raises(ImportFailure) as caught:
        load_onnx(proto).graph(dims)
    return caught.value


def test_all_unsupported_operators_are_listed_at_once():
    proto = model(
        "float[1, 1, 8, 8] x) => (float[a] y",
        """c = Conv (x, w)  p = MaxPool <kernel_shape = [2, 2]> (c)  q = Conv (p, w)  r = Relu (q)
           f = com.microsoft.FastGelu (r)  b = Cast <to = 16> (f)  y = Asin (b)""",
        w=np.zeros((1, 1, 1, 1), np.float32),
    )
    proto.graph.node[0].name = "stem/conv"
    with pytest.raises(ImportFailure) as caught:
        load_onnx(proto)
    text = str(caught.value)
    for part in (
        "Conv: stem/conv, Conv(q)",
        "MaxPool: MaxPool(p)",
        "com.microsoft.FastGelu: FastGelu(f)",
        "Asin(y)",
    ):
        assert part in text
    assert "Cast to bfloat16: Cast(b)" in text and "Relu" not in text


def test_unsupported_operators_in_branches_are_listed():
    proto = model(
        "float[n] x, bool c) => (float[n] y",
        """y = If (c) <then_branch = t () => (float[n] a) { a = Neg (x) },
                       else_branch = e () => (float[n] b) { b = Asin (x) }>""",
    )
    with pytest.raises(ImportFailure, match=r"Asin: Asin\(b\)"):
        load_onnx(proto)


@pytest.mark.parametrize(
    ("signature", "body", "words"),
    [
        (
            "float[n, 4] x, float[3] z) => (float[n, 4] y",
            "y = Add (x, z)",
            ["Add(y)", "do not broadcast", "f32[3]", "n=2"],
        ),
        ("float[n, 4] x, float[5, 2] z) => (float[n, 2] y", "y = MatMul (x, z)", ["MatMul(y)", "inner dimensions"]),
        ("float[n, 4] x) => (float[n, 4] y", "y = Softmax <axis = 3> (x)", ["Softmax(y)", "axis 3 is out of range"]),
        ("float[n, 4] x) => (float[4, n] y", "y = Transpose <perm = [0, 0]> (x)", ["Transpose(y)", "permutation"]),
        ("float[n, 4] x, int64[n] z) => (float[n] y", "y = Add (x, z)", ["Add(y)", "dtype"]),
        ("float[n, 4] x) => (float[9] y", "s = Constant <value_ints = [9]> ()  y = Reshape (x, s)", ["Reshape(y)"]),
        (
            "float[n, 4] x) => (float[9] y",
            "i = Constant <value_int = 4> ()  y = Gather <axis = 1> (x, i)",
            ["outside -4..3"],
        ),
        ("float[n, 4] x) => (float[n] y", "y = Concat (x, x)", ["Concat(y)", "lacks its attribute 'axis'"]),
        ("float[n, 4] x) => (float[n] y", "y = Slice (x)", ["Slice", "operands"]),
        ("float[n, 4] x) => (float[n] y", "y = Relu (q)", ["Relu(y)", "'q' is not made"]),
        ("float[n, 4] x) => (float[n] z", "y = Relu (x)", ["'z' is made by no node"]),
        ("bfloat16[n, 4] x) => (bfloat16[n, 4] y", "y = Relu (x)", ["'x'", "bfloat16"]),
        ("seq(float[n]) x) => (seq(float[n]) y", "y = Identity (x)", ["'x'", "sequence"]),
        ("float[n, 4] x) => (float[n, 4] y, bool[n, 4] m", "y, m = Dropout (x, r, t)", ["training mode"]),
    ],
)
def test_mistakes_in_a_file_name_their_node(signature, body, words):
    tensors = {"r": np.float32(0.5), "t": np.bool_(True)} if "Dropout" in body else {}
    text = str(failure(model(signature, body, **tensors), n=2))
    for word in words:
        assert word in text, text


def test_inputs_without_shape():
    proto = model("float[n] x) => (float[n] y", "y = Relu (x)")
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert "'x' has no shape" in str(failure(proto))


def test_old_operator_sets():
    proto = model("float[n] x) => (float[n] y", "y = Cast <to = 1> (x)", opset=5)
    assert "Cast before operator set 6 (the file has 5): Cast(y)" in str(failure(proto))


def test_strings_and_damaged_tensors():
    proto = model("float[n] x) => (float[n] y", "y = Add (x, w)")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(["a"], object), "w"))
    assert "'w' has the unsupported element type string" in str(failure(proto))
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.zeros(3, np.float32), "w"))
    proto.graph.initializer[0].raw_data = bytes(8)
    assert "'w' holds 8 bytes of data, its type needs 12" in str(failure(proto, n=3))
    proto.graph.initializer[0].CopyFrom(helper.make_tensor("w", onnx.TensorProto.FLOAT, [3], [0.0] * 3))
    proto.graph.initializer[0].dims[0] = 4
    assert "'w'" in str(failure(proto, n=3))


def sample() -> bytes:
    weight = RNG.standard_normal((32, 40)).astype(np.float32)
    body = "s = Shape (x)  h = MatMul (x, w)  r = Relu (h)  t = ReduceMean <axes = [1]> (r)  y = Add (t, b)"
    proto = model("float[n, 32] x) => (float[n, 40] y", body, w=weight, b=np.zeros(40, np.float32))
    return proto.SerializeToString()


def test_every_truncation_is_noticed(tmp_path):
    data, path = sample(), tmp_path / "model.onnx"
    for length in [*range(40), *range(40, len(data), 61), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ImportFailure, match=r"empty|truncated|not an ONNX model"):
            load_onnx(path)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_gives_no_other_errors(tmp_path_factory, data):
    damaged = bytearray(sample())
    # The weight's bytes may hold anything, so the damage goes to the rest.
    head = damaged.index(b"MatMul")
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, head + 200))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(bytes(damaged))
    try:
        loaded = load_onnx(path)
        loaded.graph(dict.fromkeys(loaded.symbols, 2))
    except MeganeuraError:
        pass
