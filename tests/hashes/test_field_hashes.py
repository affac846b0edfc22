"""Hash functions of field elements: vectors of other libraries, and devices against the host."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.fields import (
    BABYBEAR,
    BN254_FR,
    GOLDILOCKS,
    KOALABEAR,
    MERSENNE31,
    Field,
    FieldArray,
)
from gpu_executor.hashes import FieldHash, mimc7, mimc_sponge, poseidon, poseidon2, rpo
from gpu_executor.hashes.poseidon2 import INSTANCES
from tests.support.hash_packages import hash_with_node

VECTORS = json.loads(
    (Path(__file__).parent.parent / "data" / "field_hashes.json").read_text(encoding="utf-8")
)
FIELDS = {each.name: each for each in (BABYBEAR, KOALABEAR, MERSENNE31, GOLDILOCKS, BN254_FR)}
MAKERS: dict[str, Callable[[], FieldHash]] = {
    **{
        f"poseidon2-{variant}-{name}-{width}": lambda n=name, w=width, v=variant: poseidon2(  # type: ignore[misc]
            FIELDS[n], w, v
        )
        for variant, name, width in INSTANCES
        if (variant, name) != ("plonky3", "bn254_fr")  # the same as Horizen's
    },
    "poseidon-bn254-1": lambda: poseidon(BN254_FR, 1),
    "poseidon-bn254-2": lambda: poseidon(BN254_FR, 2),
    "poseidon-bn254-4-outputs": lambda: poseidon(BN254_FR, 4, outputs=3),
    "poseidon-plonky2": lambda: poseidon(GOLDILOCKS),
    "rpo": rpo,
    "rpo-capacity-first": lambda: rpo(capacity_first=True),
    "mimc7": lambda: mimc7(3),
    "mimc-sponge": lambda: mimc_sponge(5, outputs=3),
}


def read(values: list[str]) -> list[int]:
    return [int(each, 0) for each in values]


def assert_equal(found: FieldArray, expected: FieldArray) -> None:
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


# --- vectors ---


@pytest.mark.parametrize(
    "vector",
    VECTORS["poseidon2"]["permutations"],
    ids=lambda v: f"{v['variant']}-{v['field']}-{v['width']}",
)
def test_poseidon2_permutes_as_published(vector: dict[str, Any]) -> None:
    field = FIELDS[vector["field"]]
    hashed = poseidon2(field, vector["width"], vector["variant"])
    state = field.encode([read(vector["input"])])
    assert hashed.permute(state).tolist() == [read(vector["output"])]


def test_plonky2s_poseidon_permutes_as_published() -> None:
    vectors = VECTORS["plonky2"]["permutations"]
    states = GOLDILOCKS.encode([read(each["input"]) for each in vectors])
    found = poseidon(GOLDILOCKS, variant="plonky2").permute(states)
    assert found.tolist() == [read(each["output"]) for each in vectors]


@pytest.mark.parametrize("capacity_first", [False, True])
def test_rpo_hashes_as_published(capacity_first: bool) -> None:
    vectors = VECTORS["rpo"]["capacity first"] if capacity_first else VECTORS["rpo"]
    hashed = rpo(capacity_first=capacity_first)
    for length, digest in enumerate(vectors["digests"], 1):
        row = GOLDILOCKS.encode([list(range(length))])
        assert hashed.hash(row).tolist() == [read(digest)], length


def test_rpo_of_nothing_is_zero_and_merging_is_hashing() -> None:
    assert rpo().hash(GOLDILOCKS.zeros((2, 0))).tolist() == [[0] * 4] * 2
    digests = GOLDILOCKS.random((4, 4), 1)
    assert_equal(rpo().compress(digests), rpo().hash(digests.reshape(2, 8)))
    assert_equal(rpo().compress(digests, 4), rpo().hash(digests.reshape(1, 16)))


def test_poseidon_hashes_as_circomlibs_readme_says() -> None:
    # circomlibjs 0.1.7, test/poseidon.js
    found = poseidon(BN254_FR, 2).hash(BN254_FR.encode([[1, 2]]))
    expected = 0x115CC0F5E7D690413DF64C6B9662E9CF2A3617F2743245519E19607A4417189A
    assert found.tolist() == [expected]


@pytest.mark.parametrize("package", ["poseidon", "poseidon-lite"])
def test_poseidon_hashes_as_packages_do(package: str) -> None:
    rows = [BN254_FR.random((inputs,), inputs).tolist() for inputs in range(1, 17)]
    expected = hash_with_node(package, rows)
    for row, digest in zip(rows, expected, strict=True):
        hashed = poseidon(BN254_FR, len(row))
        assert hashed.hash(BN254_FR.encode([row])).tolist() == [digest], len(row)


def test_poseidon_has_several_outputs() -> None:
    rows = BN254_FR.random((2, 3), 1)
    expected = hash_with_node("poseidon", rows.tolist(), outputs=4)
    assert poseidon(BN254_FR, 3, outputs=4).hash(rows).tolist() == expected


@pytest.mark.parametrize("key", [0, 7])
def test_mimc_hashes_as_circomlibjs_does(key: int) -> None:
    rows = BN254_FR.random((3, 4), 1)
    assert mimc7(key).hash(rows).tolist() == hash_with_node("mimc7", rows.tolist(), key=key)
    for outputs in (1, 3):
        expected = hash_with_node("mimcsponge", rows.tolist(), outputs, key)
        assert mimc_sponge(key, outputs).hash(rows).tolist() == expected


def test_noirs_poseidon2_hashes_as_zkpassport_does() -> None:
    rows = [BN254_FR.random((length,), length).tolist() for length in range(9)]
    expected = hash_with_node("zkpassport", rows)
    hashed = poseidon2(BN254_FR, 4, "noir")
    for row, digest in zip(rows, expected, strict=True):
        array = BN254_FR.encode(row).reshape(1, len(row))
        assert hashed.hash(array).tolist() == [digest], len(row)


# --- sponges and compressions ---


def permute_ints(hashed: FieldHash, state: list[int]) -> list[int]:
    found: list[int] = hashed.permute(hashed.field.encode([state])).tolist()[0]
    return found


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 20])
def test_the_padding_free_sponge_overwrites(length: int) -> None:
    """As Plonky3 describes it: what a last block does not overwrite remains."""
    hashed = poseidon2(BABYBEAR, 16)
    row = BABYBEAR.random((length,), 1).tolist()
    state = [0] * 16
    for at in range(0, length, 8):
        block = row[at : at + 8]
        state = permute_ints(hashed, [*block, *state[len(block) :]])
    found = hashed.hash(BABYBEAR.encode(row).reshape(1, length))
    assert found.tolist() == [state[:8]]


def test_children_are_compressed_by_a_truncated_permutation_or_by_the_sponge() -> None:
    narrow, wide = poseidon2(BABYBEAR, 16), poseidon2(BABYBEAR, 24)
    digests = BABYBEAR.random((4, 8), 1)
    flat = digests.reshape(-1).tolist()
    states = [permute_ints(narrow, flat[:16]), permute_ints(narrow, flat[16:])]
    assert narrow.compress(digests).tolist() == [state[:8] for state in states]
    filled = permute_ints(wide, [*flat[:16], *[0] * 8])
    assert wide.compress(digests[:2]).tolist() == [filled[:8]]
    assert_equal(narrow.compress(digests, 4), narrow.hash(digests.reshape(1, 32)))


# --- devices ---


def check_on_device(gpu: Any, hashed: FieldHash) -> None:
    """Permutations, hashes and parents of a device against those of the host."""
    field, count = hashed.field, 9
    length = hashed.sponge.length or 11
    states, rows = field.random((count, hashed.width), 1), field.random((count, length), 2)
    assert_equal(hashed.permute(gpu.to_device(states)), hashed.permute(states))
    expected = hashed.hash(rows)
    found = hashed.hash(gpu.to_device(rows))
    assert found.on_device
    assert_equal(found, expected)
    if hashed.sponge.length in (None, 2 * hashed.sponge.outputs):
        assert_equal(hashed.compress(found[:8]), hashed.compress(expected[:8]))


@pytest.mark.parametrize("name", MAKERS)
def test_a_device_hashes_as_the_host(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    check_on_device(gpu, MAKERS[name]())


@pytest.mark.parametrize("field", [BABYBEAR, BN254_FR], ids=lambda each: each.name)
def test_arrays_of_any_form_and_views_are_hashed(
    gpu: gx.PersistentVulkanBackend, field: Field
) -> None:
    hashed = poseidon2(field)
    rows = field.random((7, 10), 1)
    expected = hashed.hash(rows)
    assert_equal(hashed.hash(rows.in_form("montgomery")), expected)
    on_device = gpu.to_device(rows)
    assert_equal(hashed.hash(on_device.in_form("canonical")), expected)
    assert_equal(hashed.hash(rows, device=gpu), expected)
    assert not hashed.hash(rows, device=gpu).on_device
    turned = gpu.to_device(field.encode(np.array(rows.tolist(), object).T)).T
    assert_equal(hashed.hash(turned), expected)
    assert_equal(hashed.hash(rows[::2, 1:]), hashed.hash(on_device[::2, 1:]))


@pytest.mark.parametrize("length", [0, 3])
def test_no_rows_and_rows_without_elements(gpu: gx.PersistentVulkanBackend, length: int) -> None:
    hashed = poseidon2(BN254_FR, 4, "noir")
    for count in (0, 3):
        rows = BN254_FR.random((count, length), 1)
        expected = hashed.hash(rows)
        assert expected.shape == (count,)
        found = hashed.hash(gpu.to_device(rows))
        assert found.on_device
        assert_equal(found, expected)
        assert_equal(hashed.hash(rows, device=gpu), expected)


def test_the_cpu_backend_hashes() -> None:
    hashed, rows = poseidon(BN254_FR, 2), BN254_FR.random((3, 2), 1)
    with gx.CpuBackend() as cpu:
        found = hashed.hash(cpu.to_device(rows))
        assert found.on_device
        assert_equal(found, hashed.hash(rows))
