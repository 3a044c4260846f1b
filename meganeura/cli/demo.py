"""`meganeura demo`: the whole path on two real models."""

from __future__ import annotations

from typing import Any

import click

from meganeura.cli.explain import show_report
from meganeura.cli.generate import answer_fields, show_stream
from meganeura.cli.measure import Comparison, compare_programs
from meganeura.cli.options import Common, common_options, find_model
from meganeura.cli.output import Output
from meganeura.reference.compare import TOLERANCE

QUESTION = "What is the capital of France?"
_SENTENCES, _LENGTH = 1, 64


@click.command(
    epilog="""\b
Examples:
  meganeura demo
  meganeura demo --device 0 --json"""
)
@common_options(compiles=False, device=True)
def command(common: Common) -> int:
    """Let SmolLM2-135M answer a question and compile the MiniLM sentence encoder, and show what the compiler did.

    The two model files (170 MB) are fetched once into your cache. Everything runs on the adapter of `meganeura
    devices`, or on the one --device names. The exit code is 1 if optimised and unoptimised results differ.
    """
    from meganeura.cli import programs

    output = common.output
    files = [find_model(name, output) for name in ("smollm2", "minilm")]
    device = programs.open_device(common)
    output.result(f"adapter: {device.facts.name} ({device.facts.backend}, {device.facts.kind})", style="bold")
    answer, decoder, rows = _language_model(output, device, files[0])
    encoder = _sentence_encoder(common, device, files[1])
    parts = [*decoder, encoder]
    if output.as_json:
        described = [part.as_dict() for part in parts]
        for part in described[: len(decoder)]:
            part["cache_rows"] = rows
        output.json({"adapter": device.facts.name, "question": QUESTION, "answer": answer, "programs": described})
    agree = all(part.apart.within(TOLERANCE["f32"]) for part in parts)
    if not agree:
        output.notice("MISMATCH: optimised and unoptimised results differ; see `meganeura verify`", style="red")
    return 0 if agree else 1


def _language_model(output: Output, device: Any, path: Any) -> tuple[dict[str, Any], list[Comparison], int]:
    """The answer, prefill and step compared, and the rows of the caches that they were measured with."""
    from meganeura.options import CompileOptions
    from meganeura.text import LanguageModel
    from meganeura.text.runner import prefill_inputs, step_inputs

    output.result()
    output.result(f"SmolLM2-135M-Instruct ({path.name})", style="bold")
    language = LanguageModel.load(path, device=device)
    ids = language.prompt_ids([{"role": "user", "content": QUESTION}])
    stream = language.stream(QUESTION)
    output.result(f"> {QUESTION}", style="cyan")
    show_stream(output, stream)
    answer = stream.result
    output.result(f"  {answer.prompt_tokens} prompt tokens, {answer.tokens_per_second:.1f} tokens/s after them")
    with output.step("compiling the same without optimisation, to compare"):
        plain = LanguageModel.load(path, device=device, options=CompileOptions(optimize=False, weights="packed"))
        plain.runner.prepare(len(ids))
    ours: Any = language.runner
    theirs: Any = plain.runner
    inputs = prefill_inputs(ids, language.context)
    dims = {"n": len(inputs["ids"])}
    found = []
    with output.step("running both"):
        found.append(
            compare_programs(
                ours.prefill_model.compile_for(dims), theirs.prefill_model.compile_for(dims), inputs, repeats=2
            )
        )
        inputs = step_inputs(answer.token_ids[0], len(ids))
        found.append(
            compare_programs(ours.step_model.compile_for({}), theirs.step_model.compile_for({}), inputs, repeats=5)
        )
    _show(
        output,
        found[0],
        f"prefill: the prompt, {len(ids)} tokens in {dims['n']} rows, caches of {language.context} rows",
    )
    _show(output, found[1], f"step: one further token, caches of {language.context} rows")
    return answer_fields(answer), found, language.context


def _sentence_encoder(common: Common, device: Any, path: Any) -> Comparison:
    from meganeura.cli import programs
    from meganeura.cli.invent import invent_inputs
    from meganeura.options import CompileOptions

    output = common.output
    output.result()
    output.result(f"MiniLM sentence encoder ({path.name})", style="bold")
    source = programs.open_source(path)
    model = source.model()
    dims = {name: _SENTENCES if programs.is_batch(model, name) else _LENGTH for name in model.symbols}
    with output.step("compiling, with and without optimisation"):
        pair = [
            programs.compiled(source, device, CompileOptions(optimize=optimize))[0].compile_for(dims)
            for optimize in (True, False)
        ]
        inputs = invent_inputs(model.graph(dims))
        _ = [program.bound for program in pair]
    with output.step("running both"):
        part = compare_programs(pair[0], pair[1], inputs, repeats=5)
    _show(output, part, f"encoder: {_SENTENCES} sentence of {_LENGTH} tokens")
    return part


def _show(output: Output, part: Comparison, title: str) -> None:
    show_report(output, part.report, title)
    faster = part.seconds_unoptimized / part.seconds
    output.result(
        f"  time        {part.seconds * 1e3:,.1f} ms, {part.seconds_unoptimized * 1e3:,.1f} ms without optimisation"
        f" ({faster:.1f}x)"
    )
    output.result(
        f"  difference  {part.apart.max_abs:.2e} at most from the unoptimised graph ({part.apart.max_rel:.1e} of the"
        f" largest output)"
    )
