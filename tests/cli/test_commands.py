"""The command line as a user runs it: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import dataclasses
import errno
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from gpu_executor.bench import (
    batch,
    first_call,
    kernel_timing,
    overhead,
    peers,
    persistent,
    stream,
    suite,
)
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.timing import TimingBudget, time_function
from gpu_executor.calls.call import Array
from gpu_executor.cli import bench_stream, main
from gpu_executor.cli.commands import commands
from gpu_executor.soak import load_generator, runner
from gpu_executor.soak.runner import ExecutorConfig
from gpu_executor.telemetry.stages import STAGES
from gpu_executor.vulkan import session
from gpu_executor.vulkan.batch import Job
from gpu_executor.vulkan.instance import find_devices
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from gpu_executor.webgpu.device import find_adapters
from tests.support.benchmark_files import read_tables
from tests.support.calibrations import LAVAPIPE


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments)


def test_devices_are_listed_as_a_table_and_as_json() -> None:
    found = find_devices()
    shown = run("devices")
    assert shown.exit_code == 0
    assert all(device.uuid in shown.output for device in found)
    assert all(f"{name} ({kind})" in shown.output for name, kind in find_adapters())
    listed = json.loads(run("devices", "--json", "-").stdout)
    assert [each["uuid"] for each in listed] == [device.uuid for device in found]
    assert [each["limits"]["max_storage_buffer_range"] for each in listed] == [
        device.limits.max_storage_buffer_range for device in found
    ]


def test_doctor_finds_everything_that_kernels_need_to_run() -> None:
    shown = run("doctor")
    assert shown.exit_code == 0
    assert find_devices()[0].name in shown.output
    assert "missing" not in shown.output
    assert "field additions on 11 paths equal exact integers" in shown.output
    name, kind = find_adapters()[0]
    assert f"works   WebGPU: {name} ({kind})" in shown.output
    assert "GpuExecutor() uses it if Vulkan finds no device" in shown.output


def test_doctor_does_not_need_webgpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpu", None)
    shown = run("doctor")
    assert shown.exit_code == 0
    assert "absent  WebGPU: needed only without Vulkan: WebGPU needs wgpu-py" in shown.output
    assert "pip install 'gpu-executor[webgpu]'" in shown.output, "brackets are not markup"


def test_a_demo_whose_page_cannot_be_written_measures_nothing(tmp_path: Path) -> None:
    shown = run("demo", "-o", str(tmp_path / "missing" / "page.html"))
    assert shown.exit_code == 2
    assert "cannot be written: No such file or directory" in shown.output


@pytest.mark.slow
def test_calibrate_measures_saves_and_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path))
    missing = run("calibrate", "--show")
    assert missing.exit_code == 1
    assert "no saved calibration of" in missing.output
    measured = run("calibrate")
    assert measured.exit_code == 0
    saved = next(tmp_path.glob("calibration-*.json"))
    assert str(saved) in measured.output.replace("\n", "")
    assert "upload and readback at once" in measured.output
    shown = json.loads(run("calibrate", "--show", "--json", "-").stdout)
    assert shown == json.loads(saved.read_text())
    assert shown["kernel_mapped"] > 0
    renewed = run("calibrate", "--json", "-")
    assert json.loads(renewed.stdout) == json.loads(saved.read_text()) != shown
    monkeypatch.setenv("GPU_CACHE", "0")
    assert "not saved: GPU_CACHE is 0" in run("calibrate").output


def test_doctor_names_what_is_missing_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEVICE", "Voodoo 2")
    shown = run("doctor")
    assert shown.exit_code == 1
    assert "no device matches 'Voodoo 2'" in shown.output


def test_smoke_checks_every_path() -> None:
    shown = run("smoke", "--size", "100")
    assert shown.exit_code == 0
    assert shown.output.count("right  100 additions") == 7
    assert shown.output.count("right  6 jobs") == 4
    for path in (
        "cpu",
        "one-shot, host-visible",
        "persistent in chunks, device-local",
        "6 jobs, pipelined, device-local",
    ):
        assert path in shown.output


def test_smoke_fails_if_a_result_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_self: PersistentVulkanBackend, a: Array, b: Array, device_local: bool) -> Array:
        return a if device_local else np.add(a, b)

    monkeypatch.setattr(PersistentVulkanBackend, "run_field_add", wrong)
    shown = run("smoke", "--size", "100")
    assert shown.exit_code == 1
    assert "wrong  100 additions, persistent, device-local" in shown.output


def test_smoke_fails_if_a_batch_swaps_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    right = PersistentVulkanBackend.run_field_add_batch

    def wrong(
        self: PersistentVulkanBackend, jobs: Sequence[Job], device_local: bool
    ) -> list[Array]:
        return right(self, jobs, device_local)[::-1]

    monkeypatch.setattr(PersistentVulkanBackend, "run_field_add_batch_pipelined", wrong)
    shown = run("smoke", "--size", "100")
    assert shown.exit_code == 1
    assert "right  6 jobs, sequential, host-visible" in shown.output
    assert "wrong  6 jobs, pipelined, host-visible" in shown.output


def test_an_error_is_one_line_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPU_STREAM_CHUNK_ELEMS", "many")
    monkeypatch.setattr("sys.argv", ["gpu-executor", "smoke"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said == "gpu-executor: GPU_STREAM_CHUNK_ELEMS is 'many'; it takes a whole number\n"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks so short that their figures mean nothing."""
    monkeypatch.setattr(persistent, "SIZES", (64, 200))
    monkeypatch.setattr(
        persistent, "time_function", lambda f, **limits: time_function(f, max_calls=5, **limits)
    )
    monkeypatch.setattr(kernel_timing, "WARM_UP_SECONDS", 0.01)
    monkeypatch.setattr(overhead, "MEDIUM", 1_000)
    monkeypatch.setattr(overhead, "PLANNED", {2048: 1.0, 4096: 2.0})
    monkeypatch.setattr(overhead, "MAX_ROUNDS", 5)
    monkeypatch.setattr(overhead, "GPU_SIZES", (1 << 12, 1 << 8, 4))
    monkeypatch.setattr(overhead, "CPU_SIZES", (1 << 8, 1 << 6, 4))
    monkeypatch.setattr(overhead, "ROUND_SECONDS", 0)
    monkeypatch.setattr(first_call, "PROCESSES", 1)
    monkeypatch.setattr(batch, "SIZES", (256, 1 << 14))
    monkeypatch.setattr(batch, "WARM_UP", TimingBudget(warm_up=0))
    monkeypatch.setattr(batch, "MIN_ROUNDS", 3)
    monkeypatch.setattr(batch, "CPU_TIMELINE_ELEMENTS", 256)
    monkeypatch.setattr(batch, "JOBS", (2, 3))
    monkeypatch.setattr(batch, "ROW_SECONDS", 0)
    monkeypatch.setattr(batch, "HOT_PATH_ROUNDS", 10)
    monkeypatch.setattr(stream, "ROUNDS", 2)
    monkeypatch.setattr(suite, "QUICK_SIZES", (64, 100))
    monkeypatch.setattr(suite, "QUICK_SECONDS", 0)
    monkeypatch.setattr(suite, "QUICK_BATCH_SIZES", (256,))
    monkeypatch.setattr(suite, "QUICK_JOBS", (2,))
    monkeypatch.setattr(suite, "QUICK_STREAM", (1_000, 2))
    monkeypatch.setattr(runner, "MIN_PHASES", 2)
    monkeypatch.setattr(runner, "EXECUTOR_CONFIGS", (ExecutorConfig("cpu"),))
    monkeypatch.setattr(load_generator, "FIELD_OPERATIONS_SHARE", 0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_bench_persistent_writes_measurements_and_their_environment(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    shown = run("bench", "persistent", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    written = json.loads(file.read_text())
    assert written["device"]["uuid"] == find_devices()[0].uuid
    assert {"date", "version", "commit", "machine", "settings"} <= written.keys()
    machine = written["machine"]
    assert machine["cores"] > 0 and machine["memory_bytes"] > 0 and machine["packages"]["numpy"]
    written = read_tables(file, "persistent")
    assert [row["elements"] for row in written["rows"]] == [64, 200]
    assert written["rows"][0]["seed_speed_up"] == pytest.approx(26.9, abs=0.1)
    for row in written["rows"]:
        for path in ("host_visible", "device_local"):
            assert row[path]["average_ms"] > 0
            assert row[path]["speed_up"] == pytest.approx(
                row["one_shot_ms"] / row[path]["average_ms"]
            )
            assert list(row[path]["stages_ms"]) == list(STAGES)
            # After the first, a call creates, compiles and records nothing.
            assert [row[path]["stages_ms"][stage] for stage in STAGES[:4]] == [0, 0, 0, 0]
    assert [each["name"] for each in written["ratios"]] == [
        "call of 64 elements",
        "call of 2 Ki elements",
        "call of 4 Ki elements",
        "call of 1 Mi elements",
    ]
    assert all(each["unit"] == "us" for each in written["aims"])
    assert len(written["rates"]) == 6
    assert all(rate["per_second"] > 0 for rate in written["rates"])
    assert written["first_call_of_a_process"]["with_ms"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_bench_batch_measures_every_size_in_every_mode(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    shown = run("bench", "batch", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    assert "…" not in shown.output  # which rich prints where it truncates
    written = json.loads(file.read_text())
    assert written["device"]["uuid"] == find_devices()[0].uuid
    written = read_tables(file, "batch")
    rows = written["rows"]
    assert [(row["elements"], row["jobs"], row["arrays"]) for row in rows] == [
        (size, jobs, arrays)
        for size in (256, 1 << 14)
        for arrays in ("plain", "mapped")
        for jobs in (2, 3)
    ]
    assert [row["seed_speed_up"] for row in rows] == [None] * 4 + [1.13, 1.64] * 2
    for row in rows:
        sequential, pipelined, plan = (
            row[f"{mode}_ms"] for mode in ("sequential", "pipelined", "plan")
        )
        assert min(sequential, pipelined, plan) > 0
        assert row["job_ms"] == pytest.approx(pipelined / row["jobs"])
        assert min(row["speed_up"], row["of_best"]) > 0
    assert written["hot_path"][0]["queues"] == "one"
    for each in written["hot_path"]:
        assert each["submissions"] == {"one": 1, "split": 3}[each["queues"]]
        assert each["chunk_us"] == pytest.approx(each["start_us"] + each["finish_us"])
        assert min(each["start_us"], each["finish_us"]) > 0


@pytest.mark.usefixtures("quick")
def test_ratios_of_batches_agree_with_the_times_and_keep_those_of_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The machine becomes four times slower within the second of three rounds.
    rounds = [[2.0, 1.0, 1.25], [2.0, 1.0, 5.0], [8.0, 4.0, 5.0]]
    monkeypatch.setattr(batch, "time_interleaved", lambda *_, **__: iter(rounds))
    with PersistentVulkanBackend() as gpu:
        row = next(batch.measure_batches(gpu, [(64, 2)], 0))
    assert (row.speed_up, row.of_best) == (2.0, 0.2)
    assert isinstance(row.speed_up, Sampled) and row.speed_up.samples == (2, 2, 2)
    assert isinstance(row.of_best, Sampled) and row.of_best.samples == (0.8, 0.2, 0.8)
    assert (row.sequential_ms, row.pipelined_ms, row.plan_ms) == (2e3, 1e3, 5e3)
    assert row.job_ms == 500


def test_bench_batch_skips_large_sizes_on_software_devices() -> None:
    device = find_devices()[0]
    software = batch.choose_sizes(dataclasses.replace(device, kind="cpu"))
    assert (1 << 16, 16) in software
    assert (1 << 18, 4) in software
    assert (1 << 18, 8) not in software
    everything = batch.choose_sizes(dataclasses.replace(device, kind="discrete"))
    assert len(everything) == 20
    assert batch.choose_sizes(device, all_sizes=True) == everything


@pytest.mark.usefixtures("quick")
def test_bench_stream_compares_additions_with_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_STREAM_CHUNK_ELEMS", "1000")  # more chunks than are in flight at once
    file = tmp_path / "bench.json"
    shown = run("bench", "stream", "--elements", "5500", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    assert "…" not in shown.output  # which rich prints where it truncates
    written = json.loads(file.read_text())
    assert written["device"]["uuid"] == find_devices()[0].uuid
    written = read_tables(file, "stream")
    assert (written["elements"], written["chunk"]) == (5500, 1000)
    both, into, back = written["copies"]
    assert both["bytes_in_per_second"] == pytest.approx(96 * both["elements_per_second"])
    assert both["bytes_out_per_second"] == pytest.approx(48 * both["elements_per_second"])
    assert into["bytes_out_per_second"] == back["bytes_in_per_second"] == 0
    assert min(into["bytes_in_per_second"], back["bytes_out_per_second"]) > 0
    imports = "VK_EXT_external_memory_host" in find_devices()[0].extensions
    kinds = ["mapped", "plain, into an array", "plain, new results", *["imported"] * imports]
    assert [each["arrays"] for each in written["streams"]] == kinds
    for each in written["streams"]:
        assert each["additions_per_second"] == pytest.approx(5500 / each["milliseconds"] * 1e3)
        assert each["of_limit"] > 0


def test_bench_stream_detects_wrong_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "ROUNDS", 1)
    monkeypatch.setattr(PersistentVulkanBackend, "run", lambda _self, _kernel, a, _b, out: a)
    shown = run("bench", "stream", "--elements", "100")
    assert isinstance(shown.exception, AssertionError)
    assert "wrong sums" in str(shown.exception)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("command", ["bench stream --elements 500", "soak --minutes 0.001"])
def test_figures_that_cannot_be_written_are_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    """The disk is full when the run ends."""

    def refuse(*_arguments: object, **_options: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", refuse)
    shown = run(*command.split(), "--json", str(tmp_path / "report.json"))
    assert shown.exit_code == 1
    assert isinstance(shown.exception, SystemExit)
    assert f"{tmp_path}/report.json was not written: No space left on device" in shown.stderr
    first = shown.stdout.index("{\n")
    printed, _ = json.JSONDecoder().raw_decode(shown.stdout[first:])
    if "stream" in command:
        printed = printed["benchmarks"]["stream"]["tables"] | {"samples": True}
        assert printed["streams"]
    assert printed["samples"]
    assert "mapped" in shown.stdout or "passed" in shown.stdout


@pytest.mark.usefixtures("quick")
def test_figures_are_written_even_if_nobody_reads_the_tables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_arguments: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(bench_stream, "_make_copies_table", refuse)
    file = tmp_path / "report.json"
    assert run("bench", "stream", "--elements", "500", "--json", str(file)).exit_code == 1
    assert read_tables(file, "stream")["streams"]


def test_calibrate_says_where_nothing_was_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(session, "measure", lambda *_arguments: LAVAPIPE)
    shown = run("calibrate")
    assert shown.exit_code == 1
    assert "the calibration cannot be saved in" in shown.output and "GPU_CACHE=0" in shown.output
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path))
    assert ", saved in" in run("calibrate").output


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_demo_shows_devices_checks_and_a_comparison_and_writes_a_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Neither the table nor the page has them, and the command `bench persistent` measures them.
    monkeypatch.setattr(overhead, "measure_kernel_rates", lambda _settings: iter(()))
    monkeypatch.setattr(first_call, "measure_first_calls", lambda _pairs: None)
    monkeypatch.setattr(peers, "list_first_calls", lambda *_: [])
    names = peers.OWN, "NumPy"
    monkeypatch.setattr(peers, "_is_installed", lambda program: program.name in names)
    page = tmp_path / "demo.html"
    shown = run("demo", "-o", str(page))
    assert shown.exit_code == 0, shown.output
    assert shown.output.endswith(f"A page with charts and the pipeline: {page}\n")
    assert 'id="timeline"' in page.read_text(encoding="utf-8")
    assert find_devices()[0].name in shown.output
    assert shown.output.count("right") == 11
    assert "one-shot" in shown.output
    assert "26.9x" in shown.output
    words = " ".join(shown.output.split())
    assert "than this package: - NumPy for" in words
