"""Calls compared with a reference, both measured in one run; rates of kernels alone.

The reference of a call is the same work, or a part of it, in its barest form: a bare submission, or
its copies one after the other. It is no lower bound: a call that overlaps copies, or spins while it
waits, can take less.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from gpu_executor.bench.inputs import tile_elements
from gpu_executor.bench.kernel_timing import time_kernel
from gpu_executor.bench.measurement import Target, is_h200
from gpu_executor.bench.timing import Function, compute_medians, time_interleaved
from gpu_executor.calls.call import Call
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import ElementType
from gpu_executor.kernels import load
from gpu_executor.kernels.catalogue import mont_mul_chain_kernel
from gpu_executor.plan.plan import DEFAULT_WORK_GROUP
from gpu_executor.primes import BLS12_381_FQ, BLS12_381_FR, Prime
from gpu_executor.settings import Settings
from gpu_executor.steps.bound_steps import Copy
from gpu_executor.vulkan.binding import load_library, vk
from gpu_executor.vulkan.calibration import BandwidthProbe, open_probe, run_probes
from gpu_executor.vulkan.memory import Allocation, Purpose, mapped_view
from gpu_executor.vulkan.prepared_call import PreparedCall
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.slot import Slot
from gpu_executor.vulkan.timeline import Timeline

SMALL, MEDIUM = 64, 1 << 20
PLANNED = {1 << 14: 220.0, 1 << 16: 520.0, 1 << 18: 1_500.0}
"""Elements of calls as they are planned, and their targets in microseconds on an NVIDIA H200."""
IN_TURN = "copies and kernel in turn"
PLANNED_RATIO = 1.5
"""The largest acceptable ratio of such a call."""
MIN_ROUNDS, MAX_ROUNDS = 5, 40
BUDGET = 0.5
"""Seconds for a call and its reference, after the first `MIN_ROUNDS` rounds."""
ROUND_SECONDS, CALLS_IN_A_ROW = 0.03, 50
"""Calls of one function are timed together until they take that long, and so many at most."""
GPU_SIZES = (1 << 24, 1 << 22, 256)
CPU_SIZES = (1 << 16, 1 << 10, 16)
"""Elements to add and multiply, chains of products, and products in a chain. Chains stay short on
lavapipe, which aborts a shader after 65,535 loop iterations."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """A measured time and that of its reference."""

    name: str
    measured: float
    reference: float
    beside: str
    """What the reference is."""
    unit: str
    allowed: float
    """The target: the largest acceptable ratio of the time to that of its reference."""

    @property
    def ratio(self) -> float:
        return self.measured / self.reference


@dataclass(frozen=True, slots=True)
class KernelRate:
    """A kernel alone, on data in device memory, timed by the device's clock."""

    name: str
    elements: int
    per_second: float
    bytes_per_second: float | None


def measure_small_call(settings: Settings) -> Overhead:
    """Compare a call of 64 elements with a bare submission of its commands and a wait."""
    with (
        closing(Session(settings)) as session,
        _open_slot(session, SMALL) as (call, prepared, slot),
    ):

        def run() -> None:
            session.run(call.signature.kernel, call.inputs, False)

        with _prepare_bare_submission(session, slot, prepared) as submit:
            whole, reference = _time_rounds([run, submit])
    return Overhead(
        f"call of {SMALL} elements", whole * 1e6, reference * 1e6, "commands alone", "us", 1.5
    )


def measure_medium_call(settings: Settings) -> Overhead:
    """Compare a call of 1 Mi elements on plain arrays with the sum of its copies and its kernel,
    each timed alone.
    """
    with (
        closing(Session(settings)) as session,
        _open_slot(session, MEDIUM) as (call, prepared, slot),
    ):

        def fill() -> None:
            for chunk, groups in prepared.chunks:
                slot.prepare(call, chunk, groups)
                slot.fill(call)

        def execute() -> None:
            for chunk, groups in prepared.chunks:
                slot.prepare(call, chunk, groups)
                slot.submit()
                slot.wait()

        def drain() -> None:
            # Drain into new memory, as a call does: its pages are touched for the first time.
            call.outputs[0] = np.empty_like(call.outputs[0])
            for chunk, groups in prepared.chunks:
                slot.prepare(call, chunk, groups)
                slot.drain(call)

        def run() -> None:
            session.run(call.signature.kernel, call.inputs, False)

        whole, *stages = _time_rounds([run, fill, execute, drain])
    return Overhead("call of 1 Mi elements", whole * 1e3, sum(stages) * 1e3, IN_TURN, "ms", 1.1)


