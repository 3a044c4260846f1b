"""Random graphs: every op has a maker that applies it to values at hand, so that new ops can't be forgotten.

A graph grows from a seed alone, so a failing one is named by its number and can be made again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import meganeura as mg
from meganeura.ir import OPS, DType, Graph, Tensor
from meganeura.ir.dims import size
from meganeura.ir.types import broadcast_shapes

MOST_ELEMENTS = 3000
UNARY_FLOAT = ("neg", "abs", "sign", "exp", "tanh", "sigmoid", "erf", "sin", "cos", "relu", "silu", "gelu", "gelu_tanh")
ROUNDING = ("floor", "ceil", "round")


class Grower:
    """Grows one random graph; `pool` holds the values made so far."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(f"random {seed}")
        self.pool: list[Tensor] = []
        self.used: set[str] = set()

    # ---- choices ----------------------------------------------------------------------------------

    def dims(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        return tuple(int(d) for d in self.rng.choice([1, 2, 3, 4, 5, 8], size=self.rng.integers(least, most + 1)))

    def pick(self, accept: Callable[[Tensor], bool]) -> Tensor | None:
        found = [t for t in self.pool if accept(t)]
        # Later values are likelier, so that graphs become deep.
        return found[int(len(found) * math.sqrt(self.rng.random()))] if found else None

    def floats(self, least_rank: int = 0) -> Tensor:
        found = self.pick(lambda t: t.dtype is DType.F32 and t.rank >= least_rank and 0 not in t.shape)
        return found if found is not None else self.constant(self.dims(max(least_rank, 1), max(least_rank, 3)))

    def constant(self, shape: tuple[int, ...], scale: float = 1.0) -> Tensor:
        values = self.rng.normal(size=shape) * scale
        return self.graph.constant(values.astype(np.float32))

    def integers(self, shape: tuple[int, ...], below: int, dtype: str = "i32") -> Tensor:
        return self.graph.constant(self.rng.integers(0, max(below, 1), size=shape), dtype)

    def booleans(self) -> Tensor:
        found = self.pick(lambda t: t.dtype is DType.BOOL)
        return found if found is not None else mg.where(self.floats() < 0.0, 1.0, 0.0) < 0.5

    def partner(self, x: Tensor) -> Tensor:
        """A value that broadcasts with x."""

        def fits(t: Tensor) -> bool:
            try:
                return t.dtype == x.dtype and size(broadcast_shapes(t.shape, x.shape)) <= MOST_ELEMENTS  # type: ignore[operator]
            except mg.GraphError:
                return False

        found = self.pick(fits) if self.rng.random() < 0.6 else None
        if found is not None:
            return found
        shape = tuple(1 if self.rng.random() < 0.3 else int(d) for d in x.shape)  # type: ignore[arg-type]
        return self.constant(shape[int(self.rng.integers(0, len(shape) + 1)) :]).astype(x.dtype)

    def axis(self, x: Tensor) -> int:
        return int(self.rng.integers(0, x.rank))

    def flag(self) -> bool:
        return bool(self.rng.integers(0, 2))

    # ---- growing ----------------------------------------------------------------------------------

    def grow(self, steps: int, focus: str | None = None) -> Graph:
        """Apply `steps` random ops (`focus` surely among them) and name a few results."""
        for index in range(int(self.rng.integers(1, 4))):
            self.pool.append(self.graph.input(f"x{index}", self.dims()))
        names = list(self.rng.choice(sorted(MAKERS), size=steps))
        if focus is not None:
            names.insert(int(self.rng.integers(0, len(names) + 1)), focus)
        for name in names:
            made = MAKERS[str(name)](self)
            for tensor in made if isinstance(made, tuple) else (made,):
                self.used.add(str(name))
                if int(size(tensor.shape)) <= MOST_ELEMENTS:  # type: ignore[arg-type]
                    self.pool.append(tensor)
        results = [self.pool[-1], *self.rng.choice(np.array(self.pool, dtype=object), size=2)]
        for index, tensor in enumerate(results):
            self.graph.output(f"y{index}", tensor)
        return self.graph

    def inputs(self) -> dict[str, np.ndarray]:
        """Values for the graph's inputs."""
        result = {}
        for name, node in self.graph.inputs.items():
            kind = node.tensor_type
            if kind.dtype.is_float:
                result[name] = self.rng.normal(size=kind.shape).astype(kind.dtype.numpy)  # type: ignore[arg-type]
            else:
                result[name] = self.rng.integers(0, 3, size=kind.shape).astype(kind.dtype.numpy)  # type: ignore[arg-type]
        return result


Maker = Callable[[Grower], "Tensor | tuple[Tensor, ...]"]
MAKERS: dict[str, Maker] = {}


def maker(*names: str) -> Callable[[Callable[..., Tensor | tuple[Tensor, ...]]], Callable[..., Tensor]]:
    """Register a function as the maker of ops; it gets the grower, and the op's name if it makes several."""

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        for name in names:
            MAKERS[name] = (lambda g, n=name: function(g, n)) if len(names) > 1 else function
        return function

    return register  # type: ignore[return-value]


@maker(*UNARY_FLOAT, *ROUNDING)
def unary(g: Grower, name: str) -> Tensor:
    x = g.floats()
    if name == "exp":
        x = mg.minimum(x, 3.0)
    # Rounding near a tie is decided by the last bit: keep it away from ties.
    return g.graph.apply(name, x if name not in ROUNDING else g.graph.constant(np.arange(-7, 8) / 3.0 + 0.05, "f32"))


@maker("log", "sqrt", "rsqrt", "reciprocal")
def positive_unary(g: Grower, name: str) -> Tensor:
    return g.graph.apply(name, g.graph.apply("abs", g.floats()) + 0.5)


@maker("add", "sub", "mul", "maximum", "minimum", "equal", "less", "less_equal")
def binary(g: Grower, name: str) -> Tensor:
    x = g.floats()
    return g.graph.apply(name, x, g.partner(x))


@maker("div", "mod", "pow")
def guarded_binary(g: Grower, name: str) -> Tensor:
    x = mg.tanh(g.floats())
    if name == "mod":
        ints = g.integers((4, 3), 50) - 20
        return g.graph.apply("mod", ints, g.integers((3,), 6) + 1)
    if name == "pow":
        return g.graph.apply("pow", g.graph.apply("abs", x) + 0.5, float(g.rng.choice([2.0, 3.0, 0.5, -1.0])))
    return x / (g.graph.apply("abs", mg.tanh(g.partner(x))) + 0.5)


@maker("and", "or", "xor")
def logical(g: Grower, name: str) -> Tensor:
    a = g.booleans()
    return g.graph.apply(name, a, a if g.flag() else g.graph.constant(np.array(g.flag())))


@maker("not")
def negation(g: Grower) -> Tensor:
    return g.graph.apply("not", g.booleans())


@maker("is_nan")
def is_nan(g: Grower) -> Tensor:
    return g.graph.apply("is_nan", g.floats())


@maker("where")
def where(g: Grower) -> Tensor:
    x = g.floats()
    return mg.where(x < float(g.rng.normal()), x, g.partner(x))


@maker("cast")
def cast(g: Grower) -> Tensor:
    if g.flag():
        return g.booleans().astype("f32")
    return (g.integers(g.dims(1, 3), 9) - 4).astype("f32")


@maker("matmul")
def matmul(g: Grower) -> Tensor:
    x = g.floats(2)
    inner = int(x.shape[-1])  # type: ignore[arg-type]
    columns = int(g.rng.choice([1, 3, 4, 8, 16]))
    flipped = g.flag()
    weight = g.constant((columns, inner) if flipped else (inner, columns), 1 / math.sqrt(inner))
    if g.flag():
        return g.graph.apply("matmul", x, weight, transpose_b=flipped, alpha=float(g.rng.choice([1.0, 0.5])))
    return x @ (mg.Tensor.transpose(weight) if flipped else weight)


@maker("fused_matmul", "gated_matmul")
def fused_matmul(g: Grower, name: str) -> Tensor:
    x = g.floats(2)
    inner = int(x.shape[-1])  # type: ignore[arg-type]
    weight = g.constant((inner, 8), 1 / math.sqrt(inner))
    if name == "gated_matmul":
        return g.graph.apply(name, x, weight, activation=str(g.rng.choice(["silu", "gelu"])))
    bias, residual = g.flag(), g.flag()
    extras = [g.constant((8,))] * bias + [g.constant((*(int(d) for d in x.shape[:-1]), 8))] * residual  # type: ignore[misc]
    activation = str(g.rng.choice(["none", "relu", "gelu", "silu", "tanh", "sigmoid", "gelu_tanh"]))
    return g.graph.apply(name, x, weight, *extras, bias=bias, residual=residual, activation=activation)


@maker("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
def reduction(g: Grower, name: str) -> Tensor:
    x = g.floats(1)
    axes = tuple(sorted({int(a) for a in g.rng.integers(0, x.rank, size=2)}))
    if name == "reduce_prod":
        x = mg.tanh(x)
    return g.graph.apply(name, x, axes=axes, keepdims=g.flag())


@maker("argmax")
def argmax(g: Grower) -> Tensor:
    ramp = g.graph.constant(g.rng.permutation(24).reshape(2, 3, 4).astype(np.float32))
    return g.graph.apply("argmax", ramp, axis=g.axis(ramp), keepdims=g.flag()).astype("f32")


@maker("reshape")
def reshape(g: Grower) -> Tensor:
    x = g.floats()
    count = int(size(x.shape))  # type: ignore[arg-type]
    first = int(g.rng.choice([d for d in range(1, count + 1) if count % d == 0]))
    return x.reshape(first, count // first)


@maker("transpose")
def transpose(g: Grower) -> Tensor:
    x = g.floats(1)
    return x.transpose(*(int(p) for p in g.rng.permutation(x.rank)))


@maker("expand")
def expand(g: Grower) -> Tensor:
    x = g.floats()
    return mg.expand(x, (2, *x.shape))


@maker("slice")
def slices(g: Grower) -> Tensor:
    x = g.floats(1)
    cuts = []
    for dim in x.shape:
        start = int(g.rng.integers(0, dim))  # type: ignore[arg-type]
        cuts.append(slice(start, int(g.rng.integers(start + 1, int(dim) + 1)), int(g.rng.integers(1, 3))))  # type: ignore[arg-type]
    return x[tuple(cuts)]


@maker("flip")
def flip(g: Grower) -> Tensor:
    x = g.floats(1)
    return g.graph.apply("flip", x, axes=(g.axis(x),))


@maker("concat")
def concat(g: Grower) -> Tensor:
    x = g.floats(1)
    return g.graph.apply("concat", x, *[x * 2.0] * int(g.rng.integers(1, 3)), axis=g.axis(x))


@maker("pad")
def pad(g: Grower) -> Tensor:
    x = g.floats(1)
    low = tuple(int(v) for v in g.rng.integers(0, 2, size=x.rank))
    return g.graph.apply("pad", x, low=low, high=low[::-1], value=float(g.rng.choice([0.0, 1.5])))


@maker("gather", "embedding")
def gather(g: Grower, name: str) -> Tensor:
    if name == "embedding":
        return mg.embedding(g.constant((7, 8)), g.integers((2, 3), 7))
    x = g.floats(1)
    axis = g.axis(x)
    return mg.gather(x, g.integers(g.dims(0, 2), int(x.shape[axis])), axis=axis)  # type: ignore[arg-type]


@maker("gather_elements")
def gather_elements(g: Grower) -> Tensor:
    x = g.floats(1)
    axis = g.axis(x)
    shape = tuple(int(d) for d in x.shape)  # type: ignore[arg-type]
    return g.graph.apply("gather_elements", x, g.integers(shape, shape[axis]), axis=axis)


@maker("iota")
def iota(g: Grower) -> Tensor:
    shape = g.dims(1, 3)
    axis = int(g.rng.integers(0, len(shape)))
    return g.graph.apply("iota", dtype=DType.I32, shape=shape, axis=axis).astype("f32")


@maker("full", "constant", "input")
def leaf(g: Grower, name: str) -> Tensor:
    if name == "input":
        return g.graph.input(f"more{len(g.graph.inputs)}", g.dims())
    return g.constant(g.dims()) if name == "constant" else g.graph.full(float(g.rng.normal()), g.dims())


@maker("softmax", "log_softmax")
def softmax(g: Grower, name: str) -> Tensor:
    x = g.floats(1)
    return g.graph.apply(name, x, axis=g.axis(x))


@maker("layer_norm", "rms_norm")
def norm(g: Grower, name: str) -> Tensor:
    x = g.floats(1)
    weight = g.constant((int(x.shape[-1]),))  # type: ignore[arg-type]
    return g.graph.apply(name, x, weight, *([weight * 0.5] if name == "layer_norm" else []), eps=1e-3)


@maker("residual_rms_norm", "proj")
def residual_norm(g: Grower, name: str) -> tuple[Tensor, ...]:
    x = g.floats(1)
    both = g.graph.apply("residual_rms_norm", x, x * 0.5, g.constant((int(x.shape[-1]),)), eps=1e-3)  # type: ignore[arg-type]
    return tuple(g.graph.apply("proj", both, index=i) for i in (0, 1))


@maker("swiglu")
def swiglu(g: Grower) -> Tensor:
    x = g.floats()
    return mg.swiglu(x, mg.tanh(x))


@maker("rope", "rope_dynamic")
def rope(g: Grower, name: str) -> Tensor:
    from meganeura.ops.rotary import rotary_tables

    rows = int(g.rng.choice([1, 3]))
    x = g.constant((2, rows, 8))
    tables = [g.graph.constant(t) for t in rotary_tables(rows if name == "rope" else 6, int(g.rng.choice([4, 8])))]
    position = [g.graph.constant(np.array([2]), "u32")] if name == "rope_dynamic" else []
    return g.graph.apply(name, x, *tables, *position, interleaved=g.flag())


@maker("attention", "cached_attention")
def attention(g: Grower, name: str) -> Tensor:
    heads, groups, keys = 4, int(g.rng.choice([1, 2, 4])), int(g.rng.choice([1, 7, 9]))
    cached = name == "cached_attention"
    rows = 1 if cached else int(g.rng.choice([1, 4]))
    q, k, v = g.constant((2, heads, rows, 4)), g.constant((2, groups, keys, 4)), g.constant((2, groups, keys, 3))
    if g.flag():
        q = mg.tanh(q)
    bias = [g.constant((heads, rows, keys))] if g.flag() else []
    options = {"scale": 0.7, "bias": bool(bias), "softcap": float(g.rng.choice([0.0, 2.0]))}
    if cached:
        position = g.graph.constant(np.array([keys - 1]), "u32")
        return g.graph.apply(name, q, k, v, position, *bias, **options)
    return g.graph.apply(name, q, k, v, *bias, causal=g.flag(), **options)


@maker("state", "state_update", "cache_write")
def state(g: Grower, name: str) -> Tensor:
    label = f"state{len(g.graph.states)}"
    old = g.graph.state(label, (6, 4))
    if name == "state":
        g.graph.update(label, old + 1.0)
        return old * 2.0
    position = g.graph.input(f"position{len(g.graph.inputs)}", (1,), "u32")
    new = g.graph.apply(name, old, g.constant((2, 4)), position, axis=0)
    g.graph.update(label, new)
    return new + 0.5


def every_op_has_a_maker() -> set[str]:
    """Names of ops that no maker makes (must be empty)."""
    return set(OPS) - set(MAKERS)
