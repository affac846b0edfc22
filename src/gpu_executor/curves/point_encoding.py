"""Points as bytes, in the formats that the ecosystems of the named curves use.

A format writes a point compressed (x and one bit of y) or uncompressed (x and y), and reads only
what it would write itself: coordinates below the modulus, no other flags, zeros where the point at
infinity has zeros. So a point has one encoding of each kind.

Of the two square roots y and -y, formats call one "larger": as integers, or of an extension field
by the highest coefficient that is not 0. Others take the one whose lowest bit is set.

Flags and layout are read and written with NumPy, for all points at once. The coordinates are
computed by a `CoordinateArithmetic`, on the host or on a device.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_executor.calls.arguments import is_masked
from gpu_executor.curves.coordinate_arithmetic import CoordinateArithmetic, Sign
from gpu_executor.curves.point_array import PointArray
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    CurveError,
    ElementRangeError,
    PointError,
)
from gpu_executor.ops.host_coordinates import CoordinateField
from gpu_executor.ops.point_bytes import NO_ROOT, NOT_BELOW, SIGNED_ZERO
from gpu_executor.primes import encoding
from gpu_executor.primes.curve_key import CurveKey

Bytes = npt.NDArray[np.uint8]
Booleans = npt.NDArray[np.bool_]
Words = npt.NDArray[Any]
ByteOrder = Literal["big", "little"]


REASONS = {
    NOT_BELOW: "x is not below the modulus of the field",
    NO_ROOT: "there is no point of the curve with this x",
    SIGNED_ZERO: "y is 0, and the flag says that it is the larger root",
}
"""What is wrong with a compressed point, by its code."""


class BadEncodingError(ValueError):
    """A row of bytes that is not a point; the message says why."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


class Flags(NamedTuple):
    """What rows of bytes say beside the coordinates, a boolean for each point."""

    infinite: Booleans
    """Whether it is the point at infinity."""
    signs: Booleans
    """The sign of y; False for the point at infinity, and where the format has no sign."""


