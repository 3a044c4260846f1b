"""The same decoder in PyTorch, eager, with a static cache: what `meganeura bench` stands beside."""

from __future__ import annotations

from typing import Any

import numpy as np

from meganeura.frontends.gguf.model import DecoderFile


class TorchDecoder:
    """A llama-family decoder with the weights of a GGUF file, float32, on the CPU.

    Args:
        torch: the module. decoder: the opened file; its context is the length of the caches.
    """

    def __init__(self, torch: Any, decoder: DecoderFile) -> None:
        self._torch, self._config = torch, decoder.config
        weights = decoder.graphs.weights
        self._cos, self._sin = (torch.from_numpy(np.array(table.load())) for table in (weights.cos, weights.sin))
        self._get = {name: self._tensor(decoder, name) for name in decoder.file.tensors if name.endswith(".weight")}
        self._head = self._get.get("output.weight", self._get["token_embd.weight"])
        c = decoder.config
        shape = (1, c.kv_heads, decoder.context, c.head_width)
        self._caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(c.layers)]

    def _tensor(self, decoder: DecoderFile, name: str) -> Any:
        data = decoder.graphs.weights.get(name)
        assert data is not None  # the name came from the file
        return self._torch.from_numpy(np.array(data.load(), np.float32))

    def logits(self, ids: np.ndarray, start: int) -> np.ndarray:
        """Logits `[vocabulary]` after tokens `ids` at positions `start` and on; earlier ones are in the caches."""
        torch = self._torch
        with torch.inference_mode():
            x = self._get["token_embd.weight"][torch.from_numpy(ids.astype(np.int64))]
            end = start + len(ids)
            cos, sin = self._cos[start:end], self._sin[start:end]
            for layer in range(self._config.layers):
                x = x + self._attention(self._norm(x, f"blk.{layer}.attn_norm"), layer, start, cos, sin)
                x = x + self._feed_forward(self._norm(x, f"blk.{layer}.ffn_norm"), layer)
            return (self._norm(x[-1:], "output_norm") @ self._head.T)[0].numpy()

    def _attention(self, x: Any, layer: int, start: int, cos: Any, sin: Any) -> Any:
        c, rows = self._config, x.shape[0]
        name = f"blk.{layer}.attn"

        def heads(kind: str, count: int) -> Any:
            return (x @ self._get[f"{name}_{kind}.weight"].T).view(1, rows, count, c.head_width).transpose(1, 2)

        q, k = self._rotate(heads("q", c.heads), cos, sin), self._rotate(heads("k", c.kv_heads), cos, sin)
        keys, values = self._caches[layer]
        keys[:, :, start : start + rows] = k
        values[:, :, start : start + rows] = heads("v", c.kv_heads)
        mixed = self._torch.nn.functional.scaled_dot_product_attention(
            q,
            keys[:, :, : start + rows],
            values[:, :, : start + rows],
            is_causal=rows > 1,
            scale=c.scale,
            enable_gqa=True,
        )
        return mixed.transpose(1, 2).reshape(rows, -1) @ self._get[f"{name}_output.weight"].T

    def _rotate(self, x: Any, cos: Any, sin: Any) -> Any:
        if self._config.interleaved:
            first, second = x[..., 0::2], x[..., 1::2]
            turned = (first * cos - second * sin, second * cos + first * sin)
            return self._torch.stack(turned, dim=-1).flatten(-2)
        first, second = x.chunk(2, dim=-1)
        return self._torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def _feed_forward(self, x: Any, layer: int) -> Any:
        name = f"blk.{layer}.ffn"
        gate, up = (x @ self._get[f"{name}_{kind}.weight"].T for kind in ("gate", "up"))
        return (self._torch.nn.functional.silu(gate) * up) @ self._get[f"{name}_down.weight"].T

    def _norm(self, x: Any, name: str) -> Any:
        return self._torch.nn.functional.rms_norm(x, x.shape[-1:], self._get[f"{name}.weight"], self._config.rms_eps)
