"""Files of compiled pipelines: what is read back, what is ignored, no files left over.

Lavapipe keeps pipelines elsewhere, and its data has a header alone. In these tests it has more.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo
from gpu_executor.vulkan import disk_cache
from gpu_executor.vulkan.disk_cache import pipeline_folder, read_pipeline, write_pipeline
from tests.conftest import OpenGpu, RunPython

ADD_U32, ADD_F32 = (gx.kernels.load(f"vector_add_{each}") for each in ("u32", "f32"))
X = np.arange(50, dtype=np.uint32)
DATA = bytes(range(256)) * 5
HAVE_DATA = """
from gpu_executor.vulkan import disk_cache
read_header = disk_cache.read_driver_data
disk_cache.read_driver_data = lambda *of: read_header(*of)[:32] + b"compiled" * 8
"""
NAME = "0123456789abcdef.bin"


@pytest.fixture(scope="module")
def info() -> DeviceInfo:
    return gx.devices()[0]


@pytest.fixture
def driver_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the driver returned compiled pipelines."""
    read_header = disk_cache.read_driver_data
    monkeypatch.setattr(
        disk_cache, "read_driver_data", lambda *of: read_header(*of)[:32] + b"compiled" * 8
    )


def list_pipelines(folder: Path, info: DeviceInfo) -> list[Path]:
    """The files of the device's pipelines, the only ones in the cache folder."""
    own = pipeline_folder(folder, info)
    assert list(folder.iterdir()) == [own]
    return sorted(own.iterdir())


def use(gpu: gx.PersistentVulkanBackend) -> None:
    np.testing.assert_array_equal(gpu.run(ADD_U32, X, X), 2 * X)


def test_data_is_read_back_as_written(info: DeviceInfo, tmp_path: Path) -> None:
    path = tmp_path / "made" / "on the way" / NAME
    for data in (DATA, b"", DATA[:1]):
        assert write_pipeline(path, info, data) == path.stat().st_size
        assert read_pipeline(path, info) == data
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_file_has_no_data(info: DeviceInfo, tmp_path: Path) -> None:
    assert read_pipeline(tmp_path / NAME, info) == b""


