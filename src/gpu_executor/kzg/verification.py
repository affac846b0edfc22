"""Verification of proofs: of values (EIP-4844) and of cells (EIP-7594).

A proof q for the value y at z of the polynomial with the commitment C is right if
e(C - y G + z q, H) = e(q, s H), s the secret, G and H the generators. Many proofs are checked
at once: random weights of 128 bits combine their equations to one, which holds for a wrong proof
with probability 2^-128.
"""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from gpu_executor.curves import BLS12_381_G1, PointArray
from gpu_executor.errors import GpuError
from gpu_executor.fields import BLS12_381_FR, FieldArray
from gpu_executor.graphs import graph
from gpu_executor.kzg import pairing
from gpu_executor.kzg.blst import Blst, Loop, load_blst
from gpu_executor.kzg.cells import list_shifts
from gpu_executor.kzg.inputs import (
    BYTES_PER_BLOB,
    BYTES_PER_CELL,
    BYTES_PER_COMMITMENT,
    BYTES_PER_FIELD_ELEMENT,
    BYTES_PER_PROOF,
    FIELD_ELEMENTS_PER_CELL,
    ByteRows,
    Bytes,
    Indices,
    check_counts,
    check_indices,
    cut,
    find_distinct,
    parse_array,
    parse_bytes,
    parse_index_list,
    parse_joined,
    parse_list,
    split_items,
)
from gpu_executor.kzg.proofs import (
    MAX_BLOBS,
    collect_challenges,
    compute_challenges,
    evaluate,
    hash_blobs,
    send_polynomials,
    split_tasks,
    start_evaluation,
)
from gpu_executor.kzg.setup import TrustedSetup, check_setup

if TYPE_CHECKING:
    from py_arkworks_bls12381 import G1Point

FR = BLS12_381_FR
Result = TypeVar("Result")
Booleans = npt.NDArray[np.bool_]
WEIGHT_BYTES = 16
"""Bytes of the random weight of a cell."""
THREADS = min(16, os.cpu_count() or 1)
OPENINGS_OF_THREAD = 5
"""Proofs of values for each thread up to which blst checks them: on the 16 cores of the host of an
NVIDIA H200, 72 blobs were verified in 12.6 ms, and by the device in 19.0; 128 in 18.1 and 19.7."""
OPENING_TASKS = 1.0
"""For `split_tasks`: 21 blobs take 7.5 ms there with 1.0, 13.6 in one part, and 9.2 with 4.0. Each
call of blst releases Python's lock, and waits for it 0.1 to 0.3 ms while other threads are busy."""
MAX_CELLS = 1 << 14
"""Cells that are verified together; a larger batch is cut."""


# --- proofs of values ---


def verify_kzg_proof(
    commitment_bytes: bytes,
    z_bytes: bytes,
    y_bytes: bytes,
    proof_bytes: bytes,
    trusted_setup: TrustedSetup,
) -> bool:
    """Whether a proof shows that the polynomial of a commitment has the value y at z.

    Args:
        commitment_bytes (bytes): The commitment, 48 bytes.
        z_bytes (bytes): The point z, a field element of 32 bytes, big-endian.
        y_bytes (bytes): The value y, a field element of 32 bytes, big-endian.
        proof_bytes (bytes): The proof, 48 bytes.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    commitments = parse_bytes("commitment", commitment_bytes, BYTES_PER_COMMITMENT)
    z = parse_bytes("z", z_bytes, BYTES_PER_FIELD_ELEMENT)
    y = parse_bytes("y", y_bytes, BYTES_PER_FIELD_ELEMENT)
    proofs = parse_bytes("proof", proof_bytes, BYTES_PER_PROOF)
    return bool(_verify_each(commitments, z.to_ints(), y.to_ints(), proofs, setup)[0])


def verify_kzg_proof_batch(
    commitments: Bytes, z: Bytes, y: Bytes, proofs: Bytes, trusted_setup: TrustedSetup
) -> bool:
    """Whether all proofs show that the polynomials of commitments have the values y at z; True for
    no items. `verify_kzg_proofs` says which of them do.

    Args:
        commitments (numpy.ndarray): uint8 (n, 48).
        z (numpy.ndarray): uint8 (n, 32), the points, big-endian.
        y (numpy.ndarray): uint8 (n, 32), the values, big-endian.
        proofs (numpy.ndarray): uint8 (n, 48).
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    return _verify_together(*_parse_openings(commitments, z, y, proofs), setup)


