"""Trees and proofs of @zk-kit/imt and @openzeppelin/merkle-tree, in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentValueError
from gpu_executor.hashes import KECCAK256, poseidon
from gpu_executor.merkle import MerkleTree
from tests.support.merkle_cases import make_field_hashes
from tests.support.merkle_packages import ask_packages
from tests.support.snarkjs import find_node

needs_node = pytest.mark.skipif(find_node() is None, reason="there is no Node")
OPTIONS: dict[str, Any] = {"hash": KECCAK256, "format": "openzeppelin"}


@needs_node
def test_imt() -> None:
    hash = make_field_hashes()["element"]
    field = hash.field
    requests: list[dict[str, Any]] = []
    trees: list[MerkleTree] = []
    for arity, depth, count in ((2, 4, 11), (2, 3, 8), (3, 3, 10), (5, 2, 1), (4, 1, 3)):
        leaves = field.random(count, seed=count)
        tree = MerkleTree(leaves, hash=hash, format="imt", arity=arity, depth=depth, zero=7)
        update = [count - 1, "123"]
        asked = {"method": "imt", "hash": "toy", "order": str(field.order), "zero": "7"}
        shape = {"arity": arity, "depth": depth, "leaves": list(map(str, leaves.tolist()))}
        requests += [{**asked, **shape}, {**asked, **shape, "updates": [update]}]
        trees.append(tree)
    answers = ask_packages(requests)
    proofs = []
    for tree, before, after in zip(trees, answers[::2], answers[1::2], strict=True):
        everything = list(range(len(tree)))
        assert str(tree.root.item()) == before["root"]
        assert tree.export_proof(everything) == before["proofs"]
        for index, document in enumerate(before["proofs"]):
            proof = MerkleTree.import_proof(document, hash=hash, format="imt", arity=tree.arity)
            assert proof == tree.open(index)
            assert MerkleTree.verify(
                field.encode(int(document["root"])),
                document["leafIndex"],
                field.encode(int(document["leaf"])),
                proof,
                hash=hash,
                format="imt",
                arity=tree.arity,
                count=tree.arity**tree.depth,
            )
        tree.update(len(tree) - 1, field.encode(123))
        assert tree.export_proof(everything) == after["proofs"]
        proofs.append(tree.export_proof(0))
    wrong = {**proofs[0], "leaf": "5"}
    asked = {"method": "verifyImt", "hash": "toy", "order": str(field.order)}
    answers = ask_packages([{**asked, "proof": each} for each in (*proofs, wrong)])
    assert answers == [True] * len(proofs) + [False]


@needs_node
def test_imt_of_poseidon(gpu: gx.PersistentVulkanBackend) -> None:
    """circomlib's Poseidon, whose trees most circuits have."""
    leaves = gx.fields.BN254_FR.random(6, seed=6)
    request = {"method": "imt", "hash": "poseidon", "zero": "0", "arity": 2, "depth": 4}
    (answer,) = ask_packages([{**request, "leaves": list(map(str, leaves.tolist()))}])
    hash = poseidon(gx.fields.BN254_FR, inputs=2)
    tree = MerkleTree(leaves, hash=hash, device=gpu, format="imt", depth=4)
    assert tree.export_proof(list(range(6))) == answer["proofs"]
    proof = tree.open([5, 0])
    assert MerkleTree.verify(tree.root, [5, 0], leaves[[5, 0]], proof, hash=hash, format="imt")


def test_path_elements_of_circuits() -> None:
    """Names and shapes of circuits: a sibling each level, without a list around it."""
    hash = make_field_hashes()["element"]
    leaves = hash.field.random(5, seed=1)
    tree = MerkleTree(leaves, hash=hash, format="imt", depth=4)
    exported = tree.export_proof(3)
    flat = [each for (each,) in exported["siblings"]]
    document = {"pathElements": flat, "pathIndices": exported["pathIndices"]}
    assert MerkleTree.import_proof(document, hash=hash, format="imt") == tree.open(3)
    for changes in (
        {"pathElements": flat[:-1]},
        {"pathIndices": [2, 0, 0, 0]},
        {"pathIndices": ["1", 0, 0, 0]},
        {"leafIndex": 4},
        {"pathElements": [[each, each] for each in flat]},
    ):
        with pytest.raises(ArgumentValueError, match="no proof in the format 'imt'"):
            MerkleTree.import_proof({**document, **changes}, hash=hash, format="imt")
    with pytest.raises(ArgumentValueError, match="KeyError"):
        MerkleTree.import_proof({"pathElements": flat}, hash=hash, format="imt")
    several = make_field_hashes()["elements"]
    wide = MerkleTree(several.field.random((3, 8), seed=2), hash=several, format="imt")
    exported = wide.export_proof(1)
    assert MerkleTree.import_proof(exported, hash=several, format="imt") == wide.open(1)


