"""Helpers of the WebGPU tests: kernels, the state of the caches, fault injection, fake buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernel import Kernel
from gpu_executor.webgpu.buffer_pool import BufferPool
from gpu_executor.webgpu.buffer_set import BufferSet
from gpu_executor.webgpu.wgpu_stats import WgpuStats

MATMUL, REDUCE = gx.kernels.load("matmul_u32"), gx.kernels.load("reduce_sum_u32")

INCREMENT = """\
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> o: array<u32>;

@compute @workgroup_size(work_group)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let first = first_element(group, groups, local);
    for (var n = 0u; n < per_invocation; n++) {
        let i = first + n * work_group;
        if (i < param(0u)) {
            o[i] = a[i] + param(1u);
        }
    }
}
"""


class InjectedError(Exception):
    """Raised by `fail_once` only."""


def make_wgsl_kernel(text: str = INCREMENT, step: int = 1, **more: Any) -> Kernel:
    data = np.array([step], np.uint32).tobytes()
    return Kernel.from_wgsl(text, buffers="in u4, out u4", push=data, **more)


def count_made(stats: WgpuStats) -> tuple[int, int, int, int]:
    """Return the counters of everything that takes time to make."""
    return stats.pipelines, stats.buffer_sets, stats.pool.misses, stats.bucket_evictions


def finish_compiling(gpu: gx.WgpuExecutor) -> None:
    """Wait for the pipelines that are compiled in the background."""
    for coming in list(gpu._pipelines._requested.values()):
        coming.result(60)


def is_idle(gpu: gx.WgpuExecutor) -> bool:
    """Return whether no task uses a buffer set."""
    return all(bucket.busy == 0 for bucket in gpu._scheduler.buckets._buckets.values())


def list_cached_sets(gpu: gx.WgpuExecutor) -> list[BufferSet]:
    """Return the idle buffer sets of both caches."""
    by_bucket = [
        each for bucket in gpu._scheduler.buckets._buckets.values() for each in bucket.idle
    ]
    return by_bucket + [each for sets in gpu._scheduler.exact._idle.values() for each in sets]


def fail_once(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    *,
    at: int = 1,
    error: BaseException | None = None,
) -> list[int]:
    """Make call number `at` of a method raise; returns a list that holds the number of calls."""
    call, calls = getattr(owner, name), [0]

    def failing(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            raise error or InjectedError(name)
        return call(*arguments, **more)

    monkeypatch.setattr(owner, name, failing)
    return calls


LARGEST = 1 << 30
"""The largest buffer of a `FakeDevice` in bytes."""
COPY, MAP = 4, 1
"""Two usages of a buffer."""


class FakeBuffer:
    """A buffer without memory."""

    def __init__(self, size: int, usage: int) -> None:
        self.size, self.usage = size, usage
        self.destroyed = 0

    def destroy(self) -> None:
        self.destroyed += 1


class FakeDevice:
    """Creates fake buffers and records them; raises if `fails` is set."""

    def __init__(self) -> None:
        self.made: list[FakeBuffer] = []
        self.fails = False

    def create_buffer(self, *, size: int, usage: int) -> FakeBuffer:
        if self.fails:
            raise RuntimeError("not enough memory left")
        self.made.append(FakeBuffer(size, usage))
        return self.made[-1]


def acquire_one(pool: BufferPool, nbytes: int, usage: int) -> Any:
    """Acquire a single buffer."""
    (buffer,) = pool.acquire([(nbytes, usage)])
    return buffer


def declare_buffers(*types: str) -> str:
    """Declare the arrays b0, b1, ... of a text, each as its access and its element type."""
    lines = []
    for binding, (access, _, element) in enumerate(each.partition(" ") for each in types):
        variable = f"var<storage, {access}> b{binding}: array<{element}>;"
        lines.append(f"@group(0) @binding({binding}) {variable}")
    return "\n".join(lines)


def make_text(declarations: str, body: str) -> str:
    """Make a text whose invocations run `body` for one element i, with i beyond the end too."""
    return f"""{declarations}
@compute @workgroup_size(work_group)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {{
    let i = first_element(group, groups, local);
    {body}
}}
"""


def make_whole_kernel(declarations: str, body: str, **options: Any) -> Kernel:
    """Make a kernel with split="whole"."""
    return Kernel.from_wgsl(make_text(declarations, body), **options)


def make_element_kernel(declarations: str, body: str, **options: Any) -> Kernel:
    """Make a kernel with split="elements"; `body` runs for the elements of the call only."""
    guarded = f"if (i < param(0u)) {{ {body} }}"
    return make_whole_kernel(declarations, guarded, split="elements", **options)
