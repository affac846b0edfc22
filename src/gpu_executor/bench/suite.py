"""All benchmarks of `gpu-executor bench all`: what each measures in full and in a quick run.

A function `measure_*` makes all measurements of one benchmark and returns them as one
`Measurement`. The single commands call the same functions.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gpu_executor import kzg as kzg_package
from gpu_executor.bench import (
    batch,
    buckets,
    curve_pipelines,
    executor_jobs,
    fields,
    first_call,
    groth16,
    groth16_peers,
    groth16_stages,
    hash_bounds,
    hash_peers,
    hashes,
    kzg,
    msm,
    overhead,
    peers,
    persistent,
    product_comparison,
    program_comparison,
    stream,
    transform_comparison,
    transforms,
)
from gpu_executor.bench.measurement import Measurement
from gpu_executor.bench.program_works import ProgramOperation
from gpu_executor.bench.results import BenchmarkResult
from gpu_executor.bench.timing import DEFAULT_BUDGET, TimingBudget
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import format_install_command
from gpu_executor.fields import BABYBEAR, BLS12_381_FQ, BLS12_381_FR, GOLDILOCKS, Field
from gpu_executor.groth16.proof_curve import get_proof_curve
from gpu_executor.settings import Settings
from gpu_executor.vulkan.instance import Instance, choose_device
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

Item = TypeVar("Item")


class Watch(Protocol):
    """Yields the items and shows a progress bar; `total` is their number."""

    def __call__(self, items: Iterable[Item], total: int, what: str) -> Iterator[Item]: ...


QUICK_BUDGET = TimingBudget(warm_up=0.1, round=0.01, max_rounds=5, per_function=0.1)
QUICK_FIELDS = (BLS12_381_FQ, BLS12_381_FR, GOLDILOCKS, BABYBEAR)
QUICK_TRANSFORMED = (BLS12_381_FR, BABYBEAR)
QUICK_SIZES = (64, 1 << 10, 1 << 12, 1 << 14, 1 << 16)
QUICK_BATCH_SIZES, QUICK_JOBS = (1 << 12, 1 << 14, 1 << 16), (2, 4, 8)
QUICK_SECONDS = 0.3
"""The time of each size, batch or scenario in a quick run."""
QUICK_ROUNDS = 5
"""The least number of rounds of a batch in a quick run."""
QUICK_STREAM = 1 << 18, 5
"""Elements and rounds."""
QUICK_TRANSFORMS, QUICK_LARGEST_MSM = (8, 12), 6
"""log2 of the sizes of transforms, and of the largest sum, on a software device."""
QUICK_SCENARIOS = 5
"""Scenarios of size buckets: the last ones are the largest."""
QUICK_KZG = ("commitments", "cells", "verification of blobs")
"""Functions that compile few pipelines."""

QUICK_PROOFS, QUICK_PROOFS_ON_CPU = (12, 16), (6,)
"""log2 of the numbers of constraints; on CPUs with a uniform witness only."""


QUICK_HASHES = ("SHA256", "KECCAK256", "BLAKE3", "Poseidon2 BabyBear 16")


def select_device() -> DeviceInfo:
    """Return the device that backends open: the best, or the one that GPU_DEVICE selects."""
    instance = Instance()
    try:
        return choose_device(instance.devices(), Settings.from_environment().device)[1]
    finally:
        instance.close()


@dataclass(frozen=True)
class PersistentMeasurement(Measurement):
    """One-shot and persistent calls, their references, kernels alone, first calls."""

    rows: list[persistent.PersistentRow]
    ratios: list[overhead.Overhead]
    rates: list[overhead.KernelRate]
    first_call_of_a_process: first_call.FirstCallTimes

    def list_tables(self) -> dict[str, Any]:
        ratios = [dataclasses.asdict(each) | {"ratio": each.ratio} for each in self.ratios]
        return super().list_tables() | {"ratios": ratios}


def measure_persistent(watch: Watch, *, quick: bool = False) -> PersistentMeasurement:
    """Measure calls by size, then their references, kernels and the first call of a process."""
    settings = Settings.from_environment()
    sizes = QUICK_SIZES if quick else persistent.SIZES
    budget = QUICK_SECONDS if quick else persistent.BUDGET
    rows = watch((persistent.measure_size(each, budget) for each in sizes), len(sizes), "sizes")
    measures: list[Callable[[Settings], overhead.Overhead]] = [
        overhead.measure_small_call,
        *(partial(overhead.measure_planned_call, count=count) for count in overhead.PLANNED),
        overhead.measure_medium_call,
    ]
    calls = list(watch((each(settings) for each in measures), len(measures), "references"))
    rates = watch(overhead.measure_kernel_rates(settings), 6, "kernels")
    pairs = 1 if quick else first_call.PROCESSES
    device = select_device()
    return PersistentMeasurement(
        device,
        list(rows),
        calls,
        list(rates),
        first_call.measure_first_calls(pairs),
        targets=overhead.check_targets(calls, device),
    )


@dataclass(frozen=True)
class BatchMeasurement(Measurement):
    """Batches by size and number of jobs, the host time of a chunk, and timelines."""

    rows: list[batch.BatchRow]
    hot_path: list[batch.HotPath]
    timelines: list[batch.BatchTimeline]


def measure_batches(
    watch: Watch, *, quick: bool = False, all_sizes: bool = False
) -> BatchMeasurement:
    """Measure the host time of a chunk, then batches; record the timeline of a batch."""
    with PersistentVulkanBackend() as gpu:
        hot_path = batch.measure_hot_path(gpu)
        sizes = batch.choose_sizes(gpu.device, all_sizes=all_sizes)
        if quick:
            sizes = [(size, jobs) for size in QUICK_BATCH_SIZES for jobs in QUICK_JOBS]
        limits = (QUICK_SECONDS, QUICK_ROUNDS) if quick else (batch.ROW_SECONDS, batch.MIN_ROUNDS)
        rows = watch(batch.measure_batches(gpu, sizes, *limits), 2 * len(sizes), "batches")
        measured = list(rows)
    timelines = batch.record_timelines(gpu.device)
    return BatchMeasurement(gpu.device, measured, hot_path, timelines)


@dataclass(frozen=True)
class StreamedAdditions(Measurement):
    """Streamed additions and copies alone."""

    device: DeviceInfo
    measured: stream.StreamMeasurement

    def list_tables(self) -> dict[str, Any]:
        return dataclasses.asdict(self.measured)


def measure_stream(
    watch: Watch, *, quick: bool = False, count: int | None = None
) -> StreamedAdditions:
    """Measure additions of `count` elements, and copies of the same bytes."""
    with PersistentVulkanBackend() as gpu:
        elements, rounds = count or stream.choose_count(gpu.device), stream.ROUNDS
        if quick:
            elements, rounds = QUICK_STREAM
        measured = stream.measure_streams(
            gpu, elements, lambda each: watch(each, rounds, "rounds"), rounds
        )
        return StreamedAdditions(gpu.device, measured)


@dataclass(frozen=True)
class BucketMeasurement(Measurement):
    """Batches on WebGPU with and without size buckets, and single tasks."""

    device: buckets.AdapterInfo
    rows: list[buckets.BucketRow]
    singles: list[buckets.SingleTaskRow]

    def list_tables(self) -> dict[str, Any]:
        singles = [dataclasses.asdict(each) | {"tail": each.tail} for each in self.singles]
        return {"rows": self.rows, "singles": singles}


def measure_buckets(watch: Watch, *, quick: bool = False) -> BucketMeasurement:
    """Measure every scenario, then single tasks."""
    seconds = (QUICK_SECONDS,) * 2 if quick else (buckets.ROW_SECONDS, buckets.SINGLE_SECONDS)
    with buckets.open_setup() as setup:
        scenarios = buckets.SCENARIOS[:QUICK_SCENARIOS] if quick else buckets.SCENARIOS
        measured = buckets.measure_batches(setup, scenarios, budget=seconds[0])
        rows = list(watch(measured, len(scenarios), "batches"))
        singles = buckets.measure_single_tasks(setup, budget=seconds[1])
        return BucketMeasurement(setup.adapter, rows, singles)


@dataclass(frozen=True)
class FieldMeasurement(Measurement):
    """Operations of fields, and products of other packages."""

    rows: list[fields.FieldRow]
    products: product_comparison.ProductComparison


def measure_fields(
    watch: Watch, *, quick: bool = False, count: int | None = None
) -> FieldMeasurement:
    """Measure every field, then `count` products beside other packages."""
    with PersistentVulkanBackend() as gpu:
        chosen, budget = (QUICK_FIELDS, QUICK_BUDGET) if quick else (fields.FIELDS, DEFAULT_BUDGET)
        measured = fields.measure_fields(gpu, fields.choose_sizes(gpu.device), chosen, budget)
        rows = list(watch(measured, len(chosen), "fields"))
        count = count or product_comparison.choose_count(gpu.device)
        products = product_comparison.compare_products(gpu, count)
    targets = [
        *fields.check_targets(rows, gpu.device),
        *product_comparison.check_targets(products, gpu.device),
    ]
    return FieldMeasurement(gpu.device, rows, products, targets=targets)


@dataclass(frozen=True)
class TransformMeasurement(Measurement):
    """Number-theoretic transforms, and those of other packages."""

    by_field: list[list[transforms.TransformRow]]
    comparisons: list[transform_comparison.TransformComparison]
    absent: list[str]
    """Packages that are not installed."""

    @property
    def rows(self) -> list[transforms.TransformRow]:
        return [row for rows in self.by_field for row in rows]

    def list_tables(self) -> dict[str, Any]:
        growth = transforms.compute_growth(self.rows)
        return {
            "rows": [
                dataclasses.asdict(row) | {"growth": grown}
                for row, grown in zip(self.rows, growth, strict=True)
            ],
            "duels": self.comparisons,
            "absent": self.absent,
        }


def measure_transforms(
    watch: Watch, *, quick: bool = False, largest: int | None = None
) -> TransformMeasurement:
    """Measure every field up to 2^largest elements, then compare with other packages."""
    with PersistentVulkanBackend() as gpu:
        chosen: Sequence[Field] = transforms.FIELDS
        budget = transforms.BUDGET
        if quick:
            chosen, budget = QUICK_TRANSFORMED, QUICK_BUDGET
        sizes = transforms.choose_sizes(gpu.device, largest)
        if quick and gpu.device.kind == "cpu":
            sizes = [transforms.TransformSize(log_n) for log_n in QUICK_TRANSFORMS]
        measured = transforms.measure_transforms(gpu, sizes, chosen, budget)
        by_field = list(watch(measured, len(chosen), "fields"))
        # ckzg takes 10 s to load its setup, and the benchmark of KZG compares with it too.
        packages = ("galois",) if quick else transform_comparison.PACKAGES
        comparisons, absent = transform_comparison.compare_transforms(
            gpu, transform_comparison.choose_sizes(gpu.device), packages=packages
        )
    rows = [row for field_rows in by_field for row in field_rows]
    targets = transforms.check_targets(rows, gpu.device)
    return TransformMeasurement(gpu.device, by_field, comparisons, absent, targets=targets)


@dataclass(frozen=True)
class MsmMeasurement(Measurement):
    """Multi-scalar multiplications, and compile times on a software device."""

    curves: list[msm.CurveTimes]
    compile_s: dict[str, dict[str, float]]
    """Seconds by curve and pipeline."""


def measure_msms(
    watch: Watch,
    *,
    quick: bool = False,
    largest: int | None = None,
    curves: Sequence[str] = msm.CURVES,
) -> MsmMeasurement:
    """Measure the curves up to 2^largest points. A quick run compiles no pipelines twice."""
    with PersistentVulkanBackend() as gpu:
        on_cpu = gpu.device.kind == "cpu"
        if quick:
            curves, largest = msm.CURVES[:1], QUICK_LARGEST_MSM if on_cpu else None
        begun = msm.measure_msms(gpu, msm.choose_sizes(gpu.device, largest), curves)
        measured = list(watch(begun, len(curves), "curves"))
    targets = msm.check_targets(measured, gpu.device)
    compiled: dict[str, dict[str, float]] = {}
    if on_cpu and not quick:
        timed = curve_pipelines.measure_compile_times(curves)
        compiled.update(zip(curves, watch(timed, len(curves), "pipelines"), strict=True))
        for curve, seconds in compiled.items():
            targets += curve_pipelines.check_targets(curve, seconds)
    return MsmMeasurement(gpu.device, measured, compiled, targets=targets)


@dataclass(frozen=True)
class KzgMeasurement(Measurement):
    """KZG functions by batch size, and the stages of cells with proofs."""

    rows: list[kzg.KzgRow]
    stages: list[kzg.StageRow]
    device_products_per_second: float | None
    """Products in chains; None if no stages were measured."""


def measure_kzg(
    watch: Watch,
    *,
    quick: bool = False,
    path: Path | None = None,
    batches: Sequence[int] = (),
    functions: Sequence[str] = (),
    peer: bool = True,
) -> KzgMeasurement:
    """Measure the functions, all by default, with the setup of a file, or else mainnet's."""
    with (
        PersistentVulkanBackend() as gpu,
        kzg_package.load_trusted_setup(path, device=gpu) as setup,
    ):
        on_cpu = gpu.device.kind == "cpu"
        sizes = batches or (kzg.BATCHES_ON_CPU if on_cpu else kzg.BATCHES)
        chosen = functions or (QUICK_KZG if quick and on_cpu else tuple(kzg.FUNCTIONS))
        with kzg.open_peer(path, all_cores=not quick) if peer else nullcontext() as other:
            measured = kzg.measure_kzg(setup, sizes, other, chosen)
            times = list(watch(measured, len(sizes), "batches"))
        stages = [each.stages for each in times if each.stages is not None]
        rate = kzg.measure_product_rate(gpu) if stages else None
    rows = [row for each in times for row in each.rows]
    targets = kzg.check_targets(rows, gpu.device)
    return KzgMeasurement(gpu.device, rows, stages, rate, targets=targets)


