"""Makes tests/groth16/data anew: `python -m tests.groth16.make_data`. Needs Node."""

from __future__ import annotations

import shutil

from gpu_executor.groth16.witness_calculator import compute_witness
from tests.support.circuits import CURVES, DATA, IN_DATA, INPUTS, find_data
from tests.support.snarkjs import Snarkjs


def make_data() -> None:
    """Compile the circuits for both curves and compute their witnesses."""
    snarkjs = Snarkjs()
    try:
        for curve in CURVES:
            (DATA / curve).mkdir(parents=True, exist_ok=True)
            for name in IN_DATA:
                compiled = snarkjs.compile_named(name, curve)
                shutil.copyfile(compiled.r1cs, find_data(name, curve, ".r1cs"))
                witness = compute_witness(compiled.wasm, INPUTS[name])
                witness.save(find_data(name, curve, ".wtns"))
    finally:
        snarkjs.close()


if __name__ == "__main__":
    make_data()
