"""Commitments to blobs, and proofs of the values of their polynomials (EIP-4844).

The values p[i] of a blob belong to the roots of unity w[i] in bit-reversed order. At a point z that
is no root, p(z) = (1 - z^4096) / 4096 * sum of p[i] w[i] / (w[i] - z). The proof is the commitment
to the quotient q = (p - p(z)) / (X - z), by its values q[i] = (p[i] - p(z)) / (w[i] - z). If z is
the root w[m], then p(z) = p[m] and q[m] = -1 / w[m] * sum of q[i] w[i] over i != m.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.curves import BLS12_381_G1
from gpu_executor.fields import BLS12_381_FR, FieldArray, eip4844
from gpu_executor.kzg import pairing
from gpu_executor.kzg.inputs import (
    BYTES_PER_BLOB,
    BYTES_PER_COMMITMENT,
    BYTES_PER_FIELD_ELEMENT,
    FIELD_ELEMENTS_PER_BLOB,
    ByteRows,
    Bytes,
    check_counts,
    cut,
    parse_array,
    parse_bytes,
)
from gpu_executor.kzg.setup import TrustedSetup, check_setup
from gpu_executor.msm.parts import split_evenly
from gpu_executor.ops.polynomials import evaluate_rows
from gpu_executor.primes import words

CHALLENGE_DOMAIN = b"FSBLOBVERIFY_V1_" + FIELD_ELEMENTS_PER_BLOB.to_bytes(16, "big")
MAX_BLOBS = 128
"""Blobs that are computed together; a larger batch is cut. An array of their values has 16 MiB."""
HASH_THREADS = min(8, os.cpu_count() or 1)
HASH_TASKS = 2.0
"""The time of a hash, 90 us, in that of the beginning of a task, about 40 us on the host of an
NVIDIA H200: 21 tasks of one hash took 0.9 ms there, on 16 cores."""


# --- ckzg's functions, and the same on arrays ---


def blob_to_kzg_commitment(blob: bytes, trusted_setup: TrustedSetup) -> bytes:
    """The commitment to a blob: 48 bytes.

    Args:
        blob (bytes): 131,072 bytes: 4,096 field elements of 32 bytes each, big-endian.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    return commit(parse_bytes("blob", blob, BYTES_PER_BLOB), setup).tobytes()


def blob_to_kzg_commitment_batch(blobs: Bytes, trusted_setup: TrustedSetup) -> Bytes:
    """The commitments to blobs: uint8 (n, 48).

    Args:
        blobs (numpy.ndarray): uint8 (n, 131072), a blob in each row.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    return commit(parse_array("blobs", blobs, BYTES_PER_BLOB), setup)


def compute_kzg_proof(
    blob: bytes, z_bytes: bytes, trusted_setup: TrustedSetup
) -> tuple[bytes, bytes]:
    """The proof for the value of a blob's polynomial at z (48 bytes), and that value (32 bytes).

    Args:
        blob (bytes): 131,072 bytes: 4,096 field elements of 32 bytes each, big-endian.
        z_bytes (bytes): The point z, a field element of 32 bytes, big-endian.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    rows = parse_bytes("blob", blob, BYTES_PER_BLOB)
    points = parse_bytes("z", z_bytes, BYTES_PER_FIELD_ELEMENT)
    proofs, values = prove(rows, points.to_ints(), setup)
    return proofs.tobytes(), values.tobytes()


def compute_kzg_proof_batch(
    blobs: Bytes, z: Bytes, trusted_setup: TrustedSetup
) -> tuple[Bytes, Bytes]:
    """The proofs for the values of blobs' polynomials at one point each, uint8 (n, 48), and these
    values, uint8 (n, 32).

    Args:
        blobs (numpy.ndarray): uint8 (n, 131072), a blob in each row.
        z (numpy.ndarray): uint8 (n, 32), the point of each blob, big-endian.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    rows = parse_array("blobs", blobs, BYTES_PER_BLOB)
    points = parse_array("z", z, BYTES_PER_FIELD_ELEMENT)
    check_counts({"blobs": len(rows), "z": len(points)})
    return prove(rows, points.to_ints(), setup)


def compute_blob_kzg_proof(
    blob: bytes, commitment_bytes: bytes, trusted_setup: TrustedSetup
) -> bytes:
    """The proof that a commitment is the one to a blob: 48 bytes.

    Args:
        blob (bytes): 131,072 bytes: 4,096 field elements of 32 bytes each, big-endian.
        commitment_bytes (bytes): The commitment to the blob, 48 bytes. It is not compared with the
            blob: the proof for another commitment does not verify.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    rows = parse_bytes("blob", blob, BYTES_PER_BLOB)
    commitments = parse_bytes("commitment", commitment_bytes, BYTES_PER_COMMITMENT)
    return prove_commitments(rows, commitments, setup).tobytes()


