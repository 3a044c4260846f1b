"""GGUF files: the container, quantised tensors, and decoder graphs of the llama family."""

from __future__ import annotations

from pathlib import Path

from meganeura.frontends.gguf.model import DecoderFile, PrefillModel, StepModel


def load_gguf(path: str | Path, context: int | None = None) -> PrefillModel:
    """The prefill program of a GGUF decoder; `DecoderFile` gives both programs and what a tokenizer needs.

    Args:
        path: the file. context: see `DecoderFile`.
    """
    return DecoderFile(path, context).prefill


__all__ = ["DecoderFile", "PrefillModel", "StepModel", "load_gguf"]
