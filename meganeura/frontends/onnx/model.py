"""An ONNX model as a source of graphs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto

from meganeura.errors import GraphError, ImportFailure, InputError
from meganeura.frontends.onnx.check import check_operators
from meganeura.frontends.onnx.elements import ELEMENTS, element_name
from meganeura.frontends.onnx.importer import import_graph
from meganeura.frontends.onnx.prepare import Prepared, prepare
from meganeura.frontends.onnx.source import Source, read_file, read_proto
from meganeura.frontends.onnx.tensors import Known
from meganeura.ir.dims import Dim, SymDim, parse_dim, symbol, symbols_of
from meganeura.ir.graph import Graph
from meganeura.ir.model import check_dims
from meganeura.ir.types import TensorType


def load_onnx(model: str | Path | ModelProto, *, fixed: Mapping[str, Any] | None = None) -> OnnxModel:
    """Read an ONNX model.

    Args:
        model: a file, or a model in memory (with its external data loaded).
        fixed: inputs that get a value once and for all, for example a shape that the file takes as an input.

    Raises:
        ImportFailure: not a model, truncated, or using operators, types or versions that are not supported; all
            unsupported operators are listed at once.
    """
    if isinstance(model, ModelProto):
        source = read_proto(model)
    else:
        source = read_file(Path(model))
    return OnnxModel(source, fixed or {})


class OnnxModel:
    """A `meganeura.ir.model.Model` read from ONNX.

    Attributes:
        name: file or graph name. inputs: types by name; dimensions keep the file's symbolic names, unnamed ones
            are called `INPUT_AXIS`. outputs: names in order. symbols: names of the symbolic dimensions.
    """

    def __init__(self, source: Source, fixed: Mapping[str, Any]) -> None:
        self.name = source.name
        self._prepared: Prepared = prepare(source)
        check_operators(self._prepared)
        known = self._prepared.initializers
        infos = [info for info in self._prepared.graph.input if info.name not in known]
        self._fixed = _fixed_inputs(infos, fixed)
        self.inputs: dict[str, TensorType] = _input_types([i for i in infos if i.name not in self._fixed])
        self.outputs = tuple(output.name for output in self._prepared.graph.output)
        self.symbols: set[str] = set().union(*(symbols_of(t.shape) for t in self.inputs.values()))

    def graph(self, dims: Mapping[str, int]) -> Graph:
        """The graph for these dimensions: everything that follows from shapes is computed, none of it is left.

        Raises:
            InputError: a dimension is missing or negative.
            ImportFailure: a node does not fit its operands, or needs a value that is not known.
        """
        check_dims(self.symbols, dims)
        bound = {name: int(dims[name]) for name in self.symbols}
        inputs = {name: tensor_type.bind(bound) for name, tensor_type in self.inputs.items()}
        return import_graph(self._prepared, self.name, inputs, self._fixed, bound)

    def __repr__(self) -> str:
        return f"<OnnxModel {self.name!r}: {', '.join(f'{n} {t}' for n, t in self.inputs.items())}>"


def _fixed_inputs(infos: list[ValueInfoProto], fixed: Mapping[str, Any]) -> dict[str, Known]:
    types = {info.name: info.type.tensor_type.elem_type for info in infos}
    unknown = sorted(set(fixed) - set(types))
    if unknown:
        raise InputError(f"no input is called {', '.join(unknown)}", remedy=f"inputs are {', '.join(sorted(types))}")
    values = {}
    for name, value in fixed.items():
        element = ELEMENTS.get(types[name])
        if element is None:
            raise _unsupported_input(name, element_name(types[name]))
        values[name] = Known.of(np.asarray(value, element.numpy), name)
    return values


def _unsupported_input(name: str, what: str) -> ImportFailure:
    return ImportFailure(
        f"input {name!r} is of the unsupported type {what}",
        source=name,
        remedy=f"supported are tensors of {', '.join(e.name for e in ELEMENTS.values())}",
    )


def _input_types(infos: list[ValueInfoProto]) -> dict[str, TensorType]:
    plain = {d.dim_param for i in infos for d in i.type.tensor_type.shape.dim if _is_symbol(d.dim_param)}
    types: dict[str, TensorType] = {}
    for info in infos:
        if info.type.WhichOneof("value") != "tensor_type":
            raise _unsupported_input(info.name, str(info.type.WhichOneof("value")))
        tensor = info.type.tensor_type
        element = ELEMENTS.get(tensor.elem_type)
        if element is None:
            raise _unsupported_input(info.name, element_name(tensor.elem_type))
        if not tensor.HasField("shape"):
            raise ImportFailure(
                f"input {info.name!r} has no shape in the file, not even a rank",
                source=info.name,
                remedy="give the model input shapes (onnx.tools.update_model_dims), or fix its value",
            )
        shape: list[Dim] = []
        for axis, dim in enumerate(tensor.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                shape.append(dim.dim_value)
            else:
                shape.append(_dimension(dim.dim_param, f"{info.name}_{axis}", plain))
        types[info.name] = TensorType(element.dtype, tuple(shape))
    return types


def _is_symbol(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][\w.:/]*", name) is not None


def _dimension(name: str, fallback: str, plain: set[str]) -> Dim:
    """A symbolic dimension: a name, an expression over names that stand alone elsewhere, or a cleaned-up name."""
    if _is_symbol(name):
        return symbol(name)
    try:
        dim = parse_dim(name) if name else 0
    except GraphError:
        dim = 0
    if isinstance(dim, SymDim) and dim.symbols() <= plain:
        return dim
    cleaned = re.sub(r"[^\w.:/]+", "_", name or fallback)
    return symbol(cleaned if cleaned[:1].isalpha() or cleaned[:1] == "_" else f"_{cleaned}")
