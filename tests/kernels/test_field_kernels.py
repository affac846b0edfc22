"""Checked field kernels: exact for any prime, and elements out of range are reported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.cpu import field_oracle
from gpu_executor.kernels.catalogue import field_kernel, mont_mul_chain_kernel
from gpu_executor.primes import BLS12_381_FQ, BLS12_381_FR, Prime, words
from gpu_executor.primes.prime import MAX_BITS
from tests.conftest import OpenGpu, elements, on_both_paths
from tests.support.pairwise import choose_pairwise

Exact = Callable[[Prime, list[int], list[int]], list[int]]


PRIMES = [
    Prime("three", 3),
    Prime("2^31-1", 2**31 - 1),
    Prime("2^32-5", 2**32 - 5),
    Prime("2^61-1", 2**61 - 1),
    Prime("goldilocks", 2**64 - 2**32 + 1),
    Prime("full 96 bits", 2**96 - 17),
    Prime("2^127-1", 2**127 - 1),
    Prime("2^255-19", 2**255 - 19),
    Prime("secp256k1", 2**256 - 2**32 - 977),
    Prime("full 768 bits", 2**MAX_BITS - 825),
]
OPERATIONS: dict[str, Exact] = {
    "add": field_oracle.add,
    "sub": field_oracle.sub,
    "mont_mul": field_oracle.mont_mul,
}
FQ_ADD, FQ_MUL = (gx.kernels.load(f"bls12_381_fq_{name}") for name in ("add", "mont_mul"))

on_every_prime = pytest.mark.parametrize("prime", PRIMES, ids=lambda prime: prime.name)


def edges(prime: Prime) -> list[int]:
    """Values at which carries, borrows and reductions change, all below the modulus."""
    p = prime.modulus
    near = [(1 << bit) + off for bit in range(0, prime.bits, 29) for off in (-1, 0, 1)]
    near += [p - (1 << bit) for bit in range(0, prime.bits, 31)]
    values = [0, 1, p // 2, p // 2 + 1, p - 1, prime.r_mod_p, prime.r2_mod_p, *near]
    return sorted({value for value in values if 0 <= value < p})


def check_exact(
    gpu: gx.PersistentVulkanBackend, prime: Prime, xs: list[int], ys: list[int]
) -> None:
    a, b = words.from_ints(prime, xs), words.from_ints(prime, ys)
    for operation, exact in OPERATIONS.items():
        result = gpu.run(field_kernel(prime, operation), a, b)
        assert words.to_ints(prime, result) == exact(prime, xs, ys), operation


@on_every_prime
def test_one_spirv_serves_every_prime(gpu: gx.PersistentVulkanBackend, prime: Prime) -> None:
    known = edges(prime)
    xs = [x for x in known for _ in known] + elements(prime, 200, 1)
    ys = known * len(known) + elements(prime, 200, 2)
    check_exact(gpu, prime, xs, ys)


@pytest.mark.parametrize("prime", [BLS12_381_FQ, BLS12_381_FR, *PRIMES[3:7]], ids=lambda p: p.name)
@given(data=st.data())
@settings(max_examples=15)
def test_random_elements_are_exact(
    gpu: gx.PersistentVulkanBackend, prime: Prime, data: st.DataObject
) -> None:
    element = st.integers(0, prime.modulus - 1)
    pairs = data.draw(st.lists(st.tuples(element, element), min_size=1, max_size=20))
    xs, ys = ([pair[side] for pair in pairs] for side in (0, 1))
    check_exact(gpu, prime, xs, ys)


@pytest.mark.parametrize(
    ("prime", "length"),
    [(BLS12_381_FQ, 2), (BLS12_381_FR, 64), (PRIMES[1], 64)],
    ids=lambda each: getattr(each, "name", each),
)
def test_a_chain_of_products_is_exact(
    gpu: gx.PersistentVulkanBackend, prime: Prime, length: int
) -> None:
    xs, ys = elements(prime, 130, 1), elements(prime, 130, 2)
    result = gpu.run(
        mont_mul_chain_kernel(prime, length), words.from_ints(prime, xs), words.from_ints(prime, ys)
    )
    expected = xs
    for _ in range(length):
        expected = field_oracle.mont_mul(prime, expected, ys)
    assert words.to_ints(prime, result) == expected


@pytest.mark.parametrize("argument", [0, 1])
def test_a_chain_of_products_reports_an_element_out_of_range(
    gpu: gx.PersistentVulkanBackend, argument: int
) -> None:
    arrays = [words.from_ints(BLS12_381_FQ, elements(BLS12_381_FQ, 70, seed)) for seed in (1, 2)]
    arrays[argument][66] = words.from_ints(BLS12_381_FQ, [BLS12_381_FQ.modulus])[0]
    with pytest.raises(gx.ElementRangeError) as caught:
        gpu.run(mont_mul_chain_kernel(BLS12_381_FQ, 2), *arrays)
    assert (caught.value.argument, caught.value.index) == (argument, 66)


@pytest.mark.parametrize(
    ("prime", "operation", "device_local"),
    choose_pairwise(PRIMES, OPERATIONS, (True, False)),
    ids=lambda each: getattr(each, "name", each),
)
def test_the_modulus_itself_and_all_ones_are_out_of_range(
    gpu: gx.PersistentVulkanBackend, prime: Prime, operation: str, device_local: bool
) -> None:
    kernel = field_kernel(prime, operation)
    good = elements(prime, 70, 1)
    for bad in (prime.modulus, prime.r - 1):
        xs = words.from_ints(prime, [*good[:66], bad, *good[67:]])
        ys = words.from_ints(prime, good)
        for argument, arrays in enumerate(((xs, ys), (ys, xs))):
            with pytest.raises(gx.ElementRangeError) as caught:
                gpu.run(kernel, *arrays, device_local=device_local)
            assert (caught.value.argument, caught.value.index) == (argument, 66)
            assert f"element 66 of argument {argument}" in str(caught.value)


@on_both_paths
@pytest.mark.parametrize("kernel", [FQ_ADD, FQ_MUL], ids=lambda kernel: kernel.name)
@given(bad=st.sets(st.tuples(st.integers(0, 249), st.integers(0, 1)), min_size=1, max_size=6))
@settings(max_examples=20)
def test_the_first_bad_element_is_reported_across_chunks(
    chunking_gpu: gx.PersistentVulkanBackend,
    kernel: gx.Kernel,
    device_local: bool,
    bad: set[tuple[int, int]],
) -> None:
    arrays = [words.from_ints(BLS12_381_FQ, elements(BLS12_381_FQ, 250, seed)) for seed in (1, 2)]
    modulus = words.from_ints(BLS12_381_FQ, [BLS12_381_FQ.modulus])[0]
    for index, argument in bad:
        arrays[argument][index] = modulus
    with pytest.raises(gx.ElementRangeError) as caught:
        chunking_gpu.run(kernel, *arrays, device_local=device_local)
    assert (caught.value.index, caught.value.argument) == min(bad)


@pytest.mark.parametrize(
    ("index", "device_local"),
    [(0, True), (99, False), (100, True), (249, False)],
    ids=["0-device-local", "99-host-visible", "100-device-local", "249-host-visible"],
)
def test_the_backend_works_after_a_bad_element(
    fresh_gpu: OpenGpu, device_local: bool, index: int
) -> None:
    gpu = fresh_gpu(stream_chunk_elems=100)
    good = words.from_ints(BLS12_381_FQ, elements(BLS12_381_FQ, 250, 1))
    bad = good.copy()
    bad[index] = np.iinfo(np.uint64).max
    expected = words.mont_mul(BLS12_381_FQ, good, good)
    for _ in range(3):
        with pytest.raises(gx.ElementRangeError):
            gpu.run(FQ_MUL, good, bad, device_local=device_local)
        np.testing.assert_array_equal(
            gpu.run(FQ_MUL, good, good, device_local=device_local), expected
        )
    assert gpu.stats().slots.in_use == 0


def test_an_array_of_bad_elements_reports_the_first(gpu: gx.PersistentVulkanBackend) -> None:
    bad = np.full((3000, 6), np.iinfo(np.uint64).max, np.uint64)
    with pytest.raises(gx.ElementRangeError, match="element 0 of argument 0"):
        gpu.run(FQ_ADD, bad, bad)


def test_the_one_shot_backend_reports_a_bad_element() -> None:
    good = words.from_ints(BLS12_381_FQ, elements(BLS12_381_FQ, 70, 1))
    bad = good.copy()
    bad[5] = np.iinfo(np.uint64).max
    backend = gx.VulkanSpirvBackend()
    with pytest.raises(gx.ElementRangeError, match="element 5 of argument 1"):
        backend.run_field_add(good, bad)
    np.testing.assert_array_equal(
        backend.run_field_add(good, good), words.add(BLS12_381_FQ, good, good)
    )
