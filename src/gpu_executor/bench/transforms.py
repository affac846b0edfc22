"""Number-theoretic transforms: on the card, and from words in NumPy's memory to words there.

Results are checked before they are timed: a value against the polynomial at its point, the inverse
against what went in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpu_executor.bench import resident
from gpu_executor.bench.aims import Aim, is_h200
from gpu_executor.bench.draws import drawn
from gpu_executor.bench.resident import USUAL, Pace
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, Field, FieldArray
from gpu_executor.fields.array import Words
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

FIELDS = (BLS12_381_FR, GOLDILOCKS, BABYBEAR)
SMALLEST, STEP = 10, 2
GPU_LARGEST, CPU_LARGEST = 24, 16
LOG_BATCHED = 13
GPU_LOG_BATCH, CPU_LOG_BATCH = 22, 16
"""Elements of a batch, and of a transform in it, as powers of two."""

AIMS = {
    ("bls12_381_fr", 20): 0.45,
    ("bls12_381_fr", 22): 1.8,
    ("bls12_381_fr", 24): 7.5,
    ("goldilocks", 22): 0.3,
}
NUMPY_AIMS = {("bls12_381_fr", 22): 12.0}
"""Milliseconds on an NVIDIA H200, by field and size."""
GROWTH_AIM = 1.15
"""The most that n log2 n may cost at the largest size, over what it costs at any."""


@dataclass(frozen=True, slots=True)
class Size:
    """So many transforms at once, of 2^log_n elements each."""

    log_n: int
    rows: int = 1

    @property
    def elements(self) -> int:
        return self.rows << self.log_n

    @property
    def work(self) -> int:
        """What the cost is meant to grow as: n log2 n for each."""
        return self.elements * self.log_n


@dataclass(frozen=True, slots=True)
class Row:
    """One field and size, in milliseconds for all its transforms together."""

    field: str
    log_n: int
    rows: int
    to_reversed_ms: float
    """From natural to bit-reversed order, on the card as the next three are."""
    to_natural_ms: float
    """From natural to natural order."""
    back_from_reversed_ms: float
    """The inverse, from bit-reversed to natural order."""
    back_from_natural_ms: float
    numpy_ms: float
    """From natural to natural order, words in the host's memory to words there."""

    @property
    def cost(self) -> float:
        """Nanoseconds from natural to natural order over n log2 n."""
        return self.to_natural_ms * 1e6 / Size(self.log_n, self.rows).work


def sizes_for(device: DeviceInfo, largest: int | None = None) -> list[Size]:
    """Single transforms up to the largest, by default what suits the device; then the batch."""
    on_gpu = device.kind != "cpu"
    largest = largest or (GPU_LARGEST if on_gpu else CPU_LARGEST)
    rows = 1 << (GPU_LOG_BATCH if on_gpu else CPU_LOG_BATCH) - LOG_BATCHED
    logs = [*range(SMALLEST, largest, STEP), largest]
    return [*(Size(log_n) for log_n in logs), Size(LOG_BATCHED, rows)]


def rows(
    gpu: PersistentVulkanBackend,
    sizes: Sequence[Size],
    among: Sequence[Field] = FIELDS,
    pace: Pace = USUAL,
) -> Iterator[list[Row]]:
    """A row for each size of each field, field by field."""
    for field in among:
        yield _rows(gpu, field, sizes, pace)
        gpu.trim()


def growth(measured: Sequence[Row]) -> list[float]:
    """The cost of n log2 n in each row over that of the field's largest single transform."""
    singles = [row for row in measured if row.rows == 1]
    largest = {row.field: row for row in sorted(singles, key=lambda row: row.log_n)}
    return [row.cost / largest[row.field].cost for row in measured]


def aims(measured: Sequence[Row], device: DeviceInfo) -> list[Aim]:
    """What was aimed for on this device: times on an NVIDIA H200, growth everywhere."""
    singles = [row for row in measured if row.rows == 1]
    found = []
    for row in singles if is_h200(device) else ():
        name, key = f"{row.field}, 2^{row.log_n}", (row.field, row.log_n)
        for what, took, most in (
            ("to reversed order", row.to_reversed_ms, AIMS.get(key)),
            ("to natural order", row.to_natural_ms, AIMS.get(key)),
            ("NumPy to NumPy", row.numpy_ms, NUMPY_AIMS.get(key)),
        ):
            if most is not None:
                found.append(Aim(f"{name}, {what}", took, most, "ms", at_most=True))
    for field in dict.fromkeys(row.field for row in singles):
        own = [row for row in singles if row.field == field]
        largest, least = max(own, key=lambda row: row.log_n), min(row.cost for row in own)
        what = f"{field}, n log n at 2^{largest.log_n} over the cheapest"
        found.append(Aim(what, largest.cost / least, GROWTH_AIM, "x", at_most=True))
    return found


def _rows(
    gpu: PersistentVulkanBackend, field: Field, sizes: Sequence[Size], pace: Pace
) -> list[Row]:
    """Each way in turns over all sizes, so that a slow spell of the machine does not look like
    growth."""
    ways = [_ways(gpu, field, size) for size in sizes]
    taken = {
        way: resident.calls_seconds(gpu, [each[way] for each in ways], pace) for way in ways[0]
    }
    return [
        Row(
            field.name,
            size.log_n,
            size.rows,
            **{way: seconds[index] * 1e3 for way, seconds in taken.items()},
        )
        for index, size in enumerate(sizes)
    ]


def _ways(
    gpu: PersistentVulkanBackend, field: Field, size: Size
) -> dict[str, Callable[[], object]]:
    """What is timed, under the names that a row has for it, checked."""
    shape = (1 << size.log_n,) if size.rows == 1 else (size.rows, 1 << size.log_n)
    host = field.from_words(drawn(field.prime, shape, 1), field.form)
    x, ntt, intt = gpu.to_device(host), field.ntt, field.intt
    values, reversed_values = ntt(x), ntt(x, order_out="reversed")
    _check_value(x, values, reversed_values)
    from_reversed = partial(intt, reversed_values, order_in="reversed")
    from_natural = partial(intt, values)

    def words_to_words() -> Words:
        return ntt(gpu.to_device(host)).numpy()

    for found, expected in (
        (from_reversed().numpy(), host.numpy()),
        (from_natural().numpy(), host.numpy()),
        (words_to_words(), values.numpy()),
    ):
        if not np.array_equal(found, expected):
            raise AssertionError(f"{field.name}, 2^{size.log_n}: not what it was")
    on_card = {
        "to_reversed_ms": partial(ntt, x, order_out="reversed"),
        "to_natural_ms": partial(ntt, x),
        "back_from_reversed_ms": from_reversed,
        "back_from_natural_ms": from_natural,
    }
    recorded = {way: resident.recorded(gpu, call) for way, call in on_card.items()}
    return {**recorded, "numpy_ms": words_to_words}


def _check_value(x: FieldArray, values: FieldArray, reversed_values: FieldArray) -> None:
    """One value of one row against the polynomial there, by other kernels than transforms have."""
    field, n = x.field, x.shape[-1]
    log_n = n.bit_length() - 1
    draw = random.Random(n)
    row, at = draw.randrange(x.size // n), draw.randrange(n)
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
