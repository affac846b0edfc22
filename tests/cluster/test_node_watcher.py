"""Nodes that join the cluster while an executor is open.

Most tests open an executor that knows only the first node, so that the second node is new to it.
In the first test a node really joins and leaves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

import gpu_executor as gx
from gpu_executor.cluster.nodes import (
    DevicePlacement,
    create_placements,
    find_placements,
    list_alive_nodes,
    request_candidates,
)
from gpu_executor.errors import NoDeviceError, QueueFullError
from tests.support.jobs import ADD_U32, check_sums, word_jobs
from tests.support.ray_cluster import (
    LARGE,
    TIMEOUT_SECONDS,
    Array,
    RayExecutor,
    add_third_node,
    list_alive_actors,
    make_gated_kernel,
    make_kernel,
    make_pair,
    wait_for_pids,
    wait_until,
)

LOGGER = "gpu_executor.cluster"
LISTING_SECONDS = 0.1
OpenOnFirstNode = Callable[..., contextlib.AbstractContextManager[RayExecutor]]


@pytest.fixture(autouse=True)
def shorten_listing_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gpu_executor.cluster.node_watcher.LISTING_INTERVAL_SECONDS", LISTING_SECONDS
    )


@pytest.fixture
def open_on_first_node(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> OpenOnFirstNode:
    """Opens an executor that found only the first node."""

    @contextlib.contextmanager
    def opened(**options: Any) -> Iterator[RayExecutor]:
        monkeypatch.setattr(
            "gpu_executor.cluster.ray_executor.find_placements",
            lambda *asked: find_placements(*asked)[:1],
        )
        with gx.cluster.RayExecutor("cpu", **options) as executor, open_gate_at_exit(tmp_path):
            assert len(wait_for_pids(executor)) == 1
            yield executor

    return opened


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


@contextlib.contextmanager
def open_gate_at_exit(folder: Path) -> Iterator[None]:
    """Unblock `make_gated_kernel` at the end: after a failed assertion the executor would wait."""
    try:
        yield
    finally:
        (folder / "open").touch()


def read_log(log: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(each.levelno, each.getMessage()) for each in log.records if each.name == LOGGER]


def remove_device(placement: DevicePlacement) -> DevicePlacement:
    """The placement with a device that does not exist."""
    candidate = dataclasses.replace(placement.candidate, device="a removed device")
    return dataclasses.replace(placement, candidate=candidate)


def count_answered(executor: RayExecutor) -> list[int]:
    return [actor.answered for actor in executor.stats().actors]


# --- jobs on new nodes ---


def test_a_node_joins_during_a_map_and_is_lost_while_it_has_jobs(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The executor sees the first node and a third one: two actors are enough."""
    here = ray.get_runtime_context().get_node_id()
    hidden = list_alive_nodes().keys() - {here}

    def list_others() -> dict[str, str]:
        return {node: host for node, host in list_alive_nodes().items() if node not in hidden}

    for module in ("nodes", "node_watcher"):
        monkeypatch.setattr(f"gpu_executor.cluster.{module}.list_alive_nodes", list_others)
    kernel, jobs = make_gated_kernel(tmp_path), word_jobs(*[LARGE] * 7)
    with gx.cluster.RayExecutor("cpu") as executor, open_gate_at_exit(tmp_path):

        def count_in_flight() -> list[int]:
            return [actor.in_flight for actor in executor.stats().actors]

        results = executor.map(kernel, *zip(*jobs, strict=True))
        wait_until(lambda: count_in_flight() == [2])
        with add_third_node(two_nodes) as node:
            # The first actor is blocked until the new one has some of the waiting jobs.
            wait_until(lambda: len(count_in_flight()) == 2 and all(count_in_flight()))
            (tmp_path / "open").touch()
            check_sums(list(results), jobs)
            stats = executor.stats()
            assert [actor.joined_later for actor in stats.actors] == [False, True]
            assert (
                len({actor.node for actor in stats.actors})
                == len(set(wait_for_pids(executor)))
                == 2
            )
            assert sum(count_answered(executor)) == 7
            assert stats.actors[1].answered > 0
            assert (stats.resent, stats.unanswered) == (0, 0)
            assert str(stats).count("joined later") == 1
            (tmp_path / "open").unlink()
            futures = [executor.submit(kernel, *job) for job in jobs]
            wait_until(lambda: count_in_flight() == [2, 2])
            two_nodes.remove_node(node, allow_graceful=False)
            (tmp_path / "open").touch()
            check_sums([future.result(TIMEOUT_SECONDS) for future in futures], jobs)
            assert executor.stats().resent == 2
            assert sum(count_answered(executor)) == 14
        wait_until(lambda: executor.stats().actors[1].quarantined is not None)
        check_sums(executor.run_batch(ADD_U32, jobs), jobs)
        assert executor.stats().actors[0].quarantined is None


