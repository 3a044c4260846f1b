"""The numbers of a decoder, read from a file's metadata and tensor shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from meganeura.errors import ImportFailure
from meganeura.frontends.gguf.reader import GgufFile

INTERLEAVED_ROTARY = {"llama": True, "qwen2": False, "qwen3": False}
"""Architectures that can be read, and whether their rotary pairs are (2j, 2j+1) instead of (j, j + r/2)."""


@dataclass(frozen=True)
class DecoderConfig:
    """What shapes a decoder's graphs.

    Attributes:
        architecture: the file's name for the family. name: the model's own name.
        layers, width, heads, kv_heads, feed_forward, vocabulary: counts.
        head_width: width of a query or key head. value_width: width of a value head.
        context: positions the model was trained for.
        rms_eps: added to the mean square in norms.
        rotary: elements of a head that are rotated. theta: base of the angles. interleaved: how they pair.
        position_scale: factor on positions (linear rope scaling).
    """

    architecture: str
    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    value_width: int
    feed_forward: int
    vocabulary: int
    context: int
    rms_eps: float
    rotary: int
    theta: float
    interleaved: bool
    position_scale: float = 1.0

    @property
    def scale(self) -> float:
        """Factor on the attention scores."""
        return 1.0 / math.sqrt(self.head_width)


class _Metadata:
    """Typed access to `<architecture>.<key>` with failures that name the key."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.file, self.architecture = file, architecture

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; an array is taken when all its elements agree (per-layer values of a uniform model)."""
        name = f"{self.architecture}.{key}"
        value: Any = self.file.metadata.get(name, default)
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
            value = value[0].item()
        if value is None:
            raise ImportFailure(f"{self.file.path.name} lacks the metadata {name!r}", source=name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ImportFailure(
                f"{self.file.path.name}: metadata {name!r} is {_short(value)}, not one number", source=name
            )
        return value

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of 1 or more."""
        value = self.number(key, default)
        if value != int(value) or value < 1:
            name = f"{self.architecture}.{key}"
            raise ImportFailure(f"{self.file.path.name}: metadata {name!r} is {value}, not 1 or more", source=name)
        return int(value)


def read_config(file: GgufFile) -> DecoderConfig:
    """Read a decoder's numbers; ImportFailure when the architecture is unknown or something doesn't fit."""
    architecture = str(file.metadata.get("general.architecture", "?"))
    if architecture not in INTERLEAVED_ROTARY:
        raise ImportFailure(
            f"{file.path.name}: architecture {architecture!r} is not supported",
            source="general.architecture",
            remedy=f"use a file of {', '.join(INTERLEAVED_ROTARY)}",
        )
    data = _Metadata(file, architecture)
    _refuse_unsupported(file, data)
    width, heads = data.count("embedding_length"), data.count("attention.head_count")
    if width % heads and f"{architecture}.attention.key_length" not in file.metadata:
        raise ImportFailure(f"{file.path.name}: width {width} does not divide into {heads} heads")
    kv_heads = data.count("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise ImportFailure(f"{file.path.name}: {heads} query heads do not group over {kv_heads} key/value heads")
    head_width = data.count("attention.key_length", width // heads)
    rotary = data.count("rope.dimension_count", head_width)
    if rotary % 2 or rotary > head_width:
        raise ImportFailure(f"{file.path.name}: rope.dimension_count {rotary} does not fit heads of {head_width}")
    table = file.info("token_embd.weight").shape
    if len(table) != 2 or table[1] != width:
        raise ImportFailure(
            f"{file.path.name}: the embedding does not have {width} columns",
            source="token_embd.weight",
            shapes=str(list(table)),
        )
    theta, eps = data.number("rope.freq_base", 10000.0), data.number("attention.layer_norm_rms_epsilon", 1e-5)
    if theta <= 0 or eps < 0:
        raise ImportFailure(f"{file.path.name}: rope base {theta} or norm epsilon {eps} makes no sense")
    return DecoderConfig(
        architecture=architecture,
        name=str(file.metadata.get("general.name", file.path.stem)),
        layers=data.count("block_count"),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_width=head_width,
        value_width=data.count("attention.value_length", head_width),
        feed_forward=data.count("feed_forward_length"),
        vocabulary=table[0],
        context=data.count("context_length"),
        rms_eps=float(eps),
        rotary=rotary,
        theta=float(theta),
        interleaved=INTERLEAVED_ROTARY[architecture],
        position_scale=_position_scale(file, data),
    )


def _position_scale(file: GgufFile, data: _Metadata) -> float:
    prefix = data.architecture
    kind = str(file.metadata.get(f"{prefix}.rope.scaling.type", ""))
    old = data.number("rope.scale_linear", 1.0)
    factor = data.number("rope.scaling.factor", 1.0) if kind == "linear" else old
    if kind not in ("", "none", "linear"):
        raise ImportFailure(
            f"{file.path.name}: rope scaling {kind!r} is not supported", source=f"{prefix}.rope.scaling.type"
        )
    if factor <= 0:
        raise ImportFailure(f"{file.path.name}: the rope scaling factor is {factor}", source=prefix)
    return 1.0 / factor


def _refuse_unsupported(file: GgufFile, data: _Metadata) -> None:
    wrong = []
    if data.number("expert_count", 0) > 0:
        wrong.append("mixture of experts (expert_count)")
    if data.number("attention.sliding_window", 0) > 0:
        wrong.append("sliding-window attention (attention.sliding_window)")
    for key in ("attention.scale", "logit_scale", "residual_scale", "embedding_scale"):
        if data.number(key, 0) not in (0, 1):
            wrong.append(f"a scale of its own ({key})")
    if wrong:
        raise ImportFailure(
            f"{file.path.name} uses what is not supported: {'; '.join(wrong)}", source=data.architecture
        )


def rotary_frequencies(config: DecoderConfig, factors: np.ndarray | None = None) -> np.ndarray:
    """Angle per position of each pair, float64 `[rotary // 2]`; `factors` (from the file) divide them."""
    pairs = np.arange(0, config.rotary, 2, dtype=np.float64)
    frequencies = config.theta ** (-pairs / config.rotary) * config.position_scale
    if factors is None:
        return frequencies
    if factors.shape != frequencies.shape or not (factors > 0).all():
        raise ImportFailure(
            f"the rope factors must be {len(frequencies)} positive numbers",
            source="rope_freqs.weight",
            shapes=str(list(factors.shape)),
        )
    return frequencies / factors


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
