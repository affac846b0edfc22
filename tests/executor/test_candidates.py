"""The ranking and selection of devices; a fallback is never silent."""

from __future__ import annotations

import dataclasses
import functools
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import (
    DeviceLostError,
    DeviceNotFoundError,
    NoDeviceError,
    SettingsError,
    WrongResultError,
)
from gpu_executor.executor import candidates
from gpu_executor.executor.candidates import DeviceCandidate, rank_devices, select_candidates
from gpu_executor.executor.device_pool import MAX_SMALL_BYTES
from gpu_executor.vulkan.disk_cache import write_calibration
from gpu_executor.vulkan.instance import find_devices
from tests.support.backend_faults import delay_calls
from tests.support.calibrations import LAVAPIPE
from tests.support.executors import ADD, make_addition, make_kernel, total, words

Find = Callable[..., None]
GPU = DeviceCandidate("vulkan", "NVIDIA H200", 0, True, uuid="aaaa-01")
SECOND = DeviceCandidate("vulkan", "NVIDIA H200", 1, True, uuid="bbbb-02")
SOFTWARE = DeviceCandidate("vulkan", "llvmpipe", 2, False, uuid="cccc-03")
WEB_GPU = DeviceCandidate("webgpu", "Apple M3", 0, True)
WEB_SOFTWARE = DeviceCandidate("webgpu", "llvmpipe", 1, False)
NUMPY = DeviceCandidate("cpu", "NumPy", None, False)


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Find:
    """Set what the backends find: device candidates, or an error."""

    def pretend(**found: list[DeviceCandidate] | Exception) -> None:
        def finder(name: str, _settings: gx.Settings) -> list[DeviceCandidate]:
            what = found.get(name, [])
            if isinstance(what, Exception):
                raise what
            return what

        for name in ("vulkan", "webgpu"):
            monkeypatch.setitem(candidates.FINDERS, name, functools.partial(finder, name))

    return pretend


@pytest.fixture
def opened() -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor() as executor:
        yield executor


def lost() -> DeviceLostError:
    return DeviceLostError("vkQueueSubmit", -4, "VK_ERROR_DEVICE_LOST")


def test_the_ranking_is_vulkan_webgpu_numpy_and_gpus_before_software(find: Find) -> None:
    find(vulkan=[SOFTWARE, GPU, SECOND], webgpu=[WEB_SOFTWARE, WEB_GPU])
    ranking = rank_devices("auto")
    assert [*ranking] == [GPU, SECOND, SOFTWARE, NUMPY]
    assert [*ranking.notes] == ["webgpu: not looked at, Vulkan has a device"]
    assert [*ranking.iterate_all()] == [GPU, SECOND, SOFTWARE, WEB_GPU, WEB_SOFTWARE, NUMPY]
    assert [*ranking] == [GPU, SECOND, SOFTWARE, WEB_GPU, WEB_SOFTWARE, NUMPY]
    assert [*ranking.notes] == []
    assert [*rank_devices("vulkan")] == [GPU, SECOND, SOFTWARE]
    assert [*rank_devices("webgpu")] == [WEB_GPU, WEB_SOFTWARE]
    assert [*rank_devices("cpu")] == [NUMPY]


def test_beyond_linux_webgpu_gpus_come_before_software(
    find: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "DEFERS_WEBGPU", False)
    find(vulkan=[SOFTWARE, GPU, SECOND], webgpu=[WEB_SOFTWARE, WEB_GPU])
    ranking = rank_devices("auto")
    assert [*ranking] == [GPU, SECOND, WEB_GPU, SOFTWARE, WEB_SOFTWARE, NUMPY]
    assert [*ranking.iterate_all()] == [*ranking]
    assert ranking.find(2) == WEB_GPU


@pytest.mark.parametrize(
    ("wanted", "found", "looked"),
    [
        (0, GPU, False),
        ("1", SECOND, False),
        ("bbbb", SECOND, False),
        ("LLVM", SOFTWARE, False),
        ("numpy", NUMPY, False),
        ("apple", WEB_GPU, True),
        (3, WEB_GPU, True),
        ("4", WEB_SOFTWARE, True),
        (5, NUMPY, True),
        ("radeon", None, True),
        (6, None, True),
    ],
)
def test_webgpu_is_looked_at_for_devices_that_vulkan_lacks(
    find: Find, wanted: str | int, found: DeviceCandidate | None, looked: bool
) -> None:
    find(vulkan=[GPU, SECOND, SOFTWARE], webgpu=[WEB_GPU, WEB_SOFTWARE])
    ranking = rank_devices("auto")
    if found is None:
        with pytest.raises(DeviceNotFoundError, match=r"3: Apple M3 by webgpu, .* 5: NumPy by cpu"):
            ranking.find(wanted)
    else:
        assert ranking.find(wanted) == found
    assert (WEB_GPU in ranking) is looked


