"""`compute_witness`: witnesses equal to snarkjs's, and refusals in words."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wasmtime

from gpu_executor.common.lru import LruCache
from gpu_executor.errors import ProofFileError, WitnessError
from gpu_executor.groth16 import wasm_engine, witness_calculator
from gpu_executor.groth16.proof_curve import get_proof_curve
from gpu_executor.groth16.witness_calculator import compute_witness
from gpu_executor.groth16.witness_file import Witness, load_witness
from tests.conftest import RunPython
from tests.support.circuits import CURVES, IN_DATA, INPUTS, find_data
from tests.support.snarkjs import Snarkjs, SnarkjsError

BN128 = get_proof_curve("bn128")


def list_values(witness: Witness) -> list[int]:
    return [witness[index] for index in range(len(witness))]


# --- compared with snarkjs ---


def check_equal(
    snarkjs: Snarkjs, name: str, curve: str, inputs: dict[str, Any], folder: Path
) -> Witness:
    compiled = snarkjs.compile_named(name, curve)
    witness = compute_witness(compiled.wasm, inputs)
    assert witness.curve.name == curve
    witness.save(folder / "ours.wtns")
    snarkjs.calculate_witness(inputs, compiled.wasm, folder / "theirs.wtns")
    assert (folder / "ours.wtns").read_bytes() == (folder / "theirs.wtns").read_bytes()
    assert snarkjs.check_witness(compiled.r1cs, folder / "ours.wtns")
    return witness


@pytest.mark.parametrize(
    ("name", "curve"),
    [
        *((name, "bn128") for name in INPUTS if name != "merkle"),
        *((name, "bls12381") for name in ("rows", "arrays", "no_inputs")),
    ],
)
def test_the_file_is_snarkjs_s(snarkjs: Snarkjs, name: str, curve: str, tmp_path: Path) -> None:
    check_equal(snarkjs, name, curve, INPUTS[name], tmp_path)


def test_a_merkle_path_of_poseidon(snarkjs: Snarkjs, tmp_path: Path) -> None:
    inputs = INPUTS["merkle"]
    witness = check_equal(snarkjs, "merkle", "bn128", inputs, tmp_path)
    node = inputs["leaf"]
    for sibling, side in zip(inputs["siblings"], inputs["sides"], strict=True):
        node = snarkjs.hash_poseidon([sibling, node] if side else [node, sibling])
    assert witness[1] == node


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("name", IN_DATA)
def test_the_data_are_what_circom_compiles(snarkjs: Snarkjs, name: str, curve: str) -> None:
    compiled = snarkjs.compile_named(name, curve)
    assert find_data(name, curve, ".r1cs").read_bytes() == compiled.r1cs.read_bytes()
    stored = load_witness(find_data(name, curve, ".wtns"))
    assert (compute_witness(compiled.wasm, INPUTS[name]).words == stored.words).all()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("3", "0x0b"),
        ("-4", "+6"),
        (True, False),
        (BN128.r, BN128.r + 5),
        (-BN128.r - 1, str(1 << 300)),
        (-(1 << 255), "0xABCDEF"),
        ([7], [[8]]),
    ],
)
def test_numbers_are_read_as_snarkjs_does(snarkjs: Snarkjs, a: Any, b: Any, tmp_path: Path) -> None:
    check_equal(snarkjs, "multiplier", "bn128", {"a": a, "b": b}, tmp_path)


def test_arrays_of_numpy_and_of_any_nesting(snarkjs: Snarkjs) -> None:
    wasm = snarkjs.compile_named("arrays").wasm
    inputs = {"weights": [3, -4, 16], "values": [[1, 2, 3], [4, 5, 6]]}
    expected = list_values(compute_witness(wasm, inputs))
    r = BN128.r
    assert expected[1:6] == [3 - 8 + 48, 12 - 20 + 96, 3, r - 4, 16]
    for values in (
        np.arange(1, 7),
        np.arange(1, 7, dtype=np.uint8).reshape(2, 3),
        np.array([[1, 2, 3], [4, 5, 6]], object),
        np.array([["1", "2", "3"], ["4", "5", "0x6"]]),
        [np.int64(1), [2, "3"], np.array([4, 5]), (6,)],
        np.asfortranarray(np.arange(1, 7).reshape(2, 3)),
    ):
        assert list_values(compute_witness(wasm, inputs | {"values": values})) == expected
    numpy_weights = np.array([3, -4, 16], np.int8)
    assert list_values(compute_witness(wasm, inputs | {"weights": numpy_weights})) == expected


def test_buses_are_dictionaries_or_qualified_names(snarkjs: Snarkjs, tmp_path: Path) -> None:
    """snarkjs takes qualified names alone; circom's own script takes dictionaries too."""
    flat = {"p.x": 3, "p.y": 5, "q[0].x": 7, "q[0].y": 11, "q[1].x": 13, "q[1].y": 17}
    witness = check_equal(snarkjs, "bus", "bn128", flat, tmp_path)
    assert witness[1] == 3 * 11 + 5 - 3 * 13 + 5 * 17 + 7
    nested = {"p": {"x": 3, "y": 5}, "q": [{"x": 7, "y": 11}, {"x": 13, "y": 17}]}
    wasm = snarkjs.compile_named("bus").wasm
    assert list_values(compute_witness(wasm, nested)) == list_values(witness)
    with pytest.raises(WitnessError, match=r"signal 'p\.x' is given twice"):
        compute_witness(wasm, nested | {"p.x": 3})
    with pytest.raises(WitnessError, match=r"the list 'q' mixes dictionaries and values"):
        compute_witness(wasm, nested | {"q": [{"x": 7, "y": 11}, 5]})


