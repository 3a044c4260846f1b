"""Extraction as a problem over integers: classes, their terms, what each costs and reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


class Parts:
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
