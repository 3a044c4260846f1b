"""Cases of rules/softmax.egg and activation.egg."""

from __future__ import annotations

import math

from meganeura.ir import Graph, Tensor
from meganeura.ops import build
from tests.rules.algebra_cases import x_of
from tests.rules.support import Cases

CASES = Cases("commute", "algebra", "movement", "softmax", "activation", "matmul")


def softmax_pieces(x: Tensor, axis: int) -> Tensor:
    """Softmax in primitives."""
    weights = build.exp(x - build.max(x, axis, True))
    return weights / build.sum(weights, axis, True)


# ---- softmax ---------------------------------------------------------------------------------------


@CASES.fires("softmax-from-pieces", finds=("softmax",), leaves=("exp", "div"))
def softmax_last_axis(g: Graph) -> Tensor:
    return softmax_pieces(x_of(g), -1)


@CASES.fires("softmax-from-pieces", finds=("softmax",), leaves=("exp", "div", "reshape"))
def softmax_dropping_axes(g: Graph) -> Tensor:
    x = x_of(g, 2, 3, 4)
    weights = build.exp(x - build.max(x, 1).reshape(2, 1, 4))
    return weights * g.apply("reciprocal", build.sum(weights, 1).reshape(2, 1, 4))


@CASES.refuses("softmax-from-pieces", "the sum runs over another axis")
def softmax_other_axis(g: Graph) -> Tensor:
    x = x_of(g)
    weights = build.exp(x - build.max(x, 1, True))
    return weights / build.sum(weights, 0, True)


@CASES.refuses("softmax-from-pieces", "the sum is of another tensor")
def softmax_other_sum(g: Graph) -> Tensor:
    x = x_of(g)
    return build.exp(x - build.max(x, 1, True)) / build.sum(build.exp(x), 1, True)


@CASES.refuses("softmax-from-pieces", "the maximum is of another tensor")
def softmax_other_maximum(g: Graph) -> Tensor:
    x = x_of(g)
    weights = build.exp(x - build.max(x_of(g, name="y"), 1, True))
    return weights / build.sum(weights, 1, True)


@CASES.fires("log-softmax-from-pieces", finds=("log_softmax",), leaves=("exp", "log"))
def log_softmax_pieces(g: Graph) -> Tensor:
    x = x_of(g)
    shifted = x - build.max(x, 0, True)
    return shifted - build.log(build.sum(build.exp(shifted), 0, True))


@CASES.refuses("log-softmax-from-pieces", "the sum runs over another axis")
def log_softmax_other_axis(g: Graph) -> Tensor:
    x = x_of(g)
    shifted = x - build.max(x, 0, True)
    return shifted - build.log(build.sum(build.exp(shifted), 1, True))


@CASES.fires("softmax-past-reshape")
def softmax_of_folded(g: Graph) -> Tensor:
    return build.softmax(x_of(g, 2, 3, 4).reshape(6, 4))


@CASES.refuses("softmax-past-reshape", "the reshape changes the rows")
def softmax_of_refolded(g: Graph) -> Tensor:
    return build.softmax(x_of(g, 2, 3, 4).reshape(3, 8))


@CASES.refuses("softmax-past-reshape", "softmax over another axis")
def softmax_of_folded_columns(g: Graph) -> Tensor:
    return build.softmax(x_of(g, 2, 3, 4).reshape(6, 4), 0)


@CASES.fires("softmax-in-float32", leaves=("cast",))
def softmax_widened(g: Graph) -> Tensor:
    return build.softmax(x_of(g, dtype="f16").astype("f32")).astype("f16")


@CASES.refuses("softmax-in-float32", "the operand is float32")
def softmax_narrowed(g: Graph) -> Tensor:
    return build.softmax(x_of(g)).astype("f16")


@CASES.fires("softmax-divided-late", finds=("softmax",))
def divided_after_product(g: Graph) -> Tensor:
    x = x_of(g, 2, 3, 4)
    weights = build.exp(x - build.max(x, -1, True))
    return (weights @ x_of(g, 2, 4, 5, name="v")) / build.sum(weights, -1, True)


@CASES.refuses("softmax-divided-late", "the sum is of other weights")
def divided_by_another(g: Graph) -> Tensor:
    x = x_of(g, 2, 3, 4)
    weights = build.exp(x - build.max(x, -1, True))
    return (weights @ x_of(g, 2, 4, 5, name="v")) / build.sum(build.exp(x), -1, True)


# ---- activations -----------------------------------------------------------------------------------


@CASES.fires("relu-from-maximum", finds=("relu",), leaves=("maximum",))
def maximum_with_zero(g: Graph) -> Tensor:
    return build.maximum(x_of(g), 0.0)


@CASES.refuses("relu-from-maximum", "the maximum with one")
def maximum_with_one(g: Graph) -> Tensor:
    return build.maximum(x_of(g), 1.0)


@CASES.refuses("relu-from-maximum", "integers")
def integer_maximum(g: Graph) -> Tensor:
    return build.maximum(x_of(g, dtype="i32"), 0)


