"""Validation of users' modules by spirv-val, which the test run requires."""

from __future__ import annotations

import hashlib
import random
import stat
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import SettingsError, SpirvError
from gpu_executor.kernels.modules import get_digests, load_spirv
from gpu_executor.settings import SpirvVal
from gpu_executor.spirv import read_interface, validation
from tests.conftest import OpenGpu
from tests.support.glsl import assemble_spirv, compile_glsl
from tests.support.spirv_mutants import SHARED, Runner, list_seeds, mutate

# The reader accepts it: an addition of a float and an integer is no damage of a kind that it finds.
INVALID = """
OpCapability Shader
OpMemoryModel Logical GLSL450
OpEntryPoint GLCompute %main "main"
OpExecutionMode %main LocalSize 64 1 1
OpDecorate %array ArrayStride 4
OpDecorate %block Block
OpMemberDecorate %block 0 Offset 0
OpDecorate %x DescriptorSet 0
OpDecorate %x Binding 0
OpDecorate %y DescriptorSet 0
OpDecorate %y Binding 1
%void = OpTypeVoid
%float = OpTypeFloat 32
%uint = OpTypeInt 32 0
%zero = OpConstant %uint 0
%one = OpConstant %float 1
%array = OpTypeRuntimeArray %float
%block = OpTypeStruct %array
%block_pointer = OpTypePointer StorageBuffer %block
%pointer = OpTypePointer StorageBuffer %float
%procedure = OpTypeFunction %void
%x = OpVariable %block_pointer StorageBuffer
%y = OpVariable %block_pointer StorageBuffer
%main = OpFunction %void None %procedure
%start = OpLabel
%from = OpAccessChain %pointer %x %zero %zero
%to = OpAccessChain %pointer %y %zero %zero
%value = OpLoad %float %from
%sum = OpFAdd %float %value %zero
OpStore %to %sum
OpReturn
OpFunctionEnd
"""


def validate(code: bytes, mode: SpirvVal = "auto", features: tuple[str, ...] = ()) -> None:
    digest = hashlib.sha256(code).hexdigest()
    validation.validate_module(code, digest, vulkan=(1, 2), features=features, mode=mode)


@pytest.fixture(autouse=True)
def nothing_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_valid", set())


def make_tool(folder: Path, script: str) -> None:
    """Put a script with the name of the tool into a folder."""
    tool = folder / validation.TOOL
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)


def test_an_invalid_module_is_refused_with_the_words_of_spirv_val() -> None:
    code = assemble_spirv(INVALID)
    read_interface(code)
    with pytest.raises(SpirvError, match=r"(?s)spirv-val rejects .*FAdd.*GPU_SPIRV_VAL=off"):
        validate(code)
    with pytest.raises(SpirvError):  # a refusal is not remembered as an acceptance
        validate(code)
    validate(code, "off")


def test_a_valid_module_is_validated_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    make_tool(tmp_path, f"cat > /dev/null; echo run >> {runs}")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    code = compile_glsl(SHARED, "1.2")
    for _ in range(3):
        validate(code)
    assert runs.read_text() == "run\n"
    validate(code, features=("scalarBlockLayout",))  # by other rules
    assert runs.read_text() == "run\n" * 2


def test_a_scalar_layout_is_valid_where_the_device_has_it() -> None:
    code = compile_glsl(
        "#extension GL_EXT_scalar_block_layout : require\n"
        "layout(local_size_x = 1) in;\n"
        "layout(scalar, binding = 0) buffer A { float a; vec3 b[]; };\n"
        "void main() { b[0] = vec3(a); }",
        "1.2",
    )
    validate(code, features=("scalarBlockLayout",))
    with pytest.raises(SpirvError, match="spirv-val rejects"):
        validate(code)


def test_where_spirv_val_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code = assemble_spirv(INVALID)
    validate(code, "auto")
    validate(code, "off")
    with pytest.raises(SettingsError, match="'require', but spirv-val is not installed: install"):
        validate(code, "require")


def test_a_validator_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_tool(tmp_path, "exec sleep 60")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(validation, "SECONDS", 0.1)
    with pytest.raises(SpirvError, match="did not finish within 0 s"):
        validate(compile_glsl(SHARED, "1.2"))


def test_a_validator_that_fails_without_a_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_tool(tmp_path, "exit 3")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(SpirvError, match="rejects the module: exit code 3"):
        validate(compile_glsl(SHARED, "1.2"))


def test_the_driver_is_not_given_a_module_that_spirv_val_rejects(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    kernel = gx.Kernel.from_spirv(assemble_spirv(INVALID), buffers="in, out", name="mixed")
    with pytest.raises(SpirvError, match="spirv-val rejects"):
        gpu.run(kernel, np.zeros(4, np.float32))


def test_the_modules_of_the_package_are_not_validated_again(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert hashlib.sha256(load_spirv("vector_add_u32")).hexdigest() in get_digests()
    make_tool(tmp_path, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    gpu = fresh_gpu(spirv_val="require")
    a = np.arange(5, dtype=np.uint32)
    np.testing.assert_array_equal(gpu.run(gx.kernels.load("vector_add_u32"), a, a), 2 * a)
    own = gx.Kernel.from_spirv(compile_glsl(SHARED, "1.2"), buffers="in f4, out f4")
    with pytest.raises(SpirvError, match="spirv-val rejects"):
        gpu.run(own, np.zeros(4, np.float32))


def test_mutants_of_modules_do_not_crash_the_driver() -> None:
    rng, seeds, counts = random.Random(11), list_seeds(), Counter[str]()
    runner = Runner()
    for _ in range(100):
        code = mutate(rng.choice(seeds), rng)
        outcome = runner.run(code)
        assert outcome not in ("crashed", "failed"), f"{runner.message}: {code.hex()}"
        counts[outcome] += 1
    runner.close()
    assert counts["validated"] >= 20  # the reader alone does not find them
    assert counts["ran"] >= 10
