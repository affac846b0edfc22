"""Random kernels compute what their NumPy models compute, on every backend and in every way.

The corpus in tests/data was drawn with fixed seeds and compiled once, so these tests need no
compiler. `python -m tests.support.random_kernels` draws it again after a change of the generator.
Other kernels are drawn and compiled while the tests run.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.errors import DeviceLacksError
from gpu_executor.vulkan.device_checks import check_device_runs
from tests.conftest import CHUNK
from tests.support.random_kernels.calls import has_reference, list_inits, make_kernel
from tests.support.random_kernels.corpus import (
    FAILED,
    PATH,
    Entry,
    compute_digest,
    load_entries,
    save_entries,
)
from tests.support.random_kernels.declarations import draw_kernel
from tests.support.random_kernels.description import Call, Description
from tests.support.random_kernels.draw_calls import CALLS, draw_calls, list_calls
from tests.support.random_kernels.glsl import compile_kernel, write_glsl
from tests.support.random_kernels.graphs import replay_graph, run_in_graph
from tests.support.random_kernels.hunt import hunt
from tests.support.random_kernels.memory import get_layout, list_passed
from tests.support.random_kernels.outcomes import predict_call, predict_kernel
from tests.support.random_kernels.parameters import find_filled, has_same_names
from tests.support.random_kernels.runs import (
    Step,
    Tally,
    run_batch,
    run_batch_to_outputs,
    run_kernel,
    run_single,
    run_stream,
    submit_calls,
)
from tests.support.random_kernels.wgsl import make_wgsl
from tests.support.random_kernels.wgsl_parameters import (
    DTYPES,
    WAYS,
    TextKernel,
    WordParameter,
    draw_text_kernel,
    run_text_kernel,
)
from tests.support.random_kernels.work_groups import find_built_ins

EVERY_WAY: tuple[Step, ...] = (
    (run_single, CALLS), (run_batch, 3), (run_batch_to_outputs, 3), (run_stream, 2),
    (run_in_graph, 2), (replay_graph, 1),
)  # fmt: skip
FRESH = int(os.environ.get("RANDOM_KERNELS", "6"))
"""How many kernels are drawn and compiled while the tests run."""
IS_HUNT = "RANDOM_KERNELS" in os.environ
PHASES = [Phase.generate, *([Phase.shrink] if IS_HUNT else [])]
"""Finding a smaller kernel that fails takes minutes."""


@pytest.fixture(scope="module")
def corpus() -> list[Entry]:
    return load_cached()


@functools.cache
def load_cached() -> list[Entry]:
    return load_entries()


@functools.cache
def make_corpus_kernel(name: str) -> gx.Kernel:
    """The kernel of an entry, made once."""
    [entry] = [each for each in load_cached() if each.kernel.name == name]
    return make_kernel(entry.kernel, entry.code)


@functools.cache
def list_corpus_calls(name: str) -> list[Call]:
    [entry] = [each for each in load_cached() if each.kernel.name == name]
    return list_calls(entry.kernel)


def run_all(backend: Any, entries: list[Entry], *steps: Step, **options: Any) -> Tally:
    tally = Tally()
    for entry in entries:
        name = entry.kernel.name
        make = functools.partial(make_corpus_kernel, name)
        calls = list_corpus_calls(name)
        run_kernel(tally, backend, entry.kernel, make, calls, *steps, **options)
    return tally


# --- the corpus ---


def test_the_corpus_is_what_the_generator_draws(corpus: list[Entry]) -> None:
    stale = [each.kernel.name for each in corpus if compute_digest(each.kernel) != each.digest]
    drawn = [draw_kernel(Random(seed), f"random-{seed}") for seed in (*range(20), *FAILED)]
    known = {each.kernel.name: each.kernel for each in corpus}
    stale += [
        each.name
        for each in drawn
        if each.name in known
        and dataclasses.replace(each, optimize=known[each.name].optimize) != known[each.name]
    ]
    assert not stale, "run: python -m tests.support.random_kernels"


def test_the_corpus_is_small_and_its_kernels_are_distinct(corpus: list[Entry]) -> None:
    assert len({each.code for each in corpus}) == len(corpus) >= 160
    assert len(corpus) * CALLS >= 960
    assert PATH.stat().st_size < 500_000


def list_traits(kernel: Description) -> Iterator[str]:
    """What a kernel and its calls exercise."""
    yield f"split {kernel.split}"
    yield f"rank {kernel.rank}"
    yield f"guard {kernel.guard}"
    yield f"grid {kernel.grid}"
    yield f"out_shape {kernel.out_shape}"
    yield f"declared by {kernel.declare}"
    yield from (f"parameter in {each.block}" for each in kernel.params)
    yield f"target {kernel.target}"
    yield f"buffers {len(kernel.buffers)}"
    yield f"count={'name' if kernel.count in known_names(kernel) else kernel.count}"
    yield f"init {'list' if isinstance(kernel.init, list) else kernel.init}"
    yield f"size by {kernel.size_by}"
    yield from (f"built-in {name}" for name in find_built_ins(kernel))
    yield f"refused: {predict_kernel(kernel)}"
    filled = find_filled(kernel)
    traits = {
        "optimized": kernel.optimize,
        "WGSL": kernel.wgsl,
        "helpers": kernel.helpers,
        "loop": kernel.loop,
        "subgroup": kernel.subgroup,
        "no inputs": all(each.role == "out" for each in kernel.buffers),
        "in-out alone": all(each.role == "inout" for each in kernel.buffers),
        "no push constants": all(each.block != "push" for each in kernel.params),
        "named size by the plan": bool(kernel.size_default) and kernel.local[0] == 0,
        "gap": kernel.buffers[-1].binding >= len(kernel.buffers),
        "specialization constant": any(each[0] < 12 for each in kernel.constants),
        "partial": any(each.skip is not None for each in kernel.statements),
        "conditional": any(each.when is not None for each in kernel.statements),
        "repeated": len({(s.buffer, s.part) for s in kernel.statements}) < len(kernel.statements),
        "in_place": kernel.in_place,
        "default parameter": any(each.default is not None for each in kernel.params),
        "specialized parameter": any(each.length is not None for each in kernel.params),
        "specialized block": any(each.block for each in kernel.buffers),
        "specialized length": any(each.spelled is not None for each in kernel.buffers),
        "one name twice": has_same_names(kernel),
        "count by name": filled is not None and kernel.params[filled].name == "count",
        "num_elements by name": filled is not None and kernel.params[filled].name == "num_elements",
        "count as a parameter": any(
            each.meaning == "count" and number != filled
            for number, each in enumerate(kernel.params)
        ),
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
    for call in list_corpus_calls(kernel.name):
        yield from list_traits_of_call(kernel, call)


def known_names(kernel: Description) -> set[str]:
    return {each.name for each in kernel.params}


def list_traits_of_call(kernel: Description, call: Call) -> Iterator[str]:
    layouts = [get_layout(call, number) for number in range(len(list_passed(kernel)))]
    yield from (f"layout {each.partition(' ')[0]}" for each in layouts)
    yield from (f"out {each.partition(' ')[0]}" for each in call.outs)
    for kind in call.outs:
        if kind.startswith("input "):
            yield f"out is an input, {layouts[int(kind[6:])]}, {kernel.split}"
    yield "no out" if not call.outs else "out"
    yield from ["typed"] if call.typed else []
    yield from ["by position"] if call.by_position and kernel.params else []
    yield from ["kept"] if call.keep else []
    filled = find_filled(kernel)
    yield from ["count given"] if filled is not None and call.values[filled] is not None else []
    yield f"axes {len(call.axes)}"
    yield "empty" if 0 in call.axes else "not empty"
    yield f"call refused: {predict_call(kernel, call)}"


TRAITS = """
split elements, split whole, rank 1, rank 2, rank 3, guard count, guard length, guard n, guard none,
guard extent, grid , grid shapes, grid params, grid tuple, out_shape , out_shape leading,
out_shape flat, out_shape reversed, out_shape outer, out_shape product, out_shape call,
declared by code, declared by list, declared by text, parameter in push,
parameter in uniform, target vulkan1.0, target vulkan1.1, target vulkan1.2,
target vulkan1.3, buffers 1, buffers 2, buffers 3, buffers 4, buffers 5, count=True, count=False,
count=name, count=unsaid, count by name, num_elements by name, count as a parameter, count given,
init default, init 0, init list, init None, optimized, WGSL, helpers, loop, subgroup, no inputs,
in-out alone, no push constants, size by code, size by constants, size by work_group,
size by default, size by nobody, named size by the plan, built-in constant, built-in size,
built-in groups, built-in group, built-in lane, built-in lane index, built-in block,
built-in subgroups, refused: size, refused: count, refused: layout, gap, specialization constant,
partial, conditional, repeated, in_place, default parameter, specialized parameter,
specialized block, specialized length, one name twice, role in, role out, role inout,
out as out in code, out as inout in code,
inout as inout in code, inout as out in code, length n, length own, length fixed, length double,
length groups, length rows, length columns, matrix, struct, width 1, width 2, width 3, width 4,
kind float, kind double, kind int, kind uint, kind int8_t, kind uint8_t, kind int16_t,
kind uint16_t, kind int64_t, kind uint64_t, kind float16_t, readonly, writeonly, coherent, restrict,
atomic add, atomic min, atomic max, atomic and, atomic or, atomic xor, store same, store reverse,
store rotate, store transpose, store spread, store group, tile reverse, tile sum, tile scan,
tile sort, layout plain, layout strided, layout swapped, layout read-only, layout reversed,
layout mapped, layout part, layout list, layout imported, layout device, layout as, no out,
out given, out mapped, out part, out strided, out imported, out device, out same, out input,
out view, out overlap, out is an input; plain; elements, out is an input; plain; whole,
out is an input; mapped; elements, out is an input; mapped; whole,
out is an input; imported; elements, out is an input; imported; whole,
out is an input; device; elements, out is an input; device; whole, call refused: value,
call refused: overlap, axes 1, axes 2, axes 3, empty, not empty, typed, by position, kept, std430,
std140, scalar
"""


def test_the_corpus_has_every_part_of_the_contract(corpus: list[Entry]) -> None:
    found = Counter(trait for each in corpus for trait in set(list_traits(each.kernel)))
    wanted = {
        each.lstrip("\n").replace(";", ",")
        for each in TRAITS.strip("\n").replace(",\n", ", ").split(", ")
    }
    assert wanted <= set(found), sorted(wanted - set(found))


# --- on every backend ---


@pytest.mark.slow
@pytest.mark.parametrize("seed", FAILED)
def test_kernels_that_failed_once(
    gpu: gx.PersistentVulkanBackend, corpus: list[Entry], seed: int
) -> None:
    [entry] = [each for each in corpus if each.kernel.name == f"random-{seed}"]
    tally, make = Tally(), functools.partial(make_corpus_kernel, entry.kernel.name)
    calls = list_calls(entry.kernel, FAILED[seed][0] + 1)[-CALLS:]
    steps = [(method, CALLS) for method, _ in EVERY_WAY]
    run_kernel(tally, gpu, entry.kernel, make, calls, *steps)
    assert not tally.failures, tally.failures


def cover_traits(entries: list[Entry]) -> list[Entry]:
    """Few of the kernels, which have every trait that any of them has: each time the one with the
    most traits that are still missing."""
    traits = {each.kernel.name: set(list_traits(each.kernel)) for each in entries}
    missing, chosen = set[str]().union(*traits.values()), []
    while missing:
        best = max(entries, key=lambda each: len(missing & traits[each.kernel.name]))
        chosen.append(best)
        missing -= traits[best.kernel.name]
    return chosen


@pytest.mark.slow
def test_the_corpus_on_the_persistent_backend(
    gpu: gx.PersistentVulkanBackend, corpus: list[Entry]
) -> None:
    """Everything that kernels exercise, in every way, on each of the two paths by other kernels."""
    left = corpus
    for device_local in (True, False):
        chosen = cover_traits(left)
        left = [each for each in left if each not in chosen]
        tally = run_all(gpu, chosen, *EVERY_WAY, device_local=device_local)
        tally.check(kernels=20, calls=280)


@pytest.mark.slow
def test_the_corpus_in_chunks(
    fresh_gpu: Callable[..., gx.PersistentVulkanBackend], corpus: list[Entry]
) -> None:
    chunked = [each for each in corpus if each.kernel.split == "elements"]
    sizes = [
        max(call.extent[0] for call in list_corpus_calls(each.kernel.name)) for each in chunked
    ]
    assert sum(size > 2 * CHUNK for size in sizes) >= 12
    tally = run_all(fresh_gpu(stream_chunk_elems=CHUNK), chunked, *EVERY_WAY)
    tally.check(kernels=25, calls=300)


@pytest.mark.slow
def test_the_corpus_on_the_one_shot_backend(corpus: list[Entry]) -> None:
    tally = run_all(gx.VulkanSpirvBackend(), corpus[::10], (run_batch, CALLS))
    tally.check(kernels=12, calls=50)


@pytest.mark.slow
def test_the_corpus_on_an_executor(corpus: list[Entry]) -> None:
    with gx.GpuExecutor("vulkan") as executor:
        tally = run_all(
            executor, corpus[::6], (run_single, CALLS), (submit_calls, CALLS), (run_batch, CALLS)
        )
    tally.check(kernels=20, calls=350)


@pytest.mark.slow
def test_the_corpus_with_every_result_checked(corpus: list[Entry]) -> None:
    """The kernels' references are the model: a difference would quarantine the device."""
    checkable = [
        each
        for each in corpus[::12]
        if has_reference(each.kernel) and None not in list_inits(each.kernel)
    ]
    with gx.GpuExecutor("vulkan", check=1.0) as executor:
        tally = run_all(executor, checkable, (run_single, CALLS), (submit_calls, CALLS))
    tally.check(kernels=7, calls=100)


