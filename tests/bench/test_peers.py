"""`gpu-executor bench peers`: packages that are installed, absent, broken or wrong."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
from click.testing import CliRunner

from gpu_executor import curves, kzg
from gpu_executor.bench import peer_programs, peers, suite
from gpu_executor.bench.peer_programs import (
    MODULUS,
    PROGRAMS,
    CkzgProgram,
    FlintProgram,
    NumpyProgram,
    Operation,
    OwnProgram,
    PeerProgram,
    PyEccProgram,
    WgpuProgram,
)
from gpu_executor.bench.peers import FirstCall, OpenPeers, PeerRow, PeerSizes, PeerState, PeerWork
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.suite import PeersMeasurement
from gpu_executor.cli.commands import commands
from gpu_executor.curves import BLS12_381_G1
from gpu_executor.fields import BABYBEAR
from tests.support.benchmark_files import read_tables
from tests.support.curves_under_test import SMALL, add_ints, list_points, multiply_ints

TINY = PeerSizes((1, 1_000), (3, 65), 33, 20, 1, 2, 0, max_rounds=3, processes=1)


class AbsentProgram(PeerProgram):
    name, module, distribution = "absent", "no_such_module", "no-such-package"
    summary = "nothing"


class BrokenProgram(PeerProgram):
    """A package that is installed but has no device."""

    name, module, distribution = "broken", "json", "numpy"
    summary = "nothing"

    def __init__(self) -> None:
        raise RuntimeError("no device")


class WrongProgram(NumpyProgram):
    name = "wrong"

    def prepare_adder(self, count: int) -> Any:
        return np.subtract


def measure(
    *programs: type[PeerProgram], operations: set[str], sizes: PeerSizes = TINY
) -> dict[tuple[str, str], PeerRow]:
    """The rows of the operations by package, of the largest size."""
    works = (each for each in peers.list_works(sizes, {}) if each.operation in operations)
    with OpenPeers(programs) as opened:
        assert [each.state for each in opened.states] == ["measured"] * len(programs)
        rows = [row for work in works for row in peers.measure_work(work, opened.programs, sizes)]
    return {(row.package, row.operation): row for row in rows}


def test_constants_are_those_of_this_package() -> None:
    """The script has constants of its own, because it imports nothing of this package first."""
    assert BABYBEAR.modulus == MODULUS == 2**27 * 3 * 5 + 1
    for factor in (2, 3, 5):
        assert pow(peer_programs.GENERATOR, (MODULUS - 1) // factor, MODULUS) != 1
    generator = BLS12_381_G1.generator
    assert (int(generator.x.ints()), int(generator.y.ints())) == peer_programs.GENERATOR_POINT
    assert peer_programs.SPIRV.is_file()


@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 9), (300, 200)])
def test_exact_products_of_polynomials(first: int, second: int) -> None:
    rng = np.random.default_rng(first)
    a = rng.integers(0, MODULUS, first).astype(np.uint32)
    b = rng.integers(0, MODULUS, second).astype(np.uint32)
    for x, y in ((a, b), (np.full_like(a, MODULUS - 1), np.full_like(b, MODULUS - 1))):
        product = flint.nmod_poly(x.tolist(), MODULUS) * flint.nmod_poly(y.tolist(), MODULUS)
        expected = [int(product[index]) for index in range(first + second - 1)]
        assert peers.multiply_polynomials(x, y).tolist() == expected


def test_installed_packages_do_the_same_work() -> None:
    operations = {"sum", "batch of sums", "products", "polynomial product"}
    rows = measure(OwnProgram, NumpyProgram, WgpuProgram, FlintProgram, operations=operations)
    assert set(rows) == {
        *(("gpu-executor", operation) for operation in operations),
        *(("NumPy", operation) for operation in ("sum", "batch of sums", "products")),
        *(("wgpu-py", operation) for operation in ("sum", "batch of sums")),
        *(("python-flint", operation) for operation in ("products", "polynomial product")),
    }
    for (package, _), row in rows.items():
        assert isinstance(row.ms, Sampled) and len(row.ms.samples) == 3 and row.reason is None
        assert isinstance(row.slower, Sampled) and row.slower > 0
        assert row.per_second == pytest.approx(row.elements * row.jobs / row.ms * 1e3)
        assert package != "gpu-executor" or set(row.slower.samples) == {1}
    assert rows["NumPy", "batch of sums"].jobs == 3


@pytest.mark.slow
def test_commitments_and_sums_of_points() -> None:
    works = {each.operation: each for each in peers.list_works(TINY, {})}
    for program in (CkzgProgram, PyEccProgram):
        work = works[program.first]
        prepared = program().prepare(work.operation, *work.inputs)
        assert prepared is not None
        assert work.is_right(prepared.read(prepared.call())), program.name


def test_own_sums_of_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a curve whose pipelines compile quickly."""
    curve = SMALL[2]
    monkeypatch.setattr(curves, "BLS12_381_G1", curve)
    points, scalars = list_points(curve)[1:4], [5, 0, 72]
    expected = None
    for point, scalar in zip(points, scalars, strict=True):
        expected = add_ints(curve, expected, multiply_ints(curve, scalar, point))
    with OpenPeers([OwnProgram]) as opened:
        prepared = opened.programs[0].prepare("point sum", points, scalars)
        assert prepared is not None and prepared.read(prepared.call()) == expected


