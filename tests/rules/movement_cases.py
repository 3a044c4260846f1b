"""Cases of rules/movement.egg."""

from __future__ import annotations

from meganeura.ir import DType, Graph, Tensor
from meganeura.ops import build
from tests.rules.algebra_cases import x_of
from tests.rules.support import Cases, constant

CASES = Cases("commute", "algebra", "movement")


@CASES.fires("identity-view", leaves=("reshape", "expand", "slice", "transpose", "concat"))
def views_of_nothing(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g)
    views = (
        x.reshape(3, 4),
        build.expand(x, (3, 4)),
        g.apply("slice", x, starts=(0, 0), stops=(3, 4), steps=(1, 1)),
        x.transpose(0, 1),
        build.concat([x]),
    )
    return tuple(build.exp(view) + float(n) for n, view in enumerate(views))


@CASES.refuses("identity-view", "each changes something")
def views_of_something(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 3, 3)
    return x.reshape(9), x[:2], build.exp(x.transpose(1, 0)), build.expand(x, (2, 3, 3)), build.concat([x, x])


@CASES.fires("double-view")
def views_of_views(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 2, 1, 4)
    return (
        build.exp(x.reshape(8).reshape(4, 2)),
        build.exp(build.expand(build.expand(x, (2, 3, 4)), (5, 2, 3, 4))),
        build.exp(build.sin(x).transpose(1, 2, 0).transpose(2, 0, 1)),
    )


@CASES.refuses("double-view", "different views do not compose")
def mixed_views(g: Graph) -> Tensor:
    return x_of(g, 2, 3, 4).transpose(2, 1, 0).reshape(4, 6)


@CASES.fires("transpose-unit-axes", leaves=("transpose",))
def moving_unit_axes(g: Graph) -> Tensor:
    return build.exp(x_of(g, 1, 5, 4).transpose(1, 0, 2))


@CASES.refuses("transpose-unit-axes", "two long axes change places", finds=("transpose",))
def moving_long_axes(g: Graph) -> Tensor:
    return build.exp(x_of(g, 1, 5, 4).transpose(0, 2, 1))


@CASES.fires("identity-cast", leaves=("cast",))
def cast_to_itself(g: Graph) -> Tensor:
    return build.exp(x_of(g).astype("f32"))


@CASES.refuses("identity-cast", "to another type")
def cast_to_half(g: Graph) -> Tensor:
    return x_of(g).astype("f16")


@CASES.fires("lossless-cast-pair")
def widening_casts(g: Graph) -> tuple[Tensor, ...]:
    half, truth = x_of(g, dtype="f16"), x_of(g, name="c", dtype="bool")
    signed, unsigned = x_of(g, name="i", dtype="i32"), x_of(g, name="u", dtype="u32")
    return (
        half.astype("f32").astype("f16"),
        truth.astype("i32").astype("f32"),
        signed.astype("u32").astype("i32"),
        unsigned.astype("i32").astype("u32"),
    )


@CASES.refuses("lossless-cast-pair", "float16 and integers round", inputs={"x": [0.1, 1.7, -2.5]})
def narrowing_casts(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 3)
    return x.astype("f16").astype("f32"), x.astype("i32").astype("f32")


@CASES.fires("widening-past-view")
def widened_then_viewed(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 3, 1, 4, dtype="f16").astype("f32")
    return x.transpose(2, 0, 1), x.reshape(12), build.expand(x, (3, 5, 4))


@CASES.refuses("widening-past-view", "integers, or narrowed")
def converted_then_viewed(g: Graph) -> tuple[Tensor, ...]:
    x, i = x_of(g), x_of(g, name="i", dtype="i32")
    return x.astype("f16").transpose(1, 0), i.astype("f32").reshape(12)


@CASES.fires("slice-of-concat", leaves=("concat",))
def slices_of_joined(g: Graph) -> tuple[Tensor, ...]:
    joined = build.concat([x_of(g), x_of(g, 3, 2, name="y")], axis=1)
    return build.exp(joined[:, :4]), build.exp(joined[:, 4:])


@CASES.refuses("slice-of-concat", "cut elsewhere")
def slices_across(g: Graph) -> tuple[Tensor, ...]:
    joined = build.concat([x_of(g), x_of(g, 3, 2, name="y")], axis=1)
    return joined[:, :5], joined[:2, :], joined[:, 3:]


@CASES.fires("concat-of-slices", leaves=("concat", "slice"))
def joined_again(g: Graph) -> Tensor:
    x = x_of(g)
    return build.exp(build.concat([x[:, :1], x[:, 1:]], axis=1))


@CASES.refuses("concat-of-slices", "in the wrong order or with a gap")
def joined_otherwise(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g)
    return build.concat([x[:, 1:], x[:, :1]], axis=1), build.concat([x[:, :1], x[:, 2:]], axis=1)


@CASES.fires("expand-into-elementwise", leaves=("expand",))
def expanded_operands(g: Graph) -> tuple[Tensor, ...]:
    x, row = x_of(g), build.expand(x_of(g, 4, name="r"), (3, 4))
    keep = build.expand(x_of(g, 3, 1, name="c", dtype="bool"), (3, 4))
    return (
        x + row, x * row, x - row, row - x, x / row,
        build.where(keep, x, 0.5), build.where(keep, 0.5, x),
        build.where(x < 0.0, x, row), build.where(x < 0.0, row, x),
    )  # fmt: skip


@CASES.refuses("expand-into-elementwise", "the expansion gives the shape", finds=("expand",))
def expansion_that_counts(g: Graph) -> Tensor:
    return x_of(g, 4) + build.expand(x_of(g, 4, name="r"), (3, 4))


@CASES.fires("reduction-keeps-axis", leaves=("reshape",))
def reductions_put_back(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 2, 3, 4)
    return (
        x - build.max(x, 2).reshape(2, 3, 1),
        x - build.sum(x, 1).reshape(2, 1, 4),
        x - build.mean(x, -1).reshape(2, 3, 1),
    )


@CASES.refuses("reduction-keeps-axis", "the axis comes back elsewhere")
def reduction_put_elsewhere(g: Graph) -> Tensor:
    x = x_of(g, 3, 3)
    return x - build.max(x, 1).reshape(1, 3)


@CASES.fires("mean-from-sum", finds=("reduce_mean",))
def sum_over_count(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 2, 3, 4)
    return build.sum(x, -1, True) / 4.0, build.sum(x, 1) * (1 / 3)


@CASES.refuses("mean-from-sum", "another divisor, several axes, or integers")
def sum_over_something(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 2, 3, 4)
    counts = x_of(g, 2, 4, name="i", dtype="i32")
    return (
        build.sum(x, -1) / 5.0,
        build.sum(x, (1, 2)) / 12.0,
        build.sum(counts, 1) / 4,
        build.sum(x, 1) / constant(g, 4),
    )


@CASES.refuses("uniform-factor-past-view", "booleans have no factors")
def view_of_booleans(g: Graph) -> Tensor:
    return x_of(g, dtype=DType.BOOL.value).transpose(1, 0)
