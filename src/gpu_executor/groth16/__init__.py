"""Groth16 proofs of circom circuits on a GPU: files of snarkjs and circom in, proofs out.

`ProvingKey` makes proofs, `verify` checks them. Witnesses come from circom's own calculators
(`compute_witness`) or from files (`load_witness`); `check_witness` checks them against the circuit.
"""

from gpu_executor.groth16.constraint_check import check_witness
from gpu_executor.groth16.proof import Proof, public_from_json, public_to_json
from gpu_executor.groth16.proving_key import ProvingKey
from gpu_executor.groth16.r1cs_file import R1cs
from gpu_executor.groth16.setup import setup
from gpu_executor.groth16.verification import verify, verify_batch
from gpu_executor.groth16.verification_key import VerificationKey
from gpu_executor.groth16.witness_calculator import compute_witness
from gpu_executor.groth16.witness_file import Witness, load_witness

__all__ = [
    "Proof",
    "ProvingKey",
    "R1cs",
    "VerificationKey",
    "Witness",
    "check_witness",
    "compute_witness",
    "load_witness",
    "public_from_json",
    "public_to_json",
    "setup",
    "verify",
    "verify_batch",
]
