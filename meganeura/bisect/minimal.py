"""Delta debugging: the smallest part of a set that still shows a failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Budget:
    """Tests and seconds that a search may still take.

    Attributes:
        tests: how many were made. spent: whether something was left untried for want of time.
    """

    def __init__(self, seconds: float = 90.0, tests: int = 600) -> None:
        self._until, self._most = time.monotonic() + seconds, tests
        self.tests = 0
        self.spent = False

    def take(self) -> bool:
        """Whether one more test may be made."""
        if self.tests >= self._most or time.monotonic() > self._until:
            self.spent = True
            return False
        self.tests += 1
        return True


def minimal(items: Sequence[Item], fails: Callable[[tuple[Item, ...]], bool], budget: Budget) -> tuple[Item, ...]:
    """A subset of `items`, in order, that still fails and of which no single member can be left out.

    Args:
        items: all of them are known to fail together. fails: whether a subset does.
        budget: the best subset so far is given when it ends.
    """

    def test(subset: tuple[Item, ...]) -> bool:
        return budget.take() and fails(subset)

    kept, parts = tuple(items), 2
    if kept and test(()):
        return ()
    while len(kept) > 1 and not budget.spent:
        size = -(-len(kept) // parts)
        chunks = [kept[i : i + size] for i in range(0, len(kept), size)]
        rests = [kept[:i] + kept[i + size :] for i in range(0, len(kept), size)]
        # With two parts, a part is the rest of the other.
        found = next((c for c in (chunks if parts == 2 else [*chunks, *rests]) if test(c)), None)
        if found is not None:
            parts = 2 if len(found) == size else max(parts - 1, 2)
            kept = found
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept
