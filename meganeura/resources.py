"""Where the files outside the package are: `rules/` and `shaders/`."""

from __future__ import annotations

from pathlib import Path

from meganeura.errors import MeganeuraError


def resource_dir(kind: str) -> Path:
    """The folder `rules` or `shaders`: package data in an installed wheel, the repository root in a checkout.

    The repository wins where both exist, because an editable install can leave a stale copy in the package.
    """
    package = Path(__file__).resolve().parent
    root = package.parent
    candidates = [root / kind, package / kind] if (root / "pyproject.toml").is_file() else [package / kind]
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise MeganeuraError(
        f"the folder {kind!r} is not there", source=str(candidates[-1]), remedy="reinstall the package"
    )
