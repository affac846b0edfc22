"""How far calls are from their floors, measured in the same run as the floors themselves."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gpu_executor.bench.kernel_rate import kernel_seconds
from gpu_executor.bench.samples import elements
from gpu_executor.call import Call
from gpu_executor.kernels import load
from gpu_executor.kernels.catalogue import mul_chain_kernel
from gpu_executor.plan.plan import USUAL_WORK_GROUP
from gpu_executor.primes import BLS12_381_FQ, BLS12_381_FR, Prime
from gpu_executor.settings import Settings
from gpu_executor.vulkan.binding import vk
from gpu_executor.vulkan.prepared_call import PreparedCall
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.slot import Slot
from gpu_executor.vulkan.timeline import Timeline

SMALL, MEDIUM = 64, 1 << 20
ROUNDS = 40
GPU_SIZES = (1 << 24, 1 << 22, 256)
CPU_SIZES = (1 << 16, 1 << 10, 16)
"""Elements to add and multiply, chains, and products in a chain. Chains stay short on lavapipe,
which ends a shader after 65,535 loop iterations."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Something measured, and the floor it is held against."""

    name: str
    measured: float
    floor: float
    unit: str
    allowed: float
    """The ratio it is meant to stay within."""

    @property
    def ratio(self) -> float:
        return self.measured / self.floor


@dataclass(frozen=True, slots=True)
class Rate:
    """A kernel alone, on data in device memory, by the device's clock."""

    name: str
    elements: int
    per_second: float
    bytes_per_second: float | None


def fixed_cost(settings: Settings) -> Ratio:
    """A steady call of 64 elements against submitting and waiting for the same commands, bare."""
    with _session(settings) as session, _slot(session, SMALL) as (call, route, slot):

        def steady() -> None:
            session.run(call.signature.kernel, call.inputs, False)

        with _bare_submission(session, slot, route) as bare:
            taken = _interleaved([steady, bare], calls=50)
    return Ratio(f"steady call of {SMALL}", taken[0] * 1e6, taken[1] * 1e6, "us", 1.5)


def copies_and_kernel(settings: Settings) -> Ratio:
    """A call of 1 Mi elements from plain arrays against its copies and its kernel, each alone."""
    with _session(settings) as session, _slot(session, MEDIUM) as (call, route, slot):

        def fill() -> None:
            for piece, groups in route.steps:
                slot.prepare(call, piece, groups)
                slot.fill(call)

        def run() -> None:
            for piece, groups in route.steps:
                slot.prepare(call, piece, groups)
                slot.submit()
                slot.wait()

        def drain() -> None:
            # As a call does it: into new memory, whose pages are touched for the first time.
            call.outputs[0] = np.empty_like(call.outputs[0])
            for piece, groups in route.steps:
                slot.prepare(call, piece, groups)
                slot.drain(call)

        def whole() -> None:
            session.run(call.signature.kernel, call.inputs, False)

        taken = _interleaved([whole, fill, run, drain], calls=1)
    return Ratio("call of 1 Mi", taken[0] * 1e3, sum(taken[1:]) * 1e3, "ms", 1.1)


def rates(settings: Settings) -> Iterator[Rate]:
    """Addition in device memory, and chains of dependent products."""
    with _session(settings) as session:
        gpu = session.info.kind != "cpu"
        count, chains, length = GPU_SIZES if gpu else CPU_SIZES
        for prime in (BLS12_381_FQ, BLS12_381_FR):
            for operation in ("add", "mul"):
                yield _operation_rate(session, prime, operation, count)
            yield _chain_rate(session, prime, chains, length)


def _operation_rate(session: Session, prime: Prime, operation: str, count: int) -> Rate:
    kernel = load(f"{prime.name}_{operation}")
    work_group = kernel.work_group or USUAL_WORK_GROUP
    seconds = kernel_seconds(session, kernel, prime, count, work_group=work_group, per_invocation=2)
    moved = 3 * count * prime.element_bytes
    return Rate(kernel.name, count, count / seconds, moved / seconds)


def _chain_rate(session: Session, prime: Prime, count: int, length: int) -> Rate:
    kernel = mul_chain_kernel(prime, length)
    seconds = kernel_seconds(session, kernel, prime, count, work_group=USUAL_WORK_GROUP)
    return Rate(f"{prime.name}_mul in a chain", count, count * length / seconds, None)


@contextlib.contextmanager
def _session(settings: Settings) -> Iterator[Session]:
    session = Session(settings)
    try:
        yield session
    finally:
        session.close()


@contextlib.contextmanager
def _slot(session: Session, count: int) -> Iterator[tuple[Call, PreparedCall, Slot]]:
    """A field addition of that size on the host-visible path, its route, a slot of its own."""
    a, b = elements(BLS12_381_FQ, count, 1), elements(BLS12_381_FQ, count, 2)
    route = session.prepare(load("bls12_381_fq_add"), (a, b), False)
    call = route.signature.call((a, b))
    call.make_outputs()
    slot = Slot(session.resources, route.slot_key.layout)
    try:
        yield call, route, slot
    finally:
        slot.close()


@contextlib.contextmanager
def _bare_submission(
    session: Session, slot: Slot, route: PreparedCall
) -> Iterator[Callable[[], None]]:
    """The slot's commands through the binding alone: two calls, structures made beforehand."""
    import vulkan

    piece, groups = route.steps[0]
    _, recorded = slot.recording(piece.count, groups).submissions[0]
    device = session.resources.device
    address = device.queues.compute
    timeline = Timeline(device, address)
    submission = timeline.prepare(recorded.commands)
    submit, wait = vulkan.lib.vkQueueSubmit, vulkan.lib.vkWaitSemaphores
    null, queue, handle = vk.ffi.NULL, device.queue(address), device.handle
    signalled, value = submission.signalled, 0

    def bare() -> None:
        nonlocal value
        value += 1
        signalled[0] = value
        submit(queue, 1, submission.submit_info, null)
        wait(handle, submission.wait_info, 1 << 62)

    try:
        yield bare
    finally:
        timeline.close()


def _interleaved(functions: list[Callable[[], object]], *, calls: int) -> list[float]:
    """The median seconds of each, taken in turns so that a slow spell of the machine hits all."""
    taken: list[list[float]] = [[] for _ in functions]
    for turn in range(ROUNDS if calls > 1 else ROUNDS // 4):
        for times, function in zip(taken, functions, strict=True):
            begun = time.perf_counter()
            for _ in range(calls):
                function()
            if turn:
                times.append((time.perf_counter() - begun) / calls)
    return [statistics.median(times) for times in taken]
