"""Many threads on one backend: exact results, no deadlock, and a close that waits for them."""

from __future__ import annotations

import random
import threading
import time

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.primes import BLS12_381_FQ, words
from gpu_executor.vulkan import binding
from tests.conftest import OpenGpu, RunPython, elements
from tests.support.jobs import Case, make_cases
from tests.support.threads import THREADS, in_threads

X = np.arange(9, dtype=np.uint32)


def run_at_random(gpu: gx.PersistentVulkanBackend, cases: list[Case], calls: int) -> None:
    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(calls):
            kernel, a, b, expected = draw.choice(cases)
            result = gpu.run(kernel, a, b, device_local=draw.choice([True, False, None]))
            np.testing.assert_array_equal(result, expected)

    in_threads(work)


def test_concurrent_calls_of_all_kinds_are_exact(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(stream_chunk_elems=150)
    run_at_random(gpu, make_cases(1000), 40)
    assert gpu.stats().calls == THREADS * 40
    assert gpu.stats().slots.in_use == 0


def test_concurrent_calls_of_one_kernel_get_their_own_slots(fresh_gpu: OpenGpu) -> None:
    gpu, kernel = fresh_gpu(), gx.kernels.load("vector_add_u32")

    def work(number: int) -> None:
        x = np.full(5000, number, np.uint32)
        for _ in range(100):
            assert (gpu.run(kernel, x, x) == 2 * number).all()

    in_threads(work)
    stats = gpu.stats()
    assert stats.slots.misses <= THREADS
    assert stats.slots.hits + stats.slots.misses == stats.calls == 100 * THREADS
    assert stats.pipelines.misses == 1


def test_threads_wait_for_memory_that_others_use(fresh_gpu: OpenGpu) -> None:
    limit = 100_000
    gpu = fresh_gpu(memory_limit=limit)
    run_at_random(gpu, make_cases(2000), 25)
    assert gpu.stats().calls == THREADS * 25
    assert gpu.stats().memory.bytes_held <= limit


def test_trim_during_other_calls_is_safe(fresh_gpu: OpenGpu) -> None:
    gpu, cases = fresh_gpu(stream_chunk_elems=150), make_cases(400)

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(25):
            if number == 0:
                gpu.trim()
                continue
            kernel, a, b, expected = draw.choice(cases)
            np.testing.assert_array_equal(gpu.run(kernel, a, b), expected)

    in_threads(work)


def test_an_out_of_range_element_is_reported_to_its_own_thread(fresh_gpu: OpenGpu) -> None:
    gpu, kernel = fresh_gpu(), gx.kernels.load("bls12_381_fq_add")
    good = words.from_ints(BLS12_381_FQ, elements(BLS12_381_FQ, 130, 1))
    expected = words.add(BLS12_381_FQ, good, good)

    def work(number: int) -> None:
        bad = good.copy()
        bad[number] = np.iinfo(np.uint64).max
        for _ in range(25):
            np.testing.assert_array_equal(gpu.run(kernel, good, good), expected)
            with pytest.raises(gx.ElementRangeError) as caught:
                gpu.run(kernel, good, bad)
            assert (caught.value.argument, caught.value.index) == (1, number)

    in_threads(work)


@pytest.mark.parametrize("limit", [None, 100_000])
def test_close_waits_for_calls_and_refuses_new_ones(fresh_gpu: OpenGpu, limit: int | None) -> None:
    before = binding.count_live_objects()
    gpu, cases = fresh_gpu(stream_chunk_elems=150, memory_limit=limit), make_cases(1000)
    turned_away = threading.Semaphore(0)

    def work(number: int) -> None:
        draw = random.Random(number)
        if number == 0:
            while gpu.stats().calls < 100:
                time.sleep(0.001)
            gpu.close()
            return
        while True:
            kernel, a, b, expected = draw.choice(cases)
            try:
                result = gpu.run(kernel, a, b, device_local=draw.choice([True, False]))
            except gx.errors.ClosedError:
                turned_away.release()
                return
            np.testing.assert_array_equal(result, expected)

    in_threads(work)
    for _ in range(THREADS - 1):
        assert turned_away.acquire(blocking=False)
    assert binding.count_live_objects() == before


def test_backends_may_open_and_close_in_many_threads() -> None:
    before = binding.count_live_objects()

    def work(number: int) -> None:
        x = np.full(70, number, np.uint32)
        for kind in (gx.PersistentVulkanBackend, gx.VulkanSpirvBackend):
            with kind() as backend:
                assert (backend.run(gx.kernels.load("vector_add_u32"), x, x) == 2 * number).all()

    in_threads(work)
    assert binding.count_live_objects() == before


ENDS_WHILE_THREADS_RUN = """
import threading, time
import numpy as np, gpu_executor as gx
gpu = gx.PersistentVulkanBackend()
x = np.arange(500, dtype=np.uint32)
def work():
    try:
        while True:
            assert (gpu.run(gx.kernels.load("vector_add_u32"), x, x) == 2 * x).all()
    except gx.errors.ClosedError:
        pass
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
while gpu.stats().calls < 50:
    time.sleep(0.001)
"""


def test_an_interpreter_may_exit_while_threads_run(run_python: RunPython) -> None:
    ran = run_python(ENDS_WHILE_THREADS_RUN)
    assert (ran.returncode, ran.stderr) == (0, "")
