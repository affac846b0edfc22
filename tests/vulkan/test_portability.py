"""Drivers that implement a subset of Vulkan, such as MoltenVK: how they are found and opened, and
that no kernel shuffles across lane 32 there. No such driver runs on Linux; lavapipe stands in."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor
import gpu_executor as gx
from gpu_executor.curves import BLS12_381_G1, BLS12_381_G2
from gpu_executor.device_info import PORTABILITY_SUBSET, DeviceInfo
from gpu_executor.errors import DeviceLacksError, VulkanError
from gpu_executor.kernels.curves import count_lanes
from gpu_executor.kernels.modules import load_spirv
from gpu_executor.kernels.sorting import Order, choose_tile, exclusive_scan_kernel, scatter_kernel
from gpu_executor.ops.block_transforms import has_block_roots
from gpu_executor.primes import BLS12_381_FR
from gpu_executor.spirv import CAPABILITY_NAMES
from gpu_executor.vulkan import device, instance
from gpu_executor.vulkan.binding import enumerate_with, vk
from gpu_executor.vulkan.device_checks import check_device_runs
from tests.support.vulkan_faults import Fail, fail

__all__ = ["fail"]  # a fixture

SOURCES = Path(gpu_executor.__file__).parent
FLAG = 1  # VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
ENUMERATION = "VK_KHR_portability_enumeration"


def list_names(pointer: Any, count: int) -> list[str]:
    return [vk.ffi.string(pointer[index]).decode() for index in range(count)]


# --- finding and opening ---


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """A growing list of the instances that are created: their flags, and whether they have the
    extension."""
    calls: list[tuple[int, bool]] = []
    create = vk.vkCreateInstance

    def noted(info: Any, *others: Any) -> object:
        names = list_names(info.ppEnabledExtensionNames, info.enabledExtensionCount)
        calls.append((info.flags, ENUMERATION in names))
        return create(info, *others)

    monkeypatch.setattr(vk, "vkCreateInstance", noted)
    return calls


def test_a_loader_with_the_extension_is_asked_for_all_drivers(
    created: list[tuple[int, bool]],
) -> None:
    assert gx.devices()
    assert created == [(FLAG, True)]


def test_an_older_loader_is_not_asked(
    created: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "read_loader_version", lambda: (1, 3, 206))
    assert gx.devices()
    assert created == [(0, False)]


def test_a_loader_of_vulkan_1_0_has_that_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def lack(*_: object) -> None:
        raise AttributeError("function/symbol 'vkEnumerateInstanceVersion' not found")

    assert instance.read_loader_version() >= (1, 1, 0)
    monkeypatch.setattr(vk, "vkEnumerateInstanceVersion", lack)
    assert instance.read_loader_version() == (1, 0, 0)


def test_a_loader_that_refuses_the_extension_is_asked_without_it(
    fail: Fail, request: pytest.FixtureRequest
) -> None:
    """As MoltenVK does where it is used without a loader."""
    fail("vkCreateInstance", vk.VK_ERROR_EXTENSION_NOT_PRESENT, on=1)
    created = request.getfixturevalue("created")
    assert gx.devices()
    assert created == [(FLAG, True), (0, False)]


@pytest.mark.parametrize(
    ("code", "calls"), [("EXTENSION_NOT_PRESENT", 2), ("INCOMPATIBLE_DRIVER", 1)]
)
def test_a_loader_that_creates_no_instance_is_an_error_in_words(
    fail: Fail, request: pytest.FixtureRequest, code: str, calls: int
) -> None:
    fail("vkCreateInstance", getattr(vk, f"VK_ERROR_{code}"))
    created = request.getfixturevalue("created")
    with pytest.raises(gx.NoDeviceError, match=rf"found no driver.*To install one.*{code}"):
        gx.devices()
    assert len(created) == calls


def test_a_device_of_a_subset_is_opened_with_its_extension(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Vulkan demands of devices that have it."""
    listed = enumerate_with

    def list_more(call: Any, kind: str, *arguments: Any) -> list[Any]:
        found = listed(call, kind, *arguments)
        if kind == "VkExtensionProperties":
            more = vk.ffi.new("VkExtensionProperties *")
            vk.ffi.memmove(more.extensionName, PORTABILITY_SUBSET.encode(), len(PORTABILITY_SUBSET))
            found.append(more[0])
        return found

    enabled: list[str] = []

    def create(_physical: Any, info: Any, *_: Any) -> None:
        enabled.extend(list_names(info.ppEnabledExtensionNames, info.enabledExtensionCount))
        raise VulkanError("vkCreateDevice", -7, "VK_ERROR_EXTENSION_NOT_PRESENT")

    monkeypatch.setattr(device, "enumerate_with", list_more)
    assert not gpu.device.is_portability_subset
    assert gx.devices()[0].is_portability_subset
    monkeypatch.setattr(vk, "vkCreateDevice", create)
    with pytest.raises(VulkanError):
        gx.PersistentVulkanBackend()
    assert PORTABILITY_SUBSET in enabled


