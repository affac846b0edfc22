"""NumPy's arithmetic on device arrays, against NumPy: all operations and all types on all backends.

Integers, comparisons, selections and casts are equal bit for bit. Of floats, sums, differences and
products are the nearest float, and quotients are as near as Vulkan demands (docs/executor.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.backend import Backend
from gpu_executor.errors import DeviceLacksError
from tests.conformance.conftest import SWIFTSHADER, open_under_test

Array = npt.NDArray[Any]
DTYPES = ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]
QUICK = ("u1", "i4", "f4")
TYPES = [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in DTYPES]
OTHERS = ("webgpu", SWIFTSHADER)
"""Backends that compile every pipeline again: tests/webgpu has a quick test."""
BINARY = [
    np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder, np.bitwise_and,
    np.bitwise_or, np.bitwise_xor, np.left_shift, np.right_shift, np.equal, np.not_equal, np.less,
    np.less_equal, np.greater, np.greater_equal, np.minimum, np.maximum, np.logical_and,
    np.logical_or, np.logical_xor,
]  # fmt: skip
UNARY = [np.negative, np.invert, np.absolute, np.logical_not, np.positive]
WHOLE = ("u4", "i4", "u8", "i8", "f4", "f8")
"""The types that devices compute with. Elements of others become such numbers when they are read
and lose their highest bits when they are written."""
EVERY_PIPELINE = {"vulkan": (*WHOLE, "bool", "u1", "i2"), "webgpu": ("u4", "i4", "i8", "f4")}
"""The types for which a backend compiles every operation: on lavapipe those that devices compute
with, and one of each kind of the others. SwiftShader, which takes 0.08 s for a pipeline, and WebGPU
share the types that they have. A few run for the other types."""
ON_SWIFTSHADER = ("u8", "f4")
FEW = [np.floor_divide, np.less]
FEW_ON_LAVAPIPE = [*FEW, np.add, np.divide, np.right_shift, np.minimum]
FEW_TYPES = ("u2", "i8", "f4")
"""To which types elements are cast then."""
REDUCTIONS = ("sum", "min", "max", "any", "all")
FEW_REDUCTIONS = ("sum", "min")
DIVISION_ULPS = {np.float16: 1, np.float32: 4, np.float64: 4}
"""Of quotients, and of what is computed with them."""
DIVISIONS = (np.divide, np.floor_divide)


@pytest.fixture(
    scope="module",
    params=["vulkan", "cpu", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)],
)
def backend(request: pytest.FixtureRequest, gpu: gx.PersistentVulkanBackend) -> Iterator[Backend]:
    with open_under_test(request.param) as opened:
        yield opened


@pytest.fixture(autouse=True)
def ignore_numpy_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def is_slow(backend: Backend) -> bool:
    """Whether a backend compiles every pipeline again, and not quickly."""
    assert backend.array_device is not None
    return backend.name == "webgpu" or "SwiftShader" in backend.array_device.info.name


def has_every_pipeline(backend: Backend, dtype: Any) -> bool:
    """Whether every operation on elements of a type is compiled on a backend."""
    types = EVERY_PIPELINE.get(backend.name, DTYPES)
    if backend.name == "vulkan" and is_slow(backend):
        types = ON_SWIFTSHADER
    return np.dtype(dtype) in map(np.dtype, types)


def make_values(dtype: Any) -> Array:
    """Values at the edges of a type, and some between."""
    kind = np.dtype(dtype)
    random = np.random.default_rng(1)
    if kind.kind == "b":
        return np.array([True, False, False, True, True])
    if kind.kind in "iu":
        ends = np.iinfo(kind)
        edges = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100]
        edges += [ends.max, ends.max - 1, ends.max // 2, ends.min, ends.min + 1, ends.min // 2]
        if kind.kind == "i":
            edges += [-1, -2, -3, -7, -8, -64]
        found = [each for each in edges if ends.min <= each <= ends.max]
        return np.array([*found, *random.integers(ends.min, ends.max, 8, kind)], kind)
    limits = np.finfo(kind)
    near: list[float] = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1,
        -1,
        0.5,
        1.5,
        -2.5,
        3,
        7,
        -7,
        0.1,
        1000,
        -1000,
    ]
    near += [float(limits.max), float(limits.min), float(limits.smallest_normal), 1 / 3, 2 / 3]
    return np.array([*near, *random.normal(0, 100, 8)], kind)


def is_small(x: Array) -> Array:
    """Which floats are so small that devices may take them for 0."""
    if x.dtype.kind != "f" or x.dtype == np.float16:
        return np.zeros(x.shape, bool)
    found: Array = np.abs(x) < 4 * np.finfo(x.dtype).smallest_normal
    return found


def check_equal(got: Any, expected: Any, ulps: int = 0, where: Any = True, what: str = "") -> None:
    """Compare a device array with NumPy's result: type, shape and elements."""
    assert isinstance(got, gx.DeviceArray), what
    expected = np.asarray(expected)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), what
    found = got.numpy()
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected, what)
        return
    both_nan = np.isnan(found) & np.isnan(expected)
    with np.errstate(all="ignore"):
        near = np.abs(found - expected) <= ulps * np.abs(np.spacing(expected))
    defined = np.broadcast_to(where, expected.shape)
    good = both_nan | (found == expected) | near | (is_small(found) & is_small(expected)) | ~defined
    assert good.all(), (what, found[~good], expected[~good])


