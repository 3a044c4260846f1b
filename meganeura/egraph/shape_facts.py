"""What rules may know about shapes and permutations: relations over integer vectors that occur."""

from __future__ import annotations

from collections.abc import Iterator

from meganeura.errors import GraphError
from meganeura.ir.types import broadcast_shapes

Vector = tuple[int, ...]


def fits(shape: Vector, target: Vector) -> bool:
    """Whether `shape` broadcasts to exactly `target`."""
    try:
        return len(shape) <= len(target) and broadcast_shapes(shape, target) == target
    except GraphError:
        return False


def permutation_facts(perm: Vector) -> Iterator[str]:
    """Names of the one-vector relations that hold."""
    rank = len(perm)
    if perm == tuple(range(rank)):
        yield "identity-perm"
    for name, low, high in (("swaps-last-two", 2, 1), ("swaps-heads", 3, 2)):
        if rank >= low and perm == exchange(rank, -low, -high):
            yield name


def exchange(rank: int, a: int, b: int) -> Vector:
    """The permutation that exchanges two axes."""
    perm = list(range(rank))
    perm[a], perm[b] = perm[b], perm[a]
    return tuple(perm)


def keeps_order(perm: Vector, shape: Vector) -> bool:
    """Whether transposing this shape leaves all axes longer than 1 in order, so that a reshape would do."""
    long = [axis for axis in perm if shape[axis] != 1]
    return long == sorted(long)


def compose(outer: Vector, inner: Vector) -> Vector:
    """The permutation r with transpose(transpose(x, inner), outer) == transpose(x, r)."""
    return tuple(inner[p] for p in outer)


def reshape_facts(old: Vector, new: Vector) -> Iterator[tuple[str, int]]:
    """Which simple change of axes a reshape is: (relation, axis); empty for anything else."""
    if len(new) == len(old) + 1:
        for axis in range(len(new)):
            if new[axis] == 1 and new[:axis] + new[axis + 1 :] == old:
                yield "inserts-axis", axis
        for axis in range(len(old)):
            same = old[:axis] == new[:axis] and old[axis + 1 :] == new[axis + 2 :]
            if same and new[axis] * new[axis + 1] == old[axis]:
                yield "splits-axis", axis
    elif len(old) == len(new) + 1:
        for axis in range(len(old)):
            if old[axis] == 1 and old[:axis] + old[axis + 1 :] == new:
                yield "removes-axis", axis
        for axis in range(len(new)):
            same = new[:axis] == old[:axis] and new[axis + 1 :] == old[axis + 2 :]
            if same and old[axis] * old[axis + 1] == new[axis]:
                yield "merges-axes", axis


def expand_fact(old: Vector, new: Vector) -> tuple[int, int] | None:
    """(axis, times) when only one length-1 axis grows and the rank stays."""
    grown = [a for a, (b, c) in enumerate(zip(old, new, strict=False)) if b != c] if len(old) == len(new) else []
    return (grown[0], new[grown[0]]) if len(grown) == 1 and old[grown[0]] == 1 else None
