"""Multi-scalar multiplications on a device: times by size, by stage, with tables of multiples and
with skewed scalars.

The discrete logarithms of all points are known, so every result is checked before it is timed.

The bound of the additions per second comes from the products per second that chains of products of
the curve's prime reach in the same run. A mixed addition takes 8 products and 2 squares of
coordinates, which count as 10 products. An affine addition in a round takes 6. Over an extension of
degree 2 a product of coordinates takes 3 products modulo the prime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.bench import fields
from gpu_executor.bench.measurement import Target, is_h200
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.timing import call_for, time_interleaved
from gpu_executor.curves import Curve, PointArray, PointTable
from gpu_executor.curves.parameters import get_named
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import Field, FieldArray
from gpu_executor.msm.parts import plan_whole
from gpu_executor.msm.plan import MsmPlan, plan_msm
from gpu_executor.msm.residues import ResidueMsm
from gpu_executor.msm.stages import Msm
from gpu_executor.ops.points import make_points
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

Scalars = npt.NDArray[np.uint64]
"""Canonical words (batch, n, words of a scalar), or (n, words of a scalar)."""
CURVES = ("BLS12_381_G1", "BN254_G1", "BLS12_381_G2")
LARGEST, LARGEST_ON_CPU = 22, 8
"""log2 of the largest number of points."""
LARGEST_TABLE = 16
"""log2 of the largest number of points that tables are made for."""
LARGEST_SKEWED, LARGEST_SKEWED_ON_CPU = 16, 6
"""log2 of the number of points with skewed scalars."""
BATCH, BATCH_ON_CPU = (1024, 12), (4, 6)
"""MSMs of a batch, and log2 of the number of their points."""
REPEATS, REPEATS_ON_CPU = 7, 3
FEW_SUMS = 16
"""Sums that the host converts to affine form: one takes 0.1 ms, where an NVIDIA H200 takes 0.3 ms.
1,024 sums take the host 11 ms."""
WARM_UP_SECONDS = 0.3
"""An idle NVIDIA H200 runs at a fifth of its clock, and needs this long to raise it."""
PRODUCTS_PER_ADDITION, PRODUCTS_PER_AFFINE_ADDITION = 10, 6
"""Products and squares of coordinates in a mixed addition, and in an affine one in a round."""
PRODUCTS_OF_COORDINATES = {1: 1, 2: 3}
"""Products modulo the prime in a product of coordinates, by degree."""
AIMS = {
    ("BLS12_381_G1", 10): 1.5,
    ("BLS12_381_G1", 12): 2.0,
    ("BLS12_381_G1", 16): 4.0,
    ("BLS12_381_G1", 18): 7.0,
    ("BLS12_381_G1", 20): 14.0,
    ("BLS12_381_G1", 22): 45.0,
    ("BN254_G1", 16): 3.0,
    ("BN254_G1", 20): 6.0,
    ("BN254_G1", 22): 18.0,
    ("BLS12_381_G2", 20): 45.0,
}
"""Milliseconds on an NVIDIA H200, from scalars in NumPy memory to an affine point on the host."""
ADDITION_AIMS = {("BLS12_381_G1", 22): 2.0, ("BN254_G1", 22): 5.5}
"""Mixed additions per nanosecond in the accumulation stage."""
TABLE_AIMS = {("BLS12_381_G1", *BATCH): 70.0}
"""Milliseconds of a batch with a table."""
SKEW_AIM = 3.0
"""The time with skewed scalars, relative to that with random ones."""


@dataclass(frozen=True, slots=True)
class MsmRow:
    """Times of one curve and size; the attributes are the keys of the JSON files."""

    log_points: int
    plan: str
    first_ms: float
    """The first call, which creates the pipelines that no earlier call has used."""
    ms: float
    """The median of calls from scalars in NumPy memory to an affine point on the host."""
    mapped_ms: float
    """The same from a NumPy array in mapped memory (`gpu.asarray`)."""
    resident_ms: float
    """The same from scalars on the device."""
    additions_per_second: float
    """Additions in the accumulation stage, those in rounds among them."""
    additions_bound: float | None
    """The additions per second that the products per second of the curve allow; None if these are
    not known."""
    stages_ms: dict[str, float]
    """The fastest of several runs of each stage, waited for by itself."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """Times of MSMs with a table of multiples, and of the same MSMs without."""

    batch: int
    log_points: int
    tables: int
    window_bits: int
    nbytes: int
    precompute_ms: float
    """The time to make the table, with all pipelines created."""
    ms: float
    without_ms: float


@dataclass(frozen=True, slots=True)
class SkewRow:
    """The time of an MSM with skewed scalars."""

    log_points: int
    scalars: str
    ms: float
    ratio: float
    """The time relative to that of random scalars in the same rounds."""


@dataclass(frozen=True, slots=True)
class CurveTimes:
    """All measurements of one curve."""

    curve: str
    products_per_second: float | None
    """In chains; None if no kernel chains products of the curve's prime."""
    rows: list[MsmRow]
    tables: list[TableRow]
    skews: list[SkewRow]


