"""Kernels that are one pass of an algorithm of several dispatches: scans and transforms; and the
conversions between elements and bytes.

Only a `Dispatch` runs them (`ops/`), because their push constants end with push words that the
shapes of the arrays do not determine. The GLSL source of each declares them as KERNEL_PUSH.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import KernelError
from gpu_executor.kernel import Constant, Kernel, Shape, Tuning
from gpu_executor.kernel.arguments import declare_buffers
from gpu_executor.kernels.families import (
    SCALAR_FAMILIES,
    family,
    family_constants,
    family_push,
    module_family,
)
from gpu_executor.kernels.modules import SpecId, encode_modulus, load_interface, load_spirv
from gpu_executor.primes import Prime, words
from gpu_executor.primes.prime import LIMB_BITS as LIMB_WIDTHS
from gpu_executor.primes.prime import LimbLayout

# --- scans ---

_SCAN_ARRAYS = {
    "partial_sums": (1, 1),
    "chunk_sums": (1, 1),
    "running_sums": (2, 1),
    "chunk_products": (1, 1),
    "running_products": (2, 1),
    "resize": (1, 1),
    "evaluate": (2, 1),
    "matrix_products": (2, 1),
    "extension_products": (3, 1),
}
"""The numbers of inputs and outputs."""


@functools.cache
def scan_kernel(prime: Prime, name: str, *, f64_limbs: bool = False) -> Kernel:
    """Return the kernel `glsl/scans/<name>.comp`; with `f64_limbs`, it multiplies f64 limbs."""
    inputs, outputs = _SCAN_ARRAYS[name]
    kind = module_family(prime, name, f64_limbs=f64_limbs)
    return _make_kernel(prime, kind, name, inputs=inputs, outputs=outputs)


@functools.cache
def fold_kernel(
    prime: Prime, log_arity: int, degree: int, values_degree: int, *, f64_limbs: bool = False
) -> Kernel:
    """Return the kernel `glsl/scans/fold.comp`. Inputs: values, low and high powers, factors; push
    words: log2 of the results in a row, the bits of low powers, whether rows are in bit-reversed
    order.
    """
    kind = module_family(prime, "fold", f64_limbs=f64_limbs)
    constants: dict[int, Constant] = {
        SpecId.LOG_ARITY: log_arity,
        SpecId.DEGREE: degree,
        SpecId.VALUES_DEGREE: values_degree,
    }
    return _make_kernel(prime, kind, "fold", inputs=4, constants=constants)


@functools.cache
def evaluate_rows_kernel(prime: Prime, *, f64_limbs: bool = False) -> Kernel:
    """Return the kernel `glsl/evaluations/evaluate_rows.comp`, for primes of the family `wide`."""
    kind = module_family(prime, "evaluate_rows", f64_limbs=f64_limbs)
    return _make_kernel(prime, kind, "evaluate_rows", inputs=2)


@functools.cache
def sparse_kernel(prime: Prime, *, f64_limbs: bool = False) -> Kernel:
    """Return the kernel `glsl/sparse/sparse_sums.comp`, for primes of the family `wide`."""
    kind = module_family(prime, "sparse_sums", f64_limbs=f64_limbs)
    return _make_kernel(prime, kind, "sparse_sums", inputs=3, types="wewe")


@functools.cache
def check_records_kernel(prime: Prime) -> Kernel:
    """Return the kernel `glsl/sparse/check_records.comp`, for primes of the family `wide`."""
    return _make_kernel(prime, "wide", "check_records", inputs=1, outputs=2, types="www")


@functools.cache
def direct_inverse_kernel(prime: Prime) -> Kernel:
    """Return the kernel `glsl/inversions/direct_inverse.comp`, for primes of the family `wide`."""
    return _make_kernel(prime, "wide", "direct_inverse", inputs=1)


_INVERSION_ARRAYS = {"partial_products": (1, 2), "inverses": (3, 1)}
"""The numbers of inputs and outputs."""


@functools.cache
def inversion_kernel(prime: Prime, name: str, *, f64_limbs: bool = False) -> Kernel:
    """Return the kernel `glsl/inversions/in_passes/<name>.comp`, for primes of the family
    `wide`."""
    inputs, outputs = _INVERSION_ARRAYS[name]
    kind = module_family(prime, name, f64_limbs=f64_limbs)
    constants: dict[int, Constant] = {SpecId.REDUCES: 2 * prime.modulus > prime.r}
    return _make_kernel(prime, kind, name, inputs=inputs, outputs=outputs, constants=constants)


@functools.cache
def group_inverse_kernel(prime: Prime) -> Kernel:
    """Return the kernel `glsl/inversions/in_groups/group_inverse.comp`, for primes of the other
    families. Its push word is the number of whole vectors in the array."""
    return _make_kernel(prime, family(prime), "packed_group_inverse", inputs=1)


# --- number-theoretic transforms ---

LAZY_BITS = 2
"""Bits that limbs need in addition to those of the modulus: unreduced sums are below 4p
(families/wide_lazy.glsl)."""
LOG_RADIX = 3
"""log2 of the elements that an invocation has in registers (glsl/transform_rounds.glsl)."""
GOLDILOCKS_ROOT_SHIFT = 120
"""log2 of Goldilocks' root of unity of order 8. 2 is of order 192, so the inverse is 2^72."""


