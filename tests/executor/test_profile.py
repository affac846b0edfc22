"""Profiles of an executor: all devices on one clock, and a trace with a process for each device."""

from __future__ import annotations

import json
import time
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ClosedError, GpuError
from gpu_executor.executor.candidates import BackendName
from gpu_executor.executor.device_metrics import DeviceProfile
from gpu_executor.executor.jobs import CallArguments
from gpu_executor.primes import BLS12_381_FQ, words
from tests.conftest import elements
from tests.support.backend_faults import delay_calls
from tests.support.executors import BACKENDS

MUL = gx.kernels.load("bls12_381_fq_mont_mul")
A, B = (words.from_ints(BLS12_381_FQ, elements(BLS12_381_FQ, 300, seed)) for seed in (1, 2))
EXPECTED = words.mont_mul(BLS12_381_FQ, A, B)
# Device and host clocks are aligned far more closely than this.
SLACK_NS = 1_000_000

Event = dict[str, Any]


def events_of(file: Path) -> tuple[dict[int, str], dict[tuple[int, int], str], list[Event]]:
    """Names of processes, names of tracks, and the spans of a trace."""
    events = json.loads(file.read_text())["traceEvents"]
    names = [each for each in events if each["ph"] == "M"]
    processes = {e["pid"]: e["args"]["name"] for e in names if e["name"] == "process_name"}
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in names if e["name"] == "thread_name"}
    assert len(names) == len(processes) + len(tracks)
    return processes, tracks, [each for each in events if each["ph"] == "X"]


def test_every_device_is_a_process_of_the_trace_on_one_clock(tmp_path: Path) -> None:
    with gx.GpuExecutor("vulkan", devices=[0, 0]) as executor:
        name = executor.stats().devices[0].device
        executor.run_batch(MUL, [(A, B)] * 4)
        with executor.profile() as profile:
            begun = time.perf_counter_ns()
            futures = [executor.submit(MUL, A, B) for _ in range(40)]
            results = [future.result() for future in futures]
            ended = time.perf_counter_ns()
        executor.run(MUL, A, B)  # not profiled
    for result in results:
        np.testing.assert_array_equal(result, EXPECTED)
    assert len(profile.devices) == 2
    all_spans = profile.spans
    assert all(begun - SLACK_NS <= each.begin_ns <= each.end_ns for each in all_spans)
    assert all(each.end_ns <= ended + SLACK_NS for each in all_spans)
    assert all_spans == [span for each in profile.devices for span in each.spans]
    recordings: list[Any] = [*profile.devices, profile]
    for recorded in recordings:
        computed = sum(each.nanoseconds for each in recorded.spans if each.stage == "compute")
        assert recorded.stages()["compute"] == pytest.approx(computed / 1e9)
    file = tmp_path / "trace.json"
    profile.save_trace(str(file))
    processes, tracks, events = events_of(file)
    assert processes == {1: f"0: {name} by vulkan", 2: f"1: {name} by vulkan"}
    assert len(events) == len(all_spans)
    assert {(each["pid"], each["tid"]) for each in events} == set(tracks)
    assert min(each["ts"] for each in events) == 0
    for pid, own in enumerate((each.spans for each in profile.devices), 1):
        mine = [each for each in events if each["pid"] == pid]
        first = min(each.begin_ns for each in all_spans)
        assert [each["ts"] for each in mine] == [(each.begin_ns - first) / 1e3 for each in own]
        jobs = [each for each in mine if each["name"] == MUL.name]
        chunks = [each for each in mine if each["name"] == "compute"]
        assert bool(jobs) == bool(chunks)
        for chunk in chunks:  # every chunk lies within a job of its device
            assert any(
                job["ts"] - SLACK_NS / 1e3
                <= chunk["ts"]
                <= chunk["ts"] + chunk["dur"]
                <= job["ts"] + job["dur"] + SLACK_NS / 1e3
                for job in jobs
            )