# --- refused by the circuit ---


SECRET = 1234567890123


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [13, 2, 4]}, r"does not hold.*: .*template Weigh_0 line: 18"),
        ({"weights": [SECRET, 2, 5]}, r"does not hold.*: .*template Weigh_0 line: 19"),
        ({"other": SECRET}, r"arrays\.wasm has no input signal 'other'"),
        ({"weight": [1, 2, 3]}, r"no input signal 'weight'"),
        ({"wéights": 1}, r"no input signal 'wéights'"),
        ({"weights": [1, 2]}, r"signal 'weights' has 3 values in .*; given: 2"),
        ({"weights": [1, 2, 4, SECRET]}, r"signal 'weights' has 3 values in .*; given: 4"),
        ({"weights": []}, r"signal 'weights' has 3 values in .*; given: 0"),
        ({"weights": SECRET}, r"signal 'weights' has 3 values in .*; given: 1"),
    ],
)
def test_inputs_that_do_not_fit_the_circuit(
    snarkjs: Snarkjs, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    compiled = snarkjs.compile_named("arrays")
    inputs = INPUTS["arrays"] | change
    with pytest.raises(WitnessError, match=message) as raised:
        compute_witness(compiled.wasm, inputs)
    assert str(SECRET) not in str(raised.value)
    with pytest.raises(SnarkjsError):
        snarkjs.calculate_witness(inputs, compiled.wasm, tmp_path / "theirs.wtns")


def test_missing_inputs_are_counted(snarkjs: Snarkjs) -> None:
    wasm = snarkjs.compile_named("arrays").wasm
    with pytest.raises(WitnessError, match=r"has 9 input values, and 6 .*; given: 'weights'$"):
        compute_witness(wasm, {"weights": [1, 2, 4]})
    with pytest.raises(WitnessError, match=r"has 9 input values, and 9 .*; given: none$"):
        compute_witness(wasm, {})
    with pytest.raises(WitnessError, match="no input signal 'a'"):
        compute_witness(snarkjs.compile_named("no_inputs").wasm, {"a": 1})


def test_a_circuit_over_another_prime(snarkjs: Snarkjs) -> None:
    wasm = snarkjs.compile_named("multiplier", "goldilocks").wasm
    with pytest.raises(ProofFileError, match=r"over the prime 0xffffffff00000001; compile it with"):
        compute_witness(wasm, {"a": 1, "b": 2})


def test_the_log_of_a_circuit_is_not_printed(
    snarkjs: Snarkjs, capfd: pytest.CaptureFixture[str]
) -> None:
    compute_witness(snarkjs.compile_named("arrays").wasm, INPUTS["arrays"])
    assert capfd.readouterr() == ("", "")


# --- calculators of our own, for machines without Node ---

CALCULATOR = """(module
 (import "runtime" "exceptionHandler" (func $fault (param i32)))
 (memory (export "memory") 2)
 (data (i32.const 32) "{prime}")
 (global $left (mut i32) (i32.const {inputs}))
 (func (export "getVersion") (result i32) (i32.const 2))
 (func (export "getFieldNumLen32") (result i32) (i32.const {words}))
 (func (export "getRawPrime") (memory.copy (i32.const 0) (i32.const 32) (i32.const 32)))
 (func (export "getWitnessSize") (result i32) (i32.add (i32.const {inputs}) (i32.const 1)))
 (func (export "getInputSize") (result i32) (i32.const {inputs}))
 (func (export "readSharedRWMemory") (param i32) (result i32)
  (i32.load (i32.mul (local.get 0) (i32.const 4))))
 (func (export "writeSharedRWMemory") (param i32 i32)
  (i32.store (i32.mul (local.get 0) (i32.const 4)) (local.get 1)))
 (func (export "init") (param i32) {init})
 (func (export "setInputSignal") (param i32 i32 i32)
  (memory.copy (i32.add (i32.const 96) (i32.mul (local.get 2) (i32.const 32))) (i32.const 0)
   (i32.const 32))
  {set})
 (func (export "getWitness") (param i32)
  (memory.copy (i32.const 0) (i32.add (i32.const 64) (i32.mul (local.get 0) (i32.const 32)))
   (i32.const 32)))
 {more}
 (data (i32.const 64) "{one}"))
"""
"""Its witness is the constant and its inputs, which belong to one signal of any name."""


def write_calculator(
    folder: Path,
    *,
    prime: int = BN128.r,
    words: int = 8,
    inputs: int = 3,
    init: str = "",
    set_: str = "",
    more: str = "",
    one: str = "\\\\01",
) -> Path:
    text = CALCULATOR.format(
        prime="".join(f"\\{byte:02x}" for byte in prime.to_bytes(4 * words, "little")),
        words=words,
        inputs=inputs,
        init=init,
        set=set_,
        more=more,
        one=one.replace("\\\\", "\\"),
    )
    return write_wasm(folder, text)


def write_wasm(folder: Path, text: str) -> Path:
    path = folder / "circuit.wasm"
    path.write_bytes(wasmtime.wat2wasm(text))
    return path


@pytest.mark.parametrize("curve", CURVES)
def test_values_pass_in_chunks(tmp_path: Path, curve: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness_calculator, "CHUNK", 64)
    r = get_proof_curve(curve).r
    path = write_calculator(tmp_path, prime=r, inputs=1000)
    values = [pow(3, i, r) for i in range(1000)]
    witness = compute_witness(path, {"x": values})
    assert list_values(witness) == [1, *values]
    assert witness.words.shape == (1001, 8)
    assert repr(witness) == f"<Witness of 1,001 values, {curve}>"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (1.0, "a float"),
        (float("nan"), "a float"),
        (None, "a NoneType"),
        (b"1", "a bytes"),
        (1j, "a complex"),
        ({1}, "a set"),
        (np.float32(1), "a float32"),
        (np.array([1.5]), "a float64"),
        (np.array([b"1"]), "a bytes_"),
        (np.array([1], "m8[s]"), "a timedelta64"),
        ("", "a string that is no"),
        ("12a", "a string that is no"),
        ("1.0", "a string that is no"),
        ("-0x5", "a string that is no"),
        ("1_000", "a string that is no"),
        ("٣", "a string that is no"),
        ("9" * 5000, "a string of too many digits"),
    ],
)
def test_values_that_are_no_integers(tmp_path: Path, value: Any, found: str) -> None:
    path = write_calculator(tmp_path)
    message = f"inputs: value (0|2) of signal 'x' is ({found})"
    for values in (value, [1, 2, value]):
        with pytest.raises(WitnessError, match=message):
            compute_witness(path, {"x": values})


