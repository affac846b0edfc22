"""The benchmark of hash functions: counts, bounds, other packages, and results that are checked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gpu_executor as gx
from gpu_executor.bench import fields, hash_bounds, hash_peers, hashes, suite
from gpu_executor.bench.hash_bounds import ChainRate, ChainSizes
from gpu_executor.bench.hashes import ByteCase, FieldCase, HashBench, HashSizes
from gpu_executor.bench.results import BenchmarkResult
from gpu_executor.bench.timing import TimingBudget
from gpu_executor.cli.commands import commands
from gpu_executor.fields import BABYBEAR, BN254_FR, FieldArray
from gpu_executor.hashes import HashFunction
from gpu_executor.vulkan.instance import find_devices
from tests.support.benchmark_runs import make_hashes

Gpu = gx.PersistentVulkanBackend
BUDGET = TimingBudget(warm_up=0, round=0.001, max_rounds=3, per_function=0.01)
SIZES = HashSizes(1 << 12, 1 << 6, 1 << 4, 1 << 10, (2,))
RATES = [ChainRate(each, 1e9) for each in ("add_xor_rotate", "logic_rotate", "babybear")]


class FirstBytes(HashFunction):
    """A stand-in: the first bytes or elements of a row, on every device."""

    name = "first bytes"

    def __init__(self, size: int, *, wrong: bool = False) -> None:
        self.digest_shape = (size,)
        self._wrong = wrong

    def hash(self, rows: Any, *, device: Any = None) -> Any:
        place = rows if device is None else device.to_device(rows)
        first = int(self._wrong and not isinstance(rows, np.ndarray))
        taken = place[:, first : first + self.digest_shape[0]].copy()
        return taken if device is None else self._fetch(taken)

    @staticmethod
    def _fetch(digests: Any) -> Any:
        return digests.to_host() if isinstance(digests, FieldArray) else digests.numpy()

    permute = hash

    def compress(self, children: Any, arity: int = 2, *, device: Any = None) -> Any:
        return children[::arity].copy()


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    made: dict[str, Any] = {"BYTES": FirstBytes(32), "ELEMENTS": FirstBytes(8)}
    bytes_, elements = (
        ByteCase("BYTES", lambda length: 10 + length, "add_xor_rotate"),
        FieldCase("ELEMENTS", BABYBEAR, lambda: made["ELEMENTS"], 100, 16, permutes=False),
    )
    monkeypatch.setattr(ByteCase, "make", lambda self: made[self.name])
    cases = {"BYTES": bytes_, "ELEMENTS": elements}
    monkeypatch.setattr(hashes, "CASES", cases)
    monkeypatch.setattr(hashes, "BYTE_CASES", {"BYTES": bytes_})
    monkeypatch.setattr(hashes, "FIELD_CASES", {"ELEMENTS": elements})
    monkeypatch.setattr(hashes, "TREES", ("BYTES",))
    monkeypatch.setattr(hashes, "LARGE", "BYTES")
    return made


# --- counts ---


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (hash_bounds.count_sha256(55), 64 * 14 + 48 * 10 + 8),
        (hash_bounds.count_sha256(56), 2 * (64 * 14 + 48 * 10 + 8) - 48 * 10),
        (hash_bounds.count_sha256(64), 2288),
        (hash_bounds.count_sha256(65), 2 * 1384),
        (hash_bounds.count_sha512(111), 3536),
        (hash_bounds.count_sha512(112), 2 * 3536),
        (hash_bounds.count_keccak(135), 24 * 180),
        (hash_bounds.count_keccak(136), 2 * 24 * 180),
        (hash_bounds.count_blake2s(0), 968),
        (hash_bounds.count_blake2s(65), 2 * 968),
        (hash_bounds.count_blake3(0), 680),
        (hash_bounds.count_blake3(1024), 16 * 680),
        (hash_bounds.count_blake3(1025), (17 + 1) * 680),
        (hash_bounds.count_ripemd160(55), 2 * 80 * 6 - 32 + 5),
        (hash_bounds.count_ripemd160(64), 933 + 805),
        (hash_bounds.count_rounds(16, 8, 13, 7), 564),
        (hash_bounds.count_rounds(16, 8, 20, 3), 8 * 16 * 2 + 20 * 2),
        (hash_bounds.count_poseidon(3, 8, 57, 5), 600),
    ],
)
def test_operations_are_counted_by_their_formula(found: int, wanted: int) -> None:
    assert found == wanted


def test_rates_of_chains_are_measured(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "measure_product_chains", lambda *_: 7.0)
    rates = hash_bounds.measure_rates(gpu, [BABYBEAR, BN254_FR], ChainSizes(64, 8))
    assert [each.operation for each in rates] == [
        *("add_xor_rotate", "logic_rotate", "logic", "logic_add_rotate", "babybear", "bn254_fr")
    ]
    assert all(each.per_second > 0 for each in rates) and rates[-1].per_second == 7.0


# --- other packages ---


@pytest.mark.parametrize("name", hashes.BYTE_CASES)
def test_other_packages_compute_the_same_function(name: str, tmp_path: Path) -> None:
    """What the processes hash, by the name that this package has for it."""
    namespace: dict[str, Any] = {}
    definition = hash_peers.SCRIPT.partition("many =")[0]
    argv, sys.argv = sys.argv, ["", name, "64", "0"]
    try:
        exec(definition, namespace)
        found = namespace["digest"](b"abc")
    except ValueError:
        pytest.skip("this OpenSSL has no RIPEMD-160")
    finally:
        sys.argv = argv
    known = {
        "SHA256": hashlib.sha256(b"abc").hexdigest(),
        "SHA256D": hashlib.sha256(hashlib.sha256(b"abc").digest()).hexdigest(),
        "SHA512": hashlib.sha512(b"abc").hexdigest(),
        "SHA3_256": hashlib.sha3_256(b"abc").hexdigest(),
        # keccak256("abc") of Ethereum, BLAKE3 of its test vectors, RIPEMD-160 of its paper.
        "KECCAK256": "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45",
        "BLAKE2S": hashlib.blake2s(b"abc").hexdigest(),
        "BLAKE3": "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        "RIPEMD160": "8eb208f7e05d987a9b044a8e98c6b087f15a0bfc",
    }
    assert found.hex() == known[name]


def test_processes_hash_on_all_cores() -> None:
    row = hash_peers.measure_peer("SHA256", 64, 0.01)
    assert row.processes == hash_peers.count_cores() and row.per_second is not None
    assert row.per_second > 1000
    large = hash_peers.measure_peer("BLAKE3", 1 << 16, 0.01, large=True)
    assert (large.processes, large.what) == (1, "message") and large.per_second


def test_a_package_that_is_absent_or_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hash_peers.MODULES, "blake3", "no_such_module")
    assert hash_peers.measure_peer("BLAKE3", 64).reason == "it is not installed"
    row = hash_peers.measure_peer("NO_SUCH_HASH", 64, 0.01)
    assert row.per_second is None and "no_such_hash" in str(row.reason)


# --- rows and trees ---


def test_rows_have_rates_and_bounds(gpu: Gpu, stand_ins: dict[str, Any]) -> None:
    bench = HashBench(gpu, SIZES, RATES, BUDGET)
    work = hashes.list_work(("BYTES", "ELEMENTS"), (64,))
    assert work == [("BYTES", 64, False), ("BYTES", 0, True), ("ELEMENTS", 0, False)]
    first, large, elements = bench.measure(work)
    assert (elements.unit, elements.length, elements.rows) == ("elements", 16, 16)
    assert (first.what, first.length, first.unit, first.rows) == ("hash", 64, "bytes", 64)
    assert (large.what, large.length, large.rows) == ("message", 1 << 10, 1)
    assert first.operations == 74 and first.arithmetic_per_second == 1e9 / 74
    wanted = first.hashes_per_second / min(1e9 / 74, first.memory_per_second)
    assert first.of_bound == pytest.approx(wanted)
    assert first.memory_per_second == pytest.approx(bench.copy_bytes_per_second / (64 + 32))
    assert min(first.numpy_per_second, first.bus_per_second) > 0
    (tree,) = bench.measure_trees(("BYTES",))
    assert (tree.log_leaves, tree.hash) == (2, "BYTES")
    assert tree.bound_ms == pytest.approx(1e3 * 3 * 74 / 1e9)


def test_a_wrong_result_ends_the_benchmark(gpu: Gpu, stand_ins: dict[str, Any]) -> None:
    stand_ins["BYTES"] = FirstBytes(32, wrong=True)
    bench = HashBench(gpu, SIZES, RATES, BUDGET)
    with pytest.raises(AssertionError, match="BYTES: wrong results"):
        list(bench.measure([("BYTES", 64, False)]))


def test_targets_are_those_of_one_gpu() -> None:
    device = find_devices()[0]
    measured = make_hashes(device)
    assert hashes.check_targets(measured.rows, measured.trees, device) == []
    h200 = dataclasses.replace(device, name="NVIDIA H200")
    found = {each.what: each for each in hashes.check_targets(measured.rows, measured.trees, h200)}
    assert found["SHA256, rows of 64 bytes"].met
    assert found["BLAKE3, 1 GiB"].measured == pytest.approx(1e3 / 700)
    assert found["Poseidon2 BabyBear 16, of its bound"].met


def test_the_command_prints_tables_and_writes_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: dict[str, Any] = {}

    def measure(_watch: Any, **options: Any) -> Any:
        given.update(options)
        return make_hashes(find_devices()[0])

    monkeypatch.setattr(suite, "measure_hashes", measure)
    file = tmp_path / "hashes.json"
    arguments = ["--hash", "SHA256", "--length", "64", "--trees", "10", "--json", str(file)]
    ran = CliRunner().invoke(commands, ["bench", "hashes", *arguments])
    assert ran.exit_code == 0, ran.output
    assert given["names"] == ("SHA256",) and given["lengths"] == (64,) and given["trees"] == (10,)
    for words in ("add, xor, rotate", "0.80", "blake3, BLAKE3: it is not installed", "2^24"):
        assert words in ran.output, words
    content = json.loads(file.read_text())["benchmarks"]["hashes"]
    result = BenchmarkResult.from_dict(content)
    names = {series.name for series in result.series}
    assert any("hashes_per_second" in name and "hash SHA256" in name for name in names)
