"""Operators without a counterpart in the IR that exporters use on shapes and masks: computed while importing.

All their operands must be known then. The values come from the standard's own reference implementation.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from meganeura.frontends.onnx.node import OnnxNode
from meganeura.frontends.onnx.registry import importer
from meganeura.frontends.onnx.value import Builder, Value


@importer("NonZero", "Unique", known=(0,), since=9)
@importer("Compress", known=(0, 1), since=9)
@importer("TopK", known=(0, 1), since=10)
@importer("ScatterElements", "ScatterND", known=(0, 1, 2), since=11)
def host_only(build: Builder, node: OnnxNode, *operands: Value | None) -> tuple[Value, ...]:
    """The node evaluated alone."""
    # Imported here: few models need it, and it takes a while.
    from onnx.reference import ReferenceEvaluator

    arrays = {
        name: value.array(f"operand {name!r} of {node.op_type}")
        for name, value in zip(node.inputs, operands, strict=True)
        if value is not None
    }
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in arrays.items()
    ]
    named = [name for name in node.outputs if name]
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in named]
    graph = helper.make_graph([node.proto], "node", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.version)])
    results = dict(zip(named, ReferenceEvaluator(model).run(None, arrays), strict=True))
    return tuple(build.wrap(np.asarray(results[name])) if name else build.full(0, ()) for name in node.outputs)
