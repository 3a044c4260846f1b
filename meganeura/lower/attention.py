"""The attention family: which attention ops its kernels compute, their layouts, and the schedule for a device.

Two schedules exist. `literal`: one workgroup per query row and head, with tree reductions in workgroup memory.
`direct`: one invocation per tile of queries, without barriers, for devices where those are dear. A further one
needs a dataclass here, an entry in `SCHEDULES`, and a template.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from meganeura.errors import LimitError
from meganeura.facts import DeviceFacts
from meganeura.ir.op import Op, sizeof
from meganeura.ir.types import DType, TensorType, TupleType, ValueType
from meganeura.lower.lanes import CPU_LOOP_BUDGET
from meganeura.lower.schedule import Kernel, Layout, Operand
from meganeura.options import CompileOptions

MAX_WIDTH = 256
"""Widest head the kernels take, for keys and for values."""
_LEAST_NORMAL = 2.0**-126
_GREATEST = 3.4028234663852886e38
# Registers for queries and running totals of a direct invocation's tile, counted in f32. A larger tile reads keys
# less often, but the time to build the kernel grows with it: 64-wide heads get 3 queries, built in 0.6 s.
_TILE_REGISTERS = 384
_MAX_TILE = 8
# What an invocation spends on reading a key and value, in units of what it spends on one query with them.
_READ_COST = 2.2
# Fewer keys than this are not worth joining the parts of.
_SPLIT_FROM_KEYS = 64
_DEFAULT_LANES = 32


@dataclass(frozen=True)
class LiteralSchedule:
    """One workgroup per (query row, head).

    Attributes:
        invocations: one per element of the head, rounded up to whole subgroups.
        tree: invocations that add in the first step of a reduction.
    """

    name: ClassVar[str] = "literal"
    invocations: int
    tree: int

    @property
    def workgroup_memory(self) -> int:
        """Bytes: eight products per invocation."""
        return 32 * self.invocations


@dataclass(frozen=True)
class DirectSchedule:
    """One invocation per tile of queries that read the same key/value head.

    Attributes:
        tile: queries (rows times heads of a group) of an invocation. invocations: per workgroup.
        mode: "plain"; "shared", where the workgroup is one subgroup that reads each key and value once; or
            "split", where the workgroup has one tile and deals its keys to the invocations.
    """

    name: ClassVar[str] = "direct"
    tile: int
    invocations: int
    mode: str

    def workgroup_memory(self, value_width: int) -> int:
        """Bytes that the parts of a split tile take until they are joined."""
        return self.invocations * self.tile * (8 + 16 * -(-value_width // 4)) if self.mode == "split" else 0


Schedule: TypeAlias = LiteralSchedule | DirectSchedule


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of one attention: `group` query heads read each key/value head; `batch` folds the leading axes."""

    batch: int
    heads: int
    group: int
    rows: int
    keys: int
    d: int
    dv: int

    @staticmethod
    def of(inputs: Sequence[Any]) -> AttentionSizes:
        """From q, k and v, which may be operands or concrete types."""
        q, k, v = (tuple(int(n) for n in t.shape) for t in inputs[:3])
        return AttentionSizes(sizeof(q[:-3]), q[-3], q[-3] // max(k[-3], 1), q[-2], k[-2], q[-1], v[-1])


@dataclass(frozen=True)
class AttentionKernel(Kernel):
    """Attention or cached attention over operands of any layout, by one of the schedules."""

    family: ClassVar[str] = "attention"
    schedule: Schedule

    @property
    def sizes(self) -> AttentionSizes:
        return AttentionSizes.of(self.inputs)

    @property
    def extras(self) -> dict[str, Operand]:
        """Operands of the options by name: position, bias, slopes, mask, cos, sin."""
        return extras_of(self.op, self.inputs)


def extras_of(op: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    """Operands after q, k and v by name: position (of cached attention), bias, slopes, mask, cos, sin."""
    cached = op.name == "cached_attention"
    named = {"position": inputs[3]} if cached else {}
    return named | op.named_extras(inputs, 4 if cached else 3)


def supports(op: Op, inputs: Sequence[Any], facts: DeviceFacts) -> bool:
    """Whether an attention kernel computes this op on these operands (or types) on this device."""
    return _obstacle(op, inputs, facts) is None


def _obstacle(op: Any, inputs: Sequence[Any], facts: DeviceFacts) -> str | None:
    """The limit that keeps the kernels from computing this op, in words, or None."""
    if op.name not in ("attention", "cached_attention"):
        return f"{op.name} is no attention"
    sizes = AttentionSizes.of(inputs)
    if not 0 < sizes.d <= MAX_WIDTH or not 0 < sizes.dv <= MAX_WIDTH:
        return f"head width {max(sizes.d, sizes.dv)}, of at least 1 and at most {MAX_WIDTH}"
    bindings = len(inputs) + 1 + bool(getattr(op, "lse", False))
    if bindings > facts.limits.max_storage_buffers:
        return f"{bindings} bindings, of at most {facts.limits.max_storage_buffers}"
    if any(t.dtype is DType.F16 for t in inputs) and not facts.has_f16:
        return "float16 storage, which the device lacks"
    if not _plain(op.scale) or not _plain(op.softcap) or math.isnan(op.fill):
        return f"scale {op.scale}, soft-cap {op.softcap} and fill {op.fill} beyond float32"
    literal = _literal(op, sizes, facts)
    if (
        literal.invocations > facts.limits.max_invocations
        or literal.workgroup_memory > facts.limits.max_workgroup_memory
    ):
        return f"{literal.invocations} invocations and {literal.workgroup_memory} bytes in a workgroup"
    return None


def _plain(value: float) -> bool:
    """Whether a number is zero or a normal float32."""
    return value == 0.0 or _LEAST_NORMAL <= abs(value) <= _GREATEST


def attention_kernel(
    op: Op, inputs: tuple[Operand, ...], output_type: ValueType, facts: DeviceFacts, options: CompileOptions
) -> AttentionKernel:
    """The kernel of an attention op.

    Args:
        op: `Attention` or `CachedAttention`. inputs: its operands, heads-first, in any layout.
        output_type: type of the op's result. options: `attention` names a schedule, or is "auto".

    Returns:
        A kernel whose output is stored as `[.., rows, heads, dv]`, so that merging the heads afterwards is a view,
        and whose log-sum-exp, if asked for, is contiguous.

    Raises:
        LimitError: where `supports` is false; compute the op from its decomposition then.
    """
    obstacle = _obstacle(op, inputs, facts)
    if obstacle is not None:
        raise LimitError(
            f"no {op.name} kernel fits",
            op=op.name,
            shapes=", ".join(repr(i.type) for i in inputs),
            limit=obstacle,
            remedy="compute it unfused, from its decomposition",
        )
    name = options.attention
    if name == "auto":
        name = "direct" if facts.is_cpu else "literal"
    sizes = AttentionSizes.of(inputs)
    schedule = SCHEDULES[name](op, sizes, facts)
    if facts.is_cpu and sizes.keys > _most_keys(schedule):
        raise LimitError(
            f"{op.name} over {sizes.keys} keys is too long for the {name} schedule",
            op=op.name,
            shapes=", ".join(repr(i.type) for i in inputs),
            limit=f"{_most_keys(schedule)} keys on a CPU adapter, which ends long loops silently",
            remedy="attend fewer keys at once, or use a GPU",
        )
    items = output_type.items if isinstance(output_type, TupleType) else (output_type,)
    outputs = (_folded(items[0]), *(Operand.contiguous(t) for t in items[1:]))
    return AttentionKernel(op, inputs, outputs, schedule)


def _most_keys(schedule: LiteralSchedule | DirectSchedule) -> int:
    """Keys for which no invocation passes a CPU adapter's loop iterations."""
    if isinstance(schedule, LiteralSchedule):
        # Eight keys a tile; its own loop, the products' and the tree's steps count together.
        return 8 * (CPU_LOOP_BUDGET // 16)
    return CPU_LOOP_BUDGET * (schedule.invocations if schedule.mode == "split" else 1)


def _folded(output: TensorType) -> Operand:
    """Heads-first operand over memory in the order `[.., rows, heads, dv]`."""
    *lead, heads, rows, width = (int(d) for d in output.shape)  # type: ignore[arg-type]
    n = len(lead)
    stored = Layout.contiguous((*lead, rows, heads, width))
    return Operand(output.dtype, stored.permuted((*range(n), n + 1, n, n + 2)))


def _literal(op: Op, sizes: AttentionSizes, facts: DeviceFacts) -> LiteralSchedule:
    # Whole subgroups: on lavapipe the lanes that a workgroup leaves unused run its loops too, with zeros for what
    # they load, and where those zeros make a loop longer the workgroup's invocations part at a barrier.
    lanes = facts.subgroup_size or _DEFAULT_LANES
    invocations = -(-max(sizes.d, sizes.dv) // lanes) * lanes
    return LiteralSchedule(invocations, (1 << (sizes.d - 1).bit_length()) // 2)


def _direct(op: Op, sizes: AttentionSizes, facts: DeviceFacts) -> DirectSchedule:
    rope = getattr(op, "rope", False)
    queries = sizes.rows * sizes.group
    per_query = 4 * (-(-sizes.d // 4) + -(-sizes.dv // 4))
    # Turning the queries on load makes for as much code again.
    most = max(1, min(_MAX_TILE, _TILE_REGISTERS // per_query // (2 if rope else 1)))
    lanes = facts.subgroup_size or _DEFAULT_LANES
    if queries <= most and sizes.keys >= _SPLIT_FROM_KEYS and not rope:
        split = DirectSchedule(max(queries, 1), lanes, "split")
        if split.workgroup_memory(sizes.dv) <= facts.limits.max_workgroup_memory:
            return split
    # Only a CPU adapter's subgroups are known to have one size, the measured one, in every kernel.
    mode = "shared" if facts.is_cpu and facts.subgroup_size else "plain"
    costs = {tile: -(-queries // (tile * lanes)) * (_READ_COST + tile) for tile in range(1, most + 1)}
    # A smaller tile that is nearly as good is built sooner.
    tile = min(tile for tile, cost in costs.items() if cost <= 1.05 * min(costs.values()))
    return DirectSchedule(tile, lanes, mode)


SCHEDULES: dict[str, Callable[[Any, AttentionSizes, DeviceFacts], Schedule]] = {
    "literal": _literal,
    "direct": _direct,
}
"""By name: a function that chooses the schedule's parameters for an op, its sizes and a device."""
