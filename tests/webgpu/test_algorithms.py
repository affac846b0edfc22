"""Fields, transforms, sorts and curves by WebGPU: the package's SPIR-V, read by naga."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor import fields
from gpu_executor.curves import Curve
from gpu_executor.kernels.catalogue import field_kernel
from gpu_executor.primes import Prime, words
from gpu_executor.webgpu import device as webgpu_device
from tests.conftest import elements
from tests.support.curves_under_test import (
    FILLS_WORDS,
    SMALL_QUADRATIC,
    check_msm,
)
from tests.support.driver_checks import (
    check_commitment,
    check_field,
    check_readme,
    check_sort,
    check_transform,
)
from tests.support.fields_under_test import find_prime

FAMILIES = ["BABYBEAR", "MERSENNE31", "GOLDILOCKS", "BLS12_381_FR"]


@pytest.fixture(scope="module")
def backend() -> Iterator[gx.WgpuExecutor]:
    with gx.WgpuExecutor() as opened:
        assert opened.stats().integers == "int64"
        yield opened


@pytest.fixture(scope="module")
def narrow_backend() -> Iterator[gx.WgpuExecutor]:
    """A device without 64-bit integers."""
    with pytest.MonkeyPatch.context() as patch:
        features = [each for each in webgpu_device.SHADER_FEATURES if each != "shader-int64"]
        patch.setattr(webgpu_device, "SHADER_FEATURES", tuple(features))
        opened = gx.WgpuExecutor()
    with opened:
        assert opened.stats().integers == "halves"
        yield opened


def check_family(backend: gx.WgpuExecutor, field: gx.Field) -> None:
    check_field(backend, field)
    if field is not fields.MERSENNE31:  # whose roots of unity have an order of 2 at most
        check_transform(backend, field, 16)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_field_of_every_family(backend: gx.WgpuExecutor, name: str) -> None:
    check_family(backend, getattr(fields, name))


@pytest.mark.parametrize("name", FAMILIES)
def test_fields_without_64_bit_integers(narrow_backend: gx.WgpuExecutor, name: str) -> None:
    check_family(narrow_backend, getattr(fields, name))


@pytest.mark.parametrize(
    "field", [fields.ExtensionField(fields.BABYBEAR, 11, degree=4), fields.GOLDILOCKS3]
)
def test_an_extension_field(backend: gx.WgpuExecutor, field: fields.ExtensionField) -> None:
    host = field.random(16, seed=1)
    there = backend.to_device(host)
    alpha = host[3].item()
    folded = field.fold(host, alpha, 4, order="reversed")
    assert field.fold(there, alpha, 4, order="reversed").tolist() == folded.tolist()
    assert there.frobenius().tolist() == host.frobenius().tolist()
    assert (there * there + there).tolist() == (host * host + host).tolist()
    assert field.inverse(there).tolist() == field.inverse(host).tolist()


@pytest.mark.parametrize(("bits", "operation"), [(32, "mont_mul"), (64, "sub"), (417, "add")])
def test_checked_kernels_of_several_widths(
    backend: gx.WgpuExecutor, bits: int, operation: str
) -> None:
    prime = Prime(f"p{bits}", find_prime(bits, largest=True))
    kernel = field_kernel(prime, operation)
    a, b = (words.from_ints(prime, elements(prime, 100, seed)) for seed in (1, 2))
    expected = gx.CpuBackend().run(kernel, a, b)
    assert backend.run(kernel, a, b).tolist() == expected.tolist()
    assert backend.run(kernel, a, b, keep=True).numpy().tolist() == expected.tolist()


def test_explain_says_which_code_runs(
    backend: gx.WgpuExecutor, narrow_backend: gx.WgpuExecutor
) -> None:
    kernel, words = gx.kernels.load("babybear_add"), np.zeros(4, np.uint32)
    for each, form in ((backend, "64-bit integers"), (narrow_backend, "halves of 16 bits")):
        code = f"the package's SPIR-V for WebGPU, products of words by {form}"
        for array in (words, each.to_device(words)):
            assert code in str(each.explain(kernel, array, array))
    assert "code: the kernel's WGSL" in str(
        backend.explain(gx.kernels.load("vector_add_u32"), words, words)
    )


def test_operations_without_elements(backend: gx.WgpuExecutor) -> None:
    """WebGPU refuses to bind the empty range of an array whose elements have several words."""
    field = fields.GOLDILOCKS
    one, none = backend.to_device(field([1])), backend.to_device(field.zeros((0, 8)))
    quotient, rest = field.poly_divmod(one, backend.to_device(field([1, 2, 3])))
    assert (quotient.tolist(), rest.tolist()) == ([], [1, 0])
    for made, shape in (
        (field.ntt(none), (0, 8)),
        (field.poly_mul(none, none), (0, 15)),
        (field.poly_eval(one, backend.to_device(field.zeros(0))), (0,)),
    ):
        assert made.shape == shape and made.tolist() == []


@pytest.mark.parametrize("dtype", ["u4", "u8"])
def test_sort(backend: gx.WgpuExecutor, dtype: str) -> None:
    check_sort(backend, dtype)


@pytest.mark.parametrize("curve", [FILLS_WORDS, SMALL_QUADRATIC], ids=str)
def test_msm(backend: gx.WgpuExecutor, curve: Curve) -> None:
    """Over a prime field and over an extension field."""
    check_msm(backend, curve, 8)


# --- slow ---


@pytest.mark.slow
def test_msm_over_an_extension_field(backend: gx.WgpuExecutor) -> None:
    """With loops that lavapipe would end if they were not unrolled."""
    check_msm(backend, gx.curves.BLS12_381_G2, 20)


@pytest.mark.slow
def test_msm_without_64_bit_integers(narrow_backend: gx.WgpuExecutor) -> None:
    check_msm(narrow_backend, FILLS_WORDS, 20)


@pytest.mark.slow
def test_a_commitment(backend: gx.WgpuExecutor, tmp_path: Path) -> None:
    """An MSM of BLS12-381 G1."""
    check_commitment(backend, tmp_path)


@pytest.mark.slow
def test_the_program_of_the_readme() -> None:
    check_readme('gx.GpuExecutor("webgpu")')