def test_without_a_vulkan_device_webgpu_is_looked_at_and_then_numpy(find: Find) -> None:
    nothing: list[DeviceCandidate] = []
    for vulkan in (NoDeviceError("no driver"), nothing):
        find(vulkan=vulkan, webgpu=[WEB_SOFTWARE])
        assert [*rank_devices("auto")] == [WEB_SOFTWARE, NUMPY]
        find(vulkan=vulkan, webgpu=NoDeviceError("no wgpu"))
        ranking = rank_devices("auto")
        assert [*ranking] == [NUMPY]
        assert [note.partition(":")[0] for note in ranking.notes] == ["vulkan", "webgpu"]


def test_without_a_vulkan_device_an_executor_runs_on_webgpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find_nothing(_settings: gx.Settings) -> list[DeviceCandidate]:
        raise NoDeviceError("no driver")

    monkeypatch.setitem(candidates.FINDERS, "vulkan", find_nothing)
    with gx.GpuExecutor() as executor:
        np.testing.assert_array_equal(executor.run(ADD, *words(3)), total(words(3)))
        stats = executor.stats()
        assert [(each.backend, each.calls) for each in stats.devices] == [("webgpu", 1)]
        assert not stats.fell_back


@pytest.mark.parametrize("named", [False, True], ids=["place", "name"])
def test_the_environment_names_a_device_of_webgpu(
    find: Find, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    there = candidates._find_webgpu(gx.Settings())
    find(vulkan=[GPU], webgpu=there)
    monkeypatch.setenv("GPU_DEVICE", there[0].device if named else "1")
    with gx.GpuExecutor() as executor:
        np.testing.assert_array_equal(executor.run(ADD, *words(3)), total(words(3)))
        assert executor.stats().devices[0].backend == "webgpu"
        assert executor.ranking[1] == there[0]


def test_webgpu_is_looked_at_if_no_vulkan_device_can_be_opened(find: Find) -> None:
    there = candidates._find_webgpu(gx.Settings())
    find(vulkan=[dataclasses.replace(GPU, index=99)], webgpu=there)
    with pytest.warns(RuntimeWarning, match=f"back to {re.escape(str(there[0]))}: no better"):
        executor = gx.GpuExecutor()
    with executor:
        assert executor.stats().devices[0].backend == "webgpu"
        assert f"* 1: {there[0]}" in str(executor.explain(ADD, 10))


def test_webgpu_is_looked_at_once_by_many_threads(find: Find) -> None:
    looks: list[str] = []
    find(vulkan=[GPU], webgpu=[WEB_GPU])
    look = candidates.FINDERS["webgpu"]

    def count(settings: gx.Settings) -> list[DeviceCandidate]:
        looks.append("once")
        time.sleep(0.01)
        return look(settings)

    candidates.FINDERS["webgpu"] = count  # the fixture restores it
    ranking = rank_devices("auto")
    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(ranking.find, ["apple"] * 8)] == [WEB_GPU] * 8
    assert looks == ["once"]
    assert [*ranking] == [GPU, WEB_GPU, NUMPY]


def test_devices_of_one_rank_are_sorted_by_their_calibrated_rates(find: Find) -> None:
    slow, fast = dataclasses.replace(GPU, rate=1e12), dataclasses.replace(SECOND, rate=2e12)
    find(vulkan=[slow, fast, SOFTWARE], webgpu=[WEB_GPU])
    assert [*rank_devices("auto")] == [fast, slow, SOFTWARE, NUMPY]
    find(vulkan=[slow, SECOND])
    assert [*rank_devices("vulkan")] == [slow, SECOND], "rates are compared only if all are known"


def test_calibrations_are_read_from_the_cache_directory(tmp_path: Path) -> None:
    (info,) = [each for each in find_devices() if each.index == 0]
    write_calibration(tmp_path, info, LAVAPIPE)
    settings = gx.Settings(cache_dir=tmp_path)
    assert rank_devices("vulkan", settings)[0].rate == LAVAPIPE.kernel
    assert rank_devices("vulkan", dataclasses.replace(settings, calibrate=False))[0].rate is None


