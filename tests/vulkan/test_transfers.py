"""Transfers to and from a device: in segments, in order, without needless waits, interrupted."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.calls.call import Array
from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.steps.bound_steps import MAX_UPDATE_BYTES
from gpu_executor.vulkan import binding, transfers
from gpu_executor.vulkan.mapped_arrays import RecycledResults
from gpu_executor.vulkan.timeline import Timeline
from tests.conftest import LAYER_SETTINGS, OpenGpu, RunPython
from tests.support.device_arrays import draw_words, get_device_memory, submit_sum
from tests.support.interrupts import InFlightTracker, interrupt_waits
from tests.support.jobs import ADD_U32

SEGMENT = MAX_UPDATE_BYTES
MANY = 11 * SEGMENT + 20
"""Bytes of eleven segments and a fraction of one."""
SIZES = [0, 1, 3, 4, SEGMENT - 1, SEGMENT, SEGMENT + 1, 4 * SEGMENT, 5 * SEGMENT + 7, MANY]


@pytest.fixture
def in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "SEGMENT_BYTES", SEGMENT)
    monkeypatch.setattr(transfers, "SEGMENTS_IN_FLIGHT", 4)


@pytest.fixture
def not_recycled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecycledResults, "make_one", lambda *_: None)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list of the waits for submissions from now on."""
    made: list[object] = []
    wait = Timeline.wait

    def counted(self: Timeline, *arguments: Any, **options: Any) -> None:
        made.append(arguments)
        wait(self, *arguments, **options)

    monkeypatch.setattr(Timeline, "wait", counted)
    return made


