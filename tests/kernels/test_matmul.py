"""Matrix products: the plans, and every kind of tile on Vulkan (GLSL) and WebGPU (WGSL)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.backend import Backend, open_backend
from gpu_executor.kernels.matmul import (
    MAX_ITERATIONS,
    MAX_SCRATCH_WORDS,
    ProductPlan,
    plan_product,
)

Array = npt.NDArray[Any]
MATMUL_U32, MATMUL_F32 = (gx.kernels.load(f"matmul_{type_}") for type_ in ("u32", "f32"))
MAX_WORK_GROUPS = 65_535
"""In one dimension, the least that a Vulkan device allows."""
LAVAPIPE_ELEMENTS = (128 << 20) // 4
"""The most elements of an array that lavapipe binds."""
LARGE, SMALL, TALL, WIDE = (128, 128), (64, 64), (128, 32), (32, 128)
INVOCATIONS = 256
SIDES = st.integers(0, 25).flatmap(lambda bits: st.integers(1, 1 << bits))


@pytest.fixture(scope="module", params=["vulkan", "webgpu"])
def backend(request: pytest.FixtureRequest, gpu: gx.PersistentVulkanBackend) -> Iterator[Backend]:
    if request.param == "vulkan":
        yield gpu
        return
    with open_backend(request.param) as opened:
        yield opened


def draw_matrices(m: int, n: int, k: int) -> tuple[Array, Array]:
    draw = np.random.default_rng((m, n, k))
    shapes = (m, k), (k, n)
    a, b = (draw.integers(0, 1 << 32, shape, np.uint32) for shape in shapes)
    return a, b


def get_tile(m: int, n: int, k: int) -> tuple[int, int]:
    plan = plan_product(m, n, k)
    return plan.tile_rows, plan.tile_columns


# --- plans ---


@given(SIDES, SIDES, SIDES)
def test_a_plan_covers_the_product_within_the_limits_of_every_device(
    m: int, n: int, k: int
) -> None:
    plan = plan_product(m, n, k)
    x, y, slices = plan.grid
    tiles = -(-m // plan.tile_rows) * -(-n // plan.tile_columns)
    assert 0 <= x * y - tiles < y
    assert max(slices, x) <= MAX_WORK_GROUPS
    assert y <= MAX_WORK_GROUPS or m * n > 1 << 32
    assert (slices - 1) * plan.slice_depth < k <= slices * plan.slice_depth
    assert plan.scratch_words == (tiles + slices * m * n if slices > 1 else 0)
    assert plan.scratch_words <= 2 * MAX_SCRATCH_WORDS
    elements = plan.tile_rows * plan.tile_columns
    assert (plan.tile_rows, plan.tile_columns) in (LARGE, SMALL, TALL, WIDE) or (
        elements <= INVOCATIONS and elements.bit_count() == 1
    )
    if max(m * n, m * k, k * n) <= LAVAPIPE_ELEMENTS:
        lanes = max(INVOCATIONS // elements, 1)
        assert plan.slice_depth <= MAX_ITERATIONS * lanes


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((4096, 4096, 4096), LARGE),
        ((128, 128, 1 << 16), LARGE),
        ((64, 4096, 4096), SMALL),
        ((200, 200, 200), SMALL),
        ((100_000, 8, 200), TALL),
        ((8, 100_000, 200), WIDE),
        ((100_000, 1, 200), (32, 1)),
        ((1, 100_000, 200), (1, 32)),
        ((10_000_000, 1, 1), (256, 1)),
        ((16, 16, 16), (16, 16)),
        ((2, 2, 1000), (2, 2)),
        ((1, 1, 1_000_000), (1, 1)),
    ],
)
def test_the_shape_decides_the_tile(shape: tuple[int, int, int], tile: tuple[int, int]) -> None:
    assert get_tile(*shape) == tile


def test_few_tiles_are_computed_in_slices_by_many_work_groups() -> None:
    assert plan_product(4096, 4096, 4096).grid == (1024, 1, 1)
    for shape in [(128, 128, 1 << 16), (200, 200, 1 << 14), (3, 3, 1 << 20), (1, 1, 1 << 24)]:
        x, y, z = plan_product(*shape).grid
        assert 128 <= x * y * z <= 256


# --- results ---

SHAPES = [
    (1, 1, 1), (1, 1, 5000), (5, 1, 1), (1, 5, 1), (3, 2, 100), (16, 16, 16), (4, 4, 4),
    (300, 1, 33), (1, 300, 33), (700, 3, 7), (3, 700, 7), (40, 50, 1), (17, 33, 5), (33, 17, 5),
    (64, 64, 64), (65, 67, 63), (130, 140, 50), (200, 20, 64), (20, 200, 64), (100, 70, 300),
    (2, 2, 20_000), (9, 9, 5000), (1, 1, 100_000), (1, 3, 30_000), (1409, 1281, 3),
]  # fmt: skip


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_products_of_integers_are_exact(backend: Backend, m: int, n: int, k: int) -> None:
    a, b = draw_matrices(m, n, k)
    expected = a @ b
    for _ in range(2 if plan_product(m, n, k).scratch_words else 1):
        np.testing.assert_array_equal(backend.run(MATMUL_U32, a, b), expected)


def test_the_shapes_above_have_every_kind_of_tile() -> None:
    plans = [plan_product(*shape) for shape in SHAPES]
    tiles = {(plan.tile_rows, plan.tile_columns, plan.grid[2] > 1) for plan in plans}
    assert {(*tile, False) for tile in (LARGE, SMALL, TALL, WIDE)} <= tiles
    assert {(*SMALL, True), (1, 1, True), (1, 1, False), (16, 16, False)} <= tiles


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_products_of_floats_are_accurate(backend: Backend, m: int, n: int, k: int) -> None:
    a, b = ((each / 2**32 - 0.5).astype(np.float32) for each in draw_matrices(m, n, k))
    wide = [each.astype(np.float64) for each in (a, b)]
    scale = np.abs(wide[0]) @ np.abs(wide[1])
    result = backend.run(MATMUL_F32, a, b)
    # Each of the k multiply-adds rounds once or twice.
    assert (np.abs(result - wide[0] @ wide[1]) <= 2 * k * 2.0**-24 * scale).all()


@pytest.mark.parametrize(("m", "n", "k"), [(70_000, 1, 20), (1, 70_000, 20)])
def test_long_products_are_exact(backend: Backend, m: int, n: int, k: int) -> None:
    a, b = draw_matrices(m, n, k)
    np.testing.assert_array_equal(backend.run(MATMUL_U32, a, b), a @ b)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(3, 1, 7), (1, 3, 7), (67, 65, 9), (130, 260, 9), (5, 5, 1100)]
)
def test_nan_and_infinity_stay_in_their_rows_and_columns(
    backend: Backend, m: int, n: int, k: int
) -> None:
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    a[m - 1, k - 1], b[k - 1, n - 1] = np.nan, np.inf
    expected = np.full((m, n), np.float32(k))
    expected[:, n - 1], expected[m - 1] = np.inf, np.nan
    np.testing.assert_array_equal(backend.run(MATMUL_F32, a, b), expected)


def with_plan(kernel: gx.Kernel, m: int, n: int, k: int, plan: ProductPlan) -> gx.Kernel:
    """The kernel for matrices of one shape, with another plan."""
    words = m, n, k, plan.tile_rows, plan.tile_columns, plan.slice_depth
    return dataclasses.replace(
        kernel,
        push_of=lambda *_: words,
        grid=plan.grid,
        scratch=lambda *_: plan.scratch_words,
    )


def test_tiles_are_spread_over_two_dimensions_of_the_grid(backend: Backend) -> None:
    """As if a device allowed four work-groups in one dimension; the last work-groups are idle."""
    m, n, k = 130, 300, 9
    a, b = draw_matrices(m, n, k)
    for tile, tiles, y in [(LARGE, 6, 2), (SMALL, 15, 4), (TALL, 20, 6), ((4, 64), 165, 42)]:
        for slices, depth in [(1, 16), (2, 8)]:
            plan = ProductPlan(*tile, depth, (4, y, slices), tiles + slices * m * n)
            kernel = with_plan(MATMUL_U32, m, n, k, plan)
            np.testing.assert_array_equal(backend.run(kernel, a, b), a @ b)


@pytest.mark.parametrize(("m", "n", "tile"), [(3, 5, LARGE), (3, 5, TALL), (1, 1, (1, 1))])
def test_the_deepest_slice_is_within_the_iterations_that_lavapipe_allows(
    backend: Backend, m: int, n: int, tile: tuple[int, int]
) -> None:
    lanes = max(INVOCATIONS // (tile[0] * tile[1]), 1)
    k = MAX_ITERATIONS * lanes
    a, b = draw_matrices(m, n, k)
    kernel = with_plan(MATMUL_U32, m, n, k, ProductPlan(*tile, k, (1, 1, 1), 0))
    np.testing.assert_array_equal(backend.run(kernel, a, b), a @ b)


@pytest.mark.parametrize(("m", "n", "k"), [(70, 100, 300), (3, 2, 20_000)])
def test_a_batch_has_the_same_bits_as_single_calls(
    backend: Backend, m: int, n: int, k: int
) -> None:
    """Slices of one call never meet those of another."""
    jobs = []
    for seed in range(4):
        draw = np.random.default_rng(seed)
        jobs.append((draw.random((m, k), np.float32), draw.random((k, n), np.float32)))
    single = [backend.run(MATMUL_F32, *job) for job in jobs]
    together = backend.run_batch(MATMUL_F32, jobs)
    assert [each.tobytes() for each in single] == [each.tobytes() for each in together]


@pytest.mark.parametrize("kernel", [MATMUL_U32, MATMUL_F32], ids=["u32", "f32"])
def test_single_elements_are_those_of_the_product(kernel: gx.Kernel) -> None:
    a, b = draw_matrices(70, 30, 12_000)
    if kernel is MATMUL_F32:
        a, b = (a % 16).astype(np.float32), (b % 16).astype(np.float32)  # sums are exact
    at = np.array([0, 29, 30, 5, 5, 70 * 30 - 1, *range(100, 200)])
    assert kernel.reference_at is not None
    found = kernel.reference_at(at, a, b)
    assert found.dtype == a.dtype
    np.testing.assert_array_equal(found, (a @ b).reshape(-1)[at])
