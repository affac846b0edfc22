"""One suite for every backend: each method of the interface, with exact results where the backend
supports it, and with an error that names the backends that do where it does not."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.backend import BACKENDS, SUPPORTED_BY, Backend
from gpu_executor.device_info import Kind
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    ExportError,
    NotSupportedError,
    SettingsError,
)
from gpu_executor.telemetry.profile import STAGES as PROFILED_STAGES
from gpu_executor.telemetry.stages import STAGES
from tests.conformance.conftest import (
    SWIFTSHADER,
    UNDER_TEST,
    limit_cases,
    list_able,
    open_under_test,
)
from tests.support.contract_kernels import expect_scaled, scale
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, check_sums, field_job, word_jobs

Array = npt.NDArray[Any]
SCALE = scale()
CLOSED = "is (closed|shut down); open another one"


RunAll = Callable[..., list[Any]]
RUN_ALL: list[RunAll] = [
    lambda backend, *arguments, **options: backend.run_batch(*arguments, **options),
    lambda backend, *arguments, **options: list(backend.stream(*arguments, **options)),
]
"""The methods that run many jobs."""


@pytest.fixture(scope="module", params=[*UNDER_TEST, SWIFTSHADER])
def backend(request: pytest.FixtureRequest, gpu: gx.PersistentVulkanBackend) -> Iterator[Backend]:
    with open_under_test(request.param) as opened:
        yield opened


def words(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32)


# --- every method ---


def check_device(backend: Backend) -> None:
    info = backend.device
    assert info.name
    assert info.kind in get_args(Kind)
    assert info.index >= 0
    assert info.limits.max_storage_buffer_range >= 1 << 27
    assert min(info.limits.max_work_group_count) >= 65_535
    assert info.as_dict()["name"] == info.name


def check_run(backend: Backend) -> None:
    a, b = word_jobs(70)[0]
    check_sums([backend.run(ADD_U32, a, b)], [(a, b)])
    target = np.zeros_like(a)
    assert backend.run(ADD_U32, a, b, out=target, keep=False) is target
    check_sums([target], [(a, b)])
    scaled = backend.run(SCALE, a, params={"factor": 3, "offset": 5})
    np.testing.assert_array_equal(scaled, expect_scaled(a, 3, 5))
    assert backend.run(ADD_U32, [1, 2], [30, 40]).tolist() == [31, 42]


def check_keep(backend: Backend) -> None:
    a, b = word_jobs(70)[0]
    kept = backend.run(ADD_U32, a, b, keep=True)
    assert isinstance(kept, gx.DeviceArray)
    a += 1  # the result is that of the values at the time of the call
    np.testing.assert_array_equal(kept.numpy(), a - 1 + b)
    again = backend.run(ADD_U32, kept, b, keep=True)
    np.testing.assert_array_equal(again.numpy(), a - 1 + b + b)
    with pytest.raises(ArgumentTypeError, match="keep=True and out= contradict each other"):
        backend.run(ADD_U32, a, b, out=np.empty_like(a), keep=True)
    for run_all in RUN_ALL:
        check_keep_of_jobs(backend, run_all)


def check_keep_of_jobs(backend: Backend, run_all: RunAll) -> None:
    jobs = word_jobs(70, 1, 300, 0)
    kept = run_all(backend, ADD_U32, jobs, keep=True)
    assert all(isinstance(each, gx.DeviceArray) for each in kept)
    check_sums([each.numpy() for each in kept], jobs)
    there = [(backend.to_device(a), b) for a, b in jobs]
    stays = run_all(backend, ADD_U32, there)
    assert all(isinstance(each, gx.DeviceArray) for each in stays)
    fetched = run_all(backend, ADD_U32, [*there[:2], *jobs[2:]], keep=False)
    assert all(type(each) is np.ndarray for each in fetched)
    check_sums(fetched, jobs)
    outs = [np.zeros_like(a) for a, _ in jobs]
    assert run_all(backend, ADD_U32, there, keep=False, out=outs)[2] is outs[2]
    check_sums(outs, jobs)
    with pytest.raises(ArgumentTypeError, match=r"^job 0: .*keep=True and out= contradict each"):
        run_all(backend, ADD_U32, jobs, keep=True, out=outs)
    on_device = [backend.to_device(a) for a, _ in jobs]
    with pytest.raises(ArgumentTypeError, match=r"^job 0: .*keep=False and out= contradict each"):
        run_all(backend, ADD_U32, jobs, keep=False, out=on_device)
    elements = [field_job(9, seed) for seed in range(3)]
    elements[2][1][4] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError, match=r"^job 2: .*element 4") as caught:
        run_all(backend, FQ_ADD, [(backend.to_device(a), b) for a, b in elements], keep=False)
    assert caught.value.job == 2
    field = gx.fields.BABYBEAR
    add = gx.kernels.load("babybear_add")
    pairs = [(field.encode([1, 2]), field.encode([3, 4]))]
    (element_sum,) = run_all(backend, add, pairs, keep=True)
    assert element_sum.on_device
    assert element_sum.ints().tolist() == [4, 6]
    (element_sum,) = run_all(backend, add, [tuple(map(backend.to_device, pairs[0]))], keep=False)
    assert not element_sum.on_device
    assert element_sum.ints().tolist() == [4, 6]


def check_run_batch(backend: Backend) -> None:
    jobs = word_jobs(70, 1, 300, 0)
    check_sums(backend.run_batch(ADD_U32, iter(jobs)), jobs)
    outs = [np.zeros_like(a) for a, _ in jobs]
    results = backend.run_batch(ADD_U32, jobs, out=outs)
    assert all(result is out for result, out in zip(results, outs, strict=True))
    check_sums(outs, jobs)
    found = backend.run_batch(SCALE, [(a,) for a, _ in jobs], params=[(n, 7) for n in range(4)])
    for factor, (result, (a, _)) in enumerate(zip(found, jobs, strict=True)):
        np.testing.assert_array_equal(result, expect_scaled(a, factor, 7))
    assert backend.run_batch(ADD_U32, []) == []


def check_stream(backend: Backend) -> None:
    jobs = word_jobs(70, 1, 300, 0)
    check_sums(list(backend.stream(ADD_U32, iter(jobs))), jobs)
    outs = [np.zeros_like(a) for a, _ in jobs]
    results = list(backend.stream(ADD_U32, jobs, out=iter(outs)))
    assert all(result is out for result, out in zip(results, outs, strict=True))
    check_sums(outs, jobs)
    arrays = [(a,) for a, _ in jobs]
    found = backend.stream(SCALE, arrays, params=[(factor, 7) for factor in range(4)])
    for factor, (result, (a, _)) in enumerate(zip(found, jobs, strict=True)):
        np.testing.assert_array_equal(result, expect_scaled(a, factor, 7))


def check_run_field_add(backend: Backend) -> None:
    job = field_job(9)
    check_sums([backend.run_field_add(*job)], [job])


def check_explain(backend: Backend) -> None:
    a, calls = words(1234), backend.stats().calls
    by_arrays, by_count = backend.explain(ADD_U32, a, a), backend.explain(ADD_U32, 1234)
    assert isinstance(by_arrays, gx.Plan)
    assert by_arrays == by_count
    assert str(by_arrays) == str(by_count)
    assert "1,234 elements" in str(by_arrays)
    with pytest.raises(ArgumentTypeError, match=r"a plan is not a text; .* in str"):
        assert "1,234 elements" in by_arrays
    assert backend.stats().calls == calls
    with pytest.raises(ArgumentShapeError, match="argument 1 has elements in shape"):
        backend.explain(ADD_U32, a, a[1:])
    with pytest.raises(ArgumentShapeError, match="the number of elements is -1"):
        backend.explain(ADD_U32, -1)


def check_stats(backend: Backend) -> None:
    a, b = word_jobs(70)[0]
    backend.run(ADD_U32, a, b)
    before = backend.stats()
    backend.run(ADD_U32, a, b)
    after = backend.stats()
    assert after.device == backend.device.name
    assert after.calls == before.calls + 1
    assert after.elements == before.elements + 70
    assert after.chunks == before.chunks + 1
    assert list(after.seconds_by_stage) == list(STAGES)
    assert after.seconds_by_stage["compute"] > before.seconds_by_stage["compute"]
    assert after.bytes_held >= 0
    use = after.memory_use
    assert after.bytes_held <= sum(use.in_use.values()) + use.bytes_idle + use.fragments
    metrics = {name for name, _, _ in after.read_metrics()}
    assert metrics >= {"backend_calls_total", "elements_total", "stage_seconds_total"}


def check_profile(backend: Backend) -> None:
    a, b = word_jobs(70)[0]
    with backend.profile() as profile:
        backend.run(ADD_U32, a, b)
        with pytest.raises(gx.GpuError, match="is being profiled already"), backend.profile():
            pass
    backend.run(ADD_U32, a, b)
    stages = profile.stages()
    assert tuple(stages) == PROFILED_STAGES
    assert stages["compute"] > 0
    computed = [span for span in profile.spans if span.stage == "compute"]
    assert len(computed) == 1
    assert computed[0].nanoseconds / 1e9 == pytest.approx(stages["compute"])


def check_trim(backend: Backend) -> None:
    a, b = word_jobs(70)[0]
    backend.run(ADD_U32, a, b)
    assert backend.trim() >= 0
    assert backend.trim() == 0
    assert backend.stats().memory_use.bytes_idle == 0
    check_sums([backend.run(ADD_U32, a, b)], [(a, b)])


def check_empty(backend: Backend) -> None:
    made = backend.empty((3, 4), np.uint32)
    assert (made.shape, made.flags.writeable) == ((3, 4), True)
    assert made.dtype == np.uint32
    assert backend.empty(5).dtype == np.empty(5).dtype == np.float64
    with pytest.raises(ArgumentShapeError, match="negative extent"):
        backend.empty(-1)
    with pytest.raises(ArgumentTypeError, match="only numeric dtypes"):
        backend.empty(5, object)


def check_zeros(backend: Backend) -> None:
    for _ in range(3):
        assert backend.zeros(2).dtype == np.zeros(2).dtype == np.float64
        made = backend.zeros((3, 4), np.uint32)
        assert made.tolist() == [[0] * 4] * 3
        made[...] = 7
        assert backend.run(ADD_U32, made, made, out=made) is made
        assert made.tolist() == [[14] * 4] * 3


def check_asarray(backend: Backend) -> None:
    given = words(12).reshape(3, 4)
    made = backend.asarray(given.astype(">u4").T)
    np.testing.assert_array_equal(made, given.T)
    assert made.dtype == np.uint32
    assert made.flags.c_contiguous
    assert backend.asarray(made) is made
    assert backend.asarray(3.5).shape == ()
    assert backend.asarray([1, 2]).tolist() == [1, 2]
    with pytest.raises(ArgumentTypeError, match="asarray: the array has dtype object"):
        backend.asarray(np.array([None]))


def check_import_array(backend: Backend) -> None:
    given = words(5000)
    with backend.import_array(given) as imported:
        assert imported.array is given
        np.testing.assert_array_equal(backend.run(ADD_U32, given, given), 2 * given)
    with pytest.raises(ArgumentTypeError, match="import_array: the argument is a list"):
        backend.import_array([1, 2])  # type: ignore[arg-type]


def check_to_device(backend: Backend) -> None:
    given = words(12).reshape(3, 4)
    there = backend.to_device(given.T)
    expected = given.T.copy()
    given += 1
    assert isinstance(there, gx.DeviceArray)
    assert there.shape == (4, 3)
    assert there.dtype == np.uint32
    np.testing.assert_array_equal(there.numpy(), expected)
    field = gx.fields.BABYBEAR
    elements = backend.to_device(field.encode([1, 2, 3]))
    assert elements.on_device
    assert (elements * elements).ints().tolist() == [1, 4, 9]
    with pytest.raises(ArgumentTypeError, match="to_device: the array has dtype object"):
        backend.to_device(np.array([None]))


def check_empty_device(backend: Backend) -> None:
    made = backend.empty_device((3, 4), np.uint32)
    assert isinstance(made, gx.DeviceArray)
    assert (made.shape, made.dtype.name) == ((3, 4), "uint32")
    made[...] = words(12).reshape(3, 4)
    np.testing.assert_array_equal(made.numpy(), words(12).reshape(3, 4))
    assert backend.empty_device(5).dtype == np.float64
    with pytest.raises(ArgumentShapeError, match="negative extent"):
        backend.empty_device(-1)
    with pytest.raises(ArgumentTypeError, match="only numeric dtypes"):
        backend.empty_device(5, object)


def check_export(backend: Backend) -> None:
    try:
        made = backend.empty_device(5, np.uint32, export=True)
    except ExportError as error:
        # Software devices are no CUDA devices: tests/cuda has what is shared there.
        assert backend.device.kind == "cpu", error
        assert "cannot share memory" in str(error) or "CUDA" in str(error)
        return
    made[...] = words(5)
    if backend.name == "cpu":
        given: Any = made
        shared = np.from_dlpack(given)
        np.testing.assert_array_equal(shared, words(5))
        made[...] = words(5, 1)
        np.testing.assert_array_equal(shared, words(5, 1))


def check_from_dlpack(backend: Backend) -> None:
    given = words(12).reshape(3, 4)
    for source in (given, given.T, given[:, ::-2], OnlyDlpack(given)):
        expected = np.from_dlpack(source).copy() if isinstance(source, OnlyDlpack) else source
        np.testing.assert_array_equal(backend.from_dlpack(source).numpy(), expected)
    with pytest.raises(ArgumentTypeError, match="a list has no __dlpack__"):
        backend.from_dlpack([1, 2])
    with pytest.raises(ArgumentTypeError, match="is a device array; gpu"):
        backend.from_dlpack(backend.to_device(given))
    with pytest.raises(ExportError, match=r"on DLPack's device \(10, 3\)"):
        backend.from_dlpack(OnlyDlpack(given, (10, 3)))


class OnlyDlpack:
    """An array of another library."""

    def __init__(self, array: Array, device: tuple[int, int] = (1, 0)) -> None:
        self._array, self._device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def check_streams(method: str) -> Callable[[Backend], None]:
    def check(backend: Backend) -> None:
        try:
            getattr(backend, method)(0)
        except ExportError:
            assert backend.device.kind == "cpu"
        with pytest.raises(ArgumentTypeError, match="'mine' is no CUDA stream"):
            getattr(backend, method)("mine")

    return check


def check_array_device(backend: Backend) -> None:
    holder = backend.array_device
    if backend.name not in list_able("to_device"):
        assert holder is None
        return
    assert holder is not None
    there = backend.to_device(words(3))
    assert there.storage.device is holder
    assert not holder.closed
    assert not holder.is_recording
    with backend.graph(there):
        assert holder.is_recording


def check_array_devices(backend: Backend) -> None:
    first, found = backend.array_device, backend.array_devices
    assert found == () if first is None else found[0] is first


def check_synchronize(backend: Backend) -> None:
    field = gx.fields.BABYBEAR
    backend.synchronize()
    product = backend.to_device(field.encode([2, 3])) * 5
    backend.synchronize()
    assert product.ints().tolist() == [10, 15]


def check_graph(backend: Backend) -> None:
    with pytest.raises(ArgumentTypeError, match="device arrays, not ndarray"):
        backend.graph(np.ones(3))
    field = gx.fields.BABYBEAR
    x, y = (backend.to_device(field.encode(values)) for values in ([1, 2], [3, 4]))
    with backend.graph(x, y) as run:
        z = x * y + 5
    assert len(run) > 0
    run()
    assert z.ints().tolist() == [8, 13]
    run(*(backend.to_device(field.encode(values)) for values in ([10, 20], [3, 4])))
    assert z.ints().tolist() == [35, 85]
    with pytest.raises(ArgumentTypeError, match="the graph has 2 inputs and got 1"):
        run(x)


def check_warm_up(backend: Backend) -> None:
    seen: list[tuple[int, int]] = []
    keccak, rows = gx.hashes.KECCAK256, np.zeros((3, 32), np.uint8)
    count = backend.warm_up("hash", keccak, progress=lambda done, total: seen.append((done, total)))
    assert (count > 0) == (backend.name != "cpu")
    assert seen[-1:] == [(count, count)][: len(seen)]
    assert seen == sorted(seen)
    there = backend.to_device(rows)
    assert keccak.hash(there).numpy().tolist() == keccak.hash(rows).tolist()
    with pytest.raises(ArgumentValueError, match="no work 'sort'; there are field, transform, "):
        backend.warm_up("sort", keccak)
    with pytest.raises(ArgumentValueError, match=r"there is no work \['msm'\]"):
        backend.warm_up(["msm"], keccak)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="'msm' takes a Curve, not a ByteHash"):
        backend.warm_up("msm", keccak)
    with pytest.raises(ArgumentTypeError, match="progress= is an int; it takes a function"):
        backend.warm_up("hash", keccak, progress=5)  # type: ignore[arg-type]


def check_close(backend: Backend) -> None:
    with open_under_test(backend.name) as another:
        pass
    another.close()
    a = words(5)
    uses: list[Callable[[], object]] = [
        lambda: another.run(ADD_U32, a, a),
        lambda: another.run_batch(ADD_U32, [(a, a)]),
        lambda: another.stream(ADD_U32, [(a, a)]),
        lambda: another.explain(ADD_U32, 5),
        lambda: another.run_field_add(*field_job(2)),
        another.trim,
    ]
    supported: dict[str, Callable[[], object]] = {
        "profile": another.profile,
        "empty": lambda: another.empty(5),
        "zeros": lambda: another.zeros(5),
        "asarray": lambda: another.asarray(a),
        "import_array": lambda: another.import_array(a),
        "empty_device": lambda: another.empty_device(5),
        "export=True": lambda: another.empty_device(5, export=True),
        "to_device": lambda: another.to_device(a),
        "from_dlpack": lambda: another.from_dlpack(a),
        "wait_for_stream": lambda: another.wait_for_stream(0),
        "make_stream_wait": lambda: another.make_stream_wait(0),
        "synchronize": another.synchronize,
        "graph": another.graph,
        "warm_up": lambda: another.warm_up("hash", gx.hashes.KECCAK256),
    }
    uses += [use for method, use in supported.items() if backend.name in list_able(method)]
    for use in uses:
        with pytest.raises(ClosedError, match=CLOSED):
            use()
    assert another.stats().calls == 0
    assert another.device.name == backend.device.name


CHECKS: dict[str, Callable[[Backend], None]] = {
    "device": check_device,
    "run": check_run,
    "keep=True": check_keep,
    "run_batch": check_run_batch,
    "stream": check_stream,
    "run_field_add": check_run_field_add,
    "explain": check_explain,
    "stats": check_stats,
    "profile": check_profile,
    "trim": check_trim,
    "empty": check_empty,
    "zeros": check_zeros,
    "asarray": check_asarray,
    "import_array": check_import_array,
    "empty_device": check_empty_device,
    "export=True": check_export,
    "to_device": check_to_device,
    "from_dlpack": check_from_dlpack,
    "wait_for_stream": check_streams("wait_for_stream"),
    "make_stream_wait": check_streams("make_stream_wait"),
    "array_device": check_array_device,
    "array_devices": check_array_devices,
    "synchronize": check_synchronize,
    "graph": check_graph,
    "warm_up": check_warm_up,
    "close": check_close,
}


@pytest.mark.parametrize("method", CHECKS)
def test_a_method_works_or_names_the_backends_that_have_it(backend: Backend, method: str) -> None:
    able = SUPPORTED_BY.get(method, tuple(BACKENDS))
    if backend.name in list_able(method):
        CHECKS[method](backend)
        return
    with pytest.raises(NotSupportedError) as caught:
        CHECKS[method](backend)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.asked, error.backend, error.able) == (method, backend.name, able)
    assert str(error) == (
        f"{method} is not supported by the backend {backend.name!r}; "
        f"supported by: {', '.join(able)}"
    )


def test_every_method_of_the_interface_is_checked() -> None:
    public = {name for name in vars(Backend) if not name.startswith("_")} - {"name"}
    assert public == CHECKS.keys() - {"keep=True", "export=True"}
    assert SUPPORTED_BY.keys() <= CHECKS.keys()


def test_every_backend_implements_the_whole_interface(backend: Backend) -> None:
    assert isinstance(backend, Backend)
    assert not type(backend).__abstractmethods__
    if backend.name in BACKENDS:
        assert BACKENDS[backend.name].endswith(f":{type(backend).__name__}")


def test_a_backend_that_lacks_a_method_cannot_be_made() -> None:
    class Incomplete(gx.CpuBackend):
        trim = Backend.trim

    with pytest.raises(TypeError, match=r"abstract method '?trim"):
        Incomplete()


def test_where_there_are_no_device_arrays_every_call_refuses_keep(backend: Backend) -> None:
    if backend.name in list_able("keep=True"):
        return
    a = words(5)
    uses: list[Callable[[bool], object]] = [
        lambda keep: backend.run(ADD_U32, a, a, keep=keep),
        lambda keep: backend.run_batch(ADD_U32, [(a, a)], keep=keep),
        lambda keep: list(backend.stream(ADD_U32, [(a, a)], keep=keep)),
    ]
    for use in uses:
        with pytest.raises(NotSupportedError, match="keep=True is not supported by"):
            use(True)
        use(False)
    with pytest.raises(NotSupportedError):  # at once, not when the first result is taken
        backend.stream(ADD_U32, [(a, a)], keep=True)


# --- profiles ---


def test_a_profile_writes_its_trace(backend: Backend, tmp_path: Path) -> None:
    if backend.name not in list_able("profile"):
        return
    a = words(70)
    with backend.profile(trace=tmp_path / "trace.json"):
        backend.run(ADD_U32, a, a)
    assert '"compute"' in (tmp_path / "trace.json").read_text()
    with pytest.raises(SettingsError, match="cannot be written"):
        backend.profile(trace=tmp_path / "absent" / "trace.json")
    with backend.profile():  # the refused profile is not active
        pass


# --- streams: the same rules on every backend ---


class CountedJobs:
    """Jobs without end; counts those that were read."""

    def __init__(self, job: tuple[Array, Array]) -> None:
        self.job, self.count = job, 0

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        while True:
            self.count += 1
            yield self.job


def test_a_stream_reads_a_bounded_number_of_jobs_ahead(backend: Backend) -> None:
    job = word_jobs(70)[0]
    counted = CountedJobs(job)
    stream = backend.stream(ADD_U32, counted)
    assert counted.count == 0
    for taken in limit_cases(backend, [1, 2, 3, 1]):
        check_sums([next(stream)], [job])
        assert counted.count <= taken + 16
    stream.close()
    read = counted.count
    assert list(stream) == []
    assert counted.count == read
    check_sums([backend.run(ADD_U32, *job)], [job])


def test_an_invalid_job_of_a_stream_is_refused_by_its_index(backend: Backend) -> None:
    a, b = word_jobs(70)[0]
    stream = backend.stream(ADD_U32, [(a, b), (a, b.astype(np.float32)), (a, b)])
    with pytest.raises(ArgumentTypeError, match=r"^job 1: .*argument 1 has dtype float32"):
        list(stream)
    assert list(stream) == []
    with pytest.raises(ArgumentTypeError, match=r"^job 0: a job is a tuple of arrays"):
        list(backend.stream(ADD_U32, [a]))  # type: ignore[list-item]


def test_an_invalid_job_of_a_batch_is_refused_by_its_index(backend: Backend) -> None:
    a, b = word_jobs(70)[0]
    outs = [np.zeros_like(a) for _ in range(2)]
    with pytest.raises(ArgumentTypeError, match=r"^job 1: .*argument 1 has dtype float32"):
        backend.run_batch(ADD_U32, [(a, b), (a, b.astype(np.float32))], out=outs)
    assert not np.any(outs)


@pytest.mark.parametrize("method", ["run_batch", "stream"])
def test_an_element_out_of_range_is_named_by_its_job(backend: Backend, method: str) -> None:
    jobs = [field_job(9, seed) for seed in range(3)]
    jobs[2][1][4] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError, match=r"^job 2: ") as caught:
        list(getattr(backend, method)(FQ_ADD, jobs))
    assert (caught.value.job, caught.value.argument, caught.value.index) == (2, 1, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"out": [np.zeros(70, np.uint32)]}, "job 1: out has no array for it"),
        ({"params": [None]}, "job 1: params has no entry for it"),
    ],
)
def test_a_stream_needs_an_out_and_params_for_each_job(
    backend: Backend, options: dict[str, Any], message: str
) -> None:
    jobs = [word_jobs(70)[0]] * 2
    with pytest.raises(ArgumentTypeError, match=message):
        list(backend.stream(ADD_U32, jobs, **options))


@pytest.mark.parametrize("options", [{"jobs": 5}, {"jobs": [], "out": 5}])
def test_a_stream_refuses_what_it_cannot_iterate_at_once(
    backend: Backend, options: dict[str, Any]
) -> None:
    with pytest.raises(ArgumentTypeError, match="is an int; it must be an iterable"):
        backend.stream(ADD_U32, **options)


def test_an_array_of_out_may_come_again_after_its_result_was_taken(backend: Backend) -> None:
    jobs, target = word_jobs(70, 70, 70), [np.zeros(70, np.uint32) for _ in range(40)]
    outs = (target[number % 40] for number in range(120))
    repeated = limit_cases(backend, [jobs * 40, jobs])
    (chosen,) = repeated[:1]
    for result, job in zip(backend.stream(ADD_U32, chosen, out=outs), chosen, strict=True):
        check_sums([result], [job])


def test_an_error_of_the_iterable_ends_the_stream(backend: Backend) -> None:
    job = word_jobs(70)[0]

    def jobs() -> Iterator[Any]:
        yield job
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        list(backend.stream(ADD_U32, jobs()))
    check_sums([backend.run(ADD_U32, *job)], [job])


@pytest.mark.parametrize("use", [next, lambda stream: stream.close()], ids=["next", "close"])
def test_a_stream_that_is_used_inside_its_own_iterable_says_so(
    backend: Backend, use: Callable[[Any], Any]
) -> None:
    streams: list[Any] = []

    def jobs() -> Iterator[Any]:
        yield word_jobs(70)[0]
        use(streams[0])

    streams.append(backend.stream(ADD_U32, jobs()))
    with pytest.raises(gx.GpuError, match="the stream is being read, in another thread or by"):
        list(streams[0])


def test_closing_the_backend_inside_the_iterable_ends_the_stream(backend: Backend) -> None:
    a, b = word_jobs(70)[0]
    with open_under_test(backend.name) as another:

        def jobs() -> Iterator[Any]:
            yield a, b
            another.close()
            yield a, b

        with pytest.raises(ClosedError, match=CLOSED):
            list(another.stream(ADD_U32, jobs()))
