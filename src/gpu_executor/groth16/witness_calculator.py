"""`compute_witness`: the witness of a circuit, by the calculator that circom compiled.

`circom --wasm` writes a WebAssembly module that computes the values of all signals from the inputs.
It passes numbers one word at a time, through a small shared memory, by calls of its exports. A
module of our own (`make_copier`) is linked to these exports and passes many numbers at once: a call
from one module to another costs nanoseconds, a call from Python microseconds.

The calculator is a program of the circuit's author. It runs in wasmtime's sandbox, with its own
memory, and without files, clocks or network. How long it runs is not limited, and it cannot be
interrupted.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from gpu_executor.calls.arguments import count_nouns, describe
from gpu_executor.errors import ProofFileError, WitnessError
from gpu_executor.groth16.proof_curve import ProofCurve, find_by_scalar_modulus
from gpu_executor.groth16.sections import PathLike, Words32
from gpu_executor.groth16.wasm_engine import MAGIC, compile_module, get_engine, get_wasmtime
from gpu_executor.groth16.witness_file import VALUE_WORDS, Witness

if TYPE_CHECKING:
    from wasmtime import Module

Inputs = Mapping[str, Any]

VALUE_BYTES = 4 * VALUE_WORDS
PAGE_BYTES = 1 << 16
CHUNK = 1 << 18
"""The most values that pass through the memory of the copier at once: 8 MiB."""
MOST_MESSAGE = 2000
"""Characters of a circuit's message that are read."""
MOST_NAMES = 10
"""Signals that a message names."""

EXPORTS: dict[str, tuple[int, int]] = {
    "getFieldNumLen32": (0, 1),
    "getRawPrime": (0, 0),
    "getWitnessSize": (0, 1),
    "getInputSize": (0, 1),
    "getWitness": (1, 0),
    "init": (1, 0),
    "readSharedRWMemory": (1, 1),
    "setInputSignal": (3, 0),
    "writeSharedRWMemory": (2, 0),
}
"""What every calculator of circom 2 exports: numbers of parameters and results, all i32."""
OPTIONAL_EXPORTS = {
    "getInputSignalSize": (2, 1),
    "getMessageChar": (0, 1),
    "getSharedRWMemoryStart": (0, 1),
}
"""What calculators of later releases export."""
IMPORTS = ("exceptionHandler", "printErrorMessage", "writeBufferMessage", "showSharedRWMemory")
"""What calculators import, from the module `runtime`."""
SHARED = ("getSharedRWMemoryStart", "memory")
"""Where a value is in the calculator's memory; circom's own calculators export it."""
COPIED = ("getWitness", "readSharedRWMemory", "writeSharedRWMemory", "setInputSignal")

FAULTS = {
    1: "it has no such signal",
    2: "more values were set than it has",
    3: "the signal is set already",
    4: "an assertion or a constraint does not hold for these inputs",
    5: "it ran out of memory",
    6: "there are more values than the signal has",
    7: "an index is out of the bounds of an array",
}
"""The codes that a calculator passes to `exceptionHandler`."""

MAX_DEPTH = 32
"""How deeply lists and dictionaries of inputs are nested at most."""
_NUMBER = re.compile(r"\s*(?:[+-]?[0-9]+|0[xX][0-9a-fA-F]+)\s*", re.ASCII)

_LOOP = """
  (block $done (loop $next
    (br_if $done (i32.eq (local.get $i) (local.get $end)))
    {body}
    (local.set $p (i32.add (local.get $p) (i32.const 32)))
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br $next)))
"""
_READ = [
    f"(i32.store $own offset={4 * word} (local.get $p) (call $read (i32.const {word})))"
    for word in range(VALUE_WORDS)
]
_READ_SHARED = [
    f"(i64.store $own offset={at} (local.get $p) (i64.load $theirs offset={at} (local.get $from)))"
    for at in range(0, VALUE_BYTES, 8)
]
_WRITE = [
    f"(call $write (i32.const {word}) (i32.load $own offset={4 * word} (local.get $p)))"
    for word in range(VALUE_WORDS)
] + ["(call $set (local.get $high) (local.get $low) (local.get $i))"]
_SHARED = """
 (import "circom" "getSharedRWMemoryStart" (func $start (result i32)))
 (import "circom" "memory" (memory $theirs 0))"""


