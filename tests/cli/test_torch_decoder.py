"""The decoder that `meganeura bench` builds in PyTorch computes what ours does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meganeura.cli.torch_decoder import TorchDecoder
from meganeura.frontends.gguf.model import DecoderFile
from meganeura.text.runner import ReferenceRunner

torch = pytest.importorskip("torch", reason="PyTorch is not installed, so there is nothing to compare with")


def test_prompts_and_steps_agree_with_the_reference(decoder: Path) -> None:
    file = DecoderFile(decoder, context=32)
    theirs, ours = TorchDecoder(torch, file), ReferenceRunner(file)
    ids = np.array([5, 80, 3, 77, 12], np.int32)
    np.testing.assert_allclose(theirs.logits(ids, 0), ours.prefill(ids.tolist()), atol=1e-4)
    for position, token in enumerate((9, 200), start=len(ids)):
        stepped = theirs.logits(np.array([token], np.int32), position)
        np.testing.assert_allclose(stepped, ours.step(token, position), atol=1e-4)
