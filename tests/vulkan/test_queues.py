"""Queues: which are opened, and that each submission waits for exactly the previous one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.calls.call import check
from gpu_executor.device_info import QueueFamily
from gpu_executor.errors import NoDeviceError
from gpu_executor.plan import ElementRange, strategy
from gpu_executor.vulkan.binding import Arena, vk
from gpu_executor.vulkan.device import MAX_PARALLEL_QUEUES, QueueAddress, choose_queues
from gpu_executor.vulkan.memory import Purpose
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.slot import Slot
from gpu_executor.vulkan.slot_buffers import SlotLayout
from gpu_executor.vulkan.timeline import Submission, Timeline
from tests.conftest import OpenGpu
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, check_sums, field_jobs, watch, word_jobs

ALL = QueueFamily(16, ("graphics", "compute", "transfer"), 64)
COPIES = QueueFamily(2, ("transfer",), 64)
COMPUTES = QueueFamily(8, ("compute", "transfer"), 64)
DECODES = QueueFamily(1, ("transfer", "video_decode"), 32)
ENCODES = QueueFamily(3, ("transfer", "video_encode"), 32)
DRAWS = QueueFamily(1, ("graphics", "transfer"), 64)
SHORT_NS, LONG_NS = 50_000_000, 60_000_000_000


def test_an_h200_computes_on_one_family_and_copies_on_another() -> None:
    found = choose_queues([ALL, COPIES, COMPUTES, DECODES, ENCODES])
    assert found.compute == QueueAddress(2, 0)
    assert found.parallel_compute == tuple(
        QueueAddress(2, index) for index in range(MAX_PARALLEL_QUEUES)
    )
    assert (found.upload, found.download) == (QueueAddress(1, 0), QueueAddress(1, 1))
    assert found.families == [1, 2]
    assert [found.count_in_family(family) for family in found.families] == [2, MAX_PARALLEL_QUEUES]


@pytest.mark.parametrize("family", [ALL, COMPUTES, QueueFamily(1, ("compute",), 0)])
def test_a_device_with_one_family_uses_it_for_everything(family: QueueFamily) -> None:
    found = choose_queues([family])
    assert (found.upload, found.download, found.families) == (None, None, [0])
    assert found.compute == QueueAddress(0, 0)
    alone = "graphics" in family.work or family.count == 1
    assert len(found.parallel_compute) == (0 if alone else MAX_PARALLEL_QUEUES)


def test_a_single_transfer_queue_copies_both_ways() -> None:
    found = choose_queues([dataclasses.replace(COPIES, count=1), COMPUTES])
    assert found.upload == found.download == QueueAddress(0, 0)
    assert found.compute == QueueAddress(1, 0)
    assert (found.families, found.count_in_family(0), found.count_in_family(1)) == (
        [0, 1],
        1,
        MAX_PARALLEL_QUEUES,
    )


def test_the_transfer_family_with_most_queues_is_chosen() -> None:
    one, two = dataclasses.replace(COPIES, count=1), COPIES
    assert choose_queues([one, ALL, two]).download == QueueAddress(2, 1)
    assert choose_queues([two, ALL, one]).download == QueueAddress(0, 1)


@pytest.mark.parametrize("families", [[], [COPIES], [DRAWS, COPIES, DECODES]])
def test_a_device_without_a_compute_family_is_refused(families: list[QueueFamily]) -> None:
    with pytest.raises(NoDeviceError, match="no queue family that supports compute"):
        choose_queues(families)


def test_only_transfer_only_families_count_as_transfer_families() -> None:
    assert COPIES.only_copies
    assert not any(family.only_copies for family in (ALL, COMPUTES, DECODES, ENCODES, DRAWS))


def three_timelines(resources: Resources, opened: ExitStack) -> Resources:
    """Stand-ins for transfer queues: the compute queue with a timeline semaphore for each.

    Only one thread may use them, because each timeline locks the shared queue by a lock of its own.
    """
    if resources.upload is not None and resources.download is not resources.upload:
        return resources
    queues = resources.device.queues
    address = queues.upload or queues.compute
    made = [Timeline(resources.device, address) for _ in range(2)]
    for timeline in made:
        opened.callback(timeline.close)
    return dataclasses.replace(resources, upload=made[0], download=made[1])


@pytest.fixture
def split_gpu(
    staged_inputs: None, fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> gx.PersistentVulkanBackend:
    """A backend that copies and computes on three timelines, in chunks of 100 elements."""
    make = Session._make_resources
    monkeypatch.setattr(strategy, "_choose_queues", lambda *_: ("split", "queues: three"))
    monkeypatch.setattr(
        Session,
        "_make_resources",
        lambda self, opened: three_timelines(make(self, opened), opened),
    )
    return fresh_gpu(stream_chunk_elems=100)


@pytest.mark.parametrize("depth", [2, 3, 16])
@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
def test_three_queues_give_the_same_results(
    split_gpu: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    depth: int,
    mapped: bool,
) -> None:
    jobs, out = field_jobs(5, 100, 0, 250, 64, 101, 1, 99), None
    if mapped:
        jobs = [(split_gpu.asarray(a), split_gpu.asarray(b)) for a, b in jobs]
        out = [split_gpu.empty(a.shape, a.dtype) for a, _ in jobs]
    submitted = watch(monkeypatch, "vkQueueSubmit")
    for _ in range(3):
        results = split_gpu.run_batch(FQ_ADD, jobs, out=out, device_local=True, depth=depth)
        check_sums(results, jobs)
    assert len(submitted) == 3 * 3 * 10  # ten chunks, three times
    jobs[3][0][207] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError) as caught:
        split_gpu.run_batch(FQ_ADD, jobs, device_local=True, depth=depth)
    assert (caught.value.job, caught.value.index) == (3, 207)
    assert split_gpu.stats().slots.in_use == 0


def read_values(info: Any) -> tuple[dict[Any, int], dict[Any, int]]:
    """By semaphore: the values that a submission waits for and signals."""
    timeline = vk.ffi.cast("VkTimelineSemaphoreSubmitInfo *", info.pNext)
    assert timeline.waitSemaphoreValueCount == info.waitSemaphoreCount
    assert timeline.signalSemaphoreValueCount == info.signalSemaphoreCount
    waits = {
        info.pWaitSemaphores[at]: timeline.pWaitSemaphoreValues[at]
        for at in range(info.waitSemaphoreCount)
    }
    signals = {
        info.pSignalSemaphores[at]: timeline.pSignalSemaphoreValues[at]
        for at in range(info.signalSemaphoreCount)
    }
    return waits, signals


def test_each_submission_waits_for_the_value_that_the_previous_one_signals(
    split_gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[dict[Any, int], dict[Any, int], list[int]]] = []

    def note(_queue: Any, _count: int, info: Any, _fence: Any) -> None:
        stages = [info.pWaitDstStageMask[at] for at in range(info.waitSemaphoreCount)]
        seen.append((*read_values(info), stages))

    watch(monkeypatch, "vkQueueSubmit", note)
    jobs = word_jobs(70, 250, 100, 3, 1000)
    for depth in (2, 3, 16):
        check_sums(split_gpu.run_batch(ADD_U32, jobs, device_local=True, depth=depth), jobs)
    chunks = 1 + 3 + 1 + 1 + 10
    assert len(seen) == 3 * 3 * chunks
    last: dict[Any, int] = {}
    for copies_in, computes, copies_out in zip(seen[::3], seen[1::3], seen[2::3], strict=True):
        assert copies_in[0] == {}
        assert computes[0] == copies_in[1]
        assert copies_out[0] == computes[1]
        assert computes[2] == [vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT]
        assert copies_out[2] == [vk.VK_PIPELINE_STAGE_TRANSFER_BIT]
        for _, signals, _ in (copies_in, computes, copies_out):
            ((semaphore, value),) = signals.items()
            assert value > last.get(semaphore, 0)
            last[semaphore] = value
    assert len(last) == 3


class SplitSlot:
    """One slot on three timelines, and a call to run in it."""

    def __init__(self, resources: Resources) -> None:
        self.device = resources.device.handle
        self.x = np.arange(70, dtype=np.uint32)
        signature = check(ADD_U32, [self.x, self.x])
        self.call = signature.make_call([self.x, self.x])
        self.call.make_outputs()
        self.slot = Slot(
            resources, SlotLayout(ADD_U32, "device-local", "split", 64, 1, signature.operands)
        )

    def start(self) -> list[Submission]:
        self.slot.start(self.call, ElementRange(0, 70), (2, 1, 1))
        return [submission for _, submission in self.slot._recording.submissions]

    def done(self, submission: Submission, timeout: int) -> bool:
        return bool(vk.vkWaitSemaphores(self.device, submission.wait_info, timeout) == 0)

    def signal(self, submission: Submission, value: int) -> None:
        info = Arena().new(
            "VkSemaphoreSignalInfo",
            semaphore=submission.submit_info.pSignalSemaphores[0],
            value=value,
        )
        vk.vkSignalSemaphore(self.device, info)

    def finish(self) -> None:
        self.slot.finish(self.call)
        np.testing.assert_array_equal(self.call.results[0], 2 * self.x)


@pytest.fixture
def split_slot(session: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[SplitSlot]:
    with ExitStack() as opened:
        monkeypatch.setattr(session.resources.memory, "input_purpose", Purpose.UPLOAD)
        made = SplitSlot(three_timelines(session.resources, opened))
        opened.callback(made.slot.close)
        yield made


def test_with_the_right_values_every_submission_completes(split_slot: SplitSlot) -> None:
    for _ in range(3):
        submissions = split_slot.start()
        assert [len(submission.after) for submission in submissions] == [0, 1, 1]
        assert all(split_slot.done(submission, LONG_NS) for submission in submissions)
        split_slot.finish()


@pytest.mark.parametrize("shifted", [1, 2], ids=["computing", "copying back"])
def test_a_wait_value_shifted_by_one_blocks_the_submission(
    split_slot: SplitSlot, monkeypatch: pytest.MonkeyPatch, shifted: int
) -> None:
    """The waits are real: nothing signals the shifted value, so the submission does not start."""
    split_slot.start()
    split_slot.finish()
    submits = 0

    def shift(_queue: Any, _count: int, info: Any, _fence: Any) -> None:
        nonlocal submits
        if submits == shifted:
            timeline = vk.ffi.cast("VkTimelineSemaphoreSubmitInfo *", info.pNext)
            vk.ffi.cast("uint64_t *", timeline.pWaitSemaphoreValues)[0] += 1
        submits += 1

    watch(monkeypatch, "vkQueueSubmit", shift)
    submissions = split_slot.start()
    assert all(split_slot.done(submission, LONG_NS) for submission in submissions[:shifted])
    assert not any(split_slot.done(submission, SHORT_NS) for submission in submissions[shifted:])
    missing = submissions[shifted - 1]
    split_slot.signal(missing, missing.signal_value[0] + 1)
    assert all(split_slot.done(submission, LONG_NS) for submission in submissions[shifted:])
    split_slot.finish()
