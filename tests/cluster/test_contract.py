"""RayExecutor with parameters, in-out arguments, structs, no inputs and functions of kernels."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from tests.support.contract_kernels import (
    PARTICLE,
    RENAMED_PARTICLE,
    expect_scaled,
    expect_step,
    make_particles,
    move,
    outer,
    ramp,
    reverse,
    scale,
    step,
)
from tests.support.ray_cluster import LARGE, SMALL, TIMEOUT_SECONDS, Array, RayExecutor

SCALE, STEP = scale(), step()


def make_array(count: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32)


# --- parameters ---


def test_each_call_has_its_own_parameters(vulkan_executor: RayExecutor) -> None:
    arrays = [make_array(count, count) for count in (1, 5, SMALL, LARGE, 7) * 4]
    params = [{"factor": 3 + n, "offset": n} for n in range(20)]
    jobs = [(each,) for each in arrays]

    async def gather() -> list[Any]:
        calls = zip(arrays, params, strict=True)
        return await asyncio.gather(
            *(vulkan_executor.run_async(SCALE, x, params=own) for x, own in calls)
        )

    ways: list[list[Array]] = [
        vulkan_executor.run_batch(SCALE, jobs, params=params),
        list(vulkan_executor.map(SCALE, arrays, params=params)),
        asyncio.run(gather()),
        [vulkan_executor.run(SCALE, x, params=own) for x, own in zip(arrays, params, strict=True)],
    ]
    for results in ways:
        for result, x, own in zip(results, arrays, params, strict=True):
            np.testing.assert_array_equal(result, expect_scaled(x, **own))
    for result, x in zip(vulkan_executor.run_batch(SCALE, jobs, params=(5,)), arrays, strict=True):
        np.testing.assert_array_equal(result, expect_scaled(x, 5))


def test_a_dict_may_be_changed_after_submit(vulkan_executor: RayExecutor) -> None:
    x, params = make_array(SMALL), {"factor": 0}
    futures = []
    for factor in range(30):
        params["factor"] = factor
        futures.append(vulkan_executor.submit(SCALE, x, params=params))
    for factor, future in enumerate(futures):
        result = future.result(TIMEOUT_SECONDS)
        np.testing.assert_array_equal(result, expect_scaled(x, factor))


def test_wrong_parameters_are_refused_before_anything_is_sent(
    vulkan_executor: RayExecutor,
) -> None:
    x = make_array(SMALL)
    before = sum(actor.answered for actor in vulkan_executor.stats().actors)
    for wrong in (None, {"other": 1}, {"factor": -1}, (1, 2, 3)):
        with pytest.raises(ArgumentTypeError, match="scale: param"):
            vulkan_executor.run(SCALE, x, params=wrong)
    with pytest.raises(ArgumentTypeError, match="params lists 1 entries for 2 jobs"):
        vulkan_executor.run_batch(SCALE, [(x,), (x,)], params=[(1,)])
    with pytest.raises(ArgumentTypeError, match="job 1: params has no entry"):
        list(vulkan_executor.map(SCALE, [x, x], params=[(1,)]))
    assert sum(actor.answered for actor in vulkan_executor.stats().actors) <= before + 1
    stored = ray.put(x)  # the actor checks calls with references
    with pytest.raises(ArgumentTypeError, match="has 'other'"):
        vulkan_executor.run(SCALE, stored, params={"other": 1})
    result = vulkan_executor.run(SCALE, stored, params={"factor": 2})
    np.testing.assert_array_equal(result, expect_scaled(x, 2))


# --- in-out arguments ---


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_in_out_arguments_are_returned_in_new_arrays(
    vulkan_executor: RayExecutor, cpu_executor: RayExecutor, count: int
) -> None:
    """Large arrays are read-only views of the object store in the actor."""
    x, c = make_array(count), make_array(count, 2)
    expected, before = expect_step(x, c), x.copy()
    for executor in (vulkan_executor, cpu_executor):
        for result in [executor.run(STEP, x, c), *executor.run_batch(STEP, [(x, c)] * 5)]:
            np.testing.assert_array_equal(result, expected)
            assert not np.may_share_memory(result, x)
        np.testing.assert_array_equal(executor.run(reverse(), x), x[::-1])
        np.testing.assert_array_equal(x, before)
        stored = ray.put(x)
        for _ in range(2):  # the stored array does not change either
            np.testing.assert_array_equal(executor.run(STEP, stored, c), expected)
        given = x.copy()
        assert executor.run(STEP, given, c, out=given) is given
        np.testing.assert_array_equal(given, expected)


def test_a_call_in_place_is_sent_again_with_the_array_as_it_was(
    cpu_executor: RayExecutor, tmp_path: Path
) -> None:
    """The caller's array changes only when the result has arrived."""

    def die_once(x: Array, c: Array) -> Array:
        x += 1
        with contextlib.suppress(FileExistsError):
            (tmp_path / "died").touch(exist_ok=False)
            os._exit(1)
        x -= 1
        return expect_step(x, c)

    mortal = step(reference=die_once)
    for count in (SMALL, LARGE):
        (tmp_path / "died").unlink(missing_ok=True)
        x, c = make_array(count), make_array(count, 2)
        expected, resent = expect_step(x, c), cpu_executor.stats().resent
        assert cpu_executor.run(mortal, x, c, out=x) is x
        np.testing.assert_array_equal(x, expected)
        assert cpu_executor.stats().resent == resent + 1


