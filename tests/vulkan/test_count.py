"""The push constant that holds the number of elements: by its name, or by `count=`.

This file requires glslc.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError, KernelError
from tests.support.glsl import compile_glsl

Gpu = gx.PersistentVulkanBackend

TEXT = """
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { MEMBERS };
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
void main() { uint i = gl_GlobalInvocationID.x; if (i < x.length()) y[i] = x[i] + VALUE; }
"""


def make(members: str, value: str, *, named: bool = True, **declared: Any) -> gx.Kernel:
    body = TEXT.replace("MEMBERS", members).replace("VALUE", value)
    return gx.Kernel.from_spirv(compile_glsl(body, options=() if named else ("-O",)), **declared)


@pytest.mark.parametrize(
    ("members", "declared", "params", "expected"),
    [
        ("uint count; uint k;", {}, (5,), 10_005),
        ("int count; uint k;", {}, {"k": 5}, 10_005),
        ("uint num_elements; uint k;", {}, (5,), 10_005),
        ("uint n; uint k;", {"count": "n"}, (5,), 10_005),
        ("uint n; uint k;", {"count": True}, (5,), 10_005),
        ("uint n; uint k;", {}, (7, 5), 705),
        ("uint count; uint k;", {"count": False}, (7, 5), 705),
        ("uint height; uint width;", {}, {"height": 7, "width": 5}, 705),
        ("uint k; uint count;", {}, (7, 5), 705),  # only the first member has the name's meaning
        ("uint k; uint n;", {"count": "n"}, (7,), 800),
        ("uint k; uint n; float f;", {"count": "n"}, {"k": 7, "f": 0.5}, 800),
        ("uint count; uint k;", {}, {"count": 100, "k": 5}, 10_005),
        ("uint count; uint k;", {"params": {"k": 6}}, None, 10_006),
    ],
)
@pytest.mark.parametrize("split", ["whole", "elements"])
def test_which_member_is_filled(
    gpu: Gpu, members: str, declared: dict[str, Any], params: Any, expected: int, split: str
) -> None:
    check_filled(gpu, members, {**declared, "split": split}, params, expected)


@pytest.mark.parametrize(
    ("members", "declared", "params", "expected"),
    [
        ("uint count; uint k;", {}, {"count": 3, "k": 5}, 305),
        ("uint k; uint n;", {"count": "n"}, {"n": 3, "k": 5}, 503),
        ("uint count; uint k;", {"params": {"count": 2}}, {"k": 5}, 205),
        ("uint count; uint k;", {"params": (6,)}, {"count": 4}, 406),
    ],
)
def test_a_value_given_by_name_wins(
    gpu: Gpu, members: str, declared: dict[str, Any], params: Any, expected: int
) -> None:
    check_filled(gpu, members, declared, params, expected)
    x = np.arange(100, dtype=np.uint32)
    first, second = (each.split()[-1] for each in members.split(";")[:2])
    kernel = make(members, f"{first} + {second}", split="elements", **declared)
    for array in (x, gpu.to_device(x)):
        with pytest.raises(ArgumentTypeError, match="and the arrays have 100 elements"):
            gpu.run(kernel, array, params=params)


def check_filled(
    gpu: Gpu, members: str, declared: dict[str, Any], params: Any, expected: int
) -> None:
    """The kernel adds 100 times its first member and its second one to 100 elements."""
    first, second = (each.split()[-1] for each in members.split(";")[:2])
    kernel = make(members, f"100 * {first} + {second}", **declared)
    x = np.arange(100, dtype=np.uint32)
    arrays: list[Any] = [x, gpu.asarray(x), gpu.to_device(x)]
    for array in arrays:
        for _ in range(2):  # the second call finds what the first one recorded
            found = gpu.run(kernel, array, params=params)
            found = found.numpy() if isinstance(found, gx.DeviceArray) else found
            np.testing.assert_array_equal(found, x + expected)
    jobs = gpu.run_batch(kernel, [(x,), (x + 1,)], params=params)
    np.testing.assert_array_equal(jobs, [x + expected, x + 1 + expected])


def test_calls_that_give_their_count_are_not_coalesced() -> None:
    kernel = make("uint count; uint k;", "(i < count ? k : 0)", split="elements")
    x = np.arange(10, dtype=np.uint32)
    with gx.GpuExecutor("vulkan") as executor:
        futures = [executor.submit(kernel, x, params={"count": 10, "k": 1}) for _ in range(50)]
        for future in futures:
            np.testing.assert_array_equal(future.result(), x + 1)
        for found in executor.run_batch(kernel, [(x,)] * 50, params={"count": 10, "k": 1}):
            np.testing.assert_array_equal(found, x + 1)


def test_a_given_count_does_not_stay_for_later_calls(gpu: Gpu) -> None:
    kernel = make("uint count;", "count")
    x = np.arange(50, dtype=np.uint32)
    for array in (x, gpu.to_device(x)):
        for params, expected in ((None, 50), ({"count": 3}, 3), (None, 50), ({"count": 0}, 0)):
            found = gpu.run(kernel, array, params=params)
            found = found.numpy() if isinstance(found, gx.DeviceArray) else found
            np.testing.assert_array_equal(found, x + expected)


@pytest.mark.parametrize(
    ("members", "named", "params", "words"),
    [
        ("uint height; uint width;", True, None, "parameter 'height' has no value"),
        ("uint height; uint width;", True, {"width": 3}, "parameter 'height' has no value"),
        ("uint n;", True, None, "make the kernel with count=True"),
        ("uint count;", False, None, "parameter 0 has no value and no default; give it in params="),
        ("uint count; uint k;", False, (3,), "parameter 1 has no value"),
        ("uint count; uint k;", True, (3, 4), "'count' is the number of elements"),
        ("float count;", True, None, "parameter 'count' has no value"),
        ("uint count;", True, {"count": -1}, "parameter 'count' (uint32)"),
        ("uint count;", True, {"count": 2.5}, "parameter 'count' (uint32)"),
        ("uint count;", True, {"n": 2}, "params has 'n'"),
    ],
)
def test_members_without_values_are_refused(
    gpu: Gpu, members: str, named: bool, params: Any, words: str
) -> None:
    first = members.partition(";")[0].rpartition(" ")[2]
    kernel = make(members, f"uint({first})", named=named)
    x = np.arange(10, dtype=np.uint32)
    for array in (x, gpu.to_device(x)):
        with pytest.raises(ArgumentTypeError) as caught:
            gpu.run(kernel, array, params=params)
        assert words in str(caught.value)


def test_a_stripped_module_is_declared(gpu: Gpu) -> None:
    kernel = make("uint a; uint b;", "100 * a + b", named=False, count=True)
    x = np.arange(10, dtype=np.uint32)
    np.testing.assert_array_equal(gpu.run(kernel, x, params=(7,)), x + 1007)


@pytest.mark.parametrize(
    ("members", "count", "words"),
    [
        ("float a; uint n;", True, "count=True, but its push constants do not begin"),
        ("uint a;", "n", "count is 'n', but the push constants with names are: 'a'"),
        ("float a;", "a", "count is 'a', which is no 32-bit integer"),
        ("uvec2 a;", "a", "count is 'a', which is no 32-bit integer"),
        ("uint a;", 3, "count is 3; it must be the name of a push constant"),
    ],
)
def test_declarations_that_do_not_fit_the_code(members: str, count: Any, words: str) -> None:
    with pytest.raises(KernelError) as caught:
        make(members, "1", count=count)
    assert words in str(caught.value)


def test_a_push_constant_and_a_uniform_of_one_name_are_both_set(gpu: Gpu) -> None:
    text = """
