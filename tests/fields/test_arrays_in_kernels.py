"""Arrays of elements as arguments of kernels: a kernel gets their words in one defined form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, BN254_FR, GOLDILOCKS, MERSENNE31
from tests.support.fields_under_test import CPU, draw_elements

Gpu = gx.PersistentVulkanBackend
FR = BLS12_381_FR


def to_array(words: Any) -> Any:
    found = words.numpy() if isinstance(words, gx.DeviceArray) else words
    return FR.from_words(found, "montgomery").tolist()


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("backend", ["vulkan", "cpu"])
def test_field_kernels_take_arrays_of_their_field(gpu: Gpu, backend: str, on_device: bool) -> None:
    a, b = draw_elements(FR, 20, 1), draw_elements(FR, 20, 2)
    target: Any = gpu if backend == "vulkan" else CPU
    x, y = (FR.encode(each) for each in (a, b))
    if on_device:
        x, y = target.to_device(x), target.to_device(y)
    add, product = (gx.kernels.load(f"bls12_381_fr_{name}") for name in ("add", "mont_mul"))
    sums, products = target.run(add, x, y), target.run(product, x, y)
    assert isinstance(sums, gx.DeviceArray) == on_device
    assert to_array(sums) == [(i + j) % FR.modulus for i, j in zip(a, b, strict=True)]
    assert to_array(products) == [i * j % FR.modulus for i, j in zip(a, b, strict=True)]
    for results in (target.run_batch(add, [(x, y)] * 2), list(target.stream(add, [(x, y)] * 2))):
        assert [to_array(each) for each in results] == [to_array(sums)] * 2


def test_executors_take_arrays_of_elements() -> None:
    x, y = FR.encode([1, 2]), FR.encode([3, 4])
    add = gx.kernels.load("bls12_381_fr_add")
    with gx.GpuExecutor() as executor:
        assert to_array(executor.submit(add, x, y).result()) == [4, 6]
        assert to_array(executor.run(add, x, y)) == [4, 6]


def test_elements_with_a_single_form_go_to_any_kernel_that_fits(gpu: Gpu) -> None:
    x = MERSENNE31.encode([1, 2**31 - 2])
    assert gpu.run(gx.kernels.load("vector_add_u32"), x, x).tolist() == [2, 2**32 - 4]
    with pytest.raises(ArgumentTypeError, match="has dtype uint64"):
        gpu.run(gx.kernels.load("vector_add_u32"), GOLDILOCKS.encode([1]), GOLDILOCKS.encode([1]))


def test_a_form_that_is_not_clear_is_refused(gpu: Gpu) -> None:
    x, goldilocks = BABYBEAR.encode([1, 2]), GOLDILOCKS.encode([1])
    add = gx.kernels.load("vector_add_u32")
    with pytest.raises(ArgumentTypeError, match="does not say which form"):
        gpu.run(add, x, x)
    words = x.in_form("canonical").data
    np.testing.assert_array_equal(gpu.run(add, words, words), [2, 4])
    with pytest.raises(ArgumentTypeError, match="goldilocks has no Montgomery form"):
        gpu.run(gx.kernels.load("goldilocks_mont_mul"), goldilocks, goldilocks)


def test_an_array_of_another_field_is_refused(gpu: Gpu) -> None:
    x = BN254_FR.encode([1])
    with pytest.raises(ArgumentTypeError, match="computes modulo"):
        gpu.run(gx.kernels.load("bls12_381_fr_add"), x, x)


def test_elements_beside_words_of_unknown_form_are_refused(gpu: Gpu) -> None:
    x = FR.encode([1, 2, 3])
    for others in ((x, x.numpy()), (x.numpy(), x), (gpu.to_device(x).data, x)):
        with pytest.raises(ArgumentTypeError, match="its form is not known"):
            gpu.run(gx.kernels.load("bls12_381_fr_add"), *others)
