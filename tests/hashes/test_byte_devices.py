"""Byte hashes on the other kinds of devices: Vulkan without 64-bit types, and WebGPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpu_executor.hashes import BLAKE3, KECCAK256, SHA256
from tests.conftest import OpenWebGpu
from tests.support.byte_hash_oracles import ORACLES, draw_bytes, expect
from tests.support.swiftshader import open_swiftshader


def check_rows(device: Any, name: str) -> None:
    """Rows of any length: arrays that end within a word."""
    function, digest, block = ORACLES[name]
    for count, length in ((3, 33), (1, 1), (3, 0), (1, 3 * block - 1)):
        rows = draw_bytes(length, count, length)
        rows[-1] = 255
        found = function.hash(device.to_device(rows)).numpy()
        assert (found == expect(digest, rows)).all(), length


def check_nodes(device: Any, name: str) -> None:
    """Rows of two digests, whose length is a constant."""
    function, digest, _ = ORACLES[name]
    children = draw_bytes(5, 10, function.digest_size)
    expected = expect(digest, children.reshape(5, -1))
    assert (function.compress(device.to_device(children)).numpy() == expected).all()


def check_messages(device: Any, name: str) -> None:
    function, digest, _ = ORACLES[name]
    messages = [draw_bytes(each, each).tobytes() for each in (2000, 0, 33, 1, 4, 500, 3, 2)]
    assert (function.hash_many(messages, device=device) == expect(digest, messages)).all()


def check_host_rows(device: Any, name: str) -> None:
    """Calls on rows of the host, whose invocations hash several rows."""
    function, digest, _ = ORACLES[name]
    rows = draw_bytes(33, 3, 33)
    rows[-1] = 255
    assert (function.hash(rows, device=device) == expect(digest, rows)).all()


def check_constants(device: Any, name: str) -> None:
    """What the constants of a kernel for rows of one length decide: prefixes, the order of children
    and the number of blocks. Each is a pipeline more."""
    function, digest, block = ORACLES[name]
    size = function.digest_size
    blocks = draw_bytes(block, 2, block)
    assert (function.hash(device.to_device(blocks)).numpy() == expect(digest, blocks)).all()
    rows = draw_bytes(1, 5, 65)
    expected = expect(lambda row: digest(b"\x01" + row), rows[1:4, 1:])
    found = function.hash(device.to_device(rows)[1:4, 1:], prefix=b"\x01")
    assert (found.numpy() == expected).all()
    children = draw_bytes(2, 8, size)
    pairs = [sorted(bytes(each) for each in pair) for pair in children.reshape(4, 2, size)]
    found = function.compress(device.to_device(children), sort=True)
    assert (found.numpy() == expect(digest, [a + b for a, b in pairs])).all()


def check_trees(device: Any) -> None:
    digest = ORACLES["BLAKE3"][1]
    for count, length in ((2, 5003), (1, 70_001)):
        rows = draw_bytes(length, count, length)
        expected = expect(digest, rows)
        assert (BLAKE3.hash(device.to_device(rows)).numpy() == expected).all()
        assert (BLAKE3.hash(rows, device=device) == expected).all()


Checks = dict[Callable[[Any, str], None], tuple[str, ...]]
ON_SWIFTSHADER: Checks = {
    check_rows: ("SHA256D", "SHA3_256", "SHA512", "BLAKE3"),
    check_nodes: ("KECCAK256", "BLAKE2S", "RIPEMD160"),
    check_messages: ("SHA256", "KECCAK256", "BLAKE3"),
    check_host_rows: ("KECCAK256",),
    check_constants: ("KECCAK256",),
}
ON_WEBGPU: Checks = {
    check_rows: ("SHA256D", "SHA3_256", "BLAKE2S", "RIPEMD160"),
    check_nodes: ("SHA256", "KECCAK256", "SHA512", "BLAKE3"),
    check_messages: ("SHA512", "BLAKE2S", "RIPEMD160"),
    check_host_rows: ("BLAKE3",),
    check_constants: ("BLAKE3",),
}
"""Every hash on both, and every module on one of them in each of its three forms: SHA256D is SHA256
with another constant, and SHA3_256 is KECCAK256 so. SwiftShader takes 3 s for a pipeline of
SHA-256. The code around the blocks of a hash is the same for all, so constants are checked with
hashes whose pipelines take little time."""


def check_kernels(device: Any, checks: Checks) -> None:
    for check, names in checks.items():
        for name in names:
            check(device, name)
    check_trees(device)


@pytest.mark.slow
def test_swiftshader() -> None:
    with open_swiftshader() as gpu:
        check_kernels(gpu, ON_SWIFTSHADER)


@pytest.mark.slow
def test_webgpu(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    check_kernels(gpu, ON_WEBGPU)
    rows = gpu.to_device(draw_bytes(1, 10, 64))
    with gpu.graph(rows) as graph:
        nodes = KECCAK256.compress(SHA256.hash(rows))
    other = draw_bytes(2, 10, 64)
    graph(gpu.to_device(other))
    expected = expect(ORACLES["SHA256"][1], other).reshape(5, 64)
    assert (nodes.numpy() == expect(ORACLES["KECCAK256"][1], expected)).all()
    assert isinstance(nodes.numpy(), np.ndarray)
