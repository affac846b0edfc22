"""How far work is divided: by the invocations that a device executes at once, and by nothing that
is known of one GPU alone. Devices that do not exist are descriptions; lavapipe computes as if it
were each of them."""

from __future__ import annotations

import dataclasses
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.common.cpu_cores import count_cores
from gpu_executor.curves import Curve
from gpu_executor.device_info import (
    DEFAULT_PARALLELISM,
    MAX_GROUP_LANES,
    MAX_SHUFFLING_INVOCATIONS,
    DeviceInfo,
    Kind,
)
from gpu_executor.kernels.curves import (
    COORDINATES,
    CURVE_DEGREES,
    GROUP_WORK_GROUP,
    SINGLE_WORK_GROUP,
    count_lanes,
)
from gpu_executor.msm import stages
from gpu_executor.msm.parts import choose_slices, copies_late, plan_parts, plan_whole
from gpu_executor.msm.plan import (
    DEVICE_COSTS,
    SET_COSTS,
    SHIFTED_SUBGROUPS,
    TABLE_COSTS,
    WindowCosts,
    choose_costs,
    choose_tables,
    count_grouped_entries,
    count_round_pairs,
    plan_msm,
    with_rounds,
)
from gpu_executor.msm.stages import AffineRounds, Msm, choose_block_length, choose_length
from gpu_executor.ops import matrices, points, scans
from gpu_executor.ops.block_transforms import LOG_TILE
from gpu_executor.ops.sort import sort
from gpu_executor.plan.plan import choose_elements_per_invocation, count_large_call
from gpu_executor.steps.dry_device import DryDevice
from gpu_executor.vulkan import device
from gpu_executor.vulkan.binding import Arena, vk
from gpu_executor.vulkan.device import CORE_PROPERTIES, count_execution_lanes
from tests.support.curves_under_test import SMALL, add_ints, encode_points, list_points
from tests.support.narrow_devices import open_described_gpu
from tests.support.plans import ADD, H200_LANES, describe_device

G1, G2, BN254 = (
    curve.key for curve in (gx.curves.BLS12_381_G1, gx.curves.BLS12_381_G2, gx.curves.BN254_G1)
)
GIB = 1 << 30


def make_info(lanes: int = 0, subgroup: int = 32, kind: Kind = "discrete") -> DeviceInfo:
    """A GPU with shuffles that executes so many invocations at once; 0 if it does not say."""
    info = describe_device(kind=kind, lanes=lanes)
    limits = dataclasses.replace(info.limits, subgroup_size=subgroup, min_subgroup_size=subgroup)
    features = info.features | {"subgroup shuffle"}
    return dataclasses.replace(info, limits=limits, features=features)


H200 = make_info(H200_LANES)
OTHERS = {
    "4 lanes, 2 units": make_info(2 * 4, 4),
    "64 lanes, 8 units of 4": make_info(8 * 4 * 64, 64),
    "unknown": make_info(),
    "unknown, integrated": make_info(kind="integrated"),
    "1 lane": make_info(1, 1),
    "larger than any": make_info(1 << 20, 64),
}
on_others = pytest.mark.parametrize("info", OTHERS.values(), ids=OTHERS.keys())


# --- what a device reports ---


def report(**structures: SimpleNamespace) -> dict[str, Any]:
    return {f"VK_{name}": structure for name, structure in structures.items()}


NV_H200 = report(NV_shader_sm_builtins=SimpleNamespace(shaderSMCount=132, shaderWarpsPerSM=64))
AMD_ENGINES = SimpleNamespace(
    shaderEngineCount=4,
    shaderArraysPerEngineCount=2,
    computeUnitsPerShaderArray=10,
    simdPerComputeUnit=2,
)
NO_ENGINES = SimpleNamespace(**dict.fromkeys(vars(AMD_ENGINES), 0))
"""As AMD's null hardware reports them."""
ARM = SimpleNamespace(shaderCoreCount=10, shaderWarpsPerCore=64)


