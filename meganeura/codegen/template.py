"""Specialising the WGSL files in `shaders/`.

A template is a WGSL file that a person can read. Three constructs specialise it:

- `const NAME: u32 = 8u;` and `alias NAME = f32;`: the value is replaced when a parameter of that name is given;
- `// #if flag` ... `// #else` ... `// #endif`: kept or dropped; flags not given are false; may nest;
  `// #if !flag` negates;
- `// #replace name` ... `// #end`: the lines between are replaced when code of that name is given.

Rendered with no parameters at all a template is valid WGSL (checked by a test).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from meganeura.errors import MeganeuraError
from meganeura.resources import resource_dir

_PARAMETER = re.compile(
    r"^(?P<head>\s*(?:const|alias)\s+(?P<name>\w+)\s*(?::\s*(?P<type>\w+))?\s*=\s*)(?P<value>[^;]+);"
)


@cache
def template_text(name: str) -> str:
    """The text of `shaders/NAME.wgsl`."""
    path = resource_dir("shaders") / f"{name}.wgsl"
    if not path.is_file():
        raise MeganeuraError(f"no shader template {name!r}", source=str(path), remedy="reinstall the package")
    return path.read_text()


def render_template(
    name: str,
    parameters: Mapping[str, Any] | None = None,
    flags: Mapping[str, bool] | None = None,
    code: Mapping[str, str] | None = None,
) -> str:
    """Specialise a template; an unknown parameter, flag or code name is an error.

    Args:
        parameters: values of `const` and `alias` declarations. Ints become `8u` where the declared type is u32,
            floats are written so that they read back exactly.
        flags: conditions of `#if`. code: replacements of `#replace` sections.
    """
    parameters, flags, code = dict(parameters or {}), dict(flags or {}), dict(code or {})
    used: set[str] = set()
    lines: list[str] = []
    conditions: list[bool] = []
    skipping_default = False
    for line in template_text(name).splitlines():
        words = line.strip().split()
        directive = words[1] if len(words) > 1 and words[0] == "//" and words[1].startswith("#") else ""
        if directive == "#if":
            flag = words[2].lstrip("!")
            used.add(flag)
            conditions.append(bool(flags.get(flag, False)) != words[2].startswith("!"))
        elif directive == "#else":
            conditions[-1] = not conditions[-1]
        elif directive == "#endif":
            conditions.pop()
        elif not all(conditions):
            used.update(m["name"] for m in [_PARAMETER.match(line)] if m)
            used.update([words[2]] if directive == "#replace" else [])
        elif directive == "#replace":
            used.add(words[2])
            if words[2] in code:
                lines.append(code[words[2]])
                skipping_default = True
        elif directive == "#end":
            skipping_default = False
        elif not skipping_default:
            lines.append(_substitute(line, parameters, used))
    unknown = (set(parameters) | set(flags) | set(code)) - used
    if unknown:
        raise MeganeuraError(f"shader template {name!r} has no {', '.join(sorted(unknown))}")
    return "\n".join(lines) + "\n"


def _substitute(line: str, parameters: Mapping[str, Any], used: set[str]) -> str:
    match = _PARAMETER.match(line)
    if match is None:
        return line
    used.add(match["name"])
    if match["name"] not in parameters:
        return line
    return f"{match['head']}{literal(parameters[match['name']], match['type'])};{line[match.end() :]}"


def literal(value: Any, wgsl_type: str | None = None) -> str:
    """A WGSL literal of a Python value; text passes through. Infinities and NaN have no literal: bitcast them."""
    if isinstance(value, str):
        return value
    if wgsl_type in ("u32", "i32") or (wgsl_type is None and isinstance(value, int) and not isinstance(value, bool)):
        return f"{int(value)}u" if wgsl_type != "i32" else f"{int(value)}i"
    if wgsl_type == "bool" or isinstance(value, bool):
        return "true" if value else "false"
    number = float(value)
    if number != number or number in (float("inf"), float("-inf")):
        raise MeganeuraError("WGSL has no literal for infinity or NaN")
    return f"{number!r}f" if wgsl_type != "f16" else f"{number!r}h"
