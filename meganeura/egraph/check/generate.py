"""Graphs that match a template: operands and attributes guessed term by term, with backtracking over guards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from meganeura.egraph.check import leaves, operands
from meganeura.egraph.check.expressions import Unbound, Undefined, compute, equal
from meganeura.egraph.check.leaves import Leaf
from meganeura.egraph.check.pattern import NoTemplate, Template, Term
from meganeura.egraph.check.propose import MOST_ELEMENTS, Proposer
from meganeura.egraph.check.sketch import Item, Sketch, has_value, settle
from meganeura.egraph.schema import FACTS
from meganeura.egraph.sexpr import Atom, Form, forms
from meganeura.errors import GraphError
from meganeura.ir.op import Op, sizeof
from meganeura.ir.types import DType, TensorType, TupleType, ValueType
from meganeura.ops.shape import Slice

_TRIES, _PASSES, _STEPS = 30, 5, 90
"""Guesses for one term, those of them to go deeper with, and steps of one attempt in all."""
_LEAF_TERMS = ("Constant", "Full", "Input", "State")


def generate(template: Template, proposer: Proposer) -> Sketch | None:
    """One graph on which the template's guards hold as far as they can be computed, or None."""
    return _Generator(template, proposer).run()


class _Generator:
    def __init__(self, template: Template, proposer: Proposer) -> None:
        self.template, self.proposer = template, proposer
        self.steps = 0
        everything = [form for guard in template.guards for form in forms(guard)]
        self.uniform = {str(f.items[1]) for f in everything if f.head == "splat"}
        self.facts: dict[str, list[Form]] = {}
        relations = []
        for fact in template.facts:
            if FACTS[fact.head][0][0] == "E":
                self.facts.setdefault(str(fact.items[1]), []).append(fact)
            else:
                relations.append(fact)
        self.guards = [*template.guards, *relations]
        self.wanted_splats = _wanted_splats(template.guards)
        self.order = self._order()

    def _order(self) -> list[str]:
        """Terms before their readers, and classes without a reader last."""
        slices = {
            v: fs[0] for v, fs in self.facts.items() if fs[0].head == "slice-range" and v not in self.template.terms
        }
        needs: dict[str, list[str]] = {
            v: list(t.operands) for v, t in self.template.terms.items() if t.made_by.name not in _LEAF_TERMS
        }
        needs |= {v: [str(f.items[2])] for v, f in slices.items()}
        done: dict[str, None] = {}
        waiting = list(needs)
        while waiting:
            ready = [v for v in waiting if all(o in done or o not in needs for o in needs[v])]
            if not ready:
                raise NoTemplate
            # What is made by rules alone comes last: more is known then.
            ready.sort(key=lambda v: v in self.template.terms and self.template.terms[v].made)
            done[ready[0]] = None
            waiting.remove(ready[0])
        read = {o for inner in needs.values() for o in inner}
        return [*done, *(c for c in self.template.classes if c not in done and c not in read)]

    def run(self) -> Sketch | None:
        sketch = Sketch(pending=list(self.guards))
        if not settle(sketch):
            return None
        return self._grow(sketch, 0)

    def _grow(self, sketch: Sketch, at: int) -> Sketch | None:
        if at == len(self.order):
            return sketch
        for further in self._ways(sketch, self.order[at]):
            self.steps += 1
            if self.steps > _STEPS:
                return None
            if settle(further):
                found = self._grow(further, at + 1)
                if found is not None:
                    return found
        return None

    # ---- one class --------------------------------------------------------------------------------

    def _ways(self, sketch: Sketch, name: str) -> Iterator[Sketch]:
        passes = 0
        for _ in range(_TRIES):
            further = sketch.copy()
            if name in sketch.types:
                yield further
                return
            if self._place(further, name):
                yield further
                passes += 1
                if passes >= _PASSES:
                    return

    def _place(self, sketch: Sketch, name: str) -> bool:
        term = self.template.terms.get(name)
        slicing = [f for f in self.facts.get(name, ()) if f.head == "slice-range"]
        if term is None and slicing:
            return self._slice(sketch, name, slicing[0])
        if term is None or term.made_by.name in _LEAF_TERMS:
            return self._leaf(sketch, name, list(sketch.types.values()))
        attributes = self._fixed(sketch, term)
        near = [sketch.types[o] for o in term.operands if o in sketch.types]
        for position, operand in enumerate(term.operands):
            if operand not in sketch.types:
                known = [sketch.types.get(o) for o in term.operands]
                hint = operands.guess(term.made_by.op.name, position, known, attributes, self.proposer)
                around = near if near and self.proposer.chance(0.8) else list(sketch.types.values())
                if not self._leaf(sketch, operand, around, hint):
                    return False
                near.append(sketch.types[operand])
        if not settle(sketch):
            return False
        return self._apply(sketch, name, term)

    def _fixed(self, sketch: Sketch, term: Term) -> dict[str, Any]:
        """Attributes that are known before the operands are, those that count operands chosen to fit."""
        known: dict[str, Any] = {}
        names = [f.name for f in fields(term.made_by.op)]
        for attribute, item in zip(names, term.attributes, strict=True):
            try:
                known[attribute] = compute(item, sketch)
            except (Unbound, Undefined):
                continue
        chosen = operands.flags(term.made_by.op.name, len(term.operands), known, self.proposer)
        for attribute, item in zip(names, term.attributes, strict=True):
            if attribute in chosen and isinstance(item, Atom):
                sketch.values[item.text] = chosen[attribute]
        return {**known, **chosen}

    def _apply(self, sketch: Sketch, name: str, term: Term) -> bool:
        kinds = [sketch.types[o] for o in term.operands]
        names = [f.name for f in fields(term.made_by.op)]
        literals = []
        for attribute, sort, item in zip(names, term.made_by.sorts, term.attributes, strict=True):
            try:
                value = compute(item, sketch)
            except Undefined:
                return False
            except Unbound:
                if term.made or not isinstance(item, Atom):
                    return False
                value = self.proposer.attribute(term.made_by.op, attribute, sort, kinds)
                sketch.values[item.text] = value
            literals.append(value)
        return self._put(sketch, name, term.made_by.decode(literals), term.operands, emit=not term.made)

    def _put(self, sketch: Sketch, name: str, op: Op, inner: Sequence[str], emit: bool = True) -> bool:
        types = [sketch.types[o] for o in inner]
        if any(isinstance(t, TupleType) for t in types) != (op.name == "proj") or not has_value(op, types):
            return False
        try:
            kind = op.infer(types)  # type: ignore[arg-type]
        except (GraphError, IndexError, ValueError):
            return False
        if isinstance(kind, TensorType) and sizeof(kind.shape) > 3 * MOST_ELEMENTS:
            return False
        sketch.types[name] = kind
        if emit:
            sketch.items[name] = Item(kind, op, tuple(inner))
        return True

    def _slice(self, sketch: Sketch, name: str, fact: Form) -> bool:
        """`(slice-range e x axis from to)`: e is cut out of x."""
        source = str(fact.items[2])
        if source not in sketch.types and not self._leaf(sketch, source, list(sketch.types.values())):
            return False
        kind = sketch.types[source]
        if not isinstance(kind, TensorType) or not kind.rank:
            return False
        shape = kind.dims
        axis = self._bound(sketch, fact.items[3], self.proposer.pick((kind.rank - 1, *range(kind.rank))))
        if not 0 <= axis < kind.rank:
            return False
        half = shape[axis] // 2
        low = self._bound(sketch, fact.items[4], self.proposer.pick((0, half, 1)))
        high = self._bound(sketch, fact.items[5], self.proposer.pick((half, shape[axis], shape[axis], 1)))
        if not 0 <= low <= high <= shape[axis]:
            return False
        starts, stops = [0] * kind.rank, list(shape)
        starts[axis], stops[axis] = low, high
        return self._put(sketch, name, Slice(tuple(starts), tuple(stops), (1,) * kind.rank), (source,))

    def _bound(self, sketch: Sketch, item: Any, otherwise: int) -> int:
        try:
            return compute(item, sketch)
        except Undefined:
            return -1
        except Unbound:
            if isinstance(item, Atom):
                sketch.values[item.text] = otherwise
            return otherwise

    def _leaf(self, sketch: Sketch, name: str, near: Sequence[ValueType], hint: TensorType | None = None) -> bool:
        if name in self.template.terms and self.template.terms[name].made_by.name not in _LEAF_TERMS:
            # A term that a rule's actions make and that is not placed yet.
            return False
        tensors = [t for t in near if isinstance(t, TensorType)]
        kind = hint or self.proposer.type(tensors)
        facts = self.facts.get(name, [])
        term = self.template.terms.get(name)
        if name in self.uniform:
            return self._uniform(sketch, name, kind, tensors, term)
        leaf = leaves.with_facts(facts, kind, sketch, self.proposer)
        if leaf is None:
            return False
        if term is not None:
            if term.made_by.name == "Constant" and leaf.array is None:
                leaf = leaves.random_constant(kind, self.proposer.rng)
            elif term.made_by.name != "Constant":
                leaf = Leaf("state" if term.made_by.name == "State" else "input", kind)
            if not self._agree(sketch, term, kind, None):
                return False
        sketch.types[name] = leaf.type
        sketch.items[name] = Item(leaf.type, leaf=leaf)
        return True

    def _uniform(
        self, sketch: Sketch, name: str, kind: TensorType, near: Sequence[TensorType], term: Term | None
    ) -> bool:
        if self.proposer.chance(0.6):
            kind = TensorType(kind.dtype, ())
        dims = [int(d) for t in near for d in t.shape]  # type: ignore[arg-type]
        value: float | None = None
        for item in self.wanted_splats.get(name, ()):
            try:
                value = compute(item, sketch)
                break
            except Undefined:
                return False
            except Unbound:
                continue
        if value is None:
            value = self.proposer.number(dims)
        if kind.dtype.is_float:
            with np.errstate(all="ignore"):
                value = float(kind.dtype.numpy.type(value))
        if kind.dtype is DType.BOOL:
            if value not in (0.0, 1.0):
                return False
        elif (
            not kind.dtype.is_float and (not np.isfinite(value) or value != int(value) or abs(value) > 2**31 - 1)
        ) or (kind.dtype is DType.U32 and value < 0):
            return False
        if not self._agree(sketch, term, kind, float(value)):
            return False
        sketch.types[name], sketch.splats[name] = kind, float(value)
        sketch.items[name] = Item(kind, leaf=Leaf("full", kind, value=float(value)))
        return True

    def _agree(self, sketch: Sketch, term: Term | None, kind: TensorType, value: float | None) -> bool:
        """Bind a leaf term's attributes, or compare them with what is bound."""
        if term is None:
            return True
        known = {"Constant": (None, kind.dtype.value, kind.dims), "Full": (value, kind.dtype.value, kind.dims)}
        for item, found in zip(term.attributes, known.get(term.made_by.name, ()), strict=False):
            try:
                if found is not None and not equal(compute(item, sketch), found):
                    return False
            except Undefined:
                return False
            except Unbound:
                if isinstance(item, Atom):
                    sketch.values[item.text] = f"key {item.text}" if found is None else found
        return True


def _wanted_splats(guards: Sequence[Form]) -> dict[str, list[Any]]:
    """By class: what guards say its uniform value is."""
    wanted: dict[str, list[Any]] = {}
    for guard in guards:
        if guard.head == "=":
            for one, other in ((guard.items[1], guard.items[2]), (guard.items[2], guard.items[1])):
                if isinstance(one, Form) and one.head == "splat":
                    wanted.setdefault(str(one.items[1]), []).append(other)
    return wanted
