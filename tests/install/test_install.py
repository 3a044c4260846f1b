"""Both kinds of install, looked at from outside the checkout: the package, its rules, its shaders, its command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

for needed in ("hatchling", "editables"):
    pytest.importorskip(needed, reason="the build backend is not installed, so nothing can be built here")

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = {"rules": "*.egg", "shaders": "*.wgsl"}


@dataclass(frozen=True)
class Environment:
    """A fresh environment that holds this package, and sees the dependencies of the one the tests run in."""

    folder: Path
    editable: bool

    @property
    def scripts(self) -> Path:
        return self.folder / ("Scripts" if os.name == "nt" else "bin")

    def run(self, *command: str) -> str:
        """Output of a command of this environment, run outside the checkout."""
        program = str(self.scripts / command[0])
        variables = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
        done = subprocess.run(
            [program, *command[1:]], cwd=self.folder, env=variables, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module", params=["wheel", "editable"])
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp(request.param)
    editable = request.param == "editable"
    made = Environment(folder, editable)
    _quiet(sys.executable, "-m", "venv", "--without-pip", str(folder))
    # After its own packages, the new environment looks among those of the environment that runs the tests.
    own = made.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(own, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    what = ["--editable", str(ROOT)] if editable else [str(ROOT)]
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    python = str(made.scripts / "python")
    _quiet(sys.executable, "-m", "pip", "--python", python, "install", "--ignore-installed", *options, *what)
    return made


def _quiet(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_package_is_the_installed_one(environment: Environment) -> None:
    where = Path(environment.run("python", "-c", "import meganeura; print(meganeura.__file__)").strip())
    assert where.is_relative_to(ROOT if environment.editable else environment.folder)
    assert (where.parent / "py.typed").is_file()


@pytest.mark.parametrize("kind", SHIPPED)
def test_rules_and_shaders_are_found(environment: Environment, kind: str) -> None:
    code = f"from meganeura.resources import resource_dir; print(resource_dir({kind!r}))"
    folder = Path(environment.run("python", "-c", code).strip())
    # An editable install must read the checkout, not the copy that the build leaves beside it.
    assert folder == ROOT / kind if environment.editable else folder.is_relative_to(environment.folder)
    names = {path.name: path.read_bytes() for path in folder.glob(SHIPPED[kind])}
    assert names == {path.name: path.read_bytes() for path in (ROOT / kind).glob(SHIPPED[kind])}
    assert names


def test_the_command_is_there(environment: Environment) -> None:
    version = environment.run("meganeura", "--version")
    assert version.startswith("meganeura ") and version.split()[1][0].isdigit()
    assert "meganeura demo" in environment.run("meganeura", "--help")


def test_rules_are_listed(environment: Environment) -> None:
    listed = json.loads(environment.run("meganeura", "rules", "list", "--json"))
    folder = ROOT / "rules" if environment.editable else environment.folder
    assert listed
    assert all(Path(rule["file"]).is_relative_to(folder) for rule in listed)
