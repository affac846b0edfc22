"""What hash functions compute, counted, and how fast a device computes it in registers. The
measured rate of the operations divided by their number is a bound of the rate of hashes.

Operations of byte hashes are instructions on 32-bit words as GPUs have them: a sum or a logical
combination of three words is one, and so is a rotation or a shift; 64-bit words are pairs.
Operations of hashes over fields are products. Sums in the field and products by small constants are
not counted, so their bounds are not reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpu_executor.bench import fields
from gpu_executor.bench.inputs import tile_elements
from gpu_executor.bench.kernel_timing import time_calls
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import Field
from gpu_executor.kernels.chains import (
    INTEGER_CHAINS,
    MIXES,
    OPERATIONS_PER_STEP,
    PRODUCT_CHAINS,
    Mix,
    integer_chains_kernel,
    product_chains_kernel,
)
from gpu_executor.kernels.families import SCALAR_FAMILIES, family
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

Count = Callable[[int], int]
"""The operations of a hash of a row of that many bytes."""

# --- operations on 32-bit words ---

SHA256_ROUND = 14
"""Two sums of three rotations (4 each), choice, majority, and four sums: two of them for the five
terms of T1, d + T1, and T1 + T2."""
SHA256_SCHEDULE = 10
"""Two functions of two rotations and a shift (4 each), and two sums of four terms."""
SHA256_KNOWN = 64 * SHA256_ROUND + 8
"""A block of padding alone, whose schedule is known: the rounds, and eight sums."""
SHA256_BLOCK = SHA256_KNOWN + 48 * SHA256_SCHEDULE
SHA512_BLOCK = 2 * (80 * SHA256_ROUND + 64 * SHA256_SCHEDULE + 8)
"""80 rounds of the same operations on pairs of words."""
KECCAK_ROUND = 20 + 10 + 50 + 48 + 50 + 2
"""Parities of five columns (two combinations each, of pairs of words), their rotations, their sums
into 25 lanes, 24 rotations of lanes, 25 combinations, and the constant."""
KECCAK = 24 * KECCAK_ROUND
KECCAK_RATE = 136
QUARTER_ROUND = 12
"""Of BLAKE: two sums of three terms, two of two, four exclusive ors, four rotations."""
BLAKE2S_BLOCK = 10 * 8 * QUARTER_ROUND + 8
BLAKE3_BLOCK = 7 * 8 * QUARTER_ROUND + 8
BLAKE3_CHUNK = 1024
RIPEMD160_KNOWN = 160 * 5 + 5
"""A block of padding alone. In each of two lines of 80 steps: a function of three words, a sum of
three terms, as word and constant are one number, a rotation, a sum, a rotation."""
RIPEMD160_BLOCK = RIPEMD160_KNOWN + 2 * 64
"""The sum has a fourth term in all steps but the 16 of each line whose constant is 0."""


def _count_blocks(length: int, block: int, padding: int) -> int:
    return (length + padding) // block + 1


def _count_padded(length: int, block: int, known_block: int) -> int:
    """The operations of blocks of 64 bytes. Padding takes a byte and eight bytes for the length; a
    block of nothing else is known."""
    blocks = _count_blocks(length, 64, 8)
    known = blocks - length // 64 - (length % 64 > 0)
    return (blocks - known) * block + known * known_block


def count_sha256(length: int) -> int:
    return _count_padded(length, SHA256_BLOCK, SHA256_KNOWN)


def count_sha512(length: int) -> int:
    return _count_blocks(length, 128, 16) * SHA512_BLOCK


def count_keccak(length: int) -> int:
    return _count_blocks(length, KECCAK_RATE, 0) * KECCAK


def count_blake2s(length: int) -> int:
    return max(-(-length // 64), 1) * BLAKE2S_BLOCK


def count_blake3(length: int) -> int:
    """The blocks, and a parent for each chunk but one."""
    blocks, chunks = (max(-(-length // size), 1) for size in (64, BLAKE3_CHUNK))
    return (blocks + chunks - 1) * BLAKE3_BLOCK


def count_ripemd160(length: int) -> int:
    return _count_padded(length, RIPEMD160_BLOCK, RIPEMD160_KNOWN)


# --- products of field elements ---


def count_rounds(width: int, full: int, partial: int, power: int) -> int:
    """The products of powers x^power: of all elements in full rounds, of one in partial ones."""
    products = power.bit_length() - 1 + power.bit_count() - 1
    return (full * width + partial) * products


def count_poseidon(width: int, full: int, partial: int, power: int) -> int:
    """Powers, and products by matrices: all elements in full rounds, and by sparse matrices (a row,
    a column and a diagonal of ones) in partial ones."""
    matrices = full * width * width + partial * (2 * width - 1)
    return count_rounds(width, full, partial, power) + matrices


RPO = 7 * 12 * (4 + 72)
"""Seven rounds raise twelve elements to the power 7, and to 1/7: 63 squares and 9 products."""
MIMC7 = 91 * 4
"""A row of one element: 91 rounds of x^7."""
MIMC_SPONGE = 220 * 3
"""A row of one element: 220 rounds of x^5."""


# --- rates ---


@dataclass(frozen=True, slots=True)
class ChainSizes:
    """Invocations, and steps of each chain."""

    count: int
    length: int


GPU_CHAINS, CPU_CHAINS = ChainSizes(1 << 20, 1024), ChainSizes(1 << 12, 256)
"""With 2^10 invocations of 64 steps the dispatch took half of the time on lavapipe: SHA-256 was 1.7
times as fast as its bound."""


@dataclass(frozen=True, slots=True)
class ChainRate:
    """How fast a device computes in registers."""

    operation: str
    """A mix of operations on 32-bit words, or the name of a field, for its products."""
    per_second: float


def choose_chains(device: DeviceInfo) -> ChainSizes:
    return CPU_CHAINS if device.kind == "cpu" else GPU_CHAINS


def measure_integer_rate(gpu: PersistentVulkanBackend, mix: Mix, sizes: ChainSizes) -> ChainRate:
    """Operations on 32-bit words per second."""
    words = np.random.default_rng(1).integers(0, 1 << 32, sizes.count, np.uint32)
    kernel = integer_chains_kernel(mix, sizes.length)
    sample = words[:64]
    assert kernel.reference is not None
    if not np.array_equal(gpu.run(kernel, sample), kernel.reference(sample)):
        raise AssertionError(f"{kernel.name}: wrong results")
    (seconds,) = time_calls(gpu._session, [(kernel, [gpu.to_device(words)])])
    steps = sizes.count * sizes.length * INTEGER_CHAINS
    return ChainRate(mix, steps * OPERATIONS_PER_STEP / seconds)


def measure_product_rate(
    gpu: PersistentVulkanBackend, field: Field, sizes: ChainSizes
) -> ChainRate:
    """Products of field elements per second."""
    prime = field.prime
    if family(prime) not in SCALAR_FAMILIES:
        rate = fields.measure_product_chains(gpu, field, fields.choose_sizes(gpu.device))
        assert rate is not None
        return ChainRate(field.name, rate)
    kernel = product_chains_kernel(prime, sizes.length)
    memory = gpu._session.device_memory
    a, b = (memory.put(tile_elements(prime, sizes.count, seed)) for seed in (1, 2))
    (seconds,) = time_calls(gpu._session, [(kernel, [a, b])])
    return ChainRate(field.name, sizes.count * sizes.length * PRODUCT_CHAINS / seconds)


def measure_rates(
    gpu: PersistentVulkanBackend, fields_of_hashes: list[Field], sizes: ChainSizes
) -> list[ChainRate]:
    """The rates that the bounds are computed from."""
    rates = [measure_integer_rate(gpu, mix, sizes) for mix in MIXES]
    return rates + [measure_product_rate(gpu, field, sizes) for field in fields_of_hashes]
