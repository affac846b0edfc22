"""Hash functions of bytes and of field elements, and Merkle trees: rows on the device, and from
NumPy to NumPy, beside the bounds of arithmetic, memory and bus (`hash_bounds`).

A sample of each result is compared with that of the host before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpu_executor import hashes
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.bench import hash_bounds
from gpu_executor.bench.hash_bounds import ChainRate, Count
from gpu_executor.bench.inputs import tile_elements
from gpu_executor.bench.kernel_timing import time_calls
from gpu_executor.bench.measurement import Target, is_h200
from gpu_executor.bench.timing import (
    DEFAULT_BUDGET,
    TimingBudget,
    call_for,
    record_graph,
    time_function,
    time_resident,
)
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import (
    BABYBEAR,
    BN254_FR,
    GOLDILOCKS,
    KOALABEAR,
    MERSENNE31,
    Field,
    FieldArray,
)
from gpu_executor.hashes import HashFunction
from gpu_executor.hashes.poseidon2 import Variant
from gpu_executor.kernels.catalogue import COPY_UNIT_BYTES, copy_kernel
from gpu_executor.merkle import MerkleTree
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

SAMPLE = 16
"""Rows checked at either end of a result."""
TILE_BYTES = 1 << 20
"""Random bytes, which rows repeat."""
TREE_WARM_UP_SECONDS = 1.0
"""After compiling for seconds an NVIDIA H200 needs longer for its full clock than otherwise: trees
that take 14 ms took 75, 75, 75, 20 and 15 ms without warm-up, and 55, 47, 48, 48 and 35 ms after
0.4 s."""


@dataclass(frozen=True, slots=True)
class ByteCase:
    """A hash function of bytes: the operations of a hash, and the chain that has their rate."""

    name: str
    count: Count
    rate: str

    def make(self) -> HashFunction:
        """The hash function."""
        made: HashFunction = getattr(hashes, self.name)
        return made


@dataclass(frozen=True, slots=True)
class FieldCase:
    """A hash function of field elements: the products of a permutation or a hash."""

    name: str
    field: Field
    make: Callable[[], Any]
    products: int
    length: int
    """The elements of a state, or of a row."""
    permutes: bool = True
    """Whether the permutation alone is measured."""

    @property
    def rate(self) -> str:
        """The chain whose rate bounds this one."""
        return self.field.name


ARITHMETIC, LOGIC = "add_xor_rotate", "logic_rotate"
BYTE_CASES = {
    each.name: each
    for each in (
        ByteCase("SHA256", hash_bounds.count_sha256, ARITHMETIC),
        ByteCase(
            "SHA256D",
            lambda length: hash_bounds.count_sha256(length) + hash_bounds.SHA256_BLOCK,
            ARITHMETIC,
        ),
        ByteCase("SHA512", hash_bounds.count_sha512, ARITHMETIC),
        ByteCase("SHA3_256", hash_bounds.count_keccak, LOGIC),
        ByteCase("KECCAK256", hash_bounds.count_keccak, LOGIC),
        ByteCase("BLAKE2S", hash_bounds.count_blake2s, ARITHMETIC),
        ByteCase("BLAKE3", hash_bounds.count_blake3, ARITHMETIC),
        ByteCase("RIPEMD160", hash_bounds.count_ripemd160, "logic_add_rotate"),
    )
}


def _make_poseidon2(
    field: Field,
    name: str,
    width: int,
    partial_rounds: int,
    power: int,
    variant: Variant = "plonky3",
) -> FieldCase:
    """Eight full rounds everywhere."""
    return FieldCase(
        f"Poseidon2 {name} {width}",
        field,
        lambda: hashes.poseidon2(field, width=width, variant=variant),
        hash_bounds.count_rounds(width, 8, partial_rounds, power),
        width,
    )


FIELD_CASES = {
    each.name: each
    for each in (
        _make_poseidon2(BABYBEAR, "BabyBear", 16, 13, 7),
        _make_poseidon2(BABYBEAR, "BabyBear", 24, 21, 7),
        _make_poseidon2(KOALABEAR, "KoalaBear", 16, 20, 3),
        _make_poseidon2(KOALABEAR, "KoalaBear", 24, 23, 3),
        _make_poseidon2(MERSENNE31, "Mersenne-31", 16, 14, 5),
        _make_poseidon2(MERSENNE31, "Mersenne-31", 24, 22, 5),
        _make_poseidon2(GOLDILOCKS, "Goldilocks", 8, 22, 7),
        _make_poseidon2(GOLDILOCKS, "Goldilocks", 12, 22, 7),
        _make_poseidon2(BN254_FR, "BN254", 3, 56, 5, "horizen"),
        FieldCase(
            "Poseidon BN254, 2 inputs",
            BN254_FR,
            lambda: hashes.poseidon(BN254_FR, inputs=2),
            hash_bounds.count_poseidon(3, 8, 57, 5),
            2,
            permutes=False,
        ),
        FieldCase(
            "Poseidon Goldilocks 12",
            GOLDILOCKS,
            lambda: hashes.poseidon(GOLDILOCKS),
            hash_bounds.count_rounds(12, 8, 22, 7),
            12,
        ),
        FieldCase("RPO Goldilocks 12", GOLDILOCKS, hashes.rpo, hash_bounds.RPO, 12),
        FieldCase("MiMC7 BN254", BN254_FR, hashes.mimc7, hash_bounds.MIMC7, 1, permutes=False),
        FieldCase(
            "MiMCSponge BN254",
            BN254_FR,
            hashes.mimc_sponge,
            hash_bounds.MIMC_SPONGE,
            1,
            permutes=False,
        ),
    )
}
CASES: Mapping[str, ByteCase | FieldCase] = {**BYTE_CASES, **FIELD_CASES}
LENGTHS = (64, 1024)
"""Bytes of a row."""
LARGE = "BLAKE3"
"""The hash function that hashes one large message in parallel."""
TREES = ("KECCAK256", "SHA256", "BLAKE3", "Poseidon2 BabyBear 16", "Poseidon BN254, 2 inputs")


@dataclass(frozen=True, slots=True)
class HashSizes:
    """Bytes of all rows, rows of field elements, bytes of the large message, log2 of leaves."""

    nbytes: int
    most_rows: int
    states: int
    large: int
    trees: tuple[int, ...]


GPU_SIZES = HashSizes(1 << 30, 1 << 24, 1 << 22, 1 << 30, (20, 24))
SMALL_GPU_SIZES = HashSizes(1 << 28, 1 << 22, 1 << 20, 1 << 28, (20,))
SMALL_GPU = 16 << 30
"""Bytes of device memory below which a GPU gets the smaller sizes."""
CPU_SIZES = HashSizes(1 << 20, 1 << 13, 1 << 10, 1 << 22, (10,))


@dataclass(frozen=True, slots=True)
class HashRow:
    """Rates of one hash function with rows of one length; the attributes are the keys of the JSON
    files."""

    hash: str
    what: str
    """"hash", "permutation", or "message" for one large message."""
    length: int
    unit: str
    """Of the length: "bytes" or "elements"."""
    rows: int
    operations: int
    """Of a hash, counted: on 32-bit words, or products."""
    hashes_per_second: float
    """Of rows on the device."""
    bytes_per_second: float
    """Of those rows."""
    arithmetic_per_second: float
    """Hashes per second that the counted operations allow."""
    memory_per_second: float
    """Hashes per second that reading rows and writing digests allows."""
    of_bound: float
    """The rate relative to the smaller bound."""
    numpy_per_second: float
    """Hashes of rows in NumPy memory to digests in NumPy memory."""
    bus_per_second: float
    """Hashes per second that the transfers of rows or of digests allow, the slower of both."""


@dataclass(frozen=True, slots=True)
class TreeRow:
    """The time of a Merkle tree over digests on the device."""

    hash: str
    log_leaves: int
    ms: float
    """From leaves on the device to the root in NumPy memory."""
    bound_ms: float
    """The operations of all nodes at the measured rate."""
    of_bound: float
    hashes_per_second: float


def choose_sizes(device: DeviceInfo) -> HashSizes:
    """Choose sizes at which the device reaches its sustained rate."""
    if device.kind == "cpu":
        return CPU_SIZES
    memory = max(heap.bytes for heap in device.heaps if heap.device_local)
    return GPU_SIZES if memory >= SMALL_GPU else SMALL_GPU_SIZES


def list_fields(names: Sequence[str]) -> list[Field]:
    """The fields of hash functions, each once."""
    return list(dict.fromkeys(FIELD_CASES[name].field for name in names if name in FIELD_CASES))


def list_work(names: Sequence[str], lengths: Sequence[int]) -> list[tuple[str, int, bool]]:
    """The name, the length of rows, and whether it is one large message."""
    work = []
    for name in names:
        of_bytes = name in BYTE_CASES
        work += [(name, each, False) for each in (lengths if of_bytes else (0,))]
        if name == LARGE:
            work.append((name, 0, True))
    return work


class HashBench:
    """A device with the rates that bounds are computed from."""

    def __init__(
        self,
        gpu: PersistentVulkanBackend,
        sizes: HashSizes,
        rates: Sequence[ChainRate],
        budget: TimingBudget = DEFAULT_BUDGET,
    ) -> None:
        self._gpu, self._sizes, self._budget = gpu, sizes, budget
        self._rates = {each.operation: float(each.per_second) for each in rates}
        self.copy_bytes_per_second = self._measure_copies()
        """Bytes that a copy kernel reads and writes."""

    def _measure_copies(self) -> float:
        memory = self._gpu._session.device_memory
        units = max(self._sizes.nbytes // 4 // COPY_UNIT_BYTES, 1)
        copied = memory.empty((units, 2), np.dtype(np.uint64))
        (seconds,) = time_calls(self._gpu._session, [(copy_kernel(), [copied])])
        return 2 * units * COPY_UNIT_BYTES / seconds

    def measure(self, work: Sequence[tuple[str, int, bool]]) -> Iterator[HashRow]:
        """Yield a row for each hash function and length."""
        for name, length, large in work:
            case = CASES[name]
            if isinstance(case, ByteCase):
                yield self._measure_bytes(case, self._sizes.large if large else length, large)
            else:
                yield self._measure_elements(case)
            self._gpu.trim()

    def _measure_bytes(self, case: ByteCase, length: int, large: bool) -> HashRow:
        sizes, made = self._sizes, case.make()
        count = 1 if large else min(sizes.nbytes // max(length, 1), sizes.most_rows)
        rows = _draw_bytes(count, length)
        what = "message" if large else "hash"
        return self._measure_rows(made.hash, what, case.name, case.count(length), case.rate, rows)

    def _measure_elements(self, case: FieldCase) -> HashRow:
        made, prime = case.make(), case.field.prime
        words = tile_elements(prime, self._sizes.states * case.length, 1)
        shape = (self._sizes.states, case.length, *prime.element_shape)
        rows = FieldArray(case.field, words.reshape(shape), case.field.form)
        function, what = (made.permute, "permutation") if case.permutes else (made.hash, "hash")
        return self._measure_rows(function, what, case.name, case.products, case.rate, rows)

    def _measure_rows(
        self,
        function: Callable[..., Any],
        what: str,
        name: str,
        operations: int,
        rate: str,
        rows: Any,
    ) -> HashRow:
        gpu, count = self._gpu, rows.shape[0]
        resident = gpu.to_device(rows)
        found = function(resident)
        _check_ends(name, function, rows, found)
        moved, made = _get_words(rows).nbytes, _get_words(found).nbytes
        (seconds,) = time_resident(
            gpu, [record_graph(gpu, partial(function, resident))], self._budget
        )
        upload, download = self._time_transfers(rows, found)
        whole = self._time(partial(function, rows, device=gpu))
        arithmetic = self._rates[rate] / operations
        memory = self.copy_bytes_per_second * count / (moved + made)
        per_second = count / seconds
        return HashRow(
            hash=name,
            what=what,
            length=rows.shape[1],
            unit="elements" if isinstance(rows, FieldArray) else "bytes",
            rows=count,
            operations=operations,
            hashes_per_second=per_second,
            bytes_per_second=moved / seconds,
            arithmetic_per_second=arithmetic,
            memory_per_second=memory,
            of_bound=float(per_second) / min(arithmetic, memory),
            numpy_per_second=count / whole,
            bus_per_second=count / max(float(upload), float(download)),
        )

    def _time(self, function: Callable[[], object]) -> float:
        return time_function(function, max_calls=5, budget=self._budget.per_function, min_calls=3)

    def _time_transfers(self, rows: Any, digests: Any) -> tuple[float, float]:
        """Seconds of an upload of the rows and of a download of the digests."""
        memory = self._gpu._session.device_memory
        given, made = _get_words(rows), _get_words(digests)

        def upload() -> None:
            memory.put(given)
            memory.stream.wait()

        return self._time(upload), self._time(partial(memory.fetch, made))

    # --- trees ---

    def measure_trees(self, names: Sequence[str]) -> Iterator[TreeRow]:
        """Yield a row for each hash function and number of leaves."""
        for name in names:
            for log_leaves in self._sizes.trees:
                yield self._measure_tree(name, log_leaves)
                self._gpu.trim()

    def _measure_tree(self, name: str, log_leaves: int) -> TreeRow:
        case, count = CASES[name], 1 << log_leaves
        made = case.make()
        if isinstance(case, ByteCase):
            (size,) = made.digest_shape
            leaves: Any = _draw_bytes(count, size)
            operations = case.count(2 * size)
        else:
            prime, shape = case.field.prime, (count, *made.digest_shape)
            words = tile_elements(prime, int(np.prod(shape)), 1)
            words = words.reshape(*shape, *prime.element_shape)
            leaves = FieldArray(case.field, words, case.field.form)
            operations = case.products
        few = min(count, 1 << 5)
        first = MerkleTree(leaves[:few], hash=made, device=self._gpu).root
        if not _equal(first, MerkleTree(leaves[:few], hash=made).root):
            raise AssertionError(f"{name}: the root of a tree is wrong")
        resident = self._gpu.to_device(leaves)

        def build() -> None:
            _fetch(MerkleTree(resident, hash=made).root)

        if self._gpu.device.kind != "cpu":
            call_for(build, TREE_WARM_UP_SECONDS)
        seconds = self._time(build)
        bound = (count - 1) * operations / self._rates[case.rate]
        return TreeRow(
            name,
            log_leaves,
            ms=1e3 * seconds,
            bound_ms=1e3 * bound,
            of_bound=bound / float(seconds),
            hashes_per_second=(count - 1) / seconds,
        )


def _draw_bytes(rows: int, length: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Random rows, which repeat after a prime number of bytes."""
    tile = np.random.default_rng(1).integers(0, 256, TILE_BYTES - 3, np.uint8)
    return np.resize(tile, (rows, length))