@functools.cache
def pass_kernel(
    prime: Prime,
    *,
    decimation_in_time: bool,
    levels: int,
    columns: int,
    twiddles: bool,
    direct: bool,
    by_block: bool,
    grid_stride: bool,
    root_shift: int = 0,
    scales: bool = False,
    reverses: bool = False,
    pads: bool = False,
    log_repeats: int = 0,
) -> Kernel:
    """Return the kernel of one pass of a transform. Inputs: x, roots, low and high twiddles; push
    words: log_m, low_bits, log_n and the length of a row of x. `glsl/transform.glsl`, `tiles.glsl`
    and `transform_rounds.glsl` describe the parameters.
    """
    name = "dit_pass" if decimation_in_time else "dif_pass"
    parameters: dict[int, Constant] = {
        SpecId.LEVELS: levels,
        SpecId.COLUMNS: columns,
        SpecId.TWIDDLES: twiddles,
        SpecId.DIRECT: direct,
        SpecId.BY_BLOCK: by_block,
        SpecId.GRID_STRIDE: grid_stride,
        SpecId.ROOT_SHIFT: root_shift,
        SpecId.SCALES: scales,
        SpecId.REVERSES: reverses,
        SpecId.PADS: pads,
        SpecId.LOG_REPEATS: log_repeats,
    }
    return _make_transform_kernel(prime, name, inputs=4, parameters=parameters)


@functools.cache
def powers_kernel(prime: Prime) -> Kernel:
    """Return the kernel that multiplies x[i] by g^i. Inputs: x, low and high powers; push words:
    log_n, low_bits and whether x is in bit-reversed order.
    """
    return _make_transform_kernel(prime, "powers", inputs=3)


def get_log_radix(prime: Prime, levels: int) -> int:
    """Return log2 of the elements of a tile that an invocation has: two of a butterfly
    (glsl/transform_levels.glsl), or those in its registers (glsl/transform_rounds.glsl)."""
    return min(levels, LOG_RADIX if is_in_rounds(prime) else 1)


def is_in_rounds(prime: Prime) -> bool:
    """Whether invocations have several elements in registers (glsl/transform_rounds.glsl), not two
    of a butterfly at a time (glsl/transform_levels.glsl)."""
    return family(prime) in SCALAR_FAMILIES


def count_roots(prime: Prime, levels: int) -> int:
    """Return the number of roots that a pass reads: those of its butterflies, or all powers if
    butterflies need no roots (glsl/families/goldilocks_rounds.glsl)."""
    count = 1 << levels
    return count if family(prime) == "goldilocks" else max(count >> 1, 1)


def count_shared_roots(prime: Prime, levels: int) -> int:
    """Return the number of roots of which a pass has a copy in shared memory."""
    return 0 if family(prime) == "goldilocks" else count_roots(prime, levels)


def get_root_shift(prime: Prime, *, inverse: bool) -> int:
    """Return log2 of the root of unity of order 8, or of its inverse; 0 if it is no power of 2."""
    if family(prime) != "goldilocks":
        return 0
    return -GOLDILOCKS_ROOT_SHIFT % 192 if inverse else GOLDILOCKS_ROOT_SHIFT


def lazy_bytes(prime: Prime) -> int:
    """Return the size of a lazily reduced element in shared memory."""
    return 4 * lazy_limbs(prime).count if family(prime) == "wide" else prime.element_bytes


