"""`meganeura verify`: optimised, unoptimised and reference results side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from meganeura.cli.arrays import INPUT, load_arrays
from meganeura.cli.compare import TOLERANCE, Difference, difference
from meganeura.cli.invent import invent_inputs
from meganeura.cli.options import Common, Number, common_options, find_model, model_argument


@dataclass(frozen=True)
class Verdict:
    """One output, compared three ways: optimised and unoptimised with the reference, and with one another."""

    name: str
    optimized: Difference
    unoptimized: Difference
    between: Difference
    tolerance: float

    @property
    def ok(self) -> bool:
        return all(d.within(self.tolerance) for d in (self.optimized, self.unoptimized, self.between))

    @property
    def worst(self) -> float:
        """The largest relative difference of the three; infinite where results differ in kind."""
        three = (self.optimized, self.unoptimized, self.between)
        return max(d.max_rel if d.same_kind else float("inf") for d in three)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            **self.optimized.as_dict(self.tolerance),
            "ok": self.ok,
            "unoptimized": self.unoptimized.as_dict(self.tolerance),
            "between": self.between.as_dict(self.tolerance),
        }


@click.command(
    epilog="""\b
Examples:
  meganeura verify minilm
  meganeura verify minilm --dim batch_size=3 --dim sequence_length=5
  meganeura verify model.onnx --input x=x.npy
  meganeura verify smollm2 --dim n=16        both programs of a language model, caches included"""
)
@model_argument
@INPUT
@click.option("--seed", type=Number(0, 2**32 - 1, integer=True), default=0, help="Of the invented inputs.")
@click.option(
    "--context", type=Number(1, 2**20, integer=True), help="Rows of a language model's caches [default: 128]."
)
@click.option("--tolerance", type=Number(0, 1), help="Largest difference allowed, over an output's largest magnitude.")
@common_options()
def command(
    common: Common,
    model: str,
    inputs: dict[str, Path],
    seed: int,
    context: int | None,
    tolerance: float | None,
) -> int:
    """Run MODEL optimised, unoptimised and through the float64 reference, and compare all outputs.

    Inputs that are not given are invented so that they are valid. The exit code is 1 when any output differs by
    more than the tolerance (1e-4 for float32, 1e-2 with --weights f16).
    """
    from meganeura.cli import programs

    output = common.output
    path = find_model(model, output)
    if context is None and programs.is_decoder(path):
        context = 128  # the reference computes the whole cache
    source = programs.open_source(path, context)
    programs.check_dim_names(source, common)
    device = programs.open_device(common)
    options = programs.options_for(common)
    pairs = zip(
        programs.compiled(source, device, options),
        programs.compiled(source, device, programs.unoptimized(options)),
        strict=True,
    )
    given = _given(source.models, inputs)
    allowed = TOLERANCE[common.weights] if tolerance is None else tolerance
    verdicts: list[Verdict] = []
    for optimized, plain in pairs:
        name = optimized.model.name
        known = _known_dims(optimized.model, given[name])
        dims = programs.choose_dims(optimized.model, common, known)
        graph = optimized.model.graph(dims)
        values = {**invent_inputs(graph, getattr(optimized.model, "input_limits", None), seed), **given[name]}
        with output.step(f"{name}: optimised"):
            ours = _run(optimized, dims, values)
        with output.step(f"{name}: unoptimised"):
            theirs = _run(plain, dims, values)
        with output.step(f"{name}: reference"):
            expected = _reference(graph, values)
        prefix = f"{name}/" if len(source.models) > 1 else ""
        for key, want in expected.items():
            three = (difference(ours[key], want), difference(theirs[key], want), difference(ours[key], theirs[key]))
            verdicts.append(Verdict(prefix + key, *three, tolerance=allowed))
    return _tell(common, verdicts)


def _given(models: tuple[Any, ...], files: Mapping[str, Path]) -> dict[str, dict[str, np.ndarray]]:
    types = {name: kind for model in models for name, kind in model.inputs.items()}
    arrays = load_arrays(files, types)
    return {model.name: {n: a for n, a in arrays.items() if n in model.inputs} for model in models}


def _known_dims(model: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    from meganeura.compiler import dims_from

    return dims_from({name: model.inputs[name] for name in arrays}, arrays)


def _run(compiled: Any, dims: dict[str, int], values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    program = compiled.compile_for(dims)
    session, inputs = compiled.session, {name: values[name] for name in program.bound.inputs}
    for name in program.source.states:
        session.write_state(name, values[name])
    results = dict(program.run(inputs))
    return results | {f"state:{name}": session.read_state(name) for name in program.source.updates}


def _reference(graph: Any, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    from meganeura.reference import evaluate

    return evaluate(graph, values)


def _tell(common: Common, verdicts: list[Verdict]) -> int:
    output = common.output
    good = all(verdict.ok for verdict in verdicts)
    worst = max(verdicts, key=lambda verdict: (not verdict.ok, verdict.worst))
    if output.as_json:
        output.json({"ok": good, "outputs": [v.as_dict() for v in verdicts], "worst": worst.name})
        return 0 if good else 1
    rows = [
        (v.name, f"{v.optimized.max_rel:.2e}", f"{v.unoptimized.max_rel:.2e}", f"{v.between.max_rel:.2e}", _word(v.ok))
        for v in verdicts
        if not v.ok or not v.name.partition("/")[2].startswith("state:")
    ]
    output.table(("output", "optimised", "unoptimised", "between them", ""), rows)
    hidden = len(verdicts) - len(rows)
    if hidden:
        output.result(f"and {hidden} states that agree")
    output.result(
        f"{_word(good)}: worst is {worst.name}, {worst.worst:.2e} of its largest magnitude "
        f"({worst.tolerance:g} allowed); the first two columns are against the reference"
    )
    return 0 if good else 1


def _word(good: bool) -> str:
    return "ok" if good else "MISMATCH"
