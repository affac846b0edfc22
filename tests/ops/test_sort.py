"""`gx.ops.sort`, `argsort` and `bincount`, and the radix sort and the exclusive scan below them,
against NumPy."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.kernels.sorting import SCAN_STEP, SHARED_BINS, Tile, choose_tile
from gpu_executor.ops.sort import (
    MAX_SCAN_CHUNKS,
    SINGLE_SCAN,
    can_sort_digits,
    exclusive_scan,
    sort_digits,
    sort_pairs,
)

Gpu = gx.PersistentVulkanBackend
Array = npt.NDArray[Any]

MODULE = sys.modules["gpu_executor.ops.sort"]  # as an attribute of the package, it is the function
DTYPES = ["uint32", "int32", "float32", "uint64"]
FLOATS = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5, 1e-45, -1e-45, 3.4e38, -3.4e38]
NANS = [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0x7FFFFFFF]
"""Of both signs, quiet and signalling."""


def draw(dtype: str, n: int) -> Array:
    """Random bits, which are NaN for one float of 256."""
    return np.frombuffer(np.random.default_rng(n).bytes(np.dtype(dtype).itemsize * n), dtype)


def check(x: Any, host: Array) -> None:
    """Sort a device array, and the same elements with NumPy. Equal bytes tell -0.0 from 0.0."""
    found, indices = gx.ops.sort(x), gx.ops.argsort(x)
    assert isinstance(found, gx.DeviceArray) and isinstance(indices, gx.DeviceArray)
    assert found.dtype == host.dtype and indices.dtype == np.uint32
    assert found.numpy().tobytes() == np.sort(host, kind="stable").tobytes()
    np.testing.assert_array_equal(indices.numpy(), np.argsort(host, kind="stable"))
    assert x.numpy().tobytes() == host.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_elements_of_every_size_are_sorted(gpu: Gpu, dtype: str) -> None:
    tile = choose_tile(gpu.array_device.info).size
    sizes = 0, 1, 2, tile - 1, tile, tile + 1, 3 * tile + 5
    large = SINGLE_SCAN // 256 * tile + 3  # a single scan covers the counters of one tile less
    for n in (*sizes, large) if dtype == "uint32" else sizes:
        x = draw(dtype, n)
        check(gpu.to_device(x), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_of_every_distribution_are_sorted(gpu: Gpu, dtype: str) -> None:
    n = choose_tile(gpu.array_device.info).size + 17
    x = draw(dtype, n)
    ascending = np.sort(x)
    few = np.tile(x[:3], n)[:n]
    last = np.full(n, x.view(f"u{x.itemsize}").max()).astype(f"u{x.itemsize}").view(dtype)
    for each in (np.full(n, x[0]), ascending, ascending[::-1], few, last, np.zeros(n, dtype)):
        check(gpu.to_device(each), each)


def test_floats_are_sorted_as_in_numpy(gpu: Gpu) -> None:
    draws = np.random.default_rng(0)
    special = np.concatenate([np.array(FLOATS, "f4"), np.array(NANS, "u4").view("f4")])
    for n in (100, 5000):
        x = draws.choice(special, n)
        check(gpu.to_device(x), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", [slice(1, None), slice(None, None, 3), slice(None, None, -1)])
def test_views_are_sorted(gpu: Gpu, dtype: str, view: slice) -> None:
    x = draw(dtype, 5000)
    check(gpu.to_device(x)[view], x[view])


@pytest.mark.parametrize("dtype", DTYPES)
def test_device_arrays_of_the_cpu_are_sorted(dtype: str) -> None:
    with gx.CpuBackend() as cpu:
        x = draw(dtype, 1000)
        check(cpu.to_device(x), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_arrays_are_sorted_on_the_host(dtype: str) -> None:
    x = np.tile(draw(dtype, 50), 20)
    before = x.copy()
    found, indices = gx.ops.sort(x), gx.ops.argsort(x)
    assert type(found) is np.ndarray and type(indices) is np.ndarray
    assert found.tobytes() == np.sort(x, kind="stable").tobytes() and indices.dtype == np.uint32
    np.testing.assert_array_equal(indices, np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("key_bits", [1, 20])
def test_pairs_are_sorted_by_their_keys(gpu: Gpu, key_bits: int) -> None:
    device, draws = gpu.array_device, np.random.default_rng(key_bits)
    keys = draws.integers(0, 1 << key_bits, 10_000, np.uint32)
    values = draws.integers(0, 1 << 32, keys.size, np.uint32)
    order = np.argsort(keys, kind="stable")
    found = sort_pairs(device, gpu.to_device(keys), gpu.to_device(values), key_bits)
    np.testing.assert_array_equal(found[0].numpy(), keys[order])
    np.testing.assert_array_equal(found[1].numpy(), values[order])
    found = sort_pairs(device, gpu.to_device(keys), None, key_bits)
    np.testing.assert_array_equal(found[1].numpy(), order)


@pytest.mark.parametrize("key_bits", [3, 11])
def test_rows_are_sorted_by_themselves(gpu: Gpu, key_bits: int) -> None:
    device, draws = gpu.array_device, np.random.default_rng(key_bits)
    tile, base = choose_tile(device.info).size, 1 << key_bits - 1
    for rows, length in ((1, 100), (2, 1), (7, 64), (5, tile), (3, tile + 1), (4, 3 * tile - 1)):
        keys = draws.integers(0, base, (rows, length), np.uint32)
        keys += np.arange(rows, dtype=np.uint32)[:, None] * np.uint32(base)
        keys[draws.random(keys.shape) < 0.2] = 0xFFFFFFFF
        keys[:, -1] = np.arange(1, rows + 1) * base - 1  # the last of each row's keys
        values = np.arange(keys.size, dtype=np.uint32).reshape(keys.shape)
        there = [gpu.to_device(each.ravel()) for each in (keys, values)]
        found = sort_pairs(device, there[0], there[1], key_bits if rows > 1 else 32, rows)
        order = np.argsort(keys, axis=1, kind="stable")
        for each, given in zip(found, (keys, values), strict=True):
            expected = np.take_along_axis(given, order, 1)
            np.testing.assert_array_equal(each.numpy().reshape(keys.shape), expected)


@pytest.mark.parametrize("key_bits", [9, 12, 16])
def test_signed_digits_are_sorted_by_their_keys(gpu: Gpu, key_bits: int) -> None:
    device, draws = gpu.array_device, np.random.default_rng(key_bits)
    tile, base = choose_tile(device.info).size, 1 << key_bits - 1
    for rows, length in ((1, 2 * tile), (3, 4 * tile - 5), (2, 4 * tile + tile // 2)):
        random = draws.integers(0, base + 1, (rows, length), np.uint32)
        hot = np.where(draws.random(random.shape) < 0.9, np.uint32(3), random)
        ends = np.where(draws.random(random.shape) < 0.5, np.uint32(0), np.uint32(base))
        for keys in (random, hot, ends, np.full_like(random, base - 1)):
            signs = draws.integers(0, 2, keys.shape, np.uint32) << np.uint32(31)
            assert can_sort_digits(device.info, length, key_bits)
            given = gpu.to_device((keys | signs).ravel())
            found = sort_digits(device, given, key_bits, rows)
            order = np.argsort(keys, axis=1, kind="stable")
            expected = np.take_along_axis(keys, order, 1)
            buckets = expected + np.arange(rows, dtype=np.uint32)[:, None] * np.uint32(base)
            buckets[expected >= base] = 0xFFFFFFFF
            entries = order.astype(np.uint32) | np.take_along_axis(signs, order, 1)
            np.testing.assert_array_equal(found[0].numpy(), buckets.ravel())
            np.testing.assert_array_equal(found[1].numpy(), entries.ravel())


def test_digits_are_packed_where_a_point_and_half_of_a_key_fit_a_word(gpu: Gpu) -> None:
    info = gpu.array_device.info
    tile = choose_tile(info).size
    assert can_sort_digits(info, 1 << 23, 16) and not can_sort_digits(info, (1 << 23) + tile, 16)
    assert can_sort_digits(info, (1 << 23) + tile, 14)
    assert not can_sort_digits(info, 1 << 20, 8)  # one pass
    assert not can_sort_digits(info, 1 << 20, 17)  # three passes
    assert not can_sort_digits(info, tile, 12) and not can_sort_digits(info, tile + 1, 12)


def test_keys_of_few_bits_take_few_passes(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []
    device = gpu.array_device
    keys = device.empty((100,), np.dtype(np.uint32))
    monkeypatch.setattr(type(device), "submit", lambda _, given: steps.extend(given))
    for key_bits, passes in ((1, 1), (8, 1), (9, 2), (20, 3), (24, 3), (25, 4), (32, 4)):
        steps.clear()
        sort_pairs(device, keys, keys, key_bits)
        assert len(steps) == passes, key_bits


@pytest.mark.parametrize("tile", [Tile(256, 1), Tile(512, 4)])
def test_subgroups_without_a_row_of_counters_take_turns(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tile: Tile
) -> None:
    """With 256 keys there is a single row; with 2,048 there are fewer rows than subgroups of 8."""
    monkeypatch.setattr(MODULE, "choose_tile", lambda _info: tile)
    x = draw("uint32", 5 * tile.size + 3) % 1000
    check(gpu.to_device(x), x)


def test_few_work_groups_sort_many_tiles(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_dispatch(*arguments: Any, **options: Any) -> Dispatch:
        made = Dispatch(*arguments, **options)
        if made.grid_stride:
            assert made.groups is not None
            made.groups = min(made.groups, 3)
        return made

    monkeypatch.setattr(MODULE, "Dispatch", make_dispatch)
    x = draw("uint32", 50_000)
    np.testing.assert_array_equal(gx.ops.sort(gpu.to_device(x)).numpy(), np.sort(x))
    counts = gx.ops.bincount(gpu.to_device(x % 100), 100)
    np.testing.assert_array_equal(counts.numpy(), np.bincount(x % 100, minlength=100))


def test_a_graph_sorts_what_its_input_holds(gpu: Gpu) -> None:
    x = gpu.to_device(draw("uint32", 10_000))
    with gx.graph(x) as recorded:
        found, counts = gx.ops.argsort(x), gx.ops.bincount(x, SHARED_BINS)
    for seed in (1, 2):
        new = np.random.default_rng(seed).integers(0, SHARED_BINS, 10_000, np.uint32)
        x[:] = new
        recorded()
        np.testing.assert_array_equal(found.numpy(), np.argsort(new, kind="stable"))
        np.testing.assert_array_equal(counts.numpy(), np.bincount(new, minlength=SHARED_BINS))


# --- counts ---


@pytest.mark.parametrize("dtype", ["uint32", "int32"])
@pytest.mark.parametrize("length", [1, 100, SHARED_BINS, SHARED_BINS + 1, 100_000])
def test_equal_elements_are_counted(gpu: Gpu, dtype: str, length: int) -> None:
    for n in (0, 1, 30_000):
        x = np.random.default_rng(n).integers(0, length, n).astype(dtype)
        x[: n // 2] = length - 1
        expected = np.bincount(x, minlength=length)
        for given in (x, gpu.to_device(x), gpu.to_device(np.repeat(x, 2))[::2]):
            counts = gx.ops.bincount(given, length)
            assert type(counts) is type(given) and counts.dtype == np.uint32
            np.testing.assert_array_equal(np.asarray(counts), expected)


def test_device_arrays_of_the_cpu_are_counted() -> None:
    with gx.CpuBackend() as cpu:
        x = cpu.to_device(np.array([3, 1, 3], "i4"))
        assert gx.ops.bincount(x, length=5).tolist() == [0, 1, 0, 2, 0]
        with pytest.raises(ValueError, match="element 0 is not in 0"):
            gx.ops.bincount(x, 3)


@pytest.mark.parametrize("length", [100, SHARED_BINS + 1])
@pytest.mark.parametrize(
    ("dtype", "wrong"), [("uint32", 0), ("uint32", 2**32 - 1), ("int32", -1), ("int32", 0)]
)
def test_the_first_element_without_a_bin_is_an_error_of_the_counts(
    gpu: Gpu, dtype: str, wrong: int, length: int
) -> None:
    x = np.zeros(1000, dtype)
    x[[700, 300, 999]] = wrong or length
    words = (
        f"^bincount: element 300 is not in 0 .. length - 1, and length is {length}; give a larger "
        "length, or leave out such elements$"
    )
    with pytest.raises(ValueError, match=words):
        gx.ops.bincount(x, length)
    counts = gx.ops.bincount(gpu.to_device(x), length)  # late, and in arrays computed from counts
    with pytest.raises(ValueError, match=words):
        gx.ops.sort(counts).numpy()
    with pytest.raises(ValueError, match=words):
        counts.numpy()


def test_without_bins_every_element_is_an_error(gpu: Gpu) -> None:
    assert gx.ops.bincount(gpu.to_device(np.zeros(0, "u4")), 0).numpy().tolist() == []
    with pytest.raises(ValueError, match="element 0 is not in 0"):
        gx.ops.bincount(gpu.to_device(np.zeros(5, "u4")), 0).numpy()


# --- refusals ---


@pytest.mark.parametrize("call", ["sort", "argsort", "bincount"])
def test_other_arguments_are_refused_in_words(gpu: Gpu, call: str) -> None:
    function = getattr(gx.ops, call)
    arguments = (10,) if call == "bincount" else ()
    dtypes = "uint32, int32" if call == "bincount" else "uint32, int32, float32, uint64"
    for wrong in (np.zeros(3, "f8"), gpu.to_device(np.zeros(3, "i8")), np.zeros(3, ">u4")):
        words = f"^{call}: the array has the dtype {wrong.dtype}; it must be one of {dtypes}$"
        with pytest.raises(ArgumentTypeError, match=words):
            function(wrong, *arguments)
    square = np.zeros((2, 2), "u4")
    for given in (square, gpu.to_device(square)):
        words = rf"^{call}: the array has the shape \(2, 2\); it must have one axis: reshape it$"
        with pytest.raises(ArgumentShapeError, match=words):
            function(given, *arguments)
    field = gx.fields.BABYBEAR.encode([1, 2])
    words = f"^{call} takes a NumPy array or a device array, not a FieldArray$"
    with pytest.raises(ArgumentTypeError, match=words):
        function(field, *arguments)
    with pytest.raises(ArgumentTypeError, match="masked"):
        function(np.ma.array(np.zeros(3, "u4"), mask=[False, True, False]), *arguments)


@pytest.mark.parametrize("length", [-1, 1.5, None, True])
def test_a_length_that_is_no_number_of_bins_is_refused(length: Any) -> None:
    with pytest.raises(ArgumentShapeError, match=r"^bincount: length: the number of elements is "):
        gx.ops.bincount(np.zeros(3, "u4"), length)


# --- exclusive scans ---


@pytest.mark.parametrize(
    "n",
    [
        *(0, 1, SCAN_STEP - 1, SCAN_STEP + 1, SINGLE_SCAN, SINGLE_SCAN + 1, 100_000),
        MAX_SCAN_CHUNKS * SCAN_STEP + 5,
    ],
)
def test_an_exclusive_scan_has_the_sums_before_each_element(gpu: Gpu, n: int) -> None:
    x = draw("uint32", n)
    expected = np.concatenate([np.zeros(1, "u4"), np.cumsum(x, dtype="u4")])[:n]
    found = exclusive_scan(gpu.array_device, gpu.to_device(x))
    np.testing.assert_array_equal(found.numpy(), expected)


def test_small_tiles_need_no_more_shared_memory_than_vulkan_guarantees(gpu: Gpu) -> None:
    info = gpu.array_device.info
    guaranteed = dataclasses.replace(info.limits, max_shared_memory=16 << 10)
    tile = choose_tile(dataclasses.replace(info, kind="discrete", limits=guaranteed))
    makers: list[Any] = [MODULE.scatter_kernel, MODULE.histogram_kernel]
    for make in makers:
        kernel = make(tile, 8, MODULE.Order.UNSIGNED)
        assert kernel.interface.shared_memory.measure(dict(kernel.constants)) <= 16 << 10
