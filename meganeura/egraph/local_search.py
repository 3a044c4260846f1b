"""The local search of extraction: exchanges of terms that make the whole program cheaper."""

from __future__ import annotations

from collections.abc import Sequence

from meganeura.egraph.problem import INFINITE, Parts, Problem

MOVE_DEPTH = 2
"""How deep a move follows the classes that it newly needs."""
MOVE_CLASSES = 24
"""How many of them it tries to make cheaper."""


class LocalSearch:
    """Improves a choice by exchanging terms; `counts` are references from chosen terms and roots.

    A move is an exchange and, for the classes that it newly needs, the exchanges that make them cheaper: their
    terms were chosen without knowing what they would be needed for. A move that doesn't pay is undone.
    """

    def __init__(self, problem: Problem, parts: Parts, choice: Sequence[int], unshared: Sequence[int]) -> None:
        self.problem, self.parts, self.choice = problem, parts, list(choice)
        self.unshared = unshared
        self.counts = [0] * len(problem.classes)
        self.total = 0.0
        self._journal: list[tuple[int, int]] = []
        for root in problem.roots:
            self._take(root)

    def run(self, passes: int = 8) -> list[int]:
        """Exchange until nothing gets cheaper."""
        for _ in range(passes):
            before = self.total
            for here in reversed(self.problem.order(self.choice)):
                if self.counts[here] and len(self.problem.classes[here]) > 1:
                    self._improve(here, 0)
            for here in range(len(self.problem.classes)):
                if not self.counts[here]:
                    self._share(here, 0)
                elif self.counts[here] > 1:
                    self._release(here)
            if self.total >= before * (1 - 1e-6):
                break
        return self.choice

    # ---- bookkeeping --------------------------------------------------------------------------------

    def _take(self, start: int) -> list[int]:
        """Add a reference; returns the classes that were not needed before."""
        stack, new = [start], []
        while stack:
            here = stack.pop()
            self.counts[here] += 1
            if self.counts[here] == 1:
                term = self.choice[here]
                self.total += self.problem.cost[term]
                new.append(here)
                stack.extend(self.problem.children[term])
        return new

    def _drop(self, start: int) -> None:
        stack = [start]
        while stack:
            here = stack.pop()
            self.counts[here] -= 1
            if self.counts[here] == 0:
                term = self.choice[here]
                self.total -= self.problem.cost[term]
                stack.extend(self.problem.children[term])

    def _set(self, here: int, term: int) -> list[int]:
        """Choose another term for a class, needed or not; returns the newly needed classes."""
        old = self.choice[here]
        self.choice[here] = term
        new: list[int] = []
        if self.counts[here]:
            self.total += self.problem.cost[term] - self.problem.cost[old]
            for child in self.problem.children[term]:
                new += self._take(child)
            for child in self.problem.children[old]:
                self._drop(child)
        return new

    def _exchange(self, here: int, term: int) -> list[int] | None:
        """`_set`, noted in the journal; None if the term is impossible, would close a cycle, or is chosen already."""
        old = self.choice[here]
        if term == old or not self._possible(term) or self._makes_cycle(here, term):
            return None
        self._journal.append((here, old))
        return self._set(here, term)

    def _undo(self, mark: int, total: float) -> None:
        while len(self._journal) > mark:
            self._set(*self._journal.pop())
        self.total = total

    def _makes_cycle(self, here: int, term: int) -> bool:
        if self.parts.alone(here):
            return here in self.problem.children[term]
        component = self.parts.component
        inside = component[here]
        stack = [c for c in self.problem.children[term] if component[c] == inside]
        seen = set(stack)
        while stack:
            at = stack.pop()
            if at == here:
                return True
            for child in self.problem.children[self.choice[at]]:
                if component[child] == inside and child not in seen:
                    seen.add(child)
                    stack.append(child)
        return False

    def _possible(self, term: int) -> bool:
        return self.problem.cost[term] < INFINITE and all(self.choice[c] >= 0 for c in self.problem.children[term])

    # ---- moves --------------------------------------------------------------------------------------

    def _improve(self, here: int, depth: int) -> None:
        """Try every other term of a needed class."""
        for term in self.problem.classes[here]:
            self._move([(here, term)], depth)

    def _share(self, new: int, depth: int) -> None:
        """Try to make all needed classes that have a term over the unneeded class `new` use it at once."""
        if self.choice[new] < 0:
            return
        changes = []
        for reader in dict.fromkeys(self.parts.readers[new]):
            if self.counts[reader]:
                terms = [t for t in self.problem.classes[reader] if new in self.problem.children[t]]
                changes.append((reader, min(terms, key=lambda t: (self._price(t), t))))
        if len(changes) > 1:
            self._move(changes, depth)

    def _release(self, old: int) -> None:
        """Try to free all readers of a needed class from it at once."""
        changes = []
        for reader in dict.fromkeys(self.parts.readers[old]):
            if self.counts[reader] and old in self.problem.children[self.choice[reader]]:
                terms = [t for t in self.problem.classes[reader] if old not in self.problem.children[t]]
                if not terms:
                    return
                changes.append((reader, min(terms, key=lambda t: (self._price(t), t))))
        if len(changes) > 1 and old not in self.parts.roots:
            self._move(changes, 0)

    def _price(self, term: int) -> float:
        """What a term would cost, operands that aren't needed yet by their own term's cost."""
        missing = [c for c in self.problem.children[term] if not self.counts[c]]
        if any(self.choice[c] < 0 for c in missing):
            return INFINITE
        return self.problem.cost[term] + sum(self.problem.cost[self.choice[c]] for c in missing)

    def _move(self, changes: Sequence[tuple[int, int]], depth: int) -> None:
        """Make the changes if the program gets cheaper, with new classes as they are chosen or as if unshared."""
        mark, before = len(self._journal), self.total
        enough = before * (1 - 1e-9)
        for alone in (False, True):
            new: list[int] = []
            for here, term in changes:
                new += self._exchange(here, term) or []
            if len(self._journal) == mark:
                break
            # Even if all that is newly needed came for nothing?
            hopeful = self.total - sum(self.problem.cost[self.choice[here]] for here in new) < enough
            if depth < MOVE_DEPTH and self.total >= enough and hopeful:
                if alone:
                    self._as_if_unshared(new)
                self._settle(new, depth + 1)
            if self.total < enough:
                break
            self._undo(mark, before)
            if depth >= MOVE_DEPTH or not hopeful:
                break
        if depth == 0:
            self._journal.clear()

    def _as_if_unshared(self, new: list[int]) -> None:
        """Give newly needed classes, and those that they then need, the terms that are cheapest without sharing."""
        for here in new[:MOVE_CLASSES]:
            if self.counts[here]:
                new += self._exchange(here, self.unshared[here]) or []

    def _settle(self, new: list[int], depth: int) -> None:
        """Make newly needed classes cheaper, readers first, alone or by sharing what none of them has yet."""
        for here in new[:MOVE_CLASSES]:
            if self.counts[here] and len(self.problem.classes[here]) > 1:
                self._improve(here, depth)
                others = (c for t in self.problem.classes[here] for c in self.problem.children[t])
                for other in dict.fromkeys(others):
                    if not self.counts[other]:
                        self._share(other, depth)
