"""A device that one thread reopens while another thread is about to use it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from tests.support.jobs import ADD_U32

X = np.arange(9, dtype=np.uint32)


@pytest.mark.parametrize("ask", ["run", "submit", "run_batch"])
def test_a_call_on_a_backend_that_another_thread_closed_to_reopen_it_is_retried(ask: str) -> None:
    with gx.GpuExecutor("vulkan") as executor:
        device = executor._devices[0]
        lost, real = device.backend, device.backend.run

        def too_late(*arguments: Any, **options: Any) -> Any:
            device._recover(lost, gx.DeviceLostError("vkQueueSubmit", -4, "as another thread saw"))
            return real(*arguments, **options)

        lost.run = too_late  # type: ignore[method-assign]
        if ask == "run_batch":
            (result,) = executor.run_batch(ADD_U32, [(X, X)])
        elif ask == "submit":
            result = executor.submit(ADD_U32, X, X).result()
        else:
            result = executor.run(ADD_U32, X, X)
        np.testing.assert_array_equal(result, 2 * X)
        assert device.backend is not lost
        counted = executor.stats().devices[0]
        assert (counted.reopened, counted.retries) == (1, 1)


def test_a_call_on_a_closed_backend_is_not_retried() -> None:
    with gx.GpuExecutor("vulkan") as executor:
        executor._devices[0].backend.close()
        with pytest.raises(gx.errors.ClosedError):
            executor.run(ADD_U32, X, X)
