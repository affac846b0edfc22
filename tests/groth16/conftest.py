"""Fixtures of Groth16: snarkjs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.snarkjs import Snarkjs, find_node


@pytest.fixture(scope="session")
def snarkjs() -> Iterator[Snarkjs]:
    """snarkjs and circom in one process. Only a machine without Node skips what needs them."""
    if find_node() is None:
        pytest.skip("Node is not installed")
    opened = Snarkjs()
    yield opened
    opened.close()