def lacks(backend: Backend, *dtypes: Any) -> bool:
    device = backend.array_device
    assert device is not None
    return not device.computes_float64 and any(np.dtype(each) == np.float64 for each in dtypes)


def check_function(backend: Backend, function: np.ufunc, *operands: Array) -> None:
    """Compare one function on the device with NumPy."""
    there = [backend.to_device(each) for each in operands]
    what = f"{function.__name__} {[each.dtype.name for each in operands]}"
    try:
        dtypes = function.resolve_dtypes((*(each.dtype for each in operands), None))
    except TypeError:
        with pytest.raises(TypeError):
            function(*there)
        return
    is_exact = function is np.positive or (  # a copy, or a comparison of integers
        dtypes[-1] == np.dtype(np.bool_) and all(each.dtype.kind in "biu" for each in operands)
    )
    if lacks(backend, *(each.dtype for each in operands), *dtypes) and not is_exact:
        with pytest.raises(DeviceLacksError, match=r"float64, which .* lacks"):
            function(*there)
        return
    expected = function(*operands)
    ulps = 0
    if function in DIVISIONS and expected.dtype.kind == "f":
        ulps = DIVISION_ULPS[expected.dtype.type]
    where = np.ones(expected.shape, bool)
    if dtypes[0].kind == "f":
        with np.errstate(all="ignore"):
            parts = [a.astype(dtype) for a, dtype in zip(operands, dtypes, strict=False)]
        where = find_defined(function, parts, expected)
    check_equal(function(*there), expected, ulps, where, what)


def find_defined(function: np.ufunc, operands: list[Array], expected: Array) -> Array:
    """The floats for which devices agree with NumPy: they may take subnormal numbers for 0, divide
    by huge ones less exactly, and round quotients with no fraction left in another way."""
    limits = np.finfo(operands[0].dtype)
    good = np.ones(expected.shape, bool)
    if limits.dtype == np.float16:
        return good
    for each in operands:
        good &= (each == 0) | ~(np.abs(each) < limits.smallest_normal)
    if function in (*DIVISIONS, np.remainder):
        good &= ~(np.abs(operands[1]) > limits.max / 4) | np.isinf(operands[1])
    if function is np.floor_divide:
        good &= ~(np.abs(expected) > 1 / limits.eps) | np.isinf(expected)
    return good


def make_pairs(a: Array, b: Array) -> tuple[Array, Array]:
    one, other = np.meshgrid(a, b, indexing="ij")
    return one.reshape(-1).copy(), other.reshape(-1).copy()


@pytest.mark.parametrize("dtype", TYPES)
def test_operations_at_the_edges_of_a_type(backend: Backend, dtype: str) -> None:
    values = make_values(dtype)
    pairs = make_pairs(values, values)
    has_every = has_every_pipeline(backend, dtype)
    few = FEW if is_slow(backend) else FEW_ON_LAVAPIPE
    for function in BINARY if has_every else few:
        check_function(backend, function, *pairs)
    for unary in UNARY if has_every else UNARY[: 1 if is_slow(backend) else 2]:
        check_function(backend, unary, values)


