"""Timing of kernels on data in device memory, by the device's clock."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.bench.inputs import tile_elements
from gpu_executor.bench.sampled import Sampled
from gpu_executor.calls.call import check
from gpu_executor.kernel import ElementType, Kernel
from gpu_executor.kernel.parameters import NO_VALUES
from gpu_executor.plan.plan import choose_work_groups
from gpu_executor.primes import Prime
from gpu_executor.steps.bound_steps import Copy, Fill
from gpu_executor.steps.status import STATUS_CLEAR
from gpu_executor.vulkan.binding import Handle, get_integer, vk
from gpu_executor.vulkan.commands import COPIES, KERNELS, CommandPool, Recorder
from gpu_executor.vulkan.memory import Allocation, Purpose, mapped_view
from gpu_executor.vulkan.profile import Timestamps
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.session import Session

_BYTES = ElementType(np.dtype(np.uint8))
UPLOADED = 4_096
"""The number of elements that are uploaded; the device repeats them to fill the array."""
WARM_UP_SECONDS = 0.2
REPEATS = 10
"""Dispatches of a kernel in one submission."""


def time_kernel(
    session: Session,
    kernel: Kernel,
    prime: Prime,
    count: int,
    *,
    work_group: int,
    per_invocation: int = 1,
) -> Sampled:
    """Return the median seconds of one dispatch on `count` elements in device-local memory."""
    resources = session.resources
    nbytes = count * prime.element_bytes
    with contextlib.ExitStack() as stack:
        arrays = [_allocate(stack, resources, Purpose.DEVICE, nbytes) for _ in range(3)]
        word = _allocate(stack, resources, Purpose.UPLOAD, 4)
        status = mapped_view(word, 0, 4, _BYTES).view(np.uint32)
        status[0] = STATUS_CLEAR
        for seed, array in enumerate(arrays[:2]):
            _fill(stack, resources, array, prime, count, seed)
        pipeline = resources.pipelines.acquire(kernel, work_group, per_invocation)
        stack.callback(resources.pipelines.release, pipeline)
        ranges = [(array.block.handle, array.offset, nbytes) for array in arrays]
        ranges.append((word.block.handle, word.offset, 4))
        sets = _allocate_set(stack, resources, ranges)
        push = vk.ffi.from_buffer(kernel.compose_push(count, b"", NO_VALUES))
        grid = -(-count // (work_group * per_invocation)), 1, 1
        (seconds,) = _time_recordings(
            stack,
            resources,
            [lambda recorder: recorder.dispatch(pipeline, sets, push, grid)],
            REPEATS,
        )
        if status[0] != STATUS_CLEAR:
            raise AssertionError(f"{kernel.name} reported elements out of range among valid ones")
    return seconds


def time_calls(
    session: Session,
    calls: Sequence[tuple[Kernel, Sequence[DeviceArray]]],
    *,
    repeats: int = REPEATS,
) -> list[Sampled]:
    """Return the median seconds of calls on device arrays, alternating in one submission.

    The time of a call includes that of zeroing its scratch memory. The kernels have no status word
    and no parameters.
    """
    resources = session.resources
    with contextlib.ExitStack() as stack:
        records = [_prepare_call(stack, session, kernel, arrays) for kernel, arrays in calls]
        return _time_recordings(stack, resources, records, repeats)


def _prepare_call(
    stack: contextlib.ExitStack, session: Session, kernel: Kernel, arrays: Sequence[DeviceArray]
) -> Callable[[Recorder], None]:
    """Return a function that records one call; its outputs and its scratch memory are allocated."""
    resources, signature = session.resources, check(kernel, arrays)
    found = [session.device_memory.find_range(array) for array in arrays]
    ranges = [
        (get_integer(each.buffer), each.offset, array.nbytes)
        for each, array in zip(found, arrays, strict=True)
    ]
    sizes = [operand.nbytes for operand in signature.outputs]
    sizes += [max(signature.scratch_bytes, 4)] if kernel.scratch is not None else []
    for nbytes in sizes:
        made = _allocate(stack, resources, Purpose.DEVICE, nbytes)
        ranges.append((made.block.handle, made.offset, nbytes))
    scratch = Fill(made.buffer, made.offset, signature.scratch_bytes, b"\0")
    size, per_invocation = choose_work_groups(kernel, signature.count, session.info, [])
    grid = signature.grid or (-(-signature.count // (size * per_invocation)), 1, 1)
    pipeline = resources.pipelines.acquire(kernel, size, per_invocation)
    stack.callback(resources.pipelines.release, pipeline)
    sets = _allocate_set(stack, resources, ranges)
    push = vk.ffi.from_buffer(
        kernel.compose_push(signature.count, signature.shape_words, NO_VALUES)
    )

    def record(recorder: Recorder) -> None:
        if signature.scratch_bytes:
            recorder.fill(scratch)
            recorder.barrier(COPIES, KERNELS)
        recorder.dispatch(pipeline, sets, push, grid)

    return record


def _time_recordings(
    stack: contextlib.ExitStack,
    resources: Resources,
    records: Sequence[Callable[[Recorder], None]],
    repeats: int,
) -> list[Sampled]:
    """Return the median seconds of each recorded chunk of work by the device's clock.

    All work is submitted repeatedly before it is timed, to warm up: an idle GPU runs at a fraction
    of its clock (345 of 1,980 MHz on an NVIDIA H200).
    """
    rounds = [record for _ in range(repeats) for record in records]
    timestamps = Timestamps(resources.device, [resources.compute.family], len(rounds) + 1)
    stack.callback(timestamps.close)
    with _record(stack, resources) as (recorder, submit):
        recorder.reset_timestamps(timestamps)
        records[-1](recorder)
        for index, record in enumerate(rounds):
            recorder.barrier_all()
            recorder.write_timestamp(timestamps, index)
            record(recorder)
        recorder.barrier_all()
        recorder.write_timestamp(timestamps, len(rounds))
    warm = time.perf_counter() + WARM_UP_SECONDS
    submit()
    while time.perf_counter() < warm:
        submit()
    submit()  # the timed one: a long first submission may have begun on an idle GPU
    at = timestamps.read_elapsed()
    taken = [(after - before) / 1e9 for before, after in itertools.pairwise(at)]
    return [Sampled.median(taken[index :: len(records)]) for index in range(len(records))]


def _allocate_set(
    stack: contextlib.ExitStack, resources: Resources, ranges: Sequence[tuple[int, int, int]]
) -> Handle:
    """Allocate a descriptor set that binds buffers at 0, 1, ...: handles, offsets and lengths."""
    values = list(itertools.chain.from_iterable(ranges))
    made = resources.descriptors.allocate(len(ranges), values)
    stack.callback(resources.descriptors.release, made)
    return made.handles


def _allocate(
    stack: contextlib.ExitStack, resources: Resources, purpose: Purpose, nbytes: int
) -> Allocation:
    allocation = resources.memory.allocate(purpose, nbytes, "staging")
    stack.callback(resources.memory.release, allocation)
    return allocation


def _fill(
    stack: contextlib.ExitStack,
    resources: Resources,
    target: Allocation,
    prime: Prime,
    count: int,
    seed: int,
) -> None:
    """Upload a small sample and repeat it by copies on the device until the whole array is
    filled.
    """
    sample = tile_elements(prime, min(count, UPLOADED), seed)
    staging = _allocate(stack, resources, Purpose.UPLOAD, sample.nbytes)
    mapped_view(staging, 0, sample.nbytes, _BYTES)[:] = sample.reshape(-1).view(np.uint8)
    nbytes, step = count * prime.element_bytes, sample.nbytes
    copies = [
        Copy(
            staging.buffer,
            staging.offset,
            target.buffer,
            target.offset + at,
            min(step, nbytes - at),
        )
        for at in range(0, nbytes, step)
    ]
    with _record(stack, resources) as (recorder, submit):
        recorder.copy(copies)
        recorder.barrier(COPIES, KERNELS)
    submit()


@contextlib.contextmanager
def _record(
    stack: contextlib.ExitStack, resources: Resources
) -> Iterator[tuple[Recorder, Callable[[], None]]]:
    """Yield a recorder, and a function that submits the recorded commands and waits for them."""
    pool = CommandPool(resources.device, resources.compute.family)
    stack.callback(pool.close)
    commands = pool.allocate()
    submission = resources.compute.prepare(commands)

    def submit() -> None:
        resources.compute.submit(submission)
        resources.compute.wait(submission)

    with Recorder(commands) as recorder:
        yield recorder, submit
