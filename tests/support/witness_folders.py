"""Folders of witnesses, which examples/prove_many.py proves."""

from __future__ import annotations

import shutil
from pathlib import Path

from gpu_executor import groth16
from tests.support.circuits import find_data

ZKEY = find_data("multiplier", "bn128", ".zkey")


def copy_witnesses(folder: Path, count: int) -> list[Path]:
    """So many witnesses of the key `ZKEY`."""
    paths = [folder / f"w{index}.wtns" for index in range(count)]
    for each in paths:
        shutil.copyfile(find_data("multiplier", "bn128", ".wtns"), each)
    return paths


def check_outputs(witness: Path) -> None:
    """The proof of a witness is whole and right."""
    proof, public = (
        witness.with_name(f"{kind}-{witness.stem}.json") for kind in ("proof", "public")
    )
    key = groth16.VerificationKey.from_json(
        find_data("multiplier", "bn128", ".vk.json").read_text()
    )
    values = groth16.public_from_json(public.read_text())
    assert groth16.verify(key, values, groth16.Proof.from_json(proof.read_text()))