def verify_kzg_proofs(
    commitments: Bytes, z: Bytes, y: Bytes, proofs: Bytes, trusted_setup: TrustedSetup
) -> Booleans:
    """Which proofs show that the polynomials of commitments have the values y at z: one boolean an
    item. All items are checked together first, and one by one if one of them is wrong.

    Args:
        commitments (numpy.ndarray): uint8 (n, 48).
        z (numpy.ndarray): uint8 (n, 32), the points, big-endian.
        y (numpy.ndarray): uint8 (n, 32), the values, big-endian.
        proofs (numpy.ndarray): uint8 (n, 48).
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    return _verify_each(*_parse_openings(commitments, z, y, proofs), setup)


def _parse_openings(
    commitments: Any, z: Any, y: Any, proofs: Any
) -> tuple[ByteRows, list[int], list[int], ByteRows]:
    """The arguments of a batch of proofs of values."""
    rows = [
        parse_array("commitments", commitments, BYTES_PER_COMMITMENT),
        parse_array("z", z, BYTES_PER_FIELD_ELEMENT),
        parse_array("y", y, BYTES_PER_FIELD_ELEMENT),
        parse_array("proofs", proofs, BYTES_PER_PROOF),
    ]
    check_counts({each.name: len(each) for each in rows})
    return rows[0], rows[1].to_ints(), rows[2].to_ints(), rows[3]


def verify_blob_kzg_proof(
    blob: bytes, commitment_bytes: bytes, proof_bytes: bytes, trusted_setup: TrustedSetup
) -> bool:
    """Whether a proof shows that a commitment is the one to a blob.

    Args:
        blob (bytes): 131,072 bytes: 4,096 field elements of 32 bytes each, big-endian.
        commitment_bytes (bytes): The commitment, 48 bytes.
        proof_bytes (bytes): The proof, 48 bytes.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    blobs = parse_bytes("blob", blob, BYTES_PER_BLOB)
    commitments = parse_bytes("commitment", commitment_bytes, BYTES_PER_COMMITMENT)
    proofs = parse_bytes("proof", proof_bytes, BYTES_PER_PROOF)
    return _verify_blobs(blobs, commitments, proofs, setup)


