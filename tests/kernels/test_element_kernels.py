"""Element kernels: every operation in every family of primes, compared with Python integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernels import build
from gpu_executor.kernels.catalogue import field_kernel
from gpu_executor.kernels.elements import CONVERSIONS, OPERATIONS, element_kernel
from gpu_executor.kernels.families import FAMILIES, PACKED_ELEMENTS, family
from gpu_executor.plan import plan
from gpu_executor.plan.plan import CallPlan
from gpu_executor.primes import BLS12_381_FQ, BLS12_381_FR, Prime, words
from tests.conftest import OpenGpu
from tests.support.element_operations import (
    ExactOperations,
    Ints,
    compute_expected,
    draw_elements,
    list_edge_values,
    list_exponents,
    list_operations,
    make_operands,
    to_ints,
    to_words,
)

GOLDILOCKS = Prime("goldilocks", 2**64 - 2**32 + 1)
BABYBEAR = Prime("babybear", 15 * 2**27 + 1)
MERSENNE31 = Prime("mersenne31", 2**31 - 1)
PRIMES = {
    "goldilocks": [GOLDILOCKS],
    "mersenne31": [MERSENNE31],
    "monty31": [
        BABYBEAR,
        Prime("koalabear", 2**31 - 2**24 + 1),
        Prime("three", 3),
        Prime("full 30 bits", 2**30 - 35),
    ],
    "wide": [
        BLS12_381_FQ,
        BLS12_381_FR,
        Prime("full 32 bits", 2**32 - 5),
        Prime("33 bits", 2**32 + 15),
        Prime("63 bits", 2**63 - 25),
        Prime("full 64 bits", 2**64 - 59),
        Prime("95 bits", 2**95 - 15),
        # 224 and 480 bits fill their limbs, so 2p has one bit more than the limbs.
        Prime("full 224 bits", 2**224 - 63),
        Prime("2^255-19", 2**255 - 19),
        Prime("secp256k1", 2**256 - 2**32 - 977),
        Prime("full 480 bits", 2**480 - 47),
        Prime("full 768 bits", 2**768 - 825),
    ],
}
ALL_PRIMES = [prime for primes in PRIMES.values() for prime in primes]
BROADCASTING = ("add", "sub", "mul", "fma", "equal", "select")
ONE_OF_EACH = [GOLDILOCKS, MERSENNE31, BABYBEAR, BLS12_381_FR]
# lavapipe takes seconds to compile products of many limbs. Another prime covers what is left out.
PLAIN = {"neg", "equal", "select", "power", *CONVERSIONS}
LEFT_OUT = {
    "bls12_381_fq": {*CONVERSIONS},
    **dict.fromkeys(("33 bits", "95 bits", "full 64 bits", "full 224 bits", "secp256k1"), PLAIN),
    **dict.fromkeys(("2^255-19", "full 480 bits"), PLAIN | {"square", "fma"}),
    "full 768 bits": PLAIN | {"mul", "square", "fma"},  # test_field_kernels.py has its product
}


CALLS = [
    (prime, operation)
    for prime in ALL_PRIMES
    for operation in list_operations(prime)
    if operation not in LEFT_OUT.get(prime.name, ())
]

on_every_prime = pytest.mark.parametrize("prime", ALL_PRIMES, ids=lambda prime: prime.name)
on_one_of_each = pytest.mark.parametrize("prime", ONE_OF_EACH, ids=lambda prime: prime.name)
on_every_call = pytest.mark.parametrize(
    ("prime", "operation"), CALLS, ids=[f"{prime.name}-{name}" for prime, name in CALLS]
)


@on_every_call
def test_every_kernel_is_exact(
    gpu: gx.PersistentVulkanBackend, prime: Prime, operation: str
) -> None:
    kernel = element_kernel(prime, operation)
    if operation == "power":
        exponent = prime.modulus - 2
        ints: list[Ints] = [draw_elements(prime, 70, 1), [exponent]]
        arrays = [words.from_ints(prime, ints[0]), to_words(exponent, prime.words)]
    else:
        ints, arrays = make_operands(prime, operation, [1000] * kernel.inputs)
        if kernel.inputs == 2:  # all pairs of edge values
            known = list_edge_values(prime)
            pairs = [(a, b) for a in known for b in known]
            ints = [[*own, *(pair[side] for pair in pairs)] for side, own in enumerate(ints)]
            arrays = [words.from_ints(prime, each) for each in ints]
    result = gpu.run(kernel, *arrays)
    assert to_ints(prime, operation, result) == compute_expected(prime, operation, ints)


# Powers need spare bits: modulo primes of 224 bits they have other limbs than products.
FULL_PRIMES = [prime for prime in PRIMES["wide"] if prime.bits % 32 == 0 and prime.bits < 384]
EXPONENTS = [0, 1, 2, 3, 4, 5, 7, 12, 255, 65537, 0b1011_0111_0110, 2**32 - 1, 2**32, 3 * 2**31]
EXPONENTS += [2**64 - 1, 0xB6DB6DB6DB6DB6DB, 0x5555_5555_DDDD_DDDD, 2**96 + 2**64 - 1]


@pytest.mark.parametrize("more_words", [0, 3])
@on_one_of_each
def test_powers_by_any_exponent_are_exact(
    gpu: gx.PersistentVulkanBackend, prime: Prime, more_words: int
) -> None:
    values = draw_elements(prime, 40, 5)
    kernel = element_kernel(prime, "power")
    for exponent in [*EXPONENTS, prime.modulus - 1, prime.modulus**2 + 1]:
        count = max(1, -(-exponent.bit_length() // 32)) + more_words
        result = gpu.run(kernel, words.from_ints(prime, values), to_words(exponent, count))
        assert words.to_ints(prime, result) == compute_expected(
            prime, "power", [values, [exponent]]
        )


@pytest.mark.parametrize("prime", FULL_PRIMES, ids=lambda prime: prime.name)
def test_powers_modulo_primes_that_fill_their_words_or_limbs_are_exact(
    gpu: gx.PersistentVulkanBackend, prime: Prime
) -> None:
    values = [*list_edge_values(prime), *draw_elements(prime, 40, 5)]
    kernel = element_kernel(prime, "power")
    for exponent in list_exponents(prime):
        result = gpu.run(kernel, words.from_ints(prime, values), to_words(exponent, prime.words))
        assert words.to_ints(prime, result) == compute_expected(
            prime, "power", [values, [exponent]]
        )


@pytest.mark.parametrize("operation", BROADCASTING)
@on_one_of_each
def test_shorter_operands_repeat(
    gpu: gx.PersistentVulkanBackend, prime: Prime, operation: str
) -> None:
    kernel = element_kernel(prime, operation, broadcast=True)
    for count in (1, 7, 1000):
        for first, second in ((1, 1), (3, 1), (1, count), (count, 3), (count, count)):
            periods = [min(period, count) for period in (first, second)][: kernel.inputs - 1]
            ints, arrays = make_operands(prime, operation, [count, *periods])
            result = gpu.run(kernel, *arrays)
            assert to_ints(prime, operation, result) == compute_expected(prime, operation, ints)


def test_one_row_broadcasts_over_all_rows(gpu: gx.PersistentVulkanBackend) -> None:
    prime = BLS12_381_FR
    ints, (a, b) = make_operands(prime, "mul", [60, 5])
    rows = a.reshape(3, 4, 5, *prime.element_shape)
    for backend in (gpu, gx.CpuBackend()):
        result = backend.run(element_kernel(prime, "mul", broadcast=True), rows, b)
        assert result.shape == rows.shape
        assert words.to_ints(prime, result) == compute_expected(prime, "mul", ints)
        equal = backend.run(element_kernel(prime, "equal", broadcast=True), rows, b)
        assert (equal.shape, equal.dtype) == ((3, 4, 5), np.uint32)


@pytest.mark.parametrize(
    ("prime", "names", "per_invocation"),
    [
        (BABYBEAR, OPERATIONS, 3),
        (GOLDILOCKS, ("fma", "equal"), 1),
        (MERSENNE31, ("sub", "select"), 3),
        (BLS12_381_FR, ("add", "mul"), 1),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_a_grid_stride_loop_covers_all_elements(
    fresh_gpu: OpenGpu,
    monkeypatch: pytest.MonkeyPatch,
    prime: Prime,
    names: Sequence[str],
    per_invocation: int,
) -> None:
    monkeypatch.setattr(CallPlan, "groups", lambda _plan, _count: 2)
    monkeypatch.setattr(plan, "_choose_elements_per_invocation", lambda *_: per_invocation)
    gpu = fresh_gpu()
    for operation in names:
        kernel = element_kernel(prime, operation, grid_stride=True)
        for count in (5, 128, 1001):
            ints, arrays = make_operands(prime, operation, [count] * kernel.inputs)
            if operation == "power":
                ints[1], arrays[1] = [77], to_words(77, 1)
            result = gpu.run(kernel, *arrays)
            assert to_ints(prime, operation, result) == compute_expected(prime, operation, ints)


@pytest.mark.parametrize("per_invocation", [1, 2, 3])
def test_without_a_grid_stride_the_plan_sets_the_elements_per_invocation(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, per_invocation: int
) -> None:
    monkeypatch.setattr(plan, "_choose_elements_per_invocation", lambda *_: per_invocation)
    gpu = fresh_gpu()
    kernel = element_kernel(BABYBEAR, "mul")
    for count in (1, 63, 64, 65, 1000):
        ints, arrays = make_operands(BABYBEAR, "mul", [count] * 2)
        assert words.to_ints(BABYBEAR, gpu.run(kernel, *arrays)) == compute_expected(
            BABYBEAR, "mul", ints
        )


@pytest.mark.parametrize("operation", ["add", "fma", "select", "to_montgomery"])
def test_kernels_that_do_not_broadcast_are_chunked(
    chunking_gpu: gx.PersistentVulkanBackend, operation: str
) -> None:
    kernel = element_kernel(BABYBEAR, operation)
    ints, arrays = make_operands(BABYBEAR, operation, [250] * kernel.inputs)
    result = chunking_gpu.run(kernel, *arrays)
    assert words.to_ints(BABYBEAR, result) == compute_expected(BABYBEAR, operation, ints)


def test_results_stay_on_the_device(gpu: gx.PersistentVulkanBackend) -> None:
    prime = BLS12_381_FR
    ints, arrays = make_operands(prime, "mul", [300, 300])
    a, b = (gpu.to_device(array) for array in arrays)
    product = gpu.run(element_kernel(prime, "mul"), a, b, keep=True)
    doubled = gpu.run(element_kernel(prime, "add"), product, product, keep=True)
    same = gpu.run(element_kernel(prime, "equal"), doubled, a)
    exact = ExactOperations(prime)
    wanted = [exact.double(exact.mul(x, y)) for x, y in zip(*ints, strict=True)]
    assert words.to_ints(prime, doubled.numpy()) == wanted
    assert same.tolist() == [int(x == y) for x, y in zip(wanted, ints[0], strict=True)]


@on_every_prime
def test_references_are_exact(prime: Prime) -> None:
    cpu = gx.CpuBackend()
    for operation in list_operations(prime):
        kernel = element_kernel(prime, operation)
        ints, arrays = make_operands(prime, operation, [30] * kernel.inputs)
        if operation == "power":
            ints[1], arrays[1] = [2**40 + 77], to_words(2**40 + 77, 2)
        result = cpu.run(kernel, *arrays)
        assert to_ints(prime, operation, result) == compute_expected(prime, operation, ints)
        if operation in BROADCASTING:
            ints, arrays = make_operands(prime, operation, [30, *(7, 1)[: kernel.inputs - 1]])
            result = cpu.run(element_kernel(prime, operation, broadcast=True), *arrays)
            assert to_ints(prime, operation, result) == compute_expected(prime, operation, ints)


def test_checked_products_of_a_modulus_that_fills_its_limbs_are_exact(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    (prime,) = (prime for prime in PRIMES["wide"] if prime.name == "full 224 bits")
    ints, arrays = make_operands(prime, "mul", [1000, 1000])
    result = gpu.run(field_kernel(prime, "mont_mul"), *arrays)
    assert words.to_ints(prime, result) == compute_expected(prime, "mul", ints)


def test_every_prime_has_its_family() -> None:
    assert {name: [prime.name for prime in primes] for name, primes in PRIMES.items()} == {
        name: [prime.name for prime in ALL_PRIMES if family(prime) == name] for name in PRIMES
    }
    assert {*PRIMES, "f64_limbs"} == set(FAMILIES)  # test_doubles.py


def test_the_modulus_determines_the_family_not_the_name() -> None:
    assert family(Prime("p", GOLDILOCKS.modulus)) == "goldilocks"
    assert family(Prime("goldilocks", 2**61 - 1)) == "wide"


@on_every_prime
def test_a_kernel_is_the_same_object_each_time(prime: Prime) -> None:
    again = Prime(prime.name, prime.modulus)
    for operation in list_operations(prime):
        kernel = element_kernel(prime, operation)
        assert element_kernel(again, operation, broadcast=False) is kernel
        assert not kernel.status
        assert kernel.split == ("whole" if operation == "power" else "elements")
        assert kernel.push_bytes <= 128, "what every device has"


@on_every_prime
def test_broadcasting_shares_the_code(prime: Prime) -> None:
    for operation in BROADCASTING:
        plain = element_kernel(prime, operation)
        shorter = element_kernel(prime, operation, broadcast=True)
        assert (shorter.digest, shorter.push_bytes) == (plain.digest, plain.push_bytes)
        assert (plain.split, shorter.split) == ("elements", "whole")


def test_one_spirv_serves_a_family() -> None:
    for primes in PRIMES.values():
        for operation in list_operations(primes[0]):
            assert len({element_kernel(prime, operation).digest for prime in primes}) == 1


def test_primes_below_32_bits_need_no_64_bit_integers_but_for_powers() -> None:
    for prime in (BABYBEAR, MERSENNE31):
        for operation in list_operations(prime):
            names = element_kernel(prime, operation).interface.capability_names()
            assert ("Int64" in names) == (operation == "power")


def test_an_unknown_operation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        gx.errors.KernelError, match=r"no element kernel 'div'; the operations are add, sub, neg, "
    ):
        element_kernel(BLS12_381_FR, "div")


@pytest.mark.parametrize("operation", CONVERSIONS)
@pytest.mark.parametrize("prime", [GOLDILOCKS, MERSENNE31], ids=lambda prime: prime.name)
def test_canonical_families_have_no_montgomery_conversions(prime: Prime, operation: str) -> None:
    with pytest.raises(gx.errors.KernelError, match="elements are always in canonical form"):
        element_kernel(prime, operation)


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS) - set(BROADCASTING)))
def test_operations_with_one_operand_do_not_broadcast(operation: str) -> None:
    with pytest.raises(gx.errors.KernelError, match=f"{operation} has no second operand"):
        element_kernel(BLS12_381_FR, operation, broadcast=True)


def test_an_operand_longer_than_the_first_is_an_error(gpu: gx.PersistentVulkanBackend) -> None:
    _, arrays = make_operands(BABYBEAR, "fma", [5, 5, 6])
    message = "argument 2 has 6 elements, more than the 5 of argument 0"
    with pytest.raises(gx.errors.ArgumentShapeError, match=message):
        gpu.run(element_kernel(BABYBEAR, "fma", broadcast=True), *arrays)


def test_every_family_has_its_module_and_source_digest() -> None:
    (mul,) = (build.GLSL / "elements").glob("mul.comp")
    compiled = [source for source in build.sources() if source.path == mul]
    stems = [f"{name}_mul" for name in FAMILIES] + [
        f"{name}_packed_mul" for name in PACKED_ELEMENTS
    ]
    stems.append("wide_checked_mul")
    assert [source.stem for source in compiled] == sorted(stems)
    assert len({build.source_digest(source) for source in compiled}) == len(stems)
