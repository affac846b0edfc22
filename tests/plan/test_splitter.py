"""Element-wise operations on arrays larger than a binding, which run in parts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import DeviceLacksError, ElementRangeError
from gpu_executor.ops.elementwise import split_axes
from tests.support.device_arrays import get_device_memory, limit_bindings

Gpu = gx.PersistentVulkanBackend
FR, BABYBEAR = gx.fields.BLS12_381_FR, gx.fields.BABYBEAR
CUBIC = gx.ExtensionField(BABYBEAR, 31, degree=3)
MOST = 7680
"""The bytes that `gpu` binds in these tests, at offsets of 256 bytes."""
SIZES = {BABYBEAR: 1920, FR: 240, gx.fields.GOLDILOCKS: 960, CUBIC: 640}
"""The elements that a binding and so a part has, if no operand repeats."""

each_field = pytest.mark.parametrize("field", SIZES, ids=lambda field: field.name)


@pytest.fixture(autouse=True)
def limited(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_bindings(monkeypatch, gpu, MOST)


def draw(field: Any, shape: Any, seed: int) -> Any:
    return field.random(shape, seed=seed)


def check(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found.ints(), expected.ints())


@each_field
@pytest.mark.parametrize("extra", [1, 7], ids=["one more", "some more"])
def test_operations_on_arrays_larger_than_a_binding(gpu: Gpu, field: Any, extra: int) -> None:
    """In the second part there is one element, or there are some and a third part has one."""
    count = SIZES[field] * (1 if extra == 1 else 2) + extra
    a, b = draw(field, count, 1), draw(field, count, 2)
    x, y = gpu.to_device(a), gpu.to_device(b)
    operations: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a + b,
        lambda a, b: a * b,
        lambda a, b: -a,
        lambda a, b: field.square(a),
        lambda a, b: field.fma(a, b, a),
        lambda a, b: field.where(np.arange(count) % 3 == 0, a, b),
        lambda a, b: a.in_form("canonical"),
        lambda a, b: a**5,
        lambda a, b: field.inverse(a),
        lambda a, b: a / b,
    ]
    for compute in operations:
        check(compute(x, y), compute(a, b))
    other = b.copy()
    other[count - 1] = a[count - 1]
    assert np.flatnonzero(x == gpu.to_device(other)).tolist() == [count - 1]


def test_parts_have_whole_elements_of_extensions(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a binding has 1,856 coefficients, products have parts of 1,728, which 3 divides."""
    limit_bindings(monkeypatch, gpu, 7600)
    a, b = draw(CUBIC, 1500, 1), draw(CUBIC, 1500, 2)
    check(gpu.to_device(a) * gpu.to_device(b), a * b)


@each_field
def test_operands_that_repeat(gpu: Gpu, field: Any) -> None:
    """One element, one row, one column, and a sum of the two."""
    rows, columns = SIZES[field] // 14 + 3, 28
    a, row, column = (
        draw(field, shape, seed) for seed, shape in enumerate([(rows, columns), columns, (rows, 1)])
    )
    x, y, z = map(gpu.to_device, (a, row, column))
    one, there = row[3], y[3]
    check(x * there, a * one)
    check(there - x, one - a)
    check(x * y, a * row)
    check(x + z, a + column)
    check(y * z, row * column)
    check(field.fma(x, y, there), field.fma(a, row, one))


def test_selected_elements_that_repeat(gpu: Gpu) -> None:
    a, row = draw(FR, (50, 12), 1), draw(FR, 12, 2)
    x, y = gpu.to_device(a), gpu.to_device(row)
    condition = np.arange(12) % 2 == 0
    check(FR.where(condition, x, y), FR.where(condition, a, row))
    check(FR.where(condition, y, x), FR.where(condition, row, a))


