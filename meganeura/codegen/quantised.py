"""WGSL expressions of weights in quantised blocks; the functions they call are `shaders/quantised.wgsl`."""

from __future__ import annotations

from meganeura.codegen.template import template_text
from meganeura.ir.packing import Scheme


def functions() -> str:
    """The functions that the expressions call."""
    return template_text("quantised")


def fields(scheme: Scheme) -> int:
    """Weights that one word holds; also the groups of four in a vector of words."""
    return 32 // scheme.bits


def factors(scheme: Scheme, word: str) -> str:
    """A block's factor and minimum as `vec2<f32>`, from their word."""
    return f"factor_and_minimum_of({word})" if scheme.minimum else f"factor_of({word})"


def weights(scheme: Scheme, words: str, field: str, pair: str) -> str:
    """Four weights as `vec4<f32>`: one field of each of four words, with the factors of their block."""
    integers = f"{'four' if scheme.bits == 4 else 'eight'}_bits({words}, {field})"
    if scheme.minimum:
        return f"{integers} * {pair}.x + {pair}.y"
    return f"({integers} - {scheme.zero}.0) * {pair}.x" if scheme.zero else f"{integers} * {pair}.x"
