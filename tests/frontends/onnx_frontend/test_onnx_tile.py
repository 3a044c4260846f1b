"""Tile becomes the fewest views, so that heads repeated for grouped attention are read in place."""

from __future__ import annotations

import numpy as np
import pytest

import meganeura as mg
from meganeura.frontends.onnx import load_onnx
from tests.frontends.onnx_frontend.models import model, run, runtime

VIEWS = {
    "nothing": ([2, 3], [1, 1], []),
    "unit axes": ([2, 1, 3, 1], [1, 4, 1, 2], [("expand", (2, 4, 3, 2))]),
    "unit axis to nothing": ([2, 1], [1, 0], [("expand", (2, 0))]),
    "long axis": ([2, 3], [1, 2], [("reshape", (2, 1, 3)), ("expand", (2, 2, 3)), ("reshape", (2, 6))]),
    "long axis to nothing": ([2, 3], [1, 0], [("reshape", (2, 1, 3)), ("expand", (2, 0, 3)), ("reshape", (2, 0))]),
    "both": ([1, 3, 2], [2, 2, 1], [("reshape", (1, 1, 3, 2)), ("expand", (2, 2, 3, 2)), ("reshape", (2, 6, 2))]),
}
"""Shape, repeats, and the views that say it."""


@pytest.mark.parametrize("name", VIEWS)
def test_only_axes_that_repeat_are_touched(name):
    shape, repeats, wanted = VIEWS[name]
    result = [dim * count for dim, count in zip(shape, repeats, strict=True)]
    proto = model(f"float{shape} x) => (float{result} y", "t = Tile (x, r) y = Relu (t)", r=np.array(repeats))
    nodes = load_onnx(proto).graph({}).nodes
    assert [(n.op.name, n.op.attributes()["shape"]) for n in nodes if n.op.name in ("reshape", "expand")] == wanted
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(run(proto, {"x": x})[0], np.maximum(np.tile(x, repeats), 0))


REPEATED = {
    "repeat_interleave": (
        "kn = Unsqueeze (k, two) kt = Tile (kn, group) kr = Reshape (kt, heads)"
        " vn = Unsqueeze (v, two) vt = Tile (vn, group) vr = Reshape (vt, heads)",
        2,
    ),
    "repeat_interleave before the heads move": (
        "km = Transpose <perm = [0, 2, 1, 3]> (k) kn = Unsqueeze (km, three) kt = Tile (kn, later_group)"
        " kq = Reshape (kt, later_heads) kr = Transpose <perm = [0, 2, 1, 3]> (kq)"
        " vm = Transpose <perm = [0, 2, 1, 3]> (v) vn = Unsqueeze (vm, three) vt = Tile (vn, later_group)"
        " vq = Reshape (vt, later_heads) vr = Transpose <perm = [0, 2, 1, 3]> (vq)",
        2,
    ),
    "repeat of one head": ("kr = Tile (k, all) vr = Tile (v, all)", 1),
}
"""Keys and values repeated for four query heads as PyTorch exports it, and the number of their own heads."""


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("spelling", REPEATED)
def test_repeated_heads_are_read_in_place(spelling, batch, device):
    repeated, heads = REPEATED[spelling]
    kv = f"float[{batch}, {heads}, 7, 16]"
    proto = model(
        f"float[{batch}, 4, 7, 16] q, {kv} k, {kv} v) => (float[{batch}, 4, 7, 16] y",
        f"{repeated} kk = Transpose <perm = [0, 1, 3, 2]> (kr) s = MatMul (q, kk) c = Div (s, root)"
        " w = Softmax <axis = -1> (c) y = MatMul (w, vr)",
        two=np.array([2]),
        three=np.array([3]),
        group=np.array([1, 1, 2, 1, 1]),
        later_group=np.array([1, 1, 1, 2, 1]),
        heads=np.array([batch, 4, 7, 16]),
        later_heads=np.array([batch, 7, 4, 16]),
        all=np.array([1, 4, 1, 1]),
        root=np.float32(4),
    )
    rng = np.random.default_rng(1)
    inputs = {
        i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]) for i in proto.graph.input
    }
    inputs = {name: array.astype(np.float32) for name, array in inputs.items()}
    compiled = mg.compile(proto, device=device)
    (result,) = compiled(**inputs).values()
    np.testing.assert_allclose(result, runtime(proto, inputs)[0], atol=1e-5, rtol=1e-5)
    graph = compiled.compile_for({}).graph
    (attention,) = (node for node in graph.nodes if node.op.name == "attention")
    q, k, v = (graph.nodes[i].type.shape for i in attention.inputs)
    assert (q[-3], k[-3], v[-3]) == (4, heads, heads)
    assert not any(node.op.name == "expand" for node in graph.nodes)
