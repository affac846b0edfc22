"""snarkjs as tests use it: its keys and proofs, with a given blinding, verify here too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_executor.groth16.proof import Proof
from gpu_executor.groth16.verification import verify
from gpu_executor.groth16.verification_key import VerificationKey
from gpu_executor.groth16.zkey_file import ZkeyFile
from tests.support.circuits import find_data
from tests.support.snarkjs import Snarkjs, SnarkjsError

POWER = 3


@pytest.mark.parametrize("curve", ["bn128", pytest.param("bls12381", marks=pytest.mark.slow)])
def test_a_proof_with_a_given_blinding(snarkjs: Snarkjs, curve: str, tmp_path: Path) -> None:
    ptau, zkey = tmp_path / "test.ptau", tmp_path / "multiplier.zkey"
    wtns = find_data("multiplier", curve, ".wtns")
    snarkjs.make_ptau(curve, POWER, ptau)
    snarkjs.setup(find_data("multiplier", curve, ".r1cs"), ptau, zkey)
    key = snarkjs.export_verification_key(zkey)
    assert key["curve"] == curve and key["nPublic"] == 1
    proof, public = snarkjs.prove(zkey, wtns, curve, 5, 7)
    assert public == ["33"]
    assert snarkjs.prove(zkey, wtns, curve, 5, 7) == (proof, public)
    other, _ = snarkjs.prove(zkey, wtns, curve, 7, 5)
    assert other != proof
    assert snarkjs.verify(key, public, proof) and snarkjs.verify(key, public, other)
    assert not snarkjs.verify(key, ["34"], proof)
    ours = Proof.from_json(json.dumps(proof))
    our_key = VerificationKey.from_zkey(ZkeyFile.open(zkey))
    assert json.loads(our_key.to_json()) == key
    assert verify(our_key, [33], ours) and not verify(our_key, [34], ours)
    if curve == "bn128":  # the format has 256 bits for a number
        assert snarkjs.export_solidity_call_data(proof, public) == ours.solidity_calldata([33])


def test_errors_of_snarkjs_are_raised(snarkjs: Snarkjs, tmp_path: Path) -> None:
    with pytest.raises(SnarkjsError, match="ENOENT"):
        snarkjs.export_verification_key(tmp_path / "missing.zkey")
    wrong = tmp_path / "wrong.circom"
    wrong.write_text("pragma circom 2.0.0;\ntemplate T() { signal output c; c <== d; }")
    with pytest.raises(SnarkjsError, match=r"circom: .*d"):
        snarkjs.compile(wrong)
