"""Cases of rules/normalization.egg."""

from __future__ import annotations

from meganeura.ir import Graph, Tensor
from meganeura.ops import build
from tests.rules.algebra_cases import x_of
from tests.rules.support import Cases, constant

CASES = Cases("commute", "algebra", "movement", "normalization")


def layer_norm_pieces(x: Tensor, axis: int = -1, root: bool = True, power: bool = False) -> Tensor:
    """A layer norm without weight and bias, in primitives."""
    centred = x - build.mean(x, axis, True)
    square = centred**2.0 if power else centred * centred
    deviation = build.mean(square, axis, True) + 1e-5
    return centred / build.sqrt(deviation) if root else centred * build.rsqrt(deviation)


@CASES.fires("layer-norm-from-pieces", finds=("layer_norm",), leaves=("reduce_mean",))
def layer_norms(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g)
    return layer_norm_pieces(x), layer_norm_pieces(x * 2.0, power=True), layer_norm_pieces(x + 1.0, root=False)


@CASES.fires("layer-norm-from-pieces", finds=("layer_norm",), leaves=("reduce_sum", "reduce_mean"))
def layer_norm_of_sums(g: Graph) -> Tensor:
    x = x_of(g, 2, 3, 4)
    centred = x - build.sum(x, -1, True) / 4.0
    variance = build.sum(centred * centred, -1).reshape(2, 3, 1) * 0.25
    return centred / (variance + 1e-6) ** 0.5


@CASES.refuses("layer-norm-from-pieces", "not the last axis")
def layer_norm_first_axis(g: Graph) -> Tensor:
    return layer_norm_pieces(x_of(g), axis=0)


@CASES.refuses("layer-norm-from-pieces", "the variance is of another tensor")
def layer_norm_other_variance(g: Graph) -> Tensor:
    x, y = x_of(g), x_of(g, name="y")
    other = y - build.mean(y, -1, True)
    return (x - build.mean(x, -1, True)) * build.rsqrt(build.mean(other * other, -1, True) + 1e-5)


@CASES.refuses("layer-norm-from-pieces", "the mean and the variance run over different axes")
def layer_norm_mixed_axes(g: Graph) -> Tensor:
    x = x_of(g, 4, 4)
    centred = x - build.mean(x, 0, True)
    return centred * build.rsqrt(build.mean(centred * centred, 1, True) + 1e-5)


@CASES.refuses("layer-norm-from-pieces", "a varying epsilon")
def layer_norm_varying_epsilon(g: Graph) -> Tensor:
    x = x_of(g)
    centred = x - build.mean(x, -1, True)
    return centred * build.rsqrt(build.mean(centred * centred, -1, True) + build.exp(constant(g, 3, 1)))


@CASES.fires("layer-norm-weight", finds=("layer_norm",), leaves=("mul",))
def layer_norm_weight(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g)
    return layer_norm_pieces(x) * constant(g, 4), constant(g, 1, 4, seed=2) * layer_norm_pieces(x - 1.0)


@CASES.refuses("layer-norm-weight", "the factor varies by row")
def layer_norm_row_factor(g: Graph) -> Tensor:
    return layer_norm_pieces(x_of(g)) * constant(g, 3, 1)


@CASES.refuses("layer-norm-weight", "the norm has a weight and a bias already")
def layer_norm_twice_weighted(g: Graph) -> Tensor:
    return build.layer_norm(x_of(g), constant(g, 4), constant(g, 4, seed=2)) * constant(g, 4, seed=3)


@CASES.fires("layer-norm-bias", finds=("layer_norm",), leaves=("add", "mul"))
def layer_norm_bias(g: Graph) -> Tensor:
    return layer_norm_pieces(x_of(g)) * constant(g, 4) + constant(g, 4, seed=2)


@CASES.refuses("layer-norm-bias", "the summand varies by row")
def layer_norm_row_summand(g: Graph) -> Tensor:
    return layer_norm_pieces(x_of(g)) + constant(g, 3, 1)


