"""Groth16 proofs by number of constraints: setup, load, proofs, batches, verification and memory,
beside other provers, and the stages of a proof.

A circuit of size 2^k has 2^k - 2 constraints, the most that a domain of 2^k has room for: the
constant and the public output have rows of their own. Every proof is verified.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

from gpu_executor import groth16
from gpu_executor.bench.child_process import run_python
from gpu_executor.bench.circuits import make_bits, make_chain
from gpu_executor.bench.groth16_peers import (
    REPEATS,
    ProofFiles,
    ProverPeer,
    ProverPeerError,
    ProverPeerRow,
)
from gpu_executor.bench.groth16_stages import ProductRates, ProofStageRow, measure_stages
from gpu_executor.bench.measurement import Target, is_h200
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.timing import DEFAULT_BUDGET, TimingBudget, call_for, time_function
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import GpuError
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.prover import ResidentProver
from gpu_executor.groth16.proving_key import Proved
from gpu_executor.groth16.r1cs_file import R1cs, write_r1cs
from gpu_executor.groth16.zkey_file import ZkeyFile
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

SIZES, SIZES_ON_CPU = (10, 12, 14, 16, 18, 20, 22), (6, 8)
"""log2 of the numbers of constraints."""
SMALLEST, LARGEST = 2, 24
CIRCUITS: dict[str, Callable[[ProofCurve, int], tuple[R1cs, groth16.Witness]]] = {
    "uniform": make_chain,
    "bits": make_bits,
}
"""By the values of their witnesses."""
LARGEST_OF_PEERS = 20
"""log2 of the most constraints that peers prove: snarkjs takes minutes for more."""
COMMAND_SIZE, COMMAND_SIZE_ON_CPU = 16, 6
"""log2 of the constraints of a proof by a process of its own."""
LOADS, LOADS_ON_CPU = 3, 1
BATCH, BATCH_ON_CPU, BATCHES = 8, 2, 3
"""Proofs of a batch, and batches; on CPUs there is one."""
BUDGET, MIN_CALLS, MAX_CALLS = 1.0, 3, 50
"""Seconds of proofs, one after the other, and their least and largest number."""
WARM_UP_SECONDS = 0.4
"""Seconds of proofs before, except on CPUs."""
STAGE_BUDGET_ON_CPU = TimingBudget(warm_up=0.0, max_rounds=3, per_function=0.1)
SEED = 1
"""Of the secrets of the keys, which are for benchmarks only."""
AIMS = {12: 6.0, 14: 7.0, 16: 10.0, 18: 20.0, 20: 45.0, 22: 140.0}
"""Milliseconds of a proof of a uniform witness of bn128 on an NVIDIA H200, by log2 of the number of
constraints."""
LOAD_AIMS, SETUP_AIMS = {20: 300.0}, {20: 3_000.0}
LOG_OF_BITS = 20
"""log2 of the constraints at which a witness of bits takes no longer than a uniform one."""
COMMAND = ("-m", "gpu_executor.cli", "groth16", "prove")
"""What Python runs from files to files: the key, the witness, the proof and the public values."""


@dataclass(frozen=True, slots=True)
class Groth16Row:
    """Times of one circuit; the attributes are the keys of the JSON files."""

    curve: str
    circuit: str
    log_constraints: int
    signals: int
    setup_ms: float
    """From the .r1cs file to the key in main memory."""
    save_ms: float
    """The key to its file."""
    load_ms: float
    """The key from its file, whose pages are in memory, to the device, with all checks."""
    first_ms: float
    """The first proof, which creates the pipelines that no earlier call has used."""
    ms: float
    """The median of proofs of a witness in NumPy memory."""
    best_ms: float
    batch: int
    batch_ms: float
    """A proof of a batch of so many."""
    verify_ms: float
    file_bytes: int
    key_bytes: int
    """Device memory of the key."""
    device_bytes: int
    """All device memory in use after proofs."""


@dataclass(frozen=True, slots=True)
class CommandTimes:
    """Processes of `gpu-executor groth16 prove`."""

    curve: str
    log_constraints: int
    first_ms: float
    """With empty caches: on disk, of the driver and of Python."""
    second_ms: float
    """The same process again, with what the first one left in the caches."""


@dataclass(frozen=True, slots=True)
class CircuitTimes:
    """All measurements of one circuit."""

    row: Groth16Row
    stages: ProofStageRow | None
    """None where the key does not fit the device."""
    peers: list[ProverPeerRow]


class CircuitFiles:
    """A circuit of a benchmark with its files in a folder."""

    def __init__(self, curve: ProofCurve, circuit: str, log_constraints: int, folder: Path) -> None:
        self.curve, self.circuit, self.log_constraints = curve, circuit, log_constraints
        constraints = (1 << log_constraints) - 2
        self._r1cs, self.zkey = folder / "circuit.r1cs", folder / "circuit.zkey"
        self._saved = folder / "witness.wtns"
        made, self.witness = CIRCUITS[circuit](curve, constraints)
        write_r1cs(
            self._r1cs,
            curve,
            n_wires=made.n_wires,
            n_public_outputs=made.n_public,
            n_public_inputs=0,
            n_private_inputs=1,
            a=made.a,
            b=made.b,
            c=made.c,
        )

    def __str__(self) -> str:
        return f"{self.curve.name}, {self.circuit}, 2^{self.log_constraints}"

    def make_key(self, gpu: PersistentVulkanBackend) -> tuple[float, float]:
        """Write the key; return the seconds of its setup and of writing it."""
        begun = perf_counter()
        key = groth16.setup(self._r1cs, device=gpu, unsafe_secrets=SEED)
        made = perf_counter()
        key.save(self.zkey)
        return made - begun, perf_counter() - made

    def save_witness(self) -> ProofFiles:
        """Write the witness, and return the files of a proof."""
        self.witness.save(self._saved)
        return ProofFiles(self.zkey, self._saved)

    def check(self, key: groth16.VerificationKey, made: Sequence[Proved], whose: str) -> None:
        """Verify proofs, and compare their public values with those of the witness."""
        public = [self.witness[each] for each in range(1, key.n_public + 1)]
        proofs = [proof for proof, _ in made]
        found = groth16.verify_batch(key, [values for _, values in made], proofs)
        if not all(found) or any(values != public for _, values in made):
            raise AssertionError(f"{self}: a proof of {whose} does not verify")


def choose_sizes(device: DeviceInfo) -> tuple[int, ...]:
    """Return the log2 of the numbers of constraints."""
    return SIZES_ON_CPU if device.kind == "cpu" else SIZES


def measure_proofs(
    gpu: PersistentVulkanBackend,
    curve: ProofCurve,
    sizes: Sequence[int],
    circuits: Sequence[str] = tuple(CIRCUITS),
    peers: Sequence[ProverPeer] = (),
    rates: ProductRates | None = None,
) -> Iterator[CircuitTimes]:
    """Measure one circuit after the other. With `rates`, the products of stages are counted."""
    for log_constraints in sizes:
        for circuit in circuits:
            with tempfile.TemporaryDirectory() as folder:
                files = CircuitFiles(curve, circuit, log_constraints, Path(folder))
                yield _measure_circuit(gpu, files, peers, rates)


def _measure_circuit(
    gpu: PersistentVulkanBackend,
    files: CircuitFiles,
    peers: Sequence[ProverPeer],
    rates: ProductRates | None,
) -> CircuitTimes:
    on_cpu = gpu.device.kind == "cpu"
    files.make_key(gpu)  # creates pipelines
    setup_s, save_s = files.make_key(gpu)
    made: list[Proved] = []
    with _load(gpu, files) as key:  # creates pipelines, and reads the file into memory
        begun = perf_counter()
        made.append(key.prove(files.witness))
        first_s = perf_counter() - begun
    loads = []
    for _ in range(LOADS_ON_CPU if on_cpu else LOADS):
        key.close()
        begun = perf_counter()
        key = _load(gpu, files)
        loads.append(perf_counter() - begun)
    with key:

        def prove() -> None:
            made.append(key.prove(files.witness))

        if not on_cpu:
            call_for(prove, WARM_UP_SECONDS)
        taken = time_function(prove, max_calls=MAX_CALLS, budget=BUDGET, min_calls=MIN_CALLS)
        batch, batches = (BATCH_ON_CPU, 1) if on_cpu else (BATCH, BATCHES)

        def prove_batch() -> None:
            made.extend(key.prove_batch([files.witness] * batch))

        batch_s = time_function(prove_batch, max_calls=batches, min_calls=batches, warm_up=False)
        files.check(key.verification_key, made, "this package")
        proof, public = made[-1]
        verify = partial(groth16.verify, key.verification_key, public, proof)
        verify_s = time_function(verify, max_calls=20, min_calls=MIN_CALLS)
        in_use = sum(gpu.stats().memory_use.in_use.values())
        stages, prover = None, key._provers[0]
        if isinstance(prover, ResidentProver):
            budget = STAGE_BUDGET_ON_CPU if on_cpu else DEFAULT_BUDGET
            # Digits of bits are mostly zero, and those are not added.
            bound = rates if files.circuit == "uniform" else None
            stages = measure_stages(
                gpu, prover, files.curve, files.circuit, files.log_constraints, bound, budget
            )
        row = Groth16Row(
            files.curve.name,
            files.circuit,
            files.log_constraints,
            len(files.witness),
            setup_ms=1e3 * setup_s,
            save_ms=1e3 * save_s,
            load_ms=1e3 * Sampled.median(loads),
            first_ms=1e3 * first_s,
            ms=1e3 * taken,
            best_ms=1e3 * min(taken.samples),
            batch=batch,
            batch_ms=1e3 / batch * batch_s,
            verify_ms=1e3 * verify_s,
            file_bytes=files.zkey.stat().st_size,
            key_bytes=key.nbytes,
            device_bytes=in_use,
        )
        others = [_measure_peer(each, files, key.verification_key) for each in peers]
    return CircuitTimes(row, stages, others)


def _load(gpu: PersistentVulkanBackend, files: CircuitFiles) -> groth16.ProvingKey:
    return groth16.ProvingKey.load(files.zkey, device=gpu)


def _measure_peer(
    peer: ProverPeer, files: CircuitFiles, key: groth16.VerificationKey
) -> ProverPeerRow:
    """A peer that fails has no time, and one whose proof is wrong ends the benchmark."""
    where = peer.package, files.curve.name, files.circuit, files.log_constraints
    if files.curve.name not in peer.curves:
        return ProverPeerRow(*where, None, f"it proves with {', '.join(peer.curves)} only")
    if files.log_constraints > LARGEST_OF_PEERS:
        return ProverPeerRow(*where, None, f"measured up to 2^{LARGEST_OF_PEERS} only")
    try:
        found = peer.prove(files.save_witness(), REPEATS)
    except ProverPeerError as error:
        return ProverPeerRow(*where, None, str(error))
    files.check(key, [(found.proof, found.public)], peer.package)
    return ProverPeerRow(*where, found.ms, None)


# --- a process of its own ---


def measure_command(gpu: PersistentVulkanBackend, curve: ProofCurve, log: int) -> CommandTimes:
    """Time a process from files to files, with empty caches and then with what it left there."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        files = CircuitFiles(curve, "uniform", log, place)
        files.make_key(gpu)
        caches = list_empty_caches(place / "caches")
        first, second = (1e3 * time_command(files, place, caches) for _ in range(2))
    return CommandTimes(curve.name, log, first, second)


