"""AMD's compiler on null hardware: its driver, its errors, its statistics; real pipelines."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from gpu_executor.compile_report.null_hardware import (
    STATISTICS,
    find_compiler_error,
    find_driver,
    make_environment,
    name_statistics,
)
from gpu_executor.compile_report.report import compile_families
from gpu_executor.errors import GpuError, NoDeviceError
from tests.conftest import RunPython

COMPILE = """
import dataclasses, json
from gpu_executor.compile_report.null_hardware import compile_request
from gpu_executor.compile_report.workload import RecordingDevice
from gpu_executor.kernels import load
from gpu_executor.kernels.sorting import Order, choose_tile, scatter_kernel
from gpu_executor.vulkan.device import Device, describe_device
from gpu_executor.vulkan.instance import Instance

instance = Instance()
[(physical, _)] = instance.devices()
info = describe_device(physical, statistics=True)
device = Device(physical, info)
recorded = RecordingDevice(info)
product = load("bls12_381_fr_mont_mul")
tile = choose_tile(info)
recorded.add(product, 128, 1)
recorded.add(scatter_kernel(tile, 8, Order.UNSIGNED), tile.work_group, 1)
found = [compile_request(device, each) for each in recorded.requests.values()]
device.info = dataclasses.replace(info, driver="another driver")
found += [compile_request(device, each) for each in recorded.requests.values()]
device.close()
instance.close()
print(json.dumps([[each.module, each.error, each.instructions, each.vgprs, each.spills,
                   each.code_bytes, each.waves] for each in found]))
"""


def test_pipelines_are_compiled_and_errors_that_the_compiler_only_prints_are_found(
    run_python: RunPython,
) -> None:
    """The search for the lowest bit of a ballot, which Mesa 22.3.6 leaves out, is replaced for
    RADV; for another driver the modules stay as they are."""
    done = run_python(COMPILE, **make_environment("navi21", find_driver()))
    assert done.returncode == 0, done.stderr
    product, scatter, same, unchanged = json.loads(done.stdout)
    module, error, instructions, vgprs, spills, code_bytes, waves = product
    assert (module, error, spills) == ("wide_checked_mul", "", False)
    assert 500 < instructions < 2000
    assert 20 < vgprs < 80
    assert 4 * instructions < code_bytes < 12 * instructions
    assert waves > 8
    assert scatter[:2] == ["sort_scatter_keys", ""]
    assert same == product
    assert unchanged[1] == "" or "left out an instruction" in unchanged[1]


def test_a_family_that_does_not_exist_is_an_error_in_words() -> None:
    with pytest.raises(GpuError, match=r"RADV_FORCE_FAMILY=no_such_family.*no_such_family"):
        compile_families(["no_such_family"])


def test_the_driver_is_found_where_it_is_installed_or_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    installed, given = tmp_path / "radeon_icd.riscv64.json", tmp_path / "own" / "radeon_icd.json"
    given.parent.mkdir()
    for each in (installed, given):
        each.write_text("{}")
    assert find_driver({}, [tmp_path]) == installed
    others = f"/nowhere/lvp_icd.riscv64.json:{given}"
    assert find_driver({"VK_DRIVER_FILES": others}, [tmp_path]) == given
    assert find_driver({"VK_DRIVER_FILES": "/nowhere/lvp_icd.json"}, [tmp_path]) == installed
    environment = make_environment("vega10", given)
    assert environment["RADV_FORCE_FAMILY"] == "vega10"
    assert environment["VK_DRIVER_FILES"] == environment["VK_ICD_FILENAMES"] == str(given)


def test_a_missing_driver_is_an_error_that_names_the_package(tmp_path: Path) -> None:
    with pytest.raises(NoDeviceError, match="apt-get install mesa-vulkan-drivers"):
        find_driver({}, [tmp_path])


def test_statistics_get_our_names_and_missing_ones_are_refused() -> None:
    reported = {theirs: float(number) for number, theirs in enumerate(STATISTICS.values())}
    found = name_statistics({**reported, "Copies": 9.0})
    assert found["instructions"] == 0
    assert found["inverse_throughput"] == len(STATISTICS) - 1
    del reported["Latency"]
    with pytest.raises(GpuError, match="reports no Latency; it reports Instructions"):
        name_statistics(reported)


def test_errors_are_read_from_what_the_compiler_prints() -> None:
    printed = (
        "ACO ERROR:\n    In file ../src/amd/compiler/aco_instruction_selection.cpp:1778\n"
        "    Unimplemented NIR instr bit size: vec1 32 div ssa_318 = find_lsb ssa_317\n"
    )
    assert find_compiler_error("WARNING: radv is a driver\n" + printed).endswith(
        "Unimplemented NIR instr bit size: vec1 32 div ssa_318 = find_lsb ssa_317"
    )
    assert find_compiler_error("WARNING: radv is not a conformant driver\n") == ""
