"""Roots and levels of trees, in every place, against a recursion over single nodes."""

from __future__ import annotations

import functools
import gc
import hashlib
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
)
from gpu_executor.merkle import MerkleTree
from tests.merkle.conftest import OpenPlace
from tests.support.merkle_cases import draw_nodes, make_field_hashes
from tests.support.merkle_reference import (
    compute_heap,
    compute_rfc6962_root,
    compute_root,
    compute_zero_padded_root,
    keccak256,
    sha256,
)
from tests.support.toy_hashes import KECCAK256, SHA256

KINDS = ["bytes", "element", "elements"]
PLACES = ["host", "cpu", "vulkan"]


def to_python(hash: Any, nodes: Any) -> list[Any]:
    """Nodes as bytes, integers or lists of integers."""
    return [bytes(each) for each in nodes] if hash is SHA256 else nodes.tolist()


def hash_python(hash: Any, nodes: Any) -> Any:
    """The parent of such nodes."""
    if hash is SHA256:
        return sha256(b"".join(nodes))
    flat = [each for node in nodes for each in (node if isinstance(node, list) else [node])]
    return hash.hash_integers(flat)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_roots(open_place: OpenPlace, kind: str, place: str) -> None:
    device = open_place(place)
    for arity, depth in ((2, 0), (2, 1), (2, 4), (4, 2), (8, 1)):
        hash, nodes = draw_nodes(kind, arity**depth)
        given = to_python(hash, nodes)
        for exponent in range(depth + 1):
            cap = arity**exponent
            tree = MerkleTree(nodes, hash=hash, device=device, arity=arity, cap=cap)
            part = len(given) // cap
            assert to_python(hash, tree.cap) == [
                compute_root(
                    given[start : start + part], arity, functools.partial(hash_python, hash)
                )
                for start in range(0, len(given), part)
            ]
            assert (tree.depth, len(tree)) == (depth - exponent, len(given))
            assert (tree.place is None) == (place == "host")


@pytest.mark.parametrize("place", ["host", "vulkan"])
def test_leaves_of_another_width_are_hashed(open_place: OpenPlace, place: str) -> None:
    device, rng = open_place(place), np.random.default_rng(1)
    for width in (0, 7, 64):
        rows = rng.integers(0, 256, (4, width), dtype=np.uint8)
        tree = MerkleTree(rows, hash=SHA256, device=device)
        digests = [sha256(bytes(row)) for row in rows]
        assert bytes(tree.root) == compute_root(digests, 2, lambda x: sha256(b"".join(x)))
    rows = rng.integers(0, 256, (4, 32), dtype=np.uint8)
    tree = MerkleTree(rows, hash=SHA256, device=device, hash_leaves=True)
    digests = [sha256(bytes(row)) for row in rows]
    assert bytes(tree.root) == compute_root(digests, 2, lambda x: sha256(b"".join(x)))


def test_leaves_of_elements_are_hashed() -> None:
    hashes = make_field_hashes()
    one, several = hashes["element"], hashes["elements"]
    for hash, shape, options in (
        (one, (4, 3), {}),
        (one, (4, 1), {}),
        (one, (4,), {"hash_leaves": True}),
        (several, (4, 5), {}),
        (several, (4,), {}),
        (several, (4, 8), {"hash_leaves": True}),
    ):
        leaves = hash.field.random(shape, seed=2)
        tree = MerkleTree(leaves, hash=hash, **options)  # type: ignore[arg-type]
        digests = [hash.hash_integers(row) for row in leaves.reshape(4, -1).tolist()]
        assert tree.root.tolist() == compute_root(digests, 2, functools.partial(hash_python, hash))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["bytes", "element"])
