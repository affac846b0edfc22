"""The persistent backend: what it caches, what a repeated call does, what it frees."""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.calls import call as call_module
from gpu_executor.kernel.arguments import declare_buffers
from gpu_executor.kernels.catalogue import field_kernel
from gpu_executor.kernels.modules import SpecId
from gpu_executor.primes import BLS12_381_FQ, Prime, words
from gpu_executor.vulkan import binding, prepared_call
from gpu_executor.vulkan.disk_cache import PipelineFiles
from gpu_executor.vulkan.pipeline_cache import PipelineCache
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.slot import MAX_RECORDINGS
from tests.conftest import CHUNK, OpenGpu, elements, on_both_paths
from tests.support.resource_counts import count_resources

ADD_U32 = gx.kernels.load("vector_add_u32")
ADD_F32 = gx.kernels.load("vector_add_f32")
FQ_ADD = gx.kernels.load("bls12_381_fq_add")
X = np.arange(50, dtype=np.uint32)


@on_both_paths
@pytest.mark.parametrize("size", [1, 64, CHUNK, 3 * CHUNK + 7])
def test_a_repeated_call_allocates_records_and_compiles_nothing(
    fresh_gpu: OpenGpu, device_local: bool, size: int
) -> None:
    gpu = fresh_gpu(stream_chunk_elems=CHUNK)
    a = words.from_ints(BLS12_381_FQ, elements(BLS12_381_FQ, size, 1))
    expected = words.add(BLS12_381_FQ, a, a)
    gpu.run_field_add(a, a, device_local=device_local)
    before = count_resources(gpu)
    plan = gpu.explain(FQ_ADD, a, a, device_local=device_local)
    chunks = enumerate(plan.chunks())
    uses = {(number % plan.slots, chunk.count) for number, chunk in chunks}
    assert before["recordings"] == len(uses)
    assert (plan.slots > 1) == (size > CHUNK)
    for _ in range(20):
        np.testing.assert_array_equal(gpu.run_field_add(a, a, device_local=device_local), expected)
    assert count_resources(gpu) == before
    assert gpu.stats().slots.hits == 20 * plan.slots


