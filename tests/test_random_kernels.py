"""Random kernels compute what their NumPy models compute, on every backend and in every way.

The corpus in tests/data was drawn with fixed seeds and compiled once, so these tests need no
compiler. `python -m tests.support.random_kernels` draws it again after a change of the generator.
Other kernels are drawn and compiled while the tests run.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.errors import DeviceLacksError
from gpu_executor.vulkan.pipeline import check_device_runs
from tests.conftest import CHUNK
from tests.support.random_kernels.calls import list_inits, make_kernel
from tests.support.random_kernels.corpus import PATH, Entry, compute_digest, load_corpus
from tests.support.random_kernels.description import Description
from tests.support.random_kernels.draw import draw_kernel
from tests.support.random_kernels.glsl import compile_kernel, write_glsl
from tests.support.random_kernels.runs import (
    Method,
    Tally,
    run_batch,
    run_batch_to_outputs,
    run_kernel,
    run_single,
    run_stream,
    submit_calls,
)
from tests.support.random_kernels.wgsl import make_wgsl

EVERY_WAY: tuple[Method, ...] = (run_single, run_batch, run_batch_to_outputs, run_stream)
FRESH = int(os.environ.get("RANDOM_KERNELS", "6"))
"""How many kernels are drawn and compiled while the tests run."""
IS_HUNT = "RANDOM_KERNELS" in os.environ
PHASES = [Phase.generate, *([Phase.shrink] if IS_HUNT else [])]
"""Finding a smaller kernel that fails takes minutes."""


@pytest.fixture(scope="module")
def corpus() -> list[Entry]:
    return load_corpus()


@functools.cache
def make_corpus_kernel(name: str) -> gx.Kernel:
    """The kernel of an entry, made once."""
    [entry] = [each for each in load_cached() if each.kernel.name == name]
    return make_kernel(entry.kernel, entry.code)


@functools.cache
def load_cached() -> list[Entry]:
    return load_corpus()


def run_all(backend: Any, entries: list[Entry], *methods: Method, **options: Any) -> Tally:
    tally = Tally()
    for entry in entries:
        kernel = make_corpus_kernel(entry.kernel.name)
        run_kernel(tally, backend, entry.kernel, kernel, *methods, **options)
    return tally


# --- the corpus ---


def test_the_corpus_is_what_the_generator_draws(corpus: list[Entry]) -> None:
    stale = [each.kernel.name for each in corpus if compute_digest(each.kernel) != each.digest]
    drawn = [draw_kernel(Random(seed), f"random-{seed}") for seed in range(20)]
    known = {each.kernel.name: each.kernel for each in corpus}
    stale += [
        each.name
        for each in drawn
        if each.name in known
        and dataclasses.replace(each, optimize=known[each.name].optimize) != known[each.name]
    ]
    assert not stale, "run: python -m tests.support.random_kernels"


def test_the_corpus_is_small_and_its_kernels_are_distinct(corpus: list[Entry]) -> None:
    assert len({each.code for each in corpus}) == len(corpus) >= 200
    assert sum(len(each.kernel.calls) for each in corpus) >= 1_200
    assert PATH.stat().st_size < 500_000


def list_traits(kernel: Description) -> Iterator[str]:
    """What a kernel and its calls exercise."""
    yield f"split {kernel.split}"
    yield f"rank {kernel.rank}"
    yield f"guard {kernel.guard}"
    yield f"grid {kernel.grid}"
    yield f"out_shape {kernel.out_shape}"
    yield f"declared by {kernel.declare}"
    yield f"parameters in {kernel.block if kernel.params else 'nothing'}"
    yield f"target {kernel.target}"
    yield f"buffers {len(kernel.buffers)}"
    yield f"count {kernel.count}"
    yield f"init {'list' if isinstance(kernel.init, list) else kernel.init}"
    traits = {
        "optimized": kernel.optimize,
        "WGSL": kernel.wgsl,
        "helpers": kernel.helpers,
        "loop": kernel.loop,
        "subgroup": kernel.subgroup,
        "no inputs": all(each.role == "out" for each in kernel.buffers),
        "in-out alone": all(each.role == "inout" for each in kernel.buffers),
        "no push constants": not kernel.count and (not kernel.params or kernel.block != "push"),
        "work-group size by the plan": kernel.local[0] == 0,
        "gap": kernel.buffers[-1].binding >= len(kernel.buffers),
        "specialization constant": any(each[0] < 20 for each in kernel.constants),
        "partial": any(each.skip is not None for each in kernel.statements),
        "default parameter": any(each.default is not None for each in kernel.params),
    }
    yield from (name for name, has in traits.items() if has)
    for buffer in kernel.buffers:
        yield f"role {buffer.role}"
        yield f"{buffer.role} as {buffer.access_in_code} in code"
        yield f"length {buffer.length}"
        yield (
            "matrix" if buffer.columns else "struct" if buffer.members else f"width {buffer.width}"
        )
        yield from (f"kind {kind.name}" for _, kind, _ in buffer.parts())
        yield from buffer.qualifiers.split()
        yield buffer.packing
    for statement in kernel.statements:
        yield f"atomic {statement.atomic}" if statement.atomic else f"store {statement.place[0]}"
    if kernel.tile is not None:
        yield f"tile {kernel.tile.operation}"
    for call in kernel.calls:
        yield f"layout {call.layout}"
        yield f"out {call.out}"
        yield from ["typed"] if call.typed else []
        yield f"axes {len(call.axes)}"
        yield "empty" if 0 in call.axes else "not empty"


TRAITS = """
split elements, split whole, rank 1, rank 2, rank 3, guard count, guard length, guard n, guard none,
guard extent, grid , grid shapes, grid params, grid tuple, out_shape , out_shape leading,
out_shape flat, out_shape reversed, out_shape outer, out_shape product, out_shape call,
declared by code, declared by access, declared by counts, parameters in push,
parameters in uniform, parameters in nothing, target vulkan1.0, target vulkan1.1, target vulkan1.2,
target vulkan1.3, buffers 1, buffers 2, buffers 3, buffers 4, buffers 5, count True, count False,
init default, init 0, init list, init None, optimized, WGSL, helpers, loop, subgroup, no inputs,
in-out alone, no push constants, work-group size by the plan, gap, specialization constant, partial,
default parameter, role in, role out, role inout, out as out in code, out as inout in code,
inout as inout in code, inout as out in code, length n, length own, length fixed, length double,
length groups, length rows, length columns, matrix, struct, width 1, width 2, width 3, width 4,
kind float, kind double, kind int, kind uint, kind int8_t, kind uint8_t, kind int16_t,
kind uint16_t, kind int64_t, kind uint64_t, kind float16_t, readonly, writeonly, coherent, restrict,
atomic add, atomic min, atomic max, atomic and, atomic or, atomic xor, store same, store reverse,
store rotate, store transpose, store spread, store group, tile reverse, tile sum, tile scan,
tile sort, layout plain, layout strided, layout swapped, layout read-only, layout reversed,
layout mapped, layout part, layout list, out , out given, out mapped, out part, out strided,
out same, axes 1, axes 2, axes 3, empty, not empty, typed, std430, std140, scalar
"""


def test_the_corpus_has_every_part_of_the_contract(corpus: list[Entry]) -> None:
    found = Counter(trait for each in corpus for trait in set(list_traits(each.kernel)))
    wanted = {each.lstrip("\n") for each in TRAITS.strip("\n").replace(",\n", ", ").split(", ")}
    assert wanted <= set(found), sorted(wanted - set(found))


# --- on every backend ---


@pytest.mark.slow
def test_the_corpus_on_the_persistent_backend(
    gpu: gx.PersistentVulkanBackend, corpus: list[Entry]
) -> None:
    """Every kernel in every way, by turns on the two paths."""
    for device_local in (True, False):
        tally = run_all(gpu, corpus[device_local::2], *EVERY_WAY, device_local=device_local)
        tally.check(kernels=100, calls=1_500)


@pytest.mark.slow
def test_the_corpus_in_chunks(
    fresh_gpu: Callable[..., gx.PersistentVulkanBackend], corpus: list[Entry]
) -> None:
    chunked = [each for each in corpus if each.kernel.split == "elements"]
    sizes = [max(call.extent[0] for call in each.kernel.calls) for each in chunked]
    assert sum(size > 2 * CHUNK for size in sizes) >= 20
    tally = run_all(fresh_gpu(stream_chunk_elems=CHUNK), chunked, *EVERY_WAY)
    tally.check(kernels=30, calls=500)


@pytest.mark.slow
def test_the_corpus_on_the_one_shot_backend(corpus: list[Entry]) -> None:
    tally = run_all(gx.VulkanSpirvBackend(), corpus[::10], run_batch)
    tally.check(kernels=15, calls=90)


@pytest.mark.slow
def test_the_corpus_on_an_executor(corpus: list[Entry]) -> None:
    with gx.GpuExecutor("vulkan") as executor:
        tally = run_all(executor, corpus[::4], run_single, submit_calls, run_batch)
    tally.check(kernels=50, calls=1_000)


@pytest.mark.slow
def test_the_corpus_with_every_result_checked(corpus: list[Entry]) -> None:
    """The kernels' references are the model: a difference would quarantine the device."""
    checkable = [
        each
        for each in corpus[::8]
        if make_corpus_kernel(each.kernel.name).reference is not None
        and (each.kernel.split == "elements" or None not in list_inits(each.kernel))
    ]
    with gx.GpuExecutor("vulkan", check=1.0) as executor:
        tally = run_all(executor, checkable, run_single, submit_calls)
    tally.check(kernels=20, calls=350)


