"""Calls on device arrays: submitted in order, not waited for, and right on every view.

This file requires glslc.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor import fields
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ElementRangeError
from gpu_executor.primes import BLS12_381_FQ, words
from tests.conftest import OpenGpu
from tests.support.device_arrays import draw_words
from tests.support.jobs import ADD_U32, FQ_ADD, field_job

Gpu = gx.PersistentVulkanBackend
X, Y = draw_words(1, 1000), draw_words(2, 1000)


def compile_kernel(body: str, **declared: Any) -> gx.Kernel:
    """Compile a shader with work-groups of 64."""
    text = f"#version 450\n{body}"
    head, _, rest = text.partition("layout(")
    return gx.Kernel.from_glsl(f"{head}layout(local_size_x = 64) in;\nlayout({rest}", **declared)


SWAP = """
layout(binding = 0) buffer A { uint a[]; };
layout(binding = 1) buffer B { uint b[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < a.length()) { uint t = a[i]; a[i] = b[i] + 1; b[i] = t + 2; }
}"""
EVEN = """
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer B { uint b[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < a.length() && i % 2 == 0) b[i] = a[i];
}"""
SCALE = """
layout(push_constant) uniform Push { uint count; uint factor; };
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 2) writeonly buffer B { uint b[]; };
layout(binding = 5) uniform U { uint bias; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < count) b[i] = a[i] * factor + bias;
}"""


def test_device_arrays_in_device_arrays_out(gpu: Gpu) -> None:
    there = gpu.to_device(X)
    mixed = gpu.run(ADD_U32, there, Y)
    assert isinstance(mixed, gx.DeviceArray)
    np.testing.assert_array_equal(mixed.numpy(), X + Y)
    fetched = gpu.run(ADD_U32, there, mixed, keep=False)
    assert isinstance(fetched, np.ndarray)
    np.testing.assert_array_equal(fetched, 2 * X + Y)
    kept = gpu.run(ADD_U32, X, Y, keep=True)
    assert isinstance(kept, gx.DeviceArray) and (kept.numpy() == X + Y).all()
    out = np.empty_like(X)
    assert gpu.run(ADD_U32, there, Y, out=out) is out
    np.testing.assert_array_equal(out, X + Y)


def test_numpy_arguments_are_copied_before_the_call_returns(gpu: Gpu) -> None:
    there = gpu.to_device(X)
    for y in (Y.copy(), gpu.asarray(Y), np.repeat(Y, 100)[::100]):
        result = gpu.run(ADD_U32, there, y)
        y[...] = 0
        np.testing.assert_array_equal(result.numpy(), X + Y)


VIEWS = [
    slice(1, None),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(7, 8),
    slice(3, 900, 13),
]


@pytest.mark.parametrize("view", VIEWS, ids=repr)
def test_inputs_and_outputs_may_be_any_views(gpu: Gpu, view: slice) -> None:
    a, b, out = gpu.to_device(X), gpu.to_device(Y), gpu.to_device(np.zeros_like(X))
    result = gpu.run(ADD_U32, a[view], b[view], out=out[view])
    expected = np.zeros_like(X)
    expected[view] = X[view] + Y[view]
    np.testing.assert_array_equal(result.numpy(), expected[view])
    np.testing.assert_array_equal(out.numpy(), expected)
    same = gpu.run(ADD_U32, a[view], b[view], out=a[view])
    np.testing.assert_array_equal(same.numpy(), expected[view])


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_a_view_of_odd_size_keeps_its_neighbours(gpu: Gpu, dtype: str) -> None:
    bits = 8 * np.dtype(dtype).itemsize
    fill = compile_kernel(
        f"""
        #extension GL_EXT_shader_{bits}bit_storage : require
        #extension GL_EXT_shader_explicit_arithmetic_types : require
        layout(binding = 0) readonly buffer A {{ uint{bits}_t a[]; }};
        layout(binding = 1) writeonly buffer B {{ uint{bits}_t b[]; }};
        void main() {{ b[gl_GlobalInvocationID.x] = a[0]; }}
        """
    )
    x = gpu.to_device(np.zeros(600, dtype))
    gpu.run(fill, gpu.to_device(np.full(257, 9, dtype)), out=x[256:513])
    expected = np.zeros(600, dtype)
    expected[256:513] = 9
    np.testing.assert_array_equal(x.numpy(), expected)


def test_in_out_arguments_change_in_place_or_not_at_all(gpu: Gpu) -> None:
    swap = compile_kernel(SWAP)
    a, b = gpu.to_device(X), gpu.to_device(Y)
    one, other = gpu.run(swap, a, b)
    assert (one.numpy() == Y + 1).all() and (other.numpy() == X + 2).all()
    assert (a.numpy() == X).all() and (b.numpy() == Y).all()
    gpu.run(swap, a, b, out=(a, b))
    assert (a.numpy() == Y + 1).all() and (b.numpy() == X + 2).all()
    whole = gpu.to_device(X)
    gpu.run(swap, whole[::2], whole[1::2], out=(whole[::2], whole[1::2]))
    expected = X.copy()
    expected[::2], expected[1::2] = X[1::2] + 1, X[::2] + 2
    np.testing.assert_array_equal(whole.numpy(), expected)
    first, _ = gpu.run(swap, gpu.to_device(X), Y)
    assert (first.numpy() == Y + 1).all()


def test_overlapping_outputs_are_refused(gpu: Gpu) -> None:
    a, b = gpu.to_device(X), gpu.to_device(Y)
    with pytest.raises(ArgumentShapeError, match="overlaps argument 0"):
        gpu.run(ADD_U32, a[1:], b[1:], out=a[:-1])
    with pytest.raises(ArgumentShapeError, match="not its own in-out"):
        gpu.run(compile_kernel(SWAP), a, b, out=(b, a))
    with pytest.raises(ArgumentShapeError, match="share memory"):
        gpu.run(ADD_U32, a, b, out=a[:1].broadcast_to((1000,)))
    with pytest.raises(ArgumentTypeError, match="NumPy arrays and device arrays"):
        gpu.run(compile_kernel(SWAP), a, b, out=(a, Y.copy()))


def test_outputs_begin_with_their_initial_value(gpu: Gpu) -> None:
    a = gpu.to_device(X)
    expected = np.where(np.arange(1000) % 2 == 0, X, 0)
    for _ in range(3):  # the memory of earlier results is used again
        np.testing.assert_array_equal(gpu.run(compile_kernel(EVEN), a).numpy(), expected)
    seven = gpu.run(compile_kernel(EVEN, init=7), a[1:]).numpy()
    np.testing.assert_array_equal(seven, np.where(np.arange(999) % 2 == 0, X[1:], 7))


def test_parameters_and_uniform_buffers(gpu: Gpu) -> None:
    scale, a = compile_kernel(SCALE), gpu.to_device(X)
    results = [gpu.run(scale, a, params={"factor": n, "bias": n + 1}) for n in range(5)]
    for n, result in enumerate(results):
        np.testing.assert_array_equal(result.numpy(), X * np.uint32(n) + np.uint32(n + 1))


def test_kernels_with_scratch_memory_and_grids(gpu: Gpu) -> None:
    a, b = (
        np.arange(n, dtype=np.uint32).reshape(shape) % 17
        for n, shape in ((60 * 4000, (60, 4000)), (4000 * 3, (4000, 3)))
    )
    there = gpu.to_device(a), gpu.to_device(b)
    product = gpu.run(gx.kernels.load("matmul_u32"), *there)
    np.testing.assert_array_equal(product.numpy(), a @ b)
    turned = gpu.run(gx.kernels.load("matmul_u32"), there[1].T, there[0].T)
    np.testing.assert_array_equal(turned.numpy(), b.T @ a.T)
    total = gpu.run(gx.kernels.load("reduce_sum_u32"), there[0][::2])
    assert total.shape == () and int(total.numpy()) == int(a[::2].sum())


def test_generators_keep_their_results(gpu: Gpu) -> None:
    count_up = compile_kernel(
        "layout(binding = 0) writeonly buffer A { uint a[]; };"
        "void main() { uint i = gl_GlobalInvocationID.x; if (i < a.length()) a[i] = i; }"
    )
    made = gpu.run(count_up, out_shape=(3, 50), keep=True)
    np.testing.assert_array_equal(made.numpy(), np.arange(150).reshape(3, 50))


def test_calls_and_field_operations_run_in_program_order(gpu: Gpu) -> None:
    fr = fields.BLS12_381_FR
    values = [3, 5, 7, 1 << 200]
    x = gpu.to_device(fr.encode(values))
    y = x * x
    add = gx.kernels.load("bls12_381_fr_add")
    z = gpu.run(add, y.data, x.data, out=y.data)
    again = y + 1
    assert isinstance(y.data, gx.DeviceArray) and z.storage is y.data.storage
    assert again.ints().tolist() == [(v * v + v + 1) % fr.modulus for v in values]


def test_a_late_error_is_raised_by_every_dependent_fetch(gpu: Gpu) -> None:
    a, b = field_job(100)
    bad = a.copy()
    bad[41] = words.from_ints(BLS12_381_FQ, [BLS12_381_FQ.modulus])[0]
    there = gpu.to_device(b)
    result = gpu.run(FQ_ADD, gpu.to_device(bad), there)
    derived = gpu.run(FQ_ADD, result, there)
    copied = derived[3:].copy()
    fine = gpu.run(FQ_ADD, gpu.to_device(a), there)
    for wrong in (result, derived, copied):
        with pytest.raises(ElementRangeError, match=r"bls12_381_fq_add: element 41 of argument 0"):
            wrong.numpy()
    gpu.synchronize()  # the error is known
    gpu.run(FQ_ADD, gpu.to_device(bad), there)
    with pytest.raises(ElementRangeError, match="element 41"):
        gpu.synchronize()
    gpu.synchronize()
    assert [int(v) for v in words.to_ints(BLS12_381_FQ, fine.numpy())] == [
        (int(p) + int(q)) % BLS12_381_FQ.modulus
        for p, q in zip(words.to_ints(BLS12_381_FQ, a), words.to_ints(BLS12_381_FQ, b), strict=True)
    ]
    result[...] = 0
    with pytest.raises(ElementRangeError):
        gpu.run(FQ_ADD, gpu.to_device(bad), there, keep=False)


def test_batches_and_streams_take_device_arrays(gpu: Gpu) -> None:
    a, b = gpu.to_device(X), gpu.to_device(Y)
    jobs: list[tuple[Any, Any]] = [(a, b), (X, Y), (a[::2], Y[::2]), (X[:0], Y[:0])]
    expected = [X + Y, X + Y, X[::2] + Y[::2], X[:0]]
    out: list[Any] = [gpu.to_device(X), np.empty_like(X), np.empty(500, np.uint32), X[:0].copy()]
    for results in (
        gpu.run_batch(ADD_U32, jobs),
        list(gpu.stream(ADD_U32, jobs)),
        gpu.run_batch(ADD_U32, jobs, out=out),
        list(gpu.stream(ADD_U32, iter(jobs), out=iter(out))),
    ):
        kinds = [type(each) for each in results]
        assert kinds[0] is gx.DeviceArray and kinds[1] is np.ndarray
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(result), right)
    assert isinstance(gpu.run_batch(ADD_U32, jobs)[2], gx.DeviceArray)


def test_large_calls_are_cut_where_the_device_must(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    limits = dataclasses.replace(gpu.device.limits, max_storage_buffer_range=16384)
    limited = dataclasses.replace(gpu.device, limits=limits)
    monkeypatch.setattr(gpu._session.call_preparer, "_info", limited)
    monkeypatch.setattr(gpu._session.device_memory._binder, "_max_binding_bytes", 16384)
    a = draw_words(3, 10_000)
    result = gpu.run(ADD_U32, gpu.to_device(a), a)
    np.testing.assert_array_equal(result.numpy(), 2 * a)
    bad, good = field_job(500)
    bad = bad.copy()
    bad[333] = words.from_ints(BLS12_381_FQ, [BLS12_381_FQ.modulus])[0]
    with pytest.raises(ElementRangeError, match="element 333"):
        gpu.run(FQ_ADD, gpu.to_device(bad), good).numpy()


def test_views_larger_than_a_binding_are_copied_in_parts(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    monkeypatch.setattr(gpu._session.device_memory._binder, "_max_binding_bytes", 4096)
    a = draw_words(5, 3 * 1000 * 4).reshape(3, 1000, 4)
    there = gpu.to_device(a)
    for index in (
        np.s_[:, :, 1],
        np.s_[::-1, ::-3, ::2],
        np.s_[1, ::7],
        np.s_[:, 0, 3:],
        np.s_[..., ::-1],
    ):
        np.testing.assert_array_equal(there[index].copy().numpy(), a[index])
    target = gpu.to_device(np.zeros_like(a))
    target[::-1, ::2, 1:] = there[:, 500:, :3]
    expected = np.zeros_like(a)
    expected[::-1, ::2, 1:] = a[:, 500:, :3]
    np.testing.assert_array_equal(target.numpy(), expected)


def test_explain_describes_calls_on_device_arrays(gpu: Gpu) -> None:
    plan = gpu.explain(ADD_U32, gpu.to_device(X), Y)
    assert plan.path == "device-resident" and "device-resident" in str(plan)
    assert gpu.explain(ADD_U32, X, Y).path != "device-resident"


def test_calls_on_device_arrays_are_counted(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    there = gpu.to_device(X)
    for _ in range(3):
        gpu.run(ADD_U32, there, there)
    stats = gpu.stats()
    assert (stats.calls, stats.elements) == (3, 3000)
    assert stats.calls_by_path == {"device-resident": 3}


def test_a_division_by_zero_is_raised_late(gpu: Gpu) -> None:
    field = fields.GOLDILOCKS
    divisors = gpu.to_device(field.encode([1, 2, 0, 4, 0]))
    with gx.graph(divisors) as graph:
        recorded = 1 / divisors
    field.encode([1]).copy_to_device(divisors.device) / divisors
    with pytest.raises(ZeroDivisionError, match="goldilocks: element 2 is 0"):
        gpu.synchronize()
    graph(field.encode([1, 2, 3, 4, 5]))
    expected = [pow(each, -1, field.modulus) for each in range(1, 6)]
    assert recorded.ints().tolist() == expected
    graph(field.encode([1, 2, 3, 4, 0]))
    with pytest.raises(ZeroDivisionError, match="goldilocks: element 4 is 0"):
        recorded.ints()


def test_an_array_with_an_error_keeps_it_when_a_part_is_overwritten(gpu: Gpu) -> None:
    field = fields.GOLDILOCKS
    wrong = 1 / gpu.to_device(field.encode([1, 0, 3, 4]))
    wrong[[0, 2]] = gpu.to_device(field.encode([8, 9]))
    with pytest.raises(ZeroDivisionError, match="element 1"):
        wrong.ints()
    both = 1 / gpu.to_device(field.encode([1, 0, 3, 4]))
    both[[0, 2]] = 1 / gpu.to_device(field.encode([5, 6]))
    with pytest.raises(ZeroDivisionError, match="element 1"):
        both.ints()
    both[...] = gpu.to_device(field.encode([1, 2, 3, 4]))
    assert both.ints().tolist() == [1, 2, 3, 4]
