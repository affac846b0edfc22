"""Idle memory of a session: never more than its budget, and never what a repeated call needs."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.idle_memory import MemoryUse
from gpu_executor.plan.plan import count_large_call
from gpu_executor.vulkan import device_memory, mapped_arrays
from tests.conftest import OpenGpu, on_both_paths
from tests.support.jobs import ADD_U32, check_sums, word_jobs
from tests.support.results import RECYCLED_BYTES
from tests.support.threads import in_threads

Gpu = gx.PersistentVulkanBackend
LARGE = 50_000
"""Elements of a call that needs more than SMALL_BUDGET."""
SMALL_BUDGET = 256 << 10
RECYCLED = RECYCLED_BYTES // 4
MATMUL = gx.kernels.load("matmul_f32")
ALIKE = ("vector_add_u32", "babybear_add", "koalabear_add", "mersenne31_add")
"""Kernels whose slots have equal sizes."""


@pytest.fixture(autouse=True)
def recycle_smaller_results(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (mapped_arrays, device_memory):
        monkeypatch.setattr(module, "MIN_RECYCLED_BYTES", RECYCLED_BYTES)


def check_idle(gpu: Gpu, minimum: int) -> MemoryUse:
    """Check the budget and the sum of all parts; return what holds the memory."""
    stats = gpu.stats()
    use = stats.memory_use
    assert use.idle_limit == max(minimum, 2 * use.largest_call)
    assert use.bytes_idle <= use.idle_limit
    assert sum(use.in_use.values()) + use.bytes_idle + use.fragments == stats.memory.bytes_held
    return use


@on_both_paths
def test_the_pool_stays_within_the_budget_over_many_calls_of_random_sizes(
    fresh_gpu: OpenGpu, device_local: bool
) -> None:
    minimum, most, draw = 2 << 20, 12_500, np.random.default_rng(1)
    gpu, x = fresh_gpu(idle_memory=minimum), draw.integers(0, 1 << 32, most, np.uint32)
    twice, recycled = 2 * x, 0
    for count in draw.integers(1, most, 250).tolist():
        result = gpu.run(ADD_U32, x[:count], x[:count], device_local=device_local)
        assert np.array_equal(result, twice[:count])
        recycled += result.base is not None
        del result
        assert gpu._session.resources.memory.stats().bytes_held <= minimum
    assert recycled > 60
    use = check_idle(gpu, minimum)
    assert use.idle["results"] > 0 and use.idle["slots"] > 0
    assert set(use.in_use.values()) == {0}
    assert gpu.stats().slots.misses < 100


def run_single(gpu: Gpu, jobs: list[Any], **options: Any) -> list[Any]:
    return [gpu.run(ADD_U32, *job, **options) for job in jobs]


def run_batch(gpu: Gpu, jobs: list[Any], **options: Any) -> list[Any]:
    return gpu.run_batch(ADD_U32, jobs, depth=8, **options)


def run_stream(gpu: Gpu, jobs: list[Any], **options: Any) -> list[Any]:
    return list(gpu.stream(ADD_U32, jobs, depth=3, **options))


RUNS: dict[str, Callable[..., list[Any]]] = {
    "calls": run_single,
    "a batch": run_batch,
    "a stream": run_stream,
}


@on_both_paths
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_repeated_large_call_keeps_its_slots_and_results(
    fresh_gpu: OpenGpu, run: Callable[..., list[Any]], device_local: bool
) -> None:
    gpu = fresh_gpu(idle_memory=SMALL_BUDGET)
    jobs = word_jobs(*[LARGE] * (4 if run is run_batch else 1))
    results: list[Any] = []
    for _ in range(3):  # the results of one round are held during the next
        results = run(gpu, jobs, device_local=device_local)
    before = count_made(gpu)
    for _ in range(3):
        results = run(gpu, jobs, device_local=device_local)
    assert count_made(gpu) == before
    check_sums(results, jobs)
    del results
    assert check_idle(gpu, SMALL_BUDGET).bytes_idle > SMALL_BUDGET


def count_made(gpu: Gpu) -> tuple[int, int, int]:
    """How many blocks, allocations and slots were made."""
    stats = gpu.stats()
    return stats.memory.misses, stats.memory.hits, stats.slots.misses


@on_both_paths
def test_a_long_stream_makes_nothing_in_its_steady_state(
    fresh_gpu: OpenGpu, device_local: bool
) -> None:
    gpu, (job,) = fresh_gpu(idle_memory=SMALL_BUDGET), word_jobs(LARGE)
    for number, result in enumerate(
        gpu.stream(ADD_U32, [job] * 30, depth=3, device_local=device_local)
    ):
        check_sums([result], [job])
        if number == 10:
            before = count_made(gpu)
    assert count_made(gpu) == before


def test_a_chunked_call_keeps_its_slots(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(idle_memory=SMALL_BUDGET, stream_chunk_elems=LARGE // 8)
    (job,) = word_jobs(LARGE)
    for _ in range(2):
        check_sums([gpu.run(ADD_U32, *job)], [job])
    before = count_made(gpu)
    for _ in range(3):
        check_sums([gpu.run(ADD_U32, *job)], [job])
    assert count_made(gpu) == before


def test_small_calls_after_a_large_one_do_not_exceed_its_budget(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(idle_memory=SMALL_BUDGET)
    (large,) = word_jobs(LARGE)
    gpu.run(ADD_U32, *large)
    limit = check_idle(gpu, SMALL_BUDGET).idle_limit
    assert limit >= 2 * 3 * 4 * LARGE
    for count in range(9_000, 47_000, 1_250):
        (job,) = word_jobs(count)
        check_sums([gpu.run(ADD_U32, *job)], [job])
        assert check_idle(gpu, SMALL_BUDGET).idle_limit == limit


@on_both_paths
def test_beyond_the_budget_a_call_uses_a_larger_slot(
    fresh_gpu: OpenGpu, device_local: bool
) -> None:
    gpu = fresh_gpu(idle_memory=2 << 20)
    # So many that a GPU has one invocation for each element in all calls.
    count = (1 << 18 if gpu.device.kind == "cpu" else count_large_call(gpu.device)) - 1
    large, small, tiny = word_jobs(count, count // 2, count // 4)
    out = np.empty(count, np.uint32)
    gpu.run(ADD_U32, *large, device_local=device_local, out=out)
    gpu._session._idle_memory.limit = gpu._session.resources.memory.kept
    for job in (small, tiny, large, small):
        into = out[: len(job[0])]
        check_sums([gpu.run(ADD_U32, *job, device_local=device_local, out=into)], [job])
    results = gpu.run_batch(
        ADD_U32, [small, tiny], out=[into, out[-len(tiny[0]) :]], device_local=device_local, depth=1
    )
    check_sums(results, [small, tiny])
    assert gpu.stats().slots.misses == 1
    assert gpu.stats().memory_use.in_use["slots"] == 0
    # Another kernel has slots of its own, and one that is not split has slots of exact sizes.
    gpu._session._idle_memory.limit += 2 << 20
    for side, made in ((3, 2), (3, 2), (2, 3)):
        square = np.arange(side * side, dtype=np.float32).reshape(side, side)
        product = gpu.run(MATMUL, square, square, device_local=device_local)
        np.testing.assert_array_equal(product, square @ square)
        assert gpu.stats().slots.misses == made


@on_both_paths
def test_the_least_recently_used_slot_is_closed_first(
    fresh_gpu: OpenGpu, device_local: bool
) -> None:
    gpu = fresh_gpu(idle_memory=SMALL_BUDGET)
    often, *others = map(gx.kernels.load, ALIKE)
    x = np.arange(LARGE, dtype=np.uint32)

    def run(kernel: gx.Kernel) -> int:
        """Return how many slots were made for the call."""
        before = gpu.stats().slots.misses
        np.testing.assert_array_equal(gpu.run(kernel, x, x, device_local=device_local), 2 * x)
        return gpu.stats().slots.misses - before

    assert [(run(often), run(other)) for other in others] == [(1, 1), (0, 1), (0, 1)]
    check_idle(gpu, SMALL_BUDGET)
    assert (run(often), run(others[-1]), run(others[0])) == (0, 0, 1)


def test_results_that_are_dropped_without_another_call_are_freed(fresh_gpu: OpenGpu) -> None:
    gpu, minimum = fresh_gpu(idle_memory=1 << 20), 1 << 20
    (job,) = word_jobs(2 * RECYCLED)
    held = [gpu.run(ADD_U32, *job) for _ in range(60)]
    use = check_idle(gpu, minimum)
    assert use.in_use["arrays"] >= sum(result.nbytes for result in held) > 3 * minimum
    check_sums(held, [job] * 60)
    held.clear()
    use = check_idle(gpu, minimum)
    assert use.in_use["arrays"] == 0
    assert gpu._session.resources.memory.stats().bytes_held <= minimum


def test_held_results_keep_their_contents_while_others_come_and_go(fresh_gpu: OpenGpu) -> None:
    gpu, draw = fresh_gpu(idle_memory=SMALL_BUDGET), random.Random(2)
    jobs = word_jobs(*(draw.randrange(1, 3 * RECYCLED) for _ in range(12)))
    held: list[tuple[Any, Any]] = []
    for number in range(150):
        some = draw.sample(jobs, draw.choice([1, 1, 1, 3]))
        run = draw.choice([*RUNS.values()])
        held += zip(run(gpu, some), some, strict=True)
        while len(held) > draw.choice([0, 5, 30]):
            held.pop(draw.randrange(len(held)))
        if number % 10 == 0:
            check_sums([result for result, _ in held], [job for _, job in held])
            check_idle(gpu, SMALL_BUDGET)
    held.clear()
    assert check_idle(gpu, SMALL_BUDGET).fragments == 0


def test_threads_with_random_sizes_leave_no_more_than_the_budget(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(idle_memory=SMALL_BUDGET)

    def work(thread: int) -> None:
        draw = random.Random(thread)
        jobs = word_jobs(*(draw.randrange(1, 3 * RECYCLED) for _ in range(6)))
        for _ in range(20):
            some = draw.sample(jobs, 2)
            run = draw.choice([*RUNS.values()])
            check_sums(run(gpu, some, device_local=draw.choice([True, False])), some)

    in_threads(work)
    use = check_idle(gpu, SMALL_BUDGET)
    assert set(use.in_use.values()) == {0}


def test_device_arrays_that_are_dropped_are_freed_beyond_the_budget(fresh_gpu: OpenGpu) -> None:
    minimum = 1 << 20
    gpu, x = fresh_gpu(idle_memory=minimum), np.arange(1 << 15, dtype=np.uint32)
    arrays = [gpu.to_device(x) for _ in range(40)]
    use = check_idle(gpu, minimum)
    assert use.in_use["device arrays"] >= 40 * x.nbytes
    np.testing.assert_array_equal(arrays[7].numpy(), x)
    arrays.clear()
    gpu._session.device_memory.stream.wait()
    use = check_idle(gpu, minimum)
    assert use.in_use["device arrays"] == 0
    assert gpu._session.resources.memory.stats().bytes_held <= minimum


def test_a_repeated_operation_on_large_device_arrays_allocates_no_block(
    fresh_gpu: OpenGpu,
) -> None:
    gpu, x = fresh_gpu(idle_memory=SMALL_BUDGET), np.arange(LARGE, dtype=np.uint32)
    there = gpu.to_device(x)
    result = there
    for _ in range(3):
        result = gpu.run(ADD_U32, there, there)
        gpu.synchronize()
    made = gpu.stats().memory.misses
    for _ in range(5):
        result = gpu.run(ADD_U32, there, there)
        gpu.synchronize()
    assert gpu.stats().memory.misses == made
    np.testing.assert_array_equal(result.numpy(), 2 * x)


def test_uploads_of_large_arrays_use_the_same_block(fresh_gpu: OpenGpu) -> None:
    gpu, x = fresh_gpu(idle_memory=2 << 20), np.arange(1_600_000, dtype=np.uint32)
    made = []
    for _ in range(6):
        np.testing.assert_array_equal(gpu.to_device(x).numpy(), x)
        gpu._session.device_memory.stream.wait()
        made.append(gpu.stats().memory.misses)
    assert made[3:] == [made[3]] * 3


def test_a_repeated_transform_of_numpy_arrays_allocates_no_block(fresh_gpu: OpenGpu) -> None:
    """Several passes need the input, an array between the passes, the output and the result."""
    gpu, field = fresh_gpu(idle_memory=SMALL_BUDGET), gx.fields.BABYBEAR
    x = field.from_words(np.arange(1 << 16, dtype=np.uint32), "montgomery")
    made = []
    for _ in range(3):
        values = field.ntt(gpu.to_device(x)).words()
        gpu._session.device_memory.stream.wait()
        made.append((gpu.stats().memory.misses, gpu._session.resources.memory.freed_blocks))
    assert made[1] == made[2]
    back = field.intt(gpu.to_device(field.from_words(values, "montgomery")))
    assert np.array_equal(back.words(), x.words())


def test_tables_that_were_not_used_for_long_make_room_for_repeated_operations(
    fresh_gpu: OpenGpu,
) -> None:
    """What was used longest ago is released first, be it a table or memory of dropped arrays."""
    gpu, words = fresh_gpu(idle_memory=SMALL_BUDGET), np.dtype(np.uint32)
    device, x = gpu._session.device_memory, np.arange(LARGE, dtype=np.uint32)
    there = gpu.to_device(x)

    def compute() -> int:
        results = [gpu.run(ADD_U32, there, there) for _ in range(2)]
        assert np.array_equal(results[1].numpy(), 2 * x)
        del results
        device.stream.wait()
        return gpu.stats().memory.misses

    compute()
    limit = gpu.stats().memory_use.idle_limit
    device.cache("unused", lambda: device.empty((limit // 5,), words))  # 4/5 of the limit
    made = [compute() for _ in range(6)]
    assert made[2:] == [made[2]] * 4
    use = gpu.stats().memory_use
    assert (use.idle_limit, use.idle["tables"]) == (limit, 0)


def test_tables_of_transforms_are_idle_memory(fresh_gpu: OpenGpu) -> None:
    gpu, field = fresh_gpu(), gx.fields.GOLDILOCKS
    x = field.encode(range(1 << 10))
    expected = field.ntt(x).ints().tolist()
    there = gpu.to_device(x)

    def transform() -> None:
        assert field.ntt(there).ints().tolist() == expected

    transform()
    tables = gpu.stats().memory_use.idle["tables"]
    assert tables > 0
    transform()
    assert gpu.stats().memory_use.idle["tables"] == tables
    gpu.trim()
    gc.collect()
    use = gpu.stats().memory_use
    assert (use.idle["tables"], use.bytes_idle) == (0, 0)
    assert use.in_use["device arrays"] > 0
    transform()


def test_a_graph_keeps_its_tables_when_the_cache_drops_them(fresh_gpu: OpenGpu) -> None:
    gpu, field = fresh_gpu(), gx.fields.GOLDILOCKS
    x = field.encode(range(1 << 10))
    expected = field.ntt(x).ints().tolist()
    there = gpu.to_device(x)
    with gpu.graph() as graph:
        result = field.ntt(there)
    gpu.trim()
    assert gpu.stats().memory_use.idle["tables"] == 0
    others = [gpu.to_device(np.full(500, number, np.uint64)) for number in range(50)]
    graph()
    assert result.ints().tolist() == expected
    assert all((each.numpy() == number).all() for number, each in enumerate(others))


def test_statistics_say_what_holds_the_memory(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    (job,) = word_jobs(RECYCLED)
    mapped, there = gpu.zeros(1000), gpu.to_device(np.zeros(3000, np.uint32))
    held, _ = gpu.run(ADD_U32, *job), gpu.run(ADD_U32, *job)
    running = gpu.stream(ADD_U32, [job] * 6, depth=2)
    next(running)
    use = gpu.stats().memory_use
    assert use.in_use["arrays"] >= mapped.nbytes + held.nbytes
    assert use.in_use["device arrays"] >= there.nbytes
    assert use.in_use["slots"] >= 2 * 3 * 4 * RECYCLED
    running.close()
    del held, _
    use = check_idle(gpu, gx.Settings().idle_memory)
    assert use.in_use["slots"] == 0
    assert use.idle["slots"] >= 2 * 3 * 4 * RECYCLED
    assert use.idle["results"] >= 2 * 4 * RECYCLED
    assert use.largest_call >= 2 * (3 + 1) * 4 * RECYCLED
    assert f"idle: slots {use.idle['slots']:,}, results" in str(gpu.stats())
    gpu.trim()
    use = check_idle(gpu, gx.Settings().idle_memory)
    assert use.bytes_idle == 0
    assert use.in_use["arrays"] >= mapped.nbytes
    del mapped, there
    gpu.trim()
    assert gpu.stats().memory.bytes_held == 0
