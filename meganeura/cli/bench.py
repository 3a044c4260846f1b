"""`meganeura bench`: the measured rows of a language model, side by side in one run."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import numpy as np

from meganeura import __version__
from meganeura.cli.measure import side_by_side
from meganeura.cli.options import Common, NewPath, Number, check_writable, common_options, filled, find_model
from meganeura.errors import DeviceError, InputError
from meganeura.reference.compare import TOLERANCE, difference

_PROMPT, _KEYS = 128, 128
_CACHE_ROWS = _PROMPT + _KEYS
_MEMORY_CONTEXT = 2048

# Linux lets a process begin with the peak of the one that started it, which getrusage would tell; VmHWM is its own.
_CHAT = """
import re, resource, sys
from meganeura.cli import main
code = main(sys.argv[1:])
try:
    peak = int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
except OSError:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS
print(peak, file=sys.stderr)
sys.exit(code)
"""


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        name: what was measured. value: the figure. unit: of it. detail: the figures it was made of, as text.
    """

    name: str
    value: float
    unit: str
    detail: str
    figures: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "unit": self.unit, **self.figures}


@click.command(
    epilog="""\b
Examples:
  meganeura bench
  meganeura bench --write bench.json
  meganeura bench model.gguf --repeats 5 --device 0"""
)
@click.argument("model", default="smollm2", metavar="[MODEL]", callback=filled)
@click.option("--repeats", type=Number(1, 1000, integer=True), default=20, show_default=True, help="Timed calls.")
@click.option("--warm", type=Number(0, 1000, integer=True), default=5, show_default=True, help="Calls before those.")
@click.option("--write", "file", type=NewPath(dir_okay=False), help="Write the result as JSON here.")
@click.option("--threads", type=Number(1, 1024, integer=True), default=2, show_default=True, help="PyTorch's threads.")
@common_options()
def command(common: Common, model: str, repeats: int, warm: int, file: Path | None, threads: int) -> None:
    """Measure a language model (SmolLM2 unless told): one cached token at 128 keys, and a prompt of 128 tokens.

    Each is timed optimised, unoptimised, and in PyTorch where it is installed, in turns on the same inputs, after
    their results were compared. The caches have 256 rows, which the times depend on. Also counted: dispatches,
    seconds of the compiler's phases, and the peak memory of a process that chats with a context of 2048. Figures are
    medians.
    """
    output = common.output
    if common.dims or not common.optimize:
        raise InputError("bench chooses dimensions and optimisation itself", remedy="leave out --dim and --no-optimize")
    if file is not None:
        check_writable(file)
    path = find_model(model, output)
    setup = _Setup(common, path, threads)
    rows = [*setup.time_both(repeats, warm), *setup.compile_rows()]
    if os.name == "posix":  # elsewhere Python cannot tell a process's peak
        with output.step("measuring the memory of a chat"):
            rows.append(memory_row(path, common))
    result = {"machine": machine(setup.device, threads), "model": path.name, "rows": [row.as_dict() for row in rows]}
    if file is not None:
        file.write_text(json.dumps(result, indent=2) + "\n")
        output.notice(f"written to {file}")
    if output.as_json:
        output.json(result)
        return
    shown = [(row.name, f"{row.value:.2f}", row.unit, row.detail) for row in rows]
    output.table(("measured", "value", "unit", "of"), shown)
    for name, value in result["machine"].items():
        output.notice(f"{name}: {value}", style="dim")


