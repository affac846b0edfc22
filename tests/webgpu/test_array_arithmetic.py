"""NumPy's arithmetic on WebGPU: a few operations of each kind. tests/conformance has all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import DeviceLacksError


def test_arithmetic_of_integers_and_floats(each_webgpu: gx.WgpuExecutor) -> None:
    bytes_, halves = np.arange(250, 261).astype(np.uint8), np.linspace(-1, 1, 11, dtype=np.float16)
    x, h = each_webgpu.to_device(bytes_), each_webgpu.to_device(halves)
    np.testing.assert_array_equal((x[1::2] + x[::2][:5]).numpy(), bytes_[1::2] + bytes_[::2][:5])
    np.testing.assert_array_equal((h * 2 - 1).numpy(), halves * 2 - 1)
    chosen: Any = np.where(h < 0, x, 7)
    np.testing.assert_array_equal(chosen.numpy(), np.where(halves < 0, bytes_, 7))
    total = x.sum()
    assert (total.dtype, total.item()) == (np.uint64, bytes_.sum())
    assert (total // 7).item() == bytes_.sum() // 7 and h.max().item() == 1


def test_float64_is_refused(each_webgpu: gx.WgpuExecutor) -> None:
    doubles = each_webgpu.to_device(np.ones(3))
    with pytest.raises(DeviceLacksError, match=r"float64, which .* lacks with webgpu; convert"):
        doubles + 1
    assert doubles.tolist() == [1, 1, 1]
