"""snarkjs and circom, in one process of Node for all tests of a process.

`make` installs them into the virtual environment, as tests/node/package-lock.json lists them. A
machine without Node skips the tests that need them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.circuits import CIRCUITS
from tests.support.pages import REPOSITORY

NODE_FOLDER = REPOSITORY / "tests" / "node"
INSTALLED = Path(sys.prefix) / "node"
"""Beside the packages of Python, in the virtual environment."""
MODULES = INSTALLED / "node_modules"
COMPILED = REPOSITORY / "build" / "circuits"
MISSING = f"snarkjs and circom are not installed in {INSTALLED}: `make pytest` installs them"


class SnarkjsError(Exception):
    """snarkjs or circom raised an error."""


@dataclass(frozen=True)
class CompiledCircuit:
    """The files that circom wrote for a circuit."""

    folder: Path
    name: str

    @property
    def r1cs(self) -> Path:
        """The constraints."""
        return self.folder / f"{self.name}.r1cs"

    @property
    def wasm(self) -> Path:
        """The witness calculator."""
        return self.folder / f"{self.name}_js" / f"{self.name}.wasm"


def find_node() -> str | None:
    """The program `node`, or None on a machine without it."""
    return shutil.which("node")


class Snarkjs:
    """The process, which starts with the first call."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate(timeout=60)  # closes its stdin, at which it ends
            self._process = None

    def _call(self, method: str, **parameters: Any) -> Any:
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"method": method, "parameters": parameters}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise SnarkjsError(f"the process of Node ended with status {process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise SnarkjsError(answer["error"])
        return answer["result"]

    def _start(self) -> subprocess.Popen[str]:
        node = find_node()
        if node is None or not MODULES.is_dir():
            raise SnarkjsError(MISSING)
        self._process = subprocess.Popen(
            [node, str(NODE_FOLDER / "server.mjs"), str(INSTALLED)],
            cwd=INSTALLED,  # circom's file system does not find ".venv" below its own folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self._process

    def compile(self, source: Path, prime: str = "bn128") -> CompiledCircuit:
        """Compile a circuit. What is compiled once stays in build/circuits until its text, or the
        packages, change.

        Args:
            source (Path): The .circom file.
            prime (str): circom's name of the prime.
        """
        lock = (NODE_FOLDER / "package-lock.json").read_bytes()
        text = b"\0".join((source.read_bytes(), prime.encode(), lock))
        folder = COMPILED / f"{source.stem}-{prime}-{hashlib.sha256(text).hexdigest()[:16]}"
        if not folder.is_dir():
            COMPILED.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=COMPILED) as made:
                self._call(
                    "compile",
                    source=str(source),
                    folder=made,
                    prime=prime,
                    libraries=str(MODULES),
                )
                try:
                    Path(made).rename(folder)
                except OSError:  # another worker was first
                    if not folder.is_dir():
                        raise
                else:
                    Path(made).mkdir()  # for its removal
        return CompiledCircuit(folder, source.stem)

    def compile_named(self, name: str, prime: str = "bn128") -> CompiledCircuit:
        """Compile one of the circuits in tests/groth16/circuits."""
        return self.compile(CIRCUITS / f"{name}.circom", prime)

    def calculate_witness(self, inputs: Mapping[str, Any], wasm: Path, wtns: Path) -> None:
        """Write the .wtns file of `snarkjs wtns calculate`."""
        self._call("calculateWitness", inputs=_to_strings(inputs), wasm=str(wasm), wtns=str(wtns))

    def check_witness(self, r1cs: Path, wtns: Path) -> bool:
        """Whether a witness satisfies the constraints."""
        return bool(self._call("checkWitness", r1cs=str(r1cs), wtns=str(wtns)))

    def make_ptau(self, curve: str, power: int, ptau: Path) -> None:
        """Make a ceremony without secrets, of 2^power points; 2^6 takes seconds, 2^12 minutes."""
        self._call("makePtau", curve=curve, power=power, ptau=str(ptau))

    def setup(self, r1cs: Path, ptau: Path, zkey: Path) -> None:
        """Make a proving key of Groth16, without a contribution."""
        self._call("setup", r1cs=str(r1cs), ptau=str(ptau), zkey=str(zkey))

    def export_verification_key(self, zkey: Path) -> dict[str, Any]:
        """The verification key, as in verification_key.json."""
        key: dict[str, Any] = self._call("exportVerificationKey", zkey=str(zkey))
        return key

    def prove(
        self, zkey: Path, wtns: Path, curve: str, r: int, s: int
    ) -> tuple[dict[str, Any], list[str]]:
        """A proof with the given blinding, and the public signals."""
        answer = self._call(
            "prove", zkey=str(zkey), wtns=str(wtns), curve=curve, r=str(r), s=str(s)
        )
        return answer["proof"], answer["publicSignals"]

    def verify(self, key: Mapping[str, Any], public: list[str], proof: Mapping[str, Any]) -> bool:
        """Whether a proof holds."""
        return bool(self._call("verify", key=key, publicSignals=public, proof=proof))

    def export_solidity_call_data(self, proof: Mapping[str, Any], public: list[str]) -> str:
        """The text of `snarkjs generatecall`."""
        text: str = self._call("exportSolidityCallData", proof=proof, publicSignals=public)
        return text

    def hash_poseidon(self, inputs: list[int]) -> int:
        """circomlib's Poseidon, computed by circomlibjs."""
        return int(self._call("hashPoseidon", inputs=[str(each) for each in inputs]))


def _to_strings(value: Any) -> Any:
    """Integers as decimal strings: JavaScript reads numbers of JSON as 64-bit floats."""
    if isinstance(value, Mapping):
        return {name: _to_strings(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_strings(item) for item in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value
