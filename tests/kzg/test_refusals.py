"""Invalid arguments: every function raises what ckzg raises, and names the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ckzg
import numpy as np
import pytest

from gpu_executor import kzg
from gpu_executor.errors import GpuError, KzgArgumentError, KzgDataError
from tests.support.kzg_setups import (
    GENERATOR,
    INFINITY,
    MODULUS,
    OUTSIDE,
    SetupPair,
    make_blob,
)

BLOB = bytes(131072)
CELL, ELEMENT = bytes(2048), bytes(32)
TOO_LARGE = MODULUS.to_bytes(32, "big")
BAD_BLOB = BLOB[: 32 * 17] + TOO_LARGE + BLOB[32 * 18 :]
BAD_CELL = CELL[: 32 * 63] + b"\xff" * 32
HALF = list(range(64))
ITEM = {
    "blob": (BLOB, [BAD_BLOB, BLOB[:32] + b"\xff" * 32 + BLOB[64:]]),
    "element": (ELEMENT, [TOO_LARGE, b"\xff" * 32]),
    "point": (
        INFINITY,
        [
            bytes(48),  # not compressed
            OUTSIDE,
            b"\x80" + bytes(46) + b"\x01",  # not on the curve
            b"\x9a" + b"\xff" * 47,  # x is not below the modulus
            b"\xc0" + bytes(46) + b"\x01",  # infinity with another bit
            b"\xe0" + bytes(47),  # infinity with a sign
            GENERATOR[:1] + GENERATOR[2:] + b"\x01",
        ],
    ),
}
"""By kind: a valid item, and invalid ones of the right length."""
SINGLE = {
    "blob_to_kzg_commitment": ["blob"],
    "compute_kzg_proof": ["blob", "element"],
    "compute_blob_kzg_proof": ["blob", "point"],
    "verify_kzg_proof": ["point", "element", "element", "point"],
    "verify_blob_kzg_proof": ["blob", "point", "point"],
    "compute_cells": ["blob"],
    "compute_cells_and_kzg_proofs": ["blob"],
}
"""The kinds of the arguments of every single function."""


def call(module: Any, name: str, arguments: list[Any], setup: Any) -> Any:
    return getattr(module, name)(*arguments, setup)


def check_same_error(
    name: str, arguments: list[Any], known: SetupPair, expected: type[Exception]
) -> None:
    """Both modules raise that error; ours is a GpuError, too."""
    with pytest.raises(expected) as theirs:
        call(ckzg, name, arguments, known.ckzg)
    with pytest.raises(expected) as found:
        call(kzg, name, arguments, known.own)
    assert type(theirs.value) is expected
    assert isinstance(found.value, GpuError)


SINGLE_PLACES = [(name, place) for name, kinds in SINGLE.items() for place in range(len(kinds))]


@pytest.mark.parametrize(("name", "place"), SINGLE_PLACES)
def test_arguments_of_other_types_and_lengths_raise_value_error(
    known: SetupPair, name: str, place: int
) -> None:
    valid = [ITEM[kind][0] for kind in SINGLE[name]]
    for wrong in (
        valid[place][1:],
        valid[place] + b"\0",
        b"",
        bytearray(valid[place]),
        "",
        None,
        1,
    ):
        arguments = [*valid[:place], wrong, *valid[place + 1 :]]
        check_same_error(name, arguments, known, ValueError)


@pytest.mark.parametrize(("name", "place"), SINGLE_PLACES)
def test_invalid_data_raise_runtime_error(known: SetupPair, name: str, place: int) -> None:
    valid = [ITEM[kind][0] for kind in SINGLE[name]]
    for wrong in ITEM[SINGLE[name][place]][1]:
        arguments = [*valid[:place], wrong, *valid[place + 1 :]]
        check_same_error(name, arguments, known, RuntimeError)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *((name, [ITEM[kind][0] for kind in kinds]) for name, kinds in SINGLE.items()),
        ("verify_blob_kzg_proof_batch", [BLOB, INFINITY, INFINITY]),
        ("recover_cells_and_kzg_proofs", [HALF, [CELL] * 64]),
        ("verify_cell_kzg_proof_batch", [[INFINITY], [0], [CELL], [INFINITY]]),
    ],
)
def test_what_is_no_trusted_setup_raises_value_error(name: str, arguments: list[Any]) -> None:
    for setup in (None, 5, "setup"):
        with pytest.raises(ValueError, match="expected"):
            call(ckzg, name, arguments, setup)
        with pytest.raises(KzgArgumentError, match="load_trusted_setup"):
            call(kzg, name, arguments, setup)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([BLOB * 2, INFINITY, INFINITY * 2], ValueError),
        ([BLOB, INFINITY * 2, INFINITY], ValueError),
        ([BLOB + b"\0", INFINITY, INFINITY], ValueError),
        ([BLOB, INFINITY[1:], INFINITY], ValueError),
        ([BLOB, INFINITY, INFINITY + b"\0"], ValueError),
        ([b"", INFINITY, b""], ValueError),
        ([[BLOB], [INFINITY], [INFINITY]], ValueError),
        ([bytearray(BLOB), INFINITY, INFINITY], ValueError),
        ([BLOB + BAD_BLOB, INFINITY * 2, INFINITY * 2], RuntimeError),
        ([BLOB * 2, INFINITY + OUTSIDE, INFINITY * 2], RuntimeError),
        ([BLOB * 2, INFINITY * 2, OUTSIDE + INFINITY], RuntimeError),
    ],
)
def test_invalid_batches_of_blobs_raise_the_errors_of_ckzg(
    known: SetupPair, arguments: list[Any], expected: type[Exception]
) -> None:
    check_same_error("verify_blob_kzg_proof_batch", arguments, known, expected)


@pytest.mark.parametrize(
    ("indices", "cells", "expected"),
    [
        (HALF[:63], [CELL] * 63, RuntimeError),
        ([], [], RuntimeError),
        ([*range(128), 127], [CELL] * 129, RuntimeError),
        ([0, *HALF], [CELL] * 65, RuntimeError),  # a duplicate
        (HALF[::-1], [CELL] * 64, RuntimeError),  # descending
        ([*HALF[1:], 128], [CELL] * 64, RuntimeError),
        ([*HALF[1:], 2**63], [CELL] * 64, RuntimeError),
        (HALF, [*[CELL] * 63, BAD_CELL], RuntimeError),
        ([-1, *HALF[1:]], [CELL] * 64, ValueError),
        ([*HALF[1:], 2**64], [CELL] * 64, ValueError),
        ([*HALF[1:], "64"], [CELL] * 64, ValueError),
        ([*HALF[1:], 64.0], [CELL] * 64, ValueError),
        ([*HALF[1:], None], [CELL] * 64, ValueError),
        (tuple(HALF), [CELL] * 64, ValueError),
        (HALF, tuple([CELL] * 64), ValueError),
        (HALF, [CELL] * 65, ValueError),
        (HALF, [*[CELL] * 63, CELL[1:]], ValueError),
        (HALF, [*[CELL] * 63, bytearray(CELL)], ValueError),
        (HALF, CELL * 64, ValueError),
        ([*HALF[1:], 128], [*[CELL] * 63, CELL[1:]], ValueError),  # lengths come first
    ],
)
def test_recovery_from_invalid_cells_raises_the_errors_of_ckzg(
    known: SetupPair, indices: Any, cells: Any, expected: type[Exception]
) -> None:
    check_same_error("recover_cells_and_kzg_proofs", [indices, cells], known, expected)


@pytest.mark.parametrize(
    ("place", "wrong", "expected"),
    [
        (0, [INFINITY], ValueError),
        (0, [INFINITY, INFINITY[1:]], ValueError),
        (0, (INFINITY, INFINITY), ValueError),
        (0, INFINITY * 2, ValueError),
        (1, [0], ValueError),
        (1, [0, -1], ValueError),
        (1, [0, "1"], ValueError),
        (1, (0, 1), ValueError),
        (2, [CELL] * 3, ValueError),
        (2, [CELL, CELL + b"\0"], ValueError),
        (3, [INFINITY, bytearray(INFINITY)], ValueError),
        (3, None, ValueError),
        (0, [INFINITY, OUTSIDE], RuntimeError),
        (0, [bytes(48), INFINITY], RuntimeError),
        (1, [0, 128], RuntimeError),
        (2, [CELL, BAD_CELL], RuntimeError),
        (3, [OUTSIDE, INFINITY], RuntimeError),
        (3, [INFINITY, b"\xe0" + bytes(47)], RuntimeError),
    ],
)
def test_invalid_batches_of_cells_raise_the_errors_of_ckzg(
    known: SetupPair, place: int, wrong: Any, expected: type[Exception]
) -> None:
    arguments: list[Any] = [[INFINITY] * 2, [0, 1], [CELL] * 2, [INFINITY] * 2]
    arguments[place] = wrong
    check_same_error("verify_cell_kzg_proof_batch", arguments, known, expected)


# --- arrays ---


def make_rows(item: bytes, count: int = 3) -> Any:
    return np.frombuffer(item * count, np.uint8).reshape(count, -1).copy()


def spoil(rows: Any, row: int, item: bytes) -> Any:
    rows[row] = np.frombuffer(item, np.uint8)
    return rows


MESSAGES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (
        lambda ts: kzg.blob_to_kzg_commitment_batch(spoil(make_rows(BLOB), 2, BAD_BLOB), ts),
        KzgDataError,
        r"^element 17 of blobs\[2\] is not below the modulus",
    ),
    (
        lambda ts: kzg.compute_kzg_proof_batch(
            make_rows(BLOB), spoil(make_rows(ELEMENT), 1, TOO_LARGE), ts
        ),
        KzgDataError,
        r"^z\[1\] is not below the modulus",
    ),
    (
        lambda ts: kzg.compute_blob_kzg_proof_batch(
            make_rows(BLOB), spoil(make_rows(INFINITY), 1, OUTSIDE), ts
        ),
        KzgDataError,
        r"^commitments\[1\] is not a compressed point of .* not in the group of prime order$",
    ),
    (
        lambda ts: kzg.verify_kzg_proof_batch(
            make_rows(INFINITY),
            make_rows(ELEMENT),
            make_rows(ELEMENT),
            spoil(make_rows(INFINITY), 0, OUTSIDE),
            ts,
        ),
        KzgDataError,
        r"^proofs\[0\] is not a compressed point of .* not in the group of prime order$",
    ),
    (
        lambda ts: kzg.recover_cells_and_kzg_proofs_batch(
            np.array([range(64), [0, 0, *range(2, 64)]]), np.zeros((2, 64, 2048), np.uint8), ts
        ),
        KzgDataError,
        r"^cell_indices\[1\] must be in ascending order",
    ),
    (
        lambda ts: kzg.recover_cells_and_kzg_proofs_batch(
            np.array([range(64), range(64)]), np.zeros((2, 65, 2048), np.uint8), ts
        ),
        KzgArgumentError,
        r"^cells has the shape \(2, 65, 2048\); it must be \(n, 64, 2048\)",
    ),
    (
        lambda ts: kzg.recover_cells_and_kzg_proofs_batch(
            np.array([range(64)]) + 65, np.zeros((1, 64, 2048), np.uint8), ts
        ),
        KzgDataError,
        r"^cell_indices has the index 128; a blob has the cells 0 to 127",
    ),
    (
        lambda ts: kzg.recover_cells_and_kzg_proofs_batch(
            np.array([range(64)]) - 1, np.zeros((1, 64, 2048), np.uint8), ts
        ),
        KzgArgumentError,
        r"^cell_indices has the index -1; indices begin at 0",
    ),
    (
        lambda ts: kzg.recover_cells_and_kzg_proofs_batch(
            np.zeros((1, 64)), np.zeros((1, 64, 2048), np.uint8), ts
        ),
        KzgArgumentError,
        r"^cell_indices must be an array of integers, not an array of float64",
    ),
    (
        lambda ts: kzg.compute_cells_batch(make_rows(BLOB)[:, 1:], ts),
        KzgArgumentError,
        r"^blobs has the shape \(3, 131071\); it must be \(n, 131072\)",
    ),
    (
        lambda ts: kzg.compute_cells_batch(make_rows(BLOB)[0], ts),
        KzgArgumentError,
        r"^blobs has the shape \(131072,\); it must be \(n, 131072\)",
    ),
    (
        lambda ts: kzg.compute_cells_batch(make_rows(BLOB).astype(np.int8), ts),
        KzgArgumentError,
        r"^blobs must be an array of uint8, not an array of int8",
    ),
    (
        lambda ts: kzg.compute_cells_batch([BLOB], ts),  # type: ignore[arg-type]
        KzgArgumentError,
        r"^blobs must be an array of uint8, not a list",
    ),
    (
        lambda ts: kzg.compute_cells_batch(np.ma.masked_array(make_rows(BLOB)), ts),
        KzgArgumentError,
        r"^blobs is a masked array",
    ),
    (
        lambda ts: kzg.compute_kzg_proof_batch(make_rows(BLOB), make_rows(ELEMENT, 2), ts),
        KzgArgumentError,
        r"^the arguments differ in their number of items: blobs: 3, z: 2",
    ),
    (
        lambda ts: kzg.compute_cells(BAD_BLOB, ts),
        KzgDataError,
        r"^element 17 of blob is not below the modulus",
    ),
]


@pytest.mark.parametrize(("use", "expected", "message"), MESSAGES)
def test_messages_name_the_argument_and_the_item(
    known: SetupPair, use: Callable[[Any], Any], expected: type[Exception], message: str
) -> None:
    with pytest.raises(expected, match=message):
        use(known.own)


def test_a_refused_batch_has_no_effect_on_the_next(
    known: SetupPair, definition_prover: None
) -> None:
    """Elements are checked while the device computes with them."""
    good = np.frombuffer(make_blob([0, 60, 5]) + make_blob([0, 7]), np.uint8).reshape(2, -1)
    bad = good.copy()
    bad[1, 32 * 4095 :] = 0xFF
    message = r"element 4095 of blobs\[1\] is not below the modulus"
    cells = kzg.compute_cells_batch(good, known.own)
    indices = np.tile(np.arange(0, 128, 2), (2, 1))
    bad_cells = cells[:, ::2].copy()
    bad_cells[1, 63, -32:] = 0xFF
    z = np.zeros((2, 32), np.uint8)
    z[:, -1] = 1  # the first value, so that most values of the quotients are zero
    expected = [ckzg.blob_to_kzg_commitment(each.tobytes(), known.ckzg) for each in good]
    commitments = np.frombuffer(b"".join(expected), np.uint8).reshape(2, 48)
    for call in (
        lambda: kzg.blob_to_kzg_commitment_batch(bad, known.own),
        lambda: kzg.compute_cells_batch(bad, known.own),
        lambda: kzg.compute_cells_and_kzg_proofs_batch(bad, known.own),
        lambda: kzg.compute_kzg_proof_batch(bad, z, known.own),
        lambda: kzg.verify_blob_kzg_proof_batch(bad, commitments, commitments, known.own),
    ):
        with pytest.raises(KzgDataError, match=message):
            call()
    with pytest.raises(KzgDataError, match=r"element 4095 of cells\[1\]"):
        kzg.recover_cells_and_kzg_proofs_batch(indices, bad_cells, known.own)
    assert (kzg.compute_cells_batch(good, known.own) == cells).all()
    found = kzg.blob_to_kzg_commitment_batch(good, known.own)
    assert [each.tobytes() for each in found] == expected
    recovered = kzg.recover_cells_and_kzg_proofs_batch(indices, cells[:, ::2], known.own)[0]
    assert (recovered == cells).all()
    known.own.gpu.synchronize()  # every error was raised
