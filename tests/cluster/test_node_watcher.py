"""Nodes that join the cluster while an executor is open.

Most tests open an executor that knows only the first node, so that the second node is new to it.
In the first test a node really joins and leaves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
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
from gpu_executor.errors import QueueFullError
from tests.support.jobs import ADD_U32, check_sums, word_jobs
from tests.support.ray_cluster import (
    LARGE,
    TIMEOUT_SECONDS,
    Array,
    RayExecutor,
    add_third_node,
    list_alive_actors,
    make_gated_kernel,
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
    two_nodes: Cluster, tmp_path: Path
) -> None:
    kernel, jobs = make_gated_kernel(tmp_path), [make_pair(number) for number in range(60)]
    large = word_jobs(*[LARGE] * 9)
    with gx.cluster.RayExecutor("cpu") as executor, open_gate_at_exit(tmp_path):

        def count_in_flight() -> list[int]:
            return [actor.in_flight for actor in executor.stats().actors]

        results = executor.map(kernel, *zip(*jobs, strict=True))
        wait_until(lambda: all(count_in_flight()))
        with add_third_node(two_nodes) as node:
            # The first two actors are blocked until the new actor has some of the waiting jobs.
            wait_until(lambda: len(count_in_flight()) == 3 and all(count_in_flight()))
            (tmp_path / "open").touch()
            check_sums(list(results), jobs)
            stats = executor.stats()
            assert [actor.joined_later for actor in stats.actors] == [False, False, True]
            assert (
                len({actor.node for actor in stats.actors})
                == len(set(wait_for_pids(executor)))
                == 3
            )
            assert sum(count_answered(executor)) == 60
            assert stats.actors[2].answered > 0
            assert (stats.resent, stats.unanswered) == (0, 0)
            assert str(stats).count("joined later") == 1
            (tmp_path / "open").unlink()
            futures = [executor.submit(kernel, *job) for job in large]
            wait_until(lambda: count_in_flight() == [2, 2, 2])
            two_nodes.remove_node(node, allow_graceful=False)
            (tmp_path / "open").touch()
            check_sums([future.result(TIMEOUT_SECONDS) for future in futures], large)
            assert executor.stats().resent == 2
            assert sum(count_answered(executor)) == 69
        wait_until(lambda: executor.stats().actors[2].quarantined is not None)
        check_sums(executor.run_batch(ADD_U32, jobs), jobs)
        assert [actor.quarantined for actor in executor.stats().actors[:2]] == [None, None]


def test_a_new_node_gets_as_many_actors_as_the_others_and_raises_the_in_flight_limit(
    open_on_first_node: OpenOnFirstNode, tmp_path: Path
) -> None:
    """Nodes are listed although no call waits in the dispatcher: the actor has its full share.
    `map` reads as many calls ahead as may be in flight."""
    kernel, read = make_gated_kernel(tmp_path), list[int]()

    def endless() -> Iterator[Array]:
        for number in itertools.count():
            read.append(number)
            yield make_pair(number)[0]

    with open_on_first_node(devices=2, in_flight=2, when_full="raise") as executor:
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


def test_jobs_wait_for_a_new_node_when_no_other_device_is_left(
    open_on_first_node: OpenOnFirstNode, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_new_node_with_worse_devices_is_not_used(
    two_nodes: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(
        "gpu_executor.cluster.ray_executor.find_placements",
        lambda *asked: find_placements(*asked)[:1],
    )
    monkeypatch.setattr(
        "gpu_executor.cluster.node_watcher.request_candidates",
        lambda _, node: request_candidates("cpu", node),
    )
    a = np.arange(100_000, dtype=np.uint32)
    with gx.cluster.RayExecutor("vulkan") as executor:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not read_log(log):
            assert time.monotonic() < end
            check_sums(executor.run_batch(ADD_U32, [(a, a)] * 8), [(a, a)] * 8)
        assert len(executor.stats().actors) == 1
    host = ray.nodes()[0]["NodeManagerHostname"]
    message = f"node {host} is not used: its best device, NumPy by cpu, ranks below those in use"
    assert read_log(log) == [(logging.INFO, message)]


# --- failures of new nodes ---


def test_a_new_device_that_cannot_be_opened_affects_no_job(
    open_on_first_node: OpenOnFirstNode,
    monkeypatch: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("gpu_executor.cluster.dispatcher.MAX_FAILED_OPENS", 1)

    def place_on_removed_device(*found: Any) -> Sequence[DevicePlacement]:
        return list(map(remove_device, create_placements(*found)))

    monkeypatch.setattr(
        "gpu_executor.cluster.node_watcher.create_placements", place_on_removed_device
    )
    jobs = [make_pair(number) for number in range(20)]
    with open_on_first_node() as executor:
        futures = [executor.submit(make_gated_kernel(tmp_path), *job) for job in jobs]
        wait_until(lambda: bool(read_log(log)))
        time.sleep(5 * LISTING_SECONDS)  # time for another attempt, of which there must be none
        (tmp_path / "open").touch()
        check_sums([future.result(TIMEOUT_SECONDS) for future in futures], jobs)
        assert count_answered(executor) == [20]
    [(level, text)] = read_log(log)
    assert level == logging.WARNING
    assert "a removed device by cpu on" in text
    assert "open the device: a removed device by cpu is no longer available" in text


def test_a_new_node_that_does_not_answer_is_asked_three_times(
    open_on_first_node: OpenOnFirstNode,
    monkeypatch: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """Ray may list a node before it can reach it. After three failures the node is not used."""

    @ray.remote(num_cpus=0, max_retries=0)
    def fails() -> None:
        raise ModuleNotFoundError("No module named 'gpu_executor'")

    asked: list[str] = []

    def failing(_backend: str, node: str) -> Any:
        asked.append(node)
        return fails.remote()

    monkeypatch.setattr("gpu_executor.cluster.node_watcher.request_candidates", failing)
    with open_on_first_node() as executor:
        future = executor.submit(make_gated_kernel(tmp_path), *make_pair(1))
        wait_until(lambda: bool(read_log(log)))
        time.sleep(5 * LISTING_SECONDS)  # time for a fourth query, of which there must be none
        (tmp_path / "open").touch()
        check_sums([future.result(TIMEOUT_SECONDS)], [make_pair(1)])
    assert len(asked) == 3
    [(level, text)] = read_log(log)
    assert level == logging.WARNING
    assert "is not used" in text
    assert "No module named 'gpu_executor'" in text


def test_replies_are_handled_during_a_slow_listing(
    open_on_first_node: OpenOnFirstNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ray's head node may be slow or unreachable. A later listing finds the new node."""
    listings, ended, answer = list[float](), list[bool](), threading.Event()

    def nodes() -> dict[str, str]:
        listings.append(time.monotonic())
        if len(listings) == 1:
            ended.append(answer.wait(TIMEOUT_SECONDS))
            raise ConnectionError("Ray's head node is unreachable")
        return list_alive_nodes()

    monkeypatch.setattr("gpu_executor.cluster.node_watcher.list_alive_nodes", nodes)
    jobs = [make_pair(number) for number in range(20)]
    with open_on_first_node() as executor:
        futures = [executor.submit(make_gated_kernel(tmp_path), *job) for job in jobs]
        wait_until(lambda: len(listings) == 1)
        (tmp_path / "open").touch()
        check_sums([future.result(TIMEOUT_SECONDS) for future in futures], jobs)
        assert (len(listings), ended) == (1, [])
        answer.set()
        (tmp_path / "open").unlink()
        future = executor.submit(make_gated_kernel(tmp_path), *jobs[1])
        wait_until(lambda: len(executor.stats().actors) == 2)
        (tmp_path / "open").touch()
        check_sums([future.result(TIMEOUT_SECONDS)], [jobs[1]])
    assert all(next_one - one > LISTING_SECONDS for one, next_one in itertools.pairwise(listings))


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