def test_imt_roots(open_place: OpenPlace, kind: str, place: str) -> None:
    device = open_place(place)
    for arity, depth, count in ((2, 3, 0), (2, 3, 5), (2, 5, 8), (3, 3, 1), (5, 2, 11), (2, 0, 1)):
        hash, nodes = draw_nodes(kind, count)
        zero = bytes(range(32)) if kind == "bytes" else 9
        tree = MerkleTree(
            nodes, hash=hash, device=device, format="imt", arity=arity, depth=depth, zero=zero
        )
        expected = compute_zero_padded_root(
            to_python(hash, nodes), depth, arity, zero, functools.partial(hash_python, hash)
        )
        assert to_python(hash, tree.cap) == [expected]


def test_the_depth_of_imt_is_the_smallest_one_by_default() -> None:
    hash, nodes = draw_nodes("bytes", 5)
    tree = MerkleTree(nodes, hash=hash, format="imt")
    assert tree.depth == 3
    expected = compute_zero_padded_root(
        to_python(hash, nodes), 3, 2, bytes(32), lambda x: sha256(b"".join(x))
    )
    assert bytes(tree.root) == expected


@pytest.mark.parametrize("place", PLACES)
def test_rfc6962_roots(open_place: OpenPlace, place: str) -> None:
    device, rng = open_place(place), np.random.default_rng(3)
    for count in (0, 1, 2, 3, 6, 7, 11):
        messages = [rng.bytes(int(rng.integers(0, 70))) for _ in range(count)]
        tree = MerkleTree(messages, hash=SHA256, device=device, format="rfc6962")
        assert bytes(tree.root) == compute_rfc6962_root(messages)
    rows = rng.integers(0, 256, (5, 32), dtype=np.uint8)  # as wide as a digest, and hashed
    tree = MerkleTree(rows, hash=SHA256, device=device, format="rfc6962")
    assert bytes(tree.root) == compute_rfc6962_root([bytes(row) for row in rows])


@pytest.mark.parametrize("place", PLACES)
def test_openzeppelin_roots(open_place: OpenPlace, place: str) -> None:
    device, rng = open_place(place), np.random.default_rng(4)
    for count in (1, 2, 3, 5, 6, 8, 13):
        rows = rng.integers(0, 256, (count, 32), dtype=np.uint8)
        rows[:, :8] = rows[0, :8]  # the order is that of the last bytes
        tree = MerkleTree(rows, hash=KECCAK256, device=device, format="openzeppelin")
        assert bytes(tree.root) == compute_heap([bytes(row) for row in rows])[0]
        messages = [rng.bytes(int(rng.integers(0, 70))) for _ in range(count)]
        tree = MerkleTree(messages, hash=KECCAK256, device=device, format="openzeppelin")
        twice = [keccak256(keccak256(each)) for each in messages]
        assert bytes(tree.root) == compute_heap(twice)[0]


@pytest.mark.parametrize("place", ["cpu", "vulkan"])
def test_streamed_trees(open_place: OpenPlace, place: str) -> None:
    """Trees that do not fit are on the host, and have the same levels."""
    device: Any = open_place(place)
    rng = np.random.default_rng(5)
    trees: list[tuple[Any, Any, dict[str, Any]]] = [
        (*draw_nodes("bytes", 64), {}),
        (*draw_nodes("bytes", 1), {}),
        (*draw_nodes("elements", 64), {"arity": 4, "cap": 4}),
        (SHA256, rng.integers(0, 256, (32, 100), dtype=np.uint8), {}),
        (*draw_nodes("bytes", 64), {"cap": 64}),  # without a level above the leaves
        (*draw_nodes("element", 21), {"format": "imt", "depth": 6, "zero": 3}),
        (SHA256, rng.integers(0, 256, (21, 9), dtype=np.uint8), {"format": "imt", "arity": 3}),
        (SHA256, rng.integers(0, 256, (37, 9), dtype=np.uint8), {"format": "rfc6962"}),
        (SHA256, [bytes(size) for size in range(19)], {"format": "rfc6962"}),
        (KECCAK256, rng.integers(0, 256, (11, 9), dtype=np.uint8), {"format": "openzeppelin"}),
    ]
    for hash, leaves, options in trees:
        whole = MerkleTree(leaves, hash=hash, **options)
        on_device = None if isinstance(leaves, list) else device.to_device(leaves)
        for memory in (0, 700, 2500):
            for given in (leaves, on_device):
                if given is None:
                    continue
                tree = MerkleTree(given, hash=hash, device=device, memory=memory, **options)
                assert len(tree.levels) == len(whole.levels)
                for one, other in zip(tree.levels, whole.levels, strict=True):
                    if memory == 0:
                        assert tree.place is None
                    assert np.array_equal(np.asarray(one), np.asarray(other))
                last = len(tree) - 1
                assert tree.open([0, last]) == whole.open([0, last])


