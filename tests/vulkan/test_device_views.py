"""Views of device arrays: every operation gives what NumPy gives for the same view."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from tests.support.device_arrays import draw_words
from tests.support.jobs import ADD_U32

Gpu = gx.PersistentVulkanBackend
A = draw_words(1, 2 * 3 * 5 * 7).reshape(2, 3, 5, 7)
ITEMS: list[Any] = [
    1,
    -1,
    (1, 2),
    (1, 2, -5, 6),
    slice(None, None, -1),
    (slice(None), slice(2, 0, -1)),
    (..., slice(1, 6, 2)),
    (..., slice(6, None, -3)),
    (slice(None), 1, slice(None, None, 2), slice(3, 4)),
    (slice(1, 1),),
    (None, 0, None, ..., 3),
    (),
    ...,
    (np.int64(1), np.uint8(2)),
]


@pytest.mark.parametrize("item", ITEMS, ids=repr)
def test_indexing_gives_the_view_that_numpy_gives(gpu: Gpu, item: Any) -> None:
    view = gpu.to_device(A)[item]
    assert view.shape == A[item].shape
    np.testing.assert_array_equal(view.numpy(), A[item])


def test_views_of_views_share_memory(gpu: Gpu) -> None:
    x, expected = gpu.to_device(A), A.copy()
    view, same = x[:, ::-2].T[2:6:3, ::-1], expected[:, ::-2].T[2:6:3, ::-1]
    np.testing.assert_array_equal(view.numpy(), same)
    view[...] = 7
    same[...] = 7
    view[1] = np.arange(same[1].size, dtype=np.uint32).reshape(same[1].shape)
    same[1] = np.arange(same[1].size).reshape(same[1].shape)
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "c16", "?"])
@pytest.mark.parametrize("step", [1, 2, -3])
def test_every_size_of_element_is_gathered_and_scattered(gpu: Gpu, dtype: str, step: int) -> None:
    a = (np.arange(99) % 2 if dtype == "?" else np.arange(99)).astype(dtype)
    x, expected = gpu.to_device(a), a.copy()
    np.testing.assert_array_equal(x[1::step].numpy(), a[1::step])
    x[5 : 50 : abs(step)] = x[60 : 15 : -abs(step)].copy()[: len(range(5, 50, abs(step)))]
    expected[5 : 50 : abs(step)] = a[60 : 15 : -abs(step)]
    np.testing.assert_array_equal(x.numpy(), expected)


def test_views_with_more_axes_than_the_copy_kernel(gpu: Gpu) -> None:
    a = draw_words(2, 3**6).reshape((3,) * 6)
    x = gpu.to_device(a)
    np.testing.assert_array_equal(
        x.transpose(5, 3, 1, 0, 2, 4)[::2].numpy(), a.transpose(5, 3, 1, 0, 2, 4)[::2]
    )


def test_assignments_broadcast_and_may_overlap(gpu: Gpu) -> None:
    a = draw_words(3, 60).reshape(3, 20)
    x, expected = gpu.to_device(a), a.copy()
    x[:, 1:] = x[:, :-1]
    expected[:, 1:] = expected[:, :-1].copy()
    x[1:] = x[0]
    expected[1:] = expected[0]
    x[0, ::3] = 5
    expected[0, ::3] = 5
    np.testing.assert_array_equal(x.numpy(), expected)
    with pytest.raises(gx.errors.ArgumentShapeError, match="broadcast"):
        x[0] = x[:, :3]
    with pytest.raises(gx.errors.ArgumentTypeError, match="float32"):
        x[0] = gpu.to_device(np.zeros(20, np.float32))
    for wrong in (np.zeros(20, np.float64), -1, 1 << 32, 1.5, [1.5] * 20, "x"):
        with pytest.raises(gx.errors.ArgumentTypeError, match="assignment"):
            x[0] = wrong


@pytest.mark.parametrize("shape", [(30, 7), (-1,), (2, 15, -1), (7, 30), (210, 1, 1), (2, 3, 5, 7)])
def test_reshape_has_the_rules_of_numpy(gpu: Gpu, shape: tuple[int, ...]) -> None:
    x = gpu.to_device(A)
    np.testing.assert_array_equal(x.reshape(shape).numpy(), A.reshape(shape))
    np.testing.assert_array_equal(x.T.reshape(*shape).numpy(), A.T.reshape(shape))
    assert x.reshape(shape).storage is x.storage
    assert x[:, :, ::2].reshape(2, -1).storage is not x.storage


def test_reshape_refuses_what_numpy_refuses(gpu: Gpu) -> None:
    x, empty = gpu.to_device(A), gpu.to_device(A)[:0]
    for shape in [(4,), (-1, -1), (11, -1), (-2, -105)]:
        with pytest.raises(gx.errors.ArgumentShapeError, match="cannot be reshaped"):
            x.reshape(*shape)
    with pytest.raises(gx.errors.ArgumentShapeError, match="cannot be reshaped"):
        empty.reshape(0, -1)
    assert empty.reshape(5, 0, 3).shape == (5, 0, 3)


def test_indices_that_are_no_views_are_refused(gpu: Gpu) -> None:
    x = gpu.to_device(A)
    for item in ([0, 1], np.array([0, 1]), True, 1.0, np.ones(2, bool)):
        with pytest.raises(gx.errors.ArgumentShapeError, match="indexed by integers, slices"):
            x[item]
    for wrong in (2, (0, 3), (0,) * 5):
        with pytest.raises(IndexError):
            x[wrong]


def test_length_iteration_and_conversion(gpu: Gpu) -> None:
    x = gpu.to_device(A)
    assert len(x) == 2 and [row.shape for row in x] == [(3, 5, 7)] * 2
    np.testing.assert_array_equal(np.asarray(x[1]), A[1])
    assert np.asarray(x, np.float64).dtype == np.float64
    assert int(x[0, 0, 0, 0]) == float(x[0, 0, 0, 0]) == A[0, 0, 0, 0]
    assert bool(x[0, 0, 0, 0]) == bool(A[0, 0, 0, 0])
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)
    assert (x == x.copy()).all() and (x[0] != x[1]).any() and x.tolist() == A.tolist()
    with pytest.raises(TypeError):
        len(x[0, 0, 0, 0])
    with pytest.raises(TypeError):
        iter(x[0, 0, 0, 0])
    with pytest.raises(ValueError, match="copy=False"):
        np.array(x, copy=False)


def test_copies_by_pickle_deepcopy_and_copy_to(gpu: Gpu, fresh_gpu: Any) -> None:
    x = gpu.to_device(A)[:, ::2]
    same = copy.deepcopy(x)
    x[...] = 0
    assert isinstance(same, gx.DeviceArray)
    np.testing.assert_array_equal(same.numpy(), A[:, ::2])
    loaded = pickle.loads(pickle.dumps(same))
    assert isinstance(loaded, np.ndarray)
    np.testing.assert_array_equal(loaded, A[:, ::2])
    other = fresh_gpu()
    np.testing.assert_array_equal(same.copy_to(other).numpy(), A[:, ::2])
    with pytest.raises(gx.errors.ArgumentTypeError, match="copy_to"):
        other.run(ADD_U32, same, same)


def test_to_device_takes_mapped_arrays(gpu: Gpu) -> None:
    mapped = gpu.asarray(draw_words(4, 100_000))
    before = mapped.copy()
    x = gpu.to_device(mapped)
    mapped[...] = 0
    np.testing.assert_array_equal(x.numpy(), before)
