"""Documents that show output show what the program really prints."""

from __future__ import annotations

import pytest

from tests.docs.architecture_output import DOCUMENT, filled, outputs


@pytest.mark.model
def test_architecture_shows_real_output() -> None:
    text = DOCUMENT.read_text()
    assert filled(text, outputs()) == text, "run python -m tests.docs.architecture_output and read the difference"
