"""Nodes that join a cluster while an executor is open. Most tests open one that was told of the
first node only, to which the second is new; in the first test a node really comes and goes."""

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
from tests.support.jobs import ADD_U32, check_sums
from tests.support.ray_cluster import (
    PATIENCE,
    Array,
    RayExecutor,
    gated,
    living_actors,
    pair,
    pids,
    third_node,
    until,
)

LOG = "gpu_executor.cluster"
LOOK_SECONDS = 0.1
OpenOnFirst = Callable[..., contextlib.AbstractContextManager[RayExecutor]]


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_executor.cluster.node_watcher.LISTING_INTERVAL_SECONDS", LOOK_SECONDS)


@pytest.fixture
def on_first(two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OpenOnFirst:
    """Opens an executor when only the first node was there, as far as it knows."""

    @contextlib.contextmanager
    def opened(**options: Any) -> Iterator[RayExecutor]:
        monkeypatch.setattr(
            "gpu_executor.cluster.executor.find_placements",
            lambda *asked: find_placements(*asked)[:1],
        )
        with gx.cluster.RayExecutor("cpu", **options) as executor, opening(tmp_path):
            assert len(pids(executor)) == 1
            yield executor

    return opened


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOG)
    return caplog


@contextlib.contextmanager
def opening(folder: Path) -> Iterator[None]:
    """Opens the gate of `gated` at last: else an executor would wait for it behind an error."""
    try:
        yield
    finally:
        (folder / "open").touch()


def said(log: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(each.levelno, each.getMessage()) for each in log.records if each.name == LOG]


def lost(place: DevicePlacement) -> DevicePlacement:
    candidate = dataclasses.replace(place.candidate, device="a card that was pulled out")
    return dataclasses.replace(place, candidate=candidate)


def answered(executor: RayExecutor) -> list[int]:
    return [post.answered for post in executor.stats().posts]


# --- they take their part ---


def test_a_node_joins_in_the_middle_of_a_map_and_goes_again(
    two_nodes: Cluster, tmp_path: Path
) -> None:
    jobs = [pair(number) for number in range(60)]
    with gx.cluster.RayExecutor("cpu") as executor, opening(tmp_path):
        results = executor.map(gated(tmp_path), *zip(*jobs, strict=True))
        until(lambda: all(post.in_flight for post in executor.stats().posts))
        with third_node(two_nodes):
            # The others have no answer to give before the new one has its part of those in line.
            until(lambda: [post.in_flight > 0 for post in executor.stats().posts] == [True] * 3)
            (tmp_path / "open").touch()
            check_sums(list(results), jobs)
            stats = executor.stats()
            assert [post.joined_later for post in stats.posts] == [False, False, True]
            assert len({post.node for post in stats.posts}) == len(set(pids(executor))) == 3
            assert sum(answered(executor)) == 60
            assert stats.posts[2].answered > 0
            assert (stats.resent, stats.unanswered) == (0, 0)
            assert str(stats).count("joined later") == 1
        check_sums(executor.run_batch(ADD_U32, jobs), jobs)
        until(lambda: executor.stats().posts[2].given_up is not None)
        check_sums(executor.run_batch(ADD_U32, jobs), jobs)
        assert [post.given_up for post in executor.stats().posts[:2]] == [None, None]


def test_with_it_come_calls_in_flight(on_first: OpenOnFirst, tmp_path: Path) -> None:
    """None of the calls waits here: all are with the actor, which has as many as it may."""
    kernel = gated(tmp_path)
    with on_first(in_flight=2, when_full="raise") as executor:
        futures = [executor.submit(kernel, *pair(number)) for number in range(2)]
        with pytest.raises(QueueFullError, match="limit of 2 calls"):
            executor.submit(kernel, *pair(2))
        until(lambda: len(executor.stats().posts) == 2)
        futures += [executor.submit(kernel, *pair(number)) for number in range(2, 4)]
        with pytest.raises(QueueFullError, match="limit of 4 calls"):
            executor.submit(kernel, *pair(4))
        until(lambda: [post.in_flight for post in executor.stats().posts] == [2, 2])
        (tmp_path / "open").touch()
        results = [future.result(PATIENCE) for future in futures]
        check_sums(results, [pair(number) for number in range(4)])


