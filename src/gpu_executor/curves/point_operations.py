"""Operations on points, which run in the place where the words of the points are.

Their arguments are a curve and words of points. The NumPy algorithms of `host_points` give words in
affine form, or arrays of booleans; on the CPU backend these become device arrays. The algorithms
made of steps give words in XYZZ form, but for `to_affine` and `neg`, or arrays of booleans on the
host.
"""

from __future__ import annotations

from gpu_executor.ops import host_points, points
from gpu_executor.ops.elementwise import ElementData
from gpu_executor.ops.operation import Operation
from gpu_executor.primes.curve_key import CurveKey

OnPoints = Operation[[CurveKey, ElementData], ElementData]
OnPairs = Operation[[CurveKey, ElementData, ElementData], ElementData]
"""The second operand is points, or a scalar for each point."""

add: OnPairs = Operation(host_points.add, points.add)
sub: OnPairs = Operation(host_points.sub, points.sub)
neg: OnPoints = Operation(host_points.neg, points.neg)
double: OnPoints = Operation(host_points.double, points.double)
mul: OnPairs = Operation(host_points.mul, points.mul)
sum_points: OnPoints = Operation(host_points.sum_points, points.sum_points)
to_affine: OnPoints = Operation(host_points.to_affine, points.to_affine)
equal: OnPairs = Operation(host_points.equal, points.equal)
is_infinity: OnPoints = Operation(host_points.is_infinity, points.is_infinity)
is_on_curve: OnPoints = Operation(host_points.is_on_curve, points.is_on_curve)
