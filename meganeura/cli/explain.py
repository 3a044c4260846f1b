"""`meganeura explain`: what the compiler makes of a model."""

from __future__ import annotations

from typing import Any

import click

from meganeura.cli.options import Common, Number, common_options, find_model, model_argument
from meganeura.cli.output import Output
from meganeura.report import CompileReport


@click.command(
    epilog="""\b
Examples:
  meganeura explain minilm --dim batch_size=1 --dim sequence_length=64
  meganeura explain smollm2                  both programs, prefill and step
  meganeura explain smollm2 --no-optimize    what would run without rewriting
  meganeura explain model.onnx --kernels     every kernel with its sources and rules
  meganeura explain model.onnx --wgsl        and its WGSL text"""
)
@model_argument
@click.option("--kernels", is_flag=True, help="List every kernel: its op, source nodes and the rules behind it.")
@click.option("--wgsl", is_flag=True, help="Print every kernel's WGSL too.")
@click.option("--context", type=Number(1, 2**20, integer=True), help="Rows of a language model's caches.")
@common_options()
def command(common: Common, model: str, kernels: bool, wgsl: bool, context: int | None) -> None:
    """Show what the compiler makes of MODEL: nodes, rules that fired, kernels, dispatches, times.

    A language model has two programs: prefill, which reads the prompt, and step, which adds one token.
    """
    from meganeura.cli import programs

    output = common.output
    source = programs.open_source(find_model(model, output), context)
    programs.check_dim_names(source, common)
    device = programs.open_device(common)
    found = []
    for item in programs.compiled(source, device, programs.options_for(common)):
        dims = programs.choose_dims(item.model, common)
        with output.step(f"compiling {item.model.name}"):
            found.append(item.compile_for(dims).report)
    if output.as_json:
        described = [_fields(report, wgsl) for report in found]
        output.json({"model": str(source.path), "adapter": device.facts.name, "programs": described})
        return
    output.result(f"adapter: {device.facts.name} ({device.facts.backend}, {device.facts.kind})")
    for report in found:
        show_report(output, report)
        if kernels or wgsl:
            _show_kernels(output, report, wgsl)


def show_report(output: Output, report: CompileReport, title: str = "") -> None:
    """What became of one program, for a person; `title` in place of the program's name."""
    output.result()
    output.result(title or report.name, style="bold")
    output.result(f"  nodes       {report.nodes_before:,} before, {report.nodes_after:,} after")
    output.result(f"  dispatches  {report.dispatches_unoptimized:,} unoptimised, {report.dispatches:,} here")
    output.result(f"  attention   {attention_text(report)}")
    output.result(f"  compiled    {', '.join(f'{phase} {value:.2f} s' for phase, value in report.seconds.items())}")
    if report.stopped_by not in ("", "saturated"):
        output.result(f"  search      stopped by {report.stopped_by}; the best program found was used")
    if report.rules:
        fired = sorted(report.rules.items(), key=lambda item: (-item[1], item[0]))
        output.result(_wrapped("  rules       ", [f"{name} {count}" for name, count in fired if count]))


def _wrapped(head: str, items: list[str], width: int = 110) -> str:
    """Items set off by commas on lines of about `width` characters, no item broken in two."""
    lines = [head]
    for item in items:
        if len(lines[-1]) + len(item) > width and lines[-1].strip():
            lines.append(" " * len(head))
        lines[-1] += f"{item}, "
    return "\n".join(line.rstrip() for line in lines).rstrip(",")


def attention_text(report: CompileReport) -> str:
    """How many attention nodes of which form a program has."""
    tiled, cached = report.ops.get("attention", 0), report.ops.get("cached_attention", 0)
    parts = [f"{count} {form}" for count, form in ((tiled, "tiled"), (cached, "cached")) if count]
    return f"{' and '.join(parts)} attention nodes found" if parts else "no attention node found"


def _show_kernels(output: Output, report: CompileReport, wgsl: bool) -> None:
    for index, kernel in enumerate(report.kernels):
        output.result()
        output.result(f"  [{index}] {kernel.name}", style="bold")
        grid = " x ".join(map(str, kernel.workgroups))
        output.result(f"      op {kernel.op}, {kernel.schedule or kernel.family}, {grid} workgroups")
        output.result(f"      from {', '.join(kernel.sources) or '(made by the compiler)'}")
        if kernel.rules:
            output.result(f"      by {', '.join(kernel.rules)}")
        if wgsl:
            output.result(kernel.wgsl)


def _fields(report: CompileReport, wgsl: bool) -> dict[str, Any]:
    fields = report.as_dict()
    if wgsl:
        for kernel, described in zip(report.kernels, fields["kernels"], strict=True):
            described["wgsl"] = kernel.wgsl
    return fields