def test_structs_keep_their_layout(vulkan_executor: RayExecutor) -> None:
    for count in (10, 10_000):
        particles = make_particles(count)
        moved = vulkan_executor.run(move(), particles)
        assert moved.dtype == PARTICLE
        np.testing.assert_array_equal(moved["id"], particles["id"] + 1)
        out = np.zeros(count, RENAMED_PARTICLE)
        assert vulkan_executor.run(move(), particles, out=out) is out
        np.testing.assert_array_equal(out["number"], particles["id"] + 1)
        np.testing.assert_array_equal(out["position"], particles["at"] + [1, 2, 3])


# --- other arguments ---


def test_kernels_without_inputs_and_output_shapes_of_a_call(
    vulkan_executor: RayExecutor, cpu_executor: RayExecutor
) -> None:
    for executor in (vulkan_executor, cpu_executor):
        for shape in ((SMALL,), (400, 500)):
            result = executor.run(ramp(), params=(3, 2), out_shape=shape)
            expected = (3 + 2 * np.arange(np.prod(shape))).astype(np.uint32).reshape(shape)
            np.testing.assert_array_equal(result, expected)
    with pytest.raises(ArgumentShapeError, match="give out_shape="):
        vulkan_executor.run(ramp(), params=(3,))
    assert vulkan_executor.stats().unanswered_bytes == 0


def test_scalars_and_lists_become_arrays(vulkan_executor: RayExecutor) -> None:
    assert vulkan_executor.run(SCALE, [1, 2, 3], params=(2,)).tolist() == [2, 4, 6]
    stored = ray.put(np.array([3, 4], np.uint32))
    assert vulkan_executor.run(outer(), [2], stored).tolist() == [[6, 8]]
    with pytest.raises(ArgumentTypeError, match="uint32 cannot hold"):
        vulkan_executor.run(SCALE, [-1], params=(2,))


def test_kernels_travel_with_their_functions(vulkan_executor: RayExecutor, one_node: None) -> None:
    """The lambdas refer to a variable of this test."""
    size = 64
    kernel = outer(
        constants={0: size},
        grid=lambda a, b, params: (-(-a[0] * b[0] // size), 1, 1),
        out_shape=lambda a, b: (a[0], b[0]) if size else (),
        reference=lambda a, b: a[:, None] * b,
    )
    a = make_array(300)
    np.testing.assert_array_equal(vulkan_executor.run(kernel, a, a), np.multiply.outer(a, a))
    with gx.cluster.RayExecutor("cpu", check=1.0) as checked:
        np.testing.assert_array_equal(checked.run(kernel, a, a), np.multiply.outer(a, a))
