"""Operands of ops whose operand shapes depend on each other: guessed together, where blind guesses hardly ever fit.

Each function gives the shape or type of an operand from the types known so far; what a rule's guards and the op's
own shape rule say still decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meganeura.egraph.check.propose import Proposer, Shape
from meganeura.ir.types import DType, TensorType, ValueType

Known = Sequence[ValueType | None]
Guess = Callable[[int, Known, Mapping[str, Any], Proposer], TensorType | None]


def guess(op: str, position: int, known: Known, attributes: Mapping[str, Any], proposer: Proposer) -> TensorType | None:
    """A type for one operand, None for ops whose operands may be guessed freely.

    Args:
        op: name of the op. position: which operand. known: types of all operands, None where still open.
        attributes: those that are known.
    """
    function = _GUESSES.get(op)
    return None if function is None else function(position, known, attributes, proposer)


def flags(op: str, count: int, fixed: Mapping[str, Any], proposer: Proposer) -> dict[str, Any]:
    """Attributes that say which optional operands there are, chosen so that they are `count` in all."""
    if op == "fused_matmul":
        wanted = count - 2
        names = ("bias", "residual")
    elif op in ("attention", "cached_attention"):
        wanted = count - (4 if op == "cached_attention" else 3)
        names = ("bias", "alibi", "mask", *(("rope",) if op == "attention" else ()))
    else:
        return {}
    weights = {"rope": 2}

    def size(chosen: dict[str, bool]) -> int:
        return sum(weights.get(n, 1) for n, on in chosen.items() if on)

    for _ in range(20):
        chosen = {n: proposer.chance(0.4) for n in names}
        for name, value in fixed.items():
            if name in chosen:
                chosen[name] = value not in (False, "none")
        if size(chosen) == wanted:
            result: dict[str, Any] = dict(chosen)
            if "mask" in result:
                result["mask"] = proposer.pick(("add", "fill")) if chosen["mask"] else "none"
            if op == "attention" and "window" not in fixed and fixed.get("causal") is not True:
                result["window"] = 0
            return {n: v for n, v in result.items() if n not in fixed}
    return {}


def _dims(kind: ValueType | None) -> Shape | None:
    return kind.dims if isinstance(kind, TensorType) else None


def _dtype(known: Known, otherwise: DType = DType.F32) -> DType:
    return next((k.dtype for k in known if isinstance(k, TensorType)), otherwise)


def _attention(position: int, known: Known, attributes: Mapping[str, Any], proposer: Proposer) -> TensorType | None:
    cached = "position" in attributes
    shapes = [_dims(k) for k in known]
    dtype = _dtype(known[:3])
    if any(s is not None and len(s) < 3 for s in shapes[:3]):
        return None
    base = next((s for s in shapes[:3] if s is not None), None)
    if base is None:
        lead = tuple(proposer.dim() for _ in range(proposer.pick((0, 1, 1, 2))))
        base = (*lead, proposer.dim(), proposer.dim(), proposer.dim())
        base = (*base[:-2], 1, base[-1]) if cached else base
        if position == 0:
            return TensorType(dtype, base)
    q, k, v = shapes[:3]
    if position == 0:
        rows = 1 if cached else proposer.dim()
        return TensorType(dtype, (*base[:-2], rows, k[-1] if k else proposer.dim()))
    if position in (1, 2):
        pair, width = (v, q[-1] if q else proposer.dim()) if position == 1 else (k, proposer.dim())
        keys = pair[-2] if pair else proposer.dim()
        lead = pair[:-2] if pair else base[:-2]
        if not pair and len(lead) and proposer.chance(0.3):
            heads = lead[-1]
            lead = (*lead[:-1], proposer.pick([d for d in range(1, heads + 1) if heads % d == 0] or [heads]))
        if "f16" in attributes and proposer.chance(0.5):
            dtype = DType.F16
        return TensorType(dtype, (*lead, keys, width))
    if cached and position == 3:
        return TensorType(DType.U32, (base[0],) if len(base) == 4 and proposer.chance(0.4) else (1,))
    extras = [n for n in ("bias", "alibi", "mask") if attributes.get(n) not in (False, "none", None)]
    extras += ["cos", "sin"] if attributes.get("rope") else []
    at = position - (4 if cached else 3)
    name = extras[at] if at < len(extras) else "mask"
    scores = (*(q or base)[:-1], (k or base)[-2])
    if name == "alibi":
        return TensorType(dtype, scores[-3:-2])
    if name in ("cos", "sin"):
        rows = max(scores[-1], attributes.get("offset", 0) + scores[-2])
        previous = known[position - 1] if name == "sin" else None
        if isinstance(previous, TensorType):
            return previous
        return TensorType(dtype, (rows, sum(base[-1:]) // 2))
    shape = scores[-2:] if proposer.chance(0.4) else scores
    if proposer.chance(0.4) and len(shape) > 2:
        shape = (*(1 if proposer.chance(0.6) else d for d in shape[:-2]), *shape[-2:])
    elif proposer.chance(0.15):
        shape = (1, scores[-1])
    boolean = name == "mask" and attributes.get("mask") == "fill"
    return TensorType(DType.BOOL if boolean else dtype, tuple(shape))


def _cached(position: int, known: Known, attributes: Mapping[str, Any], proposer: Proposer) -> TensorType | None:
    return _attention(position, known, {**attributes, "position": True}, proposer)


def _matmul(position: int, known: Known, attributes: Mapping[str, Any], proposer: Proposer) -> TensorType | None:
    a, b = _dims(known[0]), _dims(known[1])
    other = b if position == 0 else a
    dtype = _dtype(known[:2])
    if position < 2:
        if not other or len(other) < 2 or proposer.chance(0.15):
            return None
        turned = (bool(attributes.get("transpose_a")), bool(attributes.get("transpose_b")))
        if position == 1:
            inner = other[-2] if turned[0] else other[-1]
        else:
            inner = other[-1] if turned[1] else other[-2]
        outer = proposer.dim()
        # a is [m, k] and b is [k, n], each the other way round where it is turned.
        matrix = (outer, inner) if (position == 0) != turned[position] else (inner, outer)
        lead = other[:-2] if proposer.chance(0.65) else tuple(1 for _ in other[:-2]) if proposer.chance(0.4) else ()
        return TensorType(dtype, (*lead, *matrix))
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return None
    rows = a[-1] if attributes.get("transpose_a") else a[-2]
    columns = b[-2] if attributes.get("transpose_b") else b[-1]
    bias = attributes.get("bias") and position == 2
    lead = a[:-2] if len(a) >= len(b) else b[:-2]
    return TensorType(dtype, (columns,) if bias else (*lead, rows, columns))


def _norm(position: int, known: Known, attributes: Mapping[str, Any], proposer: Proposer) -> TensorType | None:
    x = _dims(known[0])
    return TensorType(_dtype(known), x[-1:]) if position and x else None


def _rope(position: int, known: Known, attributes: Mapping[str, Any], proposer: Proposer) -> TensorType | None:
    x = _dims(known[0])
    if position == 0 or x is None or len(x) < 2:
        return None
    if position == 3:
        return TensorType(DType.U32, x[:1] if len(x) > 2 and x[-2] == 1 and proposer.chance(0.5) else (1,))
    other = known[3 - position]
    if isinstance(other, TensorType):
        return other
    rows = proposer.dim() + 1 if len(known) == 4 else x[-2]
    return TensorType(_dtype(known), (rows, x[-1] // 2 if proposer.chance(0.8) else x[-1] // 4))


def _update(position: int, known: Known, attributes: Mapping[str, Any], proposer: Proposer) -> TensorType | None:
    state = _dims(known[0])
    if position == 2:
        return TensorType(DType.U32, state[:1] if state and proposer.chance(0.3) else (1,))
    if position == 1 and state:
        at = attributes.get("axis", max(len(state) - 2, 0))
        rows = int(proposer.rng.integers(1, max(state[at], 1) + 1)) if at < len(state) else 1
        return TensorType(_dtype(known), (*state[:at], rows, *state[at + 1 :]))
    return None


def _gather(position: int, known: Known, attributes: Mapping[str, Any], proposer: Proposer) -> TensorType | None:
    if position != 1:
        return None
    length = proposer.dim() * proposer.pick((1, 1, 2))
    shape = proposer.pick(((length,), (length,), (1,), (), (proposer.dim(), length)))
    return TensorType(proposer.pick((DType.I32, DType.U32)), shape)


def _where(position: int, known: Known, attributes: Mapping[str, Any], proposer: Proposer) -> TensorType | None:
    shapes = [s for s in map(_dims, known) if s is not None]
    if position:
        return None
    return TensorType(DType.BOOL, proposer.shape(shapes))


def _expand(position: int, known: Known, attributes: Mapping[str, Any], proposer: Proposer) -> TensorType | None:
    """Something to repeat: one axis of length one among others."""
    if proposer.chance(0.4):
        return None
    shape = [proposer.dim() for _ in range(proposer.pick((2, 3, 4, 4, 5)))]
    shape[int(proposer.rng.integers(max(len(shape) - 3, 0), len(shape)))] = 1
    return TensorType(DType.F32, tuple(shape))


_GUESSES: dict[str, Guess] = {
    "attention": _attention,
    "cached_attention": _cached,
    "matmul": _matmul,
    "fused_matmul": _matmul,
    "gated_matmul": _matmul,
    "layer_norm": _norm,
    "rms_norm": _norm,
    "rope": _rope,
    "rope_dynamic": _rope,
    "state_update": _update,
    "cache_write": _update,
    "gather": _gather,
    "embedding": _gather,
    "where": _where,
    "expand": _expand,
}
