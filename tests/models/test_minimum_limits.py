"""Nothing assumes a large device: WebGPU's guaranteed minimum, without float16 or subgroups, runs everything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import meganeura as mg
from meganeura.facts import Limits
from meganeura.frontends.gguf import DecoderFile
from meganeura.reference import evaluate
from tests.frontends.gguf.tiny import write_tiny
from tests.property.graphs import Grower
from tests.property.test_random_graphs import assert_close


@pytest.fixture(scope="module")
def smallest() -> Iterator[mg.Device]:
    """The usual adapter opened with the least that WebGPU promises."""
    device = mg.Device.open(limits=Limits(), features=())
    assert device.facts.limits.max_storage_buffers == 8
    assert not device.facts.has_f16 and not device.facts.subgroup_size
    yield device


@pytest.mark.parametrize("seed", range(400, 425))
def test_random_graphs(smallest: mg.Device, seed: int) -> None:
    grower = Grower(seed)
    graph = grower.grow(8)
    inputs = grower.inputs()
    want = evaluate(graph, inputs)
    if any("f16" in repr(node.type) for node in graph.nodes):
        pytest.skip("float16 storage needs the feature")
    for name, value in mg.compile(graph, device=smallest)(**inputs).items():
        assert_close(value, want[name], f"{name}, seed {seed}")


def test_many_operands_are_joined_in_several_kernels(smallest: mg.Device) -> None:
    graph = mg.Graph()
    parts = [graph.input(f"x{i}", (3, 2)) for i in range(23)]
    graph.output("joined", mg.concat(parts, axis=1) * 2.0)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    graph.output("total", total)
    inputs = {f"x{i}": np.full((3, 2), float(i), np.float32) for i in range(23)}
    got = mg.compile(graph, device=smallest)(**inputs)
    want = evaluate(graph, inputs)
    for name, value in got.items():
        assert_close(value, want[name], name)


def test_a_decoder(smallest: mg.Device, tmp_path: Path) -> None:
    decoder = DecoderFile(write_tiny(tmp_path / "tiny.gguf"))
    inputs = {"ids": np.arange(3, 8, dtype=np.int32), "last": np.array([4], np.uint32)}
    program = mg.compile(decoder.prefill, device=smallest).compile_for({"n": 5})
    got, want = program.run(inputs), evaluate(program.source, inputs)
    for name, value in got.items():
        assert_close(value, want[name], name)


def test_float16_is_refused_with_words(smallest: mg.Device) -> None:
    graph = mg.Graph()
    graph.output("y", graph.input("x", (3,), "f16") * 2.0)
    with pytest.raises(mg.DeviceError, match="float16"):
        mg.compile(graph, device=smallest)(x=np.ones(3, np.float16))
