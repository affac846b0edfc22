"""The circuits in tests/groth16/circuits, inputs that they accept, and files in tests/groth16/data.

The data are the constraints (.r1cs), the witness (.wtns) and a key for tests (.zkey) of each
circuit of `IN_DATA`, for both curves: data/<curve>/<name>.r1cs. snarkjs made the verification key
(.vk.json) of the key, and the proof (.proof.json) of the witness with `BLINDING`, and its public
values (.public.json). `python -m tests.groth16.make_data` makes them anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_executor.groth16.proof_curve import CURVE_NAMES
from tests.support.pages import REPOSITORY

CIRCUITS = REPOSITORY / "tests" / "groth16" / "circuits"
DATA = REPOSITORY / "tests" / "groth16" / "data"
CURVES = CURVE_NAMES

INPUTS: dict[str, dict[str, Any]] = {
    "multiplier": {"a": 3, "b": 11},
    "zero_output": {"a": 1 << 200, "b": -5},
    "public_only": {"a": 7, "b": 1 << 253},
    "linear": {"a": 20, "b": -1},
    "unused": {"a": 5, "unused": 6},
    "rows": {"x": [i * i - 1000 for i in range(300)], "y": 123456789},
    "arrays": {"weights": [3, -4, 16], "values": [[1, 2, 3], [-1, 1 << 300, 0]]},
    "no_inputs": {},
    "merkle": {"leaf": 42, "siblings": [10, 11], "sides": [0, 1]},
}
"""Inputs of each circuit that snarkjs takes too. Circuits with buses, and those that fail, are
not here."""
BLINDING = (0x1F << 240 | 0xB1D, 0x2E << 240 | 0x5EED)
"""r and s of the proofs."""
SEED = "gpu-executor"
"""The seed of the secrets of the keys."""
IN_DATA = ("multiplier", "zero_output", "public_only", "linear", "unused", "rows", "arrays")


def find_data(name: str, curve: str, suffix: str) -> Path:
    """A file of the data: its circuit, its curve and its suffix, such as .r1cs."""
    return DATA / curve / f"{name}{suffix}"
