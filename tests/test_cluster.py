"""Several machines: a real Ray cluster of two nodes, both on this one, and actors that die."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import gc
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import ray
from ray.cluster_utils import Cluster

import gpu_executor as gx
from conftest import RunPython, ValidationMessages
from gpu_executor.cluster.places import Place, find_places
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ClosedError,
    ElementRangeError,
    NoDeviceError,
    QueueFullError,
    SettingsError,
    WrongResultError,
)
from jobs import ADD_U32, TOO_LARGE, check_sums, field_job, field_jobs, word_jobs

Array = npt.NDArray[Any]
RayExecutor = gx.cluster.RayExecutor
Reference = Callable[..., Any]
FQ_ADD = gx.kernels.load("bls12_381_fq_add")
SMALL, LARGE = 1000, 200_000
"""Elements that travel in a message, and that go through the object store."""
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 200 << 20}
# A node that is gone is missed after 2 s, not 15.
HEAD = {
    "include_dashboard": False,
    "_system_config": {"health_check_period_ms": 250, "health_check_failure_threshold": 8},
}
PATIENCE = 30.0


@pytest.fixture(scope="module")
def two_nodes(validation_messages: ValidationMessages) -> Iterator[Cluster]:
    """Ray's own way to have several nodes on one machine: each with its processes and its store."""
    cluster = Cluster(initialize_head=True, head_node_args=NODE | HEAD)
    cluster.add_node(**NODE)
    ray.init(address=cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def vulkan(two_nodes: Cluster) -> Iterator[RayExecutor]:
    """An actor on each node. When tests kill one, another comes, so all of them share it."""
    with gx.cluster.RayExecutor("vulkan") as executor:
        yield executor


@pytest.fixture(scope="module")
def cpus(two_nodes: Cluster) -> Iterator[RayExecutor]:
    """The same, but what runs are references, which may do anything a test needs."""
    with gx.cluster.RayExecutor("cpu") as executor:
        yield executor


@pytest.fixture(scope="module")
def narrow(two_nodes: Cluster) -> Iterator[RayExecutor]:
    """The same with three calls in flight for each actor."""
    with gx.cluster.RayExecutor("cpu", in_flight=3) as executor:
        yield executor


def referring(reference: Reference) -> gx.Kernel:
    return dataclasses.replace(ADD_U32, reference=reference)


def gated(folder: Path) -> gx.Kernel:
    """Adds when the file `open` is there, and notes each call that began."""

    def add(a: Array, b: Array) -> Array:
        (folder / f"began-{time.monotonic_ns()}").touch()
        while not (folder / "open").exists():
            time.sleep(0.005)
        return a + b

    return referring(add)


def once(folder: Path, act: Callable[[], object]) -> gx.Kernel:
    """Adds, but does something else the first time that an element is 13."""

    def add(a: Array, b: Array) -> Array:
        if 13 in a:
            with contextlib.suppress(FileExistsError):
                (folder / "done").touch(exist_ok=False)
                act()
        return a + b

    return referring(add)


def pair(value: int, count: int = 4) -> tuple[Array, Array]:
    return np.full(count, value, np.uint32), np.arange(count, dtype=np.uint32)


def until(condition: Callable[[], bool]) -> None:
    """Waits for what another process does."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def pids(executor: RayExecutor) -> list[int]:
    """Of its actors, when all are there."""
    until(lambda: all(post.pid for post in executor.stats().posts))
    return [post.pid or 0 for post in executor.stats().posts]


def deaths(executor: RayExecutor) -> int:
    return sum(post.deaths for post in executor.stats().posts)


# --- results ---


def test_an_actor_on_every_node_has_the_device_there(vulkan: RayExecutor) -> None:
    posts = vulkan.stats().posts
    assert {post.node for post in posts} == {node["NodeID"] for node in ray.nodes()}
    assert [post.device for post in posts] == [gx.devices()[0].name] * 2
    assert len(set(pids(vulkan)) | {os.getpid()}) == 3


@pytest.mark.parametrize("count", [0, 1, SMALL, LARGE])
def test_a_run_is_exact(vulkan: RayExecutor, count: int) -> None:
    for job in (word_jobs(count)[0], field_job(min(count, SMALL))):
        kernel = ADD_U32 if job[0].dtype == np.uint32 else FQ_ADD
        check_sums([vulkan.run(kernel, *job)], [job])


def test_other_backends_take_arrays_from_the_store(two_nodes: Cluster, cpus: RayExecutor) -> None:
    strided = np.arange(2 * LARGE, dtype=np.uint32).reshape(2, LARGE)[:, ::2]
    jobs = [*word_jobs(SMALL, LARGE, LARGE), (strided, strided)]
    with gx.cluster.RayExecutor("webgpu") as webgpu:
        for executor in (webgpu, cpus):
            check_sums(executor.run_batch(ADD_U32, jobs), jobs)


def test_several_outputs_come_as_a_tuple(cpus: RayExecutor) -> None:
    assert ADD_U32.types is not None
    kernel = dataclasses.replace(
        referring(lambda a, b: (a + b, a - b)), outputs=2, types=(*ADD_U32.types, ADD_U32.types[0])
    )
    jobs = word_jobs(*[SMALL] * 20, LARGE)
    outs = [(np.empty_like(a), np.empty_like(a)) for a, _ in jobs]
    for results in (cpus.run_batch(kernel, jobs), cpus.run_batch(kernel, jobs, out=outs)):
        check_sums([total for total, _ in results], jobs)
        for (_, difference), (a, b) in zip(results, jobs, strict=True):
            np.testing.assert_array_equal(difference, a - b)
    assert not any(each.flags.writeable for each in cpus.run(kernel, *jobs[0]))


def test_a_batch_comes_in_order_and_from_both(vulkan: RayExecutor) -> None:
    before = [post.answered for post in vulkan.stats().posts]
    jobs = field_jobs(*(1 + number % 7 for number in range(300)))
    check_sums(vulkan.run_batch(FQ_ADD, jobs), jobs)
    jobs = word_jobs(*[LARGE] * 20)
    check_sums(vulkan.run_batch(ADD_U32, jobs), jobs)
    after = [post.answered for post in vulkan.stats().posts]
    assert sum(after) - sum(before) == 320
    assert all(now > then for now, then in zip(after, before, strict=True))
    assert vulkan.stats().unanswered == vulkan.stats().unanswered_bytes == 0


def test_kernels_may_be_mixed(vulkan: RayExecutor) -> None:
    words, fields = word_jobs(*[SMALL] * 20), field_jobs(*[30] * 20)
    futures = [
        vulkan.submit(kernel, *job)
        for both in zip(words, fields, strict=True)
        for kernel, job in zip((ADD_U32, FQ_ADD), both, strict=True)
    ]
    results = [future.result(PATIENCE) for future in futures]
    check_sums(results[::2], words)
    check_sums(results[1::2], fields)


def test_a_map_is_lazy_and_ordered(vulkan: RayExecutor) -> None:
    jobs = word_jobs(*range(1, 200))
    check_sums(list(vulkan.map(ADD_U32, *zip(*jobs, strict=True), chunksize=16)), jobs)
    endless = vulkan.map(ADD_U32, *zip(*jobs, strict=True), buffersize=3)
    check_sums(list(itertools.islice(endless, 5)), jobs[:5])


def test_results_are_read_only_whatever_their_size(vulkan: RayExecutor) -> None:
    """One that is large is a view of the object store, and holds it when the reference is gone."""
    jobs = word_jobs(1, SMALL, LARGE)
    results = vulkan.run_batch(ADD_U32, jobs)
    assert not any(result.flags.writeable for result in results)
    assert not results[2].flags.owndata
    gc.collect()
    check_sums(results, jobs)


def test_out_is_written_and_returned(vulkan: RayExecutor) -> None:
    jobs = word_jobs(SMALL, LARGE)
    outs = [np.empty_like(a) for a, _ in jobs]
    results = vulkan.run_batch(ADD_U32, jobs, out=outs)
    assert all(result is out for result, out in zip(results, outs, strict=True))
    check_sums(outs, jobs)


def test_references_are_read_where_they_are(vulkan: RayExecutor) -> None:
    """One array for many calls is stored once."""
    a, b = word_jobs(LARGE)[0]
    stored = ray.put(a)
    results = vulkan.run_batch(ADD_U32, [(stored, b)] * 4)
    check_sums(results, [(a, b)] * 4)
    with pytest.raises(ArgumentTypeError, match="shapes of references"):
        vulkan.run(ADD_U32, stored, b, out=np.empty_like(b))
    with pytest.raises(ArgumentTypeError, match="argument 1 is a list"):
        vulkan.run(ADD_U32, stored, [1])


def test_actors_read_large_arrays_without_a_copy(cpus: RayExecutor) -> None:
    def owned(a: Array, b: Array) -> Array:
        writable = a.flags.writeable or b.flags.writeable
        return np.full_like(a, writable or a.flags.owndata or b.flags.owndata)

    assert not cpus.run(referring(owned), *word_jobs(LARGE)[0]).any()


def test_a_kernel_travels_once_to_each_actor(cpus: RayExecutor, tmp_path: Path) -> None:
    def arrived() -> Reference:
        (tmp_path / str(time.monotonic_ns())).touch()
        return lambda a, b: a + b

    class Noted:
        def __reduce__(self) -> Any:
            return arrived, ()

        def __call__(self, *_arrays: Array) -> Any:
            raise AssertionError("this one stays here")

    kernel, jobs = referring(Noted()), word_jobs(*[LARGE] * 10)
    before = [post.answered for post in cpus.stats().posts]
    for _ in range(2):
        check_sums(cpus.run_batch(kernel, jobs), jobs)
    after = [post.answered for post in cpus.stats().posts]
    assert all(now > then for now, then in zip(after, before, strict=True))
    assert len(list(tmp_path.iterdir())) == 2


def test_several_actors_may_share_a_device(two_nodes: Cluster) -> None:
    jobs = field_jobs(*[50] * 40)
    with gx.cluster.RayExecutor("vulkan", devices=2) as executor:
        assert len(set(pids(executor))) == 4
        check_sums(executor.run_batch(FQ_ADD, jobs), jobs)


def test_two_executors_do_not_meet(vulkan: RayExecutor, cpus: RayExecutor) -> None:
    jobs = field_jobs(*[20] * 50)
    futures = [[each.submit(FQ_ADD, *job) for job in jobs] for each in (vulkan, cpus)]
    for one in futures:
        check_sums([future.result(PATIENCE) for future in one], jobs)
    assert not set(pids(vulkan)) & set(pids(cpus))


# --- errors that are a job's own ---


def test_a_reference_to_an_error_is_its_jobs_own(cpus: RayExecutor) -> None:
    """Also where it is the death of some other actor, which says nothing of ours."""

    @ray.remote(num_cpus=0, max_retries=0)
    def fails() -> Array:
        raise ZeroDivisionError("by naught")

    @ray.remote(num_cpus=0)
    class Mortal:
        def dies(self) -> Array:
            os._exit(1)

    before, jobs = deaths(cpus), [pair(number) for number in range(20)]
    mortal = Mortal.remote()  # type: ignore[attr-defined]
    with_errors = [
        cpus.submit(ADD_U32, each, jobs[0][1]) for each in (fails.remote(), mortal.dies.remote())
    ]
    futures = [cpus.submit(ADD_U32, *job) for job in jobs]
    check_sums([future.result(PATIENCE) for future in futures], jobs)
    for future, error in zip(
        with_errors, (ZeroDivisionError, ray.exceptions.RayActorError), strict=True
    ):
        with pytest.raises(error):
            future.result(PATIENCE)
    assert deaths(cpus) == before


def test_an_error_is_its_jobs_own_and_has_its_type(vulkan: RayExecutor) -> None:
    jobs = field_jobs(*[9] * 40)
    jobs[17][1][5] = TOO_LARGE
    futures = [vulkan.submit(FQ_ADD, *job) for job in jobs]
    with pytest.raises(ElementRangeError) as raised:
        futures.pop(17).result(PATIENCE)
    assert (raised.value.argument, raised.value.index) == (1, 5)
    assert "by the actor for" in raised.value.__notes__[-1]
    with pytest.raises(ElementRangeError, match="job 17") as raised:
        vulkan.run_batch(FQ_ADD, jobs)
    assert raised.value.job == 17
    del jobs[17]
    check_sums([future.result(PATIENCE) for future in futures], jobs)
    assert vulkan.stats().resent == 0


def test_what_does_not_fit_is_refused_here(vulkan: RayExecutor) -> None:
    a, b = pair(1)
    with pytest.raises(ArgumentShapeError):
        vulkan.submit(ADD_U32, a, b[:2]).result()
    with pytest.raises(ArgumentTypeError, match="float64"):
        vulkan.submit(ADD_U32, a, b.astype(float)).result()
    with pytest.raises(ArgumentTypeError, match="runs kernels"):
        vulkan.submit(np.add, a, b)
    with pytest.raises(ArgumentTypeError, match="priority"):
        vulkan.submit(ADD_U32, a, b, priority=1)
    # What a reference refers to is seen where it is read.
    with pytest.raises(ArgumentTypeError, match="float64"):
        vulkan.submit(ADD_U32, a, ray.put(b.astype(float))).result(PATIENCE)


def test_any_error_finds_its_future(cpus: RayExecutor) -> None:
    class StuckError(Exception):
        """Holds what cannot be pickled."""

        def __init__(self) -> None:
            super().__init__("stuck")
            self.lock = threading.Lock()

    def divide(*_arrays: Array) -> Any:
        raise ZeroDivisionError("by naught")

    def stick(*_arrays: Array) -> Any:
        raise StuckError

    lock, resent = threading.Lock(), cpus.stats().resent
    with pytest.raises(ZeroDivisionError, match="by naught"):
        cpus.run(referring(divide), *pair(1))
    with pytest.raises(gx.GpuError, match="stuck"):
        cpus.run(referring(stick), *pair(1))
    with pytest.raises(TypeError, match="lock"):  # a kernel that cannot travel
        cpus.run(referring(lambda a, b: lock), *pair(1))
    check_sums([cpus.run(ADD_U32, *pair(1))], [pair(1)])
    assert (cpus.stats().resent, cpus.stats().unanswered) == (resent, 0)


def test_what_cannot_be_is_refused_at_once(two_nodes: Cluster) -> None:
    with pytest.raises(SettingsError, match="devices="):
        gx.cluster.RayExecutor(devices=0)
    with pytest.raises(SettingsError, match="at least"):
        gx.cluster.RayExecutor(in_flight=0)
    with pytest.raises(SettingsError, match="may not set max_restarts"):
        gx.cluster.RayExecutor(actor_options={"max_restarts": 1})
    with pytest.raises(SettingsError, match="no backend 'cuda'"):
        gx.cluster.RayExecutor("cuda")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        gx.cluster.DaskExecutor  # noqa: B018


# --- actors that die ---


def test_an_actor_is_killed_in_the_middle(vulkan: RayExecutor) -> None:
    """Every result arrives once and is right; the next actor on the device takes its part."""
    jobs = [*field_jobs(*[100] * 100), *word_jobs(*[LARGE] * 30)]
    kernels = [FQ_ADD] * 100 + [ADD_U32] * 30
    arrived: list[int] = []

    def note(number: int, _done: Future[Any]) -> None:
        arrived.append(number)

    victim, before = pids(vulkan)[0], vulkan.stats()
    futures: list[Future[Any]] = []
    for number, (kernel, job) in enumerate(zip(kernels, jobs, strict=True)):
        futures.append(vulkan.submit(kernel, *job))
        futures[-1].add_done_callback(functools.partial(note, number))
        if number == 115:
            until(lambda: vulkan.stats().posts[0].in_flight > 0)
            os.kill(victim, signal.SIGKILL)
    check_sums([future.result(PATIENCE) for future in futures], jobs)
    until(lambda: len(arrived) == 130)
    assert sorted(arrived) == list(range(130))
    after = vulkan.stats()
    assert after.resent > before.resent
    assert [post.deaths for post in after.posts] == [1, 0]
    assert pids(vulkan)[0] != victim
    answered = vulkan.stats().posts[0].answered
    check_sums(vulkan.run_batch(ADD_U32, jobs[100:]), jobs[100:])
    assert vulkan.stats().posts[0].answered > answered


def test_a_process_that_ends_inside_a_kernel(cpus: RayExecutor, tmp_path: Path) -> None:
    jobs, before = [pair(number) for number in range(100)], deaths(cpus)
    kernel = once(tmp_path, lambda: os._exit(1))
    futures = [cpus.submit(kernel, *job) for job in jobs]
    check_sums([future.result(PATIENCE) for future in futures], jobs)
    assert deaths(cpus) == before + 1


def test_a_job_that_kills_every_actor_is_given_up_alone(cpus: RayExecutor) -> None:
    """Those that travelled with it, and those behind it, are none the worse."""

    def add(a: Array, b: Array) -> Array:
        if (a == 13).any():
            os._exit(1)
        return a + b

    jobs, kernel, before = [pair(number) for number in range(60)], referring(add), deaths(cpus)
    futures = [cpus.submit(kernel, *job) for job in jobs]
    with pytest.raises(ray.exceptions.RayActorError):
        futures.pop(13).result(PATIENCE)
    del jobs[13]
    check_sums([future.result(PATIENCE) for future in futures], jobs)
    assert deaths(cpus) == before + 3


def test_a_device_that_computes_wrongly_is_not_asked_again(
    cpus: RayExecutor, tmp_path: Path
) -> None:
    def add(a: Array, b: Array) -> Array:
        first = tmp_path / "process"
        if not first.exists():
            first.write_text(str(os.getpid()))
        if (a == 13).any() and first.read_text() == str(os.getpid()):
            raise WrongResultError("add", 0, 0, "the first device")
        return a + b

    jobs, before = [pair(13, count) for count in range(1, 30)], deaths(cpus)
    check_sums(cpus.run_batch(referring(add), jobs), jobs)
    assert deaths(cpus) == before + 1


def test_a_node_is_lost_in_the_middle(two_nodes: Cluster) -> None:
    node = two_nodes.add_node(**NODE)
    until(lambda: sum(each["Alive"] for each in ray.nodes()) == 3)

    def add(a: Array, b: Array) -> Array:
        time.sleep(0.02)
        return a + b

    kernel, jobs = referring(add), word_jobs(*[LARGE] * 60)
    with gx.cluster.RayExecutor("cpu") as executor:
        assert len(pids(executor)) == 3
        futures = [executor.submit(kernel, *job) for job in jobs]
        two_nodes.remove_node(node, allow_graceful=False)
        check_sums([future.result(PATIENCE) for future in futures], jobs)
        until(lambda: any(post.given_up for post in executor.stats().posts))
        check_sums(executor.run_batch(ADD_U32, jobs), jobs)


def test_when_no_device_is_left_jobs_hear_why(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_executor.cluster.dispatcher.MOST_REFUSALS", 1)

    def die(*_arrays: Array) -> Any:
        os._exit(1)

    with gx.cluster.RayExecutor("cpu") as executor:
        for post in executor._dispatcher.posts:  # where the next actors look for it
            lost = dataclasses.replace(post.place.seat, device="a card that was pulled out")
            post.place = dataclasses.replace(post.place, seat=lost)
        futures = [executor.submit(referring(die), *pair(number)) for number in range(4)]
        for future in futures:
            with pytest.raises(NoDeviceError, match="pulled out by cpu is not there any more"):
                future.result(PATIENCE)
        for _ in range(2):
            with pytest.raises(NoDeviceError, match=r"^job 0: a card"):
                executor.run_batch(ADD_U32, [pair(1), pair(2)])
        assert all(post.given_up for post in executor.stats().posts)
        assert "left alone" in str(executor.stats())


# --- no more than allowed ---


def test_calls_in_flight_are_bounded(narrow: RayExecutor, tmp_path: Path) -> None:
    kernel, futures = gated(tmp_path), list[Future[Any]]()

    def submit() -> None:
        for number in range(20):
            futures.append(narrow.submit(kernel, *pair(number)))

    submitting = threading.Thread(target=submit)
    submitting.start()
    until(lambda: len(futures) == 6)
    time.sleep(0.2)  # it would go on now, if it did
    assert len(futures) == narrow.stats().unanswered == 6
    assert max(post.in_flight for post in narrow.stats().posts) <= 3
    (tmp_path / "open").touch()
    submitting.join(PATIENCE)
    check_sums([each.result(PATIENCE) for each in futures], [pair(number) for number in range(20)])


def test_bytes_in_flight_are_bounded(two_nodes: Cluster, tmp_path: Path) -> None:
    one = 3 * 4 * LARGE  # two inputs and a result
    kernel, jobs = gated(tmp_path), word_jobs(*[LARGE] * 4)
    with gx.cluster.RayExecutor("cpu", in_flight_bytes=2 * one, when_full="raise") as executor:
        futures = [executor.submit(kernel, *job) for job in jobs]
        with pytest.raises(QueueFullError, match="4 calls of 9,600,000 bytes"):
            executor.submit(kernel, *jobs[0])
        until(lambda: [post.in_flight for post in executor.stats().posts] == [2, 2])
        (tmp_path / "open").touch()
        check_sums([future.result(PATIENCE) for future in futures], jobs)
        larger, many = word_jobs(10 * LARGE), word_jobs(*[LARGE] * 20)
        check_sums(executor.run_batch(ADD_U32, larger), larger)  # one may always go
        check_sums(executor.run_batch(ADD_U32, many), many)  # a batch waits for room by itself


@pytest.mark.parametrize("buffersize", [1, 5, None])
def test_a_map_reads_no_further_ahead(narrow: RayExecutor, buffersize: int | None) -> None:
    read = 0

    def endless() -> Iterator[Array]:
        nonlocal read
        while True:
            yield np.full(3, read, np.uint32)
            read += 1  # when the next one is asked for

    results = narrow.map(ADD_U32, endless(), itertools.repeat(pair(0, 3)[1]), buffersize=buffersize)
    for number, result in enumerate(itertools.islice(results, 30)):
        assert read <= number + (buffersize or 6)
        check_sums([result], [pair(number, 3)])


def test_a_callback_may_submit_when_all_is_full(narrow: RayExecutor, tmp_path: Path) -> None:
    kernel, later = gated(tmp_path), list[Future[Any]]()
    futures = [narrow.submit(kernel, *pair(number)) for number in range(6)]
    for future in futures:
        future.add_done_callback(
            lambda _done: later.extend(narrow.submit(kernel, *pair(7)) for _ in range(5))
        )
    (tmp_path / "open").touch()
    wait(futures, PATIENCE)
    until(lambda: len(later) == 30)
    check_sums([future.result(PATIENCE) for future in later], [pair(7)] * 30)


def test_an_iterables_error_comes_behind_the_results_before_it(narrow: RayExecutor) -> None:
    def breaks() -> Iterator[Array]:
        yield from (pair(number)[0] for number in range(10))
        raise OSError("the file ends here")

    results = narrow.map(ADD_U32, breaks(), itertools.repeat(pair(0)[1]))
    check_sums(list(itertools.islice(results, 10)), [pair(number) for number in range(10)])
    with pytest.raises(OSError, match="ends here"):
        next(results)
    assert list(results) == []


def test_an_event_loop_goes_on_while_all_is_full(narrow: RayExecutor, tmp_path: Path) -> None:
    kernel, jobs = gated(tmp_path), [pair(number) for number in range(12)]

    async def open_the_gate() -> None:
        until(lambda: narrow.stats().unanswered == 6)
        (tmp_path / "open").touch()

    async def all_of_them() -> list[Any]:
        calls = [narrow.run_async(kernel, *job) for job in jobs]
        return (await asyncio.gather(*calls, open_the_gate()))[:-1]

    check_sums(asyncio.run(all_of_them()), jobs)


def test_a_map_has_a_time_limit(narrow: RayExecutor, tmp_path: Path) -> None:
    jobs = [pair(1), pair(2)]
    results = narrow.map(gated(tmp_path), *zip(*jobs, strict=True), timeout=0.1)
    with pytest.raises(TimeoutError):
        next(results)
    assert list(results) == []
    (tmp_path / "open").touch()


# --- the end ---


def test_shutdown_answers_what_was_asked_and_leaves_no_actor(two_nodes: Cluster) -> None:
    jobs = field_jobs(*[20] * 40)
    executor = gx.cluster.RayExecutor("cpu")
    processes = pids(executor)
    futures = [executor.submit(FQ_ADD, *job) for job in jobs]
    executor.shutdown()
    check_sums([future.result(0) for future in futures], jobs)
    until(lambda: not any(map(alive, processes)))
    executor.shutdown()
    with pytest.raises(ClosedError):
        executor.submit(FQ_ADD, *jobs[0])
    assert "shut down" in repr(executor)
    assert ray.is_initialized(), "Ray was there before"


def test_what_was_not_sent_is_cancelled(two_nodes: Cluster, tmp_path: Path) -> None:
    executor = gx.cluster.RayExecutor("cpu")
    kernel, jobs = gated(tmp_path), word_jobs(*[LARGE] * 20)
    futures = [executor.submit(kernel, *job) for job in jobs]
    until(lambda: [post.in_flight for post in executor.stats().posts] == [2, 2])
    executor.shutdown(wait=False, cancel_futures=True)
    (tmp_path / "open").touch()
    executor.shutdown()
    kept = [number for number, future in enumerate(futures) if not future.cancelled()]
    assert len(kept) == 4
    check_sums([futures[number].result(0) for number in kept], [jobs[number] for number in kept])
    with pytest.raises(CancelledError):
        futures[-1].result(0)
    assert executor.stats().unanswered == 0


def test_one_that_nobody_holds_ends_when_its_jobs_are_answered(
    two_nodes: Cluster, tmp_path: Path
) -> None:
    executor = gx.cluster.RayExecutor("cpu")
    processes, thread = pids(executor), executor._dispatcher._thread
    future = executor.submit(gated(tmp_path), *pair(5))
    del executor
    gc.collect()
    assert all(map(alive, processes))
    (tmp_path / "open").touch()
    check_sums([future.result(PATIENCE)], [pair(5)])
    until(lambda: not any(map(alive, processes)) and not thread.is_alive())


def test_one_that_cannot_open_leaves_nothing(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def living() -> set[str]:
        known = ray._private.state.actors()
        return {number for number, actor in known.items() if actor["State"] != "DEAD"}

    def lost_places(*asked: Any) -> list[Place]:
        first, second = find_places(*asked)
        lost = dataclasses.replace(second.seat, device="a card that was pulled out")
        return [first, dataclasses.replace(second, seat=lost)]

    before = living()
    monkeypatch.setattr("gpu_executor.cluster.executor.find_places", lost_places)
    with pytest.raises(NoDeviceError, match="pulled out"):
        gx.cluster.RayExecutor("cpu")
    until(lambda: living() == before)


OWN_RAY = """
import sys
import numpy as np
import gpu_executor as gx
assert "ray" not in sys.modules, "the package imports Ray"
first, second = (gx.cluster.RayExecutor("cpu", address="local") for _ in range(2))
import ray
a = np.arange(200_000, dtype=np.uint32)
kernel = gx.kernels.load("vector_add_u32")
results = [each.run(kernel, a, a) for each in (first, second)]
first.shutdown()
assert ray.is_initialized(), "the second one has it still"
print("actors", *[post.pid for post in second.stats().posts])
second.shutdown()
assert not ray.is_initialized(), "it was started by the executors"
for result in results:
    np.testing.assert_array_equal(result, 2 * a)
last = gx.cluster.RayExecutor("cpu", address="local")
result = last.run(kernel, a, a)
print("actors", *[post.pid for post in last.stats().posts])
last.submit(kernel, a, a)
np.testing.assert_array_equal(result, 2 * a)
"""


def test_ray_that_it_started_ends_with_it(run_python: RunPython) -> None:
    """Also where the interpreter ends first, with a job under way. Results outlive Ray."""
    done = run_python(OWN_RAY)
    assert done.returncode == 0, done.stderr
    said = [line.split() for line in done.stdout.splitlines()]
    processes = [int(pid) for what, *pids in said if what == "actors" for pid in pids]
    assert len(processes) == 2
    until(lambda: not any(map(alive, processes)))


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"gpu-executor\[ray\]"):
        gx.cluster.RayExecutor  # noqa: B018
