"""The soak: a short one goes well, and each kind of trouble would be seen."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gpu_executor as gx
from gpu_executor.cli.main import commands
from gpu_executor.errors import VulkanError
from gpu_executor.soak import fleet, mix, ways
from gpu_executor.soak.caller import Caller
from gpu_executor.soak.faults import DRIVER_ERROR, LOST, OUT_OF_MEMORY, Fault, Faults
from gpu_executor.soak.fleet import Place
from gpu_executor.soak.memory import MIB, Movement, Sample, movements
from gpu_executor.soak.tally import Tally
from gpu_executor.soak.trial import soak
from gpu_executor.vulkan.binding import live_objects, vk

ADD = gx.kernels.load("vector_add_u32")
X = np.arange(50, dtype=np.uint32)


def draws(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_short_soak_goes_well(tmp_path: Path) -> None:
    file = tmp_path / "soak.json"
    options = ["--minutes", "0.05", "--faults", "600", "--seed", "7", "--json", str(file)]
    shown = CliRunner().invoke(commands, ["soak", *options])
    assert shown.exit_code == 0, shown.output
    assert "seed 7" in shown.output
    assert "well: 0 lost, 0 wrong, 0 answered twice, 0 failed, 0 growth" in shown.output
    written = json.loads(file.read_text())
    assert written["well"] and not written["troubles"] and not written["left"]
    assert written["jobs"] == sum(each["jobs"] for each in written["asked"].values()) >= 10
    assert len(written["executors"]) == 4 and len(written["executors"][1]) == 2
    assert not written["absent"]


@pytest.mark.parametrize("name", mix.KERNELS)
def test_a_call_knows_its_result(name: str) -> None:
    for largest in (5, 500):
        call = mix.draw_call(draws(), name, largest)
        result = gx.CpuBackend().run(call.kernel, *call.arrays)
        assert call.wrong(result) is None
        result.reshape(-1)[-1] += 1
        assert "1 numbers are wrong" in str(call.wrong(result))
        assert call.wrong(call.room()) is not None
        assert "ClosedError: gone" in str(call.wrong(gx.errors.ClosedError("gone")))


def test_a_bad_call_must_be_refused_for_its_bad_element() -> None:
    call = mix.draw_call(draws(), "goldilocks_add", 500, bad=True)
    with pytest.raises(gx.ElementRangeError) as caught:
        gx.CpuBackend().run(call.kernel, *call.arrays)
    assert call.wrong(caught.value) is None
    assert "refused for another" in str(call.wrong(gx.ElementRangeError("x", 1, 10**6)))
    assert "above the modulus" in str(call.wrong(X))


def test_sizes_are_mostly_small() -> None:
    drawn = [mix.size(draws(seed), 100_000) for seed in range(500)]
    assert min(drawn) == 1 and max(drawn) > 50_000
    assert 100 < np.median(drawn) < 1_000


@pytest.mark.parametrize("way", ways.WAYS, ids=lambda way: way.name)
def test_every_way_answers_every_call_once(way: ways.Way) -> None:
    calls = [mix.draw_call(draws(n), "babybear_add", 40) for n in range(way.most)]
    with gx.GpuExecutor("cpu") as executor:
        outcomes = list(way.ask(executor, calls, draws()))
    assert [call for call, _ in outcomes] == calls
    for call, outcome in outcomes:
        assert isinstance(outcome, ways.Cancelled) or call.wrong(outcome) is None


class Broken(gx.GpuExecutor):
    """Gives what it is told to instead of results."""

    def __init__(self, instead: Any) -> None:
        super().__init__("cpu")
        self.instead = instead

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(self.instead, Exception):
            future.set_exception(self.instead)
        elif self.instead is not None:
            future.set_result(self.instead)
        return future


@pytest.mark.parametrize(
    ("instead", "trouble"),
    [
        (None, "lost"),
        (X, "wrong"),
        (VulkanError("vkQueueSubmit", -1, "by itself"), "failed"),
        (gx.errors.ClosedError("too early"), "failed"),
    ],
)
def test_what_an_executor_does_wrong_is_told(
    monkeypatch: pytest.MonkeyPatch, instead: Any, trouble: str
) -> None:
    monkeypatch.setattr(ways, "PATIENCE", 0.01)
    monkeypatch.setattr(ways, "CANCELLED_SHARE", 0.0)
    monkeypatch.setattr(ways, "HELPED_SHARE", 0.0)
    monkeypatch.setattr("gpu_executor.soak.caller.WAYS", [ways.Way("submit", ways.submit, 1)])
    monkeypatch.setattr("gpu_executor.soak.caller.BAD_SHARE", 0.0)
    tally = Tally()
    with Broken(instead) as executor:
        Caller(draws(), [executor], Faults(draws(), 0), tally)._ask()
    assert dict(tally.troubles) == {trouble: 1}
    assert tally.described[0].startswith(f"{trouble}: submit on <GpuExecutor")


def test_a_result_that_changes_later_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_executor.soak.caller.BAD_SHARE", 0.0)
    tally = Tally()
    with gx.GpuExecutor("cpu") as executor:
        caller = Caller(draws(), [executor], Faults(draws(), 0), tally)
        caller._ask()
        caller._held[0][2].reshape(-1)[0] += 1
        caller.look_again()
    assert dict(tally.troubles) == {"wrong": 1}
    assert "some time after it was right" in tally.described[0]


def test_a_second_answer_is_told() -> None:
    tally, future = Tally(), Future[int]()
    future.set_result(1)
    before, threading.excepthook = threading.excepthook, tally.thread_died
    try:
        thread = threading.Thread(target=future.set_result, args=(2,), name="worker")
        thread.start()
        thread.join()
    finally:
        threading.excepthook = before
    assert dict(tally.troubles) == {"answered twice": 1}


@pytest.mark.parametrize(
    ("kind", "call", "error"),
    [
        (LOST, "vkQueueSubmit", gx.DeviceLostError),
        (LOST, "vkWaitSemaphores", gx.DeviceLostError),
        (OUT_OF_MEMORY, "vkQueueSubmit", gx.OutOfMemoryError),
        (DRIVER_ERROR, "vkQueueSubmit", VulkanError),
    ],
)
def test_a_fault_strikes_once_and_a_lost_device_stays_lost(
    kind: str, call: str, error: type[Exception]
) -> None:
    before, real = live_objects(), vk.vkQueueSubmit
    with Faults(draws(), 0) as faults:
        with gx.PersistentVulkanBackend() as gpu, gx.PersistentVulkanBackend() as other:
            faults._armed[call] = Fault(kind, call, "VK_ERROR_UNKNOWN", 0)
            with pytest.raises(error, match="on purpose"):
                gpu.run(ADD, X, X)
            assert dict(faults.fired) == {(kind, call): 1}
            np.testing.assert_array_equal(other.run(ADD, X, X), 2 * X)
            if kind == LOST:
                with pytest.raises(gx.DeviceLostError):
                    gpu.run(ADD, X, X)
            else:
                np.testing.assert_array_equal(gpu.run(ADD, X, X), 2 * X)
        with gx.PersistentVulkanBackend() as gpu:
            np.testing.assert_array_equal(gpu.run(ADD, X, X), 2 * X)
    assert vk.vkQueueSubmit is real
    assert live_objects() == before


def test_growth_is_seen_and_warming_up_is_none() -> None:
    def moved(*megabytes: float) -> list[Movement]:
        samples = enumerate(int(each * MIB) for each in megabytes)
        return movements([Sample(10.0 * n, 0, 0, 0, other, 0) for n, other in samples])

    def grew(*megabytes: float) -> bool:
        return any(each.grew for each in moved(*megabytes))

    steady = [100.0, 200.0, 290.0, *[300.0, 310.0, 305.0] * 20]
    assert not grew(*steady)
    assert not grew(*reversed(steady))
    assert grew(*(300 + 5 * n for n in range(60)))
    assert {each.allowed for each in moved(*[100.0] * 15)} == {None}  # it was warming up
    assert {each.allowed for each in moved(*[300.0] * 15, *[900.0] * 15)} == {None}  # too few
    assert grew(*[300.0] * 25, *[900.0] * 15)
    assert not grew(1, 1, 1, 1, 999, 999)


def test_a_caller_that_does_not_come_back_ends_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    over = threading.Event()
    monkeypatch.setattr(fleet, "PLACES", (Place("cpu"),))
    monkeypatch.setattr("gpu_executor.soak.trial.PATIENCE", 0.01)
    monkeypatch.setattr(Caller, "work", lambda *_: over.wait())
    try:
        report = soak(0.005, 1)
    finally:
        over.set()
    assert dict(report.tally.troubles) == {"lost": 3}
    assert report.samples == () and len(report.executors) == 1
    assert "in wait" in capfd.readouterr().err


def test_a_backend_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "PLACES", (Place("cpu"), Place("vulkan", [99])))
    monkeypatch.setattr("gpu_executor.soak.caller.CARD_SHARE", 0.0)
    report = soak(0.005, 1)
    assert report.well and len(report.executors) == 1
    assert "no device matches 99" in report.absent[0]
