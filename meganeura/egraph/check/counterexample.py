"""The smallest graph on which a rule is wrong, as text that can be pasted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meganeura.egraph.check.compare import Difference
from meganeura.egraph.check.instance import pruned, remade, single, size
from meganeura.egraph.check.sketch import Item
from meganeura.egraph.rulefile import RuleInfo
from meganeura.ir.text import format_graph
from meganeura.ir.types import TensorType

Items = dict[str, Item]
Probe = Callable[[Items], "tuple[Difference, dict[str, np.ndarray]] | str | None"]
_CANDIDATES, _STEPS = 6, 30
"""Failing graphs to start from, smallest first, and tries at making one smaller."""


@dataclass(frozen=True)
class CounterExample:
    """A graph on which a rule is wrong.

    Attributes:
        text: the graph as `ir.text` prints it, its inputs as comments above. message: what differs.
    """

    text: str
    message: str


def smallest(wrong: Sequence[tuple[Items, str]], probe: Probe, rule: RuleInfo) -> CounterExample | None:
    """Shrink failing graphs and describe the smallest.

    Args:
        wrong: graphs that failed, with the engine's complaint. probe: runs one graph alone.
    """
    best: tuple[tuple[int, int], Items] | None = None
    for items, _ in sorted(wrong, key=lambda w: size(w[0]))[:_CANDIDATES]:
        if probe(items) is not None:
            best = size(items), items
            break
    if best is None:
        # Only together, or with inputs drawn once: what was seen is told all the same.
        items, complaint = min(wrong, key=lambda w: size(w[0]))
        return CounterExample(format_graph(single(items, rule.name)), complaint or "differs for some inputs")
    items = _shrunk(best[1], probe)
    outcome = probe(items)
    assert outcome is not None
    return _described(items, outcome, rule)


def _shrunk(items: Items, probe: Probe) -> Items:
    steps = 0
    again = True
    while again and steps < _STEPS:
        again = False
        for smaller in _smaller(items):
            steps += 1
            if steps > _STEPS:
                break
            if size(smaller) < size(items) and probe(smaller) is not None:
                items, again = smaller, True
                break
    return items


def _smaller(items: Items) -> list[Items]:
    """Graphs with a part of the outputs only, or with one length made smaller everywhere."""
    found = [pruned(items, name) for name, item in items.items() if item.operands]
    lengths = sorted({d for i in items.values() if i.leaf and i.leaf.kind != "constant" for d in i.leaf.type.dims})
    for old in reversed(lengths):
        for new in (1, 2, old - 1):
            if 0 < new < old:
                changed = {
                    name: replace(item, leaf=replace(item.leaf, type=_resized(item.leaf.type, old, new)))
                    if item.leaf is not None and item.leaf.kind != "constant"
                    else item
                    for name, item in items.items()
                }
                made = remade(changed)
                if made is not None:
                    found.append(made)
    for name, item in items.items():
        leaf = item.leaf
        if leaf is not None and leaf.kind == "input":
            for at in range(leaf.type.rank):
                dims = leaf.type.dims
                if dims[at] > 1:
                    kind = TensorType(leaf.type.dtype, (*dims[:at], 1, *dims[at + 1 :]))
                    made = remade({**items, name: replace(item, leaf=replace(leaf, type=kind))})
                    if made is not None:
                        found.append(made)
    return sorted(found, key=size)


def _resized(kind: TensorType, old: int, new: int) -> TensorType:
    return TensorType(kind.dtype, tuple(new if d == old else d for d in kind.dims))


def _described(
    items: Items, outcome: tuple[Difference, Mapping[str, np.ndarray]] | str, rule: RuleInfo
) -> CounterExample:
    graph = single(items, rule.name)
    text = format_graph(graph)
    if isinstance(outcome, str):
        return CounterExample(text, outcome)
    difference, inputs = outcome
    lines = []
    for name, array in inputs.items():
        flat = ", ".join(repr(v) for v in np.asarray(array).reshape(-1).tolist())
        lines.append(f"# {name.partition('_')[2] or name} = [{flat}]")
    return CounterExample("\n".join([*lines, text.rstrip()]), difference.message)
