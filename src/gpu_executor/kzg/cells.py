"""Cells of blobs and their recovery (EIP-7594).

The 4,096 values of a blob are extended to 8,192, the values of the same polynomial at the 8192nd
roots of unity in bit-reversed order: first the blob itself, then the values at the odd powers of
the root. A cell is 64 of these, at h times the 64th roots of unity, where h depends on the cell.

Recovery of P from 64 cells or more: Z is the product of X^64 - h^64 over the missing cells. It is 0
where values are missing, so the values of P Z are known everywhere, and P Z has at most 8,192
coefficients. On a coset Z has no zeros, and P is the quotient there. Z has one value on each cell.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.errors import KzgDataError
from gpu_executor.fields import BLS12_381_FR, FieldArray, eip4844
from gpu_executor.kernels.catalogue import find_zero_kernel
from gpu_executor.kzg.cell_proofs import reverse_bits
from gpu_executor.kzg.inputs import (
    BYTES_PER_BLOB,
    BYTES_PER_CELL,
    BYTES_PER_FIELD_ELEMENT,
    BYTES_PER_PROOF,
    CELLS_PER_EXT_BLOB,
    FIELD_ELEMENTS_PER_BLOB,
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
    parse_index_array,
    parse_index_list,
    parse_list,
    split_items,
)
from gpu_executor.kzg.proofs import MAX_BLOBS
from gpu_executor.kzg.setup import TrustedSetup, check_setup
from gpu_executor.ops import elementwise
from gpu_executor.ops.element_bytes import write_bytes

FR = BLS12_381_FR
MIN_CELLS = CELLS_PER_EXT_BLOB // 2
"""Cells that determine a blob."""
COSET = 7
"""The vanishing polynomial of missing cells has no zeros on this coset: 7 generates the field's
multiplicative group."""
RECOVERY_ARRAYS = 12
"""Arrays of all values of a blob that recovery takes at once. Their memory stays with the device:
to allocate it anew took 2 of the 38 ms of a call for 72 blobs (NVIDIA H200)."""
SECOND_HALF = pow(7, (FR.modulus - 1) // (2 * FIELD_ELEMENTS_PER_BLOB), FR.modulus)
"""The root of unity whose powers are the points of the 8,192 values. Those of the last 64 cells are
at this root times the points of a blob's values."""
CellsAndProofs = tuple[list[bytes], list[bytes]]


# --- ckzg's functions, and the same on arrays ---


def compute_cells(blob: bytes, trusted_setup: TrustedSetup) -> list[bytes]:
    """The 128 cells of a blob, each 2,048 bytes.

    Args:
        blob (bytes): 131,072 bytes: 4,096 field elements of 32 bytes each, big-endian.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    cells = _extend(parse_bytes("blob", blob, BYTES_PER_BLOB), setup, prove=False)[0]
    return split_items(cells[0])


def compute_cells_batch(blobs: Bytes, trusted_setup: TrustedSetup) -> Bytes:
    """The cells of blobs: uint8 (n, 128, 2048).

    Args:
        blobs (numpy.ndarray): uint8 (n, 131072), a blob in each row.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    return _extend(parse_array("blobs", blobs, BYTES_PER_BLOB), setup, prove=False)[0]


def compute_cells_and_kzg_proofs(blob: bytes, trusted_setup: TrustedSetup) -> CellsAndProofs:
    """The 128 cells of a blob, each 2,048 bytes, and their proofs, each 48 bytes.

    Args:
        blob (bytes): 131,072 bytes: 4,096 field elements of 32 bytes each, big-endian.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    cells, proofs = _extend(parse_bytes("blob", blob, BYTES_PER_BLOB), setup, prove=True)
    return split_items(cells[0]), split_items(proofs[0])


def compute_cells_and_kzg_proofs_batch(
    blobs: Bytes, trusted_setup: TrustedSetup
) -> tuple[Bytes, Bytes]:
    """The cells of blobs, uint8 (n, 128, 2048), and their proofs, uint8 (n, 128, 48).

    Args:
        blobs (numpy.ndarray): uint8 (n, 131072), a blob in each row.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    return _extend(parse_array("blobs", blobs, BYTES_PER_BLOB), setup, prove=True)