@given(length=st.integers(0, 8 + 32 + len(DATA) - 1))
def test_a_truncated_file_is_ignored(
    info: DeviceInfo, tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "truncated" / NAME
    write_pipeline(path, info, DATA)
    path.write_bytes(path.read_bytes()[:length])
    assert read_pipeline(path, info) == b""


@given(bit=st.integers(0, 8 * (8 + 32 + len(DATA)) - 1))
def test_a_file_with_one_bit_changed_is_ignored(
    info: DeviceInfo, tmp_path_factory: pytest.TempPathFactory, bit: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed" / NAME
    write_pipeline(path, info, DATA)
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    assert read_pipeline(path, info) == b""


@pytest.mark.parametrize("field", ["uuid", "driver", "driver_version", "pipeline_cache_uuid"])
def test_a_file_of_another_device_or_driver_is_ignored(
    info: DeviceInfo, tmp_path: Path, field: str
) -> None:
    changes: dict[str, Any] = {field: "0" * 32}
    other = dataclasses.replace(info, **changes)
    assert pipeline_folder(tmp_path, other) != pipeline_folder(tmp_path, info)
    path = tmp_path / NAME
    write_pipeline(path, other, DATA)
    assert read_pipeline(path, info) == b""
    assert read_pipeline(path, other) == DATA


def test_a_file_of_another_pipeline_is_ignored(info: DeviceInfo, tmp_path: Path) -> None:
    write_pipeline(tmp_path / NAME, info, DATA)
    renamed = (tmp_path / NAME).rename(tmp_path / "f00d.bin")
    assert read_pipeline(renamed, info) == b""


def test_a_failing_write_leaves_only_the_old_file(
    info: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError("no space left on device")

    path = tmp_path / NAME
    write_pipeline(path, info, DATA)
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no space"):
        write_pipeline(path, info, b"newer")
    assert read_pipeline(path, info) == DATA
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("driver_data")
def test_each_pipeline_is_saved_at_once_and_loaded_by_the_next_backend(
    fresh_gpu: OpenGpu, tmp_path: Path
) -> None:
    first = fresh_gpu(cache_dir=tmp_path)
    assert first.stats().disk_cache.path == str(pipeline_folder(tmp_path, first.device))
    use(first)
    (path,) = list_pipelines(tmp_path, first.device)  # before the backend is closed
    stats = first.stats().disk_cache
    assert (stats.pipelines_loaded, stats.pipelines_saved) == (0, 1)
    assert stats.bytes_saved == len(read_pipeline(path, first.device)) > 0
    first.close()
    written = path.stat().st_mtime_ns
    second = fresh_gpu(cache_dir=tmp_path)
    use(second)
    stats = second.stats().disk_cache
    assert (stats.pipelines_loaded, stats.pipelines_saved) == (1, 0)
    assert stats.bytes_loaded == first.stats().disk_cache.bytes_saved
    assert path.stat().st_mtime_ns > written  # the file was used
    y = X.astype(np.float32)
    second.run(ADD_F32, y, y)
    assert len(list_pipelines(tmp_path, second.device)) == 2


@pytest.mark.usefixtures("driver_data")
def test_the_files_used_least_recently_make_room(
    fresh_gpu: OpenGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu(cache_dir=tmp_path)
    use(gpu)
    (path,) = list_pipelines(tmp_path, gpu.device)
    size = path.stat().st_size
    os.utime(path, ns=(1, 1))
    monkeypatch.setattr(disk_cache, "MAX_FOLDER_BYTES", 3 * size // 2)
    y = X.astype(np.float32)
    gpu.run(ADD_F32, y, y)
    (newer,) = list_pipelines(tmp_path, gpu.device)
    assert newer != path


def test_a_driver_without_data_writes_nothing(fresh_gpu: OpenGpu, tmp_path: Path) -> None:
    gpu = fresh_gpu(cache_dir=tmp_path)
    use(gpu)
    gpu.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("driver_data")
@pytest.mark.parametrize("damage", ["emptied", "filled with garbage", "cut short", "bit changed"])
def test_a_damaged_file_is_ignored_and_replaced(
    fresh_gpu: OpenGpu, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = fresh_gpu(cache_dir=tmp_path)
    use(gpu)
    (path,) = list_pipelines(tmp_path, gpu.device)
    good = path.read_bytes()
    path.write_bytes(
        {
            "emptied": b"",
            "filled with garbage": b"\xff" * 500,
            "cut short": good[:-1],
            "bit changed": good[:-1] + bytes([good[-1] ^ 1]),
        }[damage]
    )
    gpu = fresh_gpu(cache_dir=tmp_path)
    use(gpu)
    assert "it will be replaced" in caplog.text
    stats = gpu.stats().disk_cache
    assert (stats.pipelines_loaded, stats.pipelines_saved) == (0, 1)
    assert path.read_bytes() == good
    assert list_pipelines(tmp_path, gpu.device) == [path]


def test_a_pipeline_whose_data_cannot_be_read_is_used(
    fresh_gpu: OpenGpu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_arguments: object) -> None:
        raise gx.OutOfMemoryError("vkGetPipelineCacheData failed")

    monkeypatch.setattr(disk_cache, "read_driver_data", refuse)
    gpu = fresh_gpu(cache_dir=tmp_path)
    use(gpu)
    assert "the pipeline cache was not saved: vkGetPipelineCacheData" in caplog.text
    assert not list(tmp_path.iterdir())


KILLED = """
import os, signal
import numpy as np, gpu_executor as gx
x = np.arange(50, dtype=np.uint32)
gpu = gx.PersistentVulkanBackend()
assert (gpu.run(gx.kernels.load("vector_add_u32"), x, x) == 2 * x).all()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.usefixtures("driver_data")
def test_a_killed_process_loses_no_pipeline(
    run_python: RunPython, fresh_gpu: OpenGpu, tmp_path: Path
) -> None:
    ran = run_python(HAVE_DATA + KILLED, GPU_CACHE_DIR=str(tmp_path))
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    gpu = fresh_gpu(cache_dir=tmp_path)
    use(gpu)
    stats = gpu.stats().disk_cache
    assert (stats.pipelines_loaded, stats.pipelines_saved) == (1, 0)


OPEN_WITH_UNSAFE_FILES = """
import faulthandler
faulthandler.dump_traceback_later(60, exit=True)
import logging, os, pathlib, sys
import numpy as np, gpu_executor as gx
from gpu_executor.vulkan.disk_cache import calibration_path, pipeline_folder
from gpu_executor.webgpu.boundaries import history_path
folder = pathlib.Path(os.environ["GPU_CACHE_DIR"])
logging.basicConfig(stream=sys.stdout, format="%(message)s")
info = gx.devices()[0]
with gx.WgpuExecutor() as gpu:
    name = gpu.device_name
x = np.arange(50, dtype=np.uint32)
with gx.PersistentVulkanBackend() as gpu:
    gpu.run(gx.kernels.load("vector_add_u32"), x, x)
pipelines = list(pipeline_folder(folder, info).iterdir())
paths = *pipelines, calibration_path(folder, info), history_path(folder, name)
puts = {
    "a FIFO": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "20 GB": lambda path: (path.touch(), os.truncate(path, 20 << 30)),
}
for kind, put in puts.items():
    print(kind)
    for path in paths:
        path.unlink(missing_ok=True)
        put(path)
    for open_one in (gx.PersistentVulkanBackend, gx.WgpuExecutor, gx.GpuExecutor):
        with open_one() as gpu:
            assert (gpu.run(gx.kernels.load("vector_add_u32"), x, x) == 2 * x).all()
    assert all(each.is_file() for each in (*pipelines, paths[-1])), "they are replaced"
"""


def test_what_is_not_a_file_of_the_cache_is_neither_waited_for_nor_read(
    run_python: RunPython, tmp_path: Path
) -> None:
    ran = run_python(
        HAVE_DATA + OPEN_WITH_UNSAFE_FILES, GPU_CACHE_DIR=str(tmp_path), GPU_CALIBRATE="1"
    )
    assert ran.returncode == 0, ran.stderr
    _, fifo, link, large = re.split("(?m)^(?:a FIFO|a link to a device|20 GB)$", ran.stdout)
    for said, words in (
        (fifo, "not a regular file"),
        (link, "a symbolic link"),
        (large, "more than"),
    ):
        for kind in ("pipeline cache", "calibration", "bucket history"):
            assert re.search(f"the {kind} was not read: .*{words}", said)


@pytest.mark.usefixtures("driver_data")
@pytest.mark.parametrize("inside", [False, True], ids=["a file itself", "inside a file"])
def test_an_unusable_folder_only_loses_the_cache(
    fresh_gpu: OpenGpu, tmp_path: Path, inside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    gpu = fresh_gpu(cache_dir=file / "cache" if inside else file)
    use(gpu)
    gpu.close()
    assert "the pipeline cache was not saved" in caplog.text
    assert gpu.stats().disk_cache.bytes_saved == 0
    assert file.read_text() == "not a folder"


@pytest.mark.usefixtures("driver_data")
def test_a_folder_in_place_of_the_file_only_loses_the_cache(
    fresh_gpu: OpenGpu, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = fresh_gpu(cache_dir=tmp_path)
    use(gpu)
    (path,) = list_pipelines(tmp_path, gpu.device)
    path.unlink()
    path.mkdir()
    gpu = fresh_gpu(cache_dir=tmp_path)
    use(gpu)
    assert "the pipeline cache was not saved" in caplog.text
    assert list_pipelines(tmp_path, gpu.device) == [path]


@pytest.mark.usefixtures("driver_data")
def test_gpu_cache_0_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPU_CACHE", "0")
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path))
    with gx.PersistentVulkanBackend() as gpu:
        use(gpu)
        assert gpu.stats().disk_cache.path is None
    assert gpu.stats().disk_cache.bytes_saved == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("driver_data")
def test_the_one_shot_backend_does_not_touch_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path))
    np.testing.assert_array_equal(gx.VulkanSpirvBackend().run(ADD_U32, X, X), 2 * X)
    assert not list(tmp_path.iterdir())


OPEN_AND_CLOSE_OFTEN = """
import numpy as np, gpu_executor as gx
x = np.arange(50, dtype=np.uint32)
for name in ("vector_add_u32", "vector_add_f32") * 2:
    with gx.PersistentVulkanBackend() as gpu:
        y = x.astype(np.uint32 if name.endswith("u32") else np.float32)
        assert (gpu.run(gx.kernels.load(name), y, y) == 2 * y).all()
"""


def test_two_processes_may_write_at_once(
    run_python: RunPython, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, info: DeviceInfo
) -> None:
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", HAVE_DATA + OPEN_AND_CLOSE_OFTEN], stderr=subprocess.PIPE, text=True
    ) as other:
        ran = run_python(HAVE_DATA + OPEN_AND_CLOSE_OFTEN)
        _, said = other.communicate(timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (other.returncode, said) == (0, "")
    files = list_pipelines(tmp_path, info)
    assert len(files) == 2
    assert all(read_pipeline(each, info) for each in files)