class PointEncoding(ABC):
    """A format of points. Subclasses have the rules of their flags; bytes that are not flags are
    the coordinates."""

    name: str
    byteorder: ByteOrder
    sign: Sign
    """Which of y and -y has the flag."""
    prefix_bytes = 0
    """Bytes before the coordinates."""
    flag_bits = 0
    """How many of the highest bits hold flags: bits of the first byte if big-endian, else of the
    last one."""
    flags_uncompressed = False
    """Whether uncompressed points have these flags, too."""
    signs_uncompressed = False
    """Whether the sign of y is among the flags of uncompressed points."""
    flags_in_one_byte = False
    """Whether `write_flags` sets bits of one byte of a compressed point, and these depend on its
    `Flags` alone. Then a device may write points."""
    reason_of_zeros = "x and y are 0 without the flag of the point at infinity"
    """What is wrong with an uncompressed point that is not infinity, and has x = y = 0."""

    def __init__(self, key: CurveKey) -> None:
        self.prime = key.prime
        self.degree = key.degree
        self.coordinate_shape = key.coordinate_shape
        self.coefficient_bytes = encoding.byte_width(self.prime)
        self.coordinate_bytes = self.coefficient_bytes * self.degree
        if self.sign == "odd" and self.degree > 1:
            raise CurveError(
                f"the format {self.name} is for curves over prime fields; the degree of the "
                f"curve's field is {self.degree}"
            )
        if self.prime.bits + self.flag_bits > 8 * self.coefficient_bytes:
            raise CurveError(
                f"the format {self.name} needs {self.flag_bits} bits for flags; the "
                f"{self.prime.bits} bits of {self.prime.name} leave fewer in "
                f"{self.coefficient_bytes} bytes"
            )

    @property
    def compressed_bytes(self) -> int:
        """Bytes of a compressed point."""
        return self.prefix_bytes + self.coordinate_bytes

    @property
    def uncompressed_bytes(self) -> int:
        """Bytes of an uncompressed point."""
        return self.prefix_bytes + 2 * self.coordinate_bytes

    # --- arrays of bytes ---

    def parse_rows(self, curve: str, data: Any, compressed: bool | None) -> Bytes:
        """The bytes of points as an array, the bytes of one along the last axis; `Curve.from_bytes`
        says what `data` may be. `curve` is the name of the curve, for messages."""
        widths = {True: self.compressed_bytes, False: self.uncompressed_bytes}
        default = widths[compressed is not False]
        if isinstance(data, np.ndarray):
            if is_masked(data):
                raise ArgumentTypeError(
                    f"{curve}: encoded points is a masked array; pass its .data or .filled(value)"
                )
            rows = data
        elif isinstance(data, list | tuple):
            rows = _join_rows(curve, data, default)
        else:
            rows = _split_bytes(curve, data, default)
        if rows.dtype != np.uint8:
            raise ArgumentTypeError(
                f"{curve}: encoded points are an array of uint8, not of {rows.dtype}"
            )
        allowed = list(widths.values()) if compressed is None else [widths[bool(compressed)]]
        if not rows.ndim or rows.shape[-1] not in allowed:
            raise ArgumentShapeError(
                f"{curve}: the bytes of a point are along the last axis, "
                f"{' or '.join(map(str, allowed))} of them; the shape is {rows.shape}"
            )
        return rows

    # --- what a format defines ---

    @abstractmethod
    def read_flags(self, rows: Bytes, compressed: bool) -> Flags:
        """The flags of points, whose bytes are rows; raises `BadEncodingError`."""

    @abstractmethod
    def write_flags(self, rows: Bytes, flags: Flags, compressed: bool) -> None:
        """Write flags to rows that have the coordinates, and zeros for the point at infinity."""

    # --- points ---

    def read_points(self, curve: str, rows: Bytes, arithmetic: CoordinateArithmetic) -> PointArray:
        """The points of rows (n, bytes of a point), which are on the curve; `curve` is its name,
        for messages. Raises `PointError` for the first row that is not a point."""
        count, reason = len(rows), None
        while True:
            try:
                points = self._read_points(rows[:count], arithmetic)
                break
            except BadEncodingError as error:
                # A row before this one may be bad in a way that a later check finds.
                count, reason = error.index, str(error)
        if reason is not None:
            raise PointError(curve, count, f"{reason} (format: {self.name})")
        return points

    def _read_points(self, rows: Bytes, arithmetic: CoordinateArithmetic) -> PointArray:
        """As `read_points`, but the bad row need not be the first."""
        compressed = rows.shape[1] == self.compressed_bytes
        flags = self.read_flags(rows, compressed)
        numbers = self._strip_flags(rows, compressed)
        if compressed:
            decoded = arithmetic.decode(
                numbers, flags.infinite, flags.signs, self.byteorder, self.sign
            )
            if decoded is not None:
                points, codes = decoded
                _require(codes == 0, lambda index: REASONS[int(codes[index])])
                return points
        words = self._read_coordinates(numbers, compressed)
        if compressed:
            (x,) = arithmetic.load(words)
            y, exists = arithmetic.find_y(x, flags.infinite)
            _require(exists, REASONS[NO_ROOT])
            y = arithmetic.negate(y, arithmetic.get_signs(y, self.sign) != flags.signs)
            _require(~(arithmetic.is_zero(y) & flags.signs), REASONS[SIGNED_ZERO])
            return arithmetic.make_points(x, y)
        axes = tuple(range(1, words.ndim))
        _require(words.any(axis=axes) | flags.infinite, self.reason_of_zeros)
        x, y = arithmetic.load(words)
        points = arithmetic.make_points(x, y)
        _require(points.is_on_curve(), "x and y are not the coordinates of a point of the curve")
        if self.signs_uncompressed:
            _require(
                arithmetic.get_signs(y, self.sign) == flags.signs,
                "the flag of the larger root does not fit y",
            )
        return points

    def write_points(
        self, points: PointArray, compressed: bool, arithmetic: CoordinateArithmetic
    ) -> Bytes:
        """The bytes of points of shape (n,) in affine form, one in each row."""
        if compressed and self.flags_in_one_byte:
            encoded = arithmetic.encode(points, self._list_flags(), self.byteorder, self.sign)
            if encoded is not None:
                return encoded
        words, signs = arithmetic.unload(points, self.sign)
        if not (compressed or self.signs_uncompressed):
            signs = np.zeros(points.size, np.bool_)
        flat = words.reshape(len(words), math.prod(words.shape[1:]))
        flags = Flags(np.logical_not(flat.any(axis=1)), signs)
        words = words[:, :1] if compressed else words
        rows = self._write_coordinates(words)
        self.write_flags(rows, flags, compressed)
        return rows

    # --- coordinates ---

    def _strip_flags(self, rows: Bytes, compressed: bool) -> Bytes:
        """A copy of the coordinates in rows, without flags."""
        numbers = rows[:, self.prefix_bytes :].copy()
        if compressed or self.flags_uncompressed:
            numbers[:, self._flag_byte] &= 0xFF >> self.flag_bits
        return numbers

    def _read_coordinates(self, numbers: Bytes, compressed: bool) -> Words:
        """The coordinates x, or x and y, in canonical words (n, 1 or 2, *axes of a coordinate)."""
        coordinates = 1 if compressed else 2
        shape = (len(numbers), coordinates, self.degree, self.coefficient_bytes)
        try:
            words = encoding.bytes_to_words(
                self.prime, self._order(numbers.reshape(shape)), byteorder=self.byteorder
            )
        except ElementRangeError as error:
            number = error.index // self.degree
            part = "" if self.degree == 1 else "a coefficient of "
            raise BadEncodingError(
                number // coordinates,
                f"{part}{'xy'[number % coordinates]} is not below the modulus of the field",
            ) from None
        return words.reshape(len(numbers), coordinates, *self.coordinate_shape)

    def _write_coordinates(self, words: Words) -> Bytes:
        """Rows with coordinates in canonical words (n, 1 or 2, *axes of a coordinate)."""
        count, coordinates = words.shape[:2]
        shape = (count, coordinates, self.degree, *self.prime.element_shape)
        parts = encoding.words_to_bytes(self.prime, words.reshape(shape), byteorder=self.byteorder)
        width = coordinates * self.coordinate_bytes
        rows = np.zeros((count, self.prefix_bytes + width), np.uint8)
        rows[:, self.prefix_bytes :] = self._order(parts).reshape(count, width)
        return rows

    def _order(self, parts: Bytes) -> Bytes:
        """Bytes of coefficients (n, coordinates, degree, bytes) in the order of the format, or
        back: c0 before c1 if little-endian, c1 before c0 if big-endian."""
        return parts if self.byteorder == "little" else parts[:, :, ::-1]

    # --- what the formats share ---

    @property
    def _flag_byte(self) -> int:
        """The byte of the coordinates with the highest bits."""
        return 0 if self.byteorder == "big" else -1

    def _get_flag_bits(self, rows: Bytes) -> Bytes:
        return rows[:, self._flag_byte] & np.uint8(0xFF ^ 0xFF >> self.flag_bits)

    def _set_flag_bits(self, rows: Bytes, bits: npt.ArrayLike) -> None:
        rows[:, self._flag_byte] |= np.asarray(bits, np.uint8)

    def _list_flags(self) -> tuple[int, int, int]:
        """The flag bits of a compressed point whose y has no sign, of one with the sign, and of
        infinity."""
        rows = np.zeros((3, self.compressed_bytes), np.uint8)
        kinds = np.array([False, False, True]), np.array([False, True, False])
        self.write_flags(rows, Flags(*kinds), True)
        plain, signed, infinite = rows[:, self._flag_byte].tolist()
        return plain, signed, infinite

    def _require_zeros(self, rows: Bytes, infinite: Booleans, allowed: int) -> None:
        """Raise unless the rows of the point at infinity are zeros, but for the allowed flags."""
        rest = rows[infinite]
        rest[:, self._flag_byte] &= 0xFF ^ allowed
        good = ~infinite
        good[infinite] = ~rest.any(axis=1)
        _require(good, "it is flagged as the point at infinity, and other bits are set")