@dataclass(frozen=True, slots=True)
class KnownPoints:
    """Points on a device with their discrete logarithms: point r * columns + c has the logarithm
    by_row[r] + by_column[c]."""

    points: PointArray
    by_row: list[int]
    by_column: list[int]

    def compute_logarithms(self, scalars: Scalars) -> list[int]:
        """The logarithms of sums of multiples of the first points, not reduced, for scalars
        (batch, n, words): n is a power of two.

        The logarithms of rows are multiplied by sums of rows of scalars, those of columns by sums
        of columns.
        """
        batch, count = scalars.shape[:2]
        columns = min(count, len(self.by_column))
        words = scalars.view(np.uint32).reshape(batch, count // columns, columns, -1)
        by_row = _to_ints(words.sum(axis=2, dtype=np.uint64))
        by_column = _to_ints(words.sum(axis=1, dtype=np.uint64))
        return [
            sum(a * b for a, b in zip(self.by_row, rows, strict=False))
            + sum(a * b for a, b in zip(self.by_column, sums, strict=False))
            for rows, sums in zip(by_row, by_column, strict=True)
        ]


def _to_ints(digits: npt.NDArray[np.uint64]) -> list[list[int]]:
    """The integers sum of digits[..., i] * 2^(32 i), for digits of 64 bits."""
    halves = [each.astype("<u4") for each in (digits, digits >> np.uint64(32))]
    nbytes = 4 * digits.shape[-1]

    def join(row: npt.NDArray[np.uint32]) -> list[int]:
        text = row.tobytes()
        return [
            int.from_bytes(text[at : at + nbytes], "little") for at in range(0, len(text), nbytes)
        ]

    return [
        [low + (high << 32) for low, high in zip(join(lows), join(highs), strict=True)]
        for lows, highs in zip(*halves, strict=True)
    ]


def choose_sizes(device: DeviceInfo, largest: int | None = None) -> list[int]:
    """Return the log2 of the numbers of points, up to the largest."""
    if largest is None:
        largest = LARGEST_ON_CPU if device.kind == "cpu" else LARGEST
    smaller = (each for each in (0, *range(6, largest, 2)) if each < largest)
    return [*smaller, largest]


def measure_msms(
    gpu: PersistentVulkanBackend, sizes: Sequence[int], curves: Sequence[str] = CURVES
) -> Iterator[CurveTimes]:
    """Measure one curve after the other."""
    for name in curves:
        yield _CurveBenchmark(gpu, name, max(sizes)).measure(sizes)


def check_targets(measured: Sequence[CurveTimes], device: DeviceInfo) -> list[Target]:
    """Return the targets on an NVIDIA H200; none on other devices."""
    if not is_h200(device):
        return []
    return [target for times in measured for target in _check_curve(times)]


def _check_curve(times: CurveTimes) -> Iterator[Target]:
    for row in times.rows:
        key, what = (times.curve, row.log_points), f"{times.curve}, 2^{row.log_points}"
        if key in AIMS:
            yield Target(what, row.ms, AIMS[key], "ms", at_most=True)
        if key in ADDITION_AIMS:
            rate = row.additions_per_second / 1e9
            yield Target(f"{what}, additions", rate, ADDITION_AIMS[key], "G/s")
    for table in times.tables:
        aim = TABLE_AIMS.get((times.curve, table.batch, table.log_points))
        if aim is not None:
            what = f"{times.curve}, {table.batch:,} x 2^{table.log_points}, precomputed"
            yield Target(what, table.ms, aim, "ms", at_most=True)
    for skew in times.skews:
        what = f"{times.curve}, 2^{skew.log_points}, {skew.scalars}"
        yield Target(what, skew.ratio, SKEW_AIM, "x random", at_most=True)


def make_known_points(gpu: PersistentVulkanBackend, curve: Curve, log_count: int) -> KnownPoints:
    """Make 2^log_count different points on the device: the sums of every row and every column.

    Rows and columns are two arithmetic sequences of multiples of the generator. No sum is that of
    equal or opposite points, so the formula of the slope serves all.
    """
    rows, columns = 1 << log_count // 2, 1 << (log_count - log_count // 2)
    steps = 3, 3 * rows + 1
    starts = 1_000_003, 5 * curve.order // 7
    sequences = []
    for count, step, start in zip((rows, columns), steps, starts, strict=True):
        multiples = [(start + step * each) % curve.order for each in range(count)]
        sequences.append((multiples, curve.generator * multiples))
    (by_row, p), (by_column, q) = sequences
    px, py = (gpu.to_device(each).reshape(rows, 1) for each in (p.x, p.y))
    qx, qy = (gpu.to_device(each).reshape(1, columns) for each in (q.x, q.y))
    slope = (qy - py) / (qx - px)
    x = slope * slope - px - qx
    y = slope * (px - x) - py
    count = rows * columns
    points = curve.from_affine(x.reshape(count), y.reshape(count))
    return KnownPoints(points, by_row, by_column)


def bound_additions(curve: Curve, products_per_second: float, rounds: int = 0) -> float:
    """The additions per second that so many products modulo the prime allow, where so many rounds
    add pairs of affine points."""
    mixed = 0.5**rounds
    products = PRODUCTS_PER_ADDITION * mixed + PRODUCTS_PER_AFFINE_ADDITION * (1 - mixed)
    return products_per_second / (products * PRODUCTS_OF_COORDINATES[curve.key.degree])


class _CurveBenchmark:
    """The measurements of one curve, on the first of its known points."""

    def __init__(self, gpu: PersistentVulkanBackend, name: str, log_largest: int) -> None:
        self._gpu, self._name, self._curve = gpu, name, get_named(name)
        self._on_cpu = gpu.device.kind == "cpu"
        self._log_largest = log_largest
        self._known = make_known_points(gpu, self._curve, log_largest)

    def measure(self, sizes: Sequence[int]) -> CurveTimes:
        gpu, field = self._gpu, self._curve.field
        prime_field = field if isinstance(field, Field) else field.prime_field
        products = fields.measure_product_chains(gpu, prime_field, fields.choose_sizes(gpu.device))
        batch, log_points = BATCH_ON_CPU if self._on_cpu else BATCH
        rows = [self._measure_size(each, products) for each in sizes]
        tables = [self._measure_table(1, each) for each in sizes if each <= LARGEST_TABLE]
        tables.append(self._measure_table(batch, min(log_points, self._log_largest)))
        return CurveTimes(
            self._name,
            products,
            rows,
            tables,
            self._measure_skews(),
        )

    def _measure_size(self, log_points: int, products: float | None) -> MsmRow:
        gpu, curve, count = self._gpu, self._curve, 1 << log_points
        points, scalars = self._known.points[:count], draw_scalars(curve, count)
        elements = self._to_elements(scalars)
        begun = perf_counter()
        found = self._run(points, elements)
        first_ms = (perf_counter() - begun) * 1e3
        self._check(found, scalars)
        given = elements, gpu.asarray(elements), gpu.to_device(elements)
        times = self._time([partial(self._run, points, each) for each in given])
        device = gpu._session.device_memory
        bits = curve.order.bit_length()
        plan = plan_whole(device, curve.key, count, 1, bits, curve.glv, shares_points=True)
        assert isinstance(points.data, DeviceArray)
        digits = gpu.to_device(scalars.view(np.uint32).reshape(1, count, -1))
        taken: dict[str, list[float]] = {}
        for _ in range(self._repeats):
            for stage, seconds in _time_stages(gpu, curve, plan, points.data, digits):
                taken.setdefault(stage, []).append(seconds * 1e3)
        stages: dict[str, float] = {name: Sampled.fastest(each) for name, each in taken.items()}
        rate = plan.entries / stages["windows" if plan.in_residues else "accumulate"] * 1e3
        bound = None if products is None else bound_additions(curve, products, plan.rounds)
        plain, mapped, on_device = map(_to_ms, times)
        milliseconds = first_ms, plain, mapped, on_device
        return MsmRow(log_points, str(plan), *milliseconds, rate, bound, stages)

    def _measure_table(self, batch: int, log_points: int) -> TableRow:
        curve, count = self._curve, 1 << log_points
        points = self._known.points[:count]
        scalars = draw_scalars(curve, *([batch] if batch > 1 else []), count)
        curve.precompute(points)  # creates pipelines
        self._gpu.synchronize()
        begun = perf_counter()
        table = curve.precompute(points)
        self._gpu.synchronize()
        precompute_ms = (perf_counter() - begun) * 1e3
        elements = self._to_elements(scalars)
        self._check(self._run(table, elements), scalars)
        with_table, without = self._time(
            [partial(self._run, each, elements) for each in (table, points)]
        )
        return TableRow(
            batch,
            log_points,
            table.plan.tables,
            table.plan.window_bits,
            table.nbytes,
            precompute_ms,
            _to_ms(with_table),
            _to_ms(without),
        )

    def _measure_skews(self) -> list[SkewRow]:
        curve = self._curve
        largest = LARGEST_SKEWED_ON_CPU if self._on_cpu else LARGEST_SKEWED
        log_points = min(largest, self._log_largest)
        points = self._known.points[: 1 << log_points]
        drawn = skew_scalars(curve, 1 << log_points)
        given = [self._to_elements(each) for each in drawn.values()]
        for scalars, elements in zip(drawn.values(), given, strict=True):
            self._check(self._run(points, elements), scalars)
        random, *skewed = self._time([partial(self._run, points, each) for each in given])
        return [
            SkewRow(
                log_points,
                name,
                _to_ms(times),
                Sampled.median(a / b for a, b in zip(times, random, strict=True)),
            )
            for name, times in zip(list(drawn)[1:], skewed, strict=True)
        ]

    def _to_elements(self, scalars: Scalars) -> FieldArray:
        field = self._curve.scalar_field
        words = scalars.view(field.prime.column_dtype)
        return field.from_words(
            words.reshape(*scalars.shape[:-1], *field.prime.element_shape), "canonical"
        )

    def _run(self, points: PointArray | PointTable, scalars: FieldArray) -> PointArray:
        sums = self._curve.msm(points, scalars)
        if sums.size > FEW_SUMS:
            return sums.affine().to_host()
        return sums.to_host().affine()

    def _check(self, found: PointArray, scalars: Scalars) -> None:
        """Compare sums with multiples of the generator."""
        count = scalars.shape[-2]
        logarithms = self._known.compute_logarithms(scalars.reshape(-1, count, scalars.shape[-1]))
        if not bool((found.reshape(-1) == self._curve.generator * logarithms).all()):
            raise AssertionError(f"{self._name}: a sum of {count:,} multiples is wrong")

    @property
    def _repeats(self) -> int:
        return REPEATS_ON_CPU if self._on_cpu else REPEATS

    def _time(self, functions: Sequence[Callable[[], object]]) -> list[list[float]]:
        """The seconds of each function in interleaved rounds, after a warm-up."""
        if not self._on_cpu:
            call_for(functions[0], WARM_UP_SECONDS)
        rounds = time_interleaved(functions, min_rounds=self._repeats)
        return [list(times) for times in zip(*rounds, strict=True)]


def plan_points(curve: Curve, count: int) -> MsmPlan:
    """The plan of an MSM of points in the group of prime order, which no device changes."""
    return plan_msm(count, 1, curve.order.bit_length(), curve.glv)


def _to_ms(times: Sequence[float]) -> float:
    return Sampled.median(times) * 1e3


def skew_scalars(curve: Curve, count: int) -> dict[str, Scalars]:
    """Random scalars first, then scalars that put many points into few buckets."""
    random = draw_scalars(curve, count)
    bits = random.copy()
    bits[:, 0] &= np.uint64(1)
    bits[:, 1:] = 0
    return {
        "random": random,
        "all equal": np.repeat(random[:1], count, axis=0),
        "all 0 or 1": bits,
        "one hot bucket": _fill_bucket(curve, random, plan_points(curve, count)),
    }


def _fill_bucket(curve: Curve, random: Scalars, plan: MsmPlan) -> Scalars:
    """Scalars whose lowest digit is 1, and whose other digits are random."""
    digit = np.uint64((1 << plan.window_bits) - 1)
    scalars = random.copy()
    scalars[:, 0] = scalars[:, 0] & ~digit | np.uint64(1)
    if plan.glv is None:
        return scalars
    # The digits are those of halves, so k1 has this digit, and k2 is random.
    most = (1 << plan.glv.scalar_bits - 3) - 1
    words = (each.view(np.uint32).astype(np.uint64) for each in (scalars, random))
    k1, k2 = (_to_ints(each[None])[0] for each in words)
    eigenvalue, order, nbytes = plan.glv.eigenvalue, curve.order, random.shape[1] * 8
    numbers = ((a & most) + (b & most) * eigenvalue for a, b in zip(k1, k2, strict=True))
    text = b"".join((each % order).to_bytes(nbytes, "little") for each in numbers)
    return np.frombuffer(text, np.uint64).reshape(random.shape)


def draw_scalars(curve: Curve, *shape: int) -> Scalars:
    """Return canonical words of random scalars with a bit less than the order."""
    prime = curve.scalar_field.prime
    drawn = np.random.default_rng(7).bytes(int(np.prod(shape)) * prime.element_bytes)
    words = np.frombuffer(drawn, np.uint64).reshape(*shape, -1).copy()
    bits = prime.bits - 1 - 64 * (words.shape[-1] - 1)
    words[..., -1] &= np.uint64((1 << bits) - 1)
    return words


def _time_stages(
    gpu: PersistentVulkanBackend,
    curve: Curve,
    plan: MsmPlan,
    points: DeviceArray,
    scalars: DeviceArray,
) -> Iterator[tuple[str, float]]:
    """Run the stages of an MSM, each by itself; yields their seconds."""
    device = gpu._session.device_memory
    result = make_points(device, curve.key, plan.batch)

    def wait(begun: float) -> float:
        gpu.synchronize()
        return perf_counter() - begun

    gpu.synchronize()
    begun = perf_counter()
    if plan.in_residues:
        few = ResidueMsm(device, curve.key, plan)
        steps = few.make_multiples(points), few.add_windows(scalars), few.join(result)
        for stage, each in zip(("multiples", "windows", "join"), steps, strict=True):
            begun = perf_counter()
            device.submit(each)
            yield stage, wait(begun)
        return
    msm = Msm(device, curve.key, plan)
    table = msm.convert(points)
    yield "limb form", wait(begun)
    begun = perf_counter()
    digits = msm.split_scalars(scalars, *msm.make_entries())
    yield "digits", wait(begun)
    begun = perf_counter()
    entries = msm.sort(*digits)
    yield "sort", wait(begun)
    sums = msm.make_sums()
    gpu.synchronize()
    begun = perf_counter()
    msm.accumulate(*entries, table, msm.find_pairs(*entries), sums)
    yield "accumulate", wait(begun)
    begun = perf_counter()
    msm.combine(sums)
    msm.submit()
    yield "combine", wait(begun)
    begun = perf_counter()
    windows = msm.reduce(sums.buckets)
    msm.submit()
    yield "reduce", wait(begun)
    begun = perf_counter()
    msm.join(windows, result)
    msm.submit()
    yield "join", wait(begun)
