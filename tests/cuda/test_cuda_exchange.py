"""The exchange of device arrays with CUDA libraries, with a stand-in for CUDA's driver library."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.arrays import dlpack
from gpu_executor.arrays.device_array import ExportRequest
from gpu_executor.arrays.dlpack import TakenTensor, TensorLayout, make_capsule, take_capsule
from gpu_executor.cuda import device as cuda_device
from gpu_executor.cuda import driver
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    CudaError,
    DeviceLostError,
    ElementRangeError,
    ExportError,
    ForkedError,
    GpuError,
    OutOfMemoryError,
)
from gpu_executor.vulkan import binding
from gpu_executor.vulkan.binding import vk
from tests.conftest import OpenGpu
from tests.support.cuda_stand_in import CudaStandIn, count_open_files
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, field_job
from tests.support.threads import in_threads
from tests.support.vulkan_faults import Fail, fail

__all__ = ["fail"]

Array = npt.NDArray[Any]
Gpu = gx.PersistentVulkanBackend
ORDINAL = 1
"""The index of the CUDA device of the stand-in that is the Vulkan device."""


def take(array: gx.DeviceArray, **options: Any) -> TakenTensor:
    """Take an array as another library does."""
    assert array.__dlpack_device__() == (dlpack.CUDA, ORDINAL)
    return take_capsule(array.__dlpack__(max_version=(1, 0), **options))


def view(taken: TakenTensor) -> Array:
    """The memory of an array as a CUDA library sees it: that of the stand-in is the host's."""
    layout = taken.layout
    steps = [step * layout.dtype.itemsize for step in layout.strides]
    reach = sum((n - 1) * step for n, step in zip(layout.shape, steps, strict=True))
    memory: Any = (ctypes.c_char * (reach + layout.dtype.itemsize)).from_address(layout.pointer)
    return np.ndarray(layout.shape, layout.dtype, memory, 0, steps)


