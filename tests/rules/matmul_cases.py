"""Cases of rules/matmul.egg, epilogue.egg and packing.egg."""

from __future__ import annotations

from meganeura.ir import Graph, Tensor
from meganeura.ops import build
from tests.rules.algebra_cases import x_of
from tests.rules.support import Cases, constant

CASES = Cases(
    "commute",
    "algebra",
    "movement",
    "matmul",
    "softmax",
    "activation",
    "normalization",
    "attention",
    "epilogue",
    "packing",
)


@CASES.fires("matmul-absorbs-transpose", leaves=("transpose",))
def transposed_operands(g: Graph) -> tuple[Tensor, ...]:
    a, b = x_of(g, 2, 5, 3, name="a"), x_of(g, 2, 4, 5, name="b")
    return a.transpose(0, 2, 1) @ b.transpose(0, 2, 1), x_of(g, 6, 5) @ constant(g, 4, 5).transpose(1, 0)


@CASES.fires("matmul-absorbs-transpose")
def transposed_from_rows_first(g: Graph) -> Tensor:
    return x_of(g, 2, 3, 7, 4) @ x_of(g, 2, 5, 3, 4, name="k").transpose(0, 2, 3, 1)


@CASES.refuses("matmul-absorbs-transpose", "heads and rows change places only")
def permuted_operand(g: Graph) -> Tensor:
    return x_of(g, 2, 4, 5) @ x_of(g, 5, 2, 6, name="b").transpose(1, 0, 2)


@CASES.fires("factor-into-alpha", finds=("matmul",), leaves=("mul", "div"))
def factors_everywhere(g: Graph) -> tuple[Tensor, ...]:
    a, b = x_of(g, 3, 5), x_of(g, 5, 4, name="b")
    return (a @ b) * 0.5, (a * 0.3) @ b, a @ (b / 7.0), ((a * 0.5) @ (b * 0.5)) / 0.3


@CASES.fires("factor-into-alpha", leaves=("mul", "div"))
def factor_that_cancels(g: Graph) -> Tensor:
    return build.exp((x_of(g, 3, 5) * 49.0) @ x_of(g, 5, 4, name="b") / 49.0)


@CASES.refuses("factor-into-alpha", "a factor per column, or integers")
def factors_that_vary(g: Graph) -> tuple[Tensor, ...]:
    a, b = x_of(g, 3, 5), x_of(g, 5, 4, name="b")
    i, j = x_of(g, 3, 5, name="i", dtype="i32"), x_of(g, 5, 4, name="j", dtype="i32")
    return (a @ b) * constant(g, 4), (i @ j) * 3


@CASES.refuses("factor-into-alpha", "the factor enlarges the shape")
def widening_factor(g: Graph) -> Tensor:
    return (x_of(g, 3, 5) @ x_of(g, 5, 4, name="b")) * g.full(2.0, (2, 1, 1))


@CASES.fires("unfold-product")
def product_unfolded(g: Graph) -> Tensor:
    return (x_of(g, 6, 3, 5) @ x_of(g, 6, 5, 4, name="b")).reshape(2, 3, 3, 4)


@CASES.refuses("unfold-product", "the reshape splits columns, or a matrix stands alone")
def product_split_elsewhere(g: Graph) -> tuple[Tensor, ...]:
    a, b = x_of(g, 6, 3, 5), x_of(g, 6, 5, 4, name="b")
    return (a @ b).reshape(6, 3, 2, 2), (x_of(g, 3, 5, name="c") @ constant(g, 5, 4)).reshape(1, 3, 4)


@CASES.refuses("unfold-product", "one operand has no batch axis")
def product_of_shared_weight(g: Graph) -> Tensor:
    return (x_of(g, 6, 3, 5) @ constant(g, 5, 4)).reshape(2, 3, 3, 4)


@CASES.fires("unfold-weights")
def folded_weights(g: Graph) -> Tensor:
    return build.softmax(x_of(g, 2, 3, 4, 4)).reshape(6, 4, 4) @ x_of(g, 6, 4, 5, name="v")


@CASES.refuses("unfold-weights", "what is folded is no softmax, or rows are folded too")
def folded_otherwise(g: Graph) -> tuple[Tensor, ...]:
    x, v = x_of(g, 2, 3, 4, 4), x_of(g, 6, 4, 5, name="v")
    return build.exp(x).reshape(6, 4, 4) @ v, build.softmax(x).reshape(24, 4) @ x_of(g, 4, 5, name="w")


# ---- epilogues -------------------------------------------------------------------------------------


@CASES.fires("matmul-bias", finds=("fused_matmul",), leaves=("add", "matmul"))
def biased(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 3, 5)
    return x @ constant(g, 5, 4) + constant(g, 4), constant(g, 1, 6) + x_of(g, 2, 3, 5, name="y") @ constant(g, 5, 6)


@CASES.refuses("matmul-bias", "a summand per row, one that enlarges the product, or integers")
def biased_otherwise(g: Graph) -> tuple[Tensor, ...]:
    product = x_of(g, 3, 5) @ constant(g, 5, 4)
    integers = x_of(g, 3, 5, name="i", dtype="i32") @ x_of(g, 5, 4, name="j", dtype="i32")
    return product + constant(g, 3, 1), product + constant(g, 2, 3, 4), integers + x_of(g, 4, name="b", dtype="i32")


@CASES.fires("activation-name")
@CASES.fires("matmul-activation", finds=("fused_matmul",), leaves=("matmul", "relu", "gelu", "tanh"))
def activated(g: Graph) -> tuple[Tensor, ...]:
    x, y, z = (x_of(g, 3, 5, name=name) for name in "xyz")
    return (
        build.relu(x @ constant(g, 5, 4)),
        build.gelu(y @ constant(g, 5, 4, seed=2) + constant(g, 4)),
        build.tanh(z @ constant(g, 5, 4, seed=3)),
    )


