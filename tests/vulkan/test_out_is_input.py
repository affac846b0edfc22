"""`out=` that is the very array of an input: the result is as if the two were apart.

This file requires glslc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernels.catalogue import copy_kernel, fma_chain_kernel, mont_mul_chain_kernel
from gpu_executor.kernels.elements import OPERATIONS, element_kernel
from gpu_executor.primes import NAMED
from gpu_executor.spirv import is_read_before_written
from tests.support.glsl import compile_glsl

Gpu = gx.PersistentVulkanBackend
Array = np.ndarray[Any, np.dtype[Any]]
Place = Callable[[Array], Any]

HEADER = """
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint count; uint steps; };
layout(binding = 0) readonly buffer X { TYPE x[]; };
layout(binding = 1) readonly buffer Y { TYPE y[]; };
layout(binding = 2) writeonly buffer Z { TYPE z[]; };
layout(binding = 3) writeonly buffer W { TYPE w[]; };
"""
BODIES: dict[str, tuple[str, Callable[[Array, Array], Array | tuple[Array, Array]]]] = {
    "a sum": ("if (i < count) z[i] = 3 * x[i] + y[i];", lambda x, y: 3 * x + y),
    "a store before a load": (
        "if (i < count) { z[i] = 0; if (x[i] > 2) z[i] = x[i] + y[i]; }",
        lambda x, y: np.where(x > 2, x + y, 0),
    ),
    "a loop": (
        "TYPE s = 0; uint k = 0;"
        "if (i < count) do { s += x[i] + y[i]; z[i] = s; } while (++k < steps);",
        lambda x, y: 3 * (x + y),
    ),
    "a function": (
        "if (i < count) { z[i] = twice(i); z[i] = twice(i) + y[i]; }",
        lambda x, y: 2 * x + y,
    ),
    "a switch": (
        "if (i < count) switch (steps) { case 3: z[i] = 7; default: z[i] = x[i] + y[i]; }",
        lambda x, y: x + y,
    ),
    "an element that several invocations compute": (
        "i = min(i, count - 1); z[i] = 2 * x[i] + y[i];",
        lambda x, y: 2 * x + y,
    ),
    "two outputs": (
        "if (i < count) { z[i] = x[i] + y[i]; w[i] = x[i] - y[i]; }",
        lambda x, y: (x + y, x - y),
    ),
}


def make_kernel(body: str, glsl: str, **declared: Any) -> gx.Kernel:
    """A kernel of one or two outputs; buffers that the body does not use are left out."""
    header = "".join(
        line + "\n" for line in HEADER.splitlines() if "W {" not in line or "w[" in body
    )
    twice = "TYPE twice(uint i) { return x[i] + x[i]; }" if "twice" in body else ""
    main = f"void main() {{ uint i = gl_GlobalInvocationID.x; {body} }}"
    text = f"#version 450\n{header}{twice}\n{main}".replace("TYPE", glsl)
    return gx.Kernel.from_glsl(text, params={"steps": 3}, **declared)


@pytest.fixture
def places(gpu: Gpu) -> Iterator[dict[str, Place]]:
    """Ways to put an array where the device finds it."""
    with ExitStack() as imports:

        def imported(array: Array) -> Array:
            return imports.enter_context(gpu.import_array(np.array(array))).array

        yield {
            "plain": np.array,
            "mapped": gpu.asarray,
            "imported": imported,
            "device": gpu.to_device,
        }


def fetch(array: Any) -> Array:
    found: Array = array.numpy() if isinstance(array, gx.DeviceArray) else array
    return found


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    ("split", "init"), [("elements", 0), ("elements", None), ("whole", 5), ("whole", None)]
)
def test_the_result_is_as_if_the_two_were_apart(
    gpu: Gpu, places: dict[str, Place], body: str, split: str, init: int | None
) -> None:
    text, compute = BODIES[body]
    kernel = make_kernel(text, "int", split=split, init=init)
    for count in (1, 300):
        x = (np.arange(count) % 11).astype(np.int32)
        y = (np.arange(count) % 7).astype(np.int32)
        expected = compute(x, y)
        for place in places.values():
            for first, second, targets in ((0, 1, (0, 1)), (0, 1, (1, 0)), (0, 0, (0, 1))):
                arrays = [place(x), place(y)]
                wanted = expected if second else compute(x, x)
                out: Any = arrays[targets[0]]
                if isinstance(wanted, tuple):
                    out = tuple(arrays[each] for each in targets)
                found = gpu.run(kernel, arrays[first], arrays[second], out=out)
                pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else None
                for result, right in pairs or [(found, wanted)]:
                    np.testing.assert_array_equal(fetch(result), right)


@pytest.mark.parametrize("body", ["a loop", "two outputs"])
def test_batches_streams_and_chunks_are_as_if_apart(
    gpu: Gpu, places: dict[str, Place], body: str
) -> None:
    text, compute = BODIES[body]
    kernel = make_kernel(text, "uint", split="elements", init=None)
    x, y = np.arange(3000, dtype=np.uint32), np.arange(3000, dtype=np.uint32)[::-1].copy()
    for name, place in places.items():
        jobs = [(place(x + k), place(y)) for k in range(4)]
        outs = [job if body == "two outputs" else job[0] for job in jobs]
        found = gpu.run_batch(kernel, jobs, out=outs)
        if name != "device":
            jobs = [(place(x + k), place(y)) for k in range(4)]
            outs = [job if body == "two outputs" else job[0] for job in jobs]
            found += list(gpu.stream(kernel, jobs, out=outs))
        for k, results in enumerate(found):
            expected = compute(x + k % 4, y)
            several = isinstance(expected, tuple)
            for result, right in zip(
                results if several else [results], expected if several else [expected], strict=True
            ):
                np.testing.assert_array_equal(fetch(result), right)


LOADED = [gx.kernels.load(name) for name in gx.kernels.names()]
CATALOGUE = {kernel.digest: kernel for kernel in LOADED if kernel.split == "elements"}
"""A kernel of each module; those of other primes have the same code."""


@pytest.mark.parametrize("kernel", CATALOGUE.values(), ids=lambda kernel: kernel.name)
def test_kernels_of_the_catalogue(gpu: Gpu, places: dict[str, Place], kernel: gx.Kernel) -> None:
    assert kernel.in_place
    check_in_place(gpu, places, kernel, 1 << 20 if "f32" in kernel.name else 97)


MEASURING = [copy_kernel(), fma_chain_kernel(16), mont_mul_chain_kernel(NAMED["bls12_381_fr"], 2)]


@pytest.mark.parametrize("kernel", MEASURING, ids=lambda kernel: kernel.name)
def test_kernels_of_measurements(gpu: Gpu, places: dict[str, Place], kernel: gx.Kernel) -> None:
    assert kernel.in_place
    check_in_place(gpu, places, kernel, 97)


@pytest.mark.parametrize("field", ["bls12_381_fr", "babybear"])
@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each != "power"])
def test_element_kernels(gpu: Gpu, places: dict[str, Place], field: str, operation: str) -> None:
    try:
        kernel = element_kernel(NAMED[field], operation)
    except gx.errors.KernelError:
        return  # elements of this field have no Montgomery form to convert
    assert kernel.in_place
    check_in_place(gpu, places, kernel, 3)


def check_in_place(gpu: Gpu, places: dict[str, Place], kernel: gx.Kernel, bound: int) -> None:
    """Compare calls with `out=` each of the inputs with a call whose arrays are apart."""
    random = np.random.default_rng(5)
    arrays = [
        random.integers(0, bound, (301, *each.type.shape)).astype(each.type.dtype)
        for each in kernel.arguments
        if each.is_input
    ]
    expected = gpu.run(kernel, *arrays)
    for at, array in enumerate(arrays):
        if array.dtype != expected.dtype or array.shape != expected.shape:
            continue
        for place in places.values():
            given = [place(each) for each in arrays]
            found = gpu.run(kernel, *given, out=given[at])
            np.testing.assert_array_equal(fetch(found), expected)


PROVEN = {
    "z[i] = x[i] + 1;": True,
    "if (i < x.length()) z[i] = x[i] > 3 ? x[i] : -x[i];": True,
    "float s = x[i]; for (int k = 0; k < 4; k++) s *= x[i]; z[i] = s;": True,
    "if (x[i] > 0) z[i] = 1; else z[i] = x[i];": True,
    "z[i] = 1; if (x[i] > 0) z[i] = 2;": False,
    "for (int k = 0; k < 4; k++) z[i] = x[i] + k;": False,
    "uint j = i + 1; z[j] = x[j];": False,
    "i = i / 2; z[i] = x[i];": False,
    "z[i] = x[gl_GlobalInvocationID.y];": False,
    "z[i] = x[gl_LocalInvocationID.x];": False,
    "z[i] = x[i] + x[0];": False,
    "z[0] = x[i];": False,
    "z[i] = load(i);": False,
}


FORMS_DIFFER = ("s *= x[i]", "?", "else", "load(i)", "z[i] = 1; if")
"""In bodies whose optimised code has other variables, branches or functions."""
CODES: list[tuple[str, tuple[str, ...]]] = [(body, ()) for body in PROVEN]
CODES += [(body, ("-O",)) for body in PROVEN if any(part in body for part in FORMS_DIFFER)]


@pytest.mark.parametrize(("body", "options"), CODES, ids=str)
def test_which_code_reads_before_it_writes(body: str, options: tuple[str, ...]) -> None:
    code = compile_glsl(
        f"""