def test_jobs_of_the_cpu_and_their_compute_stage_are_in_the_trace(tmp_path: Path) -> None:
    with gx.GpuExecutor("cpu") as executor:
        with executor.profile() as profile:
            executor.run(MUL, A, B)
            wait([executor.submit(MUL, A, B)])
        executor.run(MUL, A, B)
    stages = profile.stages()
    assert stages["compute"] > 0 == stages["fill"] == stages["drain"]
    profile.save_trace(tmp_path / "trace.json")
    processes, tracks, spans = events_of(tmp_path / "trace.json")
    assert processes == {1: "0: NumPy by cpu"}
    assert sorted(tracks.values()) == ["host MainThread", "host gpu-executor NumPy by cpu"]
    assert sorted(each["name"] for each in spans) == sorted([MUL.name, "compute"] * 2)
    assert sorted(each["args"]["chunk"] for each in spans) == [1, 1, 2, 2]
    assert all(each["dur"] > 0 for each in spans)


def test_small_calls_on_the_cpu_are_in_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gx.GpuExecutor("vulkan", small_on_cpu=True) as executor:
        delay_calls(executor._devices[0].backend, monkeypatch)
        with executor.profile() as profile:
            executor.run(MUL, A[:3], B[:3])
            executor.submit(MUL, A[:4], B[:4]).result()
        assert [each.calls for each in executor.stats().devices] == [0, 2]
    profile.save_trace(tmp_path / "trace.json")
    processes, _, spans = events_of(tmp_path / "trace.json")
    assert processes[2] == "1: NumPy by cpu"
    names = [each["name"] for each in spans if each["pid"] == 2]
    assert names.count(MUL.name) == 2
    assert names.count("compute") >= 2  # those of the measurements are there too


def test_a_reopened_device_stays_in_the_profile() -> None:
    with gx.GpuExecutor("vulkan") as executor:
        device = executor._devices[0]
        with executor.profile() as profile:
            executor.run(MUL, A, B)
            before = [each.stage for each in profile.spans]
            device._recover(device.backend, gx.DeviceLostError("vkQueueSubmit", -4, "on purpose"))
            np.testing.assert_array_equal(executor.run(MUL, A, B), EXPECTED)
            assert executor.stats().devices[0].reopened == 1
        executor.run(MUL, A, B)  # not profiled
    assert {"compute", MUL.name} <= set(before)
    after = [each.stage for each in profile.spans]
    assert sorted(after) == sorted(2 * before)
    stages = profile.stages()
    for stage, seconds in stages.items():
        recorded = sum(each.nanoseconds for each in profile.spans if each.stage == stage)
        assert seconds == pytest.approx(recorded / 1e9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_profile_is_refused_and_the_first_continues(backend: BackendName) -> None:
    with gx.GpuExecutor(backend) as executor:
        with executor.profile() as first:
            executor.run(MUL, A, B)
            once = len(first.spans)
            for another in (executor.profile(), first):
                with pytest.raises(GpuError, match=f"{backend} is being profiled already"), another:
                    pass
            executor.run(MUL, A, B)
        with executor.profile() as second:
            executor.run(MUL, A, B)
    assert once > 0
    assert [len(each.spans) for each in (first, second)] == [2 * once, once]


def test_no_device_is_profiled_if_one_refuses() -> None:
    with gx.GpuExecutor("vulkan", devices=[0, 0]) as executor:
        free, taken = executor._devices
        own = DeviceProfile()
        taken.start_profile(own)
        with pytest.raises(GpuError, match="is being profiled already"), executor.profile():
            pass
        free.run(MUL, CallArguments((A, B)))
        taken.run(MUL, CallArguments((A, B)))
        assert free.backend._session.profile is None  # type: ignore[attr-defined]
        assert own.stages()["compute"] > 0
        taken.stop_profile(own)
        own.stop()
        with executor.profile() as profile:
            free.run(MUL, CallArguments((A, B)))
            taken.run(MUL, CallArguments((A, B)))
    assert [each.stages()["compute"] > 0 for each in profile.devices] == [True, True]


def test_an_empty_profile_is_an_empty_trace(tmp_path: Path) -> None:
    with gx.GpuExecutor("cpu") as executor, executor.profile() as profile:
        pass
    profile.save_trace(tmp_path / "trace.json")
    assert events_of(tmp_path / "trace.json") == ({1: "0: NumPy by cpu"}, {}, [])
    with pytest.raises(ClosedError):
        executor.profile()
