"""Kernels that measure the integer units alone: chains of dependent products of small primes, and
of operations on 32-bit words, without memory access between them. The rate of a chain divided by
the operations of a hash, counted, is a bound of the rate of that hash.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel, Tuning
from gpu_executor.kernel.arguments import declare_buffers
from gpu_executor.kernels.families import (
    SCALAR_FAMILIES,
    family,
    family_constants,
    family_push,
    module_name,
)
from gpu_executor.kernels.modules import SpecId, load_interface, load_spirv
from gpu_executor.primes import Prime

Mix = Literal["add_xor_rotate", "logic_rotate", "logic", "logic_add_rotate"]
"""What a step of `integer_chains_kernel` computes (glsl/integer_chains.comp)."""
MIXES: tuple[Mix, ...] = get_args(Mix)

PRODUCT_CHAINS, INTEGER_CHAINS = 8, 4
"""The chains of each invocation: enough for the units to be busy while one waits for a result."""
OPERATIONS_PER_STEP = 6
"""The operations on 32-bit words of a step of `integer_chains_kernel`."""
UNROLLED = 8
"""Lengths are multiples of it."""

Words = npt.NDArray[Any]


@functools.cache
def product_chains_kernel(prime: Prime, length: int) -> Kernel:
    """Return a kernel of `PRODUCT_CHAINS` chains of `length` dependent products for each element,
    for the primes whose elements are one integer of the device. Inputs: a and b."""
    kind = family(prime)
    if kind not in SCALAR_FAMILIES:
        raise KernelError(
            f"{prime.name}: product chains are for elements of one word; mont_mul_chain_kernel "
            "serves the other primes"
        )
    _check_length(length)
    module = module_name(kind, "product_chains")
    interface = load_interface(module)
    return Kernel.from_spirv(
        load_spirv(module),
        count=True,
        buffers=declare_buffers(2, [prime.element_dtype] * 3),
        split="elements",
        init=None,
        constants={
            **family_constants(prime, kind, interface),
            SpecId.CHAIN_LENGTH: length,
            SpecId.PER_INVOCATION: 1,
        },
        push=family_push(prime, kind, interface),
        tuning=Tuning(in_place=True),
        name=f"{prime.name}_product_chains_{length}",
    )


@functools.cache
def integer_chains_kernel(mix: Mix, length: int) -> Kernel:
    """Return a kernel of `INTEGER_CHAINS` chains of `length` dependent steps of
    `OPERATIONS_PER_STEP` operations on 32-bit words, for each word of its input."""
    _check_length(length)
    return Kernel.from_spirv(
        load_spirv("integer_chains"),
        count=True,
        buffers="in u4, out u4",
        split="elements",
        init=None,
        constants={SpecId.CHAIN_LENGTH: length, SpecId.MIX: MIXES.index(mix)},
        tuning=Tuning(in_place=True),
        name=f"integer_chains_{mix}_{length}",
        reference=functools.partial(_mix_words, mix, length),
    )


def _check_length(length: int) -> None:
    if length < UNROLLED or length % UNROLLED:
        raise KernelError(f"the length of chains is {length}; it must be a multiple of {UNROLLED}")


def _mix_words(mix: Mix, length: int, a: Words) -> Words:
    """The reference of `integer_chains_kernel`."""
    total = np.zeros_like(a)
    for chain in range(INTEGER_CHAINS):
        x, y, z, w = (a * np.uint32(factor) + np.uint32(chain) for factor in (1, 3, 5, 7))
        for _ in range(length):
            if mix == "add_xor_rotate":
                x = x + y + a
                w = _rotate(w ^ x, 13)
                z = z + w
                y = _rotate(y ^ z, 25)
                continue
            if mix == "logic_add_rotate":
                total_of_four = x + (y ^ (~z & w)) + w + a
                x, y, z, w = _rotate(total_of_four, 13) + y, x, _rotate(y, 10), z
                continue
            x = x ^ (~y & z)
            y = y ^ (~z & w)
            x = _rotate(x, 13) if mix == "logic_rotate" else x ^ (~z & a)
            z = z ^ (~w & x)
            w = w ^ (~x & y)
            y = _rotate(y, 25) if mix == "logic_rotate" else y ^ (~a & w)
        total = total + x + y + z + w
    return total


def _rotate(x: Words, bits: int) -> Words:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))
