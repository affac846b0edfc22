"""What arithmetic on device arrays refuses, and devices with few types or small bindings."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    DeviceLacksError,
    NumberRangeError,
)
from tests.support.narrow_devices import open_described_gpu, open_narrow_gpu

Gpu = gx.PersistentVulkanBackend
A = np.arange(12, dtype=np.int32).reshape(3, 4)

REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a host array": (lambda x: x + A, r"np.add: an operand is an ndarray on the host.*to_device"),
    "a host array on the left": (lambda x: A - x, r"np.subtract: an operand is an ndarray"),
    "a host array in a comparison": (lambda x: x == A, r"np.equal: an operand is an ndarray"),
    "a list": (lambda x: x * [1, 2, 3, 4], r"np.multiply: an operand is a list on the host"),
    "a text": (lambda x: x + "a", r"np.add: an operand is a str on the host"),
    "a host array as out": (lambda x: np.add(x, x, out=A.copy()), r"out is an ndarray.*numpy\(\)"),
    "a complex scalar": (lambda x: x * 1j, r"an operand is complex"),
    "a power": (lambda x: x**2, r"np.power is not computed on devices; array.numpy\(\) fetches"),
    "a product of matrices": (lambda x: x @ x, r"np.matmul is not computed on devices"),
    "a sine": (np.sin, r"np.sin is not computed on devices; array.numpy\(\) fetches"),
    "a sorted array": (np.sort, r"np.sort is not computed on devices; array.numpy\(\) fetches"),
    "a reduction of a ufunc": (np.add.reduce, r"np.add.reduce is not computed on devices"),
    "a masked operation": (lambda x: np.add(x, x, where=True), r"takes no where; it takes out="),
    "outputs of divmod": (lambda x: np.divmod(x, 2, out=(x, x.copy())), r"takes no out="),
    "an initial value": (lambda x: np.sum(x, initial=1), r"np.sum of device arrays: .*initial"),
    "where of indices": (np.where, r"np.where of a device array takes a condition, x and y"),
    "a condition on the host": (lambda x: np.where(A, x, x), r"np.where: an operand is an ndarray"),
    "bits of floats": (lambda x: x.astype(np.float32) & 1, r"np.bitwise_and: .*not supported"),
    "a difference of bools": (lambda x: (x > 1) - (x > 2), r"np.subtract: .*subtract"),
    "a complex type": (lambda x: x.astype(np.complex64), r"do not compute with complex"),
    "a mean of integers": (lambda x: x.mean(dtype=np.int32), r"mean: the dtype is int32"),
    "a float in place": (lambda x: x.__iadd__(1.5), r"float64, which is not written to an array"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_what_to_do(gpu: Gpu, name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(ArgumentTypeError, match=message):
        call(gpu.to_device(A))


def test_shapes_and_axes_that_do_not_fit(gpu: Gpu) -> None:
    x = gpu.to_device(A)
    with pytest.raises(ArgumentShapeError, match=r"\(3, 4\) and \(3,\) cannot be broadcast"):
        x + x[:, 0]
    with pytest.raises(ArgumentShapeError, match=r"result has the shape \(3, 4\)"):
        x[0].__iadd__(x)
    with pytest.raises(ArgumentShapeError, match="axis 2 is not one of the 2 axes"):
        x.sum(axis=2)
    with pytest.raises(ArgumentShapeError, match="axis is 0, and the array has no axes"):
        x[0, 0].sum(axis=0)
    with pytest.raises(ArgumentValueError, match="repeated axis"):
        x.sum(axis=(0, 0))


def test_numbers_beyond_a_type(gpu: Gpu) -> None:
    x = gpu.to_device(A)
    for beyond in (lambda: x + (1 << 31), lambda: x.fill(1 << 40), lambda: x.fill(np.inf)):
        with pytest.raises(NumberRangeError):
            beyond()
    with pytest.raises(ArgumentValueError, match="NaN to integer; the array is of int32"):
        x.fill(np.nan)
    floats = x.astype(np.float32)
    with pytest.raises(NumberRangeError):
        floats < 1 << 2000  # noqa: B015
    assert x.tolist() == A.tolist()


def test_arrays_of_two_devices(gpu: Gpu) -> None:
    with gx.CpuBackend() as cpu:
        x, y = gpu.to_device(A), cpu.to_device(A)
        with pytest.raises(ArgumentTypeError, match=r"np.add: the arrays are on two devices"):
            x + y
        with pytest.raises(ArgumentTypeError, match=r"on two devices"):
            np.where(x > 1, y, 0)
        y += y
        np.testing.assert_array_equal((x + y.copy_to(gpu)).numpy(), 3 * A)


def test_complex_arrays_and_field_elements(gpu: Gpu) -> None:
    z = gpu.to_device(np.ones(3, np.complex64))
    calls: list[Callable[[], Any]] = [lambda: z + 1, lambda: abs(z), z.sum, lambda: z.astype("f4")]
    for call in calls:
        with pytest.raises(ArgumentTypeError, match="complex numbers"):
            call()
    field = gx.fields.BABYBEAR
    elements = gpu.to_device(field.encode([1, 2, 3]))
    assert (elements + elements).tolist() == [2, 4, 6]
    words = gpu.to_device(np.arange(3, dtype=np.uint32))
    for mixed in (operator.add, np.add):
        with pytest.raises(TypeError):
            mixed(words, elements)


def test_an_attribute_that_only_numpy_has_says_what_fetches(gpu: Gpu) -> None:
    x = gpu.to_device(A)
    with pytest.raises(AttributeError, match=r"no attribute 'std'; numpy\(\) fetches.*numpy\(\).s"):
        x.std()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        x.nothing  # type: ignore[attr-defined] # noqa: B018
    assert not hasattr(x, "__array_interface__")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)), A)


def test_items_and_shapes(gpu: Gpu) -> None:
    x = gpu.to_device(A)
    assert x.max().item() == 11 and x.item(5) == 5 and x.item((2, 1)) == x.item(2, 1) == 9
    assert int(x.sum()) == 66 and float(x.min()) == 0.0 and not x.all() and bool(x.any())
    with pytest.raises(ValueError, match="size 1"):
        x.item()
    np.testing.assert_array_equal(x.ravel().numpy(), A.ravel())
    np.testing.assert_array_equal(x.T.ravel().numpy(), A.T.ravel())
    np.testing.assert_array_equal(np.asarray(np.reshape(x, (4, 3))), A.reshape(4, 3))
    assert np.shape(x) == (3, 4) and np.size(x) == 12 and np.ndim(x) == 2
    one, two = divmod(x, 5)
    np.testing.assert_array_equal(one.numpy() * 5 + two.numpy(), A)
    assert x.astype(np.int32, copy=False) is x and x.astype(np.int32) is not x
    assert (+x).tolist() == abs(-x).tolist() == A.tolist()


def test_a_device_without_64_bit_types(gpu: Gpu) -> None:
    """64-bit integers are pairs of words there; float64 is refused before anything runs."""
    with open_narrow_gpu() as narrow:
        host = np.array([1 << 62, -7, 5, -(1 << 63)], np.int64)
        x = narrow.to_device(host)
        np.testing.assert_array_equal((x // 3 + x).numpy(), host // 3 + host)
        assert (x < 5).tolist() == (host < 5).tolist() and x.sum().item() == host.sum()
        assert x.astype(np.float32).tolist() == host.astype(np.float32).tolist()
        doubles = narrow.to_device(np.ones(3))
        for call in (
            lambda: doubles + 1,
            lambda: x / 2,
            x.mean,
            lambda: x.astype(np.float64),
            doubles.sum,
            lambda: np.where(x[:3] > 0, doubles, 0),
            lambda: x.astype(np.int32) * np.float64(1),
        ):
            with pytest.raises(DeviceLacksError, match=r"float64, which .* lacks with vulkan; .*"):
                call()
        assert doubles.tolist() == [1, 1, 1] and doubles.copy().tolist() == [1, 1, 1]


def test_arrays_larger_than_a_binding(gpu: Gpu) -> None:
    def narrow(info: DeviceInfo) -> DeviceInfo:
        limits = dataclasses.replace(info.limits, max_storage_buffer_range=4096)
        return dataclasses.replace(info, limits=limits)

    random = np.random.default_rng(5)
    with open_described_gpu(narrow) as small:
        for shape in ((9001,), (3, 5003), (130, 50)):
            a = random.integers(0, 200, shape, np.uint8)
            b = random.integers(0, 200, shape[-1:], np.uint8)
            x, y = small.to_device(a), small.to_device(b)
            np.testing.assert_array_equal((x + y).numpy(), a + b)
            np.testing.assert_array_equal(
                np.asarray(np.greater(x.T, y[:1])), np.greater(a.T, b[:1])
            )
            np.testing.assert_array_equal(x.astype(np.int32).numpy(), a.astype(np.int32))
            for axis in range(len(shape)):
                np.testing.assert_array_equal(x.sum(axis=axis).numpy(), a.sum(axis=axis))
                np.testing.assert_array_equal(x.max(axis=axis).numpy(), a.max(axis=axis))
            assert x.sum().item() == a.sum() and x.all().item() == a.all()
            x[..., 1:] -= y[1:]
            a[..., 1:] -= b[1:]
            np.testing.assert_array_equal(x.numpy(), a)


def test_quotients_rounded_down_are_equal_below_2_20(gpu: Gpu) -> None:
    random = np.random.default_rng(9)
    for dtype in (np.float32, np.float64):
        a: Any = random.uniform(-(2.0**20), 2.0**20, 4000).astype(dtype)
        b: Any = random.uniform(-1, 1, 4000).astype(dtype)
        b[::2] = (random.integers(1, 20, 2000) / 8).astype(dtype)
        a[::4] = b[::4] * random.integers(-1000, 1000, 1000).astype(dtype)
        x, y = gpu.to_device(a), gpu.to_device(b)
        small = np.abs(a / b) < 2**20
        np.testing.assert_array_equal((x // y).numpy()[small], (a // b)[small])
        np.testing.assert_array_equal((x % y).numpy(), a % b)
        np.testing.assert_allclose((x // y).numpy(), a // b, rtol=4 * float(np.finfo(dtype).eps))


def test_types_in_the_other_byte_order(gpu: Gpu) -> None:
    x = gpu.to_device(np.arange(3, dtype=np.int32))
    swapped = np.array(2, ">i4")
    assert (x + swapped).tolist() == [2, 3, 4] and (x < swapped).tolist() == [True, True, False]
    made = x.astype(">i2")
    assert made.dtype == np.dtype(np.int16) and made.tolist() == [0, 1, 2]
    assert x.sum(dtype=">i4").tolist() == 3


def test_sums_of_floats_are_as_near_on_every_backend(gpu: Gpu) -> None:
    """NumPy itself adds float16 in float16, and pairwise along the last axis alone."""
    halves, ones = np.ones((5000, 2), np.float16), np.ones((1 << 16, 1), np.float32)
    with gx.CpuBackend() as cpu:
        for device in (gpu, cpu):
            assert device.to_device(halves).sum(axis=0).tolist() == [5000, 5000]
            wide = device.to_device(ones * np.float32(0.1)).broadcast_to((1 << 16, 3))
            found = wide.sum(axis=0).numpy()
            np.testing.assert_allclose(found, 6553.6, rtol=20 * float(np.finfo(np.float32).eps))
            assert wide[:0].sum(axis=0, keepdims=True).tolist() == [[0, 0, 0]]


def test_assignments_that_no_order_makes_right_are_refused(gpu: Gpu) -> None:
    x = gpu.to_device(np.arange(6))
    with pytest.raises(ArgumentShapeError, match="cannot be broadcast"):
        x.reshape(2, 3)[...] = x.reshape(3, 2)
    repeated = x[0].broadcast_to((2, 3))
    with pytest.raises(ArgumentValueError, match="repeats elements"):
        repeated[...] = 3
    with pytest.raises(ArgumentValueError, match="repeats elements"):
        repeated.fill(3)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_places_of_items_and_copies(gpu: Gpu) -> None:
    x = gpu.to_device(np.arange(6).reshape(2, 3))
    assert (x.item(-1), x.item(4), x.item(1, -1), x.item((0, 1))) == (5, 4, 5, 1)
    with pytest.raises(IndexError, match="6 is no place in 6 elements"):
        x.item(6)
    copied = copy.copy(x)
    x[...] = 0
    assert isinstance(copied, gx.DeviceArray) and copied.item(-1) == 5
    assert (gpu.to_device(np.zeros(2, bool)) < 2**64).tolist() == [True, True]


def test_elements_of_a_field_are_not_compared_with_device_arrays(gpu: Gpu) -> None:
    field = gx.fields.GOLDILOCKS
    x, f = gpu.to_device(np.array([1, 2, 3])), field([1, 2, 3])
    for compare in (operator.eq, operator.ne):
        for one, other in ((f, x), (x, f), (gpu.to_device(f), x)):
            with pytest.raises(ArgumentTypeError, match="must be a FieldArray or an integer"):
                compare(one, other)