def make_copier(shares_memory: bool) -> str:
    """The text of a module that copies the values i to end of the witness, or of a signal, from or
    to the begin of its memory. With `shares_memory` it reads a value from the calculator's memory;
    eight calls of `readSharedRWMemory` for each take longer than all else."""
    body = ["(call $get (local.get $i))", *(_READ_SHARED if shares_memory else _READ)]
    return f"""(module
 (import "circom" "getWitness" (func $get (param i32)))
 (import "circom" "readSharedRWMemory" (func $read (param i32) (result i32)))
 (import "circom" "writeSharedRWMemory" (func $write (param i32 i32)))
 (import "circom" "setInputSignal" (func $set (param i32 i32 i32)))
 {_SHARED if shares_memory else ""}
 (memory $own (export "memory") 0)
 (func (export "read") (param $i i32) (param $end i32) (local $p i32) (local $from i32)
  {"(local.set $from (call $start))" if shares_memory else ""}
  {_LOOP.format(body=" ".join(body))})
 (func (export "write") (param $high i32) (param $low i32) (param $i i32) (param $end i32)
  (local $p i32)
  {_LOOP.format(body=" ".join(_WRITE))}))
"""


def compute_witness(wasm_path: PathLike, inputs: Inputs) -> Witness:
    """Compute the witness of a circuit with the .wasm file that `circom --wasm` wrote.

    The values are those that `snarkjs wtns calculate` computes. What the circuit prints with
    `log()` is discarded. The calculation has no time limit, and Ctrl-C takes effect at its end.
    Needs the extra `groth16`.

    Raises `WitnessError` for inputs that do not fit the circuit or violate an assertion of it,
    `ProofFileError` for a file that is no calculator of circom 2 over a prime of bn128 or bls12381,
    and `OSError` for one that cannot be read. No message shows a value.

    Args:
        wasm_path (str | Path): The calculator, `<circuit>_js/<circuit>.wasm`.
        inputs (Mapping[str, Any]): The input signals by name. A value is an integer (also a NumPy
            integer or a bool), or a string with a decimal or 0x-hexadecimal number; it may be
            negative and is reduced modulo the prime. The values of an array are a list or a NumPy
            array, nested or flat, in circom's order. A bus is a dictionary, or has one
            entry for each of its signals, such as `"point.x"`.
    """
    get_wasmtime()  # a missing extra is the first thing to say
    signals = dict(_list_signals(inputs))
    calculator = _Calculator(os.fspath(wasm_path), Path(wasm_path).read_bytes())
    calculator.check_counts(signals)
    for name, values in signals.items():
        calculator.set_signal(name, values)
    words = calculator.read_witness()
    try:
        return Witness.from_values(words, calculator.curve)
    except WitnessError as error:
        raise ProofFileError(
            f"{calculator.path}: the calculator computed no witness: {error}"
        ) from None


# --- inputs ---


def _list_signals(inputs: Inputs) -> Iterator[tuple[str, list[int]]]:
    """The signals with their values in flat order. Signals of buses have qualified names."""
    if not isinstance(inputs, Mapping):
        raise WitnessError(f"inputs: must be a dictionary of signals, not {describe(inputs)}")
    _check_depth(inputs, MAX_DEPTH)
    seen = set()
    for name, value in _qualify("", inputs):
        if name in seen:
            raise WitnessError(f"inputs: signal {name!r} is given twice")
        seen.add(name)
        values = list(_flatten(value))
        if not all(type(item) is int for item in values):
            values = [_read_number(name, *item) for item in enumerate(values)]
        yield name, values


def _check_depth(value: Any, most: int) -> None:
    """Refuse lists and dictionaries that are nested more than `most` times, such as endless
    ones."""
    items = value.values() if isinstance(value, Mapping) else value
    nested = [item for item in items if isinstance(item, Mapping | list | tuple)]
    if nested and not most:
        raise WitnessError("inputs: lists or dictionaries are nested too deeply")
    for item in nested:
        _check_depth(item, most - 1)


