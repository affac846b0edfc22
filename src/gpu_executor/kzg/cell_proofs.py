"""The proofs of all cells of blobs, on a device: the algorithm of Feist and Khovratovich (FK20).

The proof of the cell at z, a root of unity of order 128, is the sum of z^k H[k] for k below 64.
Here H[k] is the commitment to the polynomial without its 64 (k + 1) lowest coefficients, divided by
X^(64 (k + 1)). With the coefficients in rows of 64, H is a sum of 64 correlations of a column of
coefficients with points of the setup. So

    u = the sum over the columns of transform(coefficients of a column) * transform(points)
    proofs = transform(the lower half of inverse transform(u))

The last line is a convolution of u with 65 fixed numbers: 1/2 at 0, and -1 / (64 (w^e - 1)) at
odd e, where w is the root of unity of the transforms. Outputs with an even index thus depend on the
u with an odd index and on their own u: two cyclic convolutions of 64 points. Each is a cyclic and a
negacyclic one of 32 points, of the sums and of the differences of both halves of its inputs. All
steps are sums of multiples of points:

    u[k] = the sum over 64 columns          128 fixed sets of 64 points
    convolutions                            4 sets of 32 points for each blob, 32 sums of each
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.curves import BLS12_381_G1, PointArray
from gpu_executor.fields import BLS12_381_FR, FieldArray
from gpu_executor.graphs import graph
from gpu_executor.msm.plan import MsmPlan, plan_sets
from gpu_executor.msm.run import run_sets
from gpu_executor.msm.tables import make_multiples, to_tables

if TYPE_CHECKING:
    from gpu_executor.backend import Backend
    from gpu_executor.device_info import DeviceInfo

G1, FR = BLS12_381_G1, BLS12_381_FR
CELL, COLUMNS, CELLS = 64, 64, 128
"""Elements of a cell, columns of the coefficients, and cells of a blob."""
HALF, QUARTER = CELLS // 2, CELLS // 4
MAX_BLOBS = 128
"""Blobs that are proved at once, which bounds the device memory of a call."""


class CellProver:
    """Proves all cells of blobs. It has tables of multiples of the points of a trusted setup."""

    def __init__(self, gpu: Backend, plan: MsmPlan, multiples: PointArray) -> None:
        """`multiples` are those of the points that `transform_points` returns, as many as
        `plan_fixed_sets` has tables of: (128, tables, 64), on the device."""
        self._gpu = gpu
        self.plan = plan
        """The sums of the fixed sets of points."""
        self._tables = to_tables(G1.key, _get_words(multiples))
        taps: FieldArray = gpu.to_device(FR.encode(_list_taps()))
        self._taps = _get_words(taps.in_form("canonical"))
        self._order = reverse_bits(CELLS)
        self._prove = graph(self._compute)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory of the tables."""
        return self._tables.nbytes

    def prove(self, coefficients: FieldArray) -> PointArray:
        """The proofs (n, 128) of polynomials (n, 4096) on the device, in the order of cells; affine
        points on the device."""
        if not len(coefficients):
            return self._gpu.to_device(G1.infinity((0, CELLS)))  # type: ignore[no-any-return]
        parts = [
            self._prove(coefficients[first : first + MAX_BLOBS])
            for first in range(0, len(coefficients), MAX_BLOBS)
        ]
        return parts[0] if len(parts) == 1 else G1.concatenate(parts)

    def _compute(self, coefficients: FieldArray) -> PointArray:
        halves = self.sum_fixed_sets(self.transform_columns(coefficients))
        return self.to_proofs(self.convolve(halves))

    def transform_columns(self, coefficients: FieldArray) -> DeviceArray:
        """The scalars of the fixed sets: half the transforms of the columns, (n * 128, 64)."""
        blobs = len(coefficients)
        columns = coefficients.reshape(blobs, CELL, COLUMNS).transpose(0, 2, 1)
        padded = self._gpu.to_device(FR.zeros((blobs, COLUMNS, CELLS)))
        padded[:, :, : CELL - 1] = columns[:, :, 1:]
        transformed = FR.ntt(padded) * pow(2, -1, FR.modulus)
        scalars = _get_words(transformed.transpose(0, 2, 1).copy().in_form("canonical"))
        return scalars.reshape(blobs * CELLS, COLUMNS, -1)

    def sum_fixed_sets(self, scalars: DeviceArray) -> PointArray:
        """u / 2, (n, 128)."""
        sums = run_sets(G1.key, self.plan, self._tables, scalars)
        return PointArray(G1, sums).reshape(-1, CELLS)

    def convolve(self, halves: PointArray) -> PointArray:
        """The convolution of u, from u / 2: (n, 128). The sums over odd e are added to u / 2."""
        blobs = len(halves)
        by_parity = halves.reshape(blobs, HALF, 2).transpose(0, 2, 1)
        first, second = by_parity[:, :, :QUARTER], by_parity[:, :, QUARTER:]
        sets = G1.stack([first + second, first - second], axis=2).reshape(4 * blobs, QUARTER)
        plan = plan_convolution(self._gpu.device, blobs)
        tables = to_tables(G1.key, make_multiples(G1.key, plan, _get_words(sets)))
        taps = self._taps.broadcast_to((blobs, *self._taps.shape)).copy()
        scalars = taps.reshape(blobs * CELLS, QUARTER, -1)
        sums = run_sets(G1.key, plan, tables, scalars, msms_per_set=QUARTER)
        convolved = PointArray(G1, sums).reshape(blobs, 2, 2, QUARTER)
        cyclic, negacyclic = convolved[:, :, 0], convolved[:, :, 1]
        outputs = G1.concatenate([cyclic + negacyclic, cyclic - negacyclic], axis=2)
        # The sums of inputs with an odd index are those of outputs with an even one.
        return outputs[:, ::-1].transpose(0, 2, 1).reshape(blobs, CELLS) + halves

    def to_proofs(self, points: PointArray) -> PointArray:
        """The proofs from the results of the convolution: affine points in the order of cells."""
        return points.affine()[:, self._order]


