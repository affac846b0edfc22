"""Kernels on points of curves: which module serves a curve, its constants and its limbs.

Only a `Dispatch` runs these kernels (`ops/points.py`, `msm/stages.py`).
`glsl/curves/coordinate.glsl` describes the numbers that they compute with,
`glsl/curves/point_group.glsl` the groups.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import KernelError
from gpu_executor.kernel import Constant, Kernel, Tuning
from gpu_executor.kernels.families import family
from gpu_executor.kernels.modules import (
    F64_LIMB_BITS,
    SpecId,
    f64_limb_constants,
    load_interface,
    load_spirv,
)
from gpu_executor.kernels.passes import make_pass_kernel, tune_per_invocation
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import find_cube_root_of_unity
from gpu_executor.primes.prime import LIMB_BITS, LimbLayout

CURVE_DEGREES = (1, 2)
"""The degrees of fields whose curves have kernels."""
SLACK, SLACK_PER_NONRESIDUE = 100, 192
"""How much larger than p the numbers of curve kernels may be: the largest product of two lazily
reduced numbers, in units of p^2 (glsl/curves/point_mixed.glsl, point_serial.glsl). With degree 2 a
product is the sum of two, of which one is multiplied by the nonresidue."""
SQUARE_SLACK = 400
"""The same for squares at degree 2 with u^2 = -1, which are one product a lane."""
F64_SLACK = 60
"""The same for the accumulation with f64 limbs (glsl/curves/point_mixed_f64.glsl)."""
MAX_F64_CURVE_LIMBS = 5
"""The most f64 limbs with which points are accumulated. At 381 bits there are 8, whose numbers need
too many of the 256 registers that an invocation has at most, on NVIDIA's GPUs as on AMD's: 1.48 G
mixed additions a second on an NVIDIA H200, where integer limbs give 1.84."""
MAX_NONRESIDUE = 16
MAX_LIMBS = 28
"""The limbs of a modulus that fit the specialization constants."""
COORDINATES = 4
"""Of an XYZZ point."""
GROUP_WORK_GROUP, GROUP_WORK_GROUP_ON_CPU = 64, 8
"""Invocations of a work-group of kernels that compute in groups. Where a group is one invocation,
fewer if the registers of so many do not fit shared memory: they are 1,024 bytes at 381 bits.
Lavapipe has 32 KiB, and vectors of 8 invocations."""
REGISTERS = 16
"""Coordinates that such an invocation has in shared memory (glsl/curves/point_serial.glsl)."""
SINGLE_WORK_GROUP = 64
_ARRAYS = {
    "to_limb_form": (2, 1),
    "add_pairs": (4, 2),
    "accumulate": (4, 3),
    "sum_runs": (3, 2),
    "combine": (3, 3),
    "sum_pairs": (2, 1),
    "join_windows": (2, 2),
    "add_terms": (4, 1),
    "shift_points": (2, 1),
    "to_affine": (2, 2),
}
"""The numbers of inputs and outputs."""
OPERATIONS = tuple(_ARRAYS)
RESIDUE_ARRAYS = {
    "join_by_residues": (2, 2),
    "residue_multiples": (2, 1),
    "residue_sums": (3, 1),
    "residue_join": (2, 1),
}
"""The same of kernels that compute in residues (kernels/residues.py)."""
_SINGLE = ("to_limb_form", "add_pairs", "to_affine")
"""The kernels in which every invocation is alone."""
_OF_PRIME_FIELDS = ("add_pairs", "to_affine")
"""The kernels that only curves over prime fields have."""
_IN_LANES = ("sum_runs",)
"""The kernels that only groups of several lanes run."""


VARIANT_OPTIONS: dict[str, tuple[str, ...]] = {
    "": (),
    "grouped": ("-DGROUPED",),
    "serial": ("-DGROUPED", "-DSERIAL"),
    "f64": ("-DF64_LIMBS",),
}
"""The compiler options of the variants of kernels. Kernels that compute in groups have a serial
variant, for groups of one invocation. Only accumulate has variants without groups: on integer
limbs and, at degree 1, on f64 limbs."""


def list_variants(operation: str, degree: int) -> tuple[str, ...]:
    """Return the variants of which there are modules."""
    if operation in (*_OF_PRIME_FIELDS, *RESIDUE_ARRAYS) and degree > 1:
        return ()
    if operation in (*_SINGLE, *_IN_LANES, *RESIDUE_ARRAYS):
        return ("",)
    if operation != "accumulate":
        return ("", "serial")
    return ("", "grouped", "serial", "f64") if degree == 1 else ("", "grouped", "serial")


def curve_module_name(operation: str, degree: int, variant: str) -> str:
    """Return the name of the module of an operation on points."""
    return "_".join(part for part in (f"curve{degree}", variant, operation) if part)


def choose_variant(operation: str, lanes: int, *, grouped: bool, f64_limbs: bool = False) -> str:
    """Return the variant of a kernel for groups of `lanes` invocations."""
    if f64_limbs:
        return "f64"
    in_groups = grouped if operation == "accumulate" else operation not in _SINGLE
    if in_groups and lanes == 1:
        return "serial"
    return "grouped" if grouped else ""


def get_small_nonresidue(curve: CurveKey) -> int:
    """Return the nonresidue as a small integer, negative or positive; refuses a large one."""
    found = min(curve.nonresidue, curve.nonresidue - curve.prime.modulus, key=abs)
    if curve.degree not in CURVE_DEGREES or abs(found) > MAX_NONRESIDUE:
        raise KernelError(
            f"curves over a field of degree {curve.degree} with u^{curve.degree} = "
            f"{curve.nonresidue} have no kernels; there are some for prime fields and for degree 2 "
            f"with a nonresidue between -{MAX_NONRESIDUE} and {MAX_NONRESIDUE}; points.to_host() "
            "copies the points to the host, which computes with any field"
        )
    return found


@functools.cache
def curve_limbs(curve: CurveKey) -> LimbLayout:
    """Return the limbs of the numbers that curve kernels compute with: the fewest, and of these the
    narrowest, whose slack 2^(count * bits) / p suffices.
    """
    slack = SLACK + SLACK_PER_NONRESIDUE * abs(get_small_nonresidue(curve))
    if curve.degree == 2:
        slack = max(slack, SQUARE_SLACK)
    least = (slack * curve.prime.modulus).bit_length()
    layouts = (LimbLayout(bits, -(-least // bits), 0) for bits in LIMB_BITS)
    return min(layouts, key=lambda layout: (layout.count, layout.bits))


@functools.cache
def f64_curve_limbs(curve: CurveKey) -> LimbLayout | None:
    """Return the f64 limbs with which points of the curve are accumulated, or None if only integer
    limbs serve: then they are too many, or their Montgomery factor is neither that of
    `curve_limbs` nor half of it (glsl/curves/point_mixed_f64.glsl). `shift` is the logarithm of the
    ratio of both factors.
    """
    if curve.degree != 1 or family(curve.prime) != "wide":
        return None
    count = -(-(F64_SLACK * curve.prime.modulus).bit_length() // F64_LIMB_BITS)
    integers = curve_limbs(curve)
    shift = integers.bits * integers.count - F64_LIMB_BITS * count
    if count > MAX_F64_CURVE_LIMBS or shift not in (0, 1):
        return None
    return LimbLayout(F64_LIMB_BITS, count, shift)


def point_limbs(curve: CurveKey) -> int:
    """Return the 32-bit words of an XYZZ point of lazily reduced limbs."""
    return COORDINATES * curve.degree * curve_limbs(curve).count


def encode_constants(curve: CurveKey) -> npt.NDArray[np.uint32]:
    """Return the constants that curve kernels read, in the order of glsl/curves/coordinate.glsl."""
    prime, limbs = curve.prime, curve_limbs(curve)
    p, factor = prime.modulus, 1 << limbs.bits * limbs.count
    to_limb_form = factor * factor * pow(prime.one, -1, p)
    coefficients = (value * factor for value in (*curve.a, *curve.b))
    image = to_limb_form * (find_cube_root_of_unity(p) or 1)
    numbers = (factor, to_limb_form, prime.one, *coefficients, image, factor**3)
    return np.array([limbs.split(number % p) for number in numbers], np.uint32)


def encode_f64_constants(curve: CurveKey, limbs: LimbLayout) -> npt.NDArray[np.uint64]:
    """Return the constants that the accumulation with f64 limbs reads, in the order of
    glsl/curves/point_mixed_f64.glsl.
    """
    factor = 1 << limbs.bits * limbs.count
    numbers = factor, curve.a[0] * factor << 2 * limbs.shift
    return np.array([limbs.split(number % curve.prime.modulus) for number in numbers], np.uint64)


def count_lanes(curve: CurveKey, info: DeviceInfo) -> int:
    """Return the invocations of a group: one for each number of a point, on a GPU.

    The lanes of a group are in one subgroup and exchange numbers by shuffles. On a CPU a group is
    one invocation, in a form that lavapipe compiles fast (glsl/curves/point_serial.glsl).
    """
    lanes = COORDINATES * curve.degree
    fits = "subgroup shuffle" in info.features and info.shuffle_lanes % lanes == 0
    return lanes if info.kind != "cpu" and fits else 1


def choose_work_group(curve: CurveKey, info: DeviceInfo) -> int:
    """Return the invocations of a work-group of kernels that compute in groups."""
    if count_lanes(curve, info) > 1:
        return GROUP_WORK_GROUP
    register_bytes = 16 * REGISTERS * curve.degree * -(-curve_limbs(curve).count // 4)
    size = GROUP_WORK_GROUP_ON_CPU if info.kind == "cpu" else GROUP_WORK_GROUP
    while size > 1 and size * register_bytes > info.limits.max_shared_memory:
        size //= 2
    return size


@functools.cache
def curve_kernel(
    curve: CurveKey,
    operation: str,
    lanes: int,
    *,
    grouped: bool = False,
    f64_limbs: LimbLayout | None = None,
) -> Kernel:
    """Return the kernel `glsl/curves/<operation>.comp` for a curve, with groups of `lanes`
    invocations, or with these f64 limbs (`f64_curve_limbs`).
    """
    nonresidue = get_small_nonresidue(curve)
    variant = choose_variant(operation, lanes, grouped=grouped, f64_limbs=f64_limbs is not None)
    module = curve_module_name(operation, curve.degree, variant)
    inputs, outputs = _ARRAYS[operation]
    prime, limbs = curve.prime, curve_limbs(curve)
    constants: dict[int, Constant] = {
        SpecId.WORDS: prime.words,
        SpecId.LIMBS: limbs.count,
        SpecId.LIMB_BITS: limbs.bits,
        SpecId.NEGATIVE_INVERSE: limbs.negative_inverse(prime.modulus),
        SpecId.A_IS_ZERO: not any(curve.a),
        SpecId.NONRESIDUE: nonresidue,
        **dict(enumerate(limbs.split(prime.modulus), SpecId.MODULUS)),
    }
    if f64_limbs is not None:
        numbers = f64_limbs.split(prime.modulus)
        words = np.array([numbers, np.array(numbers, np.float64).view(np.uint64)], np.uint64)
        constants |= f64_limb_constants(prime, f64_limbs)
        constants |= {
            SpecId.STORED_LIMBS: limbs.count,
            SpecId.STORED_LIMB_BITS: limbs.bits,
            SpecId.FACTOR_SHIFT: f64_limbs.shift,
        }
        for first, row in zip((0, MAX_LIMBS // 2), words, strict=True):
            constants |= dict(enumerate(row.view(np.uint32).tolist(), SpecId.MODULUS + first))
    present = {constant.spec_id for constant in load_interface(module).constants}
    return make_pass_kernel(
        load_spirv(module),
        f"curve_{operation}_{prime.name}",
        inputs,
        [np.uint32] * (inputs + outputs),
        constants={spec_id: value for spec_id, value in constants.items() if spec_id in present},
        tuning=tune_per_invocation(present),
    )


@functools.cache
def scalar_digits_kernel() -> Kernel:
    """Return the kernel that splits scalars into signed digits. Input: scalars; outputs: keys,
    entries; push words: points, scalar_words, windows, window_bits, table_windows, set_stride,
    sums_per_set, sets.
    """
    return _make_scalar_kernel("scalar_digits", 1, 2)


@functools.cache
def table_entries_kernel() -> Kernel:
    """Return the kernel that makes entries of sums of table points. Input: scalars; outputs: keys,
    entries; push words: scalar_words, windows, window_bits.
    """
    return _make_scalar_kernel("table_entries", 1, 2)


@functools.cache
def run_bounds_kernel() -> Kernel:
    """Return the kernel that finds runs of equal keys. Input: keys; outputs: starts, ends."""
    return _make_scalar_kernel("run_bounds", 1, 2)


@functools.cache
def halved_lengths_kernel() -> Kernel:
    """Return the kernel that halves the lengths of runs. Inputs: starts, ends; output: lengths;
    push words: runs.
    """
    return _make_scalar_kernel("halved_lengths", 2, 1)


@functools.cache
def pair_runs_kernel() -> Kernel:
    """Return the kernel that finds the pairs of each round. Inputs: keys, entries, starts, ends,
    offsets; outputs: pairs, keys of the last sums; push words: runs, rounds.
    """
    return _make_scalar_kernel("pair_runs", 5, 2)


@functools.cache
def halve_scalars_kernel(words: int) -> Kernel:
    """Return the kernel that splits scalars of so many words into halves. Inputs: scalars, and
    constants (`Glv.encode`); output: halves; push words: points.
    """
    return _make_scalar_kernel("halve_scalars", 2, 1, {SpecId.WORDS: words})


@functools.cache
def half_digits_kernel(words: int) -> Kernel:
    """Return the kernel that splits scalars of so many words into signed digits of their halves.
    Inputs: scalars, and constants (`Glv.encode`); output: digits; push words: points, windows,
    window_bits.
    """
    return _make_scalar_kernel("half_digits", 2, 1, {SpecId.WORDS: words})


@functools.cache
def packed_digits_kernel(words: int) -> Kernel:
    """Return the kernel that splits scalars of so many words into signed digits of one word each.
    Input: scalars; output: digits; push words: points, windows, window_bits.
    """
    return _make_scalar_kernel("packed_digits", 1, 1, {SpecId.WORDS: words})


@functools.cache
def reduce_scalars_kernel() -> Kernel:
    """Return the kernel that reduces scalars modulo the order. Input: scalars; output: scalars;
    push words: words of a scalar, big_endian, 24 words of the order.
    """
    return _make_scalar_kernel("reduce_scalars", 1, 1)


def _make_scalar_kernel(
    name: str, inputs: int, outputs: int, constants: Mapping[int, Constant] | None = None
) -> Kernel:
    """Return a kernel on scalars, whose arrays are all of 32-bit words."""
    return make_pass_kernel(
        load_spirv(name),
        name,
        inputs,
        [np.uint32] * (inputs + outputs),
        constants=constants,
        tuning=Tuning(per_invocation=SpecId.PER_INVOCATION),
    )