@dataclass(frozen=True)
class Groth16Measurement(Measurement):
    """Groth16 proofs by circuit, their stages, other provers, and a process of its own."""

    rows: list[groth16.Groth16Row]
    stages: list[groth16_stages.ProofStageRow]
    peers: list[groth16_peers.ProverPeerRow]
    packages: list[groth16_peers.ProverPeerState]
    """All peers; those that are absent too."""
    command: groth16.CommandTimes | None
    """None in a quick run."""


def measure_groth16(
    watch: Watch,
    *,
    quick: bool = False,
    curve: str = "bn128",
    sizes: Sequence[int] = (),
    circuits: Sequence[str] = (),
    snarkjs: Path | None = None,
    rapidsnark: Path | None = None,
    peer: bool = True,
) -> Groth16Measurement:
    """Measure circuits of so many constraints, given by their log2, then a process of its own."""
    own = get_proof_curve(curve)
    with PersistentVulkanBackend() as gpu:
        on_cpu = gpu.device.kind == "cpu"
        quick_sizes = QUICK_PROOFS_ON_CPU if on_cpu else QUICK_PROOFS
        logs = sizes or (quick_sizes if quick else groth16.choose_sizes(gpu.device))
        names = circuits or tuple(groth16.CIRCUITS)[: 1 if quick and on_cpu else None]
        found, states = groth16_peers.find_peers(snarkjs, rapidsnark, wanted=peer)
        rates = groth16_stages.measure_rates(gpu, own)
        begun = groth16.measure_proofs(gpu, own, logs, names, found, rates)
        times = list(watch(begun, len(logs) * len(names), "circuits"))
        command = None
        if not quick:
            log = groth16.COMMAND_SIZE_ON_CPU if on_cpu else groth16.COMMAND_SIZE
            (command,) = watch((groth16.measure_command(gpu, own, log) for _ in "1"), 1, "command")
    rows = [each.row for each in times]
    return Groth16Measurement(
        gpu.device,
        rows,
        [each.stages for each in times if each.stages is not None],
        [row for each in times for row in each.peers],
        states,
        command,
        targets=groth16.check_targets(rows, gpu.device),
    )