def verify_blob_kzg_proof_batch(
    blobs: bytes | Bytes,
    commitments_bytes: bytes | Bytes,
    proofs_bytes: bytes | Bytes,
    trusted_setup: TrustedSetup,
) -> bool:
    """Whether all proofs show that commitments are those to blobs; True for no items.

    Args:
        blobs (bytes | numpy.ndarray): The blobs, one after the other, or uint8 (n, 131072).
        commitments_bytes (bytes | numpy.ndarray): The commitments, one after the other, or uint8
            (n, 48).
        proofs_bytes (bytes | numpy.ndarray): The proofs, one after the other, or uint8 (n, 48).
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    rows = parse_joined("blobs", blobs, BYTES_PER_BLOB)
    commitments = parse_joined("commitments", commitments_bytes, BYTES_PER_COMMITMENT)
    proofs = parse_joined("proofs", proofs_bytes, BYTES_PER_PROOF)
    check_counts({each.name: len(each) for each in (rows, commitments, proofs)})
    return _verify_blobs(rows, commitments, proofs, setup)


def _verify_blobs(
    blobs: ByteRows, commitments: ByteRows, proofs: ByteRows, setup: TrustedSetup
) -> bool:
    """Whether all proofs show that commitments are those to blobs."""
    blst = _choose_blst(len(blobs), setup)
    if blst is not None and len(blobs) <= MAX_BLOBS:
        hash_part = functools.partial(hash_blobs, blobs, commitments)
        check = _OpeningCheck(blst, commitments, proofs, setup, hash_part)
        coefficients = send_polynomials(blobs, setup)
        z = check.list_challenges()
        return check.finish(z, start_evaluation(blobs, coefficients, z))
    if not setup.decodes(2 * len(blobs)):
        z = compute_challenges(blobs, commitments)
        return _verify_together(commitments, z, evaluate(blobs, z, setup), proofs, setup)
    with ThreadPoolExecutor(1) as thread:
        # The device decodes and checks points while the host computes hashes.
        decoded = thread.submit(setup.load_points, commitments, proofs)
        z = compute_challenges(blobs, commitments)
        y = evaluate(blobs, z, setup)
        there, quotients_there = decoded.result()
    return _verify_all_on_device(there, quotients_there, z, y, setup)


def _choose_blst(count: int, setup: TrustedSetup) -> Blst | None:
    """blst, if it checks so many proofs of values faster than the device."""
    few = count <= OPENINGS_OF_THREAD * THREADS or not setup.decodes(2 * count)
    return load_blst() if count and few else None


def _make_threads(_setup: TrustedSetup) -> ThreadPoolExecutor:
    """Threads for hashes and for blst, both of which release the GIL. They end when the setup is
    closed and collected."""
    return ThreadPoolExecutor(THREADS, "gpu-executor verifies")


class _OpeningCheck:
    """The check of all proofs of values together, by blst. With weights r, the equation is

        e(sum of r C + z (r q), H) e(-sum of r q, s H) = e(G, H)^(sum of r y)

    Only the right side needs the values, and it is a product of powers from a table. So the left
    side is computed while the device evaluates the polynomials: the last part of the proofs by the
    calling thread, and each other part by a task of its own.
    """

    def __init__(
        self,
        blst: Blst,
        commitments: ByteRows,
        proofs: ByteRows,
        setup: TrustedSetup,
        find_challenges: Callable[[slice], list[int]],
    ) -> None:
        """`find_challenges` computes z of a part of the proofs."""
        count = len(commitments)
        self._blst, self._commitments, self._proofs = blst, commitments, proofs
        self._find_challenges, self._threads = find_challenges, setup.get(_make_threads)
        self._weights = pairing.draw_weights(count) if count > 1 else [1]
        self._lines = [blst.get_lines(each) for each in setup.g2_bytes[:2]]
        *others, self._last = split_tasks(count, OPENING_TASKS)
        started = [(part, Future[list[int]]()) for part in others]
        self._loops = [self._threads.submit(self._run_task, *each) for each in started]
        self._challenges = [each for _, each in started]

    def list_challenges(self) -> list[int]:
        """All z."""
        own = self._find_challenges(self._last)
        return [*collect_challenges(self._challenges), *own]

    def finish(self, z: Sequence[int], fetch_values: Callable[[], Sequence[int]]) -> bool:
        """Whether the equation holds for all z and the values that are fetched."""
        last = self._run_loops(self._last, z[self._last], self._threads.submit)
        y = fetch_values()  # first: what is wrong with a blob is said before what is with a point
        loops = [*(each.result() for each in self._loops), last]
        if any(each is None for each in loops):
            self._refuse_points()
        left = self._blst.pair(loops)
        total = sum(weight * each for weight, each in zip(self._weights, y, strict=True))
        return self._blst.is_power(left, total % FR.modulus)

    def _run_task(self, part: slice, challenges: Future[list[int]]) -> Loop | None:
        try:
            challenges.set_result(self._find_challenges(part))
        except BaseException as error:  # the calling thread waits for them
            challenges.set_exception(error)
        return self._run_loops(part, challenges.result(), _call)

    def _run_loops(
        self, part: slice, z: Sequence[int], call: Callable[..., Future[Any]]
    ) -> Loop | None:
        """The product of the Miller loops of some proofs; None where bytes are no point of the
        group. `call` runs one of the two loops: a task must not wait for another one, which may
        begin later."""
        blst, weights = self._blst, self._weights[part]
        proofs = [blst.decode(item) for item in split_items(self._proofs.data[part])]
        commitments = [blst.decode(item) for item in split_items(self._commitments.data[part])]
        if None in proofs or None in commitments:
            return None
        total = proofs[0] if weights == [1] else blst.sum_multiples(proofs, weights)
        right = call(blst.run_miller_loop, blst.negate(total), self._lines[1])
        if weights == [1]:
            left = blst.sum([commitments[0], blst.multiply(proofs[0], z[0])])
        else:
            factors = [weight * each % FR.modulus for weight, each in zip(weights, z, strict=True)]
            left = blst.sum_multiples([*commitments, *proofs], [*weights, *factors])
        return blst.multiply_loops([blst.run_miller_loop(left, self._lines[0]), right.result()])

    def _refuse_points(self) -> NoReturn:
        """Raise for the first bytes that are no point of the group."""
        for rows in (self._commitments, self._proofs):
            pairing.load_points(rows)
        raise GpuError("blst and arkworks disagree about points of BLS12-381 G1; please report it")


def _call(function: Callable[..., Result], *arguments: Any) -> Future[Result]:
    """Call a function in this thread."""
    future: Future[Result] = Future()
    future.set_result(function(*arguments))
    return future


def _verify_together(
    commitments: ByteRows,
    z: Sequence[int],
    y: Sequence[int],
    proofs: ByteRows,
    setup: TrustedSetup,
) -> bool:
    """Whether all proofs of values are right."""
    blst = _choose_blst(len(z), setup)
    if blst is not None:
        check = _OpeningCheck(blst, commitments, proofs, setup, lambda part: [*z[part]])
        return check.finish(z, lambda: y)
    if setup.decodes(2 * len(z)):
        there, quotients_there = setup.load_points(commitments, proofs)
        return _verify_all_on_device(there, quotients_there, z, y, setup)
    points, quotients = pairing.load_points(commitments), pairing.load_points(proofs)
    return _verify_all(points, z, y, quotients, setup)


def _verify_each(
    commitments: ByteRows,
    z: Sequence[int],
    y: Sequence[int],
    proofs: ByteRows,
    setup: TrustedSetup,
) -> Booleans:
    """Which proofs of values are right."""
    count = len(z)
    if count > 1 and _verify_together(commitments, z, y, proofs, setup):
        return np.ones(count, np.bool_)
    found = [
        _verify_together(commitments.select(one), z[one], y[one], proofs.select(one), setup)
        for one in (slice(index, index + 1) for index in range(count))
    ]
    return np.array(found, np.bool_)


def _verify_all(
    commitments: Sequence[G1Point],
    z: Sequence[int],
    y: Sequence[int],
    proofs: Sequence[G1Point],
    setup: TrustedSetup,
) -> bool:
    """Whether all proofs of values are right: one check of two pairings."""
    if not commitments:
        return True
    p = FR.modulus
    weights = pairing.draw_weights(len(z)) if len(z) > 1 else [1]
    at = [weight * each % p for weight, each in zip(weights, z, strict=True)]
    total = sum(weight * each for weight, each in zip(weights, y, strict=True))
    generator = pairing.get_arkworks().G1Point()
    left = pairing.sum_multiples([*commitments, *proofs, generator], [*weights, *at, -total % p])
    right = pairing.sum_multiples(proofs, weights)
    return pairing.pairings_equal(left, setup.g2_powers[0], right, setup.g2_powers[1])


def _verify_all_on_device(
    commitments: PointArray,
    proofs: PointArray,
    z: Sequence[int],
    y: Sequence[int],
    setup: TrustedSetup,
) -> bool:
    """`_verify_all` of points on the device, which adds their multiples."""
    p, count = FR.modulus, len(z)
    weights = pairing.draw_weights(count)
    at = [weight * each % p for weight, each in zip(weights, z, strict=True)]
    total = sum(weight * each for weight, each in zip(weights, y, strict=True)) % p
    constant = [total, *[0] * (FIELD_ELEMENTS_PER_CELL - 1)]  # the polynomial with that value
    scalars, shifted, polynomial = (
        setup.to_device(FR.encode(each)) for each in ([*weights, *weights], at, constant)
    )
    found = setup.get(_make_adder)(commitments, proofs, scalars, shifted, polynomial)
    return pairing.encoded_pairings_equal(found.to_bytes(), setup.g2_powers, setup.g2_bytes, 1)


# --- proofs of cells ---


def verify_cell_kzg_proof_batch(
    commitments_bytes: list[bytes] | Bytes,
    cell_indices: list[int] | npt.NDArray[Any],
    cells: list[bytes] | Bytes,
    proofs_bytes: list[bytes] | Bytes,
    trusted_setup: TrustedSetup,
) -> bool:
    """Whether all proofs show that cells are those of commitments; True for no items.

    Args:
        commitments_bytes (list of bytes | numpy.ndarray): The commitment to the blob of each cell,
            or uint8 (n, 48).
        cell_indices (list of ints | numpy.ndarray): The index of each cell in its blob, 0 to 127.
        cells (list of bytes | numpy.ndarray): The cells, or uint8 (n, 2048).
        proofs_bytes (list of bytes | numpy.ndarray): The proof of each cell, or uint8 (n, 48).
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    commitments = parse_list("commitments", commitments_bytes, BYTES_PER_COMMITMENT)
    given = parse_index_list("cell_indices", cell_indices)
    rows = parse_list("cells", cells, BYTES_PER_CELL)
    proofs = parse_list("proofs", proofs_bytes, BYTES_PER_PROOF)
    counts = {each.name: len(each) for each in (commitments, rows, proofs)}
    check_counts({**counts, "cell_indices": len(given)})
    indices = check_indices("cell_indices", given)
    found = True
    for part in cut(len(rows), MAX_CELLS):
        some = [each.select(part) for each in (commitments, rows, proofs)]
        # Not after `and`: invalid data of a later part raise an error, whatever was found before.
        found &= _verify_cells(some[0], some[1], some[2], indices[part], setup)
    return found


