"""The life of device arrays on WebGPU: memory, order, ends."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ClosedError, DeviceLostError, OutOfMemoryError
from tests.conftest import OpenWebGpu, RunPython
from tests.support.jobs import ADD_U32

WORDS = np.arange(1000, dtype=np.uint32)
DOUBLE = gx.Kernel.from_wgsl(
    """
    @group(0) @binding(0) var<storage, read> x: array<u32>;
    @group(0) @binding(1) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(work_group)
    fn main(@builtin(global_invocation_id) at: vec3<u32>) {
        if (at.x < param(0u)) { y[at.x] = 2u * x[at.x] + param(1u); }
    }
    """,
    buffers="in u4, out u4",
    params=["more"],
    name="double",
)


def count_bytes(gpu: gx.WgpuExecutor) -> int:
    return gpu.stats().memory_use.in_use["device arrays"]


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "u8", "c16"])
@pytest.mark.parametrize("size", [0, 1, 3, 7])
def test_arrays_of_any_bytes_and_views_of_them(
    open_webgpu: OpenWebGpu, dtype: str, size: int
) -> None:
    gpu = open_webgpu()
    rng = np.random.default_rng(size)
    array = rng.integers(0, 100, (size, 5)).astype(dtype)
    there = gpu.to_device(array)
    for index in (np.s_[:], np.s_[::-1], np.s_[:, ::2], np.s_[1:, 1:4], np.s_[:, 2]):
        np.testing.assert_array_equal(there[index].numpy(), array[index])
    there[:, 1:3], array[:, 1:3] = there[:, 3:], array[:, 3:].copy()
    there[::2] = 9
    array[::2] = 9
    np.testing.assert_array_equal(there.numpy(), array)
    np.testing.assert_array_equal(there.T.copy().numpy(), array.T)


def test_a_wgsl_kernel_may_write_over_its_input(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    there = gpu.to_device(WORDS)
    gpu.run(DOUBLE, there, out=there, params={"more": 1})
    gpu.run(DOUBLE, there[:500], out=there[500:], params={"more": 0})
    expected = 2 * WORDS + 1
    expected[500:] = 2 * expected[:500]
    np.testing.assert_array_equal(there.numpy(), expected)


def test_memory_returns_with_the_arrays(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    x = gpu.to_device(WORDS)
    for _ in range(3):
        gpu.run(ADD_U32, x, x)
    gpu.synchronize()
    before = count_bytes(gpu)
    for _ in range(20):
        cyclic = [gpu.run(ADD_U32, x, x)]
        cyclic.append(cyclic)  # only the garbage collector finds it
        del cyclic
    gc.collect()
    gpu.synchronize()
    assert count_bytes(gpu) == before


def test_a_memory_limit_holds_for_arrays_too() -> None:
    settings = gx.Settings(memory_limit=1 << 20)
    with gx.WgpuExecutor(settings=settings) as gpu:
        kept = [gpu.to_device(np.zeros(1 << 16, np.uint32)) for _ in range(3)]
        with pytest.raises(OutOfMemoryError, match="GPU_MEMORY_LIMIT"):
            gpu.to_device(np.zeros(1 << 17, np.uint32))
        kept.clear()
        assert not gpu.to_device(np.zeros(1 << 17, np.uint32)).numpy().any()


def test_threads_share_arrays(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    x = gpu.to_device(WORDS)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            found = gpu.run(DOUBLE, x, params={"more": number}).numpy()
            if not np.array_equal(found, 2 * WORDS + number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_closed_executor_has_no_arrays(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    x = gpu.to_device(WORDS)
    with gpu.graph(x) as run:
        gpu.run(ADD_U32, x, x)
    gpu.close()
    for use in (x.numpy, x[:2].copy, lambda: run(x), lambda: gpu.run(ADD_U32, x, x)):
        with pytest.raises(ClosedError):
            use()


def test_a_lost_device_ends_no_process(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = open_webgpu()
    x = gpu.to_device(WORDS)
    monkeypatch.setattr(gpu._device, "is_lost", lambda: True)

    def fail(*_: object) -> None:
        raise RuntimeError("device is lost")

    monkeypatch.setattr(gpu._queue, "submit", fail)
    with pytest.raises(DeviceLostError):
        gpu.run(ADD_U32, x, x)
    monkeypatch.undo()  # what comes now would reach the device
    for use in (x.numpy, lambda: gpu.run(ADD_U32, x, x), lambda: gpu.to_device(WORDS)):
        with pytest.raises(DeviceLostError):
            use()


FORKED = """
import os
import numpy as np
import gpu_executor as gx
gpu = gx.WgpuExecutor()
x = gpu.to_device(np.arange(4, dtype=np.uint32))
pid = os.fork()
if not pid:
    try:
        x.numpy()
    except gx.errors.GpuError as error:
        print(type(error).__name__, flush=True)
    del x
    os._exit(0)
os.waitpid(pid, 0)
print(x.numpy().tolist())
gpu.close()
"""


def test_a_forked_child_cannot_use_the_arrays(run_python: RunPython) -> None:
    assert run_python(FORKED).stdout.splitlines() == ["ForkedError", "[0, 1, 2, 3]"]
