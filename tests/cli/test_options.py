"""Options: what cannot work is refused in words before anything is opened or measured."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gpu_executor.cli import doctor, options
from gpu_executor.cli.bench import bench
from gpu_executor.cli.commands import commands
from gpu_executor.plan.calibration import Calibration
from gpu_executor.vulkan import session
from gpu_executor.vulkan.instance import Instance, find_devices
from gpu_executor.vulkan.session import Session
from gpu_executor.webgpu.wgpu_executor import WgpuExecutor
from tests.support.calibrations import LAVAPIPE


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments)


def list_commands(
    group: click.Group = commands, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from list_commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.fixture
def nothing_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("something was opened")

    for kind in (Session, WgpuExecutor, Instance):
        monkeypatch.setattr(kind, "__init__", refuse)


ALL = dict(list_commands())
NUMBERS = [
    (path, option.opts[0])
    for path, command in ALL.items()
    for option in command.params
    if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
]
"""Every command and its options that take a number."""
ARGUMENTS: dict[tuple[str, ...], tuple[str, ...]] = {("top",): ("9400",)}
UNLIMITED = ("--seed", "--count", "--rounds")
"""Options that take any positive number."""


def test_options_with_numbers_are_found() -> None:
    assert {("smoke",), ("soak",), ("top",), ("bench", "stream")} <= {path for path, _ in NUMBERS}
    assert len(NUMBERS) >= 9


@pytest.mark.usefixtures("nothing_opens")
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e300", "9" * 30, "many", "", "1,5"])
@pytest.mark.parametrize(("path", "option"), NUMBERS, ids=lambda each: " ".join([*each]))
def test_numbers_that_cannot_be_are_refused(path: tuple[str, ...], option: str, value: str) -> None:
    if option in UNLIMITED and value == "9" * 30:
        return
    refused = run(*path, *ARGUMENTS.get(path, ()), f"{option}={value}")
    assert refused.exit_code == 2, refused.output
    assert f"Invalid value for '{option}'" in refused.output


@pytest.mark.usefixtures("nothing_opens")
@pytest.mark.parametrize(
    "arguments",
    ["smoke --size 0", "soak --minutes 0", "bench stream --elements 0", "bench kzg --blobs 0"],
)
def test_nothing_is_not_checked_or_measured(arguments: str) -> None:
    refused = run(*arguments.split())
    assert refused.exit_code == 2
    assert re.search(r"0(\.0)? is not in the range", refused.output)


def test_a_count_is_limited_by_the_memory_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "read_main_memory", lambda: 1_000_000)
    refused = run("smoke", "--size", "2000")
    assert "2,000 would take 0.0 GiB of memory; this machine has 0.0 GiB" in refused.output
    monkeypatch.setattr(options, "read_main_memory", lambda: None)  # the system does not say
    assert options.CountInMemory(1 << 60).convert("2000", None, None) == 2000


# --- files ---


WITH_JSON = [
    path
    for path, command in ALL.items()
    if any("--json" in option.opts for option in command.params)
]


def test_every_command_with_json_takes_a_file() -> None:
    assert {("devices",), ("calibrate",), ("soak",), ("bench", "all")} <= {*WITH_JSON}
    for path in WITH_JSON:
        option = next(each for each in ALL[path].params if "--json" in each.opts)
        assert isinstance(option.type, click.Path) and option.name == "json_file"
        assert "- is the standard output" in (getattr(option, "help", "") or "")


@pytest.mark.usefixtures("nothing_opens")
@pytest.mark.parametrize("path", WITH_JSON, ids=" ".join)
@pytest.mark.parametrize("name", ["missing/report.json", "file/report.json", "."])
def test_a_json_file_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, path: tuple[str, ...], name: str
) -> None:
    (tmp_path / "file").touch()
    refused = run(*path, "--json", str(tmp_path / name))
    assert refused.exit_code == 2
    assert "Invalid value for '--json'" in refused.output
    assert "cannot be written" in refused.output


@pytest.mark.parametrize("brackets", [False, True])
def test_json_goes_to_a_file_or_alone_to_standard_output(tmp_path: Path, brackets: bool) -> None:
    file = tmp_path / ("[red]devices.json" if brackets else "devices.json")
    shown = run("devices", "--json", str(file))
    assert shown.exit_code == 0
    assert "Vulkan devices, best first" in shown.stdout and f"written to {file}\n" in shown.stdout
    printed = run("devices", "--json", "-")
    assert json.loads(printed.stdout) == json.loads(file.read_text())
    assert [each["uuid"] for each in json.loads(printed.stdout)] == [
        each.uuid for each in find_devices()
    ]
    assert "Vulkan devices, best first" in printed.stderr and "written" not in printed.output
    assert "Vulkan devices, best first" in run("devices").stdout, "the next command prints there"


def test_a_calibration_goes_to_a_file_or_alone_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(session, "measure", lambda *_arguments: LAVAPIPE)
    printed = run("calibrate", "--json", "-")
    assert printed.exit_code == 0, printed.output
    assert Calibration.from_json(printed.stdout) == LAVAPIPE
    assert ", saved in" in printed.stderr
    file = tmp_path / "calibration.json"
    shown = run("calibrate", "--show", "--json", str(file))
    assert Calibration.from_json(file.read_text()) == LAVAPIPE
    assert "upload" in shown.stdout and f"written to {file}" in shown.stdout


# --- the cache folder ---


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/nothing/below", "/sys/nothing"])
def test_a_cache_folder_that_cannot_be_written_is_not_said_to_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str
) -> None:
    (tmp_path / "file").touch()
    named = tmp_path / folder  # an absolute path stays as it is
    monkeypatch.setenv("GPU_CACHE_DIR", str(named))
    monkeypatch.setattr(doctor, "check_every_path", lambda size: [("one path", True)])
    shown = run("doctor")
    assert f"absent  pipeline cache: {named} cannot be written: " in shown.output
    assert "Set GPU_CACHE_DIR to another folder, or GPU_CACHE=0" in shown.output
    assert shown.exit_code == 0, "kernels run without a cache"
    refused = run("calibrate")
    assert refused.exit_code == 1
    assert f"the calibration cannot be saved in {named}: " in refused.output


def test_a_missing_cache_folder_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "missing" / "cache"
    monkeypatch.setenv("GPU_CACHE_DIR", str(folder))
    monkeypatch.setattr(doctor, "check_every_path", lambda size: [("one path", True)])
    assert f"works   pipeline cache: {folder}\n" in run("doctor").output
    assert [each.name for each in folder.iterdir() if "tmp" in each.name] == []


def test_a_benchmark_compiles_usual_forms_and_leaves_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GPU_QUICK_PIPELINES", raising=False)
    seen: list[str | None] = []

    def look() -> None:
        seen.append(os.environ.get("GPU_QUICK_PIPELINES"))

    monkeypatch.setitem(bench.commands, "arrays", click.Command("arrays", callback=look))
    assert CliRunner().invoke(commands, ["bench", "arrays"]).exit_code == 0
    assert "GPU_QUICK_PIPELINES" not in os.environ
    monkeypatch.setenv("GPU_QUICK_PIPELINES", "1")
    assert CliRunner().invoke(commands, ["bench", "arrays"]).exit_code == 0
    assert seen == ["0", "1"]
