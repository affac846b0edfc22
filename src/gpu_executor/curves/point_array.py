"""`PointArray`: points of a curve in memory, on the host or on a device.

The words of a point are its coordinates in the form in which the curve's field computes. In affine
form these are x and y, both 0 for the point at infinity. In XYZZ form they are X, Y, ZZ and ZZZ
with x = X / ZZ, y = Y / ZZZ and ZZ^3 = ZZZ^2; ZZ and ZZZ are 0 for the point at infinity.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.calls.arguments import parse_shape
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.curves.point_operations import to_affine
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError
from gpu_executor.fields.layout_array import LayoutArray
from gpu_executor.fields.numpy_functions import SHAPE_FUNCTIONS, Functions, call_numpy_function
from gpu_executor.ops import elementwise
from gpu_executor.ops.elementwise import Words
from gpu_executor.ops.host_points import get_arithmetic
from gpu_executor.primes import Form, Prime
from gpu_executor.primes.curve_key import CurveKey

PointForm = Literal["affine", "xyzz"]
PointData = npt.NDArray[Any] | DeviceArray
"""Words of points in either place."""
Booleans = npt.NDArray[np.bool_]
Axes = int | Sequence[int] | None
COORDINATES: dict[int, PointForm] = {2: "affine", 4: "xyzz"}
MAX_SHOWN = 3
"""Points that `repr` shows; of more it shows the first and the last."""


@dataclass(frozen=True)
class PointLayout:
    """A point as an element of an array, for the algorithms that move elements."""

    name: str
    prime: Prime
    element_shape: Shape
    """The axes of a point: coordinates, coefficients of a coordinate, columns of a coefficient."""

    @property
    def form(self) -> Form:
        return self.prime.form

    @property
    def column_dtype(self) -> np.dtype[Any]:
        return self.prime.column_dtype

    @cached_property
    def columns(self) -> int:
        return math.prod(self.element_shape)

    @cached_property
    def element_bytes(self) -> int:
        return self.columns * self.column_dtype.itemsize

    @cached_property
    def words(self) -> int:
        return self.element_bytes // 4


class PointCurve(Protocol):
    """What an array of points needs of its curve, which is a `Curve`: its methods say what they do.

    `Curve` is in a module above this one, because its methods return arrays of points.
    """

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> CurveKey: ...
    @property
    def field(self) -> Any: ...
    @property
    def cofactor(self) -> int | None: ...
    def get_layout(self, form: PointForm) -> PointLayout: ...
    def wrap_coordinate(self, data: PointData) -> Any: ...
    def join_coordinates(self, x: Any, y: Any) -> PointArray: ...
    def check_points(self, points: Any) -> PointArray: ...
    def add(self, p: Any, q: Any) -> PointArray: ...
    def sub(self, p: Any, q: Any) -> PointArray: ...
    def neg(self, p: PointArray) -> PointArray: ...
    def double(self, p: PointArray) -> PointArray: ...
    def mul(self, p: PointArray, scalars: Any) -> PointArray: ...
    def equal(self, p: PointArray, q: PointArray) -> Booleans: ...
    def sum(self, p: PointArray, *, axis: Axes, keepdims: bool) -> PointArray: ...
    def is_infinity(self, p: PointArray) -> Booleans: ...
    def is_on_curve(self, p: PointArray) -> Booleans: ...
    def in_subgroup(self, p: PointArray) -> Booleans: ...
    def to_bytes(self, points: PointArray, *, compressed: bool) -> npt.NDArray[np.uint8]: ...
    def concatenate(self, arrays: Sequence[PointArray], *, axis: int) -> PointArray: ...
    def stack(self, arrays: Sequence[PointArray], *, axis: int) -> PointArray: ...


class PointArray(LayoutArray):
    """Points of a curve, on the host or on a device; `Curve` makes them. Axes are axes of points.

    Operators: P + Q, P - Q, -P, P * k and k * P with integers or with a scalar for each point, and
    comparisons, point by point. The points themselves cannot be changed.
    """

    __slots__ = ("curve", "form", "known_in_subgroup")

    def __init__(self, curve: Any, data: PointData, *, known_in_subgroup: bool = False) -> None:
        """Points over words that are not checked; `Curve.from_words` checks them.

        Args:
            curve (Curve): The curve of the points.
            data (numpy.ndarray or DeviceArray): Words of points in either form, as stored, each
                coordinate below the modulus.
            known_in_subgroup (bool): Whether all points are in the group of prime order.
        """
        self.curve: PointCurve = curve
        self.data = data
        self.known_in_subgroup = known_in_subgroup or curve.cofactor == 1
        """Whether all points are known to be in the group of prime order, because they were
        checked or computed from such points. `msm` then takes less time."""
        axes = len(data.shape) - len(curve.key.coordinate_shape) - 1
        self.form: PointForm = COORDINATES[data.shape[axes]]
        self.shape = data.shape[:axes]
        """In points: the coordinates and the columns of a coordinate are not axes."""

    def _with(self, data: PointData) -> PointArray:
        return PointArray(self.curve, data, known_in_subgroup=self.known_in_subgroup)

    def join(self, arrays: Sequence[Any], axis: int) -> PointArray:
        """Points one behind the other along an axis."""
        return self.curve.concatenate(arrays, axis=axis)

    @property
    def layout(self) -> PointLayout:
        return self.curve.get_layout(self.form)

    # --- place ---

    def copy_to_device(self, device: ArrayDevice) -> PointArray:
        """A copy on the device, in the same form; points of that device are returned as they
        are.

        Args:
            device (ArrayDevice): The memory of a device, `gpu.array_device`;
                `gpu.to_device(points)` does the same.
        """
        if self.on_device and self.device is device:
            return self
        return self._with(device.put(self.words()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the words: points on a device come back on the host."""
        return _restore_points, (self.curve, np.array(self.words()), self.known_in_subgroup)

    # --- in graphs and calls of kernels ---

    def convert_for(self, kernel: Any) -> NoReturn:
        """Kernels that `run` takes have no arguments that are points."""
        raise ArgumentTypeError(
            f"{kernel.name} takes no points; pass their words, points.affine().data"
        )

    def wrap_like(self, data: PointData) -> PointArray:
        """Points of the same curve over other words."""
        return self._with(data)

    def convert_like(self, given: Any) -> PointData:
        """The words of other points of this curve and shape, which must be in this array's form,
        and known to be in the group of prime order if those of this array are."""
        points = self.curve.check_points(given)
        if self.known_in_subgroup and not points.known_in_subgroup:
            raise ArgumentTypeError(
                "points that are known to be in the group of prime order are expected; from_bytes "
                "and from_affine check points, unless check=False is given"
            )
        if points.shape != self.shape:
            raise ArgumentShapeError(
                f"points of shape {self.shape} are expected; got points of shape {points.shape}"
            )
        if points.form != self.form:
            points = points.affine()
        if points.form != self.form:
            raise ArgumentTypeError(
                f"points in {self.form} form are expected; got points in {points.form} form"
            )
        data: PointData = points.data
        return data

    @property
    def type_key(self) -> Hashable:
        """What distinguishes arrays with the same words. Equal curves may have other generators,
        so the curve counts by identity; the key refers to it, so its id stays unique."""
        return id(self.curve), self.curve, self.form, self.known_in_subgroup

    def describe_type(self) -> str:
        """The curve and the form of the points, in words."""
        return f"points of {self.curve.name} in {self.form} form"

    # --- shape ---

    def __bool__(self) -> NoReturn:
        raise ArgumentTypeError(
            "points have no truth value; is_infinity() says which are the point at infinity"
        )

    def broadcast_to(self, shape: Shape) -> PointArray:
        """A view of that shape, which repeats points by NumPy's rules.

        Args:
            shape (tuple): The lengths of the axes.
        """
        if type(shape) is not tuple or shape != self.shape:
            shape = parse_shape(shape, self.layout.element_bytes)
            if elementwise.find_common_shape(self.layout, [self.shape, shape]) != shape:
                raise ArgumentShapeError(f"points of shape {self.shape} do not fill {shape}")
        return self._with(elementwise.broadcast_to(self.layout, self.data, shape))

    # --- coordinates ---

    def affine(self) -> PointArray:
        """The same points in affine form, by one inversion for all; the array itself if it is."""
        if self.form == "affine":
            return self
        return self._with(to_affine(self.curve.key, self.data))

    @property
    def x(self) -> Any:
        """The coordinates x, an array of the curve's field; 0 for the point at infinity."""
        return self._get_coordinate(0)

    @property
    def y(self) -> Any:
        """The coordinates y, an array of the curve's field; 0 for the point at infinity."""
        return self._get_coordinate(1)

    def _get_coordinate(self, number: int) -> Any:
        # Because of the ellipsis NumPy returns an array and never a scalar.
        index: Any = (*[slice(None)] * self.ndim, number, ...)
        # A copy: points cannot be changed in place, and arrays of fields can.
        return self.curve.wrap_coordinate(self.affine().data[index].copy())

    def numpy(self) -> Words:
        """The canonical words of x and y, on the host: shape (..., 2, words of a coordinate), all 0
        for the point at infinity."""
        return self.curve.wrap_coordinate(self.affine().data).numpy()  # type: ignore[no-any-return]

    def tolist(self) -> Any:
        """The points as nested lists of (x, y), or of None for the point at infinity; coordinates
        are integers, or tuples of the coefficients c0, c1, ... in an extension field."""
        arithmetic = get_arithmetic(self.curve.key)
        found: npt.NDArray[np.object_] = np.empty(self.size, np.object_)
        for index, point in enumerate(arithmetic.load(self.words())):
            found[index] = point and tuple(map(arithmetic.field.to_integers, point))
        return found.reshape(self.shape).tolist()

    def to_bytes(self, *, compressed: bool = True) -> npt.NDArray[np.uint8]:
        """The points as bytes in the curve's format: an array (..., bytes of a point).

        Args:
            compressed (bool): Whether the bytes have x and a sign alone.
        """
        return self.curve.to_bytes(self, compressed=compressed)

    # --- operators ---

    def __pos__(self) -> PointArray:
        return self.copy()

    def __neg__(self) -> PointArray:
        return self.curve.neg(self)

    def __add__(self, other: Any) -> PointArray:
        return self.curve.add(self, other)

    def __radd__(self, other: Any) -> PointArray:
        return self.curve.add(other, self)

    def __sub__(self, other: Any) -> PointArray:
        return self.curve.sub(self, other)

    def __rsub__(self, other: Any) -> PointArray:
        return self.curve.sub(other, self)

    def __mul__(self, scalars: Any) -> PointArray:
        return self.curve.mul(self, scalars)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> Any:
        """Point by point, as an array of booleans on the host. What is no point equals none."""
        if not isinstance(other, PointArray):
            return np.zeros(self.shape, np.bool_)
        return self.curve.equal(self, other)

    def __ne__(self, other: object) -> Any:
        """Point by point, as an array of booleans on the host."""
        return ~(self == other)

    __hash__ = None  # type: ignore[assignment]

    # --- methods ---

    def double(self) -> PointArray:
        """P + P."""
        return self.curve.double(self)

    def sum(self, axis: Axes = None, *, keepdims: bool = False) -> PointArray:
        """The sum over an axis or several, by default over all of them.

        Args:
            axis (int or tuple): The axis or axes; None for all of them.
            keepdims (bool): Whether the result keeps these axes, with the length 1.
        """
        return self.curve.sum(self, axis=axis, keepdims=keepdims)

    def is_infinity(self) -> Booleans:
        """Which points are the point at infinity: booleans on the host."""
        return self.curve.is_infinity(self)

    def is_on_curve(self) -> Booleans:
        """Which points satisfy the equation of the curve: booleans on the host."""
        return self.curve.is_on_curve(self)

    def in_subgroup(self) -> Booleans:
        """Which points are in the group of prime order: booleans on the host."""
        return self.curve.in_subgroup(self)

    def __array_function__(
        self, function: Any, _types: Any, arguments: Any, options: dict[str, Any]
    ) -> Any:
        """NumPy's functions that have a meaning for points; any other raises TypeError."""
        return call_numpy_function(NUMPY_FUNCTIONS, self, function, arguments, options)

    # --- repr ---

    def __repr__(self) -> str:
        place = "device" if self.on_device else "host"
        described = f"<PointArray {self.shape} of {self.curve.name} on the {place}, {self.form}"
        try:
            return f"{described}: {self._format_points()}>"
        except GpuError:  # recorded in a graph and not computed yet, or on a closed device
            return f"{described}>"

    def _format_points(self) -> str:
        flat = self.reshape(-1) if self.ndim > 1 else self
        if not self.ndim:
            return _format_point(self.to_host().tolist())
        parts = [flat] if self.size <= MAX_SHOWN else [flat[:1], flat[-1:]]
        texts = [", ".join(map(_format_point, part.to_host().tolist())) for part in parts]
        return f"[{', ..., '.join(texts)}]"


NUMPY_FUNCTIONS: Functions = {
    **SHAPE_FUNCTIONS,
    np.sum: lambda a, axis=None, keepdims=False: a.sum(axis, keepdims=keepdims),
}


def _restore_points(curve: Any, data: PointData, known_in_subgroup: bool) -> PointArray:
    """Points that were pickled."""
    return PointArray(curve, data, known_in_subgroup=known_in_subgroup)


def _format_point(point: Any) -> str:
    """A point in few characters: the first digits of its coordinates."""
    if point is None:
        return "infinity"
    return f"({', '.join(map(_format_coordinate, point))})"


def _format_coordinate(coordinate: Any) -> str:
    if isinstance(coordinate, tuple):
        return f"({', '.join(map(_format_coordinate, coordinate))})"
    text = f"{coordinate:#x}"
    return text if len(text) <= 10 else f"{text[:8]}..."
