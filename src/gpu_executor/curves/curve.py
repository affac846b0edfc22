"""`Curve`: a short Weierstrass curve y^2 = x^3 + a x + b, and operations on its points.

An operation checks its operands and hands their words to `point_operations`, which runs it where
the points are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.arguments import is_integer, iterate, parse_shape
from gpu_executor.common.value_keys import ByIdentity
from gpu_executor.curves import point_operations
from gpu_executor.curves.coordinate_arithmetic import FieldCoordinates, IntegerCoordinates
from gpu_executor.curves.endomorphism import Endomorphism
from gpu_executor.curves.point_array import (
    Axes,
    PointArray,
    PointData,
    PointForm,
    PointLayout,
)
from gpu_executor.curves.point_encoding import PointEncoding
from gpu_executor.curves.weil_pairing import is_paired_to_one, may_have_more_points_of_order
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    CurveError,
    ElementRangeError,
    GpuError,
    PointError,
)
from gpu_executor.fields import ExtensionField, Field
from gpu_executor.fields.finite_field import FiniteFieldArray, as_int
from gpu_executor.fields.layout_array import check_one_place, find_array_device, parse_axes
from gpu_executor.msm.call import explain_msm, explain_table_msm, run_msm, run_table_msm
from gpu_executor.msm.host import HostMsmPlan
from gpu_executor.msm.parts import MsmParts
from gpu_executor.msm.scalars import (
    CurveGroup,
    load_scalars,
    make_shape_error,
    refuse_byte_order,
    to_scalar_words,
)
from gpu_executor.msm.tables import PointTable, load_table, make_table
from gpu_executor.ops import elementwise, indexing
from gpu_executor.ops.elementwise import ElementData
from gpu_executor.ops.host_coordinates import CoordinateField
from gpu_executor.ops.host_points import get_arithmetic
from gpu_executor.ops.operation import Operation
from gpu_executor.ops.point_bytes import can_compare_images, compare_images
from gpu_executor.ops.scalars import ONE_COLUMN_BITS
from gpu_executor.primes import Form, Prime, words
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import Glv, find_cube_root_of_unity, make_glv

if TYPE_CHECKING:
    from gpu_executor.backend import Backend

Booleans = npt.NDArray[np.bool_]
Coefficient = Any
"""An element of the curve's field: an integer, or a tuple of integers c0, c1, ..."""


