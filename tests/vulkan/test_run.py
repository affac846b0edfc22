"""Calls: NumPy in, NumPy out, on both data paths, for all sizes and layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.cpu import field_oracle
from gpu_executor.plan import plan as planning
from gpu_executor.primes import BLS12_381_FQ, NAMED, words
from tests.conftest import CHUNK, OpenGpu, ValidationMessages, elements, on_both_paths
from tests.support.pairwise import choose_pairwise

Array = npt.NDArray[Any]
Backend = gx.PersistentVulkanBackend | gx.VulkanSpirvBackend

ADD_U32 = gx.kernels.load("vector_add_u32")
ADD_F32 = gx.kernels.load("vector_add_f32")
FQ = BLS12_381_FQ
# Around work-groups of 64 and 128, and where the second operand's offset grows by 256 bytes.
WHOLE_SIZES = [0, 1, 2, 5, 6, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000]
CUT_SIZES = [99, 100, 101, 199, 200, 201, 250]

seeds = st.integers(0, 1 << 32)
floats = st.floats(2.0**-60, 2.0**60, width=32)  # no sum of these is subnormal
words32 = st.integers(0, 0xFFFFFFFF)


@pytest.fixture(scope="module")
def one_shot(validation_messages: ValidationMessages) -> gx.VulkanSpirvBackend:
    return gx.VulkanSpirvBackend()


@pytest.fixture(scope="module", params=["gpu", "chunking_gpu", "one_shot"])
def backend(request: pytest.FixtureRequest) -> Backend:
    opened: Backend = request.getfixturevalue(request.param)
    return opened


def random_words(count: int, seed: int = 1) -> npt.NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32)


def random_elements(count: int, seed: int = 1) -> Array:
    return words.from_ints(FQ, elements(FQ, count, seed))


@on_both_paths
@pytest.mark.parametrize("size", [1, 64, 100, 101, 1000])
def test_integers_wrap_on_every_backend(backend: Backend, device_local: bool, size: int) -> None:
    a, b = random_words(size, 1), random_words(size, 2)
    a[0], b[0] = 0xFFFFFFFF, 2
    total = backend.run(ADD_U32, a, b, device_local=device_local)
    assert total.dtype == np.uint32
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    assert total.tolist() == [(x + y) % (1 << 32) for x, y in pairs]


@on_both_paths
def test_run_field_add_adds_in_the_base_field(backend: Backend, device_local: bool) -> None:
    a, b = elements(FQ, 130, 1), elements(FQ, 130, 2)
    total = backend.run_field_add(
        words.from_ints(FQ, a), words.from_ints(FQ, b), device_local=device_local
    )
    assert words.to_ints(FQ, total) == field_oracle.add(FQ, a, b)


@on_both_paths
@given(pairs=st.lists(st.tuples(words32, words32), max_size=150))
@settings(max_examples=25)
def test_integers_of_any_value_add(
    chunking_gpu: gx.PersistentVulkanBackend, device_local: bool, pairs: list[tuple[int, int]]
) -> None:
    a, b = np.array(pairs, np.uint32).reshape(-1, 2).T
    total = chunking_gpu.run(ADD_U32, a, b, device_local=device_local)
    assert total.tolist() == [(x + y) % (1 << 32) for x, y in pairs]


@on_both_paths
@given(xs=st.lists(floats, max_size=150), signs=seeds)
@settings(max_examples=25)
def test_floats_add_exactly(
    chunking_gpu: gx.PersistentVulkanBackend, device_local: bool, xs: list[float], signs: int
) -> None:
    draw = np.random.default_rng(signs)
    a = np.array(xs, np.float32) * draw.choice(np.array([-1, 1], np.float32), len(xs))
    b = draw.permutation(a) * draw.choice(np.array([-1, 1, 0.75], np.float32), len(xs))
    total = chunking_gpu.run(ADD_F32, a, b, device_local=device_local)
    assert total.view(np.uint32).tolist() == (a + b).view(np.uint32).tolist()


@pytest.mark.parametrize(
    ("field", "operation", "device_local"),
    choose_pairwise(NAMED, ("add", "sub", "mont_mul"), (True, False)),
)
@given(size=st.sampled_from(WHOLE_SIZES + CUT_SIZES), seed=seeds)
@settings(max_examples=5)
def test_field_kernels_are_exact_at_every_size(
    gpu: gx.PersistentVulkanBackend,
    chunking_gpu: gx.PersistentVulkanBackend,
    device_local: bool,
    field: str,
    operation: str,
    size: int,
    seed: int,
) -> None:
    prime, kernel = NAMED[field], gx.kernels.load(f"{field}_{operation}")
    xs, ys = elements(prime, size, seed), elements(prime, size, seed + 1)
    a, b = words.from_ints(prime, xs), words.from_ints(prime, ys)
    slow = {"add": field_oracle.add, "sub": field_oracle.sub, "mont_mul": field_oracle.mont_mul}[
        operation
    ]
    for backend in (gpu, chunking_gpu):
        result = backend.run(kernel, a, b, device_local=device_local)
        assert result.shape == a.shape
        assert words.to_ints(prime, result) == slow(prime, xs, ys)


@pytest.mark.parametrize(
    ("work_group", "per_invocation"), [(64, 1), (64, 3), (128, 2), (256, 3), (512, 1), (512, 2)]
)
def test_any_tuning_gives_the_same_results(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, work_group: int, per_invocation: int
) -> None:
    gpu = fresh_gpu()
    fits = min(work_group, gpu.device.limits.max_work_group_invocations)
    monkeypatch.setattr(planning, "choose_work_groups", lambda *_: (fits, per_invocation))
    for size in (1, fits, fits + 1, fits * per_invocation, fits * per_invocation + 1):
        a, b = random_elements(size, 1), random_elements(size, 2)
        chosen = gpu.explain(ADD_U32, random_words(size), random_words(size))
        assert (chosen.work_group, chosen.per_invocation) == (fits, per_invocation)
        np.testing.assert_array_equal(gpu.run_field_add(a, b), words.add(FQ, a, b))


def strided(a: Array) -> Array:
    wide = np.zeros((3 * len(a), *a.shape[1:]), a.dtype)
    wide[1::3] = a
    return wide[1::3]


def inner_columns(a: Array) -> Array:
    wide = np.zeros((len(a), a.shape[1] + 2), a.dtype)
    wide[:, 1:-1] = a
    return wide[:, 1:-1]


def read_only(a: Array) -> Array:
    copy = a.copy()
    copy.flags.writeable = False
    return copy


def unaligned(a: Array) -> Array:
    copy: Array = np.ndarray(a.shape, a.dtype, bytearray(a.nbytes + 1), offset=1)
    copy[:] = a
    return copy


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "strided": strided,
    "reversed": lambda a: a[::-1].copy()[::-1],
    "columns reversed": lambda a: a[:, ::-1].copy()[:, ::-1],
    "inner columns": inner_columns,
    "transposed": lambda a: a.T.copy().T,
    "Fortran": np.asfortranarray,
    "read-only": read_only,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "unaligned": unaligned,
    "repeated": lambda a: np.broadcast_to(a[:1], a.shape),
    "a subclass": lambda a: a.view(np.recarray),
}


@on_both_paths
@pytest.mark.parametrize("size", [1, 250])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_may_have_any_layout(
    chunking_gpu: gx.PersistentVulkanBackend, device_local: bool, layout: str, size: int
) -> None:
    a, b = random_elements(size, 1), random_elements(size, 2)
    laid = LAYOUTS[layout](a)
    before = laid.copy()
    for first, second in ((laid, b), (b, laid)):
        expected = words.sub(FQ, *(np.array(x, np.uint64) for x in (first, second)))
        result = chunking_gpu.run(
            gx.kernels.load("bls12_381_fq_sub"), first, second, device_local=device_local
        )
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == np.dtype(np.uint64)
        assert result.flags.c_contiguous and result.flags.writeable and result.flags.owndata
    np.testing.assert_array_equal(laid, before)


@pytest.mark.parametrize("leading", [(), (1,), (2, 3, 35), (2, 0), (0,), (5, 1, 1)])
def test_leading_axes_are_preserved(
    chunking_gpu: gx.PersistentVulkanBackend, leading: tuple[int, ...]
) -> None:
    count = int(np.prod(leading))
    a, b = (random_elements(count, seed).reshape(*leading, 6) for seed in (1, 2))
    result = chunking_gpu.run_field_add(a, b)
    assert result.shape == (*leading, 6)
    np.testing.assert_array_equal(result, words.add(FQ, a, b))


def test_leading_axes_in_another_order_are_preserved(
    chunking_gpu: gx.PersistentVulkanBackend,
) -> None:
    a, b = (random_elements(6 * 35, seed).reshape(2, 3, 35, 6) for seed in (1, 2))
    turned_a, turned_b = (np.moveaxis(x, 2, 0) for x in (a, b))
    expected = np.moveaxis(words.add(FQ, a, b), 2, 0)
    np.testing.assert_array_equal(chunking_gpu.run_field_add(turned_a, turned_b), expected)


def test_the_same_array_may_be_both_arguments(gpu: gx.PersistentVulkanBackend) -> None:
    a = random_words(70)
    np.testing.assert_array_equal(gpu.run(ADD_U32, a, a), a * np.uint32(2))


def test_later_calls_do_not_change_results(gpu: gx.PersistentVulkanBackend) -> None:
    a, b = random_words(70, 1), random_words(70, 2)
    first = gpu.run(ADD_U32, a, b)
    expected = first.copy()
    gpu.run(ADD_U32, b, b)
    np.testing.assert_array_equal(first, expected)


GOOD = np.zeros((4, 6), np.uint64)
WRONG: dict[str, tuple[tuple[Any, ...], type[gx.GpuError], str]] = {
    "int64": (
        (GOOD, GOOD.astype(np.int64)),
        gx.errors.ArgumentTypeError,
        "argument 1 has dtype int64",
    ),
    "uint32": (
        (GOOD.astype(np.uint32), GOOD),
        gx.errors.ArgumentTypeError,
        "argument 0 has dtype uint32",
    ),
    "float64": ((GOOD, GOOD.astype(np.float64)), gx.errors.ArgumentTypeError, "takes uint64"),
    "objects": ((GOOD.astype(object), GOOD), gx.errors.ArgumentTypeError, "dtype object"),
    "a list": ((GOOD, [[-1] * 6] * 4), gx.errors.ArgumentTypeError, "uint64 cannot hold"),
    "None": ((None, GOOD), gx.errors.ArgumentTypeError, "argument 0 is a NoneType"),
    "five columns": (
        (GOOD, GOOD[:, :5]),
        gx.errors.ArgumentShapeError,
        r"argument 1 has shape \(4, 5\)",
    ),
    "no columns": ((GOOD[:, 0], GOOD), gx.errors.ArgumentShapeError, r"it takes \(n, 6\)"),
    "a scalar": ((GOOD, np.array(1, np.uint64)), gx.errors.ArgumentShapeError, r"shape \(\)"),
    "fewer": (
        (GOOD, GOOD[:3]),
        gx.errors.ArgumentShapeError,
        r"argument 1 has elements in shape \(3,\)",
    ),
    "empty": (
        (GOOD, GOOD[:0]),
        gx.errors.ArgumentShapeError,
        r"argument 1 has elements in shape \(0,\)",
    ),
    "one array": ((GOOD,), gx.errors.ArgumentTypeError, "takes 2 arrays and got 1"),
    "three arrays": ((GOOD,) * 3, gx.errors.ArgumentTypeError, "takes 2 arrays and got 3"),
}


@pytest.mark.parametrize("arrays, error, words_in_it", WRONG.values(), ids=WRONG.keys())
def test_unsuitable_arrays_are_refused_with_the_reason(
    backend: Backend, arrays: tuple[Any, ...], error: type[gx.GpuError], words_in_it: str
) -> None:
    with pytest.raises(error, match=words_in_it):
        backend.run(gx.kernels.load("bls12_381_fq_add"), *arrays)


def test_an_object_that_is_not_a_kernel_is_refused(backend: Backend) -> None:
    with pytest.raises(gx.errors.ArgumentTypeError, match="the first argument is a str"):
        backend.run("vector_add_u32", GOOD, GOOD)  # type: ignore[arg-type]


def test_the_requested_data_path_is_used(fresh_gpu: OpenGpu) -> None:
    gpu, x = fresh_gpu(), random_words(10)
    for device_local, times in ((True, 3), (False, 2)):
        for _ in range(times):
            gpu.run(ADD_U32, x, x, device_local=device_local)
    assert gpu.stats().calls_by_path == {"host-visible": 2, "device-local": 3}
    assert gpu.stats().elements == 50


def test_a_chunked_call_counts_its_chunks(fresh_gpu: OpenGpu) -> None:
    gpu, x = fresh_gpu(stream_chunk_elems=CHUNK), random_words(250)
    gpu.run(ADD_U32, x, x)
    assert (gpu.stats().calls, gpu.stats().chunks) == (1, 3)
    assert gpu.explain(ADD_U32, x, x).chunk == CHUNK
