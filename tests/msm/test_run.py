"""Multi-scalar multiplications in parts: the same sums, bounded memory, and interrupts."""

from __future__ import annotations

import dataclasses
import signal
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.curves import Curve, PointArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.device_profiles import VendorProfile
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ClosedError,
    GpuError,
    NotSupportedError,
    OutOfMemoryError,
)
from gpu_executor.kernels.curves import point_limbs
from gpu_executor.msm import parts as msm_parts
from gpu_executor.msm import run as msm_run
from gpu_executor.msm.host import HostMsmPlan
from gpu_executor.msm.parts import MsmParts
from gpu_executor.msm.plan import MsmPlan, plan_msm
from gpu_executor.msm.prepared import submit_msm, submit_sliced_msm
from gpu_executor.vulkan.device_memory import DeviceMemory
from tests.support.curves_under_test import OVER_MERSENNE31, SMALL_QUADRATIC, draw_points
from tests.support.device_arrays import get_device_memory

Gpu = gx.PersistentVulkanBackend
CURVE = OVER_MERSENNE31
COUNT = 100


def forget_plans(gpu: Gpu) -> None:
    """The next call of every plan looks at the free memory again."""
    cache = get_device_memory(gpu)._cache
    for key in [each for each in cache if isinstance(each, tuple) and each[0] == "msm parts"]:
        del cache[key]


@pytest.fixture
def new_plans(gpu: Gpu) -> Iterator[None]:
    """No plan of another test, and no plan left for one."""
    forget_plans(gpu)
    yield
    forget_plans(gpu)


