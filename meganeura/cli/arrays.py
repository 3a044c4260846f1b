"""Arrays given and taken as .npy files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from meganeura.cli.options import Binding, once_each
from meganeura.errors import InputError
from meganeura.ir.types import TensorType

INPUT = click.option(
    "--input",
    "inputs",
    type=Binding(click.Path(path_type=Path), "NAME=FILE.npy"),
    multiple=True,
    callback=once_each,
    help="An input's array, or an .npz archive that has one of its name; repeatable.",
)


def load_arrays(files: Mapping[str, Path], types: Mapping[str, TensorType]) -> dict[str, np.ndarray]:
    """The arrays of the given files by input name.

    Raises:
        InputError: the model has no such input, or a file is not there or holds no array.
    """
    arrays = {}
    for name, path in files.items():
        if name not in types:
            known = ", ".join(f"{n} {t}" for n, t in types.items()) or "none"
            raise InputError(f"the model has no input {name!r}", source=name, remedy=f"inputs are {known}")
        try:
            array = np.load(path, allow_pickle=False)
        except FileNotFoundError as error:
            raise InputError(f"no such file: {path}", source=name) from error
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path} is not a .npy file of numbers", source=name) from error
        if not isinstance(array, np.ndarray):  # an .npz archive
            array = _from_archive(array, name, path)
        arrays[name] = array
    return arrays


def _from_archive(archive: Any, name: str, path: Path) -> np.ndarray:
    with archive:
        if name not in archive.files:
            known = ", ".join(archive.files) or "none"
            raise InputError(f"{path} holds no array {name!r}", source=name, remedy=f"its arrays are {known}")
        try:
            return archive[name]
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{path} is damaged, or holds no numbers", source=name) from error


def save_arrays(folder: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, Path]:
    """Write each array to a file in `folder`, made if need be; returns the files by name."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Path] = {}
    for name, array in arrays.items():
        stem = re.sub(r"[^\w.-]", "_", name).lstrip(".") or "output"
        path, again = folder / f"{stem}.npy", 1
        while path in files.values():  # two names that differ only in what a file name can't hold
            path, again = folder / f"{stem}_{again}.npy", again + 1
        np.save(path, array)
        files[name] = path
    return files


def describe(array: np.ndarray) -> dict[str, Any]:
    """Shape and dtype as JSON."""
    return {"shape": list(array.shape), "dtype": str(array.dtype)}
