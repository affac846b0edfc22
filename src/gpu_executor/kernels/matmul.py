"""The kernels of matrix products.

A call chooses the tile of the product that a work-group computes, and cuts k into slices for
several work-groups if there are few tiles. It chooses by the shapes alone, so the order of the
additions, and with it the rounding of floats, depends on nothing else:

- An invocation adds up its products of a slice in the order of k. In tiles of few elements, each of
  L lanes keeps four sums: sum s of lane l takes the products l + L * s, l + L * (s + 4), ... of the
  slice. The four sums are added in pairs, then the sums of the lanes by halves.
- Slices are added in order; in tiles of few elements, lane l adds slices l, l + L, ..., and then
  the sums of the lanes are added by halves.

A product is rounded before it is added where the device has no fused multiply-add.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ArgumentShapeError
from gpu_executor.kernel import Grid, Kernel, Reference, Shape
from gpu_executor.kernels import wgsl_texts
from gpu_executor.kernels.modules import load_spirv
from gpu_executor.kernels.wgsl_texts import MATRIX_DEPTH, MATRIX_INVOCATIONS, MATRIX_TILE

Array = npt.NDArray[Any]

SMALL_TILE_ELEMENTS = 16 * MATRIX_INVOCATIONS
FEW = 4
"""Up to this many rows or columns, a product has tiles of few elements: others would consist of
elements outside the product for the greater part."""
ELEMENTS_PER_LANE = 32
MAX_COALESCED_LANES = 8
"""Most lanes of an element in a product of few rows: 32 invocations load four groups of eight
adjacent elements of b."""
ENOUGH_WORK_GROUPS = 256
"""Up to this many work-groups, a product is cut into slices. The slices are part of the order of
the additions, so the number is the same on every device: floats would be rounded differently
otherwise. It gives each unit of a large GPU two work-groups. A small GPU adds up to 255 partial
products of an element that it need not have, of at least `MIN_SLICE_DEPTH` terms each."""
MIN_SLICE_DEPTH = 128
MIN_LARGE_DEPTH = 512
MIN_LANE_DEPTH = 16
"""The least number of products that a work-group adds up, with small tiles, with large tiles and in
each lane, where k is cut into slices."""
MAX_ITERATIONS = 16_384
"""Most products of one element that an invocation adds up: lavapipe aborts a shader after 65,535
iterations of all its loops together."""
MAX_SCRATCH_WORDS = 1 << 24
"""Most words of scratch memory for slices that only lavapipe's limit asks for. It binds 128 MiB at
most, so there slices never take more."""
MAX_GATHERED = 1 << 20
"""Elements of each matrix that are copied at a time to compute single elements of the product."""
MAX_GRID = 65_535
"""Work-groups in one dimension that every Vulkan device and every WebGPU adapter accepts."""


@dataclass(frozen=True, slots=True)
class ProductPlan:
    """How the work-groups of one product of an m x k matrix and a k x n matrix are laid out."""

    tile_rows: int
    tile_columns: int
    slice_depth: int
    grid: Grid
    scratch_words: int


@functools.cache
def matmul_kernel(type_: str) -> Kernel:
    """Return the kernel of a @ b for "u32", modulo 2^32, or "f32".

    Sums of floats have an order that depends on the shapes alone, described above, and differs from
    that of `np.matmul`. Each of the k additions may round, so the error of an element is up to k *
    2^-23 times the product of the magnitudes |a| @ |b|.
    """
    dtype = {"u32": np.uint32, "f32": np.float32}[type_]
    return Kernel.from_spirv(
        load_spirv(f"matmul_{type_}"),
        count=True,
        buffers=[("in", dtype), ("in", dtype), ("out", dtype), ("scratch", _count_scratch_words)],
        split="whole",
        out_shape=_compute_shape,
        init=None,
        push=_compute_push_words,
        grid=_compute_grid,
        name=f"matmul_{type_}",
        reference=Reference(np.matmul, at=_compute_elements),
        wgsl=wgsl_texts.render_matrix_product(dtype),
    )


def _compute_shape(a: Shape, b: Shape) -> tuple[int, int]:
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise ArgumentShapeError(
            f"a matrix product takes arrays of shapes (m, k) and (k, n); found {a} and {b}"
        )
    return a[0], b[1]


def _compute_push_words(a: Shape, b: Shape) -> tuple[int, ...]:
    plan = plan_product(a[0], b[1], a[1])
    return a[0], b[1], a[1], plan.tile_rows, plan.tile_columns, plan.slice_depth


def _compute_grid(a: Shape, b: Shape) -> Grid:
    return plan_product(a[0], b[1], a[1]).grid


def _count_scratch_words(a: Shape, b: Shape) -> int:
    return plan_product(a[0], b[1], a[1]).scratch_words


def _compute_elements(indices: Array, a: Array, b: Array) -> Array:
    """Return single elements of a @ b, given their indices in the flattened product."""
    result = np.empty(len(indices), a.dtype)
    at_once = max(MAX_GATHERED // a.shape[1], 1)
    for start in range(0, len(indices), at_once):
        some = slice(start, start + at_once)
        rows, columns = np.divmod(indices[some], b.shape[1])
        result[some] = np.einsum("ik,ki->i", a[rows], b[:, columns])
    return result


@functools.lru_cache(maxsize=1024)
def plan_product(m: int, n: int, k: int) -> ProductPlan:
    """Choose the tile and the slices of a product."""
    rows, columns = _choose_tile(m, n, k)
    tiles = -(-m // rows) * -(-n // columns)
    lanes = MATRIX_INVOCATIONS // (rows * columns)
    least_depth = MIN_LANE_DEPTH * lanes or MIN_SLICE_DEPTH
    slices = max(min(ENOUGH_WORK_GROUPS // tiles, k // least_depth), 1)
    for_lavapipe = -(-k // (MAX_ITERATIONS * max(lanes, 1)))
    if for_lavapipe * m * n <= MAX_SCRATCH_WORDS:
        slices = max(slices, for_lavapipe)
    depth = -(-k // (slices * MATRIX_DEPTH)) * MATRIX_DEPTH
    slices = -(-k // depth)
    # Tiles are spread over x and y.
    y = -(-tiles // MAX_GRID)
    grid = -(-tiles // y), y, slices
    return ProductPlan(rows, columns, depth, grid, tiles + slices * m * n if slices > 1 else 0)


def _choose_tile(m: int, n: int, k: int) -> tuple[int, int]:
    """Choose the rows and columns of a tile."""
    if min(m, n) <= FEW or _round_up(m) * _round_up(n) <= MATRIX_INVOCATIONS:
        return _choose_tile_of_lanes(m, n, k)
    large_tiles = -(-m // MATRIX_TILE) * -(-n // MATRIX_TILE)
    enough = large_tiles * max(k // MIN_LARGE_DEPTH, 1) >= ENOUGH_WORK_GROUPS // 2
    if enough and min(m, n) > MATRIX_TILE // 2:
        return MATRIX_TILE, MATRIX_TILE
    shorter = 32 if min(m, n) <= 32 else 64
    longer = SMALL_TILE_ELEMENTS // shorter
    return (longer, shorter) if m >= n else (shorter, longer)


def _choose_tile_of_lanes(m: int, n: int, k: int) -> tuple[int, int]:
    """Choose the rows and columns of a tile whose elements are computed by several lanes each."""
    shorter = _round_up(min(m, n))
    lanes = min(_round_up(-(-k // ELEMENTS_PER_LANE)), MATRIX_INVOCATIONS // shorter)
    if m < n:
        lanes = min(lanes, MAX_COALESCED_LANES)
    longer = min(MATRIX_INVOCATIONS // (lanes * shorter), _round_up(max(m, n)))
    return (longer, shorter) if m >= n else (shorter, longer)


def _round_up(number: int) -> int:
    """Return the least power of two that is not below a number."""
    return 1 << (number - 1).bit_length()
