"""What the works of `Backend.warm_up` submit to a device.

A work runs dry on a `WorkDevice`, in all sizes for which a device has other pipelines. The
dispatches that it submits have the kernels and the specialization constants of programs that do
this work.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

from gpu_executor import fields
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.arguments import describe
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.curves import Curve
from gpu_executor.curves.parameters import NAMES, get_named
from gpu_executor.curves.point_array import PointArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.fields.extension import ExtensionField
from gpu_executor.fields.field import Field
from gpu_executor.groth16.proof_curve import (
    CURVE_NAMES,
    ProofCurve,
    get_generator,
    get_proof_curve,
)
from gpu_executor.hashes.byte_hash import NAMED as BYTE_HASHES
from gpu_executor.hashes.byte_hash import ByteHash
from gpu_executor.hashes.field_hash import FieldHash
from gpu_executor.kernels.curves import COORDINATES
from gpu_executor.kernels.families import family
from gpu_executor.msm.fixed_base import FixedBase
from gpu_executor.msm.plan import plan_sets
from gpu_executor.msm.run import run_on_device, run_sets, run_tables
from gpu_executor.msm.tables import make_multiples, make_table, to_tables
from gpu_executor.ops import element_bytes, point_bytes, polynomials, scalars
from gpu_executor.ops.byte_hashes import hash_messages
from gpu_executor.ops.folding import ARITIES
from gpu_executor.ops.points import AFFINE
from gpu_executor.ops.sparse import RECORD_HEAD, SparseMatrix, check_records
from gpu_executor.steps.dry_device import DryDevice

T = TypeVar("T")
WORD = np.dtype(np.uint32)
FEW, SOME, MANY = 1 << 8, 1 << 18, 1 << 22
"""Numbers of elements for which a device chooses different work-groups, elements per invocation and
loops."""
COUNTS = FEW, SOME, MANY
MAX_LOG_COUNT = 24
"""The largest MSMs and transforms have 2^24 points or elements. Larger ones run in parts of that
size, or have the same pipelines."""
STEPS_PER_DOUBLING = 4
"""MSMs are planned for so many sizes between one power of two and the next: the digits of their
scalars are sorted by passes of other widths."""
EXPONENT = 5
QUOTIENT_ROWS = 3
"""The prover of Groth16 transforms three polynomials at a time."""


class WorkDevice(DryDevice):
    """A `DryDevice` with memory, and with a cache as a device has it."""

    free_memory = 1 << 40

    def __init__(self, info: DeviceInfo, *, bytes_per_product: float = 0.0) -> None:
        super().__init__(info, bytes_per_product=bytes_per_product)
        self._cached: dict[Hashable, Any] = {}

    def cache(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._cached:
            self._cached[key] = make()
        value: T = self._cached[key]
        return value


class _DryTwin(WorkDevice):
    """A `WorkDevice` on which algorithms decide as on a device. The device is asked for what it has
    to measure only if something depends on it."""

    def __init__(self, device: ArrayDevice) -> None:
        super().__init__(device.info)
        self._device, self.free_memory = device, device.free_memory

    @property
    def f64_limbs(self) -> bool:
        return self._device.f64_limbs

    @property
    def bytes_per_product(self) -> float:
        return self._device.bytes_per_product


@dataclass(frozen=True, slots=True)
class Workload:
    """A work that a device can be warmed up for."""

    takes: tuple[type, ...]
    """The types of what the work is done with."""
    named: dict[str, Any]
    """What the command line offers by name."""
    run: Callable[[WorkDevice, Any], None]


def list_dispatches(device: ArrayDevice, work: str, subject: Any) -> list[Dispatch]:
    """The dispatches of a work on a device, each with other pipelines than those before it."""
    found = find_work(work)
    if not isinstance(subject, found.takes):
        names = " or ".join(each.__name__ for each in found.takes)
        raise ArgumentTypeError(f"warm_up: {work!r} takes a {names}, not {describe(subject)}")
    dry = _DryTwin(device)
    found.run(dry, subject)
    return dry.dispatches


def find_work(name: str) -> Workload:
    """The work with a name."""
    works = list_works()
    if not isinstance(name, str) or name not in works:
        raise ArgumentValueError(
            f"warm_up: there is no work {name!r}; there are {', '.join(works)}"
        )
    return works[name]


@functools.cache
def list_works() -> dict[str, Workload]:
    """All works by their names."""
    public = {name: getattr(fields, name) for name in fields.__all__}
    prime_fields = {name: each for name, each in public.items() if isinstance(each, Field)}
    extensions = {name: each for name, each in public.items() if isinstance(each, ExtensionField)}
    curves = {name: get_named(name) for name in NAMES}
    with_transforms = {
        name: each for name, each in prime_fields.items() if each.prime.two_adicity > 1
    }
    return {
        "field": Workload((Field, ExtensionField), prime_fields | extensions, _run_any_field),
        "transform": Workload((Field,), with_transforms, _run_all_transforms),
        "curve": Workload((Curve,), curves, run_curve),
        "msm": Workload((Curve,), curves, _run_all_msms),
        "hash": Workload((ByteHash, FieldHash), dict(BYTE_HASHES), _run_any_hash),
        "groth16": Workload(
            (ProofCurve,), {name: get_proof_curve(name) for name in CURVE_NAMES}, _run_prover
        ),
    }


# --- fields ---


def make_elements(device: WorkDevice, field: Any, *shape: int) -> Any:
    data = device.empty((*shape, *field.layout.element_shape), field.prime.column_dtype)
    return field.array_type(field, data, field.form)


def _run_arithmetic(device: WorkDevice, field: Any) -> None:
    """What prime fields and extensions have."""
    for count in COUNTS:
        a, b = (make_elements(device, field, count) for _ in range(2))
        unaligned = make_elements(device, field, count + 1)[1:]
        for other in (a, unaligned):
            field.add(other, b), field.sub(other, b), field.mul(other, b), field.fma(other, b, a)
            field.neg(other), field.double(other), field.square(other)
            field.power(other, EXPONENT)
            if field.form == "montgomery":
                other.in_form("canonical")
                field.array_type(field, other.data, "canonical").in_form("montgomery")
        field.add(a, 3), field.sub(a, 3), field.sub(3, a), field.mul(a, 3), field.fma(a, 3, b)
        field.equal(a, b), field.equal(a, 3), field.from_words(a.data, field.form)
        field.where(np.zeros(count, np.bool_), a, b), field.where(np.False_, a, 1)
        field.div(a, b), field.inverse(a, zero="error")
        field.sum(a), field.prod(a), field.vecdot(a, b)
        field.prefix_sum(a), field.prefix_product(a)
        rows = a.reshape(count // FEW, FEW)
        field.sum(rows, axis=0), field.sum(rows, axis=1), field.prod(rows, axis=1)
        field.matmul(rows, rows.transpose(1, 0)), field.matmul(rows, a[:FEW])
        places = np.arange(FEW)
        a[places] = a[places]
        a[::2].copy()
        field.concatenate([a, b])
    field.legendre(make_elements(device, field, FEW))
    field.sqrt(make_elements(device, field, FEW), nonsquare="zero")


def run_field(device: WorkDevice, field: Field) -> None:
    _run_arithmetic(device, field)
    prime = field.prime
    for count in COUNTS:
        a = make_elements(device, field, count)
        field.poly_eval(a[:FEW], a)
        polynomials.resize(prime, a.data, count + 1)
        row = a[:FEW].reshape(1, FEW)
        polynomials.multiply_directly(prime, row.data, row.data)
        if family(prime) == "wide":
            polynomials.evaluate_rows(prime, row.data, [3])
        if element_bytes.can_convert(device, prime, prime.element_bytes):
            encoded = device.empty((count, prime.element_bytes), element_bytes.BYTE)
            element_bytes.read_bytes(prime, encoded, big_endian=True)
            element_bytes.write_bytes(prime, a.data, a.form, big_endian=True)
        if scalars.can_reduce(device, prime):
            numbers = np.broadcast_to(np.uint8(0), (FEW, prime.element_bytes))
            scalars.reduce_scalars(device, prime, numbers, big_endian=True)


def run_transforms(device: WorkDevice, field: Field, log_n: int) -> None:
    a = make_elements(device, field, 1 << log_n)
    coset = field.prime.generator
    orders: tuple[Any, ...] = ("natural", "reversed")
    for transform in (field.ntt, field.intt):
        for order_in in orders:
            for order_out in orders:
                transform(a, order_in=order_in, order_out=order_out)
        transform(a, coset=coset)
        transform(make_elements(device, field, 3, 1 << log_n))  # a batch
    for arity in ARITIES:
        if arity <= 1 << log_n:
            field.fold(a, 3, arity)
    if log_n > 1:
        half = a[: 1 << log_n - 1]
        field.poly_mul(half, half), field.poly_divide_vanishing(a, 1 << log_n - 1)
        field.lde(half, 2)
        rows = make_elements(device, field, 3, 1 << log_n - 1)
        field.poly_mul(rows, rows)


def run_extension(device: WorkDevice, field: ExtensionField) -> None:
    _run_arithmetic(device, field)
    a = make_elements(device, field, FEW)
    field.frobenius(a), field.norm(a)
    if field.degree == 2:
        field.conjugate(a)
    in_base = make_elements(device, field.base, FEW)
    field.mul(a, in_base), field.add(a, in_base)
    field.from_coefficients(*a.coefficients)
    for arity in ARITIES:
        if isinstance(field.base, Field) and 2**field.prime.two_adicity >= FEW:
            field.fold(a, 3, arity), field.fold(in_base, 3, arity)


# --- hashes ---


def run_byte_hash(device: WorkDevice, function: ByteHash) -> None:
    """Rows as trees have them and of any length, and messages of any length."""
    algorithm, size = function.algorithm, function.digest_size
    for count in (FEW, MANY):
        for length in sorted({32, 64, 2 * size, 100}):
            function.hash(device.empty((count, length), element_bytes.BYTE))
    children = device.empty((FEW, size), element_bytes.BYTE)
    function.compress(children, sort=True), function.compress(children, prefix=b"\0")
    function.hash(device.empty((FEW, 2000), element_bytes.BYTE))
    hash_messages(device, algorithm, [bytes(2000), b""])


def run_field_hash(device: WorkDevice, hashed: FieldHash) -> None:
    """Groups of invocations hash few rows; of many, each invocation has its own."""
    length = hashed.sponge.length or hashed.width
    for count in (1, FEW, MANY):
        hashed.hash(make_elements(device, hashed.field, count, length))


# --- curves ---


def make_words(device: WorkDevice, curve: Curve, coordinates: int, *shape: int) -> DeviceArray:
    """The words of points."""
    key = curve.key
    return device.empty((*shape, coordinates, *key.coordinate_shape), key.prime.column_dtype)


def run_curve(device: WorkDevice, curve: Curve) -> None:
    key, prime = curve.key, curve.key.prime
    for count in (FEW, SOME):
        for coordinates in (AFFINE, COORDINATES):
            p = PointArray(curve, make_words(device, curve, coordinates, count))
            curve.add(p, p), curve.sub(p, p), curve.neg(p), curve.double(p)
            curve.equal(p, p), curve.is_infinity(p), curve.is_on_curve(p), curve.sum(p)
            p.affine()
    words = make_words(device, curve, AFFINE, FEW)
    p = PointArray(curve, words, known_in_subgroup=True)
    factors = make_elements(device, curve.scalar_field, FEW)
    curve.mul(p, factors)
    curve.mul(p[:1], factors)
    curve.mul(p, 3)
    curve.msm(p, factors)
    PointArray(curve, words).in_subgroup()
    if point_bytes.can_decode(device, key, prime.element_bytes):
        encoded = device.empty((FEW, prime.element_bytes), element_bytes.BYTE)
        flags = device.empty((FEW,), WORD)
        point_bytes.decode_points(key, encoded, flags, big_endian=True, larger=True)
    if point_bytes.can_encode(device, key, prime.element_bytes):
        point_bytes.encode_points(key, words, (0, 1, 2), big_endian=True, larger=True)


def run_msms(device: WorkDevice, curve: Curve) -> None:
    """Few points, with tables that the call makes; more, which single invocations or groups
    accumulate; many, with rounds of affine additions; tables and sets."""
    key, glv = curve.key, curve.glv
    words = -(-key.order.bit_length() // 32)
    for count in (FEW, 1 << 14, SOME, MANY):
        points = make_words(device, curve, AFFINE, count)
        factors = device.empty((count, words), WORD)
        for used in {None, glv}:
            run_on_device(device, key, points, factors, (), used)
    batch = device.empty((3, FEW, words), WORD)
    run_on_device(device, key, make_words(device, curve, AFFINE, 3, FEW), batch, (3,), glv)
    for count in (FEW, 1 << 16):
        points = make_words(device, curve, AFFINE, count)
        table = make_table(curve, points, None, None, known_in_subgroup=True)
        factors = device.empty((count, words), WORD)
        run_tables(key, table.plan, table.data, factors, ())
    plan = plan_sets(key, 64, 128, device.info, 1 << 28)
    sets = make_words(device, curve, AFFINE, 128, 64)
    tables = to_tables(key, make_multiples(key, plan, sets))
    run_sets(key, plan, tables, device.empty((128, 64, words), WORD))


def run_proofs(device: WorkDevice, curve: ProofCurve) -> None:
    """What the prover of Groth16 and its setup use besides fields and MSMs."""
    prime = curve.scalar_field.prime
    records = device.empty((FEW, RECORD_HEAD + prime.words), WORD)
    check_records(prime, records, (2, FEW, FEW))
    starts = np.array([0, 1, FEW], np.int64)  # a short row and a long one
    vector, sums = (make_elements(device, curve.scalar_field, FEW).data for _ in range(2))
    SparseMatrix(device, prime, records, starts).multiply(vector, sums[:2])
    for group in (curve.g1, curve.g2):
        point_bytes.find_codes(group.key, make_words(device, group, AFFINE, FEW))
        base = FixedBase(device, group.key, get_generator(group))
        base.multiply(device.empty((FEW, prime.words), WORD))


# --- works ---


def _run_any_field(device: WorkDevice, field: Field | ExtensionField) -> None:
    if isinstance(field, Field):
        run_field(device, field)
    else:
        run_extension(device, field)


def _run_any_hash(device: WorkDevice, function: ByteHash | FieldHash) -> None:
    if isinstance(function, ByteHash):
        run_byte_hash(device, function)
    else:
        run_field_hash(device, function)


def _run_all_transforms(device: WorkDevice, field: Field) -> None:
    for log_n in range(1, min(field.prime.two_adicity, MAX_LOG_COUNT) + 1):
        run_transforms(device, field, log_n)


def _run_all_msms(device: WorkDevice, curve: Curve) -> None:
    """MSMs of all sizes, of points that are known to be in the group and of others, with scalars of
    the device and of the host."""
    run_msms(device, curve)
    key = curve.key
    words = -(-key.order.bit_length() // 32)
    largest = np.frombuffer((key.order - 1).to_bytes(4 * words, "little"), "<u4")
    steps = MAX_LOG_COUNT * STEPS_PER_DOUBLING + 1
    for count in sorted({round(2 ** (step / STEPS_PER_DOUBLING)) for step in range(steps)}):
        points = make_words(device, curve, AFFINE, count)
        factors = make_elements(device, curve.scalar_field, count)
        on_host = np.broadcast_to(largest, (count, words))
        for known, glv in ((False, None), (True, curve.glv)):
            curve.msm(PointArray(curve, points, known_in_subgroup=known), factors).affine()
            run_on_device(device, key, points, on_host, (), glv)


def _run_prover(device: WorkDevice, curve: ProofCurve) -> None:
    """Groth16's prover, for circuits of all sizes."""
    run_proofs(device, curve)
    for group in (curve.g1, curve.g2):
        _run_all_msms(device, group)
    field = curve.scalar_field
    for log_n in range(1, MAX_LOG_COUNT + 1):
        rows = make_elements(device, field, QUOTIENT_ROWS, 1 << log_n)
        field.ntt(field.intt(rows))