def _require(good: Booleans, reason: str | Callable[[int], str]) -> None:
    """Raise `BadEncodingError` for the first row that is not good; the reason may depend on its
    index."""
    if not good.all():
        index = int(good.argmin())
        raise BadEncodingError(index, reason if isinstance(reason, str) else reason(index))


def _join_rows(curve: str, data: Sequence[Any], default: int) -> Bytes:
    """Encoded points in a list; `default` is the width of none."""
    if not all(isinstance(each, bytes | bytearray) for each in data):
        raise ArgumentTypeError(f"{curve}: a list of encoded points has `bytes` of one length")
    lengths = sorted({len(each) for each in data})
    if len(lengths) > 1:
        raise ArgumentTypeError(
            f"{curve}: a list of encoded points has `bytes` of one length; found lengths {lengths}"
        )
    width = lengths[0] if lengths else default
    return np.frombuffer(b"".join(data), np.uint8).reshape(len(data), width)


def _split_bytes(curve: str, data: Any, width: int) -> Bytes:
    """Encoded points of `width` bytes each, one after the other."""
    try:
        flat = np.frombuffer(data, np.uint8)
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"{curve}: encoded points are bytes, a list of bytes or an array of uint8, not "
            f"{type(data).__name__}"
        ) from None
    if flat.size % width:
        raise ArgumentShapeError(
            f"{curve}: {flat.size} bytes are no multiple of the {width} bytes of a point; "
            "compressed=False reads uncompressed points, compressed=True compressed ones"
        )
    return flat.reshape(-1, width)


