"""No read or write outside a tensor: NaN guards after every tensor, poison in freed memory, outputs unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meganeura as mg
from meganeura.assets import fetch
from meganeura.frontends.gguf import DecoderFile
from meganeura.reference import evaluate
from tests.frontends.gguf.tiny import write_tiny
from tests.property.graphs import Grower
from tests.property.test_random_graphs import assert_close

GUARD = 256
"""Bytes of NaN after every tensor inside its binding; the runtime checks after every run that they are unchanged."""


@pytest.mark.parametrize("attention", ["literal", "direct"])
@pytest.mark.parametrize("optimize", [True, False])
def test_a_decoder_stays_inside_its_tensors(device: mg.Device, tmp_path: Path, optimize: bool, attention: str) -> None:
    """Prefill of five tokens, then three steps, against the reference."""
    decoder = DecoderFile(write_tiny(tmp_path / "tiny.gguf"))
    options = mg.CompileOptions(optimize=optimize, guard_bytes=GUARD, poison=True, attention=attention)
    session = mg.Session(device, options)
    known: dict[str, np.ndarray] = {}

    def check(model: object, dims: dict[str, int], inputs: dict[str, np.ndarray]) -> None:
        compiled = mg.compile(model, session=session, options=options, optimize=optimize).compile_for(dims)
        want = evaluate(compiled.source, {**known, **inputs})
        got = compiled.run(inputs)
        for name, value in got.items():
            assert_close(value, want[name], name)
        known.update({key.removeprefix("state:"): v for key, v in want.items() if key.startswith("state:")})
        for name, value in known.items():
            assert_close(session.read_state(name), value, name)

    check(decoder.prefill, {"n": 5}, {"ids": np.arange(3, 8, dtype=np.int32), "last": np.array([4], np.uint32)})
    for position in (5, 6, 7):
        step = {"id": np.array([position], np.int32), "position": np.array([position], np.uint32)}
        check(decoder.step, {}, step)


@pytest.mark.model
@pytest.mark.parametrize("attention", ["literal", "direct"])
def test_an_encoder_stays_inside_its_tensors(device: mg.Device, attention: str) -> None:
    """MiniLM on three sentences of seven tokens, one of them padded."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1000, 20000, (3, 7)).astype(np.int32)
    mask = np.ones((3, 7), np.int32)
    mask[1, 4:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    plain = mg.compile(fetch("minilm"), device=device)(**inputs)
    options = mg.CompileOptions(guard_bytes=GUARD, poison=True, attention=attention)
    guarded = mg.compile(fetch("minilm"), device=device, options=options)(**inputs)
    for name, value in guarded.items():
        assert_close(value, plain[name], name)


@pytest.mark.parametrize("seed", range(300, 325))
@pytest.mark.parametrize("optimize", [True, False])
def test_random_graphs_stay_inside_their_tensors(device: mg.Device, seed: int, optimize: bool) -> None:
    grower = Grower(seed)
    graph = grower.grow(8)
    inputs = grower.inputs()
    options = mg.CompileOptions(optimize=optimize, guard_bytes=GUARD, poison=True)
    want = evaluate(graph, inputs)
    for name, value in mg.compile(graph, device=device, options=options, optimize=optimize)(**inputs).items():
        assert_close(value, want[name], f"{name}, seed {seed}")


def test_no_buffer_is_empty(device: mg.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty tensors get four bytes: no device object is ever made with none."""
    sizes: list[int] = []
    create = mg.Device.create_buffer

    def counted(self: mg.Device, nbytes: int, *rest: object, **named: object) -> object:
        sizes.append(nbytes)
        return create(self, nbytes, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(mg.Device, "create_buffer", counted)
    graph = mg.Graph()
    x = graph.input("x", (0, 3))
    graph.output("empty", x * 2.0)
    graph.output("sum", mg.sum(x))
    graph.output("joined", mg.concat([x, graph.constant(np.ones((2, 3), np.float32))]))
    got = mg.compile(graph, device=device)(x=np.zeros((0, 3), np.float32))
    assert got["empty"].shape == (0, 3)
    assert got["sum"] == 0
    assert got["joined"].tolist() == [[1, 1, 1]] * 2
    assert sizes and min(sizes) >= 4
