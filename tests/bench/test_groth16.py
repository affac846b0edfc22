"""The benchmark of Groth16 proofs: every proof is verified, and what was not measured is named."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import gpu_executor as gx
from gpu_executor import groth16
from gpu_executor.bench import groth16 as bench
from gpu_executor.bench import suite
from gpu_executor.bench.circuits import make_chain
from gpu_executor.bench.groth16 import CircuitFiles, Groth16Row
from gpu_executor.bench.groth16_peers import (
    PeerProof,
    ProofFiles,
    ProverPeerError,
    Rapidsnark,
    find_peers,
)
from gpu_executor.bench.groth16_stages import ProductRates
from gpu_executor.bench.results import BenchmarkResult
from gpu_executor.bench.sampled import Sampled
from gpu_executor.cli.commands import commands
from gpu_executor.groth16.proof_curve import get_proof_curve
from gpu_executor.vulkan.instance import find_devices
from tests.groth16.conftest import shared_tables
from tests.support.benchmark_runs import make_groth16

__all__ = ["shared_tables"]  # a fixture

BN128 = get_proof_curve("bn128")
LOG = 3


@dataclasses.dataclass
class MadeProof:
    """A circuit with its files, its key on the device, and a proof of it."""

    files: CircuitFiles
    given: ProofFiles
    key: groth16.ProvingKey
    proof: groth16.Proof
    public: list[int]

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The proof and its public values as files."""
        proof, public = folder / "right-proof.json", folder / "right-public.json"
        proof.write_text(self.proof.to_json())
        public.write_text(groth16.public_to_json(self.public))
        return proof, public


