"""The baseline of the WebGPU benchmark: sums with wgpu-py alone, without an executor.

The methods use wgpu-py's public calls in the usual way, with the WGSL code of the executors' own
kernel. Their buffers have exactly the size of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from gpu_executor.calls.call import Array
from gpu_executor.kernels import load
from gpu_executor.webgpu.device import WebGpuDevice

WORK_GROUP = 128

PRELUDE = """
const work_group = {work_group}u;
const per_invocation = 1u;
fn param(i: u32) -> u32 {{ return arrayLength(&result) * {packed}u; }}
fn first_element(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {{
    return group.x * work_group + local;
}}
"""
"""The declarations that the kernel's code needs. The number of elements is the length of the
buffers in vectors times the elements per vector."""
BINDING_TYPES = ("read-only-storage", "read-only-storage", "storage")
AddOperands = tuple[Array, Array]
"""Arrays to add; their length is a multiple of the kernel's vector."""
PipelineAndLayout = tuple[Any, Any]
"""A pipeline and its bind group layout."""


class WebGpuBaseline:
    """Sums without caches, with a cached pipeline, and with everything cached."""

    def __init__(self, device: WebGpuDevice) -> None:
        self._device, self._usage = device.device, device.wgpu.BufferUsage
        self._queue = self._device.queue
        code = load("vector_add_u32").wgsl
        assert code is not None
        self._code = PRELUDE.format(work_group=WORK_GROUP, packed=code.packed) + code.text
        self._per_group = WORK_GROUP * code.packed
        self._shared = self._create_pipeline()
        self.phases: list[tuple[float, float, float]] = []
        """Seconds of each call of `run_with_pipeline`: creating, submitting, reading."""

    def run_without_caches(self, tasks: Sequence[AddOperands]) -> list[Array]:
        """Create everything for every task."""
        results = []
        for task in tasks:
            pipeline = self._create_pipeline()
            output, group = self._create_buffers(pipeline, task)
            self._submit(pipeline, [(len(task[0]), group)])
            results.append(self._read(output))
        return results

    def run_with_pipeline(self, tasks: Sequence[AddOperands]) -> list[Array]:
        """Run a batch with one pipeline, one encoder and one submission; then read one result after
        the other.
        """
        begun = perf_counter()
        created = [self._create_buffers(self._shared, task) for task in tasks]
        ready = perf_counter()
        counts = (len(a) for a, _ in tasks)
        groups = (group for _, group in created)
        self._submit(self._shared, list(zip(counts, groups, strict=True)))
        submitted = perf_counter()
        results = [self._read(output) for output, _ in created]
        self.phases.append((ready - begun, submitted - ready, perf_counter() - submitted))
        return results

    def prepare_kernel(self, tasks: Sequence[AddOperands]) -> Callable[[], None]:
        """Return a function that runs only the dispatches of a batch, on buffers created here."""
        created = [(len(task[0]), *self._create_buffers(self._shared, task)) for task in tasks]
        groups = [(count, group) for count, _, group in created]
        last = created[-1][1]

        def dispatch() -> None:
            self._submit(self._shared, groups)
            self._queue.read_buffer(last, 0, 4)  # returns when the device has finished

        return dispatch

    def prepare_single(self, task: AddOperands) -> Callable[[], Array]:
        """Return a function that writes, dispatches and reads one task, with buffers created
        here.
        """
        inputs = [self._create_buffer(array.nbytes, "COPY_DST") for array in task]
        output = self._create_buffer(task[0].nbytes, "COPY_SRC")
        group = self._bind(self._shared, [*inputs, output])

        def add() -> Array:
            for buffer, array in zip(inputs, task, strict=True):
                self._queue.write_buffer(buffer, 0, array)
            self._submit(self._shared, [(len(task[0]), group)])
            return self._read(output)

        return add

    def _create_pipeline(self) -> PipelineAndLayout:
        layout = self._device.create_bind_group_layout(
            entries=[
                {"binding": index, "visibility": "COMPUTE", "buffer": {"type": kind}}
                for index, kind in enumerate(BINDING_TYPES)
            ]
        )
        pipeline = self._device.create_compute_pipeline(
            layout=self._device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={
                "module": self._device.create_shader_module(code=self._code),
                "entry_point": "main",
            },
        )
        return pipeline, layout

    def _create_buffer(self, nbytes: int, copies: str) -> Any:
        usage = self._usage.STORAGE | self._usage[copies]
        return self._device.create_buffer(size=nbytes, usage=usage)

    def _create_buffers(self, pipeline: PipelineAndLayout, task: AddOperands) -> tuple[Any, Any]:
        """Create a task's filled input buffers and its output buffer; return the output buffer and
        the bind group.
        """
        inputs = [
            self._device.create_buffer_with_data(data=array, usage=self._usage.STORAGE)
            for array in task
        ]
        output = self._create_buffer(task[0].nbytes, "COPY_SRC")
        return output, self._bind(pipeline, [*inputs, output])

    def _bind(self, pipeline: PipelineAndLayout, buffers: Sequence[Any]) -> Any:
        entries = [
            {"binding": index, "resource": {"buffer": buffer}}
            for index, buffer in enumerate(buffers)
        ]
        return self._device.create_bind_group(layout=pipeline[1], entries=entries)

    def _submit(self, pipeline: PipelineAndLayout, groups: Sequence[tuple[int, Any]]) -> None:
        encoder = self._device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        compute_pass.set_pipeline(pipeline[0])
        for count, group in groups:
            compute_pass.set_bind_group(0, group)
            compute_pass.dispatch_workgroups(-(-count // self._per_group))
        compute_pass.end()
        self._queue.submit([encoder.finish()])

    def _read(self, output: Any) -> Array:
        result: Array = np.frombuffer(self._queue.read_buffer(output), np.uint32)
        return result
