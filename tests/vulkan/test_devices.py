"""Devices: their descriptions, how one is selected, and the errors without a device."""

from __future__ import annotations

import dataclasses
import json
import re
import uuid
from pathlib import Path

import pytest

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo, Kind
from gpu_executor.errors import DeviceNotFoundError
from gpu_executor.vulkan import instance
from gpu_executor.vulkan.device import KINDS, Device
from tests.conftest import RunPython

RANKING = ["discrete", "integrated", "virtual", "cpu", "other"]
NOWHERE = "/nonexistent/driver.json"


@pytest.fixture(scope="module")
def found() -> list[DeviceInfo]:
    return gx.devices()


def make_info(info: DeviceInfo, name: str, number: int, kind: Kind = "discrete") -> DeviceInfo:
    identity = str(uuid.UUID(int=number << 120 | 0xABCDEF))
    return dataclasses.replace(info, name=name, uuid=identity, kind=kind)


@pytest.fixture(scope="module")
def make_three(found: list[DeviceInfo]) -> list[tuple[int, DeviceInfo]]:
    """Three devices in order of rank, with invented handles."""
    infos = [
        make_info(found[0], "NVIDIA H200", 0xA1),
        make_info(found[0], "Intel Arc 140V", 0xB2, "integrated"),
        make_info(found[0], "llvmpipe (LLVM 15.0.6, 128 bits)", 0x6D, "cpu"),
    ]
    return [(100 + index, info.at(index)) for index, info in enumerate(infos)]


def test_a_device_is_found(found: list[DeviceInfo]) -> None:
    assert found


def test_devices_are_ranked_and_numbered(found: list[DeviceInfo]) -> None:
    ranks = [RANKING.index(info.kind) for info in found]
    assert ranks == sorted(ranks)
    assert [info.index for info in found] == list(range(len(found)))


def test_a_device_describes_itself(found: list[DeviceInfo]) -> None:
    for info in found:
        assert info.name and info.vendor and info.driver and info.driver_version
        assert info.kind in KINDS
        assert info.api_version >= (1, 2, 0)
        assert str(uuid.UUID(info.uuid)) == info.uuid
        assert re.fullmatch("[0-9a-f]{32}", info.pipeline_cache_uuid)
        assert "timelineSemaphore" in info.features


def test_limits_are_at_least_what_vulkan_requires(found: list[DeviceInfo]) -> None:
    for info in found:
        limits = info.limits
        assert limits.max_storage_buffer_range >= 1 << 27
        assert limits.max_allocation >= 1 << 30
        assert limits.max_work_group_invocations >= 128
        assert all(most >= 64 for most in limits.max_work_group_size)
        assert all(most >= 65535 for most in limits.max_work_group_count)
        assert limits.max_push_constants >= 128
        assert limits.max_bound_buffers >= 4
        assert 1 <= limits.buffer_offset_alignment <= 256
        assert 1 <= limits.non_coherent_atom <= 256
        assert 1 <= limits.subgroup_size <= 128
        assert limits.timestamp_period_ns >= 0


def test_heaps_and_queue_families_are_described(found: list[DeviceInfo]) -> None:
    for info in found:
        assert all(heap.bytes > 0 for heap in info.heaps)
        types = [kinds for heap in info.heaps for kinds in heap.types]
        assert any({"host_visible", "host_coherent"} <= set(kinds) for kinds in types)
        assert any("device_local" in kinds for kinds in types)
        assert 0 < info.device_memory <= sum(heap.bytes for heap in info.heaps)
        assert all(family.count > 0 for family in info.queue_families)
        assert any("compute" in family.work for family in info.queue_families)


def test_a_description_survives_a_json_round_trip(found: list[DeviceInfo]) -> None:
    for info in found:
        values = json.loads(json.dumps(info.as_dict()))
        assert values["name"] == info.name
        assert values["uuid"] == info.uuid
        assert values["features"] == sorted(info.features)
        assert values["limits"]["max_allocation"] == info.limits.max_allocation
        assert values["api_version"] == ".".join(map(str, info.api_version))


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (None, 0),
        (0, 0),
        (2, 2),
        ("1", 1),
        (" 1 ", 1),
        ("a1", 0),
        ("B2000000-0000", 1),
        ("6d0000000000", 2),
        ("nvidia", 0),
        ("ARC 140", 1),
        ("llvm", 2),
    ],
)
def test_a_device_is_selected_by_index_uuid_or_name(
    make_three: list[tuple[int, DeviceInfo]], wanted: str | int | None, index: int
) -> None:
    assert instance.choose_device(make_three, wanted) == make_three[index]


