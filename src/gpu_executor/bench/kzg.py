"""KZG functions by batch size, beside ckzg on one thread and on all cores, and the stages of cells
with proofs.

ckzg is optional: without it the columns of the peer are empty.

The products of a blob's proofs are counted from the plans of its two groups of sums, the fixed
sets and the convolution. A mixed addition to a bucket takes 10 products and squares, an addition of
two buckets 14, and a doubling that makes the tables of a convolution 9. The device's products per
second come from chains of products of the same prime in the same run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor import kzg
from gpu_executor.bench import fields
from gpu_executor.bench.child_process import hide_interrupts_from_children
from gpu_executor.bench.measurement import Target, is_h200
from gpu_executor.bench.msm import PRODUCTS_PER_ADDITION
from gpu_executor.bench.timing import call_for, time_function
from gpu_executor.curves import BLS12_381_G1
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import Field, eip4844
from gpu_executor.graphs import graph
from gpu_executor.kzg.cell_proofs import plan_convolution
from gpu_executor.kzg.setup_file import find_mainnet_setup
from gpu_executor.msm.plan import ADDITIONS_PER_BUCKET, MsmPlan
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

BATCHES, BATCHES_ON_CPU = (1, 6, 21, 72, 128), (1,)
BUDGET, MIN_CALLS = 0.2, 3
"""Seconds for each function and batch, and calls at least."""
WARM_UP = 0.4
"""Seconds of calls before those, except on CPUs."""
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "commitments": kzg.blob_to_kzg_commitment_batch,
    "blob proofs": kzg.compute_blob_kzg_proof_batch,
    "verification of blobs": kzg.verify_blob_kzg_proof_batch,
    "cells": kzg.compute_cells_batch,
    "cells and proofs": kzg.compute_cells_and_kzg_proofs_batch,
    "recovery with proofs": kzg.recover_cells_and_kzg_proofs_batch,
    "verification of cells": kzg.verify_cell_kzg_proof_batch,
}
STAGED = "cells and proofs"
COLUMNS, FIXED_SETS, CONVOLUTION = "columns", "fixed sets", "convolution"
PRODUCTS_PER_BUCKET_ADDITION, PRODUCTS_PER_DOUBLING = 14, 9
"""Products and squares of XYZZ points: 12 + 2, and 6 + 3."""
MODULES = ("eth_account", "py_arkworks_bls12381")
"""The modules of the extra `kzg`: mainnet's trusted setup, and pairings."""
CELLS, CELL_BYTES, ELEMENTS = 128, 2048, 4096
PRECOMPUTE = 8
"""ckzg's tables for cell proofs; 0 is none."""
LOADING_SECONDS = 120
"""Loading a setup with these tables takes 3 s of a core."""
AIMS = {
    ("cells and proofs", 72): 35.0,
    ("cells and proofs", 21): 16.0,
    ("cells and proofs", 1): 10.0,
    ("commitments", 72): 10.0,
    ("recovery with proofs", 72): 45.0,
    ("verification of cells", 72): 15.0,
}
"""Milliseconds on an NVIDIA H200, from bytes to bytes."""
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class KzgRow:
    """One function and batch size; the attributes are the keys of the JSON files."""

    function: str
    blobs: int
    first_ms: float
    """The first call, which makes tables, compiles pipelines and records commands."""
    ms: float
    """The median of further calls, from bytes to bytes."""
    ckzg_ms: float | None
    """ckzg for one blob, on one thread; measured once, and the same for all batch sizes."""
    ckzg_all_cores_ms: float | None
    """ckzg for the batch, one process a core."""


@dataclass(frozen=True, slots=True)
class StageRow:
    """The stages of cells with proofs for one batch size; the attributes are the keys of the JSON
    files."""

    blobs: int
    stages_ms: dict[str, float]
    """The fastest of several runs of each stage, waited for by itself."""
    plans: dict[str, str]
    """How the sums of a stage are computed."""
    products: int
    """Products modulo the prime of the points in the sums of fixed sets and of the convolution."""
    products_per_second: float
    """In these two stages."""


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """All measurements of one batch size."""

    rows: list[KzgRow]
    stages: StageRow | None
    """None if cells with proofs were not measured."""


