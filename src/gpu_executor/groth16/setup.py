"""Keys of circuits with known secrets: for tests and benchmarks, never for use.

Whoever knows the secrets of a key can prove anything with it. A key for use comes from a ceremony,
such as snarkjs's `zkey new` and `zkey contribute`.

    circuit -> A, B, C at tau: Lagrange values times the columns of the matrices   (device)
            -> scalars of all sections -> multiples of the generators              (device)
            -> .zkey
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.backend import Backend
from gpu_executor.calls.dispatch import ArrayDevice, upload
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.executor import GpuExecutor
from gpu_executor.fields import FieldArray
from gpu_executor.groth16.key_device import list_devices
from gpu_executor.groth16.proof_curve import ProofCurve, get_generator
from gpu_executor.groth16.r1cs_file import R1cs, R1csMatrix
from gpu_executor.groth16.sections import PathLike, Points
from gpu_executor.groth16.zkey_file import (
    COEFFICIENT,
    MAX_LOG_DOMAIN,
    Coefficients,
    KeyArrays,
    write_zkey,
)
from gpu_executor.msm.fixed_base import FixedBase
from gpu_executor.ops.indexing import gather_rows
from gpu_executor.ops.scans import make_elements
from gpu_executor.ops.sort import sort_pairs
from gpu_executor.ops.sparse import RECORD_HEAD, SparseMatrix

SCALAR_WORDS = 8
SECRETS = ("tau", "alpha", "beta", "delta")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class UnsafeKey(KeyArrays):
    """A proving key whose secrets are known. Its arrays are those of a .zkey file."""

    def save(self, path: PathLike) -> None:
        """Write the key to a .zkey file, which snarkjs reads too.

        Args:
            path (str | Path): The file, which is replaced in one step.
        """
        write_zkey(path, self)

    def __repr__(self) -> str:
        return f"<UnsafeKey of {len(self.a):,} signals, {self.curve.name}: its secrets are known>"


def setup(
    r1cs: R1cs | PathLike, *, device: Backend | None = None, unsafe_secrets: int | str | bytes
) -> UnsafeKey:
    """Make a proving key with secrets that follow from a seed: for tests and benchmarks only.
    Whoever knows the seed can prove anything with the key.

    Args:
        r1cs (R1cs | str | Path): The circuit, or its file.
        device (GpuExecutor | Backend | None): Where the key is computed; None opens a
            `GpuExecutor` for it.
        unsafe_secrets (int | str | bytes): The seed of the secrets.
    """
    circuit = r1cs if isinstance(r1cs, R1cs) else R1cs.open(r1cs)
    secrets = _derive_secrets(circuit.curve, unsafe_secrets)
    with contextlib.ExitStack() as resources:
        gpu = resources.enter_context(GpuExecutor()) if device is None else device
        return _Setup(list_devices(gpu, "a setup")[0], circuit, secrets).make_key()


def count_domain(constraints: int, public: int) -> int:
    """The size of the domain: the smallest power of two above the constraints and the public
    signals, each of which has a row of its own, as the constant 1 has."""
    return 1 << (constraints + public).bit_length()


def _derive_secrets(curve: ProofCurve, seed: int | str | bytes) -> dict[str, int]:
    """The secrets of a seed, none of them 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | str | bytes):
        raise ArgumentTypeError(
            "unsafe_secrets= is the seed of the secrets: an integer, a text or bytes; it makes a "
            "key for tests, because whoever knows the seed can prove anything with the key"
        )
    text = seed if isinstance(seed, bytes) else str(seed).encode()

    def derive(name: str) -> int:
        digest = hashlib.sha512(b"gpu-executor unsafe setup " + name.encode() + b" " + text)
        return int.from_bytes(digest.digest(), "little") % (curve.r - 1) + 1

    return {name: derive(name) for name in SECRETS}


