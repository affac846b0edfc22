"""Profiles: every stage of every chunk, on the host's clock, as data and as a trace."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ClosedError, GpuError, SettingsError
from gpu_executor.primes import BLS12_381_FQ, words
from gpu_executor.telemetry.profile import STAGES
from gpu_executor.vulkan.profile import Profile
from tests.conftest import OpenGpu, elements, on_both_paths

MUL = gx.kernels.load("bls12_381_fq_mont_mul")
SIZE, CHUNK = 2050, 500
A, B = (words.from_ints(BLS12_381_FQ, elements(BLS12_381_FQ, SIZE, seed)) for seed in (1, 2))
EXPECTED = words.mont_mul(BLS12_381_FQ, A, B)


@on_both_paths
def test_every_stage_of_every_chunk_lies_within_the_call(
    staged_inputs: None, fresh_gpu: OpenGpu, device_local: bool
) -> None:
    gpu = fresh_gpu(stream_chunk_elems=CHUNK)
    with gpu.profile() as profile:
        begun = time.perf_counter_ns()
        result = gpu.run(MUL, A, B, device_local=device_local)
        ended = time.perf_counter_ns()
    np.testing.assert_array_equal(result, EXPECTED)
    chunks = -(-SIZE // CHUNK)
    stages = set(STAGES) if device_local else {"fill", "compute", "drain"}
    for stage in stages:
        spans = [span for span in profile.spans if span.stage == stage]
        assert sorted(span.chunk for span in spans) == list(range(1, chunks + 1))
    assert {span.stage for span in profile.spans} == stages
    # Device and host share one clock; its calibration is far better than a millisecond.
    assert all(begun - 1_000_000 <= span.begin_ns <= span.end_ns for span in profile.spans)
    assert all(span.end_ns <= ended + 1_000_000 for span in profile.spans)
    for number in range(1, chunks + 1):
        mine = {span.stage: span for span in profile.spans if span.chunk == number}
        order = [mine[stage] for stage in STAGES[1:4] if stage in mine]
        assert all(a.end_ns <= b.end_ns for a, b in itertools.pairwise(order))


def test_stages_are_summed_and_the_trace_is_valid(
    staged_inputs: None, fresh_gpu: OpenGpu, tmp_path: Path
) -> None:
    gpu = fresh_gpu(stream_chunk_elems=CHUNK)
    with gpu.profile() as profile:
        gpu.run_batch(MUL, [(A, B)] * 3, pipelined=True, depth=2, device_local=True)
    stages = profile.stages()
    assert list(stages) == list(STAGES)
    assert all(seconds > 0 for seconds in stages.values())
    assert stages["compute"] == pytest.approx(
        sum(span.nanoseconds for span in profile.spans if span.stage == "compute") / 1e9
    )
    file = tmp_path / "trace.json"
    profile.save_trace(file)
    events = json.loads(file.read_text())["traceEvents"]
    named = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"queue", "host MainThread"} <= set(named.values())
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == len(profile.spans)
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in spans)
    assert {event["tid"] for event in spans} == set(named)


def test_nothing_is_recorded_outside_a_profile(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    gpu.run(MUL, A, B)
    with gpu.profile() as profile:
        gpu.run(MUL, A, B)
    seen = len(profile.spans)
    assert seen > 0
    for _ in range(3):
        np.testing.assert_array_equal(gpu.run(MUL, A, B), EXPECTED)
    assert len(profile.spans) == seen


def test_a_second_profile_is_refused_and_the_first_continues(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    with gpu.profile() as first:
        gpu.run(MUL, A, B)
        once = len(first.spans)
        assert once > 0
        with pytest.raises(GpuError, match="is being profiled already; end that profile first"):
            gpu.profile()
        gpu.run(MUL, A, B)
        assert len(first.spans) == 2 * once
    with gpu.profile() as second:  # no profile is active now
        first.stop()  # ended a second time
        gpu.run(MUL, A, B)
    assert (len(first.spans), len(second.spans)) == (2 * once, once)
    with gpu.profile() as last:
        gpu.run(MUL, A, B)
        gpu.close()
        with pytest.raises(ClosedError):
            gpu.profile()
    assert len(last.spans) == once


UNWRITABLE = ["", ".", "missing/trace.json", "file/trace.json", "a\0b", 5]


@pytest.mark.parametrize("name", UNWRITABLE, ids=repr)
def test_a_trace_that_cannot_be_written_is_refused_before_anything_runs(
    fresh_gpu: OpenGpu, tmp_path: Path, name: Any
) -> None:
    (tmp_path / "file").write_text("old")
    path = f"{tmp_path}/{name}" if isinstance(name, str) else name
    gpu = fresh_gpu()
    with gx.GpuExecutor("cpu") as executor:
        for profile in (gpu.profile, executor.profile):
            with pytest.raises(SettingsError, match=r"trace is .*, which cannot be written: "):
                profile(trace=path)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    with gpu.profile():  # the refused profile is not active
        gpu.run(MUL, A, B)


def test_the_trace_is_written_at_the_end_also_after_an_error(
    fresh_gpu: OpenGpu, tmp_path: Path
) -> None:
    path, gpu = tmp_path / "trace.json", fresh_gpu()
    path.write_text("old")
    with gpu.profile(trace=path) as profile:
        assert path.read_text() == "old"
        gpu.run(MUL, A, B)
    spans = [each for each in json.loads(path.read_text())["traceEvents"] if each["ph"] == "X"]
    assert len(spans) == len(profile.spans) > 0
    path.unlink()
    with pytest.raises(KeyError), gpu.profile(trace=str(path)):
        assert not path.exists()
        gpu.run(MUL, A, B)
        raise KeyError
    assert json.loads(path.read_text())["traceEvents"]


def test_a_trace_that_cannot_be_written_in_the_end_is_not_lost(
    fresh_gpu: OpenGpu, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, gpu = tmp_path / "folder", fresh_gpu()
    folder.mkdir()

    def profile_and_remove() -> Profile:
        profile = gpu.profile(trace=folder / "trace.json")
        gpu.run(MUL, A, B)
        folder.rmdir()
        return profile

    words = r"the trace was not written: .*call save_trace with another path"
    with pytest.raises(SettingsError, match=words), profile_and_remove() as profile:
        pass
    profile.save_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    folder.mkdir()
    with pytest.raises(KeyError), profile_and_remove():
        raise KeyError  # this error must not be replaced
    assert "the trace was not written" in caplog.text
