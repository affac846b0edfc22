"""Status words of checked calls on device arrays: read together, and released."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ElementRangeError
from gpu_executor.webgpu import device_memory
from tests.conftest import OpenWebGpu
from tests.support.jobs import FQ_ADD

ONES = np.ones((5, 6), np.uint64)
TOO_LARGE = np.full((5, 6), np.iinfo(np.uint64).max)


def count_bytes(gpu: gx.WgpuExecutor) -> int:
    return gpu.stats().memory_use.in_use["device arrays"]


def test_checked_calls_hold_no_memory_that_nobody_waits_for(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_memory, "MAX_UNREAD_CHECKS", 8)
    gpu = open_webgpu()
    x = gpu.to_device(ONES)
    total = gpu.run(FQ_ADD, x, x)
    before = count_bytes(gpu)
    for _ in range(30):
        total = gpu.run(FQ_ADD, total, x)
        assert len(total.storage.checks) <= 8
    assert count_bytes(gpu) < before + 8 * 512
    assert (total.numpy() == 32).all()
    total = gpu.run(FQ_ADD, total, x)
    assert len(total.storage.checks) == 1  # what was fetched is not asked again


def test_an_error_whose_word_was_read_early_is_raised_later(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_memory, "MAX_UNREAD_CHECKS", 4)
    gpu = open_webgpu()
    x, wrong = gpu.to_device(ONES), gpu.to_device(TOO_LARGE)
    for forget in (True, False):
        result = gpu.run(FQ_ADD, wrong, x)
        for _ in range(9):
            assert (gpu.run(FQ_ADD, x, x).numpy() == 2).all()
        if forget:
            with pytest.raises(ElementRangeError, match="element 0 of argument 0"):
                gpu.synchronize()
        else:
            with pytest.raises(ElementRangeError, match="element 0 of argument 0"):
                result.numpy()
        gpu.synchronize()  # it is no news


def test_each_run_of_a_graph_has_status_words_of_its_own(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    x = gpu.to_device(ONES)
    with gx.graph(x) as run:
        result = gpu.run(FQ_ADD, gpu.run(FQ_ADD, x, x), x)
    for _ in range(2):
        run(TOO_LARGE)
        late = result.copy()
        run(ONES)
        assert (result.numpy() == 3).all()
        with pytest.raises(ElementRangeError):
            late.numpy()
