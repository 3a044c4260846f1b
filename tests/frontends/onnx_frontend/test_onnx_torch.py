"""Blocks as PyTorch exports them: imported, equal to PyTorch on the device, their attention found."""

from __future__ import annotations

import io
import warnings

import numpy as np
import onnx
import pytest

import meganeura as mg

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
functional = torch.nn.functional


class CausalBlock(torch.nn.Module):
    """Pre-norm block with PyTorch's own attention under a causal mask built from the shape."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        self.first, self.second = torch.nn.LayerNorm(32), torch.nn.LayerNorm(32)
        self.feed = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32))

    def forward(self, x):  # [batch, seq, 32]
        y = self.first(x)
        mask = torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf")), 1)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.feed(self.second(x))


class EncoderLayer(torch.nn.Module):
    """PyTorch's encoder layer with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")

    def forward(self, x, mask):  # [batch, seq, 32], [batch, seq]
        return self.layer(x, src_key_padding_mask=mask)


class DecoderBlock(torch.nn.Module):
    """RMS norm, rotary embedding, grouped attention and SwiGLU, as language models are written."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(32, n, bias=False) for n in (32, 16, 16))
        self.out, self.gate, self.up = (torch.nn.Linear(32, n, bias=False) for n in (32, 64, 64))
        self.down, self.weight = torch.nn.Linear(64, 32, bias=False), torch.nn.Parameter(torch.rand(32))
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, 8, 2) / 8))

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def forward(self, x):  # [batch, seq, 32]
        batch, seq, _ = x.shape
        y = self.norm(x)
        q = self.query(y).view(batch, seq, 4, 8).transpose(1, 2)
        k, v = (f(y).view(batch, seq, 2, 8).transpose(1, 2) for f in (self.key, self.value))
        angles = torch.arange(seq)[:, None] * self.frequencies
        cos, sin = (torch.cat((t, t), -1) for t in (angles.cos(), angles.sin()))
        q, k = (t * cos + torch.cat((-t[..., 4:], t[..., :4]), -1) * sin for t in (q, k))
        k, v = (t[:, :, None].expand(batch, 2, 2, seq, 8).reshape(batch, 4, seq, 8) for t in (k, v))
        mask = torch.full((seq, seq), torch.finfo(torch.float32).min).triu(1)
        mixed = torch.softmax(q @ k.transpose(2, 3) / 8**0.5 + mask, -1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, -1))
        y = self.norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


MODELS = {"causal": CausalBlock, "encoder": EncoderLayer, "decoder": DecoderBlock}


@pytest.mark.parametrize("opset", [14, 17, 20])
@pytest.mark.parametrize("name", MODELS)
def test_exported_block(name, opset, device):
    torch.manual_seed(0)
    module = MODELS[name]().eval()
    inputs = [torch.randn(2, 7, 32)]
    if name == "encoder":
        inputs.append(torch.arange(7) >= torch.tensor([[7], [5]]))
    names = ["x", "mask"][: len(inputs)]
    buffer, axes = io.BytesIO(), {n: {0: "batch", 1: "seq"} for n in names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = module(*inputs).detach().numpy()
        torch.onnx.export(
            module, tuple(inputs), buffer, dynamo=False, opset_version=opset, input_names=names, dynamic_axes=axes
        )
    compiled = mg.compile(onnx.load_model_from_string(buffer.getvalue()), device=device)
    (result,) = compiled(**{n: t.numpy() for n, t in zip(names, inputs, strict=True)}).values()
    np.testing.assert_allclose(result, expected, atol=2e-5, rtol=2e-5)
    graph = compiled.compile_for({"batch": 2, "seq": 7}).graph
    assert [node.op.name for node in graph.nodes].count("attention") == 1