def plan_fixed_sets(info: DeviceInfo, memory: int) -> MsmPlan:
    """The sums of the 128 fixed sets of 64 points, with tables of at most so many bytes."""
    return plan_sets(G1.key, COLUMNS, CELLS, info, memory)


def plan_convolution(info: DeviceInfo, blobs: int) -> MsmPlan:
    """The sums of the convolutions, whose points differ from blob to blob."""
    return plan_sets(G1.key, QUARTER, 4 * blobs, info)


def _list_taps() -> list[list[list[list[int]]]]:
    """Twice the numbers of the convolution, for the inputs 2 j + q and the outputs 2 i + 1 - q:
    taps[q][0][i][j] of the cyclic convolution, taps[q][1][i][j] of the negacyclic one."""
    modulus, root = FR.modulus, _find_root()
    powers = [pow(root, e, modulus) for e in range(CELLS)]
    values = [pow(HALF * (powers[e] - 1), -1, modulus) if e % 2 else 0 for e in range(CELLS)]

    def get_tap(q: int, sign: int, offset: int) -> int:
        e = 2 * offset + 1 - 2 * q
        return -(values[e % CELLS] + sign * values[(e + HALF) % CELLS]) % modulus

    numbers = range(QUARTER)
    return [
        [[[get_tap(q, sign, i - j) for j in numbers] for i in numbers] for sign in (1, -1)]
        for q in range(2)
    ]


def _find_root() -> int:
    """The root of unity of transforms of 128 elements: the transform of X at its second point."""
    return int(FR.ntt(FR.encode([0, 1] + [0] * (CELLS - 2)))[1])


def transform_points(gpu: Backend, points: PointArray) -> PointArray:
    """The transforms of the columns of points at the powers -k of the root: (128, 64), affine. The
    4,096 points are the multiples of the generator by powers of the secret.

    Column r has the points r, r + 64, ...; the last of them takes no part. These are 20,000
    multiples of points. At the 0.2 M additions a second of lavapipe they would take a minute, so
    there the host computes them.
    """
    rows = points.affine().reshape(CELL, COLUMNS)[: CELL - 1]
    if gpu.device.kind == "cpu":
        return gpu.to_device(_transform_on_host(rows.to_host()))  # type: ignore[no-any-return]
    return _transform_on_device(gpu, rows)


def _transform_on_device(gpu: Backend, rows: PointArray) -> PointArray:
    # Decimation in frequency: the upper half of the 128 inputs is infinity, so the first step only
    # multiplies. Afterwards both halves are transforms of 64 points.
    root, columns = pow(_find_root(), -1, FR.modulus), rows.shape[1]
    lower = G1.concatenate([rows, gpu.to_device(G1.infinity((1, columns)))])
    values = G1.stack([lower, lower * _list_powers(gpu, root, HALF)], axis=0)
    length = HALF
    while length > 1:
        length, root = length // 2, root * root % FR.modulus
        first, second = values[:, :length], values[:, length:]
        turned = (first - second) * _list_powers(gpu, root, length)
        values = G1.stack([first + second, turned], axis=1).reshape(-1, length, columns)
    return values.reshape(CELLS, columns)[reverse_bits(CELLS)].affine()


def _list_powers(gpu: Backend, root: int, count: int) -> FieldArray:
    """The powers of a root, one for each row of points."""
    powers = [[pow(root, each, FR.modulus)] for each in range(count)]
    return gpu.to_device(FR.encode(powers))  # type: ignore[no-any-return]


def reverse_bits(count: int) -> npt.NDArray[np.int64]:
    """The numbers below a power of two with their bits reversed."""
    bits = count.bit_length() - 1
    return np.array([int(f"{index:0{bits}b}"[::-1], 2) for index in range(count)])


def _transform_on_host(rows: PointArray) -> PointArray:
    from py_arkworks_bls12381 import G1Point, Scalar

    root = pow(_find_root(), -1, FR.modulus)
    powers = [Scalar(pow(root, each, FR.modulus)) for each in range(HALF)]

    def transform(values: list[Any], step: int) -> list[Any]:
        if len(values) == 1:
            return values
        even, odd = transform(values[::2], 2 * step), transform(values[1::2], 2 * step)
        turned = [odd[0], *(each * powers[i * step] for i, each in enumerate(odd[1:], 1))]
        pairs = list(zip(even, turned, strict=True))
        return [a + b for a, b in pairs] + [a - b for a, b in pairs]

    encoded, missing = rows.to_bytes(), [G1Point.identity()] * (CELLS - len(rows))
    transformed = []
    for column in encoded.transpose(1, 0, 2):
        own = [G1Point.from_compressed_bytes_unchecked(bytes(each)) for each in column]
        found = transform(own + missing, 1)
        transformed.append(b"".join(bytes(each.to_xy_bytes_be()) for each in found))
    data = np.frombuffer(b"".join(transformed), np.uint8).reshape(len(transformed), CELLS, -1)
    return G1.from_bytes(data, compressed=False, check=False).transpose(1, 0)


def _get_words(array: PointArray | FieldArray) -> DeviceArray:
    assert isinstance(array.data, DeviceArray)
    return array.data
