"""Number-theoretic transforms: device-resident, and from arrays of the host to arrays of the host;
low-degree extensions and products of polynomials.

Results are checked before they are timed: one value against the polynomial at its point, and the
inverse transform against the original input.

Beside each time are two parts of it, measured alone in the same run: its products, at the rate of
Horner's rule, and its memory, each element read and written once by a copy. Neither is a lower
bound: products with roots can take less than those of Horner's rule, and small arrays fit into
caches.

Device-resident work is recorded as a graph. Graphs of small sizes have several calls, one after the
other: a single one takes less time on the device than its submission takes on the host.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpu_executor.bench.inputs import draw_elements
from gpu_executor.bench.measurement import Target, is_h200
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.timing import (
    TimingBudget,
    record_graph,
    time_resident,
)
from gpu_executor.calls.dispatch import ArrayCopy
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, Field, FieldArray
from gpu_executor.ops.elementwise import Words
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

FIELDS = (BLS12_381_FR, GOLDILOCKS, BABYBEAR)
SMALLEST, STEP = 10, 2
GPU_LARGEST, CPU_LARGEST = 24, 16
"""Sizes of single transforms, as powers of two."""
LOG_BATCHED = 13
GPU_LOG_BATCH, CPU_LOG_BATCH = 22, 16
"""The size of a transform of a batch and the elements of the whole batch, as powers of two."""

MAX_CALLS_IN_GRAPH, ELEMENTS_IN_GRAPH = 16, 1 << 22
"""A graph has as many calls as have so many elements together, but no more than 16."""

REVERSED_TARGETS_MS = {
    ("bls12_381_fr", 16): 0.0205,
    ("bls12_381_fr", 20): 0.242,
    ("bls12_381_fr", 22): 0.995,
    ("bls12_381_fr", 24): 4.2,
    ("goldilocks", 20): 0.0447,
    ("goldilocks", 22): 0.1515,
    ("goldilocks", 24): 0.601,
    ("babybear", 20): 0.0222,
    ("babybear", 22): 0.0608,
    ("babybear", 24): 0.22,
}
NATURAL_TARGETS_MS = {("bls12_381_fr", 22): 1.06}
NUMPY_TARGETS_MS = {("bls12_381_fr", 22): 8.0}
MAPPED_TARGETS_MS = {("bls12_381_fr", 22): 5.5}
"""Milliseconds on an NVIDIA H200, by field and size."""
BUDGET = TimingBudget(round=0.01, max_rounds=5, per_function=0.25)
"""Ten kinds of calls are timed for each size and field."""
BLOWUP, COSET = 4, 7
"""Of the low-degree extensions."""
RATE_COEFFICIENTS = 256
GPU_RATE_POINTS, CPU_RATE_POINTS = 1 << 20, 1 << 10
"""The products per second are those of a polynomial's values at many points, by Horner's rule."""
GPU_COPIED_BYTES, CPU_COPIED_BYTES = 1 << 28, 1 << 22
"""The bytes per second are those of a copy, which takes longer than its submission."""
RESIDENT = {
    "to_reversed_ms",
    "to_natural_ms",
    "back_from_reversed_ms",
    "back_from_natural_ms",
    "lde_ms",
    "poly_mul_ms",
}
"""The times of `TransformRow` whose work is device-resident."""
GROWTH_TARGET = 1.15
"""The largest acceptable growth: the time over n log2 n at the largest size, relative to the
minimum over all sizes."""


@dataclass(frozen=True, slots=True)
class TransformSize:
    """`rows` transforms at once, of 2^log_n elements each."""

    log_n: int
    rows: int = 1

    @property
    def elements(self) -> int:
        return self.rows << self.log_n

    @property
    def calls_in_graph(self) -> int:
        return max(min(ELEMENTS_IN_GRAPH // self.elements, MAX_CALLS_IN_GRAPH), 1)

    @property
    def work(self) -> int:
        """n log2 n, summed over the transforms; the time should be proportional to it."""
        return self.elements * self.log_n


@dataclass(frozen=True, slots=True)
class TransformRow:
    """One field and size, in milliseconds for all transforms together."""

    field: str
    log_n: int
    rows: int
    to_reversed_ms: float
    """From natural to bit-reversed order; device-resident, as are the next three."""
    to_natural_ms: float
    """From natural to natural order."""
    back_from_reversed_ms: float
    """The inverse, from bit-reversed to natural order."""
    back_from_natural_ms: float
    numpy_ms: float
    """From natural to natural order, plain NumPy array to NumPy array."""
    mapped_ms: float
    """The same between arrays in mapped memory."""
    lde_ms: float
    """A low-degree extension to as many elements on a coset, from 1 / BLOWUP as many."""
    poly_mul_ms: float
    """A product of two polynomials, with as many coefficients together."""
    numpy_copies_ms: float
    """The copies of `numpy_ms` to the device and back, without a transform."""
    mapped_copies_ms: float
    """The copies of `mapped_ms`."""
    products_alone_ms: float
    """The products of the butterflies of one transform."""
    memory_alone_ms: float
    """Each element of one transform read and written once."""
    lde_products_alone_ms: float
    lde_memory_alone_ms: float
    poly_mul_products_alone_ms: float
    poly_mul_memory_alone_ms: float

    @property
    def cost(self) -> float:
        """Nanoseconds from natural to natural order over n log2 n."""
        return self.to_natural_ms * 1e6 / TransformSize(self.log_n, self.rows).work


def choose_sizes(device: DeviceInfo, largest: int | None = None) -> list[TransformSize]:
    """Choose single transforms up to the largest size, which by default depends on the device, and
    a batch.
    """
    on_gpu = device.kind != "cpu"
    largest = largest or (GPU_LARGEST if on_gpu else CPU_LARGEST)
    rows = 1 << (GPU_LOG_BATCH if on_gpu else CPU_LOG_BATCH) - LOG_BATCHED
    logs = [*range(SMALLEST, largest, STEP), largest]
    return [*(TransformSize(log_n) for log_n in logs), TransformSize(LOG_BATCHED, rows)]


def measure_transforms(
    gpu: PersistentVulkanBackend,
    sizes: Sequence[TransformSize],
    fields: Sequence[Field] = FIELDS,
    budget: TimingBudget = BUDGET,
) -> Iterator[list[TransformRow]]:
    """Yield a row for each field and size."""
    for field in fields:
        yield _measure_field(gpu, field, sizes, budget)
        gpu.trim()


def compute_growth(measured: Sequence[TransformRow]) -> list[float]:
    """Return the time over n log2 n of each row, relative to the field's largest single
    transform.
    """
    singles = [row for row in measured if row.rows == 1]
    largest = {row.field: row for row in sorted(singles, key=lambda row: row.log_n)}
    return [row.cost / largest[row.field].cost for row in measured]


def check_targets(measured: Sequence[TransformRow], device: DeviceInfo) -> list[Target]:
    """Return the targets: times on an NVIDIA H200, growth on every device."""
    singles = [row for row in measured if row.rows == 1]
    targets = []
    for row in singles if is_h200(device) else ():
        name, key = f"{row.field}, 2^{row.log_n}", (row.field, row.log_n)
        for what, taken, most in (
            ("to reversed order", row.to_reversed_ms, REVERSED_TARGETS_MS.get(key)),
            ("to natural order", row.to_natural_ms, NATURAL_TARGETS_MS.get(key)),
            ("NumPy to NumPy", row.numpy_ms, NUMPY_TARGETS_MS.get(key)),
            ("mapped to mapped", row.mapped_ms, MAPPED_TARGETS_MS.get(key)),
        ):
            if most is not None:
                targets.append(Target(f"{name}, {what}", taken, most, "ms", at_most=True))
    for field in dict.fromkeys(row.field for row in singles):
        own = [row for row in singles if row.field == field]
        largest, least = max(own, key=lambda row: row.log_n), min(row.cost for row in own)
        what = f"{field}, time / n log n at 2^{largest.log_n} over least"
        targets.append(Target(what, largest.cost / least, GROWTH_TARGET, "x", at_most=True))
    return targets


def _measure_field(
    gpu: PersistentVulkanBackend,
    field: Field,
    sizes: Sequence[TransformSize],
    budget: TimingBudget,
) -> list[TransformRow]:
    """Time each kind of transform in rounds over all sizes, so that a slow phase of the machine
    does not look like growth.
    """
    calls = [_prepare_calls(gpu, field, size) for size in sizes]
    largest = max(range(len(sizes)), key=lambda index: sizes[index].work)
    busy = calls[largest]["to_reversed_ms"]
    taken: dict[str, list[Sampled]] = {}
    for name in calls[0]:
        # The device is still at its full clock after the calls of the kind before.
        warm_up = 0.0 if taken else budget.warm_up
        taken[name] = time_resident(
            gpu,
            [of_size[name] for of_size in calls],
            dataclasses.replace(budget, warm_up=warm_up),
            busy,
        )
    rates = measure_bare_rates(gpu, field, budget)
    return [
        TransformRow(
            field.name,
            size.log_n,
            size.rows,
            **{
                name: seconds[index] * 1e3 / (size.calls_in_graph if name in RESIDENT else 1)
                for name, seconds in taken.items()
            },
            **{
                f"{name}_alone_ms": seconds * 1e3
                for name, seconds in _compute_times_alone(field, size, rates).items()
            },
        )
        for index, size in enumerate(sizes)
    ]


@dataclass(frozen=True, slots=True)
class BareRates:
    """What a device reaches where nothing else takes time."""

    products_per_second: float
    bytes_per_second: float
    """Read and written."""


def measure_bare_rates(
    gpu: PersistentVulkanBackend, field: Field, budget: TimingBudget = BUDGET
) -> BareRates:
    """Measure the products of Horner's rule, and a copy from device memory to device memory."""
    points = CPU_RATE_POINTS if gpu.device.kind == "cpu" else GPU_RATE_POINTS
    drawn = field.from_words(draw_elements(field.prime, (points,), 1), field.form)
    x, memory = gpu.to_device(drawn), gpu._session.device_memory
    nbytes = CPU_COPIED_BYTES if gpu.device.kind == "cpu" else GPU_COPIED_BYTES
    copied = memory.empty((nbytes // 16, 4), np.dtype(np.uint32))
    target = memory.empty(copied.shape, copied.dtype)
    functions = [
        record_graph(gpu, partial(field.poly_eval, x[:RATE_COEFFICIENTS], x)),
        record_graph(gpu, partial(memory.submit, [ArrayCopy(copied, target)])),
    ]
    evaluated, moved = time_resident(gpu, functions, budget)
    products = points * (RATE_COEFFICIENTS - 1)
    return BareRates(products / evaluated, 2 * copied.nbytes / moved)


def _compute_times_alone(field: Field, size: TransformSize, rates: BareRates) -> dict[str, float]:
    """Return the seconds of the products alone and of the memory alone, by the work they are of."""
    n, log_n = size.elements, size.log_n
    element = field.prime.element_bytes / rates.bytes_per_second
    product = 1 / rates.products_per_second
    small, log_small = n // BLOWUP, log_n - BLOWUP.bit_length() + 1
    butterflies = n * log_n / 2
    return {
        "products": butterflies * product,
        "memory": 2 * n * element,
        # Values to coefficients, which are then multiplied by powers of the coset, and back.
        "lde_products": (small * log_small / 2 + small + butterflies) * product,
        "lde_memory": (small + n) * element,
        "poly_mul_products": (3 * butterflies + n) * product,
        "poly_mul_memory": 2 * n * element,
    }


def _prepare_calls(
    gpu: PersistentVulkanBackend, field: Field, size: TransformSize
) -> dict[str, Callable[[], object]]:
    """Return the functions to time, by attribute of `TransformRow`; each result is checked once."""
    shape = (1 << size.log_n,) if size.rows == 1 else (size.rows, 1 << size.log_n)
    host = field.from_words(draw_elements(field.prime, shape, 1), field.form)
    x, ntt, intt = gpu.to_device(host), field.ntt, field.intt
    values, reversed_values = ntt(x), ntt(x, order_out="reversed")
    check_value(x, values, reversed_values)
    from_reversed = partial(intt, reversed_values, order_in="reversed")
    from_natural = partial(intt, values)

    mapped, out = gpu.asarray(host), gpu.asarray(field.zeros(shape))
    transform_numpy = partial(ntt, host, device=gpu)
    transform_mapped = partial(ntt, mapped, device=gpu, out=out)
    memory = gpu._session.device_memory
    host_words, mapped_words = host.words(), mapped.words()
    out_words: Any = out.data

    def copy_numpy() -> Words:
        return memory.fetch(memory.put(host_words))

    def copy_mapped() -> Words:
        return memory.fetch(memory.put(mapped_words, borrow=True), out_words)

    half, small = shape[-1] // 2, max(shape[-1] // BLOWUP, 1)
    low = x[..., :small].copy()
    extend = partial(field.lde, low, BLOWUP, COSET)
    factors = [x[..., :half].copy(), x[..., half:].copy()]
    multiply = partial(field.poly_mul, *factors)
    fetched = values.words()
    for right, what in (
        (field.equal(from_reversed(), x).all(), "inverse from bit-reversed order"),
        (field.equal(from_natural(), x).all(), "inverse from natural order"),
        (np.array_equal(transform_numpy().words(), fetched), "transform from NumPy to NumPy"),
        (np.array_equal(transform_mapped().words(), fetched), "transform between mapped arrays"),
    ):
        if not right:
            raise AssertionError(f"{field.name}, 2^{size.log_n}: wrong {what}")
    _check_product(field, factors, multiply())
    if not field.equal(field.intt(extend(), coset=COSET)[..., :small], intt(low)).all():
        raise AssertionError(f"{field.name}, 2^{size.log_n}: wrong extension")
    resident = {
        "to_reversed_ms": partial(ntt, x, order_out="reversed"),
        "to_natural_ms": partial(ntt, x),
        "back_from_reversed_ms": from_reversed,
        "back_from_natural_ms": from_natural,
        "lde_ms": extend,
        "poly_mul_ms": multiply,
    }
    return {
        **{name: _record_calls(gpu, call, size) for name, call in resident.items()},
        "numpy_ms": transform_numpy,
        "mapped_ms": transform_mapped,
        "numpy_copies_ms": copy_numpy,
        "mapped_copies_ms": copy_mapped,
    }


def _record_calls(
    gpu: PersistentVulkanBackend, call: Callable[[], object], size: TransformSize
) -> Callable[[], object]:
    """Record a graph of `calls_in_graph` calls."""

    def repeat() -> None:
        for _ in range(size.calls_in_graph):
            call()

    return record_graph(gpu, repeat)


def _check_product(field: Field, factors: Sequence[FieldArray], product: FieldArray) -> None:
    """Compare a product of polynomials with the product of the values of its factors at 1."""
    values = [field.sum(each, axis=-1).ints() for each in (*factors, product)]
    if not np.array_equal(values[0] * values[1] % field.modulus, values[2]):
        raise AssertionError(f"{field.name}: wrong product of polynomials")


def check_value(
    x: FieldArray, values: FieldArray | None, reversed_values: FieldArray | None
) -> None:
    """Compare one value of one row, in natural and in bit-reversed order, with the polynomial at
    its point.

    The device multiplies blocks of coefficients by the powers of the point and adds them up; exact
    integers join the blocks. These kernels are not those of the transforms.
    """
    field, n = x.field, x.shape[-1]
    log_n = n.bit_length() - 1
    rng = random.Random(n)
    row, at = rng.randrange(x.size // n), rng.randrange(n)
    reversed_at = int(f"{at:0{log_n}b}"[::-1], 2)
    point = pow(field.prime.root_of_unity(log_n), at, field.modulus)
    block = 1 << log_n // 2
    powers = [pow(point, index, field.modulus) for index in range(block)]
    blocks = x.reshape(-1, n)[row].reshape(-1, block)
    products = field.mul(blocks, field.encode(powers).copy_to_device(x.device))
    step, expected = pow(point, block, field.modulus), 0
    for total in reversed(field.sum(products, axis=-1).ints().tolist()):
        expected = (expected * step + total) % field.modulus
    for found, index in ((values, at), (reversed_values, reversed_at)):
        if found is None:
            continue
        value = found.reshape(-1, n)[row][index : index + 1].to_host()
        if value.ints().item() != expected:
            raise AssertionError(f"{field.name}, 2^{log_n}: wrong value")