def test_own_commitments_load_their_setup_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/kzg` has the commitments themselves."""
    opened: list[Any] = []
    closed: list[Any] = []

    class Setup:
        def close(self) -> None:
            closed.append(self)

    def load(path: Path, device: Any) -> Setup:
        opened.append((path, device.device.name))
        return Setup()

    monkeypatch.setattr(kzg, "load_trusted_setup", load)
    monkeypatch.setattr(kzg, "blob_to_kzg_commitment_batch", lambda blobs, _setup: blobs[:, :2])
    blobs, path = np.arange(6, dtype=np.uint8).reshape(2, 3), Path("setup.txt")
    with OpenPeers([OwnProgram]) as peer:
        program = peer.programs[0]
        for _ in range(2):
            prepared = program.prepare("commitments", blobs, path)
            assert prepared is not None
            assert prepared.read(prepared.call()) == bytes([0, 1, 3, 4])
        assert opened == [(path, program.device)] and not closed
    assert len(closed) == 1


def test_absent_and_broken_packages_are_named() -> None:
    with OpenPeers([AbsentProgram, BrokenProgram, NumpyProgram]) as opened:
        assert [each.name for each in opened.programs] == ["NumPy"]
    absent, broken, numpy = opened.states
    assert absent == PeerState(
        "absent",
        "absent",
        program="nothing",
        reason="not installed; pip install no-such-package",
    )
    assert (broken.state, broken.reason) == ("failed", "RuntimeError: no device")
    assert (numpy.state, numpy.version, numpy.device) == ("measured", np.__version__, "CPU")
    # Neither is started in a process of its own.
    assert peers.list_first_calls([absent, broken]) == []


def test_packages_without_their_modules_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"pyopencl", "kp", "vkdispatch", "cupy", "torch", "galois"}
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find(name)
    )
    absent = [each for each in PROGRAMS if each.module in missing]
    with OpenPeers(absent) as opened:
        assert not opened.programs
    assert [each.package for each in opened.states] == [
        *("PyOpenCL", "Kompute", "vkdispatch", "CuPy", "PyTorch", "galois"),
    ]
    assert {each.state for each in opened.states} == {"absent"}


def test_a_wrong_result_is_named_and_not_timed() -> None:
    rows = measure(OwnProgram, WrongProgram, operations={"sum"})
    wrong = rows["wrong", "sum"]
    assert wrong.ms is None and wrong.per_second is None and wrong.slower is None
    assert wrong.reason == "AssertionError: wrong: wrong result of sum of 1,000"
    assert rows["gpu-executor", "sum"].ms is not None


def test_a_package_that_fails_while_it_is_timed_is_named() -> None:
    class FailingProgram(NumpyProgram):
        name = "failing"

        def prepare_adder(self, count: int) -> Any:
            calls = iter(range(2))

            def add(a: Any, b: Any) -> Any:
                if next(calls) == 1:
                    raise MemoryError("no memory")
                return a + b

            return add

    rows = measure(OwnProgram, FailingProgram, operations={"sum"})
    failed = rows["failing", "sum"]
    assert (failed.ms, failed.slower, failed.reason) == (None, None, "MemoryError: no memory")
    assert rows["gpu-executor", "sum"].ms is not None


def test_versions_are_found_under_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy is installed as cupy-cuda12x, for example."""
    monkeypatch.setattr(FlintProgram, "distribution", "no-such-package")
    with OpenPeers([FlintProgram]) as opened:
        assert opened.states[0].version == importlib.metadata.version("python-flint")


def test_an_own_wrong_result_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnProgram, "prepare_adder", WrongProgram.prepare_adder)
    with pytest.raises(AssertionError, match="gpu-executor: wrong result of sum of 1"):
        measure(OwnProgram, operations={"sum"})


@pytest.mark.parametrize(
    "found",
    [
        [np.zeros(2, np.uint32)],
        [np.zeros(2, np.uint32), np.zeros(3, np.uint32)],
        [np.zeros(2, np.uint32), np.zeros(2, np.uint64)],
        [np.zeros(2, np.uint32), np.array([0, 1], np.uint32)],
    ],
)
def test_a_batch_is_right_if_all_its_sums_are(found: list[Any]) -> None:
    work = PeerWork("batch of sums", 2, 2, (), [np.zeros(2, np.uint32)] * 2)
    assert work.is_right([np.zeros(2, np.uint32)] * 2)
    assert not work.is_right(found)


def test_commitments_without_their_extra_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "eth_account" else find(name)
    )
    left_out: dict[str, str] = {}
    operations = [each.operation for each in peers.list_works(TINY, left_out)]
    assert "commitments" not in operations and operations[-1] == "point sum"
    assert left_out == {
        "commitments": "not installed: eth_account; pip install 'gpu-executor[kzg]'"
    }


def test_a_quick_run_loads_no_trusted_setup() -> None:
    left_out: dict[str, str] = {}
    works = peers.list_works(dataclasses.replace(TINY, blobs=0), left_out)
    assert "commitments" not in [each.operation for each in works]
    assert left_out == {"commitments": "not in a quick run; the benchmark kzg has them"}
    assert peers.QUICK_SIZES.blobs == 0
    states = [PeerState("gpu-executor", "measured"), PeerState("ckzg", "measured")]
    assert peers.list_first_calls(states, left_out) == [("gpu-executor", "sum")]


def test_first_calls_are_compared_with_this_package_at_the_same_work() -> None:
    states = [
        PeerState("gpu-executor", "measured"),
        PeerState("NumPy", "measured"),
        PeerState("CuPy", "absent"),
        PeerState("galois", "measured"),
        PeerState("ckzg", "failed"),
    ]
    assert peers.list_first_calls(states) == [
        ("gpu-executor", "sum"),
        ("NumPy", "sum"),
        ("gpu-executor", "products"),
        ("galois", "products"),
    ]


@pytest.mark.slow
def test_first_calls_are_made_in_fresh_processes() -> None:
    works: list[tuple[str, Operation]] = [
        ("gpu-executor", "sum"),
        ("gpu-executor", "polynomial product"),
        ("python-flint", "polynomial product"),
        ("py_ecc", "point sum"),
    ]
    measured = [peers.measure_first_call(*each, 1) for each in works]
    for each in measured:
        assert each.reason is None
        assert isinstance(each.ms, Sampled) and len(each.ms.samples) == 1
        assert each.ms > 10  # an interpreter was started
        assert each.resident_bytes is not None and each.resident_bytes > 10e6


def test_a_failed_first_call_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    monkeypatch.setattr(peer_programs, "__file__", str(script))
    for code, reason in (
        ("raise SystemExit('no device')", "no device"),
        ("import os; os._exit(3)", "exit code 3"),
        ("print('another line')", "exit code 0"),
        ("import time; time.sleep(60)", "no result in 0.1 s"),
    ):
        script.write_text(code)
        monkeypatch.setattr(peers, "FIRST_CALL_SECONDS", 0.1 if "sleep" in code else 60)
        found = peers.measure_first_call("NumPy", "sum", 1)
        assert found.reason == f"first call: {reason}" and found.ms is None
    monkeypatch.setattr(peers, "FIRST_CALL_SECONDS", 60)
    script.write_text("raise SystemExit('no device')")
    with pytest.raises(RuntimeError, match="first call: no device"):
        peers.measure_first_call("gpu-executor", "sum", 1)


def test_the_command_prints_tables_and_writes_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measured = PeersMeasurement(
        suite.select_device(),
        [
            PeerState("gpu-executor", "measured", "1", "a GPU", "run"),
            PeerState("CuPy", "absent", program="a + b", reason="not installed; pip install cupy"),
            PeerState("Kompute", "failed", "2", None, "a sequence", "RuntimeError: no device"),
        ],
        [
            PeerRow("gpu-executor", "batch of sums", 4096, 16, 10.0, 6.5e6, 1.0),
            PeerRow("NumPy", "batch of sums", 4096, 16, 5.0, 13e6, 0.5),
            PeerRow("wgpu-py", "batch of sums", 4096, 16, None, None, None, "Error: [lost]"),
        ],
        {"commitments": "not installed: eth_account"},
        [
            FirstCall("gpu-executor", "sum", 840.0, 120_000_000),
            FirstCall("NumPy", "sum", 90.0, None),
            FirstCall("wgpu-py", "sum", None, None, "first call: lost"),
        ],
    )
    quick: list[bool] = []

    def measure_fixed(_watch: object, **options: bool) -> PeersMeasurement:
        quick.append(options["quick"])
        return measured

    monkeypatch.setattr(suite, "measure_peers", measure_fixed)
    file = tmp_path / "peers.json"
    shown = CliRunner().invoke(commands, ["bench", "peers", "--quick", "--json", str(file)])
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    for text in (
        "NumPy 16 x 4 K 5.0 ms 13 M/s 0.50x",
        "wgpu-py 16 x 4 K failed",
        "CuPy not installed",
        "First calls of a process: a sum of 1,024 32-bit integers",
        "gpu-executor 840 ms 120 MB",
        "wgpu-py, sum: first call: lost",
        "CuPy: not installed; pip install cupy",
        "Kompute: RuntimeError: no device",
        "wgpu-py, batch of sums of 4,096: Error: [lost]",
        "commitments: not installed: eth_account",
    ):
        assert text in words, text
    assert quick == [True]
    written = read_tables(file, "peers")
    assert [each["state"] for each in written["packages"]] == ["measured", "absent", "failed"]
    assert written["rows"][1]["slower"] == 0.5
    assert written["left_out"] == measured.left_out
