"""Trees over the byte hashes of `gx.hashes`, whose kernels compute them on devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.hashes import KECCAK256, SHA256
from gpu_executor.merkle import MerkleTree
from tests.conftest import OpenWebGpu
from tests.support import toy_hashes
from tests.support.merkle_reference import (
    compute_heap,
    compute_rfc6962_root,
    compute_root,
    keccak256,
    sha256,
)
from tests.support.swiftshader import open_swiftshader

ROWS = np.random.default_rng(0).integers(0, 256, (64, 32), dtype=np.uint8)
MESSAGES = [bytes([each]) * (3 * each) for each in range(37)]


def hash_joined(function: Callable[[bytes], bytes], nodes: Sequence[bytes]) -> bytes:
    return function(b"".join(nodes))


def check_trees(device: Any) -> None:
    """Trees of every format against single hashes, and their proofs and updates."""
    for hash, function in ((SHA256, sha256), (KECCAK256, keccak256)):
        for arity, cap in ((2, 1), (4, 4), (8, 1)):
            part = len(ROWS) // cap
            tree = MerkleTree(ROWS, hash=hash, device=device, arity=arity, cap=cap)
            assert [bytes(each) for each in tree.cap] == [
                compute_root(
                    [bytes(row) for row in ROWS[start : start + part]],
                    arity,
                    functools.partial(hash_joined, function),
                )
                for start in range(0, len(ROWS), part)
            ]
            indices = [5, 60, 5, 0]
            proof = tree.open(indices)
            options: dict[str, Any] = {"hash": hash, "arity": arity, "count": 64}
            assert MerkleTree.verify(tree.cap, indices, ROWS[indices], proof, **options)
            assert not MerkleTree.verify(tree.cap, indices, ROWS[[5, 60, 5, 1]], proof, **options)
            tree.update([63, 1], ROWS[:2])
            changed = ROWS.copy()
            changed[[63, 1]] = ROWS[:2]
            again = MerkleTree(changed, hash=hash, arity=arity, cap=cap)
            assert np.array_equal(tree.cap, again.cap)
            streamed = MerkleTree(
                changed, hash=hash, device=device, arity=arity, cap=cap, memory=2000
            )
            assert streamed.place is None
            assert np.array_equal(streamed.cap, again.cap)
    log = MerkleTree(MESSAGES, hash=SHA256, device=device, format="rfc6962")
    assert bytes(log.root) == compute_rfc6962_root(MESSAGES)
    own = [MESSAGES[36], MESSAGES[2]]
    proof = log.open([36, 2])
    assert MerkleTree.verify(log.root, [36, 2], own, proof, hash=SHA256, format="rfc6962", count=37)
    heap = MerkleTree(MESSAGES, hash=KECCAK256, device=device, format="openzeppelin")
    assert bytes(heap.root) == compute_heap([keccak256(keccak256(each)) for each in MESSAGES])[0]
    proof = heap.open([36, 2])
    options = {"hash": KECCAK256, "format": "openzeppelin", "count": 37}
    assert MerkleTree.verify(heap.root, [36, 2], own, proof, **options)
    padded = MerkleTree(ROWS[:13], hash=SHA256, device=device, format="imt", depth=6)
    other = MerkleTree(ROWS[:13], hash=toy_hashes.SHA256, format="imt", depth=6)
    assert bytes(padded.root) == bytes(other.root)


def test_host() -> None:
    check_trees(None)


def test_cpu() -> None:
    check_trees(gx.CpuBackend())


def test_vulkan(gpu: gx.PersistentVulkanBackend) -> None:
    check_trees(gpu)


def test_executor(vulkan_executor: gx.GpuExecutor) -> None:
    tree = MerkleTree(ROWS, hash=SHA256, device=vulkan_executor)
    assert tree.place is not None
    assert bytes(tree.root) == bytes(MerkleTree(ROWS, hash=SHA256).root)
    again = MerkleTree(vulkan_executor.to_device(ROWS), hash=SHA256, device=vulkan_executor)
    assert bytes(tree.root) == bytes(again.root)


def test_a_backend_without_device_arrays_computes_trees_of_the_host() -> None:
    rows = ROWS[:8]  # each level opens a device
    with gx.VulkanSpirvBackend() as device:
        tree = MerkleTree(rows, hash=SHA256, device=device)
        assert tree.place is None
        tree.update(3, ROWS[4])
        changed = rows.copy()
        changed[3] = ROWS[4]
        assert bytes(tree.root) == bytes(MerkleTree(changed, hash=SHA256).root)


def test_leaves_are_views_of_device_arrays(gpu: gx.PersistentVulkanBackend) -> None:
    on_device = gpu.to_device(ROWS)
    for view, rows in (
        (on_device[1:9], ROWS[1:9]),
        (on_device[::4], ROWS[::4]),
        (on_device[8:16, :20], ROWS[8:16, :20]),
    ):
        tree, host = MerkleTree(view, hash=SHA256), MerkleTree(rows, hash=SHA256)
        assert bytes(tree.root) == bytes(host.root)
        assert tree.open([1, 6]) == host.open([1, 6])


def check_one_tree(device: Any) -> None:
    """A tree, a proof and an update, where translating a pipeline takes long. On SwiftShader one of
    SHA-256 takes 3 s, and this one 0.3 s."""
    tree = MerkleTree(ROWS, hash=KECCAK256, device=device)
    assert tree.open([5, 60, 5]) == MerkleTree(ROWS, hash=KECCAK256).open([5, 60, 5])
    tree.update([63, 1], ROWS[:2])
    changed = ROWS.copy()
    changed[[63, 1]] = ROWS[:2]
    assert bytes(tree.root) == bytes(MerkleTree(changed, hash=KECCAK256).root)


@pytest.mark.slow
def test_swiftshader() -> None:
    with open_swiftshader() as device:
        check_one_tree(device)


@pytest.mark.slow
def test_webgpu(open_webgpu: OpenWebGpu) -> None:
    check_one_tree(open_webgpu())