def test_the_corpus_on_the_cpu(corpus: list[Entry]) -> None:
    kernels = corpus[::4]
    able = [each for each in kernels if has_reference(each.kernel)]
    tally = run_all(
        gx.CpuBackend(), able, (run_single, CALLS), (run_batch, CALLS), (run_in_graph, 3)
    )
    tally.check(kernels=25, calls=250)


@pytest.mark.slow
def test_the_corpus_on_webgpu(
    open_webgpu: Callable[..., gx.WgpuExecutor], corpus: list[Entry]
) -> None:
    tally, backend = Tally(), open_webgpu()
    for entry in corpus:
        if entry.kernel.wgsl:
            make = functools.partial(
                make_kernel, entry.kernel, entry.code, wgsl=make_wgsl(entry.kernel)
            )
            calls = list_corpus_calls(entry.kernel.name)
            run_kernel(
                tally, backend, entry.kernel, make, calls, (run_single, CALLS), (run_batch, CALLS)
            )
    tally.check(kernels=8, calls=70)


def test_a_device_without_optional_features_refuses_kernels_by_name(
    gpu: gx.PersistentVulkanBackend, corpus: list[Entry]
) -> None:
    lacking = dataclasses.replace(gpu.device, features=frozenset())
    refused: Counter[str] = Counter()
    for entry in corpus:
        if predict_kernel(entry.kernel):
            continue
        kernel = make_corpus_kernel(entry.kernel.name)
        # 64-bit integers become pairs of words.
        needed = set(kernel.interface.capability_names()) - {"Shader", "Matrix", "Int64"}
        if needed or kernel.interface.local_size.by_id:
            with pytest.raises(DeviceLacksError, match="lacks") as error:
                check_device_runs(kernel, lacking)
            named = [name for name in {*needed, "maintenance4"} if name in str(error.value)]
            assert named, error.value
            refused[named[0]] += 1
        else:
            check_device_runs(kernel, lacking)
    wanted = {"Float64", "Int8", "StorageBuffer16BitAccess", "maintenance4"}
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
    calls = list(islice(draw_calls(random, described), CALLS))
    tally, make = Tally(), functools.partial(make_kernel, described, code)
    run_kernel(tally, gpu, described, make, calls, *EVERY_WAY)
    assert not tally.failures, "\n".join([*tally.failures, write_glsl(described), repr(described)])