@dataclass(frozen=True)
class HashMeasurement(Measurement):
    """Hash functions and Merkle trees, the rates of chains, and other packages."""

    rows: list[hashes.HashRow]
    trees: list[hashes.TreeRow]
    rates: list[hash_bounds.ChainRate]
    """Operations per second in registers."""
    copy_bytes_per_second: float
    """Bytes that a copy kernel reads and writes."""
    peers: list[hash_peers.HashPeerRow]


def measure_hashes(
    watch: Watch,
    *,
    quick: bool = False,
    names: Sequence[str] = (),
    lengths: Sequence[int] = (),
    trees: Sequence[int] = (),
    peer: bool = True,
) -> HashMeasurement:
    """Measure hash functions with rows of so many bytes, trees of so many leaves, given by their
    log2, then other packages on all cores."""
    chosen = tuple(names) or (QUICK_HASHES if quick else tuple(hashes.CASES))
    rows_of = tuple(lengths) or hashes.LENGTHS[: 1 if quick else None]
    with PersistentVulkanBackend() as gpu:
        sizes = hashes.choose_sizes(gpu.device)
        if trees or quick:
            sizes = dataclasses.replace(sizes, trees=tuple(trees) or sizes.trees[:1])
        rates = hash_bounds.measure_rates(
            gpu, hashes.list_fields(chosen), hash_bounds.choose_chains(gpu.device)
        )
        bench = hashes.HashBench(gpu, sizes, rates, QUICK_BUDGET if quick else DEFAULT_BUDGET)
        work = hashes.list_work(chosen, rows_of)
        rows = list(watch(bench.measure(work), len(work), "hashes"))
        built = [name for name in hashes.TREES if name in chosen]
        count = len(built) * len(sizes.trees)
        measured = list(watch(bench.measure_trees(built), count, "trees"))
    seconds = hash_peers.QUICK_SECONDS if quick else hash_peers.SECONDS
    own = [row for row in rows if peer and row.hash in hashes.BYTE_CASES]
    begun = (
        hash_peers.measure_peer(row.hash, row.length, seconds, large=row.what == "message")
        for row in own
    )
    others = list(watch(begun, len(own), "other packages"))
    targets = hashes.check_targets(rows, measured, gpu.device)
    return HashMeasurement(
        gpu.device, rows, measured, rates, bench.copy_bytes_per_second, others, targets=targets
    )