def _qualify(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of dictionaries, and of lists of dictionaries, by circom's names: a.b, a[0].b."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                within = f" of {name!r}" if name else ""
                raise WitnessError(f"inputs: a name{within} is {describe(key)}, not a string")
            yield from _qualify(f"{name}.{key}" if name else key, item)
    elif isinstance(value, list | tuple) and _has_mapping(value):
        for index, item in enumerate(value):
            if not isinstance(item, Mapping | list | tuple):
                raise WitnessError(f"inputs: the list {name!r} mixes dictionaries and values")
            yield from _qualify(f"{name}[{index}]", item)
    else:
        yield name, value


def _has_mapping(value: list[Any] | tuple[Any, ...]) -> bool:
    return any(
        isinstance(item, Mapping) or (isinstance(item, list | tuple) and _has_mapping(item))
        for item in value
    )


def _flatten(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray):
        # `tolist` makes integers of times too, which the scalars of NumPy are not.
        flat = value.ravel()
        value = flat.tolist() if flat.dtype.kind in "iubOU" else list(flat)
    if isinstance(value, list | tuple):
        for item in value:
            if isinstance(item, list | tuple | np.ndarray):
                yield from _flatten(item)
            else:
                yield item
    else:
        yield value


def _read_number(name: str, index: int, value: Any) -> int:
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            _refuse_number(name, index, "a string that is no decimal or 0x-hexadecimal number")
        try:
            return int(value, 16 if "x" in value.lower() else 10)
        except ValueError:  # Python reads decimal numbers of some thousand digits only
            _refuse_number(name, index, "a string of too many digits")
    try:
        return int(value) if isinstance(value, np.bool_) else operator.index(value)
    except TypeError:
        _refuse_number(name, index, describe(value))


def _refuse_number(name: str, index: int, found: str) -> NoReturn:
    raise WitnessError(
        f"inputs: value {index} of signal {name!r} is {found}; it must be an integer, or a string "
        "with a decimal or 0x-hexadecimal number"
    ) from None


def _hash_name(name: str) -> tuple[int, int]:
    """FNV-1a of 64 bits, by which calculators know signals: the high and the low word, signed."""
    value = 0xCBF29CE484222325
    for byte in name.encode("utf-8", "surrogatepass"):
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    high, low = np.array([value >> 32, value & 0xFFFFFFFF], np.uint32).view(np.int32).tolist()
    return high, low


# --- the calculator ---


class _CircuitError(Exception):
    """The calculator called `exceptionHandler`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Calculator:
    """A module of circom that runs, for one witness, and the copier."""

    def __init__(self, path: str, code: bytes) -> None:
        wasmtime = get_wasmtime()
        self.path = path
        self._messages: list[str] = []
        module = _load_module(path, code)
        handlers = _make_handlers(self._messages)
        self._store = wasmtime.Store(get_engine())
        imports = [
            wasmtime.Func(self._store, each.type, handlers[each.name or ""], access_caller=True)
            for each in module.imports
        ]
        with _Traps(self):
            instance = wasmtime.Instance(self._store, module, imports)
        self._exports = instance.exports(self._store)
        self.curve = self._read_curve()
        shares_memory = _shares_memory(module)
        linked = [self._exports[name] for name in COPIED + (SHARED if shares_memory else ())]
        own = compile_module(make_copier(shares_memory))
        copier = wasmtime.Instance(self._store, own, linked)
        self._copier = copier.exports(self._store)
        self._call("init", 0)

    def check_counts(self, signals: Mapping[str, list[int]]) -> None:
        """Raise `WitnessError` unless these are the signals of the circuit."""
        if "getInputSignalSize" in self._exports:
            for name, values in signals.items():
                size = self._call("getInputSignalSize", *_hash_name(name))
                if size < 0 or (size == 0 and values):  # calculators say either
                    raise WitnessError(f"inputs: {self.path} has no input signal {name!r}")
                if size != len(values):
                    raise WitnessError(
                        f"inputs: signal {name!r} has {count_nouns(size, 'value')} in "
                        f"{self.path}; given: {len(values)}"
                    )
        expected = self._call("getInputSize")
        given = sum(map(len, signals.values()))
        if given < expected:
            names = ", ".join(map(repr, list(signals)[:MOST_NAMES])) or "none"
            more = f" and {len(signals) - MOST_NAMES} more" if len(signals) > MOST_NAMES else ""
            raise WitnessError(
                f"inputs: {self.path} has {count_nouns(expected, 'input value')}, and "
                f"{expected - given} of them are missing; given: {names}{more}"
            )

    def set_signal(self, name: str, values: list[int]) -> None:
        """Set all values of an input. The last value of the last input starts the calculation."""
        r = self.curve.r
        high, low = _hash_name(name)
        with _Traps(self, name):
            for start in range(0, len(values), CHUNK):
                chunk = values[start : start + CHUNK]
                data = b"".join([(value % r).to_bytes(VALUE_BYTES, "little") for value in chunk])
                self._view_memory(len(chunk))[:] = np.frombuffer(data, np.uint32)
                self._copier["write"](self._store, high, low, start, start + len(chunk))

    def read_witness(self) -> Words32:
        """All values, (n, 8) words."""
        count = self._call("getWitnessSize") & 0xFFFFFFFF
        words = np.empty((count, VALUE_WORDS), np.uint32)
        with _Traps(self):
            for start in range(0, count, CHUNK):
                end = min(start + CHUNK, count)
                memory = self._view_memory(end - start)
                self._copier["read"](self._store, start, end)
                words[start:end].reshape(-1)[:] = memory
        return words

    def _view_memory(self, count: int) -> Words32:
        """The first so many values of the copier's memory, as flat words."""
        memory = self._copier["memory"]
        missing = -(-count * VALUE_BYTES // PAGE_BYTES) - memory.size(self._store)
        if missing > 0:
            memory.grow(self._store, missing)
        buffer = memory.get_buffer_ptr(self._store, count * VALUE_BYTES)
        return np.frombuffer(buffer, np.uint32)

    def _read_curve(self) -> ProofCurve:
        size = self._call("getFieldNumLen32")
        self._call("getRawPrime")
        words = [self._call("readSharedRWMemory", i) & 0xFFFFFFFF for i in range(min(size, 32))]
        prime = sum(word << 32 * i for i, word in enumerate(words))
        curve = find_by_scalar_modulus(prime)
        if curve is None or size != VALUE_WORDS:
            raise ProofFileError(
                f"{self.path}: the circuit is over the prime {prime:#x}; compile it with "
                "`--prime bn128` or `--prime bls12381`"
            )
        return curve

    def _call(self, name: str, *arguments: int) -> int:
        with _Traps(self):
            result = self._exports[name](self._store, *arguments)
        return int(result or 0)

    def describe_fault(self, code: int, signal: str) -> str:
        """A fault in words, with the messages of the circuit."""
        fault = FAULTS.get(code, f"it stopped with code {code}")
        where = "" if code in (4, 5, 7) or not signal else f" (signal {signal!r})"
        said = f": {'; '.join(self._messages)}" if self._messages else ""
        return f"{self.path}: {fault}{where}{said}"


def _make_handlers(messages: list[str]) -> dict[str, Callable[..., None]]:
    """What a calculator calls. wasmtime keeps these functions until their store is freed, so they
    must not lead to the store."""

    def raise_fault(_caller: Any, code: int) -> None:
        raise _CircuitError(code)

    def keep_message(caller: Any, *_: int) -> None:
        read = caller.get("getMessageChar")
        text = ""
        while read is not None and len(text) < MOST_MESSAGE and (char := read(caller)):
            text += chr(char & 0x7F)
        messages.append(" ".join(text.split()))

    def discard(*_: Any) -> None:
        """Drop what the circuit prints with `log()`, which may be a secret."""

    return {
        "exceptionHandler": raise_fault,
        "printErrorMessage": keep_message,
        "writeBufferMessage": discard,
        "showSharedRWMemory": discard,
    }


class _Traps:
    """Calls of a calculator: its faults and traps become errors in words."""

    def __init__(self, calculator: _Calculator, signal: str = "") -> None:
        self._calculator = calculator
        self._signal = signal

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        wasmtime = get_wasmtime()
        if isinstance(error, _CircuitError):
            raise WitnessError(self._calculator.describe_fault(error.code, self._signal)) from None
        if isinstance(error, wasmtime.Trap | wasmtime.WasmtimeError):
            reason = " ".join(str(error).split("wasm trap:")[-1].split())
            raise WitnessError(
                f"{self._calculator.path}: the calculator stopped: {reason}"
            ) from None


def _shares_memory(module: Module) -> bool:
    """Whether a calculator exports its memory, of the plain kind, and where values are in it."""
    kinds = {each.name: each.type for each in module.exports}
    memory = kinds.get("memory")
    is_plain = isinstance(memory, get_wasmtime().MemoryType) and not (
        memory.is_64 or memory.is_shared
    )
    return is_plain and "getSharedRWMemoryStart" in kinds


def _load_module(path: str, code: bytes) -> Module:
    """Compile a calculator, and check that it has the interface of circom 2."""
    wasmtime = get_wasmtime()
    if not code.startswith(MAGIC):  # wasmtime would read text too
        raise ProofFileError(f"{path}: it is not a WebAssembly module (.wasm)")
    try:
        module = compile_module(code)
    except wasmtime.WasmtimeError as error:
        reason = " ".join(str(error).split())
        raise ProofFileError(f"{path}: it is not a valid WebAssembly module: {reason}") from None
    found = {each.name: each.type for each in module.exports}
    if "getPRawPrime" in found and "getVersion" not in found:
        raise ProofFileError(f"{path}: circom 1 compiled it; compile the circuit with circom 2")
    for each in module.imports:
        is_function = isinstance(each.type, wasmtime.FuncType)
        if each.module != "runtime" or each.name not in IMPORTS or not is_function:
            raise ProofFileError(
                f"{path}: it is not a witness calculator of circom 2: it needs "
                f"{each.module}.{each.name}"
            )
    for name, counts in (EXPORTS | OPTIONAL_EXPORTS).items():
        if name in OPTIONAL_EXPORTS and name not in found:
            continue
        if not _has_counts(found.get(name), counts):
            raise ProofFileError(
                f"{path}: it is not a witness calculator of circom 2: it does not export the "
                f"function {name}"
            )
    return module


def _has_counts(kind: Any, counts: tuple[int, int]) -> bool:
    if not isinstance(kind, get_wasmtime().FuncType):
        return False
    types = [*kind.params, *kind.results]
    return (len(kind.params), len(kind.results)) == counts and all(str(t) == "i32" for t in types)