def test_messages_that_are_hashed_by_a_device_stay_in_their_order(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    messages = [bytes([each]) * each for each in range(9)]
    tree = MerkleTree(messages, hash=SHA256, device=gpu, format="rfc6962")
    nodes = tree.levels[0].numpy()
    assert [bytes(node) for node in nodes] == [sha256(b"\0" + each) for each in messages]


def test_trees_stay_on_the_device_and_copy_their_leaves(gpu: gx.PersistentVulkanBackend) -> None:
    hash, nodes = draw_nodes("bytes", 8)
    on_device = gpu.to_device(nodes)
    tree = MerkleTree(on_device, hash=hash)
    root = bytes(tree.root)
    assert all(isinstance(level, DeviceArray) for level in tree.levels)
    on_device[0] = np.zeros(32, np.uint8)
    assert MerkleTree.verify(root, 0, nodes[0], tree.open(0), hash=hash)
    tree.update(1, nodes[2])
    assert np.array_equal(on_device.numpy()[1:], nodes[1:])
    host = MerkleTree(nodes, hash=hash)
    nodes[3] = 0
    assert MerkleTree.verify(root, 0, nodes[0], host.open(0), hash=hash)


def test_a_closed_tree_gives_its_memory_back(gpu: gx.PersistentVulkanBackend) -> None:
    hash, nodes = draw_nodes("bytes", 1024)
    gpu.synchronize()
    gc.collect()
    before = gpu.array_device.free_memory if gpu.array_device else 0
    with MerkleTree(nodes, hash=hash, device=gpu) as tree:
        assert tree.nbytes == 2047 * 32
        assert "1024 leaves" in repr(tree) and "65504 bytes on" in repr(tree)
    with pytest.raises(ClosedError, match="closed"):
        tree.open(0)
    assert "closed" in repr(tree)
    gpu.synchronize()
    gc.collect()
    assert gpu.array_device is not None and gpu.array_device.free_memory >= before


def test_building_waits_for_nothing(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the hash function touches the nodes, until the root is asked for."""
    hash, nodes = draw_nodes("bytes", 16)
    fetched: list[Any] = []
    device: Any = gpu.array_device
    fetch = type(device).fetch

    def note_and_fetch(self: Any, array: Any, out: Any = None) -> Any:
        fetched.append(array)
        return fetch(self, array, out)

    monkeypatch.setattr(type(device), "fetch", note_and_fetch)
    tree = MerkleTree(gpu.to_device(nodes), hash=hash)
    assert len(fetched) == 4  # by the hash function of the tests, once a level
    tree.open([1, 3, 9])
    assert len(fetched) == 5
    assert bytes(tree.root) and bytes(tree.root)
    assert len(fetched) == 7


def test_other_sizes_of_digests() -> None:
    from tests.support.toy_hashes import ToyByteHash

    hash = ToyByteHash("sha512", lambda data: hashlib.sha512(data).digest())
    nodes = np.random.default_rng(6).integers(0, 256, (4, 64), dtype=np.uint8)
    tree = MerkleTree(nodes, hash=hash)
    expected = compute_root(
        [bytes(each) for each in nodes], 2, lambda x: hashlib.sha512(b"".join(x)).digest()
    )
    assert bytes(tree.root) == expected


# --- refusals ---


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"leaves": np.zeros((3, 32), np.uint8)}, ArgumentShapeError, "3 leaves.*power of the ari"),
        ({"leaves": np.zeros((0, 32), np.uint8)}, ArgumentShapeError, "0 leaves.*power of the ari"),
        ({"leaves": np.zeros((8, 32), np.uint8), "arity": 4}, ArgumentShapeError, "arity 4"),
        ({"leaves": np.zeros((4, 32))}, ArgumentTypeError, "float64"),
        ({"leaves": np.zeros(4, np.uint8)}, ArgumentShapeError, r"shape \(4,\)"),
        ({"leaves": np.zeros((4, 32, 1), np.uint8)}, ArgumentShapeError, "shape"),
        ({"leaves": [b"a", b"b"]}, ArgumentTypeError, "list of bytes|lists of bytes"),
        ({"leaves": [b"a", "b"], "format": "rfc6962"}, ArgumentTypeError, r"leaves\[1\] is a str"),
        ({"hash": hashlib.sha256}, ArgumentTypeError, "hash function of gx.hashes"),
        ({"format": "ssz"}, ArgumentValueError, "no format 'ssz'; there are plain"),
        ({"format": "rfc6962", "arity": 4}, ArgumentValueError, "binary"),
        ({"format": "rfc6962", "cap": 2}, ArgumentValueError, "one root"),
        ({"arity": 1}, ArgumentValueError, "2 or more"),
        ({"arity": "2"}, ArgumentTypeError, "arity is a str"),
        ({"cap": 3}, ArgumentValueError, "power of the arity"),
        ({"cap": 8}, ArgumentValueError, "cap is 8, and there are 4 leaves"),
        ({"cap": True}, ArgumentTypeError, "cap is a bool"),
        ({"depth": 4}, ArgumentValueError, "depth is for the format 'imt'"),
        ({"format": "imt", "depth": 1}, ArgumentValueError, "4 leaves need a depth of 2"),
        ({"format": "imt", "zero": b"short"}, ArgumentShapeError, "no digest"),
        ({"hash_leaves": 1}, ArgumentTypeError, "hash_leaves"),
        ({"device": "gpu"}, ArgumentTypeError, "device is a str"),
        ({"memory": 0.5}, ArgumentTypeError, "memory is a float"),
        (
            {"format": "openzeppelin", "leaves": np.zeros((0, 32), np.uint8)},
            ArgumentShapeError,
            "empty",
        ),
    ],
)
def test_refusals(options: dict[str, Any], error: type[Exception], message: str) -> None:
    given = {"leaves": np.zeros((4, 32), np.uint8), "hash": SHA256, **options}
    with pytest.raises(error, match=message):
        MerkleTree(given.pop("leaves"), **given)


def test_formats_of_bytes_refuse_hashes_of_elements() -> None:
    hash, nodes = draw_nodes("element", 4)
    for format in ("rfc6962", "openzeppelin"):
        with pytest.raises(ArgumentTypeError, match="byte hashes"):
            MerkleTree(nodes, hash=hash, format=format)
    with pytest.raises(ArgumentTypeError, match="hashes an array of bn254_fr"):
        MerkleTree(np.zeros((4, 32), np.uint8), hash=hash)
    with pytest.raises(ArgumentTypeError, match="of babybear"):
        MerkleTree(gx.fields.BABYBEAR.random(4, seed=1), hash=hash)


def test_leaves_of_another_device_are_refused(gpu: gx.PersistentVulkanBackend) -> None:
    hash, nodes = draw_nodes("bytes", 4)
    with pytest.raises(ArgumentTypeError, match="not a device of the argument"):
        MerkleTree(gpu.to_device(nodes), hash=hash, device=gx.CpuBackend())
    with pytest.raises(ArgumentValueError, match=r"2 roots; tree\.cap"):
        MerkleTree(nodes, hash=hash, cap=2).root  # noqa: B018