def compute_blob_kzg_proof_batch(
    blobs: Bytes, commitments: Bytes, trusted_setup: TrustedSetup
) -> Bytes:
    """The proofs that commitments are those to blobs: uint8 (n, 48).

    Args:
        blobs (numpy.ndarray): uint8 (n, 131072), a blob in each row.
        commitments (numpy.ndarray): uint8 (n, 48), the commitment to each blob.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    rows = parse_array("blobs", blobs, BYTES_PER_BLOB)
    points = parse_array("commitments", commitments, BYTES_PER_COMMITMENT)
    check_counts({"blobs": len(rows), "commitments": len(points)})
    return prove_commitments(rows, points, setup)


# --- on the device ---


def commit(blobs: ByteRows, setup: TrustedSetup) -> Bytes:
    """The commitments (n, 48) to blobs."""
    parts = []
    for part in cut(len(blobs), MAX_BLOBS):
        rows = blobs.select(part)
        values = rows.send_elements(setup.gpu)
        sums = BLS12_381_G1.msm(setup.lagrange_table, values)
        rows.check_elements(values)
        parts.append(sums.to_bytes())
    return _join(parts, BYTES_PER_COMMITMENT)


def prove_commitments(blobs: ByteRows, commitments: ByteRows, setup: TrustedSetup) -> Bytes:
    """The proofs of blobs at the challenges that belong to their commitments."""
    if not setup.decodes(len(commitments)):
        pairing.load_points(commitments)  # refuses what is no point of the group
        return prove(blobs, compute_challenges(blobs, commitments), setup)[0]
    with ThreadPoolExecutor(1) as thread:
        decoded = thread.submit(setup.load_points, commitments)  # while the host computes hashes
        challenges = compute_challenges(blobs, commitments)
        decoded.result()
    return prove(blobs, challenges, setup)[0]


def prove(blobs: ByteRows, z: Sequence[int], setup: TrustedSetup) -> tuple[Bytes, Bytes]:
    """The proofs (n, 48) and values (n, 32) of blobs at one point each."""
    proofs, results = [], []
    for part in cut(len(blobs), MAX_BLOBS):
        rows = blobs.select(part)
        values = rows.send_elements(setup.gpu)
        y, quotients = _divide(values, z[part], setup)
        rows.check_elements(values)
        proofs.append(BLS12_381_G1.msm(setup.lagrange_table, quotients).to_bytes())
        results.append(BLS12_381_FR.to_bytes(y))
    return _join(proofs, BYTES_PER_COMMITMENT), _join(results, BYTES_PER_FIELD_ELEMENT)


def evaluate(blobs: ByteRows, z: Sequence[int], setup: TrustedSetup) -> list[int]:
    """The values of blobs' polynomials at one point each."""
    found: list[int] = []
    for part in cut(len(blobs), MAX_BLOBS):
        rows = blobs.select(part)
        found += start_evaluation(rows, send_polynomials(rows, setup), z[part])()
    return found


def send_polynomials(blobs: ByteRows, setup: TrustedSetup) -> FieldArray:
    """The coefficients of blobs' polynomials on the device, of at most `MAX_BLOBS` blobs. They need
    no point, so the device computes them while the host hashes the blobs."""
    return eip4844.coefficients(blobs.send_elements(setup.gpu))


def start_evaluation(
    blobs: ByteRows, coefficients: FieldArray, z: Sequence[int]
) -> Callable[[], list[int]]:
    """Let the device evaluate polynomials that `send_polynomials` sent at one point each; returns
    what fetches the values."""
    prime, data = BLS12_381_FR.prime, coefficients.in_form(BLS12_381_FR.form).data
    assert isinstance(data, DeviceArray)
    y = FieldArray(BLS12_381_FR, evaluate_rows(prime, data, z), BLS12_381_FR.form)

    def fetch() -> list[int]:
        try:
            found = words.to_ints(prime, y.words())
        finally:
            # After the values, so that nothing is waited for twice. An error of the elements is the
            # error of the values, too, and here it has the number of the blob.
            blobs.check_elements(coefficients)
        # The host changes the form of few elements faster than a kernel is submitted.
        return [each * prime.r_inverse % prime.modulus for each in found]

    return fetch


