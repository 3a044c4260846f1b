"""Writing out loops of a shader template whose trip count is known.

Arrays that are indexed by constants only can live in registers; drivers differ in when they unroll a loop
themselves. A template marks such a loop, and stays valid WGSL unexpanded::

    for (var i = 0u; i < CHUNKS; i++) { // #unroll
        total[i] = total[i] * keep;
    } // #unroll
"""

from __future__ import annotations

import re

from meganeura.errors import MeganeuraError

_OPEN = re.compile(r"\s*for \(var (?P<name>\w+) = 0u; (?P=name) < (?P<end>\w+); (?P=name)\+\+\) \{ // #unroll\s*")
_CLOSE = re.compile(r"\s*\} // #unroll\s*")
_CONSTANT = re.compile(r"^\s*const (\w+)(?:\s*:\s*u32)?\s*=\s*(\d+)u;", re.MULTILINE)


def unroll(text: str) -> str:
    """Replace every marked loop by one block per iteration, its variable replaced by the number.

    A loop's end is a number like `4u` or a module constant with such a value. Marked loops may nest.
    """
    constants = {name: int(value) for name, value in _CONSTANT.findall(text)}
    lines = text.splitlines()
    expanded, rest = _expand(lines, 0, constants, nested=False)
    assert rest == len(lines)
    return "\n".join(expanded) + "\n"


def _expand(lines: list[str], at: int, constants: dict[str, int], nested: bool) -> tuple[list[str], int]:
    """Lines from `at` on, up to the end of the text or of the enclosing loop, and where the next ones start."""
    result: list[str] = []
    while at < len(lines):
        line = lines[at]
        at += 1
        if _CLOSE.fullmatch(line):
            if nested:
                return result, at
            raise MeganeuraError("a shader template closes an unrolled loop that it never opened")
        header = _OPEN.fullmatch(line)
        if header is None:
            result.append(line)
            continue
        body, at = _expand(lines, at, constants, nested=True)
        end = header["end"]
        if not end[0].isdigit() and end not in constants:
            raise MeganeuraError(f"a shader template unrolls a loop up to {end}, which is no constant")
        count = int(end[:-1]) if end[0].isdigit() else constants[end]
        variable = re.compile(rf"\b{header['name']}\b")
        for i in range(count):
            result += ["{", *(variable.sub(f"{i}u", inner) for inner in body), "}"]
    if nested:
        raise MeganeuraError("a shader template leaves an unrolled loop open")
    return result, at
