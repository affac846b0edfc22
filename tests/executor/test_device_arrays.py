"""Device arrays of an executor: every method takes them, and runs the call on the device that holds
them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ClosedError,
    DeviceNotFoundError,
    GpuError,
    NotSupportedError,
)
from tests.support.contract_kernels import expect_scaled, expect_step, scale, step
from tests.support.executors import ADD, words
from tests.support.jobs import FQ_ADD, TOO_LARGE, field_job

STEP, SCALE = step(), scale()
X, Y = words(1000)


@pytest.fixture(scope="module", params=["vulkan", "cpu"])
def one(request: pytest.FixtureRequest) -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor(request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def two() -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor("vulkan", devices=[0, 0]) as opened:
        yield opened


def locate(executor: gx.GpuExecutor, array: Any) -> int:
    """The index of the device that holds an array."""
    memories = [each.array_device for each in executor._devices]
    return memories.index(array.storage.device)


Way = Callable[..., Any]
WAYS: dict[str, Way] = {
    "run": lambda executor, *arrays, **options: executor.run(ADD, *arrays, **options),
    "submit": lambda executor, *arrays, **options: executor.submit(
        ADD, *arrays, **options
    ).result(),
    "run_async": lambda executor, *arrays, **options: asyncio.run(
        executor.run_async(ADD, *arrays, **options)
    ),
    "run_batch": lambda executor, *arrays, **options: executor.run_batch(
        ADD, [arrays], **wrap_out(options)
    )[0],
    "stream": lambda executor, *arrays, **options: next(
        executor.stream(ADD, [arrays], **wrap_out(options))
    ),
    "map": lambda executor, *arrays, **options: next(
        executor.map(ADD, *([each] for each in arrays), **options)
    ),
}


def wrap_out(options: dict[str, Any]) -> dict[str, Any]:
    return options | ({"out": [options["out"]]} if "out" in options else {})


# --- where results go ---


@pytest.mark.parametrize("way", WAYS)
def test_every_method_takes_and_returns_device_arrays(one: gx.GpuExecutor, way: str) -> None:
    run, there = WAYS[way], one.to_device(X)
    mixed = run(one, there, Y)
    assert isinstance(mixed, gx.DeviceArray)
    np.testing.assert_array_equal(mixed.numpy(), X + Y)
    fetched = run(one, mixed, there, keep=False)
    assert isinstance(fetched, np.ndarray)
    np.testing.assert_array_equal(fetched, X + X + Y)
    kept = run(one, X, Y, keep=True)
    assert isinstance(kept, gx.DeviceArray)
    np.testing.assert_array_equal(kept.numpy(), X + Y)
    assert isinstance(run(one, X, Y), np.ndarray)
    if way == "map":
        return
    target = np.zeros_like(X)
    assert run(one, there, Y, out=target) is target
    np.testing.assert_array_equal(target, X + Y)
    result = one.to_device(np.zeros_like(X))
    assert run(one, X, Y, out=result) is result
    np.testing.assert_array_equal(result.numpy(), X + Y)
    with pytest.raises(ArgumentTypeError, match="keep=False and out= contradict each other"):
        run(one, there, Y, out=result, keep=False)


@pytest.mark.parametrize("way", ["run", "submit", "run_async"])
def test_an_in_out_argument_changes_only_as_out(one: gx.GpuExecutor, way: str) -> None:
    ways: dict[str, Way] = {
        "run": one.run,
        "submit": lambda *given, **options: one.submit(*given, **options).result(),
        "run_async": lambda *given, **options: asyncio.run(one.run_async(*given, **options)),
    }
    x, c = one.to_device(X), one.to_device(Y)
    result = ways[way](STEP, x, c)
    np.testing.assert_array_equal(result.numpy(), expect_step(X, Y))
    fetched = ways[way](STEP, x, c, keep=False)
    np.testing.assert_array_equal(fetched, expect_step(X, Y))
    np.testing.assert_array_equal(x.numpy(), X)
    assert ways[way](STEP, x, c, out=x) is x
    np.testing.assert_array_equal(x.numpy(), expect_step(X, Y))
    with pytest.raises(ArgumentShapeError, match="not its own in-out argument"):
        ways[way](STEP, x, c, out=c)


def test_submitted_calls_keep_the_order_of_the_program(one: gx.GpuExecutor) -> None:
    x, expected = one.to_device(X), X
    futures = []
    for _ in range(5):
        futures.append((one.submit(ADD, x, Y, keep=False), expected + Y))
        one.submit(STEP, x, Y, out=x)
        expected = expect_step(expected, Y)
        futures.append((one.submit(ADD, x, Y), expected + Y))
        one.run(STEP, x, Y, out=x)
        expected = expect_step(expected, Y)
    for future, right in futures:
        np.testing.assert_array_equal(np.asarray(future.result()), right)
    np.testing.assert_array_equal(x.numpy(), expected)


def test_submit_copies_numpy_arrays_and_params_of_a_call_on_device_arrays(
    one: gx.GpuExecutor,
) -> None:
    there, y, params = one.to_device(X), Y.copy(), {"factor": 3, "offset": 5}
    sums = [one.submit(ADD, there, y, keep=keep) for keep in (None, False)]
    scaled = one.submit(SCALE, there, params=params)
    y[...] = 0
    params["factor"] = 0
    for future in sums:
        np.testing.assert_array_equal(np.asarray(future.result()), X + Y)
    np.testing.assert_array_equal(scaled.result().numpy(), expect_scaled(X, 3, 5))


def test_a_submitted_call_on_device_arrays_is_done_at_once(one: gx.GpuExecutor) -> None:
    there = one.to_device(X)
    future = one.submit(ADD, there, Y)
    assert future.done() and not future.cancel()
    seen: list[Any] = []
    one.submit(ADD, there, Y, keep=False).add_done_callback(
        lambda done: seen.append(one.run(ADD, there, done.result(), keep=False))
    )
    end = threading.Event()
    one.submit(ADD, X, Y).add_done_callback(lambda _: end.set())
    assert end.wait(60)
    np.testing.assert_array_equal(seen[0], X + X + Y)
    wrong = one.submit(ADD, there, Y[1:])
    assert isinstance(wrong.exception(), ArgumentShapeError)


def test_batches_may_mix_numpy_jobs_and_jobs_on_device_arrays(one: gx.GpuExecutor) -> None:
    there = one.to_device(X)
    jobs = [(X, Y), (there, Y), (Y, Y), (there, there), (X, X)]
    expected = [X + Y, X + Y, Y + Y, X + X, X + X]
    for results in (
        one.run_batch(ADD, jobs),
        list(one.stream(ADD, jobs)),
        list(one.map(ADD, *zip(*jobs, strict=True))),
    ):
        assert [isinstance(each, gx.DeviceArray) for each in results] == [0, 1, 0, 1, 0]
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(result), right)
    kept = one.run_batch(ADD, jobs, keep=True)
    assert all(isinstance(each, gx.DeviceArray) for each in kept)
    fetched = list(one.stream(ADD, jobs, keep=False))
    assert all(isinstance(each, np.ndarray) for each in fetched)
    out, on_device = np.zeros_like(X), one.to_device(np.zeros_like(X))
    with pytest.raises(ArgumentShapeError, match=r"^job 3: "):
        one.run_batch(ADD, [*jobs[:3], (there, Y[1:])], out=[out, on_device, None, None])
    with (
        gx.CpuBackend() as other,
        pytest.raises(ArgumentTypeError, match=r"^job 2: .*argument 0, a device array"),
    ):
        strange = other.to_device(X)
        one.run_batch(ADD, [(X, Y), (there, Y), (strange, Y)], out=[out, on_device, None])
    assert not np.any(out)
    assert not np.any(on_device.numpy()), "no job has run"
    assert one.run_batch(ADD, [(there, Y)])[0].shape == X.shape


def test_calls_on_device_arrays_from_several_threads(one: gx.GpuExecutor) -> None:
    there, wrong = one.to_device(X), []

    def work(factor: int) -> None:
        for _ in range(20):
            scaled = one.submit(SCALE, there, params=(factor, 1)).result()
            result = one.run(ADD, scaled, Y, keep=False)
            if not np.array_equal(result, expect_scaled(X, factor, 1) + Y):
                wrong.append(factor)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_calls_on_device_arrays_are_counted_and_profiled(one: gx.GpuExecutor) -> None:
    there = one.to_device(X)
    before = one.stats()
    with one.profile() as profile:
        one.run(ADD, there, Y)
        one.submit(ADD, there, Y, keep=False).result()
        one.run_batch(ADD, [(there, Y), (X, Y)])
    after = one.stats()
    assert after.calls == before.calls + 4
    assert after.devices[0].errors == before.devices[0].errors
    assert [span.stage for span in profile.spans].count(ADD.name) == 4
    with pytest.raises(ArgumentShapeError):
        one.run(ADD, there, Y[1:])
    assert one.stats().devices[0].errors == after.devices[0].errors + 1


def test_field_operations_and_graphs_on_arrays_of_an_executor(one: gx.GpuExecutor) -> None:
    field = gx.fields.BABYBEAR
    x = one.to_device(field.encode([1, 2, 3]))
    y = one.to_device(x)
    assert y is x
    with gx.graph(x) as run:
        z = x * x + 5
    run(one.to_device(field.encode([4, 5, 6])))
    assert z.ints().tolist() == [21, 30, 41]

    @gx.graph
    def double(array: gx.DeviceArray) -> Any:
        return one.run(ADD, array, array)

    np.testing.assert_array_equal(double(one.to_device(X)).numpy(), 2 * X)
    np.testing.assert_array_equal(double(one.to_device(Y)).numpy(), 2 * Y)


@pytest.mark.parametrize("way", WAYS)
def test_every_method_is_recorded_in_a_graph(one: gx.GpuExecutor, way: str) -> None:
    x = one.to_device(np.zeros_like(X))
    with one.graph(x) as graph:
        result = WAYS[way](one, x, Y)
        with pytest.raises(GpuError, match="a graph is being recorded"):
            WAYS[way](one, x, Y, keep=False)
    graph(X)
    np.testing.assert_array_equal(result.numpy(), X + Y)


def test_a_fetch_that_was_submitted_before_a_graph_is_not_recorded(one: gx.GpuExecutor) -> None:
    x = one.to_device(X)
    future = one.submit(ADD, x, Y, keep=False)
    with one.graph(x) as graph:
        np.testing.assert_array_equal(future.result(), X + Y)
        one.run(STEP, x, Y, out=x)
    assert len(graph) == 1


def test_late_errors_are_raised_by_a_fetch_and_by_synchronize() -> None:
    with gx.GpuExecutor("vulkan") as executor:
        a, b = field_job(9)
        b[4] = TOO_LARGE
        result = executor.run(FQ_ADD, executor.to_device(a), b)
        with pytest.raises(gx.ElementRangeError, match="element 4 of argument 1"):
            result.numpy()
        result = executor.run(FQ_ADD, executor.to_device(a), b)
        with pytest.raises(gx.ElementRangeError, match="element 4 of argument 1"):
            executor.synchronize()
        future = executor.submit(FQ_ADD, executor.to_device(a), b, keep=False)
        assert isinstance(future.exception(), gx.ElementRangeError)
        assert executor.stats().devices[0].reopened == 0


# --- result checks ---


def test_results_on_the_device_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with gx.GpuExecutor("cpu", check=1.0) as executor:
        there = executor.to_device(X)
        assert isinstance(executor.run(ADD, there, Y), gx.DeviceArray)
        executor.run(STEP, there, Y, out=there)
        assert executor.stats().checked == 2 * X.size
        with executor.graph(there):
            executor.run(ADD, there, Y)
        assert executor.stats().unchecked == 1
        run = gx.CpuBackend.run

        def corrupted(self: gx.CpuBackend, *arguments: Any, **options: Any) -> Any:
            result = run(self, *arguments, **options)
            result[7:8] = np.zeros(1, np.uint32)
            return result

        monkeypatch.setattr(gx.CpuBackend, "run", corrupted)
        with pytest.raises(gx.errors.WrongResultError, match="element 7 of output 0"):
            executor.run(ADD, there, Y)
        with pytest.raises(gx.NoDeviceError, match=r"argument 0.*is quarantined.*fetches it"):
            executor.run(ADD, there, Y)
        np.testing.assert_array_equal(there.numpy(), expect_step(X, Y))


# --- several devices ---


@pytest.mark.parametrize("way", WAYS)
def test_a_call_runs_on_the_device_that_holds_its_arrays(two: gx.GpuExecutor, way: str) -> None:
    for index in (0, 1):
        there = two.to_device(X, index=index)
        before = [each.calls for each in two.stats().devices]
        result = WAYS[way](two, there, Y)
        assert (locate(two, there), locate(two, result)) == (index, index)
        np.testing.assert_array_equal(result.numpy(), X + Y)
        after = [each.calls for each in two.stats().devices]
        assert after[index] == before[index] + 1
        assert after[1 - index] == before[1 - index]
    assert locate(two, WAYS[way](two, X, Y, keep=True)) == 0


@pytest.mark.parametrize("way", WAYS)
def test_arrays_of_two_devices_are_refused_in_words(two: gx.GpuExecutor, way: str) -> None:
    here, there = two.to_device(X, index=0), two.to_device(Y, index=1)
    message = (
        r"argument 0 is on device 0 \(.* by vulkan\), and argument 1, a device array of shape "
        r"\(1000,\) and dtype uint32, is on device 1 .*to_device\(array, index=0\).*copy_to"
    )
    with pytest.raises(ArgumentTypeError, match=message):
        WAYS[way](two, here, there)
    if way != "map":
        with pytest.raises(
            ArgumentTypeError, match=r"argument 0 is on device 0.*out 0, .*device 1"
        ):
            WAYS[way](two, here, X, out=there)
    moved = two.to_device(there, index=0)
    np.testing.assert_array_equal(WAYS[way](two, here, moved).numpy(), X + Y)


def test_a_large_call_on_device_arrays_is_not_shared(two: gx.GpuExecutor) -> None:
    large = np.arange(3 << 20, dtype=np.uint32)
    there = two.to_device(large, index=1)
    before = two.stats().devices[0].calls
    result = two.run(ADD, there, large)
    assert locate(two, result) == 1
    assert two.stats().devices[0].calls == before
    np.testing.assert_array_equal(result.numpy(), 2 * large)


def test_a_small_call_on_device_arrays_does_not_go_to_the_cpu() -> None:
    with gx.GpuExecutor("vulkan", small_on_cpu=True) as executor:
        there = executor.to_device(X[:4])
        for _ in range(3):
            result = executor.run(ADD, there, Y[:4])
            assert isinstance(result, gx.DeviceArray)
            np.testing.assert_array_equal(result.numpy(), (X + Y)[:4])
        assert [each.backend for each in executor.stats().devices] == ["vulkan"]


def test_a_device_is_chosen_by_its_index(two: gx.GpuExecutor) -> None:
    chosen: Any
    for chosen, index in [(None, 0), (0, 0), (1, 1), (np.int64(1), 1)]:
        assert locate(two, two.to_device(X, index=chosen)) == index
    assert locate(two, two.to_device(X, 1)) == 1
    for wrong in (2, -1):
        with pytest.raises(DeviceNotFoundError, match=rf"index={wrong}: there is no .*, 1: "):
            two.to_device(X, index=wrong)
    nonsense: Any
    for nonsense in (True, 1.5, [], "1", two.device.name, np.array([0, 1]), two):
        with pytest.raises(ArgumentTypeError, match=r"index= is an? .*which has 0: .*, 1: "):
            two.to_device(X, index=nonsense)


def test_the_earlier_keyword_for_a_device_names_the_new_one(two: gx.GpuExecutor) -> None:
    calls: dict[str, Callable[..., object]] = {
        "to_device": lambda **more: two.to_device(X, **more),
        "asarray": lambda **more: two.asarray(X, **more),
        "import_array": lambda **more: two.import_array(X, **more),
        "empty": lambda **more: two.empty(3, **more),
        "zeros": lambda **more: two.zeros(3, **more),
    }
    for name, call in calls.items():
        with pytest.raises(
            ArgumentTypeError, match=f"^{name}: the keyword device= is called index= now"
        ):
            call(device=1)


def test_an_array_is_copied_to_another_device_only_where_that_is_asked(
    two: gx.GpuExecutor,
) -> None:
    there = two.to_device(X, index=1)
    assert two.to_device(there) is there
    assert two.to_device(there, index=1) is there
    here = two.to_device(there, index=0)
    assert locate(two, here) == 0
    np.testing.assert_array_equal(here.numpy(), X)
    field = gx.fields.BLS12_381_FR
    elements = two.to_device(field.encode([1, 2, 3]), index=1)
    moved = two.to_device(elements, index=0)
    assert locate(two, moved.data) == 0
    assert (moved * moved).ints().tolist() == [1, 4, 9]


def test_mapped_arrays_are_plain_arrays_for_other_devices(two: gx.GpuExecutor) -> None:
    a, b = two.asarray(X, index=0), two.zeros(X.shape, np.uint32, index=1)
    b[...] = Y
    for index in (0, 1):
        there = two.to_device(np.zeros_like(X), index=index)
        np.testing.assert_array_equal(two.run(ADD, there, a).numpy(), X)
        np.testing.assert_array_equal(two.run(ADD, there, b).numpy(), Y)
    np.testing.assert_array_equal(two.run(ADD, a, b), X + Y)
    out = two.empty(X.shape, np.uint32, index=1)
    assert two.run(ADD, a, b, out=out) is out
    np.testing.assert_array_equal(out, X + Y)
    backends = [each.backend for each in two._devices]
    assert backends[0].asarray(a) is a and backends[1].asarray(a) is not a
    with two.import_array(X.copy(), index=1) as imported:
        np.testing.assert_array_equal(two.run(ADD, imported.array, b), X + Y)


def test_a_graph_belongs_to_the_device_of_its_inputs(two: gx.GpuExecutor) -> None:
    here, there = two.to_device(X, index=0), two.to_device(X, index=1)
    with two.graph(there) as graph:
        result = two.run(ADD, there, Y)
        kept = two.run(ADD, X, Y, keep=True)
        with pytest.raises(GpuError, match=r"recorded on device 1.*a call on device 0 .*cannot be"):
            two.run(ADD, here, Y)
    graph(Y)
    assert locate(two, result) == locate(two, kept) == 1
    np.testing.assert_array_equal(result.numpy(), Y + Y)
    np.testing.assert_array_equal(kept.numpy(), X + Y)
    with pytest.raises(ArgumentTypeError, match=r"input 0 is on device 0 .*input 1, .*on device 1"):
        two.graph(here, there)


def test_explain_describes_calls_on_arrays(two: gx.GpuExecutor) -> None:
    there = two.to_device(X, index=1)
    text = str(two.explain(ADD, there, Y))
    assert "the device arrays are on device 1" in text
    assert "1,000 elements on the device-resident path" in text
    assert "shares of a large call" not in text
    assert "1,000 elements" in str(two.explain(ADD, X, Y))
    assert two.explain(ADD, X, Y) == two.explain(ADD, 1000)
    assert "elements" in str(two.explain(SCALE, X, params={"factor": 1, "offset": 2}))
    with pytest.raises(ArgumentTypeError, match="argument 0 is on device 0"):
        two.explain(ADD, two.to_device(X), there)


# --- arrays of others, and closed executors ---


@pytest.mark.parametrize("way", WAYS)
def test_an_array_of_another_executor_is_refused_and_can_be_copied(
    one: gx.GpuExecutor, way: str
) -> None:
    with gx.GpuExecutor("vulkan") as another:
        foreign = another.to_device(X)
        message = (
            r"argument 0, a device array .* is on .*another executor or backend opened it; copy"
        )
        with pytest.raises(ArgumentTypeError, match=message):
            WAYS[way](one, foreign, Y)
        copied = foreign.copy_to(one)
        np.testing.assert_array_equal(WAYS[way](one, copied, Y).numpy(), X + Y)
    with pytest.raises(ClosedError, match=r"argument 0, a device array .*which is closed"):
        WAYS[way](one, foreign, Y)
    with pytest.raises(ClosedError, match="its elements are gone"):
        one.to_device(foreign)


@pytest.mark.parametrize("way", WAYS)
def test_a_shut_down_executor_refuses_its_own_arrays(way: str) -> None:
    with gx.GpuExecutor("vulkan") as executor:
        there = executor.to_device(X)
    with pytest.raises(ClosedError, match="the executor is shut down; open another one"):
        WAYS[way](executor, there, Y)
    with pytest.raises(ClosedError, match=r"shape \(1000,\) and dtype uint32 .*was closed or lost"):
        there.numpy()


# --- what some devices cannot do ---


def test_an_executor_on_webgpu_has_device_arrays() -> None:
    with gx.GpuExecutor("webgpu") as executor:
        there = executor.to_device(X)
        kept = [
            executor.run(ADD, there, Y),
            executor.run(ADD, X, Y, keep=True),
            executor.submit(ADD, X, Y, keep=True).result(),
            *executor.run_batch(ADD, [(X, Y), (there, Y)], keep=True),
            *executor.stream(ADD, [(X, Y)], keep=True),
            *executor.map(ADD, [X], [Y], keep=True),
        ]
        executor.synchronize()
        for result in kept:
            np.testing.assert_array_equal(result.numpy(), X + Y)
        with executor.graph(there) as run:
            twice = executor.run(ADD, there, there)
        run(Y)
        np.testing.assert_array_equal(twice.numpy(), Y + Y)
        field = gx.fields.BABYBEAR
        assert (
            field.ntt(field.arange(4), device=executor).tolist()
            == field.ntt(field.arange(4)).tolist()
        )
        with pytest.raises(NotSupportedError, match="supported by: vulkan, cpu"):
            executor.import_array(X)
