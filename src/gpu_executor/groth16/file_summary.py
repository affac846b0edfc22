"""What a file of circom or snarkjs holds, in a few numbers. Values of a witness are secrets and
are not among them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpu_executor.errors import ProofFileError
from gpu_executor.groth16 import ptau_file, r1cs_file, witness_file, zkey_file
from gpu_executor.groth16.ptau_file import PtauFile
from gpu_executor.groth16.r1cs_file import R1cs
from gpu_executor.groth16.sections import PathLike
from gpu_executor.groth16.witness_file import load_witness
from gpu_executor.groth16.zkey_file import ZkeyFile

Facts = Mapping[str, int | str]


def summarize(path: PathLike) -> tuple[str, Facts]:
    """What kind of file it is, by its first bytes, and its numbers by name.

    Args:
        path (str | Path): A .zkey, .r1cs, .wtns or .ptau file.
    """
    with Path(path).open("rb") as file:
        magic = file.read(4)
    kinds = {
        zkey_file.MAGIC: ("proving key of Groth16", _summarize_key),
        r1cs_file.MAGIC: ("circuit", _summarize_circuit),
        witness_file.MAGIC: ("witness", _summarize_witness),
        ptau_file.MAGIC: ("powers of tau", _summarize_ceremony),
    }
    if magic not in kinds:
        raise ProofFileError("it is no .zkey, .r1cs, .wtns or .ptau file", str(path))
    kind, read = kinds[magic]
    return kind, read(path)


def _summarize_key(path: PathLike) -> Facts:
    key = ZkeyFile.open(path)
    return {
        "curve": key.curve.name,
        "signals": key.n_vars,
        "public signals": key.n_public,
        "domain": key.domain_size,
        "entries of A and B": len(key.coefficients),
        "constraints": f"at most {key.domain_size - key.n_public - 1:,}",
    }


def _summarize_circuit(path: PathLike) -> Facts:
    circuit = R1cs.open(path)
    return {
        "curve": circuit.curve.name,
        "constraints": circuit.n_constraints,
        "signals": circuit.n_wires,
        "public outputs": circuit.n_public_outputs,
        "public inputs": circuit.n_public_inputs,
        "private inputs": circuit.n_private_inputs,
        "entries of A, B, C": ", ".join(
            f"{len(each.wires):,}" for each in (circuit.a, circuit.b, circuit.c)
        ),
        "labels": circuit.n_labels,
    }


def _summarize_witness(path: PathLike) -> Facts:
    witness = load_witness(path)
    return {"curve": witness.curve.name, "signals": len(witness)}


def _summarize_ceremony(path: PathLike) -> Facts:
    ceremony = PtauFile.open(path)
    return {
        "curve": ceremony.curve.name,
        "power": ceremony.power,
        "power of the ceremony": ceremony.ceremony_power,
        "constraints": f"fewer than 2^{ceremony.power}",
        "prepared for phase 2": "yes" if ceremony.prepared else "no",
    }