def _get_words(array: Any) -> Any:
    """The words of an array of elements; bytes as they are."""
    return array.data if isinstance(array, FieldArray) else array


def _fetch(array: Any) -> Any:
    """Digests as an array of the host."""
    if isinstance(array, FieldArray):
        return array.ints()
    return array.numpy() if isinstance(array, DeviceArray) else np.asarray(array)


def _equal(a: Any, b: Any) -> bool:
    return bool(np.array_equal(_fetch(a), _fetch(b)))


def _check_ends(name: str, function: Callable[..., Any], rows: Any, found: Any) -> None:
    """Compare rows at either end with those that the host computes."""
    for part in (slice(SAMPLE), slice(-SAMPLE, None)):
        if not _equal(function(rows[part]), found[part]):
            raise AssertionError(f"{name}: wrong results")


# --- targets ---

AIMS = {
    ("SHA256", 64): 5.0,
    ("SHA3_256", 64): 2.5,
    ("KECCAK256", 64): 2.5,
}
"""G hashes per second of rows of that many bytes on an NVIDIA H200."""
MESSAGE_AIM = 1.5
"""Milliseconds of a message of 1 GiB."""
TREE_AIMS = {"Poseidon2 BabyBear 16": 27.0, "KECCAK256": 8.0}
"""Milliseconds of trees of 2^24 leaves."""
OF_BOUND, POSEIDON_AIM = 0.7, 70.0
"""Of Poseidon2 in BabyBear, and M hashes per second of Poseidon in BN254."""