def draw_bytes(count: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


@pytest.mark.usefixtures("in_segments")
@pytest.mark.parametrize("recycled", [True, False], ids=["recycled", "staged"])
@pytest.mark.parametrize("size", SIZES)
def test_any_number_of_bytes_survives_the_way_to_the_device_and_back(
    gpu: gx.PersistentVulkanBackend,
    request: pytest.FixtureRequest,
    size: int,
    recycled: bool,
) -> None:
    if not recycled:
        request.getfixturevalue("not_recycled")
    data = draw_bytes(size)
    mapped = gpu.asarray(data)
    for array in (data, mapped, draw_bytes(2 * size)[::2]):
        there = gpu.to_device(array)
        for _ in range(3):
            np.testing.assert_array_equal(there.numpy(), array)
        np.testing.assert_array_equal(there[size // 3 :].numpy(), array[size // 3 :])


def test_large_arrays_are_transferred_in_segments_of_the_default_size(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    data = draw_words(1, (transfers.SEGMENT_BYTES + 100) // 4)
    there = gpu.to_device(data)
    for _ in range(2):
        np.testing.assert_array_equal(there.numpy(), data)
    np.testing.assert_array_equal(gpu.to_device(there.numpy()).numpy(), data)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "f8", "c16"])
@pytest.mark.parametrize("size", [100, 100_000])
def test_any_dtype_of_numbers_survives_the_way_to_the_device_and_back(
    gpu: gx.PersistentVulkanBackend, dtype: str, size: int
) -> None:
    kind = np.dtype(dtype)
    data = np.zeros(size * kind.itemsize, np.uint8)
    data[::4] = np.arange(len(data[::4])) % 2
    array = data.view(kind).reshape(2, -1)
    found = gpu.to_device(array).numpy()
    assert (found.shape, found.dtype) == (array.shape, kind)
    assert found.tobytes() == data.tobytes()


@pytest.mark.usefixtures("in_segments")
@pytest.mark.parametrize("size", [4, SEGMENT, 3 * SEGMENT])
def test_put_does_not_wait_for_the_device(
    fresh_gpu: OpenGpu, waits: list[object], size: int
) -> None:
    device, a, b = get_device_memory(fresh_gpu()), draw_words(1, 1 << 18), draw_words(2, 1 << 18)
    x, step, puts = device.put(a), device.put(b), []
    device.stream.wait()
    for _ in range(5):
        x = submit_sum(device, x, step)
    waits.clear()
    data = [draw_bytes(size, seed) for seed in range(2)]
    for each in data[: 1 if size > SEGMENT else 2]:
        puts.append(device.put(each))
        each_before = each.copy()
        each[...] = 0  # the caller may change it
        assert waits == []
        np.testing.assert_array_equal(puts[-1].numpy(), each_before)
        waits.clear()
    np.testing.assert_array_equal(x.numpy(), a + np.uint32(5) * b)


def test_new_integer_operands_are_not_waited_for(fresh_gpu: OpenGpu, waits: list[object]) -> None:
    field = gx.fields.BLS12_381_FR
    x = fresh_gpu().to_device(field.encode(range(50)))
    _ = x + 1, x**2
    waits.clear()
    y = x
    for number in range(10):
        y = field.select(np.arange(50) % 2 == 0, (y + (1000 + number)) ** (3 + number), y)
    assert waits == []
    expected = list(range(50))
    for number in range(10):
        for index in range(0, 50, 2):
            expected[index] = pow(expected[index] + 1000 + number, 3 + number, field.modulus)
    assert list(y.ints()) == expected


@pytest.mark.parametrize("size", [100, MAX_UPDATE_BYTES + 4])
def test_a_mapped_array_may_be_changed_when_put_returns(
    gpu: gx.PersistentVulkanBackend, size: int
) -> None:
    device = get_device_memory(gpu)
    for seed in range(20):
        data = draw_bytes(size, seed)
        mapped = gpu.asarray(data)
        there = device.put(mapped)
        mapped[...] = 0
        np.testing.assert_array_equal(there.numpy(), data)


def test_put_does_not_overwrite_memory_that_earlier_dispatches_read(fresh_gpu: OpenGpu) -> None:
    device, count = (
        get_device_memory(fresh_gpu()),
        16_000,
    )  # just below MAX_UPDATE_BYTES
    results = []
    for seed in range(100):
        a = device.put(draw_words(seed, count))  # in the memory of an earlier array
        results.append((seed, submit_sum(device, a, a)))
    for seed, result in results:
        np.testing.assert_array_equal(result.numpy(), 2 * draw_words(seed, count))


@pytest.mark.usefixtures("in_segments")
def test_the_number_of_segments_in_flight_is_limited(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "SEGMENTS_IN_FLIGHT", 2)
    gpu = fresh_gpu()
    segments = get_device_memory(gpu)._upload._segments
    data = [draw_bytes(MANY, seed) for seed in range(10)]
    there = []
    for each in data:
        there.append(gpu.to_device(each))
        assert len(segments) <= 2
    for array, each in zip(there, data, strict=True):
        np.testing.assert_array_equal(array.numpy(), each)


def test_results_reuse_the_memory_of_earlier_ones(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    data = [draw_words(seed, 100_000) for seed in range(4)]
    there = [gpu.to_device(each) for each in data]
    first = there[0].numpy()
    assert gpu._session.mapped.find(first) is not None
    address = first.ctypes.data
    del first
    misses = gpu.stats().memory.misses
    for array in there:
        assert array.numpy().ctypes.data == address
    held = [array.numpy() for array in there]
    for result, each in zip(held, data, strict=True):
        np.testing.assert_array_equal(result, each)
    assert len({result.ctypes.data for result in held}) == 4
    assert gpu.stats().memory.misses <= misses + 1


def test_results_are_fetched_when_memory_is_short(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(memory_limit=14 << 20)
    data = draw_words(1, 1 << 20)
    there = gpu.to_device(data)
    for result in [there.numpy() for _ in range(5)]:
        np.testing.assert_array_equal(result, data)


Use = Callable[[gx.PersistentVulkanBackend], None]


def fetch(gpu: gx.PersistentVulkanBackend) -> None:
    there = gpu.to_device(draw_bytes(MANY))
    np.testing.assert_array_equal(there.numpy(), draw_bytes(MANY))


def put_mapped(gpu: gx.PersistentVulkanBackend) -> None:
    there = gpu.to_device(gpu.asarray(draw_bytes(MANY)))
    np.testing.assert_array_equal(there[:100].numpy(), draw_bytes(MANY)[:100])


def compute(gpu: gx.PersistentVulkanBackend) -> None:
    device, a = get_device_memory(gpu), draw_words(1, 1 << 16)
    x = device.put(a)
    for _ in range(5):
        x = submit_sum(device, x, x)
    np.testing.assert_array_equal(x.numpy(), 32 * a)


@pytest.fixture
def either_way(request: pytest.FixtureRequest) -> None:
    if request.param == "staged":
        request.getfixturevalue("not_recycled")


def on_uses(*times: int) -> pytest.MarkDecorator:
    """Every use with recycled and with staged results, and with these numbers of interrupts in
    turn."""
    ways = itertools.product((fetch, put_mapped, compute), ("recycled", "staged"))
    cases = zip(ways, itertools.cycle(times), strict=False)
    return pytest.mark.parametrize(
        ("use", "either_way", "times"),
        [(*way, count) for way, count in cases],
        indirect=["either_way"],
    )


@pytest.mark.usefixtures("in_segments", "either_way")
@on_uses(1, 4, 2)
def test_an_interrupt_frees_nothing_that_the_device_may_use(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, use: Use, times: int
) -> None:
    gpu = fresh_gpu()
    use(gpu)
    for _ in range(3):
        with monkeypatch.context() as patch:
            in_flight = InFlightTracker(gpu, patch)
            interrupt_waits(patch, times)
            with pytest.raises(KeyboardInterrupt):
                use(gpu)
                pytest.fail("no wait was interrupted")
            use_until_not_interrupted(gpu, use, times)
        assert in_flight.touched == []
    gc.collect()
    get_device_memory(gpu).stream.wait()
    assert gpu.stats().memory.bytes_used == gpu.stats().memory.bytes_in_arrays


def use_until_not_interrupted(gpu: gx.PersistentVulkanBackend, use: Use, times: int) -> None:
    for _ in range(times):
        try:
            use(gpu)
        except KeyboardInterrupt:
            continue
        return
    use(gpu)


@pytest.mark.usefixtures("in_segments", "either_way")
@on_uses(1, 3, 3, 1)
def test_an_interrupt_can_be_followed_by_close(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, use: Use, times: int
) -> None:
    before = binding.count_live_objects()
    gpu = fresh_gpu()
    in_flight = InFlightTracker(gpu, monkeypatch)
    interrupt_waits(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        use(gpu)
    interrupt_waits(monkeypatch, times - 1)
    if times > 1:
        with pytest.raises(KeyboardInterrupt):
            gpu.close()
    gpu.close()
    gc.collect()
    assert in_flight.touched == []
    assert binding.count_live_objects() == before


def test_put_runs_at_once_while_a_graph_is_recorded(gpu: gx.PersistentVulkanBackend) -> None:
    device, a, b, large = (
        get_device_memory(gpu),
        draw_words(1),
        draw_words(2),
        draw_words(3, 100_000),
    )
    x = device.put(a)
    with gpu.graph(x) as graph:
        step, more = device.put(b), device.put(large)
        y = submit_sum(device, x, step)
    assert len(graph) == 1
    np.testing.assert_array_equal(step.numpy(), b)
    np.testing.assert_array_equal(more.numpy(), large)
    for _ in range(3):
        graph()
        np.testing.assert_array_equal(y.numpy(), a + b)


def test_cached_values_are_made_at_once_while_a_graph_is_recorded(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    device, a = get_device_memory(gpu), draw_words(1)
    x = device.put(a)

    def table() -> Any:
        made = device.empty(x.shape, x.dtype)
        device.submit([Dispatch(ADD_U32, (x, x, made), x.size)])
        return made

    with gpu.graph(x) as graph:
        y = submit_sum(device, x, device.cache("twice", table))
        z = submit_sum(device, y, device.cache("twice", table))
    assert len(graph) == 2
    np.testing.assert_array_equal(
        device.cache("twice", table).numpy(), 2 * a
    )  # before the graph has run
    graph()
    np.testing.assert_array_equal(z.numpy(), 5 * a)


SCRIPT = """
import numpy as np
import gpu_executor as gx
from gpu_executor.calls.dispatch import ArrayCopy, Dispatch
from gpu_executor.vulkan import transfers
from gpu_executor.vulkan.commands import Recorder

transfers.SEGMENT_BYTES = 65_536
add = gx.kernels.load("vector_add_u32")
with gx.PersistentVulkanBackend() as gpu:
    if not {barriers}:
        Recorder.barrier_all = lambda self: None
    memory = gpu._session.device_memory
    x, step = memory.put(np.ones(50_000, np.uint32)), memory.put(np.arange(50_000, dtype=np.uint32))
    for number in range(10):
        few = memory.put(np.full(1_000, number, np.uint32))
        memory.submit([ArrayCopy(few, x[3_000:4_000])])
        y = memory.empty(x.shape, x.dtype)
        memory.submit([Dispatch(add, (x, step, y), 50_000)])
        x = y
    with gpu.graph(x) as graph:
        memory.submit([Dispatch(add, (x, step, y), 50_000)])
    for _ in range(3):
        graph(step)
    print(len(gpu.validation_messages()), x.numpy()[[0, 3_000, 4_000]].tolist())
"""


@pytest.mark.parametrize("barriers", [True, False])
def test_submissions_have_no_hazards_with_earlier_ones(
    run_python: RunPython, tmp_path: Path, barriers: bool
) -> None:
    """Synchronization validation compares each submission with all earlier ones.

    Without the barriers it reports hazards, so with them it would have found any.
    """
    compared = "VALIDATION_CHECK_ENABLE_SYNCHRONIZATION_VALIDATION_QUEUE_SUBMIT"
    settings = f"{LAYER_SETTINGS.rstrip()},{compared}\n"
    (tmp_path / "vk_layer_settings.txt").write_text(settings)
    script = SCRIPT.format(barriers=barriers)
    done = run_python(script, VK_LAYER_SETTINGS_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    said, values = done.stdout.split(" ", 1)
    assert (int(said) == 0) == barriers
    if barriers:
        assert values == "[0, 6000, 8000]\n"
