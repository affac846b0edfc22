"""Plans of batches: the slots, the path, the queues, and smaller plans when memory runs out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import SettingsError
from gpu_executor.plan import MAX_SLOTS, CallPlan, Request, RunOptions, make_plan, shrink_plan
from gpu_executor.plan.bounds import DEFAULT_SLOTS
from gpu_executor.plan.plan import MIN_CHUNK
from gpu_executor.plan.strategy import SPLIT_BYTES
from gpu_executor.settings import Settings
from tests.support.plans import (
    ADD,
    ELEMENT,
    WITH_TRANSFER_QUEUES,
    add_operands,
    describe_device,
    find_reason,
)

INPUT_BYTES = 2 * ELEMENT.nbytes


def plan(
    count: int,
    jobs: int,
    on: DeviceInfo = WITH_TRANSFER_QUEUES,
    *,
    chunk: int = 1 << 19,
    in_place: bool = False,
    device_local: bool | None = None,
    pipelined: bool | None = None,
    depth: int | None = None,
) -> CallPlan:
    """The plan for a batch of field additions."""
    options = RunOptions(device_local, pipelined, depth)
    request = Request(ADD, add_operands(count), count, jobs, options, in_place)
    return make_plan(request, on, Settings(stream_chunk_elems=chunk))


@pytest.mark.parametrize("depth", [1, 2, 3, MAX_SLOTS])
@pytest.mark.parametrize("jobs", [1, 2, 100])
def test_a_requested_depth_is_used(depth: int, jobs: int) -> None:
    found = plan(70, jobs, depth=depth)
    assert found.slots == depth
    assert find_reason(found, "slots") == f"{depth}, requested"


@pytest.mark.parametrize("jobs", [1, 2, 100])
def test_pipelined_false_uses_one_slot_and_true_at_least_two(jobs: int) -> None:
    assert plan(70, jobs, pipelined=False).slots == 1
    assert plan(70, jobs, chunk=10, pipelined=False).slots == 1
    assert 2 <= plan(70, jobs, pipelined=True).slots <= max(2, jobs)


@pytest.mark.parametrize(
    ("count", "jobs", "slots"),
    [(10, 1, 1), (11, 1, 2), (10, 2, 2), (10, 100, DEFAULT_SLOTS), (1000, 1, DEFAULT_SLOTS)],
)
def test_without_a_request_there_are_no_more_slots_than_chunks(
    count: int, jobs: int, slots: int
) -> None:
    assert plan(count, jobs, chunk=10).slots == slots


@pytest.mark.parametrize("depth", [-1, 0, 17, 1000])
def test_depths_out_of_range_are_refused(depth: int) -> None:
    with pytest.raises(SettingsError, match=f"depth is {depth} with pipelined=None; .* 1 to 16"):
        RunOptions(depth=depth)


def test_a_depth_that_contradicts_pipelined_is_refused() -> None:
    with pytest.raises(SettingsError, match="depth is 1 with pipelined=True"):
        RunOptions(pipelined=True, depth=1)
    with pytest.raises(SettingsError, match="depth is 2 with pipelined=False"):
        RunOptions(pipelined=False, depth=2)
    assert RunOptions(pipelined=False, depth=1).depth == 1


def test_three_queues_are_used_where_the_device_has_transfer_queues() -> None:
    enough = SPLIT_BYTES // INPUT_BYTES + 1
    found = plan(enough, 4, device_local=True, in_place=True)
    assert found.queues == "split"
    assert find_reason(found, "queues") == "three, for copy in, compute and copy out"
    for other in (
        plan(enough, 4, describe_device(), device_local=True, in_place=True),
        plan(enough, 4, device_local=False, in_place=True),
        plan(enough, 4, device_local=True, in_place=True, pipelined=False),
        plan(enough // 2, 4, device_local=True, in_place=True),
    ):
        assert other.queues == "one"


@given(chunk=st.integers(1, 1 << 24), device_local=st.booleans())
def test_a_plan_shrinks_by_halves_to_the_smallest_chunk(chunk: int, device_local: bool) -> None:
    found: CallPlan | None = plan(1 << 26, 1, chunk=chunk, device_local=device_local)
    while found is not None:
        smaller = shrink_plan(found)
        if smaller is None:
            assert found.chunk < 2 * MIN_CHUNK
        else:
            assert MIN_CHUNK <= smaller.chunk == found.chunk // 2
            assert smaller.chunk <= smaller.capacity < found.capacity
            assert f"memory for {found.chunk:,} could not be allocated" in smaller.reasons[-1]
            assert (smaller.path, smaller.slots) == (found.path, found.slots)
        found = smaller


def test_explain_accepts_a_number_of_elements(gpu: gx.PersistentVulkanBackend) -> None:
    kernel = gx.kernels.load("bls12_381_fq_mont_mul")
    many = gpu.explain(kernel, 3_000_000_000)
    assert (many.count, many.chunk) == (3_000_000_000, gpu.explain(kernel, 1 << 30).chunk)
    assert many.slots > 1
    a = np.zeros((70, 6), np.uint64)
    assert gpu.explain(kernel, 70) == gpu.explain(kernel, a, a)
