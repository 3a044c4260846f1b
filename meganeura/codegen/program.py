"""A program: a plan with the shader of each dispatch. Immutable, and all that a runtime needs."""

from __future__ import annotations

from dataclasses import dataclass

from meganeura.codegen import attention, matmul, pointwise, reduce, rows, update
from meganeura.codegen.render import render
from meganeura.codegen.shader import Shader
from meganeura.facts import DeviceFacts
from meganeura.lower.schedule import Plan

FAMILIES = (attention, matmul, pointwise, reduce, rows, update)
"""The modules that render kernel families; importing them registers their renderers."""


@dataclass(frozen=True)
class Program:
    """A plan and, for each of its dispatches, the shader to run."""

    plan: Plan
    shaders: tuple[Shader, ...]


def generate(plan: Plan, facts: DeviceFacts) -> Program:
    """Generate the WGSL of every dispatch of a plan."""
    return Program(plan, tuple(render(dispatch.kernel, facts) for dispatch in plan.dispatches))