@pytest.mark.parametrize("dtype", TYPES)
def test_casts_from_every_type(backend: Backend, dtype: str) -> None:
    values = make_values(dtype)
    for other in DTYPES if has_every_pipeline(backend, dtype) else FEW_TYPES:
        given = values
        if values.dtype.kind == "f" and np.dtype(other).kind in "iu":
            # Beyond the type NumPy's result depends on the machine.
            ends = np.iinfo(other)
            with np.errstate(all="ignore"):
                whole = np.trunc(values.astype(np.float64))
            most = float(np.nextafter(np.float64(ends.max), 0)) if ends.bits == 64 else ends.max
            given = values[(whole >= ends.min) & (whole <= most)]
        if lacks(backend, dtype, other):
            if dtype != other:
                with pytest.raises(DeviceLacksError, match="float64"):
                    backend.to_device(given).astype(other)
            continue
        got = backend.to_device(given).astype(other)
        expected = given.astype(other)
        check_equal(got, expected, what=f"{dtype} to {other}")
        if expected.dtype.kind == "f":  # bit for bit, also subnormal numbers and zeros
            numbers = ~np.isnan(expected)
            raw = f"u{expected.itemsize}"
            np.testing.assert_array_equal(
                got.numpy().view(raw)[numbers], expected.view(raw)[numbers]
            )


# --- types of operands, shapes and strides ---


def test_operands_of_two_types(backend: Backend) -> None:
    for one, other in [("u1", "i1"), ("u4", "i4"), ("i2", "f2"), ("bool", "i1"), ("f2", "f4")]:
        pairs = make_pairs(make_values(one), make_values(other))
        every = np.less, np.add, np.maximum, np.logical_and
        for function in every[:1] if is_slow(backend) else every:
            check_function(backend, function, *pairs)
    wide = make_pairs(make_values("i8"), make_values("u8"))
    for comparison in (np.less, np.equal, np.greater_equal):  # exact, without a common integer type
        check_function(backend, comparison, *wide)
    check_function(backend, np.multiply, *make_pairs(make_values("i4"), make_values("u1")))


SCALARS: list[Any] = [3, -2, True, 1.5, np.float32(0.25), np.int64(7), np.array(2, np.uint8)]


@pytest.mark.parametrize("dtype", ["u1", pytest.param("f2", marks=pytest.mark.slow)])
def test_scalars_take_the_type_of_the_array(backend: Backend, dtype: str) -> None:
    values = make_values(dtype)
    there = backend.to_device(values)
    for scalar in SCALARS[::2] if is_slow(backend) else SCALARS:
        both = np.subtract, np.less
        for function in both if has_every_pipeline(backend, dtype) else (np.subtract,):
            for swaps in (False, True):
                host, device = ((scalar, values), (scalar, there))
                host, device = (host[::-1], device[::-1]) if swaps else (host, device)
                try:
                    expected = function(*host)
                except OverflowError:
                    with pytest.raises(OverflowError):
                        function(*device)
                    continue
                if lacks(backend, expected.dtype, np.add(*host).dtype if scalar != -2 else "u1"):
                    with pytest.raises(DeviceLacksError, match="float64"):
                        function(*device)
                    continue
                check_equal(
                    function(*device), expected, 0, ~is_small(values), f"{function} {scalar!r}"
                )


def test_comparisons_with_integers_beyond_the_type(backend: Backend) -> None:
    values = make_values("u1")
    there = backend.to_device(values)
    for number in (-1, 256, 1 << 70):
        check_equal(there < number, values < number)
        check_equal(number != there, number != values)
    with pytest.raises(OverflowError):
        there + 256


def draw_view(random: np.random.Generator, backend: Backend, array: Array) -> tuple[Array, Any]:
    """A random view of an array, on the host and on the device."""
    there = backend.to_device(array)
    for _ in range(random.integers(3)):
        choice = random.integers(3)
        if choice == 0 and array.ndim:
            axis = int(random.integers(array.ndim))
            step = int(random.choice([-2, -1, 1, 2, 3]))
            index = (*[slice(None)] * axis, slice(None, None, step))
            array, there = array[index], there[index]
        elif choice == 1:
            array, there = array.T, there.T
        elif array.ndim and array.shape[0] > 1:
            array, there = array[1:], there[1:]
    return array, there


def test_random_shapes_strides_and_broadcasts(backend: Backend) -> None:
    random = np.random.default_rng(7)
    for _ in range(25):
        dtype = "u1" if is_slow(backend) else str(random.choice(["u1", "i4"]))
        shape = tuple(random.integers(0, 7, random.integers(0, 7)))
        a, x = draw_view(random, backend, random.integers(0, 100, shape).astype(dtype))
        other = tuple(n if random.integers(3) else 1 for n in a.shape)[random.integers(0, 2) :]
        b, y = random.integers(0, 100, other).astype(dtype), None
        if other == a.shape[len(a.shape) - len(other) :] and random.integers(2):
            b, y = draw_view(random, backend, b)
        y = backend.to_device(b) if y is None else y
        try:
            expected = np.add(a, b)
        except ValueError:
            with pytest.raises(ValueError, match="broadcast"):
                np.add(x, y)
            continue
        what = f"{dtype} {a.shape} {a.strides} {b.shape} {b.strides}"
        check_equal(x + y, expected, what=what)
        check_equal(y <= x, b <= a, what=what)
        check_equal(np.where(x, x, y), np.where(a, a, b), what=what)
        check_equal(x.astype(np.int32), a.astype(np.int32), what=what)


