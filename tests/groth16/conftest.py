"""Fixtures of Groth16: snarkjs, and tables that setups share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gpu_executor as gx
from tests.support.generator_tables import share_tables
from tests.support.snarkjs import Snarkjs, find_node


@pytest.fixture(scope="session")
def snarkjs() -> Iterator[Snarkjs]:
    """snarkjs and circom in one process. Only a machine without Node skips what needs them."""
    if find_node() is None:
        pytest.skip("Node is not installed")
    opened = Snarkjs()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def shared_tables(gpu: gx.PersistentVulkanBackend) -> Iterator[None]:
    """Setups of keys on `gpu` make the multiples of the generators once."""
    with share_tables(gpu):
        yield