def test_devices_are_selected_by_place_uuid_and_name(find: Find) -> None:
    find(vulkan=[GPU, SECOND, SOFTWARE], webgpu=[WEB_GPU])
    ranking = rank_devices("auto")
    assert select_candidates(ranking, None, None) == [GPU]
    assert select_candidates(ranking, 1, None) == select_candidates(ranking, "1", None) == [SECOND]
    assert select_candidates(ranking, "bbbb", None) == [SECOND]
    assert select_candidates(ranking, "apple", None) == [WEB_GPU]
    assert select_candidates(ranking, None, "all") == [GPU, SECOND]
    assert select_candidates(ranking, None, [0, 0, "llvm"]) == [GPU, GPU, SOFTWARE]


def test_an_unknown_device_is_an_error_that_lists_the_devices(find: Find) -> None:
    find(vulkan=[GPU], webgpu=[])
    ranking = rank_devices("auto")
    for wanted in (2, "2", -1, "radeon"):
        with pytest.raises(DeviceNotFoundError, match="0: NVIDIA H200 by vulkan, 1: NumPy by cpu"):
            select_candidates(ranking, wanted, None)
    with pytest.raises(SettingsError, match="not both"):
        select_candidates(ranking, 0, "all")
    with pytest.raises(SettingsError, match="'all' or a list of devices, not 'some'"):
        select_candidates(ranking, None, "some")
    with pytest.raises(SettingsError, match="there is no backend 'cuda'; there are auto, vulkan"):
        rank_devices("cuda")  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["vulkan", "webgpu"])
def test_a_named_backend_without_a_device_is_an_error(find: Find, backend: str) -> None:
    find(vulkan=NoDeviceError("no driver"), webgpu=NoDeviceError("no wgpu"))
    with pytest.raises(NoDeviceError, match=r"no driver|no wgpu"):
        gx.GpuExecutor(backend)  # type: ignore[arg-type]
    find()
    with pytest.raises(NoDeviceError, match=f"the backend '{backend}' finds no device"):
        gx.GpuExecutor(backend)  # type: ignore[arg-type]


def test_auto_without_a_device_warns_and_gives_the_reasons(find: Find) -> None:
    find(vulkan=NoDeviceError("no driver"), webgpu=[])
    with pytest.warns(RuntimeWarning, match="back to NumPy by cpu.*vulkan: no driver.*webgpu: no"):
        executor = gx.GpuExecutor()
    with executor:
        np.testing.assert_array_equal(executor.run(ADD, *words(3)), total(words(3)))
        stats = executor.stats()
        assert stats.fell_back
        assert [(each.backend, each.calls) for each in stats.devices] == [("cpu", 1)]
        assert "vulkan: no driver" in str(executor.explain(ADD, 10))


