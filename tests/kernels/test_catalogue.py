"""The kernels of the package: their names, their declarations, and that the SPIR-V is not stale."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gpu_executor import kernels
from gpu_executor.errors import KernelError
from gpu_executor.kernels import build
from gpu_executor.kernels.catalogue import (
    FIELD_OPERATIONS,
    field_kernel,
    mont_mul_chain_kernel,
    split_field_name,
)
from gpu_executor.kernels.curves import MAX_LIMBS
from gpu_executor.kernels.elements import CHECKABLE
from gpu_executor.kernels.field_hashes import MAX_CODES
from gpu_executor.kernels.modules import SpecId
from gpu_executor.primes import NAMED, Prime
from gpu_executor.primes.prime import MAX_BITS, WORD_BITS
from gpu_executor.spirv import read_interface
from gpu_executor.webgpu.spirv_pipelines import is_readable

NAMES = [
    "vector_add_u32",
    "vector_add_f32",
    "matmul_u32",
    "matmul_f32",
    "reduce_sum_u32",
    "reduce_sum_f32",
    "reduce_min_u32",
    "reduce_min_f32",
    "reduce_max_u32",
    "reduce_max_f32",
    "reduce_sum_u32_by_block",
    "reduce_sum_f32_by_block",
    "reduce_min_u32_by_block",
    "reduce_min_f32_by_block",
    "reduce_max_u32_by_block",
    "reduce_max_f32_by_block",
    *(f"{field}_{operation}" for field in NAMED for operation in ("add", "sub", "mont_mul")),
]
GOLDILOCKS = Prime("goldilocks", 2**64 - 2**32 + 1)
PRIMES = [*NAMED.values(), Prime("2^521-1", 2**521 - 1)]
MODULES = sorted(build.SPIRV.glob("*.spv"))


def test_names_lists_every_kernel() -> None:
    assert kernels.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_loads_the_same_kernel_each_time(name: str) -> None:
    kernel = kernels.load(name)
    assert kernel.name == name
    assert kernels.load(name) is kernel
    whole = name.startswith(("matmul", "reduce"))
    assert (kernel.outputs, kernel.split) == (1, "whole" if whole else "elements")
    assert kernel.inputs == (1 if name.startswith("reduce") else 2)
    assert kernel.wgsl is not None or is_readable(kernel)
    assert kernel.reference is not None
    assert (kernel.reference_at is not None) == whole
    assert kernel.status == (name.startswith(tuple(NAMED)))


@pytest.mark.parametrize("field", NAMED)
def test_an_old_name_of_a_montgomery_product_loads_with_a_warning(field: str) -> None:
    old, new = f"{field}_mul", f"{field}_mont_mul"
    assert old not in kernels.names()
    with pytest.warns(DeprecationWarning) as caught:
        kernel = kernels.load(old)
    (warning,) = caught
    assert str(warning.message) == (
        f"the kernel {old!r} computes a Montgomery product and is now named {new!r}; load it by "
        "that name"
    )
    assert warning.filename == __file__  # the caller's line, every time
    assert kernel is kernels.load(new)


def test_field_kernels_are_found_by_their_names() -> None:
    found = {name: split_field_name(name) for name in NAMES}
    assert found["bls12_381_fq_mont_mul"] == ("bls12_381_fq", "mont_mul")
    for name, parts in found.items():
        assert (parts is not None) == name.startswith(tuple(NAMED))
        assert parts is None or "_".join(parts) == name
    for other in ("bls12_381_fq", "_add", "p_add", "bls12_381_fq_mont_add", "goldilocks_mul"):
        assert split_field_name(other) is None


@pytest.mark.parametrize(("field", "columns"), [("bls12_381_fq", 6), ("bls12_381_fr", 4)])
def test_field_elements_are_64_bit_columns(field: str, columns: int) -> None:
    for operation in FIELD_OPERATIONS:
        types = kernels.load(f"{field}_{operation}").types
        assert types is not None
        assert {(type_.dtype, type_.shape) for type_ in types} == {(np.dtype("u8"), (columns,))}


@pytest.mark.parametrize("name", ["", "add", "bls12_381_fq", "bls12_381_fq_div", "p_add", "_add"])
def test_an_unknown_name_is_refused_with_the_known_names(name: str) -> None:
    words = f"there is no kernel {name!r}; the names are {', '.join(NAMES)}"
    with pytest.raises(KernelError, match=f"^{re.escape(words)}$"):
        kernels.load(name)


@pytest.mark.parametrize("operation", FIELD_OPERATIONS)
def test_one_spirv_serves_every_prime(operation: str) -> None:
    made = [field_kernel(prime, operation) for prime in PRIMES]
    assert len({kernel.digest for kernel in made}) == 1
    assert len({kernel.push for kernel in made}) == len(PRIMES)
    sizes = {prime.words for prime in PRIMES}
    assert len({kernel.constants for kernel in made}) >= len(sizes)
    assert [kernel.name for kernel in made] == [f"{p.name}_{operation}" for p in PRIMES]


@pytest.mark.parametrize("operation", FIELD_OPERATIONS)
def test_primes_of_one_size_set_the_same_constants_to_different_values(operation: str) -> None:
    first, second = (
        field_kernel(Prime(name, modulus), operation)
        for name, modulus in (("a", 2**64 - 2**32 + 1), ("b", 2**61 - 1))
    )
    assert len(first.push) == len(second.push) == 108
    assert first.push != second.push
    assert [spec_id for spec_id, _ in first.constants] == [i for i, _ in second.constants]


@pytest.mark.parametrize("operation", FIELD_OPERATIONS)
def test_field_kernels_of_the_same_prime_are_equal(operation: str) -> None:
    again = Prime("goldilocks", GOLDILOCKS.modulus)
    assert field_kernel(GOLDILOCKS, operation) == field_kernel(again, operation)


def test_the_largest_prime_fits_128_bytes_of_push_constants() -> None:
    largest = Prime("largest", 2**MAX_BITS - 825)  # the largest below 2^768
    for operation in FIELD_OPERATIONS:
        assert 4 + len(field_kernel(largest, operation).push) <= 128


def test_a_chain_of_products_has_no_reference() -> None:
    kernel = mont_mul_chain_kernel(GOLDILOCKS, 64)
    assert kernel.name == "goldilocks_mont_mul_chain_64"
    assert kernel.reference is None
    assert 64 in dict(kernel.constants).values()


def test_the_manifest_matches_the_sources_and_the_modules() -> None:
    """Fails when `make kernels` must be run."""
    expected = {
        source.stem: {
            "source": build.source_digest(source),
            "spirv": hashlib.sha256((build.SPIRV / f"{source.stem}.spv").read_bytes()).hexdigest(),
        }
        for source in build.sources()
    }
    assert json.loads(build.MANIFEST.read_text()) == expected


def test_glsl_has_the_ids_of_the_list() -> None:
    """Fails when `make kernels` must be run."""
    assert build.SPEC_IDS.read_text() == build.render_spec_ids()
    assert build.ARRAY_CODES.read_text() == build.render_array_codes()


def test_glsl_names_the_id_of_every_constant() -> None:
    text = "".join(path.read_text() for path in build.GLSL.rglob("*") if path.is_file())
    declared = re.findall(r"constant_id = (.+?)\) const \w+ (\w+)", text)
    numbered = {"first + n", "ID_MODULUS + n"}  # SPEC_WORD and SPEC_LIMB, with a name for each n
    assert {own_id for own_id, name in declared if own_id != f"ID_{name}"} == numbered
    words = re.findall(r"^SPEC_WORDS\((\w+), (\w+)\)", text, re.MULTILINE)
    named = ("ONE", "R_SQUARED", "DIAGONAL_CODES")
    assert sorted(words) == sorted((f"ID_{name}", name) for name in named)
    assert set(re.findall(r"local_size_x_id = (\w+)", text)) == {"ID_WORK_GROUP_SIZE"}


NUMBERED_CONSTANTS = {
    SpecId.ONE: MAX_BITS // WORD_BITS,
    SpecId.R_SQUARED: MAX_BITS // WORD_BITS,
    SpecId.MODULUS: MAX_LIMBS,
    SpecId.DIAGONAL_CODES: MAX_CODES,
}
"""The first of several constants, and how many there are."""


def test_no_two_constants_share_an_id() -> None:
    assert len(SpecId.__members__) == len(list(SpecId))  # an alias is not listed
    for first, count in NUMBERED_CONSTANTS.items():
        own = range(first, first + count)
        assert [each for each in SpecId if each in own] == [first]


def test_modules_have_only_constants_of_the_list() -> None:
    numbered = NUMBERED_CONSTANTS.items()
    known = {*SpecId, *(first + i for first, count in numbered for i in range(count))}
    for module in MODULES:
        constants = read_interface(module.read_bytes()).constants
        assert {each.spec_id for each in constants} <= known, module.stem


def test_checked_and_unchecked_modules_have_the_same_sources() -> None:
    checked = {source.stem: source for source in build.sources() if source.checked}
    assert set(checked) == {f"wide_checked_{operation}" for operation in CHECKABLE}
    unchecked = {source.stem: source for source in build.sources() if not source.checked}
    for operation in CHECKABLE:
        source, other = checked[f"wide_checked_{operation}"], unchecked[f"wide_{operation}"]
        assert (source.path, source.family) == (other.path, other.family)
        assert source.options == (*other.options, "-DCHECKED")


def test_every_module_has_a_source_and_every_source_a_module() -> None:
    assert build.sources()
    assert [path.stem for path in MODULES] == [path.stem for path in build.sources()]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_modules_are_valid_for_vulkan_1_2(module: Path) -> None:
    done = subprocess.run(
        ["spirv-val", "--target-env", "vulkan1.2", str(module)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A kernel that includes a file that includes another."""
    (tmp_path / "kernel.comp").write_text('#version 450\n#include "outer.glsl"\nvoid main() {}\n')
    (tmp_path / "outer.glsl").write_text('#include "inner.glsl"\n')
    (tmp_path / "inner.glsl").write_text("const uint a = 1;\n")
    return tmp_path


@pytest.mark.parametrize("changed", ["kernel.comp", "outer.glsl", "inner.glsl"])
def test_a_change_in_any_included_file_makes_a_kernel_stale(sources: Path, changed: str) -> None:
    before = build.source_digest(sources / "kernel.comp")
    assert build.source_digest(sources / "kernel.comp") == before
    with (sources / changed).open("a") as file:
        file.write("\n")
    assert build.source_digest(sources / "kernel.comp") != before


def test_a_change_of_the_compiler_options_makes_a_kernel_stale(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = build.source_digest(sources / "kernel.comp")
    monkeypatch.setattr(build, "COMMAND", ("glslc", "-O0"))
    assert build.source_digest(sources / "kernel.comp") != before
