"""Other provers on the keys and witnesses of the benchmark: snarkjs and rapidsnark.

Neither is a package of Python. snarkjs is in a folder with `node_modules`, and rapidsnark is a
program that is built from its source. Every proof of theirs is verified by this package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol

from gpu_executor.bench.sampled import Sampled
from gpu_executor.groth16.proof import Proof, public_from_json

TIMEOUT = 600
"""Seconds of a prover for one circuit, after which it is stopped."""
REPEATS = 3
CHECKOUT_FOLDER = Path(__file__).parents[3] / "tests" / "node"
"""Where a checkout of this project has snarkjs for its tests, if not beside Python's packages."""
SNARKJS_PROGRAM = """
const snarkjs = require("snarkjs");
const [zkey, witness, repeats] = process.argv.slice(1);
(async () => {
  const taken = [];
  let found;
  for (let i = 0; i < Number(repeats); i++) {
    const begun = process.hrtime.bigint();
    found = await snarkjs.groth16.prove(zkey, witness);
    taken.push(Number(process.hrtime.bigint() - begun) / 1e6);
  }
  process.stdout.write(JSON.stringify({taken, ...found}), () => process.exit(0));
})().catch((error) => { console.error(String(error)); process.exit(1); });
"""


class ProverPeerError(Exception):
    """A peer failed; the message says how."""


@dataclass(frozen=True, slots=True)
class ProofFiles:
    """A key and a witness as files."""

    zkey: Path
    witness: Path


@dataclass(frozen=True, slots=True)
class PeerProof:
    """A proof of a peer, with the milliseconds that it took."""

    ms: Sampled
    proof: Proof
    public: list[int]


@dataclass(frozen=True, slots=True)
class ProverPeerState:
    """A peer: its version, or why there is no comparison with it."""

    package: str
    version: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class ProverPeerRow:
    """The time of a peer for a circuit; the attributes are the keys of the JSON files."""

    package: str
    curve: str
    circuit: str
    log_constraints: int
    ms: float | None
    """The median of proofs; None if there is none."""
    reason: str | None
    """How the peer failed."""


class ProverPeer(Protocol):
    """Another prover."""

    @property
    def package(self) -> str:
        """Its name."""

    @property
    def version(self) -> str:
        """Its version, or how it was found."""

    @property
    def curves(self) -> Sequence[str]:
        """The curves that it proves with."""

    def prove(self, files: ProofFiles, repeats: int) -> PeerProof:
        """Time proofs; raises `ProverPeerError`."""


class Snarkjs:
    """snarkjs in one process of Node for all proofs of a circuit."""

    package = "snarkjs"
    curves = ("bn128", "bls12381")

    def __init__(self, node: str, folder: Path) -> None:
        self._node, self._folder = node, folder
        manifest = folder / "node_modules" / "snarkjs" / "package.json"
        found = json.loads(manifest.read_text(encoding="utf-8"))["version"]
        self.version = f"{found}, Node {_run([node, '--version']).strip().removeprefix('v')}"

    def prove(self, files: ProofFiles, repeats: int) -> PeerProof:
        """The first proof compiles its code, and is not timed."""
        given = str(files.zkey.resolve()), str(files.witness.resolve()), str(repeats + 1)
        printed = _run([self._node, "-e", SNARKJS_PROGRAM, *given], self._folder)
        answer = json.loads(printed)
        proof = Proof.from_json(json.dumps(answer["proof"]))
        public = public_from_json(json.dumps(answer["publicSignals"]))
        return PeerProof(Sampled.median(answer["taken"][1:]), proof, public)


class Rapidsnark:
    """rapidsnark's `prover`, with a process for each proof."""

    package = "rapidsnark"
    curves = ("bn128",)
    version = "unknown: the program does not name it"

    def __init__(self, program: Path) -> None:
        self._program = program

    def prove(self, files: ProofFiles, repeats: int) -> PeerProof:
        """Processes from start to end, which read the key from its file."""
        folder = files.zkey.parent
        proof, public = folder / "peer-proof.json", folder / "peer-public.json"
        command = [str(self._program.resolve())]
        command += map(str, (files.zkey, files.witness, proof, public))
        taken = []
        for _ in range(repeats):
            begun = perf_counter()
            _run(command)
            taken.append(1e3 * (perf_counter() - begun))
        texts = [each.read_text(encoding="utf-8").rstrip("\0\n") for each in (proof, public)]
        found = Proof.from_json(texts[0])
        return PeerProof(Sampled.median(taken), found, public_from_json(texts[1]))


def find_peers(
    snarkjs: Path | None, rapidsnark: Path | None, *, wanted: bool = True
) -> tuple[list[ProverPeer], list[ProverPeerState]]:
    """The peers that are there, and the state of all. `snarkjs` is a folder with `node_modules`,
    and `rapidsnark` the program `prover`. Unless they are `wanted`, there are none."""
    if not wanted:
        names = Snarkjs.package, Rapidsnark.package
        return [], [ProverPeerState(name, None, "comparisons were not asked for") for name in names]
    peers: list[ProverPeer] = []
    states = []
    found = _find_snarkjs(snarkjs)
    if isinstance(found, Snarkjs):
        peers.append(found)
        states.append(ProverPeerState(found.package, found.version, None))
    else:
        states.append(ProverPeerState(Snarkjs.package, None, found))
    if rapidsnark is None:
        reason = "not found: --rapidsnark names its program `prover`"
        states.append(ProverPeerState(Rapidsnark.package, None, reason))
    elif not (rapidsnark.is_file() and os.access(rapidsnark, os.X_OK)):
        reason = f"{rapidsnark.name} is not a program that can be run"
        states.append(ProverPeerState(Rapidsnark.package, None, reason))
    else:
        peers.append(Rapidsnark(rapidsnark))
        states.append(ProverPeerState(Rapidsnark.package, Rapidsnark.version, None))
    return peers, states


def _find_snarkjs(folder: Path | None) -> Snarkjs | str:
    """snarkjs, or why it is not there."""
    node = shutil.which("node")
    if node is None:
        return "not found: Node is not installed"
    folders = [Path(sys.prefix) / "node", CHECKOUT_FOLDER] if folder is None else [folder]
    for each in folders:
        if (each / "node_modules" / "snarkjs" / "package.json").is_file():
            return Snarkjs(node, each)
    if folder is None:
        return "not found: --snarkjs names a folder with node_modules"
    return f"not found: {folder.name} has no node_modules/snarkjs"


def _run(command: list[str], folder: Path | None = None) -> str:
    """Run a program and return what it printed."""
    name = Path(command[0]).name
    try:
        child = subprocess.run(
            command,
            cwd=folder,
            timeout=TIMEOUT,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise ProverPeerError(f"{name} took more than {TIMEOUT} s") from None
    except OSError as error:
        raise ProverPeerError(f"{name} cannot be run: {error.strerror or error}") from None
    if child.returncode:
        lines = (child.stderr.strip() or child.stdout.strip() or "no message").splitlines()
        raise ProverPeerError(f"{name} ended with status {child.returncode}: {lines[-1][:200]}")
    return child.stdout