@CASES.fires("sigmoid-from-pieces", finds=("sigmoid",), leaves=("exp",))
def sigmoid_pieces(g: Graph) -> Tensor:
    return 1.0 / (1.0 + build.exp(-x_of(g)))


@CASES.refuses("sigmoid-from-pieces", "another constant")
def not_a_sigmoid(g: Graph) -> Tensor:
    return 1.0 / (2.0 + build.exp(-x_of(g)))


@CASES.fires("silu-from-pieces", finds=("silu",), leaves=("exp", "sigmoid"))
def silu_pieces(g: Graph) -> tuple[Tensor, ...]:
    x, y = x_of(g), x_of(g, name="y")
    return (
        build.sigmoid(x) * x,
        y / (1.0 + build.exp(0.0 - y)),
        x_of(g, name="z") * (1 / (build.exp(-g[g.inputs["z"].id]) + 1.0)),
    )


@CASES.refuses("silu-from-pieces", "the sigmoid of another tensor")
def gated_by_another(g: Graph) -> Tensor:
    return x_of(g) * build.sigmoid(x_of(g, name="y"))


@CASES.fires("swiglu-from-pieces", finds=("swiglu",))
def swiglu_pieces(g: Graph) -> Tensor:
    x = x_of(g)
    return x_of(g, name="u") * (x * build.sigmoid(x))


@CASES.refuses("swiglu-from-pieces", "the gated tensor is narrower")
def swiglu_narrow(g: Graph) -> Tensor:
    return build.silu(x_of(g)) * x_of(g, 4, name="u")


GELU = {"finds": ("gelu",), "leaves": ("erf", "mul", "add")}


@CASES.fires("gelu-from-pieces", **GELU)
def gelu_half_first(g: Graph) -> Tensor:
    x = x_of(g)
    return 0.5 * x * (1.0 + build.erf(x / math.sqrt(2)))


@CASES.fires("gelu-from-pieces", **GELU)
def gelu_half_last(g: Graph) -> Tensor:
    x = x_of(g)
    return x * (build.erf(x / 1.4142) + 1.0) * 0.5


@CASES.fires("gelu-from-pieces", **GELU)
def gelu_half_inside(g: Graph) -> Tensor:
    x = x_of(g)
    return ((1.0 + build.erf(x * 0.70710678)) / 2.0) * x


@CASES.fires("gelu-from-pieces", **GELU)
def gelu_half_added(g: Graph) -> Tensor:
    x = x_of(g)
    return x * (build.erf(x * 0.70710678) * 0.5 + 0.5)


@CASES.refuses("gelu-from-pieces", "another factor inside")
def gelu_other_factor(g: Graph) -> Tensor:
    x = x_of(g)
    return 0.5 * x * (1.0 + build.erf(x * 0.7))


@CASES.refuses("gelu-from-pieces", "erf of another tensor")
def gelu_other_tensor(g: Graph) -> Tensor:
    return 0.5 * x_of(g) * (1.0 + build.erf(x_of(g, name="y") * 0.70710678))


GELU_TANH = {"finds": ("gelu_tanh",), "leaves": ("tanh", "mul", "add", "pow")}


@CASES.fires("gelu-tanh-from-pieces", **GELU_TANH)
def gelu_tanh_power(g: Graph) -> Tensor:
    x = x_of(g)
    return 0.5 * x * (1.0 + build.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3.0)))


@CASES.fires("gelu-tanh-from-pieces", **GELU_TANH)
def gelu_tanh_products(g: Graph) -> Tensor:
    x = x_of(g)
    return x * (0.5 * (1.0 + build.tanh((x + x * x * x * 0.044715) * 0.7978845608)))


@CASES.fires("gelu-tanh-from-pieces", leaves=("sigmoid", "mul"), finds=("gelu_tanh",))
def gelu_tanh_by_sigmoid(g: Graph) -> Tensor:
    x = x_of(g)
    return x * build.sigmoid(1.5957691216 * (x + 0.044715 * x * x * x))


@CASES.fires("cubic-factored", **GELU_TANH)
def gelu_tanh_factored(g: Graph) -> Tensor:
    x = x_of(g)
    return 0.5 * x * (1.0 + build.tanh(0.7978845608 * x * (1.0 + 0.044715 * x * x)))


@CASES.refuses("gelu-tanh-from-pieces", "another coefficient")
@CASES.refuses("cubic-factored", "another coefficient")
def gelu_tanh_other(g: Graph) -> Tensor:
    x = x_of(g)
    return 0.5 * x * (1.0 + build.tanh(0.7978845608 * x * (1.0 + 0.05 * x * x)))


@CASES.refuses("gelu-tanh-from-pieces", "a square where the cube belongs")
def gelu_tanh_square(g: Graph) -> Tensor:
    x = x_of(g)
    return 0.5 * x * (1.0 + build.tanh(0.7978845608 * (x + 0.044715 * x**2.0)))