layout(local_size_x = 64) in;
layout(binding = 3) readonly buffer X {{ float x[]; }};
layout(binding = 5) writeonly buffer Z {{ float z[]; }};
float load(uint at) {{ return x[at]; }}
void main() {{ uint i = gl_GlobalInvocationID.x; {body} }}
""",
        options=options,
    )
    proven = is_read_before_written(code, 3, 5)
    assert proven == (PROVEN[body] or (bool(options) and "load(i)" in body))


def test_lines_behind_a_branch_do_not_hide_it() -> None:
    code = compile_glsl("""
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Z { float z[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    z[i] = 1;
    if (z.length() > 3) { if (x[i] > 0) z[i] = 2; }
}
""")
    assert not is_read_before_written(code, 0, 1)
    words = np.frombuffer(code, np.uint32).tolist()
    offset, lined = 5, words[:5]
    while offset < len(words):
        size, opcode = words[offset] >> 16, words[offset] & 0xFFFF
        lined += words[offset : offset + size]
        if opcode in (249, 250):  # OpBranch, OpBranchConditional
            lined.append(1 << 16 | 317)  # OpNoLine
        offset += size
    lined_code = np.array(lined, np.uint32).tobytes()
    assert not is_read_before_written(lined_code, 0, 1)


def test_a_specialized_index_is_not_known() -> None:
    code = compile_glsl("""
layout(local_size_x = 64) in;
layout(constant_id = 0) const int AXIS = 0;
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) writeonly buffer Z { float z[]; };
void main() { z[gl_GlobalInvocationID[AXIS]] = x[gl_GlobalInvocationID[AXIS]] + 1; }
""")
    assert not is_read_before_written(code, 0, 1)


def test_elements_of_different_sizes_are_not_the_same_element() -> None:
    code = compile_glsl("""
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { uvec2 x[]; };
layout(binding = 1) writeonly buffer Z { uint z[]; };
void main() { uint i = gl_GlobalInvocationID.x; z[i] = x[i].x; }
""")
    assert not is_read_before_written(code, 0, 1)
