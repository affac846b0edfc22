"""Commitments and proofs of values against ckzg, byte for byte, and against the known secret."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import ckzg
import numpy as np
import pytest

from gpu_executor import kzg
from gpu_executor.kzg import proofs
from gpu_executor.kzg.inputs import parse_array, parse_bytes, split_items
from tests.support.kzg_setups import (
    GENERATOR,
    INFINITY,
    MODULUS,
    SECRET,
    SetupPair,
    draw_blob,
    evaluate_at_secret,
    list_edge_blobs,
    make_blob,
    multiply_generator,
)

ROOT = pow(7, (MODULUS - 1) // 4096, MODULUS)


def to_array(items: list[bytes]) -> Any:
    return np.frombuffer(b"".join(items), np.uint8).reshape(len(items), -1)


@pytest.mark.slow
def test_commitments_to_edge_blobs_equal_those_of_ckzg(known: SetupPair) -> None:
    blobs = list(list_edge_blobs().values())
    found = split_items(kzg.blob_to_kzg_commitment_batch(to_array(blobs), known.own))
    assert found == [ckzg.blob_to_kzg_commitment(blob, known.ckzg) for blob in blobs]
    assert found == [multiply_generator(evaluate_at_secret(blob)) for blob in blobs]


def test_proofs_of_values_equal_those_of_ckzg(known: SetupPair) -> None:
    blob, z = draw_blob(2), 0x1234567890
    at = z.to_bytes(32, "big")
    proof, y = kzg.compute_kzg_proof(blob, at, known.own)
    assert (proof, y) == ckzg.compute_kzg_proof(blob, at, known.ckzg)
    # The quotient's value at the secret: (p(s) - y) / (s - z).
    quotient = (evaluate_at_secret(blob) - int.from_bytes(y, "big")) * pow(SECRET - z, -1, MODULUS)
    assert proof == multiply_generator(quotient)


def test_values_at_roots_and_at_other_points_equal_those_of_ckzg(known: SetupPair) -> None:
    edges = list_edge_blobs()
    blobs = [draw_blob(2), edges["first value"], edges["largest"], draw_blob(3)]
    z = [pow(ROOT, 1234, MODULUS), 1, MODULUS - 1, 5]
    rows = parse_array("blobs", to_array(blobs), blob_bytes := len(blobs[0]))
    expected = [
        int.from_bytes(ckzg.compute_kzg_proof(blob, at.to_bytes(32, "big"), known.ckzg)[1], "big")
        for blob, at in zip(blobs, z, strict=True)
    ]
    assert proofs.evaluate(rows, z, known.own) == expected
    first = parse_bytes("blob", blobs[0], blob_bytes)
    assert proofs.evaluate(first, z[:1], known.own) == expected[:1]


@pytest.mark.slow
def test_a_batch_of_proofs_mixes_roots_and_other_points(known: SetupPair) -> None:
    """Only the first quotient has many values that are not 0."""
    edges = list_edge_blobs()
    points = [pow(ROOT, 1234, MODULUS), 0, 1, MODULUS - 1]  # the last is the root -1
    blobs = [draw_blob(2), edges["largest"], edges["last value"], edges["first value"]]
    z = [each.to_bytes(32, "big") for each in points]
    found, y = kzg.compute_kzg_proof_batch(to_array(blobs), to_array(z), known.own)
    assert (found.shape, y.shape) == ((4, 48), (4, 32))
    for blob, at, proof, value in zip(blobs, z, found, y, strict=True):
        expected = ckzg.compute_kzg_proof(blob, at, known.ckzg)
        assert (proof.tobytes(), value.tobytes()) == expected


@pytest.mark.slow
def test_proofs_of_blobs_equal_those_of_ckzg_for_any_commitment(known: SetupPair) -> None:
    """The commitment only goes into the challenge, so any point of the group is accepted."""
    blobs, commitments = [draw_blob(4), list_edge_blobs()["constant"]], [GENERATOR, INFINITY]
    expected = [
        ckzg.compute_blob_kzg_proof(blob, commitment, known.ckzg)
        for blob, commitment in zip(blobs, commitments, strict=True)
    ]
    found = kzg.compute_blob_kzg_proof_batch(to_array(blobs), to_array(commitments), known.own)
    assert [row.tobytes() for row in found] == expected


def test_the_challenge_is_the_hash_that_the_specification_defines() -> None:
    blob, commitment = draw_blob(5), GENERATOR
    rows = [
        parse_bytes("blob", blob, len(blob)),
        parse_bytes("commitment", commitment, 48),
    ]
    text = b"FSBLOBVERIFY_V1_" + (4096).to_bytes(16, "big") + blob + commitment
    expected = int.from_bytes(hashlib.sha256(text).digest(), "big") % MODULUS
    assert proofs.compute_challenges(rows[0], rows[1]) == [expected]


def test_a_batch_that_is_cut_equals_single_calls(
    known: SetupPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a view in another order, too."""
    monkeypatch.setattr(proofs, "MAX_BLOBS", 2)
    blobs = [make_blob([seed, 5, seed]) for seed in range(3)]
    backwards = np.asfortranarray(to_array(blobs))[::-1]
    found = kzg.blob_to_kzg_commitment_batch(backwards, known.own)
    expected = [ckzg.blob_to_kzg_commitment(blob, known.ckzg) for blob in blobs]
    assert [row.tobytes() for row in found] == expected[::-1]


def test_an_empty_batch_has_empty_results(known: SetupPair) -> None:
    blobs, z, points = (np.zeros((0, width), np.uint8) for width in (131072, 32, 48))
    assert kzg.blob_to_kzg_commitment_batch(blobs, known.own).shape == (0, 48)
    found, y = kzg.compute_kzg_proof_batch(blobs, z, known.own)
    assert (found.shape, y.shape) == ((0, 48), (0, 32))
    assert kzg.compute_blob_kzg_proof_batch(blobs, points, known.own).shape == (0, 48)


@pytest.mark.slow
def test_threads_share_a_setup(known: SetupPair) -> None:
    """Each thread computes a commitment, a proof and cells, and verifies them."""
    blobs = [make_blob([seed, 9]) for seed in range(2)]
    found: dict[int, list[Any]] = {}

    def work(index: int) -> None:
        blob, setup = blobs[index], known.own
        commitment = kzg.blob_to_kzg_commitment(blob, setup)
        proof = kzg.compute_blob_kzg_proof(blob, commitment, setup)
        verified = kzg.verify_blob_kzg_proof(blob, commitment, proof, setup)
        found[index] = [commitment, proof, kzg.compute_cells(blob, setup), verified]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, blob in enumerate(blobs):
        commitment = ckzg.blob_to_kzg_commitment(blob, known.ckzg)
        proof = ckzg.compute_blob_kzg_proof(blob, commitment, known.ckzg)
        assert found[index] == [commitment, proof, ckzg.compute_cells(blob, known.ckzg), True]
