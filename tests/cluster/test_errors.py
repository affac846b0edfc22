"""RayExecutor: exceptions of jobs, and invalid arguments and settings."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

import gpu_executor as gx
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ElementRangeError,
    SettingsError,
)
from tests.support.jobs import ADD_U32, TOO_LARGE, check_sums, field_jobs
from tests.support.ray_cluster import (
    FQ_ADD,
    TIMEOUT_SECONDS,
    Array,
    RayExecutor,
    count_deaths,
    make_kernel,
    make_pair,
)


def test_a_reference_to_an_exception_fails_only_its_job(cpu_executor: RayExecutor) -> None:
    """A `RayActorError` behind a reference is not taken for the death of an executor's actor."""

    @ray.remote(num_cpus=0, max_retries=0)
    def fails() -> Array:
        raise ZeroDivisionError("division by zero")

    @ray.remote(num_cpus=0)
    class Mortal:
        def dies(self) -> Array:
            os._exit(1)

    before, jobs = count_deaths(cpu_executor), [make_pair(number) for number in range(20)]
    mortal = Mortal.remote()  # type: ignore[attr-defined]
    with_errors = [
        cpu_executor.submit(ADD_U32, each, jobs[0][1])
        for each in (fails.remote(), mortal.dies.remote())
    ]
    futures = [cpu_executor.submit(ADD_U32, *job) for job in jobs]
    check_sums([future.result(TIMEOUT_SECONDS) for future in futures], jobs)
    for future, error in zip(
        with_errors, (ZeroDivisionError, ray.exceptions.RayActorError), strict=True
    ):
        with pytest.raises(error):
            future.result(TIMEOUT_SECONDS)
    assert count_deaths(cpu_executor) == before


def test_an_exception_reaches_only_its_future_with_its_type(vulkan_executor: RayExecutor) -> None:
    jobs, resent = field_jobs(*[9] * 40), vulkan_executor.stats().resent
    jobs[17][1][5] = TOO_LARGE
    futures = [vulkan_executor.submit(FQ_ADD, *job) for job in jobs]
    with pytest.raises(ElementRangeError) as raised:
        futures.pop(17).result(TIMEOUT_SECONDS)
    assert (raised.value.argument, raised.value.index) == (1, 5)
    assert "by the actor for" in raised.value.__notes__[-1]
    with pytest.raises(ElementRangeError, match="job 17") as raised:
        vulkan_executor.run_batch(FQ_ADD, jobs)
    assert raised.value.job == 17
    del jobs[17]
    check_sums([future.result(TIMEOUT_SECONDS) for future in futures], jobs)
    assert vulkan_executor.stats().resent == resent


def test_arguments_are_checked_before_they_are_sent(vulkan_executor: RayExecutor) -> None:
    a, b = make_pair(1)
    with pytest.raises(ArgumentShapeError):
        vulkan_executor.submit(ADD_U32, a, b[:2]).result()
    with pytest.raises(ArgumentTypeError, match="float64"):
        vulkan_executor.submit(ADD_U32, a, b.astype(float)).result()
    with pytest.raises(ArgumentTypeError, match="runs kernels"):
        vulkan_executor.submit(np.add, a, b)
    with pytest.raises(ArgumentTypeError, match="priority"):
        vulkan_executor.submit(ADD_U32, a, b, priority=1)
    # The array behind a reference is checked by the actor.
    with pytest.raises(ArgumentTypeError, match="float64"):
        vulkan_executor.submit(ADD_U32, a, ray.put(b.astype(float))).result(TIMEOUT_SECONDS)


def test_any_exception_reaches_its_future(cpu_executor: RayExecutor) -> None:
    class StuckError(Exception):
        """Cannot be pickled."""

        def __init__(self) -> None:
            super().__init__("stuck")
            self.lock = threading.Lock()

    def divide(*_arrays: Array) -> Any:
        raise ZeroDivisionError("division by zero")

    def stick(*_arrays: Array) -> Any:
        raise StuckError

    lock, resent = threading.Lock(), cpu_executor.stats().resent
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        cpu_executor.run(make_kernel(divide), *make_pair(1))
    with pytest.raises(gx.GpuError, match="stuck"):
        cpu_executor.run(make_kernel(stick), *make_pair(1))
    with pytest.raises(TypeError, match="lock"):  # the kernel cannot be pickled
        cpu_executor.run(make_kernel(lambda a, b: lock), *make_pair(1))
    check_sums([cpu_executor.run(ADD_U32, *make_pair(1))], [make_pair(1)])
    assert (cpu_executor.stats().resent, cpu_executor.stats().unanswered) == (resent, 0)


def test_invalid_settings_are_rejected(two_nodes: Cluster) -> None:
    with pytest.raises(SettingsError, match="devices="):
        gx.cluster.RayExecutor(devices=0)
    with pytest.raises(SettingsError, match="at least"):
        gx.cluster.RayExecutor(in_flight=0)
    for options, words in (
        ({"tries": "3"}, "tries is '3'; it must be a whole number, at least 1"),
        ({"in_flight_bytes": 1.5}, "in_flight_bytes is 1.5; it must be a whole number"),
        ({"when_full": "wait"}, "when_full is 'wait'; it must be 'block' or 'raise'"),
        ({"check": 2}, "check is 2; it must be a fraction from 0 to 1"),
        ({"settings": {}}, "settings is of type dict; it must be gx.Settings"),
    ):
        with pytest.raises(SettingsError, match=words):
            gx.cluster.RayExecutor(**options)
    with pytest.raises(SettingsError, match="may not set max_restarts"):
        gx.cluster.RayExecutor(actor_options={"max_restarts": 1})
    with pytest.raises(SettingsError, match="no backend 'cuda'"):
        gx.cluster.RayExecutor("cuda")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        gx.cluster.DaskExecutor  # noqa: B018
