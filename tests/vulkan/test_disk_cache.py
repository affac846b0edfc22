"""The pipeline cache on disk: what is read back, what is ignored, no files left over."""

from __future__ import annotations

import dataclasses
import re
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
from gpu_executor.vulkan.disk_cache import cache_path, read_cache, write_cache
from tests.conftest import OpenGpu, RunPython

ADD_U32 = gx.kernels.load("vector_add_u32")
X = np.arange(50, dtype=np.uint32)
DATA = bytes(range(256)) * 5


@pytest.fixture(scope="module")
def info() -> DeviceInfo:
    return gx.devices()[0]


def use(gpu: gx.PersistentVulkanBackend) -> None:
    np.testing.assert_array_equal(gpu.run(ADD_U32, X, X), 2 * X)


def test_data_is_read_back_as_written(info: DeviceInfo, tmp_path: Path) -> None:
    path = cache_path(tmp_path / "made" / "on the way", info)
    for data in (DATA, b"", DATA[:1]):
        assert write_cache(path, info, data) == len(data)
        assert read_cache(path, info) == data
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_file_is_an_empty_cache(info: DeviceInfo, tmp_path: Path) -> None:
    assert read_cache(cache_path(tmp_path, info), info) == b""


@given(length=st.integers(0, 8 + 32 + len(DATA) - 1))
def test_a_truncated_file_is_ignored(
    info: DeviceInfo, tmp_path_factory: pytest.TempPathFactory, length: int
) -> None:
    path = cache_path(tmp_path_factory.getbasetemp() / "truncated", info)
    write_cache(path, info, DATA)
    path.write_bytes(path.read_bytes()[:length])
    assert read_cache(path, info) == b""


@given(bit=st.integers(0, 8 * (8 + 32 + len(DATA)) - 1))
def test_a_file_with_one_bit_changed_is_ignored(
    info: DeviceInfo, tmp_path_factory: pytest.TempPathFactory, bit: int
) -> None:
    path = cache_path(tmp_path_factory.getbasetemp() / "changed", info)
    write_cache(path, info, DATA)
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    assert read_cache(path, info) == b""


@pytest.mark.parametrize("field", ["uuid", "driver", "driver_version", "pipeline_cache_uuid"])
def test_a_file_of_another_device_or_driver_is_ignored(
    info: DeviceInfo, tmp_path: Path, field: str
) -> None:
    changes: dict[str, Any] = {field: "0" * 32}
    other = dataclasses.replace(info, **changes)
    assert cache_path(tmp_path, other) != cache_path(tmp_path, info)
    path = cache_path(tmp_path, info)
    write_cache(path, other, DATA)
    assert read_cache(path, info) == b""
    assert read_cache(path, other) == DATA


def test_a_failing_write_leaves_only_the_old_file(
    info: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError("no space left on device")

    path = cache_path(tmp_path, info)
    write_cache(path, info, DATA)
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no space"):
        write_cache(path, info, b"newer")
    assert read_cache(path, info) == DATA
    assert list(tmp_path.iterdir()) == [path]


def test_a_backend_saves_at_close_and_the_next_loads(fresh_gpu: OpenGpu, tmp_path: Path) -> None:
    first = fresh_gpu(cache_dir=tmp_path)
    path = cache_path(tmp_path, first.device)
    assert first.stats().disk_cache.path == str(path)
    assert first.stats().disk_cache.bytes_loaded == 0
    use(first)
    assert not path.exists()
    first.close()
    saved = first.stats().disk_cache.bytes_saved
    assert saved == len(read_cache(path, first.device)) > 0
    second = fresh_gpu(cache_dir=tmp_path)
    assert second.stats().disk_cache.bytes_loaded == saved
    use(second)
    second.close()
    assert list(tmp_path.iterdir()) == [path]


def test_a_backend_that_made_no_pipeline_writes_nothing(fresh_gpu: OpenGpu, tmp_path: Path) -> None:
    fresh_gpu(cache_dir=tmp_path).close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["emptied", "filled with garbage", "cut short", "bit changed"])