@dataclass(frozen=True)
class ExecutorTimes(Measurement):
    """GpuExecutor beside its backend."""

    calls: executor_jobs.ExecutorMeasurement


def measure_executor(_watch: Watch, *, quick: bool = False) -> ExecutorTimes:
    """Measure small calls, many jobs, and jobs of many threads."""
    device = select_device()
    measured = (
        executor_jobs.measure_executor(jobs=200, small_jobs=100, rounds=3, budget=QUICK_SECONDS)
        if quick
        else executor_jobs.measure_executor()
    )
    targets = executor_jobs.check_targets(measured, on_gpu=device.kind != "cpu")
    return ExecutorTimes(device, measured, targets=targets)


@dataclass(frozen=True)
class PeersMeasurement(Measurement):
    """This package and its peers on the same work."""

    packages: list[peers.PeerState]
    """All of them; those that are absent too."""
    rows: list[peers.PeerRow]
    left_out: dict[str, str]
    """Operations that were not measured, with the reason."""
    first_calls: list[peers.FirstCall]
    """Packages that do the same work, one after the other."""
    programs: Sequence[program_comparison.ProgramState] = ()
    """Programs of the user."""
    program_rows: Sequence[program_comparison.ProgramRow] = ()


def measure_programs(
    watch: Watch,
    commands: Sequence[Sequence[str]],
    *,
    quick: bool = False,
    operations: Sequence[ProgramOperation] = (),
    sizes: Sequence[int] = (),
    timeout: float = program_comparison.TIMEOUT,
) -> PeersMeasurement:
    """Measure what programs of the user support beside this package: of these operations, or of
    all, and of sizes given by their log2."""
    budget = program_comparison.QUICK_BUDGET if quick else program_comparison.RoundBudget()
    with (
        PersistentVulkanBackend() as gpu,
        program_comparison.OpenPrograms.start(commands, timeout) as opened,
    ):
        works = program_comparison.choose_works(
            gpu.device, opened.programs, quick=quick, operations=operations, log_sizes=sizes
        )
        measured = program_comparison.measure_works(gpu, works, opened, budget)
        rows = [row for each in watch(measured, len(works), "works") for row in each]
        return PeersMeasurement(
            gpu.device, [], [], {}, [], programs=list(opened.states), program_rows=rows
        )


