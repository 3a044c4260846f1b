"""Unrolling of marked loops in shader templates."""

from __future__ import annotations

import pytest

from meganeura.codegen.unroll import unroll
from meganeura.errors import MeganeuraError


def squeezed(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_a_loop_becomes_one_block_per_iteration() -> None:
    loop = "for (var i = 0u; i < N; i++) { // #unroll\n    total[i] += index[i];\n} // #unroll\n"
    text = f"const N: u32 = 2u;\n{loop}end();\n"
    assert squeezed(unroll(text)) == [
        "const N: u32 = 2u;", "{", "total[0u] += index[0u];", "}", "{", "total[1u] += index[1u];", "}", "end();",
    ]  # fmt: skip


def test_loops_nest() -> None:
    inner = "for (var j = 0u; j < 2u; j++) { // #unroll\n    x[i][j] = 1;\n} // #unroll\n"
    text = f"for (var i = 0u; i < 2u; i++) {{ // #unroll\n{inner}}} // #unroll\n"
    lines = [line for line in squeezed(unroll(text)) if line.startswith("x")]
    assert lines == [f"x[{i}u][{j}u] = 1;" for i in range(2) for j in range(2)]


def test_no_iterations_leave_nothing() -> None:
    text = "for (var i = 0u; i < 0u; i++) { // #unroll\n    x[i] = 1;\n} // #unroll\n"
    assert squeezed(unroll(text)) == []


def test_other_loops_stay() -> None:
    text = "for (var i = 0u; i < 4u; i++) {\n    x[i] = 1;\n}\n"
    assert unroll(text) == text


@pytest.mark.parametrize("text", ["for (var i = 0u; i < 4u; i++) { // #unroll\n", "} // #unroll\n"])
def test_unmatched_marks_are_refused(text: str) -> None:
    with pytest.raises(MeganeuraError):
        unroll(text)


def test_an_unknown_end_is_refused() -> None:
    with pytest.raises(MeganeuraError, match="COUNT"):
        unroll("for (var i = 0u; i < COUNT; i++) { // #unroll\n} // #unroll\n")
