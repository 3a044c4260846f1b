"""Picks one term per needed class so that the whole program, shared values paid once, is cheapest.

Greedy first, over the strongly connected components of the e-graph from the leaves up: a class's estimate is its
term's cost plus its operands' estimates, each divided by how many classes share it. Then a local search over the
true objective, with reference counts: change one class's term, or the terms of several classes that could share a
new one (packed products, kernels with two results), whenever the whole program gets cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from meganeura.egraph.components import components
from meganeura.errors import GraphError

INFINITE = float("inf")


@dataclass(frozen=True)
class Problem:
    """Extraction over integers 0..n-1.

    Attributes:
        classes: class number to its terms' numbers. cost: seconds per term. children: distinct classes a term reads.
        owner: a term's class. roots: classes that must be computed.
    """

    classes: tuple[tuple[int, ...], ...]
    cost: tuple[float, ...]
    children: tuple[tuple[int, ...], ...]
    owner: tuple[int, ...]
    roots: tuple[int, ...]

    @staticmethod
    def build(classes: Sequence[Sequence[tuple[float, Iterable[int]]]], roots: Iterable[int]) -> Problem:
        """From each class's terms as (cost, operand classes)."""
        numbers, cost, children, owner = [], [], [], []
        for number, terms in enumerate(classes):
            numbers.append(tuple(range(len(cost), len(cost) + len(terms))))
            for seconds, operands in terms:
                cost.append(seconds)
                children.append(tuple(dict.fromkeys(operands)))
                owner.append(number)
        return Problem(tuple(numbers), tuple(cost), tuple(children), tuple(owner), tuple(dict.fromkeys(roots)))

    def total(self, choice: Sequence[int]) -> float:
        """Cost of the program a choice of terms makes; raises GraphError if it is cyclic or incomplete."""
        return sum(self.cost[choice[c]] for c in self.order(choice))

    def order(self, choice: Sequence[int]) -> list[int]:
        """The classes a choice needs, operands first."""
        done: list[int] = []
        state: dict[int, int] = {}
        for root in self.roots:
            stack = [root]
            while stack:
                here = stack[-1]
                if state.get(here) == 2:
                    stack.pop()
                elif state.get(here) == 1:
                    state[here] = 2
                    done.append(here)
                    stack.pop()
                else:
                    state[here] = 1
                    if choice[here] < 0:
                        raise GraphError(f"extraction found no way to compute class {here}")
                    for child in reversed(self.children[choice[here]]):
                        if state.get(child) == 1:
                            raise GraphError("extraction chose a cyclic program")
                        if child not in state:
                            stack.append(child)
        return done


def extract(problem: Problem) -> list[int]:
    """Term chosen for every class (-1 where none is possible); only those reachable from the roots count."""
    parts = _Parts(problem)
    shared = parts.fanout()
    best: list[int] | None = None
    best_total = INFINITE
    for _ in range(3):
        choice = greedy(problem, parts, shared)
        total = problem.total(choice)
        if best is None or total < best_total * (1 - 1e-9):
            best, best_total = choice, total
        references = _references(problem, choice)
        if references == shared:
            break
        shared = references
    assert best is not None
    return LocalSearch(problem, parts, best).run()


class _Parts:
    """Strongly connected components of the classes, operands' components first, and who reads whom."""

    def __init__(self, problem: Problem) -> None:
        edges = [
            tuple(dict.fromkeys(child for term in terms for child in problem.children[term]))
            for terms in problem.classes
        ]
        self.ordered = components(edges)
        self.component = [0] * len(edges)
        for number, members in enumerate(self.ordered):
            for member in members:
                self.component[member] = number
        self.readers: list[list[int]] = [[] for _ in edges]
        for here, children in enumerate(edges):
            for child in children:
                self.readers[child].append(here)
        self.roots = set(problem.roots)

    def alone(self, here: int) -> bool:
        """Whether the class is on no cycle."""
        return len(self.ordered[self.component[here]]) == 1

    def fanout(self) -> list[float]:
        """How many classes could share each class."""
        return [float(max(1, len(set(readers)))) for readers in self.readers]


