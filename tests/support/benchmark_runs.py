"""A run of all benchmarks with fixed figures, as of a discrete GPU with three queues."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpu_executor.bench.batch import BatchRow, BatchTimeline, HotPath, TimelineSpan
from gpu_executor.bench.buckets import (
    NOTHING,
    AdapterInfo,
    BatchPhases,
    BucketRow,
    Savings,
    SingleTaskRow,
    Spread,
)
from gpu_executor.bench.executor_jobs import ExecutorMeasurement
from gpu_executor.bench.fields import FieldRow, StreamedOperation
from gpu_executor.bench.first_call import FirstCallTimes
from gpu_executor.bench.groth16 import CIRCUITS, CommandTimes, Groth16Row
from gpu_executor.bench.groth16_peers import ProverPeerRow, ProverPeerState
from gpu_executor.bench.groth16_stages import ProofStageRow
from gpu_executor.bench.hash_bounds import ChainRate
from gpu_executor.bench.hash_peers import HashPeerRow
from gpu_executor.bench.hashes import HashRow, TreeRow
from gpu_executor.bench.kzg import FUNCTIONS, KzgRow, StageRow
from gpu_executor.bench.measurement import Measurement, Target
from gpu_executor.bench.msm import CurveTimes, MsmRow, SkewRow, TableRow
from gpu_executor.bench.overhead import KernelRate, Overhead
from gpu_executor.bench.peers import FirstCall, PeerRow, PeerState
from gpu_executor.bench.persistent import PathTimes, PersistentRow
from gpu_executor.bench.product_comparison import ProductComparison, ProductTime
from gpu_executor.bench.program_comparison import ProgramRow, ProgramState
from gpu_executor.bench.results import BenchmarkResult, BenchmarkRun, describe_environment
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.stream import CopyRate, StreamMeasurement, StreamRate
from gpu_executor.bench.suite import (
    BatchMeasurement,
    BucketMeasurement,
    ExecutorTimes,
    FieldMeasurement,
    Groth16Measurement,
    HashMeasurement,
    KzgMeasurement,
    MsmMeasurement,
    PeersMeasurement,
    PersistentMeasurement,
    StreamedAdditions,
    TransformMeasurement,
)
from gpu_executor.bench.transform_comparison import TransformComparison
from gpu_executor.bench.transforms import TransformRow
from gpu_executor.device_info import DeviceInfo
from gpu_executor.vulkan.instance import find_devices

CALL_STAGES = ("setup", "pipeline", "descriptors", "recording", "upload", "compute", "download")
MSM_STAGES = ("limb form", "digits", "sort", "accumulate", "combine", "reduce", "join")
SIZES = (64, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 20, 1 << 22)

FIGURES = [
    "calls-by-size",
    "path-crossover",
    "batch-speed-up",
    "timeline",
    "stream-rates",
    "call-stages",
    "bucket-batches",
    "field-bandwidth",
    "roofline-bls12_381_fq",
    "roofline-bls12_381_fr",
    "transforms-by-size",
    "transforms-beside-others",
    "msm-by-size",
    "msm-bound",
    "msm-stages",
    "kzg-commitments",
    "kzg-cells-and-proofs",
    "kzg-stages",
    "groth16-by-size",
    "groth16-keys",
    "groth16-memory",
    "groth16-stages",
    "groth16-products",
    "hash-rates",
    "hash-transfers",
    "hash-trees",
    "executor-calls",
    "peers-sum",
    "peers-batch-of-sums",
    "peers-point-sum",
    "peers-first-sum",
    "peers-first-products",
    "programs-msm",
]
"""The ids of figures that the report of `make_run()` has."""


def make_run() -> BenchmarkRun:
    """All benchmarks, measured."""
    device = dataclasses.replace(find_devices()[0], name="Fictitious GPU", kind="discrete")
    measured: dict[str, Measurement] = {
        "persistent": _make_persistent(device),
        "batch": _make_batch(device),
        "stream": _make_stream(device),
        "buckets": _make_buckets(),
        "fields": _make_fields(device),
        "ntt": _make_transforms(device),
        "msm": _make_msm(device),
        "kzg": _make_kzg(device),
        "groth16": make_groth16(device),
        "hashes": make_hashes(device),
        "executor": ExecutorTimes(
            device,
            ExecutorMeasurement(50.0, 60.0, 115.0, 90.0, 100.0, 8_000.0, 16_000.0),
            targets=[Target("run, added to a direct call", 10, 20, "us", at_most=True)],
        ),
        "peers": _make_peers(device),
    }
    run = BenchmarkRun(describe_environment(device))
    for name, each in measured.items():
        run.benchmarks[name] = BenchmarkResult.of(each, 12.5)
    return run


def _vary(value: float) -> Sampled:
    """A median of samples around the value."""
    return Sampled.median([0.9 * value, 0.97 * value, value, 1.05 * value, 1.3 * value])


def _make_persistent(device: DeviceInfo) -> PersistentMeasurement:
    def make_path(size: int, fixed_ms: float, per_million: float) -> PathTimes:
        call = fixed_ms + size / 1e6 * per_million
        stages = dict.fromkeys(CALL_STAGES, 0.0)
        stages |= {"upload": 0.3 * call, "compute": 0.5 * call, "download": 0.2 * call}
        return PathTimes(300.0, 3.0, _vary(call), 354 / call, size / call * 1e3, stages)

    rows = [
        PersistentRow(
            size,
            _vary(354.0 + size / 1e5),
            {"setup": 300.0, "pipeline": 40.0, "compute": 14.0},
            make_path(size, 0.028, 30.0),
            make_path(size, 0.045, 8.0),
            26.9 if size == 64 else None,
        )
        for size in SIZES
    ]
    return PersistentMeasurement(
        device,
        rows,
        [Overhead("call of 64 elements", 28.0, 20.0, "commands alone", "us", 1.5)],
        [KernelRate("bls12_381_fq_add", 1 << 24, 2.3e10, 3.3e12)],
        FirstCallTimes(500.0, 100.0, 400.0, 20.0, 4_096),
        targets=[],
    )


def _make_batch(device: DeviceInfo) -> BatchMeasurement:
    rows = [
        BatchRow(
            size,
            jobs,
            arrays,
            _vary(2.0 * jobs),
            _vary(2.0 * jobs / speed_up),
            _vary(2.0 * jobs / speed_up),
            2.0 / speed_up,
            _vary(speed_up),
            1.0,
            None,
        )
        for size in (1 << 14, 1 << 16, 1 << 18, 1 << 20)
        for arrays in ("plain", "mapped")
        for jobs in (2, 3, 4, 8, 16)
        for speed_up in (0.9 + 0.1 * jobs / (1 if arrays == "plain" else 2),)
    ]
    timelines = [_make_timeline("sequential", 50.0), _make_timeline("pipelined", 20.0)]
    return BatchMeasurement(device, rows, [HotPath("one", 1, 10.0, 5.0, 15.0)], timelines)


def _make_timeline(mode: str, step: float) -> BatchTimeline:
    """Five stages of ten microseconds each; a job begins after a number of microseconds."""
    tracks = {
        "fill": "host Thread-1 (_run_tasks)",
        "copy in": "upload queue",
        "compute": "compute queue",
        "copy out": "download queue",
        "drain": "host MainThread",
    }
    spans = [
        TimelineSpan(track, stage, job, job * step + 10 * index, job * step + 10 * index + 9)
        for job in range(8)
        for index, (stage, track) in enumerate(tracks.items())
    ]
    return BatchTimeline(mode, 1 << 20, 8, spans)


def _make_stream(device: DeviceInfo) -> StreamedAdditions:
    copies = [
        CopyRate("both at once", 380e6, 36e9, 18e9),
        CopyRate("in alone", 500e6, 48e9, 0.0),
        CopyRate("out alone", 1_000e6, 0.0, 48e9),
    ]
    streams = [
        StreamRate("mapped", _vary(44.0), _vary(376e6), _vary(0.99)),
        StreamRate("plain, into an array", _vary(105.0), _vary(160e6), _vary(0.42)),
        StreamRate("plain, new results", _vary(110.0), _vary(152e6), _vary(0.4)),
    ]
    return StreamedAdditions(device, StreamMeasurement(1 << 24, 1 << 19, copies, streams))


def _make_buckets() -> BucketMeasurement:
    spread = Spread(1.4, 1.5, 1.6)
    rows = [
        BucketRow(
            name,
            (1024,),
            9,
            _vary(13.0),
            _vary(3.0),
            _vary(1.6),
            _vary(2.3),
            _vary(1.2),
            spread,
            spread,
            2.5,
            1.35,
            Savings(9.0, 1.0, 0.5, 2.0),
            1,
            BatchPhases(1.0, 0.2, 2.0),
            NOTHING,
        )
        for name in ("4 x 32 K", "20/25/30/28 K", "100 of 1-200 K")
    ]
    single = SingleTaskRow(True, 300.0, 330.0, 500.0, 530.0, 0.6, 0.6, NOTHING)
    return BucketMeasurement(
        AdapterInfo("Fictitious GPU", "discrete", "Vulkan", "0"), rows, [single]
    )


def _make_fields(device: DeviceInfo) -> FieldMeasurement:
    def make_operation(per_second: float, nbytes: float) -> StreamedOperation:
        rate = per_second * nbytes
        return StreamedOperation(_vary(per_second), _vary(rate), rate / 4.1e12)

    rows = [
        FieldRow(
            name,
            bits,
            1 << 24,
            _vary(4.1e12),
            make_operation(2.5e12 / (3 * size), 3 * size),
            make_operation(1.9e12 / (2 * size), 2 * size),
            make_operation(3.4e12 / (3 * size), 3 * size),
            1e10,
            9e9,
            1 << 22,
            _vary(0.7),
            chains,
            7e10,
        )
        for name, bits, size, chains in (
            ("bls12_381_fq", 381, 48, 2.6e10),
            ("bls12_381_fr", 255, 32, 6.5e10),
            ("goldilocks", 64, 8, None),
        )
    ]
    products = ProductComparison(
        1 << 20, [ProductTime("gpu.run", "words", 6.0, 1e8, 1.0)], ["galois"]
    )
    return FieldMeasurement(device, rows, products, targets=[])


def _make_transforms(device: DeviceInfo) -> TransformMeasurement:
    by_field = [
        [
            _make_transform(name, log_n, per_element * (1 << log_n) * log_n)
            for log_n in range(10, 25, 2)
        ]
        for name, per_element in (("bls12_381_fr", 1.8e-8), ("goldilocks", 1.2e-8))
    ]
    duel = TransformComparison("ckzg", "64 blobs extended", 530.0, 5.0, 106.0)
    return TransformMeasurement(device, by_field, [duel], ["galois"], targets=[])


def _make_transform(field: str, log_n: int, milliseconds: float) -> TransformRow:
    taken, from_host = _vary(milliseconds), _vary(4 * milliseconds + 0.1)
    names = [each.name for each in dataclasses.fields(TransformRow)]
    alone = {
        name: 0.5 * milliseconds for name in names if name.endswith(("_alone_ms", "_copies_ms"))
    }
    return TransformRow(
        field,
        log_n,
        1,
        to_reversed_ms=taken,
        to_natural_ms=taken,
        back_from_reversed_ms=taken,
        back_from_natural_ms=taken,
        numpy_ms=from_host,
        mapped_ms=from_host,
        lde_ms=2 * taken,
        poly_mul_ms=3 * taken,
        **alone,
    )


def _make_msm(device: DeviceInfo) -> MsmMeasurement:
    curves = [
        CurveTimes(
            curve,
            2.6e10,
            [
                MsmRow(
                    log_points,
                    "a plan",
                    900.0,
                    _vary(0.8 + slope * (1 << log_points)),
                    0.8,
                    0.7,
                    _vary(2.1e9),
                    2.6e9,
                    dict.fromkeys(MSM_STAGES, 1.5),
                )
                for log_points in (10, 12, 16, 20, 22)
            ],
            [TableRow(1, 10, 16, 16, 1 << 20, 5.0, 0.5, 0.9)],
            [SkewRow(16, "all equal", 9.0, 1.5)],
        )
        for curve, slope in (("BLS12_381_G1", 1e-5), ("BN254_G1", 4e-6))
    ]
    target = Target("BLS12_381_G1, 2^22", 43, 45, "ms", at_most=True)
    return MsmMeasurement(device, curves, {}, targets=[target])


def _make_kzg(device: DeviceInfo) -> KzgMeasurement:
    rows = [
        KzgRow(function, blobs, 900.0, _vary(3.0 + 0.4 * blobs), 150.0, 20.0 * blobs)
        for blobs in (1, 6, 72)
        for function in FUNCTIONS
    ]
    stages: Any = {"columns": 1.0, "fixed sets": 20.0, "convolution": 8.0}
    stage_rows = [StageRow(72, stages, {}, 10, 2e10)]
    return KzgMeasurement(device, rows, stage_rows, 2.6e10, targets=[])


PROOF_STAGES = {
    "signals": 0.1,
    "quotient": 0.6,
    "digits, sort": 0.4,
    **dict.fromkeys(("accumulate A", "accumulate C", "accumulate B1", "accumulate H"), 1.0),
    "accumulate B2": 4.0,
    "reduce, join": 0.9,
}
"""Tenths of the time of a proof."""


def make_groth16(device: DeviceInfo) -> Groth16Measurement:
    """Proofs of two circuits, beside snarkjs."""
    rows, stages, peers = [], [], []
    for log in (12, 16, 20):
        count = 1 << log
        for circuit, factor in zip(CIRCUITS, (1.0, 0.6), strict=True):
            ms = factor * (4.0 + count / 25e3)
            rows.append(
                Groth16Row(
                    "bn128",
                    circuit,
                    log,
                    signals=count,
                    setup_ms=90.0 + count / 4e2,
                    save_ms=5.0 + count / 1e3,
                    load_ms=_vary(30.0 + count / 4e3),
                    first_ms=900.0,
                    ms=_vary(ms),
                    best_ms=0.9 * ms,
                    batch=8,
                    batch_ms=0.8 * ms,
                    verify_ms=20.0,
                    file_bytes=700 * count,
                    key_bytes=900 * count,
                    device_bytes=2_000 * count,
                )
            )
            taken = {name: share * ms / 10 for name, share in PROOF_STAGES.items()}
            alone = {name: 0.7 * taken[name] for name in ("quotient", "accumulate B2")}
            uniform = circuit == "uniform"
            own = ProofStageRow("bn128", circuit, log, 0.9 * ms, taken, alone if uniform else {})
            stages.append(own)
            where = "snarkjs", "bn128", circuit, log
            peers.append(
                ProverPeerRow(*where, _vary(300 + count / 70), None)
                if log < 20
                else ProverPeerRow(*where, None, "node took more than 600 s")
            )
    states = [
        ProverPeerState("snarkjs", "0.7.6, Node 20.1.0", None),
        ProverPeerState("rapidsnark", None, "not found"),
    ]
    command = CommandTimes("bn128", 16, 4_000.0, 900.0)
    return Groth16Measurement(device, rows, stages, peers, states, command, targets=[])


def make_hashes(device: DeviceInfo) -> HashMeasurement:
    """Two hash functions, a large message and trees, beside hashlib."""

    def make_row(name: str, what: str, length: int, rows: int, rate: float) -> HashRow:
        return HashRow(
            hash=name,
            what=what,
            length=length,
            unit="bytes" if what != "permutation" else "elements",
            rows=rows,
            operations=2_288,
            hashes_per_second=_vary(rate),
            bytes_per_second=rate * length,
            arithmetic_per_second=1.25 * rate,
            memory_per_second=4 * rate,
            of_bound=0.8,
            numpy_per_second=_vary(rate / 10),
            bus_per_second=rate / 9,
        )

    rows = [
        make_row("SHA256", "hash", 64, 1 << 24, 5e9),
        make_row("BLAKE3", "message", 1 << 30, 1, 700.0),
        make_row("Poseidon2 BabyBear 16", "permutation", 16, 1 << 22, 6e8),
    ]
    trees = [
        TreeRow("SHA256", log, _vary((1 << log) / 2e6), (1 << log) / 3e6, 0.67, 2e9)
        for log in (20, 24)
    ]
    peers = [
        HashPeerRow("SHA256", 64, "hash", "hashlib", 16, 2e7, None),
        HashPeerRow("BLAKE3", 1 << 30, "message", "blake3", 0, None, "it is not installed"),
    ]
    rates = [ChainRate("add_xor_rotate", 1.5e13), ChainRate("babybear", 1.2e12)]
    return HashMeasurement(device, rows, trees, rates, 4e12, peers, targets=[])


def _make_peers(device: DeviceInfo) -> PeersMeasurement:
    own, other, wrong = "gpu-executor", "wgpu-py", "Kompute"
    packages = [
        PeerState(own, "measured", "0.1", "a GPU", "run"),
        PeerState(other, "measured", "0.32", "a GPU", "dispatch"),
        PeerState(wrong, "failed", "0.9", reason="RuntimeError: no device"),
        PeerState("CuPy", "absent", reason="not installed; pip install cupy"),
    ]
    rows = [
        PeerRow(package, "sum", elements, 1, _vary(ms), elements / ms * 1e3, _vary(slower))
        for elements in (1 << 10, 1 << 14)
        for package, ms, slower in ((own, 0.5, 1.0), (other, 1.5, 3.0))
    ]
    rows += [
        PeerRow(own, "batch of sums", 1 << 12, 16, 4.0, 1.6e7, 1.0),
        PeerRow(other, "batch of sums", 1 << 12, 16, None, None, None, "DeviceLost: lost"),
        PeerRow(own, "point sum", 1, 1, 20.0, 50.0, 1.0),
    ]
    first_calls = [
        FirstCall(own, "sum", _vary(800.0), 120_000_000),
        FirstCall(other, "sum", 2_000.0, None),
        FirstCall(own, "products", 900.0, 130_000_000),
        FirstCall("galois", "products", 5_000.0, None),
    ]
    left_out = {"commitments": "not installed: eth_account"}
    program = "others 1.2"
    programs = [
        ProgramState(program, "measured", "others", "1.2", "a GPU"),
        ProgramState("other.py", "failed", reason="ended with exit code 1"),
    ]
    of = "msm", "scalars on the device", None, "BN254_G1"
    program_rows = [
        ProgramRow(
            package,
            *of,
            elements,
            "measured",
            checked=package == own,
            ms=_vary(ms * slower),
            per_second=elements / (ms * slower) * 1e3,
            slower=_vary(slower),
        )
        for elements, ms in ((1 << 16, 2.0), (1 << 20, 6.0))
        for package, slower in ((own, 1.0), (program, 2.0))
    ]
    for curve in ("BN254_G1", "BLS12_381_G1"):
        large = "msm", "scalars on the device", None, curve, 1 << 22
        alone = ProgramRow(own, *large, "measured", checked=True, ms=20.0, per_second=2e8)
        reason = "too many points"
        program_rows += [
            alone,
            ProgramRow(program, *large, "unsupported", checked=False, reason=reason),
        ]
    return PeersMeasurement(
        device,
        packages,
        rows,
        left_out,
        first_calls,
        programs=programs,
        program_rows=program_rows,
    )
