"""What reading and writing encoded points computes with their coordinates, on the host or on a
device.

The host computes with Python integers, one point after the other, and a device for all points at
once: for few points integers are faster than arrays of words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.curves.point_array import PointArray, PointCurve
from gpu_executor.ops import point_bytes
from gpu_executor.ops.host_points import get_arithmetic
from gpu_executor.primes import words
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.encoding import ByteOrder, byte_width

if TYPE_CHECKING:
    from gpu_executor.backend import Backend

Words = npt.NDArray[Any]
Booleans = npt.NDArray[np.bool_]
Coordinates = Any
"""One coordinate of n points: a list of integers or `ExtensionElement`s, or an array of the curve's
field."""
Sign = Literal["larger", "odd"]
"""Which of y and -y has the sign: the larger one, by the highest coefficient that is not 0, or the
one whose lowest bit is set, in a prime field."""


class CoordinateArithmetic(ABC):
    """Coordinates of n points in one place."""

    @abstractmethod
    def load(self, given: Words) -> list[Coordinates]:
        """Coordinates from canonical words (n, coordinates, *axes of a coordinate)."""

    @abstractmethod
    def make_points(self, x: Coordinates, y: Coordinates) -> PointArray:
        """The points (x, y), of shape (n,)."""

    def decode(
        self,
        numbers: npt.NDArray[np.uint8],
        infinite: Booleans,
        signs: Booleans,
        byteorder: ByteOrder,
        sign: Sign,
    ) -> tuple[PointArray, npt.NDArray[np.uint32]] | None:
        """The points whose x has these bytes (n, width), with the sign of y, and what is wrong with
        each, as a code of `ops.point_bytes`; None where a device does not decode points so."""
        return None

    def encode(
        self, points: PointArray, flags: tuple[int, int, int], byteorder: ByteOrder, sign: Sign
    ) -> npt.NDArray[np.uint8] | None:
        """The bytes (n, width) of x of points of shape (n,) in affine form, with flags, as
        `ops.point_bytes.encode_points` has them; None where a device does not write points so."""
        return None

    @abstractmethod
    def unload(self, points: PointArray, sign: Sign) -> tuple[Words, Booleans]:
        """The canonical words (n, 2, *axes of a coordinate) of points of shape (n,) in affine form,
        on the host, and where y has the sign."""

    @abstractmethod
    def find_y(self, x: Coordinates, infinite: Booleans) -> tuple[Coordinates, Booleans]:
        """One y with y^2 = x^3 + a x + b for every x, and where there is one. y is 0 for the points
        that are infinity."""

    @abstractmethod
    def negate(self, y: Coordinates, where: Booleans) -> Coordinates:
        """-y where the condition is true, else y."""

    @abstractmethod
    def is_zero(self, x: Coordinates) -> Booleans:
        """Whether coordinates are 0."""

    @abstractmethod
    def get_signs(self, y: Coordinates, sign: Sign) -> Booleans:
        """Whether y has the sign; 0 has none."""


class IntegerCoordinates(CoordinateArithmetic):
    """Coordinates of points on the host: lists of Python integers or of `ExtensionElement`s."""

    def __init__(self, curve: PointCurve) -> None:
        self._curve = curve
        self._arithmetic = get_arithmetic(curve.key)
        self._field = self._arithmetic.field

    def load(self, given: Words) -> list[Coordinates]:
        parts = (given[:, each] for each in range(given.shape[1]))
        return [self._field.from_words(each, "canonical") for each in parts]

    def make_points(self, x: Coordinates, y: Coordinates) -> PointArray:
        stored = self._arithmetic.store(list(zip(x, y, strict=True)), (len(x),))
        return PointArray(self._curve, stored)

    def unload(self, points: PointArray, sign: Sign) -> tuple[Words, Booleans]:
        own = points.words()
        x, y = (self._field.from_words(own[:, each]) for each in (0, 1))
        canonical = [self._field.to_words(each, "canonical") for each in (x, y)]
        return np.stack(canonical, axis=1), self.get_signs(y, sign)

    def find_y(self, x: Coordinates, infinite: Booleans) -> tuple[Coordinates, Booleans]:
        field, pairs = self._field, zip(x, infinite.tolist(), strict=True)
        y = [
            field.zero if skip else field.sqrt(self._arithmetic.compute_right_side(each))
            for each, skip in pairs
        ]
        return y, _make_booleans(each is not None for each in y)

    def negate(self, y: Coordinates, where: Booleans) -> Coordinates:
        pairs = zip(y, where.tolist(), strict=True)
        return [-each % self._field.modulus if flag else each for each, flag in pairs]

    def is_zero(self, x: Coordinates) -> Booleans:
        return _make_booleans(not each for each in x)

    def get_signs(self, y: Coordinates, sign: Sign) -> Booleans:
        if sign == "odd":
            return _make_booleans(each & 1 for each in y)
        return _make_booleans(map(self._field.is_larger, y))


class FieldCoordinates(CoordinateArithmetic):
    """Coordinates of points on a device: arrays of the curve's field."""

    def __init__(self, curve: PointCurve, device: Backend | None = None) -> None:
        """`load` copies coordinates to the device."""
        self._curve = curve
        self._field = curve.field
        self._device = device

    def load(self, given: Words) -> list[Coordinates]:
        assert self._device is not None
        pairs = self._device.to_device(self._field.array_type(self._field, given, "canonical"))
        return [pairs[:, each] for each in range(given.shape[1])]

    def decode(
        self,
        numbers: npt.NDArray[np.uint8],
        infinite: Booleans,
        signs: Booleans,
        byteorder: ByteOrder,
        sign: Sign,
    ) -> tuple[PointArray, npt.NDArray[np.uint32]] | None:
        assert self._device is not None
        key, place = self._curve.key, self._device.array_device
        if not point_bytes.can_decode(place, key, numbers.shape[1]):
            return None
        flags = signs * point_bytes.HAS_SIGN | infinite * point_bytes.IS_INFINITE
        points, codes = point_bytes.decode_points(
            key,
            self._device.to_device(numbers),
            self._device.to_device(flags.astype(np.uint32)),
            big_endian=byteorder == "big",
            larger=sign == "larger",
        )
        return PointArray(self._curve, points), codes.numpy()

    def encode(
        self, points: PointArray, flags: tuple[int, int, int], byteorder: ByteOrder, sign: Sign
    ) -> npt.NDArray[np.uint8] | None:
        key, data = self._curve.key, points.data
        assert isinstance(data, DeviceArray)
        if not point_bytes.can_encode(data.storage.device, key, byte_width(key.prime)):
            return None
        big_endian, larger = byteorder == "big", sign == "larger"
        return point_bytes.encode_points(
            key, data, flags, big_endian=big_endian, larger=larger
        ).numpy()

    def make_points(self, x: Coordinates, y: Coordinates) -> PointArray:
        return self._curve.join_coordinates(x, y)

    def unload(self, points: PointArray, sign: Sign) -> tuple[Words, Booleans]:
        # One fetch: NumPy finds the signs of thousands of points in less time than a second one.
        pairs = self._curve.wrap_coordinate(points.data)
        found: Words = pairs.numpy()
        return found, _find_signs(self._curve.key, found[:, 1], sign)

    def find_y(self, x: Coordinates, infinite: Booleans) -> tuple[Coordinates, Booleans]:
        field, key = self._field, self._curve.key
        a, b = (each[0] if key.degree == 1 else each for each in (key.a, key.b))
        right = field.fma(field.square(x) + a, x, b)
        y = field.sqrt(right, nonsquare="zero")
        # The root of what is not a square is 0, and so is the root of 0.
        exists = ~self.is_zero(y) | self.is_zero(right) | infinite
        return field.where(infinite, 0, y) if infinite.any() else y, exists

    def negate(self, y: Coordinates, where: Booleans) -> Coordinates:
        return self._field.where(where, -y, y)

    def is_zero(self, x: Coordinates) -> Booleans:
        found: Booleans = self._field.equal(x, 0)
        return found

    def get_signs(self, y: Coordinates, sign: Sign) -> Booleans:
        if sign == "odd":
            return get_lowest_bits(y)
        # y > -y means 2 y > p, and then 2 y mod p is 2 y - p, which is odd.
        doubled = self._field.double(y)
        if self._curve.key.degree == 1:
            return get_lowest_bits(doubled)
        lowest, *others = doubled.coefficients
        found = get_lowest_bits(lowest)
        for each in others:
            found = np.where(each == 0, found, get_lowest_bits(each))
        return found


