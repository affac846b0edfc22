"""The workflow can be read, and the Dockerfiles copy files that exist."""

from __future__ import annotations

import pytest
import yaml

from tests.support.pages import REPOSITORY


def test_the_workflow_covers_the_systems_and_versions() -> None:
    jobs = yaml.safe_load((REPOSITORY / ".github/workflows/tests.yml").read_text())["jobs"]
    linux, webgpu = (jobs[name]["strategy"]["matrix"] for name in ("linux", "webgpu"))
    assert linux["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert linux["os"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    assert [each.partition("-")[0] for each in webgpu["os"]] == ["macos", "windows"]


@pytest.mark.parametrize("name", ["lavapipe", "nvidia"])
def test_a_dockerfile_copies_files_that_exist(name: str) -> None:
    lines = (REPOSITORY / "docker" / f"{name}.Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert {"pyproject.toml", "src"} <= set(copied)
    assert [word for word in copied if not (REPOSITORY / word).exists()] == []