def test_inputs_that_are_no_dictionary_of_signals(tmp_path: Path) -> None:
    path = write_calculator(tmp_path)
    endless: list[Any] = []
    endless.append(endless)
    wrong: list[tuple[Any, str]] = [
        ([1, 2, 3], "must be a dictionary of signals, not a list"),
        (None, "must be a dictionary of signals, not a NoneType"),
        ({1: 2}, "a name is an int, not a string"),
        ({"x": {3: 4}}, "a name of 'x' is an int"),
        ({"x": endless}, "nested too deeply"),
    ]
    for inputs, message in wrong:
        with pytest.raises(WitnessError, match=message):
            compute_witness(path, inputs)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (1, r"it has no such signal \(signal 'x'\)"),
        (3, r"the signal is set already \(signal 'x'\)"),
        (4, "an assertion or a constraint does not hold for these inputs$"),
        (5, "it ran out of memory$"),
        (99, "it stopped with code 99"),
    ],
)
def test_faults_of_early_calculators_without_messages(
    tmp_path: Path, code: int, message: str
) -> None:
    path = write_calculator(tmp_path, set_=f"(call $fault (i32.const {code}))")
    with pytest.raises(WitnessError, match=message):
        compute_witness(path, {"x": [1, 2, 3]})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("unreachable", "unreachable"),
        ("(i32.store (i32.const -4) (i32.const 0))", "out of bounds memory access"),
        ("(drop (i32.div_u (i32.const 1) (i32.const 0)))", "integer divide by zero"),
        ("(call $deep)", "call stack exhausted"),
    ],
)
def test_a_calculator_that_traps(tmp_path: Path, body: str, reason: str) -> None:
    deep = "(func $deep (call $deep))"
    for init, set_ in ((body, ""), ("", body)):
        path = write_calculator(tmp_path, more=deep, init=init, set_=set_)
        with pytest.raises(WitnessError, match=rf"the calculator stopped: .*{reason}"):
            compute_witness(path, {"x": [1, 2, 3]})
    assert len(compute_witness(write_calculator(tmp_path), {"x": [1, 2, 3]})) == 4


