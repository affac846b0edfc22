"""Which kernels accumulate on the GPUs of a vendor, and which windows follow from that."""

from __future__ import annotations

import dataclasses

import pytest

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo
from gpu_executor.device_profiles import AMD, DEFAULT, SWIFTSHADER, get_profile
from gpu_executor.msm.parts import plan_whole
from gpu_executor.msm.plan import (
    DEVICE_COSTS,
    SET_COSTS,
    TABLE_COSTS,
    choose_costs,
    count_grouped_entries,
    plan_msm,
    plan_sets,
    plan_tables,
)
from gpu_executor.msm.stages import Msm
from gpu_executor.steps.dry_device import DryDevice
from tests.support.plans import H200_LANES, describe_device

G1, G2 = gx.curves.BLS12_381_G1.key, gx.curves.BLS12_381_G2.key
VENDORS = ["NVIDIA", "Intel", "Mesa", "0x1234"]


def make_info(vendor: str) -> DeviceInfo:
    info = describe_device(lanes=H200_LANES)
    limits = dataclasses.replace(info.limits, subgroup_size=32)
    features = info.features | {"subgroup shuffle"}
    return dataclasses.replace(info, vendor=vendor, limits=limits, features=features)


def test_only_amd_and_swiftshader_have_profiles_of_their_own() -> None:
    assert get_profile(make_info("AMD")) is AMD
    assert all(get_profile(make_info(vendor)) is DEFAULT for vendor in VENDORS)
    software = dataclasses.replace(make_info("0x1ae0"), driver="SwiftShader driver")
    assert get_profile(software) is SWIFTSHADER


@pytest.mark.parametrize("points", [1 << 8, 1 << 18])
@pytest.mark.parametrize("vendor", ["AMD", *VENDORS])
def test_groups_accumulate_few_entries_and_all_points_over_extensions_on_amd(
    vendor: str, points: int
) -> None:
    for curve in (G1, G2):
        plan = plan_msm(points, 1, 255)
        info = make_info(vendor)
        sums = Msm(DryDevice(info), curve, plan).make_sums()
        few = plan.entries < count_grouped_entries(info)
        assert sums.grouped == (few or (vendor == "AMD" and curve is G2))


def test_windows_follow_what_an_addition_costs() -> None:
    for vendor in VENDORS:
        for costs in (DEVICE_COSTS, TABLE_COSTS, SET_COSTS):
            assert choose_costs(costs, G2, make_info(vendor)) == costs
            assert choose_costs(costs, G1, make_info("AMD")) == costs
    cpu = dataclasses.replace(make_info("AMD"), kind="cpu")
    assert choose_costs(DEVICE_COSTS, G2, cpu) is DEVICE_COSTS
    amd, other = (make_info(vendor) for vendor in ("AMD", "NVIDIA"))
    windows = [
        [
            plan_whole(DryDevice(info), G2, 1 << 18, 1, 255, None, shares_points=True),
            plan_tables(G2, 1 << 16, info, None, None),
            plan_sets(G2, 64, 128, info, 1 << 28),
        ]
        for info in (amd, other)
    ]
    for in_groups, single in zip(*windows, strict=True):
        assert in_groups.window_bits >= single.window_bits
    assert windows[1][0] == plan_msm(1 << 18, 1, 255)
    assert [each.window_bits for each in windows[0]] != [each.window_bits for each in windows[1]]
