"""Fields: which are alike, chains on the card that nobody waits for, what is kept there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FR,
    GOLDILOCKS,
    MERSENNE31,
    Field,
    FieldArray,
)
from gpu_executor.ops.elementwise import MAX_UNSTRIDED_ELEMENTS
from gpu_executor.vulkan import dispatch_cache
from gpu_executor.vulkan.timeline import Timeline
from tests.conftest import OpenGpu
from tests.support.fields_under_test import (
    FULL768,
    Place,
    count_puts,
    in_both_places,
    ints,
    inverse_of,
    made,
    polynomial,
    products_along,
    root_of,
    some,
)

FR = BLS12_381_FR
Gpu = gx.PersistentVulkanBackend


# --- fields ---


def test_arrays_say_what_they_are(gpu: Gpu) -> None:
    host = FR.encode([[1, 2], [3, 4]])
    assert repr(host) == "<FieldArray (2, 2) of bls12_381_fr on the host, canonical form>"
    there = gpu.to_device(host)
    assert repr(there) == "<FieldArray (2, 2) of bls12_381_fr on the device, montgomery form>"
    assert repr(FR) == "<Field bls12_381_fr>"


def test_fields_of_one_prime_are_one_field(gpu: Gpu) -> None:
    again = Field(FR.modulus)
    assert again == FR
    assert hash(again) == hash(FR)
    assert again != BABYBEAR
    assert ints(again.add(gpu.to_device(FR.encode([1])), 1)) == [2]


@pytest.mark.parametrize("field", [GOLDILOCKS, MERSENNE31], ids=lambda field: field.name)
@in_both_places
def test_fields_with_kernels_of_their_own_may_have_any_name(
    gpu: Gpu, field: Field, place: Place
) -> None:
    for own in (
        Field(field.modulus, name="own"),
        Field(field.modulus, factors=field.prime.odd_factors or ()),
    ):
        x = made(gpu, place, own, [1, 2])
        assert ints(x * 3) == [3, 6]


# --- chains ---


def long_chain(field: Field, x: FieldArray, y: FieldArray) -> FieldArray:
    """Fifty operations, each on what the one before it made."""
    for step in range(10):
        x = x * y
        x = field.fma(x, y, x)
        x = x - 7
        x = field.prefix_product(x) if step == 4 else field.square(x)
        x = field.inverse(x) if step % 5 == 0 else -x
    return x


def exact_chain(field: Field, x: list[int], y: list[int]) -> list[int]:
    p = field.modulus
    for step in range(10):
        x = [(a * b * b + a * b - 7) % p for a, b in zip(x, y, strict=True)]
        x = products_along(field, x) if step == 4 else [a * a % p for a in x]
        x = [inverse_of(field, a) if step % 5 == 0 else -a % p for a in x]
    return x


@pytest.mark.parametrize("field", [FR, GOLDILOCKS], ids=lambda field: field.name)
def test_fifty_operations_are_submitted_without_a_wait(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, field: Field
) -> None:
    gpu = fresh_gpu()
    values, others = some(field, 300, 1), some(field, 300, 2)
    x, y = (gpu.to_device(field.encode(each)) for each in (values, others))
    _ = x - 7, x**2, field.inverse(x)  # an integer and an exponent come to the card once
    chain, waits, wait = x.device.stream, [], Timeline.wait  # type: ignore[attr-defined]

    def counted(self: Timeline, *arguments: Any, **options: Any) -> None:
        waits.append(arguments)
        wait(self, *arguments, **options)

    chain.wait()
    monkeypatch.setattr(Timeline, "wait", counted)
    before = chain.submissions
    result = long_chain(field, x, y)
    assert (chain.submissions - before, len(waits)) == (50, 0)
    assert ints(result) == exact_chain(field, values, others)
    assert len(waits) > 0


# --- what comes to the card, and stays ---


def test_an_integer_comes_to_the_card_once(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    x = gpu.to_device(BABYBEAR.encode([1, 2, 3]))
    y = gpu.to_device(BABYBEAR.encode([4]))
    puts = count_puts(monkeypatch)
    for _ in range(3):
        assert ints((x + 7) * 7 - (7 + BABYBEAR.modulus)) == [49, 56, 63]
        assert ints(y + 7) == [11]
        assert ints(x**7) == [1, 128, 2187]
    assert len(puts) == 2


def test_integers_do_not_drive_out_tables(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    x = made(gpu, "card", BABYBEAR, [1] * 512)
    BABYBEAR.ntt(x)
    for number in range(64):
        x = x + number
    puts = count_puts(monkeypatch)
    BABYBEAR.ntt(x)
    assert puts == []


# --- the device's limits ---


def test_more_elements_than_work_groups_take_at_once(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_cache, "choose_work_groups", lambda *_: (64, 1))
    gpu, field = fresh_gpu(), BABYBEAR
    p, draw = field.modulus, np.random.default_rng(1)
    a, b = (draw.integers(0, p, MAX_UNSTRIDED_ELEMENTS + 65, dtype=np.uint32) for _ in range(2))
    x, y = (gpu.to_device(field.from_words(each, "canonical")) for each in (a, b))
    wide_a, wide_b = a.astype(np.uint64), b.astype(np.uint64)

    def words(array: FieldArray) -> Any:
        return array.in_form("canonical").numpy()

    np.testing.assert_array_equal(words(x), a)
    np.testing.assert_array_equal(words(x + y), (wide_a + wide_b) % p)
    np.testing.assert_array_equal(words(x * y), wide_a * wide_b % p)
    np.testing.assert_array_equal(words(x * 3), wide_a * 3 % p)
    np.testing.assert_array_equal(x == y, a == b)
    np.testing.assert_array_equal(words(x**2), wide_a * wide_a % p)
    np.testing.assert_array_equal(words(field.inverse(x) * x), (a != 0).astype(np.uint32))
    assert ints(field.sum(x)) == int(wide_a.sum()) % p


def test_powers_by_more_bits_than_a_loop_has_turns(gpu: Gpu) -> None:
    x, e = made(gpu, "card", BABYBEAR, [3, 4, 0]), (1 << 70_000) | 12345
    assert ints(x**e) == [pow(v, e, BABYBEAR.modulus) for v in (3, 4, 0)]


def test_passes_fit_the_shared_memory_of_the_device(gpu: Gpu) -> None:
    """Of primes longer than 628 bits on 32 KiB; on 16 KiB, the least there is, from 299 on."""
    values = some(FULL768, 256, 1)
    x = made(gpu, "card", FULL768, values)
    y, at, root = FULL768.ntt(x), polynomial(FULL768, values), root_of(FULL768, 8)
    found = ints(y)
    assert [found[i] for i in (1, 200)] == [
        int(at(pow(root, i, FULL768.modulus))) for i in (1, 200)
    ]
    assert ints(FULL768.intt(y)) == values  # and the validation layer is silent
