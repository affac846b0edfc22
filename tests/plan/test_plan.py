"""Plans without a calibration: path, chunk and work-groups, for devices of every kind."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_executor.calls.call import Operand
from gpu_executor.device_info import DeviceInfo, Kind
from gpu_executor.errors import DeviceLacksError, KernelError, OutOfMemoryError
from gpu_executor.kernel import ElementType, Kernel
from gpu_executor.plan import (
    CallPlan,
    ElementRange,
    Request,
    RunOptions,
    make_plan,
    round_up_to_class,
)
from gpu_executor.plan.bounds import DEFAULT_SLOTS
from gpu_executor.plan.plan import WORK_GROUP_SIZES
from gpu_executor.settings import Settings
from tests.support.glsl import shader
from tests.support.plans import (
    ADD,
    ELEMENT,
    UNLIMITED,
    add_operands,
    describe_device,
    find_reason,
)

BYTES = 3 * ELEMENT.nbytes
"""Two inputs and an output of one element."""
WORD = ElementType(np.dtype("u4"))


LARGE = describe_device()


def plan(count: int, on: DeviceInfo = LARGE, ask: bool | None = None, **settings: Any) -> CallPlan:
    """The plan for a field addition."""
    request = Request(ADD, add_operands(count), count, options=RunOptions(ask))
    return make_plan(request, on, Settings(**settings))


def plan_kernel(
    count: int, on: DeviceInfo, size: str = "local_size_x_id = 0", **more: Any
) -> CallPlan:
    """The plan for a kernel of one input and one output, declared by the test."""
    code, more = shader("", "", size=size), {"split": "elements"} | more
    kernel = Kernel.from_spirv(code, buffers="in, out", name="own", **more)
    operands = Operand(WORD, count), Operand(WORD, count, False, True)
    return make_plan(Request(kernel, operands, count), on, Settings())


@pytest.mark.parametrize(
    "on", [describe_device(), describe_device(unified=True)], ids=["discrete", "unified"]
)
@pytest.mark.parametrize("count", [1, 1 << 21])
@pytest.mark.parametrize(("wanted", "path"), [(True, "device-local"), (False, "host-visible")])
def test_the_argument_then_the_setting_choose_the_path(
    wanted: bool, path: str, count: int, on: DeviceInfo
) -> None:
    asked = plan(count, on, ask=wanted, device_local=not wanted)
    assert asked.path == path
    assert find_reason(asked, "path") == f"requested with device_local={wanted}"
    from_settings = plan(count, on, device_local=wanted)
    assert from_settings.path == path
    assert find_reason(from_settings, "path") == f"GPU_DEVICE_LOCAL is {int(wanted)}"


def test_unified_memory_needs_no_staging() -> None:
    found = plan(1 << 21, describe_device(unified=True))
    assert found.path == "host-visible"
    assert find_reason(found, "path").startswith("all device memory is host-visible")


def test_the_path_changes_at_exactly_1_mi_elements() -> None:
    below, at = plan((1 << 20) - 1), plan(1 << 20)
    assert (below.path, at.path) == ("host-visible", "device-local")
    assert find_reason(below, "path") == "1,048,575 elements are below 1,048,576"
    assert find_reason(at, "path") == "1,048,576 elements are at least 1,048,576"


@pytest.mark.parametrize(
    ("most", "by", "on", "settings"),
    [
        (524_288, "the default chunk size", describe_device(), {}),
        (1000, "GPU_STREAM_CHUNK_ELEMS", describe_device(), {"stream_chunk_elems": 1000}),
        (100, "the device's largest storage buffer", describe_device(storage=100 * 48 + 47), {}),
        (3 * 1024, "the device's work-group count", describe_device(groups=3), {}),
        (3 * 512, "the device's work-group count", describe_device(groups=3, kind="cpu"), {}),
        (
            10,
            "the memory limit",
            describe_device(),
            {"memory_limit": 2 * DEFAULT_SLOTS * 10 * BYTES + 1},
        ),
        (10, "the device memory", describe_device(memory=2 * DEFAULT_SLOTS * 10 * BYTES + 1), {}),
        (
            7,
            "the device memory",
            describe_device(memory=2 * DEFAULT_SLOTS * 7 * BYTES),
            {"memory_limit": 1 << 40},
        ),
        (
            ((1 << 32) - 1) // 2,
            "the range of a status word",
            describe_device(storage=UNLIMITED, groups=UNLIMITED, memory=UNLIMITED),
            {"stream_chunk_elems": UNLIMITED},
        ),
    ],
)
def test_a_chunk_is_limited_by(
    most: int, by: str, on: DeviceInfo, settings: dict[str, int]
) -> None:
    found = plan(1 << 32, on, ask=False, **settings)
    assert find_reason(found, "chunk") == f"at most {most:,} elements, limited by {by}"
    assert found.chunk == found.capacity == most


def test_staging_halves_the_chunk_that_the_memory_limit_allows() -> None:
    limit = 2 * DEFAULT_SLOTS * 20 * BYTES
    assert plan(1 << 21, ask=True, memory_limit=limit).chunk == 10
    assert plan(1 << 21, ask=False, memory_limit=limit).chunk == 20


def test_the_error_names_the_limit_that_no_element_fits() -> None:
    with pytest.raises(OutOfMemoryError) as raised:
        plan(5, memory_limit=BYTES)
    assert str(raised.value) == (
        "bls12_381_fq_add: one element of 144 bytes does not fit the memory limit"
    )
    with pytest.raises(OutOfMemoryError, match="does not fit the device's largest storage buffer"):
        plan(5, describe_device(storage=47))


def test_a_whole_kernel_is_never_split() -> None:
    found = plan_kernel(3_000_001, describe_device(), split="whole")
    assert list(found.chunks()) == [ElementRange(0, 3_000_001)]
    assert found.capacity == 3_000_001
    assert "one chunk: the kernel cannot be split by elements" in found.reasons


def test_a_whole_kernel_is_refused_where_a_buffer_cannot_hold_its_array() -> None:
    assert plan_kernel(1000, describe_device(storage=4000), split="whole").chunk == 1000
    with pytest.raises(DeviceLacksError) as raised:
        plan_kernel(1001, describe_device(storage=4000), split="whole")
    assert str(raised.value) == (
        "own: the array at binding 0 (B0) has 4,004 bytes; Paper GPU binds at most 4,000, and this "
        "kernel cannot be split"
    )


def test_a_whole_kernel_is_refused_where_32_bits_cannot_count_its_elements() -> None:
    roomy = describe_device(storage=UNLIMITED, memory=UNLIMITED)
    with pytest.raises(
        DeviceLacksError, match=r"own: 4,294,967,296 elements; .* counts 4,294,967,295"
    ):
        plan_kernel(1 << 32, roomy, split="whole")


def test_a_whole_kernel_is_refused_where_it_needs_too_many_work_groups() -> None:
    assert plan_kernel(640, describe_device(groups=10), split="whole").groups(640) == 10
    with pytest.raises(DeviceLacksError, match=r"own: .*work-groups"):
        plan_kernel(641, describe_device(groups=10), split="whole")


@pytest.mark.parametrize(
    ("count", "kind", "size", "each"),
    [
        (1, "discrete", 64, 1),
        ((1 << 14) - 1, "discrete", 64, 1),
        (1 << 14, "discrete", 512, 1),
        ((1 << 18) - 1, "discrete", 512, 1),
        (1 << 18, "discrete", 512, 2),
        ((1 << 15) - 1, "integrated", 512, 1),
        (1 << 15, "integrated", 512, 2),
        (1 << 18, "cpu", 512, 1),
    ],
)
def test_work_groups_depend_on_count_and_device(
    count: int, kind: Kind, size: int, each: int
) -> None:
    found = plan(count, describe_device(kind=kind))
    assert (found.work_group, found.per_invocation) == (size, each)
    assert find_reason(found, "work-group").startswith(f"{size} of (64, 128, 256, 512), ")


def test_a_work_group_size_that_the_kernel_fixes_is_kept() -> None:
    in_code = plan_kernel(1 << 20, describe_device(), size="local_size_x = 48")
    as_constant = plan_kernel(1 << 20, describe_device(), constants={0: 512})
    assert [in_code.work_group, as_constant.work_group] == [48, 512]
    assert find_reason(in_code, "work-group") == "48, fixed by the kernel"
    assert in_code.per_invocation == as_constant.per_invocation == 1


@pytest.mark.parametrize("invocations", [64, 127, 128, 1024])
def test_a_work_group_is_within_the_devices_limits(invocations: int) -> None:
    small = describe_device(invocations=invocations)
    assert plan(1 << 20, small).work_group <= invocations
    along_x = dataclasses.replace(LARGE.limits, max_work_group_size=(invocations, 1024, 64))
    narrow = dataclasses.replace(LARGE, limits=along_x)
    assert plan(1 << 20, narrow).work_group <= invocations


def test_a_work_group_is_the_codes_own_where_a_grid_is_given() -> None:
    size = "local_size_x_id = 0, local_size_y = 4"
    found = plan_kernel(1 << 20, describe_device(), size=size, split="whole", grid=(3, 4))
    assert (found.work_group, found.per_invocation) == (1, 1)
    in_code = plan_kernel(
        1 << 20, describe_device(), size="local_size_x = 8, local_size_y = 8", split="whole",
        grid=(1, 1),
    )  # fmt: skip
    assert in_code.work_group == 8


def test_a_work_group_of_two_dimensions_needs_a_grid() -> None:
    with pytest.raises(KernelError, match=r"work-groups of \(8, 8, 1\); say with grid="):
        plan_kernel(9, describe_device(), size="local_size_x = 8, local_size_y = 8", split="whole")


@pytest.mark.parametrize(("spec_id", "shape"), [(0, "0 x 2 x 1"), (1, "1 x 0 x 1")])
def test_an_empty_work_group_is_refused(spec_id: int, shape: str) -> None:
    size = "local_size_x_id = 0, local_size_y_id = 1"
    constants = {0: 1, 1: 2} | {spec_id: 0}
    with pytest.raises(KernelError, match=f"'own': its constants give work-groups of {shape} "):
        plan_kernel(9, describe_device(), size=size, constants=constants, split="whole", grid=(1,))


def test_a_grid_over_the_devices_limit_is_refused() -> None:
    kernel = Kernel.from_spirv(shader("", ""), buffers="in, out", name="own", grid=(2, 70_000))
    operands = Operand(WORD, 9), Operand(WORD, 9, False, True)
    request = Request(kernel, operands, 9, grid=(2, 70_000, 1))
    limits = dataclasses.replace(LARGE.limits, max_work_group_count=(65_535,) * 3)
    with pytest.raises(DeviceLacksError, match=r"own: grid has 70,000 work-groups in y; .* 65,535"):
        make_plan(request, dataclasses.replace(LARGE, limits=limits), Settings())


@pytest.mark.parametrize(("count", "groups"), [(1, 1), (64, 1), (65, 2), (128, 2), (129, 3)])
def test_every_element_has_a_work_group(count: int, groups: int) -> None:
    assert plan(count).groups(count) == groups
    assert plan(1 << 18).groups(16 * count) == groups  # 512 x 2 elements each


@given(
    count=st.integers(1, 1 << 33),
    chunk=st.integers(1, 1 << 22),
    storage=st.integers(48, 1 << 30),
    memory=st.integers(4 * DEFAULT_SLOTS * BYTES, 1 << 38),
    groups=st.integers(1, 1 << 24),
    ask=st.booleans(),
)
def test_every_plan_keeps_every_limit(
    count: int, chunk: int, storage: int, memory: int, groups: int, ask: bool
) -> None:
    on = describe_device(storage=storage, memory=memory, groups=groups)
    found = plan(count, on, ask, stream_chunk_elems=chunk)
    assert 1 <= found.chunk <= found.capacity <= chunk
    assert found.chunk <= count
    assert found.capacity * ELEMENT.nbytes <= storage
    assert found.capacity * BYTES * (2 if ask else 1) <= memory // 2 // DEFAULT_SLOTS
    assert found.groups(found.chunk) <= groups
    assert found.work_group in WORK_GROUP_SIZES
    chunks = -(-count // found.chunk)
    assert found.slots == min(chunks, DEFAULT_SLOTS)
    about = ["path", "work-group", "chunk"]
    about += ["slots"] * (chunks > 1) + ["queues"] * (chunks > 1 and ask)
    assert [text.split(":")[0] for text in found.reasons] == about


@given(count=st.integers(1, 5000), chunk=st.integers(1, 5000))
def test_chunks_cover_the_elements_once_and_in_order(count: int, chunk: int) -> None:
    chunks = list(plan(count, stream_chunk_elems=max(chunk, count // 50 + 1)).chunks())
    covered = [at for chunk in chunks for at in range(chunk.start, chunk.start + chunk.count)]
    assert covered == list(range(count))
    assert len({chunk.count for chunk in chunks[:-1]}) <= 1
    assert chunks[-1].count <= chunks[0].count


def test_a_plan_prints_its_choices_and_reasons() -> None:
    assert str(plan(1_200_000, describe_device(kind="integrated"))).splitlines() == [
        "1,200,000 elements on the device-local path: 3 chunks of up to 524,288, 3 slots, "
        "work-groups of 512 x 2 elements",
        "  - path: 1,200,000 elements are at least 1,048,576",
        "  - work-group: 512 of (64, 128, 256, 512), the kernel's preference",
        "  - chunk: at most 524,288 elements, limited by the default chunk size",
        "  - slots: 3, so that the copies and dispatches of 3 chunks overlap",
        "  - queues: one, the device has no transfer-only queues",
    ]
    assert "1 chunk of up to 7, 1 slot, work-groups of 64 x 1 elements" in str(plan(7))


@given(st.integers(1, 1 << 50), st.integers(0, 1 << 50))
def test_a_size_class_holds_its_count_and_wastes_at_most_a_quarter(count: int, more: int) -> None:
    room = round_up_to_class(count)
    assert room >= count
    assert count < 4 or 4 * (room - count) <= room
    assert round_up_to_class(room) == room
    assert round_up_to_class(count + more) >= room


def test_size_classes_are_4_5_6_7_times_powers_of_two() -> None:
    found = {round_up_to_class(count) for count in range(1, 57)}
    assert sorted(found) == [4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56]