def test_a_trap_where_another_library_handles_signals(run_python: RunPython) -> None:
    """Ray's and Python's own handlers would end the process."""
    script = """
import faulthandler, wasmtime
from gpu_executor.groth16.wasm_engine import compile_module, get_engine
module = compile_module('(module (func (export "f") unreachable))')
store = wasmtime.Store(get_engine())
function = wasmtime.Instance(store, module, []).exports(store)["f"]
faulthandler.enable()
try:
    function(store)
except wasmtime.Trap:
    print("trapped")
"""
    assert run_python(script).stdout == "trapped\n"


def test_other_primes_are_refused(tmp_path: Path) -> None:
    for prime, words in ((97, 1), (BN128.q, 8), (0, 0)):
        path = write_calculator(tmp_path, prime=prime, words=words)
        with pytest.raises(ProofFileError, match=rf"over the prime {prime:#x}; compile it with"):
            compute_witness(path, {"x": [1, 2, 3]})


def test_a_calculator_whose_witness_is_none(tmp_path: Path) -> None:
    path = write_calculator(tmp_path, one="\\\\02")
    with pytest.raises(ProofFileError, match=r"computed no witness: .*value 0 must be 1"):
        compute_witness(path, {"x": [1, 2, 3]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(module)", "it does not export the function getFieldNumLen32"),
        (
            '(module (import "wasi_snapshot_preview1" "proc_exit" (func (param i32))))',
            r"it needs wasi_snapshot_preview1\.proc_exit",
        ),
        ('(module (import "runtime" "memory" (memory 1)))', r"it needs runtime\.memory"),
        ('(module (import "runtime" "exceptionHandler" (memory 1)))', "it needs runtime.exc"),
        ('(module (func (export "getPRawPrime")))', "circom 1 compiled it"),
        (
            '(module (func (export "getFieldNumLen32") (result i64) (i64.const 8)))',
            "does not export the function getFieldNumLen32",
        ),
    ],
)
def test_modules_that_are_no_calculators(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProofFileError, match=message):
        compute_witness(write_wasm(tmp_path, text), {"x": 1})