def recover_cells_and_kzg_proofs(
    cell_indices: list[int], cells: list[bytes], trusted_setup: TrustedSetup
) -> CellsAndProofs:
    """All cells of a blob and their proofs, from 64 cells or more.

    Cells that are not those of one blob raise `KzgDataError`.

    Args:
        cell_indices (list of ints): The indices of the cells, 0 to 127, in ascending order.
        cells (list of bytes): The cells of these indices, each 2,048 bytes.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    indices = parse_index_list("cell_indices", cell_indices)
    rows = parse_list("cells", cells, BYTES_PER_CELL)
    check_counts({"cell_indices": len(indices), "cells": len(rows)})
    joined = ByteRows("cells", rows.data.reshape(1, -1), None)
    found, proofs = _recover(indices.reshape(1, -1), joined, setup)
    return split_items(found[0]), split_items(proofs[0])


def recover_cells_and_kzg_proofs_batch(
    cell_indices: npt.NDArray[Any], cells: Bytes, trusted_setup: TrustedSetup
) -> tuple[Bytes, Bytes]:
    """All cells of blobs, uint8 (n, 128, 2048), and their proofs, uint8 (n, 128, 48), from k cells
    of each blob; k is 64 or more.

    Args:
        cell_indices (numpy.ndarray): Integers (n, k), the indices of the cells of each blob, 0 to
            127, in ascending order.
        cells (numpy.ndarray): uint8 (n, k, 2048), the cells of these indices.
        trusted_setup (TrustedSetup): What `load_trusted_setup` returned.
    """
    setup = check_setup(trusted_setup)
    indices = parse_index_array("cell_indices", cell_indices, 2)
    rows = parse_array("cells", cells, indices.shape[1], BYTES_PER_CELL)
    check_counts({"cell_indices": len(indices), "cells": len(rows)})
    return _recover(indices, rows, setup)


# --- on the device ---


def _extend(blobs: ByteRows, setup: TrustedSetup, *, prove: bool) -> tuple[Bytes, Bytes]:
    """The cells of blobs, and their proofs if wanted."""
    cells, proofs = [], []
    for part in cut(len(blobs), MAX_BLOBS):
        rows = blobs.select(part)
        values = rows.send_elements(setup.gpu)
        coefficients = eip4844.coefficients(values)
        encoded = _encode_cells(values, _evaluate_second_half(coefficients))
        rows.check_elements(values)
        points = setup.cell_prover.prove(coefficients) if prove else None
        cells.append(_fetch_cells(encoded))
        if points is not None:
            proofs.append(points.to_bytes())
    return _join(cells, BYTES_PER_CELL), _join(proofs, BYTES_PER_PROOF)


def _evaluate_second_half(coefficients: FieldArray) -> FieldArray:
    """The values of polynomials in the last 64 cells."""
    return FR.ntt(coefficients, coset=SECOND_HALF, order_out="reversed")


def _encode_cells(first: FieldArray, second: FieldArray) -> DeviceArray:
    """The bytes (n, 8192, 32) of values in the first and in the last 64 cells, on the device."""
    shape = len(first), 2 * FIELD_ELEMENTS_PER_BLOB, BYTES_PER_FIELD_ELEMENT
    cells = first.device.empty(shape, np.dtype(np.uint8))
    for at, values in ((0, first), (FIELD_ELEMENTS_PER_BLOB, second)):
        assert isinstance(values.data, DeviceArray)
        write_bytes(FR.prime, values.data, values.form, big_endian=True, target=cells, first=at)
    return cells


def _fetch_cells(encoded: DeviceArray) -> Bytes:
    return encoded.numpy().reshape(len(encoded), CELLS_PER_EXT_BLOB, BYTES_PER_CELL)


def _join(parts: list[Bytes], width: int) -> Bytes:
    """What was computed for parts of a batch."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.zeros((0, CELLS_PER_EXT_BLOB, width), np.uint8), *parts])


def _recover(given: npt.NDArray[Any], cells: ByteRows, setup: TrustedSetup) -> tuple[Bytes, Bytes]:
    """All cells of blobs and their proofs; given are indices (n, k) and rows of k cells."""
    indices = check_indices("cell_indices", given)
    _check_order(indices, cells)
    found, proofs = [], []
    for part in cut(len(cells), MAX_BLOBS):
        rows = cells.select(part)
        _keep_memory(len(rows), setup)
        values = rows.send_elements(setup.gpu)
        coefficients = _interpolate(indices[part], values, setup)
        first = eip4844.values_of(coefficients)
        second = _evaluate_second_half(coefficients)
        encoded = _encode_cells(first, second)
        recovered = FR.concatenate([first, second], axis=1).reshape(*_shape_cells(len(rows)))
        again = recovered[np.arange(len(rows))[:, np.newaxis], indices[part]]
        rows.check_elements(values)
        # After that: what is no element makes a difference, too, and is one error alone.
        _forbid_differences(again, values, encoded, rows)
        points = setup.cell_prover.prove(coefficients)
        found.append(_fetch_cells(encoded))
        proofs.append(points.to_bytes())
    return _join(found, BYTES_PER_CELL), _join(proofs, BYTES_PER_PROOF)


