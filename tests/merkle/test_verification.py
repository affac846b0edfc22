"""Proofs: what is opened verifies, and whatever does not match is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.typed_array import get_words
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.merkle import MerkleProof, MerkleTree
from tests.merkle.conftest import OpenPlace
from tests.support.merkle_cases import CASES, choose, draw_nodes, get_root, make_case
from tests.support.toy_hashes import KECCAK256, SHA256


def find_count(tree: MerkleTree) -> int:
    return tree.arity**tree.depth if tree.format == "imt" else len(tree)


@pytest.mark.parametrize("case", CASES)
def test_what_is_opened_verifies(case: str) -> None:
    hash, leaves, options, shared = make_case(case)
    tree = MerkleTree(leaves, hash=hash, **options)
    root, count = get_root(tree), find_count(tree)
    chosen = [[index] for index in range(len(tree))]
    chosen += [list(pair) for pair in itertools.permutations(range(len(tree)), 2)]
    chosen += [[3, 0, 3, 1], [2, 2], list(range(len(tree)))]
    for indices in chosen:
        proof, own = tree.open(indices), choose(leaves, indices)
        assert MerkleTree.verify(root, indices, own, proof, hash=hash, **shared)
        assert MerkleTree.verify(root, np.array(indices), own, proof, hash=hash, **shared)
        assert MerkleTree.verify(root, indices, own, proof, hash=hash, count=count, **shared)
        for wrong in (0, -1, count * 4):
            assert not MerkleTree.verify(
                root, indices, own, proof, hash=hash, count=wrong, **shared
            )
    for index in range(len(tree)):
        assert MerkleTree.verify(root, index, leaves[index], tree.open(index), hash=hash, **shared)
        assert MerkleTree.verify(
            root, np.int64(index), leaves[index], tree.open(np.int64(index)), hash=hash, **shared
        )


@pytest.mark.parametrize("place", ["cpu", "vulkan"])
@pytest.mark.parametrize("case", CASES)
def test_proofs_of_every_place_are_equal(open_place: OpenPlace, case: str, place: str) -> None:
    hash, leaves, options, _ = make_case(case)
    host = MerkleTree(leaves, hash=hash, **options)
    tree = MerkleTree(leaves, hash=hash, device=open_place(place), **options)
    assert tree.place is not None
    for indices in ([0], [3, 1], [2, 0, 2], [1, 3, 0, 2]):
        proof = tree.open(indices)
        assert proof == host.open(indices)
        assert isinstance(get_words(proof.nodes), np.ndarray)


def test_multi_openings_have_no_node_twice() -> None:
    hash, nodes = draw_nodes("bytes", 16)
    tree = MerkleTree(nodes, hash=hash)
    assert len(tree.open(5)) == 4
    assert len(tree.open([4, 5])) == 3
    assert len(tree.open([4, 5, 5, 4])) == 3
    assert len(tree.open([4, 5, 6, 7])) == 2
    assert len(tree.open(range(16))) == 0
    assert len(tree.open([0, 15])) == 6
    assert tree.open([0, 15]).nbytes == 6 * 32


def flip_bits(array: Any, step: int) -> Iterator[Any]:
    """The array with one of its bits changed: the first, and each one `step` bits further."""
    words = get_words(array)
    flat = np.ascontiguousarray(words).reshape(-1).view(np.uint8)
    for position in range(0, 8 * flat.size, step):
        changed = flat.copy()
        changed[position // 8] ^= 1 << position % 8
        made = changed.view(words.dtype).reshape(words.shape)
        yield made if words is array else array.wrap_like(made)


def flip_leaves(leaves: Any, step: int) -> Iterator[Any]:
    if not isinstance(leaves, list):
        yield from flip_bits(leaves, step)
        return
    for index, leaf in enumerate(leaves):
        for changed in flip_bits(np.frombuffer(leaf, np.uint8), step):
            yield [*leaves[:index], changed.tobytes(), *leaves[index + 1 :]]


def flip_proof(proof: MerkleProof, step: int) -> Iterator[MerkleProof]:
    parts = (proof.format, proof.arity, proof.count, proof.nodes, proof.flags, proof.indices)
    for nodes in flip_bits(proof.nodes, step):
        yield MerkleProof(*parts[:3], nodes, *parts[4:])
    for bit in range(66):
        yield MerkleProof(parts[0], proof.arity ^ (1 << bit), *parts[2:])
        if proof.count is not None:
            yield MerkleProof(*parts[:2], proof.count ^ (1 << bit), *parts[3:])
    if proof.flags is not None:
        assert proof.indices is not None
        for index in range(len(proof.flags)):
            flags = [each ^ (at == index) for at, each in enumerate(proof.flags)]
            yield MerkleProof(*parts[:4], flags, proof.indices)
        for indices in flip_indices(list(proof.indices)):
            yield MerkleProof(*parts[:5], indices)


def flip_indices(indices: list[int]) -> Iterator[list[int]]:
    for place, bit in itertools.product(range(len(indices)), range(66)):
        yield [each ^ (1 << bit if at == place else 0) for at, each in enumerate(indices)]


@pytest.mark.parametrize(
    ("indices", "step"),
    [
        pytest.param([1], 1),
        pytest.param([3, 0, 3], 15, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("case", CASES)
def test_flipped_bits_are_refused(case: str, indices: list[int], step: int) -> None:
    """Every bit of an opening of one leaf, and one of 15 of an opening of several."""
    hash, leaves, options, shared = make_case(case)
    tree = MerkleTree(leaves, hash=hash, **options)
    root, own, proof = get_root(tree), choose(leaves, indices), tree.open(indices)
    count = find_count(tree)

    def check(root: Any, indices: list[int], own: Any, proof: MerkleProof) -> bool:
        return MerkleTree.verify(root, indices, own, proof, hash=hash, **shared)

    assert check(root, indices, own, proof)
    used = find_used_roots(tree, indices)
    for number, changed in enumerate(flip_bits(root, step)):
        # Roots of a cap that no opened leaf is below do not matter.
        is_used = used is None or step * number // 256 in used
        assert check(changed, indices, own, proof) != is_used
    for changed in flip_leaves(own, step):
        assert not check(root, indices, changed, proof)
    for wrong in flip_indices(indices):
        assert not check(root, wrong, own, proof)
    for other in flip_proof(proof, step):
        if other.count == proof.count:
            assert not check(root, indices, own, other)
        else:
            # If the number of leaves is not known, a proof for another one may hold (RFC 6962).
            assert not MerkleTree.verify(
                root, indices, own, other, hash=hash, count=count, **shared
            )


def find_used_roots(tree: MerkleTree, indices: list[int]) -> set[int] | None:
    if len(tree.cap) == 1:
        return None
    return {index * len(tree.cap) // len(tree) for index in indices}


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_match_is_false(case: str) -> None:
    hash, leaves, options, shared = make_case(case)
    tree = MerkleTree(leaves, hash=hash, **options)
    root, proof = get_root(tree), tree.open([1, 3])
    own = choose(leaves, [1, 3])

    def check(indices: Any, leaves: Any, proof: MerkleProof, root: Any = root) -> bool:
        return MerkleTree.verify(root, indices, leaves, proof, hash=hash, **shared)

    def change_nodes(nodes: Any) -> MerkleProof:
        parts = (proof.format, proof.arity, proof.count)
        return MerkleProof(*parts, nodes, proof.flags, proof.indices)

    assert check([1, 3], own, proof)
    assert not check([3, 1], own, proof)
    assert not check([1, 3], choose(leaves, [3, 1]), proof)
    assert not check([1, 2], own, proof)
    assert not check([1, 3], choose(leaves, [1, 2]), proof)
    assert not check([1], choose(leaves, [1]), proof)
    assert not check([1, 3, 1], choose(leaves, [1, 3, 2]), proof)
    assert not check([1, 1], own, proof)
    assert not check([], choose(leaves, []), proof)
    assert not check([1, 3], choose(leaves, [1]), proof)
    assert not check([1], own, proof)
    assert not check(1, own, proof)
    assert not check([-1, 3], own, proof)
    assert not check([1, 1 << 70], own, proof)
    assert not check([1, 3], own, tree.open([1, 2]))
    assert not check([1, 3], own, tree.open([1]))
    for count in range(len(proof.nodes)):
        assert not check([1, 3], own, change_nodes(proof.nodes[:count]))
        twice = np.concatenate([proof.nodes, proof.nodes[count : count + 1]])
        assert not check([1, 3], own, change_nodes(twice))
    if len(proof.nodes) > 1:
        assert not check([1, 3], own, change_nodes(proof.nodes[::-1]))
    shape = (2, len(proof.nodes) // 2, *proof.nodes.shape[1:])
    if len(proof.nodes) % 2 == 0:
        assert not check([1, 3], own, change_nodes(proof.nodes.reshape(shape)))
    others = MerkleTree(choose(leaves, list(range(len(tree)))[::-1]), hash=hash, **options)
    if tree.format != "openzeppelin":  # sorted: the tree is the same
        assert not check([1, 3], own, others.open([1, 3]))
        assert not check([1, 3], own, proof, get_root(others))
    cap = np.concatenate([tree.cap, tree.cap])
    assert not check([1, 3], own, proof, np.concatenate([cap, cap[:1]]))
    assert not check([1, 3], own, proof, cap)
    assert not check([1, 3], own, proof, tree.cap[:0])
    assert not check([1, 3], own, proof, tree.cap.reshape(-1)[:-1])


def test_other_options_do_not_match() -> None:
    hash, nodes = draw_nodes("bytes", 16)
    tree = MerkleTree(nodes, hash=hash)
    proof = tree.open(3)
    options: list[dict[str, Any]] = [
        {"arity": 4},
        {"format": "imt"},
        {"format": "rfc6962"},
        {"format": "openzeppelin"},
        {"hash_leaves": True},
        {"hash": KECCAK256},
    ]
    for changed in options:
        given: dict[str, Any] = {"hash": hash, **changed}
        assert not MerkleTree.verify(tree.root, 3, nodes[3], proof, **given)


def test_a_node_is_no_leaf_of_a_tree_whose_number_of_leaves_is_known() -> None:
    """Whoever writes a proof also writes its number of leaves."""
    hash, nodes = draw_nodes("bytes", 8)
    tree = MerkleTree(nodes, hash=hash)
    upper = MerkleTree(tree.levels[1], hash=hash)
    assert bytes(upper.root) == bytes(tree.root)
    forged, node = upper.open(2), tree.levels[1][2]
    assert MerkleTree.verify(tree.root, 2, node, forged, hash=hash)  # as the docs say
    assert not MerkleTree.verify(tree.root, 2, node, forged, hash=hash, count=8)
    # Hashed leaves that are not as long as two nodes rule it out without the number.
    rows = np.random.default_rng(3).integers(0, 256, (8, 33), dtype=np.uint8)
    hashed = MerkleTree(rows, hash=hash)
    upper = MerkleTree(hashed.levels[1], hash=hash)
    children = np.ascontiguousarray(hashed.levels[0][4:6]).reshape(1, 64)
    assert not MerkleTree.verify(hashed.root, [2], children, upper.open(2), hash=hash, count=8)


def test_openzeppelin_refuses_inner_nodes_where_the_number_of_leaves_is_known() -> None:
    rows = np.random.default_rng(4).integers(0, 256, (6, 32), dtype=np.uint8)
    tree = MerkleTree(rows, hash=KECCAK256, format="openzeppelin")
    inner, sibling = tree.levels[2][0], tree.levels[2][1]
    forged = MerkleProof("openzeppelin", 2, None, sibling[None], [False])
    options: dict[str, Any] = {"hash": KECCAK256, "format": "openzeppelin"}
    assert MerkleTree.verify(tree.root, None, [inner.tobytes()], forged, **options) is False
    assert MerkleTree.verify(tree.root, None, inner[None], forged, **options)  # as in the package
    assert not MerkleTree.verify(tree.root, None, inner[None], forged, count=6, **options)
    everything = MerkleProof("openzeppelin", 2, None, rows[:0], [])
    assert not MerkleTree.verify(tree.root, None, tree.root[None], everything, count=6, **options)
    assert not MerkleTree.verify(tree.root, None, rows[:0], forged, **options)
    # A multiproof of nothing, whose only node is the root.
    nothing = MerkleProof("openzeppelin", 2, None, tree.cap, [])
    assert not MerkleTree.verify(tree.root, None, rows[:0], nothing, **options)
    assert not MerkleTree.verify(tree.root, None, rows[:1], nothing, **options)


@pytest.mark.parametrize(("format", "count"), [("openzeppelin", 3), ("plain", 4)])
def test_hash_leaves_tells_hashed_leaves_from_nodes(format: str, count: int) -> None:
    """A node is as wide as a digest, and a leaf of the tree is not: only a verifier knows that."""
    rows = np.random.default_rng(5).integers(0, 256, (count, 64), dtype=np.uint8)
    options: dict[str, Any] = {"hash": KECCAK256, "format": format}
    tree = MerkleTree(rows, **options)
    hashed = MerkleTree(rows, hash_leaves=True, **options)
    assert np.array_equal(tree.root, hashed.root)  # for such leaves the tree is the same
    proof, node = tree.open([0]), KECCAK256.hash(rows[:1])
    if format == "openzeppelin":
        node = KECCAK256.hash(node)
    for leaf, of_nodes, of_hashed in ((rows[:1], True, True), (node, True, False)):
        for hash_leaves, expected in ((False, of_nodes), (True, of_hashed)):
            assert expected == MerkleTree.verify(
                tree.root, [0], leaf, proof, hash_leaves=hash_leaves, count=count, **options
            )


def test_inner_nodes_of_openzeppelin_pass_unless_leaves_are_hashed() -> None:
    """With three leaves, one of the last two rows has an inner node beside a leaf."""
    rows = np.random.default_rng(6).integers(0, 256, (3, 32), dtype=np.uint8)
    options: dict[str, Any] = {"hash": KECCAK256, "format": "openzeppelin", "count": 3}
    for hash_leaves, passes in ((False, True), (True, False)):
        options["hash_leaves"] = hash_leaves
        tree = MerkleTree(rows, hash=KECCAK256, format="openzeppelin", hash_leaves=hash_leaves)
        inner, leaf = tree.levels[1]
        forged = MerkleProof("openzeppelin", 2, None, leaf[None], [False])
        assert passes == MerkleTree.verify(tree.root, None, inner[None], forged, **options)


def test_openzeppelin_has_no_negative_indices() -> None:
    leaves = np.random.default_rng(7).integers(0, 256, (3, 32), dtype=np.uint8)
    tree = MerkleTree(leaves, hash=KECCAK256, format="openzeppelin")
    proof = tree.open([0, 2])
    assert proof.indices is not None
    stated = [{0: -7, 2: 2}[each] for each in proof.indices]
    forged = MerkleProof("openzeppelin", 2, None, proof.nodes, proof.flags, stated)
    for count in (None, 3):
        assert not MerkleTree.verify(
            tree.root,
            [-7, 2],
            leaves[[0, 2]],
            forged,
            hash=KECCAK256,
            format="openzeppelin",
            count=count,
        )


def test_openzeppelin_proves_leaves_wherever_they_are() -> None:
    hash, leaves, options, shared = make_case("openzeppelin")
    tree = MerkleTree(leaves, hash=hash, **options)
    proof = tree.open([4, 1])
    assert MerkleTree.verify(tree.root, None, [leaves[4], leaves[1]], proof, hash=hash, **shared)
    without = MerkleProof(proof.format, 2, None, proof.nodes, proof.flags)
    assert MerkleTree.verify(tree.root, None, [leaves[1], leaves[4]], without, hash=hash, **shared)
    assert not MerkleTree.verify(
        tree.root, [4, 1], [leaves[4], leaves[1]], without, hash=hash, **shared
    )


def test_equal_leaves() -> None:
    for format, hash in (("openzeppelin", KECCAK256), ("rfc6962", SHA256), ("imt", SHA256)):
        leaves = np.repeat(np.arange(2, dtype=np.uint8), 3)[:, None].repeat(32, axis=1)
        tree = MerkleTree(leaves, hash=hash, format=format)
        for indices in ([0, 1], [0, 2, 5], [5, 4, 3], list(range(6))):
            proof = tree.open(indices)
            assert MerkleTree.verify(
                tree.root, indices, leaves[indices], proof, hash=hash, format=format, count=None
            )


def test_elements_that_are_not_reduced_are_refused() -> None:
    """The same element in two ways would be two proofs of one statement."""
    hash, nodes = draw_nodes("elements", 4)
    tree = MerkleTree(nodes, hash=hash)
    proof = tree.open(0)
    words = np.array(proof.nodes.words())
    words[0, 0] = 5
    for form in ("canonical", "montgomery"):
        right = gx.fields.BABYBEAR.from_words(words, form)
        words_above = words.copy()
        words_above[0, 0] += gx.fields.BABYBEAR.order
        above = right.wrap_like(words_above)
        for nodes_of_proof in (right, above):
            other = MerkleProof("plain", 2, 4, nodes_of_proof)
            assert not MerkleTree.verify(tree.root, 0, nodes[0], other, hash=hash)
        leaves = MerkleTree(np.concatenate([right[:1], nodes[1:]]), hash=hash)
        opened = leaves.open(0)
        assert MerkleTree.verify(leaves.root, 0, right[0], opened, hash=hash)
        assert not MerkleTree.verify(leaves.root, [0], above[:1], opened, hash=hash)


def test_thousands_of_leaves_take_one_call_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    hash, nodes = draw_nodes("bytes", 4096)
    tree = MerkleTree(nodes, hash=hash)
    indices = np.random.default_rng(5).integers(0, 4096, 1000)
    proof = tree.open(indices)
    monkeypatch.setattr(SHA256, "calls", 0)
    assert MerkleTree.verify(tree.root, indices, nodes[indices], proof, hash=hash)
    assert SHA256.calls == 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"root": "abc"}, "root is a str"),
        ({"root": np.zeros(32)}, "root is an ndarray of float64"),
        ({"indices": 1.5}, "indices is a float"),
        ({"indices": [1.0]}, "an index is a float"),
        ({"indices": [True]}, "an index is a bool"),
        ({"indices": np.ones(1)}, "array of float64"),
        ({"indices": None}, "indices is a NoneType"),
        ({"leaves": [b"0" * 32]}, "takes an array"),
        ({"leaves": np.zeros((1, 32), np.int8)}, "ndarray of int8"),
        ({"proof": {}}, "proof is a dict"),
        ({"hash": "sha256"}, "hash is a str"),
        ({"count": "8"}, "count is a str"),
        ({"format": 3}, "format is an int"),
    ],
)
def test_wrong_types_are_refused(changes: dict[str, Any], message: str) -> None:
    hash, nodes = draw_nodes("bytes", 8)
    tree = MerkleTree(nodes, hash=hash)
    given: dict[str, Any] = {
        "root": tree.root,
        "indices": [1],
        "leaves": nodes[[1]],
        "proof": tree.open(1),
        "hash": hash,
        **changes,
    }
    with pytest.raises(ArgumentTypeError, match=message):
        MerkleTree.verify(**given)


def test_unknown_formats_are_refused() -> None:
    hash, nodes = draw_nodes("bytes", 2)
    tree = MerkleTree(nodes, hash=hash)
    with pytest.raises(ArgumentValueError, match="no format"):
        MerkleTree.verify(tree.root, 0, nodes[0], tree.open(0), hash=hash, format="x")
