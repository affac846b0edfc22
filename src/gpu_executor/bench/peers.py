"""This package and its peers on the same work in the same run.

Every package has a program of its own (`bench/peer_programs.py`). The result of each program is
compared with exact integers, or with arkworks for commitments, before it is timed. The programs of
one work are timed in interleaved rounds, so a slow phase of the machine meets all of them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import random
import subprocess
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gpu_executor.bench import kzg, peer_programs
from gpu_executor.bench.child_process import run_python
from gpu_executor.bench.peer_programs import (
    MODULUS,
    PROGRAMS,
    RESULT,
    Operation,
    PeerProgram,
    Uint32s,
)
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.timing import compute_medians, compute_ratio, time_interleaved
from gpu_executor.curves import BLS12_381_G1
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import format_install_command
from gpu_executor.kzg.cell_proofs import reverse_bits
from gpu_executor.kzg.setup_file import find_mainnet_setup, read_setup

OWN = peer_programs.OwnProgram.name
SLOT_BYTES = 10
"""Bytes of a coefficient in a product of polynomials as one product of integers: enough for 2^18
products of 62 bits."""
FIRST_CALL_SECONDS = 120
LONG: tuple[Operation, ...] = ("commitments", "point sum")
"""Work that takes tens of milliseconds and more."""


@dataclass(frozen=True, slots=True)
class PeerSizes:
    """How much work is done, and how long it is timed."""

    sums: Sequence[int]
    """Elements."""
    batch: tuple[int, int]
    """Jobs, and elements of each."""
    products: int
    polynomial: int
    """Coefficients of each factor."""
    blobs: int
    """0 leaves commitments out: loading a trusted setup takes ckzg 10 s, and the benchmark of KZG
    compares with it too."""
    points: int
    seconds: float
    """For each work and package. Every work has at least `min_rounds` rounds."""
    min_rounds: int = 3
    max_rounds: int = 100
    processes: int = 3
    """Fresh processes for each package."""


GPU_SIZES = PeerSizes(
    (1 << 10, 1 << 14, 1 << 18, 1 << 22), (256, 1 << 14), 1 << 20, 1 << 16, 6, 64, 1.0
)
CPU_SIZES = PeerSizes(
    (1 << 10, 1 << 14, 1 << 18, 1 << 22), (64, 1 << 14), 1 << 18, 1 << 14, 1, 16, 0.5
)
QUICK_SIZES = PeerSizes(
    (1 << 10, 1 << 16), (16, 1 << 12), 1 << 14, 1 << 12, 0, 4, 0.05, max_rounds=10, processes=1
)


@dataclass(frozen=True, slots=True)
class PeerWork:
    """Work with its inputs and its exact result."""

    operation: Operation
    elements: int
    """Elements, coefficients, blobs or points; of each job in a batch."""
    jobs: int
    inputs: tuple[Any, ...]
    expected: Any

    @property
    def name(self) -> str:
        return f"{self.operation} of {self.elements:,}"

    def is_right(self, found: Any) -> bool:
        if isinstance(self.expected, list):
            return len(found) == self.jobs and all(map(_is_same, found, self.expected))
        return _is_same(found, self.expected)


@dataclass(frozen=True, slots=True)
class PeerRow:
    """One work by one package; the attributes are the keys of the JSON files."""

    package: str
    operation: str
    elements: int
    jobs: int
    ms: float | None
    """The median of the rounds; None if the package failed."""
    per_second: float | None
    """Elements, coefficients, blobs or points of all jobs."""
    slower: float | None
    """The time over that of gpu-executor; the samples are the ratios within each round."""
    reason: str | None = None
    """How the package failed at this work."""


@dataclass(frozen=True, slots=True)
class PeerState:
    """A package, and whether it was measured; the attributes are the keys of the JSON files."""

    package: str
    state: Literal["measured", "absent", "failed"]
    version: str | None = None
    device: str | None = None
    """What the package computed on."""
    program: str = ""
    """What the program does."""
    reason: str | None = None
    """Why there are no figures."""


@dataclass(frozen=True, slots=True)
class FirstCall:
    """The first call of one work by one package in fresh processes; the attributes are the keys of
    the JSON files. The inputs of a work are the same for all packages."""

    package: str
    operation: str
    ms: float | None
    """From the start of a process until it had its first result: the interpreter, the imports,
    opening the device and the call. None if the package failed."""
    resident_bytes: int | None
    """Main memory that this process held then; None where the system does not say."""
    reason: str | None = None
    """How the package failed."""


class OpenPeers:
    """The programs whose packages are installed and could be opened, this package's first.

    A package that is not installed is `absent`. One that cannot be opened has `failed`.
    """

    def __init__(self, programs: Sequence[type[PeerProgram]] = PROGRAMS) -> None:
        self.programs: list[PeerProgram] = []
        self.states: list[PeerState] = []
        for each in programs:
            if not _is_installed(each):
                reason = f"not installed; pip install {each.distribution}"
                self._add_state(each, "absent", reason=reason)
                continue
            try:
                program = each()
            except Exception as error:
                if each.name == OWN:
                    raise
                self._add_state(each, "failed", reason=_describe(error))
                continue
            self.programs.append(program)
            self._add_state(each, "measured", device=program.device)

    def _add_state(
        self,
        program: type[PeerProgram],
        state: Literal["measured", "absent", "failed"],
        *,
        device: str | None = None,
        reason: str | None = None,
    ) -> None:
        version = None if state == "absent" else _read_version(program)
        self.states.append(PeerState(program.name, state, version, device, program.summary, reason))

    def close(self) -> None:
        for each in self.programs:
            each.close()

    def __enter__(self) -> OpenPeers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def choose_sizes(device: DeviceInfo, *, quick: bool = False) -> PeerSizes:
    """Choose the amounts of work for a device."""
    if quick:
        return QUICK_SIZES
    return CPU_SIZES if device.kind == "cpu" else GPU_SIZES


def count_works(sizes: PeerSizes) -> int:
    """The number of works that `list_works` yields if nothing is left out."""
    return len(sizes.sums) + 5


def list_works(sizes: PeerSizes, left_out: dict[str, str]) -> Iterator[PeerWork]:
    """Yield all works with their exact results. Works that this machine cannot check or that need
    a missing extra are named in `left_out`."""
    for count in sizes.sums:
        a, b = _draw(count, 1, 1 << 32), _draw(count, 2, 1 << 32)
        yield PeerWork("sum", count, 1, (a, b), _add(a, b))
    jobs, count = sizes.batch
    pairs = [
        (_draw(count, 2 * job, 1 << 32), _draw(count, 2 * job + 1, 1 << 32)) for job in range(jobs)
    ]
    yield PeerWork("batch of sums", count, jobs, (pairs,), [_add(a, b) for a, b in pairs])
    a, b = _draw(sizes.products, 1), _draw(sizes.products, 2)
    products = [x * y % MODULUS for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    yield PeerWork("products", len(a), 1, (a, b), np.array(products, np.uint32))
    a, b = _draw(sizes.polynomial, 1), _draw(sizes.polynomial, 2)
    yield PeerWork("polynomial product", len(a), 1, (a, b), multiply_polynomials(a, b))
    if not sizes.blobs:
        left_out["commitments"] = "not in a quick run; the benchmark kzg has them"
    elif missing := [name for name in kzg.MODULES if importlib.util.find_spec(name) is None]:
        left_out["commitments"] = (
            f"not installed: {', '.join(missing)}; {format_install_command('kzg')}"
        )
    else:
        yield _make_commitments(sizes.blobs)
    yield _make_point_sum(sizes.points)


@dataclass(slots=True)
class TimedProgram:
    """A call that is timed. After an error of another package it does nothing, and `reason` says
    what happened; an error of this package ends the benchmark."""

    name: str
    call: Callable[[], Any]
    reason: str | None = None

    def __call__(self) -> None:
        if self.reason is not None:
            return
        try:
            self.call()
        except Exception as error:
            if self.name == OWN:
                raise
            self.reason = _describe(error)


def measure_work(
    work: PeerWork, programs: Sequence[PeerProgram], sizes: PeerSizes
) -> list[PeerRow]:
    """Check the results of all programs, then time the right ones in interleaved rounds."""
    calls: list[TimedProgram] = []
    failed: list[PeerRow] = []
    for program in programs:
        try:
            prepared = program.prepare(work.operation, *work.inputs)
            if prepared is None:
                continue
            if not work.is_right(prepared.read(prepared.call())):
                raise AssertionError(f"{program.name}: wrong result of {work.name}")
        except Exception as error:
            if program.name == OWN:
                raise
            failed.append(_make_row(work, program.name, None, None, _describe(error)))
            continue
        calls.append(TimedProgram(program.name, prepared.call))
    taken = list(
        time_interleaved(
            calls,
            budget=sizes.seconds * len(calls),
            min_rounds=sizes.min_rounds,
            max_rounds=sizes.max_rounds,
            # A short call may be slower right after another program ran.
            warm_up_calls=0 if work.operation in LONG else 1,
        )
    )
    own = next(at for at, each in enumerate(calls) if each.name == OWN)
    rows = []
    for at, (call, seconds) in enumerate(zip(calls, compute_medians(taken), strict=True)):
        if call.reason is not None:
            failed.append(_make_row(work, call.name, None, None, call.reason))
            continue
        slower = compute_ratio(taken, at, own)
        rows.append(_make_row(work, call.name, seconds, slower))
    return rows + failed


def list_first_calls(
    states: Sequence[PeerState], left_out: Container[str] = ()
) -> list[tuple[str, Operation]]:
    """Return the packages and works whose first calls are measured: for every other package its
    own work, beside this package at the same work. Works that are left out are not among them."""
    works: dict[Operation, list[str]] = {}
    for program in PROGRAMS:
        state = next((each for each in states if each.package == program.name), None)
        if state is not None and state.state == "measured" and program.first not in left_out:
            works.setdefault(program.first, [OWN])
            if program.name != OWN:
                works[program.first].append(program.name)
    return [(package, operation) for operation, names in works.items() for package in names]


def measure_first_call(package: str, operation: Operation, processes: int) -> FirstCall:
    """Measure the first call of a package in fresh processes, of which the median is taken."""
    setup = str(find_mainnet_setup()) if operation == "commitments" else ""
    # With -P, the folder of the script does not shadow modules of other packages.
    arguments = ["-P", peer_programs.__file__, package, operation, setup]
    taken, memory = [], None
    for _ in range(processes):
        begun = time.time()
        try:
            found = _run_process(arguments)
        except RuntimeError as error:
            if package == OWN:
                raise
            return FirstCall(package, operation, None, None, str(error))
        taken.append((found["ended"] - begun) * 1e3)
        memory = found["resident_bytes"]
    return FirstCall(package, operation, Sampled.median(taken), memory)


def _run_process(arguments: Sequence[str]) -> dict[str, Any]:
    """Run a process and read what it prints; raises `RuntimeError` with the reason if it fails."""
    try:
        child = run_python(arguments, timeout=FIRST_CALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"first call: no result in {FIRST_CALL_SECONDS} s") from None
    # Packages may print lines of their own.
    printed = [line for line in child.stdout.splitlines() if line.startswith(RESULT)]
    if child.returncode or not printed:
        last = (child.stderr.strip() or f"exit code {child.returncode}").splitlines()[-1]
        raise RuntimeError(f"first call: {last}")
    found: dict[str, Any] = json.loads(printed[-1].removeprefix(RESULT))
    return found


def multiply_polynomials(a: Uint32s, b: Uint32s) -> Uint32s:
    """The exact product, by one product of Python integers that hold all coefficients in slots."""
    if min(len(a), len(b)) > 1 << 18:
        raise ValueError("the coefficients of the product do not fit into their slots")
    count = len(a) + len(b) - 1

    def pack(values: Uint32s) -> int:
        slots = np.zeros((len(values), SLOT_BYTES), np.uint8)
        slots[:, :4] = values.astype("<u4").view(np.uint8).reshape(-1, 4)
        return int.from_bytes(slots.tobytes(), "little")

    product = (pack(a) * pack(b)).to_bytes(count * SLOT_BYTES, "little")
    slots = np.frombuffer(product, np.uint8).reshape(count, SLOT_BYTES)
    low = np.ascontiguousarray(slots[:, :8]).view("<u8").reshape(-1) % MODULUS
    high = np.ascontiguousarray(slots[:, 8:]).view("<u2").reshape(-1).astype(np.uint64)
    return ((low + high * (2**64 % MODULUS)) % MODULUS).astype(np.uint32)


def _make_commitments(count: int) -> PeerWork:
    """Random blobs. arkworks computes the sums of points of their commitments."""
    arkworks = importlib.import_module("py_arkworks_bls12381")
    path = find_mainnet_setup()
    load = arkworks.G1Point.from_compressed_bytes_unchecked
    points = [load(bytes(each)) for each in read_setup(path).lagrange]
    order = reverse_bits(len(points))  # the values of a blob are in bit-reversed order
    blobs = kzg.draw_blobs(count)
    commitments = []
    for blob in blobs:
        values = blob.reshape(-1, 32)[order]
        scalars = [arkworks.Scalar.from_le_bytes(bytes(each[::-1])) for each in values]
        found = arkworks.G1Point.multiexp_unchecked(points, scalars)
        commitments.append(bytes(found.to_compressed_bytes()))
    return PeerWork("commitments", count, 1, (blobs, path), b"".join(commitments))


def _make_point_sum(count: int) -> PeerWork:
    """Random multiples of the generator with random scalars. The sum is the multiple of the
    generator by the sum of products of these integers."""
    rng, curve = random.Random(1), BLS12_381_G1
    logarithms, scalars = ([rng.randrange(1, curve.order) for _ in range(count)] for _ in range(2))
    points = curve.generator * logarithms
    pairs = list(zip(points.x.ints().tolist(), points.y.ints().tolist(), strict=True))
    total = sum(a * b for a, b in zip(logarithms, scalars, strict=True)) % curve.order
    expected = curve.generator * total
    return PeerWork(
        "point sum", count, 1, (pairs, scalars), (int(expected.x.ints()), int(expected.y.ints()))
    )


def _draw(count: int, seed: int, below: int = MODULUS) -> Uint32s:
    return np.random.default_rng(seed).integers(0, below, count, np.uint32)


def _add(a: Uint32s, b: Uint32s) -> Uint32s:
    """Sums modulo 2^32, by way of exact 64-bit sums."""
    return ((a.astype(np.uint64) + b) & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _is_same(found: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray):
        array = np.asarray(found)
        return array.dtype == expected.dtype and np.array_equal(array, expected)
    return bool(found == expected)


def _make_row(
    work: PeerWork,
    package: str,
    seconds: float | None,
    slower: float | None,
    reason: str | None = None,
) -> PeerRow:
    ms = rate = None
    if seconds is not None:
        ms, rate = seconds * 1e3, work.elements * work.jobs / seconds
    return PeerRow(package, work.operation, work.elements, work.jobs, ms, rate, slower, reason)


def _is_installed(program: type[PeerProgram]) -> bool:
    return importlib.util.find_spec(program.module.partition(".")[0]) is not None


def _read_version(program: type[PeerProgram]) -> str | None:
    """The version of the package, under whichever name it was installed (cupy-cuda12x); None if it
    does not say."""
    try:
        return importlib.metadata.version(program.distribution)
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(program.module, ())
        return importlib.metadata.version(names[0]) if names else None


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