def _keep_memory(blobs: int, setup: TrustedSetup) -> None:
    """Let the device keep the memory that the recovery of so many blobs takes, for the next one."""
    memory = setup.gpu.array_device
    assert memory is not None
    memory.keep_memory(blobs * RECOVERY_ARRAYS * 2 * BYTES_PER_BLOB)


def _forbid_differences(
    recovered: FieldArray, given: FieldArray, encoded: DeviceArray, cells: ByteRows
) -> None:
    """Let the fetch of `encoded` raise unless values that were recovered are those that were
    given."""
    device, per_blob = given.device, given.size // len(given)

    def make_error(index: int) -> KzgDataError:
        item = cells.describe(index // per_blob)
        return KzgDataError(f"{item} are not cells of one blob; verify cells before recovery")

    pair = [recovered.reshape(*given.shape).data, given.data]
    same = elementwise.compute(FR.prime, "equal", pair)
    assert isinstance(same, DeviceArray)
    device.submit(
        [
            Dispatch(
                find_zero_kernel(),
                (same,),
                same.size,
                (1,),
                grid_stride=True,
                guarded=(encoded,),
                make_error=make_error,
            )
        ]
    )


def _check_order(indices: Indices, cells: ByteRows) -> None:
    count = indices.shape[1]
    if not MIN_CELLS <= count <= CELLS_PER_EXT_BLOB:
        raise KzgDataError(
            f"there are {count} cells of a blob; recovery takes {MIN_CELLS} to {CELLS_PER_EXT_BLOB}"
        )
    ascending = (np.diff(indices, axis=1) > 0).all(axis=1)
    if not ascending.all():
        item = ByteRows("cell_indices", cells.data, cells.numbers).describe(int(ascending.argmin()))
        raise KzgDataError(f"{item} must be in ascending order without duplicates")


def _interpolate(indices: Indices, values: FieldArray, setup: TrustedSetup) -> FieldArray:
    """The coefficients (n, 4096) of the polynomials with values (n, k * 64) in cells of indices (n,
    k), on the device."""
    count = len(indices)
    is_missing = np.ones((count, CELLS_PER_EXT_BLOB), np.bool_)
    np.put_along_axis(is_missing, indices, False, axis=1)
    patterns, which = find_distinct(np.packbits(is_missing, axis=1))
    words = np.zeros((len(patterns), CELLS_PER_EXT_BLOB, FR.prime.columns), FR.prime.column_dtype)
    words[:, :, 0] = is_missing[patterns]
    missing = setup.to_device(FR.from_words(words, "canonical"))
    # A missing cell is a factor of the vanishing polynomial; the factor of another cell is 1.
    factors = FR.fma(missing.reshape(-1, 1, CELLS_PER_EXT_BLOB), setup.get(_make_factors), 1)
    vanishing = FR.prod(factors, axis=-1).reshape(-1, 2, CELLS_PER_EXT_BLOB, 1)[which]
    shape = _shape_cells(count)
    extended = FieldArray(FR, elementwise.make_full(FR.prime, shape, 0, values.data), FR.form)
    rows = np.arange(count)[:, np.newaxis]
    extended[rows, indices] = values.reshape(count, indices.shape[1], FIELD_ELEMENTS_PER_CELL)
    known = (extended * vanishing[:, 0]).reshape(count, -1)
    product = FR.intt(known, order_in="reversed")
    on_coset = FR.ntt(product, coset=COSET, order_out="reversed").reshape(*shape)
    quotient = (on_coset * FR.inverse(vanishing[:, 1])).reshape(count, -1)
    coefficients = FR.intt(quotient, coset=COSET, order_in="reversed")
    return coefficients[:, :FIELD_ELEMENTS_PER_BLOB]


def _shape_cells(blobs: int) -> tuple[int, int, int]:
    """The shape of the values of all cells."""
    return blobs, CELLS_PER_EXT_BLOB, FIELD_ELEMENTS_PER_CELL


def _make_factors(setup: TrustedSetup) -> FieldArray:
    """x^64 - h^64 - 1 for the x of every cell, then for the x of every cell on the coset, and for
    the h of every cell: (256, 128), on the device."""
    p = FR.modulus
    powers = [pow(each, FIELD_ELEMENTS_PER_CELL, p) for each in list_shifts()]
    scale = pow(COSET, FIELD_ELEMENTS_PER_CELL, p)
    points = [*powers, *[each * scale % p for each in powers]]
    found = [[(x - h - 1) % p for h in powers] for x in points]
    return setup.to_device(FR.encode(found))


def list_shifts() -> list[int]:
    """h of every cell: the values of the cell are at h times the 64th roots of unity."""
    indices = reverse_bits(CELLS_PER_EXT_BLOB).tolist()
    return [pow(SECOND_HALF, each, FR.modulus) for each in indices]