class _Setup:
    """The computation of one key."""

    def __init__(self, device: ArrayDevice, circuit: R1cs, secrets: dict[str, int]) -> None:
        self._device, self._circuit, self._secrets = device, circuit, secrets
        self._curve = circuit.curve
        self._field = circuit.curve.scalar_field
        self._domain = count_domain(circuit.n_constraints, circuit.n_public)
        if self._domain > 1 << MAX_LOG_DOMAIN[self._curve.name]:
            raise ArgumentValueError(
                f"setup: {circuit.n_constraints:,} constraints need a domain of {self._domain:,} "
                f"rows; {self._curve.name} has at most 2^{MAX_LOG_DOMAIN[self._curve.name]}"
            )
        if pow(secrets["tau"], 2 * self._domain, self._curve.r) == 1:
            raise ArgumentValueError("setup: tau is in the domain; take another seed")

    def make_key(self) -> UnsafeKey:
        """Compute all sections."""
        curve, field, circuit = self._curve, self._field, self._circuit
        alpha, beta, delta = (self._secrets[name] for name in ("alpha", "beta", "delta"))
        log_domain = self._domain.bit_length() - 1
        lagrange = self._evaluate_lagrange(log_domain, 1)
        a, b, c = (
            self._sum_columns(each, lagrange) for each in (self._extend_a(), circuit.b, circuit.c)
        )
        mixed = field.add(field.add(field.mul(a, beta), field.mul(b, alpha)), c)
        first = circuit.n_public + 1
        unscale = pow(delta, -1, curve.r)
        quotient = field.mul(self._evaluate_lagrange(log_domain + 1, 2), unscale)
        private = field.mul(mixed[first:], unscale)
        g1, g2 = (
            FixedBase(self._device, group.key, get_generator(group))
            for group in (curve.g1, curve.g2)
        )
        in_g1 = field.encode([alpha, beta, delta])
        in_g2 = field.encode([beta, 1, delta])
        alpha1, beta1, delta1 = self._multiply(g1, upload(self._device, in_g1))
        beta2, gamma2, delta2 = self._multiply(g2, upload(self._device, in_g2))
        return UnsafeKey(
            curve=curve,
            alpha1=alpha1,
            beta1=beta1,
            beta2=beta2,
            gamma2=gamma2,
            delta1=delta1,
            delta2=delta2,
            ic=self._multiply(g1, mixed[:first]),
            a=self._multiply(g1, a),
            b1=self._multiply(g1, b),
            b2=self._multiply(g2, b),
            c=self._multiply(g1, private),
            h=self._multiply(g1, quotient),
            coefficients=self._list_coefficients(),
        )

    def _evaluate_lagrange(self, log_length: int, step: int) -> FieldArray:
        """The Lagrange polynomials of the domain of 2^log_length at tau: all of them, or with a
        `step` of 2 those of odd numbers. L_j(tau) = (tau^n - 1) / n w^j / (tau - w^j)."""
        r, n = self._curve.r, 1 << log_length
        root = self._curve.root_of_unity(log_length)
        tau = self._secrets["tau"]
        factors = self._field.full(n // step, pow(root, step, r))
        factors[0] = pow(root, step - 1, r)
        powers = self._field.prefix_product(upload(self._device, factors))
        scale = (pow(tau, n, r) - 1) * pow(n, -1, r) % r
        ratio = self._field.div(powers, self._field.sub(tau, powers))
        return self._field.mul(ratio, scale)

    def _extend_a(self) -> R1csMatrix:
        """The matrix A with a row for the constant 1 and each public signal behind its own: they
        make the points of public signals linearly independent."""
        own, extra = self._circuit.a, self._circuit.n_public + 1
        ones = np.zeros((extra, SCALAR_WORDS), np.uint32)
        ones[:, 0] = 1
        terms = len(own.wires)
        return R1csMatrix(
            np.concatenate([own.row_starts, terms + 1 + np.arange(extra)]),
            np.concatenate([own.wires, np.arange(extra, dtype=np.uint32)]),
            np.concatenate([own.values, ones]),
        )

    def _sum_columns(self, matrix: R1csMatrix, lagrange: FieldArray) -> FieldArray:
        """The polynomials of the columns of a matrix at tau: for each signal the sum of its values
        times the Lagrange polynomials of their rows."""
        device, prime, signals = self._device, self._field.prime, self._circuit.n_wires
        sums = make_elements(device, prime, signals)
        count = len(matrix.wires)
        records = np.zeros((max(count, 1), RECORD_HEAD + SCALAR_WORDS), np.uint32)
        records[:count, RECORD_HEAD - 1] = _list_rows(matrix)
        records[:count, RECORD_HEAD:] = matrix.values
        loaded = device.put(records)
        if count:
            keys = device.put(np.ascontiguousarray(matrix.wires))
            loaded = gather_rows(loaded, sort_pairs(device, keys, None)[1])
        starts = np.concatenate([[0], np.cumsum(np.bincount(matrix.wires, minlength=signals))])
        factors = lagrange.in_form("montgomery").data
        assert isinstance(factors, DeviceArray)
        SparseMatrix(device, prime, loaded, starts).multiply(factors, sums)
        return FieldArray(self._field, sums, "canonical")

    def _multiply(self, base: FixedBase, scalars: FieldArray) -> Points:
        """Multiples of a generator: words of affine points on the host."""
        data = scalars.in_form("canonical").data
        assert isinstance(data, DeviceArray)
        return base.multiply(data).numpy()

    def _list_coefficients(self) -> Coefficients:
        """The entries of A and B, ordered by row, each value times R^2."""
        made = [
            self._make_entries(number, matrix)
            for number, matrix in enumerate((self._extend_a(), self._circuit.b))
        ]
        entries = np.concatenate(made)
        order = np.argsort(entries["row"], kind="stable")
        return np.asarray(entries[order])

    def _make_entries(self, number: int, matrix: R1csMatrix) -> Coefficients:
        """The entries of one matrix."""
        prime = self._field.prime
        entries = np.zeros(len(matrix.wires), COEFFICIENT)
        entries["matrix"], entries["row"] = number, _list_rows(matrix)
        entries["signal"] = matrix.wires
        values: npt.NDArray[Any] = np.ascontiguousarray(matrix.values).view(prime.column_dtype)
        loaded = FieldArray(self._field, self._device.put(values), "canonical")
        # A product with R, whose words are those of R^2, in words that mean v: v R^2.
        scaled = self._field.mul(loaded, prime.r_mod_p).in_form("montgomery")
        entries["value"] = scaled.to_host().words().view(np.uint32).reshape(-1, SCALAR_WORDS)
        return entries


def _list_rows(matrix: R1csMatrix) -> npt.NDArray[np.uint32]:
    """The row of each term."""
    rows = np.arange(len(matrix.row_starts) - 1, dtype=np.uint32)
    return np.repeat(rows, np.diff(matrix.row_starts))
