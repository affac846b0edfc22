"""Trusted setups that all tests of KZG share: loading one takes seconds on a software driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ckzg
import pytest

import gpu_executor as gx
from gpu_executor import kzg
from tests.support.kzg_setups import (
    TABLE_BYTES,
    SetupPair,
    read_mainnet_path,
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
    """The setup with a known secret."""
    with kzg.load_trusted_setup(str(known_path), 0, gpu=gpu, memory=TABLE_BYTES) as own:
        yield SetupPair(own, ckzg.load_trusted_setup(str(known_path), 0))


@pytest.fixture(scope="session")
def mainnet(gpu: gx.PersistentVulkanBackend) -> Iterator[SetupPair]:
    """Mainnet's setup."""
    with kzg.load_trusted_setup(gpu=gpu, memory=TABLE_BYTES) as own:
        yield SetupPair(own, ckzg.load_trusted_setup(read_mainnet_path(), 0))
