"""Hash functions of field elements: vectors of other libraries, and devices against the host."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import fmpz

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FR,
    BN254_FR,
    GOLDILOCKS,
    KOALABEAR,
    MERSENNE31,
    Field,
    FieldArray,
)
from gpu_executor.hashes import (
    FieldHash,
    Poseidon,
    field_hash,
    mimc7,
    mimc_sponge,
    poseidon,
    poseidon2,
    rpo,
)
from gpu_executor.hashes.poseidon2 import INSTANCES
from gpu_executor.hashes.sponge import AbsorptionMode, Sponge
from gpu_executor.kernels import elements, modules
from gpu_executor.kernels import field_hashes as field_hash_kernels
from gpu_executor.ops import field_hashes as field_hash_ops
from gpu_executor.ops.field_hashes import MAX_GROUPED_LOAD, choose_lanes
from tests.support.f64_emulation import compile_emulated
from tests.support.hash_packages import Request, hash_with_node
from tests.support.narrow_devices import open_described_gpu
from tests.support.plans import describe_device
from tests.support.swiftshader import open_swiftshader

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


EVERY_KIND = [
    "poseidon2-plonky3-babybear-16",
    "poseidon2-plonky3-mersenne31-16",
    "poseidon2-plonky3-goldilocks-8",
    "poseidon2-horizen-goldilocks-12",
    "poseidon2-noir-bn254_fr-4",
    "poseidon-bn254-2",
    "poseidon-plonky2",
    "rpo",
    "mimc7",
]
"""One of each kernel and family of primes, and both matrices of Poseidon2."""
WITH_CODES = [
    name for name in MAKERS if name.startswith("poseidon2-plonky3-") and name not in EVERY_KIND
]
"""Other diagonals that a single invocation multiplies by without products."""


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


@pytest.fixture(scope="module")
def from_node() -> dict[str, list[Any]]:
    """Digests by packages of Node: of rows of 1 to 16 elements by Poseidon, of 0 to 8 elements by
    Noir's Poseidon2, of `MIMC_ROWS` by MiMC."""
    by_length = [make_row(length) for length in range(17)]
    return hash_with_node(
        {
            "poseidon": Request("poseidon", by_length[1:]),
            "poseidon-lite": Request("poseidon-lite", by_length[1:]),
            "several outputs": Request("poseidon", by_length[3:4], outputs=4),
            "noir": Request("zkpassport", by_length[:9]),
            **{f"mimc7 {key}": Request("mimc7", MIMC_ROWS, key=key) for key in KEYS},
            **{
                f"mimcsponge {key} {outputs}": Request("mimcsponge", MIMC_ROWS, outputs, key)
                for key in KEYS
                for outputs in (1, 3)
            },
        }
    )


def make_row(length: int) -> list[int]:
    row: list[int] = BN254_FR.random((length,), length).tolist()
    return row


KEYS = (0, 7)
MIMC_ROWS: list[list[int]] = BN254_FR.random((3, 4), 1).tolist()


@pytest.mark.parametrize("package", ["poseidon", "poseidon-lite"])
def test_poseidon_hashes_as_packages_do(from_node: dict[str, list[Any]], package: str) -> None:
    for inputs, digest in enumerate(from_node[package], 1):
        row = BN254_FR.encode([make_row(inputs)])
        assert poseidon(BN254_FR, inputs).hash(row).tolist() == [digest], inputs


def test_poseidon_has_several_outputs(from_node: dict[str, list[Any]]) -> None:
    found = poseidon(BN254_FR, 3, outputs=4).hash(BN254_FR.encode([make_row(3)]))
    assert found.tolist() == from_node["several outputs"]


@pytest.mark.parametrize("key", KEYS)
def test_mimc_hashes_as_circomlibjs_does(from_node: dict[str, list[Any]], key: int) -> None:
    rows = BN254_FR.encode(MIMC_ROWS)
    assert mimc7(key).hash(rows).tolist() == from_node[f"mimc7 {key}"]
    for outputs in (1, 3):
        found = mimc_sponge(key, outputs).hash(rows)
        assert found.tolist() == from_node[f"mimcsponge {key} {outputs}"]