def greedy(problem: Problem, parts: _Parts, shared: Sequence[float]) -> list[int]:
    """The cheapest term of every class by estimates in which `shared[c]` readers divide the cost of c."""
    estimate = [INFINITE] * len(problem.classes)
    choice = [-1] * len(problem.classes)
    for members in parts.ordered:
        number = parts.component[members[0]]
        changed = True
        while changed:
            changed = False
            for here in members:
                for term in problem.classes[here]:
                    value = problem.cost[term]
                    for child in problem.children[term]:
                        # No division inside a component: estimates must grow along every edge, or cycles could win.
                        value += estimate[child] / (1.0 if parts.component[child] == number else shared[child])
                    if value < estimate[here]:
                        estimate[here], choice[here], changed = value, term, True
            changed = changed and len(members) > 1
    return choice


def _references(problem: Problem, choice: Sequence[int]) -> list[float]:
    counts = [0.0] * len(problem.classes)
    for here in problem.order(choice):
        for child in problem.children[choice[here]]:
            counts[child] += 1
    return [max(1.0, count) for count in counts]


class LocalSearch:
    """Improves a choice by exchanging terms; `counts` are references from chosen terms and roots."""

    def __init__(self, problem: Problem, parts: _Parts, choice: list[int]) -> None:
        self.problem, self.parts, self.choice = problem, parts, list(choice)
        self.counts = [0] * len(problem.classes)
        self.total = 0.0
        for root in problem.roots:
            self._take(root)

    def run(self, passes: int = 8) -> list[int]:
        """Exchange until nothing gets cheaper."""
        for _ in range(passes):
            before = self.total
            for here in reversed(self.problem.order(self.choice)):
                if self.counts[here] and len(self.problem.classes[here]) > 1:
                    self._improve(here)
            for here in range(len(self.problem.classes)):
                if not self.counts[here]:
                    self._share(here)
            if self.total >= before * (1 - 1e-12):
                break
        return self.choice

    def _take(self, start: int) -> None:
        stack = [start]
        while stack:
            here = stack.pop()
            self.counts[here] += 1
            if self.counts[here] == 1:
                term = self.choice[here]
                self.total += self.problem.cost[term]
                stack.extend(self.problem.children[term])

    def _drop(self, start: int) -> None:
        stack = [start]
        while stack:
            here = stack.pop()
            self.counts[here] -= 1
            if self.counts[here] == 0:
                term = self.choice[here]
                self.total -= self.problem.cost[term]
                stack.extend(self.problem.children[term])

    def _set(self, here: int, term: int) -> None:
        """Choose another term for a class, needed or not."""
        old = self.choice[here]
        self.choice[here] = term
        if not self.counts[here]:
            return
        self.total += self.problem.cost[term] - self.problem.cost[old]
        for child in self.problem.children[term]:
            self._take(child)
        for child in self.problem.children[old]:
            self._drop(child)

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

    def _attempt(self, changes: Callable[[], list[tuple[int, int]]]) -> bool:
        """Make the changes, which come back as (class, old term); undo them unless the program got cheaper."""
        before = self.total
        done = changes()
        if done and self.total < before * (1 - 1e-9):
            return True
        for here, old in reversed(done):
            self._set(here, old)
        self.total = before
        return False

    def _exchange(self, here: int, term: int) -> list[tuple[int, int]]:
        old = self.choice[here]
        if term == old or not self._possible(term) or self._makes_cycle(here, term):
            return []
        self._set(here, term)
        return [(here, old)]

    def _improve(self, here: int) -> None:
        for term in self.problem.classes[here]:
            self._attempt(lambda term=term: self._exchange(here, term))

    def _share(self, new: int) -> None:
        """Try to make all needed classes that have a term over the unneeded class `new` use it at once."""
        if self.choice[new] < 0:
            return
        moves = []
        for reader in dict.fromkeys(self.parts.readers[new]):
            if self.counts[reader]:
                terms = [t for t in self.problem.classes[reader] if new in self.problem.children[t]]
                moves.append((reader, min(terms, key=lambda t: (self.problem.cost[t], t))))
        if len(moves) > 1:
            self._attempt(lambda: [done for reader, term in moves for done in self._exchange(reader, term)])