#version 450
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint k; uint count; } push;
layout(binding = 5) uniform Block { uint k; uint count; } block;
layout(binding = 0) writeonly buffer Y { uint y[]; };
void main() {
    y[0] = push.k; y[1] = push.count; y[2] = block.k; y[3] = block.count;
}
"""
    kernel = gx.Kernel.from_glsl(text, out_shape=(4,), count="count", reference=refuse)
    assert gpu.run(kernel, params={"k": 7, "count": 3}).tolist() == [7, 3, 7, 3]
    assert gpu.run(kernel, params=(1, 2, 3)).tolist() == [1, 4, 2, 3]
    with gx.GpuExecutor("cpu") as cpu, pytest.raises(ArgumentTypeError, match="different values"):
        cpu.run(kernel, params=(1, 2, 3))


def refuse(**_params: Any) -> Any:
    raise AssertionError("a reference cannot tell the two members apart")


def test_a_transpose_of_n_by_n(gpu: Gpu) -> None:
    """`{uint n;}` is no number of elements: it once was filled with n * n."""
    text = """
#version 450
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint n; };
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) writeonly buffer B { float b[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < n * n) b[i % n * n + i / n] = a[i];
}
"""
    kernel = gx.Kernel.from_glsl(text)
    a = np.arange(49, dtype=np.float32).reshape(7, 7)
    with pytest.raises(ArgumentTypeError, match="parameter 'n' has no value"):
        gpu.run(kernel, a)
    np.testing.assert_array_equal(gpu.run(kernel, a, params={"n": 7}), a.T)