def test_noirs_poseidon2_hashes_as_zkpassport_does(from_node: dict[str, list[Any]]) -> None:
    hashed = poseidon2(BN254_FR, 4, "noir")
    for length, digest in enumerate(from_node["noir"]):
        row = BN254_FR.encode(make_row(length)).reshape(1, length)
        assert hashed.hash(row).tolist() == [digest], length


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
    states[0] = rows[0] = field.modulus - 1  # the largest element
    assert_equal(hashed.permute(gpu.to_device(states)), hashed.permute(states))
    expected = hashed.hash(rows)
    found = hashed.hash(gpu.to_device(rows))
    assert found.on_device
    assert_equal(found, expected)
    if hashed.sponge.length in (None, 2 * hashed.sponge.outputs):
        assert_equal(hashed.compress(found[:8]), hashed.compress(expected[:8]))


@pytest.mark.parametrize(
    "name",
    [
        *EVERY_KIND,
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (*WITH_CODES, "poseidon2-horizen-babybear-16", "rpo-capacity-first")
        ),
    ],
)
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


def test_rows_of_the_host_are_hashed_in_chunks(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed, rows = poseidon2(BABYBEAR), BABYBEAR.random((50, 9), 1)
    expected = hashed.hash(rows)
    monkeypatch.setattr(field_hash, "CHUNK_BYTES", 7 * 9 * 4)
    assert_equal(hashed.hash(rows, device=gpu), expected)
    assert_equal(hashed.compress(expected, device=gpu), hashed.compress(expected))


def test_chunks_of_digests_are_written_to_one_result(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device writes each chunk to its part of a large result in mapped memory."""
    hashed, states = poseidon2(BABYBEAR), BABYBEAR.random((4200, 16), 1)
    monkeypatch.setattr(field_hash, "CHUNK_BYTES", 1000 * 16 * 4)
    expected = hashed.permute(states)
    first = hashed.permute(states, device=gpu)
    assert isinstance(first.data, np.ndarray)
    assert not first.data.flags.owndata  # a view of mapped memory
    assert_equal(first, expected)
    assert_equal(hashed.permute(states[::-1], device=gpu), expected[::-1])
    assert_equal(first, expected)  # the second result has other memory


SINGLE_ON_SWIFTSHADER = [
    "poseidon2-plonky3-babybear-16",
    "poseidon2-plonky3-goldilocks-8",
    "poseidon2-noir-bn254_fr-4",
    "poseidon-plonky2",
]
"""Of `EVERY_KIND`, what SwiftShader computes with single invocations, and WebGPU with groups."""
SINGLE_ON_WEBGPU = [name for name in EVERY_KIND if name not in SINGLE_ON_SWIFTSHADER]
"""The others: those of them that have a form for groups, SwiftShader computes with groups."""


@pytest.fixture(scope="module")
def swiftshader() -> Iterator[gx.PersistentVulkanBackend]:
    with open_swiftshader() as device:
        yield device


@pytest.fixture(scope="module")
def webgpu() -> Iterator[gx.WgpuExecutor]:
    with gx.WgpuExecutor() as device:
        yield device


LONG_ROWS = [
    "rpo",
    "poseidon-plonky2",
    "poseidon2-horizen-bn254_fr-3",
    "poseidon2-noir-bn254_fr-4",
    "mimc7",
    "mimc-sponge",
]


@pytest.mark.parametrize("name", LONG_ROWS)
def test_rows_that_a_driver_does_not_finish_are_absorbed_in_several_dispatches(
    gpu: gx.PersistentVulkanBackend, name: str
) -> None:
    """Lavapipe ends the loops of an invocation after 65,535 iterations."""
    hashed = MAKERS[name]()
    permutation, rate = hashed.permutation, hashed.sponge.rate
    needed = field_hash_kernels.count_iterations(
        permutation.prime, permutation.module, permutation.width, permutation.parameters
    )
    # The elements that are absorbed before the permutations for the digest.
    squeezing = (hashed.sponge.outputs - 1) // (hashed.sponge.squeezed or hashed.sponge.outputs)
    longest = (65_535 // needed - squeezing) * rate
    for length in sorted({longest, longest + 1, longest + rate}):
        rows = hashed.field.random((2, length), length)
        assert_equal(hashed.hash(gpu.to_device(rows)), hashed.hash(rows))


def test_digests_that_a_driver_does_not_finish(gpu: gx.PersistentVulkanBackend) -> None:
    hashed, rows = mimc_sponge(outputs=60), BN254_FR.random((2, 3), 1)
    assert_equal(hashed.hash(gpu.to_device(rows)), hashed.hash(rows))


def test_a_permutation_that_a_driver_does_not_finish_is_refused(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    width, rounds = 32, (64, 0)
    matrix = [[pow(x + y, -1, GOLDILOCKS.modulus) for y in range(32, 64)] for x in range(32)]
    constants = GOLDILOCKS.random((64, width), 1)
    hashed = Poseidon(GOLDILOCKS, width, rounds, constants, matrix)
    states = GOLDILOCKS.random((1, width), 2)
    with pytest.raises(
        gx.errors.DeviceLacksError, match="after 65,535 iterations, and a permutation"
    ):
        hashed.permute(gpu.to_device(states))


def test_arrays_larger_than_a_binding_are_hashed() -> None:
    hashed, rows = poseidon2(BABYBEAR), BABYBEAR.random((300, 10), 1)

    def describe(info: DeviceInfo) -> DeviceInfo:
        limits = dataclasses.replace(info.limits, max_storage_buffer_range=5000)
        return dataclasses.replace(info, limits=limits)

    with open_described_gpu(describe) as device:
        assert_equal(hashed.hash(device.to_device(rows)), hashed.hash(rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE_ON_SWIFTSHADER)
def test_swiftshader_hashes_as_the_host(swiftshader: gx.PersistentVulkanBackend, name: str) -> None:
    """Without 64-bit integers."""
    check_on_device(swiftshader, MAKERS[name]())


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE_ON_WEBGPU)
def test_webgpu_hashes_as_the_host(webgpu: gx.WgpuExecutor, name: str) -> None:
    check_on_device(webgpu, MAKERS[name]())


@pytest.fixture
def like_a_gpu(
    request: pytest.FixtureRequest,
    gpu: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[gx.PersistentVulkanBackend]:
    """A device that keeps states in registers, with "short limbs" or "f64 limbs": integers emulate
    the latter."""
    memory = gpu._session.device_memory
    if request.param == "f64 limbs":
        for module in (elements, field_hash_kernels):
            monkeypatch.setattr(module, "load_spirv", load_emulated)
        monkeypatch.setitem(vars(memory), "f64_limbs", True)
    choose = field_hash_ops._is_unrolled
    monkeypatch.setattr(
        field_hash_ops,
        "_is_unrolled",
        lambda device, permutation, lanes: lanes == 1 or choose(device, permutation, lanes),
    )
    caches = elements._make_kernel, field_hash_kernels.hash_kernel
    for each in caches:
        each.cache_clear()
    yield gpu
    for each in caches:
        each.cache_clear()


def load_emulated(module: str) -> bytes:
    is_f64 = module.startswith("f64_limbs_")
    return compile_emulated(module) if is_f64 else modules.load_spirv(module)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("like_a_gpu", "name"),
    [
        ("short limbs", "poseidon2-noir-bn254_fr-4"),
        ("short limbs", "mimc7"),
        ("short limbs", "poseidon-plonky2"),
        ("short limbs", "rpo"),
        ("f64 limbs", "poseidon2-horizen-bn254_fr-3"),
        ("f64 limbs", "mimc-sponge"),
    ],
    indirect=["like_a_gpu"],
)
def test_kernels_of_gpus_hash_as_the_host(
    like_a_gpu: gx.PersistentVulkanBackend, name: str
) -> None:
    """States in registers, and f64 limbs: what lavapipe does not choose. Groups compute Poseidon
    with f64 limbs, below."""
    check_on_device(like_a_gpu, MAKERS[name]())


@pytest.mark.usefixtures("in_groups")
@pytest.mark.slow
@pytest.mark.parametrize("like_a_gpu", ["f64 limbs"], indirect=True)
@pytest.mark.parametrize("name", ["poseidon-bn254-2"])
def test_groups_of_gpus_hash_as_the_host(like_a_gpu: gx.PersistentVulkanBackend, name: str) -> None:
    """With f64 limbs; with integer limbs, groups are the same on every device."""
    check_on_device(like_a_gpu, MAKERS[name]())


@pytest.mark.parametrize("like_a_gpu", ["f64 limbs"], indirect=True)
def test_a_prime_near_a_power_of_two_hashes_as_the_host(
    like_a_gpu: gx.PersistentVulkanBackend,
) -> None:
    """Numbers of a state would need one more f64 limb than elements, so they have integer limbs."""
    field, generator = BLS12_381_FR, random.Random(1)
    constants, matrix = (
        [[generator.randrange(field.modulus) for _ in range(3)] for _ in range(rows)]
        for rows in (3, 3)
    )
    check_on_device(like_a_gpu, Poseidon(field, 3, (2, 1), constants, matrix))


def find_prime_below(bound: int) -> int:
    return next(each for each in range(bound - 1, 1, -2) if fmpz(each).is_prime())


def test_elements_are_at_most_a_limb_from_their_numbers() -> None:
    """As n_to_element in glsl/families/wide_limb_form.glsl needs it."""
    largest = [
        Field(find_prime_below(1 << 32 * words)).prime for words in (2, 3, 8, 12, 13, 16, 21)
    ]
    for prime, width, f64_limbs in itertools.product(largest, (2, 32), (False, True)):
        kind = field_hash_kernels.hash_family(prime, "poseidon", width, f64_limbs=f64_limbs)
        limbs = field_hash_kernels.hash_limbs(prime, width, kind)
        assert limbs is not None
        assert 0 < limbs.shift <= limbs.bits


# --- groups of invocations ---


@pytest.fixture
def in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups absorb all rows, also on CPUs."""

    def choose(_info: DeviceInfo, permutation: field_hash_ops.HashPermutation, _count: int) -> int:
        return field_hash_kernels.count_lanes(permutation.module, permutation.width)

    monkeypatch.setattr(field_hash_ops, "choose_lanes", choose)


GROUPED = [
    *(name for name in EVERY_KIND if "mimc" not in name),
    "poseidon2-plonky3-babybear-24",
    "poseidon2-horizen-bn254_fr-3",
    "poseidon-bn254-4-outputs",
    "rpo-capacity-first",
]
"""One of each kind, numbers of elements that are no power of two, and several outputs."""


@pytest.fixture(scope="module")
def in_subgroups_of_64() -> Iterator[gx.PersistentVulkanBackend]:
    """A device whose work-groups have several groups; two of them, so that each has more rows."""

    def describe(info: DeviceInfo) -> DeviceInfo:
        limits = dataclasses.replace(
            info.limits, subgroup_size=64, max_work_group_count=(2, 65535, 65535)
        )
        return dataclasses.replace(info, limits=limits)

    with open_described_gpu(describe) as device:
        yield device


@pytest.mark.usefixtures("in_groups")
@pytest.mark.parametrize("name", GROUPED)
def test_groups_of_invocations_hash_as_the_host(gpu: gx.PersistentVulkanBackend, name: str) -> None:
    check_on_device(gpu, MAKERS[name]())


@pytest.mark.usefixtures("in_groups")
@pytest.mark.slow
@pytest.mark.parametrize("inputs", [1, 16])
def test_groups_of_narrow_and_wide_states_hash_as_the_host(
    gpu: gx.PersistentVulkanBackend, inputs: int
) -> None:
    """As many lanes as elements, and one element more."""
    hashed = poseidon(BN254_FR, inputs, outputs=inputs)
    rows = BN254_FR.random((5, inputs), inputs)
    assert_equal(hashed.hash(gpu.to_device(rows)), hashed.hash(rows))


@pytest.mark.usefixtures("in_groups")
@pytest.mark.parametrize("count", [1, 2, 3, 5, 50])
def test_any_number_of_rows_is_hashed_by_groups(
    in_subgroups_of_64: gx.PersistentVulkanBackend, count: int
) -> None:
    """A work-group has four groups: one less, one more, and more rows than groups."""
    hashed, rows = poseidon(GOLDILOCKS), GOLDILOCKS.random((count, 19), count)
    assert_equal(hashed.hash(in_subgroups_of_64.to_device(rows)), hashed.hash(rows))


@pytest.mark.parametrize("form", ["single", "grouped"])
@pytest.mark.parametrize("mode", ["keep", "clear", "add"])
def test_sponges_of_any_layout_are_the_same_in_both_forms(
    request: pytest.FixtureRequest,
    in_subgroups_of_64: gx.PersistentVulkanBackend,
    mode: AbsorptionMode,
    form: str,
) -> None:
    """Several blocks, the last one short, and outputs of several permutations."""
    layout = Sponge("own", 5, first=2, mode=mode, outputs=8, output_first=1, squeezed=3)
    hashed = FieldHash("own", poseidon(GOLDILOCKS).permutation, layout, "sponge")
    rows = GOLDILOCKS.random((6, 12), 1)
    if form == "grouped":
        request.getfixturevalue("in_groups")
    assert_equal(hashed.hash(in_subgroups_of_64.to_device(rows)), hashed.hash(rows))


def test_a_gpu_hashes_few_rows_with_groups_and_many_without() -> None:
    info = dataclasses.replace(describe_device(), kind="discrete", execution_lanes=256)
    permutation = rpo().permutation
    most = 256 * MAX_GROUPED_LOAD["rescue"] // 16
    assert choose_lanes(info, permutation, most) == 16
    assert choose_lanes(info, permutation, most + 1) == 1
    assert choose_lanes(dataclasses.replace(info, kind="cpu"), permutation, 1) == 1
    assert choose_lanes(info, mimc7().permutation, 1) == 1  # it has no form for groups
    widths = {2: 2, 3: 4, 5: 8, 17: 32}
    for width, lanes in widths.items():
        assert choose_lanes(info, poseidon(BN254_FR, width - 1).permutation, 1) == lanes


def test_both_forms_hash_the_levels_of_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes: list[int] = []
    make_kernel = field_hash_kernels.hash_kernel

    def note_lanes(*args: Any, **options: Any) -> gx.Kernel:
        lanes.append(options["lanes"])
        return make_kernel(*args, **options)

    monkeypatch.setattr(field_hash_ops, "hash_kernel", note_lanes)
    hashed, leaves = poseidon2(BABYBEAR), BABYBEAR.random((64, 8), 1)
    expected = gx.MerkleTree(leaves, hash=hashed).root

    def describe(info: DeviceInfo) -> DeviceInfo:
        return dataclasses.replace(info, kind="discrete", execution_lanes=128)

    with open_described_gpu(describe) as device:
        tree = gx.MerkleTree(device.to_device(leaves), hash=hashed)
        assert_equal(tree.root, expected)
    assert lanes == [1, 1, 16, 16, 16, 16]


@pytest.mark.slow
@pytest.mark.usefixtures("in_groups")
@pytest.mark.parametrize("name", [name for name in SINGLE_ON_WEBGPU if name in GROUPED])
def test_groups_hash_as_the_host_on_swiftshader(
    swiftshader: gx.PersistentVulkanBackend, name: str
) -> None:
    """Without 64-bit integers, also in shared memory."""
    check_on_device(swiftshader, MAKERS[name]())


@pytest.mark.slow
@pytest.mark.usefixtures("in_groups")
@pytest.mark.parametrize("name", [name for name in SINGLE_ON_SWIFTSHADER if name in GROUPED])
def test_groups_hash_as_the_host_on_webgpu(webgpu: gx.WgpuExecutor, name: str) -> None:
    check_on_device(webgpu, MAKERS[name]())


def test_the_cpu_backend_hashes() -> None:
    hashed, rows = poseidon(BN254_FR, 2), BN254_FR.random((3, 2), 1)
    with gx.CpuBackend() as cpu:
        found = hashed.hash(cpu.to_device(rows))
        assert found.on_device
        assert_equal(found, hashed.hash(rows))