class _Setup:
    """The programs to be measured, each with the inputs it is measured on."""

    def __init__(self, common: Common, path: Path, threads: int) -> None:
        from meganeura.cli import programs

        self.output, self.weights = common.output, common.weights
        if not programs.is_decoder(path):
            raise InputError(f"{path.name} is not a language model", remedy="use a GGUF file, or smollm2")
        self.source = programs.open_source(path, _CACHE_ROWS)
        assert self.source.decoder is not None
        self.device = programs.open_device(common)
        options = programs.options_for(common)
        random = np.random.default_rng(0)
        ids = random.integers(0, self.source.decoder.config.vocabulary, _KEYS).astype(np.int32)
        self.ids = ids
        # The newest token is the last of the keys.
        self.inputs = {
            "prefill": {"ids": ids[:_PROMPT], "last": np.array([_PROMPT - 1], np.uint32)},
            "step": {"id": ids[-1:], "position": np.array([_KEYS - 1], np.uint32)},
        }
        self.pairs: dict[str, tuple[Any, Any]] = {}
        with self.output.step("compiling, with and without optimisation"):
            for ours, plain in zip(
                programs.compiled(self.source, self.device, options),
                programs.compiled(self.source, self.device, programs.unoptimized(options)),
                strict=True,
            ):
                dims = {"n": _PROMPT} if ours.model.symbols else {}
                self.pairs[ours.model.name] = (ours.compile_for(dims), plain.compile_for(dims))
        self.torch = self._torch_calls(threads)

    def _torch_calls(self, threads: int) -> dict[str, Callable[[], np.ndarray]]:
        # PyTorch's threads spin while they wait, and lose many times over where another program wants the core;
        # sleeping serves it better in a run in which contestants take turns. Read when it is imported.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        os.environ.setdefault("GOMP_SPINCOUNT", "0")
        try:
            import torch  # pyright: ignore[reportMissingImports]
        except ImportError:
            self.output.notice("PyTorch is not installed: nothing to stand beside")
            return {}
        from meganeura.cli.torch_decoder import TorchDecoder

        torch.set_num_threads(threads)
        assert self.source.decoder is not None
        decoder = TorchDecoder(torch, self.source.decoder)
        return {
            "prefill": lambda: decoder.logits(self.ids[:_PROMPT], 0),
            "step": lambda: decoder.logits(self.ids[-1:], _KEYS - 1),
        }

    def time_both(self, repeats: int, warm: int) -> list[Row]:
        """Rows of the two programs, the prompt first: it fills the caches that the step reads."""
        rows = []
        names = {"prefill": f"prefill, {_PROMPT} tokens", "step": f"one cached token at {_KEYS} keys"}
        for kind, name in names.items():
            ours, plain = self.pairs[kind]
            inputs = self.inputs[kind]
            calls: list[Callable[[], Any]] = [lambda p=ours, i=inputs: p.run(i), lambda p=plain, i=inputs: p.run(i)]
            if kind in self.torch:
                calls.append(self.torch[kind])
            with self.output.step(f"{name}: comparing with the reference"):
                self._check(kind, calls)
            with self.output.step(f"{name}: {warm} + {repeats} calls of each"):
                times = side_by_side(calls, repeats, warm)
            rows += _time_rows(name, times)
        return rows

    def _check(self, kind: str, calls: list[Callable[[], Any]]) -> None:
        """No figure is given for a wrong result."""
        from meganeura.reference import evaluate

        program = self.pairs[kind][0]
        session = program.bound.session
        caches = {name: session.read_state(name) for name in program.source.states}
        expected = np.ravel(evaluate(program.source, {**self.inputs[kind], **caches})["logits"])
        for call in calls:
            result = call()
            apart = difference(np.ravel(result["logits"] if isinstance(result, dict) else result), expected)
            if not apart.within(TOLERANCE[self.weights]):
                raise DeviceError(
                    f"{kind}: a result is off by {apart.max_rel:.1e} of the largest logit, so nothing was timed",
                    remedy="see `meganeura verify`",
                )

    def compile_rows(self) -> list[Row]:
        """Dispatches and compile times of the two programs."""
        rows = []
        for kind, (ours, _) in self.pairs.items():
            report = ours.report
            before, after = report.dispatches_unoptimized, report.dispatches
            counts = {"unoptimized": before, "optimized": after}
            rows.append(Row(f"{kind}: dispatches", after / before, "of unoptimised", f"{after} of {before}", counts))
            seconds = {phase: round(value, 4) for phase, value in report.seconds.items()}
            detail = ", ".join(f"{phase} {value:.2f}" for phase, value in seconds.items())
            rows.append(Row(f"{kind}: e-graph search", seconds.get("optimize", 0.0), "s", detail, seconds))
        return rows


def _time_rows(name: str, times: list[float]) -> list[Row]:
    ours, plain = times[:2]
    figures = {"seconds": ours, "seconds_unoptimized": plain, "cache_rows": _CACHE_ROWS}
    detail = f"{ours * 1e3:.1f} ms, {plain * 1e3:.1f} ms unoptimised, caches of {_CACHE_ROWS} rows"
    rows = [Row(f"{name}: optimised against unoptimised", plain / ours, "x faster", detail, figures)]
    if len(times) > 2:
        torch = {"seconds": ours, "seconds_torch": times[2]}
        detail = f"{ours * 1e3:.1f} ms, {times[2] * 1e3:.1f} ms in PyTorch"
        rows.append(Row(f"{name}: beside PyTorch", ours / times[2], "x its time", detail, torch))
    return rows


def memory_row(path: Path, common: Common) -> Row:
    """Peak memory of a process that answers one line in a chat with a context of 2048."""
    options = ["--context", str(_MEMORY_CONTEXT), "--max-tokens", "8", "--weights", common.weights]
    if common.device is not None:
        options += ["--device", common.device]
    done = subprocess.run(
        [sys.executable, "-c", _CHAT, "chat", str(path), *options],
        input="What is the capital of France?\n",
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise DeviceError(f"the chat whose memory is measured failed: {done.stderr.strip().splitlines()[-1]}")
    peak = int(done.stderr.strip().splitlines()[-1])
    return Row("peak memory, chat with a context of 2048", peak / 2**30, "GiB", f"{peak:,} bytes", {"bytes": peak})


def machine(device: Any, threads: int) -> dict[str, Any]:
    """What a figure depends on besides this program."""
    return {
        "adapter": device.facts.name,
        "driver": device.facts.driver,
        "backend": device.facts.backend,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {"meganeura": __version__}
        | {name: _version(name) for name in ("wgpu", "egglog", "numpy", "torch")},
        "torch_threads": threads,
        "commit": _commit(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=root, capture_output=True, text=True
    )
    return done.stdout.strip() or None
