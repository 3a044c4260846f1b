"""From the MODEL argument to compiled programs: one for a plain model, prefill and step for a language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meganeura.cli.options import Common
from meganeura.compiler import CompiledModel, as_model
from meganeura.errors import InputError
from meganeura.frontends import read_head
from meganeura.frontends.gguf.model import DecoderFile
from meganeura.ir.dims import SymDim
from meganeura.ir.model import Model
from meganeura.options import CompileOptions

DEFAULT_LENGTH = 64
"""What a dimension is taken to be when nobody says: 1 for batches, this for everything else."""

EXPLAINED_CONTEXT = 512
"""Cache rows of a language model that is only looked at, when nobody says."""


@dataclass(frozen=True)
class Source:
    """An opened model file.

    Attributes:
        path: the file. models: its programs in order. decoder: the language model they belong to, if they do.
    """

    path: Path
    models: tuple[Model, ...]
    decoder: DecoderFile | None = None

    def model(self) -> Model:
        """The only model of a file that is not a language model."""
        if self.decoder is not None:
            raise InputError(
                f"{self.path.name} is a language model, which takes text",
                remedy=f"meganeura generate {self.path} --prompt TEXT",
            )
        return self.models[0]


def is_decoder(path: Path) -> bool:
    """Whether a file is a GGUF language model, by its first bytes; raises ImportFailure when there is no such file."""
    return read_head(path).startswith(b"GGUF")


def open_source(path: Path, context: int | None = None) -> Source:
    """Read a model file.

    Args:
        path: an ONNX or GGUF file, or a graph in text form.
        context: cache rows of a language model.

    Raises:
        ImportFailure: no such file, or not a model that can be read.
    """
    if is_decoder(path):
        decoder = DecoderFile(path, context)
        return Source(path, (decoder.prefill, decoder.step), decoder)
    if context is not None:
        raise InputError(f"{path.name} is not a language model: it has no context", remedy="leave out --context")
    return Source(path, (as_model(path),))


def open_device(common: Common) -> Any:
    """The device the user chose, or the best one."""
    from meganeura.runtime.device import Device

    return Device.open(common.device)


def options_for(common: Common) -> CompileOptions:
    """Compile options from the common ones."""
    return CompileOptions(optimize=common.optimize, weights=common.weights, rules=common.rules)


def compiled(source: Source, device: Any, options: CompileOptions) -> list[CompiledModel]:
    """The models of a file on a device; those of a language model share weights and caches."""
    from meganeura.runtime.session import Session

    session = Session(device, options) if source.decoder is not None else None
    return [CompiledModel(model, device, options, session) for model in source.models]


def unoptimized(options: CompileOptions) -> CompileOptions:
    """The same options without the optimiser."""
    return replace(options, optimize=False)


def choose_dims(model: Model, common: Common, known: Mapping[str, int] | None = None) -> dict[str, int]:
    """A value for every symbolic dimension: as asked for, as known from inputs, or a usual one, which is told.

    Raises:
        InputError: no program of the file has a dimension of a name that was asked for, or inputs disagree with it.
    """
    known = dict(known or {})
    for name, value in common.dims.items():
        if known.get(name, value) != value:
            raise InputError(
                f"--dim {name}={value}, but the inputs have {name}={known[name]}", remedy="leave out --dim"
            )
    dims = {name: value for name, value in {**known, **common.dims}.items() if name in model.symbols}
    for name in sorted(model.symbols - set(dims)):
        dims[name] = 1 if is_batch(model, name) else DEFAULT_LENGTH
        common.output.notice(f"{model.name}: dimension {name} = {dims[name]} (choose with --dim {name}=N)")
    return dims


def check_dim_names(source: Source, common: Common) -> None:
    """Raise InputError when --dim names a dimension that no program of the file has."""
    symbols = set().union(*(model.symbols for model in source.models))
    for name in common.dims:
        if name not in symbols:
            has = f"it has {', '.join(sorted(symbols))}" if symbols else "its dimensions are all fixed"
            raise InputError(f"{source.path.name} has no dimension {name!r}", remedy=has)


def is_batch(model: Model, name: str) -> bool:
    """Whether a dimension counts independent items: called so, or the first of several of an input."""
    firsts = [t.shape[0] for t in model.inputs.values() if t.rank >= 2]
    return "batch" in name.lower() or any(isinstance(dim, SymDim) and repr(dim) == name for dim in firsts)