@pytest.fixture(autouse=True)
def quick(shared_tables: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more proofs than a measurement needs."""
    monkeypatch.setattr(bench, "BUDGET", 0.0)
    monkeypatch.setattr(bench, "MIN_CALLS", 2)


@pytest.fixture(scope="module")
def made(
    gpu: gx.PersistentVulkanBackend, shared_tables: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MadeProof]:
    files = CircuitFiles(BN128, "uniform", LOG, tmp_path_factory.mktemp("circuit"))
    files.make_key(gpu)
    with groth16.ProvingKey.load(files.zkey, device=gpu) as key:
        yield MadeProof(files, files.save_witness(), key, *key.prove(files.witness))


class FailingPeer:
    """A prover that fails."""

    package, version, curves = "failing", "1", ("bn128",)

    def prove(self, files: ProofFiles, repeats: int) -> PeerProof:
        assert files.zkey.is_file() and files.witness.is_file() and repeats
        raise ProverPeerError("no proof today")


@pytest.mark.slow
def test_a_circuit_is_timed_by_stage_and_beside_other_provers(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    """snarkjs proves too where it is installed."""
    found, states = find_peers(None, None)
    assert [each.package for each in states] == ["snarkjs", "rapidsnark"]
    rates = ProductRates(1e9, 1e9)
    (times,) = bench.measure_proofs(
        gpu, BN128, [LOG], ["uniform"], peers=[FailingPeer(), *found], rates=rates
    )
    row = times.row
    assert (row.curve, row.circuit, row.log_constraints) == ("bn128", "uniform", LOG)
    assert row.signals == 1 << LOG  # the constant, the input, and one for each constraint
    assert 0 < row.best_ms <= row.ms and isinstance(row.ms, Sampled)
    assert min(row.setup_ms, row.save_ms, row.load_ms, row.batch_ms, row.verify_ms) > 0
    assert row.device_bytes > row.key_bytes > 0 and row.file_bytes > 0
    failing, *others = times.peers
    assert (failing.package, failing.ms, failing.reason) == ("failing", None, "no proof today")
    assert [each.package for each in others] == [each.package for each in found]
    assert all(each.ms is not None and each.ms > 0 for each in others)
    assert times.stages is not None and times.stages.device_ms > 0
    assert list(times.stages.stages_ms) == [
        "signals", "quotient", "digits, sort", "accumulate A", "accumulate C", "accumulate B1",
        "accumulate H", "accumulate B2", "reduce, join",
    ]  # fmt: skip
    assert min(times.stages.stages_ms.values()) > 0
    alone = times.stages.products_ms
    assert alone["quotient"] == pytest.approx((6 * LOG / 2 + 5) * (1 << LOG) / 1e6)
    assert alone["accumulate B2"] == pytest.approx(3 * alone["accumulate B1"])


@pytest.mark.parametrize("circuit", bench.CIRCUITS)
def test_witnesses_satisfy_their_circuits(circuit: str) -> None:
    made, witness = bench.CIRCUITS[circuit](BN128, 62)
    assert made.n_constraints == 62 and made.n_wires == len(witness) == 64
    sums = []
    for matrix in (made.a, made.b, made.c):
        factors = [int.from_bytes(each.tobytes(), "little") for each in matrix.values]
        terms = [x * witness[int(at)] for x, at in zip(factors, matrix.wires, strict=True)]
        starts = matrix.row_starts.tolist()
        sums.append([sum(terms[begin:end]) for begin, end in pairwise(starts)])
    assert all((a * b - c) % BN128.r == 0 for a, b, c in zip(*sums, strict=True))


@pytest.mark.slow
def test_a_proof_that_does_not_verify_ends_the_benchmark(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_wrong(curve: Any, constraints: int) -> Any:
        circuit, witness = make_chain(curve, constraints)
        values = [witness[each] for each in range(len(witness))]
        values[-1] += 1
        return circuit, groth16.Witness.from_values(values, curve)

    monkeypatch.setitem(bench.CIRCUITS, "uniform", make_wrong)
    with pytest.raises(AssertionError, match=r"bn128, uniform, 2\^3: a proof of this package"):
        next(bench.measure_proofs(gpu, BN128, [LOG], ["uniform"]))


def test_a_process_proves_from_files_to_files(
    made: MadeProof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/cli has the command itself. The processes here copy a proof."""
    group = commands.get_command(click.Context(commands), bench.COMMAND[2])
    assert isinstance(group, click.Group)
    files = [each.name for each in group.commands[bench.COMMAND[3]].params if each.required]
    assert files == ["circuit_zkey", "witness_wtns", "proof_json", "public_json"]
    copies = (
        "import os, sys; from pathlib import Path; "
        "assert os.path.isdir(os.environ['GPU_CACHE_DIR']); "
        f"proof, public = {[each.read_text() for each in made.write(tmp_path)]!r}; "
        "Path(sys.argv[3]).write_text(proof); Path(sys.argv[4]).write_text(public)"
    )
    monkeypatch.setattr(bench, "COMMAND", ("-c", copies))
    caches = bench.list_empty_caches(tmp_path / "caches")
    assert bench.time_command(made.files, tmp_path, caches) > 0
    wrong = copies.replace("(public)", "('[\"5\"]')")
    monkeypatch.setattr(bench, "COMMAND", ("-c", wrong))
    with pytest.raises(AssertionError, match="a proof of a process does not verify"):
        bench.time_command(made.files, tmp_path, caches)
    monkeypatch.setattr(bench, "COMMAND", ("-c", "raise SystemExit('no device')"))
    with pytest.raises(gx.GpuError, match="no device"):
        bench.time_command(made.files, tmp_path, caches)


def test_peers_are_asked_for_what_they_can_prove(
    made: MadeProof, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, peer = made.key.verification_key, FailingPeer()
    monkeypatch.setattr(bench, "LARGEST_OF_PEERS", LOG - 1)
    assert bench._measure_peer(peer, made.files, key).reason == "measured up to 2^2 only"
    monkeypatch.setattr(peer, "curves", ("bls12381",))
    assert bench._measure_peer(peer, made.files, key).reason == "it proves with bls12381 only"


def write_program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_rapidsnark_is_a_process_for_each_proof(made: MadeProof, tmp_path: Path) -> None:
    proof, public = (shlex.quote(str(each)) for each in made.write(tmp_path))
    text = f'test -f "$1" -a -f "$2" && cp {proof} "$3" && cp {public} "$4"'
    program = write_program(tmp_path / "prover", text)
    (peer,) = (each for each in find_peers(None, program)[0] if each.package == "rapidsnark")
    found = peer.prove(made.given, 2)
    assert len(found.ms.samples) == 2
    made.files.check(made.key.verification_key, [(found.proof, found.public)], "rapidsnark")
    wrong = [(found.proof, [each + 1 for each in found.public])]
    with pytest.raises(AssertionError, match="a proof of rapidsnark does not verify"):
        made.files.check(made.key.verification_key, wrong, "rapidsnark")
    failing = Rapidsnark(write_program(tmp_path / "failing", "echo bad key >&2; exit 3"))
    with pytest.raises(ProverPeerError, match="failing ended with status 3: bad key"):
        failing.prove(made.given, 1)


def test_provers_that_are_absent_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(*given: Any, **options: Any) -> list[str | None]:
        peers, states = find_peers(*given, **options)
        assert peers == []
        return [each.reason for each in states]

    plain = tmp_path / "prover"
    plain.touch()
    monkeypatch.setattr("gpu_executor.bench.groth16_peers.shutil.which", lambda _: "/bin/sh")
    first, second = explain(tmp_path, plain)
    assert first == f"not found: {tmp_path.name} has no node_modules/snarkjs"
    assert second == "prover is not a program that can be run"
    assert explain(None, None, wanted=False) == ["comparisons were not asked for"] * 2
    monkeypatch.setattr("gpu_executor.bench.groth16_peers.shutil.which", lambda _: None)
    first, second = explain(None, None)
    assert first == "not found: Node is not installed"
    assert second is not None and "--rapidsnark" in second


def test_targets_are_for_proofs_of_bn128_on_an_h200() -> None:
    device = dataclasses.replace(find_devices()[0], name="NVIDIA H200")
    row = Groth16Row(
        "bn128", "uniform", 20, 1, 2e3, 1.0, 310.0, 1.0, 44.0, 43.0, 8, 40.0, 9.0, 1, 1, 1
    )  # fmt: skip
    bits = dataclasses.replace(row, circuit="bits", ms=66.0)
    found = [
        (each.what, each.measured, each.met) for each in bench.check_targets([row, bits], device)
    ]
    assert found == [
        ("a proof, 2^20 constraints", 44.0, True),
        ("load, 2^20 constraints", 310.0, False),
        ("setup, 2^20 constraints", 2e3, True),
        ("bits, 2^20", 1.5, False),
    ]
    other = dataclasses.replace(row, curve="bls12381")
    assert bench.check_targets([other], device) == []
    assert bench.check_targets([row], dataclasses.replace(device, name="another")) == []


def test_the_command_prints_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {}

    def measure(_watch: Any, **given: Any) -> suite.Groth16Measurement:
        options.update(given)
        return make_groth16(find_devices()[0])

    monkeypatch.setattr(suite, "measure_groth16", measure)
    arguments = ["bench", "groth16", "--sizes", "5", "--sizes", "4", "--sizes", "5", "--no-peer"]
    shown = CliRunner().invoke(commands, arguments)
    assert shown.exit_code == 0, shown.output
    assert options["sizes"] == (4, 5) and not options["peer"]
    words = " ".join(shown.output.split())
    for each in (
        "snarkjs: version 0.7.6, Node 20.1.0",
        "rapidsnark: not found",
        "snarkjs, bits, 2^20: node took more than 600 s",
        "4.00 s with empty caches, 0.90 s the next time",
        "Stages, uniform, ms",
    ):
        assert each in words, each
    assert "…" not in shown.output


def test_the_file_has_all_samples_of_a_circuit() -> None:
    series = BenchmarkResult.of(make_groth16(find_devices()[0])).series
    (own,) = (
        each
        for each in series
        if (each.table, each.figure) == ("rows", "ms")
        and {"circuit": "bits", "log_constraints": 16}.items() <= dict(each.key).items()
    )
    assert len(own.samples) == 5 and own.unit == "ms"
