"""Number-theoretic transforms: device-resident, and from NumPy array to NumPy array.

Results are checked before they are timed: one value against the polynomial at its point, and the
inverse transform against the original input.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpu_executor.bench.random_elements import draw_elements
from gpu_executor.bench.targets import Target, is_h200
from gpu_executor.bench.timing import (
    DEFAULT_BUDGET,
    TimingBudget,
    record_graph,
    time_resident,
)
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

TARGETS_MS = {
    ("bls12_381_fr", 20): 0.45,
    ("bls12_381_fr", 22): 1.8,
    ("bls12_381_fr", 24): 7.5,
    ("goldilocks", 22): 0.3,
}
NUMPY_TARGETS_MS = {("bls12_381_fr", 22): 12.0}
"""Milliseconds on an NVIDIA H200, by field and size."""
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
    """From natural to natural order, NumPy array to NumPy array."""

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
    budget: TimingBudget = DEFAULT_BUDGET,
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
            ("to reversed order", row.to_reversed_ms, TARGETS_MS.get(key)),
            ("to natural order", row.to_natural_ms, TARGETS_MS.get(key)),
            ("NumPy to NumPy", row.numpy_ms, NUMPY_TARGETS_MS.get(key)),
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
    taken = {
        name: time_resident(gpu, [of_size[name] for of_size in calls], budget) for name in calls[0]
    }
    return [
        TransformRow(
            field.name,
            size.log_n,
            size.rows,
            **{name: seconds[index] * 1e3 for name, seconds in taken.items()},
        )
        for index, size in enumerate(sizes)
    ]


def _prepare_calls(
    gpu: PersistentVulkanBackend, field: Field, size: TransformSize
) -> dict[str, Callable[[], object]]:
    """Return the functions to time, by attribute of `TransformRow`; each result is checked once."""
    shape = (1 << size.log_n,) if size.rows == 1 else (size.rows, 1 << size.log_n)
    host = field.from_words(draw_elements(field.prime, shape, 1), field.form)
    x, ntt, intt = gpu.to_device(host), field.ntt, field.intt
    values, reversed_values = ntt(x), ntt(x, order_out="reversed")
    _check_value(x, values, reversed_values)
    from_reversed = partial(intt, reversed_values, order_in="reversed")
    from_natural = partial(intt, values)

    def transform_numpy() -> Words:
        return ntt(gpu.to_device(host)).numpy()

    for found, expected, what in (
        (from_reversed().numpy(), host.numpy(), "inverse from bit-reversed order"),
        (from_natural().numpy(), host.numpy(), "inverse from natural order"),
        (transform_numpy(), values.numpy(), "transform from NumPy to NumPy"),
    ):
        if not np.array_equal(found, expected):
            raise AssertionError(f"{field.name}, 2^{size.log_n}: wrong {what}")
    resident = {
        "to_reversed_ms": partial(ntt, x, order_out="reversed"),
        "to_natural_ms": partial(ntt, x),
        "back_from_reversed_ms": from_reversed,
        "back_from_natural_ms": from_natural,
    }
    graphs = {name: record_graph(gpu, call) for name, call in resident.items()}
    return {**graphs, "numpy_ms": transform_numpy}


def _check_value(x: FieldArray, values: FieldArray, reversed_values: FieldArray) -> None:
    """Compare one value of one row with the polynomial at its point.

    The kernels that evaluate the polynomial are not those of the transforms.
    """
    field, n = x.field, x.shape[-1]
    log_n = n.bit_length() - 1
    rng = random.Random(n)
    row, at = rng.randrange(x.size // n), rng.randrange(n)
    reversed_at = int(f"{at:0{log_n}b}"[::-1], 2)
    point = pow(field.prime.root_of_unity(log_n), at, field.modulus)
    factors = np.resize(field.encode([point]).numpy(), (n, *field.prime.element_shape))
    factors[0] = field.encode([1]).numpy()[0]
    powers = FieldArray(field, factors, "canonical").copy_to_device(x.device)
    expected = field.dot(x.reshape(-1, n)[row], field.prefix_product(powers)).ints().item()
    for found, index in ((values, at), (reversed_values, reversed_at)):
        value = found.reshape(-1, n)[row][index : index + 1].to_host()
        if value.ints().item() != expected:
            raise AssertionError(f"{field.name}, 2^{log_n}: wrong value")
