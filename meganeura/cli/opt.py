"""`meganeura opt`: the values between the compiler's phases, as text."""

from __future__ import annotations

from typing import Any

import click

from meganeura.cli.options import Common, Number, common_options, find_model, model_argument

PHASES = ("import", "optimize", "lower", "codegen")
"""As the compiler calls them; written out here so that --help does not import it (a test compares the two)."""


@click.command(
    epilog="""\b
Examples:
  meganeura opt minilm --print-after import      the graph as read from the file
  meganeura opt minilm --print-after optimize    the graph after rewriting
  meganeura opt minilm --print-after lower       kernels in order, with their buffers
  meganeura opt minilm --print-after codegen     the WGSL of every kernel
  meganeura opt graph.txt --print-after import   a graph in text form is read as well"""
)
@model_argument
@click.option("--print-after", "phase", type=click.Choice(PHASES), required=True, help="Which phase's result to print.")
@click.option("--context", type=Number(1, 2**20, integer=True), help="Rows of a language model's caches.")
@common_options()
def command(common: Common, model: str, phase: str, context: int | None) -> None:
    """Compile MODEL and print what one phase made of it; a graph is printed in the form that can be read back."""
    from meganeura.cli import programs

    output = common.output
    source = programs.open_source(find_model(model, output), context)
    programs.check_dim_names(source, common)
    device = programs.open_device(common)
    described = []
    for item in programs.compiled(source, device, programs.options_for(common)):
        dims = programs.choose_dims(item.model, common)
        seen: dict[str, Any] = {}
        with output.step(f"compiling {item.model.name}"):
            item.compile_for(dims, observe=seen.__setitem__)
        described.append({"name": item.model.name, "phase": phase, "text": format_value(seen[phase])})
    if output.as_json:
        output.json({"programs": described})
        return
    for item in described:
        if len(described) > 1:
            output.result(f"# {item['name']} after {phase}")
        output.write(item["text"] + "\n")


def format_value(value: Any) -> str:
    """A graph, a plan or a program as text."""
    from meganeura.codegen.program import Program
    from meganeura.ir.graph import Graph
    from meganeura.ir.text import format_graph

    if isinstance(value, Graph):
        return format_graph(value)
    if isinstance(value, Program):
        return "\n".join(f"// ---- {shader.label}\n{shader.text}" for shader in value.shaders)
    return _format_plan(value)


def _format_plan(plan: Any) -> str:
    lines = [f"plan {plan.name}"]
    for buffer in plan.buffers:
        lines.append(f"  buffer {buffer.id}: {buffer.role}, {buffer.nbytes:,} bytes {buffer.name or ''}".rstrip())
    for at, dispatch in enumerate(plan.dispatches):
        kernel = dispatch.kernel
        took = ", ".join(str(operand.type) for operand in kernel.inputs)
        gave = ", ".join(str(operand.type) for operand in kernel.outputs)
        lines.append(f"  [{at}] {kernel.label}: {took} -> {gave}")
        lines.append(f"      buffers {', '.join(map(str, dispatch.buffers))}; from {', '.join(dispatch.sources)}")
    return "\n".join(lines)
