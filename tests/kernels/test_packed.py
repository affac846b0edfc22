"""Neighbouring elements taken together: exact at every count and place, nothing else written."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import Dispatch, Step
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, MERSENNE31, Field, FieldArray
from gpu_executor.fields.neighbours import by_neighbours
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.elements import CONVERSIONS, OF_ELEMENTS, OPERATIONS, element_kernel
from gpu_executor.kernels.families import NEIGHBOURS, family
from gpu_executor.plan import plan
from gpu_executor.primes import Prime, words
from gpu_executor.vulkan.device_memory import DeviceMemory
from tests.conftest import OpenGpu
from tests.kernels.test_element_kernels import expected, operands, operations, some

FIELDS = [BABYBEAR, MERSENNE31, GOLDILOCKS]
PRIMES = [*(field.prime for field in FIELDS), Prime("three", 3), Prime("30 bits", 2**30 - 35)]
CALLS = [(prime, name) for prime in PRIMES for name in operations(prime) if name in OF_ELEMENTS]
COUNTS = [*range(1, 10), 1023, 1024, 1025]
ALIGNED = 256
"""Bytes that bindings are aligned to on any device."""
CANARY = 0xA5

on_every_call = pytest.mark.parametrize(
    ("prime", "operation"), CALLS, ids=[f"{prime.name}-{name}" for prime, name in CALLS]
)
on_every_field = pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)


def dispatched(
    device: DeviceMemory, prime: Prime, kernel: Kernel, inputs: Sequence[Sequence[int]], **how: Any
) -> list[int]:
    """The result of a kernel in the midst of a larger array, all else of which stays as it was.

    What is bound reaches behind the last result: no driver's bounds hide what is written there.
    """
    count, before = len(inputs[0]), ALIGNED // prime.element_dtype.itemsize
    around = np.full((before + count + before, *prime.element_shape), CANARY, prime.column_dtype)
    whole = device.put(around)
    arrays = [device.put(words.from_ints(prime, each)) for each in inputs]
    device.submit([Dispatch(kernel, (*arrays, whole[before:]), count, **how)])
    found = whole.numpy()
    assert np.array_equal(found[:before], around[:before])
    assert np.array_equal(found[before + count :], around[before + count :])
    return words.to_ints(prime, found[before : before + count])


@on_every_call
def test_every_count_is_exact_and_nothing_else_is_written(
    gpu: gx.PersistentVulkanBackend, prime: Prime, operation: str
) -> None:
    kernel = element_kernel(prime, operation, neighbours=True)
    assert kernel.neighbours == NEIGHBOURS[family(prime)] > 1
    for count in COUNTS:
        ints, _ = operands(prime, operation, [count] * kernel.inputs)
        found = dispatched(gpu._session.device_memory, prime, kernel, ints)
        assert found == expected(prime, operation, ints), count


@pytest.mark.parametrize("count", [1 << 16, (1 << 16) + 3, (1 << 18) + 1])
@pytest.mark.parametrize("prime", PRIMES[:3], ids=lambda prime: prime.name)
def test_large_calls_are_exact(gpu: gx.PersistentVulkanBackend, prime: Prime, count: int) -> None:
    kernel = element_kernel(prime, "mul", neighbours=True)
    ints = [(some(prime, 1001, seed) * (count // 1001 + 1))[:count] for seed in (1, 2)]
    once = expected(prime, "mul", [each[:1001] for each in ints])
    found = dispatched(gpu._session.device_memory, prime, kernel, ints)
    assert found == (once * (count // 1001 + 1))[:count]


@pytest.mark.parametrize("per_invocation", [1, 2, 3])
@pytest.mark.parametrize("prime", PRIMES[:3], ids=lambda prime: prime.name)
def test_any_grid_reaches_all_elements(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, prime: Prime, per_invocation: int
) -> None:
    monkeypatch.setattr(plan, "_elements_per_invocation", lambda *_: per_invocation)
    device = fresh_gpu()._session.device_memory
    for count in (5, 255, 256, 1001, 2047):
        ints, _ = operands(prime, "fma", [count] * 3)
        wanted = expected(prime, "fma", ints)
        for strides, groups in ((False, None), (True, None), (True, 1), (True, 2)):
            kernel = element_kernel(prime, "fma", strides=strides, neighbours=True)
            found = dispatched(device, prime, kernel, ints, strides=strides, groups=groups)
            assert found == wanted, (count, strides, groups)


def test_there_are_work_groups_for_vectors_and_what_is_left_over(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    device, launches = gpu._session.device_memory, gpu._session.device_memory.stream._dispatches
    for count, groups in ((1, 1), (256, 1), (257, 2), (512, 2), (515, 3), (1024, 4)):
        x, y = (device.empty((count,), np.dtype(np.uint32)) for _ in range(2))
        for neighbours, wanted in ((True, groups), (False, -(-count // 64))):
            kernel = element_kernel(BABYBEAR.prime, "neg", neighbours=neighbours)
            launch = launches.take(Dispatch(kernel, (x, y), count))
            launches.give_back([launch])
            assert launch.groups == wanted


class Watched:
    """A card, with the kernels that it is given."""

    def __init__(self, device: DeviceMemory, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device = device
        self.kernels: list[Kernel] = []
        submit = device.submit

        def watching(steps: Sequence[Step]) -> None:
            self.kernels += [step.kernel for step in steps if isinstance(step, Dispatch)]
            submit(steps)

        monkeypatch.setattr(device, "submit", watching)

    def taken(self) -> set[int]:
        """How many elements at once, since the last time."""
        found = {kernel.neighbours for kernel in self.kernels}
        self.kernels.clear()
        return found


@pytest.fixture
def watched(gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(gpu._session.device_memory, monkeypatch)


def check_slices(gpu: gx.PersistentVulkanBackend, field: Field) -> None:
    """Operations on slices that begin and end anywhere."""
    p, a, b, c = field.modulus, *(some(field.prime, 50, seed) for seed in (1, 2, 3))
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
def test_slices_that_begin_anywhere_are_exact(
    gpu: gx.PersistentVulkanBackend, watched: Watched, field: Field
) -> None:
    check_slices(gpu, field)
    assert watched.taken() == {NEIGHBOURS[family(field.prime)]}


def with_alignment(device: DeviceMemory, monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    limits = dataclasses.replace(device.info.limits, buffer_offset_alignment=nbytes)
    monkeypatch.setattr(device, "info", dataclasses.replace(device.info, limits=limits))


@on_every_field
def test_a_device_that_binds_at_any_word_takes_slices_one_by_one(
    gpu: gx.PersistentVulkanBackend,
    watched: Watched,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
) -> None:
    with_alignment(watched.device, monkeypatch, 4)
    several = NEIGHBOURS[family(field.prime)]
    check_slices(gpu, field)
    assert watched.taken() == {1, several}
    x = gpu.to_device(field.encode(list(range(20))))
    watched.taken()
    for slices, taken in (((x, x), several), ((x, x[several:]), several), ((x, x[1:]), 1)):
        first, second = (each[:10] for each in slices)
        (first + second).numpy()
        assert watched.taken() == {taken}


def test_where_arrays_have_to_begin(
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
        assert [by_neighbours(arrays) for arrays in slices] == wanted
    assert not by_neighbours([np.zeros(4, np.uint32)])


def test_one_by_one_where_it_cannot_be_otherwise(
    gpu: gx.PersistentVulkanBackend, watched: Watched
) -> None:
    x = gpu.to_device(BABYBEAR.encode([5, 6, 7, 8, 9]))
    assert watched.taken() == {4}  # into Montgomery form
    assert (x + 1).ints().tolist() == [6, 7, 8, 9, 10]
    assert 1 in watched.taken()
    assert BABYBEAR.equal(x, x).all()
    assert BABYBEAR.power(x, 3).form == "montgomery"
    assert watched.taken() == {1}
    assert not (x - x).numpy().any()
    assert watched.taken() == {4}


def test_only_operations_on_small_elements_alone_have_such_kernels() -> None:
    assert {*OPERATIONS} - {*OF_ELEMENTS} == {"equal", "select", "power"}
    for operation in OPERATIONS:
        plain, made = (
            element_kernel(BABYBEAR.prime, operation, neighbours=n) for n in (False, True)
        )
        assert (plain is made) == (operation not in OF_ELEMENTS)
        wide = BLS12_381_FR.prime
        assert element_kernel(wide, operation, neighbours=True) is element_kernel(wide, operation)
    for operation in ("add", "sub", "mul", "fma"):
        shorter = element_kernel(BABYBEAR.prime, operation, broadcast=True, neighbours=True)
        assert shorter is element_kernel(BABYBEAR.prime, operation, broadcast=True)


@on_every_field
def test_they_need_nothing_else_of_a_device(field: Field) -> None:
    for operation in OF_ELEMENTS:
        if operation in CONVERSIONS and field.form == "canonical":
            continue
        plain, made = (element_kernel(field.prime, operation, neighbours=n) for n in (False, True))
        assert made.interface.capabilities == plain.interface.capabilities
        assert (made.interface.bindings, made.push) == (plain.interface.bindings, plain.push)
