"""Cases of rules/algebra.egg."""

from __future__ import annotations

from meganeura.ir import Graph, Tensor
from meganeura.ops import build
from tests.rules.support import Cases, constant

CASES = Cases("commute", "algebra", "matmul")


def x_of(g: Graph, *shape: int, name: str = "x", dtype: str = "f32") -> Tensor:
    """An input."""
    return g.input(name, shape or (3, 4), dtype)


@CASES.fires("commute")
def all_commuting_ops(g: Graph) -> tuple[Tensor, ...]:
    x, y = x_of(g), x_of(g, name="y")
    low = g.apply("and", x < y, y < 0.5)
    return x + y, x * y, build.maximum(x, y), build.minimum(x, y), low, build.equal(x, y)


@CASES.refuses("commute", "subtraction and division have an order")
def ordered_ops(g: Graph) -> tuple[Tensor, ...]:
    x, y = x_of(g), x_of(g, name="y")
    return x - y, x / y, x < y


@CASES.fires("add-zero")
def plus_zero(g: Graph) -> Tensor:
    return build.exp(x_of(g) + 0.0)


@CASES.refuses("add-zero", "the zero enlarges the shape")
def plus_wide_zero(g: Graph) -> Tensor:
    return x_of(g, 4) + g.full(0.0, (3, 4))


@CASES.fires("multiply-by-one")
def times_one(g: Graph) -> Tensor:
    return build.exp(1.0 * x_of(g))


@CASES.refuses("multiply-by-one", "the one enlarges the shape")
def times_wide_one(g: Graph) -> Tensor:
    return x_of(g, 4) * g.full(1.0, (3, 4))


@CASES.fires("divide-by-uniform")
def over_three(g: Graph) -> Tensor:
    return x_of(g) / 3.0


@CASES.fires("divide-by-uniform")
def over_a_wide_three(g: Graph) -> Tensor:
    return x_of(g, 4) / g.full(3.0, (2, 4))


@CASES.refuses("divide-by-uniform", "integers truncate")
def integers_over_three(g: Graph) -> Tensor:
    return x_of(g, dtype="i32") / 3


@CASES.refuses("divide-by-uniform", "the reciprocal of zero is no number")
def over_zero(g: Graph) -> Tensor:
    return x_of(g) / 0.0


@CASES.refuses("divide-by-uniform", "a varying divisor")
def over_a_row(g: Graph) -> Tensor:
    return x_of(g) / constant(g, 4)


@CASES.fires("multiply-by-reciprocal")
def times_reciprocal(g: Graph) -> Tensor:
    return x_of(g) * g.apply("reciprocal", x_of(g, name="y"))


@CASES.refuses("multiply-by-reciprocal", "a sum with a reciprocal")
def plus_reciprocal(g: Graph) -> Tensor:
    return x_of(g) + g.apply("reciprocal", x_of(g, name="y"))


@CASES.fires("one-over")
def one_over_x(g: Graph) -> Tensor:
    return 1.0 / x_of(g)


@CASES.refuses("one-over", "two over x")
def two_over_x(g: Graph) -> Tensor:
    return 2.0 / x_of(g)


@CASES.refuses("one-over", "the one enlarges the shape")
def wide_one_over_x(g: Graph) -> Tensor:
    return g.full(1.0, (3, 4)) / x_of(g, 4)


@CASES.fires("reciprocal-square-root")
def all_reciprocal_roots(g: Graph) -> tuple[Tensor, ...]:
    x, y = x_of(g), build.exp(x_of(g, name="y"))
    return g.apply("reciprocal", build.sqrt(y)), build.sqrt(g.apply("reciprocal", y)), x / build.sqrt(y + 1.0)


@CASES.refuses("reciprocal-square-root", "the root is divided, not the divisor")
def root_over(g: Graph) -> Tensor:
    y = build.exp(x_of(g, name="y"))
    return build.sqrt(y) / x_of(g)


@CASES.fires("small-powers")
def all_powers(g: Graph) -> tuple[Tensor, ...]:
    y = build.exp(x_of(g))
    return tuple(y**power for power in (2.0, 3.0, 1.0, 0.5, -0.5, -1.0))


@CASES.fires("small-powers")
def square_of_negative(g: Graph) -> Tensor:
    return x_of(g) ** 2.0


@CASES.refuses("small-powers", "another exponent")
def to_the_fifth(g: Graph) -> Tensor:
    return x_of(g) ** 5.0


