"""The quotient of a proof on a device: from the witness to the scalars of the section H.

    witness -> sparse product -> a, b on the domain; c = a b
            -> inverse transforms -> times powers of w_2n -> transforms: a, b, c on the odd points
               of the domain of 2n
            -> h = a b - c there

A key has the points H_i for h as it is, so nothing is divided by the vanishing polynomial.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.zkey_file import COEFFICIENT, Coefficients, ZkeyFile
from gpu_executor.ops import elementwise
from gpu_executor.ops.scans import make_elements
from gpu_executor.ops.sparse import SparseMatrix, check_records
from gpu_executor.ops.transforms import TransformOptions, transform
from gpu_executor.primes import Prime

MATRICES = 2
"""A and B: a key has no C, because c = a b."""
ROWS = 3
"""The polynomials a, b and c."""


def place_rows(curve: ProofCurve, log_domain: int) -> npt.NDArray[np.int64] | None:
    """The place of each row of the domain in the order of our transforms; None if it is its own.

    snarkjs's values are at powers of its root of unity w, ours at powers of the field's own v. With
    w = v^k, value j of snarkjs is value k j mod n of ours.
    """
    r, length = curve.r, 1 << log_domain
    exponent = find_logarithm(
        curve.root_of_unity(log_domain),
        curve.scalar_field.prime.root_of_unity(log_domain),
        log_domain,
        r,
    )
    return None if exponent == 1 % length else exponent * np.arange(length) % length


def find_logarithm(value: int, base: int, log_order: int, modulus: int) -> int:
    """k with value = base^k, where base is of order 2^log_order: bit by bit (Pohlig-Hellman)."""
    found, inverse = 0, pow(base, -1, modulus)
    for bit in range(log_order):
        rest = value * pow(inverse, found, modulus) % modulus
        if pow(rest, 1 << log_order - 1 - bit, modulus) != 1:
            found |= 1 << bit
    assert pow(base, found, modulus) == value
    return found


class Quotient:
    """The matrices A and B of a key on a device, and the steps from a witness to the quotient."""

    def __init__(self, device: ArrayDevice, zkey: ZkeyFile) -> None:
        """Raises `ProofFileError` for an entry of another matrix, of a row outside the domain, of a
        signal that the circuit has not, or with a value that is not below r."""
        self._device, self._curve, self._log_domain = device, zkey.curve, zkey.log_domain
        entries, length = zkey.coefficients, zkey.domain_size
        records = self._put(entries)
        limits = MATRICES, length, zkey.n_vars
        rows, wrong = check_records(self._prime, records, limits)
        if wrong is not None:
            zkey.refuse_coefficient(*wrong, limits)
        rows = rows[: len(entries)]
        if (rows[1:] < rows[:-1]).any():
            records = self._put(entries[np.argsort(rows, kind="stable")])
        counts = np.bincount(rows, minlength=MATRICES * length)
        starts = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        places = place_rows(self._curve, self._log_domain)
        own = np.arange(length) if places is None else places
        targets = (own[:, None] + np.arange(MATRICES) * length).reshape(-1)
        self._matrix = SparseMatrix(device, self._prime, records, starts, targets)

    def _put(self, entries: Coefficients) -> DeviceArray:
        own = np.ascontiguousarray(entries) if len(entries) else np.zeros(1, COEFFICIENT)
        return self._device.put(own.view(np.uint32).reshape(len(own), -1))

    @property
    def _prime(self) -> Prime:
        return self._curve.scalar_field.prime

    @property
    def nbytes(self) -> int:
        """Bytes of device memory of the matrices."""
        return self._matrix.nbytes

    def compute(self, witness: DeviceArray) -> DeviceArray:
        """Submit everything; returns h in canonical form, in the order of our transforms. The
        witness is in canonical form."""
        device, prime, length = self._device, self._prime, 1 << self._log_domain
        values = make_elements(device, prime, ROWS * length)
        rows = values.reshape((ROWS, length, *prime.element_shape))
        self._matrix.multiply(witness, values[: MATRICES * length])
        device.submit([ArrayCopy(elementwise.combine(prime, "mul", rows[0], rows[1]), rows[2])])
        shift = self._curve.root_of_unity(self._log_domain + 1)
        coefficients = transform(prime, rows, TransformOptions(inverse=True, order_out="reversed"))
        odd: Any = transform(
            prime, coefficients, TransformOptions(order_in="reversed", coset=shift)
        )
        product = elementwise.combine(prime, "mul", odd[0], odd[1])
        difference = elementwise.combine(prime, "sub", product, odd[2])
        result: Any = elementwise.convert(prime, difference, "canonical")
        return result  # type: ignore[no-any-return]