def _verify_cells(
    commitments: ByteRows,
    cells: ByteRows,
    proofs: ByteRows,
    indices: Indices,
    setup: TrustedSetup,
) -> bool:
    """Check e(sum of r C + r h^64 q - I(s) G, H) = e(sum of r q, s^64 H), with the weight r, the
    commitment C, the proof q and the coset's h of every cell. I is the sum of r times the
    polynomials that have the values of the cells."""
    numbers, position = find_distinct(commitments.data)
    distinct = ByteRows(commitments.name, commitments.data[numbers], numbers.tolist())
    with ThreadPoolExecutor(1) as thread:
        # The device decodes and checks points while the host sends cells and draws weights.
        decoded = thread.submit(setup.load_points, distinct, proofs)
        values = cells.send_elements(setup.gpu)
        weights = _draw_weights(len(cells))
        sums = _sum_weights(weights, position, len(numbers))
        factors = np.concatenate([FR.encode(sums).numpy(), weights])
        scalars = setup.to_device(FieldArray(FR, factors, "canonical"))
        drawn = scalars[len(numbers) :]
        polynomials = FR.intt(values * drawn.reshape(-1, 1), order_in="reversed")
        interpolated = FR.sum(polynomials * setup.get(_make_inverse_powers)[indices], axis=0)
        shifted = drawn * setup.get(_make_shifts)[indices]
        cells.check_elements(values)
        points, quotients = decoded.result()
    add = setup.get(_make_adder)
    found = add(points, quotients, scalars, shifted, interpolated)
    return pairing.encoded_pairings_equal(
        found.to_bytes(), setup.g2_powers, setup.g2_bytes, FIELD_ELEMENTS_PER_CELL
    )


