"""Circuits for benchmarks of provers, generated here, with witnesses that satisfy them.

`make_chain`: every signal is a product of sums of the two before it: all values are uniform.
`make_bits`: nearly all signals are zero or one, as in circuits of hash functions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.r1cs_file import R1cs, R1csMatrix
from gpu_executor.groth16.witness_file import Witness

ONE, OUTPUT, INPUT = range(3)
"""The constant, the public output and the private input."""
CHAINED = 16
"""One signal of so many of `make_bits` belongs to a chain; the others are bits."""
VALUE_WORDS = 8


def make_chain(curve: ProofCurve, constraints: int, seed: int = 1) -> tuple[R1cs, Witness]:
    """Constraint i says (t[i-1] + i + 1) (t[i-2] + seed) = t[i]; the last t is public."""
    chain = np.concatenate([[INPUT, INPUT], 3 + np.arange(constraints - 1), [OUTPUT]])
    r, values = curve.r, [1, 0, pow(7, seed, curve.r)]
    before = last = values[INPUT]
    for number in range(constraints):
        before, last = last, (last + number + 1) * (before + seed) % r
        values.append(last)
    values[OUTPUT] = values.pop()
    ones = np.full(constraints, ONE)
    numbers = np.arange(constraints) + 1
    a = _make_matrix(np.stack([chain[1:-1], ones], 1), np.stack([ones * 0 + 1, numbers], 1))
    b = _make_matrix(np.stack([chain[:-2], ones], 1), np.stack([ones * 0 + 1, ones * 0 + seed], 1))
    c = _make_matrix(chain[2:, None], np.ones((constraints, 1), np.int64))
    return _join(curve, len(values), a, b, c), Witness.from_values(values, curve)


def make_bits(curve: ProofCurve, constraints: int, seed: int = 1) -> tuple[R1cs, Witness]:
    """Constraints b (1 - b) = 0 of bits, behind a shorter chain."""
    length = max(constraints // CHAINED, 1)
    circuit, witness = make_chain(curve, length, seed)
    count = constraints - length
    wires = circuit.n_wires + np.arange(count)
    ones = np.full(count, 1)
    minus = np.full((count, VALUE_WORDS), 0, np.uint32)
    minus[:] = _split(curve.r - 1)
    a = _make_matrix(wires[:, None], ones[:, None])
    b = _make_matrix(np.stack([np.full(count, ONE), wires], 1), np.stack([ones, ones], 1))
    b.values[1::2] = minus
    c = R1csMatrix(np.zeros(count + 1, np.int64), a.wires[:0], a.values[:0])
    pairs = zip((circuit.a, circuit.b, circuit.c), (a, b, c), strict=True)
    joined = [_append(first, second) for first, second in pairs]
    bits = np.zeros((count, VALUE_WORDS), np.uint32)
    bits[:, 0] = np.random.default_rng(seed).integers(0, 2, count)
    words = np.concatenate([witness.words, bits])
    return _join(curve, len(words), *joined), Witness.from_values(words, curve)


def _join(curve: ProofCurve, wires: int, a: R1csMatrix, b: R1csMatrix, c: R1csMatrix) -> R1cs:
    return R1cs(curve, wires, 1, 0, 1, wires, len(a.row_starts) - 1, a, b, c)


def _make_matrix(wires: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> R1csMatrix:
    """A matrix of (rows, terms), with small values."""
    rows, terms = wires.shape
    words = np.zeros((rows * terms, VALUE_WORDS), np.uint32)
    words[:, 0] = values.ravel()
    return R1csMatrix(terms * np.arange(rows + 1), wires.ravel().astype(np.uint32), words)


def _append(first: R1csMatrix, second: R1csMatrix) -> R1csMatrix:
    return R1csMatrix(
        np.concatenate([first.row_starts, first.row_starts[-1] + second.row_starts[1:]]),
        np.concatenate([first.wires, second.wires]),
        np.concatenate([first.values, second.values]),
    )


def _split(value: int) -> npt.NDArray[np.uint32]:
    return np.frombuffer(value.to_bytes(4 * VALUE_WORDS, "little"), np.uint32)
