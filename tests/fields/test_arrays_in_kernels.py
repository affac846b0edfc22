"""Arrays of elements as arguments of kernels: a kernel gets their words in one defined form, and a
field kernel returns an array of the same field."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.backend import BACKENDS, open_backend
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.executor import jobs
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FR,
    BN254_FR,
    GOLDILOCKS,
    MERSENNE31,
    Field,
    FieldArray,
)
from tests.support.executors import call_before, lose
from tests.support.fields_under_test import (
    CPU,
    ONE_OF_EACH,
    Place,
    draw_elements,
    in_every_place,
    make_array,
    on_one_of_each,
)

Gpu = gx.PersistentVulkanBackend
FR = BLS12_381_FR
ADD, PRODUCT = (gx.kernels.load(f"bls12_381_fr_{name}") for name in ("add", "mont_mul"))
EXACT: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mont_mul": lambda a, b: a * b,
}
A, B = draw_elements(FR, 20, 1), draw_elements(FR, 20, 2)
SUMS = [(a + b) % FR.modulus for a, b in zip(A, B, strict=True)]
PRODUCTS = [a * b % FR.modulus for a, b in zip(A, B, strict=True)]


@pytest.fixture
def executor(vulkan_executor: gx.GpuExecutor) -> gx.GpuExecutor:
    return vulkan_executor


@pytest.fixture(scope="module")
def checking_executor(gpu: Gpu) -> Iterator[gx.GpuExecutor]:
    """An executor that checks every result."""
    with gx.GpuExecutor("vulkan", check=1.0) as opened:
        yield opened


@pytest.fixture(scope="module")
def webgpu() -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor("webgpu") as opened:
        yield opened


def check_array(found: Any, wanted: Any, *, on_device: bool = False, field: Field = FR) -> None:
    """Check that a result is an array of a field in the form in which the field computes, and that
    its words are those of the wanted integers in that form."""
    assert isinstance(found, FieldArray)
    assert (found.field, found.form) == (field, field.form)
    assert found.on_device == on_device
    factor = field.prime.r if found.form == "montgomery" else 1
    size = 4 * field.prime.words
    data = found.words().tobytes()
    integers = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
    assert integers == [value * factor % field.modulus for value in wanted]
    assert found.ravel().tolist() == [value % field.modulus for value in wanted]


# --- the type of results ---


@in_every_place
@pytest.mark.parametrize(
    ("field", "operation"),
    [
        (field, operation)
        for field in ONE_OF_EACH
        for operation in EXACT
        if operation != "mont_mul" or field.form == "montgomery"
    ],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
def test_a_field_kernel_returns_an_array_of_its_field(
    gpu: Gpu, place: Place, field: Field, operation: str
) -> None:
    kernel = gx.kernels.load(f"{field.name}_{operation}")
    a, b = draw_elements(field, 9, 3), draw_elements(field, 9, 4)
    wanted = [EXACT[operation](*pair) for pair in zip(a, b, strict=True)]
    x, y = (make_array(gpu, place, field, each) for each in (a, b))
    target: Any = CPU if place == "cpu" else gpu
    check_array(target.run(kernel, x, y), wanted, on_device=place != "host", field=field)
    for form in {"canonical", field.form}:  # whatever the form of the arguments is
        found = target.run(kernel, x.in_form(form), y.in_form(field.form))
        check_array(found, wanted, on_device=place != "host", field=field)


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_returns_arrays_of_elements(gpu: Gpu, name: str) -> None:
    x, y, target = FR.encode(A), FR.encode(B), FR.zeros(20)
    with open_backend(name) as backend:
        check_array(backend.run(PRODUCT, x, y), PRODUCTS)
        assert backend.run(PRODUCT, x, y, out=target) is target
        check_array(target, PRODUCTS)
        for found in backend.run_batch(PRODUCT, [(x, y), (x[:3], y[:3])]):
            check_array(found, PRODUCTS[: len(found)])
        outs = [FR.zeros(20), FR.zeros(3)]
        found = backend.run_batch(PRODUCT, [(x, y), (x[:3], y[:3])], out=outs)
        assert [each is out for each, out in zip(found, outs, strict=True)] == [True, True]
        for found in backend.stream(PRODUCT, [(x, y), (x[:3], y[:3])]):
            check_array(found, PRODUCTS[: len(found)])
        (found,) = backend.stream(PRODUCT, [(y, x)], out=[target])
        assert found is target
        check_array(target, PRODUCTS)


@pytest.mark.parametrize("target", ["vulkan", "cpu", "executor"])
def test_keep_decides_where_the_array_of_the_result_is(
    gpu: Gpu, executor: gx.GpuExecutor, target: str
) -> None:
    opened: Any = {"vulkan": gpu, "cpu": CPU, "executor": executor}[target]
    x, y = FR.encode(A), FR.encode(B)
    on_device = opened.to_device(x), opened.to_device(y)
    check_array(opened.run(PRODUCT, x, y, keep=True), PRODUCTS, on_device=True)
    check_array(opened.run(PRODUCT, *on_device), PRODUCTS, on_device=True)
    check_array(opened.run(PRODUCT, on_device[0], y), PRODUCTS, on_device=True)
    check_array(opened.run(PRODUCT, *on_device, keep=False), PRODUCTS)
    for found in (*opened.run_batch(ADD, [on_device]), *opened.stream(ADD, [on_device])):
        check_array(found, SUMS, on_device=True)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)])
@on_one_of_each
def test_results_have_the_shape_of_the_arguments(
    gpu: Gpu, executor: gx.GpuExecutor, field: Field, shape: tuple[int, ...]
) -> None:
    kernel = gx.kernels.load(f"{field.name}_add")
    x = field.full(shape, field.modulus - 1)
    for run in (gpu.run, CPU.run, executor.run, lambda *call: executor.submit(*call).result()):
        found = run(kernel, x, x)
        assert found.shape == shape
        check_array(found, [-2] * x.size, field=field)


def test_results_can_be_used_as_arguments_and_operands(gpu: Gpu) -> None:
    x, y = (gpu.to_device(FR.encode(each)) for each in (A, B))
    found = gpu.run(PRODUCT, gpu.run(ADD, x, y), y) - x * 3
    pairs = zip(A, B, strict=True)
    check_array(found, [(a + b) * b - 3 * a for a, b in pairs], on_device=True)


def test_a_named_field_of_the_caller_is_the_field_of_the_result(gpu: Gpu) -> None:
    own = Field(FR.modulus, name="scalars")
    found = gpu.run(ADD, own.encode(A), FR.encode(B))
    assert found.field is own
    check_array(found, SUMS, field=own)


# --- out= ---


@pytest.mark.parametrize("target", ["vulkan", "cpu", "executor"])
def test_out_may_be_an_array_on_the_device(gpu: Gpu, executor: gx.GpuExecutor, target: str) -> None:
    opened: Any = {"vulkan": gpu, "cpu": CPU, "executor": executor}[target]
    x, y = FR.encode(A), FR.encode(B)
    out, on_host = opened.to_device(FR.zeros(20)), FR.zeros(20)
    for arguments in ((x, y), (opened.to_device(x), opened.to_device(y))):
        assert opened.run(PRODUCT, *arguments, out=out) is out
        check_array(out, PRODUCTS, on_device=True)
        out[:] = 0
    assert opened.run(PRODUCT, *arguments, out=on_host) is on_host
    check_array(on_host, PRODUCTS)
    assert opened.run(ADD, *arguments, out=(out,)) is out
    check_array(out, SUMS, on_device=True)
    with pytest.raises(ArgumentTypeError, match="contradict each other"):
        opened.run(ADD, *arguments, out=out, keep=False)


def test_out_may_be_an_argument_in_the_form_of_the_result(gpu: Gpu) -> None:
    for place in ("host", "device"):
        x, y = (make_array(gpu, place, FR, each).in_form("montgomery") for each in (A, B))
        assert gpu.run(PRODUCT, x, y, out=x) is x
        check_array(x, PRODUCTS, on_device=place == "device")


def test_out_of_another_form_or_field_is_refused(gpu: Gpu, executor: gx.GpuExecutor) -> None:
    x, before = FR.encode(A), FR.encode([7] * 20)
    words = (
        r"bls12_381_fr_add: out 0 has elements of bls12_381_fr in canonical form, and the result "
        r"has elements of bls12_381_fr in montgomery form; make .* field.zeros\(shape\)"
    )
    attempts: list[Callable[[Any], Any]] = [
        lambda out: gpu.run(ADD, x, x, out=out),
        lambda out: CPU.run(ADD, x, x, out=out),
        lambda out: gpu.run_batch(ADD, [(x, x)], out=[out]),
        lambda out: list(gpu.stream(ADD, [(x, x)], out=[out])),
        lambda out: executor.run(ADD, x, x, out=out),
        lambda out: executor.submit(ADD, x, x, out=out).result(),
        lambda out: executor.run_batch(ADD, [(x, x)], out=[out]),
        lambda out: list(executor.stream(ADD, [(x, x)], out=[out])),
    ]
    for attempt in attempts:
        with pytest.raises(ArgumentTypeError, match=words):
            attempt(before)
        with pytest.raises(ArgumentTypeError, match="out 0 has elements of bn254_fr in mont"):
            attempt(BN254_FR.zeros(20))
        with pytest.raises(ArgumentShapeError, match="out 0 has shape"):
            attempt(FR.zeros(19))
    assert before.tolist() == [7] * 20


def test_an_array_as_out_of_a_call_on_words_is_refused(gpu: Gpu, executor: gx.GpuExecutor) -> None:
    x, small = FR.encode(A), MERSENNE31.encode([1, 2])
    words = x.in_form("montgomery").data
    for target in (gpu, CPU, executor):
        with pytest.raises(ArgumentTypeError, match="out 0 is a FieldArray, and the result has no"):
            target.run(ADD, words, words, out=FR.zeros(20))
        with pytest.raises(ArgumentTypeError, match="out 0 is a FieldArray, and the result has no"):
            target.run(gx.kernels.load("vector_add_u32"), small, small, out=MERSENNE31.zeros(2))


def test_an_out_of_words_is_returned_as_it_is(gpu: Gpu, executor: gx.GpuExecutor) -> None:
    x, y, out = FR.encode(A), FR.encode(B), np.empty((20, 4), np.uint64)
    kept = gpu.to_device(out)
    for target in (gpu, CPU, executor):
        assert target.run(PRODUCT, x, y, out=out) is out
        check_array(FR.from_words(out, "montgomery"), PRODUCTS)
        assert target.run_batch(ADD, [(x, y)], out=[out])[0] is out
        check_array(FR.from_words(out, "montgomery"), SUMS)
    assert executor.submit(PRODUCT, x, y, out=out).result() is out
    assert gpu.run(PRODUCT, x, y, out=kept) is kept
    check_array(FR.from_words(kept.numpy(), "montgomery"), PRODUCTS)


def test_jobs_that_read_the_array_another_one_writes_are_refused(
    gpu: Gpu, executor: gx.GpuExecutor
) -> None:
    x, y = FR.encode(A).in_form("montgomery"), FR.zeros(20)
    for target in (gpu, CPU, executor):
        with pytest.raises(ArgumentShapeError, match="job 1: argument 0 overlaps out 0 of job 0"):
            target.run_batch(ADD, [(x, x), (y[3:], y[3:])], out=[y, FR.zeros(17)])
        with pytest.raises(ArgumentShapeError, match="job 1: out 0 overlaps out 0 of job 0"):
            target.run_batch(ADD, [(x, x), (x, x)], out=[y, y])
    for streaming in (gpu, executor):
        with pytest.raises(ArgumentShapeError, match="job 1: out 0 overlaps out 0 of job 0"):
            list(streaming.stream(ADD, [(x, x), (x, x)], out=[y, y]))


# --- executors ---


def compute_by(way: str, executor: gx.GpuExecutor, x: Any, y: Any) -> list[Any]:
    """The results of a few products of the same arrays, by one method of an executor."""
    if way == "run":
        return [executor.run(PRODUCT, x, y) for _ in range(3)]
    if way == "run_batch":
        return executor.run_batch(PRODUCT, [(x, y)] * 3)
    if way == "stream":
        return list(executor.stream(PRODUCT, [(x, y)] * 3))
    if way == "submit":
        futures = [executor.submit(PRODUCT, x, y) for _ in range(3)]
        return [future.result() for future in futures]
    if way == "map":
        return list(executor.map(PRODUCT, [x] * 3, [y] * 3))

    async def gather() -> list[Any]:
        return await asyncio.gather(*(executor.run_async(PRODUCT, x, y) for _ in range(3)))

    return asyncio.run(gather())


WAYS = ("run", "run_batch", "stream", "submit", "map", "run_async")


@pytest.mark.parametrize("opened", ["executor", "checking_executor"])
@pytest.mark.parametrize("way", WAYS)
def test_every_method_of_an_executor_returns_arrays(
    request: pytest.FixtureRequest, way: str, opened: str
) -> None:
    x, y = FR.encode(A), FR.encode(B)
    chosen: gx.GpuExecutor = request.getfixturevalue(opened)
    for on_device in (False, True):
        if on_device:
            x, y = chosen.to_device(x), chosen.to_device(y)
        found = compute_by(way, chosen, x, y)
        assert len(found) == 3
        for each in found:
            check_array(each, PRODUCTS, on_device=on_device)


@pytest.mark.parametrize("way", WAYS)
def test_executors_on_webgpu_return_arrays(way: str, webgpu: gx.GpuExecutor) -> None:
    x, y = FR.encode(A), FR.encode(B)
    for each in compute_by(way, webgpu, x, y):
        check_array(each, PRODUCTS)


def test_calls_on_arrays_and_on_words_may_share_a_batch(executor: gx.GpuExecutor) -> None:
    x, y = (FR.encode(each).in_form("montgomery") for each in (A, B))
    on_device = executor.to_device(x), executor.to_device(y)
    typed, words, kept = executor.run_batch(PRODUCT, [(x, y), (x.data, y.data), on_device])
    check_array(typed, PRODUCTS)
    assert type(words) is np.ndarray
    check_array(FR.from_words(words, "montgomery"), PRODUCTS)
    check_array(kept, PRODUCTS, on_device=True)


@pytest.mark.parametrize("backend", ["vulkan", "cpu"])
def test_arrays_that_a_future_fetches_are_arrays_of_the_field(gpu: Gpu, backend: Any) -> None:
    with gx.GpuExecutor(backend) as executor:
        x, y = (executor.to_device(FR.encode(each)) for each in (A, B))
        out, words = FR.zeros(20), np.empty((20, 4), np.uint64)
        check_array(executor.submit(PRODUCT, x, y, keep=False).result(), PRODUCTS)
        assert executor.submit(PRODUCT, x, y, out=out).result() is out
        check_array(out, PRODUCTS)
        assert executor.submit(PRODUCT, x, y, out=words).result() is words
        with pytest.raises(ArgumentTypeError, match="out 0 has elements of bls12_381_fr in can"):
            executor.submit(PRODUCT, x, y, out=FR.encode(A)).result()


@pytest.mark.parametrize("with_out", [False, True])
@pytest.mark.parametrize("way", ["run", "submit"])
def test_a_call_that_devices_share_returns_an_array(
    monkeypatch: pytest.MonkeyPatch, way: str, with_out: bool
) -> None:
    monkeypatch.setattr(jobs, "UNIT_BYTES", 256)
    x, y = FR.encode(A * 4), FR.encode(B * 4)
    out = FR.zeros(80) if with_out else None
    with gx.GpuExecutor("cpu", devices=[0, 0]) as executor:
        if way == "run":
            found = executor.run(PRODUCT, x, y, out=out)
        else:
            found = executor.submit(PRODUCT, x, y, out=out).result()
        assert sum(each.calls for each in executor.stats().devices) > 1
    assert found is out or not with_out
    check_array(found, PRODUCTS * 4)


@pytest.mark.parametrize("way", WAYS)
def test_a_retried_call_returns_an_array(gpu: Gpu, way: str) -> None:
    def lose_once(elements: int) -> None:
        if not lost:
            lost.append(elements)
            lose(elements)

    lost: list[int] = []
    with gx.GpuExecutor("vulkan") as executor:
        call_before(executor, 0, lose_once)
        for each in compute_by(way, executor, FR.encode(A), FR.encode(B)):
            check_array(each, PRODUCTS)
    assert lost


# --- graphs ---


@pytest.mark.parametrize("target", ["vulkan", "cpu", "executor"])
def test_calls_on_arrays_are_recorded_in_graphs(
    gpu: Gpu, executor: gx.GpuExecutor, target: str
) -> None:
    opened: Any = {"vulkan": gpu, "cpu": CPU, "executor": executor}[target]
    x, y = (opened.to_device(FR.encode(each)) for each in (A, B))
    with opened.graph(x) as replay:
        product = opened.run(PRODUCT, x, y)
        doubled = product + product
    replay(FR.encode(B))
    check_array(product, [b * b for b in B], on_device=True)
    check_array(doubled, [2 * b * b for b in B], on_device=True)

    @gx.graph
    def add_product(a: Any, b: Any) -> Any:
        return opened.run(ADD, opened.run(PRODUCT, a, b), a)

    x[:] = A
    found = add_product(x, y)
    check_array(found, [a * b + a for a, b in zip(A, B, strict=True)], on_device=True)


# --- arguments ---


def test_elements_with_a_single_form_go_to_any_kernel_that_fits(gpu: Gpu) -> None:
    x = MERSENNE31.encode([1, 2**31 - 2])
    found = gpu.run(gx.kernels.load("vector_add_u32"), x, x)
    assert type(found) is np.ndarray
    assert found.tolist() == [2, 2**32 - 4]
    with pytest.raises(ArgumentTypeError, match="has dtype uint64"):
        gpu.run(gx.kernels.load("vector_add_u32"), GOLDILOCKS.encode([1]), GOLDILOCKS.encode([1]))


def test_a_form_that_is_not_clear_is_refused(gpu: Gpu) -> None:
    x, goldilocks = BABYBEAR.encode([1, 2]), GOLDILOCKS.encode([1])
    add = gx.kernels.load("vector_add_u32")
    with pytest.raises(ArgumentTypeError, match="does not say which form"):
        gpu.run(add, x, x)
    words = x.in_form("canonical").data
    np.testing.assert_array_equal(gpu.run(add, words, words), [2, 4])
    with pytest.raises(ArgumentTypeError, match="goldilocks has no Montgomery form"):
        gpu.run(gx.kernels.load("goldilocks_mont_mul"), goldilocks, goldilocks)


def test_an_array_of_another_field_is_refused(gpu: Gpu) -> None:
    x = BN254_FR.encode([1])
    with pytest.raises(ArgumentTypeError, match="computes modulo"):
        gpu.run(ADD, x, x)


def test_elements_beside_words_of_unknown_form_are_refused(gpu: Gpu) -> None:
    x = FR.encode([1, 2, 3])
    for others in ((x, x.numpy()), (x.numpy(), x), (gpu.to_device(x).data, x)):
        with pytest.raises(ArgumentTypeError, match="its form is not known"):
            gpu.run(ADD, *others)
