"""Language models on a device: the tiny decoder against the reference, and SmolLM2's known answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import meganeura as mg
from meganeura import assets
from meganeura.frontends.gguf.model import DecoderFile
from meganeura.options import CompileOptions
from meganeura.runtime.device import Device
from meganeura.text.generation import Generation
from meganeura.text.language_model import LanguageModel
from meganeura.text.runner import CompiledRunner, ReferenceRunner
from tests.frontends.gguf.tiny import LAYERS, write_tiny

PROMPT = [1, 77, 130, 9, 201, 44, 8]

FRANCE = "What is the capital of France?"
PARIS = (504, 3575, 282, 4649, 314, 7042, 30, 2)
"""SmolLM2's greedy answer, in tokens: "The capital of France is Paris." and the end token."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> DecoderFile:
    path = write_tiny(tmp_path_factory.mktemp("device") / "tiny.gguf", encoding="Q4_1", biases=True)
    return DecoderFile(path, context=48)


@pytest.fixture(scope="module")
def optimized(device: Device, tiny: DecoderFile) -> CompiledRunner:
    return CompiledRunner(tiny, device, CompileOptions())


@pytest.fixture(scope="module", params=["optimized", "plain", "half", "packed"])
def runner(request: pytest.FixtureRequest, device: Device, tiny: DecoderFile) -> CompiledRunner:
    if request.param == "optimized":
        return request.getfixturevalue("optimized")
    changes = {"plain": {"optimize": False}, "half": {"weights": "f16"}, "packed": {"weights": "packed"}}[request.param]
    return CompiledRunner(tiny, device, replace(CompileOptions(), **changes))


def test_both_programs_equal_the_reference(runner: CompiledRunner, tiny: DecoderFile) -> None:
    expected = ReferenceRunner(tiny)
    tolerance = 2e-2 if runner.prefill_model.options.weights == "f16" else 1e-4

    def check(got: np.ndarray, want: np.ndarray) -> None:
        assert np.abs(got - want).max() <= tolerance * np.abs(want).max()

    check(runner.prefill(PROMPT), expected.prefill(PROMPT))
    for offset, token in enumerate([5, 200, 31, 8]):
        check(runner.step(token, len(PROMPT) + offset), expected.step(token, len(PROMPT) + offset))
    # The last row of the caches is as good as any.
    last = tiny.context - 1
    for position in range(len(PROMPT) + 4, last):
        expected.step(3, position)
        runner.step(3, position)
    check(runner.step(9, last), expected.step(9, last))


def test_attention_is_found_in_both_programs(optimized: CompiledRunner) -> None:
    prefill = optimized.prefill_model.compile_for({"n": 16}).report
    step = optimized.step_model.compile_for({}).report
    assert prefill.ops["attention"] == LAYERS and "cached_attention" not in prefill.ops
    assert step.ops["cached_attention"] == LAYERS and "attention" not in step.ops
    for report in (prefill, step):
        assert not {"exp", "reduce_max", "reduce_sum", "rsqrt", "sigmoid"} & set(report.ops)
        assert report.dispatches * 2 < report.dispatches_unoptimized
        named = {source for kernel in report.kernels for source in kernel.sources}
        assert {"blk.0.attention.scores", "blk.1.attn_q.weight", "output_norm.weight"} <= named


def test_decoding_row_by_row_equals_the_causal_prefill(optimized: CompiledRunner) -> None:
    rows = [optimized.step(token, position) for position, token in enumerate(PROMPT)]
    for count, row in enumerate(rows, start=1):
        whole = optimized.prefill(PROMPT[:count])
        assert np.abs(whole - row).max() <= 1e-4 * np.abs(row).max()


def test_nothing_is_made_between_steps(device: Device, optimized: CompiledRunner) -> None:
    optimized.prefill(PROMPT)
    optimized.step(5, len(PROMPT))
    before = device.counts.copy()
    for position in range(len(PROMPT) + 1, len(PROMPT) + 6):
        optimized.step(position, position)
    assert device.counts == before


def test_prepare_makes_all_that_a_prompt_needs(device: Device, tiny: DecoderFile) -> None:
    runner = CompiledRunner(tiny, device, CompileOptions())
    runner.prepare(len(PROMPT))
    before = device.counts.copy()
    runner.prefill(PROMPT)
    runner.step(5, len(PROMPT))
    assert device.counts == before


