"""The chains that measure the integer units compute what their references say."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import KernelError
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, MERSENNE31, Field
from gpu_executor.kernels.chains import (
    MIXES,
    PRODUCT_CHAINS,
    Mix,
    integer_chains_kernel,
    product_chains_kernel,
)

Gpu = gx.PersistentVulkanBackend
COUNT, LENGTH = 100, 16


@pytest.mark.parametrize("field", [BABYBEAR, MERSENNE31, GOLDILOCKS], ids=lambda f: f.name)
def test_product_chains_are_exact(gpu: Gpu, field: Field) -> None:
    a, b = (field.random(COUNT, seed=seed).in_form(field.form) for seed in (1, 2))
    found = gpu.run(product_chains_kernel(field.prime, LENGTH), a.data, b.data)
    starts = [PRODUCT_CHAINS * x + sum(range(PRODUCT_CHAINS)) for x in a.tolist()]
    wanted = [
        x * pow(y, LENGTH, field.modulus) % field.modulus
        for x, y in zip(starts, b.tolist(), strict=True)
    ]
    assert field.from_words(np.asarray(found), field.form).tolist() == wanted


@pytest.mark.parametrize("mix", MIXES)
def test_integer_chains_are_exact(gpu: Gpu, mix: Mix) -> None:
    """Against Python's integers, on the device and in the reference."""
    words = np.random.default_rng(1).integers(0, 1 << 32, COUNT, np.uint32)
    kernel, mask = integer_chains_kernel(mix, LENGTH), 0xFFFFFFFF

    def rotate(x: int, bits: int) -> int:
        return (x << bits | x >> (32 - bits)) & mask

    def run(word: int, chain: int) -> int:
        x, y, z, w = ((word * factor + chain) & mask for factor in (1, 3, 5, 7))
        for _ in range(LENGTH):
            if mix == "add_xor_rotate":
                x = (x + y + word) & mask
                w = rotate(w ^ x, 13)
                z = (z + w) & mask
                y = rotate(y ^ z, 25)
                continue
            if mix == "logic_add_rotate":
                first = rotate((x + (y ^ (~z & w)) + w + word) & mask, 13)
                x, y, z, w = (first + y) & mask, x, rotate(y, 10), z
                continue
            x ^= ~y & z
            y ^= ~z & w
            x = rotate(x, 13) if mix == "logic_rotate" else x ^ (~z & word)
            z ^= ~w & x
            w ^= ~x & y
            y = rotate(y, 25) if mix == "logic_rotate" else y ^ (~word & w)
        return x + y + z + w

    wanted = [sum(run(word, chain) for chain in range(4)) & mask for word in words.tolist()]
    for backend in (gpu, gx.CpuBackend()):
        assert np.asarray(backend.run(kernel, words)).tolist() == wanted


def test_chains_refuse_wrong_lengths_and_wide_primes() -> None:
    with pytest.raises(KernelError, match="the length of chains is 12"):
        integer_chains_kernel("logic", 12)
    with pytest.raises(KernelError, match="product chains are for elements of one word"):
        product_chains_kernel(BLS12_381_FR.prime, 16)
