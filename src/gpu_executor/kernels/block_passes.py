"""The kernels of transforms whose roots belong to blocks (`glsl/block_pass.glsl`), for primes of
250 to 255 bits. Only a `Dispatch` runs them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.kernel import Constant, Kernel
from gpu_executor.kernels.modules import SpecId, load_spirv
from gpu_executor.kernels.passes import make_pass_kernel
from gpu_executor.primes import Prime
from gpu_executor.primes.prime import LimbLayout

PRIME_BITS = range(250, 256)
"""Numbers of up to 190p fit the limbs, and their quotients by p (`glsl/shoup.glsl`)."""
LIMBS = LimbLayout(29, 9, 0)
LIMBS_BITS = LIMBS.bits * LIMBS.count
FACTOR_WORDS = 2 * LIMBS.count
"""32-bit words of a factor: the limbs of a number w, and those of its quotient w'."""
NUMBER_BYTES = 4 * LIMBS.count
"""Of an element in shared memory."""
WORD = np.dtype(np.uint32)


@functools.cache
def block_pass_kernel(
    prime: Prime,
    *,
    decimation_in_time: bool,
    levels: int,
    columns: int,
    by_block: bool,
    log_subgroup: int,
    grid_stride: bool,
    scales: bool = False,
    reverses: bool = False,
    pads: bool = False,
    repeats: bool = False,
) -> Kernel:
    """Return the kernel of one pass. Inputs: x, roots and scale; push words: log_m, log_n, the
    length of rows of x and that of the table of roots.
    """
    parameters: dict[int, Constant] = {
        SpecId.LEVELS: levels,
        SpecId.COLUMNS: columns,
        SpecId.BY_BLOCK: by_block,
        SpecId.LOG_SUBGROUP: log_subgroup,
        SpecId.GRID_STRIDE: grid_stride,
        SpecId.SCALES: scales,
        SpecId.REVERSES: reverses,
        SpecId.PADS: pads,
        SpecId.REPEATS: repeats,
        SpecId.RECIPROCAL: (1 << prime.bits + LIMBS.bits) // prime.modulus,
        SpecId.RECIPROCAL_SHIFT: prime.bits - 7 * LIMBS.bits,
    }
    name = "block_dit_pass" if decimation_in_time else "block_dif_pass"
    element = prime.element_dtype
    return _make_kernel(prime, name, parameters, [element, WORD, WORD, element])


@functools.cache
def root_factors_kernel(prime: Prime) -> Kernel:
    """Return the kernel that makes a table of roots. Inputs: low and high powers of the root, each
    times 2^261 mod p; push words: log2 of the table's length, low_bits.
    """
    parameters: dict[int, Constant] = {
        SpecId.NEGATIVE_INVERSE: LIMBS.negative_inverse(prime.modulus)
    }
    element = prime.element_dtype
    return _make_kernel(prime, "root_factors", parameters, [element, element, WORD])


def encode_factor(prime: Prime, value: int) -> npt.NDArray[np.uint32]:
    """Encode a factor of Shoup's method: a number below p and its quotient."""
    quotient = (value << LIMBS_BITS) // prime.modulus
    return np.array([*LIMBS.split(value), *LIMBS.split(quotient)], WORD)


def _make_kernel(
    prime: Prime, module: str, parameters: Mapping[int, Constant], dtypes: Sequence[np.dtype[Any]]
) -> Kernel:
    modulus = enumerate(LIMBS.split(prime.modulus), SpecId.MODULUS)
    constants = {**parameters, **dict(modulus)}
    name = f"{prime.name}_{module}"
    return make_pass_kernel(load_spirv(module), name, len(dtypes) - 1, dtypes, constants=constants)
