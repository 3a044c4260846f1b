"""Cases of rules/index.egg and rotary.egg."""

from __future__ import annotations

from meganeura.ir import Graph, Tensor
from meganeura.ops import build
from meganeura.ops.rotary import rotary_tables
from tests.rules.algebra_cases import x_of
from tests.rules.support import Cases, constant

CASES = Cases("commute", "algebra", "movement", "index", "rotary")


@CASES.fires("embedding-from-gather", finds=("embedding",))
def rows_of_a_table(g: Graph) -> Tensor:
    return build.gather(constant(g, 4, 3), x_of(g, 2, 5, name="ids", dtype="i32"))


@CASES.refuses("embedding-from-gather", "columns, or a table of rank 3")
def not_rows(g: Graph) -> tuple[Tensor, ...]:
    ids = x_of(g, 2, name="ids", dtype="i32")
    return build.gather(constant(g, 4, 4), ids, axis=1), build.gather(constant(g, 4, 3, 2), ids)


@CASES.fires("cache-write-from-update", finds=("cache_write",))
def rows_written(g: Graph) -> Tensor:
    cache = g.state("cache", (2, 6, 3))
    new = g.apply("state_update", cache, x_of(g, 2, 1, 3), x_of(g, 1, name="p", dtype="u32"), axis=1)
    g.update("cache", new)
    return new


@CASES.refuses("cache-write-from-update", "written along another axis", finds=("state_update",))
def columns_written(g: Graph) -> Tensor:
    cache = g.state("cache", (2, 6, 3))
    new = g.apply("state_update", cache, x_of(g, 2, 6, 1), x_of(g, 1, name="p", dtype="u32"), axis=2)
    g.update("cache", new)
    return new


@CASES.fires("gather-one-index", finds=("slice",), leaves=("gather",))
def first_token(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 2, 5, 3)
    return build.gather(x, g.full(0, (), "i32"), axis=1), build.gather(x, g.full(2, (1,), "i32"), axis=2)


@CASES.refuses("gather-one-index", "counted from the end, or out of range")
def last_token(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 2, 5, 3)
    return build.gather(x, g.full(-1, (), "i32"), axis=1), build.gather(x, g.full(7, (), "i32"), axis=1)


POSITION = {"inputs": {"p": [3]}}


@CASES.fires("device-position", **POSITION)
def position_in_disguise(g: Graph) -> Tensor:
    p = x_of(g, 1, name="p", dtype="u32")
    return build.gather(constant(g, 6, 4), p.astype("i32").reshape(1, 1))


@CASES.refuses("device-position", "a position given as float", **POSITION)
def position_as_float(g: Graph) -> Tensor:
    return x_of(g, 1, name="p") + 1.0


# ---- rotary embedding ------------------------------------------------------------------------------


def tables(g: Graph, rows: int, half: int) -> list[Tensor]:
    """Cosines and sines `[rows, half]`."""
    return [g.constant(table) for table in rotary_tables(rows, 2 * half, 100.0)]


