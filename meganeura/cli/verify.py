"""`meganeura verify`: optimised, unoptimised and reference results side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from meganeura.cli import bisect as blame
from meganeura.cli.arrays import INPUT, load_arrays
from meganeura.cli.invent import invent_inputs
from meganeura.cli.options import (
    Common,
    NewPath,
    Number,
    check_writable,
    common_options,
    find_model,
    model_argument,
)
from meganeura.errors import DeviceError, InputError
from meganeura.ir.types import TensorType
from meganeura.reference.compare import TOLERANCE, Difference, difference


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
  meganeura verify smollm2 --dim n=16        both programs of a language model, caches included
  meganeura verify model.onnx --bisect --write fault     if they disagree: why, on the smallest graph that does"""
)
@model_argument
@INPUT
@click.option("--seed", type=Number(0, 2**32 - 1, integer=True), default=0, help="Of the invented inputs.")
@click.option(
    "--context", type=Number(1, 2**20, integer=True), help="Rows of a language model's caches [default: 128]."
)
@click.option("--tolerance", type=Number(0, 1), help="Largest difference allowed, over an output's largest magnitude.")
@click.option("--bisect", is_flag=True, help="When results disagree, find the guilty rule, kernel or memory plan.")
@click.option("--write", metavar="FOLDER", type=NewPath(), help="Write the shrunk graph and its inputs there.")
@click.option(
    "--seconds", type=Number(1, 86_400), default=90, show_default=True, help="For shrinking the graph of one fault."
)
@common_options()
def command(
    common: Common,
    model: str,
    inputs: dict[str, Path],
    seed: int,
    context: int | None,
    tolerance: float | None,
    bisect: bool,
    write: Path | None,
    seconds: float,
) -> int:
    """Run MODEL optimised, unoptimised and through the float64 reference, and compare all outputs.

    Inputs that are not given are invented so that they are valid. The exit code is 1 when any output differs by
    more than the tolerance (1e-4 for float32, 1e-2 with --weights f16).
    """
    from meganeura.bisect import Case, Setting, check_folder
    from meganeura.cli import programs

    output = common.output
    if write is not None:
        if not bisect:
            raise InputError("--write has nothing to write", remedy="give --bisect, too")
        check_folder(write)
        check_writable(write, folder=True)
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
    suspects: dict[str, Case] = {}
    for optimized, plain in pairs:
        name = optimized.model.name
        known = _known_dims(optimized.model, given[name])
        dims = programs.choose_dims(optimized.model, common, known)
        graph = optimized.model.graph(dims)
        values = {**invent_inputs(graph, getattr(optimized.model, "input_limits", None), seed), **given[name]}
        try:
            with output.step(f"{name}: optimised"):
                ours = _run(optimized, dims, values)
            with output.step(f"{name}: unoptimised"):
                theirs = _run(plain, dims, values)
        except DeviceError as error:
            if not bisect:
                raise
            output.notice(f"{name}: {error}")
            suspects[name] = Case(graph, values)
            continue
        with output.step(f"{name}: reference"):
            expected = _reference(graph, values)
        prefix = f"{name}/" if len(source.models) > 1 else ""
        for key, want in expected.items():
            three = (difference(ours[key], want), difference(theirs[key], want), difference(ours[key], theirs[key]))
            verdicts.append(Verdict(prefix + key, *three, tolerance=allowed))
            if not verdicts[-1].ok:
                suspects[name] = Case(graph, values)
    if not bisect:
        return _tell(common, verdicts)
    setting = Setting(device, options, allowed)
    return _tell(common, verdicts, lambda: blame.report(common, setting, suspects, write, seconds))


def _given(models: tuple[Any, ...], files: Mapping[str, Path]) -> dict[str, dict[str, np.ndarray]]:
    # What a fixed graph keeps between calls can be given, too.
    types = {model.name: {**_states(model), **model.inputs} for model in models}
    arrays = load_arrays(files, {name: kind for kinds in types.values() for name, kind in kinds.items()})
    return {name: {n: a for n, a in arrays.items() if n in kinds} for name, kinds in types.items()}


def _states(model: Any) -> dict[str, TensorType]:
    return {} if model.symbols else {name: node.tensor_type for name, node in model.graph({}).states.items()}


def _known_dims(model: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    from meganeura.compiler import dims_from

    return dims_from({name: model.inputs[name] for name in arrays if name in model.inputs}, arrays)


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


def _tell(common: Common, verdicts: list[Verdict], blamed: Callable[[], list[dict[str, Any]]] | None = None) -> int:
    """Show the verdicts, then (for people, in that order) what is to blame; returns the exit code."""
    output = common.output
    good = bool(verdicts) and all(verdict.ok for verdict in verdicts)
    worst = max(verdicts, key=lambda verdict: (not verdict.ok, verdict.worst), default=None)
    if worst is not None:
        _show(common, verdicts, worst)
    findings = None if blamed is None else blamed()
    good = good and not findings
    if output.as_json:
        told = {"ok": good, "outputs": [v.as_dict() for v in verdicts], "worst": worst.name if worst else None}
        output.json(told if findings is None else {**told, "bisect": findings})
    return 0 if good else 1


def _show(common: Common, verdicts: list[Verdict], worst: Verdict) -> None:
    output = common.output
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
        f"{_word(worst.ok)}: worst is {worst.name}, {worst.worst:.2e} of its largest magnitude "
        f"({worst.tolerance:g} allowed); the first two columns are against the reference"
    )


def _word(good: bool) -> str:
    return "ok" if good else "MISMATCH"