def test_devices_are_ordered_by_rank_not_by_discovery(
    found: list[DeviceInfo], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[Kind] = ["cpu", "other", "virtual", "discrete", "integrated"]
    infos = [make_info(found[0], kind, number, kind) for number, kind in enumerate(kinds)]
    opened = instance.Instance()
    monkeypatch.setattr(instance, "enumerate_with", lambda *_arguments: list(range(len(kinds))))
    monkeypatch.setattr(instance, "describe_device", lambda handle: infos[handle])
    ranked = opened.devices()
    opened.close()
    assert [info.kind for _, info in ranked] == RANKING
    assert [info.index for _, info in ranked] == [0, 1, 2, 3, 4]
    assert [kinds[handle] for handle, _ in ranked] == RANKING


def test_the_error_without_a_match_lists_the_devices(
    make_three: list[tuple[int, DeviceInfo]],
) -> None:
    with pytest.raises(DeviceNotFoundError) as caught:
        instance.choose_device(make_three, "Voodoo 2")
    assert "'Voodoo 2'" in str(caught.value)
    assert all(info.name in str(caught.value) for _, info in make_three)
    assert all(info.uuid in str(caught.value) for _, info in make_three)
    assert isinstance(caught.value, gx.NoDeviceError | LookupError)


@pytest.mark.parametrize("wanted", [3, "3", 6, "15"])
def test_an_index_out_of_range_does_not_match_a_name(
    make_three: list[tuple[int, DeviceInfo]], wanted: int | str
) -> None:
    # 6 is a prefix of the UUID 6d..., and "15" is a part of "LLVM 15.0.6".
    with pytest.raises(DeviceNotFoundError):
        instance.choose_device(make_three, wanted)


def test_a_device_is_found_by_its_own_uuid_and_name(found: list[DeviceInfo]) -> None:
    for wanted in (0, found[0].uuid, found[0].uuid[:13], found[0].name):
        with gx.PersistentVulkanBackend(wanted) as gpu:
            assert gpu.device == found[0]


def test_gpu_device_is_read_when_a_backend_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEVICE", "no such device")
    with pytest.raises(DeviceNotFoundError, match="no such device"):
        gx.PersistentVulkanBackend()
    with gx.PersistentVulkanBackend(0) as gpu:
        assert gpu.device.index == 0


def test_a_device_too_old_is_refused_with_its_version(found: list[DeviceInfo]) -> None:
    for old in (
        dataclasses.replace(found[0], api_version=(1, 1, 99)),
        dataclasses.replace(found[0], features=frozenset()),
    ):
        with pytest.raises(gx.NoDeviceError, match="timeline semaphores"):
            Device(None, old)


def test_a_device_without_a_compute_queue_is_refused(found: list[DeviceInfo]) -> None:
    graphics = dataclasses.replace(found[0].queue_families[0], work=("graphics",))
    with pytest.raises(gx.NoDeviceError, match="no queue family that supports compute"):
        Device(None, dataclasses.replace(found[0], queue_families=(graphics,)))


OPEN_AND_SAY_WHY = """
import gpu_executor as gx
for settings in (gx.Settings.from_environment(), gx.Settings()):
    try:
        gx.PersistentVulkanBackend(settings=settings).close()
        print("opens")
    except gx.GpuError as error:
        print(type(error).__name__, error)
"""


def test_without_a_driver_the_error_says_what_to_install(run_python: RunPython) -> None:
    nowhere = {"VK_ICD_FILENAMES": NOWHERE, "VK_DRIVER_FILES": NOWHERE}
    ran = run_python(OPEN_AND_SAY_WHY, **nowhere)
    assert len(ran.stdout.splitlines()) == 2, ran.stderr
    for line in ran.stdout.splitlines():
        assert line.startswith("NoDeviceError ")
        assert "apt-get install mesa-vulkan-drivers" in line


def test_without_the_validation_layer_the_error_says_what_to_install(
    run_python: RunPython, tmp_path: Path
) -> None:
    ran = run_python(OPEN_AND_SAY_WHY, VK_LAYER_PATH=str(tmp_path))
    with_layer, without = ran.stdout.splitlines()
    assert with_layer.startswith("NoDeviceError ")
    assert "apt-get install vulkan-validationlayers" in with_layer
    assert without == "opens"


WITHOUT_A_LOADER = """
import numpy as np, gpu_executor as gx
for ask in (gx.devices, gx.PersistentVulkanBackend):
    try:
        ask()
    except gx.GpuError as error:
        print(type(error).__name__, error)
x = np.arange(5, dtype=np.uint32)
print(gx.CpuBackend().run(gx.kernels.load("vector_add_u32"), x, x))
"""


def test_without_a_loader_the_error_says_what_to_install_and_the_cpu_runs(
    run_python: RunPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vulkan.py").write_text("raise OSError('cannot find Vulkan SDK version')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    ran = run_python(WITHOUT_A_LOADER)
    devices, backend, cpu = ran.stdout.splitlines()
    for line in (devices, backend):
        assert line.startswith("LoaderNotFoundError ")
        assert "apt-get install libvulkan1" in line
    assert cpu == "[0 2 4 6 8]"
