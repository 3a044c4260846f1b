"""Makes the real outputs in docs/architecture.md; run as a module to write them anew.

python -m tests.docs.architecture_output
"""

from __future__ import annotations

import re
from pathlib import Path

import meganeura as mg
from meganeura.assets import fetch
from meganeura.codegen.program import generate
from meganeura.egraph import load_rules, optimize
from meganeura.facts import DeviceFacts, Limits
from meganeura.ir import Graph, Node
from meganeura.lower.lower import lower
from meganeura.lower.schedule import Operand

DOCUMENT = Path(__file__).parents[2] / "docs" / "architecture.md"
LAYER = "/model/model.0/auto_model/encoder/layer.0/attention/"
DIMS = {"batch_size": 1, "sequence_length": 16}
FACTS = DeviceFacts(name="a CPU adapter", kind="cpu", limits=Limits(), subgroup_size=8)
"""Fixed facts, so that the document is the same wherever it is made."""
_SHOWN = 48


def outputs() -> dict[str, str]:
    """Text of every block by name."""
    graph = mg.load(fetch("minilm")).graph(DIMS)
    options = mg.CompileOptions()
    rewritten, report = optimize(graph, FACTS, options)
    plan = lower(rewritten, FACTS, options, rules=report.node_rules)
    program = generate(plan, FACTS)
    kept = [i for i, d in enumerate(plan.dispatches) if any(s.startswith(LAYER) for s in d.sources)][:4]
    attention = next(i for i in kept if plan.dispatches[i].kernel.op.name == "attention")
    rule = next(r for r in load_rules().rules if r.name == "attention-additive-mask")
    return {
        "import": lines(graph),
        "rule": rule_text(rule.file, rule.line),
        "fired": fired(report.rules),
        "optimize": lines(rewritten),
        "lower": "\n".join(dispatch(program, i) for i in kept),
        "memory": memory(plan),
        "codegen": kernel_body(program.shaders[attention].text),
    }


def lines(graph: Graph) -> str:
    """The nodes that come from the block, one a line."""
    block = [n for n in graph.nodes if n.inputs and any(s.startswith(LAYER) for s in n.sources)]
    return "\n".join(line(node) for node in block)


def line(node: Node) -> str:
    """One node with the attributes that matter, and its source."""
    operands = ", ".join(f"%{i}" for i in node.inputs)
    default = {"none", "False", "0", "0.0", "1.0"}
    attributes = "".join(f" {k}={v}" for k, v in node.op.attributes().items() if str(v) not in default)
    sources = " ".join(s.replace(LAYER, "") for s in node.sources)
    return f"%{node.id} = {node.op.name}({operands}){attributes} : {node.type}   # {sources}"


def rule_text(file: str, at: int) -> str:
    """A rule as its file has it: header and command, up to the next blank line."""
    text = Path(file).read_text().splitlines()
    start = at - 1
    while start > 0 and text[start - 1].startswith(";;"):
        start -= 1
    end = next((i for i in range(at, len(text)) if not text[i].strip()), len(text))
    return "\n".join(text[start:end])


def fired(counts: dict[str, int]) -> str:
    return "\n".join(f"{count:4d}  {name}" for name, count in sorted(counts.items(), key=lambda c: (-c[1], c[0])))


def dispatch(program: object, index: int) -> str:
    """One dispatch: label, schedule, operands as strides, and the source nodes it covers."""
    step = program.plan.dispatches[index]  # type: ignore[attr-defined]
    operands = "\n".join(
        f"      {kind} buffer {buffer}: {layout(operand)}"
        for kind, operand, buffer in zip(
            ["reads"] * len(step.kernel.inputs) + ["writes"] * len(step.kernel.outputs),
            (*step.kernel.inputs, *step.kernel.outputs),
            step.buffers,
            strict=True,
        )
    )
    sources = " ".join(s.replace(LAYER, "") for s in step.sources)
    return f"{index:2d} {step.kernel.label}  {getattr(step.kernel, 'schedule', '')}\n{operands}\n      for {sources}"


def layout(operand: Operand) -> str:
    where = f" from {operand.layout.offset}" if operand.layout.offset else ""
    return f"{operand.type} strides {list(operand.layout.strides)}{where}"


def memory(plan: object) -> str:
    temps = [b for b in plan.buffers if b.role == "temp"]  # type: ignore[attr-defined]
    reused = sum(b.nbytes for b in temps)
    bound = int(plan.notes["temp_lower_bound"])  # type: ignore[attr-defined]
    return (
        f"temporaries: {plan.temp_bytes_without_reuse} bytes without reuse, "  # type: ignore[attr-defined]
        f"{reused} in {len(temps)} shared buffers, {bound} alive at once at most"
    )


def kernel_body(text: str) -> str:
    """The beginning of a shader's entry point; unrolled loops make the rest long."""
    body = text[text.index("@compute") :].strip().splitlines()
    rest = len(body) - _SHOWN
    return "\n".join(body[:_SHOWN] + ([f"// ... and {rest} more lines"] if rest > 0 else []))


def filled(document: str, blocks: dict[str, str]) -> str:
    """The document with every `<!-- output: name -->` block replaced."""

    def replace(match: re.Match[str]) -> str:
        return f"{match[1]}\n```{match[3]}\n{blocks[match[2]]}\n```"

    return re.sub(r"(<!-- output: (\w+) -->)\n```(\w*)\n.*?^```$", replace, document, flags=re.DOTALL | re.MULTILINE)


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text(), outputs()))
