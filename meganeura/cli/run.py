"""`meganeura run`: a model on arrays from files."""

from __future__ import annotations

import time
from pathlib import Path

import click

from meganeura.cli.arrays import INPUT, describe, load_arrays, save_arrays
from meganeura.cli.options import Common, NewPath, check_writable, common_options, find_model, model_argument


@click.command(
    epilog="""\b
Examples:
  meganeura run model.onnx --input x=x.npy --output results
  meganeura run minilm --input input_ids=ids.npy --input attention_mask=mask.npy \\
      --input token_type_ids=types.npy --output results
  meganeura run model.onnx --input x=x.npy --json"""
)
@model_argument
@INPUT
@click.option("--output", "folder", type=NewPath(), help="Write each output to DIR/NAME.npy.")
@common_options()
def command(common: Common, model: str, inputs: dict[str, Path], folder: Path | None) -> None:
    """Run MODEL once on the given arrays.

    Symbolic dimensions are read off the arrays' shapes. Without --output the results are only described.
    """
    from meganeura.cli import programs
    from meganeura.compiler import dims_from

    output = common.output
    if folder is not None:
        check_writable(folder, folder=True)
    source = programs.open_source(find_model(model, output))
    loaded = source.model()
    arrays = load_arrays(inputs, loaded.inputs)
    programs.check_dim_names(source, common)
    known = dims_from(loaded.inputs, arrays)
    compiled = programs.compiled(source, programs.open_device(common), programs.options_for(common))[0]
    with output.step(f"compiling {loaded.name}"):
        program = compiled.compile_for(programs.choose_dims(loaded, common, known))
    with output.step("running"):
        start = time.perf_counter()
        results = program.run(arrays)
        seconds = time.perf_counter() - start
    files = save_arrays(folder, results) if folder is not None else {}
    described = [
        {"name": name, "file": str(files[name].absolute()) if name in files else None, **describe(array)}
        for name, array in results.items()
    ]
    if output.as_json:
        output.json({"outputs": described, "seconds": seconds, "adapter": compiled.device.facts.name})
        return
    rows = [(item["name"], item["dtype"], str(item["shape"]), item["file"] or "") for item in described]
    output.table(("output", "dtype", "shape", "file"), rows)
    output.notice(f"{seconds:.3f} s on {compiled.device.facts.name}")