def turn_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotation of the pairs (j, j + r/2) in primitives."""
    half = int(x.shape[-1]) // 2  # type: ignore[arg-type]
    a, b = x[..., :half], x[..., half:]
    return build.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)


def turn_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotation of the pairs (2j, 2j+1) in primitives, through `[.., r/2, 2]`."""
    *lead, width = x.shape
    pairs = x.reshape((*lead, width // 2, 2))  # type: ignore[operator]
    a, b = pairs[..., 0], pairs[..., 1]
    return stack(a * cos - b * sin, b * cos + a * sin)


def stack(a: Tensor, b: Tensor) -> Tensor:
    """a and b element by element along the last axis."""
    *lead, half = a.shape
    columns = [part.reshape((*lead, half, 1)) for part in (a, b)]
    return build.concat(columns, axis=-1).reshape((*lead, 2 * half))  # type: ignore[operator]


def turn_strided(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotation of the pairs (2j, 2j+1) in primitives, through strided slices."""
    a, b = x[..., 0::2], x[..., 1::2]
    return stack(a * cos - b * sin, b * cos + a * sin)


def turn_by_half(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x*cos + rotate_half(x)*sin, with tables of full width."""
    half = int(x.shape[-1]) // 2  # type: ignore[arg-type]
    turned = build.concat([-x[..., half:], x[..., :half]], axis=-1)
    return x * cos + turned * sin


ROPE = {"finds": ("rope",), "leaves": ("sub", "mul", "concat")}
DYNAMIC = {"finds": ("rope_dynamic",), "leaves": ("sub", "mul", "concat", "gather"), **POSITION}


@CASES.fires("rotary-halves")
@CASES.fires("rotation-of-halves")
@CASES.fires("rope-from-rotation", **ROPE)
def rope_halves(g: Graph) -> Tensor:
    return turn_halves(x_of(g, 2, 5, 8), *tables(g, 5, 4))


@CASES.fires("rotary-interleaved")
@CASES.fires("rotation-interleaved", **ROPE)
def rope_pairs(g: Graph) -> Tensor:
    return turn_pairs(x_of(g, 2, 5, 8), *tables(g, 5, 4))


@CASES.fires("rotary-interleaved", **ROPE)
def rope_strided(g: Graph) -> Tensor:
    return turn_strided(x_of(g, 5, 8), *tables(g, 5, 4))


@CASES.fires("rotation-by-rotate-half", **ROPE)
@CASES.fires("doubled-table")
def rope_rotate_half(g: Graph) -> Tensor:
    cos, sin = (build.concat([t, t], axis=-1).reshape(1, 1, 5, 8) for t in tables(g, 5, 4))
    return turn_by_half(x_of(g, 2, 3, 5, 8), cos, sin)


@CASES.fires("doubled-table", finds=("rope",), leaves=("concat", "add"))
def rope_of_computed_tables(g: Graph) -> Tensor:
    angles = x_of(g, 5, 1, name="t") * constant(g, 4)
    doubled = build.concat([angles, angles], axis=-1)
    return turn_by_half(x_of(g, 2, 5, 8), build.cos(doubled), build.sin(doubled))


@CASES.fires("doubled-table", finds=("rope_dynamic",), leaves=("mul",), **POSITION)
def rope_of_gathered_tables(g: Graph) -> Tensor:
    p = x_of(g, 1, name="p", dtype="u32")
    cos, sin = (build.gather(build.concat([t, t], axis=-1), p) for t in tables(g, 16, 4))
    return turn_by_half(x_of(g, 2, 1, 8), cos, sin)


@CASES.refuses("doubled-table", "two different halves")
@CASES.refuses("rotation-by-rotate-half", "tables whose halves differ")
def rotate_half_of_anything(g: Graph) -> Tensor:
    return turn_by_half(x_of(g, 2, 5, 8), constant(g, 5, 8), constant(g, 5, 8, seed=2))


@CASES.refuses("rotary-halves", "unequal parts")
@CASES.refuses("rotation-of-halves", "unequal parts")
def unequal_parts(g: Graph) -> Tensor:
    x, cos, sin = x_of(g, 5, 8), constant(g, 5, 1), constant(g, 5, 1, seed=2)
    a, b = x[..., :4], x[..., 4:5]
    return build.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)


@CASES.refuses("rotation-of-halves", "joined in the other order, or the sine's sign changed")
def halves_joined_otherwise(g: Graph) -> tuple[Tensor, ...]:
    x, (cos, sin) = x_of(g, 5, 8), tables(g, 5, 4)
    a, b = x[..., :4], x[..., 4:]
    u, v = a * cos - b * sin, b * cos + a * sin
    return build.concat([v, u], axis=-1), build.concat([a * cos + b * sin, v], axis=-1)


@CASES.refuses("rotation-interleaved", "halves stacked as pairs")
@CASES.refuses("rotary-interleaved", "halves, not pairs")
def halves_stacked(g: Graph) -> Tensor:
    x, (cos, sin) = x_of(g, 5, 8), tables(g, 5, 4)
    a, b = x[..., :4], x[..., 4:]
    return stack(a * cos - b * sin, b * cos + a * sin)


@CASES.refuses("rope-from-rotation", "the angles vary with the head")
def angles_by_head(g: Graph) -> Tensor:
    return turn_halves(x_of(g, 2, 5, 8), constant(g, 2, 5, 4), constant(g, 2, 5, 4, seed=2))


@CASES.refuses("rope-from-rotation", "one row of angles for all rows")
def one_angle(g: Graph) -> Tensor:
    return turn_halves(x_of(g, 2, 5, 8), *tables(g, 1, 4))


@CASES.fires("rope-rows-before-heads", **ROPE)
def rope_before_heads(g: Graph) -> Tensor:
    return turn_halves(x_of(g, 5, 2, 8), *(t.reshape(5, 1, 4) for t in tables(g, 5, 4)))


@CASES.fires("rope-rows-before-heads", **ROPE)
def rope_before_heads_batched(g: Graph) -> Tensor:
    return turn_pairs(x_of(g, 3, 5, 2, 8), *(t.reshape(1, 5, 1, 4) for t in tables(g, 5, 4)))


@CASES.refuses("rope-rows-before-heads", "the angles vary with the head, not with the row")
def angles_by_head_after_rows(g: Graph) -> Tensor:
    return turn_halves(x_of(g, 5, 2, 8), *(t.reshape(1, 2, 4) for t in tables(g, 2, 4)))


@CASES.fires("rope-at-position", **DYNAMIC)
def rope_of_one_row(g: Graph) -> Tensor:
    p = x_of(g, 1, name="p", dtype="u32")
    return turn_pairs(x_of(g, 3, 1, 8), *(build.gather(t, p) for t in tables(g, 2000, 4)))


@CASES.fires("rope-at-position", **DYNAMIC)
def rope_of_following_rows(g: Graph) -> Tensor:
    p = x_of(g, 1, name="p", dtype="u32")
    rows = p.astype("i32") + g.apply("iota", dtype=p.astype("i32").dtype, shape=(4,), axis=0)
    return turn_halves(x_of(g, 3, 4, 8), *(build.gather(t, rows) for t in tables(g, 2000, 4)))


@CASES.fires("rope-at-position", **DYNAMIC)
def rope_at_scalar_position(g: Graph) -> Tensor:
    p = x_of(g, 1, name="p", dtype="u32")
    rows = (build.gather(t, p.reshape(())) for t in tables(g, 2000, 4))
    return turn_halves(x_of(g, 3, 1, 8), *(row.reshape(1, 4) for row in rows))


@CASES.refuses("rope-at-position", "cosines and sines at different positions", inputs={"p": [3], "q": [4]})
def rope_at_two_positions(g: Graph) -> Tensor:
    p, q = (x_of(g, 1, name=name, dtype="u32") for name in "pq")
    cos, sin = tables(g, 16, 4)
    return turn_halves(x_of(g, 3, 1, 8), build.gather(cos, p), build.gather(sin, q))


@CASES.fires("rope-at-batch-positions", finds=("rope_dynamic",), leaves=("sub", "concat"), inputs={"p": [3, 0]})
def rope_of_a_batch(g: Graph) -> Tensor:
    p = x_of(g, 2, name="p", dtype="u32")
    return turn_halves(x_of(g, 2, 3, 1, 8), *(build.gather(t, p).reshape(2, 1, 1, 4) for t in tables(g, 2000, 4)))


@CASES.refuses("rope-at-batch-positions", "the positions lie along the heads", inputs={"p": [3, 0]})
def rope_of_heads_apart(g: Graph) -> Tensor:
    p = x_of(g, 2, name="p", dtype="u32")
    return turn_halves(x_of(g, 3, 2, 1, 8), *(build.gather(t, p).reshape(1, 2, 1, 4) for t in tables(g, 16, 4)))


@CASES.fires("rope-of-part", finds=("rope",), leaves=("concat",))
def rope_of_first_part(g: Graph) -> Tensor:
    x = x_of(g, 2, 5, 10)
    return build.concat([turn_pairs(x[..., :6], *tables(g, 5, 3)), x[..., 6:]], axis=-1)


@CASES.fires("rope-of-part", finds=("rope_dynamic",), leaves=("concat",), **POSITION)
def rope_of_first_part_at_position(g: Graph) -> Tensor:
    x, p = x_of(g, 2, 1, 10), x_of(g, 1, name="p", dtype="u32")
    return build.concat(
        [turn_halves(x[..., :6], *(build.gather(t, p) for t in tables(g, 2000, 3))), x[..., 6:]], axis=-1
    )


@CASES.refuses("rope-of-part", "the rest comes first, or from another tensor")
def rope_of_last_part(g: Graph) -> tuple[Tensor, ...]:
    x = x_of(g, 2, 5, 10)
    turned = turn_halves(x[..., :6], *tables(g, 5, 3))
    return build.concat([x[..., 6:], turned], axis=-1), build.concat([turned, x_of(g, 2, 5, 4, name="y")], axis=-1)