def _draw_weights(count: int) -> npt.NDArray[Any]:
    """Random weights in canonical words, each below 2^128."""
    words = np.zeros((count, FR.prime.element_bytes), np.uint8)
    drawn = np.frombuffer(secrets.token_bytes(count * WEIGHT_BYTES), np.uint8)
    words[:, :WEIGHT_BYTES] = drawn.reshape(count, WEIGHT_BYTES)
    return words.view(FR.prime.column_dtype)


def _sum_weights(weights: npt.NDArray[Any], position: Indices, count: int) -> list[int]:
    """The sums of the weights of each of so many commitments."""
    order = np.argsort(position, kind="stable")
    words = weights.view("<u4")[order].astype(np.uint64)
    sums = np.add.reduceat(words, np.searchsorted(position[order], np.arange(count)))
    return [sum(word << 32 * index for index, word in enumerate(row)) for row in sums.tolist()]


def _make_adder(setup: TrustedSetup) -> Callable[..., PointArray]:
    """What adds the multiples of points on both sides of the equation, recorded once for each size
    of a batch: the two sums in affine form."""
    powers = setup.powers[:FIELD_ELEMENTS_PER_CELL].affine()
    gpu = setup.gpu

    def add(
        commitments: PointArray,
        proofs: PointArray,
        scalars: FieldArray,
        shifted: FieldArray,
        interpolated: FieldArray,
    ) -> PointArray:
        count = len(commitments)
        left = FR.concatenate([scalars[:count], shifted, -interpolated])
        nothing = [gpu.to_device(FR.zeros(each)) for each in (count, len(interpolated))]
        right = FR.concatenate([nothing[0], scalars[count:], nothing[1]])
        points = BLS12_381_G1.concatenate([commitments, proofs, powers])
        return BLS12_381_G1.msm(points, FR.stack([left, right])).affine()

    return graph(add)


def _make_shifts(setup: TrustedSetup) -> FieldArray:
    """h^64 of every cell, on the device."""
    p = FR.modulus
    found = [pow(each, FIELD_ELEMENTS_PER_CELL, p) for each in list_shifts()]
    return setup.to_device(FR.encode(found))


def _make_inverse_powers(setup: TrustedSetup) -> FieldArray:
    """h^-j of every cell for j from 0 to 63, on the device: (128, 64)."""
    p = FR.modulus
    found = [[pow(each, -j, p) for j in range(FIELD_ELEMENTS_PER_CELL)] for each in list_shifts()]
    return setup.to_device(FR.encode(found))
