"""The two graphs of a decoder of the llama family, in primitives only.

*Prefill* takes a whole prompt: causal attention over its own keys and values, which it also writes into the
caches. *Step* takes one token at a position read from the device: it writes the token's keys and values into the
caches and attends to everything up to that position. Caches are states, so both programs share them.

Shapes: n rows, h query heads, g key/value heads, d head width, e value width, m cache rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meganeura.errors import ImportFailure
from meganeura.frontends.gguf.config import DecoderConfig
from meganeura.ir.constants import ConstantData
from meganeura.ir.graph import Graph, Tensor
from meganeura.ir.types import DType
from meganeura.ops import build

_EXCLUDED = float(np.finfo(np.float32).min)
"""Score of a key that a query must not see; its softmax weight is exactly 0 because each query sees itself."""


@dataclass(frozen=True)
class Weights:
    """A decoder's constants.

    Attributes:
        get: the constant called by a tensor's name in the file, or None when there is none.
        cos, sin: rotary tables, float32 `[m, rotary // 2]`.
    """

    get: Callable[[str], ConstantData | None]
    cos: ConstantData
    sin: ConstantData


@dataclass(frozen=True)
class DecoderGraphs:
    """Builds the graphs of one decoder.

    Attributes:
        config: the decoder's numbers. weights: its constants. max_seq: rows of each cache.
        cache: dtype the caches are stored in, F32 or F16.
    """

    config: DecoderConfig
    weights: Weights
    max_seq: int
    cache: DType = DType.F32

    def prefill(self, rows: int) -> Graph:
        """The program for a prompt of `rows` tokens.

        Inputs: `ids` i32 `[rows]`; `last` u32 `[1]`, the row whose logits are wanted (a shorter prompt is padded
        at its end, which causal attention never looks at). Output `logits` f32 `[1, vocabulary]`.
        """
        graph = Graph("prefill")
        ids = graph.input("ids", (rows,), DType.I32)
        last = graph.input("last", (1,), DType.U32)
        with graph.scope("attention.causal_mask"):
            query = graph.apply("iota", dtype=DType.I32, shape=(rows, 1), axis=0)
            key = graph.apply("iota", dtype=DType.I32, shape=(1, rows), axis=1)
            seen = key <= query
            start = graph.full(0.0, (1,), DType.U32)
        with graph.scope("rope.tables"):
            cos, sin = (graph.constant(table)[:rows] for table in (self.weights.cos, self.weights.sin))
        block = _Block(self, graph, start, cos, sin, seen, cached=False)
        x = block.layers(block.embed(ids))
        with graph.scope("output.last_row"):
            x = build.gather(x, last, axis=0)
        graph.output("logits", block.head(x))
        return graph

    def step(self) -> Graph:
        """The program for one further token.

        Inputs: `id` i32 `[1]`; `position` u32 `[1]`, below `max_seq`. Output `logits` f32 `[1, vocabulary]`.
        """
        graph = Graph("step")
        token = graph.input("id", (1,), DType.I32)
        position = graph.input("position", (1,), DType.U32)
        with graph.scope("attention.cache_mask"):
            key = graph.apply("iota", dtype=DType.U32, shape=(1, self.max_seq), axis=1)
            seen = key <= position
        with graph.scope("rope.tables"):
            tables = (graph.constant(table) for table in (self.weights.cos, self.weights.sin))
            cos, sin = (build.gather(table, position, axis=0) for table in tables)
        block = _Block(self, graph, position, cos, sin, seen, cached=True)
        graph.output("logits", block.head(block.layers(block.embed(token))))
        return graph


class _Block:
    """Adds the parts of a decoder to one graph."""

    def __init__(
        self, owner: DecoderGraphs, graph: Graph, position: Tensor, cos: Tensor, sin: Tensor, seen: Tensor, cached: bool
    ) -> None:
        self.owner, self.config, self.graph = owner, owner.config, graph
        self.position, self.cos, self.sin, self.seen, self.cached = position, cos, sin, seen, cached

    # ---- whole decoder ------------------------------------------------------------------------------

    def embed(self, ids: Tensor) -> Tensor:
        """Rows of the embedding table: ids `[n]` to `[n, width]`."""
        name = "token_embd.weight"
        with self.graph.scope(name):
            return build.gather(self.weight(name, (self.config.vocabulary, self.config.width)), ids, axis=0)

    def layers(self, x: Tensor) -> Tensor:
        """All blocks: `[n, width]` to `[n, width]`."""
        for index in range(self.config.layers):
            name = f"blk.{index}"
            attended = self.attention(self.norm(x, f"{name}.attn_norm"), name)
            with self.graph.scope(f"{name}.attention.residual"):
                x = x + attended
            transformed = self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name)
            with self.graph.scope(f"{name}.ffn.residual"):
                x = x + transformed
        return x

    def head(self, x: Tensor) -> Tensor:
        """Final norm and logits, `[1, width]` to `[1, vocabulary]`; the embedding serves where there is no own head."""
        own = self.owner.weights.get("output.weight") is not None
        return self.linear(self.norm(x, "output_norm"), "output" if own else "token_embd", self.config.vocabulary)

    # ---- one layer ----------------------------------------------------------------------------------

    def attention(self, x: Tensor, name: str) -> Tensor:
        """Self-attention of one layer, `[n, width]` to `[n, width]`."""
        c, graph = self.config, self.graph
        q = self.heads(self.linear(x, f"{name}.attn_q", c.heads * c.head_width), c.heads, f"{name}.attn_q")
        k = self.heads(self.linear(x, f"{name}.attn_k", c.kv_heads * c.head_width), c.kv_heads, f"{name}.attn_k")
        v = self.linear(x, f"{name}.attn_v", c.kv_heads * c.value_width)  # [n, g * e]
        q, k = (self.rotate(t, f"{name}.rope_{s}") for t, s in ((q, "q"), (k, "k")))  # [h, n, d], [g, n, d]
        with graph.scope(f"{name}.cache_k"):
            keys = self.remember(f"{name}.cache_k", build.merge_heads(k))  # [m, g * d]
        with graph.scope(f"{name}.cache_v"):
            values = self.remember(f"{name}.cache_v", v)  # [m, g * e]
        with graph.scope(f"{name}.attention.keys"):
            k = self.repeat(build.split_heads(keys, c.kv_heads) if self.cached else k)  # [h, keys, d]
        with graph.scope(f"{name}.attention.values"):
            v = self.repeat(build.split_heads(values if self.cached else v, c.kv_heads))  # [h, keys, e]
        with graph.scope(f"{name}.attention.scores"):
            scores = (q @ k.transpose(0, 2, 1)) * c.scale  # [h, n, keys]
        with graph.scope(f"{name}.attention.mask"):
            scores = build.where(self.seen, scores, _EXCLUDED)
        with graph.scope(f"{name}.attention.softmax"):
            weights = build.exp(scores - build.max(scores, axis=-1, keepdims=True))
            weights = weights / build.sum(weights, axis=-1, keepdims=True)
        with graph.scope(f"{name}.attention.output"):
            mixed = build.merge_heads(weights @ v)  # [n, h * e]
        return self.linear(mixed, f"{name}.attn_output", c.width)

    def feed_forward(self, x: Tensor, name: str) -> Tensor:
        """Gated feed-forward network of one layer, `[n, width]` to `[n, width]`."""
        gate = self.linear(x, f"{name}.ffn_gate", self.config.feed_forward)
        up = self.linear(x, f"{name}.ffn_up", self.config.feed_forward)
        with self.graph.scope(f"{name}.ffn.swiglu"):
            hidden = gate * build.sigmoid(gate) * up
        return self.linear(hidden, f"{name}.ffn_down", self.config.width)

    # ---- pieces -------------------------------------------------------------------------------------

    def weight(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The constant of a tensor in the file, checked against the shape it must have."""
        data = self.owner.weights.get(name)
        if data is None:
            raise ImportFailure(f"the file has no tensor {name!r}", source=name)
        if data.type.shape != shape or not data.type.dtype.is_float:
            raise ImportFailure(
                f"tensor {name!r} has another shape or type than the metadata says",
                source=name,
                shapes=f"{data.type}, expected f32{list(shape)}",
            )
        return self.graph.constant(data, source=name)

    def linear(self, x: Tensor, name: str, columns: int) -> Tensor:
        """`x @ weight.T`, plus the bias where the file has one: `[n, k]` to `[n, columns]`."""
        with self.graph.scope(f"{name}.weight"):
            weight = self.weight(f"{name}.weight", (columns, int(x.shape[-1])))  # type: ignore[arg-type]
            product = self.graph.apply("matmul", x, weight, transpose_b=True)
        if self.owner.weights.get(f"{name}.bias") is None:
            return product
        with self.graph.scope(f"{name}.bias"):
            return product + self.weight(f"{name}.bias", (columns,))

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Root-mean-square norm over the last axis."""
        with self.graph.scope(f"{name}.weight"):
            weight = self.weight(f"{name}.weight", (int(x.shape[-1]),))  # type: ignore[arg-type]
            mean_square = build.mean(x * x, axis=-1, keepdims=True)
            return x * build.rsqrt(mean_square + self.config.rms_eps) * weight

    def heads(self, x: Tensor, count: int, name: str) -> Tensor:
        """`[n, count * d]` to `[count, n, d]`, each head normalised where the file has a norm for that."""
        with self.graph.scope(f"{name}.heads"):
            split = build.split_heads(x, count)
        return split if self.owner.weights.get(f"{name}_norm.weight") is None else self.norm(split, f"{name}_norm")

    def rotate(self, x: Tensor, name: str) -> Tensor:
        """Rotary embedding of `[heads, n, d]` by the rows' angles; elements past the rotary width stay."""
        rotary, half = self.config.rotary, self.config.rotary // 2
        lead, axis = x.shape[:-1], x.rank - 1
        with self.graph.scope(name):
            turned = x[..., :rotary]
            if self.config.interleaved:
                pairs = turned.reshape((*lead, half, 2))
                first, second = pairs[..., 0], pairs[..., 1]
            else:
                first, second = turned[..., :half], turned[..., half:]
            parts = [first * self.cos - second * self.sin, second * self.cos + first * self.sin]  # [heads, n, half]
            if self.config.interleaved:
                columns = [part.reshape((*lead, half, 1)) for part in parts]
                joined = build.concat(columns, axis=axis + 1).reshape((*lead, rotary))
            else:
                joined = build.concat(parts, axis=axis)
            return joined if x.shape[-1] == rotary else build.concat([joined, x[..., rotary:]], axis=axis)

    def remember(self, name: str, rows: Tensor) -> Tensor:
        """Write `[n, width]` into the cache of this name; returns the whole cache in x's dtype."""
        dtype = rows.dtype
        state = self.graph.state(name, (self.owner.max_seq, rows.shape[-1]), self.owner.cache)
        stored = rows if self.owner.cache is dtype else rows.astype(self.owner.cache)
        updated = self.graph.apply("state_update", state, stored, self.position, axis=0)
        self.graph.update(state, updated)
        return updated if self.owner.cache is dtype else updated.astype(dtype)

    def repeat(self, x: Tensor) -> Tensor:
        """Key/value heads repeated for the query heads that share them: `[g, rows, d]` to `[h, rows, d]`."""
        groups, rows, width = x.shape
        each = self.config.heads // self.config.kv_heads
        if each == 1:
            return x
        wide = build.expand(x.reshape((groups, 1, rows, width)), (groups, each, rows, width))
        return wide.reshape((self.config.heads, rows, width))