def list_empty_caches(folder: Path) -> dict[str, str]:
    """The variables that move all caches to a folder: of this package, drivers and Python.

    Pipelines are made as by default, which other parts of a benchmark do not.
    """
    for name in ("gpu", "nvidia", "mesa", "bytecode"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return {
        "GPU_CACHE": "1",
        "GPU_CACHE_DIR": str(folder / "gpu"),
        "GPU_QUICK_PIPELINES": "1",
        "__GL_SHADER_DISK_CACHE_PATH": str(folder / "nvidia"),
        "MESA_SHADER_CACHE_DIR": str(folder / "mesa"),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
    }


def time_command(files: CircuitFiles, folder: Path, variables: dict[str, str]) -> float:
    """Return the seconds of one process. Its proof is verified."""
    given = files.save_witness()
    proof, public = folder / "proof.json", folder / "public.json"
    paths = [str(Path(groth16.__file__).parents[2]), os.environ.get("PYTHONPATH")]
    environment = os.environ | variables | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    arguments = [*COMMAND, *map(str, (given.zkey, given.witness, proof, public))]
    begun = perf_counter()
    child = run_python(arguments, environment=environment)
    taken = perf_counter() - begun
    if child.returncode:
        raise GpuError(f"a proving process failed:\n{child.stderr}")
    made = groth16.Proof.from_json(proof.read_text(encoding="utf-8"))
    values = groth16.public_from_json(public.read_text(encoding="utf-8"))
    key = groth16.VerificationKey.from_zkey(ZkeyFile.open(given.zkey))
    files.check(key, [(made, values)], "a process")
    return taken


# --- targets ---


def check_targets(rows: Sequence[Groth16Row], device: DeviceInfo) -> list[Target]:
    """Return the targets on an NVIDIA H200; none on other devices or curves."""
    if not is_h200(device):
        return []
    own = [row for row in rows if row.curve == "bn128"]
    targets = [target for row in own if row.circuit == "uniform" for target in _check_row(row)]
    times = {row.circuit: row.ms for row in own if row.log_constraints == LOG_OF_BITS}
    if set(times) >= {"uniform", "bits"}:
        ratio = times["bits"] / times["uniform"]
        targets.append(
            Target(f"bits, 2^{LOG_OF_BITS}", ratio, 1.0, "x a uniform witness", at_most=True)
        )
    return targets


def _check_row(row: Groth16Row) -> Iterator[Target]:
    what = f"2^{row.log_constraints} constraints"
    for name, aims, measured in (
        ("a proof", AIMS, row.ms),
        ("load", LOAD_AIMS, row.load_ms),
        ("setup", SETUP_AIMS, row.setup_ms),
    ):
        aim = aims.get(row.log_constraints)
        if aim is not None:
            yield Target(f"{name}, {what}", measured, aim, "ms", at_most=True)