@each_field
def test_views_larger_than_a_binding(gpu: Gpu, field: Any) -> None:
    count = 2 * SIZES[field] + 104
    a, b = draw(field, count, 1), draw(field, count, 2)
    x, y = gpu.to_device(a), gpu.to_device(b)
    check(x[::-1] + y, a[::-1] + b)
    check(x[1:] * y[:-1], a[1:] * b[:-1])
    table = (4, count // 4)
    check(x.reshape(table).T * y.reshape(table).T, a.reshape(table).T * b.reshape(table).T)


def test_arrays_are_changed_in_place(gpu: Gpu) -> None:
    a, b = draw(FR, 555, 1), draw(FR, 555, 2)
    x, y = gpu.to_device(a), gpu.to_device(b)
    x *= y
    x += x
    x[::-1] += y
    a *= b
    a += a
    a[::-1] += b
    check(x, a)


def test_chained_operations_need_no_synchronization(gpu: Gpu) -> None:
    """Also of two threads, each with arrays of its own."""
    errors: list[BaseException] = []

    def run(seed: int) -> None:
        a, b = draw(BABYBEAR, 5001, seed), draw(BABYBEAR, 5001, seed + 10)
        x, y = gpu.to_device(a), gpu.to_device(b)
        try:
            for _ in range(10):
                x, y = x * y + x, y - x
                a, b = a * b + a, b - a
            check(x, a)
            check(y, b)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors


def test_an_error_has_the_index_in_the_whole_array(gpu: Gpu) -> None:
    values = draw(FR, 800, 1)
    values[301] = 0
    there = gpu.to_device(values)
    inverses = FR.inverse(there, zero="error") * 2
    with pytest.raises(ZeroDivisionError, match="element 301 is 0"):
        inverses.numpy()
    check(FR.inverse(there[:300], zero="error"), FR.inverse(values[:300]))
    there[700] = 0
    FR.inverse(there, zero="error")
    with pytest.raises(ZeroDivisionError, match="element 301 is 0"):
        gpu.synchronize()
    gpu.synchronize()


def test_bytes_of_elements(gpu: Gpu) -> None:
    values = draw(FR, 490, 1)
    encoded = FR.to_bytes(values)
    there = FR.from_bytes(encoded, device=gpu)
    check(there, values)
    np.testing.assert_array_equal(FR.to_bytes(there), encoded)
    encoded[489] = 255
    with pytest.raises(ElementRangeError, match="element 489"):
        FR.from_bytes(encoded, device=gpu)


def test_graphs_record_parts(gpu: Gpu) -> None:
    row = draw(FR, 28, 3)
    x, there = gpu.to_device(draw(FR, (20, 28), 1)), gpu.to_device(row)
    with gpu.graph(x) as graph:
        y = x[::-1] * there + x
        z = FR.inverse(x * there, zero="error")
    for seed in range(3):
        a = draw(FR, (20, 28), seed)
        graph(gpu.to_device(a))
        check(y, a[::-1] * row + a)
        check(z, FR.inverse(a * row))
    bad = a.copy()
    bad[15] = 0
    graph(gpu.to_device(bad))
    with pytest.raises(ZeroDivisionError, match="element 420 is 0"):
        z.numpy()
    graph(gpu.to_device(a))
    check(z, FR.inverse(a * row))


def test_operands_that_no_part_has_a_whole_number_of_times_are_refused(gpu: Gpu) -> None:
    """Parts would begin at multiples of 64 elements and of 33 elements: 8,448 bytes."""
    x = gpu.to_device(draw(BABYBEAR, (60, 33), 1))
    with pytest.raises(
        DeviceLacksError,
        match=r"mul: an array has 7,920 bytes; .* binds 7,680 bytes at most, and no part that fits",
    ):
        x * x[0]
    repeated = gpu.to_device(draw(BABYBEAR, 2000, 1))
    with pytest.raises(DeviceLacksError, match="has 16,000 bytes"):
        gpu.to_device(draw(BABYBEAR, (2, 2000), 1)) * repeated


def test_what_is_no_elementwise_operation_is_refused(gpu: Gpu) -> None:
    x = gpu.to_device(draw(FR, 512, 1))
    for operation in (FR.sum, FR.ntt):
        with pytest.raises(DeviceLacksError, match="binds 7,680 bytes at most"):
            operation(x)


def test_views_that_fit_a_binding_are_one_dispatch(gpu: Gpu) -> None:
    """They are views of results of operations in parts, or of arrays larger than a binding."""
    a = draw(BABYBEAR, 4000, 1)
    x = gpu.to_device(a)
    check((x + x)[2000:] * x[:2000], (a + a)[2000:] * a[:2000])
    device = get_device_memory(gpu)
    before = device.dispatches
    x[:1920] + x[1920:3840]
    assert device.dispatches == before + 1


@pytest.mark.parametrize(
    ("shape", "most"),
    [
        ((7,), 7),
        ((7,), 3),
        ((1000,), 300),
        ((3, 5), 7),
        ((3, 5), 4),
        ((2, 3, 4), 5),
        ((0, 3), 2),
        ((), 1),
    ],
)
def test_parts_of_axes_cover_them_in_order(shape: tuple[int, ...], most: int) -> None:
    whole = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    parts = [whole[index] for index in split_axes(shape, most)]
    assert all(each.size <= most for each in parts)
    np.testing.assert_array_equal(np.concatenate([each.ravel() for each in parts]), whole.ravel())
