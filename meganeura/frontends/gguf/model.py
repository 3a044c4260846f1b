"""A decoder file as two models, prefill and step, which share constants and caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from meganeura.errors import ImportFailure, InputError
from meganeura.frontends.gguf.config import DecoderConfig, read_config, rotary_frequencies
from meganeura.frontends.gguf.llama import DecoderGraphs, Weights
from meganeura.frontends.gguf.reader import GgufFile
from meganeura.ir.constants import ConstantData, constant_from_array
from meganeura.ir.dims import Dim, symbol
from meganeura.ir.graph import Graph
from meganeura.ir.model import check_dims
from meganeura.ir.types import DType, TensorType, as_dtype

DEFAULT_CONTEXT = 2048
"""Cache rows when nothing is asked for and the model allows as many."""


class DecoderFile:
    """A GGUF decoder, opened: `config`, the two models `prefill` and `step`, and the file for its tokenizer.

    Args:
        path: the file, or an open `GgufFile`.
        context: rows of the key/value caches, at most the model's own context; None for that or 2048, whichever
            is smaller.
        cache: dtype of the caches, f32 or f16.

    Raises ImportFailure for a file that can't be used, InputError for a context that makes no sense.
    """

    def __init__(self, path: str | Path | GgufFile, context: int | None = None, cache: DType | str = DType.F32) -> None:
        self.file = path if isinstance(path, GgufFile) else GgufFile(path)
        self.config: DecoderConfig = read_config(self.file)
        self.context = _checked_context(context, self.config.context)
        cache = as_dtype(cache)
        if not cache.is_float:
            raise InputError(f"caches can't be stored as {cache.value}", remedy="use f32 or f16")
        self.graphs = DecoderGraphs(self.config, self._weights(), self.context, cache)
        self.prefill = PrefillModel(self.graphs)
        self.step = StepModel(self.graphs)
        # Building one graph now finds every missing, misshapen or unsupported tensor before anything is compiled.
        self._check_tensors()

    def _check_tensors(self) -> None:
        unsupported = sorted({i.encoding.name for i in self.file.tensors.values() if not i.encoding.known})
        if unsupported:
            names = [i.name for i in self.file.tensors.values() if not i.encoding.known]
            raise ImportFailure(
                f"{self.file.path.name}: {len(names)} tensors, {names[0]!r} first, are stored as "
                f"{', '.join(unsupported)}, which is not supported",
                source=names[0],
                remedy="use a file in F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 or a K encoding",
            )
        replace(self.graphs, max_seq=1).step()

    def _weights(self) -> Weights:
        def get(name: str) -> ConstantData | None:
            return self.file.constant(name) if name in self.file.tensors else None

        name = "rope_freqs.weight"
        factors = self.file.array(name).astype(np.float64) if name in self.file.tensors else None
        # Angles in float64: a float32 angle is off by more than the tolerance at large positions.
        angles = np.arange(self.context)[:, None] * rotary_frequencies(self.config, factors)
        cos, sin = (constant_from_array(table(angles).astype(np.float32)) for table in (np.cos, np.sin))
        return Weights(get, cos, sin)


class _DecoderModel:
    """What the two programs have in common; a `Model`."""

    name: str
    outputs = ("logits",)

    def __init__(self, graphs: DecoderGraphs, inputs: dict[str, TensorType], symbols: set[str]) -> None:
        self.graphs, self.inputs, self.symbols = graphs, inputs, symbols

    @property
    def input_limits(self) -> dict[str, Dim]:
        """For each integer input the value that its elements must stay below."""
        raise NotImplementedError


class PrefillModel(_DecoderModel):
    """The prefill program, symbolic in its number of rows `n`."""

    name = "prefill"

    def __init__(self, graphs: DecoderGraphs) -> None:
        inputs = {"ids": TensorType(DType.I32, (symbol("n"),)), "last": TensorType(DType.U32, (1,))}
        super().__init__(graphs, inputs, {"n"})

    @property
    def input_limits(self) -> dict[str, Dim]:
        """Ids stay below the vocabulary, the wanted row below `n`."""
        return {"ids": self.graphs.config.vocabulary, "last": symbol("n")}

    def graph(self, dims: Mapping[str, int]) -> Graph:
        """The graph for `n` rows, 1 to the context."""
        check_dims(self.symbols, dims)
        rows = int(dims["n"])
        if not 1 <= rows <= self.graphs.max_seq:
            raise InputError(
                f"a prefill of {rows} rows does not fit a context of {self.graphs.max_seq}",
                remedy="use between 1 and that many rows, or a larger context",
            )
        return self.graphs.prefill(rows)


class StepModel(_DecoderModel):
    """The step program; it has no symbolic dimension."""

    name = "step"

    def __init__(self, graphs: DecoderGraphs) -> None:
        inputs = {"id": TensorType(DType.I32, (1,)), "position": TensorType(DType.U32, (1,))}
        super().__init__(graphs, inputs, set())

    @property
    def input_limits(self) -> dict[str, Dim]:
        """The id stays below the vocabulary, the position below the context."""
        return {"id": self.graphs.config.vocabulary, "position": self.graphs.max_seq}

    @cached_property
    def _graph(self) -> Graph:
        return self.graphs.step()

    def graph(self, dims: Mapping[str, int]) -> Graph:
        """The graph; `dims` are not needed."""
        return self._graph


def _checked_context(asked: int | None, trained: int) -> int:
    if asked is None:
        return min(DEFAULT_CONTEXT, trained)
    if asked < 1:
        raise InputError(f"a context of {asked} makes no sense", remedy="use 1 or more")
    return min(int(asked), trained)