def test_a_map_reads_ahead_for_it_too(on_first: OpenOnFirst, tmp_path: Path) -> None:
    read: list[int] = []

    def endless() -> Iterator[Array]:
        for number in itertools.count():
            read.append(number)
            yield pair(number)[0]

    with on_first(in_flight=3) as executor:
        results = executor.map(gated(tmp_path), endless(), itertools.repeat(pair(0)[1]))
        until(lambda: len(executor.stats().posts) == 2)
        assert len(read) == 3
        (tmp_path / "open").touch()
        check_sums([next(results)], [pair(0)])
        assert len(read) == 1 + 6
        check_sums(list(itertools.islice(results, 20)), [pair(number) for number in range(1, 21)])


def test_devices_are_as_many_as_on_other_nodes(on_first: OpenOnFirst, tmp_path: Path) -> None:
    with on_first(devices=2) as executor:
        future = executor.submit(gated(tmp_path), *pair(1))
        until(lambda: len(executor.stats().posts) == 3)
        (tmp_path / "open").touch()
        check_sums([future.result(PATIENCE)], [pair(1)])
        assert len(set(pids(executor))) == 3
        # The first has one, as the test cut the list of them there.
        assert [post.joined_later for post in executor.stats().posts] == [False, True, True]


def test_jobs_wait_for_it_when_no_other_is_left(
    on_first: OpenOnFirst, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_executor.cluster.dispatcher.MAX_FAILED_OPENS", 1)
    with on_first() as executor:
        post, looks = executor._dispatcher.slots[0], list[float]()
        post.placement = lost(post.placement)  # where the next actor looks for it

        def nodes() -> dict[str, str]:
            looks.append(time.monotonic())
            until(lambda: post.quarantined is not None)
            return list_alive_nodes()

        monkeypatch.setattr("gpu_executor.cluster.node_watcher.list_alive_nodes", nodes)
        time.sleep(3 * LOOK_SECONDS)
        assert not looks, "nobody looks while there is nothing to do"
        os.kill(pids(executor)[0], signal.SIGKILL)
        check_sums([executor.submit(ADD_U32, *pair(1)).result(PATIENCE)], [pair(1)])
        assert "pulled out" in (executor.stats().posts[0].given_up or "")
        assert answered(executor) == [0, 1]


# --- what they have ---


def test_better_devices_take_over_until_they_are_gone(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first node had NumPy alone; what is held there is not held on a Vulkan device."""
    monkeypatch.setattr("gpu_executor.cluster.dispatcher.MAX_FAILED_OPENS", 1)
    monkeypatch.setattr(
        "gpu_executor.cluster.executor.find_placements",
        lambda _, *asked: find_placements("cpu", *asked)[:1],
    )
    jobs = [pair(number) for number in range(30)]
    with pytest.warns(RuntimeWarning, match="no node of the cluster has a GPU"):
        executor = gx.cluster.RayExecutor()
    with executor, opening(tmp_path):
        futures = [executor.submit(gated(tmp_path), *job) for job in jobs]
        until(lambda: sum(future.done() for future in futures) > 20)
        assert [post.backend for post in executor.stats().posts] == ["cpu", "vulkan"]
        (tmp_path / "open").touch()
        check_sums([future.result(PATIENCE) for future in futures], jobs)
        by_numpy, by_vulkan = answered(executor)
        check_sums(executor.run_batch(ADD_U32, jobs), jobs)
        assert answered(executor) == [by_numpy, by_vulkan + 30]
        post = executor._dispatcher.slots[1]
        post.placement = lost(post.placement)
        os.kill(pids(executor)[1], signal.SIGKILL)
        check_sums(executor.run_batch(ADD_U32, jobs), jobs)
        assert answered(executor) == [by_numpy + 30, by_vulkan + 30]


def test_devices_of_a_lesser_kind_are_left_out(
    two_nodes: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(
        "gpu_executor.cluster.executor.find_placements", lambda *asked: find_placements(*asked)[:1]
    )
    monkeypatch.setattr(
        "gpu_executor.cluster.node_watcher.request_candidates",
        lambda _, node: request_candidates("cpu", node),
    )
    a = np.arange(100_000, dtype=np.uint32)
    with gx.cluster.RayExecutor("vulkan") as executor:
        end = time.monotonic() + PATIENCE
        while not said(log):
            assert time.monotonic() < end
            check_sums(executor.run_batch(ADD_U32, [(a, a)] * 8), [(a, a)] * 8)
        assert len(executor.stats().posts) == 1
    host = ray.nodes()[0]["NodeManagerHostname"]
    lesser = f"node {host} is not used: its best device, NumPy by cpu, ranks below those in use"
    assert said(log) == [(logging.INFO, lesser)]


# --- what goes wrong there ---


def test_a_device_that_does_not_open_harms_nobody(
    on_first: OpenOnFirst,
    monkeypatch: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    def lost_places(*found: Any) -> Sequence[DevicePlacement]:
        return list(map(lost, create_placements(*found)))

    monkeypatch.setattr("gpu_executor.cluster.node_watcher.create_placements", lost_places)
    jobs = [pair(number) for number in range(20)]
    with on_first() as executor:
        futures = [executor.submit(gated(tmp_path), *job) for job in jobs]
        until(lambda: bool(said(log)))
        time.sleep(5 * LOOK_SECONDS)  # it would be tried again, if it were
        (tmp_path / "open").touch()
        check_sums([future.result(PATIENCE) for future in futures], jobs)
        assert answered(executor) == [20]
    [(level, text)] = said(log)
    assert level == logging.WARNING
    assert "pulled out by cpu on" in text
    assert "open the device: a card that was pulled out by cpu is no longer available" in text


def test_a_node_that_does_not_answer_is_asked_again(
    on_first: OpenOnFirst,
    monkeypatch: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """Ray may list it before it can reach it. At last it is left alone."""

    @ray.remote(num_cpus=0, max_retries=0)
    def fails() -> None:
        raise ModuleNotFoundError("No module named 'gpu_executor'")

    asked: list[str] = []

    def failing(_backend: str, node: str) -> Any:
        asked.append(node)
        return fails.remote()

    monkeypatch.setattr("gpu_executor.cluster.node_watcher.request_candidates", failing)
    with on_first() as executor:
        future = executor.submit(gated(tmp_path), *pair(1))
        until(lambda: bool(said(log)))
        time.sleep(5 * LOOK_SECONDS)  # it would be asked once more, if it were
        (tmp_path / "open").touch()
        check_sums([future.result(PATIENCE)], [pair(1)])
    assert len(asked) == 3
    [(level, text)] = said(log)
    assert level == logging.WARNING
    assert "is not used" in text
    assert "No module named 'gpu_executor'" in text


def test_answers_do_not_wait_for_a_look(
    on_first: OpenOnFirst, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ray's head may be slow to list nodes, or not there for a while; later looks see them."""
    looks, ended, answer = list[float](), list[bool](), threading.Event()

    def nodes() -> dict[str, str]:
        looks.append(time.monotonic())
        if len(looks) == 1:
            ended.append(answer.wait(PATIENCE))
            raise ConnectionError("Ray's head is gone")
        return list_alive_nodes()

    monkeypatch.setattr("gpu_executor.cluster.node_watcher.list_alive_nodes", nodes)
    jobs = [pair(number) for number in range(20)]
    with on_first() as executor:
        futures = [executor.submit(gated(tmp_path), *job) for job in jobs]
        until(lambda: len(looks) == 1)
        (tmp_path / "open").touch()
        check_sums([future.result(PATIENCE) for future in futures], jobs)
        assert (len(looks), ended) == (1, [])
        answer.set()
        (tmp_path / "open").unlink()
        future = executor.submit(gated(tmp_path), *jobs[1])
        until(lambda: len(executor.stats().posts) == 2)
        (tmp_path / "open").touch()
        check_sums([future.result(PATIENCE)], [jobs[1]])
    assert all(next_one - one > LOOK_SECONDS for one, next_one in itertools.pairwise(looks))


def test_one_that_ends_meanwhile_leaves_no_actor(on_first: OpenOnFirst, tmp_path: Path) -> None:
    before = living_actors()
    with on_first() as executor:
        future = executor.submit(gated(tmp_path), *pair(1))
        until(lambda: len(living_actors() - before) == 2)
        (tmp_path / "open").touch()
        check_sums([future.result(PATIENCE)], [pair(1)])
    until(lambda: living_actors() == before)
