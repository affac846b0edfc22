"""Witnesses against all constraints of a circuit, compared with exact integers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor import groth16
from gpu_executor.errors import ArgumentTypeError, NotSupportedError, WitnessError
from gpu_executor.groth16.proof_curve import get_proof_curve
from gpu_executor.groth16.r1cs_file import R1csMatrix
from tests.support.circuits import CURVES, IN_DATA, find_data


def load(name: str, curve: str) -> tuple[groth16.R1cs, list[int]]:
    """A circuit and the values of its witness."""
    witness = groth16.load_witness(find_data(name, curve, ".wtns"))
    r1cs = groth16.R1cs.open(find_data(name, curve, ".r1cs"))
    return r1cs, [witness[i] for i in range(len(witness))]


def multiply_row(matrix: R1csMatrix, row: int, values: list[int]) -> int:
    terms = range(matrix.row_starts[row], matrix.row_starts[row + 1])
    return sum(
        int.from_bytes(matrix.values[term].tobytes(), "little") * values[matrix.wires[term]]
        for term in terms
    )


def find_violated(r1cs: groth16.R1cs, values: list[int]) -> int | None:
    """The first constraint that does not hold, with integers of Python."""
    for row in range(r1cs.n_constraints):
        a, b, c = (multiply_row(each, row, values) for each in (r1cs.a, r1cs.b, r1cs.c))
        if (a * b - c) % r1cs.curve.r:
            return row
    return None


def check(gpu: gx.PersistentVulkanBackend, r1cs: groth16.R1cs, values: list[int]) -> int | None:
    """The constraint that `check_witness` names."""
    witness = groth16.Witness.from_values(values, r1cs.curve)
    try:
        groth16.check_witness(r1cs, witness, device=gpu)
    except WitnessError as error:
        found = re.search(r"constraint ([\d,]+) of the circuit's ([\d,]+);", str(error))
        assert found and int(found[2].replace(",", "")) == r1cs.n_constraints
        assert not any(str(value) in str(error) for value in values if value > 1000)
        return int(found[1].replace(",", ""))
    return None


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("name", IN_DATA)
def test_a_witness_of_circom_satisfies_its_circuit(
    gpu: gx.PersistentVulkanBackend, name: str, curve: str
) -> None:
    r1cs, values = load(name, curve)
    assert find_violated(r1cs, values) is None
    assert check(gpu, r1cs, values) is None
    path = find_data(name, curve, ".wtns")
    groth16.check_witness(find_data(name, curve, ".r1cs"), groth16.load_witness(path), device=gpu)


@pytest.mark.parametrize("curve", CURVES)
def test_the_first_violated_constraint_is_named(
    gpu: gx.PersistentVulkanBackend, curve: str
) -> None:
    """Rows of one term, and a row with hundreds of terms in A, B and C."""
    r1cs, values = load("rows", curve)
    assert max(np.diff(r1cs.a.row_starts)) > 500
    named = set()
    first = int(r1cs.c.wires[0])  # the product of the first constraint alone
    for wire in [first, *range(1, len(values), 37), len(values) - 1]:
        changed = list(values)
        changed[wire] = (changed[wire] + 1) % r1cs.curve.r
        expected = find_violated(r1cs, changed)
        assert expected is not None
        assert check(gpu, r1cs, changed) == expected
        named.add(expected)
    last = r1cs.n_constraints - 1
    assert {0, last} <= named and any(0 < each < last for each in named)


@pytest.mark.parametrize("curve", CURVES)
def test_rows_without_terms(gpu: gx.PersistentVulkanBackend, curve: str) -> None:
    r1cs, values = load("linear", curve)
    assert not len(r1cs.a.wires) or 0 in np.diff(r1cs.a.row_starts)
    for wire in range(1, len(values)):
        changed = list(values)
        changed[wire] = r1cs.curve.r - 1 - changed[wire]
        assert check(gpu, r1cs, changed) == find_violated(r1cs, changed) is not None


def test_a_circuit_without_constraints(gpu: gx.PersistentVulkanBackend) -> None:
    curve = get_proof_curve("bn128")
    empty = R1csMatrix(np.zeros(1, np.int64), np.zeros(0, np.uint32), np.zeros((0, 8), np.uint32))
    r1cs = groth16.R1cs(curve, 3, 1, 0, 1, 3, 0, empty, empty, empty)
    assert check(gpu, r1cs, [1, 5, 6]) is None


def test_a_witness_that_cannot_be_of_the_circuit_is_refused(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    r1cs, values = load("multiplier", "bn128")
    other = groth16.load_witness(find_data("multiplier", "bls12381", ".wtns"))
    with pytest.raises(WitnessError, match="is of bls12381, and the circuit of bn128"):
        groth16.check_witness(r1cs, other, device=gpu)
    short = groth16.Witness.from_values(values[:-1], r1cs.curve)
    with pytest.raises(WitnessError, match="has 3 values, and the circuit has 4 signals"):
        groth16.check_witness(r1cs, short, device=gpu)
    with pytest.raises(ArgumentTypeError, match="load_witness and compute_witness make one"):
        groth16.check_witness(r1cs, values, device=gpu)  # type: ignore[arg-type]
    witness = groth16.Witness.from_values(values, r1cs.curve)
    with pytest.raises(ArgumentTypeError, match=r"device= is 'vulkan'|device= is"):
        groth16.check_witness(r1cs, witness, device="vulkan")  # type: ignore[arg-type]
    with gx.CpuBackend() as cpu, pytest.raises(NotSupportedError, match="check of constraints"):
        groth16.check_witness(r1cs, witness, device=cpu)
