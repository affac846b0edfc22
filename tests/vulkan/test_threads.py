"""Many threads on one backend: right results, no deadlock, and a close that waits for them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.primes import BLS12_381_FQ, BLS12_381_FR, words
from gpu_executor.vulkan import binding
from tests.conftest import OpenGpu, RunPython, elements

THREADS = 8
X = np.arange(9, dtype=np.uint32)
PATIENCE = 60  # seconds, for a machine that is busy with other things

Case = tuple[gx.Kernel, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


def make_cases(most: int) -> list[Case]:
    """Kernels with arrays of many sizes and the results they must give."""
    cases: list[Case] = []
    for size in (1, 3, 64, 65, 127, 200, most):
        x = np.arange(size, dtype=np.uint32) * 7919
        cases.append((gx.kernels.load("vector_add_u32"), x, x[::-1], x + x[::-1]))
        for prime in (BLS12_381_FQ, BLS12_381_FR):
            a, b = (words.from_ints(prime, elements(prime, size, seed)) for seed in (1, 2))
            for operation in (words.add, words.sub, words.mul):
                kernel = gx.kernels.load(f"{prime.name}_{operation.__name__}")
                cases.append((kernel, a, b, operation(prime, a, b)))
    return cases


def in_threads(work: Callable[[int], None]) -> None:
    """Run it in 8 threads at once; the first error is raised here, and so is a deadlock."""
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def guarded(number: int) -> None:
        try:
            start.wait(PATIENCE)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "threads wait for each other"


def run_at_random(gpu: gx.PersistentVulkanBackend, cases: list[Case], calls: int) -> None:
    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(calls):
            kernel, a, b, expected = draw.choice(cases)
            result = gpu.run(kernel, a, b, device_local=draw.choice([True, False, None]))
            np.testing.assert_array_equal(result, expected)

    in_threads(work)


def test_calls_of_all_kinds_at_once_are_right(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(stream_chunk_elems=150)
    run_at_random(gpu, make_cases(1000), 60)
    assert gpu.stats().calls == THREADS * 60
    assert gpu.stats().slots.in_use == 0


def test_one_kernel_from_all_threads_gets_slots_of_its_own(fresh_gpu: OpenGpu) -> None:
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


def test_trimming_while_others_run_does_no_harm(fresh_gpu: OpenGpu) -> None:
    gpu, cases = fresh_gpu(stream_chunk_elems=150), make_cases(400)

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(40):
            if number == 0:
                gpu.trim()
                continue
            kernel, a, b, expected = draw.choice(cases)
            np.testing.assert_array_equal(gpu.run(kernel, a, b), expected)

    in_threads(work)


def test_a_bad_element_of_one_thread_is_not_anothers(fresh_gpu: OpenGpu) -> None:
    gpu, kernel = fresh_gpu(), gx.kernels.load("bls12_381_fq_add")
    good = words.from_ints(BLS12_381_FQ, elements(BLS12_381_FQ, 130, 1))
    expected = words.add(BLS12_381_FQ, good, good)

    def work(number: int) -> None:
        bad = good.copy()
        bad[number] = np.iinfo(np.uint64).max
        for _ in range(40):
            np.testing.assert_array_equal(gpu.run(kernel, good, good), expected)
            with pytest.raises(gx.ElementRangeError) as caught:
                gpu.run(kernel, good, bad)
            assert (caught.value.argument, caught.value.index) == (1, number)

    in_threads(work)


@pytest.mark.parametrize("limit", [None, 100_000])
def test_close_waits_for_calls_and_turns_others_away(fresh_gpu: OpenGpu, limit: int | None) -> None:
    before = binding.live_objects()
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
    assert binding.live_objects() == before


def test_backends_open_and_close_in_many_threads() -> None:
    before = binding.live_objects()

    def work(number: int) -> None:
        x = np.full(70, number, np.uint32)
        for kind in (gx.PersistentVulkanBackend, gx.VulkanSpirvBackend):
            with kind() as backend:
                assert (backend.run(gx.kernels.load("vector_add_u32"), x, x) == 2 * number).all()

    in_threads(work)
    assert binding.live_objects() == before


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


def test_an_interpreter_may_end_while_threads_run(run_python: RunPython) -> None:
    ran = run_python(ENDS_WHILE_THREADS_RUN)
    assert (ran.returncode, ran.stderr) == (0, "")
