"""`gpu-executor bench peers --program`: programs that are right, and every way to be wrong."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from gpu_executor.bench import program_comparison, program_works, suite, user_program
from gpu_executor.bench.peers import OWN
from gpu_executor.bench.program_comparison import OpenPrograms, ProgramRow, RoundBudget
from gpu_executor.bench.program_works import ProgramOperation, ProgramWork
from gpu_executor.bench.results import read_run
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.suite import Item, PeersMeasurement
from gpu_executor.bench.user_program import ProgramError, UserProgram
from gpu_executor.cli.commands import commands
from gpu_executor.curves import BN254_G1
from gpu_executor.errors import OutOfMemoryError
from gpu_executor.report.page import make_page
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from tests.support.examples import FOLDER
from tests.support.processes import is_alive

SOURCE = """
import json, os, subprocess, sys, time

def describe(request):
    {describe}

def prepare(request):
    {prepare}

def run(request):
    {run}

for line in sys.stdin:
    request = json.loads(line)
    answer = globals()[request["request"]](request)
    print(json.dumps({{"id": request["id"], **answer}}), flush=True)
"""
DESCRIBE = (
    "return {'name': 'stand-in', 'version': '7f', 'operations': "
    "{'sum': ['uint32'], 'product': ['BABYBEAR']}}"
)
PREPARE, RUN = "return {'prepared': True}", "return {'milliseconds': 1e-6}"

EXACT = """
import json, sys
import numpy as np