class ZcashEncoding(PointEncoding):
    """Big-endian, c1 before c0; the top three bits of the first byte say: compressed, infinity, y
    is the larger root."""

    name = "ZCash"
    byteorder = "big"
    sign = "larger"
    flag_bits = 3
    flags_in_one_byte = True
    flags_uncompressed = True
    COMPRESSED, INFINITY, LARGER = 0x80, 0x40, 0x20

    def read_flags(self, rows: Bytes, compressed: bool) -> Flags:
        bits = self._get_flag_bits(rows)
        said = "uncompressed" if compressed else "compressed"
        _require(
            (bits & self.COMPRESSED != 0) == compressed,
            f"its first bit says {said}, and it has {rows.shape[1]} bytes",
        )
        larger, infinite = bits & self.LARGER != 0, bits & self.INFINITY != 0
        if not compressed:
            _require(~larger, "its third bit is set, which only compressed points have")
        self._require_zeros(rows, infinite, self.COMPRESSED | self.INFINITY)
        return Flags(infinite, larger)

    def write_flags(self, rows: Bytes, flags: Flags, compressed: bool) -> None:
        larger = np.where(flags.signs, self.LARGER, 0)
        bits = np.where(flags.infinite, self.INFINITY, larger)
        self._set_flag_bits(rows, bits | self.COMPRESSED if compressed else bits)


class Eip196Encoding(PointEncoding):
    """Big-endian, c1 before c0. Uncompressed points are those of EIP-196 and EIP-197: no flags,
    zeros for infinity. Compressed points are those of gnark-crypto: the top two bits of the first
    byte are 10 for the smaller root, 11 for the larger one, 01 for infinity."""

    name = "EIP-196/197 and gnark-crypto"
    byteorder = "big"
    sign = "larger"
    flag_bits = 2
    flags_in_one_byte = True
    SMALLER, LARGER, INFINITY = 0x80, 0xC0, 0x40

    def read_flags(self, rows: Bytes, compressed: bool) -> Flags:
        if not compressed:
            return _find_zero_rows(rows)
        bits = self._get_flag_bits(rows)
        infinite, larger = bits == self.INFINITY, bits == self.LARGER
        _require(
            infinite | larger | (bits == self.SMALLER),
            f"its first two bits say uncompressed, and it has {rows.shape[1]} bytes",
        )
        self._require_zeros(rows, infinite, self.INFINITY)
        return Flags(infinite, larger)

    def write_flags(self, rows: Bytes, flags: Flags, compressed: bool) -> None:
        if compressed:
            roots = np.where(flags.signs, self.LARGER, self.SMALLER)
            self._set_flag_bits(rows, np.where(flags.infinite, self.INFINITY, roots))