@needs_node
def test_openzeppelin_simple() -> None:
    rng = np.random.default_rng(3)
    requests, trees = [], []
    for count in (1, 2, 3, 5, 8, 11, 20):
        rows = rng.integers(0, 256, (count, 32), dtype=np.uint8)
        indices = sorted(rng.choice(count, (count + 1) // 2, replace=False).tolist())
        values = ["0x" + bytes(row).hex() for row in rows]
        requests.append({"method": "openzeppelin", "values": values, "indices": indices})
        trees.append((MerkleTree(rows, **OPTIONS), rows))
    checks: list[dict[str, Any]] = []
    for (tree, rows), request, answer in zip(trees, requests, ask_packages(requests), strict=True):
        check_tree(tree, rows, request, answer)
        assert tree.export_proof(request["indices"]) == answer["multiproof"]
        assert tree.dump() == answer["dump"]
        again = MerkleTree.load(answer["dump"], hash=KECCAK256)
        assert again.open([0]) == tree.open([0])
        root = answer["root"]
        first = {"value": request["values"][0], "proof": tree.export_proof(0), "root": root}
        checks.append({"method": "verifyOpenzeppelin", **first})
        many = {"root": root, "multiproof": tree.export_proof(request["indices"])}
        checks.append({"method": "verifyOpenzeppelinMulti", **many})
    checks.append({"method": "verifyOpenzeppelin", **first, "value": request["values"][1]})
    loads = [{"method": "loadOpenzeppelin", "dump": each.dump()} for each, _ in trees]
    answers = ask_packages([*checks, *loads])
    assert answers[: len(checks)] == [True] * (len(checks) - 1) + [False]
    assert answers[len(checks) :] == ["0x" + bytes(each.root).hex() for each, _ in trees]


@needs_node
def test_openzeppelin_standard() -> None:
    rng = np.random.default_rng(4)
    types = ["address", "uint256"]
    values = [["0x" + rng.bytes(20).hex(), str(each * 10**18)] for each in range(9)]
    # Their ABI encoding: 32 bytes each, big-endian.
    encoded = [
        bytes(12) + bytes.fromhex(address[2:]) + int(amount).to_bytes(32, "big")
        for address, amount in values
    ]
    request = {"method": "openzeppelin", "values": values, "types": types, "indices": [1, 4, 6]}
    (answer,) = ask_packages([request])
    rows = np.frombuffer(b"".join(encoded), np.uint8).reshape(9, 64)
    for leaves in (encoded, rows):
        tree = MerkleTree(leaves, **OPTIONS)
        check_tree(tree, leaves, request, answer)
        multiproof = tree.export_proof([1, 4, 6])
        assert multiproof["proof"] == answer["multiproof"]["proof"]
        assert multiproof["proofFlags"] == answer["multiproof"]["proofFlags"]
        assert tree.dump(values, types) == answer["dump"]
    assert bytes(MerkleTree.load(answer["dump"], hash=KECCAK256).root) == bytes(tree.root)
    assert ask_packages([{"method": "loadOpenzeppelin", "dump": tree.dump(values, types)}]) == [
        answer["root"]
    ]


def check_tree(tree: MerkleTree, leaves: Any, request: Any, answer: Any) -> None:
    """Compare the root and the proofs, and verify those of the package."""
    assert "0x" + bytes(tree.root).hex() == answer["root"]
    assert [tree.export_proof(index) for index in range(len(tree))] == answer["proofs"]
    root, count = bytes.fromhex(answer["root"][2:]), len(tree)
    for index, document in enumerate(answer["proofs"]):
        proof = MerkleTree.import_proof(document, hash=KECCAK256, format="openzeppelin")
        own = leaves[index : index + 1]
        assert MerkleTree.verify(root, None, own, proof, count=count, **OPTIONS)
    document, indices = answer["multiproof"], request["indices"]
    proof = MerkleTree.import_proof(document, hash=KECCAK256, format="openzeppelin")
    own = [leaves[each] for each in indices] if isinstance(leaves, list) else leaves[indices]
    assert MerkleTree.verify(root, None, own, proof, count=count, **OPTIONS)
    assert np.array_equal(proof.nodes, tree.open(indices).nodes)
    assert proof.flags == tree.open(indices).flags


def test_documents_of_other_trees() -> None:
    rows = np.random.default_rng(5).integers(0, 256, (4, 32), dtype=np.uint8)
    tree = MerkleTree(rows, **OPTIONS)
    document = tree.dump()
    damaged = {**document, "tree": [document["tree"][1], *document["tree"][1:]]}
    with pytest.raises(ArgumentValueError, match="do not follow from the leaves"):
        MerkleTree.load(damaged, hash=KECCAK256)
    for changes in ({"format": "simple-v2"}, {"values": document["values"][1:]}, {"tree": 3}):
        with pytest.raises(ArgumentValueError, match="no tree that"):
            MerkleTree.load({**document, **changes}, hash=KECCAK256)
    with pytest.raises(ArgumentValueError, match="no tree that"):
        MerkleTree.load([], hash=KECCAK256)
    with pytest.raises(ArgumentShapeError, match="4 leaves and 1 values"):
        tree.dump([1], ["uint256"])
    with pytest.raises(ArgumentValueError, match="go together"):
        tree.dump([1, 2, 3, 4])
    with pytest.raises(ArgumentShapeError, match="an index is there twice"):
        tree.export_proof([1, 1])
    others: list[Any] = ["0x", 5, {"proof": []}, ["0x00"], {"proof": [], "proofFlags": [1]}]
    for other in others:
        with pytest.raises(ArgumentValueError, match="no proof in the format 'openzeppelin'"):
            MerkleTree.import_proof(other, hash=KECCAK256, format="openzeppelin")
    plain = MerkleTree(rows, hash=KECCAK256)
    with pytest.raises(ArgumentValueError, match=r"to_dict\(\) is the proof for JSON"):
        plain.export_proof(0)
    with pytest.raises(ArgumentValueError, match="from_dict reads"):
        MerkleTree.import_proof({}, hash=KECCAK256, format="plain")
    with pytest.raises(ArgumentValueError, match="format 'openzeppelin' are dumped"):
        plain.dump()
