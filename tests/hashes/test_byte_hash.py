"""Byte hashes against hashlib, blake3 and pycryptodome: on the host, on a device, in every form of
call."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor import hashes
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    DeviceLacksError,
)
from tests.support.byte_hash_oracles import ORACLES, digest_keccak, draw_bytes, expect

every_hash = pytest.mark.parametrize("name", ORACLES)
EVERY_KERNEL = [name for name in ORACLES if name not in ("SHA256D", "SHA3_256")]
"""The hashes with a module of their own: SHA256D is that of SHA256, and SHA3_256 that of KECCAK256,
with another constant for the end of a message."""
every_kernel = pytest.mark.parametrize("name", EVERY_KERNEL)


def list_lengths(block: int) -> list[int]:
    """Lengths around every kind of border of blocks, and random ones."""
    borders = [0, 4, block // 2, block - 17, block - 9, block, 2 * block, 5 * block, 1024, 9984]
    near = {length + shift for length in borders for shift in (-1, 0, 1)}
    drawn = np.random.default_rng(block).integers(0, 10_001, 6).tolist()
    return sorted({each for each in near if each >= 0} | {*drawn, 55, 56, 63, 64, 111, 112, 10_000})


# --- published vectors ---

# The examples of FIPS 180-4, FIPS 202, RFC 7693 and of the papers on BLAKE3 and RIPEMD-160; the
# hash of nothing in Ethereum.
VECTORS = {
    ("SHA256", b""): "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ("SHA256", b"abc"): "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    ("SHA256D", b"hello"): "9595c9df90075148eb06860365df33584b75bff782a510c6cd4883a419833d50",
    ("SHA3_256", b""): "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a",
    ("SHA3_256", b"abc"): "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532",
    ("SHA512", b"abc"): (
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
        "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
    ),
    ("BLAKE2S", b"abc"): "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982",
    ("BLAKE3", b""): "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
    ("BLAKE3", b"abc"): "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
    ("RIPEMD160", b""): "9c1185a5c5e9fc54612808977ee8f548b2258d31",
    ("RIPEMD160", b"abc"): "8eb208f7e05d987a9b044a8e98c6b087f15a0bfc",
    ("KECCAK256", b""): "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470",
    ("KECCAK256", b"abc"): "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45",
}


@pytest.mark.parametrize(("name", "message"), VECTORS)
def test_published_vectors(gpu: gx.PersistentVulkanBackend, name: str, message: bytes) -> None:
    function, expected = ORACLES[name][0], VECTORS[name, message]
    assert function.hash(message).tobytes().hex() == expected
    assert function.hash(message, device=gpu).tobytes().hex() == expected
    assert function.hash_many([message], device=gpu).tobytes().hex() == expected


# --- lengths ---


@every_kernel
def test_rows_of_every_length_on_a_device(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    function, digest, block = ORACLES[name]
    for length in list_lengths(block):
        rows = draw_bytes(length, 3, length)
        found = function.hash(gpu.to_device(rows))
        assert isinstance(found, gx.DeviceArray)
        assert (found.numpy() == expect(digest, rows)).all(), length


@every_kernel
def test_host_rows_of_every_length_by_a_device(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    function, digest, block = ORACLES[name]
    for length in list_lengths(block)[::3]:
        rows = draw_bytes(length, 5, length)
        found = function.hash(rows, device=gpu)
        assert isinstance(found, np.ndarray)
        assert (found == expect(digest, rows)).all(), length


@every_hash
def test_messages_of_every_length(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    function, digest, block = ORACLES[name]
    messages = [draw_bytes(length, length).tobytes() for length in list_lengths(block)]
    messages = messages[::2] + messages[::-2]
    expected = expect(digest, messages)
    assert (function.hash_many(messages, device=gpu) == expected).all()
    short = [number for number, each in enumerate(messages) if len(each) < 600]
    assert (function.hash_many(messages[each] for each in short) == expected[short]).all()


@every_hash
def test_host_hashes(name: str) -> None:
    function, digest, block = ORACLES[name]
    for length in (0, 1, block - 1, block, 3 * block + 5):
        rows = draw_bytes(length, 3, length)
        assert (function.hash(rows) == expect(digest, rows)).all(), length


# --- arrays ---


@every_hash
def test_arrays_without_rows(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    function = ORACLES[name][0]
    for length in (0, 5, 64):
        empty = np.empty((0, length), np.uint8)
        for found in (
            function.hash(empty),
            function.hash(empty, device=gpu),
            function.hash(gpu.to_device(empty)),
        ):
            assert found.shape == (0, function.digest_size)
            assert found.dtype == np.uint8
    assert function.hash_many([], device=gpu).shape == (0, function.digest_size)


def test_one_message(gpu: gx.PersistentVulkanBackend) -> None:
    expected = hashlib.sha256(b"one message").digest()
    message = b"one message"
    array = np.frombuffer(message, np.uint8)
    assert not array.flags.writeable
    for given in (message, bytearray(message), memoryview(message), array, array.reshape(1, -1)[0]):
        assert hashes.SHA256.hash(given).tobytes() == expected
        assert hashes.SHA256.hash(given, device=gpu).shape == (32,)
        assert hashes.SHA256.hash(given, device=gpu).tobytes() == expected
    assert hashes.SHA256.hash(gpu.to_device(array)).numpy().tobytes() == expected


@pytest.mark.parametrize("length", [33, 64])
def test_views(gpu: gx.PersistentVulkanBackend, length: int) -> None:
    stored = draw_bytes(1, 40, length + 9)
    on_device = gpu.to_device(stored)
    for index in (
        np.s_[:, :length],
        np.s_[1:, 5 : length + 5],
        np.s_[::-3, 2 : length + 2],
        np.s_[7:8, 3 : length + 3],
    ):
        expected = expect(ORACLES["SHA256"][1], stored[index])
        assert (hashes.SHA256.hash(stored[index]) == expected).all()
        assert (hashes.SHA256.hash(stored[index], device=gpu) == expected).all()
        assert (hashes.SHA256.hash(on_device[index]).numpy() == expected).all()


@pytest.mark.parametrize("length", [1, 2, 3, 7, 33, 61])
def test_last_word_of_an_array_is_read_whole(gpu: gx.PersistentVulkanBackend, length: int) -> None:
    for count in (1, 2, 3, 5):
        rows = np.full((count, length), 255, np.uint8)
        expected = expect(ORACLES["SHA256"][1], rows)
        assert (hashes.SHA256.hash(gpu.to_device(rows)).numpy() == expected).all()
        inside = gpu.to_device(np.full((count + 2, length), 255, np.uint8))[:count]
        assert (hashes.SHA256.hash(inside).numpy() == expected).all()


def test_arrays_larger_than_a_binding(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu_executor.ops import byte_hashes

    monkeypatch.setattr(byte_hashes, "get_max_bytes", lambda device: 10_000)
    for length in (1, 64, 77):
        rows = draw_bytes(2, 700, length)
        found = hashes.SHA256.hash(gpu.to_device(rows)).numpy()
        assert (found == expect(ORACLES["SHA256"][1], rows)).all()
    messages = [draw_bytes(each, each).tobytes() for each in range(0, 400, 3)]
    found = hashes.SHA256.hash_many(messages, device=gpu)
    assert (found == expect(ORACLES["SHA256"][1], messages)).all()


def test_graphs(gpu: gx.PersistentVulkanBackend) -> None:
    rows, other = (gpu.to_device(draw_bytes(seed, 50, 64)) for seed in (1, 2))
    with gpu.graph(rows) as graph:
        nodes = hashes.KECCAK256.compress(hashes.KECCAK256.hash(rows))
    graph(other)
    expected = expect(digest_keccak, other.numpy())
    assert (nodes.numpy() == expect(digest_keccak, expected.reshape(25, 64))).all()


# --- prefixes and nodes ---


@every_kernel
def test_prefixes(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    function, digest, block = ORACLES[name]
    for prefix in (b"\x00", b"ab", b"abc", b"\xff\x00\x01\x02"):
        # Every prefix of a fixed length is a pipeline, which lavapipe compiles for up to a second.
        fixed = {b"\x00": [64], b"abc": [32] if name in ("SHA256", "KECCAK256") else []}
        for length in (0, 3, block - 3, 77, 2 * block, *fixed.get(prefix, [])):
            rows = draw_bytes(length, 6, length)
            expected = expect(lambda row: digest(prefix + row), rows)  # noqa: B023
            assert (function.hash(rows, prefix=prefix) == expected).all()
            assert (function.hash(rows, prefix=prefix, device=gpu) == expected).all()
            assert (function.hash(gpu.to_device(rows), prefix=prefix).numpy() == expected).all()


@every_kernel
@pytest.mark.parametrize("arity", [2, 4, 8])
def test_nodes(gpu: gx.PersistentVulkanBackend, name: str, arity: int) -> None:
    function, digest, _ = ORACLES[name]
    children = draw_bytes(arity, 8 * arity, function.digest_size)
    rows = children.reshape(8, -1)
    expected = expect(digest, rows)
    assert (function.compress(children, arity) == expected).all()
    assert (function.compress(children, arity, device=gpu) == expected).all()
    assert (function.compress(gpu.to_device(children), arity).numpy() == expected).all()
    expected = expect(lambda row: digest(b"\x01" + row), rows)
    found = function.compress(gpu.to_device(children), arity, prefix=b"\x01")
    assert (found.numpy() == expected).all()
    assert function.compress(children[:0], arity, device=gpu).shape == (0, function.digest_size)


@every_kernel
def test_sorted_nodes(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    function, digest, _ = ORACLES[name]
    size = function.digest_size
    children = draw_bytes(3, 40, size)
    children[10:30] = children[9]  # equal ones, and ones that differ in a late byte
    for number in range(10, 30):
        children[number, -(number // 2)] = number
    pairs = [sorted(bytes(each) for each in pair) for pair in children.reshape(20, 2, size)]
    expected = expect(lambda row: digest(b"\x07" + row), [a + b for a, b in pairs])
    options: dict[str, Any] = {"sort": True, "prefix": b"\x07"}
    assert (function.compress(children, **options) == expected).all()
    assert (function.compress(children, device=gpu, **options) == expected).all()
    assert (function.compress(gpu.to_device(children), **options).numpy() == expected).all()


# --- backends ---


@every_hash
def test_cpu_backend(name: str) -> None:
    function, digest, _ = ORACLES[name]
    rows = draw_bytes(4, 7, 33)
    expected = expect(digest, rows)
    with gx.CpuBackend() as cpu:
        assert (function.hash(rows, device=cpu) == expected).all()
        found = function.hash(cpu.to_device(rows))
        assert isinstance(found, gx.DeviceArray)
        assert (found.numpy() == expected).all()
        assert (function.hash_many([b"", bytes(3)], device=cpu)[0] == list(digest(b""))).all()


def test_executor(vulkan_executor: gx.GpuExecutor) -> None:
    rows = draw_bytes(5, 1000, 33)
    expected = expect(ORACLES["SHA256"][1], rows)
    assert (hashes.SHA256.hash(rows, device=vulkan_executor) == expected).all()
    messages = [row[: number % 33].tobytes() for number, row in enumerate(rows)]
    found = hashes.SHA256.hash_many(messages, device=vulkan_executor)
    assert (found == expect(ORACLES["SHA256"][1], messages)).all()


def test_chunks(chunking_gpu: gx.PersistentVulkanBackend) -> None:
    for length in (6, 33, 64):
        rows = draw_bytes(6, 1003, length)
        expected = expect(ORACLES["SHA256"][1], rows)
        assert (hashes.SHA256.hash(rows, device=chunking_gpu) == expected).all()


SEQUENTIAL = [name for name in EVERY_KERNEL if not ORACLES[name][0].algorithm.mode]


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_messages_that_a_driver_does_not_finish_are_refused(
    gpu: gx.PersistentVulkanBackend, name: str
) -> None:
    """Lavapipe ends the loops of an invocation after 65,535 iterations."""
    function, digest, _ = ORACLES[name]
    longest = 0
    for step in (1 << 20, 1 << 14, 1 << 8, 1):
        while function.algorithm.count_iterations(longest + step + 4) <= 65_535:
            longest += step
    rows = draw_bytes(7, 2, longest + 1)
    expected = expect(digest, rows[:, :-1])
    assert (function.hash(rows[:, :-1], device=gpu) == expected).all()
    assert (function.hash_many(list(rows[:, :-1]), device=gpu) == expected).all()
    too_long = "after 65,535 iterations"
    with pytest.raises(DeviceLacksError, match=too_long):
        function.hash(rows, device=gpu)
    with pytest.raises(DeviceLacksError, match=too_long):
        function.hash(gpu.to_device(rows))
    with pytest.raises(DeviceLacksError, match=too_long):
        function.hash_many([b"", bytes(longest + 5)], device=gpu)


# --- objects and refusals ---


@every_hash
def test_objects(name: str) -> None:
    function = ORACLES[name][0]
    assert function.name == name
    assert repr(function) == f"<ByteHash {name}>"
    assert pickle.loads(pickle.dumps(function)) is function
    assert function.digest_shape == (function.digest_size,)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("text", "rows is a str"),
        ([b"a"], "rows is a list"),
        (np.zeros((2, 3), np.int8), "dtype int8"),
        (np.zeros((2, 3), np.uint32), "dtype uint32"),
        (memoryview(bytes(12)).cast("I"), "memoryview of format 'I'"),
    ],
)
def test_rows_that_are_no_bytes_are_refused(rows: Any, said: str) -> None:
    with pytest.raises(ArgumentTypeError, match=said):
        hashes.SHA256.hash(rows)


def test_refusals(gpu: gx.PersistentVulkanBackend) -> None:
    rows = np.zeros((2, 32), np.uint8)
    with pytest.raises(ArgumentShapeError, match=r"shape \(1, 2, 32\)"):
        hashes.SHA256.hash(rows[None])
    with pytest.raises(ArgumentTypeError, match="dtype float32"):
        hashes.SHA256.hash(gpu.to_device(np.zeros((2, 2), np.float32)))
    with pytest.raises(ArgumentValueError, match="prefix has 5 bytes"):
        hashes.SHA256.hash(rows, prefix=b"12345")
    with pytest.raises(ArgumentTypeError, match="prefix is a str"):
        hashes.SHA256.hash(rows, prefix="0")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="messages is a bytes"):
        hashes.SHA256.hash_many(b"abc")
    with pytest.raises(ArgumentTypeError, match="message 1 is a str"):
        hashes.SHA256.hash_many([b"abc", "abc"], device=gpu)
    with pytest.raises(ArgumentTypeError, match=r"message 0 is a ndarray of uint8 and shape"):
        hashes.SHA256.hash_many([rows])
    with pytest.raises(ArgumentValueError, match="arity is 3"):
        hashes.SHA256.compress(rows, 3)
    with pytest.raises(ArgumentValueError, match="only two children are sorted"):
        hashes.SHA256.compress(rows, 4, sort=True)
    with pytest.raises(ArgumentShapeError, match=r"children has the shape \(2, 31\)"):
        hashes.SHA256.compress(rows[:, :31])
    with pytest.raises(ArgumentShapeError, match=r"must be \(n \* 4, 32\)"):
        hashes.SHA256.compress(rows, 4)


def test_sorted_nodes_of_no_children() -> None:
    children = np.empty((0, 32), np.uint8)
    assert hashes.SHA256.compress(children, sort=True).shape == (0, 32)


def test_arguments_that_are_no_arrays_and_no_devices_are_refused() -> None:
    rows: Any = np.zeros((2, 32), np.uint8)
    masked: Any = np.ma.array(rows, mask=rows == 0)
    with pytest.raises(ArgumentTypeError, match="rows is a masked array"):
        hashes.SHA256.hash(masked)
    with pytest.raises(ArgumentTypeError, match="message 0 is a masked array"):
        hashes.SHA256.hash_many([masked[0]])
    name: Any = "gpu"
    for call in (hashes.SHA256.hash, hashes.SHA256.compress, hashes.SHA256.hash_many):
        with pytest.raises(ArgumentTypeError, match="device is a str"):
            call(rows if call != hashes.SHA256.hash_many else [b""], device=name)
    nothing: Any = None
    with pytest.raises(ArgumentTypeError, match="must be a list of messages"):
        hashes.SHA256.hash_many(nothing)
    arity: Any = 2.0
    with pytest.raises(ArgumentValueError, match=r"arity is 2\.0"):
        hashes.SHA256.compress(rows, arity)


def test_arities_of_numpy() -> None:
    children, arity = draw_bytes(8, 400, 32), np.uint8(8)
    found = hashes.SHA256.compress(children, arity)  # type: ignore[arg-type]
    assert (found == hashes.SHA256.compress(children, 8)).all()


def test_contexts_that_have_no_bytes_are_refused() -> None:
    with pytest.raises(ArgumentValueError, match="no text that UTF-8 encodes"):
        hashes.BLAKE3.derive_key("\ud800")


def test_sort_is_a_bool() -> None:
    children = np.zeros((2, 32), np.uint8)
    with pytest.raises(ArgumentTypeError, match=r"sort is .*; it must be True or False"):
        hashes.SHA256.compress(children, sort="no")  # type: ignore[arg-type]
