"""An e-graph-optimising neural-network compiler: graphs in, specialised WGSL kernels out.

    import meganeura as mg
    model = mg.compile("model.onnx")
    outputs = model(input_ids=ids, attention_mask=mask)

Heavy parts (the e-graph engine, the device, tokenizers) are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from meganeura import interrupt

if interrupt.started_as_command():
    # The command line's own package comes after this one, whose imports take long enough for a Ctrl-C.
    interrupt.install_for_start()

import meganeura.ops
import meganeura.reference
from meganeura.errors import (
    CheckpointError,
    DeviceError,
    GraphError,
    ImportFailure,
    InputError,
    LimitError,
    MeganeuraError,
    RuleError,
)
from meganeura.ir.dims import symbol
from meganeura.ir.graph import Graph, Tensor
from meganeura.ir.text import format_graph, parse_graph
from meganeura.ir.types import DType
from meganeura.ops.build import (
    abs,
    argmax,
    attention,
    ceil,
    concat,
    cos,
    embedding,
    equal,
    erf,
    exp,
    expand,
    flip,
    floor,
    gather,
    gelu,
    layer_norm,
    log,
    log_softmax,
    max,
    maximum,
    mean,
    merge_heads,
    min,
    minimum,
    relu,
    rms_norm,
    rsqrt,
    sigmoid,
    silu,
    sin,
    softmax,
    split_heads,
    sqrt,
    sum,
    swiglu,
    tanh,
    where,
)
from meganeura.options import CompileOptions, SearchLimits

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from meganeura.compiler import CompiledModel, CompiledProgram, compile
    from meganeura.frontends import load
    from meganeura.runtime.device import Device
    from meganeura.runtime.session import Session
    from meganeura.text import LanguageModel

__version__ = "0.1.0"

_LAZY = {
    "CompiledModel": "meganeura.compiler",
    "CompiledProgram": "meganeura.compiler",
    "compile": "meganeura.compiler",
    "load": "meganeura.frontends",
    "Device": "meganeura.runtime.device",
    "Session": "meganeura.runtime.session",
    "LanguageModel": "meganeura.text",
}


def reference(model: Any) -> Callable[..., dict[str, np.ndarray]]:
    """The model as a function computed by the float64 reference evaluator; see `meganeura.compiler.reference`."""
    from meganeura.compiler import reference as compiled_reference

    return compiled_reference(model)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'meganeura' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "CheckpointError",
    "CompileOptions",
    "CompiledModel",
    "CompiledProgram",
    "DType",
    "Device",
    "DeviceError",
    "Graph",
    "GraphError",
    "ImportFailure",
    "InputError",
    "LanguageModel",
    "LimitError",
    "MeganeuraError",
    "RuleError",
    "SearchLimits",
    "Session",
    "Tensor",
    "abs",
    "argmax",
    "attention",
    "ceil",
    "compile",
    "concat",
    "cos",
    "embedding",
    "equal",
    "erf",
    "exp",
    "expand",
    "flip",
    "floor",
    "format_graph",
    "gather",
    "gelu",
    "layer_norm",
    "load",
    "log",
    "log_softmax",
    "max",
    "maximum",
    "mean",
    "merge_heads",
    "min",
    "minimum",
    "parse_graph",
    "reference",
    "relu",
    "rms_norm",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "softmax",
    "split_heads",
    "sqrt",
    "sum",
    "swiglu",
    "symbol",
    "tanh",
    "where",
]
