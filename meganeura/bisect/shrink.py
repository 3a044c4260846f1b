"""The smallest graph that still fails: fewer nodes, then inputs for constants, then smaller dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from meganeura.bisect.cut import bypass, constants_of, cut, feed, live_nodes, values_of, without_states
from meganeura.bisect.dims import smaller
from meganeura.bisect.minimal import Budget, minimal
from meganeura.bisect.setting import Case
from meganeura.errors import MeganeuraError

Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, budget: Budget, hints: Iterable[Case | frozenset[str]] = ()) -> Case:
    """Shrink a failing case as far as the budget allows.

    Args:
        case: known to fail. fails: whether a candidate fails in the same way.
        hints: smaller cases, or names of source nodes, that are likely to fail; tried first, in order.
    """
    shrinker = _Shrinker(case, fails, budget)
    shrinker.jump(hints)
    for step in (
        shrinker.drop_packing,
        shrinker.drop_states,
        shrinker.drop_nodes,
        shrinker.drop_constants,
        shrinker.drop_between,
    ):
        step()
    shrinker.drop_dims()
    return shrinker.case


class _Shrinker:
    def __init__(self, case: Case, fails: Fails, budget: Budget) -> None:
        self.case, self.budget = case, budget
        self._fails = fails

    def _holds(self, make: Callable[[], Case]) -> bool:
        """Whether a candidate fails; one that can't be made, or breaks elsewhere, does not."""
        try:
            candidate = make()
            if not candidate.graph.roots or not self._fails(candidate):
                return False
        except (MeganeuraError, ArithmeticError, LookupError, ValueError):
            return False
        return True

    def _take(self, make: Callable[[], Case]) -> bool:
        if not (self.budget.take() and self._holds(make)):
            return False
        self.case = make()
        return True

    def jump(self, hints: Iterable[Case | frozenset[str]]) -> None:
        """Begin at the first hint that fails."""
        for hint in hints:
            if isinstance(hint, Case):
                if self._take(lambda hint=hint: hint):
                    return
            elif hint:
                graph = self.case.graph
                kept = tuple(i for i in live_nodes(graph) if hint & set(graph.nodes[i].sources))
                if kept and self._keep(kept):
                    return

    def _keep(self, kept: Sequence[int]) -> bool:
        case = self.case
        return self._take(lambda: cut(case, kept, values_of(case, live_nodes(case.graph))))

    def drop_packing(self) -> None:
        """Keep weights as plain numbers: the text form has no quantised blocks."""
        case = self.case
        if any(data.packed is not None for data in case.graph.constants.values()):
            plain = case.graph.rewrite()
            plain.constants = {key: replace(data, packed=None) for key, data in plain.constants.items()}
            self._take(lambda: Case(plain, case.values))

    def drop_states(self) -> None:
        case = self.case
        if case.graph.states:
            self._take(lambda: without_states(case))

    def drop_nodes(self) -> None:
        """Keep as few nodes as possible; the rest become inputs holding the reference's values."""
        case = self.case
        nodes = live_nodes(case.graph)
        values = values_of(case, nodes)
        kept = minimal(nodes, lambda part: bool(part) and self._holds(lambda: cut(case, part, values)), self.budget)
        if len(kept) < len(nodes):
            self.case = cut(case, kept, values)

    def drop_constants(self) -> None:
        """Make inputs of all that is known without inputs, unless the failure needs to know it."""
        case = self.case
        nodes = constants_of(case.graph)
        values = values_of(case, nodes)

        def fed(rest: tuple[int, ...]) -> Case:
            return feed(case, [i for i in nodes if i not in rest], values)

        kept = minimal(nodes, lambda rest: self._holds(lambda: fed(rest)), self.budget)
        if len(kept) < len(nodes):
            self.case = fed(kept)

    def drop_between(self) -> None:
        """Let readers of a node read its operand of the same type, where that still fails."""
        again = True
        while again and not self.budget.spent:
            graph = self.case.graph
            pairs = [
                (n.id, i)
                for n in reversed(graph.nodes)
                for i in n.inputs
                if graph.nodes[i].type == n.type and i != n.id
            ]
            again = any(self._take(lambda pair=pair, case=self.case: bypass(case, *pair)) for pair in pairs)

    def drop_dims(self) -> None:
        again = True
        while again and not self.budget.spent:
            again = any(self._take(lambda candidate=candidate: candidate) for candidate in smaller(self.case))
