"""Small ONNX models written in the standard's text syntax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper

from meganeura.frontends.onnx import load_onnx
from meganeura.ir.constants import narrow
from meganeura.reference import evaluate


def model(signature: str, body: str, opset: int = 17, **tensors: Any) -> ModelProto:
    """A model such as `model("float[n, 4] x) => (float[n, 4] y", "y = Add (x, w)", w=np.ones(4, np.float32))`."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> main ({signature}) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in tensors.items())
    return proto


def run(proto: ModelProto, inputs: Mapping[str, Any], fixed: Mapping[str, Any] | None = None) -> list[np.ndarray]:
    """The outputs of a model through the front end and the reference evaluator."""
    loaded = load_onnx(proto, fixed=fixed)
    dims = {
        repr(dim): length
        for name, tensor_type in loaded.inputs.items()
        for dim, length in zip(tensor_type.shape, np.shape(inputs[name]), strict=True)
        if not isinstance(dim, int)
    }
    narrowed = {name: narrow(np.asarray(value), name) for name, value in inputs.items()}
    return list(evaluate(loaded.graph(dims), narrowed).values())


def runtime(proto: ModelProto, inputs: Mapping[str, Any]) -> list[np.ndarray]:
    """The outputs of a model through onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(inputs))  # type: ignore[return-value]
