"""Whether leaves are in a tree, by a proof: on the host, one batch of hashes for each level."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from gpu_executor.calls.arguments import describe, is_integer
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ElementRangeError
from gpu_executor.hashes.hash_function import HashFunction
from gpu_executor.merkle import openzeppelin
from gpu_executor.merkle.nodes import Nodes, Positions, fetch, join, match_form, take
from gpu_executor.merkle.proof import MerkleProof
from gpu_executor.merkle.shape import MAX_LEAVES, TreeShape, count_levels
from gpu_executor.merkle.tree_hash import TreeHash

CALL = "MerkleTree.verify"

Indices = Any
"""An integer, or a list, a tuple or a one-dimensional NumPy array of integers."""


def parse_indices(call: str, indices: Indices) -> Positions | None:
    """Indices as an array of one axis; None if one of them does not fit 64 bits.

    Raises:
        ArgumentTypeError: They are no integers.
        ArgumentShapeError: They have several axes.
    """
    if is_integer(indices) and not isinstance(indices, np.ndarray):
        given: Any = [operator.index(indices)]
    elif isinstance(indices, np.ndarray):
        if indices.dtype.kind not in "iu":
            raise ArgumentTypeError(f"{call}: indices is an array of {indices.dtype}, not integers")
        given = indices.reshape(1) if indices.ndim == 0 else indices
        if given.ndim != 1:
            raise ArgumentShapeError(
                f"{call}: indices has the shape {given.shape}; it must be (n,)"
            )
        given = given.tolist()
    elif isinstance(indices, list | tuple | range):
        given = indices
    else:
        raise ArgumentTypeError(
            f"{call}: indices is {describe(indices)}; it must be an integer, or a list or an array "
            "of integers"
        )
    for each in given:
        if not is_integer(each) or isinstance(each, np.ndarray):
            raise ArgumentTypeError(f"{call}: an index is {describe(each)}; it must be an integer")
    if any(not -MAX_LEAVES <= each < MAX_LEAVES for each in given):
        return None
    return np.array(given, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Claim:
    """What is to be verified, on the host."""

    roots: Nodes
    indices: Positions | None
    """None: the leaves are anywhere in the tree."""
    digests: Nodes
    nodes: Nodes
    """Those of the proof."""


def verify(
    root: Any,
    indices: Indices,
    leaves: Any,
    proof: MerkleProof,
    hash: HashFunction,
    arity: int,
    format: str,
    hash_leaves: bool,
    count: int | None,
) -> bool:
    """What `MerkleTree.verify` does."""
    tree_hash = TreeHash(CALL, hash, format, arity, hash_leaves)
    if not isinstance(proof, MerkleProof):
        raise ArgumentTypeError(f"{CALL}: proof is {describe(proof)}, not a MerkleProof")
    if not (count is None or is_integer(count)):
        raise ArgumentTypeError(f"{CALL}: count is {describe(count)}, not an integer")
    try:
        claim = _load_claim(tree_hash, root, indices, leaves, proof)
    except (ArgumentShapeError, ElementRangeError):
        return False
    if claim is None or proof.format != format or proof.arity != arity:
        return False
    if tree_hash.format.sorts:
        return _verify_sorted(tree_hash, claim, proof, count)
    shape = _find_shape(proof, len(claim.roots))
    if shape is None or (count is not None and count != proof.count):
        return False
    return _verify_paths(tree_hash, shape, claim)


def _load_claim(
    tree_hash: TreeHash, root: Any, indices: Indices, leaves: Any, proof: MerkleProof
) -> _Claim | None:
    """The arguments on the host, their elements checked; None if their shapes do not fit.

    Raises:
        ArgumentTypeError: An argument has the wrong type.
        ArgumentShapeError: An argument has too many axes, or too few.
        ElementRangeError: An element is not below the modulus.
    """
    is_anywhere = indices is None and tree_hash.format.sorts
    positions = None if is_anywhere else parse_indices(CALL, indices)
    is_single = is_integer(indices) and not isinstance(indices, np.ndarray)
    digests = _hash_leaves(tree_hash, leaves, is_single)
    roots = tree_hash.load_nodes("root", root)
    nodes = tree_hash.load_nodes("the proof's nodes", proof.nodes)
    shape = tree_hash.digest_shape
    if roots.shape == shape:
        roots = roots.reshape(1, *shape)
    are_digests = all(
        each.ndim == 1 + len(shape) and each.shape[1:] == shape for each in (roots, nodes)
    )
    has_indices = is_anywhere or (positions is not None and len(positions) == len(digests))
    has_roots = are_digests and (len(roots) == 1 or tree_hash.format.name == "plain")
    if not (has_roots and has_indices and len(digests)):
        return None
    return _Claim(roots, positions, digests, nodes)


def _hash_leaves(tree_hash: TreeHash, leaves: Any, is_single: bool) -> Nodes:
    """The nodes of leaves on the host."""
    if is_single:
        if tree_hash.format.is_of_bytes and isinstance(leaves, bytes | bytearray | memoryview):
            leaves = [leaves]
        elif not isinstance(leaves, list | tuple):
            tree_hash.check_array("leaves", leaves)
            leaves = leaves.reshape(1, *leaves.shape)
    if not isinstance(leaves, list | tuple):
        leaves = tree_hash.load_nodes("leaves", leaves)
    return fetch(tree_hash.hash_leaves(tree_hash.load_leaves(leaves)))


def _find_shape(proof: MerkleProof, roots: int) -> TreeShape | None:
    """The shape of the tree that a proof speaks of; None if there is no such tree."""
    count = proof.count
    if count is None or not 1 <= count <= MAX_LEAVES:
        return None
    if proof.format == "rfc6962":
        return TreeShape.ragged(count)
    if count_levels(count, proof.arity) is None or count_levels(roots, proof.arity) is None:
        return None
    return TreeShape.full(count, proof.arity, roots) if roots <= count else None


def _verify_paths(tree_hash: TreeHash, shape: TreeShape, claim: _Claim) -> bool:
    """Whether nodes at known positions lead to the roots."""
    indices, nodes = claim.indices, claim.nodes
    if indices is None or indices.min() < 0 or indices.max() >= shape.sizes[0]:
        return False
    known, values = _merge_repeats(indices, claim.digests)
    start = 0
    for level in shape.open(known):
        stop = start + len(level.missing)
        if values is None or stop > len(nodes):
            return False
        nodes = match_form(nodes, values)
        children = take(join([values, nodes[start:stop]]), level.order)
        start, known = stop, level.parents
        if not level.carried:
            values = tree_hash.compress(children)
        elif len(known) == 1:
            values = children
        else:
            values = join([tree_hash.compress(children[:-1]), children[-1:]])
    if values is None or start < len(nodes):
        return False
    return bool(np.array_equal(values, claim.roots[known]))


def _merge_repeats(indices: Positions, digests: Nodes) -> tuple[Positions, Nodes | None]:
    """Indices in ascending order, each one once, and their digests; None if an index has two
    different ones."""
    known, first, which = np.unique(indices, return_index=True, return_inverse=True)
    values = digests[first]
    are_equal = np.array_equal(values[which.reshape(-1)], digests)
    return known, values if are_equal else None


def _verify_sorted(
    tree_hash: TreeHash, claim: _Claim, proof: MerkleProof, count: int | None
) -> bool:
    """Whether leaves and nodes in the order of the package `openzeppelin` lead to the root."""
    assert proof.flags is not None
    digests = claim.digests
    if claim.indices is None:
        digests = digests[openzeppelin.sort_digests(digests)]
    else:
        known, found = _merge_repeats(claim.indices, digests)
        stated = list(proof.indices or ())
        limit = MAX_LEAVES if count is None else count
        if found is None or sorted(stated) != known.tolist() or known[0] < 0 or known[-1] >= limit:
            return False
        digests = found[np.searchsorted(known, stated)]
        if (np.diff(openzeppelin.sort_digests(digests)) < 0).any():
            return False  # the leaves of two indices were exchanged
    root, nodes = claim.roots[0], claim.nodes
    return openzeppelin.verify_nodes(tree_hash, root, digests, nodes, proof.flags, count)