class Inputs:
    """Random blobs, with what the functions need, computed when a function asks for it."""

    def __init__(self, setup: kzg.TrustedSetup, count: int) -> None:
        self._setup = setup
        self.blobs = draw_blobs(count)

    @functools.cached_property
    def commitments(self) -> Bytes:
        return kzg.blob_to_kzg_commitment_batch(self.blobs, self._setup)

    @functools.cached_property
    def cells(self) -> Bytes:
        return kzg.compute_cells_batch(self.blobs, self._setup)

    @functools.cached_property
    def proofs(self) -> Bytes:
        return kzg.compute_cells_and_kzg_proofs_batch(self.blobs, self._setup)[1]

    @functools.cached_property
    def blob_proofs(self) -> Bytes:
        return kzg.compute_blob_kzg_proof_batch(self.blobs, self.commitments, self._setup)

    def verify(self, function: str, found: Any) -> bool:
        """Whether commitments, proofs or cells of these blobs are right."""
        setup, count = self._setup, len(self.blobs)
        match function:
            case "commitments":
                return kzg.verify_blob_kzg_proof_batch(self.blobs, found, self.blob_proofs, setup)
            case "blob proofs":
                return kzg.verify_blob_kzg_proof_batch(self.blobs, self.commitments, found, setup)
            case "cells":  # the first half of the cells is the blob
                return np.array_equal(found[:, : CELLS // 2].reshape(count, -1), self.blobs)
        return kzg.verify_cell_kzg_proof_batch(*self.list_cells(*found), setup)

    def list_cells(
        self, cells: Bytes, proofs: Bytes
    ) -> tuple[Bytes, npt.NDArray[Any], Bytes, Bytes]:
        """The arguments that verify all cells of these blobs: commitments, indices, cells and
        proofs."""
        count = len(self.blobs)
        return (
            np.repeat(self.commitments, CELLS, axis=0),
            np.tile(np.arange(CELLS), count),
            cells.reshape(count * CELLS, CELL_BYTES),
            proofs.reshape(count * CELLS, -1),
        )


def draw_blobs(count: int) -> Bytes:
    """Return random blobs: 4,096 field elements of 32 bytes each."""
    blobs = np.frombuffer(secrets.token_bytes(count * ELEMENTS * 32), np.uint8).copy()
    blobs = blobs.reshape(count, ELEMENTS, 32)
    blobs[:, :, 0] &= 0x3F
    return blobs.reshape(count, ELEMENTS * 32)


def list_arguments(function: str, given: Inputs) -> tuple[Any, ...]:
    """Return the arguments of a function of this package for a whole batch."""
    count, half = len(given.blobs), np.arange(0, CELLS, 2)
    match function:
        case "commitments" | "cells" | "cells and proofs":
            return (given.blobs,)
        case "blob proofs":
            return given.blobs, given.commitments
        case "verification of blobs":
            return given.blobs, given.commitments, given.blob_proofs
        case "recovery with proofs":
            return np.tile(half, (count, 1)), np.ascontiguousarray(given.cells[:, half])
    return given.list_cells(given.cells, given.proofs)


def measure_kzg(
    setup: kzg.TrustedSetup,
    batches: Sequence[int],
    peer: Peer | None,
    functions: Sequence[str] = tuple(FUNCTIONS),
) -> Iterator[BatchTimes]:
    """Measure the functions, one batch size after the other; results are checked before that."""
    for count in batches:
        given = Inputs(setup, count)
        rows = []
        for name in functions:
            arguments = list_arguments(name, given)
            call = functools.partial(FUNCTIONS[name], *arguments, setup)
            begun = perf_counter()
            found = call()
            first = perf_counter() - begun
            check_result(name, found, given, peer)
            if setup.gpu.device.kind != "cpu":
                call_for(call, WARM_UP)  # the device was idle while ckzg was measured
            seconds = time_function(call, budget=BUDGET, min_calls=MIN_CALLS)
            alone, together = peer.measure(name, given) if peer is not None else (None, None)
            rows.append(KzgRow(name, count, first * 1e3, seconds * 1e3, alone, together))
        stages = measure_stages(setup, given) if STAGED in functions else None
        yield BatchTimes(rows, stages)


def check_result(function: str, found: Any, given: Inputs, peer: Peer | None) -> None:
    """Compare the result for the last blob with that of ckzg; without ckzg, verify the result.

    A verification must accept, and a recovery returns the cells and proofs that were computed.
    """
    match function:
        case "verification of blobs" | "verification of cells":
            right = bool(found)
        case "recovery with proofs":
            right = np.array_equal(found[0], given.cells) and np.array_equal(found[1], given.proofs)
        case _ if peer is not None:
            parts = found if isinstance(found, tuple) else (found,)
            right = b"".join(part[-1].tobytes() for part in parts) == peer.compute(function, given)
        case _:
            right = given.verify(function, found)
    if not right:
        raise AssertionError(f"{function} of {len(given.blobs)} blobs: wrong result")


def measure_stages(setup: kzg.TrustedSetup, given: Inputs) -> StageRow:
    """Measure the stages of cells with proofs, and check the proofs that they compute."""
    prover, device, blobs = setup.cell_prover, setup.gpu.device, given.blobs
    coefficients = eip4844.coefficients(setup.to_device(eip4844.from_blob(blobs)))
    stages: dict[str, Callable[[Any], Any]] = {
        "bytes to cells": lambda _: kzg.compute_cells_batch(blobs, setup),
        COLUMNS: graph(prover.transform_columns),
        FIXED_SETS: graph(prover.sum_fixed_sets),
        CONVOLUTION: graph(prover.convolve),
        "affine": graph(prover.to_proofs),
        "proofs to bytes": lambda points: points.to_bytes(),
    }
    times = dict.fromkeys(stages, float("inf"))
    for _ in range(1 + MIN_CALLS):  # the first round records commands
        value: Any = None
        for name, stage in stages.items():
            setup.gpu.synchronize()
            begun = perf_counter()
            value = stage(coefficients if name == COLUMNS else value)
            setup.gpu.synchronize()
            times[name] = min(times[name], (perf_counter() - begun) * 1e3)
        if not np.array_equal(value, given.proofs):
            raise AssertionError(f"the stages of {len(blobs)} blobs have other proofs than a call")
    sums = len(blobs) * CELLS
    fixed = dataclasses.replace(prover.plan, batch=sums)
    convolution = dataclasses.replace(plan_convolution(device, len(blobs)), batch=sums)
    products = count_products(fixed) + count_products(convolution) + count_doublings(convolution)
    seconds = (times[FIXED_SETS] + times[CONVOLUTION]) / 1e3
    plans = {FIXED_SETS: str(fixed), CONVOLUTION: str(convolution)}
    return StageRow(len(blobs), times, plans, products, products / seconds)


def count_products(plan: MsmPlan) -> int:
    """The products of all additions of a plan."""
    additions = plan.all_buckets * ADDITIONS_PER_BUCKET
    return plan.entries * PRODUCTS_PER_ADDITION + additions * PRODUCTS_PER_BUCKET_ADDITION


def count_doublings(plan: MsmPlan) -> int:
    """The products of the doublings that make the tables of a plan."""
    doublings = (plan.tables - 1) * plan.table_windows * plan.window_bits
    return (plan.point_sets or 1) * plan.points * doublings * PRODUCTS_PER_DOUBLING


def measure_product_rate(gpu: PersistentVulkanBackend) -> float:
    """The products per second of the prime of the points, measured in chains."""
    field = BLS12_381_G1.field
    assert isinstance(field, Field)
    rate = fields.measure_product_chains(gpu, field, fields.choose_sizes(gpu.device))
    assert rate is not None
    return rate


def check_targets(rows: Sequence[KzgRow], device: DeviceInfo) -> list[Target]:
    """Return the targets on an NVIDIA H200; none on other devices."""
    if not is_h200(device):
        return []
    return [
        Target(f"{row.function}, batch of {row.blobs}", row.ms, aim, "ms", at_most=True)
        for row in rows
        if (aim := AIMS.get((row.function, row.blobs))) is not None
    ]


# --- ckzg ---


class Peer:
    """ckzg on the same machine: one blob on one thread, and a batch on a process for each core."""

    def __init__(self, path: Path, *, all_cores: bool = True) -> None:
        """Without `all_cores` no processes are started, and batches are not measured."""
        self._ckzg = importlib.import_module("ckzg")
        self._pool: ProcessPoolExecutor | None = None
        self._children: list[BaseProcess] = []
        try:
            if all_cores:
                self._start_processes(path)
            # Not while the processes load theirs: Python sees Ctrl-C when ckzg returns.
            self._setup = self._ckzg.load_trusted_setup(str(path), PRECOMPUTE)
        except BaseException:
            self.kill()
            raise
        self._alone: dict[str, float] = {}
        """Milliseconds of one blob on one thread, by function."""

    def _start_processes(self, path: Path) -> None:
        """Start a process for each core, and wait until all have loaded the setup."""
        cores, context, before = os.cpu_count() or 1, get_context("spawn"), set(active_children())
        arguments = str(path), PRECOMPUTE, context.Barrier(cores, timeout=LOADING_SECONDS)
        self._pool = ProcessPoolExecutor(cores, context, _load_peer, arguments)
        with hide_interrupts_from_children():
            started = self._pool.map(_start, range(cores))
        self._children = [each for each in active_children() if each not in before]
        list(started)

    def measure(self, function: str, given: Inputs) -> tuple[float | None, float | None]:
        """Return the milliseconds of one blob on one thread, and of the batch on all cores."""
        if function not in self._alone:
            run = functools.partial(
                _run_job, self._ckzg, self._setup, _make_job(function, given, 0)
            )
            seconds = time_function(run, budget=0, min_calls=MIN_CALLS, warm_up=False)
            self._alone[function] = seconds * 1e3
        alone = self._alone[function]
        if self._pool is None:
            return alone, None
        jobs = [_make_job(function, given, index) for index in range(len(given.blobs))]
        begun = perf_counter()
        list(self._pool.map(_run_in_worker, jobs))
        return alone, (perf_counter() - begun) * 1e3

    def compute(self, function: str, given: Inputs) -> bytes:
        """The bytes of ckzg's result for the last blob."""
        job = _make_job(function, given, len(given.blobs) - 1)
        found = _run_job(self._ckzg, self._setup, job)
        parts = found if isinstance(found, tuple) else (found,)
        return b"".join(part if isinstance(part, bytes) else b"".join(part) for part in parts)

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown()

    def kill(self) -> None:
        """End the processes at once, also those that compute."""
        for child in self._children:
            child.kill()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def open_peer(path: Path | None, *, all_cores: bool = True) -> Iterator[Peer | None]:
    """Open ckzg with a setup, mainnet's without a path; None if ckzg is not installed."""
    if importlib.util.find_spec("ckzg") is None:
        yield None
        return
    peer = Peer(path or find_mainnet_setup(), all_cores=all_cores)
    try:
        yield peer
    except BaseException:
        peer.kill()
        raise
    peer.close()


Job = tuple[str, tuple[Any, ...]]
_worker: list[Any] = []


def _make_job(function: str, given: Inputs, index: int) -> Job:
    """ckzg's function and its arguments for one blob of a batch."""
    half, every = list(range(0, CELLS, 2)), list(range(CELLS))

    def get(rows: Bytes) -> bytes:
        return bytes(rows[index])

    def get_items(rows: Bytes) -> list[bytes]:
        return [bytes(each) for each in rows[index]]

    jobs: dict[str, Callable[[], Job]] = {
        "commitments": lambda: ("blob_to_kzg_commitment", (get(given.blobs),)),
        "blob proofs": lambda: (
            "compute_blob_kzg_proof",
            (get(given.blobs), get(given.commitments)),
        ),
        "verification of blobs": lambda: (
            "verify_blob_kzg_proof",
            (get(given.blobs), get(given.commitments), get(given.blob_proofs)),
        ),
        "cells": lambda: ("compute_cells", (get(given.blobs),)),
        "cells and proofs": lambda: ("compute_cells_and_kzg_proofs", (get(given.blobs),)),
        "recovery with proofs": lambda: (
            "recover_cells_and_kzg_proofs",
            (half, get_items(given.cells)[::2]),
        ),
        "verification of cells": lambda: (
            "verify_cell_kzg_proof_batch",
            (
                [get(given.commitments)] * CELLS,
                every,
                get_items(given.cells),
                get_items(given.proofs),
            ),
        ),
    }
    return jobs[function]()


def _run_job(ckzg: Any, setup: Any, job: Job) -> Any:
    name, arguments = job
    return getattr(ckzg, name)(*arguments, setup)


def _load_peer(path: str, precompute: int, loaded: Barrier) -> None:
    """Load the setup of a process, and wait until all processes have theirs."""
    ckzg = importlib.import_module("ckzg")
    _worker[:] = [ckzg, ckzg.load_trusted_setup(path, precompute)]
    loaded.wait()


def _start(_number: int) -> None:
    """A job that starts a process, as long as no other process is idle."""


def _run_in_worker(job: Job) -> None:
    ckzg, setup = _worker
    _run_job(ckzg, setup, job)