@pytest.fixture
def small_parts(new_plans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 7 points at most, of any place."""
    monkeypatch.setattr(msm_parts, "LEAST_POINTS", 1)
    monkeypatch.setattr(msm_parts, "COPIED_POINTS", 7)
    monkeypatch.setattr(msm_parts, "MAX_ENTRIES", 60)
    monkeypatch.setattr(msm_parts, "MAX_ENTRIES_ON_CPU", 60)
    monkeypatch.setattr(msm_parts, "MAX_PART_ENTRIES", 60)


@pytest.fixture
def small_slices(new_plans: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scalars of 8 points and more come in two slices, those of 5 to 7 in one, also to a CPU, and
    no points are added in residues, as a GPU adds so few."""
    profile = VendorProfile(late_scalar_points=5, sliced_points=8, f64_sliced_points=8)
    monkeypatch.setattr(msm_parts, "get_profile", lambda _: profile)
    monkeypatch.setattr(msm_parts, "SLICE_MULTIPLE", 2)
    copies_late = msm_parts.copies_late

    def copies_late_to_gpu(points: int, batch: int, info: DeviceInfo) -> bool:
        return copies_late(points, batch, dataclasses.replace(info, kind="discrete"))

    monkeypatch.setattr(msm_parts, "copies_late", copies_late_to_gpu)
    monkeypatch.setattr(msm_parts, "choose_tables", lambda *_: 1)  # as for many points
    monkeypatch.setattr(msm_parts, "plan_residues", lambda *_, **__: None)


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The points of the slices of the calls that ran."""
    noted: list[tuple[int, ...]] = []

    def run_noted(*arguments: Any) -> None:
        noted.append(arguments[-2])
        submit_sliced_msm(*arguments)

    monkeypatch.setattr(msm_run, "submit_sliced_msm", run_noted)
    return noted


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[MsmPlan]]:
    """The plans of the parts that ran."""
    found: list[MsmPlan] = []

    def run_noted(device: Any, curve: Any, plan: MsmPlan, *arguments: Any, **options: Any) -> None:
        found.append(plan)
        submit_msm(device, curve, plan, *arguments, **options)

    monkeypatch.setattr(msm_run, "submit_msm", run_noted)
    yield found


def draw(curve: Curve, *shape: int) -> tuple[PointArray, gx.FieldArray]:
    """Points with some at infinity, and as many scalars."""
    count = int(np.prod(shape))
    points = draw_points(curve, count, seed=count)
    infinity = curve.infinity((count,))
    points = curve.concatenate([points[: count - count // 9], infinity[: count // 9]])
    return points.reshape(shape), curve.scalar_field.random(shape, seed=count + 1)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("curve", [OVER_MERSENNE31, SMALL_QUADRATIC], ids=["m31", "quadratic"])
def test_points_of_the_host_stream_through_a_device(
    gpu: Gpu, curve: Curve, plans: list[MsmPlan]
) -> None:
    points, scalars = draw(curve, COUNT)
    expected = curve.msm(points, scalars)
    found = curve.msm(points, scalars, device=gpu)
    assert not found.on_device and found.form == "affine" and found.shape == ()
    assert found == expected
    assert len(plans) >= COUNT // 7 and sum(each.points for each in plans) == COUNT
    assert curve.msm(points, gpu.to_device(scalars), device=gpu) == expected
    assert curve.msm(points[::-1], scalars[::-1], device=gpu) == expected
    assert curve.msm(points, scalars.tolist(), device=gpu) == expected


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("curve", [OVER_MERSENNE31, SMALL_QUADRATIC], ids=["m31", "quadratic"])
def test_scalars_of_the_host_come_in_slices(
    gpu: Gpu, sliced: list[tuple[int, ...]], curve: Curve
) -> None:
    for count in (4, 5, 7, 8, 11, COUNT):
        points, scalars = draw(curve, count)
        there = gpu.to_device(points)
        equal = scalars - scalars + scalars[0]
        for factors in (scalars, scalars[::-1], scalars - scalars, equal):
            assert curve.msm(there, factors).to_host() == curve.msm(points, factors)
    sizes = (5,), (7,), (2, 6), (2, 9), (24, COUNT - 24)
    assert sliced == [each for each in sizes for _ in range(4)]


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("later", [False, True])
def test_an_interrupted_copy_of_a_slice_leaves_no_trace(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, *, later: bool
) -> None:
    points, scalars = draw(CURVE, COUNT)
    there, device = gpu.to_device(points), get_device_memory(gpu)
    before = CURVE.msm(there, scalars)

    def interrupt(array: Any, *, waits: bool) -> DeviceArray:
        if waits == later:
            raise KeyboardInterrupt
        return device.put(array)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(device, "put_ahead", interrupt)
        CURVE.msm(there, scalars)
    for found in (before, CURVE.msm(there, scalars)):
        assert found.to_host() == CURVE.msm(points, scalars)


@pytest.mark.usefixtures("small_slices")
def test_buckets_of_a_second_slice_begin_where_a_device_binds_buffers(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, _ = draw(CURVE, 16)
    there, device = gpu.to_device(points), get_device_memory(gpu)
    limits = dataclasses.replace(device.info.limits, buffer_offset_alignment=256)
    monkeypatch.setattr(device, "info", dataclasses.replace(device.info, limits=limits))
    monkeypatch.setattr(device._binder, "_alignment", 256)
    for bits in (1, 2, 3, 5, 31):
        factors = [(7 * number + 1) % (1 << bits) for number in range(16)]
        assert CURVE.msm(there, factors).to_host() == CURVE.msm(points, factors)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("splits", [True, False], ids=["halves", "whole"])
def test_the_explained_slices_are_those_that_run(
    gpu: Gpu, sliced: list[tuple[int, ...]], splits: bool
) -> None:
    curve = gx.curves.BLS12_381_G1
    scalars = curve.scalar_field.random(16, seed=3)
    points = curve.generator * list(range(16))
    expected = curve.msm(points, scalars)
    there = gpu.to_device(points)
    if not splits:
        there = PointArray(curve, there.data)
    for factors, come_in_slices in (
        (scalars, True),
        (scalars.tolist(), True),
        (gpu.to_device(scalars), False),
        (scalars[None], True),
        (scalars.reshape((2, 8)), False),
    ):
        own = there.reshape((2, 8)) if np.shape(factors)[:2] == (2, 8) else there
        text = str(curve.explain_msm(own, factors))
        words = "slices: 2, scalars of 12 points are copied while 4 points are added"
        assert (words in text) == come_in_slices == ("slices" in text)
        found = curve.msm(own, factors).to_host()
        assert curve.sum(found.reshape(-1)) == expected
        assert sliced == [(4, 12)] * come_in_slices
        sliced.clear()
    assert "slices" in str(curve.explain_msm(there))


@pytest.mark.usefixtures("small_slices")
def test_the_memory_of_slices_is_planned(
    gpu: Gpu, sliced: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    points, scalars = draw(CURVE, COUNT)
    there = gpu.to_device(points)
    parts, at_once = (CURVE.explain_msm(there, each) for each in (scalars, gpu.to_device(scalars)))
    assert isinstance(parts, MsmParts)
    assert isinstance(at_once, MsmParts)
    buckets = 4 * point_limbs(CURVE.key) * parts.part.all_buckets
    assert parts.nbytes >= at_once.nbytes + 2 * buckets  # of the second slice, and the sums
    assert f"memory: {parts.nbytes:,} bytes" in str(parts)
    free = int(parts.nbytes / msm_parts.RECORDED_SHARE)
    for memory, count in ((free, 0), (free + 8, 1)):
        monkeypatch.setattr(DeviceMemory, "free_memory", memory)
        forget_plans(gpu)
        assert ("slices" in str(CURVE.explain_msm(there, scalars))) == bool(count)
        assert CURVE.msm(there, scalars).to_host() == CURVE.msm(points, scalars)
        assert len(sliced) == count


@pytest.mark.usefixtures("small_parts")
def test_batches_of_the_host_stream_through_a_device(gpu: Gpu) -> None:
    points, scalars = draw(CURVE, 3, 20)
    for own, factors in (
        (points, scalars),
        (points[0], scalars),
        (points, scalars[1]),
        (points[:, None], scalars),
        (points[:1], scalars[:0]),
    ):
        found = CURVE.msm(own, factors, device=gpu)
        assert found.tolist() == CURVE.msm(own, factors).tolist()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("form", ["affine", "xyzz"])
def test_points_of_a_device_run_in_parts(gpu: Gpu, plans: list[MsmPlan], form: str) -> None:
    points, scalars = draw(CURVE, 2, 40)
    there = gpu.to_device(points)
    if form == "xyzz":
        there = there + CURVE.generator.broadcast_to((2, 40)).copy_to_device(get_device_memory(gpu))
        points = points + CURVE.generator
    for own, mine, factors in (
        (there, points, scalars),
        (there[0], points[0], scalars),
        (there[1, ::-2], points[1, ::-2], scalars[0, :20]),
    ):
        plans.clear()
        for given in (factors, gpu.to_device(factors)):
            found = CURVE.msm(own, given)
            assert found.on_device
            assert found.tolist() == CURVE.msm(mine, factors).tolist()
        assert len(plans) > 4
    assert (there.to_host() == points).all()


@pytest.mark.usefixtures("small_parts")
def test_tables_run_in_parts(gpu: Gpu, plans: list[MsmPlan]) -> None:
    points, scalars = draw(CURVE, 2, 40)
    table = CURVE.precompute(gpu.to_device(points[0]), window=5)
    assert table.plan.tables > 2
    assert CURVE.msm(table, scalars).tolist() == CURVE.msm(points[0], scalars).tolist()
    assert len(plans) > 4 and {each.window_bits for each in plans} == {5}


def test_points_of_the_host_need_a_device_with_arrays(gpu: Gpu) -> None:
    points, scalars = draw(CURVE, 4)
    with pytest.raises(ArgumentTypeError, match=r"device= is for points on the host"):
        CURVE.msm(gpu.to_device(points), scalars, device=gpu)
    with pytest.raises(ArgumentTypeError, match=r"device= is for points on the host"):
        CURVE.msm(CURVE.precompute(gpu.to_device(points)), scalars, device=gpu)
    with pytest.raises(ArgumentTypeError, match=r"device= is a str; it takes an executor"):
        CURVE.msm(points, scalars, device="cuda")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="different places"):
        CURVE.msm(points, gpu.to_device(scalars))
    with pytest.raises(NotSupportedError, match="to_device"), gx.VulkanSpirvBackend() as one_shot:
        CURVE.msm(points, scalars, device=one_shot)
    with gx.PersistentVulkanBackend() as other:
        elsewhere = other.to_device(scalars)
        with pytest.raises(ArgumentTypeError, match="different places"):
            CURVE.msm(points, elsewhere, device=gpu)
    with pytest.raises(ClosedError):
        CURVE.msm(points, scalars, device=other)
    with pytest.raises(GpuError, match="records a graph"), gpu.graph():
        CURVE.msm(points, scalars, device=gpu)
    assert CURVE.msm(points, scalars, device=gpu) == CURVE.msm(points, scalars)


def test_an_executor_and_the_cpu_backend_are_devices_too(
    vulkan_executor: gx.GpuExecutor,
) -> None:
    points, scalars = draw(CURVE, 40)
    expected = CURVE.msm(points, scalars)
    before = vulkan_executor.stats().dispatches
    assert CURVE.msm(points, scalars, device=vulkan_executor) == expected
    assert vulkan_executor.stats().dispatches > before
    with gx.CpuBackend() as cpu:
        assert CURVE.msm(points, cpu.to_device(scalars), device=cpu) == expected
        assert isinstance(CURVE.explain_msm(points, device=cpu), HostMsmPlan)


@pytest.mark.usefixtures("small_parts")
def test_a_graph_records_all_parts(gpu: Gpu) -> None:
    points, scalars = draw(CURVE, 40)
    there, factors = gpu.to_device(points), gpu.to_device(scalars)
    with gpu.graph() as graph:
        found = CURVE.msm(there, factors)
    graph()
    assert found.to_host() == CURVE.msm(points, scalars)


# --- memory ---


MEMORY = 640 << 10


@pytest.fixture
def small_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A device whose pool holds little memory."""
    monkeypatch.setattr(msm_parts, "LEAST_POINTS", 16)
    with gx.PersistentVulkanBackend(settings=gx.Settings(memory_limit=MEMORY)) as gpu:
        yield gpu


def test_parts_fit_the_memory_of_the_device(small_gpu: Gpu, plans: list[MsmPlan]) -> None:
    """The points in one part would take more memory than the pool may hold."""
    points, scalars = draw(CURVE, 8192)
    there = small_gpu.to_device(points)
    parts = CURVE.explain_msm(there, scalars)
    assert isinstance(parts, MsmParts)
    info = small_gpu.device
    whole = plan_msm(8192, 1, 31)
    needed, _ = msm_parts.measure_memory(CURVE.key, whole, info, copies_points=False)
    assert parts.count > 1 and needed > MEMORY
    expected = CURVE.msm(points, scalars)
    assert CURVE.msm(there, scalars).to_host() == expected
    assert CURVE.msm(points, scalars, device=small_gpu) == expected
    assert small_gpu.stats().memory.bytes_held <= MEMORY
    assert len(plans) > parts.count


def test_memory_that_is_about_to_be_released_is_free(
    small_gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(msm_parts, "RECORDED_SHARE", 0)  # no arrays are kept for the next call
    points, scalars = draw(CURVE, 1024)
    there = small_gpu.to_device(points)
    CURVE.msm(there, scalars)  # from now on the constants of the curve are there
    small_gpu.synchronize()
    memory = get_device_memory(small_gpu)
    before = memory.free_memory
    assert 0 < before < MEMORY
    for _ in range(3):
        CURVE.msm(there, scalars)  # not waited for
    assert memory.free_memory >= before


def test_a_call_runs_in_smaller_parts_if_the_memory_is_not_there(
    small_gpu: Gpu, monkeypatch: pytest.MonkeyPatch, plans: list[MsmPlan]
) -> None:
    """Another process may hold memory that this process believes to be free."""
    memory = get_device_memory(small_gpu)
    monkeypatch.setattr(type(memory), "free_memory", 1 << 30)
    points, scalars = draw(CURVE, 8192)
    assert CURVE.msm(points, scalars, device=small_gpu) == CURVE.msm(points, scalars)
    assert plans[0].points == 8192 and plans[-1].points < 8192
    monkeypatch.setattr(msm_parts, "LEAST_POINTS", 8192)
    with pytest.raises(OutOfMemoryError, match="could not allocate"):
        CURVE.msm(points, scalars, device=small_gpu)


# --- interrupts ---


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("place", ["host", "device"])
def test_an_interrupt_ends_a_call_between_parts(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, plans: list[MsmPlan], place: str
) -> None:
    points, scalars = draw(CURVE, COUNT)
    there = gpu.to_device(points)
    expected = CURVE.msm(points, scalars)

    def compute() -> PointArray:
        if place == "host":
            return CURVE.msm(points, scalars, device=gpu)
        return CURVE.msm(there, scalars)

    assert compute().to_host() == expected
    gpu.synchronize()
    held, memory, waits = gpu.stats().memory.bytes_used, get_device_memory(gpu), 0
    wait = type(memory).wait_for

    def interrupt_third(self: object, array: object) -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            raise KeyboardInterrupt
        wait(self, array)  # type: ignore[arg-type]

    plans.clear()
    with monkeypatch.context() as patched:
        patched.setattr(type(memory), "wait_for", interrupt_third)
        try:
            compute()
        except KeyboardInterrupt as error:
            kept = error  # as an interactive session keeps it
    assert len(plans) == 2 + msm_parts.PARTS_IN_FLIGHT
    gpu.synchronize()
    assert gpu.stats().memory.bytes_used <= held
    assert traceback.extract_tb(kept.__traceback__)
    assert compute().to_host() == expected


@pytest.mark.usefixtures("small_parts")
def test_ctrl_c_ends_a_call(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    points, scalars = draw(CURVE, COUNT)
    run, runs = submit_msm, 0

    def run_with_signal(*arguments: Any, **options: Any) -> None:
        nonlocal runs
        run(*arguments, **options)
        runs += 1
        if runs == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(msm_run, "submit_msm", run_with_signal)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # another test may have one
    try:
        with pytest.raises(KeyboardInterrupt):
            CURVE.msm(points, scalars, device=gpu)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert runs == 5
    assert CURVE.msm(points, scalars, device=gpu) == CURVE.msm(points, scalars)


@pytest.mark.usefixtures("small_parts")
def test_few_parts_are_in_flight(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a part is submitted, all parts but the last one before are complete."""
    points, scalars = draw(CURVE, COUNT)
    stream, run, values = get_device_memory(gpu).stream, submit_msm, [0]

    def run_counted(*arguments: Any, **options: Any) -> None:
        if len(values) > msm_parts.PARTS_IN_FLIGHT:
            assert stream._completed >= values[-msm_parts.PARTS_IN_FLIGHT]
        run(*arguments, **options)
        values.append(stream._in_flight[-1].value)

    monkeypatch.setattr(msm_run, "submit_msm", run_counted)
    assert CURVE.msm(points, scalars, device=gpu) == CURVE.msm(points, scalars)
    assert len(values) > 10


# --- explain ---


def list_parts(parts: MsmParts | HostMsmPlan) -> list[MsmPlan]:
    assert isinstance(parts, MsmParts)
    return [
        parts.plan_range(msms, points)
        for points in parts.point_ranges
        for msms in parts.batch_ranges
    ]


@pytest.mark.parametrize("is_small", [True, False])
def test_the_explained_parts_are_those_that_run(
    gpu: Gpu, plans: list[MsmPlan], request: pytest.FixtureRequest, is_small: bool
) -> None:
    if is_small:
        request.getfixturevalue("small_parts")
    points, scalars = draw(CURVE, 3, 20)
    there = gpu.to_device(points)
    table = CURVE.precompute(there[0])
    device_scalars = gpu.to_device(scalars)
    for own, factors, device in (
        (there, scalars, None),
        (there[0], device_scalars, None),
        (points, [1] * 20, gpu),
        (points[0], scalars, gpu),
        (table, scalars, None),
    ):
        plans.clear()
        explained = CURVE.explain_msm(own, factors, device=device)
        CURVE.msm(own, factors, device=device)
        assert list_parts(explained) == plans
        assert (len(plans) > 1) == is_small


def test_sizes_are_explained_without_points(gpu: Gpu) -> None:
    parts = CURVE.explain_msm(1000, batch=2, device=gpu)
    assert isinstance(parts, MsmParts)
    assert (parts.points, parts.batch, parts.part.scalar_bits) == (1000, 2, 31)
    text = str(parts)
    assert text.startswith(f"2 x 1,000 points on {gpu.device.name}, in 1 part: 2 x 1,000 points in")
    assert f"{parts.part.windows} windows of a scalar of 31 bits" in text
    assert f"{parts.part.buckets} buckets a window" in text
    assert f"memory: {parts.nbytes:,} bytes" in text
    assert CURVE.explain_msm(np.int64(1000), batch=2, device=gpu) == parts  # type: ignore[arg-type]
    points, scalars = draw(CURVE, 2, 20)
    there = gpu.to_device(points)
    assert CURVE.explain_msm(there) == CURVE.explain_msm(there, scalars)
    assert CURVE.explain_msm(there[0], batch=2) == CURVE.explain_msm(there[0], scalars)


def test_sums_on_the_host_are_explained(gpu: Gpu) -> None:
    points, _ = draw(CURVE, 2, 40)
    plan = CURVE.explain_msm(points)
    assert plan == HostMsmPlan(40, 2, 31)
    assert "2 x 40 points on the host" in str(plan) and "window: 4 bits" in str(plan)
    assert "ladder" in str(CURVE.explain_msm(32))
    assert CURVE.explain_msm(points, [1, 2] * 20) == HostMsmPlan(40, 2, 2)


def test_what_has_no_plan_is_refused(gpu: Gpu) -> None:
    points, scalars = draw(CURVE, 4)
    for wrong in (points[:0], 0):
        with pytest.raises(ArgumentShapeError, match="1 sums of 0 points need no plan"):
            CURVE.explain_msm(wrong)
    with pytest.raises(ArgumentShapeError, match="0 sums"):
        CURVE.explain_msm(4, batch=0, device=gpu)
    with pytest.raises(ArgumentShapeError, match="points: the number of elements is -1"):
        CURVE.explain_msm(-1)
    with pytest.raises(ArgumentShapeError, match="as many scalars as points"):
        CURVE.explain_msm(3, scalars)
    with pytest.raises(ArgumentShapeError, match="points with an axis"):
        CURVE.explain_msm(points[0])
    with pytest.raises(ArgumentTypeError, match="takes batch= or scalars"):
        CURVE.explain_msm(4, scalars, batch=2)
    with pytest.raises(ArgumentTypeError, match="expected a PointArray"):
        CURVE.explain_msm("many")  # type: ignore[arg-type]