def measure_planned_call(settings: Settings, count: int) -> Overhead:
    """Compare a call on plain arrays with its copies, one after the other: that of its arguments by
    the copy threads, and those by the device, to its memory if the threads do not write there, and
    back.
    """
    kernel = load("bls12_381_fq_add")
    arrays = [tile_elements(BLS12_381_FQ, count, seed) for seed in (1, 2)]
    into, back = sum(each.nbytes for each in arrays), arrays[0].nbytes
    with closing(Session(settings)) as session, contextlib.ExitStack() as stack:
        resources = session.resources

        def allocate(purpose: Purpose, nbytes: int) -> Allocation:
            made = resources.memory.allocate(purpose, nbytes, "staging")
            stack.callback(resources.memory.release, made)
            return made

        def open_copy(source: Allocation, target: Allocation, nbytes: int) -> BandwidthProbe:
            copy = Copy(source.buffer, source.offset, target.buffer, target.offset, nbytes)
            return stack.enter_context(open_probe(resources, resources.compute, [[copy]]))

        filled, probes = allocate(resources.memory.input_purpose, into), []
        room = filled
        if filled.block.purpose is not Purpose.INPUT:
            room = allocate(Purpose.DEVICE, into)
            probes.append(open_copy(filled, room, into))
        probes.append(open_copy(room, allocate(Purpose.READBACK, back), back))
        sources = [each.reshape(-1).view(np.uint8) for each in arrays]
        target = mapped_view(filled, 0, into, ElementType(np.dtype(np.uint8)))
        pairs = list(zip(np.split(target, len(sources)), sources, strict=True))

        def copy_in_sequence() -> None:
            resources.copy_threads.copy(pairs)
            for probe in probes:
                run_probes([probe])

        def run() -> None:
            session.run(kernel, arrays, None)

        whole, reference = _time_rounds([run, copy_in_sequence])
    return Overhead(
        _name_call(count), whole * 1e6, reference * 1e6, "copies in turn", "us", PLANNED_RATIO
    )


def check_targets(measured: Sequence[Overhead], device: DeviceInfo) -> list[Target]:
    """Return the targets of planned calls on an NVIDIA H200; none on other devices."""
    if not is_h200(device):
        return []
    aims = {_name_call(count): aim for count, aim in PLANNED.items()}
    return [
        Target(each.name, each.measured, aims[each.name], each.unit, at_most=True)
        for each in measured
        if each.name in aims
    ]


def _name_call(count: int) -> str:
    return f"call of {count >> 10} Ki elements"


def measure_kernel_rates(settings: Settings) -> Iterator[KernelRate]:
    """Measure additions and products in device memory, and chains of dependent products."""
    with closing(Session(settings)) as session:
        gpu = session.info.kind != "cpu"
        count, chains, length = GPU_SIZES if gpu else CPU_SIZES
        for prime in (BLS12_381_FQ, BLS12_381_FR):
            for operation in ("add", "mont_mul"):
                yield _measure_operation(session, prime, operation, count)
            yield _measure_chain(session, prime, chains, length)


def _measure_operation(session: Session, prime: Prime, operation: str, count: int) -> KernelRate:
    kernel = load(f"{prime.name}_{operation}")
    work_group = kernel.work_group or DEFAULT_WORK_GROUP
    seconds = time_kernel(session, kernel, prime, count, work_group=work_group, per_invocation=2)
    moved = 3 * count * prime.element_bytes
    return KernelRate(kernel.name, count, count / seconds, moved / seconds)


def _measure_chain(session: Session, prime: Prime, count: int, length: int) -> KernelRate:
    kernel = mont_mul_chain_kernel(prime, length)
    seconds = time_kernel(session, kernel, prime, count, work_group=DEFAULT_WORK_GROUP)
    return KernelRate(f"{prime.name}_mont_mul in a chain", count, count * length / seconds, None)


@contextlib.contextmanager
def _open_slot(session: Session, count: int) -> Iterator[tuple[Call, PreparedCall, Slot]]:
    """Prepare a field addition of `count` elements on the host-visible path, with a slot of its
    own.
    """
    a, b = tile_elements(BLS12_381_FQ, count, 1), tile_elements(BLS12_381_FQ, count, 2)
    prepared = session.prepare(load("bls12_381_fq_add"), (a, b), False)
    call = prepared.signature.make_call((a, b))
    call.make_outputs()
    with closing(Slot(session.resources, prepared.slot_key.layout)) as slot:
        yield call, prepared, slot


@contextlib.contextmanager
def _prepare_bare_submission(
    session: Session, slot: Slot, prepared: PreparedCall
) -> Iterator[Callable[[], None]]:
    """Prepare a submission of the slot's commands by two calls of the binding, with structures made
    beforehand.
    """
    chunk, groups = prepared.chunks[0]
    _, recorded = slot.find_recording(chunk.count, groups).submissions[0]
    device = session.resources.device
    address = device.queues.compute
    timeline = Timeline(device, address)
    submission = timeline.prepare(recorded.commands)
    library = load_library()
    queue_submit, wait_semaphores = library.vkQueueSubmit, library.vkWaitSemaphores
    null, queue, handle = vk.ffi.NULL, device.queue(address), device.handle
    signalled, value = submission.signal_value, 0

    def submit() -> None:
        nonlocal value
        value += 1
        signalled[0] = value
        queue_submit(queue, 1, submission.submit_info, null)
        wait_semaphores(handle, submission.wait_info, 1 << 62)

    with closing(timeline):
        yield submit


def _time_rounds(functions: list[Function]) -> list[float]:
    """Return the median seconds of a call of each function, in interleaved rounds of several calls
    in a row."""
    functions[0]()
    begun = time.perf_counter()
    functions[0]()
    alone = time.perf_counter() - begun
    calls = min(max(int(ROUND_SECONDS / alone), 1), CALLS_IN_A_ROW)

    def repeat(function: Function) -> Callable[[], None]:
        def call_repeatedly() -> None:
            for _ in range(calls):
                function()

        return call_repeatedly

    taken = time_interleaved(
        [repeat(function) for function in functions],
        budget=BUDGET,
        min_rounds=MIN_ROUNDS,
        max_rounds=MAX_ROUNDS,
    )
    return [seconds / calls for seconds in compute_medians(taken)]
