"""Device arrays as arguments and results of calls, and imported arrays."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.kernels.catalogue import field_kernel
from gpu_executor.primes import BLS12_381_FQ, words
from gpu_executor.vulkan import binding
from tests.conftest import CHUNK, OpenGpu, OpenWebGpu, elements, on_both_paths

FQ = BLS12_381_FQ
MUL = field_kernel(FQ, "mont_mul")
ADD_U32 = gx.kernels.load("vector_add_u32")
SIZES = [1, 3, CHUNK - 1, CHUNK, CHUNK + 1, 10 * CHUNK]


def field(count: int, seed: int) -> words.Elements:
    return words.from_ints(FQ, elements(FQ, count, seed))


@pytest.mark.parametrize("size", SIZES)
def test_arrays_survive_the_way_to_the_device_and_back(
    gpu: gx.PersistentVulkanBackend, size: int
) -> None:
    for array in (field(size, 1), np.arange(2 * size, dtype=">i2")[::2], np.ones((2, size), "f4")):
        there = gpu.to_device(array)
        assert (there.shape, there.ndim, len(there)) == (array.shape, array.ndim, len(array))
        assert there.nbytes == array.nbytes
        np.testing.assert_array_equal(there.numpy(), array)


@on_both_paths
@pytest.mark.parametrize("size", SIZES)
def test_results_of_calls_stay_on_the_device(
    chunking_gpu: gx.PersistentVulkanBackend, device_local: bool, size: int
) -> None:
    gpu = chunking_gpu
    a, b = field(size, 1), field(size, 2)
    once = words.mont_mul(FQ, a, b)
    twice = words.mont_mul(FQ, once, b)
    kept = gpu.run(MUL, gpu.to_device(a), gpu.to_device(b), keep=True, device_local=device_local)
    assert isinstance(kept, DeviceArray)
    np.testing.assert_array_equal(kept.numpy(), once)
    # Device, host and mapped arrays in one call; the result kept, fetched or written to `out`.
    mixed = gpu.run(MUL, kept, b, keep=True, device_local=device_local)
    np.testing.assert_array_equal(mixed.numpy(), twice)
    np.testing.assert_array_equal(gpu.run(MUL, kept, b, device_local=device_local), twice)
    out = gpu.empty(a.shape, a.dtype)
    gpu.run(MUL, kept, gpu.asarray(b), out=out, device_local=device_local)
    np.testing.assert_array_equal(out, twice)


def test_a_call_on_device_arrays_copies_nothing(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, x = fresh_gpu(), np.arange(5000, dtype=np.uint32)
    there = gpu.to_device(x)
    gpu.run(ADD_U32, there, there, keep=True)
    copied: list[object] = []
    monkeypatch.setattr(binding.vk, "vkCmdCopyBuffer", lambda *a: copied.append(a))
    monkeypatch.setattr(
        "gpu_executor.vulkan.copy_threads.CopyThreads.copy", lambda *a: copied.append(a)
    )
    kept = gpu.run(ADD_U32, there, there, keep=True)
    monkeypatch.undo()
    assert copied == []
    np.testing.assert_array_equal(kept.numpy(), 2 * x)
    plan = gpu.explain(ADD_U32, x, x)
    assert plan.chunk == 5000


def test_device_memory_returns_to_the_pool_with_the_array(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    gpu.to_device(np.zeros(1000, np.uint32)).numpy()
    gc.collect()
    before = gpu.stats().memory.bytes_used
    arrays = [gpu.to_device(np.zeros(1000, np.uint32)) for _ in range(20)]
    assert gpu.stats().memory.bytes_used >= before + 20 * 4000
    arrays.clear()
    gpu._session.device_memory.stream.wait()  # uploads may still be in flight
    assert gpu.stats().memory.bytes_used == before


def test_an_array_of_a_closed_or_other_backend_is_rejected(fresh_gpu: OpenGpu) -> None:
    before = binding.count_live_objects()
    gpu, other = fresh_gpu(), fresh_gpu()
    there = gpu.to_device(np.arange(9, dtype=np.uint32))
    with pytest.raises(gx.GpuError, match="another backend"):
        other.run(ADD_U32, there, there)
    gpu.close()
    other.close()
    with pytest.raises(gx.errors.ClosedError):
        there.numpy()
    assert binding.count_live_objects() == before


def test_device_arrays_of_the_wrong_dtype_or_shape_are_rejected(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    there = gpu.to_device(np.zeros(4, np.float32))
    with pytest.raises(ArgumentTypeError, match="argument 0 has dtype float32"):
        gpu.run(ADD_U32, there, there)
    short = gpu.to_device(np.zeros(3, np.uint32))
    with pytest.raises(ArgumentShapeError, match="argument 1 has elements in shape"):
        gpu.run(ADD_U32, gpu.to_device(np.zeros(4, np.uint32)), short)


@pytest.fixture
def importing(fresh_gpu: OpenGpu) -> Callable[..., gx.PersistentVulkanBackend]:
    def open_it() -> gx.PersistentVulkanBackend:
        gpu = fresh_gpu()
        assert "VK_EXT_external_memory_host" in gpu.device.extensions
        return gpu

    return open_it


@on_both_paths
@pytest.mark.parametrize("size", SIZES)
def test_imported_arrays_are_used_in_place(
    chunking_gpu: gx.PersistentVulkanBackend, device_local: bool, size: int
) -> None:
    gpu = chunking_gpu
    assert "VK_EXT_external_memory_host" in gpu.device.extensions
    space = [np.zeros((size + 7, 6), np.uint64) for _ in range(3)]
    a, b, c = (array[3 : size + 3] for array in space)
    a[...], b[...] = field(size, 1), field(size, 2)
    with gpu.import_array(space[0]), gpu.import_array(b), gpu.import_array(space[2]):
        mapped = gpu._session.mapped
        assert all(mapped.find(array) is not None for array in (a, b, c))
        gpu.run(MUL, a, b, out=c, device_local=device_local)
    np.testing.assert_array_equal(c, words.mont_mul(FQ, a, b))
    assert not space[2][:3].any()
    assert not space[2][size + 3 :].any()
    assert mapped.find(a) is None
    np.testing.assert_array_equal(gpu.run(MUL, a, b), c)


def test_arrays_that_cannot_be_imported_are_rejected(importing: OpenGpu) -> None:
    gpu, array = importing(), np.zeros(100)
    for wrong in (array[::2], array[:0]):
        with pytest.raises(ArgumentShapeError, match="contiguous array"):
            gpu.import_array(wrong)
    array.flags.writeable = False
    with pytest.raises(ArgumentTypeError, match="read-only"):
        gpu.import_array(array)


def test_an_import_may_outlive_the_backend(importing: OpenGpu) -> None:
    before = binding.count_live_objects()
    gpu, array = importing(), np.arange(5000, dtype=np.uint32)
    imported = gpu.import_array(array)
    gpu.run(ADD_U32, array, array)
    gpu.close()
    assert binding.count_live_objects()["Device"] > before.get("Device", 0)
    imported.close()
    assert binding.count_live_objects() == before
    assert array.sum() == 4999 * 2500


def test_an_array_may_be_imported_twice(importing: OpenGpu) -> None:
    gpu, array = importing(), np.arange(5000, dtype=np.uint32)
    before = binding.count_live_objects()
    imports = [gpu.import_array(array), gpu.import_array(array[:4000]), gpu.import_array(array)]
    for imported in imports:
        np.testing.assert_array_equal(gpu.run(ADD_U32, array, array), 2 * array)
        imported.close()
        imported.close()
    assert gpu._session.mapped.find(array) is None
    np.testing.assert_array_equal(gpu.run(ADD_U32, array, array), 2 * array)
    gpu.trim()
    assert binding.count_live_objects().get("Buffer", 0) == before.get("Buffer", 0)


def test_a_mapped_array_may_be_imported(importing: OpenGpu) -> None:
    gpu = importing()
    array = gpu.asarray(np.arange(5000, dtype=np.uint32))
    gpu.import_array(array).close()
    assert gpu._session.mapped.find(array) is not None
    np.testing.assert_array_equal(gpu.run(ADD_U32, array, array), 2 * array)


def test_an_import_that_is_not_closed_ends_with_its_array(importing: OpenGpu) -> None:
    """Another array at the same address must not be taken for it."""
    gpu = importing()
    before = binding.count_live_objects()
    array = np.zeros(5000, np.uint32)
    gpu.import_array(array)
    view = array[10:]
    assert gpu._session.mapped.find(view) is not None
    del array, view
    assert binding.count_live_objects() == before
    assert gpu._session.mapped.find(np.zeros(5000, np.uint32)) is None
    assert not gpu._session.mapped.any


def test_imports_made_for_the_jobs_of_a_stream_last_as_long_as_the_jobs(importing: OpenGpu) -> None:
    gpu = importing()

    def jobs() -> Iterator[tuple[Any, Any]]:
        for number in range(20):
            array = np.full(5000, number, np.uint32)
            gpu.import_array(array)
            yield array, array

    for number, result in enumerate(gpu.stream(ADD_U32, jobs(), depth=4)):
        np.testing.assert_array_equal(result, 2 * number)


def test_an_import_may_be_closed_while_calls_use_it(importing: OpenGpu) -> None:
    gpu = importing()
    before = binding.count_live_objects().get("Buffer", 0)
    a = np.arange(100_000, dtype=np.uint32)
    imported = gpu.import_array(a)
    stream = gpu.stream(ADD_U32, ((a, a) for _ in range(12)), depth=4)
    np.testing.assert_array_equal(next(stream), 2 * a)
    imported.close()
    for result in stream:
        np.testing.assert_array_equal(result, 2 * a)
    del stream, result
    gpu.trim()
    assert binding.count_live_objects().get("Buffer", 0) == before


def test_other_backends_reject_device_arrays_and_name_numpy(
    gpu: gx.PersistentVulkanBackend, open_webgpu: OpenWebGpu
) -> None:
    webgpu, cpu, x = open_webgpu(), gx.CpuBackend(), np.arange(1000, dtype=np.uint32)
    there = gpu.to_device(x)
    runs: list[Callable[..., Any]] = [
        webgpu.run,
        cpu.run,
        lambda kernel, a, b: webgpu.run_batch(kernel, [(x, x), (a, b)])[1],
    ]
    for run in runs:
        for arrays, number in (((there, x), 0), ((x, there), 1), ((there, there), 0)):
            with pytest.raises(ArgumentTypeError, match=rf"argument {number} .*numpy|copy_to"):
                run(ADD_U32, *arrays)
        np.testing.assert_array_equal(run(ADD_U32, there.numpy(), x), 2 * x)
    mine, result = webgpu.to_device(x), webgpu.to_device(x)
    jobs: list[Any] = [(mine, x), (there, x)]
    with pytest.raises(ArgumentTypeError, match=r"job 1: the array is on .*copy_to"):
        webgpu.run_batch(ADD_U32, jobs, out=[result, result])
    np.testing.assert_array_equal(result.numpy(), x)  # no job ran
    with pytest.raises(ArgumentTypeError, match=r"job 1: the array is on .*copy_to"):
        gpu.run_batch(ADD_U32, [(there, x), (mine, x)])
    for other in (webgpu, cpu):
        with pytest.raises(ArgumentTypeError, match=r"out 0 is a DeviceArray|copy_to"):
            other.run(ADD_U32, x, x, out=there)
    np.testing.assert_array_equal(there.numpy(), x)
