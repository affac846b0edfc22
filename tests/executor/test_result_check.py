"""The result check: wrong elements are found with their index, and right results pass."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, cast

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.backend import Backend
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    GpuError,
    KernelError,
    NoDeviceError,
    SettingsError,
    WrongResultError,
)
from gpu_executor.executor import jobs
from gpu_executor.executor.candidates import BackendName
from gpu_executor.executor.result_check import ResultChecker
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from tests.support.executors import (
    ADD,
    BACKENDS,
    FQ_ADD,
    Array,
    call_before,
    make_kernel,
    synchronize_devices,
    total,
    words,
)
from tests.support.glsl import compile_glsl
from tests.support.jobs import check_sums, field_job, word_jobs
from tests.support.threads import PATIENCE

ADD_F32 = gx.kernels.load("vector_add_f32")
SUM_F32 = gx.kernels.load("reduce_sum_f32")
MATMUL = gx.kernels.load("matmul_u32")
WITHOUT_SAMPLES = dataclasses.replace(MATMUL, reference_at=None)


class Spoiling:
    """A backend whose results have one wrong number in one output."""

    def __init__(self, backend: Any, index: int, output: int = 0) -> None:
        self._backend, self._index, self._output = backend, index, output

    def run(self, kernel: gx.Kernel, *arrays: Array, **options: Any) -> Any:
        return self._spoiled(self._backend.run(kernel, *arrays, **options))

    def run_batch(self, kernel: gx.Kernel, jobs: Any, **options: Any) -> list[Any]:
        return [self._spoiled(each) for each in self._backend.run_batch(kernel, jobs, **options)]

    def _spoiled(self, result: Any) -> Any:
        spoiled = result[self._output] if isinstance(result, tuple) else result
        if len(spoiled) > self._index:
            spoiled[self._index] = np.asarray(spoiled[self._index]) + 1
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def spoil(executor: gx.GpuExecutor, index: int, output: int = 0, device_index: int = 0) -> None:
    device = executor._devices[device_index]
    device.backend = cast(Backend, Spoiling(device.backend, index, output))


@pytest.fixture(params=BACKENDS)
def checked(request: pytest.FixtureRequest) -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor(request.param, check=1.0) as executor:
        yield executor


def found_by(executor: gx.GpuExecutor, kernel: gx.Kernel, *arrays: Any) -> WrongResultError:
    with pytest.raises(WrongResultError) as raised:
        executor.run(kernel, *arrays)
    return raised.value


def submit_as_batch(
    executor: gx.GpuExecutor, kernel: gx.Kernel, calls: Sequence[tuple[Array, ...]]
) -> list[Future[Any]]:
    """Submit calls while the device is busy, so that they run as one batch."""
    begun, released = threading.Event(), threading.Event()

    def hold(_elements: int) -> None:
        begun.set()
        assert released.wait(PATIENCE)

    call_before(executor, 0, hold)
    before = executor.submit(ADD, *words(1))
    assert begun.wait(PATIENCE)
    futures = [executor.submit(kernel, *arrays) for arrays in calls]
    released.set()
    before.result(PATIENCE)
    return futures


def test_right_results_pass_the_check(checked: gx.GpuExecutor) -> None:
    jobs = [field_job(n, n) for n in (1, 5, 70)]
    check_sums([checked.run(FQ_ADD, *job) for job in jobs], jobs)
    check_sums(checked.run_batch(FQ_ADD, jobs), jobs)
    check_sums(list(checked.map(FQ_ADD, *zip(*jobs, strict=True))), jobs)
    stats = checked.stats()
    assert (stats.checked, stats.unchecked) == (3 * 76, 0)
    assert stats.devices[0].failed is None
    assert len(checked.run(ADD, *words(0))) == 0


def test_a_wrong_element_is_found_and_its_index_named(checked: gx.GpuExecutor) -> None:
    spoil(checked, 1234)
    error = found_by(checked, ADD, *words(5000))
    assert (error.index, error.output, error.kernel, error.job) == (1234, 0, "vector_add_u32", None)
    assert str(checked._devices[0].candidate) in str(error)
    assert "element 1234 of output 0 is not what the CPU computes" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_device_with_a_wrong_result_is_quarantined(checked: gx.GpuExecutor) -> None:
    spoil(checked, 7)
    future = checked.submit(ADD, *words(50))
    assert isinstance(future.exception(PATIENCE), WrongResultError)
    before = checked.stats().devices[0].calls
    for _ in range(2):  # each a new exception with the reason
        refused = checked.submit(ADD, *words(3)).exception(PATIENCE)
        assert isinstance(refused, NoDeviceError) and "element 7" in str(refused)
        with pytest.raises(NoDeviceError, match=r"is quarantined: .* element 7 "):
            checked.run(ADD, *words(3))
    stats = checked.stats().devices[0]
    assert stats.calls == before
    assert "element 7" in str(stats.failed)


def test_a_sample_finds_a_wrong_element_with_its_probability() -> None:
    index, count, fraction, calls = 321, 1000, 0.05, 400
    checking, found = ResultChecker(fraction, seed=1), 0
    a, b = words(count)
    wrong = a + b
    wrong[index] ^= 1 << 30
    for _ in range(calls):
        sample = checking.sample(ADD, (a, b))
        assert sample is not None
        try:
            sample.compare(wrong, "a device")
        except WrongResultError as error:
            assert error.index == index
            found += 1
    assert 0.5 * fraction < found / calls < 1.5 * fraction
    assert checking.checked / calls == count * fraction
    again, same = ResultChecker(fraction, seed=1), ResultChecker(fraction, seed=1)
    np.testing.assert_array_equal(again._draw_indices(count), same._draw_indices(count))


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5, 0.9, 0.99])
def test_the_sample_has_the_size_that_the_fraction_says(fraction: float) -> None:
    count = 100_000
    checking = ResultChecker(fraction)
    assert checking.sample(ADD, words(count)) is not None
    assert checking.checked == count * fraction
    assert (np.diff(checking._draw_indices(count)) > 0).all()


def test_elements_are_sampled_uniformly() -> None:
    checking, seen = ResultChecker(0.5, seed=1), np.zeros(10, int)
    for _ in range(2000):
        seen[checking._draw_indices(len(seen))] += 1
    assert (np.abs(seen - 1000) < 120).all()


def test_sampling_few_of_many_elements_needs_no_memory_for_all() -> None:
    assert len(ResultChecker(0.5e-9)._draw_indices(10**12)) == 500


def test_at_least_one_element_of_a_call_is_checked() -> None:
    checking = ResultChecker(0.001)
    for _ in range(10):
        assert checking.sample(ADD, words(3)) is not None
    assert checking.checked == 10


def test_every_output_is_checked() -> None:
    both = gx.Kernel.from_wgsl(
        "", buffers="in u4, in u4, out u4, out u4", reference=lambda a, b: (a + b, a - b)
    )
    with gx.GpuExecutor("cpu", check=1.0) as executor:
        a, b = words(50)
        np.testing.assert_array_equal(executor.run(both, a, b)[1], a - b)
        spoil(executor, 42, output=1)
        error = found_by(executor, both, a, b)
        assert (error.output, error.index) == (1, 42)


def test_whole_kernels_are_checked_as_a_whole(checked: gx.GpuExecutor) -> None:
    whole = dataclasses.replace(ADD, split="whole")
    a = np.arange(12, dtype=np.uint32).reshape(4, 3)
    np.testing.assert_array_equal(checked.run(whole, a, a), a + a)
    assert checked.stats().checked == 1
    spoil(checked, 2)
    assert found_by(checked, whole, a, a).index == 2 * 3


def test_single_elements_of_matrix_products_and_reductions_are_checked() -> None:
    a = np.arange(1200, dtype=np.uint32).reshape(40, 30)
    with gx.GpuExecutor("cpu", check=0.01) as executor:
        np.testing.assert_array_equal(executor.run(MATMUL, a, a.T), a @ a.T)
        assert executor.stats().checked == 16
        executor.run(SUM_F32, a.astype(np.float32))
        assert executor.stats().checked == 17
    with gx.GpuExecutor("cpu", check=1.0) as executor:
        spoil(executor, 2)
        assert found_by(executor, MATMUL, a, a.T).index == 2 * 40


def test_a_fraction_of_the_calls_of_whole_kernels_is_checked() -> None:
    with gx.GpuExecutor("cpu", check=0.25) as executor:
        executor._checker._random = np.random.default_rng(3)
        a = np.ones((2, 2), np.uint32)
        for _ in range(200):
            executor.run(WITHOUT_SAMPLES, a, a)
        assert 25 < executor.stats().checked < 75


def test_a_kernel_without_a_reference_is_counted_as_unchecked() -> None:
    without = gx.Kernel.from_spirv(ADD.spirv, count=True, buffers="in, in, out", work_group=64)
    with gx.GpuExecutor("vulkan", check=1.0) as executor:
        np.testing.assert_array_equal(executor.run(without, *words(5)), total(words(5)))
        executor.run_batch(without, [words(5)] * 3)
        assert (executor.stats().checked, executor.stats().unchecked) == (0, 4)


def test_a_kernel_that_takes_any_dtype_is_checked() -> None:
    with gx.GpuExecutor("vulkan", check=1.0) as executor:
        any_words = make_kernel(lambda a, b: a + b, buffers="in, in, out")
        np.testing.assert_array_equal(executor.run(any_words, *words(50)), total(words(50)))
        spoil(executor, 9)
        assert found_by(executor, any_words, *words(50)).index == 9


def test_calls_that_overwrite_their_inputs_are_checked_with_the_original_inputs(
    checked: gx.GpuExecutor,
) -> None:
    a, b = words(100)
    for over in (a.copy(), b.copy()):
        other = b if np.array_equal(over, a) else a
        np.testing.assert_array_equal(checked.run(ADD, over, other, out=over), a + b)
    outs = [words(20, n)[0] for n in range(5)]
    checked.run_batch(ADD, [(out, words(20)[1]) for out in outs], out=outs)
    check_sums(outs, [(words(20, n)[0], words(20)[1]) for n in range(5)])


def test_the_error_of_a_batch_names_the_wrong_job(checked: gx.GpuExecutor) -> None:
    spoil(checked, 70_000)
    jobs = word_jobs(10, 69_999, 200_000, 3)
    with pytest.raises(WrongResultError, match=r"^job 2: ") as raised:
        checked.run_batch(ADD, jobs)
    assert (raised.value.job, raised.value.index) == (2, 70_000)


def test_wrong_results_of_a_batch_are_counted_as_errors(checked: gx.GpuExecutor) -> None:
    spoil(checked, 70_000)
    with pytest.raises(WrongResultError):
        checked.run_batch(ADD, word_jobs(10, 100_000, 200_000, 3))
    assert checked.stats().devices[0].errors == 2


def test_a_wrong_element_of_a_part_has_its_index_in_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "UNIT_BYTES", 8192)
    with gx.GpuExecutor("cpu", devices=[0, 0], check=1.0) as executor:
        synchronize_devices(executor)
        spoil(executor, 100, device_index=1)
        error = found_by(executor, ADD, *words(10_240))
        assert error.index == 5 * 1024 + 100, "the second device has the second half"
        for _ in range(3):
            arrays = words(10_240)
            np.testing.assert_array_equal(executor.run(ADD, *arrays), total(arrays))
        assert [each.failed is None for each in executor.stats().devices] == [True, False]


# --- errors of one call ---


def test_an_invalid_argument_has_the_same_message_with_and_without_a_check(
    checked: gx.GpuExecutor,
) -> None:
    flat = np.zeros(7, np.uint64)
    with pytest.raises(ArgumentShapeError, match=r"argument 0 has shape \(7,\); it takes \(n, 6\)"):
        checked.run(FQ_ADD, flat, flat)
    with pytest.raises(ArgumentTypeError, match="the first argument is a str"):
        checked.run(cast(Any, "bls12_381_fq_add"), flat, flat)
    assert checked.stats().checked == 0


def test_an_invalid_argument_fails_only_its_own_call(checked: gx.GpuExecutor) -> None:
    flat, jobs = np.zeros(7, np.uint64), [field_job(n, n) for n in (1, 5, 9)]
    *good, bad = submit_as_batch(checked, FQ_ADD, [*jobs, (flat, flat)])
    check_sums([each.result(PATIENCE) for each in good], jobs)
    assert isinstance(bad.exception(PATIENCE), ArgumentShapeError)


def test_an_error_in_sampling_fails_only_its_own_call(
    checked: gx.GpuExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = checked._checker.sample

    def fail_for_five(kernel: gx.Kernel, arrays: Sequence[Array], *options: Any) -> Any:
        if len(arrays[0]) == 5:
            raise MemoryError("no room for a copy")
        return sample(kernel, arrays, *options)

    monkeypatch.setattr(checked._checker, "sample", fail_for_five)
    jobs = word_jobs(3, 5, 7)
    first, second, third = submit_as_batch(checked, ADD, jobs)
    check_sums([first.result(PATIENCE), third.result(PATIENCE)], [jobs[0], jobs[2]])
    assert str(second.exception(PATIENCE)) == "no room for a copy"
    stats = checked.stats().devices[0]
    assert (stats.batches, stats.errors) == (1, 1)


# --- references ---


def test_the_result_of_a_reference_is_converted_to_the_dtype_of_the_output() -> None:
    wide = make_kernel(lambda a, b: a.astype(np.uint64) + b)
    large = np.full(8, (1 << 32) - 1, np.uint32)
    with gx.GpuExecutor("vulkan", check=1.0) as executor:
        np.testing.assert_array_equal(executor.run(wide, large, large), large - 1)
        spoil(executor, 3)
        assert found_by(executor, wide, large, large).index == 3


def test_references_of_whole_kernels_are_converted_to_dtype() -> None:
    summed = make_kernel(
        lambda a, b: np.full((2, 3), a.sum(dtype=np.uint64) + b[0, 0]),
        split="whole",
        out_shape=lambda *_shapes: (2, 3),
    )
    a = np.full((2, 2), 1 << 31, np.uint32)
    sample = ResultChecker(1.0).sample(summed, (a, a))
    assert sample is not None
    right = np.full((2, 3), 1 << 31, np.uint32)
    sample.compare(right, "a device")
    right[1, 1] += 1
    with pytest.raises(WrongResultError) as raised:
        sample.compare(right, "a device")
    assert raised.value.index == 4


def test_a_float64_reference_overflows_like_float32_on_the_device() -> None:
    squares = make_kernel(lambda a, _b: a.astype(np.float64) ** 2, buffers="in f4, in f4, out f4")
    given = np.array([1e30, 2.0], np.float32)
    sample = ResultChecker(1.0).sample(squares, (given, given))
    assert sample is not None
    sample.compare(np.array([np.inf, 4.0], np.float32), "a device")


def refuse(*_arrays: Array) -> Array:
    raise GpuError("not today")


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        (refuse, GpuError("not today")),
        (lambda a, b: (a + b, a), KernelError("its reference returned 2 results for 1 outputs")),
        (lambda a, b: (a + b) * 0.5, KernelError("a result that cannot be converted to uint32")),
    ],
)
def test_an_error_of_a_reference_fails_its_call_and_not_the_device(
    reference: Callable[..., Any], error: Exception
) -> None:
    def sometimes(a: Array, b: Array) -> Any:
        return reference(a, b) if a[0] == 7 else a + b

    kernel, bad, good = make_kernel(sometimes), words(5, 7), words(5)
    with gx.GpuExecutor("vulkan", check=1.0) as executor:
        with pytest.raises(type(error), match=str(error)):
            executor.run(kernel, *bad)
        first, second, third = submit_as_batch(executor, kernel, [good, bad, good])
        np.testing.assert_array_equal(first.result(PATIENCE), total(good))
        with pytest.raises(type(error), match=str(error)):
            second.result(PATIENCE)
        np.testing.assert_array_equal(third.result(PATIENCE), total(good))
        stats = executor.stats().devices[0]
        assert (stats.failed, stats.errors) == (None, 2)


# --- floats ---


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_of_floats_may_differ_in_their_last_digits(backend: BackendName) -> None:
    draw = np.random.default_rng(1)
    with gx.GpuExecutor(backend, check=1.0) as executor:
        for values in (draw.normal(size=100_000), draw.normal(1e6, 1.0, 10_000)):
            executor.run(SUM_F32, values.astype(np.float32))
        cancelling = np.array([1e8, 1.0, -1e8], np.float32)
        executor.run(SUM_F32, cancelling)
        special = np.array([np.nan, np.inf, -np.inf, 0.0, 1e-45, 3e38], np.float32)
        with np.errstate(over="ignore"):
            executor.run(ADD_F32, special, special)
        assert executor.stats().devices[0].failed is None


@pytest.mark.parametrize(
    ("expected", "found", "right"),
    [
        ([1.0, 2.0], [1.0001, 2.0], True),
        ([1.0, 2.0], [1.01, 2.0], False),
        ([1e-30, 2e-30], [1e-30, 3e-30], False),
        ([1e-3, 1e9], [2e-3, 1e9], True),
        ([0.0, 0.0], [0.0, 1e-3], False),
        ([np.nan, 1.0], [np.nan, 1.0], True),
        ([np.nan, 1.0], [1.0, 1.0], False),
        ([np.inf, 1.0], [np.inf, 1.0], True),
        ([np.inf, 1.0], [-np.inf, 1.0], False),
        ([1.0, 1.0], [1.0, np.nan], False),
    ],
)
def test_floats_must_agree_to_half_of_their_digits(
    expected: list[float], found: list[float], right: bool
) -> None:
    given = np.array(expected, np.float32)
    sample = ResultChecker(1.0).sample(
        make_kernel(lambda a, _b: a, buffers="in f4, in f4, out f4"), (given, np.zeros_like(given))
    )
    assert sample is not None
    if right:
        sample.compare(np.array(found, np.float32), "a device")
    else:
        with pytest.raises(WrongResultError):
            sample.compare(np.array(found, np.float32), "a device")


# --- device arrays and layouts ---


def test_device_arrays_are_fetched_and_checked() -> None:
    with gx.GpuExecutor("vulkan", check=1.0) as executor:
        backend = executor._devices[0].backend
        assert isinstance(backend, PersistentVulkanBackend)
        a, b = words(500)
        there = backend.to_device(a)
        np.testing.assert_array_equal(executor.run(ADD, cast(Array, there), b), a + b)
        assert executor.stats().checked == 500
        spoil(executor, 300)
        assert found_by(executor, ADD, there, b).index == 300


def test_strided_and_big_endian_arrays_are_checked(checked: gx.GpuExecutor) -> None:
    a, b = words(600)
    np.testing.assert_array_equal(checked.run(ADD, a[::3], b[::-3]), a[::3] + b[::-3])
    foreign = a.astype(">u4")
    np.testing.assert_array_equal(checked.run(ADD, foreign, b), a + b)
    square = (each.reshape(20, 30) for each in (a, b))
    assert checked.run(ADD, *square).shape == (20, 30)


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_the_fraction_must_be_from_0_to_1(fraction: float) -> None:
    with pytest.raises(SettingsError, match="0 to 1"):
        gx.GpuExecutor("cpu", check=fraction)


def test_padding_of_elements_is_not_compared() -> None:
    """Kernels do not write the fourth number of a vec3, and a reference may."""
    kernel = gx.Kernel.from_spirv(
        compile_glsl(
            "layout(local_size_x = 64) in;"
            "layout(binding = 0) readonly buffer X { uvec3 x[]; };"
            "layout(binding = 1) writeonly buffer Y { uvec3 y[]; };"
            "void main() { uint i = gl_GlobalInvocationID.x; y[i] = x[i] + 1; }"
        ),
        split="elements",
        reference=lambda x: x + 1,
    )
    x = np.arange(400, dtype=np.uint32).reshape(100, 4)
    with gx.GpuExecutor("vulkan", check=1.0) as executor:
        assert (executor.run(kernel, x)[:, :3] == x[:, :3] + 1).all()
        assert (executor.submit(kernel, x).result()[:, :3] == x[:, :3] + 1).all()