def check_targets(
    rows: Sequence[HashRow], trees: Sequence[TreeRow], device: DeviceInfo
) -> list[Target]:
    """Return the targets on an NVIDIA H200; none on other devices."""
    if not is_h200(device):
        return []
    targets = []
    for row in rows:
        aim = AIMS.get((row.hash, row.length))
        if aim is not None:
            what = f"{row.hash}, rows of {row.length} bytes"
            targets.append(Target(what, row.hashes_per_second / 1e9, aim, "G/s"))
        if row.what == "message" and row.length == 1 << 30:
            taken = 1e3 / row.hashes_per_second
            targets.append(Target(f"{row.hash}, 1 GiB", taken, MESSAGE_AIM, "ms", at_most=True))
        if row.hash == "Poseidon2 BabyBear 16":
            targets.append(Target(f"{row.hash}, of its bound", row.of_bound, OF_BOUND, "x"))
        if row.hash == "Poseidon BN254, 2 inputs":
            targets.append(Target(row.hash, row.hashes_per_second / 1e6, POSEIDON_AIM, "M/s"))
    for tree in trees:
        aim = TREE_AIMS.get(tree.hash)
        if aim is not None and tree.log_leaves == 24:
            targets.append(Target(f"tree of 2^24, {tree.hash}", tree.ms, aim, "ms", at_most=True))
    return targets
