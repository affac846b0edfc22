"""Arguments that calls refuse, with errors that name the argument and what was found."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.calls.arguments import describe
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    GpuError,
    KernelError,
    NoDeviceError,
    OutOfMemoryError,
    SettingsError,
)
from tests.conftest import OpenWebGpu
from tests.support.executors import cpu
from tests.support.glsl import shader
from tests.support.jobs import ADD_U32

__all__ = ["cpu"]  # a fixture

Gpu = gx.PersistentVulkanBackend
X = np.arange(50, dtype=np.uint32)
RECORDS = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "u4"), ("b", "f4")])
NO_NUMBERS: dict[str, Any] = {
    "records": RECORDS,
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "time spans": np.array([3], "m8[s]"),
    "objects": np.array([object(), None]),
    "strings": np.array(["ab", "c"]),
    "bytes": np.array([b"ab", b"c"]),
    "raw bytes": np.zeros(3, "V4"),
}


def refuse(kind: type[GpuError], words: str, call: Callable[..., Any], *arguments: Any) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        call(*arguments)


@pytest.mark.parametrize(
    ("value", "words"),
    [(3, "an int"), (X, "an ndarray"), (X[0], "a uint32"), ([], "a list"), (None, "a NoneType")],
)
def test_an_object_is_described_with_its_article(value: Any, words: str) -> None:
    assert describe(value) == words


# --- arrays that are copied to the device, or imported ---


@pytest.mark.parametrize("name", NO_NUMBERS)
@pytest.mark.parametrize("call", ["to_device", "asarray", "import_array"])
def test_arrays_that_are_not_of_numbers_are_refused(gpu: Gpu, call: str, name: str) -> None:
    array = NO_NUMBERS[name]
    kind = "dtype" if array.dtype.names is None else "the structured dtype"
    words = f"{call}: the array has {kind} {array.dtype}, and it takes numbers; "
    refuse(ArgumentTypeError, words, getattr(gpu, call), array)


def test_a_structured_array_is_advised_to_go_to_run(gpu: Gpu) -> None:
    words = "pass the array to run as it is, whose keep=True leaves results on the device"
    refuse(ArgumentTypeError, words, gpu.to_device, RECORDS)


@pytest.mark.parametrize("call", ["to_device", "asarray", "import_array"])
def test_masked_arrays_are_refused(gpu: Gpu, call: str) -> None:
    array = np.ma.MaskedArray(X, mask=X > 7)
    refuse(ArgumentTypeError, f"{call}: the array is masked", getattr(gpu, call), array)


@pytest.mark.parametrize("call", ["to_device", "asarray"])
def test_other_objects_are_refused_by_their_type(gpu: Gpu, call: str) -> None:
    for other, found in ((None, "NoneType"), ("ab", "str"), ([1 << 70], "list"), (gpu, "Persis")):
        words = f"{call}: the argument is a {found}"
        refuse(ArgumentTypeError, words, getattr(gpu, call), other)
    words = f"{call}: the argument is no array: setting an array element"
    refuse(ArgumentTypeError, words, getattr(gpu, call), [[1], [2, 3]])


def test_a_device_array_is_not_copied_twice(gpu: Gpu) -> None:
    there = gpu.to_device(X)
    assert gpu.to_device(there) is there
    words = "asarray: the array is on a device already; array.numpy() copies it"
    refuse(ArgumentTypeError, words, gpu.asarray, there)


@pytest.mark.parametrize("other", [[1, 2], None, 3, b"abcd"], ids=repr)
def test_only_arrays_are_imported(gpu: Gpu, other: Any) -> None:
    words = f"import_array: the argument is {describe(other)}; it takes a NumPy array"
    refuse(ArgumentTypeError, words, gpu.import_array, other)


@pytest.mark.parametrize(
    "array", [X.astype(">u4"), X[::-3], np.asfortranarray(X.reshape(5, 10)), X > 7, X[:0], X[3]]
)
def test_arrays_of_numbers_are_copied_as_they_are(gpu: Gpu, array: Any) -> None:
    for copy in (gpu.to_device(array).numpy(), gpu.asarray(array)):
        np.testing.assert_array_equal(copy, array)
        assert copy.dtype == array.dtype.newbyteorder("=")


# --- shapes and dtypes ---


@pytest.mark.parametrize("make", ["empty", "zeros"])
@pytest.mark.parametrize(
    "shape", [3.5, "3", None, (2, 3.5), [None], True, (2, True), b"ab", 3j], ids=repr
)
def test_a_shape_is_a_whole_number_or_several(gpu: Gpu, make: str, shape: Any) -> None:
    words = f"shape is {shape!r}; it must be a whole number, or a tuple of whole numbers"
    refuse(ArgumentTypeError, words, getattr(gpu, make), shape)


def test_a_shape_may_have_any_integers(gpu: Gpu) -> None:
    for shape, wanted in (
        (np.int64(3), (3,)),
        ([2, 3], (2, 3)),
        (np.array([2, 3]), (2, 3)),
        ((), ()),
        ((4, 0), (4, 0)),
        ((1,) * 64, (1,) * 64),
    ):
        assert gpu.empty(shape).shape == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [1 << 62, (1 << 40, 1 << 40), 1 << 80])
def test_an_array_of_more_bytes_than_any_memory_is_refused(gpu: Gpu, shape: Any) -> None:
    refuse(OutOfMemoryError, f"an array of shape {shape} has ", gpu.empty, shape)


def test_an_array_has_at_most_64_axes(gpu: Gpu) -> None:
    refuse(ArgumentShapeError, "shape has 65 axes; an array has at most 64", gpu.empty, (1,) * 65)
    refuse(ArgumentShapeError, "shape -1 has a negative extent", gpu.empty, -1)
    refuse(ArgumentShapeError, "shape (2, -3) has a negative extent", gpu.empty, (2, -3))


def test_a_dtype_that_does_not_exist_is_refused(gpu: Gpu) -> None:
    refuse(ArgumentTypeError, "dtype is 'zz': data type 'zz' not understood", gpu.empty, 3, "zz")


# --- kernels, jobs, options ---


@pytest.mark.parametrize("name", [None, 3, ["vector_add_u32"], b"vector_add_u32"], ids=repr)
def test_a_kernels_name_is_a_string(name: Any) -> None:
    words = f"a kernel's name is a string, not {type(name).__name__}; the names are vector_add"
    refuse(KernelError, words, gx.kernels.load, name)


@pytest.mark.parametrize("count", [-1, True, 1 << 40, 1 << 70], ids=repr)
def test_explain_takes_a_number_of_elements(gpu: Gpu, cpu: gx.GpuExecutor, count: Any) -> None:
    words = f"explain: the number of elements is {count!r}; it must be a whole number from 0"
    for explain in (gpu.explain, cpu.explain):
        refuse(ArgumentShapeError, words, explain, ADD_U32, count)


def test_an_executor_explains_for_whole_numbers_only(cpu: gx.GpuExecutor) -> None:
    refuse(ArgumentShapeError, "the number of elements is 1.5", cpu.explain, ADD_U32, 1.5)
    refuse(ArgumentTypeError, "the first argument is a str, not a Kernel", cpu.explain, "x", 3)


def test_a_backend_explains_for_integers_of_any_type(gpu: Gpu) -> None:
    assert str(gpu.explain(ADD_U32, np.int64(5))) == str(gpu.explain(ADD_U32, 5))
    refuse(ArgumentTypeError, "the first argument is a str, not a Kernel", gpu.explain, "x", 5)


def test_prepare_takes_a_kernel_and_sizes(open_webgpu: OpenWebGpu) -> None:
    webgpu = open_webgpu()
    refuse(ArgumentTypeError, "the first argument is a str, not a Kernel", webgpu.prepare, "x")
    for size in (-1, 0, 1.5, "3", None):
        words = f"prepare: the number of elements is {size!r}; it must be a whole number from 1"
        refuse(ArgumentShapeError, words, webgpu.prepare, ADD_U32, [size])
    refuse(ArgumentTypeError, "sizes is an int; it must be an iterable", webgpu.prepare, ADD_U32, 5)
    spirv_only = gx.Kernel.from_spirv(shader("", "", ""), buffers="in, in, out", name="k")
    refuse(KernelError, "kernel 'k' has no WGSL", webgpu.prepare, spirv_only, [5])
    webgpu.prepare(ADD_U32, [5])
    assert webgpu.stats().pipelines == 1


@pytest.fixture(params=["vulkan", "webgpu", "cpu", "executor"])
def run_batch(
    request: pytest.FixtureRequest, gpu: Gpu, open_webgpu: OpenWebGpu, cpu: gx.GpuExecutor
) -> Callable[..., Any]:
    """The method of every backend, and of an executor."""
    if request.param == "webgpu":
        return open_webgpu().run_batch
    runners: dict[str, Any] = {"vulkan": gpu, "cpu": gx.CpuBackend(), "executor": cpu}
    found: Callable[..., Any] = runners[request.param].run_batch
    return found


def test_jobs_and_out_of_a_batch_are_iterables(run_batch: Callable[..., Any]) -> None:
    for jobs, words in (
        (None, "jobs is a NoneType; it must be an iterable"),
        (5, "jobs is an int; it must be an iterable"),
        ([X], "job 0: a job is a tuple of arrays, not an ndarray"),
        ([(X, X), None], "job 1: a job is a tuple of arrays, not a NoneType"),
    ):
        refuse(ArgumentTypeError, words, run_batch, ADD_U32, jobs)
    with pytest.raises(ArgumentTypeError, match="out is an int; it must be an iterable"):
        run_batch(ADD_U32, [(X, X)], out=5)
    with pytest.raises(ArgumentTypeError, match="out has 2 entries for 1 jobs; it needs one for"):
        run_batch(ADD_U32, [(X, X)], out=[None, None])
    outs = [np.zeros_like(X) for _ in range(2)]
    results = run_batch(ADD_U32, ((X, X) for _ in range(2)), out=iter(outs))
    for result, out in zip(results, outs, strict=True):
        assert result is out
        np.testing.assert_array_equal(out, 2 * X)


def test_an_error_in_the_iterable_of_jobs_is_raised_as_it_is(run_batch: Callable[..., Any]) -> None:
    def jobs() -> Any:
        yield X, X
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        run_batch(ADD_U32, jobs())


def test_a_stream_takes_iterables(gpu: Gpu) -> None:
    refuse(
        ArgumentTypeError, "jobs is a NoneType; it must be an iterable", gpu.stream, ADD_U32, None
    )
    with pytest.raises(ArgumentTypeError, match="out is an int; it must be an iterable"):
        gpu.stream(ADD_U32, [(X, X)], out=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["x", 2, 0.5, "no"], ids=repr)
def test_options_that_are_neither_true_nor_false_are_refused(gpu: Gpu, value: Any) -> None:
    with pytest.raises(SettingsError, match=f"device_local is {value!r}; it must be None or True"):
        gpu.run(ADD_U32, X, X, device_local=value)
    with pytest.raises(SettingsError, match=f"pipelined is {value!r}; it must be None or True"):
        gpu.run_batch(ADD_U32, [(X, X)], pipelined=value)


def test_out_and_keep_together_are_refused(gpu: Gpu) -> None:
    out = np.zeros_like(X)
    with pytest.raises(ArgumentTypeError, match="vector_add_u32: keep=True and out= contradict"):
        gpu.run(ADD_U32, X, X, out=out, keep=True)
    assert not out.any()
    with pytest.raises(ArgumentTypeError, match="vector_add_u32: keep=False and out= contradict"):
        gpu.run(ADD_U32, X, X, out=gpu.to_device(out), keep=False)


@pytest.mark.parametrize(
    "open_one",
    [gx.PersistentVulkanBackend, gx.VulkanSpirvBackend, gx.WgpuExecutor, gx.GpuExecutor],
)
@pytest.mark.parametrize("settings", [{}, {"validation": True}, "1"], ids=repr)
def test_settings_are_settings(open_one: Callable[..., Any], settings: Any) -> None:
    words = f"settings is of type {type(settings).__name__}; it must be gx.Settings"
    with pytest.raises(SettingsError, match=re.escape(words)):
        open_one(settings=settings)


@pytest.mark.parametrize("port", [99999, -1, "80", 1.5, 1 << 70], ids=repr)
def test_metrics_are_served_at_a_port(cpu: gx.GpuExecutor, port: Any) -> None:
    refuse(SettingsError, f"port is {port!r}; it must be a number from 0", cpu.serve_metrics, port)
    refuse(SettingsError, "address is 5; it must be a string", cpu.serve_metrics, 0, 5)


@pytest.mark.parametrize("value", ["a", 0, -1, 1.5], ids=repr)
def test_the_sizes_of_map_are_whole_numbers(cpu: gx.GpuExecutor, value: Any) -> None:
    for name in ("chunksize", "buffersize"):
        with pytest.raises(SettingsError, match=f"{name} is {value!r}; it must be a whole number"):
            cpu.map(ADD_U32, [X], [X], **{name: value})
    with pytest.raises(SettingsError, match="timeout is 'a'; it must be a number of seconds"):
        cpu.map(ADD_U32, [X], [X], timeout="a")  # type: ignore[arg-type]


def test_map_takes_iterables(cpu: gx.GpuExecutor) -> None:
    words = "iterable 1 of map is an int; it must be an iterable"
    refuse(ArgumentTypeError, words, cpu.map, ADD_U32, [X], 5)


@pytest.mark.parametrize("name", ["device_local", "calibrate", "validation"])
def test_switches_of_the_settings_are_true_or_false(name: str) -> None:
    values: dict[str, Any] = {name: "no"}
    with pytest.raises(SettingsError, match=f"{name} is 'no'; it must be .*True or False"):
        gx.Settings(**values)


def test_an_adapter_is_named_or_numbered(open_webgpu: OpenWebGpu) -> None:
    with pytest.raises(NoDeviceError, match=r"no adapter matches 1\.5; there are"):
        open_webgpu(device=1.5)