@CASES.refuses("activation-name", "no kernel applies an exponential")
@CASES.refuses("matmul-activation", "no kernel applies an exponential")
def activated_otherwise(g: Graph) -> Tensor:
    return build.exp(x_of(g, 3, 5) @ constant(g, 5, 4))


@CASES.fires("matmul-residual", finds=("fused_matmul",), leaves=("add", "matmul"))
def with_residual(g: Graph) -> tuple[Tensor, ...]:
    a, b, c, d = (x_of(g, 3, 5, name=name) for name in "abcd")
    r = x_of(g, 3, 4, name="r")
    return (
        r + a @ constant(g, 5, 4),
        b @ constant(g, 5, 4, seed=2) + constant(g, 4) + r,
        build.silu(c @ constant(g, 5, 4, seed=3)) + r,
        build.relu(d @ constant(g, 5, 4, seed=4) + constant(g, 4)) + r,
    )


@CASES.refuses("matmul-residual", "the other summand broadcasts, or is larger")
def residual_otherwise(g: Graph) -> tuple[Tensor, ...]:
    product = x_of(g, 3, 5) @ constant(g, 5, 4)
    return product + x_of(g, 3, 1, name="r"), product + x_of(g, 2, 3, 4, name="s")


@CASES.fires("residual-rms-norm", finds=("residual_rms_norm",), leaves=("add", "rms_norm"))
def residual_then_norm(g: Graph) -> tuple[Tensor, ...]:
    total = x_of(g, 64, 256) + x_of(g, 64, 256, name="r")
    return build.rms_norm(total, constant(g, 256)), total * 1.5


@CASES.refuses("residual-rms-norm", "the summand broadcasts")
def row_then_norm(g: Graph) -> Tensor:
    return build.rms_norm(x_of(g, 3, 4) + x_of(g, 4, name="r"), constant(g, 4))


# ---- packing ---------------------------------------------------------------------------------------


@CASES.fires("gate-and-up", finds=("gated_matmul",), leaves=("mul", "matmul"))
def gated(g: Graph) -> Tensor:
    x = x_of(g, 3, 5)
    return build.silu(x @ constant(g, 5, 8)) * (x @ constant(g, 5, 8, seed=2))


@CASES.fires("gate-and-up", finds=("gated_matmul",), leaves=("mul", "matmul"))
def gated_by_gelu_transposed(g: Graph) -> Tensor:
    x = x_of(g, 2, 3, 5)
    gate, up = (g.apply("matmul", x, constant(g, 8, 5, seed=seed), transpose_b=True) for seed in (1, 2))
    return up * build.gelu(gate)


@CASES.refuses("gate-and-up", "gate and up read different tensors")
def gated_elsewhere(g: Graph) -> Tensor:
    return build.silu(x_of(g, 3, 5) @ constant(g, 5, 8)) * (x_of(g, 3, 5, name="y") @ constant(g, 5, 8, seed=2))


@CASES.refuses("gate-and-up", "the weights differ in shape")
def gated_by_one_column(g: Graph) -> Tensor:
    x = x_of(g, 3, 5)
    return build.silu(x @ constant(g, 5, 8)) * (x @ constant(g, 5, 1, seed=2))


@CASES.refuses("gate-and-up", "a weight is not known at compile time")
def gated_by_input(g: Graph) -> Tensor:
    x = x_of(g, 3, 5)
    return build.silu(x @ constant(g, 5, 8)) * (x @ x_of(g, 5, 8, name="w"))


def projections(g: Graph, count: int, transposed: bool = False, biased: bool = False) -> tuple[Tensor, ...]:
    """Several products of one input with constants of different widths."""
    x, results = x_of(g, 3, 16), []
    for number, width in enumerate((12, 4, 8)[:count]):
        shape = (width, 16) if transposed else (16, width)
        product = g.apply("matmul", x, constant(g, *shape, seed=number), transpose_b=transposed)
        results.append(build.exp(product + constant(g, width, seed=number + 5)) if biased else build.exp(product))
    return tuple(results)


@CASES.fires("pack-two", finds=("slice",))
def two_projections(g: Graph) -> tuple[Tensor, ...]:
    return projections(g, 2)


@CASES.fires("pack-two-biased", finds=("slice",))
def two_biased_projections(g: Graph) -> tuple[Tensor, ...]:
    return projections(g, 2, transposed=True, biased=True)


@CASES.fires("pack-three", finds=("slice",))
def three_projections(g: Graph) -> tuple[Tensor, ...]:
    return projections(g, 3, transposed=True)


@CASES.fires("pack-three-biased", finds=("slice",))
def three_biased_projections(g: Graph) -> tuple[Tensor, ...]:
    return projections(g, 3, biased=True)


@CASES.refuses("pack-two", "different operands, scales, orientations, or weights given at run time")
@CASES.refuses("pack-three", "different operands, scales, orientations, or weights given at run time")
def unlike_projections(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 3, 5)
    return (
        x @ constant(g, 5, 4),
        x_of(g, 3, 5, name="y") @ constant(g, 5, 4, seed=2),
        (x * 0.5) @ constant(g, 5, 4, seed=3),
        g.apply("matmul", x, constant(g, 4, 5), transpose_b=True),
        x @ x_of(g, 5, 4, name="w"),
    )


@CASES.refuses("pack-two-biased", "one has an activation, and one a bias given at run time")
@CASES.refuses("pack-three-biased", "one has an activation, and one a bias given at run time")
def unlike_biases(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 3, 5)
    return x @ constant(g, 5, 4) + constant(g, 4), x @ constant(g, 5, 4, seed=2) + x_of(g, 4, name="b")
