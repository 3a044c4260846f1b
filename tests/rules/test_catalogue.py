"""docs/rules.md says what the rule files say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.rules.support import book

DOCS = Path(__file__).parents[2] / "docs"


def test_the_catalogue_is_current() -> None:
    if not DOCS.is_dir():
        pytest.skip("the documents are not part of this installation")
    spec = importlib.util.spec_from_file_location("make_rules_catalogue", DOCS / "make_rules_catalogue.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    wanted = module.catalogue(book())
    assert (DOCS / "rules.md").read_text(encoding="utf-8") == wanted, "run python docs/make_rules_catalogue.py"


def test_every_rule_explains_itself() -> None:
    for rule in book().rules:
        assert rule.why.endswith(".") and len(rule.why) > 20, rule.name
        assert not rule.guards or rule.guards.endswith("."), rule.name
        assert rule.soundness in ("exact", "reassociating", "approximate")
