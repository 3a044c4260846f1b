"""A random decoder of the llama family, small enough for tests, with a tokenizer and a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.frontends.gguf.writer import write_gguf

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, FEED_FORWARD = 2, 32, 4, 2, 8, 64
CONTEXT = 256

TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nbe kind<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_symbols() -> list[str]:
    """The 256 characters by which byte-level vocabularies write the bytes, in byte order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    odd = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(odd)) for b in range(256)]


def tokenizer_metadata() -> dict[str, Any]:
    """A byte-level vocabulary: three control tokens, the bytes, and a few merges."""
    merges = ["t h", "th e", "\u0120 a", "i n", "e r", "\u0120 the"]
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_symbols()]
    tokens += [merge.replace(" ", "") for merge in merges]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([3] * 3 + [1] * (len(tokens) - 3), np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def decoder_metadata(architecture: str = "llama", **changes: Any) -> dict[str, Any]:
    """The numbers of the tiny decoder; `changes` by key without the architecture, dots written as `__`."""
    numbers = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "feed_forward_length": FEED_FORWARD,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        "rope.dimension_count": HEAD,
    } | {key.replace("__", "."): value for key, value in changes.items()}
    found = {f"{architecture}.{key}": value for key, value in numbers.items() if value is not None}
    return {"general.architecture": architecture, "general.name": "tiny", **found}


def decoder_tensors(
    vocabulary: int,
    *,
    encoding: str = "F32",
    seed: int = 0,
    kv_heads: int = KV_HEADS,
    head: int = HEAD,
    own_head: bool = False,
    biases: bool = False,
    head_norms: bool = False,
) -> dict[str, tuple[np.ndarray, str]]:
    """Random weights: matrices in `encoding`, the embedding in Q8_0 unless that is F32, vectors in F32."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, how: str = encoding) -> tuple[np.ndarray, str]:
        return random.normal(0, columns**-0.5, (rows, columns)).astype(np.float32), how

    def vector(size: int, centre: float = 0.0) -> tuple[np.ndarray, str]:
        return random.normal(centre, 0.2, size).astype(np.float32), "F32"

    wide = {"attn_q": HEADS * head, "attn_k": kv_heads * head, "attn_v": kv_heads * head}
    embedding, how = matrix(vocabulary, WIDTH, "F32" if encoding == "F32" else "Q8_0")
    # A tied head sees the embedding: a size near 1 makes its logits differ well.
    tensors = {"token_embd.weight": (embedding * WIDTH**0.5, how)}
    for index in range(LAYERS):
        block = {f"{name}.weight": matrix(rows, WIDTH) for name, rows in wide.items()}
        block |= {f"{name}.bias": vector(rows) for name, rows in wide.items() if biases}
        block |= {f"{name}_norm.weight": vector(head, 1.0) for name in ("attn_q", "attn_k") if head_norms}
        block |= {f"{name}.weight": vector(WIDTH, 1.0) for name in ("attn_norm", "ffn_norm")}
        block["attn_output.weight"] = matrix(WIDTH, HEADS * head)
        block |= {f"{name}.weight": matrix(FEED_FORWARD, WIDTH) for name in ("ffn_gate", "ffn_up")}
        block["ffn_down.weight"] = matrix(WIDTH, FEED_FORWARD)
        tensors |= {f"blk.{index}.{name}": value for name, value in block.items()}
    tensors["output_norm.weight"] = vector(WIDTH, 1.0)
    if own_head:
        tensors["output.weight"] = matrix(vocabulary, WIDTH)
    return tensors


def write_tiny(path: Path, architecture: str = "llama", metadata: dict[str, Any] | None = None, **options: Any) -> Path:
    """Write the tiny decoder.

    Args:
        metadata: further or changed entries. options: for `decoder_tensors`.
    """
    words = tokenizer_metadata()
    entries = {**decoder_metadata(architecture), **words, **(metadata or {})}
    return write_gguf(path, entries, decoder_tensors(len(words["tokenizer.ggml.tokens"]), **options))