class OtherArray:
    """An array of a CUDA library; counts how often it was given back."""

    def __init__(self, array: Array, device: tuple[int, int] = (dlpack.CUDA, ORDINAL)) -> None:
        self.array, self.device = array, device
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int, max_version: tuple[int, int] | None = None) -> object:
        self.streams.append(stream)
        strides = tuple(step // self.array.itemsize for step in self.array.strides)
        layout = TensorLayout(
            self.array.ctypes.data, self.device, self.array.shape, strides, self.array.dtype
        )
        return make_capsule(layout, self.array, ExportRequest(max_version=max_version))


def read(array: Any, **options: Any) -> Array:
    """What NumPy makes of an array; its type annotations know no version of DLPack."""
    return np.from_dlpack(array, **options)


def ramp(count: int, dtype: str = "uint32") -> Array:
    return np.arange(count).astype(dtype)


def make_shared(gpu: Gpu, values: Array) -> gx.DeviceArray:
    made = gpu.empty_device(values.shape, values.dtype, export=True)
    made[...] = values
    return made


# --- sharing ---


def test_an_array_is_shared_without_a_copy(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    array = make_shared(gpu, ramp(1000))
    taken = take(array)
    there = view(taken)
    np.testing.assert_array_equal(there, ramp(1000))
    there += 7
    gpu.wait_for_stream(0)
    np.testing.assert_array_equal(gpu.run(ADD_U32, array, array).numpy(), 2 * (ramp(1000) + 7))
    gpu.run(ADD_U32, array, array, out=array)
    gpu.make_stream_wait(2)
    np.testing.assert_array_equal(there, 2 * (ramp(1000) + 7))


def test_every_dtype_has_its_code_in_every_version(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    for dtype in ("bool", "uint8", "int16", "float16", "int64", "complex128"):
        values = (ramp(12) % 2).astype(dtype)
        array = make_shared(gpu, values)
        for version in (None, (0, 8), (1, 0), (1, 2)):
            taken = take_capsule(array.__dlpack__(max_version=version))
            assert taken.layout.dtype == dtype
            assert not taken.is_read_only
            np.testing.assert_array_equal(view(taken), values)


def test_views_scalars_and_empty_arrays_are_shared(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    values = ramp(60).reshape(3, 4, 5)
    array = make_shared(gpu, values)
    np.testing.assert_array_equal(view(take(array[1:, ::2, 3])), values[1:, ::2, 3])
    np.testing.assert_array_equal(view(take(array.T)), values.T)
    assert view(take(array[2, 3, 4])).item() == 59
    taken = take(array[:, :0])
    assert (taken.layout.shape, taken.layout.pointer) == ((3, 0, 5), 0)
    assert take(gpu.empty_device((0, 2), export=True)).layout.shape == (0, 2)
    with pytest.raises(ExportError, match=r"repeats elements.*copy\(\) it"):
        take(array[0, 0].broadcast_to((9, 5)))


def test_a_copy_is_made_where_one_is_asked_for(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    array = make_shared(gpu, ramp(70))
    there = view(taken := take(array, copy=True))
    array[...] = ramp(70) + 1
    gpu.make_stream_wait(0)
    np.testing.assert_array_equal(there, ramp(70))
    assert taken.layout.device == (dlpack.CUDA, ORDINAL)
    for given in (array, gpu.to_device(ramp(70) + 1)):
        host = read(given, device="cpu")
        np.testing.assert_array_equal(host, ramp(70) + 1)
    with pytest.raises(ExportError, match="copy=False"):
        array.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(ExportError, match=r"on DLPack's device \(2, 1\), not on \(2, 0\)"):
        array.__dlpack__(dl_device=(2, 0))


def test_a_library_may_keep_the_order_by_itself(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    array = make_shared(fresh_gpu(), ramp(5))
    taken = take(array, stream=-1)
    waits = [cuda.calls["cuWaitExternalSemaphoresAsync"]]
    taken.release()
    take(array, stream=1)
    waits.append(cuda.calls["cuWaitExternalSemaphoresAsync"])
    assert waits == [0, 1]


def test_a_program_exports_an_array_again_and_again(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    array = make_shared(gpu, ramp(100))
    take(array)
    files, objects = count_open_files(), binding.count_live_objects()
    for _ in range(200):
        np.testing.assert_array_equal(view(take(array)), ramp(100))
    assert (count_open_files(), binding.count_live_objects()) == (files, objects)
    assert cuda.calls["cuImportExternalMemory"] == 1


def test_a_capsule_that_nobody_takes_is_freed(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    array = make_shared(fresh_gpu(), ramp(5))
    capsules, counts = [array.__dlpack__()], [dlpack.count_exports()]
    capsules.clear()
    counts.append(dlpack.count_exports())
    with pytest.raises(RuntimeError, match="Unsupported device"):
        read(array)  # frees the capsule while the exception is raised
    counts.append(dlpack.count_exports())
    assert counts == [1, 0, 0]


def test_a_capsule_is_taken_once(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    capsule = make_shared(fresh_gpu(), ramp(5)).__dlpack__()
    taken = take_capsule(capsule)
    with pytest.raises(ExportError, match="taken already"):
        take_capsule(capsule)
    taken.release()
    taken.release()
    assert dlpack.count_exports() == 0


# --- order ---


def test_calls_wait_for_what_is_on_a_stream(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(validation=False)  # see `CudaStandIn.before_signals`
    array = make_shared(gpu, ramp(1000))
    there = view(taken := take(array))

    def compute() -> None:
        there[...] = 5

    cuda.before_signals = compute
    gpu.wait_for_stream(0)
    doubled = gpu.run(ADD_U32, array, array)
    assert doubled.numpy().tolist() == [10] * 1000
    assert taken.layout.nbytes == 4000


def test_both_sides_take_turns(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    array = make_shared(gpu, np.zeros(5000, np.uint32))
    there, expected = view(take(array)), 0
    for number in range(100):
        there += number
        gpu.wait_for_stream(number % 3)
        gpu.run(ADD_U32, array, array, out=array)
        gpu.make_stream_wait(number % 3)
        expected = 2 * (expected + number) % (1 << 32)
        assert (there[0], there[-1]) == (expected, expected)


def test_a_replayed_graph_is_waited_for(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    array, x = make_shared(gpu, np.zeros(70, np.uint32)), gpu.to_device(ramp(70))
    there = view(take(array))
    with gpu.graph(x) as replay:
        gpu.run(ADD_U32, x, x, out=array)
        for use in (
            array.__dlpack__,
            lambda: gpu.wait_for_stream(0),
            lambda: gpu.make_stream_wait(0),
        ):
            with pytest.raises(GpuError, match="a graph is being recorded"):
                use()
    replay()
    gpu.make_stream_wait(0)
    np.testing.assert_array_equal(there, 2 * ramp(70))


def test_an_array_made_in_a_graph_is_shared_after_its_run(
    cuda: CudaStandIn, fresh_gpu: OpenGpu
) -> None:
    gpu = fresh_gpu()
    x = gpu.to_device(ramp(70))
    with gpu.graph(x) as replay:
        made = gpu.empty_device(70, np.uint32, export=True)
        gpu.run(ADD_U32, x, x, out=made)
    with pytest.raises(GpuError, match="has not run yet"):
        made.__dlpack__()
    replay()
    np.testing.assert_array_equal(view(take(made)), 2 * ramp(70))


def test_an_error_of_the_call_that_computed_an_array_comes_first(
    cuda: CudaStandIn, fresh_gpu: OpenGpu
) -> None:
    gpu = fresh_gpu()
    a, b = field_job(9)
    b[4] = TOO_LARGE
    array = gpu.empty_device(a.shape, a.dtype, export=True)
    gpu.run(FQ_ADD, gpu.to_device(a), gpu.to_device(b), out=array)
    with pytest.raises(ElementRangeError, match="element 4"):
        array.__dlpack__()


class WithProtocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 2


class TorchStream:
    cuda_stream = 0


class CupyStream:
    ptr = 1


def test_streams_are_given_in_several_ways(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    streams: list[Any] = [None, 0, 1, np.int64(2), WithProtocol(), TorchStream, CupyStream]
    for stream in streams:
        gpu.wait_for_stream(stream)
        gpu.make_stream_wait(stream)


def test_what_is_no_stream_is_refused(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    streams: list[Any] = [-1, -2, True, 1.5, "0", object()]
    for stream in streams:
        for method in (gpu.wait_for_stream, gpu.make_stream_wait):
            with pytest.raises(ArgumentTypeError, match=f"{method.__name__}: .* is no CUDA stream"):
                method(stream)


def test_a_stream_that_records_a_cuda_graph_is_refused(
    cuda: CudaStandIn, fresh_gpu: OpenGpu
) -> None:
    gpu = fresh_gpu()
    array = make_shared(gpu, ramp(5))
    cuda.capturing.add(2)
    uses: list[Callable[[], object]] = [
        lambda: gpu.wait_for_stream(2),
        lambda: gpu.make_stream_wait(2),
        lambda: array.__dlpack__(stream=2),
    ]
    for use in uses:
        with pytest.raises(ArgumentValueError, match="records a CUDA graph"):
            use()
    assert not cuda.calls["cuSignalExternalSemaphoresAsync"]
    np.testing.assert_array_equal(view(take(array)), ramp(5))


# --- arrays of other libraries ---


def test_an_array_of_another_library_is_copied(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    for dtype in ("bool", "uint8", "int16", "float32", "uint64", "complex64"):
        values = (ramp(105) % 2).astype(dtype).reshape(3, 5, 7)
        other = OtherArray(values)
        made = gpu.from_dlpack(other)
        assert (made.shape, made.dtype) == (values.shape, values.dtype)
        np.testing.assert_array_equal(made.numpy(), values)
        np.testing.assert_array_equal(view(take(made)), values)
        assert other.streams == other.streams[:1]
        assert other.streams[0] > 2


def test_an_array_is_given_back_when_it_was_copied(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    values = ramp(1000)
    made = gpu.from_dlpack(OtherArray(values))
    assert dlpack.count_exports() == 1
    cuda.failing["cuEventQuery"] = driver.NOT_READY
    gpu.synchronize()
    assert dlpack.count_exports() == 1
    del cuda.failing["cuEventQuery"]
    gpu.synchronize()
    assert dlpack.count_exports() == 0
    np.testing.assert_array_equal(made.numpy(), values)


def test_kernels_wait_for_the_copy(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(validation=False)
    values = ramp(1000)
    cuda.before_signals = lambda: None  # the signal comes 0.2 s late
    made = gpu.from_dlpack(OtherArray(values))
    begun = time.perf_counter()
    np.testing.assert_array_equal(gpu.run(ADD_U32, made, made).numpy(), 2 * values)
    assert time.perf_counter() - begun > 0.1


def test_arrays_that_cannot_be_taken_are_refused(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    values = ramp(12).reshape(3, 4)
    for view_ in (values.T, values[:, ::2], values[::-1]):
        with pytest.raises(ArgumentShapeError, match="is not C-contiguous"):
            gpu.from_dlpack(OtherArray(view_))
    with pytest.raises(ExportError, match=r"device \(2, 0\), and .* is device \(2, 1\) \(UUID"):
        gpu.from_dlpack(OtherArray(values, (dlpack.CUDA, 0)))
    with pytest.raises(ExportError, match=r"device \(10, 0\).* takes arrays of CUDA and of the"):
        gpu.from_dlpack(OtherArray(values, (10, 0)))
    np.testing.assert_array_equal(gpu.from_dlpack(OtherArray(values[1:])).numpy(), values[1:])
    assert gpu.from_dlpack(OtherArray(values[:0])).shape == (0, 4)
    assert gpu.from_dlpack(OtherArray(np.array(5.0))).numpy() == 5


def test_a_dtype_that_numpy_does_not_have_is_refused(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    class OddDtype(OtherArray):
        def __dlpack__(self, **options: Any) -> object:
            capsule = super().__dlpack__(**options)
            name = dlpack._CAPSULE_VERSIONED
            address = dlpack._get_pointer(id(capsule), name)
            managed: Any = dlpack._ManagedVersioned.from_address(address)
            managed.tensor.dtype = dlpack._DataType(code, bits, lanes)
            return capsule

    gpu = fresh_gpu()
    for code, bits, lanes in ((4, 16, 1), (2, 32, 4), (0, 4, 1), (7, 8, 1)):
        with pytest.raises(ExportError, match=f"code {code} with {bits} bits and {lanes} lanes"):
            gpu.from_dlpack(OddDtype(ramp(8)))
    assert dlpack.count_exports() == 0


# --- refusals ---


def test_an_ordinary_array_says_how_to_make_one_that_is_shared(
    cuda: CudaStandIn, fresh_gpu: OpenGpu
) -> None:
    gpu = fresh_gpu()
    array = gpu.to_device(ramp(5))
    for use in (array.__dlpack__, array.__dlpack_device__):
        with pytest.raises(ExportError, match=r"gpu.empty_device\(shape, dtype, export=True\)"):
            use()
    assert isinstance(pickle.loads(pickle.dumps(ExportError("x"))), BufferError)


def test_typed_arrays_refuse(gpu: Gpu) -> None:
    elements = gx.fields.BABYBEAR.encode([1, 2])
    for array in (elements, gpu.to_device(elements), gx.curves.PALLAS.generator * np.arange(2)):
        with pytest.raises(ExportError, match=r"array\.data has the words"):
            array.__dlpack__()
        with pytest.raises(ExportError, match="do not know its elements"):
            read(array)


def test_a_device_that_is_no_cuda_device_is_refused(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    cuda.uuids.pop()
    gpu, files = fresh_gpu(), count_open_files()
    message = (
        f"its UUID is {gpu.device.uuid}, and the CUDA devices of this process have {cuda.uuids[0]}"
    )
    for use in (
        lambda: gpu.empty_device(3, export=True),
        lambda: gpu.wait_for_stream(0),
        lambda: gpu.from_dlpack(OtherArray(ramp(3))),
    ):
        with pytest.raises(ExportError, match=message):
            use()
    cuda.uuids.clear()
    with pytest.raises(ExportError, match="have none; CUDA_VISIBLE_DEVICES"):
        gpu.empty_device(3, export=True)
    assert count_open_files() == files


def test_a_machine_without_cuda_is_refused(
    cuda: CudaStandIn, fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libabsent.so.1")
    monkeypatch.setattr(cuda_device, "load_library", driver.load_library)
    with pytest.raises(ExportError, match=r"driver library, which cannot be loaded: .*libabsent"):
        fresh_gpu().empty_device(3, export=True)


def test_a_device_that_cannot_export_is_refused(gpu: Gpu) -> None:
    if "VK_KHR_external_semaphore_fd" in gpu.device.extensions:
        return
    with pytest.raises(ExportError, match=r"lacks VK_KHR_external_semaphore_fd; array\.numpy\(\)"):
        gpu.empty_device(3, export=True)


CALLS_OF_CONNECTIONS = [
    "cuInit",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuStreamCreate",
    "cuEventCreate",
    "cuImportExternalSemaphore",
]
CALLS_OF_EXPORTS = [
    "cuImportExternalMemory",
    "cuExternalMemoryGetMappedBuffer",
    "cuStreamIsCapturing",
    "cuWaitExternalSemaphoresAsync",
    "cuEventRecord",
    "cuStreamWaitEvent",
]


@pytest.mark.parametrize("name", CALLS_OF_CONNECTIONS)
def test_a_call_of_cuda_that_fails_leaves_nothing_open(
    cuda: CudaStandIn, fresh_gpu: OpenGpu, name: str
) -> None:
    check_a_failing_call(cuda, fresh_gpu(), name)


def test_an_export_that_fails_leaves_nothing_open(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    for name in CALLS_OF_EXPORTS:
        check_a_failing_call(cuda, gpu, name)


def check_a_failing_call(cuda: CudaStandIn, gpu: Gpu, name: str) -> None:
    gpu.to_device(ramp(100)).numpy()
    before = count_open_files()

    def export() -> None:
        np.testing.assert_array_equal(view(take(make_shared(gpu, ramp(100)))), ramp(100))

    def fail() -> None:
        with pytest.raises((CudaError, ExportError), match=rf"{name} failed: CUDA_ERROR_STAND_IN"):
            export()

    cuda.failing[name] = 999
    fail()
    gc.collect()
    files, objects = count_open_files(), binding.count_live_objects()  # a block is kept
    for _ in range(3):
        fail()
    gc.collect()
    assert (count_open_files(), binding.count_live_objects()) == (files, objects)
    cuda.failing.clear()
    export()
    gc.collect()
    gpu.trim()
    assert count_open_files() == before


@pytest.mark.parametrize("name", ["cuMemcpyDtoDAsync_v2", "cuSignalExternalSemaphoresAsync"])
def test_a_copy_that_fails_gives_the_array_back(
    cuda: CudaStandIn, fresh_gpu: OpenGpu, name: str
) -> None:
    gpu = fresh_gpu()
    cuda.failing[name] = 700
    with pytest.raises(CudaError, match=name) as caught:
        gpu.from_dlpack(OtherArray(ramp(10)))
    assert pickle.loads(pickle.dumps(caught.value)).result == 700
    cuda.failing.clear()
    del caught
    gpu.synchronize()
    gc.collect()
    assert dlpack.count_exports() == 0
    np.testing.assert_array_equal(gpu.from_dlpack(OtherArray(ramp(10))).numpy(), ramp(10))


def test_cuda_may_be_out_of_memory(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    array = make_shared(fresh_gpu(), ramp(10))
    cuda.failing["cuImportExternalMemory"] = driver.OUT_OF_MEMORY
    with pytest.raises(OutOfMemoryError, match="cuImportExternalMemory"):
        array.__dlpack__()


def test_memory_that_cannot_be_exported_is_refused(
    cuda: CudaStandIn, fresh_gpu: OpenGpu, fail: Fail
) -> None:
    gpu = fresh_gpu()
    fail("vkAllocateMemory", vk.VK_ERROR_OUT_OF_DEVICE_MEMORY)
    with pytest.raises(OutOfMemoryError):
        gpu.empty_device(3, export=True)


# --- lifetime ---


def test_a_tensor_outlives_its_array_and_its_backend(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    array = make_shared(gpu, ramp(1000))
    there = view(taken := take(array))
    del array
    others = [make_shared(gpu, np.zeros(1000, np.uint32)) for _ in range(3)]
    gpu.synchronize()
    np.testing.assert_array_equal(there, ramp(1000))
    gpu.close()
    np.testing.assert_array_equal(there, ramp(1000))
    there += 1
    for use in (others[0].__dlpack__, lambda: gpu.wait_for_stream(0)):
        with pytest.raises(ClosedError):
            use()
    assert cuda.live["memory"] == cuda.live["mapping"] == cuda.live["context"] == 1
    taken.release()
    gc.collect()
    assert cuda.live["memory"] == cuda.live["mapping"] == cuda.live["context"] == 0


def test_memory_that_others_had_is_used_again_after_their_work(
    cuda: CudaStandIn, fresh_gpu: OpenGpu
) -> None:
    gpu = fresh_gpu()
    array = make_shared(gpu, ramp(1000))
    pointer = take(array).layout.pointer
    gpu.synchronize()
    del array
    again = make_shared(gpu, ramp(1000))
    assert take(again).layout.pointer != pointer
    synchronized = [cuda.calls["cuCtxSynchronize"]]
    assert gpu.array_device.exchange.collect()
    assert not gpu.array_device.exchange.collect()
    synchronized.append(cuda.calls["cuCtxSynchronize"])
    last = make_shared(gpu, ramp(1000))
    assert take(last).layout.pointer == pointer
    assert synchronized == [0, 1]


def test_little_memory_that_others_had_is_not_waited_for(
    cuda: CudaStandIn, fresh_gpu: OpenGpu
) -> None:
    gpu = fresh_gpu(idle_memory=10 << 20)
    for number in range(40):
        array = gpu.empty_device(1 << 17, np.uint64, export=True)
        array[...] = number
        taken = take(array)
        assert view(taken)[-1] == number
        del array, taken
    assert cuda.calls["cuCtxSynchronize"] == 3  # one for 11 MiB
    assert gpu.stats().bytes_held <= 20 << 20


def test_trim_frees_memory_that_others_had(cuda: CudaStandIn, fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    held = gpu.stats().bytes_held
    for _ in range(3):
        take(make_shared(gpu, np.zeros(1 << 20, np.uint32)))
    gpu.synchronize()
    gpu.trim()
    assert gpu.stats().bytes_held <= held
    assert cuda.live["memory"] == cuda.live["mapping"] == 0


def test_memory_that_others_had_is_used_where_memory_is_short(
    cuda: CudaStandIn, fresh_gpu: OpenGpu
) -> None:
    gpu = fresh_gpu(memory_limit=10 << 20)
    for export in (False, True):
        take(gpu.empty_device(1 << 20, np.uint64, export=True))
        array = gpu.empty_device(1 << 20, np.uint64, export=export)
        array[...] = 7
        assert array[-1].numpy() == 7
        del array
        gpu.synchronize()


def test_copies_and_pickles_of_shared_arrays_are_ordinary(
    cuda: CudaStandIn, fresh_gpu: OpenGpu
) -> None:
    gpu = fresh_gpu()
    array = make_shared(gpu, ramp(9))
    loaded = pickle.loads(pickle.dumps(array))
    assert isinstance(loaded, np.ndarray)
    np.testing.assert_array_equal(loaded, ramp(9))
    with pytest.raises(ExportError):
        array.copy().__dlpack__()


def test_a_lost_device_raises_and_can_be_closed(
    cuda: CudaStandIn, fresh_gpu: OpenGpu, fail: Fail
) -> None:
    gpu = fresh_gpu()
    array = make_shared(gpu, ramp(1000))
    taken = take(array)
    gpu.synchronize()
    fail("vkQueueSubmit", vk.VK_ERROR_DEVICE_LOST)
    for use in (array.__dlpack__, lambda: gpu.make_stream_wait(0), lambda: gpu.wait_for_stream(0)):
        with pytest.raises(DeviceLostError):
            use()
    gpu.close()
    np.testing.assert_array_equal(view(taken), ramp(1000))
    taken.release()
    # CUDA may wait for ever for a semaphore of a lost device, so its objects are left to the end of
    # the process.
    assert cuda.live["semaphore"] == 2
    cuda.live.clear()


def test_a_broken_context_of_cuda_does_not_keep_a_device_open(
    cuda: CudaStandIn, fresh_gpu: OpenGpu
) -> None:
    gpu = fresh_gpu()
    array = make_shared(gpu, ramp(10))
    take(array)
    cuda.is_broken = True  # it takes work and never runs it
    gpu.wait_for_stream(0)
    gpu.run(ADD_U32, array, array)
    with pytest.raises(CudaError, match="cuStreamSynchronize"):
        gpu._session.device_memory.exchange._connect().cuda.driver.cuStreamSynchronize(0)
    gpu.close()
    cuda.is_broken = False


def test_a_child_of_fork_cannot_share_and_frees_nothing(
    cuda: CudaStandIn, fresh_gpu: OpenGpu
) -> None:
    gpu = fresh_gpu()
    array = make_shared(gpu, ramp(10))
    taken = take(array)
    calls = cuda.calls.total()
    child = os.fork()
    if not child:
        status = 1
        try:
            for use in (array.__dlpack__, lambda: gpu.empty_device(3, export=True)):
                with pytest.raises(ForkedError):
                    use()
            taken.release()
            del array, use
            gc.collect()
            status = 0 if cuda.calls.total() == calls else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(view(taken), ramp(10))


# --- executors, and memory of the host ---


def test_an_executor_shares_arrays_of_its_devices(cuda: CudaStandIn, gpu: Gpu) -> None:
    with gx.GpuExecutor("vulkan") as executor:
        array = executor.empty_device(50, np.uint32, export=True)
        array[...] = ramp(50)
        there = view(taken := take(array))
        there += 1
        executor.wait_for_stream(0)
        executor.run(ADD_U32, array, array, out=array)
        executor.make_stream_wait(0)
        np.testing.assert_array_equal(there, 2 * (ramp(50) + 1))
        made = executor.from_dlpack(OtherArray(ramp(50)))
        np.testing.assert_array_equal(executor.run(ADD_U32, made, made).numpy(), 2 * ramp(50))
        taken.release()
        del array, there, made
    with pytest.raises(ClosedError):
        executor.wait_for_stream(0)


def test_an_executor_of_several_devices_must_be_told_which_one(cuda: CudaStandIn, gpu: Gpu) -> None:
    with gx.GpuExecutor("vulkan", devices=[0, 0]) as executor:
        for method in (executor.wait_for_stream, executor.make_stream_wait):
            with pytest.raises(ArgumentTypeError, match="has 2 devices; name one by index="):
                method(0)
            method(0, index=1)
        array = executor.empty_device(5, np.uint32, export=True, index=1)
        array[...] = ramp(5)
        np.testing.assert_array_equal(view(take(array)), ramp(5))
        assert executor.from_dlpack(ramp(3), index=1).numpy().tolist() == [0, 1, 2]
        del array


def test_an_executor_does_not_repeat_an_exchange_on_another_device(
    cuda: CudaStandIn, gpu: Gpu, fail: Fail
) -> None:
    with gx.GpuExecutor("vulkan") as executor:
        array = executor.empty_device(50, np.uint32, export=True)
        array[...] = ramp(50)
        executor.make_stream_wait(0)
        fail("vkQueueSubmit", vk.VK_ERROR_DEVICE_LOST, upto=1)
        with pytest.raises(DeviceLostError) as caught:
            executor.make_stream_wait(0)  # CUDA would read what the lost device did not compute
        assert "its device arrays are gone" in str(caught.value.__notes__)
        with pytest.raises(GpuError, match=r"closed|lost"):
            array.__dlpack__()
        again = executor.empty_device(50, np.uint32, export=True)  # the device is open again
        again[...] = ramp(50)
        np.testing.assert_array_equal(view(take(again)), ramp(50))
        del array, again
    cuda.live.clear()  # what the lost device leaves


def test_threads_share_and_drop_arrays_at_the_same_time(
    cuda: CudaStandIn, fresh_gpu: OpenGpu
) -> None:
    gpu = fresh_gpu()

    def exchange(seed: int) -> None:
        for number in range(15):
            values = ramp(500) + seed * 1000 + number
            taken = take(make_shared(gpu, values))
            np.testing.assert_array_equal(view(taken), values)
            np.testing.assert_array_equal(gpu.from_dlpack(OtherArray(values)).numpy(), values)

    in_threads(exchange)


def test_results_on_the_host_are_shared_by_numpy(gpu: Gpu) -> None:
    mapped = gpu.empty(5000, np.uint32)
    mapped[...] = ramp(5000)
    for result in (mapped, gpu.run(ADD_U32, mapped, mapped)):
        shared = np.from_dlpack(result)
        assert np.shares_memory(shared, result)
        expected = result.copy()
        del result
        np.testing.assert_array_equal(shared, expected)


def test_arrays_of_the_cpu_backend_are_shared(gpu: Gpu) -> None:
    with gx.CpuBackend() as cpu:
        array = cpu.to_device(ramp(12).reshape(3, 4))
        shared = read(array.T)
        array[0] = 7
        assert shared[:, 0].tolist() == [7] * 4
        assert array.__dlpack_device__() == (dlpack.CPU, 0)
        copied = read(array, copy=True)
        array[0] = 8
        assert copied[0].tolist() == [7] * 4
        np.testing.assert_array_equal(gpu.from_dlpack(shared).numpy(), array.T.numpy())
        with cpu.graph(array), pytest.raises(GpuError, match="a graph is being recorded"):
            array.__dlpack__()
        with pytest.raises(ExportError, match="has no streams"):
            array.__dlpack__(stream=1)
        with pytest.raises(ExportError, match=r"not on \(2, 0\)"):
            array.__dlpack__(dl_device=(2, 0))
    del array
    assert shared[1].tolist() == [8, 5, 9]


def test_webgpu_copies_to_the_host_and_shares_nothing() -> None:
    with gx.open_backend("webgpu") as webgpu:
        array = webgpu.to_device(ramp(5))
        for use in (array.__dlpack__, array.__dlpack_device__):
            with pytest.raises(gx.errors.NotSupportedError, match="__dlpack__ of a device array"):
                use()
        np.testing.assert_array_equal(
            take_host(array.__dlpack__(dl_device=(dlpack.CPU, 0))), ramp(5)
        )


def take_host(capsule: object) -> Array:
    return view(take_capsule(capsule)).copy()
