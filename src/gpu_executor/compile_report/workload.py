"""The pipelines that this package uses on a device: those of every operation, by what operations
submit.

`RecordingDevice` is an `ArrayDevice` that computes nothing and remembers the kernel of each
dispatch, with the sizes that a Vulkan device would choose. `record_workload` runs every operation
on it, so that kernels get the same specializations as in a program.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from gpu_executor import fields
from gpu_executor.calls.dispatch import Algorithms, ArrayCopy, Dispatch, Step
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.curves.curve import Curve
from gpu_executor.curves.parameters import NAMES, get_named
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields.extension import ExtensionField
from gpu_executor.fields.field import Field
from gpu_executor.groth16.proof_curve import (
    CURVE_NAMES,
    get_proof_curve,
)
from gpu_executor.hashes.byte_hash import NAMED as BYTE_HASHES
from gpu_executor.hashes.field_hash import FieldHash
from gpu_executor.hashes.grain import Grain
from gpu_executor.hashes.mimc import mimc7, mimc_sponge
from gpu_executor.hashes.poseidon import Poseidon, poseidon
from gpu_executor.hashes.poseidon2 import list_poseidon2
from gpu_executor.hashes.rescue import rpo
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import catalogue
from gpu_executor.kernels.byte_hashes import call_kernel
from gpu_executor.kernels.chains import MIXES, integer_chains_kernel, product_chains_kernel
from gpu_executor.kernels.curves import (
    OPERATIONS,
    SINGLE_WORK_GROUP,
    choose_work_group,
    count_lanes,
    curve_kernel,
    f64_curve_limbs,
    list_variants,
)
from gpu_executor.kernels.families import SCALAR_FAMILIES, family
from gpu_executor.kernels.field_hashes import MAX_CODES
from gpu_executor.kernels.modules import SpecId, get_module_names
from gpu_executor.ops.array_functions import where
from gpu_executor.ops.folding import ARITIES
from gpu_executor.ops.sort import ORDERS, UINT64, argsort, bincount, sort, sort_pairs
from gpu_executor.plan.plan import choose_work_groups
from gpu_executor.primes import NAMED
from gpu_executor.soak.kernels import KERNELS as SOAK_KERNELS
from gpu_executor.steps.dispatch_sizes import choose_constants, choose_sizes
from gpu_executor.steps.step_binder import STRIDED_COPY_WORK_GROUP
from gpu_executor.vulkan.pipeline import Constants, encode_specialization
from gpu_executor.warm_up.works import (
    COUNTS,
    FEW,
    MANY,
    WORD,
    WorkDevice,
    run_byte_hash,
    run_curve,
    run_extension,
    run_field,
    run_field_hash,
    run_msms,
    run_proofs,
    run_transforms,
)

T = TypeVar("T")
CODES = range(SpecId.DIAGONAL_CODES, SpecId.DIAGONAL_CODES + MAX_CODES)
DIGITS_OF_PRIMES = frozenset(
    {
        SpecId.NEGATIVE_INVERSE,
        SpecId.NEGATIVE_INVERSE_HIGH,
        SpecId.RECIPROCAL,
        SpecId.RECIPROCAL_SHIFT,
        *range(SpecId.ONE, SpecId.GRID_STRIDE),
        *range(SpecId.MODULUS, SpecId.STORED_LIMBS),
    }
)
"""Specialization constants that are the digits of a prime, or of numbers that follow from it. They
decide no loop and no type, so pipelines that differ in nothing else have the same registers."""
SIZES = frozenset({SpecId.WORK_GROUP_SIZE, SpecId.PER_INVOCATION})
"""They decide no code of folds, whose elements are a loop that stays one: the instructions of all
pairs of such pipelines were equal on navi21 and on vega10. Folds take Mesa up to 6 s."""
CHAIN_LENGTH = 256
"""Of the chains that measure products."""
LOG_LENGTHS = (1, 7, 12, 13, 22)
"""Transforms have passes of other shapes at each of these lengths: of one pass, of two equal ones,
of two that differ, of three. EIP-4844 and EIP-7594 have those from 2^7 to 2^13."""
COMPARED_CURVES = ("BLS12_381_G1", "BLS12_381_G2", "BN254_G1", "BN254_G2")
"""The curves whose kernels are also compiled in variants that are not chosen."""


@dataclass(frozen=True, slots=True)
class RecordedPipeline:
    """A kernel with the specialization constants of one pipeline."""

    kernel: Kernel
    constants: Constants
    params_in_buffer: bool
    chosen: bool
    """Whether operations use the pipeline; others are variants for comparison."""

    @property
    def module(self) -> str:
        """The name of the kernel's SPIR-V module."""
        return get_module_names()[self.kernel.digest]

    @property
    def shape(self) -> Hashable:
        """What decides the code. Of the digits of a prime these are, in kernels on points alone,
        those by which a compiler multiplies without a product: such kernels use all registers, so
        that few instructions decide. Pallas and Vesta have the same code."""
        on_points, is_fold = self.module.startswith("curve"), self.module.endswith("_fold")
        constants = tuple(
            (spec_id, encoded)
            for spec_id, encoded in self.constants
            if spec_id not in DIGITS_OF_PRIMES or (on_points and _needs_no_product(encoded))
            if not (is_fold and spec_id in SIZES)
        )
        return self.kernel.digest, constants, self.params_in_buffer

    def describe_constants(self) -> str:
        """The specialization constants in words, without the digits of a prime and the codes of a
        diagonal."""
        return ", ".join(
            f"{SpecId(spec_id).name.lower()}={int.from_bytes(encoded, 'little', signed=True)}"
            for spec_id, encoded in self.constants
            if spec_id not in DIGITS_OF_PRIMES and spec_id not in CODES
        )


