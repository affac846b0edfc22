"""Kernels with 64-bit integers on a device that has none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor import fields
from gpu_executor.errors import DeviceLacksError
from tests.conftest import elements
from tests.support.custom_kernels import BODY, COUNT, HEAD, buffer
from tests.support.glsl import compile_glsl
from tests.support.narrow_devices import open_narrow_gpu

EXTENSIONS = """
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_atomic_int64 : require
"""


@pytest.fixture(scope="module")
def narrow_gpu(gpu: gx.PersistentVulkanBackend) -> Iterator[gx.PersistentVulkanBackend]:
    with open_narrow_gpu() as opened:
        yield opened


def make_kernel(body: str, kind: str = "uint64_t", **options: object) -> gx.Kernel:
    """A kernel of 64-bit integers x and y."""
    code = compile_glsl(
        f"{EXTENSIONS} {HEAD} {COUNT} layout(constant_id = 7) const uint64_t K = 3ul;"
        f"{buffer(0, 'x', kind)} {buffer(1, 'y', kind)} void main() {{ {BODY} {body} }}",
        "1.2",
    )
    return gx.Kernel.from_spirv(code, buffers="in, out", name="wide", **options)  # type: ignore[arg-type]


def test_a_kernel_with_64_bit_integers_runs_on_pairs_of_words(
    narrow_gpu: gx.PersistentVulkanBackend,
) -> None:
    x = np.array([0, 1, 2**32 - 1, 2**32, 2**63 - 5, 2**64 - 1], np.uint64)
    kernel = make_kernel("y[i] = x[i] * x[i] + K;")
    before = narrow_gpu.stats().pipelines
    np.testing.assert_array_equal(narrow_gpu.run(kernel, x), x * x + np.uint64(3))
    np.testing.assert_array_equal(narrow_gpu.run(kernel, x), x * x + np.uint64(3))
    stats = narrow_gpu.stats()
    assert stats.pipelines.lowered == before.lowered + 1
    assert f"{stats.pipelines.lowered} with pairs of words for 64-bit integers" in str(stats)
    # Constants are part of the code, so each of their values has a pipeline of its own.
    large = make_kernel("y[i] = x[i] * x[i] + K;", constants={7: 2**40 + 1})
    np.testing.assert_array_equal(narrow_gpu.run(large, x), x * x + np.uint64(2**40 + 1))
    on_device = narrow_gpu.to_device(x)
    np.testing.assert_array_equal(narrow_gpu.run(large, on_device), x * x + np.uint64(2**40 + 1))


def test_the_plan_names_the_form_of_integers(
    gpu: gx.PersistentVulkanBackend, narrow_gpu: gx.PersistentVulkanBackend
) -> None:
    x, kernel = np.zeros(5, np.uint64), make_kernel("y[i] = x[i] + 1ul;")
    forms = {
        gpu: "integers: 64-bit integers, which the device has",
        narrow_gpu: "integers: pairs of words, since the device has no 64-bit integers",
    }
    for backend, form in forms.items():
        assert form in backend.explain(kernel, x).reasons
        assert form in backend.explain(kernel, backend.to_device(x)).reasons
    a = np.zeros(5, np.uint32)
    reasons = narrow_gpu.explain(gx.kernels.load("vector_add_u32"), a, a).reasons
    assert not any(each.startswith("integers") for each in reasons)
    assert gpu.stats().pipelines.lowered == 0


@pytest.mark.parametrize(
    ("body", "kind", "missing"),
    [
        ("y[i] = uint64_t(float(x[i]));", "uint64_t", r"conversion from or to floats of 64-bit"),
        ("y[i] = x[i] + u64vec4(K);", "u64vec4", r"a vector of 4 64-bit integers has no form"),
        ("y[i] = uint64_t(double(x[i]));", "uint64_t", r"needs Float64; .* lacks shaderFloat64 \("),
        ("atomicAdd(y[0], x[i]);", "uint64_t", r"Int64Atomics; .* lacks shaderBufferInt64Atomics"),
    ],
)  # fmt: skip
def test_what_has_no_form_in_words_is_refused(
    narrow_gpu: gx.PersistentVulkanBackend, body: str, kind: str, missing: str
) -> None:
    kernel = make_kernel(body, kind)
    x = np.zeros(4, np.uint64) if kind == "uint64_t" else np.zeros((4, 4), np.uint64)
    with pytest.raises(DeviceLacksError, match=missing) as error:
        narrow_gpu.run(kernel, x)
    assert "kernel 'wide'" in str(error.value)
    assert "llvmpipe" in str(error.value) and "has it" in str(error.value)
    assert "no reference for the CPU" in str(error.value)


@pytest.mark.parametrize("field", [fields.GOLDILOCKS, fields.BLS12_381_FQ], ids=str)
def test_fields(narrow_gpu: gx.PersistentVulkanBackend, field: gx.Field) -> None:
    p = field.modulus
    a, b = elements(field.prime, 64, 1), elements(field.prime, 64, 2)
    x, y = narrow_gpu.to_device(field.encode(a)), narrow_gpu.to_device(field.encode(b))
    assert (x * y).to_host().tolist() == [i * j % p for i, j in zip(a, b, strict=True)]
    assert (x - y).to_host().tolist() == [(i - j) % p for i, j in zip(a, b, strict=True)]
