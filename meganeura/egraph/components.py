"""Strongly connected components, operands before readers (Tarjan 1972, without recursion)."""

from __future__ import annotations

from collections.abc import Sequence


def components(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """Components of the graph `i -> edges[i]`; every component comes after those it points to, members sorted."""
    index: list[int] = [-1] * len(edges)
    low = [0] * len(edges)
    on_stack = [False] * len(edges)
    stack: list[int] = []
    found: list[list[int]] = []
    counter = 0
    for root in range(len(edges)):
        if index[root] >= 0:
            continue
        work: list[tuple[int, int]] = [(root, 0)]
        while work:
            here, position = work.pop()
            if position == 0:
                index[here] = low[here] = counter
                counter += 1
                stack.append(here)
                on_stack[here] = True
            descended = False
            targets = edges[here]
            while position < len(targets):
                target = targets[position]
                position += 1
                if index[target] < 0:
                    work.append((here, position))
                    work.append((target, 0))
                    descended = True
                    break
                if on_stack[target]:
                    low[here] = min(low[here], index[target])
            if descended:
                continue
            if low[here] == index[here]:
                members = []
                while True:
                    member = stack.pop()
                    on_stack[member] = False
                    members.append(member)
                    if member == here:
                        break
                found.append(sorted(members))
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[here])
    return found
