"""Errors on several machines that are a job's own, and those of who asks."""

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
    PATIENCE,
    Array,
    RayExecutor,
    deaths,
    pair,
    referring,
)


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
    jobs, resent = field_jobs(*[9] * 40), vulkan.stats().resent
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
    assert vulkan.stats().resent == resent


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
