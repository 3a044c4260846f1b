"""Which constants stay in quantised blocks on the device, and that programs over them compute the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meganeura as mg
from meganeura.facts import DeviceFacts
from meganeura.ir.constants import ConstantData, cast_constant, concatenated_constant, packed_words, transposed_constant
from meganeura.ir.graph import Graph, Tensor
from meganeura.ir.model import GraphModel
from meganeura.ir.packing import BLOCK, SCHEMES, Packed, pack_factors, pack_integers, unpacked
from meganeura.ir.types import DType, TensorType
from meganeura.lower.lower import lower
from meganeura.ops import build
from meganeura.options import CompileOptions
from meganeura.runtime.device import Device

OPTIONS = CompileOptions(weights="packed")
FACTS = DeviceFacts(name="cpu", kind="cpu", subgroup_size=8)


def weight(name: str, rows: int, columns: int, scheme: str = "q4_1") -> ConstantData:
    """A random constant in blocks."""
    how, generator = SCHEMES[scheme], np.random.default_rng(len(name) + rows)
    blocks = rows * columns // BLOCK
    q = generator.integers(0, 16, (blocks, BLOCK)).astype(np.int8)
    d, m = (generator.standard_normal(blocks).astype(np.float16) for _ in range(2))

    def fill(integers: np.ndarray, factors: np.ndarray) -> None:
        pack_integers(q, how, integers)
        pack_factors(how, d, m if how.minimum else None, factors)

    packed = Packed(f"test/{name}", how, blocks, fill)
    kind = TensorType(DType.F32, (rows, columns))
    return ConstantData(f"test/{name}", kind, lambda: unpacked(packed.load(), how, blocks).reshape(kind.dims), packed)


def packed_constants(graph: Graph, fuse: bool = True) -> set[str]:
    plan = lower(graph, FACTS, OPTIONS, fuse=fuse)
    keys = {b.constant.key for b in plan.buffers if b.constant is not None}
    return {key for key in keys if key.startswith("packed(")}


def build_graph(body: Callable[[Graph, Tensor, Tensor], Tensor], data: ConstantData, width: int = 64) -> Graph:
    graph = Graph("g")
    x = graph.input("x", (2, width))
    graph.output("y", body(graph, x, graph.constant(data)))
    return graph


def _looked_up(graph: Graph, x: Tensor, w: Tensor) -> Tensor:
    ids = graph.input("ids", (3,), DType.I32)
    return build.gather(w, ids, axis=0) @ x.transpose(1, 0)


TAKEN: dict[str, Callable[[Graph, Tensor, Tensor], Tensor]] = {
    "columns": lambda g, x, w: g.apply("matmul", x, w, transpose_b=True),
    "view": lambda g, x, w: x @ w.transpose(1, 0),
    "rows": _looked_up,
    "both": lambda g, x, w: _looked_up(g, x, w) @ build.relu(g.apply("matmul", x, w, transpose_b=True)),
}
REFUSED: dict[str, Callable[[Graph, Tensor, Tensor], Tensor]] = {
    "along n": lambda g, x, w: x @ w,
    "left": lambda g, x, w: w @ x.transpose(1, 0),
    "elementwise": lambda g, x, w: x @ (w + 1.0).transpose(1, 0),
    "result": lambda g, x, w: (g.output("w", w), x @ w.transpose(1, 0))[1],
    "columns of the table": lambda g, x, w: build.gather(w, g.input("ids", (3,), DType.I32), axis=1),
    "normalised": lambda g, x, w: build.softmax(w, axis=-1) @ x.transpose(1, 0),
}


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("case", TAKEN)
def test_taken(case: str, fuse: bool) -> None:
    assert packed_constants(build_graph(TAKEN[case], weight("w", 64, 64)), fuse) == {"packed(q4_1,test/w)"}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    assert packed_constants(build_graph(REFUSED[case], weight("w", 64, 64))) == set()


def test_only_when_asked_for() -> None:
    graph = build_graph(TAKEN["columns"], weight("w", 64, 64))
    for weights in ("f32", "f16"):
        plan = lower(graph, FACTS, CompileOptions(weights=weights))
        assert all(b.constant is None or b.constant.type.dtype is not DType.U32 for b in plan.buffers)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("case", [*TAKEN, *REFUSED])
def test_programs_equal_the_reference(device: Device, case: str, optimize: bool) -> None:
    graph = build_graph((TAKEN | REFUSED)[case], weight("w", 64, 64, "q8_0" if case == "rows" else "q4_1"))
    inputs: dict[str, np.ndarray] = {"x": np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)}
    if "ids" in graph.inputs:
        inputs["ids"] = np.array([63, -64, 7], np.int32)
    model = mg.compile(GraphModel(graph), device=device, optimize=optimize, options=OPTIONS)
    found, expected = model(**inputs), mg.reference(graph)(**inputs)
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() <= 1e-4 * np.abs(value).max()


def test_joined_weights_stay_packed(device: Device) -> None:
    """Products of one input become one, and its weights are the blocks of all of them."""
    graph = Graph("qkv")
    x = graph.input("x", (1, 64))
    for index, rows in enumerate((64, 32, 32)):
        graph.output(f"y{index}", build.relu(x @ graph.constant(weight(f"w{index}", rows, 64)).transpose(1, 0)))
    model = mg.compile(GraphModel(graph), device=device, options=OPTIONS)
    program = model.compile_for({})
    assert "concat" in str({b.name for b in program.program.plan.buffers})
    # 128 rows of two blocks: four words of integers and one of factors each.
    assert program.bound.memory()["constant"] == 128 * 2 * 5 * 4
    value = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    found, expected = model(x=value), mg.reference(graph)(x=value)
    for name in expected:
        assert np.abs(found[name] - expected[name]).max() <= 1e-4 * np.abs(expected[name]).max()


def test_derived_constants() -> None:
    a, b, other = weight("a", 3, 64), weight("bb", 5, 64), weight("c", 3, 64, "q8_0")
    joined = concatenated_constant([a, b], 0)
    assert joined.packed is not None
    values = unpacked(packed_words(joined).load(), joined.packed.scheme, joined.packed.blocks)
    assert np.array_equal(values.reshape(8, 64), joined.load())
    assert packed_words(joined).type.dims == packed_words(joined).load().shape
    flipped = transposed_constant(joined, (1, 0))
    # One copy on the device serves both.
    assert packed_words(flipped).key == packed_words(joined).key
    both = concatenated_constant([flipped, transposed_constant(b, (1, 0))], 1)
    assert both.packed is not None
    assert packed_words(both).key == packed_words(concatenated_constant([joined, b], 0)).key
    for dropped in (
        concatenated_constant([a, other], 0),
        concatenated_constant([a, weight("d", 3, 64)], 1),
        concatenated_constant([flipped, flipped], 0),
        cast_constant(a, DType.F16),
    ):
        assert dropped.packed is None
        with pytest.raises(mg.MeganeuraError, match="not packed"):
            packed_words(dropped)