def counting(name: str, call: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        calls.append(name)
        return call(*arguments)

    return counted


@on_both_paths
def test_a_repeated_call_only_submits_and_waits(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, device_local: bool
) -> None:
    gpu, calls = fresh_gpu(), list[str]()
    gpu.run(ADD_U32, X, X, device_local=device_local)
    known = {name: call for name, call in vars(binding.vk).items() if name.startswith("vk")}
    for name, call in known.items():
        monkeypatch.setattr(binding.vk, name, counting(name, call, calls))
    gpu.run(ADD_U32, X, X, device_local=device_local)
    assert {name for name in vars(binding.vk) if name.startswith("vk")} == set(known)
    assert calls.count("vkQueueSubmit") == 1
    waits = {"vkWaitSemaphores", "vkInvalidateMappedMemoryRanges"}
    assert set(calls) - {"vkQueueSubmit"} <= waits


def test_sizes_of_one_class_share_a_slot(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    for size in (97, 98, 99, 112):
        gpu.run(ADD_U32, np.zeros(size, np.uint32), np.zeros(size, np.uint32))
    assert (gpu.stats().slots.misses, gpu.stats().slots.hits) == (1, 3)
    assert gpu.stats().recordings == 4


def test_many_sizes_in_one_slot_are_exact_with_few_command_buffers(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, calls = fresh_gpu(), list[str]()
    name = "vkAllocateCommandBuffers"
    monkeypatch.setattr(binding.vk, name, counting(name, getattr(binding.vk, name), calls))
    for size in [*range(1793, 2049, 2)] * 2:
        x = np.arange(size, dtype=np.uint32)
        np.testing.assert_array_equal(gpu.run(ADD_U32, x, x), 2 * x)
    assert gpu.stats().slots.misses == 1
    assert len(calls) == MAX_RECORDINGS


def test_kernels_that_differ_in_data_only_share_a_pipeline(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    goldilocks, mersenne = Prime("goldilocks", 2**64 - 2**32 + 1), Prime("2^61-1", 2**61 - 1)
    for prime in (goldilocks, mersenne):
        x = words.from_ints(prime, [prime.modulus - 1])
        assert words.to_ints(prime, gpu.run(field_kernel(prime, "add"), x, x)) == [
            prime.modulus - 2
        ]
    assert (gpu.stats().pipelines.misses, gpu.stats().pipelines.hits) == (1, 1)
    other = Prime("2^127-1", 2**127 - 1)  # more words: another constant, so another pipeline
    x = words.from_ints(other, [1])
    assert words.to_ints(other, gpu.run(field_kernel(other, "add"), x, x)) == [2]
    assert gpu.stats().pipelines.misses == 2


@pytest.fixture
def pipelines(session: Session) -> Any:
    """Make pipeline caches of a given capacity on the session's device."""
    made: list[PipelineCache] = []

    def make(most: int) -> PipelineCache:
        device = session.resources.device
        made.append(PipelineCache(device, PipelineFiles(device, None), capacity=most))
        return made[-1]

    yield make
    for cache in made:
        cache.close()


def test_a_pipeline_in_use_is_never_evicted(pipelines: Any) -> None:
    cache = pipelines(1)
    first, second = cache.acquire(ADD_U32, 64, 1), cache.acquire(ADD_F32, 64, 1)
    assert (cache.stats().kept, cache.stats().evictions) == (2, 0)
    cache.release(second)
    assert (cache.stats().kept, cache.stats().evictions) == (1, 1)
    assert cache.acquire(ADD_U32, 64, 1) is first
    assert (cache.stats().hits, cache.stats().misses) == (1, 2)


def test_the_least_recently_used_pipeline_is_evicted_first(pipelines: Any) -> None:
    cache = pipelines(2)
    for kernel, work_group in ((ADD_U32, 64), (ADD_F32, 64), (ADD_U32, 64), (ADD_U32, 128)):
        cache.release(cache.acquire(kernel, work_group, 1))
    assert (cache.stats().kept, cache.stats().evictions) == (2, 1)
    cache.acquire(ADD_U32, 64, 1)
    assert cache.stats().misses == 3
    cache.acquire(ADD_F32, 64, 1)
    assert cache.stats().misses == 4


def test_pipelines_differ_by_every_specialization_constant(pipelines: Any) -> None:
    cache = pipelines(9)
    made = {
        cache.acquire(kernel, work_group, each).key
        for kernel in (ADD_U32, ADD_F32)
        for work_group in (64, 128)
        for each in (1, 2)
    }
    assert len(made) == cache.stats().misses == 8
    assert {key[0] for key in made} == {ADD_U32.digest, ADD_F32.digest}


def test_unused_kernels_are_garbage_collected(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Slots (32) and cached calls keep some kernels alive. A program that makes a kernel for every
    # call, for example with a number in its push bytes, must not keep all of them alive.
    monkeypatch.setattr(prepared_call, "MAX_SIGNATURES", 8)
    monkeypatch.setattr(call_module, "MAX_SIGNATURES", 8)
    gpu, prime = fresh_gpu(), Prime("2^61-1", 2**61 - 1)
    x, kernels = words.from_ints(prime, [1, 2]), list[weakref.ref[gx.Kernel]]()
    template = field_kernel(prime, "add")
    for number in range(150):
        kernel = gx.Kernel.from_spirv(
            template.spirv,
            count=True,
            buffers=declare_buffers(2, [prime.element_dtype] * 3, status=True),
            tuning=gx.Tuning(per_invocation=SpecId.PER_INVOCATION),
            constants=dict(template.constants),
            push=template.push[:-4] + struct.pack("<I", number),
        )
        assert words.to_ints(prime, gpu.run(kernel, x, x)) == [2, 4]
        kernels.append(weakref.ref(kernel))
    del kernel
    gc.collect()
    assert sum(reference() is not None for reference in kernels) <= 50


def test_both_inputs_are_uploaded_by_one_copy_command(
    staged_inputs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inputs share one allocation: one copy command with a region for each input."""
    copy, regions = binding.vk.vkCmdCopyBuffer, list[int]()

    def noting(*arguments: Any) -> None:
        regions.append(arguments[3])
        copy(*arguments)

    monkeypatch.setattr(binding.vk, "vkCmdCopyBuffer", noting)
    with gx.PersistentVulkanBackend() as gpu:
        gpu.run(ADD_U32, X, X, device_local=True)
        assert regions == [2, 1]
        gpu.run(ADD_U32, X, X, device_local=False)
        assert regions == [2, 1]