def test_nothing_that_the_subset_may_lack_is_used() -> None:
    """Events are all that it may lack of what computes."""
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    assert "vkCmdPipelineBarrier" in text
    assert not re.findall(r"vk\w*Event\w*|vkCreateImage\w*|vkCreateSampler", text)


# --- subgroups ---


def make_info(
    info: DeviceInfo, size: int, least: int, vendor: str = "AMD", *, subset: bool = True
) -> DeviceInfo:
    """The description of a GPU with subgroups of `size`, or of at least `least`, whose pipelines
    cannot require a size."""
    limits = dataclasses.replace(
        info.limits,
        subgroup_size=size,
        min_subgroup_size=least,
        max_required_invocations=0,
        max_storage_buffer_range=1 << 32,
    )
    extensions = info.extensions | {PORTABILITY_SUBSET} if subset else info.extensions
    made = dataclasses.replace(
        info, kind="discrete", vendor=vendor, limits=limits, extensions=extensions
    )
    return made.without_subgroups() if made.has_unreliable_subgroups else made


@pytest.mark.parametrize(
    ("size", "least", "vendor", "subset", "lanes"),
    [
        (64, 64, "AMD", False, 64),
        (64, 32, "AMD", False, 32),
        (64, 64, "AMD", True, 32),
        (32, 32, "AMD", True, 32),
        (32, 8, "Intel", True, 8),
        (32, 8, "Intel", False, 8),
        (32, 4, "Apple", True, 32),
        (32, 32, "NVIDIA", False, 32),
        (4, 4, "Google", False, 4),
    ],
)
def test_the_lanes_of_shuffles(
    gpu: gx.PersistentVulkanBackend, size: int, least: int, vendor: str, subset: bool, lanes: int
) -> None:
    assert make_info(gpu.device, size, least, vendor, subset=subset).shuffle_lanes == lanes


def list_modules(capability: str) -> set[str]:
    number = {name: number for number, name in CAPABILITY_NAMES.items()}[capability]
    modules = (path.stem for path in (SOURCES / "kernels" / "spirv").glob("*.spv"))
    return {name for name in modules if has_capability(load_spirv(name), number)}


def has_capability(code: bytes, number: int) -> bool:
    """Whether a module declares a capability; OpCapability is 17, and all of them come first."""
    words = np.frombuffer(code, "<u4")[5:]
    at = 0
    while words[at] == 2 << 16 | 17:
        if words[at + 1] == number:
            return True
        at += 2
    return False


def test_the_kernels_that_shuffle_are_these() -> None:
    """In groups that `count_lanes` chooses, within blocks of `shuffle_lanes`, or within whatever
    subgroup there is (the sort). A new one must be right in subgroups of every size."""
    in_groups = {
        f"curve{degree}_{operation}"
        for degree in (1, 2)
        for operation in (
            *("join_windows", "combine", "grouped_accumulate", "sum_runs", "sum_pairs"),
            *("shift_points", "add_terms"),
        )
    }
    of_pairs = {"curve2_accumulate"}
    in_blocks = {"block_dit_pass", "block_dif_pass"}
    in_subgroups = {"sort_scatter_keys", "sort_scatter_pairs"}
    in_subgroups |= {"sort_pack_digits", "sort_unpack_digits"}
    found = list_modules("GroupNonUniformShuffle")
    assert found == in_groups | of_pairs | in_blocks | in_subgroups
    for other in ("ShuffleRelative", "Clustered", "Quad"):
        assert not list_modules(f"GroupNonUniform{other}")


def test_groups_of_lanes_are_within_every_subgroup(gpu: gx.PersistentVulkanBackend) -> None:
    for (size, least), lanes in {
        (32, 32): (4, 8),
        (32, 8): (4, 8),
        (32, 4): (4, 1),
        (64, 64): (1, 1),  # no feature of subgroups
    }.items():
        info = make_info(gpu.device, size, least)
        found = tuple(count_lanes(curve.key, info) for curve in (BLS12_381_G1, BLS12_381_G2))
        assert found == lanes, (size, least)


def test_subgroups_of_64_are_not_used_on_a_portability_device(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    large, small = (make_info(gpu.device, size, size) for size in (64, 32))
    assert not has_block_roots(BLS12_381_FR, large, 12)
    assert has_block_roots(BLS12_381_FR, small, 12)
    assert not any(name.startswith("subgroup ") for name in large.features)
    for kernel in (
        scatter_kernel(choose_tile(large), 8, Order.UNSIGNED),
        exclusive_scan_kernel(),
    ):
        check_device_runs(kernel, small)
        with pytest.raises(DeviceLacksError, match=r"subgroups of 64; update MoltenVK to 1\.4\.2"):
            check_device_runs(kernel, large)


def test_transforms_in_blocks_are_right_with_fewer_lanes_than_subgroups_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DeviceInfo, "shuffle_lanes", property(lambda _: 2))
    field = gx.fields.BLS12_381_FR
    x = field.random(1 << 9, seed=1)
    with gx.PersistentVulkanBackend() as gpu:
        assert has_block_roots(field.prime, gpu.device, 9)
        assert field.ntt(gpu.to_device(x)).tolist() == field.ntt(x).tolist()
