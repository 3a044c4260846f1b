"""Who computes a decoder's two programs: compiled on a device, or the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from meganeura.frontends.gguf.model import DecoderFile
from meganeura.options import CompileOptions

_FINEST_BUCKET = 16


class Runner(Protocol):
    """Computes logits `[vocabulary]` and keeps the key/value caches between calls."""

    def prepare(self, prompt: int) -> None:
        """Compile whatever a prompt of so many tokens and the steps after it need."""
        ...

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        """Take `ids` as positions 0 and on; the logits after the last of them."""
        ...

    def step(self, token: int, position: int) -> np.ndarray:
        """Take one token at `position`, all earlier positions being in the caches; the logits after it."""
        ...


def bucket(count: int, context: int) -> int:
    """Rows of the prefill program for a prompt of `count` tokens: few distinct programs, at most half of them padding.

    Multiples of 16 up to 64, of 32 up to 128, of 64 up to 256 and so on, never beyond the context.
    """
    step = _FINEST_BUCKET
    while count > 4 * step:
        step *= 2
    return min(-(-count // step) * step, context)


class CompiledRunner:
    """Runs the two programs on a device; they share weights and caches in one session.

    Args:
        decoder: the opened file. device, options: as for `meganeura.compile`.
    """

    def __init__(self, decoder: DecoderFile, device: Any, options: CompileOptions) -> None:
        from meganeura.compiler import compile as compile_model
        from meganeura.runtime.device import Device
        from meganeura.runtime.session import Session

        self.device = device if isinstance(device, Device) else Device.open(device)
        self.session = Session(self.device, options)
        self._context = decoder.context

        def build(model: Any) -> Any:
            return compile_model(
                model, device=self.device, optimize=options.optimize, options=options, session=self.session
            )

        self.prefill_model, self.step_model = build(decoder.prefill), build(decoder.step)

    def prepare(self, prompt: int) -> None:
        # `bound` makes the device objects, so that no call pays for them.
        if prompt:
            _ = self.prefill_model.compile_for({"n": bucket(prompt, self._context)}).bound
        _ = self.step_model.compile_for({}).bound

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        return self.prefill_model(**prefill_inputs(ids, self._context))["logits"][0]

    def step(self, token: int, position: int) -> np.ndarray:
        return self.step_model(**step_inputs(token, position))["logits"][0]


class ReferenceRunner:
    """Runs the two programs through the reference evaluator: slow, and right by definition."""

    def __init__(self, decoder: DecoderFile) -> None:
        self._decoder = decoder
        self.states: dict[str, np.ndarray] = {}

    def prepare(self, prompt: int) -> None:
        """Nothing needs compiling."""

    def prefill(self, ids: Sequence[int]) -> np.ndarray:
        inputs = prefill_inputs(ids, self._decoder.context)
        return self._run(self._decoder.prefill.graph({"n": len(inputs["ids"])}), inputs)

    def step(self, token: int, position: int) -> np.ndarray:
        return self._run(self._decoder.step.graph({}), step_inputs(token, position))

    def _run(self, graph: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
        from meganeura.reference import evaluate

        results = evaluate(graph, {**inputs, **self.states})
        self.states = {n.removeprefix("state:"): v for n, v in results.items() if n.startswith("state:")}
        return results["logits"][0]


def prefill_inputs(ids: Sequence[int], context: int) -> dict[str, np.ndarray]:
    """Inputs of the prefill program, padded at the end to its bucket."""
    padded = np.zeros(bucket(len(ids), context), np.int32)
    padded[: len(ids)] = ids
    return {"ids": padded, "last": np.array([len(ids) - 1], np.uint32)}


def step_inputs(token: int, position: int) -> dict[str, np.ndarray]:
    """Inputs of the step program."""
    return {"id": np.array([token], np.int32), "position": np.array([position], np.uint32)}
