"""Field operations: streamed from the card's memory, in chains without it, over whole arrays.

Results are checked, a sample of each, before they are timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpu_executor.bench import resident
from gpu_executor.bench.aims import Aim, is_h200
from gpu_executor.bench.kernel_rate import kernel_seconds
from gpu_executor.bench.resident import USUAL, Pace
from gpu_executor.bench.samples import DIFFERENT, elements
from gpu_executor.device_array import DeviceArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.dispatch import Dispatch, Step
from gpu_executor.fields import Field, FieldArray, named
from gpu_executor.fields.elementwise import AT_ONCE
from gpu_executor.fields.neighbours import by_neighbours
from gpu_executor.kernels.catalogue import mul_chain_kernel
from gpu_executor.kernels.copies import UNIT_BYTES, copy_kernel
from gpu_executor.kernels.elements import element_kernel
from gpu_executor.kernels.families import family
from gpu_executor.ops.multiplying import by_doubles
from gpu_executor.plan.plan import USUAL_WORK_GROUP
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

FIELDS = tuple(each for each in vars(named).values() if isinstance(each, Field))
SAMPLE = 500
"""Elements checked at either end of a result."""
Exact = Callable[..., Any]
OPERATIONS: dict[str, Exact] = {
    "mul": lambda a, b: a * b,
    "square": lambda a: a * a,
    "add": lambda a, b: a + b,
}
"""Those that are streamed, on arrays of integers."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Elements that are streamed, summed, inverted; chains, and operations in each."""

    streamed: int
    inverted: int
    chains: int
    length: int


GPU_SIZES = Sizes(1 << 24, 1 << 22, 1 << 22, 256)
SMALL_GPU_SIZES = Sizes(1 << 22, 1 << 20, 1 << 20, 256)
SMALL_GPU = 16 << 30
"""Bytes of memory below which half a dozen of the large arrays are much for a GPU."""
CPU_SIZES = Sizes(1 << 16, 1 << 14, 1 << 10, 16)
"""Chains stay short on lavapipe, which ends a shader after 65,535 loop iterations."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """Operands from the card's memory, results to it."""

    per_second: float
    bytes_per_second: float
    of_copy: float
    """Bytes over those that a kernel that copies moves in the same time."""


@dataclass(frozen=True, slots=True)
class Row:
    """One field."""

    field: str
    bits: int
    elements: int
    copy_bytes_per_second: float
    products: Streamed
    squares: Streamed
    additions: Streamed
    sums_per_second: float
    """Elements, of one sum over all of them."""
    dots_per_second: float
    """Pairs of elements, of one sum of their products."""
    inverted: int
    inversion_ms: float
    """Of so many at once."""
    products_in_chains: float | None
    """None where no kernel makes such chains."""
    squares_in_chains: float


def sizes_for(device: DeviceInfo) -> Sizes:
    """Enough for the device to show what it can keep up."""
    if device.kind == "cpu":
        return CPU_SIZES
    memory = max(heap.bytes for heap in device.heaps if heap.device_local)
    return GPU_SIZES if memory >= SMALL_GPU else SMALL_GPU_SIZES


def rows(
    gpu: PersistentVulkanBackend,
    sizes: Sizes,
    among: Sequence[Field] = FIELDS,
    pace: Pace = USUAL,
) -> Iterator[Row]:
    """A row for each field."""
    for field in among:
        yield _row(gpu, field, sizes, pace)
        gpu.trim()  # the next field's arrays have other sizes


def aims(measured: Sequence[Row], device: DeviceInfo) -> list[Aim]:
    """What was aimed for on this device."""
    found = {row.field: row for row in measured}
    fq, fr = found.get("bls12_381_fq"), found.get("bls12_381_fr")
    if not is_h200(device) or fq is None or fr is None:
        return []
    products = [
        Aim(f"{row.bits}-bit products in chains", row.products_in_chains / 1e9, least, "G/s")
        for row, least in ((fq, 24), (fr, 54))
        if row.products_in_chains is not None
    ]
    added = fq.additions.bytes_per_second / 1e12
    return [
        *products,
        Aim(f"{fq.bits}-bit additions, streamed", added, 3.3, "TB/s"),
        Aim(f"{fr.bits}-bit inverses, {fr.inverted:,}", fr.inversion_ms, 0.8, "ms", at_most=True),
    ]


def _row(gpu: PersistentVulkanBackend, field: Field, sizes: Sizes, pace: Pace) -> Row:
    card, count, prime = gpu._session.device_memory, sizes.streamed, field.prime
    words = [card.put(elements(prime, count, seed)) for seed in (1, 2)]
    x, y = (FieldArray(field, each, field.form) for each in words)
    copies, streamed = _streamed(gpu, field, words, pace)
    calls = [resident.recorded(gpu, call) for call in _calls(x, y, sizes)]
    sums, dots, inverses, squares = resident.calls_seconds(gpu, calls, pace)
    return Row(
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
        products_in_chains=_products_in_chains(gpu, field, sizes),
        squares_in_chains=sizes.chains * _squares(field, sizes) / squares,
    )


