"""Options of a compilation, as frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field

from meganeura.errors import InputError


@dataclass(frozen=True)
class SearchLimits:
    """Bounds of the e-graph search; the best program found so far is used when one is hit."""

    max_nodes: int = 200_000
    max_iterations: int = 30
    max_seconds: float = 20.0


@dataclass(frozen=True)
class CompileOptions:
    """What a caller can choose about a compilation.

    Attributes:
        optimize: search with rewrite rules and fuse; off gives one dispatch per primitive.
        weights: storage of large float32 constants, "f32" or "f16" (accumulation stays float32), or "packed": in
            quantised blocks where a file has them so, with the same values as "f32", which the rest is stored as.
        rules: further rule files. disabled_rules: names or groups of rules to leave out.
        enabled_rules: names or groups of approximate rules to take in; they are off otherwise.
        search: bounds of the search.
        attention: attention schedule to force, "auto", "literal" or "direct".
        guard_bytes: debug: NaN guard after every tensor inside its binding.
        poison: debug: fill freed memory with NaN between uses.
        reuse_memory: debug: off gives every temporary tensor a buffer of its own.
        cached_shapes: how many concrete programs a model with symbolic dimensions keeps.
    """

    optimize: bool = True
    weights: str = "f32"
    rules: tuple[str, ...] = ()
    disabled_rules: tuple[str, ...] = ()
    enabled_rules: tuple[str, ...] = ()
    search: SearchLimits = field(default_factory=SearchLimits)
    attention: str = "auto"
    guard_bytes: int = 0
    poison: bool = False
    reuse_memory: bool = True
    cached_shapes: int = 16

    def __post_init__(self) -> None:
        if self.weights not in ("f32", "f16", "packed"):
            raise InputError(f"option weights={self.weights!r} is not known", remedy="use 'f32', 'f16' or 'packed'")
        if self.attention not in ("auto", "literal", "direct"):
            raise InputError(
                f"option attention={self.attention!r} is not known", remedy="use 'auto', 'literal' or 'direct'"
            )
        if self.guard_bytes < 0 or self.guard_bytes % 4 or self.cached_shapes < 1:
            raise InputError("guard_bytes must be a multiple of 4, cached_shapes at least 1")