def test_both_programs_share_weights_and_caches(optimized: CompiledRunner, tiny: DecoderFile) -> None:
    optimized.prepare(len(PROMPT))
    held = sum(info.shape[0] * (info.shape[1] if len(info.shape) > 1 else 1) for info in tiny.file.tensors.values())
    states = sum(int(node.tensor_type.size) for node in tiny.step.graph({}).states.values())  # type: ignore[arg-type]
    programs = (optimized.prefill_model.compile_for({"n": 16}), optimized.step_model.compile_for({}))
    for program in programs:
        memory = program.bound.memory()
        assert memory["state"] == 4 * states
        # The tables of the rotary embedding and folded scalars come on top of the weights.
        assert memory["constant"] < 1.3 * 4 * held


@pytest.mark.parametrize("encoding", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("optimize", [True, False])
def test_quantised_weights_stay_in_their_blocks(device: Device, tmp_path: Path, encoding: str, optimize: bool) -> None:
    file = DecoderFile(write_tiny(tmp_path / "tiny.gguf", encoding=encoding, own_head=True), context=32)
    options = CompileOptions(optimize=optimize, weights="packed")
    # Guards would count as memory.
    options = options if optimize else replace(options, guard_bytes=256, poison=True)
    runner = CompiledRunner(file, device, options)
    expected = ReferenceRunner(file)
    for got, want in (
        (runner.prefill(PROMPT), expected.prefill(PROMPT)),
        (runner.step(31, len(PROMPT)), expected.step(31, len(PROMPT))),
    ):
        assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()
    if optimize:
        # Every matrix is there once, packed; a block takes one word of factors, and a word per bit of an integer.
        matrices = [info for info in file.file.tensors.values() if len(info.shape) == 2]
        words = sum((9 if i.encoding.name == "Q8_0" else 5) * i.shape[0] * i.shape[1] // 32 for i in matrices)
        vectors = sum(i.shape[0] for i in file.file.tensors.values() if len(i.shape) == 1)
        tables = 2 * 32 * file.config.rotary // 2
        assert 4 * words <= runner.session.memory()["constant"] <= 4 * (words + vectors + tables + 256)


@pytest.mark.parametrize("optimize", [True, False])
def test_working_memory_does_not_grow_with_the_layers(device: Device, tmp_path: Path, optimize: bool) -> None:
    def temporary(layers: int) -> int:
        path = write_tiny(tmp_path / f"{layers}.gguf", metadata={"llama.block_count": layers})
        model = mg.compile(DecoderFile(path, context=48).prefill, device=device, optimize=optimize)
        plan = model.compile_for({"n": 16}).program.plan
        return sum(buffer.nbytes for buffer in plan.buffers if buffer.role == "temp")

    # Keys and values go into the caches at once instead of waiting for the end of the program.
    assert temporary(2) <= temporary(1) + 4 * 16 * 32


def test_load_and_generate(device: Device, tiny: DecoderFile) -> None:
    model = mg.LanguageModel.load(tiny.file.path, device=device, context=32)
    result = model.generate("hi", raw=True, max_tokens=4)
    file = DecoderFile(tiny.file.path, context=32)
    expected = LanguageModel(file, ReferenceRunner(file)).generate("hi", raw=True, max_tokens=4)
    assert (result.token_ids, result.text) == (expected.token_ids, expected.text)


@pytest.mark.model
@pytest.mark.slow
def test_smollm2_gives_its_known_answer(device: Device) -> None:
    model = mg.LanguageModel.load(assets.fetch("smollm2"), device=device)
    stream = model.stream(FRANCE, max_tokens=20)
    pieces = list(stream)
    result: Generation = stream.result
    assert result.token_ids == PARIS and result.prompt_tokens == 37
    assert "".join(pieces) == result.text == "The capital of France is Paris."
    assert result.stop_reason == "end"
    assert isinstance(model.runner, CompiledRunner)
    assert model.runner.session.memory()["constant"] < 100e6
    raw = model.generate(FRANCE, raw=True, max_tokens=3)
    assert raw.token_ids == (2,) and raw.text == ""