def read(file, fields):
    rows = np.fromfile(file["path"], np.uint8).reshape(-1, fields, file["bytes_each"] // fields)
    return [tuple(int.from_bytes(each.tobytes(), "little") for each in row) for row in rows]

def reverse(values):
    bits = len(values).bit_length() - 1
    return [values[int(f"{i:0{bits}b}"[::-1], 2)] for i in range(len(values))]

def transform(request, values):
    p, n, root = int(request["modulus"], 16), len(values), int(request["root"], 16)
    assert pow(root, n // 2, p) == p - 1
    values = reverse(values) if request["order_in"] == "reversed" else values
    root = pow(root, -1, p) if request["inverse"] else root
    found = [sum(x * pow(root, i * k, p) for i, x in enumerate(values)) % p for k in range(n)]
    if request["inverse"]:
        found = [x * pow(n, -1, p) % p for x in found]
    return reverse(found) if request["order_out"] == "reversed" else found

BN254 = 0x30644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd47

def add(a, b, p=BN254):
    if a is None or b is None:
        return a or b
    if a[0] == b[0] and (a[1] + b[1]) % p == 0:
        return None
    slope = (
        3 * a[0] * a[0] * pow(2 * a[1], -1, p) if a == b
        else (b[1] - a[1]) * pow(b[0] - a[0], -1, p)
    )
    x = (slope * slope - a[0] - b[0]) % p
    return x, (slope * (a[0] - x) - a[1]) % p

def multiply(point, scalar):
    total = None
    for bit in f"{scalar:b}":
        total = add(total, total)
        total = add(total, point) if bit == "1" else total
    return total

def compute(request):
    name, files = request["operation"], request["inputs"]
    if name == "msm":
        total = None
        for point, (scalar,) in zip(read(files[0], 2), read(files[1], 1), strict=True):
            total = add(total, multiply(point, scalar))
        return [total]
    p = int(request.get("modulus", "0x100000000"), 16)
    operands = [[value for (value,) in read(file, 1)] for file in files]
    assert all(len(each) == request["size"] and max(each) < p for each in operands)
    if name == "transform":
        return [(x,) for x in transform(request, operands[0])]
    length = request.get("length")
    functions = {
        "sum": lambda a, b: (a + b) % p,
        "product": lambda a, b: a * b % p,
        "product_chain": lambda a, b: a * pow(b, length, p) % p,
        "square_chain": lambda a: pow(a, 1 << length, p),
        "inversion": lambda a: pow(a, -1, p),
    }
    return [(functions[name](*each),) for each in zip(*operands, strict=True)]

OPERATIONS = {
    "sum": ["uint32"],
    "product": ["BABYBEAR"],
    "product_chain": ["BLS12_381_FR"],
    "square_chain": ["GOLDILOCKS"],
    "inversion": ["GOLDILOCKS"],
    "transform": ["BABYBEAR"],
    "msm": ["BN254_G1"],
}
for line in sys.stdin:
    request = json.loads(line)
    answer = {"milliseconds": 1e-6}
    if request["request"] == "describe":
        assert request["protocol"] == 1
        answer = {"name": "exact integers", "version": "1", "operations": OPERATIONS}
    elif request["request"] == "prepare":
        nbytes = request["result"]["bytes_each"]
        with open(request["result"]["path"], "wb") as file:
            for row in compute(request):
                file.write(b"".join(x.to_bytes(nbytes // len(row), "little") for x in row))
        answer = {"prepared": True}
    print(json.dumps({"id": request["id"], **answer}), flush=True)
"""


def watch_nothing(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    yield from items


def write_program(
    folder: Path,
    *,
    describe: str = DESCRIBE,
    prepare: str = PREPARE,
    run: str = RUN,
    name: str = "program.py",
) -> list[str]:
    """The command of a program whose three functions have these bodies."""
    path = folder / name
    path.write_text(SOURCE.format(describe=describe, prepare=prepare, run=run))
    return [sys.executable, str(path)]


def measure(
    *programs: Sequence[str],
    operations: Sequence[ProgramOperation] = ("sum",),
    sizes: Sequence[int] = (4,),
    timeout: float = 60.0,
) -> PeersMeasurement:
    return suite.measure_programs(
        watch_nothing, programs, quick=True, operations=operations, sizes=sizes, timeout=timeout
    )


def select(measured: PeersMeasurement, package: str) -> list[ProgramRow]:
    return [row for row in measured.program_rows if row.package == package]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["bench", "peers", *arguments])


def test_every_operation_is_what_exact_integers_make_of_its_description(tmp_path: Path) -> None:
    """A program that knows the protocol alone has the same results as this package."""
    path = tmp_path / "exact.py"
    path.write_text(EXACT)
    operations = tuple(each for each in program_works.OPERATIONS if each != "msm")
    measured = measure([sys.executable, str(path)], operations=operations, sizes=[3])
    rows = select(measured, "exact integers 1")
    assert [row.reason for row in rows if row.reason] == []
    assert all(row.checked and row.state == "measured" for row in measured.program_rows)
    assert {(row.operation, row.field or row.curve, row.what) for row in rows} == {
        ("sum", None, "host memory"),
        ("product", "BABYBEAR", "host memory"),
        ("product", "BABYBEAR", "device memory"),
        ("product_chain", "BLS12_381_FR", "16 in a chain"),
        ("square_chain", "GOLDILOCKS", "16 in a chain"),
        ("inversion", "GOLDILOCKS", "device memory"),
        ("transform", "BABYBEAR", "natural to reversed"),
        ("transform", "BABYBEAR", "natural to natural"),
        ("transform", "BABYBEAR", "inverse, reversed to natural"),
    }
    assert len(select(measured, OWN)) == len(rows)


@pytest.mark.slow
def test_sums_of_points_are_those_of_exact_integers(tmp_path: Path) -> None:
    path = tmp_path / "exact.py"
    path.write_text(EXACT)
    measured = measure([sys.executable, str(path)], operations=["msm"], sizes=[2])
    assert {(row.package, row.curve, row.what, row.elements) for row in measured.program_rows} == {
        (package, "BN254_G1", f"scalars on the {memory}", 4)
        for package in (OWN, "exact integers 1")
        for memory in ("host", "device")
    }
    assert all(row.checked for row in measured.program_rows), measured.program_rows
    assert BN254_G1.field.modulus == int(re.findall(r"BN254 = (0x\w+)", EXACT)[0], 16)


def test_rows_have_times_of_rounds_and_ratios_within_each(tmp_path: Path) -> None:
    measured = measure(write_program(tmp_path))
    own, other = measured.program_rows
    assert (own.package, other.package) == (OWN, "stand-in 7f")
    rounds = program_comparison.QUICK_BUDGET.rounds
    for row in (own, other):
        assert isinstance(row.ms, Sampled) and len(row.ms.samples) == rounds
        assert isinstance(row.slower, Sampled) and len(row.slower.samples) == rounds
        assert row.per_second == pytest.approx(16 / row.ms * 1e3)
    assert isinstance(own.ms, Sampled) and isinstance(other.slower, Sampled)
    assert other.ms == pytest.approx(1e-6)
    assert other.slower.samples == pytest.approx([1e-6 / each for each in own.ms.samples])
    assert own.slower == 1 and own.checked and own.answer_ms is None
    assert not other.checked, "it wrote no result"
    assert other.answer_ms is not None and other.answer_ms > 0


def test_sides_are_timed_by_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    own_time, run = program_works.OwnWork.time, UserProgram.run

    def note_own(self: program_works.OwnWork, calls: int) -> float:
        made.append("own")
        return own_time(self, calls)

    def note_run(self: UserProgram, calls: int) -> tuple[float, float]:
        made.append(self.version)
        return run(self, calls)

    monkeypatch.setattr(program_works.OwnWork, "time", note_own)
    monkeypatch.setattr(UserProgram, "run", note_run)
    other = write_program(tmp_path, describe=DESCRIBE.replace("7f", "8a"), name="other.py")
    measure(write_program(tmp_path), other)
    rounds = [made[at : at + 3] for at in range(3, len(made), 3)]
    assert rounds == [["own", "7f", "8a"], ["7f", "8a", "own"], ["8a", "own", "7f"]]


def test_long_work_has_fewer_rounds(tmp_path: Path) -> None:
    with (
        PersistentVulkanBackend() as gpu,
        OpenPrograms.start([write_program(tmp_path)], 60) as opened,
    ):
        for per_work, rounds in ((0, 3), (600, 5)):
            budget = RoundBudget(seconds=0, rounds=5, warm_up=0, per_work=per_work)
            works = [ProgramWork("sum", "uint32", 3, "host")]
            ((own, other),) = program_comparison.measure_works(gpu, works, opened, budget)
            for row in (own, other):
                assert isinstance(row.ms, Sampled) and len(row.ms.samples) == rounds


FAILURES = [
    # The function, its body, and the reason.
    ("describe", "sys.exit('no GPU here')", 'ended with exit code 1 before it answered "describe": '
     "no GPU here"),
    ("describe", "os.kill(os.getpid(), 9)", "ended with signal 9"),
    ("describe", "os.close(1); time.sleep(60)", "closed its standard output before"),
    ("describe", "return {'name': 'x', 'version': 7, 'operations': {}}", '"version": a text'),
    ("describe", "return {'name': ' ', 'version': '7', 'operations': {}}", '"name": a text'),
    ("describe", "return {'name': 'x', 'version': '7', 'operations': ['sum']}", '"operations"'),
    ("describe", "return {'name': 'x', 'version': '7', 'operations': {'sum': 1}}", '"operations"'),
    ("describe", "return {'name': 'x', 'version': '7', 'operations': {'sum': ['uint8']}}",
     "it supports no operation that this benchmark has"),
    ("describe", "return {'error': 'not today'}", 'answered "describe" with "error": not today'),
    ("prepare", "return {'error': 'out of memory'}", "out of memory"),
    ("prepare", "return {'prepared': 'yes'}", 'expected "prepared": true'),
    ("prepare", "raise MemoryError('none left')", "MemoryError: none left"),
    ("prepare", "print('hello')\n    return {'prepared': True}",
     "with 'hello'; expected a line of JSON"),
    ("prepare", "print('[1, 2]')\n    return {}", "expected an object of JSON"),
    ("prepare", "print('[' * 60_000)\n    return {}", "expected a line of JSON"),
    ("prepare", "os.write(1, b'\\xff\\xfe\\n')\n    return {}", "expected a line of JSON"),
    ("prepare", "return {'id': 1, 'prepared': True}", "expected \"id\": 2"),
    ("prepare", "print('{\"prepared\": true}')\n    return {'prepared': True}",
     "expected \"id\": 2"),
    ("prepare", "print('x' * 70_000)\n    return {}", "a line of more than 65,536 bytes"),
    ("prepare", "while True: os.write(1, b'x' * 65_536)", "a line of more than 65,536 bytes"),
    ("prepare", "while True: os.write(1, b'{}\\n' * 1_000)", "expected \"id\": 2"),
    ("prepare", "open(request['result']['path'], 'wb').write(bytes(64))",
     "wrong result: 16 of 16 differ"),
    ("prepare", "open(request['result']['path'], 'wb').write(bytes(65))",
     "wrong result: the file has to have 64 bytes, 4 for each of 16"),
    ("prepare", "os.mkdir(request['result']['path'])", "wrong result: the file"),
    ("run", "return {'milliseconds': float('nan')}", "nan milliseconds"),
    ("run", "return {'milliseconds': float('inf')}", "inf milliseconds"),
    ("run", "return {'milliseconds': 10 ** 400}", "finite and above 0"),
    ("run", "return {'milliseconds': 0}", "0 milliseconds"),
    ("run", "return {'milliseconds': -1.5}", "-1.5 milliseconds"),
    ("run", "return {'milliseconds': True}", '"milliseconds": a number'),
    ("run", "return {'milliseconds': '3'}", '"milliseconds": a number'),
    ("run", "return {'milliseconds': [1.0]}", '"milliseconds": a number'),
    ("run", "return {}", '"milliseconds": a number'),
    ("run", "return {'milliseconds': 1e6}", "1 calls of 1e+06 ms cannot have been made"),
    ("run", "return {'error': 'lost\\x1b[2J\\nthe device'}", "lost [2J the device"),
    ("run", "sys.exit(3)", 'ended with exit code 3 before it answered "run"'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "body", "reason"), FAILURES, ids=[f"{each[0]}: {each[1]}" for each in FAILURES]
)
def test_a_failure_is_one_reason_and_own_figures_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, body: str, reason: str
) -> None:
    if "os.close" in body:
        monkeypatch.setattr(user_program, "GRACE", 0.3)
    if "result" in body:
        body += "\n    return {'prepared': True}"
    bodies = {function: body}
    measured = measure(write_program(tmp_path, **bodies), timeout=20)
    (state,) = measured.programs
    if function == "describe":
        assert state.package in (f"{Path(sys.executable).name} program.py", "x 7")
        assert state.state == "failed" and state.reason is not None and reason in state.reason
        assert not measured.program_rows
        return
    own, failed = measured.program_rows
    assert own.package == OWN and own.ms is not None and own.checked
    assert (failed.package, failed.state, failed.ms) == ("stand-in 7f", "failed", None)
    assert failed.reason is not None and reason in failed.reason
    assert "\n" not in failed.reason and failed.reason.isprintable()


def test_a_program_that_hangs_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = UserProgram.prepare

    def prepare_in_time(self: UserProgram, work: Any) -> None:
        self._timeout = 2  # not while the interpreter starts
        prepare(self, work)

    monkeypatch.setattr(UserProgram, "prepare", prepare_in_time)
    pids = tmp_path / "pids"
    hang = (
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"    open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "    time.sleep(600)"
    )
    measured = measure(write_program(tmp_path, prepare=hang), sizes=[3, 4])
    reason = 'gave no answer to "prepare" in 2 s'
    (state,) = measured.programs
    assert state.state == "failed" and state.reason is not None and reason in state.reason
    # It is not asked again: the second size has no row of it.
    assert [row.package for row in measured.program_rows] == [OWN, "stand-in 7f", OWN]
    for pid in pids.read_text().split():
        assert not is_alive(int(pid))


def test_a_program_that_fails_later_keeps_no_figures(tmp_path: Path) -> None:
    """Its first rounds are not those of a median."""
    body = (
        "request_number = request['id']\n    return {'milliseconds': 1e-6 * (request_number < 5)}"
    )
    measured = measure(write_program(tmp_path, run=body))
    own, failed = measured.program_rows
    assert isinstance(own.ms, Sampled)
    assert len(own.ms.samples) == program_comparison.QUICK_BUDGET.rounds
    assert (failed.state, failed.ms) == ("failed", None)


def test_work_that_a_program_does_not_support_is_named(tmp_path: Path) -> None:
    body = "return {'unsupported': 'no memory of a device'} if request['memory'] == 'device' else "
    command = write_program(tmp_path, prepare=body + "{'prepared': True}")
    measured = measure(command, operations=["product"])
    own_host, host, own_device, device = measured.program_rows
    assert own_host.ms is not None and own_device.ms is not None
    assert (host.state, host.what) == ("measured", "host memory")
    assert (device.state, device.reason) == ("unsupported", "no memory of a device")
    assert measured.programs[0].state == "measured"


def test_a_wrong_program_does_not_stop_another(tmp_path: Path) -> None:
    wrong = write_program(
        tmp_path,
        describe=DESCRIBE.replace("7f", "wrong"),
        prepare="open(request['result']['path'], 'wb').write(bytes(64)); return {'prepared': True}",
        name="wrong.py",
    )
    measured = measure(wrong, write_program(tmp_path))
    states = {row.package: row.state for row in measured.program_rows}
    assert states == {OWN: "measured", "stand-in 7f": "measured", "stand-in wrong": "failed"}


def test_two_programs_of_one_name_and_version_are_refused(tmp_path: Path) -> None:
    command = write_program(tmp_path)
    measured = measure(command, command)
    assert [each.state for each in measured.programs] == ["measured", "failed"]
    assert measured.programs[1].reason == (
        "two programs say that they are stand-in 7f; each needs another version"
    )
    assert len(measured.program_rows) == 2


def test_errors_that_a_program_writes_do_not_block_it(tmp_path: Path) -> None:
    noisy = "sys.stderr.write('x' * 1_000_000 + '\\n')\n    " + PREPARE
    measured = measure(write_program(tmp_path, prepare=noisy))
    assert [row.state for row in measured.program_rows] == ["measured"] * 2


def test_a_program_ends_with_the_measurement(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = f"open({str(pid)!r}, 'w').write(str(os.getpid()))\n    {DESCRIBE}"
    command = write_program(tmp_path, describe=body)
    measure(command)
    assert not is_alive(int(pid.read_text()))

    def interrupt(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        suite.measure_programs(interrupt, [command], quick=True)
    assert not is_alive(int(pid.read_text()))


def test_a_program_that_ignores_the_end_of_its_input_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_program, "GRACE", 0.2)
    path = tmp_path / "stubborn.py"
    answer = {"id": 1, "name": "x", "version": "1", "operations": {}}
    path.write_text(
        f"import time\ninput()\nprint('''{json.dumps(answer)}''', flush=True)\ntime.sleep(600)"
    )
    with UserProgram([sys.executable, str(path)], 60) as program:
        pid = program._process.pid
        assert is_alive(pid)
    assert not is_alive(pid)


def test_files_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"^cannot be started: No such file"):
        UserProgram([str(tmp_path / "absent")], 1)
    empty = tmp_path / "empty"
    empty.write_bytes(b"\x7fELF nothing")
    empty.chmod(0o755)
    with pytest.raises(ProgramError, match=r"^cannot be started: Exec format error"):
        UserProgram([str(empty)], 1)


def test_inputs_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: Any, _folder: Path) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(program_works.OwnWork, "write_inputs", fail)
    own, failed = measure(write_program(tmp_path)).program_rows
    assert own.ms is not None and failed.state == "failed"
    assert failed.reason is not None and "No space left on device" in failed.reason


def test_work_that_does_not_fit_is_named_and_other_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = program_works.prepare_work

    def fail_once(gpu: PersistentVulkanBackend, work: ProgramWork) -> program_works.OwnWork:
        if work.log_size == 3:
            raise OutOfMemoryError("no memory for 2^3 elements")
        return prepare(gpu, work)

    monkeypatch.setattr(program_comparison, "prepare_work", fail_once)
    first, own, other = measure(write_program(tmp_path), sizes=[3, 4]).program_rows
    assert (first.package, first.state, first.reason) == (
        *(OWN, "failed"),
        "no memory for 2^3 elements",
    )
    assert own.ms is not None and other.ms is not None


def test_transforms_have_a_root_of_unity() -> None:
    sizes = program_works.ProgramSizes({"transform": [24, 25]}, 16)
    found = {(work.structure, work.log_size) for work in program_works.list_works(sizes)}
    assert {name for name, log_size in found if log_size == 25} == {
        *("BLS12_381_FR", "BN254_FR", "GOLDILOCKS", "BABYBEAR")
    }
    assert ("KOALABEAR", 24) in found


def test_an_own_wrong_result_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    with PersistentVulkanBackend() as gpu:
        monkeypatch.setattr(gpu, "run", lambda _kernel, a, b: a - b)
        work = ProgramWork("sum", "uint32", 3, "host")
        with pytest.raises(AssertionError, match=r"gpu-executor: wrong result of sum of 2\^3"):
            program_works.prepare_work(gpu, work)


def test_inversions_have_no_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        program_works,
        "draw_elements",
        lambda prime, shape, _seed: np.zeros((*shape, *prime.element_shape), prime.column_dtype),
    )
    with PersistentVulkanBackend() as gpu:
        for name in ("BABYBEAR", "BN254_FR"):
            own = program_works.prepare_work(gpu, ProgramWork("inversion", name, 2))
            assert own.inputs[0][:, 0].tolist() == own.result[:, 0].tolist() == [1] * 4


def test_the_example_runs_beside_this_package(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    shown = invoke(
        *("--program", f"{sys.executable} {FOLDER / 'peer_program.py'}", "--quick"),
        *("--sizes", "5", "--json", str(file)),
    )
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    label = f"NumPy {np.__version__}"
    assert f"{label} on one thread of the CPU" in words
    assert "product of 32, BABYBEAR, device memory: unsupported, NumPy has arrays in host" in words
    run = read_run(file)
    tables = run.benchmarks["peers"].tables
    assert [each["package"] for each in tables["programs"]] == [label]
    assert tables["programs"][0]["version"] == np.__version__
    rows = [row for row in tables["program_rows"] if row["package"] == label]
    measured = [row for row in rows if row["state"] == "measured"]
    assert [(row["operation"], row["field"]) for row in measured] == [
        ("sum", None),
        *(("product", name) for name in ("BABYBEAR", "KOALABEAR", "MERSENNE31")),
    ]
    assert all(row["checked"] for row in measured)
    keys = [dict(each.key) for each in run.benchmarks["peers"].series if each.figure == "ms"]
    assert {"package": label, "operation": "sum", "what": "host memory", "elements": 32} in keys


def test_a_program_that_failed_ends_the_command_with_1(tmp_path: Path) -> None:
    command = write_program(tmp_path, run="return {'milliseconds': -1}")
    file = tmp_path / "peers.json"
    shown = invoke(
        *("--program", " ".join(command), "--operation", "sum", "--sizes", "3", "--quick"),
        *("--json", str(file)),
    )
    assert shown.exit_code == 1
    assert "stand-in 7f, sum of 8, host memory: failed, " in shown.output
    rows = read_run(file).benchmarks["peers"].tables["program_rows"]
    assert [(row["package"], row["state"]) for row in rows] == [
        (OWN, "measured"),
        ("stand-in 7f", "failed"),
    ]


def test_names_with_brackets_are_printed_as_they_are(tmp_path: Path) -> None:
    describe = DESCRIBE.replace("stand-in", "[/red] <b>")
    command = write_program(tmp_path, describe=describe)
    file = tmp_path / "peers.json"
    shown = invoke(
        *("--program", " ".join(command), "--operation", "sum", "--sizes", "3", "--quick"),
        *("--json", str(file)),
    )
    assert shown.exit_code == 0, shown.output
    assert "[/red] <b>" in shown.output
    page = make_page(read_run(file))
    assert "[/red] &lt;b&gt; 7f is a program of the user" in page
    assert 'id="programs-sum"' in page and "<b>" not in page


def test_nothing_to_measure_is_said(tmp_path: Path) -> None:
    shown = invoke("--program", " ".join(write_program(tmp_path)), "--operation", "msm")
    assert shown.exit_code == 1
    assert "nothing was measured: no program supports an operation" in shown.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--program", ""], "'' does not begin with a program"),
        (["--program", "no-such-program --fast"], "does not begin with a program that can be run"),
        (["--program", "python 'x"], "cannot be split into words: No closing quotation"),
        (["--operation", "sum"], "--operation and --sizes are for --program COMMAND"),
        (["--sizes", "3"], "--operation and --sizes are for --program COMMAND"),
        (["--program", sys.executable, "--timeout", "nan"], "not a finite number"),
        (["--program", sys.executable, "--sizes", "0"], "0 is not in the range"),
    ],
)
def test_options_that_are_refused(arguments: list[str], message: str) -> None:
    shown = invoke(*arguments)
    assert shown.exit_code == 2
    assert message in " ".join(shown.output.replace("│", " ").split()), shown.output


def test_commands_have_no_shell(tmp_path: Path) -> None:
    shown = invoke("--program", f"{sys.executable} -c pass; touch {tmp_path / 'made'}")
    assert shown.exit_code == 1 and not (tmp_path / "made").exists()
    assert not list(tmp_path.iterdir())