@CASES.fires("row-scale")
@CASES.fires("norm-weight-last", finds=("layer_norm",), leaves=("mul",))
def weight_before_deviations(g: Graph) -> Tensor:
    x = x_of(g)
    centred = x - build.mean(x, -1, True)
    return centred * (build.rsqrt(build.mean(centred * centred, -1, True) + 1e-5) * constant(g, 4))


@CASES.refuses("row-scale", "a mean over another axis")
@CASES.refuses("norm-weight-last", "no row's deviation among the factors")
def product_of_three(g: Graph) -> Tensor:
    x = x_of(g)
    return x * (build.rsqrt(build.mean(x * x, 0, True) + 1e-5) * constant(g, 4))


@CASES.fires("layer-norm-factored", finds=("layer_norm",), leaves=("mul", "sub"))
def factored_norm(g: Graph) -> Tensor:
    x = x_of(g)
    mean = build.mean(x, -1, True)
    factor = build.rsqrt(build.mean((x - mean) ** 2.0, -1, True) + 1e-5) * constant(g, 4)
    return x * factor + (constant(g, 4, seed=2) - mean * factor)


@CASES.refuses("layer-norm-factored", "the mean is of another tensor")
def factored_other_mean(g: Graph) -> Tensor:
    x = x_of(g)
    mean = build.mean(x_of(g, name="y"), -1, True)
    factor = build.rsqrt(build.mean(x**2.0, -1, True) + 1e-5) * constant(g, 4)
    return x * factor + (constant(g, 4, seed=2) - mean * factor)


@CASES.fires("variance-from-moments", finds=("layer_norm",), leaves=("reduce_mean",))
def moments(g: Graph) -> Tensor:
    x = x_of(g)
    mean = build.mean(x, -1, True)
    return (x - mean) * build.rsqrt(build.mean(x * x, -1, True) - mean * mean + 1e-5)


@CASES.refuses("variance-from-moments", "moments over different axes")
def mixed_moments(g: Graph) -> Tensor:
    x = x_of(g, 4, 4)
    mean = build.mean(x, 0, True)
    return build.mean(x * x, 1, True) - mean * mean


@CASES.fires("rms-norm-from-pieces", finds=("rms_norm",), leaves=("reduce_mean",))
def rms_norms(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g)
    y = x * 3.0
    return (
        x * build.rsqrt(build.mean(x * x, -1, True) + 1e-5),
        y / build.sqrt(build.mean(y**2.0, -1).reshape(3, 1) + 1e-6),
    )


@CASES.refuses("rms-norm-from-pieces", "the square is of another tensor")
def rms_norm_other_square(g: Graph) -> Tensor:
    y = x_of(g, name="y")
    return x_of(g) * build.rsqrt(build.mean(y * y, -1, True) + 1e-5)


@CASES.refuses("rms-norm-from-pieces", "not the last axis")
def rms_norm_first_axis(g: Graph) -> Tensor:
    x = x_of(g)
    return x * build.rsqrt(build.mean(x * x, 0, True) + 1e-5)


@CASES.fires("rms-norm-weight", finds=("rms_norm",), leaves=("mul",))
def rms_norm_weight(g: Graph) -> tuple[Tensor, ...]:
    def scale(x: Tensor) -> Tensor:
        return build.rsqrt(build.mean(x * x, -1, True) + 1e-5)

    x, y = x_of(g), x_of(g, name="y")
    return constant(g, 4) * (x * scale(x)), y * (scale(y) * constant(g, 1, 4, seed=2))


@CASES.refuses("rms-norm-weight", "the factor varies by row")
def rms_norm_row_factor(g: Graph) -> Tensor:
    x = x_of(g)
    return x * build.rsqrt(build.mean(x * x, -1, True) + 1e-5) * constant(g, 3, 1)
