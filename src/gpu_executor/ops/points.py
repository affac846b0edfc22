"""Operations on points of curves on a device.

Points are device arrays of words (..., coordinates, *coordinate axes): two coordinates in affine
form, four in XYZZ form. Operands of one operation have equal leading axes, and their forms may
differ. Results of the group law are in XYZZ form. Operations on more points than a kernel can bind
run in parts.

The group law runs in one kernel for all operations, glsl/curves/add_terms.comp. What needs no group
law (conversions, negation, comparisons) is computed with the operations of the field.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice, Dispatch, Step
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernels.curves import (
    COORDINATES,
    SINGLE_WORK_GROUP,
    choose_work_group,
    count_lanes,
    curve_kernel,
    encode_constants,
    point_limbs,
)
from gpu_executor.kernels.residues import WORK_GROUP as RESIDUE_WORK_GROUP
from gpu_executor.kernels.residues import encode_residue_constants, residue_kernel
from gpu_executor.ops import elementwise, extensions, scans
from gpu_executor.ops.elementwise import ElementData, Words, split_axes
from gpu_executor.ops.scalars import count_bits, put_scalars
from gpu_executor.primes import Extension, Prime, words
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.prime import LimbLayout

P = ParamSpec("P")
Booleans = npt.NDArray[np.bool_]
AFFINE, XYZZ = 2, 4
"""The coordinates of a point in each form."""
X, Y, ZZ, ZZZ = range(XYZZ)
SEGMENT = 8
"""Points that a group of invocations adds at least, in a sum of more."""
SUBGROUPS = 8
"""Subgroups for each scheduler that fill a device with sums of points by groups of invocations."""
MAX_ITERATIONS = 60_000
"""Iterations of all loops of an invocation on lavapipe, which leaves loops after 65,535
(glsl/curves/point_serial.glsl)."""
AFFINE_SUBGROUPS = 2
"""Subgroups for each scheduler that convert points to affine form; each of their invocations
inverts once. With 2, 4 and 8 of them, 2^16 points of BLS12-381 G1 took an NVIDIA H200 0.12, 0.18
and 0.18 ms, 2^20 points 0.63, 0.63 and 0.74 ms."""
BIT_ITERATIONS, TERM_ITERATIONS = {1: 128, 2: 192}, {1: 80, 2: 128}
"""Iterations for a bit of a scalar and for a term of a sum, by degree. Lavapipe left loops after as
many bits and terms as if these were 96 and 51 at degree 1, 76 for a term at degree 2. Where equal
points meet, a doubling is added."""


def count_points(curve: CurveKey, points: DeviceArray) -> int:
    """The number of points."""
    return math.prod(get_shape(curve, points))


def get_shape(curve: CurveKey, points: ElementData) -> Shape:
    """The leading axes: those of points."""
    return points.shape[: points.ndim - len(curve.coordinate_shape) - 1]


def count_coordinates(curve: CurveKey, points: DeviceArray) -> int:
    """2 for points in affine form, 4 for points in XYZZ form."""
    return points.shape[points.ndim - len(curve.coordinate_shape) - 1]


def make_points(
    device: ArrayDevice, curve: CurveKey, *shape: int, coordinates: int = XYZZ
) -> DeviceArray:
    """Uninitialized points of words."""
    full = (*shape, coordinates, *curve.coordinate_shape)
    return device.empty(full, curve.prime.column_dtype)


def make_infinity(device: ArrayDevice, curve: CurveKey, *shape: int) -> DeviceArray:
    """The point at infinity in XYZZ form, as often as the shape says."""
    made = make_points(device, curve, *shape)
    device.assign(made, curve.prime.column_dtype.type(0))
    return made


def count_bindable(device: ArrayDevice, curve: CurveKey) -> int:
    """How many points in XYZZ form a kernel can bind, at least 2."""
    point_bytes = XYZZ * curve.degree * curve.prime.element_bytes
    return max(device.info.limits.max_storage_buffer_range // point_bytes, 2)


def _in_parts(
    *, whole_axes: int = 0
) -> Callable[[Callable[P, DeviceArray]], Callable[P, DeviceArray]]:
    """Let an operation on points take more of them than a kernel can bind: it runs on parts, and
    its results are copied to one array. Its arguments are a curve, then operands of equal leading
    axes; the last `whole_axes` of them are not cut, and its results are without them."""

    def decorate(operation: Callable[P, DeviceArray]) -> Callable[P, DeviceArray]:
        @functools.wraps(operation)
        def compute(*arguments: P.args, **options: P.kwargs) -> DeviceArray:
            given: Any = arguments
            curve, first, *others = given
            device: ArrayDevice = first.storage.device
            shape, most = get_shape(curve, first), count_bindable(device, curve)
            count = math.prod(shape)
            if count <= most:
                return operation(*arguments, **options)
            cut = shape[: len(shape) - whole_axes]
            assert not options
            assert all(each.shape[: len(cut)] == cut for each in others)
            result: DeviceArray | None = None
            call: Any = operation
            for index in split_axes(cut, most // (count // math.prod(cut))):
                part = call(curve, *(each[index] for each in (first, *others)))
                if result is None:
                    coordinates = count_coordinates(curve, part)
                    result = make_points(device, curve, *cut, coordinates=coordinates)
                device.submit([ArrayCopy(part, result[index])])
            assert result is not None
            return result

        return compute

    return decorate


# --- kernels ---


def get_constants(device: ArrayDevice, curve: CurveKey) -> DeviceArray:
    """The constants of a curve on a device."""
    return device.cache(
        ("curve constants", curve), lambda: device.put(encode_constants(curve).reshape(-1))
    )


def to_limb_form(
    device: ArrayDevice, curve: CurveKey, points: DeviceArray, *, with_images: bool = False
) -> DeviceArray:
    """Points in the Montgomery form that the kernels compute with. With `with_images`, points
    (..., n) are followed by their images, whose x is multiplied by beta: (..., 2n)."""
    *leading, n = get_shape(curve, points) or (1,)
    coordinates, shape, row = count_coordinates(curve, points), points.shape, 0
    if with_images:
        shape = (*leading, 2 * n, *points.shape[len(leading) + 1 :])
        row = n * coordinates * curve.degree
    made = device.empty(shape, points.dtype)
    kernel = curve_kernel(curve, "to_limb_form", 1)
    count = points.nbytes // curve.prime.element_bytes
    arrays = points, get_constants(device, curve), made
    device.submit([Dispatch(kernel, arrays, count, (row, coordinates), grid_stride=True)])
    return made


def make_dispatch(
    device: ArrayDevice,
    curve: CurveKey,
    operation: str,
    arrays: tuple[DeviceArray, ...],
    count: int,
    push: tuple[int, ...],
    *,
    grouped: bool | None = None,
    f64_limbs: LimbLayout | None = None,
) -> Dispatch:
    """A kernel in groups of invocations for `count` elements. Of kernels with variants without
    groups, `grouped` and `f64_limbs` choose one."""
    single = grouped is False
    lanes = curve.degree if single else count_lanes(curve, device.info)
    kernel = curve_kernel(curve, operation, lanes, grouped=bool(grouped), f64_limbs=f64_limbs)
    work_group = SINGLE_WORK_GROUP if single else choose_work_group(curve, device.info)
    groups = -(-count * lanes // work_group)
    limit = device.info.limits.max_work_group_count[0]
    return Dispatch(kernel, arrays, count, push, groups=min(groups, limit), work_group=work_group)


def get_residue_constants(device: ArrayDevice, curve: CurveKey) -> DeviceArray:
    """The constants of a curve for kernels in residues, on a device."""
    return device.cache(
        ("residue constants", curve),
        lambda: device.put(encode_residue_constants(curve).reshape(-1)),
    )


def make_residue_dispatch(
    device: ArrayDevice,
    curve: CurveKey,
    operation: str,
    arrays: tuple[DeviceArray, ...],
    count: int,
    push: tuple[int, ...],
) -> Dispatch:
    """A kernel in residues with a work-group for each of `count` elements. The constants of the
    curve become its second array."""
    first, *others = arrays
    groups = min(count, device.info.limits.max_work_group_count[0])
    return Dispatch(
        residue_kernel(curve, operation),
        (first, get_residue_constants(device, curve), *others),
        count,
        push,
        groups=groups,
        work_group=RESIDUE_WORK_GROUP,
    )


def _add_terms(
    curve: CurveKey,
    shape: Shape,
    p: DeviceArray,
    *,
    q: DeviceArray | None = None,
    negates: bool = False,
    columns: int = 1,
    length: int = 1,
    scalars: DeviceArray | None = None,
    bits: int = 0,
    first_bit: int = 0,
) -> DeviceArray:
    """The kernel add_terms.comp: an array of points of a shape. In multiples, one point and one
    scalar repeat."""
    device: ArrayDevice = p.storage.device
    result = make_points(device, curve, *shape)
    count = math.prod(shape)
    if not count:
        return result
    constants = get_constants(device, curve)
    p_words = to_limb_form(device, curve, p)
    q_words = p_words if q is None else to_limb_form(device, curve, q)
    scalar_words = -(-curve.order.bit_length() // 32)
    push = (
        count_coordinates(curve, p),
        count_points(curve, p),
        0 if q is None else count_coordinates(curve, q),
        int(negates),
        columns,
        -(-columns // length),
        length,
        bits,
        first_bit,
        1 if scalars is None else scalars.nbytes // (4 * scalar_words),
        scalar_words,
    )
    arrays = p_words, q_words, constants if scalars is None else scalars, constants, result
    device.submit([make_dispatch(device, curve, "add_terms", arrays, count, push)])
    return result


# --- the group law ---


@_in_parts()
def add(curve: CurveKey, p: DeviceArray, q: DeviceArray) -> DeviceArray:
    """P + Q."""
    return _add_terms(curve, get_shape(curve, p), p, q=q)


@_in_parts()
def sub(curve: CurveKey, p: DeviceArray, q: DeviceArray) -> DeviceArray:
    """P - Q."""
    return _add_terms(curve, get_shape(curve, p), p, q=q, negates=True)


def double(curve: CurveKey, p: DeviceArray) -> DeviceArray:
    """2P."""
    return add(curve, p, p)


@_in_parts()
def mul(curve: CurveKey, p: DeviceArray, scalars: ElementData) -> DeviceArray:
    """k P, with a scalar for each point: words (..., words of a scalar) below the order, on the
    host or on the device."""
    device: ArrayDevice = p.storage.device
    shape = get_shape(curve, p)
    if not math.prod(shape):
        return make_points(device, curve, *shape)
    point = _drop_repeats(p, len(shape))
    own = _drop_repeats(scalars, len(shape))
    factors, first_bit = put_scalars(device, own), count_bits(curve, own)
    most = count_steps(device, curve, math.prod(shape), BIT_ITERATIONS) or first_bit
    result = None
    while first_bit:
        bits = min(most, first_bit)
        first_bit -= bits
        result = _add_terms(
            curve, shape, point, q=result, scalars=factors, bits=bits, first_bit=first_bit
        )
    assert result is not None
    return result


def count_steps(
    device: ArrayDevice, curve: CurveKey, count: int, iterations: Mapping[int, int]
) -> int:
    """How many steps of so many iterations, by degree, an invocation may run for each of `count`
    elements, at least 2; 0 where there is no limit."""
    if device.info.kind != "cpu":
        return 0
    work_groups = -(-count // choose_work_group(curve, device.info))
    rounds = -(-work_groups // device.info.limits.max_work_group_count[0])
    return max(MAX_ITERATIONS // (rounds * iterations[curve.degree]), 2)


def _drop_repeats(data: Any, axes: int) -> Any:
    """A view of one element of an array that repeats it along all of its first axes; any other
    array as it is."""
    repeats = all(
        length == 1 or not step
        for length, step in zip(data.shape[:axes], data.strides[:axes], strict=True)
    )
    return data[(*[slice(0, 1)] * axes, ...)] if repeats else data


def sum_points(curve: CurveKey, p: DeviceArray) -> DeviceArray:
    """The sums over the last axis of points. Rows longer than a kernel can bind are cut."""
    device: ArrayDevice = p.storage.device
    *leading, columns = get_shape(curve, p)
    most, rows = count_bindable(device, curve), [slice(None)] * len(leading)
    if columns <= most:
        return _sum_rows(curve, p)
    sums = [_sum_rows(curve, p[(*rows, *part)]) for part in split_axes((columns,), most)]
    joined = make_points(device, curve, *leading, len(sums))
    copies = [ArrayCopy(each, joined[(*rows, at)]) for at, each in enumerate(sums)]
    device.submit(copies)
    return sum_points(curve, joined)


@_in_parts(whole_axes=1)
def _sum_rows(curve: CurveKey, p: DeviceArray) -> DeviceArray:
    """The sums over the last axis: segments of each row, then the sums of segments."""
    device: ArrayDevice = p.storage.device
    *leading, columns = get_shape(curve, p)
    rows = math.prod(leading)
    if not rows * columns:
        return make_infinity(device, curve, *leading)
    groups = max(device.info.round_invocations(SUBGROUPS) // COORDINATES, 1)
    while True:
        length = min(max(SEGMENT, -(-rows * columns // groups)), columns)
        elements = -(-rows * columns // SEGMENT)
        length = min(length, count_steps(device, curve, elements, TERM_ITERATIONS) or length)
        segments = -(-columns // length)
        p = _add_terms(curve, (*leading, segments), p, columns=columns, length=length)
        columns = segments
        if columns == 1:
            return p.reshape((*leading, XYZZ, *curve.coordinate_shape))


# --- what the field's operations compute ---


@functools.cache
def get_field(curve: CurveKey) -> Prime | Extension:
    """The field of the coordinates."""
    if curve.degree == 1:
        return curve.prime
    name = f"coordinates over {curve.prime.name}"
    return Extension.binomial(name, curve.prime, curve.nonresidue, curve.degree)


def _get_coordinate(curve: CurveKey, points: DeviceArray, number: int) -> DeviceArray:
    """A view of one coordinate of every point."""
    return points[(..., number, *[slice(None)] * len(curve.coordinate_shape))]


def _compute(
    curve: CurveKey, operation: str, *operands: ElementData, steps: list[Step] | None = None
) -> DeviceArray:
    """An operation on coordinates, which are broadcast. With `steps`, the dispatch is appended to
    them instead of being submitted, except in an extension field."""
    field = get_field(curve)
    made: Any
    if isinstance(field, Prime):
        made = elementwise.compute(field, operation, list(operands), steps=steps)
    else:
        made = extensions.compute(field, operation, list(operands))
    return made  # type: ignore[no-any-return]


def _compare(curve: CurveKey, a: ElementData, b: ElementData) -> Booleans:
    """Whether coordinates are equal, on the host; they are broadcast."""
    field = get_field(curve)
    if not isinstance(field, Prime):
        return extensions.compare(field, a, b)
    found: DeviceArray = elementwise.compute(field, "equal", [a, b])  # type: ignore[assignment]
    return found.numpy().astype(np.bool_)


def _get_element(curve: CurveKey, device: ArrayDevice, value: tuple[int, ...]) -> ElementData:
    """A coordinate without axes, cached on the device."""
    scalar = value[0] if curve.degree == 1 else value
    return extensions.make_element(get_field(curve), scalar, device)


def neg(curve: CurveKey, p: DeviceArray) -> DeviceArray:
    """-P, in the form of P: each coordinate times 1 or, for y, -1."""
    device: ArrayDevice = p.storage.device
    coordinates = count_coordinates(curve, p)

    def make_factors() -> Words:
        modulus = curve.prime.modulus
        signs = [modulus - 1 if each == Y else 1 for each in range(coordinates)]
        integers = [curve.prime.in_form(each) for each in signs for _ in range(curve.degree)]
        factors = words.from_ints(curve.prime, integers)
        return factors.reshape(coordinates, *curve.coordinate_shape)

    key = ("signs of coordinates", curve.prime, curve.degree, coordinates)
    factors = device.cache(key, lambda: device.put(make_factors()))
    negated: Any = elementwise.compute(curve.prime, "mul", [p, factors])
    return negated  # type: ignore[no-any-return]


def to_affine(curve: CurveKey, p: DeviceArray) -> DeviceArray:
    """The same points in affine form. With I = 1 / ZZZ, which is 0 for the point at infinity:
    1 / ZZ = (ZZ I)^2, because ZZ^3 = ZZZ^2."""
    return p if count_coordinates(curve, p) == AFFINE else _divide(curve, p)


@_in_parts()
def _divide(curve: CurveKey, p: DeviceArray) -> DeviceArray:
    """`to_affine` of points in XYZZ form."""
    device: ArrayDevice = p.storage.device
    result = make_points(device, curve, *get_shape(curve, p), coordinates=AFFINE)
    if not result.size:
        return result
    if has_affine_kernel(device, curve):
        _dispatch_to_affine(device, curve, p, result)
        return result
    x, y, zz, zzz = (_get_coordinate(curve, p, each) for each in range(XYZZ))
    steps: list[Step] = []
    field = get_field(curve)
    inverse: Any
    if isinstance(field, Prime):
        inverse = scans.invert(field, zzz, steps=steps)
    else:
        inverse = extensions.invert(field, zzz)
    ratio = _compute(curve, "mul", zz, inverse, steps=steps)
    square = _compute(curve, "square", ratio, steps=steps)
    for at, pair in ((X, (x, square)), (Y, (y, inverse))):
        product = _compute(curve, "mul", *pair, steps=steps)
        steps.append(ArrayCopy(product, _get_coordinate(curve, result, at)))
    device.submit(steps)
    return result


def has_affine_kernel(device: ArrayDevice, curve: CurveKey) -> bool:
    """Whether one kernel converts points to affine form: on a GPU, over a prime field. Lavapipe
    would take seconds to compile it."""
    return curve.degree == 1 and device.info.kind != "cpu"


def count_affine_invocations(info: DeviceInfo) -> int:
    """The invocations that convert points to affine form at most."""
    return info.count_invocations(AFFINE_SUBGROUPS)


def _dispatch_to_affine(
    device: ArrayDevice, curve: CurveKey, p: DeviceArray, result: DeviceArray
) -> None:
    """The kernel to_affine.comp."""
    count = count_points(curve, p)
    invocations = min(count, count_affine_invocations(device.info))
    limbs, others = point_limbs(curve) // XYZZ, -(-count // invocations) - 1
    products = device.empty((max(others, 1) * invocations * limbs,), np.dtype(np.uint32))
    arrays = p, get_constants(device, curve), result, products
    device.submit(
        [make_dispatch(device, curve, "to_affine", arrays, invocations, (count,), grouped=False)]
    )


def is_infinity(curve: CurveKey, p: DeviceArray) -> Booleans:
    """Whether the points are the point at infinity, on the host."""
    device: ArrayDevice = p.storage.device
    zero = _get_element(curve, device, (0,) * curve.degree)
    if count_coordinates(curve, p) == XYZZ:
        return _compare(curve, _get_coordinate(curve, p, ZZZ), zero)
    return np.asarray(_compare(curve, p, zero).all(axis=-1))


def equal(curve: CurveKey, p: DeviceArray, q: DeviceArray) -> Booleans:
    """Whether the points are equal, on the host: X1 ZZ2 = X2 ZZ1 and Y1 ZZZ2 = Y2 ZZZ1."""
    same = np.ones(get_shape(curve, p), np.bool_)
    for number, denominator in ((X, ZZ), (Y, ZZZ)):
        one, two = (_get_coordinate(curve, each, number) for each in (p, q))
        if count_coordinates(curve, q) == XYZZ:
            one = _compute(curve, "mul", one, _get_coordinate(curve, q, denominator))
        if count_coordinates(curve, p) == XYZZ:
            two = _compute(curve, "mul", two, _get_coordinate(curve, p, denominator))
        same &= _compare(curve, one, two)
    first, second = is_infinity(curve, p), is_infinity(curve, q)
    return np.where(first | second, first & second, same)


def is_on_curve(curve: CurveKey, p: DeviceArray) -> Booleans:
    """Whether the points satisfy the equation of the curve, on the host. In XYZZ form it is
    Y^2 = X^3 + a X ZZ^2 + b ZZ^3, and ZZ^3 = ZZZ^2 must hold."""
    device: ArrayDevice = p.storage.device
    x, y = (_get_coordinate(curve, p, each) for each in (X, Y))
    a, b = (_get_element(curve, device, each) for each in (curve.a, curve.b))
    right = _compute(curve, "square", x)
    valid = np.ones(get_shape(curve, p), np.bool_)
    if count_coordinates(curve, p) == XYZZ:
        zz, zzz = (_get_coordinate(curve, p, each) for each in (ZZ, ZZZ))
        square = _compute(curve, "square", zz)
        cube = _compute(curve, "mul", square, zz)
        valid = _compare(curve, cube, _compute(curve, "square", zzz))
        a, b = (_compute(curve, "mul", *each) for each in ((square, a), (cube, b)))
    right = _compute(curve, "mul", _compute(curve, "add", right, a), x)
    right = _compute(curve, "add", right, b)
    found = _compare(curve, _compute(curve, "square", y), right) & valid
    return found | is_infinity(curve, p)
