"""The wheel and the sdist are complete, and the installed wheel passes the smoke check."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.pages import REPOSITORY

pytestmark = pytest.mark.slow
SUFFIXES = {".py", ".spv", ".wgsl", ".glsl", ".comp", ".json", ".js", ".css", ".html", ".typed"}
EXTRAS = ("wgpu", "ray", "prometheus_client", "eth_account", "py_arkworks_bls12381", "cloudpickle")
HIDE_EXTRAS = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None  # an import of it raises ImportError
from gpu_executor.cli import main
main()
"""


def list_package_files() -> set[str]:
    """The files of the package in the repository, relative to src/."""
    source = REPOSITORY / "src"
    files = (path for path in source.rglob("*") if path.suffix in SUFFIXES)
    return {path.relative_to(source).as_posix() for path in files}


def run(*command: str | Path) -> str:
    """Run a command outside the repository's sources and return its output."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {"GPU_VALIDATION": "0"}
    done = subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel, built from the sdist, and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, REPOSITORY)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def installed(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the wheel. Dependencies are those of this Python."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Only what is imported is compiled, when it is.
    target = ["--no-deps", "--no-index", "--no-compile", "--target", str(packages)]
    run(sys.executable, "-m", "pip", "install", "--quiet", *target, distributions[0])
    import numpy as np

    dependencies = Path(np.__file__).parents[1]
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    return folder / "bin" / "python"


def test_the_wheel_has_every_file_of_the_package(distributions: tuple[Path, Path]) -> None:
    expected = list_package_files()
    assert sum(name.endswith(".spv") for name in expected) > 50
    assert any(name.endswith(".wgsl") for name in expected)
    with zipfile.ZipFile(distributions[0]) as wheel:
        assert expected <= set(wheel.namelist())
    assert distributions[0].name.endswith("-py3-none-any.whl")


def test_the_sdist_has_every_file_of_the_package(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {f"src/{name}" for name in list_package_files()} <= names


def test_the_installed_wheel_passes_the_check_of_webgpu(installed: Path) -> None:
    where = run(installed, "-c", "import gpu_executor; print(gpu_executor.__file__)").strip()
    assert where.startswith(str(installed.parents[1]))
    assert "right (int64): sums" in run(installed, REPOSITORY / "tools" / "check_webgpu.py")


def test_the_installed_wheel_passes_the_smoke_check_without_extras(installed: Path) -> None:
    said = run(installed, "-c", HIDE_EXTRAS, "smoke")
    assert said.count("right") == 11
    assert "wrong" not in said
