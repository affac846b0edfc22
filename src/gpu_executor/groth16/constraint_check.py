"""`check_witness`: whether a witness satisfies the constraints of a circuit, on a device.

witness -> A w, B w, C w: three sparse products
        -> (A w) (B w) = C w for every constraint, element-wise -> the first that does not hold
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.backend import Backend
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.errors import WitnessError
from gpu_executor.executor import GpuExecutor
from gpu_executor.groth16.key_device import list_devices
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.prover import upload_scalars, wipe_arrays
from gpu_executor.groth16.r1cs_file import VALUE_WORDS, R1cs, R1csMatrix
from gpu_executor.groth16.sections import PathLike
from gpu_executor.groth16.witness_file import Witness, require_fit
from gpu_executor.ops import elementwise
from gpu_executor.ops.scans import make_elements
from gpu_executor.ops.sparse import RECORD_HEAD, SparseMatrix


def check_witness(
    r1cs: R1cs | PathLike, witness: Witness, *, device: Backend | None = None
) -> None:
    """Check a witness against every constraint of a circuit. Raises `WitnessError` that names the
    first constraint that does not hold, and shows no value.

    Args:
        r1cs (R1cs | str | Path): The circuit, or its file.
        witness (Witness): The values of all signals.
        device (GpuExecutor | Backend | None): Where the constraints are computed; None opens a
            `GpuExecutor` for it.
    """
    circuit = r1cs if isinstance(r1cs, R1cs) else R1cs.open(r1cs)
    require_fit(witness, circuit.curve, circuit.n_wires, "the circuit")
    with contextlib.ExitStack() as resources:
        gpu = resources.enter_context(GpuExecutor()) if device is None else device
        chosen = list_devices(gpu, "a check of constraints")[0]
        found = _find_violated(chosen, circuit, witness)
    if found is not None:
        raise WitnessError(
            f"the witness does not satisfy constraint {found:,} of the circuit's "
            f"{circuit.n_constraints:,}; they are counted from 0"
        )


def _find_violated(device: ArrayDevice, circuit: R1cs, witness: Witness) -> int | None:
    """The first constraint that does not hold, or None. Device memory that held values of the
    witness is overwritten."""
    if not circuit.n_constraints:
        return None
    prime = circuit.curve.scalar_field.prime
    secrets: list[Any] = []
    try:
        secrets.append(upload_scalars(device, circuit.curve, witness.words))
        vector: Any = elementwise.convert(prime, secrets[0], "montgomery")
        secrets.append(vector)
        a, b, c = (
            _multiply(device, circuit.curve, each, vector, secrets)
            for each in (circuit.a, circuit.b, circuit.c)
        )
        # Plain values a and b: their Montgomery product is a b / R, so c is divided by R, too.
        product = elementwise.combine(prime, "mul", a, b)
        secrets.append(product)
        divided: Any = elementwise.convert(prime, c, "canonical")
        secrets.append(divided)
        equal: Any = elementwise.compute(prime, "equal", [product, divided])
        violated = np.flatnonzero(equal.numpy() == 0)
    finally:
        wipe_arrays(device, secrets)
    return int(violated[0]) if violated.size else None


def _multiply(
    device: ArrayDevice,
    curve: ProofCurve,
    matrix: R1csMatrix,
    vector: DeviceArray,
    secrets: list[Any],
) -> DeviceArray:
    """The product of a matrix of plain values and a vector in Montgomery form: plain values. Adds
    what holds values to `secrets`."""
    prime = curve.scalar_field.prime
    count = len(matrix.wires)
    records = np.zeros((max(count, 1), RECORD_HEAD + VALUE_WORDS), np.uint32)
    records[:count, RECORD_HEAD - 1] = matrix.wires
    records[:count, RECORD_HEAD:] = matrix.values
    sums = make_elements(device, prime, len(matrix.row_starts) - 1)
    rows = SparseMatrix(device, prime, device.put(records), matrix.row_starts)
    secrets += [sums, *rows.partials]
    rows.multiply(vector, sums)
    return sums
