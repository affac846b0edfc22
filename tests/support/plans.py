"""Descriptions of devices that do not exist, and the reasons in plans for them."""

from __future__ import annotations

import dataclasses

import numpy as np

from gpu_executor.calls.call import Operand
from gpu_executor.device_info import DeviceInfo, Kind, Limits, MemoryHeap, QueueFamily
from gpu_executor.kernel import ElementType
from gpu_executor.kernels import load
from gpu_executor.plan import CallPlan

ADD = load("bls12_381_fq_add")
ELEMENT = ElementType(np.dtype("u8"), (6,))
"""An element of the kernel `ADD`."""
UNLIMITED = 1 << 60
H200_LANES = 132 * 4 * 32
"""Of an NVIDIA H200: multiprocessors, schedulers, invocations of a subgroup."""


def add_operands(count: int) -> tuple[Operand, ...]:
    """The operands of `ADD`: two inputs and an output."""
    return Operand(ELEMENT, count), Operand(ELEMENT, count), Operand(ELEMENT, count, False, True)


def describe_device(
    *,
    kind: Kind = "discrete",
    unified: bool = False,
    memory: int = 1 << 37,
    storage: int = 1 << 32,
    groups: int = (1 << 31) - 1,
    invocations: int = 1024,
    lanes: int = 0,
) -> DeviceInfo:
    """A description of a large GPU, except for what a test specifies."""
    types = (("device_local", "host_visible"),) if unified else (("device_local",),)
    return DeviceInfo(
        index=0,
        name="Paper GPU",
        kind=kind,
        vendor="Nobody",
        driver="none",
        driver_version="1",
        api_version=(1, 3, 0),
        uuid="00",
        heaps=(MemoryHeap(memory, True, types),),
        queue_families=(QueueFamily(1, ("compute", "transfer"), 64),),
        limits=Limits(
            max_storage_buffer_range=storage,
            max_uniform_buffer_range=65_536,
            max_allocation=memory,
            max_work_group_invocations=invocations,
            max_work_group_size=(invocations, invocations, 64),
            max_work_group_count=(groups, 65535, 65535),
            max_push_constants=128,
            max_bound_buffers=8,
            buffer_offset_alignment=64,
            non_coherent_atom=64,
            subgroup_size=32,
            min_subgroup_size=32,
            timestamp_period_ns=1.0,
            host_import_alignment=4096,
            max_shared_memory=32_768,
        ),
        features=frozenset(),
        extensions=frozenset(),
        pipeline_cache_uuid="00",
        execution_lanes=lanes,
    )


WITH_TRANSFER_QUEUES = dataclasses.replace(
    describe_device(),
    queue_families=(QueueFamily(1, ("compute", "transfer"), 64), QueueFamily(2, ("transfer",), 64)),
)


def find_reason(plan: CallPlan, about: str) -> str:
    """The one reason that a plan gives for a choice, such as its path."""
    found = [text for text in plan.reasons if text.startswith(f"{about}: ")]
    assert len(found) == 1
    return found[0].removeprefix(f"{about}: ")