@functools.cache
def lazy_limbs(prime: Prime) -> LimbLayout:
    """Return the fewest limbs that hold a lazily reduced element: `LAZY_BITS` more than the
    modulus.
    """
    layouts = [
        LimbLayout(bits, count, 0)
        for bits in LIMB_WIDTHS
        for count in [-(-(prime.bits + LAZY_BITS) // bits)]
    ]
    return min(layouts, key=lambda layout: (layout.count, layout.bits))


def encode_twiddles(prime: Prime, values: Iterable[int]) -> words.Elements:
    """Encode integers as the factors that transform kernels multiply by (glsl/lazy.glsl)."""
    kind, modulus = family(prime), prime.modulus
    if kind == "wide":
        limbs = lazy_limbs(prime)
        values = (value << limbs.bits * limbs.count for value in values)
    elif kind == "monty31":
        values = (value * prime.r for value in values)
    return words.from_ints(prime, [value % modulus for value in values])


def _make_transform_kernel(
    prime: Prime, module: str, *, inputs: int, parameters: Mapping[int, Constant] | None = None
) -> Kernel:
    constants, push, kind = dict(parameters or {}), None, family(prime)
    if kind == "wide":
        limbs = lazy_limbs(prime)
        constants |= {
            SpecId.LIMBS: limbs.count,
            SpecId.LIMB_BITS: limbs.bits,
            SpecId.NEGATIVE_INVERSE: limbs.negative_inverse(prime.modulus),
        }
        push = encode_modulus(limbs.split(prime.modulus))
    return _make_kernel(prime, kind, module, inputs=inputs, constants=constants, push=push)


# --- bytes ---

_ENCODING_ARRAYS = {
    "checked_copy": ("e", "e"),
    "from_bytes": ("e", "e"),
    "to_bytes": ("e", "e"),
    "right_side": ("ee", "eew"),
    "choose_root": ("eeeww", "ew"),
    "has_image": ("eee", "w"),
    "on_curve": ("ee", "w"),
    "compress_points": ("e", "e"),
}
"""The types of the inputs and of the outputs: e is a number as long as an element, w a word."""


@functools.cache
def encoding_kernel(prime: Prime, name: str) -> Kernel:
    """Return the kernel `glsl/encodings/<name>.comp`, for primes of the family `wide`, and
    `checked_copy` for every prime. It and `from_bytes` have a status word.
    """
    inputs, outputs = _ENCODING_ARRAYS[name]
    return _make_kernel(
        prime,
        "wide",
        name,
        inputs=len(inputs),
        outputs=len(outputs),
        types=inputs + outputs,
        status=name in ("checked_copy", "from_bytes"),
    )


# --- shared by all of them ---


def _make_kernel(
    prime: Prime,
    kind: str,
    module: str,
    *,
    inputs: int,
    outputs: int = 1,
    constants: Mapping[int, Constant] | None = None,
    push: bytes | None = None,
    types: str | None = None,
    status: bool = False,
) -> Kernel:
    """Return the kernel of a family's module for a prime, all of whose arrays hold elements, unless
    `types` says otherwise (`_ENCODING_ARRAYS`).

    `constants` override those that the family derives from the prime, and `push` replaces its push
    constants.
    """
    interface = load_interface(f"{kind}_{module}")
    present = {constant.spec_id for constant in interface.constants}
    known: dict[int, Constant] = {**family_constants(prime, kind, interface), **(constants or {})}
    return make_pass_kernel(
        load_spirv(f"{kind}_{module}"),
        f"{prime.name}_{module}",
        inputs,
        [
            prime.element_dtype if each == "e" else np.uint32
            for each in types or "e" * (inputs + outputs)
        ],
        constants={spec_id: value for spec_id, value in known.items() if spec_id in present},
        push=family_push(prime, kind, interface) if push is None else push,
        tuning=tune_per_invocation(present),
        status=status,
    )


def make_pass_kernel(
    code: bytes,
    name: str,
    inputs: int,
    dtypes: Sequence[npt.DTypeLike],
    *,
    constants: Mapping[int, Constant] | None = None,
    push: bytes = b"",
    tuning: Tuning | None = None,
    status: bool = False,
) -> Kernel:
    """Return a kernel that only a Dispatch runs. `dtypes` are those of its inputs, then of its
    outputs."""
    return Kernel.from_spirv(
        code,
        count=True,
        buffers=declare_buffers(inputs, dtypes, status=status),
        init=None,
        constants=constants,
        push=(push, refuse_shapes),
        tuning=tuning,
        name=name,
    )


@functools.cache
def clear_kernel() -> Kernel:
    """Return the kernel that writes zeros, in units of 16 bytes. Output: words."""
    tuning = Tuning(per_invocation=SpecId.PER_INVOCATION)
    return make_pass_kernel(load_spirv("clear"), "clear", 0, [np.uint32], tuning=tuning)


def tune_per_invocation(present: Collection[int]) -> Tuning:
    """Return the tuning of code that has these specialization constants."""
    return Tuning(SpecId.PER_INVOCATION if SpecId.PER_INVOCATION in present else None)


def refuse_shapes(*_shapes: Shape) -> Sequence[int]:
    """Raise: the `push_of` of kernels that only a Dispatch runs."""
    raise KernelError(
        "this kernel is one pass of an operation: submit it as a Dispatch with its push words"
    )
