"""Small model files for the command line's tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, WIDTH = 11, 8


def write_encoder(path: Path, operator: str = "Tanh") -> Path:
    """An encoder of ids and a mask, both `[batch, length]`, with one attention block.

    Args:
        operator: the activation at the end, of which every output element is one value.
    """
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.normal(0, 0.5, shape).astype(np.float32), name)

    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["x"], "look_up"),
        *(node("MatMul", ["x", f"w_{kind}"], [kind], f"project_{kind}") for kind in "qkv"),
        node("Transpose", ["k"], ["kt"], "turn", perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"], "score"),
        node("Div", ["scores", "root"], ["scaled"], "scale"),
        node("Cast", ["mask"], ["seen"], "cast", to=TensorProto.FLOAT),
        node("Unsqueeze", ["seen", "one"], ["row"], "row"),
        node("Sub", ["unit", "row"], ["unseen"], "unseen"),
        node("Mul", ["unseen", "low"], ["bias"], "bias"),
        node("Add", ["scaled", "bias"], ["masked"], "hide"),
        node("Softmax", ["masked"], ["weights"], "normalise", axis=-1),
        node("MatMul", ["weights", "v"], ["mixed"], "mix"),
        node(operator, ["mixed"], ["hidden"], "activate"),
        node("ReduceMean", ["hidden"], ["pooled"], "pool", axes=[1], keepdims=0),
    ]
    constants = [
        weight("table", VOCABULARY, WIDTH),
        *(weight(f"w_{kind}", WIDTH, WIDTH) for kind in "qkv"),
        numpy_helper.from_array(np.array(WIDTH**0.5, np.float32), "root"),
        numpy_helper.from_array(np.array(1.0, np.float32), "unit"),
        numpy_helper.from_array(np.array(-1e9, np.float32), "low"),
        numpy_helper.from_array(np.array([1]), "one"),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in ("ids", "mask")]
    outputs = [
        helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["batch", "length", WIDTH]),
        helper.make_tensor_value_info("pooled", TensorProto.FLOAT, ["batch", WIDTH]),
    ]
    graph = helper.make_graph(nodes, "encoder", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    return path


def write_unsupported(path: Path) -> Path:
    """A model with operators that no front end knows, under two names."""
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["y"], "first_trouble", domain="example.invented"),
        helper.make_node("Defenestrate", ["y"], ["z"], "second_trouble", domain="example.invented"),
    ]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])] for name in ("x", "z"))
    graph = helper.make_graph(nodes, "unsupported", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example.invented", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    return path