@pytest.mark.parametrize(
    ("found", "subgroup", "lanes"),
    [
        (NV_H200, 32, 16_896),
        (report(AMD_shader_core_properties=AMD_ENGINES), 32, 80 * 2 * 32),
        (
            report(
                AMD_shader_core_properties=AMD_ENGINES,
                AMD_shader_core_properties2=SimpleNamespace(activeComputeUnitCount=72),
            ),
            64,
            72 * 2 * 64,
        ),
        (
            report(
                AMD_shader_core_properties=NO_ENGINES,
                AMD_shader_core_properties2=SimpleNamespace(activeComputeUnitCount=0),
            ),
            64,
            0,
        ),
        (report(ARM_shader_core_builtins=ARM), 16, 10 * 2 * 16),
        (
            report(
                ARM_shader_core_builtins=ARM,
                ARM_shader_core_properties=SimpleNamespace(fmaRate=64),
            ),
            16,
            640,
        ),
        ({}, 32, 0),
    ],
    ids=["NVIDIA", "AMD", "AMD, active units", "AMD, zeros", "Arm", "Arm, rates", "none"],
)
def test_the_invocations_that_a_gpu_executes_at_once(
    found: dict[str, Any], subgroup: int, lanes: int
) -> None:
    assert count_execution_lanes(found, make_info(subgroup=subgroup).limits) == lanes


def test_the_structures_of_all_vendors_have_the_fields_that_are_read() -> None:
    """And a type, by which a driver knows them."""
    arena = Arena()
    made = [arena.new(kind) for kind in CORE_PROPERTIES.values()]
    assert len({int(each.sType) for each in made}) == len(CORE_PROPERTIES)
    read = [*vars(NV_H200["VK_NV_shader_sm_builtins"]), *vars(AMD_ENGINES), *vars(ARM)]
    for name in (*read, "activeComputeUnitCount", "fmaRate"):
        assert any(hasattr(each, name) for each in made), name


