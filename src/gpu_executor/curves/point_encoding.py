"""Points as bytes, in the formats that the ecosystems of the named curves use.

A format writes a point compressed (x and one bit of y) or uncompressed (x and y), and reads only
what it would write itself: coordinates below the modulus, no other flags, zeros where the point at
infinity has zeros. So a point has one encoding of each kind.

Of the two square roots y and -y, formats call one "larger": as integers, or of an extension field
by the highest coefficient that is not 0. Others take the one whose lowest bit is set.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpu_executor.curves.host_coordinates import Coordinate
from gpu_executor.curves.host_points import Point, PointArithmetic
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, PointError
from gpu_executor.primes import encoding

Bytes = npt.NDArray[np.uint8]
ByteOrder = Literal["big", "little"]


class BadEncodingError(ValueError):
    """Bytes that are not a point; the message says why."""


class PointEncoding(ABC):
    """A format of points: `read` and `write` one point of `compressed_bytes` or
    `uncompressed_bytes`."""

    name: str
    byteorder: ByteOrder

    def __init__(self, arithmetic: PointArithmetic) -> None:
        self.arithmetic = arithmetic
        self.field = arithmetic.field
        self.coefficient_bytes = encoding.byte_width(self.field.prime)
        self.coordinate_bytes = self.coefficient_bytes * self.field.degree

    @property
    def compressed_bytes(self) -> int:
        """Bytes of a compressed point."""
        return self.coordinate_bytes

    @property
    def uncompressed_bytes(self) -> int:
        """Bytes of an uncompressed point."""
        return 2 * self.coordinate_bytes

    # --- arrays of bytes ---

    def read_points(
        self, curve: str, data: Any, compressed: bool | None
    ) -> tuple[list[Point], tuple[int, ...]]:
        """The points in bytes, in flat order, and their shape; `Curve.from_bytes` says what `data`
        may be. `curve` is the name of the curve, for messages."""
        rows = self._parse_rows(curve, data, compressed)
        *shape, width = rows.shape
        is_compressed = width == self.compressed_bytes
        read = self.read_compressed if is_compressed else self.read_uncompressed
        points, flat = [], np.ascontiguousarray(rows).tobytes()
        for index in range(math.prod(shape)):
            try:
                points.append(read(flat[index * width : (index + 1) * width]))
            except BadEncodingError as error:
                raise PointError(curve, index, f"{error} (format: {self.name})") from None
        return points, tuple(shape)

    def write_points(self, points: Sequence[Point], compressed: bool) -> Bytes:
        """The bytes of points, one in each row."""
        write = self.write_compressed if compressed else self.write_uncompressed
        width = self.compressed_bytes if compressed else self.uncompressed_bytes
        data = bytearray(b"".join(map(write, points)))
        return np.frombuffer(data, np.uint8).reshape(len(points), width)

    def _parse_rows(self, curve: str, data: Any, compressed: bool | None) -> Bytes:
        """The bytes of points as an array, the bytes of one along the last axis."""
        widths = {True: self.compressed_bytes, False: self.uncompressed_bytes}
        default = widths[compressed is not False]
        if isinstance(data, np.ndarray):
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

    # --- one point ---

    @abstractmethod
    def write_compressed(self, point: Point) -> bytes:
        """The compressed point."""

    @abstractmethod
    def write_uncompressed(self, point: Point) -> bytes:
        """The uncompressed point."""

    @abstractmethod
    def read_compressed(self, data: bytes) -> Point:
        """The point, which is on the curve; raises `BadEncodingError`."""

    @abstractmethod
    def read_uncompressed(self, data: bytes) -> Point:
        """The point, which is on the curve; raises `BadEncodingError`."""

    # --- what the formats share ---

    def write_coordinate(self, x: Coordinate) -> bytes:
        """Little-endian: c0, c1, ...; big-endian: the same bytes in reverse order."""
        width = self.coefficient_bytes
        parts = [each.to_bytes(width, "little") for each in self.field.get_coefficients(x)]
        upward = b"".join(parts)
        return upward if self.byteorder == "little" else upward[::-1]

    def read_coordinate(self, name: str, data: bytes) -> Coordinate:
        """A coordinate, whose coefficients must be below the modulus."""
        upward = data if self.byteorder == "little" else data[::-1]
        starts = range(0, self.coordinate_bytes, self.coefficient_bytes)
        coefficients = [
            int.from_bytes(upward[at : at + self.coefficient_bytes], "little") for at in starts
        ]
        if max(coefficients) >= self.field.modulus:
            part = "" if self.field.degree == 1 else "a coefficient of "
            raise BadEncodingError(f"{part}{name} is not below the modulus of the field")
        return self.field.make(coefficients)

    def write_pair(self, point: Point) -> bytes:
        """x and y, without flags; zeros for the point at infinity."""
        x, y = point or (self.field.zero, self.field.zero)
        return self.write_coordinate(x) + self.write_coordinate(y)

    def read_pair(self, data: bytes) -> Point:
        """The point of x and y, both 0 for the point at infinity."""
        x = self.read_coordinate("x", data[: self.coordinate_bytes])
        y = self.read_coordinate("y", data[self.coordinate_bytes :])
        if not x and not y:
            return None
        if not self.arithmetic.is_on_curve((x, y)):
            raise BadEncodingError("x and y are not the coordinates of a point of the curve")
        return x, y

    def solve(self, x: Coordinate, sign: bool) -> Point:
        """The point with this x whose y has the sign."""
        y = self.field.sqrt(self.arithmetic.compute_right_side(x))
        if y is None:
            raise BadEncodingError("there is no point of the curve with this x")
        if self.get_sign(y) != sign:
            y = -y % self.field.modulus
            if self.get_sign(y) != sign:
                raise BadEncodingError("y is 0, and the flag says that it is the larger root")
        return x, y

    def get_sign(self, y: Coordinate) -> bool:
        """The flag of y: whether it is the larger root."""
        return self.field.is_larger(y)


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


def _require_zeros(data: bytes) -> None:
    if any(data):
        raise BadEncodingError("it is flagged as the point at infinity, and other bits are set")


class ZcashEncoding(PointEncoding):
    """Big-endian, c1 before c0; the top three bits of the first byte say: compressed, infinity, y
    is the larger root."""

    name = "ZCash"
    byteorder = "big"
    COMPRESSED, INFINITY, LARGER = 0x80, 0x40, 0x20
    FLAGS = COMPRESSED | INFINITY | LARGER

    def write_compressed(self, point: Point) -> bytes:
        if point is None:
            return bytes([self.COMPRESSED | self.INFINITY]) + bytes(self.compressed_bytes - 1)
        first, *rest = self.write_coordinate(point[0])
        larger = self.LARGER if self.get_sign(point[1]) else 0
        return bytes([first | self.COMPRESSED | larger, *rest])

    def write_uncompressed(self, point: Point) -> bytes:
        if point is None:
            return bytes([self.INFINITY]) + bytes(self.uncompressed_bytes - 1)
        return self.write_pair(point)

    def _read_flags(self, data: bytes, compressed: bool) -> tuple[int, bytes]:
        """The flags other than "compressed", and the bytes without flags."""
        if bool(data[0] & self.COMPRESSED) != compressed:
            said = "compressed" if data[0] & self.COMPRESSED else "uncompressed"
            raise BadEncodingError(f"its first bit says {said}, and it has {len(data)} bytes")
        bare = bytes([data[0] & ~self.FLAGS]) + data[1:]
        return data[0] & (self.INFINITY | self.LARGER), bare

    def read_compressed(self, data: bytes) -> Point:
        flags, bare = self._read_flags(data, True)
        if flags & self.INFINITY:
            _require_zeros(bytes([flags & self.LARGER]) + bare)
            return None
        return self.solve(self.read_coordinate("x", bare), bool(flags & self.LARGER))

    def read_uncompressed(self, data: bytes) -> Point:
        flags, bare = self._read_flags(data, False)
        if flags & self.LARGER:
            raise BadEncodingError("its third bit is set, which only compressed points have")
        if flags & self.INFINITY:
            _require_zeros(bare)
            return None
        point = self.read_pair(bare)
        if point is None:
            raise BadEncodingError("x and y are 0 without the flag of the point at infinity")
        return point


class Eip196Encoding(PointEncoding):
    """Big-endian, c1 before c0. Uncompressed points are those of EIP-196 and EIP-197: no flags,
    zeros for infinity. Compressed points are those of gnark-crypto: the top two bits of the first
    byte are 10 for the smaller root, 11 for the larger one, 01 for infinity."""

    name = "EIP-196/197 and gnark-crypto"
    byteorder = "big"
    SMALLER, LARGER, INFINITY = 0x80, 0xC0, 0x40
    FLAGS = 0xC0

    def write_compressed(self, point: Point) -> bytes:
        if point is None:
            return bytes([self.INFINITY]) + bytes(self.compressed_bytes - 1)
        first, *rest = self.write_coordinate(point[0])
        return bytes([first | (self.LARGER if self.get_sign(point[1]) else self.SMALLER), *rest])

    def write_uncompressed(self, point: Point) -> bytes:
        return self.write_pair(point)

    def read_compressed(self, data: bytes) -> Point:
        flags, bare = data[0] & self.FLAGS, bytes([data[0] & ~self.FLAGS]) + data[1:]
        if flags == self.INFINITY:
            _require_zeros(bare)
            return None
        if flags not in (self.SMALLER, self.LARGER):
            raise BadEncodingError(
                f"its first two bits say uncompressed, and it has {len(data)} bytes"
            )
        return self.solve(self.read_coordinate("x", bare), flags == self.LARGER)

    def read_uncompressed(self, data: bytes) -> Point:
        return self.read_pair(data)


class ArkworksEncoding(PointEncoding):
    """Little-endian, c0 before c1; the top two bits of the last byte say: y is the larger root,
    infinity."""

    name = "arkworks"
    byteorder = "little"
    LARGER, INFINITY = 0x80, 0x40
    FLAGS = LARGER | INFINITY

    def _flag(self, point: Point, data: bytes) -> bytes:
        """The bytes with the flags of a point in the last one."""
        larger = point is not None and self.get_sign(point[1])
        flags = self.INFINITY if point is None else self.LARGER * larger
        return data[:-1] + bytes([data[-1] | flags])

    def write_compressed(self, point: Point) -> bytes:
        return self._flag(point, self.write_coordinate(point[0] if point else self.field.zero))

    def write_uncompressed(self, point: Point) -> bytes:
        return self._flag(point, self.write_pair(point))

    def _read_flags(self, data: bytes) -> tuple[int, bytes]:
        flags, bare = data[-1] & self.FLAGS, data[:-1] + bytes([data[-1] & ~self.FLAGS])
        if flags == self.FLAGS:
            raise BadEncodingError("both flags are set, infinity and the larger root")
        return flags, bare

    def read_compressed(self, data: bytes) -> Point:
        flags, bare = self._read_flags(data)
        if flags == self.INFINITY:
            _require_zeros(bare)
            return None
        return self.solve(self.read_coordinate("x", bare), flags == self.LARGER)

    def read_uncompressed(self, data: bytes) -> Point:
        flags, bare = self._read_flags(data)
        if flags == self.INFINITY:
            _require_zeros(bare)
            return None
        point = self.read_pair(bare)
        if point is None:
            raise BadEncodingError("x and y are 0 without the flag of the point at infinity")
        if self.get_sign(point[1]) != (flags == self.LARGER):
            raise BadEncodingError("the flag of the larger root does not fit y")
        return point


class PastaEncoding(PointEncoding):
    """Little-endian; the top bit of a compressed point is the lowest bit of y. The point at
    infinity is zeros: no point of Pallas or Vesta has x = 0."""

    name = "pasta_curves"
    byteorder = "little"
    ODD = 0x80

    def get_sign(self, y: Coordinate) -> bool:
        """The flag of y: whether it is odd."""
        return bool(y & 1)

    def write_compressed(self, point: Point) -> bytes:
        if point is None:
            return bytes(self.compressed_bytes)
        data = self.write_coordinate(point[0])
        return data[:-1] + bytes([data[-1] | (self.ODD if self.get_sign(point[1]) else 0)])

    def write_uncompressed(self, point: Point) -> bytes:
        return self.write_pair(point)

    def read_compressed(self, data: bytes) -> Point:
        if not any(data):
            return None
        bare = data[:-1] + bytes([data[-1] & ~self.ODD])
        return self.solve(self.read_coordinate("x", bare), bool(data[-1] & self.ODD))

    def read_uncompressed(self, data: bytes) -> Point:
        return self.read_pair(data)


class Sec1Encoding(PointEncoding):
    """Big-endian behind a first byte: 2 for even y, 3 for odd y, 4 for an uncompressed point.

    SEC 1 writes the point at infinity as a single byte 0. Rows of an array have one length, so
    zeros fill the row, as in RustCrypto's `GroupEncoding`.
    """

    name = "SEC 1"
    byteorder = "big"
    EVEN, ODD, UNCOMPRESSED = 2, 3, 4

    @property
    def compressed_bytes(self) -> int:
        return 1 + self.coordinate_bytes

    @property
    def uncompressed_bytes(self) -> int:
        return 1 + 2 * self.coordinate_bytes

    def get_sign(self, y: Coordinate) -> bool:
        """The flag of y: whether it is odd."""
        return bool(y & 1)

    def write_compressed(self, point: Point) -> bytes:
        if point is None:
            return bytes(self.compressed_bytes)
        first = self.ODD if self.get_sign(point[1]) else self.EVEN
        return bytes([first]) + self.write_coordinate(point[0])

    def write_uncompressed(self, point: Point) -> bytes:
        if point is None:
            return bytes(self.uncompressed_bytes)
        return bytes([self.UNCOMPRESSED]) + self.write_pair(point)

    def read_compressed(self, data: bytes) -> Point:
        if not any(data):
            return None
        if data[0] not in (self.EVEN, self.ODD):
            raise BadEncodingError(f"its first byte is {data[0]}; a compressed point has 2 or 3")
        return self.solve(self.read_coordinate("x", data[1:]), data[0] == self.ODD)

    def read_uncompressed(self, data: bytes) -> Point:
        if not any(data):
            return None
        if data[0] != self.UNCOMPRESSED:
            raise BadEncodingError(f"its first byte is {data[0]}; an uncompressed point has 4")
        point = self.read_pair(data[1:])
        if point is None:
            raise BadEncodingError("x and y are 0, and the first byte says that it is a point")
        return point