# --- results in arrays that exist ---


def test_in_place_operators_write_into_views(backend: Backend) -> None:
    for dtype in ("u1",) if is_slow(backend) else ("u1", "i4"):
        host = np.arange(60).astype(dtype).reshape(4, 15)
        there = backend.to_device(host)
        for index in (..., (slice(1, 3), slice(1, 4)), (slice(None), slice(None, None, -2)), 3):
            part, view = host[index], there[index]
            part += 3
            view += 3
            part *= part
            view *= view
            there[index] = view
            np.testing.assert_array_equal(there.numpy(), host)
        flat, line = host.reshape(-1), there.reshape(-1)
        flat[1:] += flat[:-1]
        line[1:] += line[:-1]  # the operands are read before the result is written
        np.testing.assert_array_equal(there.numpy(), host)
        host.T[...] -= host.T[::-1]
        there.T[...] -= there.T[::-1]
        np.testing.assert_array_equal(there.numpy(), host)


def test_out_is_written_by_numpys_rule_for_casts(backend: Backend) -> None:
    a, b = np.arange(5, dtype=np.uint8), np.arange(200, 205, dtype=np.uint8)
    x, y, out = backend.to_device(a), backend.to_device(b), backend.to_device(np.zeros(5, "i8"))
    assert np.add(x, y, out=out) is out
    check_equal(out, np.add(a, b).astype("i8"))
    np.less(x, y, out=out[::-1])
    check_equal(out, (a < b).astype("i8")[::-1])
    with pytest.raises(TypeError, match="float32, which is not written to an array of uint8"):
        x *= np.float32(1)
    with pytest.raises(ValueError, match="the result has the shape"):
        np.add(x, y[:1], out=out[:3])
    with pytest.raises(ValueError, match="repeats elements"):
        view = x[:1].broadcast_to((5,))
        view += 1
    check_equal(x, a)


def test_fill_and_where_with_scalars(backend: Backend) -> None:
    for dtype, value in [("bool", 1), ("u1", 200), ("i2", -3.7), ("f2", 0.1), ("f8", 2.5)]:
        host = np.zeros((3, 7), dtype)
        there = backend.to_device(host)
        host.T[1:].fill(value)
        there.T[1:].fill(value)
        np.testing.assert_array_equal(there.numpy(), host)
    flags, x = backend.to_device(np.arange(5) % 2), backend.to_device(np.arange(5, dtype="u1"))
    check_equal(np.where(flags, x, 9), np.where(np.arange(5) % 2, np.arange(5, dtype="u1"), 9))
    check_equal(np.where(x > 2, 1, 0), np.array([0, 0, 0, 1, 1]))
    check_equal(np.where(x > 2, -1, x.astype("i2")), np.array([0, 1, 2, -1, -1], "i2"))
    with pytest.raises(OverflowError):
        np.where(flags, x, 256)


# --- along axes ---


def check_reductions(backend: Backend, array: Array, axis: Any) -> None:
    there = backend.to_device(array)
    what = f"{array.dtype} {array.shape} {axis}"
    options = {"axis": axis}
    for name in REDUCTIONS if has_every_pipeline(backend, array.dtype) else FEW_REDUCTIONS:
        expected = getattr(np, name)(array, **options)
        if lacks(backend, expected.dtype, array.dtype):
            continue
        ulps = 0 if name != "sum" or array.dtype.kind != "f" else 8
        check_equal(getattr(there, name)(**options), expected, ulps, what=f"{name} {what}")
        check_equal(getattr(np, name)(there, **options), expected, ulps, what=f"{name} {what}")


