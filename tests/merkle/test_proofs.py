"""`MerkleProof` as a value: it cannot be changed, is pickled, and goes through JSON."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ElementIndexError,
)
from gpu_executor.merkle import MerkleProof, MerkleTree
from tests.support.merkle_cases import CASES, choose, draw_nodes, get_root, make_case
from tests.support.toy_hashes import KECCAK256


@pytest.mark.parametrize("case", CASES)
def test_proofs_go_through_json_and_pickle(case: str) -> None:
    hash, leaves, options, shared = make_case(case)
    tree = MerkleTree(leaves, hash=hash, **options)
    proof = tree.open([3, 1, 3])
    document = json.loads(json.dumps(proof.to_dict()))
    for copy in (MerkleProof.from_dict(document, hash), pickle.loads(pickle.dumps(proof))):
        assert copy == proof
        assert hash_of(copy) == hash_of(proof)
        own = choose(leaves, [3, 1, 3])
        assert MerkleTree.verify(get_root(tree), [3, 1, 3], own, copy, hash=hash, **shared)
    assert proof != tree.open([0])
    assert proof != "proof"


def hash_of(value: object) -> int:
    return hash(value)


def test_the_dict_of_a_proof() -> None:
    hash, nodes = draw_nodes("bytes", 2)
    assert MerkleTree(nodes, hash=hash).open(0).to_dict() == {
        "format": "plain",
        "arity": 2,
        "count": 2,
        "nodes": ["0x" + nodes[1].tobytes().hex()],
    }
    hash, nodes = draw_nodes("elements", 2)
    document = MerkleTree(nodes, hash=hash).open(0).to_dict()
    assert document["nodes"] == [[str(each) for each in nodes[1].tolist()]]
    rows = np.array([[2] * 32, [1] * 32, [3] * 32], np.uint8)
    document = MerkleTree(rows, hash=KECCAK256, format="openzeppelin").open([0, 1]).to_dict()
    assert document["indices"] == [1, 0]
    assert document["flags"] == [True, False]
    assert document["count"] is None


def test_a_proof_cannot_be_changed() -> None:
    for kind in ("bytes", "element"):
        hash, nodes = draw_nodes(kind, 4)
        proof = MerkleTree(nodes, hash=hash).open(0)
        with pytest.raises(FrozenInstanceError):
            proof.count = 8
        with pytest.raises(FrozenInstanceError):
            del proof.count
        with pytest.raises(ValueError, match=r"read-only|copy"):
            proof.nodes[0] = proof.nodes[1]
        again = pickle.loads(pickle.dumps(proof))
        with pytest.raises(ValueError, match=r"read-only|copy"):
            again.nodes[0] = again.nodes[1]


def test_proofs_do_not_share_the_memory_of_what_they_were_made_of() -> None:
    nodes = np.zeros((1, 32), np.uint8)
    proof = MerkleProof("plain", 2, 2, nodes)
    nodes[:] = 1
    assert not proof.nodes.any()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"nodes": ["0x00"]}, ArgumentValueError),
        ({"nodes": ["zz" * 32]}, ArgumentValueError),
        ({"nodes": [" " * 2 + "00" * 31]}, ArgumentValueError),
        ({"nodes": [5]}, ArgumentValueError),
        ({"nodes": "0x"}, ArgumentTypeError),
        ({"count": "4"}, ArgumentTypeError),
        ({"count": None}, ArgumentTypeError),
        ({"arity": 2.0}, ArgumentTypeError),
        ({"format": 1}, ArgumentTypeError),
        ({"flags": [True]}, ArgumentTypeError),
        ({"indices": [1]}, ArgumentTypeError),
        ({"more": 1}, ArgumentValueError),
    ],
)
def test_documents_that_are_no_proofs(changes: dict[str, Any], error: type[Exception]) -> None:
    hash, nodes = draw_nodes("bytes", 4)
    document = MerkleTree(nodes, hash=hash).open(0).to_dict()
    with pytest.raises(error, match=r"MerkleProof"):
        MerkleProof.from_dict({**document, **changes}, hash)
    with pytest.raises(ArgumentValueError, match="this one has nothing"):
        MerkleProof.from_dict({}, hash)
    with pytest.raises(ArgumentTypeError, match="not a dict"):
        MerkleProof.from_dict([], hash)  # type: ignore[arg-type]


def test_elements_of_documents_are_checked() -> None:
    hash, nodes = draw_nodes("element", 2)
    document = MerkleTree(nodes, hash=hash).open(0).to_dict()
    for node in (str(hash.field.order), "-1", "0x5", 1.5, ["1", "2"], "¹"):
        with pytest.raises(ArgumentValueError, match="no list of digests"):
            MerkleProof.from_dict({**document, "nodes": [node]}, hash)


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        (8, ElementIndexError, "no leaf 8; there are 8"),
        (-1, ElementIndexError, "no leaf -1"),
        ([0, 9], ElementIndexError, "no leaf 9"),
        (1 << 70, ElementIndexError, "no leaf 1180591620717411303424"),
        ([], ArgumentShapeError, "one index at least"),
        (np.zeros((1, 1), np.int64), ArgumentShapeError, r"shape \(1, 1\)"),
        (1.0, ArgumentTypeError, "indices is a float"),
        ("1", ArgumentTypeError, "indices is a str"),
        (True, ArgumentTypeError, "indices is a bool"),
        (np.array([True]), ArgumentTypeError, "array of bool"),
    ],
)
def test_indices_that_cannot_be_opened(indices: Any, error: type[Exception], message: str) -> None:
    hash, nodes = draw_nodes("bytes", 8)
    tree = MerkleTree(nodes, hash=hash)
    with pytest.raises(error, match=message):
        tree.open(indices)
