"""The ONNX front end: `load_onnx` reads a file or message, `OnnxModel.graph(dims)` gives the IR."""

from meganeura.frontends.onnx.model import OnnxModel, load_onnx

__all__ = ["OnnxModel", "load_onnx"]