class ArkworksEncoding(PointEncoding):
    """Little-endian, c0 before c1; the top two bits of the last byte say: y is the larger root,
    infinity."""

    name = "arkworks"
    byteorder = "little"
    sign = "larger"
    flag_bits = 2
    flags_in_one_byte = True
    flags_uncompressed = True
    signs_uncompressed = True
    LARGER, INFINITY = 0x80, 0x40

    def read_flags(self, rows: Bytes, compressed: bool) -> Flags:
        bits = self._get_flag_bits(rows)
        _require(
            bits != self.LARGER | self.INFINITY,
            "both flags are set, infinity and the larger root",
        )
        infinite = bits == self.INFINITY
        self._require_zeros(rows, infinite, self.INFINITY)
        return Flags(infinite, bits == self.LARGER)

    def write_flags(self, rows: Bytes, flags: Flags, compressed: bool) -> None:
        larger = np.where(flags.signs, self.LARGER, 0)
        self._set_flag_bits(rows, np.where(flags.infinite, self.INFINITY, larger))


class PastaEncoding(PointEncoding):
    """Little-endian; the top bit of a compressed point is the lowest bit of y. The point at
    infinity is zeros: no point of Pallas or Vesta has x = 0."""

    name = "pasta_curves"
    byteorder = "little"
    sign = "odd"
    flag_bits = 1
    flags_in_one_byte = True
    ODD = 0x80

    def __init__(self, key: CurveKey) -> None:
        super().__init__(key)
        field = CoordinateField.of(key)
        if field.sqrt(field.make(key.b)) is not None:
            raise CurveError(
                f"the format {self.name} has zeros for the point at infinity, and a point of the "
                "curve has x = 0"
            )

    def read_flags(self, rows: Bytes, compressed: bool) -> Flags:
        flags = _find_zero_rows(rows)
        if not compressed:
            return flags
        return Flags(flags.infinite, self._get_flag_bits(rows) == self.ODD)

    def write_flags(self, rows: Bytes, flags: Flags, compressed: bool) -> None:
        if compressed:
            self._set_flag_bits(rows, np.where(flags.signs, self.ODD, 0))


class Sec1Encoding(PointEncoding):
    """Big-endian behind a first byte: 2 for even y, 3 for odd y, 4 for an uncompressed point.

    SEC 1 writes the point at infinity as a single byte 0. Rows of an array have one length, so
    zeros fill the row, as in RustCrypto's `GroupEncoding`.
    """

    name = "SEC 1"
    byteorder = "big"
    sign = "odd"
    prefix_bytes = 1
    reason_of_zeros = "x and y are 0, and the first byte says that it is a point"
    EVEN, ODD, UNCOMPRESSED = 2, 3, 4

    def read_flags(self, rows: Bytes, compressed: bool) -> Flags:
        first, flags = rows[:, 0], _find_zero_rows(rows)
        kind, values = "an uncompressed point has 4", [self.UNCOMPRESSED]
        if compressed:
            kind, values = "a compressed point has 2 or 3", [self.EVEN, self.ODD]
        _require(
            flags.infinite | np.isin(first, values),
            lambda index: f"its first byte is {first[index]}; {kind}",
        )
        return Flags(flags.infinite, first == self.ODD)

    def write_flags(self, rows: Bytes, flags: Flags, compressed: bool) -> None:
        kind = np.where(flags.signs, self.ODD, self.EVEN) if compressed else self.UNCOMPRESSED
        rows[:, 0] = np.where(flags.infinite, 0, kind)


def _find_zero_rows(rows: Bytes) -> Flags:
    """The flags of rows without flags, whose zeros are the point at infinity."""
    return Flags(np.asarray(~rows.any(axis=1)), np.zeros(len(rows), np.bool_))
