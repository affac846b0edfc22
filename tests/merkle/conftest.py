"""What tests of Merkle trees share: places for trees, and kinds of leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.backend import Backend
from tests.support.toy_hashes import SHA256, ToyFieldHash

OpenPlace = Callable[[str], "Backend | None"]


def make_field_hashes() -> dict[str, ToyFieldHash]:
    """Hash functions with digests of one element and of several."""
    return {
        "element": ToyFieldHash(gx.fields.BN254_FR, ()),
        "elements": ToyFieldHash(gx.fields.BABYBEAR, (8,)),
    }


def draw_nodes(kind: str, count: int, seed: int = 0) -> tuple[Any, Any]:
    """A hash function of that kind, and as many of its digests on the host."""
    if kind == "bytes":
        rng = np.random.default_rng(seed)
        return SHA256, rng.integers(0, 256, (count, 32), dtype=np.uint8)
    hash = make_field_hashes()[kind]
    return hash, hash.field.random((count, *hash.digest_shape), seed=seed)


@pytest.fixture
def open_place(gpu: gx.PersistentVulkanBackend) -> OpenPlace:
    """The backend of a place; None for the host."""
    return lambda name: {"host": None, "cpu": gx.CpuBackend(), "vulkan": gpu}[name]