def _needs_no_product(encoded: bytes) -> bool:
    """Whether a product by a constant is 0, a shift, or a shift and a difference."""
    number = int.from_bytes(encoded, "little")
    return number & number - 1 == 0 or number & number + 1 == 0


def _is_left_out(kernel: Kernel) -> bool:
    """Whether a kernel is not compiled: folds of sixteen values with f64 limbs, which AMD's devices
    do not choose. Mesa compiles them for 21 s, and those of eight values spill already."""
    is_fold = get_module_names()[kernel.digest] == "f64_limbs_fold"
    return is_fold and 2 ** dict(kernel.constants)[SpecId.LOG_ARITY] == ARITIES[-1]


class RecordingDevice(WorkDevice):
    """A `WorkDevice` that remembers the pipelines of what is submitted."""

    def __init__(self, info: DeviceInfo) -> None:
        # So fast a memory that rounds of affine additions are worth while.
        super().__init__(info, bytes_per_product=math.inf)
        self.operations: set[Algorithms] = set()
        """The operations that were run."""
        self.requests: dict[Hashable, RecordedPipeline] = {}
        """The pipelines by their shape."""
        self._added: set[Hashable] = set()
        """What `add` got: operations submit a kernel in the same sizes again and again."""
        self.recorded: set[Hashable] = set()
        """What would submit nothing new: operations on elements of primes of equal length."""

    def use_f64_limbs(self, is_on: bool) -> None:
        """Let large primes have f64 limbs from now on, or integer limbs."""
        self._f64_limbs = is_on

    def add(
        self,
        kernel: Kernel,
        work_group: int,
        per_invocation: int,
        *,
        params_in_buffer: bool = False,
        chosen: bool = True,
    ) -> None:
        """Remember a pipeline, unless one of the same shape is known."""
        key = kernel, work_group, per_invocation, params_in_buffer
        if key in self._added:
            return
        self._added.add(key)
        constants = choose_constants(kernel, work_group, per_invocation)
        request = RecordedPipeline(
            kernel,
            encode_specialization(kernel, constants),
            params_in_buffer and kernel.pushes_params,
            chosen,
        )
        self.requests.setdefault(request.shape, request)

    def submit(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Dispatch):
                _, work_group, per_invocation = choose_sizes(step, self.info)
                if not _is_left_out(step.kernel):
                    self.add(step.kernel, work_group, per_invocation)
            else:
                assert isinstance(step, ArrayCopy)  # `_record_copies` has their kernels

    def run_operation(
        self, operation: Algorithms, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        self.operations.add(operation)
        return super().run_operation(operation, arguments, options)


def record_workload(info: DeviceInfo) -> RecordingDevice:
    """Return a device that has seen every operation of this package."""
    device = RecordingDevice(info)
    _record_catalogue(device)
    _record_copies(device)
    _record_sorts(device)
    _record_numpy_functions(device)
    for function in BYTE_HASHES.values():
        run_byte_hash(device, function)
        kernel = call_kernel(function.algorithm, 99)  # rows of the host
        device.add(kernel, *choose_work_groups(kernel, FEW, device.info, []))
    public = [getattr(fields, name) for name in fields.__all__]
    named = [each for each in public if isinstance(each, Field)]
    extensions = [each for each in public if isinstance(each, ExtensionField)]
    extensions += [
        ExtensionField(fields.BABYBEAR, 11, 4),
        ExtensionField(fields.KOALABEAR, 3, 4),
        ExtensionField(fields.GOLDILOCKS, 7, 3),
        ExtensionField(fields.MERSENNE31, -1, 2),
        ExtensionField(fields.MERSENNE31, 5, 3),
    ]
    named_curves = [get_named(name) for name in NAMES]
    for f64_limbs in (False, True):
        device.use_f64_limbs(f64_limbs)
        for field in named:
            kind: Hashable = ("field", f64_limbs, family(field.prime), field.prime.bits)
            if kind not in device.recorded:
                device.recorded.add(kind)
                run_field(device, field)
            for log_n in LOG_LENGTHS:
                kind = ("transform", family(field.prime), field.prime.bits, log_n)
                if log_n <= field.prime.two_adicity and kind not in device.recorded:
                    device.recorded.add(kind)
                    run_transforms(device, field, log_n)
        for extension in extensions:
            run_extension(device, extension)
        for hashed in _list_field_hashes():
            run_field_hash(device, hashed)
        for curve in named_curves:
            run_curve(device, curve)
            run_msms(device, curve)
        for name in CURVE_NAMES:
            run_proofs(device, get_proof_curve(name))
    for name in COMPARED_CURVES:
        _record_variants(device, get_named(name))
    return device


# --- calls of kernels, and copies ---


def _record_catalogue(device: RecordingDevice) -> None:
    """The kernels with names, those of measurements, and those of the soak test."""
    kernels = [catalogue.load(name) for name in catalogue.names()]
    kernels += [make() for make in SOAK_KERNELS.values()]
    kernels.append(catalogue.fma_chain_kernel(CHAIN_LENGTH))
    for prime in NAMED.values():
        kernels += [
            catalogue.mont_mul_chain_kernel(prime, CHAIN_LENGTH, f64_limbs=f64_limbs)
            for f64_limbs in (False, True)
        ]
        if family(prime) in SCALAR_FAMILIES:
            kernels.append(product_chains_kernel(prime, CHAIN_LENGTH))
    kernels += [integer_chains_kernel(mix, CHAIN_LENGTH) for mix in MIXES]
    for kernel in kernels:
        for count in COUNTS:
            sizes = choose_work_groups(kernel, count, device.info, [])
            device.add(kernel, *sizes)  # on device arrays
            device.add(kernel, *sizes, params_in_buffer=True)  # on host arrays


def _record_copies(device: RecordingDevice) -> None:
    """What copies device arrays: `StepBinder` chooses it by the layout of the arrays."""
    for count in COUNTS:
        copy = catalogue.copy_kernel()
        device.add(copy, *choose_work_groups(copy, count, device.info, []))
    for unit in (1, 2, 4):
        device.add(catalogue.strided_copy_kernel(unit), STRIDED_COPY_WORK_GROUP, 1)
        words_only = catalogue.strided_copy_kernel(unit, words_only=True)
        # For a GPU without 8- and 16-bit integers in buffers.
        device.add(words_only, STRIDED_COPY_WORK_GROUP, 1, chosen=unit == 4)


def _record_sorts(device: RecordingDevice) -> None:
    for count in (FEW, MANY):
        dtypes: list[np.dtype[Any]] = [*ORDERS, UINT64]
        for dtype in dtypes:
            array = device.empty((count,), dtype)
            sort(array)
            argsort(array)
        numbers = device.empty((count,), WORD)
        for bins in (FEW, MANY):
            bincount(numbers, bins)
        for bits in (1, 7, 20, 32):
            sort_pairs(device, numbers, numbers, bits)


def _record_numpy_functions(device: RecordingDevice) -> None:
    """Operations of few and of many instructions, for all numbers that kernels compute with."""
    for name in ("i4", "i8", "f4", "f8"):
        array = device.empty((MANY,), np.dtype(name))
        table = device.empty((FEW, FEW), np.dtype(name))
        for function in (np.add, np.less, np.remainder):
            function(array, array), function(table, table.T)
        where(array.astype(np.bool_), array, table.reshape(-1)[:1])
        array.astype(np.uint8), array.astype(np.float16)
        array.sum(dtype=name), table.sum(axis=0, dtype=name), array.max(), array.any()


def _list_field_hashes() -> list[FieldHash]:
    """The hash functions whose kernels differ in more than their constants; circomlib's Poseidon
    has a state of two to seventeen elements."""
    circomlib = [poseidon(fields.BN254_FR, inputs) for inputs in (1, 2, 3, 4, 8, 16)]
    others = [poseidon(fields.GOLDILOCKS), rpo(), mimc7(), mimc_sponge()]
    own = [_make_poseidon(field) for field in (fields.BABYBEAR, fields.MERSENNE31)]
    return [*circomlib, *others, *own, *list_poseidon2()]


@functools.cache
def _make_poseidon(field: Field) -> Poseidon:
    """Poseidon over a field for which only parameters of the caller's exist."""
    width, rounds = 16, (8, 13)
    grain = Grain(field.prime, width, *rounds)
    constants = grain.draw_elements(width * sum(rounds))
    return Poseidon(field, width, rounds, constants, grain.draw_cauchy_matrix(width))


def _record_variants(device: RecordingDevice, curve: Curve) -> None:
    """The kernels on points in the variants that such a device does not choose."""
    key, info = curve.key, device.info
    single = dataclasses.replace(info, features=info.features - {"subgroup shuffle"})
    for operation in OPERATIONS:
        for variant in list_variants(operation, key.degree):
            lanes = {"": key.degree, "f64": 1, "serial": 1}.get(variant, count_lanes(key, info))
            if not variant and operation != "accumulate":
                continue  # operations use the only variant without a name
            limbs = f64_curve_limbs(key) if variant == "f64" else None
            if variant == "f64" and limbs is None:
                continue
            grouped = variant in ("grouped", "serial")
            kernel = curve_kernel(key, operation, lanes, grouped=grouped, f64_limbs=limbs)
            size = choose_work_group(key, single) if variant == "serial" else SINGLE_WORK_GROUP
            device.add(kernel, size, 1, chosen=False)
