"""RayExecutor has the interface of a backend, as far as a cluster can: streams, explain and trim;
what it cannot have names the backends that do. test_ends.py has `close`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    NotSupportedError,
)
from tests.support.contract_kernels import expect_scaled, ramp, scale
from tests.support.executors import ADD, total, words
from tests.support.jobs import FQ_ADD, TOO_LARGE, check_sums, field_job
from tests.support.ray_cluster import RayExecutor

SCALE = scale()


def test_a_stream_yields_results_in_order_and_reads_a_bounded_number_ahead(
    vulkan_executor: RayExecutor,
) -> None:
    read = 0

    def jobs() -> Iterator[Any]:
        nonlocal read
        while True:
            yield words(20, read)
            read += 1

    stream = vulkan_executor.stream(ADD, jobs())
    assert read == 0
    for number in range(50):
        np.testing.assert_array_equal(next(stream), total(words(20, number)))
        assert read <= number + 40
    stream.close()
    assert list(stream) == []
    outs = [np.zeros(20, np.uint32) for _ in range(40)]
    given = [words(20, number) for number in range(90)]
    cycled = (outs[number % 40] for number in range(90))
    for result, job in zip(vulkan_executor.stream(ADD, given, out=cycled), given, strict=True):
        check_sums([result], [job])
    scaled = list(
        vulkan_executor.stream(SCALE, [given[3][:1]] * 4, params=[(n, 1) for n in range(4)])
    )
    for factor, result in enumerate(scaled):
        np.testing.assert_array_equal(result, expect_scaled(given[3][0], factor, 1))


def test_errors_of_a_stream_name_the_job(vulkan_executor: RayExecutor) -> None:
    a, b = words(20)
    with pytest.raises(ArgumentShapeError, match=r"^job 1: "):
        list(vulkan_executor.stream(ADD, [(a, b), (a, b[1:])]))
    with pytest.raises(ArgumentTypeError, match=r"^job 0: a job is a tuple of arrays"):
        list(vulkan_executor.stream(ADD, [a]))  # type: ignore[list-item]
    with pytest.raises(ArgumentShapeError, match="may come again after its job's result was taken"):
        list(vulkan_executor.stream(ADD, [(a, b)] * 2, out=[a.copy()] * 2))
    jobs = [field_job(9, seed) for seed in range(3)]
    jobs[2][1][4] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError, match=r"^job 2: "):
        list(vulkan_executor.stream(FQ_ADD, jobs))


def test_explain_and_trim_ask_every_device(vulkan_executor: RayExecutor) -> None:
    a, b = words(1234)
    vulkan_executor.run_batch(ADD, [(a, b)] * 20)
    plan = vulkan_executor.explain(ADD, a, b)
    assert isinstance(plan, gx.Plan)
    text = str(plan)
    assert text.count("1,234 elements") == 2
    for actor in vulkan_executor.stats().actors:
        assert f"{actor.device} by vulkan on {actor.host}" in text
    assert vulkan_executor.explain(ADD, 1234) == plan
    assert "7 elements" in str(vulkan_executor.explain(ramp(), out_shape=(7,)))
    with pytest.raises(ArgumentShapeError, match="argument 1 has elements in shape"):
        vulkan_executor.explain(ADD, a, b[1:])
    assert vulkan_executor.trim() > 0
    assert vulkan_executor.trim() == 0


def test_what_a_cluster_cannot_do_names_the_backends_that_can(cpu_executor: RayExecutor) -> None:
    a, b = words(3)
    uses: dict[str, Callable[[], object]] = {
        "to_device": lambda: cpu_executor.to_device(a),
        "empty": lambda: cpu_executor.empty(3),
        "empty_device": lambda: cpu_executor.empty_device(3),
        "export=True": lambda: cpu_executor.empty_device(3, export=True),
        "from_dlpack": lambda: cpu_executor.from_dlpack(a),
        "wait_for_stream": lambda: cpu_executor.wait_for_stream(0),
        "make_stream_wait": lambda: cpu_executor.make_stream_wait(0),
        "zeros": lambda: cpu_executor.zeros(3),
        "asarray": lambda: cpu_executor.asarray(a),
        "import_array": lambda: cpu_executor.import_array(a),
        "graph": cpu_executor.graph,
        "synchronize": cpu_executor.synchronize,
        "warm_up": lambda: cpu_executor.warm_up("msm", gx.curves.BN254_G1),
        "profile": cpu_executor.profile,
        "keep=True": lambda: cpu_executor.run(ADD, a, b, keep=True),
    }
    jobs = [(a, b)]
    assert cpu_executor.run_batch(ADD, jobs, keep=False)[0].tolist() == (a + b).tolist()
    refused: list[Callable[[], object]] = [
        lambda: cpu_executor.run_batch(ADD, jobs, keep=True),
        lambda: cpu_executor.stream(ADD, jobs, keep=True),
        lambda: cpu_executor.map(ADD, [a], [b], keep=True),
        lambda: cpu_executor.submit(ADD, a, b, keep=True),
        lambda: asyncio.run(cpu_executor.run_async(ADD, a, b, keep=True)),
    ]
    for refuse in refused:
        with pytest.raises(NotSupportedError, match=r"^keep=True is not supported .*'ray'"):
            refuse()
    for method, use in uses.items():
        with pytest.raises(
            NotSupportedError, match=f"^{method} is not supported .*'ray'.*: vulkan"
        ):
            use()
    with gx.CpuBackend() as cpu, pytest.raises(ArgumentTypeError, match="is a device array"):
        cpu_executor.run(ADD, cpu.to_device(a), b)
