"""Sums by wgpu-py alone: the programs that executors are held against.

They are written as one would with wgpu-py's public calls, around the text of the executors' own
kernel, and their buffers fit their arrays exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from gpu_executor.call import Array
from gpu_executor.kernels import load
from gpu_executor.webgpu.device import WebGpuDevice

WORK_GROUP = 128

PRELUDE = """
const work_group = {work_group}u;
const per_invocation = 1u;
fn param(i: u32) -> u32 {{ return arrayLength(&result) * {at_once}u; }}
fn first_element(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {{
    return group.x * work_group + local;
}}
"""
"""What the kernel's text needs. Buffers that fit say how many elements there are: as many as they
have vectors, times the elements that the text takes at once."""
KINDS = ("read-only-storage", "read-only-storage", "storage")
Job = tuple[Array, Array]
"""What to add; whole vectors of elements."""
Program = tuple[Any, Any]
"""A pipeline and the layout of its bind groups."""


class PlainProgram:
    """Sums with everything made anew, with one pipeline kept, and with all of it kept."""

    def __init__(self, device: WebGpuDevice) -> None:
        self._device, self._usage = device.device, device.wgpu.BufferUsage
        self._queue = self._device.queue
        code = load("vector_add_u32").wgsl
        assert code is not None
        self._text = PRELUDE.format(work_group=WORK_GROUP, at_once=code.at_once) + code.text
        self._per_group = WORK_GROUP * code.at_once
        self._shared = self._compile()
        self.parts: list[tuple[float, float, float]] = []
        """Seconds of each call of `pipelines`: making, submitting, reading."""

    def no_caches(self, jobs: Sequence[Job]) -> list[Array]:
        """Everything anew for every task."""
        results = []
        for job in jobs:
            program = self._compile()
            output, group = self._buffers(program, job)
            self._submit(program, [(len(job[0]), group)])
            results.append(self._read(output))
        return results

    def pipelines(self, jobs: Sequence[Job]) -> list[Array]:
        """One pipeline, one encoder, one submission; then read one result after the other."""
        begun = perf_counter()
        made = [self._buffers(self._shared, job) for job in jobs]
        ready = perf_counter()
        counts = (len(a) for a, _ in jobs)
        groups = (group for _, group in made)
        self._submit(self._shared, list(zip(counts, groups, strict=True)))
        submitted = perf_counter()
        results = [self._read(output) for output, _ in made]
        self.parts.append((ready - begun, submitted - ready, perf_counter() - submitted))
        return results

    def kernel_alone(self, jobs: Sequence[Job]) -> Callable[[], None]:
        """The dispatches of a batch, with buffers that were made before."""
        made = [(len(job[0]), *self._buffers(self._shared, job)) for job in jobs]
        groups = [(count, group) for count, _, group in made]
        last = made[-1][1]

        def dispatch() -> None:
            self._submit(self._shared, groups)
            self._queue.read_buffer(last, 0, 4)  # when the device is done

        return dispatch

    def single(self, job: Job) -> Callable[[], Array]:
        """One task whose buffers were made before: write, dispatch, read."""
        inputs = [self._buffer(array.nbytes, "COPY_DST") for array in job]
        output = self._buffer(job[0].nbytes, "COPY_SRC")
        group = self._bind(self._shared, [*inputs, output])

        def add() -> Array:
            for buffer, array in zip(inputs, job, strict=True):
                self._queue.write_buffer(buffer, 0, array)
            self._submit(self._shared, [(len(job[0]), group)])
            return self._read(output)

        return add

    def _compile(self) -> Program:
        layout = self._device.create_bind_group_layout(
            entries=[
                {"binding": index, "visibility": "COMPUTE", "buffer": {"type": kind}}
                for index, kind in enumerate(KINDS)
            ]
        )
        pipeline = self._device.create_compute_pipeline(
            layout=self._device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={
                "module": self._device.create_shader_module(code=self._text),
                "entry_point": "main",
            },
        )
        return pipeline, layout

    def _buffer(self, nbytes: int, copies: str) -> Any:
        usage = self._usage.STORAGE | self._usage[copies]
        return self._device.create_buffer(size=nbytes, usage=usage)

    def _buffers(self, program: Program, job: Job) -> tuple[Any, Any]:
        """The output and the bind group of a task, with inputs that hold its arrays."""
        inputs = [
            self._device.create_buffer_with_data(data=array, usage=self._usage.STORAGE)
            for array in job
        ]
        output = self._buffer(job[0].nbytes, "COPY_SRC")
        return output, self._bind(program, [*inputs, output])

    def _bind(self, program: Program, buffers: Sequence[Any]) -> Any:
        entries = [
            {"binding": index, "resource": {"buffer": buffer}}
            for index, buffer in enumerate(buffers)
        ]
        return self._device.create_bind_group(layout=program[1], entries=entries)

    def _submit(self, program: Program, groups: Sequence[tuple[int, Any]]) -> None:
        encoder = self._device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        compute_pass.set_pipeline(program[0])
        for count, group in groups:
            compute_pass.set_bind_group(0, group)
            compute_pass.dispatch_workgroups(-(-count // self._per_group))
        compute_pass.end()
        self._queue.submit([encoder.finish()])

    def _read(self, output: Any) -> Array:
        result: Array = np.frombuffer(self._queue.read_buffer(output), np.uint32)
        return result