def measure_peers(
    watch: Watch, *, quick: bool = False, programs: Sequence[Sequence[str]] = ()
) -> PeersMeasurement:
    """Measure all work by every package, then first calls in fresh processes, then programs of the
    user, given by their commands."""
    device = select_device()
    sizes = peers.choose_sizes(device, quick=quick)
    left_out: dict[str, str] = {}
    with peers.OpenPeers() as opened:
        works = peers.list_works(sizes, left_out)
        measured = (peers.measure_work(work, opened.programs, sizes) for work in works)
        rows = [row for each in watch(measured, peers.count_works(sizes), "works") for row in each]
    begun = peers.list_first_calls(opened.states, left_out)
    calls = (peers.measure_first_call(*each, sizes.processes) for each in begun)
    first_calls = list(watch(calls, len(begun), "first calls"))
    found = PeersMeasurement(device, opened.states, rows, left_out, first_calls)
    if not programs:
        return found
    own = measure_programs(watch, programs, quick=quick)
    return dataclasses.replace(found, programs=own.programs, program_rows=own.program_rows)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark of the suite."""

    name: str
    what: str
    measure: Callable[..., Measurement]
    """Takes a `Watch` and `quick`."""
    extra: str = ""
    """The extra of the package that the benchmark needs, or nothing."""
    modules: tuple[str, ...] = ()
    """The modules that the extra installs."""

    def list_missing(self) -> list[str]:
        """The modules that are not installed."""
        return [name for name in self.modules if importlib.util.find_spec(name) is None]

    def run(self, watch: Watch, *, quick: bool) -> BenchmarkResult:
        """Measure. A missing extra or an error is a result too: the others still run."""
        if missing := self.list_missing():
            return BenchmarkResult.without(
                "skipped",
                f"not installed: {', '.join(missing)}; {format_install_command(self.extra)}",
            )
        begun = time.perf_counter()
        try:
            measured = self.measure(watch, quick=quick)
        except Exception as error:
            seconds = time.perf_counter() - begun
            return BenchmarkResult.without("failed", f"{type(error).__name__}: {error}", seconds)
        seconds = time.perf_counter() - begun
        return BenchmarkResult.of(measured, seconds)


BENCHMARKS: Mapping[str, Benchmark] = {
    each.name: each
    for each in (
        Benchmark("persistent", "one-shot and persistent calls", measure_persistent),
        Benchmark("batch", "sequential and pipelined batches", measure_batches),
        Benchmark("stream", "streams against the bus", measure_stream),
        Benchmark("buckets", "size buckets on WebGPU", measure_buckets, "webgpu", ("wgpu",)),
        Benchmark("fields", "field operations", measure_fields),
        Benchmark("ntt", "number-theoretic transforms", measure_transforms),
        Benchmark("msm", "multi-scalar multiplications", measure_msms),
        Benchmark("kzg", "KZG functions", measure_kzg, "kzg", kzg.MODULES),
        Benchmark("groth16", "Groth16 proofs", measure_groth16),
        Benchmark("hashes", "hash functions and Merkle trees", measure_hashes),
        Benchmark("executor", "GpuExecutor beside its backend", measure_executor),
        Benchmark("peers", "other packages on the same work", measure_peers),
    )
}
