"""Products of a sparse matrix and a vector on a device.

Rows have any number of entries, from none to all. So a row is cut into pieces of at most
`PIECE_ENTRIES` entries, which invocations add in parallel; the sums of the pieces of a long row are
added in the same way, level by level. One long row then costs its entries and a few dispatches.

    records -> short rows                 -> sums
            -> pieces of long rows -> ... -> sums
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch, Step
from gpu_executor.kernels.passes import check_records_kernel, sparse_kernel
from gpu_executor.ops.elementwise import with_f64_limbs
from gpu_executor.ops.scans import make_elements
from gpu_executor.primes import Prime

Indices = npt.NDArray[np.int64]
Pieces = npt.NDArray[np.uint32]
"""(n, 3): the first record of each piece, the record behind its last one, the index of its sum."""

RECORD_HEAD = 3
"""Words of a record ahead of its value; the last of them is the column."""
PIECE_ENTRIES = 4
"""Entries that one invocation adds at most. Products of 2^22 entries took an NVIDIA H200, in ms
with 4, 8 and 16: 0.17 with two entries in every row, 0.24, 0.23 and 0.87 with 16 in every eighth
row, 0.31, 0.38 and 0.42 with random lengths, 0.25 with half of all entries in one row."""


def check_records(
    prime: Prime, records: DeviceArray, limits: tuple[int, int, int]
) -> tuple[npt.NDArray[np.uint32], tuple[int, int] | None]:
    """The key of each record: its second word times the first limit, plus its first word. And the
    first record with a word of its head that is not below its limit, or a value that is not below
    the modulus, and which of these it is, the value behind the head; None if there is none."""
    device: ArrayDevice = records.storage.device
    codes, keys = (device.empty((len(records),), np.dtype(np.uint32)) for _ in range(2))
    kernel = check_records_kernel(prime)
    arrays = records, codes, keys
    device.submit([Dispatch(kernel, arrays, len(records), limits, grid_stride=True)])
    found = codes.numpy()
    wrong = np.flatnonzero(found)
    first = (int(wrong[0]), int(found[wrong[0]]) - 1) if len(wrong) else None
    return keys.numpy(), first


class SparseMatrix:
    """The rows of a sparse matrix, ready for products with vectors on a device.

    An entry is a record of 32-bit words: `RECORD_HEAD` words, of which the last is the column, and
    the value. Products are Montgomery products: value times element, divided by R.
    """

    def __init__(
        self,
        device: ArrayDevice,
        prime: Prime,
        records: DeviceArray,
        starts: Indices,
        targets: Indices | None = None,
    ) -> None:
        """The records of row i are those from starts[i] to starts[i + 1]. Its sum goes to
        targets[i], or to i; a target is given once."""
        self._device, self._prime, self._records = device, prime, records
        self.rows = len(starts) - 1
        places = np.arange(self.rows) if targets is None else targets
        direct, *levels = plan_pieces(starts, places)
        self._direct = device.put(direct)
        self._levels = [device.put(each) for each in levels]
        self._kernel = sparse_kernel(prime, f64_limbs=with_f64_limbs(device, prime))

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        arrays = self._records, self._direct, *self._levels
        return sum(each.nbytes for each in arrays)

    def multiply(self, x: DeviceArray, sums: DeviceArray) -> None:
        """Submit the product with the vector x; every row has its element of `sums`."""
        # Sums of pieces of long rows.
        partials = [
            make_elements(self._device, self._prime, len(each)) for each in self._levels[:-1]
        ]
        outputs = [*partials, sums]
        steps = [self._make_dispatch(x, self._direct, sums, weighted=True)]
        for level, (pieces, output) in enumerate(zip(self._levels, outputs, strict=False)):
            source = partials[level - 1] if level else x
            steps.append(self._make_dispatch(source, pieces, output, weighted=not level))
        self._device.submit([each for each in steps if each is not None])

    def _make_dispatch(
        self, x: DeviceArray, pieces: DeviceArray, sums: DeviceArray, *, weighted: bool
    ) -> Step | None:
        if not len(pieces):
            return None
        arrays = self._records, x, pieces, sums
        return Dispatch(self._kernel, arrays, len(pieces), (int(weighted),), grid_stride=True)


def plan_pieces(starts: Indices, targets: Indices) -> list[Pieces]:
    """The pieces of all dispatches. The first of them has the rows of one piece. The others have
    the pieces of longer rows, level by level: the last level writes the sums of the rows, the
    others the terms of the next level. Without long rows there are no levels."""
    lengths = np.diff(starts)
    rows = np.flatnonzero(lengths > PIECE_ENTRIES)
    direct = _join(starts[:-1], starts[1:], targets)
    if len(rows):
        direct = np.delete(direct, rows, axis=0)
    found = [direct]
    firsts, counts = starts[rows], lengths[rows]
    while len(rows):
        pieces = -(-counts // PIECE_ENTRIES)
        row_of = np.repeat(np.arange(len(rows)), pieces)
        ends = np.cumsum(pieces)
        number = np.arange(ends[-1]) - np.repeat(ends - pieces, pieces)
        begin = firsts[row_of] + number * PIECE_ENTRIES
        end = np.minimum(begin + PIECE_ENTRIES, (firsts + counts)[row_of])
        is_last = len(row_of) == len(rows)
        found.append(_join(begin, end, targets[rows] if is_last else np.arange(len(row_of))))
        if is_last:
            break
        firsts, counts = ends - pieces, pieces
    return found


def _join(firsts: Indices, ends: Indices, targets: Indices) -> Pieces:
    pieces = np.empty((len(firsts), 3), np.uint32)
    pieces[:, 0], pieces[:, 1], pieces[:, 2] = firsts, ends, targets
    return pieces
