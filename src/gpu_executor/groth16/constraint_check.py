"""`check_witness`: whether a witness satisfies the constraints of a circuit, on a device.

witness -> A w, B w, C w: three sparse products
        -> (A w) (B w) = C w for every constraint, element-wise -> the first that does not hold
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.backend import Backend
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.errors import WitnessError
from gpu_executor.executor import GpuExecutor
from gpu_executor.groth16.key_device import list_devices
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.prover import upload_scalars
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
    matrices = [
        _load_matrix(device, circuit.curve, each) for each in (circuit.a, circuit.b, circuit.c)
    ]
    with device.secret_arrays():
        holds = _check_rows(device, circuit.curve, matrices, witness)
    device.overwrite_secrets()
    violated = np.flatnonzero(holds == 0)
    return int(violated[0]) if violated.size else None


def _load_matrix(device: ArrayDevice, curve: ProofCurve, matrix: R1csMatrix) -> SparseMatrix:
    count = len(matrix.wires)
    records = np.zeros((max(count, 1), RECORD_HEAD + VALUE_WORDS), np.uint32)
    records[:count, RECORD_HEAD - 1] = matrix.wires
    records[:count, RECORD_HEAD:] = matrix.values
    return SparseMatrix(device, curve.scalar_field.prime, device.put(records), matrix.row_starts)


def _check_rows(
    device: ArrayDevice, curve: ProofCurve, matrices: Sequence[SparseMatrix], witness: Witness
) -> npt.NDArray[Any]:
    """Whether each constraint holds, by the matrices A, B and C of plain values."""
    prime = curve.scalar_field.prime
    vector: Any = elementwise.convert(
        prime, upload_scalars(device, curve, witness.words), "montgomery"
    )
    # A matrix of plain values and a vector in Montgomery form: the products are plain values.
    a, b, c = products = [make_elements(device, prime, each.rows) for each in matrices]
    for matrix, product in zip(matrices, products, strict=True):
        matrix.multiply(vector, product)
    # Plain values a and b: their Montgomery product is a b / R, so c is divided by R, too.
    divided: Any = elementwise.convert(prime, c, "canonical")
    equal: Any = elementwise.compute(
        prime, "equal", [elementwise.combine(prime, "mul", a, b), divided]
    )
    found: npt.NDArray[Any] = equal.numpy()
    return found
