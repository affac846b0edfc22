"""Lifetimes: everything is freed by close, by the garbage collector and at exit."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import DeviceLacksError
from gpu_executor.kernels.modules import load_spirv
from gpu_executor.vulkan import binding
from tests.conftest import RunPython
from tests.support.resource_counts import resident_bytes

ADD_U32 = gx.kernels.load("vector_add_u32")
X = np.arange(50, dtype=np.uint32)


def test_closing_twice_is_allowed_and_a_closed_backend_raises() -> None:
    before = binding.count_live_objects()
    gpu = gx.PersistentVulkanBackend()
    gpu.run(ADD_U32, X, X)
    assert "open" in repr(gpu)
    gpu.close()
    gpu.close()
    assert binding.count_live_objects() == before
    assert "closed" in repr(gpu)
    uses: list[Callable[[], object]] = [
        lambda: gpu.run(ADD_U32, X, X),
        lambda: gpu.run(ADD_U32, X[:9], X[:9]),
        lambda: gpu.run_field_add(np.zeros((1, 6), np.uint64), np.zeros((1, 6), np.uint64)),
        gpu.trim,
    ]
    for use in uses:
        with pytest.raises(gx.errors.ClosedError, match="open another one"):
            use()
    assert gpu.stats().calls == 1


def test_a_closed_backend_raises_also_without_needing_the_device() -> None:
    gpu = gx.PersistentVulkanBackend()
    gpu.close()
    with pytest.raises(gx.errors.ClosedError):
        gpu.run(ADD_U32, X[:0], X[:0])
    with pytest.raises(gx.errors.ClosedError):
        gpu.explain(ADD_U32, X, X)


def test_an_error_inside_with_closes_the_backend() -> None:
    before = binding.count_live_objects()
    with pytest.raises(ZeroDivisionError), gx.PersistentVulkanBackend() as gpu:
        gpu.run(ADD_U32, X, X)
        _ = 1 // 0
    assert binding.count_live_objects() == before
    with pytest.raises(gx.errors.ClosedError):
        gpu.run(ADD_U32, X, X)


def test_a_garbage_collected_backend_frees_everything() -> None:
    before = binding.count_live_objects()
    gpu = gx.PersistentVulkanBackend()
    gpu.run(ADD_U32, X, X)
    assert binding.count_live_objects() != before
    del gpu
    gc.collect()
    assert binding.count_live_objects() == before


ENDS_WITHOUT_CLOSE = """
import atexit
from gpu_executor.vulkan import binding
atexit.register(lambda: print("at the end", binding.count_live_objects()))
import numpy as np, gpu_executor as gx
gpu = gx.PersistentVulkanBackend()
x = np.arange(500, dtype=np.uint32)
for device_local in (True, False):
    total = gpu.run(gx.kernels.load("vector_add_u32"), x, x, device_local=device_local)
    assert (total == 2 * x).all()
assert binding.count_live_objects()
"""


@pytest.mark.parametrize(("ending", "status"), [("", 0), ("raise SystemExit(3)", 3)])
def test_an_interpreter_that_exits_without_close_frees_everything(
    run_python: RunPython, ending: str, status: int
) -> None:
    ran = run_python(ENDS_WITHOUT_CLOSE + ending)
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "at the end {}\n", "")


def use_normally(backend: Any) -> None:
    np.testing.assert_array_equal(backend.run(ADD_U32, X, X), 2 * X)
    np.testing.assert_array_equal(backend.run(ADD_U32, X, X, device_local=True), 2 * X)


def use_with_a_bad_kernel(backend: Any) -> None:
    too_large = gx.Kernel.from_spirv(
        load_spirv("vector_add_u32"), count=True, buffers="in, in, out", constants={0: 1 << 20}
    )
    with pytest.raises(DeviceLacksError):
        backend.run(too_large, X, X)


def use_with_a_bad_element(backend: Any) -> None:
    with pytest.raises(gx.ElementRangeError):
        backend.run_field_add(*[np.full((9, 6), np.iinfo(np.uint64).max)] * 2)


def use_with_too_little_memory(backend: Any) -> None:
    with pytest.raises(gx.OutOfMemoryError):
        backend.run_field_add(*[np.zeros((9, 6), np.uint64)] * 2)


USES = [use_normally, use_with_a_bad_kernel, use_with_a_bad_element, use_with_too_little_memory]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", [gx.PersistentVulkanBackend, gx.VulkanSpirvBackend])
def test_opening_and_closing_leaks_nothing(kind: Any, use: Callable[[Any], None]) -> None:
    limit = 2000 if use is use_with_too_little_memory else None
    before = binding.count_live_objects()
    for _ in range(5):
        with kind(settings=gx.Settings(memory_limit=limit, validation=True)) as backend:
            use(backend)
        assert binding.count_live_objects() == before


def test_ten_thousand_calls_do_not_grow_the_process() -> None:
    """Without the validation layer, which allocates memory of its own."""
    sizes = [np.zeros(size, np.uint32) for size in (1, 64, 100)]
    with gx.PersistentVulkanBackend(settings=gx.Settings()) as gpu:

        def calls(number: int) -> None:
            for at in range(number):
                x = sizes[at % 3]
                gpu.run(ADD_U32, x, x, device_local=at % 2 == 0)

        calls(1000)
        objects, resident = binding.count_live_objects(), resident_bytes()
        calls(10_000)
        grown = resident_bytes() - resident
        assert binding.count_live_objects() == objects
        assert gpu.stats().calls == 11_000
        assert grown < 1 << 19, f"{grown:,} bytes more after ten thousand calls"