def test_a_damaged_file_is_ignored_and_replaced(
    fresh_gpu: OpenGpu, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = fresh_gpu(cache_dir=tmp_path)
    use(gpu)
    gpu.close()
    path = cache_path(tmp_path, gpu.device)
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
    assert "it will be replaced" in caplog.text
    assert gpu.stats().disk_cache.bytes_loaded == 0
    use(gpu)
    gpu.close()
    assert len(read_cache(path, gpu.device)) == gpu.stats().disk_cache.bytes_saved > 0
    assert list(tmp_path.iterdir()) == [path]


OPEN_WITH_UNSAFE_FILES = """
import faulthandler
faulthandler.dump_traceback_later(60, exit=True)
import logging, os, pathlib, sys
import numpy as np, gpu_executor as gx
from gpu_executor.vulkan.disk_cache import cache_path, calibration_path
from gpu_executor.webgpu.boundaries import history_path
folder = pathlib.Path(os.environ["GPU_CACHE_DIR"])
logging.basicConfig(stream=sys.stdout, format="%(message)s")
info = gx.devices()[0]
with gx.WgpuExecutor() as gpu:
    name = gpu.device_name
paths = cache_path(folder, info), calibration_path(folder, info), history_path(folder, name)
x = np.arange(50, dtype=np.uint32)
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
    assert paths[0].is_file() and paths[2].is_file(), "they are replaced"
"""


def test_what_is_not_a_file_of_the_cache_is_neither_waited_for_nor_read(
    run_python: RunPython, tmp_path: Path
) -> None:
    ran = run_python(OPEN_WITH_UNSAFE_FILES, GPU_CACHE_DIR=str(tmp_path), GPU_CALIBRATE="1")
    assert ran.returncode == 0, ran.stderr
    _, fifo, link, large = re.split("(?m)^(?:a FIFO|a link to a device|20 GB)$", ran.stdout)
    for said, words in (
        (fifo, "not a regular file"),
        (link, "a symbolic link"),
        (large, "more than"),
    ):
        for kind in ("pipeline cache", "calibration", "bucket history"):
            assert re.search(f"the {kind} was not read: .*{words}", said)


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


def test_a_folder_in_place_of_the_file_only_loses_the_cache(
    fresh_gpu: OpenGpu, tmp_path: Path, info: DeviceInfo, caplog: pytest.LogCaptureFixture
) -> None:
    path = cache_path(tmp_path, info)
    path.mkdir()
    gpu = fresh_gpu(cache_dir=tmp_path)
    use(gpu)
    gpu.close()
    assert "the pipeline cache was not saved" in caplog.text
    assert list(tmp_path.iterdir()) == [path]


def test_gpu_cache_0_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPU_CACHE", "0")
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path))
    with gx.PersistentVulkanBackend() as gpu:
        use(gpu)
        assert gpu.stats().disk_cache.path is None
    assert gpu.stats().disk_cache.bytes_saved == 0
    assert not list(tmp_path.iterdir())


def test_the_one_shot_backend_does_not_touch_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path))
    np.testing.assert_array_equal(gx.VulkanSpirvBackend().run(ADD_U32, X, X), 2 * X)
    assert not list(tmp_path.iterdir())


OPEN_AND_CLOSE_OFTEN = """
import numpy as np, gpu_executor as gx
x = np.arange(50, dtype=np.uint32)
for name in ("vector_add_u32", "vector_add_f32") * 4:
    with gx.PersistentVulkanBackend() as gpu:
        y = x.astype(np.uint32 if name.endswith("u32") else np.float32)
        assert (gpu.run(gx.kernels.load(name), y, y) == 2 * y).all()
"""


def test_two_processes_may_write_at_once(
    run_python: RunPython, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, info: DeviceInfo
) -> None:
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", OPEN_AND_CLOSE_OFTEN], stderr=subprocess.PIPE, text=True
    ) as other:
        ran = run_python(OPEN_AND_CLOSE_OFTEN)
        _, said = other.communicate(timeout=300)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (other.returncode, said) == (0, "")
    assert list(tmp_path.iterdir()) == [cache_path(tmp_path, info)]
    assert read_cache(cache_path(tmp_path, info), info)
