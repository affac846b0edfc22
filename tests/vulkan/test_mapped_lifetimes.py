"""The memory of mapped arrays: valid as long as a view of it exists, then released."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.vulkan import binding
from gpu_executor.vulkan.slot import MAX_RECORDINGS
from tests.conftest import OpenGpu, RunPython, on_both_paths
from tests.support.jobs import ADD_U32, FQ_ADD, check_sums, field_job
from tests.support.results import lies_in_mapped_memory

Gpu = gx.PersistentVulkanBackend
X = np.arange(70, dtype=np.uint32)
OF_A_BLOCK = {"Instance", "Device", "DebugUtilsMessengerEXT", "Buffer", "Memory"}


@pytest.mark.parametrize("dtype", [np.uint64, np.uint8, np.float32, np.int16, np.bool_, "c16"])
def test_arrays_have_the_requested_shape_and_dtype(gpu: Gpu, dtype: Any) -> None:
    shapes: list[Any] = [0, 1, 7, (), (3,), (2, 3), (0, 6), (3, 0), (2, 3, 5, 6)]
    for shape in shapes:
        like: Any = np.zeros(shape, dtype)
        for array in (gpu.empty(shape, dtype), gpu.zeros(shape, dtype), gpu.asarray(like)):
            assert (array.shape, array.dtype) == (like.shape, like.dtype)
            assert array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
            assert lies_in_mapped_memory(gpu, array)
            assert not lies_in_mapped_memory(gpu, array.copy()) or not array.size
        assert not gpu.zeros(shape, dtype).any()
        assert gpu.empty(5).dtype == gpu.zeros(5).dtype == np.float64


def test_asarray_returns_mapped_arrays_unchanged(gpu: Gpu) -> None:
    a = gpu.asarray(X)
    assert a is not X
    np.testing.assert_array_equal(a, X)
    assert gpu.asarray(a) is a
    part = a[3:9]
    assert gpu.asarray(part) is part
    strided, swapped = a[::2], a.view(">u4")
    for other in (strided, swapped):
        copy = gpu.asarray(other)
        assert copy is not other and lies_in_mapped_memory(gpu, copy)
        np.testing.assert_array_equal(copy, other)
    assert gpu.asarray([1, 2, 3]).tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", [object, "U5", "M8[s]", [("a", "u4")], ("u8", (6,))])
def test_only_numeric_dtypes_are_accepted(gpu: Gpu, dtype: Any) -> None:
    with pytest.raises(gx.errors.ArgumentTypeError, match="only numeric dtypes can"):
        gpu.empty(5, dtype)


@pytest.mark.parametrize("shape", [-1, -5, (2, -3), (-2, -3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint64])
def test_negative_shapes_are_refused(gpu: Gpu, shape: Any, dtype: Any) -> None:
    with pytest.raises(ValueError, match="negative"):
        gpu.empty(shape, dtype)
    with pytest.raises(ValueError, match="negative"):
        np.empty(shape, dtype)


@on_both_paths
def test_empty_arrays_run(gpu: Gpu, device_local: bool) -> None:
    nothing = gpu.empty((0, 6), np.uint64)
    result = gpu.run(FQ_ADD, nothing, gpu.zeros((0, 6), np.uint64), device_local=device_local)
    assert result.shape == (0, 6)
    out = gpu.empty((2, 0, 6), np.uint64)
    assert gpu.run(FQ_ADD, out.copy(), out.copy(), out=out) is out


def test_the_memory_of_arrays_is_counted_and_released(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    assert gpu.stats().memory.bytes_in_arrays == 0
    arrays = [gpu.empty((100, 6), np.uint64) for _ in range(9)]
    stats = gpu.stats().memory
    assert 9 * 4800 <= stats.bytes_in_arrays <= stats.bytes_used <= stats.bytes_held
    assert gpu.trim() == 0
    view = arrays[4][5:6, ::2]
    del arrays
    one = gpu.stats().memory.bytes_in_arrays
    assert 4800 <= one < 2 * 4800
    del view
    assert gpu.stats().memory.bytes_in_arrays == gpu.stats().memory.bytes_used == 0
    assert gpu.trim() == stats.bytes_held


def test_released_memory_serves_the_next_array(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    for _ in range(200):
        array = gpu.zeros(50_000, np.uint8)
        assert array.nbytes == 50_000
        del array
    assert (gpu.stats().memory.misses, gpu.stats().memory.blocks) == (1, 1)


def test_views_stay_valid_after_close() -> None:
    before = binding.count_live_objects()
    gpu, (a, b) = gx.PersistentVulkanBackend(), field_job(70)
    mapped_a, mapped_b, c = gpu.asarray(a), gpu.asarray(b), gpu.empty((70, 6), np.uint64)
    gpu.run(FQ_ADD, mapped_a, mapped_b, out=c)
    gpu.close()
    alive = binding.count_live_objects()
    grown = {kind for kind, count in alive.items() if count > before.get(kind, 0)}
    assert {"Instance", "Device", "Buffer", "Memory"} <= grown <= OF_A_BLOCK
    check_sums([c], [(mapped_a, mapped_b)])
    mapped_a[...] = 7
    part = mapped_a[3:5, ::2]
    del mapped_a, mapped_b, c
    assert binding.count_live_objects() == alive
    part[0] = 9
    assert part.tolist() == [[9] * 3, [7] * 3]
    assert gpu.stats().memory.bytes_in_arrays > 0
    del part
    assert binding.count_live_objects() == before
    assert gpu.stats().memory.bytes_in_arrays == 0
    for use in (gpu.empty, gpu.zeros):
        with pytest.raises(gx.errors.ClosedError):
            use(5)
    with pytest.raises(gx.errors.ClosedError):
        gpu.asarray(X)


def test_the_last_view_may_be_dropped_in_another_thread() -> None:
    before = binding.count_live_objects()
    gpu = gx.PersistentVulkanBackend()
    held = [gpu.asarray(X)]
    gpu.close()
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert binding.count_live_objects() == before


def test_the_last_view_may_be_dropped_while_the_backend_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = binding.count_live_objects()
    gpu = gx.PersistentVulkanBackend()
    device, held = gpu._session.resources.device, [gpu.asarray(X)]
    retain = device.retain

    def retain_and_drop() -> None:
        retain()
        held.clear()  # while the pool's lock is held

    monkeypatch.setattr(device, "retain", retain_and_drop)
    gpu.close()
    assert not held
    assert binding.count_live_objects() == before


def test_views_stay_valid_after_the_backend_is_garbage_collected() -> None:
    before = binding.count_live_objects()
    view = gx.PersistentVulkanBackend().asarray(X)[5:]
    gc.collect()
    np.testing.assert_array_equal(view, X[5:])
    del view
    assert binding.count_live_objects() == before


def test_arrays_in_reference_cycles_may_be_collected_anywhere(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    memory = gpu._session.resources.memory
    grow, collected = memory._grow, list[int]()

    def collecting(*arguments: Any, **options: Any) -> Any:
        cycle: list[Any] = [gpu_arrays.pop()]
        cycle.append(cycle)
        del cycle
        collected.append(gc.collect())  # while the pool's lock is held
        return grow(*arguments, **options)

    gpu_arrays = [gpu.asarray(X) for _ in range(5)]
    monkeypatch.setattr(memory, "_grow", collecting)
    np.testing.assert_array_equal(gpu.run(ADD_U32, X, X), 2 * X)
    assert collected
    gpu_arrays.clear()
    assert gpu.stats().memory.bytes_in_arrays == 0


def test_recordings_on_freed_buffers_are_not_used_for_new_buffers(
    fresh_gpu: OpenGpu,
) -> None:
    """A new buffer may get the handle of a freed one that idle slots have recordings for."""
    gpu = fresh_gpu(memory_limit=6_500_000)
    mapped = gpu._session.mapped
    arrays = [gpu.asarray(X) for _ in range(3)]
    gpu.run(ADD_U32, *arrays[:2], out=arrays[2], device_local=False)
    old = mapped.find(arrays[0])
    assert old is not None
    arrays.clear()
    large = gpu.empty(5_500_000, np.uint8)  # the first block must be freed for it
    new = mapped.find(large[: X.nbytes])
    assert new is not None
    assert new.serial != old.serial
    assert new._replace(buffer=old.buffer, offset=old.offset) != old


def test_idle_slots_are_closed_for_arrays(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(memory_limit=200_000)
    for size in (300, 400, 500, 700, 900, 1000):
        x = np.zeros(size, np.uint32)
        gpu.run(ADD_U32, x, x)
    array = gpu.empty(180_000, np.uint8)
    assert gpu.stats().memory.bytes_in_arrays >= array.nbytes


@on_both_paths
def test_arrays_at_many_addresses_need_a_bounded_number_of_recordings(
    fresh_gpu: OpenGpu, device_local: bool
) -> None:
    gpu, count = fresh_gpu(), 64
    x, out = gpu.asarray(np.arange(150 * count, dtype=np.uint32)), gpu.zeros(150 * count, np.uint32)
    for _ in range(2):
        for at in range(0, len(x), count):
            part = slice(at, at + count)
            gpu.run(ADD_U32, x[part], x[part], out=out[part], device_local=device_local)
        np.testing.assert_array_equal(out, 2 * x)
        out[...] = 0
    assert gpu.stats().slots.misses == 1
    assert gpu.stats().descriptors.sets_used <= 1 + MAX_RECORDINGS
    gpu.trim()
    assert gpu.stats().descriptors.sets_used == 0


def test_arrays_above_the_memory_limit_are_refused(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(memory_limit=100_000)
    with pytest.raises(gx.OutOfMemoryError, match=r"array memory .* limit 100,000"):
        gpu.empty(100_001, np.uint8)
    assert gpu.stats().memory.bytes_in_arrays == 0
    np.testing.assert_array_equal(gpu.run(ADD_U32, X, X), 2 * X)


HELD_AT_THE_END = """
import atexit
atexit.register(lambda: print(result.tolist(), gpu))  # after the backend was closed at exit
import numpy as np, gpu_executor as gx
gpu = gx.PersistentVulkanBackend()
a, result = gpu.asarray(np.arange(3, dtype=np.uint32)), gpu.empty(3, np.uint32)
gpu.run(gx.kernels.load("vector_add_u32"), a, a, out=result)
"""


def test_views_stay_valid_until_the_interpreter_exits(run_python: RunPython) -> None:
    ran = run_python(HELD_AT_THE_END)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("[0, 2, 4] ")
    assert ran.stdout.endswith("closed>\n")