@pytest.mark.parametrize("dtype", TYPES)
def test_reductions_of_every_type(backend: Backend, dtype: str) -> None:
    values = make_values(dtype)
    values = values[: values.size // 4 * 4].reshape(4, -1)
    has_every = has_every_pipeline(backend, dtype)
    axes = (None, 0, 1) if has_every and not is_slow(backend) else (None,) if has_every else (1,)
    for axis in axes:
        with np.errstate(all="ignore"):
            check_reductions(backend, values if dtype[0] != "f" else np.abs(np.nan_to_num(
                values, posinf=2, neginf=3)) % 100, axis)  # fmt: skip
    if dtype[0] == "f" and has_every and not lacks(backend, dtype):
        there = backend.to_device(values)
        check_equal(there.min(), np.min(values))
        check_equal(there.max(axis=1), np.max(values, axis=1))
        check_equal(there.sum(), np.sum(values))  # NaN
        check_equal(there.any(axis=0), np.any(values, axis=0))


def test_reductions_of_random_shapes_and_axes(backend: Backend) -> None:
    random = np.random.default_rng(11)
    for _ in range(14):
        shape = tuple(random.integers(1, 8, random.integers(1, 6)))
        array, there = draw_view(random, backend, random.integers(-99, 99, shape).astype("i2"))
        count = int(random.integers(0, array.ndim + 1))
        axes = tuple(int(each) for each in random.permutation(array.ndim)[:count])
        keepdims = bool(random.integers(2))
        what = f"{array.shape} {array.strides} {axes}"
        check_equal(
            there.sum(axis=axes, keepdims=keepdims),
            array.sum(axis=axes, keepdims=keepdims),
            what=what,
        )
        check_equal(there.max(axis=axes), array.max(axis=axes), what=what)


@pytest.mark.parametrize("shape", [(20_000,), (3, 5_000), (5_000, 3), (300, 70)], ids=str)
def test_reductions_in_several_passes(backend: Backend, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(3)
    integers = random.integers(-(1 << 31), 1 << 31, shape).astype(np.int32)
    floats = random.random(shape, np.float32)
    for axis in range(-1, len(shape)):
        along = None if axis < 0 else axis
        check_equal(backend.to_device(integers).sum(axis=along), integers.sum(axis=along))
        check_equal(backend.to_device(integers).min(axis=along), integers.min(axis=along))
        exact = floats.astype(np.float64).sum(axis=along)
        found = backend.to_device(floats).sum(axis=along).numpy()
        np.testing.assert_allclose(found, exact, rtol=48 * 2.0**-24)
        mean = backend.to_device(floats).mean(axis=along).numpy()
        np.testing.assert_allclose(mean, floats.mean(axis=along), rtol=64 * 2.0**-24)


def test_types_of_sums_and_means(backend: Backend) -> None:
    a = np.arange(1, 9, dtype=np.int16).reshape(2, 4)
    x = backend.to_device(a)
    check_equal(x.sum(dtype=np.int8, axis=0), a.sum(dtype=np.int8, axis=0))
    check_equal(x.sum(dtype=np.float32), a.sum(dtype=np.float32))
    check_equal(x.mean(dtype=np.float32, axis=1), a.mean(dtype=np.float32, axis=1))
    check_equal(x.astype(np.float16).mean(), a.astype(np.float16).mean())
    many = backend.to_device(np.ones(70_000, np.float16))  # a number that float16 does not hold
    assert many.mean(dtype=np.float16).item() == many.mean().item() == 1
    check_equal((x > 2).sum(), (a > 2).sum())
    if lacks(backend, np.float64):
        with pytest.raises(DeviceLacksError, match=r"dtype=np.float32"):
            x.mean()
        with pytest.raises(DeviceLacksError, match=r"float64, which .* lacks"):
            x / x
    else:
        check_equal(x.mean(axis=0), a.mean(axis=0))


def test_reductions_of_no_elements(backend: Backend) -> None:
    empty = np.zeros((0, 3), np.int32)
    there = backend.to_device(empty)
    for name in ("sum", "any", "all"):
        check_equal(getattr(there, name)(), getattr(empty, name)())
        check_equal(getattr(there, name)(axis=0), getattr(empty, name)(axis=0))
        check_equal(getattr(there, name)(axis=1), getattr(empty, name)(axis=1))
    check_equal(there.min(axis=1), np.zeros(0, np.int32))
    with pytest.raises(ValueError, match="no element along axis None"):
        there.max()
    assert np.isnan(backend.to_device(np.zeros(0, np.float32)).mean().item())


# --- graphs ---


def test_graphs_record_arithmetic(backend: Backend) -> None:
    a, b = np.arange(20, dtype=np.float32), np.full(20, 3, np.float32)
    x, y = backend.to_device(a), backend.to_device(b)
    with backend.graph() as graph:
        total = (x * y + 1).sum()
        chosen = np.where(x < y, x, -y)
        y += x
    for _ in range(2):
        graph()
        np.testing.assert_allclose(total.numpy(), (a * b + 1).sum(), rtol=1e-6)
        np.testing.assert_array_equal(chosen.numpy(), np.where(a < b, a, -b))
        b += a
        np.testing.assert_array_equal(y.numpy(), b)