class Curve(CurveGroup, ByIdentity):
    """The points (x, y) with y^2 = x^3 + a x + b over a field, and the point at infinity.

    `order` is the prime order of the group that `generator` generates, which may be a part of all
    points. Operations take points in one place, on the host or on one device, and so is their
    result. Points of different shapes are broadcast by NumPy's rules. Nothing runs in constant
    time.
    """

    def __init__(
        self,
        field: Any,
        a: Coefficient,
        b: Coefficient,
        *,
        order: int,
        generator: tuple[Coefficient, Coefficient],
        name: str | None = None,
        encoding: type[PointEncoding] | None = None,
        endomorphisms: Sequence[Endomorphism] = (),
    ) -> None:
        """A curve by its parameters, which are checked.

        Where points outside the group may have its order, the Weil pairing checks membership too,
        whatever endomorphisms there are.

        Args:
            field (Field or ExtensionField): The field of the coordinates.
            a (int or tuple): The coefficient a; a tuple of coefficients over an extension field.
            b (int or tuple): The coefficient b.
            order (int): The prime order of the group that the generator generates.
            generator (tuple): The coordinates (x, y) of the generator.
            name (str): The name of the curve in messages; None for a description.
            encoding (type): The byte format of points, a `PointEncoding`; without one, points have
                no bytes.
            endomorphisms (sequence): Of these, the first that has its eigenvalue on the generator
                checks membership of the group: no other point of the curve may have that
                eigenvalue. Without one, a multiplication by the order checks it.
        """
        self.field = field
        self.name = name or f"curve over {getattr(field, 'name', field)}"
        prime, degree, nonresidue = _describe_field(self.name, field)
        self.key = CurveKey(
            prime,
            degree,
            nonresidue,
            self._parse_element("a", a, prime, degree),
            self._parse_element("b", b, prime, degree),
            self._parse_order(order),
        )
        self.order = self.key.order
        self.scalar_field = self._make_scalar_field()
        arithmetic = get_arithmetic(self.key)
        p, own_a, own_b = arithmetic.modulus, arithmetic.a, arithmetic.b
        if p == 3:
            raise CurveError(
                f"{self.name}: curves over fields of characteristic 3 are of another "
                "form; take a field with a larger prime"
            )
        if not own_b:
            raise CurveError(
                f"{self.name}: b is 0, and curves with b = 0 are not supported: (0, 0) is a point "
                "of theirs, and it stands for the point at infinity here"
            )
        if not (4 * own_a * own_a % p * own_a + 27 * own_b * own_b) % p:
            raise CurveError(f"{self.name}: the curve is singular: 4 a^3 + 27 b^2 is 0")
        self._coordinate_layout = self._make_layout()
        self._layouts = {"affine": self._make_layout(2), "xyzz": self._make_layout(4)}
        self.encoding = None if encoding is None else encoding(self.key)
        self.cofactor = self._find_cofactor(arithmetic.field)
        """The number of points of the curve divided by the order; None where the order does not
        determine it."""
        self._pairs_points = may_have_more_points_of_order(arithmetic.field.order, self.order)
        self.generator = self._make_generator(generator)
        """The generator, without axes, on the host."""
        self.endomorphism = self._choose_endomorphism(endomorphisms)

    # --- parameters ---

    def _parse_element(
        self, what: str, value: Coefficient, prime: Prime, degree: int
    ) -> tuple[int, ...]:
        given = value.tolist() if isinstance(value, FiniteFieldArray) else value
        parts = given if isinstance(given, tuple | list) else (given,)
        if len(parts) > degree or not all(is_integer(each) for each in parts):
            wanted = "an integer" if degree == 1 else f"an integer, or a tuple of {degree} integers"
            raise ArgumentTypeError(f"{self.name}: {what} must be {wanted}, not {value!r}")
        return tuple(int(each) % prime.modulus for each in (*parts, *[0] * (degree - len(parts))))

    def _parse_order(self, order: int) -> int:
        if not is_integer(order):
            raise ArgumentTypeError(f"{self.name}: the order must be an integer, not {order!r}")
        return int(order)

    def _make_scalar_field(self) -> Field:
        try:
            return Field(self.order)
        except GpuError as error:
            raise CurveError(
                f"{self.name}: the order {self.order:#x} must be an odd prime: {error}"
            ) from None

    def _make_generator(self, given: tuple[Coefficient, Coefficient]) -> PointArray:
        key, arithmetic = self.key, get_arithmetic(self.key)
        try:
            x, y = given
        except (TypeError, ValueError):
            raise ArgumentTypeError(
                f"{self.name}: the generator must be a pair (x, y), not {given!r}"
            ) from None
        point = tuple(
            arithmetic.field.make(self._parse_element(what, each, key.prime, key.degree))
            for what, each in (("x of the generator", x), ("y of the generator", y))
        )
        if not any(point):
            raise CurveError(f"{self.name}: the generator is (0, 0), the point at infinity")
        if not arithmetic.is_on_curve((point[0], point[1])):
            raise CurveError(f"{self.name}: the generator is not on the curve")
        if arithmetic.multiply([(point[0], point[1])], [self.order]) != [None]:
            raise CurveError(f"{self.name}: the generator does not have the order {self.order:#x}")
        return PointArray(
            self, arithmetic.store([(point[0], point[1])], ()), known_in_subgroup=True
        )

    def _find_cofactor(self, field: CoordinateField) -> int | None:
        """The number of points is a multiple of the order, and between q + 1 - 2 sqrt(q) and
        q + 1 + 2 sqrt(q) (Hasse)."""
        q, width = field.order, math.isqrt(4 * field.order)
        first, last = -(-(q + 1 - width) // self.order), (q + 1 + width) // self.order
        return first if first == last else None

    def __eq__(self, other: object) -> bool:
        """Whether the points and the group are the same; names and generators of the group may
        differ."""
        if self is other:
            return True
        if not isinstance(other, Curve):
            return False
        own = (self.field, self.key.a, self.key.b, self.order)
        if own != (other.field, other.key.a, other.key.b, other.order):
            return False
        return not self._pairs_points or self._has_generator(other.generator)

    def _has_generator(self, generator: PointArray) -> bool:
        """Whether another generator of that order is in the group of this curve."""
        if generator.tolist() == self.generator.tolist():
            return True
        return bool(is_paired_to_one(generator, self.generator))

    def __hash__(self) -> int:
        return hash((self.key.prime.modulus, self.key.a, self.key.b, self.order))

    def __repr__(self) -> str:
        return f"<Curve {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        generator = self.generator.tolist()
        parameters = (self.field, self.key.a, self.key.b, self.order, generator, self.name)
        options = (None if self.encoding is None else type(self.encoding), self.endomorphism)
        return _restore_curve, (*parameters, *options)

    # --- new points ---

    def get_layout(self, form: PointForm) -> PointLayout:
        """A point in that form as an element of an array."""
        return self._layouts[form]

    def _make_layout(self, *axes: int) -> PointLayout:
        return PointLayout(self.name, self.key.prime, (*axes, *self.key.coordinate_shape))

    def infinity(self, shape: int | Sequence[int] = ()) -> PointArray:
        """The point at infinity, as often as the shape says, on the host.

        Args:
            shape (int or tuple): The lengths of the axes.
        """
        layout = self.get_layout("affine")
        lengths = parse_shape(shape, layout.element_bytes)
        data = np.zeros((*lengths, *layout.element_shape), layout.column_dtype)
        return PointArray(self, data, known_in_subgroup=True)

    def from_affine(self, x: Any, y: Any, *, check: bool = True) -> PointArray:
        """Points from their coordinates; (0, 0) is the point at infinity.

        A point that is not on the curve raises `PointError`.

        Args:
            x (array or list or int): The coordinates x: an array of the field, or integers.
            y (array or list or int): The coordinates y, in the same place.
            check (bool): Whether a point outside the group of prime order raises `PointError`.
        """
        first, second = self._load_coordinate("x", x), self._load_coordinate("y", y)
        check_one_place([first, second])
        return self._check_found(self.join_coordinates(first, second), check)

    def join_coordinates(self, x: FiniteFieldArray, y: FiniteFieldArray) -> PointArray:
        """Points from their coordinates, which are not checked and broadcast.

        Args:
            x (array): The coordinates x, in the form in which the field computes.
            y (array): The coordinates y, likewise, in the same place.
        """
        layout = self._coordinate_layout
        shape = elementwise.find_common_shape(layout, [x.shape, y.shape])
        repeated = [elementwise.broadcast_to(layout, each.data, shape) for each in (x, y)]
        return PointArray(self, indexing.stack(layout, repeated, len(shape)))

    def _load_coordinate(self, what: str, values: Any) -> FiniteFieldArray:
        """Coordinates as an array of the field, in the form in which it computes."""
        array = values
        if not isinstance(values, FiniteFieldArray):
            try:
                array = self.field.encode(values)
            except ElementRangeError as error:
                reason = f"{what} is not below the modulus of the field"
                raise PointError(self.name, error.index, reason) from None
        if array.field != self.field:
            raise ArgumentTypeError(
                f"{self.name}: {what} is an array of {array.field.name}, and the curve is over "
                f"{self.field.name}"
            )
        loaded: FiniteFieldArray = array.in_form(self.key.prime.form)
        return loaded

    def from_words(
        self, data: npt.NDArray[Any], form: Form | None = None, *, check: bool = True
    ) -> PointArray:
        """Points on the host from a copy of the words of x and y.

        Words that are not below the modulus and points that are not on the curve raise
        `PointError`. (0, 0) is the point at infinity.

        Args:
            data (numpy.ndarray): Words of shape (..., 2, words of a coordinate).
            form (str): "canonical", as `points.numpy()` has them, or "montgomery", as
                `points.affine().words()` has them in most fields; always to be stated.
            check (bool): Whether points outside the group of prime order raise `PointError`.
        """
        if form is None:
            raise ArgumentTypeError(
                f"{self.name}: from_words takes the form of the words: 'canonical' for those of "
                "points.numpy(), or that of the field, curve.field.form, for those of "
                "points.affine().words()"
            )
        self.field.check_form(form)
        layout = self.get_layout("affine")
        axes = len(layout.element_shape)
        if not isinstance(data, np.ndarray) or data.dtype != layout.column_dtype:
            found = data.dtype if isinstance(data, np.ndarray) else type(data).__name__
            raise ArgumentTypeError(
                f"{self.name}: words are a NumPy array of {layout.column_dtype}, not {found}"
            )
        if data.shape[max(data.ndim - axes, 0) :] != layout.element_shape:
            raise ArgumentShapeError(
                f"{self.name}: the last axes of words in affine form are {layout.element_shape}; "
                f"the shape is {data.shape}"
            )
        own = np.array(data, order="C")
        bad = words.first_not_below(self.key.prime, own)
        if bad is not None:
            index = bad // (2 * self.key.degree)
            raise PointError(self.name, index, "a coordinate is not below the modulus")
        computed = self.field.array_type(self.field, own, form).in_form(self.field.form)
        return self._check_found(PointArray(self, computed.data), check)

    def _check_found(self, points: PointArray, check: bool) -> PointArray:
        """The points; raises `PointError` for the first that is not on the curve, or not in the
        group."""
        bad = np.flatnonzero(~self.is_on_curve(points))
        if bad.size:
            raise PointError(self.name, int(bad[0]), "x and y are not on the curve")
        return self._require_subgroup(points) if check else points

    def _require_subgroup(self, points: PointArray) -> PointArray:
        """The points of the curve, known to be in the group of prime order; raises `PointError` for
        the first that is not."""
        if points.known_in_subgroup:
            return points
        bad = np.flatnonzero(~self._is_in_subgroup(points))
        if bad.size:
            raise PointError(
                self.name,
                int(bad[0]),
                "it is on the curve and not in the group of prime order",
                "check=False accepts it",
            )
        return PointArray(self, points.data, known_in_subgroup=True)

    # --- bytes ---

    def from_bytes(
        self,
        data: Any,
        *,
        compressed: bool | None = None,
        check: bool = True,
        device: Backend | None = None,
    ) -> PointArray:
        """Points from their bytes in the curve's format (docs/curves.md).

        A bad encoding raises `PointError`, which names its index.

        Args:
            data (numpy.ndarray or list or bytes): An array of uint8 with the bytes of a point along
                the last axis, whose length tells compressed points from uncompressed ones; a list
                of `bytes`, one for each point; or `bytes` with all points.
            compressed (bool): Whether points are compressed; None for what their length says, or
                for compressed points in `bytes`.
            check (bool): Whether a point outside the group of prime order raises `PointError`.
            device (Backend): The executor or backend whose device computes and checks the
                coordinates, and has the points; None for the host.
        """
        encoding = self._get_encoding()
        if device is not None:
            find_array_device(self.name, device)
        rows = encoding.parse_rows(self.name, data, compressed)
        *shape, width = rows.shape
        flat = rows.reshape(math.prod(shape), width)
        arithmetic = IntegerCoordinates(self) if device is None else FieldCoordinates(self, device)
        found = encoding.read_points(self.name, flat, arithmetic).reshape(tuple(shape))
        return self._require_subgroup(found) if check else found

    def to_bytes(self, points: PointArray, *, compressed: bool = True) -> npt.NDArray[np.uint8]:
        """Points as bytes in the curve's format: an array (..., bytes of a point).

        Args:
            points (PointArray): The points.
            compressed (bool): Whether the bytes have x and a sign alone.
        """
        encoding = self._get_encoding()
        flat = self.check_points(points).affine().reshape(points.size)
        arithmetic = FieldCoordinates(self) if points.on_device else IntegerCoordinates(self)
        rows = encoding.write_points(flat, compressed, arithmetic)
        return rows.reshape(*points.shape, rows.shape[1])

    def _get_encoding(self) -> PointEncoding:
        if self.encoding is None:
            raise CurveError(
                f"{self.name} has no byte format: only named curves have one; convert .x and .y "
                "with the field's to_bytes, and from_affine makes points again"
            )
        return self.encoding

    # --- hashing ---

    def hash_to_curve(
        self, messages: Any, *, dst: bytes, device: Backend | None = None
    ) -> PointArray:
        """The points of messages by `hash_to_curve` of RFC 9380, all in the group of prime order.

        For BLS12-381 G1 and G2 and for secp256k1, by the suites `BLS12381G1_XMD:SHA-256_SSWU_RO_`,
        `BLS12381G2_XMD:SHA-256_SSWU_RO_` and `secp256k1_XMD:SHA-256_SSWU_RO_`. The points behave as
        those of a random oracle. The time depends on the messages.

        Args:
            messages (list or bytes or numpy.ndarray): `bytes` for each point, or the rows of an
                array of uint8; `bytes` alone, or an array of one axis, have a point without axes.
            dst (bytes): The domain separation tag: what tells these hashes from those of other
                protocols. One longer than 255 bytes is hashed, as the RFC says.
            device (Backend): The executor or backend that maps the hashes of the messages, which
                the host computes, to points, and has the points; None for the host.
        """
        return self._hash_messages(messages, dst, device, 2)

    def encode_to_curve(
        self, messages: Any, *, dst: bytes, device: Backend | None = None
    ) -> PointArray:
        """The points of messages by `encode_to_curve` of RFC 9380, all in the group of prime order.

        By the suites whose names end with "_NU_". They map one element of the field and not two, so
        the points are not distributed uniformly: only some of the group are points of messages.

        Args:
            messages (list or bytes or numpy.ndarray): As for `hash_to_curve`.
            dst (bytes): The domain separation tag.
            device (Backend): As for `hash_to_curve`.
        """
        return self._hash_messages(messages, dst, device, 1)

    def _hash_messages(
        self, messages: Any, dst: bytes, device: Backend | None, count: int
    ) -> PointArray:
        from gpu_executor.curves.hash_to_curve import hash_to_points  # not loaded for points alone

        place = None if device is None else find_array_device(self.name, device)
        return hash_to_points(self, messages, dst, place, count)

    # --- point by point ---

    def add(self, p: PointArray, q: PointArray) -> PointArray:
        """P + Q.

        Args:
            p (PointArray): The points.
            q (PointArray): The other points.
        """
        return self._compute(point_operations.add, p, q)

    def sub(self, p: PointArray, q: PointArray) -> PointArray:
        """P - Q.

        Args:
            p (PointArray): The points.
            q (PointArray): The other points.
        """
        return self._compute(point_operations.sub, p, q)

    def neg(self, p: PointArray) -> PointArray:
        """-P.

        Args:
            p (PointArray): The points.
        """
        return self._compute(point_operations.neg, p)

    def double(self, p: PointArray) -> PointArray:
        """P + P.

        Args:
            p (PointArray): The points.
        """
        return self._compute(point_operations.double, p)

    def _compute(self, operation: Operation[..., ElementData], *operands: PointArray) -> PointArray:
        """An operation of the group, on operands of one shape in one place."""
        words = operation(self.key, *self._broadcast_points(*operands))
        known = all(each.known_in_subgroup for each in operands)
        return PointArray(self, words, known_in_subgroup=known)

    def mul(self, p: PointArray, scalars: Any, *, byteorder: None = None) -> PointArray:
        """k P, with one scalar, or one for each point. Scalars are taken modulo the order.

        Args:
            p (PointArray): The points P.
            scalars (FieldArray or int or list or numpy.ndarray): The scalars k: integers, or
                elements of `scalar_field`; broadcast with the points.
            byteorder (None): Refused: `scalar_field.from_bytes` makes scalars of bytes.
        """
        refuse_byte_order(byteorder)
        own = self.check_points(p)
        factors = load_scalars(self.scalar_field, own.place, scalars)
        prime = self.scalar_field.prime
        given = elementwise.get_shape(prime, factors)
        try:
            shape = elementwise.find_common_shape(prime, [own.shape, given])
        except ArgumentShapeError as error:
            raise make_shape_error(self.scalar_field, scalars, str(error)) from None
        repeated = elementwise.broadcast_to(prime, factors, shape)
        words = point_operations.mul(self.key, own.broadcast_to(shape).data, repeated)
        return own.wrap_like(words)

    def equal(self, p: PointArray, q: PointArray) -> Booleans:
        """Whether points are equal: booleans on the host.

        Args:
            p (PointArray): The points.
            q (PointArray): The other points.
        """
        return _fetch_booleans(point_operations.equal(self.key, *self._broadcast_points(p, q)))

    def is_infinity(self, p: PointArray) -> Booleans:
        """Which points are the point at infinity: booleans on the host.

        Args:
            p (PointArray): The points.
        """
        return _fetch_booleans(point_operations.is_infinity(self.key, self.check_points(p).data))

    def is_on_curve(self, p: PointArray) -> Booleans:
        """Which points satisfy the equation of the curve: booleans on the host.

        Args:
            p (PointArray): The points.
        """
        return _fetch_booleans(point_operations.is_on_curve(self.key, self.check_points(p).data))

    def in_subgroup(self, p: PointArray) -> Booleans:
        """Which points are in the group of prime order: booleans on the host.

        Where that group has all points of the curve, these are the points on the curve. Otherwise
        an endomorphism tells them apart (`endomorphism.py`), or a multiplication by the order.
        Where points outside the group may have its order, both that multiplication and the Weil
        pairing do (`weil_pairing.py`).

        Args:
            p (PointArray): The points.
        """
        points = self.check_points(p).affine()
        on_curve = self.is_on_curve(points)
        return on_curve if self.cofactor == 1 else on_curve & self._is_in_subgroup(points)

    def _is_in_subgroup(self, points: PointArray) -> Booleans:
        """Which points of the curve, in affine form, are in the group of prime order."""
        if self._pairs_points:
            found, infinite = self._has_order(points), self.is_infinity(points)
            if (found & ~infinite).any():
                found &= infinite | is_paired_to_one(points, self.generator)
            return found
        if self.endomorphism is not None:
            return self._has_eigenvalue(points, self.endomorphism)
        return self._has_order(points)

    def _has_order(self, p: PointArray) -> Booleans:
        """Which points are the point at infinity after a multiplication by the order."""
        # Scalars are taken modulo the order, so the multiple is by the order less 1.
        return self.equal(self.mul(p, self.order - 1), self.neg(p))

    def _has_eigenvalue(self, points: PointArray, endomorphism: Endomorphism) -> Booleans:
        """Which points the endomorphism multiplies by its eigenvalue; points in affine form."""
        data, eigenvalue = points.data, endomorphism.eigenvalue
        if isinstance(data, DeviceArray) and can_compare_images(data.storage.device, self.key):
            scalar: Any = to_scalar_words(self.scalar_field, abs(eigenvalue))
            # The image is a negative multiple where its negative is a positive one.
            sign = -1 if eigenvalue < 0 else 1
            factors = endomorphism.x_factor, sign * endomorphism.y_factor
            codes = compare_images(self.key, data, *factors, scalar)
            found: Booleans = np.equal(codes.numpy(), 0).reshape(points.shape)
            return found
        mapped = endomorphism.map_coordinates(points.x, points.y)
        x, y = (each.in_form(self.key.prime.form) for each in mapped)
        image = self.join_coordinates(x, y)
        multiple = self.mul(points, abs(eigenvalue))
        return self.equal(image, -multiple if eigenvalue < 0 else multiple)

    def _choose_endomorphism(self, given: Sequence[Endomorphism]) -> Endomorphism | None:
        """The first endomorphism that multiplies the generator by its eigenvalue."""
        for each in given:
            if self._has_eigenvalue(self.generator, each):
                return each
        if given:
            raise CurveError(
                f"{self.name}: no endomorphism multiplies the generator by its eigenvalue"
            )
        return None

    # --- over many points ---

    def sum(self, p: PointArray, *, axis: Axes = None, keepdims: bool = False) -> PointArray:
        """The sum over an axis or several, by default over all of them; infinity for no points.

        Args:
            p (PointArray): The points.
            axis (int or tuple): The axis or axes; None for all of them.
            keepdims (bool): Whether the result keeps these axes, with the length 1.
        """
        points = self.check_points(p)
        shape = points.shape
        axes = parse_axes(range(len(shape)) if axis is None else axis, shape)
        rest = [each for each in range(len(shape)) if each not in axes]
        layout = self.get_layout(points.form)
        data = elementwise.transpose(layout, points.data, (*rest, *sorted(axes)))
        kept = tuple(shape[each] for each in rest)
        count = math.prod(shape[each] for each in axes)
        rows = elementwise.reshape(layout, data, (*kept, count))
        found = points.wrap_like(point_operations.sum_points(self.key, rows))
        if not keepdims:
            return found
        return found.reshape(tuple(1 if each in axes else n for each, n in enumerate(shape)))

    def precompute(
        self, points: PointArray, *, window: int | None = None, memory: int | None = None
    ) -> PointTable:
        """Tables of multiples of points on a device, with which `msm` takes less time.

        Args:
            points (PointArray): Points on a device, with one axis.
            window (int): Bits of a digit of a scalar; None for the best number.
            memory (int): Bytes of the device that the tables take at most; None for 1 GiB, or 64
                MiB on a CPU.
        """
        own = self.check_points(points)
        known = own.known_in_subgroup
        return make_table(self, own.affine().data, window, memory, known_in_subgroup=known)

    def load_table(self, path: str | Path, points: PointArray) -> PointTable:
        """Read the tables of these points from a file that `PointTable.save` has written.

        The file of other points and a damaged one raise `GpuError`, one that cannot be read
        `OSError`. Load no file that somebody else could have written.

        Args:
            path (str or Path): The file.
            points (PointArray): The points of the table, on a device.
        """
        own = self.check_points(points)
        return load_table(self, own.affine().data, path, known_in_subgroup=own.known_in_subgroup)

    def msm(
        self,
        points: PointArray | PointTable,
        scalars: Any,
        *,
        byteorder: None = None,
        device: Backend | None = None,
    ) -> PointArray:
        """The sum of k P over the last axis: a multi-scalar multiplication.

        Scalars are taken modulo the order, which changes the result for points outside the group of
        prime order. Leading axes of the points and of the scalars are a batch, broadcast by NumPy's
        rules. The sum of no points is the point at infinity.

        Args:
            points (PointArray or PointTable): The points P, or the table of `precompute` that takes
                the place of its points.
            scalars (FieldArray or list or numpy.ndarray): The scalars k, as many as points along
                the last axis: integers of any dtype, or elements of `scalar_field`.
            byteorder (None): Refused: `scalar_field.from_bytes` makes scalars of bytes.
            device (Backend): An executor or a backend for points on the host: they are copied to
                its device in parts and added there, so they may be larger than its memory. The
                result is on the host; the scalars are on the host or on that device.
        """
        refuse_byte_order(byteorder)
        if isinstance(points, PointTable):
            words = run_table_msm(self, points, scalars, device, self._get_glv(points))
            return PointArray(self, words, known_in_subgroup=points.known_in_subgroup)
        own = self.check_points(points)
        return own.wrap_like(run_msm(self, own, scalars, device, self._get_glv(own)))

    def explain_msm(
        self,
        points: PointArray | PointTable | int,
        scalars: Any = None,
        *,
        batch: int = 1,
        byteorder: None = None,
        device: Backend | None = None,
    ) -> MsmParts | HostMsmPlan:
        """How `msm` would compute: windows, parts and memory. Print it for the reasons.

        Args:
            points (PointArray or PointTable or int): Points as `msm` takes them; a number stands
                for so many points on `device`, or on the host without one.
            scalars (FieldArray or list or numpy.ndarray): Scalars as `msm` takes them; None for
                scalars of the host that are as long as the order.
            batch (int): The number of sums, without scalars.
            byteorder (None): Refused: `scalar_field.from_bytes` makes scalars of bytes.
            device (Backend): The device of `msm`.
        """
        refuse_byte_order(byteorder)
        if isinstance(points, PointTable):
            return explain_table_msm(self, points, scalars, batch, device, self._get_glv(points))
        own = points if is_integer(points) else self.check_points(points)
        glv = self._get_glv(own) if isinstance(own, PointArray) else self.glv
        return explain_msm(self, own, scalars, batch, device, glv)

    def _get_glv(self, points: PointArray | PointTable) -> Glv | None:
        """How scalars of these points are split into halves; None if they are not. An endomorphism
        has the eigenvalue on points of the group of prime order alone. Scalars of tables are not
        split."""
        if isinstance(points, PointTable) and points.points is None:
            return None
        return self.glv if points.known_in_subgroup else None

    @functools.cached_property
    def glv(self) -> Glv | None:
        """How scalars are split into halves; None where the curve has no cube root map, or the map
        does not map the group to itself."""
        beta = find_cube_root_of_unity(self.key.prime.modulus)
        root = find_cube_root_of_unity(self.order)
        if any(self.key.a) or beta is None or root is None:
            return None
        if self.order.bit_length() <= ONE_COLUMN_BITS:
            return None
        for eigenvalue in (root, root * root % self.order):
            if self._has_eigenvalue(self.generator, Endomorphism(beta, 1, False, eigenvalue)):
                return make_glv(self.order, eigenvalue)
        return None

    def concatenate(self, arrays: Sequence[PointArray], *, axis: int = 0) -> PointArray:
        """Points one behind the other along an axis.

        Args:
            arrays (sequence of PointArray): The points, in one place.
            axis (int): The axis along which they are joined.
        """
        return self._join(arrays, axis, indexing.concatenate)

    def stack(self, arrays: Sequence[PointArray], *, axis: int = 0) -> PointArray:
        """Points of one shape along a new axis.

        Args:
            arrays (sequence of PointArray): The points, in one place.
            axis (int): The new axis of the result.
        """
        return self._join(arrays, axis, indexing.stack)

    def _join(
        self, arrays: Sequence[PointArray], axis: int, join: Callable[..., PointData]
    ) -> PointArray:
        given = [
            self.check_points(each) for each in iterate(f"{self.name}: what is joined", arrays)
        ]
        if not given:
            raise ArgumentShapeError(f"{self.name}: there are no points to join")
        check_one_place(given)
        if len({each.form for each in given}) > 1:
            given = [each.affine() for each in given]
        layout = self.get_layout(given[0].form)
        words = join(layout, [each.data for each in given], as_int(axis, "axis"))
        known = all(each.known_in_subgroup for each in given)
        return PointArray(self, words, known_in_subgroup=known)

    # --- operands ---

    def check_points(self, points: Any) -> PointArray:
        """The points, if they are points of this curve."""
        if not isinstance(points, PointArray):
            raise ArgumentTypeError(
                f"{self.name}: expected a PointArray, found {type(points).__name__}; from_affine, "
                "from_bytes and infinity(shape) make one"
            )
        if points.curve is not self and points.curve != self:
            raise ArgumentTypeError(
                f"points of {points.curve.name} were given to an operation of {self.name}"
            )
        return points

    def _broadcast_points(self, *operands: Any) -> list[PointData]:
        """The words of operands of one shape, in one place."""
        given = [self.check_points(each) for each in operands]
        check_one_place(given)
        layout = self.get_layout("affine")
        shape = elementwise.find_common_shape(layout, [each.shape for each in given])
        return [each.broadcast_to(shape).data for each in given]

    def wrap_coordinate(self, data: PointData) -> FiniteFieldArray:
        """Words of coordinates as an array of the curve's field."""
        array: FiniteFieldArray = self.field.array_type(self.field, data, self.key.prime.form)
        return array


def _describe_field(name: str, field: Any) -> tuple[Prime, int, int]:
    """The prime of a field, its degree over that prime, and the nonresidue of an extension."""
    if isinstance(field, Field):
        return field.prime, 1, 0
    if isinstance(field, ExtensionField):
        if not isinstance(field.base, Field):
            raise CurveError(
                f"{name}: curves over towers of extensions are not supported; the field must be a "
                f"Field, or an extension of one, and {field.name} is an extension of "
                f"{field.base.name}"
            )
        if field.nonresidue is None:
            raise CurveError(
                f"{name}: the field of a curve is a Field, or an extension with u^degree in its "
                f"base, and {field.name} has another polynomial"
            )
        return field.prime, field.degree, field.nonresidue
    raise ArgumentTypeError(
        f"{name}: the field must be a Field or an ExtensionField, not {type(field).__name__}"
    )


def _fetch_booleans(found: ElementData) -> Booleans:
    return np.asarray(found).astype(np.bool_)


@functools.lru_cache(maxsize=64)
def _restore_curve(
    field: Any,
    a: tuple[int, ...],
    b: tuple[int, ...],
    order: int,
    generator: tuple[Coefficient, Coefficient],
    name: str,
    encoding: type[PointEncoding] | None,
    endomorphism: Endomorphism | None,
) -> Curve:
    """A curve that was pickled: checked again, once for all arrays of its points."""
    return Curve(
        field,
        a,
        b,
        order=order,
        generator=generator,
        name=name,
        encoding=encoding,
        endomorphisms=() if endomorphism is None else (endomorphism,),
    )
