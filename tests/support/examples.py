"""Programs of examples/, run as a reader runs them."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.pages import REPOSITORY

FOLDER = REPOSITORY / "examples"
GALLERY = {
    "mandelbrot.py": "mandelbrot.png",
    "polynomial_product.py": "polynomial-product.svg",
    "block_of_blobs.py": "block-of-blobs.svg",
    "circuit_proof.py": "circuit-proof.svg",
    "merkle_tree.py": "merkle-tree.svg",
    "profile_trace.py": "profile-trace.svg",
}
"""The programs of the gallery, and their pictures."""


def run_example(name: str, *arguments: str) -> str:
    """What a program prints. It runs without the validation layer, on a Ray cluster of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", name, *arguments],
        cwd=FOLDER,
        env=os.environ | {"GPU_VALIDATION": "0", "RAY_ADDRESS": "local"},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
