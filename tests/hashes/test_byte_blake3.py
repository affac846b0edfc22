"""BLAKE3: its tree, its keys, and inputs of which one alone keeps a device busy."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from blake3 import blake3

import gpu_executor as gx
from gpu_executor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceLacksError,
    NotSupportedError,
)
from gpu_executor.hashes import BLAKE3, SHA256
from gpu_executor.ops import byte_hashes

Bytes = npt.NDArray[np.uint8]

# The lengths of BLAKE3's official test vectors, test_vectors/test_vectors.json of its repository.
LENGTHS = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 2048, 2049, 3072, 3073,
    4096, 4097, 5120, 5121, 6144, 6145, 7168, 7169, 8192, 8193, 16384, 31744, 102400,
)  # fmt: skip
KEY = b"whats the Elvish word for friend"
CONTEXT = "BLAKE3 2019-12-27 16:29:52 test vectors context"
# From the same file: length, digest, keyed digest, derived key.
OFFICIAL = (
    (
        0,
        "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
        "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26",
        "2cc39783c223154fea8dfb7c1b1660f2ac2dcbd1c1de8277b0b0dd39b7e50d7d",
    ),
    (
        1,
        "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
        "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34bc1ab38228a80c95b",
        "b3e2e340a117a499c6cf2398a19ee0d29cca2bb7404c73063382693bf66cb06c",
    ),
)


def make_input(length: int) -> bytes:
    """The official input of that length: i modulo 251."""
    return (np.arange(length) % 251).astype(np.uint8).tobytes()


def draw_bytes(seed: int, *shape: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def expect(rows: Any, **options: Any) -> Bytes:
    found = [list(blake3(bytes(bytearray(each)), **options).digest()) for each in rows]
    return np.array(found, np.uint8).reshape(len(rows), 32)


def test_official_vectors(gpu: gx.PersistentVulkanBackend) -> None:
    for length, *expected in OFFICIAL:
        given = make_input(length)
        functions = BLAKE3, BLAKE3.keyed(KEY), BLAKE3.derive_key(CONTEXT)
        assert [each.hash(given).tobytes().hex() for each in functions] == expected
        assert [each.hash(given, device=gpu).tobytes().hex() for each in functions] == expected


def test_official_lengths(gpu: gx.PersistentVulkanBackend) -> None:
    inputs = [make_input(length) for length in LENGTHS]
    modes: tuple[tuple[Any, dict[str, Any]], ...] = (
        (BLAKE3, {}),
        (BLAKE3.keyed(KEY), {"key": KEY}),
        (BLAKE3.derive_key(CONTEXT), {"derive_key_context": CONTEXT}),
    )
    for function, options in modes:
        expected = expect(inputs, **options)
        assert (function.hash_many(inputs, device=gpu) == expected).all()
        # The other modes differ in push constants alone.
        chosen = list(zip(inputs, expected, strict=True))[:: 1 if function is BLAKE3 else 6]
        for given, digest in chosen:
            row = np.frombuffer(given, np.uint8)
            assert (function.hash(row) == digest).all(), len(given)
            assert (function.hash(row, device=gpu) == digest).all(), len(given)
            assert (function.hash(gpu.to_device(row)).numpy() == digest).all(), len(given)


def test_trees_of_rows(gpu: gx.PersistentVulkanBackend) -> None:
    for length in (1025, 3001, 5120, 9999):
        rows = draw_bytes(length, 7, length)
        for prefix in (b"", b"\x00", b"abcd"):
            expected = expect([prefix + each.tobytes() for each in rows])
            assert (BLAKE3.hash(rows, prefix=prefix) == expected).all()
            assert (BLAKE3.hash(rows, prefix=prefix, device=gpu) == expected).all()
            found = BLAKE3.hash(gpu.to_device(rows), prefix=prefix)
            assert (found.numpy() == expected).all()
    stored = draw_bytes(1, 9, 4000)
    view = gpu.to_device(stored)[1::2, 3:3333]
    assert (BLAKE3.hash(view).numpy() == expect(stored[1::2, 3:3333])).all()


def test_prefix_that_begins_another_chunk(gpu: gx.PersistentVulkanBackend) -> None:
    rows = draw_bytes(1, 3, 1022)
    expected = expect([b"abc" + each.tobytes() for each in rows])
    assert (BLAKE3.hash(gpu.to_device(rows), prefix=b"abc").numpy() == expected).all()
    assert (BLAKE3.hash(rows, prefix=b"abc", device=gpu) == expected).all()


@pytest.mark.parametrize("prefix", [b"", b"\x01\x02\x03"])
def test_rows_larger_than_a_binding(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, prefix: bytes
) -> None:
    monkeypatch.setattr(byte_hashes, "get_max_bytes", lambda device: 5000)
    for count, length in ((1, 200_000), (3, 70_001), (20, 1500)):
        rows = draw_bytes(length, count, length)
        expected = expect([prefix + each.tobytes() for each in rows])
        assert (BLAKE3.hash(gpu.to_device(rows), prefix=prefix).numpy() == expected).all()
        assert (BLAKE3.hash(rows, prefix=prefix, device=gpu) == expected).all()
    messages = [draw_bytes(each, each).tobytes() for each in (100_000, 3, 6000, 1025, 7000)]
    assert (BLAKE3.hash_many(messages, device=gpu) == expect(messages)).all()
    with pytest.raises(DeviceLacksError, match="BLAKE3 hashes longer rows"):
        SHA256.hash(gpu.to_device(draw_bytes(1, 2, 6000)))


def test_one_large_message(gpu: gx.PersistentVulkanBackend) -> None:
    message = draw_bytes(1, (8 << 20) + 5)
    expected = blake3(message.tobytes()).digest()
    assert BLAKE3.hash(message, device=gpu).tobytes() == expected
    assert BLAKE3.hash(gpu.to_device(message)).numpy().tobytes() == expected


def test_numbers_of_chunks_above_32_bits() -> None:
    push = BLAKE3.algorithm.make_push(1024, chunks=4, first=(5 << 32) + 7)
    assert push[4:8] == (0, 4, 7, 5)


def test_graph_of_a_tree(gpu: gx.PersistentVulkanBackend) -> None:
    rows, other = (gpu.to_device(draw_bytes(seed, 4, 5000)) for seed in (1, 2))
    with gpu.graph(rows) as graph:
        digests = BLAKE3.hash(rows)
    graph(other)
    assert (digests.numpy() == expect(other.numpy())).all()


def test_trees_on_the_cpu_backend() -> None:
    rows = draw_bytes(1, 2, 3000)
    with gx.CpuBackend() as cpu:
        assert (BLAKE3.hash(rows, device=cpu) == expect(rows)).all()
        assert (BLAKE3.hash(cpu.to_device(rows)).numpy() == expect(rows)).all()


def test_backend_without_device_arrays_refuses_trees() -> None:
    with gx.VulkanSpirvBackend() as one_shot:
        short = draw_bytes(1, 2, 1000)
        assert (BLAKE3.hash(short, device=one_shot) == expect(short)).all()
        with pytest.raises(NotSupportedError):
            BLAKE3.hash(draw_bytes(1, 2, 1025), device=one_shot)


def test_keyed_objects() -> None:
    keyed = BLAKE3.keyed(KEY)
    assert repr(keyed) == "<ByteHash BLAKE3 keyed>"
    again = pickle.loads(pickle.dumps(keyed))
    assert (again.hash(b"message") == keyed.hash(b"message")).all()
    assert pickle.loads(pickle.dumps(BLAKE3)) is BLAKE3
    with pytest.raises(ArgumentValueError, match="key has 31 bytes"):
        BLAKE3.keyed(KEY[1:])
    with pytest.raises(ArgumentTypeError, match="key is a str"):
        BLAKE3.keyed("k" * 32)
    with pytest.raises(ArgumentTypeError, match="context is a bytes"):
        BLAKE3.derive_key(b"context")
