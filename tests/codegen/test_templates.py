"""Every shader file is valid WGSL as it stands with its defaults, and refuses what it does not know."""

from __future__ import annotations

import pytest

import meganeura as mg
from meganeura.codegen.template import literal, render_template
from meganeura.errors import MeganeuraError
from meganeura.resources import resource_dir

TEMPLATES = sorted(path.stem for path in resource_dir("shaders").glob("*.wgsl"))


@pytest.mark.parametrize("name", TEMPLATES)
def test_defaults_are_valid_wgsl(device: mg.Device, name: str) -> None:
    text = render_template(name)
    assert "#if" not in text and "#replace" not in text
    device.wgpu.create_shader_module(code=text, label=name)


def test_unknown_names_are_refused() -> None:
    for arguments in ({"parameters": {"NOTHING": 1}}, {"flags": {"nothing": True}}, {"code": {"nothing": ""}}):
        with pytest.raises(MeganeuraError, match="has no"):
            render_template("pointwise", **arguments)  # type: ignore[arg-type]
    with pytest.raises(MeganeuraError, match="no shader template"):
        render_template("nothing")


def test_literals_read_back_exactly() -> None:
    assert literal(3) == "3u"
    assert literal(-3, "i32") == "-3i"
    assert literal(0.1) == "0.1f"
    assert literal(True) == "true"
    with pytest.raises(MeganeuraError, match="infinity"):
        literal(float("inf"))
