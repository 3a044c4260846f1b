"""Which kernel family computes an op: the one table that lowering asks."""

from __future__ import annotations

from collections.abc import Sequence

from meganeura.errors import MeganeuraError
from meganeura.facts import DeviceFacts
from meganeura.ir.op import Op
from meganeura.ir.types import TensorType, ValueType
from meganeura.lower.attention import attention_kernel
from meganeura.lower.attention import supports as attention_supports
from meganeura.lower.matmul import matmul_kernel
from meganeura.lower.reduce import reduce_kernel
from meganeura.lower.rows import rows_kernel
from meganeura.lower.schedule import Kernel, Operand
from meganeura.lower.update import update_kernel
from meganeura.options import CompileOptions

_BUILDERS = {
    "matmul": matmul_kernel,
    "fused_matmul": matmul_kernel,
    "gated_matmul": matmul_kernel,
    "softmax": rows_kernel,
    "log_softmax": rows_kernel,
    "layer_norm": rows_kernel,
    "rms_norm": rows_kernel,
    "residual_rms_norm": rows_kernel,
    "reduce_sum": reduce_kernel,
    "reduce_prod": reduce_kernel,
    "reduce_max": reduce_kernel,
    "reduce_min": reduce_kernel,
    "reduce_mean": reduce_kernel,
    "argmax": reduce_kernel,
    "attention": attention_kernel,
    "cached_attention": attention_kernel,
    "state_update": update_kernel,
    "cache_write": update_kernel,
}


def has_kernel(op: Op, types: Sequence[ValueType], facts: DeviceFacts) -> bool:
    """Whether a kernel family computes this op on these operand types."""
    if op.name in ("attention", "cached_attention"):
        return attention_supports(op, tuple(Operand.contiguous(t) for t in types if isinstance(t, TensorType)), facts)
    return op.name in _BUILDERS


def build_kernel(
    op: Op, inputs: tuple[Operand, ...], output: ValueType, facts: DeviceFacts, options: CompileOptions
) -> Kernel:
    """The kernel of an op over operands in given layouts, with its schedule chosen for the device."""
    if op.name not in _BUILDERS:
        raise MeganeuraError(f"no kernel family computes {op.name}", op=op.name)
    return _BUILDERS[op.name](op, inputs, output, facts, options)
