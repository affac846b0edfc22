"""Device arrays beside PyTorch and CuPy, on the GPU that all three use: without copies, in order.

These tests need a CUDA device, and PyTorch and CuPy where there is one. Everything but CUDA itself
is tested with a stand-in on any device (`test_cuda_exchange.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ExportError
from tests.support.cuda_stand_in import count_open_files

DTYPES = ["int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"]
WIDE = 1 << 24
"""Elements whose kernels run for a while."""
SLEEP = 20_000_000
"""Cycles for which a CUDA stream sleeps: about 10 ms."""


def count_cuda_devices() -> int:
    """The CUDA devices of this machine, as its driver counts them."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


pytestmark = [
    pytest.mark.skipif(count_cuda_devices() == 0, reason="this machine has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # those of PyTorch and CuPy
]


@pytest.fixture(scope="module")
def device() -> Iterator[gx.PersistentVulkanBackend]:
    with gx.PersistentVulkanBackend() as opened:
        yield opened


@pytest.fixture(scope="module")
def torch() -> Any:
    import torch

    return torch


@pytest.fixture(scope="module")
def cupy() -> Any:
    import cupy

    return cupy


def test_pytorch_reads_and_writes_the_memory_of_an_array(
    device: gx.PersistentVulkanBackend, torch: Any
) -> None:
    array = device.empty_device((300, 7), np.float32, export=True)
    array[...] = np.arange(2100, dtype=np.float32).reshape(300, 7)
    tensor = torch.from_dlpack(array)
    assert tensor.shape == (300, 7)
    assert tensor.is_cuda
    np.testing.assert_array_equal(
        tensor.cpu().numpy(), np.arange(2100, dtype=np.float32).reshape(300, 7)
    )
    tensor *= 2
    device.wait_for_stream(torch.cuda.current_stream())
    np.testing.assert_array_equal(array.numpy().ravel(), np.arange(2100) * 2)
    array[...] = array + 5
    device.make_stream_wait(torch.cuda.current_stream())
    np.testing.assert_array_equal(tensor.cpu().numpy().ravel(), np.arange(2100) * 2 + 5)
    view = torch.from_dlpack(array[10:20, ::2])
    view.fill_(-1)
    device.wait_for_stream(torch.cuda.current_stream())
    expected = (np.arange(2100) * 2 + 5).reshape(300, 7)
    expected[10:20, ::2] = -1
    np.testing.assert_array_equal(array.numpy(), expected)


def test_cupy_reads_and_writes_the_memory_of_an_array(
    device: gx.PersistentVulkanBackend, cupy: Any
) -> None:
    array = device.empty_device(1000, np.uint32, export=True)
    array[...] = np.arange(1000, dtype=np.uint32)
    shared = cupy.from_dlpack(array)
    np.testing.assert_array_equal(cupy.asnumpy(shared), np.arange(1000))
    shared *= 3
    device.wait_for_stream(cupy.cuda.get_current_stream())
    np.testing.assert_array_equal(array.numpy(), np.arange(1000) * 3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_dtype_go_both_ways(
    device: gx.PersistentVulkanBackend, torch: Any, cupy: Any, dtype: str
) -> None:
    given = np.random.default_rng(5).integers(0, 2, (33, 5)).astype(dtype)
    tensor = torch.from_numpy(given).cuda()
    copied = device.from_dlpack(tensor)
    assert copied.dtype == given.dtype or dtype == "bool"
    np.testing.assert_array_equal(copied.numpy(), given)
    np.testing.assert_array_equal(torch.from_dlpack(copied).cpu().numpy(), given)
    np.testing.assert_array_equal(device.from_dlpack(cupy.asarray(given)).numpy(), given)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.from_dlpack(copied)), given)


def test_the_order_is_kept_under_load(device: gx.PersistentVulkanBackend, torch: Any) -> None:
    array = device.empty_device(WIDE, np.int32, export=True)
    array[...] = np.zeros(WIDE, np.int32)
    tensor = torch.from_dlpack(array)
    stream = torch.cuda.Stream()
    value = 0
    for _ in range(20):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP)
            tensor += 1
        device.wait_for_stream(stream)
        array[...] = array * 2 + 1
        device.make_stream_wait(stream)
        value = (value + 1) * 2 + 1
        with torch.cuda.stream(stream):
            total = tensor.min(), tensor.max()
    stream.synchronize()
    assert [int(each) for each in total] == [value, value]


def test_a_tensor_that_another_stream_computes_is_copied_after_that(
    device: gx.PersistentVulkanBackend, torch: Any
) -> None:
    tensor = torch.zeros(WIDE, dtype=torch.int32, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLEEP)
        tensor.fill_(7)
        copied = device.from_dlpack(tensor)
    del tensor
    torch.zeros(WIDE, dtype=torch.int32, device="cuda").fill_(9)
    found = copied.numpy()
    assert found.min() == found.max() == 7


def test_results_on_the_host_are_shared_with_pytorch(
    device: gx.PersistentVulkanBackend, torch: Any
) -> None:
    add = gx.kernels.load("vector_add_u32")
    words = np.arange(5000, dtype=np.uint32)
    result = device.run(add, words, words)
    tensor = torch.from_dlpack(result)
    result[3] = 77
    assert tensor[3].item() == 77
    del result
    np.testing.assert_array_equal(np.delete(tensor.numpy(), 3), np.delete(2 * words, 3))


def test_what_cannot_be_exchanged_is_refused(
    device: gx.PersistentVulkanBackend, torch: Any
) -> None:
    with pytest.raises(ExportError, match="export=True"):
        torch.from_dlpack(device.to_device(np.ones(3)))
    with pytest.raises(ArgumentShapeError, match="contiguous"):
        device.from_dlpack(torch.ones((3, 4), device="cuda").T)
    with pytest.raises(ExportError, match="bfloat16"):
        device.from_dlpack(torch.ones(3, device="cuda", dtype=torch.bfloat16))


def test_a_tensor_outlives_its_array_and_its_backend(torch: Any) -> None:
    with gx.PersistentVulkanBackend() as device:
        array = device.empty_device(1 << 20, np.float32, export=True)
        array[...] = np.arange(1 << 20, dtype=np.float32)
        tensor = torch.from_dlpack(array)
        del array
        other = device.empty_device(1 << 20, np.float32, export=True)
        other[...] = np.zeros(1 << 20, np.float32)
        device.synchronize()
    tensor += 1
    np.testing.assert_array_equal(tensor.cpu().numpy(), np.arange(1, (1 << 20) + 1))


def test_memory_and_file_descriptors_are_freed(torch: Any) -> None:
    def exchange() -> None:
        with gx.PersistentVulkanBackend() as device:
            for number in range(50):
                array = device.empty_device(1 << 20, np.float32, export=True)
                array[...] = np.full(1 << 20, number, np.float32)
                tensor = torch.from_dlpack(array)
                assert float(tensor[-1]) == number
                assert float(device.from_dlpack(tensor)[5].numpy()) == number
        torch.cuda.synchronize()

    exchange()
    files, free = count_open_files(), torch.cuda.mem_get_info()[0]
    for _ in range(2):
        exchange()
    assert count_open_files() == files
    assert torch.cuda.mem_get_info()[0] >= free - (8 << 20)