def test_what_a_driver_reports_is_read_when_devices_are_listed(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = "VK_NV_shader_sm_builtins"
    list_extensions, read = device._list_extensions, vk.vkGetPhysicalDeviceProperties2

    def fill(physical: Any, everything: Any) -> None:
        read(physical, everything)
        at = vk.ffi.cast("VkPhysicalDeviceShaderSMBuiltinsPropertiesNV *", everything.pNext)
        if at.sType == vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV:
            at.shaderSMCount, at.shaderWarpsPerSM = 132, 64

    monkeypatch.setattr(device, "KINDS", ("discrete",) * 5)
    monkeypatch.setattr(device, "_list_extensions", lambda it: list_extensions(it) | {extension})
    monkeypatch.setattr(vk, "vkGetPhysicalDeviceProperties2", fill)
    found = gx.devices()[0]
    assert found.parallelism == 132 * 4 * gpu.device.limits.subgroup_size
    assert extension not in found.extensions  # which are enabled


def test_a_device_that_does_not_say_counts_as_a_large_one_of_its_kind() -> None:
    for kind, lanes in DEFAULT_PARALLELISM.items():
        assert make_info(kind=kind).parallelism == lanes
        assert make_info(640, kind=kind).parallelism == 640


def test_a_software_driver_executes_the_lanes_of_all_cores(gpu: gx.PersistentVulkanBackend) -> None:
    if gpu.device.kind == "cpu":
        assert gpu.device.parallelism == count_cores() * gpu.device.limits.subgroup_size
    assert gpu.device.execution_lanes == gpu.device.as_dict()["execution_lanes"]


# --- an H200 has the numbers that were measured on it ---


def test_thresholds_of_an_h200() -> None:
    assert H200.parallelism == count_execution_lanes(NV_H200, H200.limits) == 132 * 4 * 32
    assert count_grouped_entries(H200) == 1 << 18
    assert H200.round_invocations(SHIFTED_SUBGROUPS) == 1 << 14
    assert count_round_pairs(H200) == 1 << 22
    assert points.count_affine_invocations(H200) == 132 * 8 * 32
    assert scans.count_direct_inverses(H200) == 16_384
    assert H200.round_invocations(matrices.ENOUGH_SUBGROUPS) == 16_384
    assert H200.round_invocations(points.SUBGROUPS) // 4 == 1 << 15
    assert H200.round_invocations(stages.SUBGROUPS) == 1 << 17
    assert H200.count_invocations(stages.F64_SUBGROUPS) == 132 * 12 * 32 * 2
    assert count_large_call(H200) == 1 << 18
    assert [choose_elements_per_invocation(ADD, n, H200) for n in ((1 << 18) - 1, 1 << 18)] == [
        1,
        2,
    ]


@pytest.mark.parametrize("costs", [DEVICE_COSTS, TABLE_COSTS, SET_COSTS])
def test_costs_of_an_h200(costs: WindowCosts) -> None:
    for curve in (G1, G2, BN254):
        assert choose_costs(costs, curve, H200) == costs
    assert (DEVICE_COSTS.bucket, DEVICE_COSTS.doubling) == (3.4, 2900)
    assert DEVICE_COSTS.grouped_entries == 1 << 18


def test_stages_of_an_h200() -> None:
    """The entries of an invocation, the invocations of a round and the partial sums of a block."""
    for log_points in range(4, 25, 2):
        plan = plan_msm(1 << log_points, 1, 255)
        grouped = plan.entries < 1 << 18
        for curve, degree in ((G1, 1), (G2, 2)):
            sums = Msm(DryDevice(H200), curve, plan).make_sums()
            wanted = (1 << 17) // (4 * degree if grouped else degree)
            assert sums.length == max(-(-plan.entries // wanted), 8 if grouped else 32)
        with_f64_limbs = Msm(DryDevice(H200, f64_limbs=True), BN254, plan).make_sums()
        if not grouped:
            turns = 4 if plan.entries >= 256 * 4 * 132 * 12 * 32 else 2
            invocations = 132 * 12 * 32 * turns
            assert with_f64_limbs.length == max(-(-plan.entries // invocations), 32)
        for places in (1, 1000, 1 << 16, (1 << 16) + (1 << 15), 1 << 17, 1 << 20):
            length = min(max(places * 4 // (1 << 17), 2), 4)
            assert choose_block_length(places, 4, H200) == length
    rounds = AffineRounds(DryDevice(H200), G1, 1 << 24, 1 << 16, 2)
    assert rounds._invocations == [132 * 16 * 32 * 2, ((1 << 22) + (1 << 16)) // 32]
    assert with_rounds(plan_msm(1 << 22, 1, 255), H200).rounds == 4
    assert with_rounds(plan_msm(1 << 20, 1, 255), H200).rounds == 2
    assert [choose_tables(G1, n, 1, H200) for n in (1 << 10, 1 << 12, (1 << 12) + 1)] == [2, 2, 1]


def test_slices_of_an_h200() -> None:
    assert [copies_late(n, 1, H200) for n in ((1 << 19) - 1, 1 << 19)] == [False, True]
    assert choose_slices((1 << 22) - 1, H200, f64_limbs=False) == ((1 << 22) - 1,)
    assert choose_slices(1 << 22, H200, f64_limbs=False) == (1 << 20, 3 << 20)
    assert choose_slices((1 << 20) - 1, H200, f64_limbs=True) == ((1 << 20) - 1,)
    assert choose_slices(1 << 20, H200, f64_limbs=True) == (1 << 18, 3 << 18)


# --- plans for other devices are valid ---


@on_others
def test_all_entries_are_accumulated(info: DeviceInfo) -> None:
    for meter in (DryDevice(info), DryDevice(info, f64_limbs=True)):
        for curve in (G1, G2, BN254):
            for count in (1, 7, 1000, 1 << 14, 1 << 18, 1 << 22):
                plan = plan_whole(meter, curve, count, 1, 255, None, shares_points=True)
                sums = Msm(meter, curve, plan).make_sums()
                last = plan.accumulated - sums.length * (sums.invocations - 1)
                assert 0 < last <= sums.length
                assert sums.length >= (8 if sums.grouped else 32)
                assert choose_block_length(2 * sums.invocations, 4, info) in (2, 3, 4)
                found = plan_parts(curve, plan, meter, 1000 * GIB)
                assert found.count >= 1 and found.part.window_bits >= 2


@on_others
def test_thresholds_are_at_least_one(info: DeviceInfo) -> None:
    counts = [
        count_grouped_entries(info),
        count_round_pairs(info),
        points.count_affine_invocations(info),
        scans.count_direct_inverses(info),
        count_large_call(info),
        info.round_invocations(SHIFTED_SUBGROUPS),
    ]
    assert min(counts) >= 1
    assert count_round_pairs(info).bit_count() == 1
    assert (count_lanes(G1, info), count_lanes(G2, info)) == (
        4 if info.shuffle_lanes >= 4 else 1,
        8 if info.shuffle_lanes >= 8 else 1,
    )


def test_smaller_devices_divide_less() -> None:
    infos = [make_info(lanes) for lanes in (64, 2048, H200_LANES)]
    lengths = [choose_length(1 << 20, 1, info, grouped=False) for info in infos]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[-1]
    assert choose_costs(DEVICE_COSTS, G1, infos[0]).doubling == 2900 * 64 / H200_LANES


def test_long_sums_on_f64_limbs_are_divided_into_more_turns() -> None:
    """4 turns of 12 subgroups a multiprocessor, where an invocation then adds 256 entries."""
    turn = 132 * 12 * 32
    for accumulated, invocations in ((1 << 24, 2), (4 * 256 * turn - 1, 2), (4 * 256 * turn, 4)):
        length = stages.choose_f64_length(accumulated, H200)
        assert length == -(-accumulated // (invocations * turn))
    assert stages.choose_f64_length(1 << 20, H200) == stages.LEAST_LENGTH


def test_software_drivers_have_short_loops() -> None:
    """Lavapipe leaves loops after 65,535 iterations."""
    for lanes in (1, 8, 1 << 10):
        info = make_info(lanes, 4, kind="cpu")
        for accumulated in (1, 1000, 1 << 22, 1 << 30):
            assert 8 <= choose_length(accumulated, 1, info, grouped=True) <= 32


# --- results are exact whatever a device reports ---


@pytest.fixture(scope="module", params=[1, 6, H200_LANES], ids=lambda lanes: f"{lanes} lanes")
def parallel_gpu(request: pytest.FixtureRequest) -> Any:
    """The device of the tests, as if it executed so many invocations at once."""

    def describe(info: DeviceInfo) -> DeviceInfo:
        return dataclasses.replace(info, execution_lanes=request.param)

    with open_described_gpu(describe) as backend:
        assert backend.device.parallelism == request.param
        yield backend


def test_msms_and_sums_of_points_are_exact(parallel_gpu: gx.PersistentVulkanBackend) -> None:
    curve: Curve = SMALL[3]
    draw, known = np.random.default_rng(1), list_points(curve)
    for count in (1, 50, 700):
        chosen = [known[at] for at in draw.integers(0, len(known), count)]
        there = parallel_gpu.to_device(encode_points(curve, chosen))
        total = None
        for point in chosen:
            total = add_ints(curve, total, point)
        assert there.sum().tolist() == total
        ones = curve.scalar_field.encode([1] * count)
        assert curve.msm(there, ones).tolist() == total


def test_inverses_and_products_of_matrices_are_exact(
    parallel_gpu: gx.PersistentVulkanBackend,
) -> None:
    field, draw = gx.fields.BABYBEAR, random.Random(2)
    p = field.modulus
    values = [draw.randrange(1, p) for _ in range(1500)]
    there = parallel_gpu.to_device(field.encode(values))
    assert (1 / there).tolist() == [pow(each, -1, p) for each in values]
    left, right = there[:1400].reshape((2, 700)), there[100:].reshape((700, 2))
    expected = [
        [sum(values[i * 700 + k] * values[100 + 2 * k + j] for k in range(700)) % p for j in (0, 1)]
        for i in (0, 1)
    ]
    assert (left @ right).tolist() == expected


# --- subgroups ---

SUBGROUP_SCRIPT = """
import numpy as np, gpu_executor as gx
from gpu_executor.ops.sort import argsort, sort
with gx.PersistentVulkanBackend() as gpu:
    x = np.random.default_rng(1).integers(0, 1 << 32, 5000, dtype=np.uint32)
    there = gpu.to_device(x)
    assert (sort(there).numpy() == np.sort(x)).all()
    assert (argsort(there).numpy() == np.argsort(x, kind="stable")).all()
    field = gx.fields.BLS12_381_FR
    root = field.prime.root_of_unity(4)
    values = [pow(3, at, field.modulus) for at in range(16)]
    expected = [
        sum(each * pow(root, at * k, field.modulus) for k, each in enumerate(values))
        % field.modulus for at in range(16)
    ]
    assert field.ntt(gpu.to_device(field.encode(values))).tolist() == expected
    print(gpu.device.limits.subgroup_size, gpu.device.shuffle_lanes)
"""


def test_kernels_with_subgroups_of_16(run_python: Any) -> None:
    """Lavapipe has subgroups as wide as its vectors, which a variable sets for a process. Other
    tests run with the 8 lanes of vectors of 256 bits, and with the 4 of SwiftShader."""
    lanes = 16
    ran = run_python(SUBGROUP_SCRIPT, LP_NATIVE_VECTOR_WIDTH=str(32 * lanes), GPU_DEVICE="llvmpipe")
    assert (ran.returncode, ran.stdout.split()) == (0, [str(lanes)] * 2), ran.stderr


def test_kernels_that_rely_on_lanes_have_work_groups_that_can_require_them() -> None:
    largest = max(1 << LOG_TILE - 1, GROUP_WORK_GROUP, SINGLE_WORK_GROUP)
    assert largest == MAX_SHUFFLING_INVOCATIONS
    assert max(COORDINATES * degree for degree in CURVE_DEGREES) == MAX_GROUP_LANES


def keep(info: DeviceInfo) -> DeviceInfo:
    return info


def make_varying(info: DeviceInfo) -> DeviceInfo:
    """The same device, as if its subgroups might be smaller than usual."""
    limits = dataclasses.replace(info.limits, min_subgroup_size=2)
    return dataclasses.replace(info, limits=limits)


def test_pipelines_that_shuffle_require_the_usual_size_where_groups_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The validation layer checks the request."""
    required: list[int] = []
    create = vk.vkCreateComputePipelines

    def create_noted(handle: Any, cache: Any, count: int, info: Any, *others: Any) -> Any:
        asked = vk.ffi.cast(
            "VkPipelineShaderStageRequiredSubgroupSizeCreateInfo *", info.stage.pNext
        )
        if asked != vk.ffi.NULL:
            required.append(int(asked.requiredSubgroupSize))
        return create(handle, cache, count, info, *others)

    monkeypatch.setattr(vk, "vkCreateComputePipelines", create_noted)
    field, values = gx.fields.BLS12_381_FR, list(range(64))
    transformed = field.ntt(field.encode(values)).tolist()
    for describe, is_required in ((keep, False), (make_varying, True)):
        required.clear()
        with open_described_gpu(describe) as gpu:
            limits = gpu.device.limits
            assert gpu.device.requires_subgroup_size == is_required
            assert gpu.device.shuffle_lanes == limits.subgroup_size
            there = field.ntt(gpu.to_device(field.encode(values)))
            assert there.tolist() == transformed
            x = np.arange(300, dtype=np.uint32)[::-1].copy()
            assert (sort(gpu.to_device(x)).numpy() == x[::-1]).all()
        assert bool(required) == is_required
        assert set(required) <= {limits.subgroup_size}


def test_vulkan_1_3_reports_the_sizes_of_subgroups_without_the_extension(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = "VK_EXT_subgroup_size_control"
    monkeypatch.setattr(device, "EXTENSIONS", tuple({*device.EXTENSIONS} - {extension}))
    found = gx.devices()[0]
    assert extension not in found.extensions and found.api_version >= (1, 3)
    assert found.limits == gpu.device.limits
    assert found.limits.max_required_invocations > 0  # of the properties that were read
    assert not make_varying(found).requires_subgroup_size  # the feature cannot be enabled
    varying = make_varying(found)
    assert varying.shuffle_lanes == varying.limits.min_subgroup_size < found.limits.subgroup_size
