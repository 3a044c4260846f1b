"""A failing graph as files, and the command that replays it."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from meganeura.bisect.finding import Finding
from meganeura.bisect.setting import Case
from meganeura.errors import InputError
from meganeura.ir.text import format_graph

GRAPH, INPUTS, KERNEL = "graph.txt", "inputs.npz", "kernel.wgsl"
_INLINE = 1 << 30
"""Constants are written out: the text form reads no other file."""


def check_folder(folder: Path) -> None:
    """Raise InputError unless the folder can be written: it must not exist, or be empty."""
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if os.path.lexists(folder):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise InputError(f"{folder} {what}", source=str(folder), remedy="name a folder that does not exist yet")


def write_cases(folder: Path, findings: Mapping[str, Sequence[Finding]]) -> list[tuple[Finding, Path]]:
    """Write the graph and inputs of every finding that has them, and a wrong kernel's WGSL; all of it or nothing.

    Args:
        folder: made; must not exist, or be empty. One case lies in it, several in folders of their own inside.
        findings: by the name of the model's program.

    Returns:
        Each finding written with its folder.
    Raises:
        InputError: the folder is taken. OSError: it can't be written.
    """
    check_folder(folder)
    several = [(name, f) for name, group in findings.items() for f in group if f.case is not None]
    target = folder.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    written: list[tuple[Finding, Path]] = []
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for number, (name, finding) in enumerate(several, 1):
            inner = "" if len(several) == 1 else f"{number}-{_stem(name)}-{finding.stage}"
            if finding.case is not None:
                _write(building / inner, finding.case, finding)
                written.append((finding, folder / inner))
        building.chmod(0o755)  # mkdtemp's folders are private
        if target.exists():
            target.rmdir()
        building.rename(target)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return written


def replay_command(finding: Finding, folder: Path, flags: Sequence[str] = ()) -> str:
    """The command line that runs a written case again; `flags` are those of the first run that matter."""
    parts = ["meganeura", "verify", str(folder / GRAPH)]
    if finding.case is not None:
        for name in sorted(finding.case.values):
            parts += ["--input", f"{name}={folder / INPUTS}"]
    return shlex.join([*parts, *flags])


def _write(folder: Path, case: Case, finding: Finding) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"# {line}\n" for line in finding.summary.splitlines())
    if finding.kernel is not None:
        (folder / KERNEL).write_text(finding.kernel.wgsl, encoding="utf-8")
    (folder / GRAPH).write_text(lines + format_graph(case.graph, _INLINE), encoding="utf-8")
    with (folder / INPUTS).open("wb") as file:
        np.savez(file, **{name: np.asarray(array) for name, array in case.values.items()})  # type: ignore[arg-type]


def _stem(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name).lstrip(".") or "model"