# --- WGSL alone ---


@pytest.mark.slow
def test_parameters_of_wgsl_have_the_types_that_the_text_shows_or_declares(
    open_webgpu: Callable[..., gx.WgpuExecutor],
) -> None:
    """Every type in every way, declared; and others without, which may be refused."""
    tally, backend = Tally(), open_webgpu()
    ways = [(way, type_) for way in WAYS for type_ in DTYPES]
    for at in range(0, len(ways), 4):
        parameters = tuple(
            WordParameter(f"p{number}", type_, way, is_declared=True)
            for number, (way, type_) in enumerate(ways[at : at + 4])
        )
        kernel = TextKernel(f"ways from {at}", parameters, "whole")
        run_text_kernel(tally, backend, kernel, Random(at), 6)
    for seed in range(40):
        kernel = draw_text_kernel(Random(seed), f"text-{seed}")
        run_text_kernel(tally, backend, kernel, Random(seed), 4)
    tally.check(kernels=40, calls=200)
    assert tally.predicted["types"] >= 5
    assert tally.predicted["value"] >= 5


# --- hand runs ---


def test_saved_kernels_run_without_a_compiler(tmp_path: Path, corpus: list[Entry]) -> None:
    save_entries(corpus[:8], tmp_path / "kernels.zip")
    loaded = load_entries(tmp_path / "kernels.zip")
    assert loaded == corpus[:8]
    failures: list[str] = []
    tally = hunt(
        gx.CpuBackend(), "cpu", loaded, calls_per_kernel=20, calls=60,
        deadline=time.monotonic() + 60, report=failures.append,
    )  # fmt: skip
    assert not failures
    assert 60 <= tally.calls < 100


def test_a_hunt_reports_wrong_results_with_their_seeds_and_calls(corpus: list[Entry]) -> None:
    class Wrong(gx.CpuBackend):
        """A backend whose results are wrong."""

        def run(self, kernel: gx.Kernel, *arrays: Any, **options: Any) -> Any:
            result = super().run(kernel, *arrays, **options)
            first = result[0] if isinstance(result, tuple) else result
            first.reshape(-1).view("u1")[:1] ^= 1
            return result

    plain = [
        each
        for each in corpus
        if has_reference(each.kernel)
        and not predict_kernel(each.kernel)
        and all(not b.members and not b.trailing for b in each.kernel.buffers)
    ]
    failures: list[str] = []
    tally = hunt(
        Wrong(), "cpu", plain[:3], calls_per_kernel=6, calls=100,
        deadline=time.monotonic() + 60, report=failures.append,
    )  # fmt: skip
    assert failures == tally.failures
    assert any("wrong, first at" in failure for failure in failures)
    assert all(failure.startswith("random-") and ", call " in failure for failure in failures)
    assert f"{len(failures)} wrong" in str(tally)
