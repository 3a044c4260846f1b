"""The typed tensor IR: dimensions, types, ops' base class, graphs, text form, validation."""

from meganeura.ir.constants import ConstantData
from meganeura.ir.dims import Dim, SymDim, symbol
from meganeura.ir.graph import Graph, Node, Tensor
from meganeura.ir.op import OPS, Kind, Op, Work
from meganeura.ir.types import DType, TensorType, TupleType
from meganeura.ir.validate import validate

__all__ = [
    "OPS",
    "ConstantData",
    "DType",
    "Dim",
    "Graph",
    "Kind",
    "Node",
    "Op",
    "SymDim",
    "Tensor",
    "TensorType",
    "TupleType",
    "Work",
    "symbol",
    "validate",
]
