"""Field operations: streamed from device memory, chained in registers, and over whole arrays.

A sample of each result is checked before the operation is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.bench.inputs import DISTINCT, tile_elements
from gpu_executor.bench.kernel_timing import time_kernel
from gpu_executor.bench.measurement import Target, is_h200
from gpu_executor.bench.timing import (
    DEFAULT_BUDGET,
    TimingBudget,
    record_graph,
    time_resident,
    time_steps,
)
from gpu_executor.calls.dispatch import Dispatch, Step
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import Field, FieldArray
from gpu_executor.fields.field import NAMED_FIELDS
from gpu_executor.kernels.catalogue import COPY_UNIT_BYTES, copy_kernel, mont_mul_chain_kernel
from gpu_executor.kernels.elements import element_kernel
from gpu_executor.kernels.families import family
from gpu_executor.ops.elementwise import MAX_UNSTRIDED_ELEMENTS, can_pack, with_f64_limbs
from gpu_executor.plan.plan import DEFAULT_WORK_GROUP
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

FIELDS = tuple(NAMED_FIELDS.values())
SAMPLE = 500
"""Elements checked at either end of a result."""
ExactFunction = Callable[..., Any]
"""A function of NumPy arrays of Python integers."""
STREAMED_OPERATIONS: dict[str, ExactFunction] = {
    "mul": lambda a, b: a * b,
    "square": lambda a: a * a,
    "add": lambda a, b: a + b,
}


@dataclass(frozen=True, slots=True)
class FieldSizes:
    """The numbers of elements to stream and sum, elements to invert, chains, and operations per
    chain.
    """

    streamed: int
    inverted: int
    chains: int
    length: int


GPU_SIZES = FieldSizes(1 << 24, 1 << 22, 1 << 22, 256)
SMALL_GPU_SIZES = FieldSizes(1 << 22, 1 << 20, 1 << 20, 256)
SMALL_GPU = 16 << 30
"""Bytes of device memory below which a GPU gets the smaller sizes: half a dozen arrays must fit."""
CPU_SIZES = FieldSizes(1 << 16, 1 << 14, 1 << 10, 16)
"""Chains stay short on lavapipe, which aborts a shader after 65,535 loop iterations."""


@dataclass(frozen=True, slots=True)
class StreamedOperation:
    """An operation that reads its operands from device memory and writes its results to it."""

    per_second: float
    bytes_per_second: float
    of_copy: float
    """The bandwidth relative to that of a copy kernel."""


@dataclass(frozen=True, slots=True)
class FieldRow:
    """The measurements of one field."""

    field: str
    bits: int
    elements: int
    copy_bytes_per_second: float
    products: StreamedOperation
    squares: StreamedOperation
    additions: StreamedOperation
    sums_per_second: float
    """Elements per second of one sum over all elements."""
    dots_per_second: float
    """Pairs of elements per second of one dot product."""
    inverted: int
    inversion_ms: float
    """Milliseconds to invert `inverted` elements at once."""
    products_in_chains: float | None
    """Products per second in chains; None if no kernel chains products of the field."""
    squares_in_chains: float


def choose_sizes(device: DeviceInfo) -> FieldSizes:
    """Choose sizes at which the device reaches its sustained rate."""
    if device.kind == "cpu":
        return CPU_SIZES
    memory = max(heap.bytes for heap in device.heaps if heap.device_local)
    return GPU_SIZES if memory >= SMALL_GPU else SMALL_GPU_SIZES


def measure_fields(
    gpu: PersistentVulkanBackend,
    sizes: FieldSizes,
    fields: Sequence[Field] = FIELDS,
    budget: TimingBudget = DEFAULT_BUDGET,
) -> Iterator[FieldRow]:
    """Yield a row for each field."""
    for field in fields:
        yield _measure_field(gpu, field, sizes, budget)
        gpu.trim()  # the next field's arrays have other sizes


def check_targets(measured: Sequence[FieldRow], device: DeviceInfo) -> list[Target]:
    """Return the targets on an NVIDIA H200; none on other devices."""
    rows = {row.field: row for row in measured}
    fq, fr = rows.get("bls12_381_fq"), rows.get("bls12_381_fr")
    if not is_h200(device) or fq is None or fr is None:
        return []
    products = [
        Target(f"{row.bits}-bit products in chains", row.products_in_chains / 1e9, least, "G/s")
        for row, least in ((fq, 24), (fr, 54))
        if row.products_in_chains is not None
    ]
    squares = [
        Target(f"{row.bits}-bit squares in chains", row.squares_in_chains / 1e9, least, "G/s")
        for row, least in ((fq, 34), (fr, 73))
    ]
    added = fq.additions.bytes_per_second / 1e12
    return [
        *products,
        *squares,
        Target(f"{fq.bits}-bit additions, streamed", added, 3.3, "TB/s"),
        Target(
            f"{fr.bits}-bit inverses, {fr.inverted:,}", fr.inversion_ms, 0.8, "ms", at_most=True
        ),
    ]


def _measure_field(
    gpu: PersistentVulkanBackend, field: Field, sizes: FieldSizes, budget: TimingBudget
) -> FieldRow:
    memory, count, prime = gpu._session.device_memory, sizes.streamed, field.prime
    words = [memory.put(tile_elements(prime, count, seed)) for seed in (1, 2)]
    x, y = (FieldArray(field, each, field.form) for each in words)
    copies, streamed = _measure_streamed(gpu, field, words, budget)
    graphs = [record_graph(gpu, call) for call in _prepare_calls(x, y, sizes)]
    sums, dots, inverses, squares = time_resident(gpu, graphs, budget)
    return FieldRow(
        field=field.name,
        bits=prime.bits,
        elements=count,
        copy_bytes_per_second=copies,
        products=streamed["mul"],
        squares=streamed["square"],
        additions=streamed["add"],
        sums_per_second=count / sums,
        dots_per_second=count / dots,
        inverted=sizes.inverted,
        inversion_ms=inverses * 1e3,
        products_in_chains=measure_product_chains(gpu, field, sizes),
        squares_in_chains=sizes.chains * count_squares(field, sizes.length) / squares,
    )


def _measure_streamed(
    gpu: PersistentVulkanBackend,
    field: Field,
    operands: Sequence[DeviceArray],
    budget: TimingBudget,
) -> tuple[float, dict[str, StreamedOperation]]:
    """Measure the bytes per second of a copy kernel, and the streamed operations, all on the same
    arrays.
    """
    memory, first = gpu._session.device_memory, operands[0]
    count, result = len(first), memory.empty(first.shape, first.dtype)
    units = first.nbytes // COPY_UNIT_BYTES
    steps: list[Step] = [Dispatch(copy_kernel(), (first, result), units, grid_stride=True)]
    moved = [2 * units * COPY_UNIT_BYTES]
    for operation, exact in STREAMED_OPERATIONS.items():
        kernel = element_kernel(
            field.prime,
            operation,
            grid_stride=count > MAX_UNSTRIDED_ELEMENTS,
            f64_limbs=with_f64_limbs(memory, field.prime),
            packed=can_pack(operands),
        )
        arrays = *operands[: kernel.inputs], result
        steps.append(Dispatch(kernel, arrays, count, grid_stride=True))
        memory.submit(steps[-1:])
        *inputs, output = (FieldArray(field, each, field.form) for each in arrays)
        _check_ends(operation, exact, inputs, output)
        moved.append(kernel.bindings * first.nbytes)
    taken = time_steps(gpu, steps, budget)
    copies, *rates = (nbytes / seconds for nbytes, seconds in zip(moved, taken, strict=True))
    return copies, {
        operation: StreamedOperation(count / seconds, rate, rate / copies)
        for operation, seconds, rate in zip(STREAMED_OPERATIONS, taken[1:], rates, strict=True)
    }


def _prepare_calls(
    x: FieldArray, y: FieldArray, sizes: FieldSizes
) -> list[Callable[[], FieldArray]]:
    """Return functions for a sum, a dot product, inverses, and squares in chains, each checked
    once.
    """
    field, modulus = x.field, x.field.modulus
    _check_total("sum", field.sum(x), _compute_total(lambda a: a, x))
    _check_total("dot product", field.dot(x, y), _compute_total(lambda a, b: a * b, x, y))
    exponent = 1 << count_squares(field, sizes.length)
    inverted, raised = x[: sizes.inverted], x[: sizes.chains]
    invert, power = partial(field.inverse, inverted), partial(field.power, raised, exponent)
    _check_ends("inverses", np.vectorize(lambda a: pow(a, -1, modulus), "O"), [inverted], invert())
    _check_ends("powers", np.vectorize(lambda a: pow(a, exponent, modulus), "O"), [raised], power())
    return [partial(field.sum, x), partial(field.dot, x, y), invert, power]


def count_squares(field: Field, length: int) -> int:
    """Return the number n of squares in a chain, `length` at most: the power 2^n takes n dependent
    squares and nothing else.

    2^n stays below p - 1: `Field.power` reduces larger exponents, since a^(p - 1) = 1.
    """
    return min(length, field.prime.bits - 2)


def has_product_chains(field: Field) -> bool:
    """Return whether a kernel chains products of the field."""
    return family(field.prime) == "wide" and 2 * field.modulus < field.prime.r


def measure_product_chains(
    gpu: PersistentVulkanBackend, field: Field, sizes: FieldSizes
) -> float | None:
    """Measure products per second by the device's clock, as when the kernels were tuned."""
    prime = field.prime
    if not has_product_chains(field):
        return None
    length, modulus = sizes.length, field.modulus
    kernel = mont_mul_chain_kernel(
        prime, length, f64_limbs=with_f64_limbs(gpu._session.device_memory, prime)
    )
    a, b = (tile_elements(prime, min(SAMPLE, sizes.chains), seed) for seed in (1, 2))
    operands = [FieldArray(field, each, field.form) for each in (a, b)]
    products = np.vectorize(lambda x, y: x * pow(y, length, modulus), "O")
    _check_ends("chain", products, operands, FieldArray(field, gpu.run(kernel, a, b), field.form))
    seconds = time_kernel(gpu._session, kernel, prime, sizes.chains, work_group=DEFAULT_WORK_GROUP)
    return sizes.chains * length / seconds


def _compute_total(function: ExactFunction, *arrays: FieldArray) -> int:
    """Return the exact sum of a function of tiled elements, which repeat after `DISTINCT`."""
    values: list[int] = function(*(_to_ints(each[:DISTINCT]) for each in arrays)).tolist()
    repeats, rest = divmod(arrays[0].size, DISTINCT)
    return repeats * sum(values) + sum(values[:rest])


def _check_total(name: str, total: FieldArray, expected: int) -> None:
    if _to_ints(total).item() != expected % total.field.modulus:
        raise AssertionError(f"{total.field.name}: wrong {name}")


def _check_ends(
    name: str, exact: ExactFunction, operands: Sequence[FieldArray], result: FieldArray
) -> None:
    """Compare `SAMPLE` elements at either end of a result with exact integers."""
    for part in (slice(SAMPLE), slice(-SAMPLE, None)):
        expected = exact(*(_to_ints(each[part]) for each in operands)) % result.field.modulus
        if not np.array_equal(_to_ints(result[part]), expected):
            raise AssertionError(f"{result.field.name}: wrong {name}")


def _to_ints(array: FieldArray) -> Any:
    """Return the integers of an array, decoded on the host instead of by the device under test."""
    return array.to_host().ints()
