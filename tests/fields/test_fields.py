"""Fields: equality, asynchronous operations on a device, cached operands, limits of the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import RemovedNameError
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FR,
    GOLDILOCKS,
    MERSENNE31,
    Field,
    FieldArray,
)
from gpu_executor.ops import elementwise
from gpu_executor.plan.plan import WORK_GROUP_SIZES
from gpu_executor.steps import dispatch_sizes
from gpu_executor.vulkan.timeline import Timeline
from tests.conftest import OpenGpu
from tests.support.fields_under_test import (
    Place,
    draw_elements,
    in_both_places,
    invert,
    make_array,
    multiply_prefixes,
    record_puts,
    to_ints,
    transform_naively,
)

FR = BLS12_381_FR
Gpu = gx.PersistentVulkanBackend


# --- fields ---


def test_fields_of_the_same_prime_are_equal(gpu: Gpu) -> None:
    again = Field(FR.modulus)
    assert again == FR
    assert hash(again) == hash(FR)
    assert again != BABYBEAR
    assert to_ints(again.add(gpu.to_device(FR.encode([1])), 1)) == [2]


@pytest.mark.parametrize("field", [GOLDILOCKS, MERSENNE31], ids=lambda field: field.name)
@in_both_places
def test_special_primes_work_under_any_name(gpu: Gpu, field: Field, place: Place) -> None:
    for own in (
        Field(field.modulus, name="own"),
        Field(field.modulus, factors=field.prime.odd_factors or ()),
    ):
        x = make_array(gpu, place, own, [1, 2])
        assert to_ints(x * 3) == [3, 6]


# --- asynchronous operations ---


def run_long_chain(field: Field, x: FieldArray, y: FieldArray) -> FieldArray:
    """Fifty operations, each on the result of the one before."""
    for step in range(10):
        x = x * y
        x = field.fma(x, y, x)
        x = x - 7
        x = field.prefix_product(x) if step == 4 else field.square(x)
        x = field.inverse(x) if step % 5 == 0 else -x
    return x


def run_exact_chain(field: Field, x: list[int], y: list[int]) -> list[int]:
    p = field.modulus
    for step in range(10):
        x = [(a * b * b + a * b - 7) % p for a, b in zip(x, y, strict=True)]
        x = multiply_prefixes(field, x) if step == 4 else [a * a % p for a in x]
        x = [invert(field, a) if step % 5 == 0 else -a % p for a in x]
    return x


@pytest.mark.parametrize("field", [FR, GOLDILOCKS], ids=lambda field: field.name)
def test_fifty_operations_are_submitted_without_a_wait(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, field: Field
) -> None:
    values, others = draw_elements(field, 300, 1), draw_elements(field, 300, 2)
    x, y = (gpu.to_device(field.encode(each)) for each in (values, others))
    _ = x - 7, x**2, field.inverse(x)  # uploads the integer and the exponents
    stream, waits, wait = x.device.stream, [], Timeline.wait  # type: ignore[attr-defined]

    def counted(self: Timeline, *arguments: Any, **options: Any) -> None:
        waits.append(arguments)
        wait(self, *arguments, **options)

    stream.wait()
    monkeypatch.setattr(Timeline, "wait", counted)
    before = stream.submissions
    result = run_long_chain(field, x, y)
    assert (stream.submissions - before, len(waits)) == (50, 0)
    assert to_ints(result) == run_exact_chain(field, values, others)
    assert len(waits) > 0


# --- cached operands ---


def test_an_integer_operand_is_uploaded_once(
    gpu_without_tables: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = gpu_without_tables
    x = gpu.to_device(BABYBEAR.encode([1, 2, 3]))
    y = gpu.to_device(BABYBEAR.encode([4]))
    puts = record_puts(monkeypatch)
    for _ in range(3):
        assert to_ints((x + 7) * 7 - (7 + BABYBEAR.modulus)) == [49, 56, 63]
        assert to_ints(y + 7) == [11]
        assert to_ints(x**7) == [1, 128, 2187]
    assert len(puts) == 2


def test_integer_operands_do_not_evict_tables(
    gpu_without_tables: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = make_array(gpu_without_tables, "device", BABYBEAR, [1] * 512)
    BABYBEAR.ntt(x)
    for number in range(64):
        x = x + number
    puts = record_puts(monkeypatch)
    BABYBEAR.ntt(x)
    assert puts == []


# --- limits of the device ---


def test_more_elements_than_one_grid_covers(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the most work-groups that every device takes, and one invocation in each."""
    assert 65_535 * min(WORK_GROUP_SIZES) == elementwise.MAX_UNSTRIDED_ELEMENTS
    monkeypatch.setattr(elementwise, "MAX_UNSTRIDED_ELEMENTS", 65_535)
    monkeypatch.setattr(dispatch_sizes, "choose_work_groups", lambda *_: (1, 1))
    gpu, field = fresh_gpu(), BABYBEAR
    p, draw = field.modulus, np.random.default_rng(1)
    a, b = (draw.integers(0, p, 65_535 + 65, dtype=np.uint32) for _ in range(2))
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
    assert to_ints(field.sum(x)) == int(wide_a.sum()) % p


def test_exponents_of_more_bits_than_a_software_driver_loops(gpu: Gpu) -> None:
    x, e = make_array(gpu, "device", BABYBEAR, [3, 4, 0]), (1 << 70_000) | 12345
    assert to_ints(x**e) == [pow(v, e, BABYBEAR.modulus) for v in (3, 4, 0)]


@pytest.mark.slow
def test_transform_passes_fit_the_shared_memory_of_the_device(gpu: Gpu) -> None:
    """Primes of more than 628 bits need smaller passes on 32 KiB of shared memory, primes of 299
    bits and more on 16 KiB, which is the least that Vulkan allows."""
    part = 2**624 - 54525
    field = Field((part << 16) + 1, name="full 640 bits", factors=[part])
    values = draw_elements(field, 256, 1)
    # The host converts, as lavapipe takes seconds to compile kernels of so many bits.
    y = field.ntt(gpu.to_device(field.encode(values).in_form(field.form))).to_host()
    # Without a message of the validation layer.
    assert to_ints(y) == transform_naively(field, values)


def test_names_of_earlier_versions_say_the_new_ones() -> None:
    array: Any = BLS12_381_FR.encode([1, 2, 3])
    for old, new in (("on_card", "on_device"), ("card", "device"), ("to_card", "copy_to_device")):
        with pytest.raises(RemovedNameError, match=f"FieldArray.{old} is now {new}"):
            getattr(array, old)
        assert not hasattr(array, old)
    with pytest.raises(AttributeError, match="'FieldArray' object has no attribute 'cards'"):
        array.cards  # noqa: B018