def _streamed(
    gpu: PersistentVulkanBackend, field: Field, operands: Sequence[DeviceArray], pace: Pace
) -> tuple[float, dict[str, Streamed]]:
    """Bytes a second of copies, and the operations, all on the same arrays."""
    card, first = gpu._session.device_memory, operands[0]
    count, result = len(first), card.empty(first.shape, first.dtype)
    units = first.nbytes // UNIT_BYTES
    steps: list[Step] = [Dispatch(copy_kernel(), (first, result), units, strides=True)]
    moved = [2 * units * UNIT_BYTES]
    for operation, exact in OPERATIONS.items():
        kernel = element_kernel(
            field.prime,
            operation,
            strides=count > AT_ONCE,
            doubles=by_doubles(card, field.prime),
            neighbours=by_neighbours(operands),
        )
        arrays = *operands[: kernel.inputs], result
        steps.append(Dispatch(kernel, arrays, count, strides=True))
        card.submit(steps[-1:])
        *given, found = (FieldArray(field, each, field.form) for each in arrays)
        _check(operation, exact, given, found)
        moved.append(kernel.bindings * first.nbytes)
    taken = resident.steps_seconds(gpu, steps, pace)
    copies, *rates = (nbytes / seconds for nbytes, seconds in zip(moved, taken, strict=True))
    return copies, {
        operation: Streamed(count / seconds, rate, rate / copies)
        for operation, seconds, rate in zip(OPERATIONS, taken[1:], rates, strict=True)
    }


def _calls(x: FieldArray, y: FieldArray, sizes: Sizes) -> list[Callable[[], FieldArray]]:
    """A sum, a dot product, inverses and squares in chains, checked."""
    field, modulus = x.field, x.field.modulus
    _check_total("sum", field.sum(x), _total(lambda a: a, x))
    _check_total("dot product", field.dot(x, y), _total(lambda a, b: a * b, x, y))
    # Longer, and the exponent would be cut: a^(p - 1) is 1.
    some, few, exponent = x[: sizes.inverted], x[: sizes.chains], 1 << _squares(field, sizes)
    invert, power = partial(field.inverse, some), partial(field.power, few, exponent)
    _check("inverses", np.vectorize(lambda a: pow(a, -1, modulus), "O"), [some], invert())
    _check("powers", np.vectorize(lambda a: pow(a, exponent, modulus), "O"), [few], power())
    # Raising to 2^n is n squares, each of the one before, and nothing else.
    return [partial(field.sum, x), partial(field.dot, x, y), invert, power]


def _squares(field: Field, sizes: Sizes) -> int:
    """Of a chain: raising to the power 2^n takes n."""
    return min(sizes.length, field.prime.bits - 2)


def _products_in_chains(gpu: PersistentVulkanBackend, field: Field, sizes: Sizes) -> float | None:
    """Products a second by the device's clock, as the kernels' own tuning is measured."""
    prime = field.prime
    if family(prime) != "wide" or 2 * prime.modulus >= prime.r:
        return None
    length, modulus = sizes.length, field.modulus
    kernel = mul_chain_kernel(prime, length, doubles=by_doubles(gpu._session.device_memory, prime))
    a, b = (elements(prime, min(SAMPLE, sizes.chains), seed) for seed in (1, 2))
    operands = [FieldArray(field, each, field.form) for each in (a, b)]
    powers = np.vectorize(lambda x, y: x * pow(y, length, modulus), "O")
    _check("chain", powers, operands, FieldArray(field, gpu.run(kernel, a, b), field.form))
    seconds = kernel_seconds(gpu._session, kernel, prime, sizes.chains, work_group=USUAL_WORK_GROUP)
    return sizes.chains * length / seconds


def _total(of: Exact, *arrays: FieldArray) -> int:
    """The sum of a function of elements, which repeat after the different ones."""
    values: list[int] = of(*(_ints(each[:DIFFERENT]) for each in arrays)).tolist()
    turns, rest = divmod(arrays[0].size, DIFFERENT)
    return turns * sum(values) + sum(values[:rest])


def _check_total(name: str, total: FieldArray, expected: int) -> None:
    if _ints(total).item() != expected % total.field.modulus:
        raise AssertionError(f"{total.field.name}: wrong {name}")


def _check(name: str, exact: Exact, operands: Sequence[FieldArray], result: FieldArray) -> None:
    """Elements at both ends of a result against exact integers."""
    for part in (slice(SAMPLE), slice(-SAMPLE, None)):
        expected = exact(*(_ints(each[part]) for each in operands)) % result.field.modulus
        if not np.array_equal(_ints(result[part]), expected):
            raise AssertionError(f"{result.field.name}: wrong {name}")


def _ints(array: FieldArray) -> Any:
    """By way of the host's memory, where its form is undone without the card."""
    return array.to_host().ints()
