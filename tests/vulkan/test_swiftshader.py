"""SwiftShader: a driver of Vulkan without 64-bit types, with one queue and subgroups of four.

It compiles slowly and keeps no pipelines, so sizes are small, what needs many pipelines is slow,
and matrix products are left out: `matmul_u32` is not compiled after a minute, with 3 GB in use.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor import fields, kzg
from gpu_executor.curves import Curve
from gpu_executor.kzg import pairing
from tests.conftest import elements
from tests.support.curves_under_test import (
    FILLS_WORDS,
    SMALL,
    SMALL_QUADRATIC,
    get_curve,
)
from tests.support.kzg_setups import (
    POINTS_ALONE,
    draw_blob,
    draw_small_weights,
    evaluate_at_secret,
    multiply_generator,
    write_known_setup,
)
from tests.support.pages import (
    REPOSITORY,
    find_expected_output,
    make_print,
    matches,
    parse_program,
    run_blocks,
)
from tests.support.swiftshader import open_swiftshader, use_swiftshader

Array = npt.NDArray[Any]
NAMED_FIELDS = ("KOALABEAR", "BLS12_381_FQ", "SECP256K1_FQ")
"""Another field of one word, and fields of 381 and 256 bits."""
CURVES = ("PALLAS", "BLS12_381_G1", "BN254_G2")
"""One curve of each degree and number of limbs that SwiftShader compiles within a minute."""


@pytest.fixture(scope="module")
def backend(gpu: gx.PersistentVulkanBackend) -> Iterator[gx.PersistentVulkanBackend]:
    """SwiftShader, while the other driver is open too."""
    with open_swiftshader() as opened:
        assert "shaderInt64" not in opened.device.features
        yield opened


def check_field(backend: gx.PersistentVulkanBackend, field: gx.Field) -> None:
    """Compare operations with integers."""
    p = field.modulus
    a, b = elements(field.prime, 60, 1), elements(field.prime, 60, 2)
    x, y = backend.to_device(field.encode(a)), backend.to_device(field.encode(b))
    both = list(zip(a, b, strict=True))
    assert (x + y).tolist() == [(i + j) % p for i, j in both]
    assert (x - y).tolist() == [(i - j) % p for i, j in both]
    assert (x * y).tolist() == [i * j % p for i, j in both]


def check_transform(backend: gx.PersistentVulkanBackend, field: gx.Field, size: int) -> None:
    """Compare a transform with one on the host, and transform it back."""
    values = elements(field.prime, size, 3)
    transformed = field.ntt(backend.to_device(field.encode(values)))
    assert transformed.tolist() == field.ntt(field.encode(values)).tolist()
    assert field.intt(transformed).tolist() == values


@pytest.mark.parametrize("name", ["BABYBEAR", "MERSENNE31", "GOLDILOCKS", "BLS12_381_FR"])
def test_a_field_of_every_family(backend: gx.PersistentVulkanBackend, name: str) -> None:
    lowered = backend.stats().pipelines.lowered
    check_field(backend, getattr(fields, name))
    wide = name in ("GOLDILOCKS", "BLS12_381_FR")
    assert (backend.stats().pipelines.lowered > lowered) == wide


def test_a_transform(backend: gx.PersistentVulkanBackend) -> None:
    check_transform(backend, fields.GOLDILOCKS, 16)


def draw_keys(dtype: str, count: int) -> Array:
    drawn = np.random.default_rng(5).bytes(count * np.dtype(dtype).itemsize)
    return np.frombuffer(drawn, dtype)


def test_sort(backend: gx.PersistentVulkanBackend) -> None:
    keys = draw_keys("u4", 1000)
    assert gx.ops.sort(backend.to_device(keys)).numpy().tolist() == sorted(keys.tolist())


def check_msm(backend: gx.PersistentVulkanBackend, curve: Curve, count: int) -> None:
    """The sum of k * (l G) is (the sum of k l) G."""
    draw = random.Random(7)
    logarithms = [0, 1, curve.order - 1, *(draw.randrange(curve.order) for _ in range(count - 3))]
    scalars = [5, curve.order - 1, 0, *(draw.randrange(curve.order) for _ in range(count - 3))]
    points = backend.to_device(curve.generator * logarithms)
    total = sum(k * one for k, one in zip(scalars, logarithms, strict=True))
    assert curve.msm(points, scalars).to_host() == curve.generator * total


@pytest.mark.parametrize("curve", [SMALL[3], FILLS_WORDS, SMALL_QUADRATIC], ids=str)
def test_msm(backend: gx.PersistentVulkanBackend, curve: Curve) -> None:
    """Of one limb, of several, and over an extension field."""
    check_msm(backend, curve, 8)


# --- slow: minutes of compilation ---


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED_FIELDS)
def test_other_named_fields(backend: gx.PersistentVulkanBackend, name: str) -> None:
    check_field(backend, getattr(fields, name))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BABYBEAR", "GOLDILOCKS", "BLS12_381_FR"])
def test_large_transforms(backend: gx.PersistentVulkanBackend, name: str) -> None:
    check_transform(backend, getattr(fields, name), 4096)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["i4", "u8", "f4"])
def test_sort_of_other_dtypes(backend: gx.PersistentVulkanBackend, dtype: str) -> None:
    keys = draw_keys(dtype, 1000)
    keys = np.nan_to_num(keys) if keys.dtype.kind == "f" else keys
    there = backend.to_device(keys)
    np.testing.assert_array_equal(gx.ops.sort(there).numpy(), np.sort(keys))
    np.testing.assert_array_equal(gx.ops.argsort(there).numpy(), np.argsort(keys, kind="stable"))


@pytest.mark.slow
@pytest.mark.parametrize("name", CURVES)
def test_msm_of_named_curves(backend: gx.PersistentVulkanBackend, name: str) -> None:
    check_msm(backend, get_curve(name), 20)


@pytest.mark.slow
def test_a_commitment(backend: gx.PersistentVulkanBackend, tmp_path: Path) -> None:
    path = tmp_path / "known_setup.txt"
    path.write_text(write_known_setup())
    blob = draw_blob(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing, "draw_weights", draw_small_weights)
        setup = kzg.load_trusted_setup(str(path), 0, device=backend, memory=POINTS_ALONE)
    with setup:
        found = kzg.blob_to_kzg_commitment(blob, setup)
    assert found == multiply_generator(evaluate_at_secret(blob))


@pytest.mark.slow
def test_the_program_of_the_readme() -> None:
    text = (REPOSITORY / "README.md").read_text()
    blocks = parse_program(text)
    expected, printed = find_expected_output(text, blocks), dict[int, str]()
    with use_swiftshader():
        assert "SwiftShader" in gx.devices()[0].name
        run_blocks(REPOSITORY / "README.md", blocks, {"print": make_print(printed)})
    assert printed.keys() == expected.keys()
    assert all(matches(value, printed[line]) for line, value in expected.items())
