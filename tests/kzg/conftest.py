"""A trusted setup that the tests of KZG share: loading it takes seconds on a software driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ckzg
import pytest

import gpu_executor as gx
from gpu_executor import kzg
from gpu_executor.curves import BLS12_381_G1, PointArray
from gpu_executor.fields import FieldArray, eip4844
from gpu_executor.kzg import pairing
from tests.support.kzg_setups import (
    POINTS_ALONE,
    SetupPair,
    draw_small_weights,
    prove_cells,
    write_broken_points,
    write_known_setup,
)


@pytest.fixture(scope="session")
def known_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a setup with a known secret."""
    path: Path = tmp_path_factory.mktemp("kzg") / "known_setup.txt"
    path.write_text(write_known_setup())
    return path


@pytest.fixture(scope="session")
def known(gpu: gx.PersistentVulkanBackend, known_path: Path) -> Iterator[SetupPair]:
    """The setup with a known secret, where a file on disk has not its points. Its points are
    checked with small weights, which takes 3 s instead of 11; those of mainnet's setup with
    random ones."""
    write_broken_points(known_path, "setup")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing, "draw_weights", draw_small_weights)
        own = kzg.load_trusted_setup(str(known_path), 0, device=gpu, memory=POINTS_ALONE)
    with own:
        yield SetupPair(own, ckzg.load_trusted_setup(str(known_path), 0))


class DefinitionProver:
    """Proves cells on the setup with the known secret by their definition: in a fraction of the
    seconds that a software driver takes."""

    def prove(self, coefficients: FieldArray) -> PointArray:
        blobs = eip4844.to_blob(eip4844.values_of(coefficients))
        proofs = [b"".join(prove_cells(blob.tobytes())) for blob in blobs]
        points = BLS12_381_G1.from_bytes(b"".join(proofs), check=False)
        return points.reshape(len(blobs), 128)


class FixedProver:
    """In the place of the prover, whose steps are a graph: the generator for every cell."""

    def __init__(self, gpu: gx.PersistentVulkanBackend) -> None:
        self._generator: PointArray = gpu.to_device(BLS12_381_G1.generator)

    def prove(self, coefficients: FieldArray) -> PointArray:
        return self._generator.broadcast_to((len(coefficients), 128)).copy()


@pytest.fixture
def fixed_prover(gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kzg.TrustedSetup, "cell_prover", FixedProver(gpu))


@pytest.fixture
def definition_prover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kzg.TrustedSetup, "cell_prover", DefinitionProver())
