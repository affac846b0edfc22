"""SwiftShader: a driver of Vulkan without 64-bit types, with one queue and subgroups of four.

It compiles slowly and keeps no pipelines, so sizes are small, what needs many pipelines is slow,
and matrix products are left out: `matmul_u32` is not compiled after a minute, with 3 GB in use.
Named curves have a file of their own, for another worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor import fields
from gpu_executor.curves import Curve
from gpu_executor.kernels.catalogue import mont_mul_chain_kernel
from gpu_executor.primes import Prime, words
from gpu_executor.spirv.editor import ModuleEditor, Op
from gpu_executor.vulkan import pipeline
from tests.conftest import elements
from tests.support.curves_under_test import (
    FILLS_WORDS,
    SMALL,
    SMALL_QUADRATIC,
    check_msm,
)
from tests.support.custom_kernels import BODY, COUNT, HEAD, buffer
from tests.support.driver_checks import check_decoding, check_field, check_sort, check_transform
from tests.support.glsl import compile_glsl
from tests.support.swiftshader import use_swiftshader

FAMILIES = ("BABYBEAR", "MERSENNE31", "GOLDILOCKS", "BLS12_381_FR")
"""A field of every family."""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_field_of_every_family(swiftshader: gx.PersistentVulkanBackend, name: str) -> None:
    lowered = swiftshader.stats().pipelines.lowered
    check_field(swiftshader, getattr(fields, name))
    assert swiftshader.stats().pipelines.lowered > lowered


def test_extensions_of_goldilocks_and_folding(swiftshader: gx.PersistentVulkanBackend) -> None:
    field = fields.GOLDILOCKS3
    host = field.random(16, seed=1)
    there, alpha = swiftshader.to_device(host), host[3].item()
    assert field.inverse(there * there).tolist() == field.inverse(host * host).tolist()
    folded = field.fold(host, alpha, 8, coset=7)
    assert field.fold(there, alpha, 8, coset=7).tolist() == folded.tolist()


def test_loops_that_are_not_unrolled_run_to_their_end(
    swiftshader: gx.PersistentVulkanBackend,
) -> None:
    """5 million iterations, where lavapipe ends the loops of an invocation after 65,535."""
    prime, length = fields.BLS12_381_FR.prime, 1 << 14
    a, b = elements(prime, 4, 1), elements(prime, 4, 2)
    kernel = mont_mul_chain_kernel(prime, length)
    found = swiftshader.run(kernel, words.from_ints(prime, a), words.from_ints(prime, b))
    r, p = pow(prime.r, -1, prime.modulus), prime.modulus
    exact = [x * pow(y * r, length, p) % p for x, y in zip(a, b, strict=True)]
    assert words.to_ints(prime, found) == exact


def make_kernel_of_a_user() -> gx.Kernel:
    """A kernel with a loop that asks to be unrolled."""
    loop = "[[unroll]] for (uint k = 0; k < count; ++k) y[i] += x[k];"
    code = compile_glsl(
        f"#extension GL_EXT_control_flow_attributes : require\n{HEAD} {COUNT} {buffer(0, 'x')}"
        f"{buffer(1, 'y')} void main() {{ {BODY} {loop} }}"
    )
    return gx.Kernel.from_spirv(code, buffers="in, out")


def test_only_kernels_of_many_limbs_keep_their_loops(
    gpu: gx.PersistentVulkanBackend,
    swiftshader: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver gets those without the hints to unroll that other kernels, and all kernels on
    another driver, have."""
    unrolled, make_module = [], pipeline._make_module

    def record(device: Any, code: bytes) -> Any:
        functions = ModuleEditor(code).functions
        unrolled.append(any(each == Op.LOOP_MERGE and found[2] & 1 for each, found in functions))
        return make_module(device, code)

    monkeypatch.setattr(pipeline, "_make_module", record)
    for prime in (Prime("few limbs", 2**64 - 59), Prime("many limbs", 2**256 - 189)):
        kernel, zeros = mont_mul_chain_kernel(prime, 2), words.from_ints(prime, [0, 0, 0])
        for backend in (gpu, swiftshader):
            assert not backend.run(kernel, zeros, zeros).any()
    x = np.arange(5, dtype=np.uint32)
    assert swiftshader.run(make_kernel_of_a_user(), x).tolist() == [10] * 5
    assert unrolled == [True, True, True, False, True]


def test_a_transform(swiftshader: gx.PersistentVulkanBackend) -> None:
    check_transform(swiftshader, fields.GOLDILOCKS, 16)


def test_sort(swiftshader: gx.PersistentVulkanBackend) -> None:
    check_sort(swiftshader, "u4")


@pytest.mark.parametrize(
    "curve",
    [
        SMALL[3],
        pytest.param(FILLS_WORDS, marks=pytest.mark.slow),
        pytest.param(SMALL_QUADRATIC, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_msm(swiftshader: gx.PersistentVulkanBackend, curve: Curve) -> None:
    """Of one limb, of several, and over an extension field."""
    check_msm(swiftshader, curve, 8)


# --- slow: minutes of compilation ---


@pytest.mark.slow
def test_a_field_of_more_words(swiftshader: gx.PersistentVulkanBackend) -> None:
    """Other named fields differ from this one and from `FAMILIES` in the digits of a prime alone;
    they run on lavapipe."""
    check_field(swiftshader, fields.BLS12_381_FQ)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BABYBEAR", "BLS12_381_FR"])
def test_large_transforms(swiftshader: gx.PersistentVulkanBackend, name: str) -> None:
    check_transform(swiftshader, getattr(fields, name), 4096)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["i4", "u8", "f4"])
def test_sort_of_other_dtypes(swiftshader: gx.PersistentVulkanBackend, dtype: str) -> None:
    check_sort(swiftshader, dtype)


@pytest.mark.slow
def test_points_are_decoded(swiftshader: gx.PersistentVulkanBackend) -> None:
    check_decoding(swiftshader)


def test_an_executor_takes_the_device() -> None:
    field, x = fields.BABYBEAR, [1, 2, 3]
    with use_swiftshader():
        assert "SwiftShader" in gx.devices()[0].name
        with gx.GpuExecutor() as executor:
            assert "SwiftShader" in executor.device.name
            assert (executor.to_device(field.encode(x)) * 7).tolist() == [7, 14, 21]
