"""Makes tests/groth16/data anew: `python -m tests.groth16.make_data`. Needs Node."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gpu_executor as gx
from gpu_executor.groth16 import compute_witness, setup
from gpu_executor.groth16.point_json import write_json
from tests.support.circuits import BLINDING, CURVES, DATA, IN_DATA, INPUTS, SEED, find_data
from tests.support.snarkjs import Snarkjs


def make_data() -> None:
    """Compile the circuits for both curves, compute their witnesses, make keys for tests. snarkjs
    exports the verification keys, and proves."""
    snarkjs, gpu = Snarkjs(), gx.PersistentVulkanBackend()
    try:
        for curve in CURVES:
            (DATA / curve).mkdir(parents=True, exist_ok=True)
            for name in IN_DATA:
                compiled = snarkjs.compile_named(name, curve)
                shutil.copyfile(compiled.r1cs, find_data(name, curve, ".r1cs"))
                witness = compute_witness(compiled.wasm, INPUTS[name])
                wtns, zkey = (find_data(name, curve, suffix) for suffix in (".wtns", ".zkey"))
                witness.save(wtns)
                setup(compiled.r1cs, device=gpu, unsafe_secrets=SEED).save(zkey)
                proof, public = snarkjs.prove(zkey, wtns, curve, *BLINDING)
                save(snarkjs.export_verification_key(zkey), find_data(name, curve, ".vk.json"))
                save(proof, find_data(name, curve, ".proof.json"))
                save(public, find_data(name, curve, ".public.json"))
    finally:
        gpu.close()
        snarkjs.close()


def save(content: Any, path: Path) -> None:
    """Write a file of JSON, as snarkjs does."""
    path.write_text(write_json(content), encoding="utf-8")


if __name__ == "__main__":
    make_data()