def test_the_corpus_on_the_cpu(corpus: list[Entry]) -> None:
    kernels = corpus[::4]
    able = [each for each in kernels if make_corpus_kernel(each.kernel.name).reference is not None]
    tally = run_all(gx.CpuBackend(), able, run_single, run_batch)
    tally.check(kernels=50, calls=500)


@pytest.mark.slow
def test_the_corpus_on_webgpu(
    open_webgpu: Callable[..., gx.WgpuExecutor], corpus: list[Entry]
) -> None:
    tally, backend = Tally(), open_webgpu()
    for entry in corpus:
        if entry.kernel.wgsl:
            kernel = make_kernel(entry.kernel, entry.code, wgsl=make_wgsl(entry.kernel))
            run_kernel(tally, backend, entry.kernel, kernel, run_single, run_batch)
    tally.check(kernels=10, calls=100)


def test_a_device_without_optional_features_refuses_kernels_by_name(
    gpu: gx.PersistentVulkanBackend, corpus: list[Entry]
) -> None:
    lacking = dataclasses.replace(gpu.device, features=frozenset())
    refused: Counter[str] = Counter()
    for entry in corpus:
        kernel = make_corpus_kernel(entry.kernel.name)
        needed = set(kernel.interface.capability_names()) - {"Shader", "Matrix"}
        if needed or kernel.interface.local_size.by_id:
            with pytest.raises(DeviceLacksError, match="lacks") as error:
                check_device_runs(kernel, lacking)
            named = [name for name in {*needed, "maintenance4"} if name in str(error.value)]
            assert named, error.value
            refused[named[0]] += 1
        else:
            check_device_runs(kernel, lacking)
    wanted = {"Int64", "Float64", "Int8", "StorageBuffer16BitAccess", "maintenance4"}
    assert wanted <= set(refused), refused


# --- kernels of this run ---


@pytest.mark.slow
@settings(
    max_examples=FRESH,
    derandomize=not IS_HUNT,
    database=None,
    phases=PHASES,
    suppress_health_check=list(HealthCheck),
)
@given(random=st.randoms(use_true_random=False))
def test_a_fresh_kernel(gpu: gx.PersistentVulkanBackend, random: Random) -> None:
    """Hypothesis shrinks a kernel that fails. RANDOM_KERNELS=500 draws as many, other ones each
    time."""
    described, code = compile_kernel(draw_kernel(random, "fresh"))
    tally = Tally()
    run_kernel(tally, gpu, described, make_kernel(described, code), *EVERY_WAY)
    assert not tally.failures, "\n".join([*tally.failures, write_glsl(described), repr(described)])