def test_files_that_are_no_modules(tmp_path: Path) -> None:
    path = tmp_path / "circuit.wasm"
    for content, message in (
        (b"", "is not a WebAssembly module"),
        (b"(module)", "is not a WebAssembly module"),
        (b"r1cs\1\0\0\0", "is not a WebAssembly module"),
        (b"\0asm\1\0\0\0\xff", "is not a valid WebAssembly module"),
        (write_calculator(tmp_path).read_bytes()[:-9], "is not a valid WebAssembly module"),
    ):
        path.write_bytes(content)
        with pytest.raises(ProofFileError, match=rf"circuit\.wasm: it {message}"):
            compute_witness(path, {"x": 1})
    with pytest.raises(FileNotFoundError):
        compute_witness(tmp_path / "missing.wasm", {"x": 1})


# --- the engine ---


def test_a_store_is_freed_with_its_calculator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store holds the memory of the calculator, which may be gigabytes."""
    freed = []

    class Store(wasmtime.Store):
        def _delete(self, ptr: Any) -> None:
            freed.append(1)
            super()._delete(ptr)

    monkeypatch.setattr(wasmtime, "Store", Store)
    path = write_calculator(tmp_path)
    compute_witness(path, {"x": [1, 2, 3]})
    assert len(freed) == 1


FORK = """
import os, signal, warnings
from gpu_executor.groth16.witness_calculator import compute_witness
first, second = FILES
compute_witness(first, {"x": [1, 2, 3]})
warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of a fork beside threads
child = os.fork()
if child == 0:
    signal.alarm(60)
    passed = len(compute_witness(first, {"x": [1, 2, 3]})) == 4  # compiled before the fork
    passed &= len(compute_witness(second, {"x": [5] * 9})) == 10
    os._exit(0 if passed else 1)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_computes_too(tmp_path: Path, run_python: RunPython) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    files = [
        str(write_calculator(folders[0])),
        str(write_calculator(folders[1], inputs=9)),
    ]
    done = run_python(f"FILES = {files!r}\n{FORK}")
    assert done.returncode == 0, done.stderr


def test_threads_share_one_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasm_engine, "_engine", None)
    monkeypatch.setattr(wasm_engine, "_modules", LruCache())
    path = write_calculator(tmp_path, inputs=100)
    start = threading.Barrier(4)

    def compute(seed: int) -> bool:
        start.wait()
        values = [seed + i for i in range(100)]
        return list_values(compute_witness(path, {"x": values})) == [1, *values]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(compute, range(4)))


def test_compiled_modules_are_kept_in_the_cache_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path / "cache"))
    file = wasm_engine._write_cache_settings()
    assert file == str(tmp_path / "cache" / "wasmtime" / "cache.toml")
    assert wasm_engine._make_engine()
    monkeypatch.setenv("GPU_CACHE", "0")
    assert wasm_engine._write_cache_settings() is None
    assert wasm_engine._make_engine()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no modes")
def test_a_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_CACHE_DIR", str(tmp_path / "cache"))
    assert wasm_engine._write_cache_settings() is not None
    (tmp_path / "cache" / "wasmtime").chmod(0o777)
    assert wasm_engine._write_cache_settings() is None