@CASES.refuses("small-powers", "the exponent enlarges the shape")
def wide_exponent(g: Graph) -> Tensor:
    return x_of(g, 4) ** g.full(2.0, (3, 4))


@CASES.fires("negation")
def all_negations(g: Graph) -> tuple[Tensor, ...]:
    x, y = x_of(g), x_of(g, name="y")
    return 0.0 - x, build.exp(y * -1.0), g.apply("neg", -build.sin(y)), x + (-y), (-x) * y


@CASES.refuses("negation", "one minus x is no negation")
def one_minus(g: Graph) -> Tensor:
    return 1.0 - x_of(g)


@CASES.refuses("negation", "unsigned numbers")
def zero_minus_unsigned(g: Graph) -> Tensor:
    return 0 - x_of(g, dtype="u32")


@CASES.fires("subtract-uniform")
def minus_three(g: Graph) -> Tensor:
    return x_of(g) - 3.0


@CASES.refuses("subtract-uniform", "unsigned numbers")
def unsigned_minus_three(g: Graph) -> Tensor:
    return x_of(g, dtype="u32") - 3


@CASES.fires("uniform-factors-meet")
def two_factors(g: Graph) -> Tensor:
    return x_of(g) * 3.0 * 0.7


@CASES.fires("uniform-factors-meet", leaves=("mul",))
def factors_that_cancel(g: Graph) -> Tensor:
    return build.exp(x_of(g) * 49.0 / 49.0)


@CASES.refuses("uniform-factors-meet", "integers wrap, and their factors stay")
def integer_factors(g: Graph) -> Tensor:
    return x_of(g, dtype="i32") * 3 * 5


@CASES.refuses("uniform-factors-meet", "the inner factor enlarges the shape")
def widening_factor(g: Graph) -> Tensor:
    return x_of(g, 4) * g.full(2.0, (3, 1)) * 3.0


@CASES.fires("uniform-factor-outward")
def factor_inside(g: Graph) -> Tensor:
    return (x_of(g) * 3.0) * x_of(g, name="y")


@CASES.refuses("uniform-factor-outward", "a summand is no factor")
def summand_inside(g: Graph) -> Tensor:
    return (x_of(g) + 3.0) * x_of(g, name="y")


@CASES.fires("uniform-factor-past-view")
def factor_before_views(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 3, 1, 4)
    return (x * 2.0).transpose(2, 0, 1), (x * 3.0).reshape(12), build.expand(x * 4.0, (3, 5, 4))


@CASES.refuses("uniform-factor-past-view", "a factor per column")
def varying_factor_before_view(g: Graph) -> Tensor:
    return (x_of(g) * constant(g, 4)).transpose(1, 0)


@CASES.fires("common-uniform-factor")
def factor_of_both(g: Graph) -> Tensor:
    return build.erf(x_of(g)) * 0.5 + 0.5


@CASES.refuses("common-uniform-factor", "another summand")
def factor_of_one(g: Graph) -> Tensor:
    return build.erf(x_of(g)) * 0.5 + 0.25


@CASES.fires("double-not", leaves=("not",))
def not_not(g: Graph) -> Tensor:
    return g.apply("not", g.apply("not", x_of(g, dtype="bool")))


@CASES.refuses("double-not", "one negation")
def not_once(g: Graph) -> Tensor:
    return g.apply("not", x_of(g, dtype="bool"))


@CASES.fires("not-less")
def not_less(g: Graph) -> tuple[Tensor, ...]:
    x, y = x_of(g, dtype="i32"), x_of(g, name="y", dtype="i32")
    return g.apply("not", x < y), g.apply("not", x <= y)


@CASES.refuses("not-less", "floats may be NaN", inputs={"x": [float("nan"), 1.0, 2.0]})
def not_less_of_floats(g: Graph) -> Tensor:
    return g.apply("not", x_of(g, 3) < 1.5)


@CASES.fires("select-the-complement")
def where_not(g: Graph) -> Tensor:
    c = x_of(g, name="c", dtype="bool")
    return build.where(g.apply("not", c), x_of(g), x_of(g, name="y"))


@CASES.refuses("select-the-complement", "the condition is as it is")
def where_plain(g: Graph) -> Tensor:
    return build.where(x_of(g, name="c", dtype="bool"), x_of(g), x_of(g, name="y"))