def test_the_cpu_by_name_is_not_a_fallback(find: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEVICE", "NVIDIA")
    find()
    with gx.GpuExecutor("cpu") as executor:
        assert not executor.stats().fell_back


def test_auto_tries_the_next_device_and_warns(find: Find) -> None:
    there = candidates._find_vulkan(gx.Settings())
    find(vulkan=[dataclasses.replace(GPU, index=99), *there])
    with pytest.warns(
        RuntimeWarning, match="no better device could be opened; .*NVIDIA H200 by vulkan: "
    ):
        executor = gx.GpuExecutor()
    with executor:
        assert executor.stats().devices[0].device == there[0].device
        assert not executor.stats().fell_back
    with pytest.raises(DeviceNotFoundError):
        gx.GpuExecutor(device="H200")


def test_the_environment_names_a_device(find: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    there = candidates._find_vulkan(gx.Settings())
    find(vulkan=[dataclasses.replace(GPU, device="another", index=99), *there])
    monkeypatch.setenv("GPU_DEVICE", there[0].device)
    with gx.GpuExecutor() as executor:
        assert executor.stats().devices[0].device == there[0].device


def test_auto_falls_back_to_the_cpu_after_a_loss_and_warns_once(
    opened: gx.GpuExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = opened._devices[0]

    def fail(*_arguments: object, **_options: object) -> object:
        raise lost()

    def reopen(candidate: DeviceCandidate, _settings: gx.Settings) -> gx.CpuBackend:
        if candidate.backend == "vulkan":
            raise NoDeviceError("it is not there any more")
        return gx.CpuBackend()

    monkeypatch.setattr(device.backend, "run", fail)
    monkeypatch.setattr(DeviceCandidate, "open", reopen)
    with pytest.warns(
        RuntimeWarning,
        match=r"to the CPU \(NumPy\): no usable device is left: .*it is not there any",
    ):
        np.testing.assert_array_equal(opened.run(ADD, *words(3)), total(words(3)))
    np.testing.assert_array_equal(opened.submit(ADD, *words(4)).result(), total(words(4)))
    stats = opened.stats()
    assert stats.fell_back
    why = "it was lost and could not be reopened: it is not there any more"
    assert stats.devices[0].failed == why
    assert (stats.devices[1].backend, stats.devices[1].calls) == ("cpu", 2)
    without = gx.Kernel.from_spirv(ADD.spirv, count=True, buffers="in, in, out", work_group=64)
    with pytest.raises(NoDeviceError, match="not there any more"):
        opened.run(without, *words(3))
    with pytest.raises(NoDeviceError, match="not there any more"):
        opened.submit(without, *words(3)).result()


def test_a_named_device_that_failed_has_no_fallback() -> None:
    draw = np.random.default_rng(1)
    wrong = make_kernel(lambda a, _b: draw.integers(0, 1 << 32, len(a), np.uint32))
    with gx.GpuExecutor("cpu", check=1.0) as executor:
        with pytest.raises(WrongResultError):
            executor.submit(wrong, *words(3)).result()
        for _ in range(2):  # each a new exception with the reason
            with pytest.raises(
                NoDeviceError, match=r"is quarantined: .* not what the CPU computes"
            ):
                executor.run(ADD, *words(3))
            with pytest.raises(
                NoDeviceError, match=r"is quarantined: .* not what the CPU computes"
            ):
                executor.submit(ADD, *words(3)).result()
        assert not executor.stats().fell_back


def test_explain_prints_the_ranking_and_the_plan(opened: gx.GpuExecutor) -> None:
    text, name = str(opened.explain(ADD, 1000)), re.escape(gx.devices()[0].name)
    assert re.search(rf"^  \* 0: {name} by vulkan$", text, re.MULTILINE)
    assert re.search(r"^    \d: NumPy by cpu$", text, re.MULTILINE)
    assert "    -  webgpu: not looked at, Vulkan has a device" in text
    assert "1,000 elements on the host-visible path" in text
    with gx.GpuExecutor("webgpu") as executor:
        assert f"* 0: {gx.devices()[0].name}" in str(executor.explain(ADD, 1000))


# --- small calls ---


def test_small_calls_run_on_the_cpu_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    with gx.GpuExecutor("vulkan", small_on_cpu=True) as executor:
        delay_calls(executor._devices[0].backend, monkeypatch)
        for count in (3, 3, 1000):
            np.testing.assert_array_equal(executor.run(ADD, *words(count)), total(words(count)))
        np.testing.assert_array_equal(executor.submit(ADD, *words(5)).result(), total(words(5)))
        assert [each.calls for each in executor.stats().devices] == [0, 4]
        executor.run(ADD, *words(MAX_SMALL_BYTES))
        assert [each.calls for each in executor.stats().devices] == [1, 4], (
            "large calls run on the device"
        )
        assert "faster on the CPU: under 32, 64, 8,192 bytes" in str(executor.explain(ADD, 10))
        assert not executor.stats().fell_back


def test_small_calls_run_on_the_device_where_it_is_faster_or_the_cpu_cannot() -> None:
    slow = make_kernel(make_addition(lambda: time.sleep(0.005)))
    without = gx.Kernel.from_spirv(ADD.spirv, count=True, buffers="in, in, out", work_group=64)
    with gx.GpuExecutor("vulkan", small_on_cpu=True) as executor:
        for kernel in (slow, without):
            np.testing.assert_array_equal(executor.run(kernel, *words(3)), total(words(3)))
        assert executor.stats().devices[0].calls == 2
        assert "none so far" in str(executor.explain(slow, 10))


def test_small_calls_run_on_the_device_by_default() -> None:
    with gx.GpuExecutor("vulkan") as executor:
        executor.run(ADD, *words(3))
        assert [(each.backend, each.calls) for each in executor.stats().devices] == [("vulkan", 1)]