def test_a_new_node_gets_as_many_actors_as_the_others_and_raises_the_in_flight_limit(
    open_on_first_node: OpenOnFirstNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nodes are listed although no call waits in the dispatcher: the actor has its full share.
    `map` reads as many calls ahead as may be in flight. Ray's head node may be slow or unreachable:
    replies are handled during the first listing, which fails, and a later one finds the node."""
    listings, ended, answer = list[float](), list[bool](), threading.Event()

    def nodes() -> dict[str, str]:
        listings.append(time.monotonic())
        if len(listings) == 1:
            ended.append(answer.wait(TIMEOUT_SECONDS))
            raise ConnectionError("Ray's head node is unreachable")
        return list_alive_nodes()

    monkeypatch.setattr("gpu_executor.cluster.node_watcher.list_alive_nodes", nodes)
    kernel, read = make_gated_kernel(tmp_path), list[int]()

    def endless() -> Iterator[Array]:
        for number in itertools.count():
            read.append(number)
            yield make_pair(number)[0]

    with open_on_first_node(devices=2, in_flight=2, when_full="raise") as executor:
        futures = [executor.submit(kernel, *make_pair(number)) for number in range(2)]
        wait_until(lambda: len(listings) == 1)
        (tmp_path / "open").touch()
        check_sums(
            [future.result(TIMEOUT_SECONDS) for future in futures],
            [make_pair(number) for number in range(2)],
        )
        assert (len(listings), ended) == (1, [])
        answer.set()
        (tmp_path / "open").unlink()
        results = executor.map(kernel, endless(), itertools.repeat(make_pair(0)[1]))
        with pytest.raises(QueueFullError, match="limit of 2 calls"):
            executor.submit(kernel, *make_pair(2))
        wait_until(lambda: len(executor.stats().actors) == 3)
        # The fixture gave the first node only one actor.
        assert [actor.joined_later for actor in executor.stats().actors] == [False, True, True]
        assert len(set(wait_for_pids(executor))) == 3
        assert len(read) == 2
        futures = [executor.submit(kernel, *make_pair(number)) for number in range(4)]
        with pytest.raises(QueueFullError, match="limit of 6 calls"):
            executor.submit(kernel, *make_pair(4))
        wait_until(lambda: [actor.in_flight for actor in executor.stats().actors] == [2, 2, 2])
        (tmp_path / "open").touch()
        check_sums(
            [future.result(TIMEOUT_SECONDS) for future in futures],
            [make_pair(number) for number in range(4)],
        )
        check_sums([next(results)], [make_pair(0)])
        assert len(read) == 1 + 6
        check_sums(
            list(itertools.islice(results, 20)), [make_pair(number) for number in range(1, 21)]
        )
    assert all(next_one - one > LISTING_SECONDS for one, next_one in itertools.pairwise(listings))


def test_jobs_wait_for_a_new_node_when_no_other_device_is_left(
    open_on_first_node: OpenOnFirstNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the device of the new node is lost too, they fail with the reason."""

    def die(*_arrays: Array) -> Any:
        os._exit(1)

    monkeypatch.setattr("gpu_executor.cluster.dispatcher.MAX_FAILED_OPENS", 1)
    with open_on_first_node() as executor:
        slot, listings = executor._dispatcher.slots[0], list[float]()
        slot.placement = remove_device(slot.placement)  # the next actor will look for this device

        def nodes() -> dict[str, str]:
            listings.append(time.monotonic())
            wait_until(lambda: slot.quarantined is not None)
            return list_alive_nodes()

        monkeypatch.setattr("gpu_executor.cluster.node_watcher.list_alive_nodes", nodes)
        time.sleep(3 * LISTING_SECONDS)
        assert not listings, "an idle executor does not list nodes"
        os.kill(wait_for_pids(executor)[0], signal.SIGKILL)
        check_sums(
            [executor.submit(ADD_U32, *make_pair(1)).result(TIMEOUT_SECONDS)], [make_pair(1)]
        )
        assert "removed device" in (executor.stats().actors[0].quarantined or "")
        assert count_answered(executor) == [0, 1]
        assert "quarantined" in str(executor.stats())
        slot = executor._dispatcher.slots[1]
        slot.placement = remove_device(slot.placement)
        futures = [executor.submit(make_kernel(die), *make_pair(number)) for number in range(4)]
        for future in futures:
            with pytest.raises(NoDeviceError, match="removed device by cpu is no longer available"):
                future.result(TIMEOUT_SECONDS)
        for _ in range(2):
            with pytest.raises(NoDeviceError, match=r"^job 0: a removed device"):
                executor.run_batch(ADD_U32, [make_pair(1), make_pair(2)])
        assert all(actor.quarantined for actor in executor.stats().actors)


# --- ranks of devices ---


def test_better_devices_get_all_jobs_until_they_are_lost(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first node has only NumPy, the new one Vulkan. The gated kernel blocks on NumPy only."""
    monkeypatch.setattr("gpu_executor.cluster.dispatcher.MAX_FAILED_OPENS", 1)
    monkeypatch.setattr(
        "gpu_executor.cluster.ray_executor.find_placements",
        lambda _, *asked: find_placements("cpu", *asked)[:1],
    )
    jobs = [make_pair(number) for number in range(30)]
    with pytest.warns(RuntimeWarning, match="no node of the cluster has a GPU"):
        executor = gx.cluster.RayExecutor()
    with executor, open_gate_at_exit(tmp_path):
        futures = [executor.submit(make_gated_kernel(tmp_path), *job) for job in jobs]
        wait_until(lambda: sum(future.done() for future in futures) > 20)
        assert [actor.backend for actor in executor.stats().actors] == ["cpu", "vulkan"]
        (tmp_path / "open").touch()
        check_sums([future.result(TIMEOUT_SECONDS) for future in futures], jobs)
        by_numpy, by_vulkan = count_answered(executor)
        check_sums(executor.run_batch(ADD_U32, jobs), jobs)
        assert count_answered(executor) == [by_numpy, by_vulkan + 30]
        slot = executor._dispatcher.slots[1]
        slot.placement = remove_device(slot.placement)
        os.kill(wait_for_pids(executor)[1], signal.SIGKILL)
        check_sums(executor.run_batch(ADD_U32, jobs), jobs)
        assert count_answered(executor) == [by_numpy + 30, by_vulkan + 30]


# --- new nodes that are not used ---


def test_new_nodes_that_cannot_be_used_affect_no_job(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """Three nodes join, whose names the second node has here. One has worse devices, and one a
    device that cannot be opened. One does not answer: Ray may list a node before it can reach it.
    After three failures the node is not used."""
    first, second = list_alive_nodes()
    asked: list[str] = []

    @ray.remote(num_cpus=0, max_retries=0)
    def fails() -> None:
        raise ModuleNotFoundError("No module named 'gpu_executor'")

    def request(backend: Any, node: str) -> Any:
        asked.append(node)
        if node == "silent":
            return fails.remote()
        return request_candidates("cpu" if node == "worse" else backend, second)

    def place_on_removed_device(_node: str, *found: Any) -> Sequence[DevicePlacement]:
        return list(map(remove_device, create_placements(second, *found)))

    monkeypatch.setattr("gpu_executor.cluster.dispatcher.MAX_FAILED_OPENS", 1)
    monkeypatch.setattr(
        "gpu_executor.cluster.ray_executor.find_placements",
        lambda *given: [each for each in find_placements(*given) if each.node == first],
    )
    for name, replacement in {
        "list_alive_nodes": lambda: {each: each for each in (first, "worse", "broken", "silent")},
        "request_candidates": request,
        "create_placements": place_on_removed_device,
    }.items():
        monkeypatch.setattr(f"gpu_executor.cluster.node_watcher.{name}", replacement)
    a, batches, end = np.arange(100_000, dtype=np.uint32), 0, time.monotonic() + TIMEOUT_SECONDS
    with gx.cluster.RayExecutor("vulkan") as executor:
        all_logged = math.inf
        # Then there is time for another attempt, of which there must be none.
        while time.monotonic() < all_logged + 5 * LISTING_SECONDS:
            assert time.monotonic() < end
            check_sums(executor.run_batch(ADD_U32, [(a, a)] * 8), [(a, a)] * 8)
            batches += 1
            if len(read_log(log)) >= 3:
                all_logged = min(all_logged, time.monotonic())
        assert count_answered(executor) == [8 * batches]
    assert sorted(asked) == ["broken", "silent", "silent", "silent", "worse"]
    (broken, silent), (worse,) = (
        sorted(text for logged, text in read_log(log) if logged == level)
        for level in (logging.WARNING, logging.INFO)
    )
    assert "a removed device by vulkan on broken" in broken
    assert "open the device: a removed device by vulkan is no longer available" in broken
    assert silent.startswith("node silent") and "is not used" in silent
    assert "No module named 'gpu_executor'" in silent
    assert worse == (
        "node worse is not used: its best device, NumPy by cpu, ranks below those in use"
    )


def test_shutdown_ends_actors_that_are_still_joining(
    open_on_first_node: OpenOnFirstNode, tmp_path: Path
) -> None:
    before = list_alive_actors()
    with open_on_first_node() as executor:
        future = executor.submit(make_gated_kernel(tmp_path), *make_pair(1))
        wait_until(lambda: len(list_alive_actors() - before) == 2)
        (tmp_path / "open").touch()
        check_sums([future.result(TIMEOUT_SECONDS)], [make_pair(1)])
    wait_until(lambda: list_alive_actors() == before)