def compute_challenges(blobs: ByteRows, commitments: ByteRows) -> list[int]:
    """The points at which blobs are opened: hashes of the blobs and their commitments."""
    if len(blobs) <= 1:
        return hash_blobs(blobs, commitments, slice(len(blobs)))
    with ThreadPoolExecutor(HASH_THREADS) as threads:
        return collect_challenges(start_challenges(blobs, commitments, threads))


def start_challenges(
    blobs: ByteRows, commitments: ByteRows, threads: ThreadPoolExecutor
) -> list[Future[list[int]]]:
    """Let threads compute the challenges of parts of the blobs; hashing releases the GIL."""
    return [
        threads.submit(hash_blobs, blobs, commitments, part)
        for part in split_tasks(len(blobs), HASH_TASKS)
    ]


def collect_challenges(started: Sequence[Future[list[int]]]) -> list[int]:
    """The challenges that threads compute."""
    return [each for part in started for each in part.result()]


def split_tasks(count: int, weight: float) -> list[slice]:
    """The parts of so many items that threads do. Of k parts, tasks begin one after the other, and
    each has count / k items. `weight` is the time of an item in that of the beginning of a task."""
    return split_evenly(count, min(count, math.ceil(math.sqrt(weight * count))))


def hash_blobs(blobs: ByteRows, commitments: ByteRows, part: slice) -> list[int]:
    """The challenges of some blobs."""
    found = []
    for blob, commitment in zip(blobs.data[part], commitments.data[part], strict=True):
        digest = hashlib.sha256(CHALLENGE_DOMAIN)
        digest.update(blob.data)
        digest.update(commitment.tobytes())
        found.append(int.from_bytes(digest.digest(), "big") % BLS12_381_FR.modulus)
    return found


def _evaluate(
    values: FieldArray, z: Sequence[int], setup: TrustedSetup
) -> tuple[FieldArray, FieldArray]:
    """The values at z of polynomials with values (n, 4096), and 1 / (w[i] - z), 0 if w[i] is z."""
    p, size = BLS12_381_FR.modulus, FIELD_ELEMENTS_PER_BLOB
    shrink = pow(size, -1, p)
    factors = [(1 - pow(each, size, p)) * shrink % p for each in z]
    encoded = setup.to_device(BLS12_381_FR.encode([list(z), factors]))
    domain, roots = setup.get(_make_domain), setup.get(_list_roots)
    inverses = BLS12_381_FR.inverse(domain - encoded[0].reshape(-1, 1))
    y = BLS12_381_FR.sum(values * domain * inverses, axis=1) * encoded[1]
    for row, each in enumerate(z):
        if each in roots:
            y[row] = values[row, roots[each]]
    return y, inverses


def _divide(
    values: FieldArray, z: Sequence[int], setup: TrustedSetup
) -> tuple[FieldArray, FieldArray]:
    """The values y at z, and the values (n, 4096) of the quotients (p - y) / (X - z)."""
    y, inverses = _evaluate(values, z, setup)
    quotients = (values - y.reshape(len(z), 1)) * inverses
    domain, roots = setup.get(_make_domain), setup.get(_list_roots)
    for row, each in enumerate(z):
        if each in roots:
            total = BLS12_381_FR.sum(quotients[row] * domain)
            factor = -pow(each, -1, BLS12_381_FR.modulus)
            quotients[row, roots[each]] = total * factor
    return y, quotients


def _make_domain(setup: TrustedSetup) -> FieldArray:
    """The roots of unity in a blob's order, on the device."""
    return setup.to_device(eip4844.domain())


def _list_roots(_setup: TrustedSetup) -> dict[int, int]:
    """The index in a blob of every root of unity."""
    found: list[Any] = eip4844.domain().tolist()
    return {root: index for index, root in enumerate(found)}


def _join(parts: list[Bytes], width: int) -> Bytes:
    return np.concatenate([np.zeros((0, width), np.uint8), *parts])
