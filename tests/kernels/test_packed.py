"""Packed kernels: exact for every count and alignment, and they write nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import Dispatch, Step
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, MERSENNE31, Field, FieldArray
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.elements import CONVERSIONS, OPERATIONS, PACKABLE, element_kernel
from gpu_executor.kernels.families import PACKED_ELEMENTS, family
from gpu_executor.ops.elementwise import can_pack, exponent_words
from gpu_executor.plan import plan
from gpu_executor.primes import Prime, words
from gpu_executor.vulkan.device_memory import DeviceMemory
from tests.conftest import OpenGpu
from tests.support.element_operations import (
    ExactOperations,
    compute_expected,
    draw_elements,
    list_operations,
    make_operands,
)

FIELDS = [BABYBEAR, MERSENNE31, GOLDILOCKS]
PRIMES = [*(field.prime for field in FIELDS), Prime("three", 3), Prime("30 bits", 2**30 - 35)]
OPERANDS = [name for name in PACKABLE if name != "power"]
"""The operations whose operands all have as many elements as the result."""
CALLS = [(prime, name) for prime in PRIMES for name in list_operations(prime) if name in OPERANDS]
COUNTS = [*range(1, 10), 1023, 1024, 1025]
ALIGNED = 256
"""An alignment in bytes that every device accepts for a binding."""
CANARY = 0xA5

on_every_call = pytest.mark.parametrize(
    ("prime", "operation"), CALLS, ids=[f"{prime.name}-{name}" for prime, name in CALLS]
)
on_every_field = pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)


def run_in_the_middle(
    device: DeviceMemory,
    prime: Prime,
    kernel: Kernel,
    inputs: Sequence[Sequence[int]],
    more: Sequence[DeviceArray] = (),
    **how: Any,
) -> list[int]:
    """The result of a kernel in the middle of a larger array; checks that the rest is unchanged.
    The arrays of `more` follow the inputs.

    The binding extends beyond the last result, so the driver's bounds checks do not hide a write
    behind it.
    """
    count, before = len(inputs[0]), ALIGNED // prime.element_dtype.itemsize
    around = np.full((before + count + before, *prime.element_shape), CANARY, prime.column_dtype)
    whole = device.put(around)
    arrays = [device.put(words.from_ints(prime, each)) for each in inputs]
    device.submit([Dispatch(kernel, (*arrays, *more, whole[before:]), count, **how)])
    found = whole.numpy()
    assert np.array_equal(found[:before], around[:before])
    assert np.array_equal(found[before + count :], around[before + count :])
    return words.to_ints(prime, found[before : before + count])


@on_every_call
def test_every_count_is_exact_and_nothing_else_is_written(
    gpu: gx.PersistentVulkanBackend, prime: Prime, operation: str
) -> None:
    kernel = element_kernel(prime, operation, packed=True)
    assert kernel.packed == PACKED_ELEMENTS[family(prime)] > 1
    for count in COUNTS:
        ints, _ = make_operands(prime, operation, [count] * kernel.inputs)
        found = run_in_the_middle(gpu._session.device_memory, prime, kernel, ints)
        assert found == compute_expected(prime, operation, ints), count


@pytest.mark.parametrize("prime", PRIMES, ids=lambda prime: prime.name)
def test_powers_of_every_count_are_exact_and_nothing_else_is_written(
    gpu: gx.PersistentVulkanBackend, prime: Prime
) -> None:
    kernel = element_kernel(prime, "power", packed=True)
    assert kernel.packed == PACKED_ELEMENTS[family(prime)] > 1
    device, exact = gpu._session.device_memory, ExactOperations(prime)
    for exponent in (0, 1, 2, 3, 7, prime.modulus - 2, 1 << (prime.bits - 1)):
        encoded = exponent_words(exponent)
        there = device.put(encoded)
        for count in (1, 4, 5, 1027):
            ints = draw_elements(prime, count, 1)
            found = run_in_the_middle(
                device, prime, kernel, [ints], more=[there], push_words=(len(encoded),)
            )
            assert found == [exact.power(each, exponent) for each in ints], (exponent, count)


@pytest.mark.parametrize("count", [1 << 16, (1 << 16) + 3, (1 << 18) + 1])
@pytest.mark.parametrize("prime", PRIMES[:3], ids=lambda prime: prime.name)
def test_large_calls_are_exact(gpu: gx.PersistentVulkanBackend, prime: Prime, count: int) -> None:
    kernel = element_kernel(prime, "mul", packed=True)
    ints = [(draw_elements(prime, 1001, seed) * (count // 1001 + 1))[:count] for seed in (1, 2)]
    once = compute_expected(prime, "mul", [each[:1001] for each in ints])
    found = run_in_the_middle(gpu._session.device_memory, prime, kernel, ints)
    assert found == (once * (count // 1001 + 1))[:count]


@pytest.mark.parametrize(
    ("prime", "per_invocation"),
    [(PRIMES[0], 1), (PRIMES[1], 2), (PRIMES[2], 3), (PRIMES[0], 3)],
    ids=lambda each: getattr(each, "name", each),
)
def test_any_grid_processes_all_elements(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, prime: Prime, per_invocation: int
) -> None:
    monkeypatch.setattr(plan, "_choose_elements_per_invocation", lambda *_: per_invocation)
    device = fresh_gpu()._session.device_memory
    for count in (5, 255, 256, 1001, 2047):
        ints, _ = make_operands(prime, "fma", [count] * 3)
        wanted = compute_expected(prime, "fma", ints)
        for grid_stride, groups in ((False, None), (True, None), (True, 1), (True, 2)):
            kernel = element_kernel(prime, "fma", grid_stride=grid_stride, packed=True)
            found = run_in_the_middle(
                device, prime, kernel, ints, grid_stride=grid_stride, groups=groups
            )
            assert found == wanted, (count, grid_stride, groups)


def test_work_groups_cover_the_vectors_and_the_elements_left_over(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    device, launches = gpu._session.device_memory, gpu._session.device_memory.stream._dispatches
    for count, groups in ((1, 1), (256, 1), (257, 2), (512, 2), (515, 3), (1024, 4)):
        x, y = (device.empty((count,), np.dtype(np.uint32)) for _ in range(2))
        for packed, wanted in ((True, groups), (False, -(-count // 64))):
            kernel = element_kernel(BABYBEAR.prime, "neg", packed=packed)
            launch = launches.acquire(Dispatch(kernel, (x, y), count))
            launches.release([launch])
            assert launch.grid == (wanted, 1, 1)


class RecordedKernels:
    """Records the kernels that are submitted."""

    def __init__(self, device: DeviceMemory, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device = device
        self.kernels: list[Kernel] = []
        submit = device.submit

        def record(steps: Sequence[Step]) -> None:
            self.kernels += [step.kernel for step in steps if isinstance(step, Dispatch)]
            submit(steps)

        monkeypatch.setattr(device, "submit", record)

    def packed(self) -> set[int]:
        """The elements per vector of the kernels since the last call."""
        found = {kernel.packed for kernel in self.kernels}
        self.kernels.clear()
        return found


@pytest.fixture
def recorded(gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch) -> RecordedKernels:
    return RecordedKernels(gpu._session.device_memory, monkeypatch)


def check_slices(gpu: gx.PersistentVulkanBackend, field: Field) -> None:
    """Check operations on slices with any start and end."""
    p, a, b, c = field.modulus, *(draw_elements(field.prime, 50, seed) for seed in (1, 2, 3))
    x, y, z = (gpu.to_device(field.encode(each)) for each in (a, b, c))
    for start in (0, 1, 2, 3, 5):
        for stop in (start + 1, 25, 27, 28):
            u, v, w = (each[start:stop] for each in (x, y[1:], z[2:]))
            ints = list(zip(a[start:stop], b[1 + start :], c[2 + start :], strict=False))
            found: list[tuple[FieldArray, list[int]]] = [
                (u + v, [r + s for r, s, _ in ints]),
                (u - v, [r - s for r, s, _ in ints]),
                (-u, [-r for r, _, _ in ints]),
                (field.double(u), [2 * r for r, _, _ in ints]),
                (u * v, [r * s for r, s, _ in ints]),
                (field.square(u), [r * r for r, _, _ in ints]),
                (field.fma(u, v, w), [r * s + t for r, s, t in ints]),
            ]
            for result, wanted in found:
                assert result.ints().tolist() == [each % p for each in wanted]


@on_every_field
def test_slices_with_any_start_are_exact(
    gpu: gx.PersistentVulkanBackend, recorded: RecordedKernels, field: Field
) -> None:
    check_slices(gpu, field)
    assert recorded.packed() == {PACKED_ELEMENTS[family(field.prime)]}


def with_alignment(device: DeviceMemory, monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    limits = dataclasses.replace(device.info.limits, buffer_offset_alignment=nbytes)
    monkeypatch.setattr(device, "info", dataclasses.replace(device.info, limits=limits))


@on_every_field
def test_a_device_with_word_alignment_does_not_pack_unaligned_slices(
    gpu: gx.PersistentVulkanBackend,
    recorded: RecordedKernels,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
) -> None:
    with_alignment(recorded.device, monkeypatch, 4)
    width = PACKED_ELEMENTS[family(field.prime)]
    check_slices(gpu, field)
    assert recorded.packed() == {1, width}
    x = gpu.to_device(field.encode(list(range(20))))
    recorded.packed()
    for slices, wanted in (((x, x), width), ((x, x[width:]), width), ((x, x[1:]), 1)):
        first, second = (each[:10] for each in slices)
        (first + second).words()
        assert recorded.packed() == {wanted}


def test_packing_needs_arrays_aligned_to_16_bytes(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = gpu._session.device_memory
    x = device.empty((40,), np.dtype(np.uint32))
    slices: list[list[DeviceArray]] = [[x], [x[4:]], [x, x[8:]], [x[1:]], [x, x[6:]]]
    for alignment, wanted in (
        (4, [True, True, True, False, False]),
        (8, [True, True, True, False, False]),
        (16, [True] * 5),
        (256, [True] * 5),
    ):
        with_alignment(device, monkeypatch, alignment)
        assert [can_pack(arrays) for arrays in slices] == wanted
    assert not can_pack([np.zeros(4, np.uint32)])


def test_operations_that_cannot_be_packed(
    gpu: gx.PersistentVulkanBackend, recorded: RecordedKernels
) -> None:
    x = gpu.to_device(BABYBEAR.encode([5, 6, 7, 8, 9]))
    assert recorded.packed() == {4}  # the conversion to Montgomery form
    assert (x + 1).ints().tolist() == [6, 7, 8, 9, 10]
    assert 1 in recorded.packed()
    assert BABYBEAR.equal(x, x).all()
    assert recorded.packed() == {1}
    assert BABYBEAR.power(x, 3).form == "montgomery"
    assert recorded.packed() == {4}
    assert not (x - x).numpy().any()
    assert recorded.packed() == {4}


def test_only_operations_on_small_elements_alone_have_packed_kernels() -> None:
    assert {*OPERATIONS} - {*PACKABLE} == {"equal", "select"}
    for operation in OPERATIONS:
        plain, packed_kernel = (
            element_kernel(BABYBEAR.prime, operation, packed=packed) for packed in (False, True)
        )
        assert (plain is packed_kernel) == (operation not in PACKABLE)
        wide = BLS12_381_FR.prime
        assert element_kernel(wide, operation, packed=True) is element_kernel(wide, operation)
    for operation in ("add", "sub", "mul", "fma"):
        shorter = element_kernel(BABYBEAR.prime, operation, broadcast=True, packed=True)
        assert shorter is element_kernel(BABYBEAR.prime, operation, broadcast=True)


@on_every_field
def test_packed_kernels_need_no_other_device_features(field: Field) -> None:
    for operation in PACKABLE:
        if operation in CONVERSIONS and field.form == "canonical":
            continue
        plain, packed_kernel = (
            element_kernel(field.prime, operation, packed=packed) for packed in (False, True)
        )
        assert packed_kernel.interface.capabilities == plain.interface.capabilities
        assert (packed_kernel.interface.bindings, packed_kernel.push) == (
            plain.interface.bindings,
            plain.push,
        )
