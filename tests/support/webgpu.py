"""For tests of the WebGPU executor: kernels, what it holds, and faults on demand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernel import Kernel
from gpu_executor.webgpu.buffer_set import BufferSet
from gpu_executor.webgpu.stats import WgpuStats

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
    """Nobody else raises it."""


def own_kernel(text: str = INCREMENT, step: int = 1, **more: Any) -> Kernel:
    data = np.array([step], np.uint32).tobytes()
    return Kernel.from_wgsl(
        text, inputs=1, outputs=1, dtypes=[np.uint32, np.uint32], data=data, **more
    )


def made(stats: WgpuStats) -> tuple[int, int, int, int]:
    """What costs time to make."""
    return stats.pipelines, stats.buffer_sets, stats.pool.misses, stats.bucket_evictions


def finish_compiling(gpu: gx.WgpuExecutor) -> None:
    """Wait for what is compiled in the background."""
    for coming in list(gpu._pipelines._requested.values()):
        coming.result(60)


def idle(gpu: gx.WgpuExecutor) -> bool:
    """Whether no task has a set."""
    return all(bucket.busy == 0 for bucket in gpu._scheduler.buckets._buckets.values())


def cached_sets(gpu: gx.WgpuExecutor) -> list[BufferSet]:
    """The sets that wait for a task, in buckets and by exact size."""
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
    """Let the call number `at` of a method raise; the list counts the calls."""
    call, calls = getattr(owner, name), [0]

    def failing(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            raise error or InjectedError(name)
        return call(*arguments, **more)

    monkeypatch.setattr(owner, name, failing)
    return calls