def get_lowest_bits(x: Any) -> Booleans:
    """Whether elements of a prime field are odd; of each, one column is fetched."""
    canonical = x.in_form("canonical").data
    columns = canonical[..., 0] if x.prime.element_shape else canonical
    return (np.asarray(columns) & 1).astype(np.bool_)


def _find_signs(key: CurveKey, y: Words, sign: Sign) -> Booleans:
    """Whether coordinates in canonical words (n, *axes of a coordinate) have the sign."""
    prime = key.prime
    columns = y.reshape(len(y), key.degree, prime.columns)
    if sign == "odd":
        return (columns[:, 0, 0] & 1).astype(np.bool_)
    half = words.from_ints(prime, [prime.modulus // 2]).reshape(-1).tolist()
    found = np.zeros(len(y), np.bool_)
    for coefficient in columns.transpose(1, 2, 0):
        larger, equal = np.zeros_like(found), np.ones_like(found)
        for column, limit in zip(coefficient[::-1], half[::-1], strict=True):
            larger |= equal & (column > limit)
            equal &= column == limit
            if not equal.any():  # nearly always after the most significant column
                break
        found = larger if key.degree == 1 else np.where(coefficient.any(axis=0), larger, found)
    return found


def _make_booleans(found: Any) -> Booleans:
    return np.fromiter(found, np.bool_)
