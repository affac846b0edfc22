"""The lowest bit of a ballot by arithmetic: the same numbers as exact integers give."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernels.modules import load_spirv
from gpu_executor.spirv import lower_ballot_find_lsb
from gpu_executor.spirv.validation import validate_module
from tests.support.glsl import compile_glsl

SHADER = """
#extension GL_KHR_shader_subgroup_ballot : require
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0) readonly buffer A { uvec2 a[]; };
layout(set = 0, binding = 1) writeonly buffer B { uint b[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < count) b[i] = subgroupBallotFindLSB(uvec4(a[i], 0, 0));
}
"""
FIND_LSB = 343


def list_opcodes(code: bytes) -> list[int]:
    words, offset, found = np.frombuffer(code, "<u4"), 5, []
    while offset < len(words):
        found.append(int(words[offset]) & 0xFFFF)
        offset += int(words[offset]) >> 16
    return found


def test_the_lowest_bit_is_that_of_integers(gpu: gx.PersistentVulkanBackend) -> None:
    rng = np.random.default_rng(5)
    numbers = [1 << bit for bit in range(64)]
    numbers += [(1 << 64) - (1 << bit) for bit in range(64)]
    drawn = rng.integers(1, 1 << 20, 300).tolist()
    shifts = rng.integers(0, 44, 300).tolist()
    numbers += [each << bit for each, bit in zip(drawn, shifts, strict=True)]
    lowered = lower_ballot_find_lsb(compile_glsl(SHADER))
    kernel = gx.Kernel.from_spirv(
        lowered, buffers=["in (2,)u4", "out u4"], count=True, split="elements"
    )
    pairs = np.array(numbers, np.uint64).view(np.uint32).reshape(-1, 2)
    expected = [(each & -each).bit_length() - 1 for each in numbers]
    assert gpu.run(kernel, pairs).tolist() == expected


@pytest.mark.parametrize("module", ["sort_scatter_keys", "sort_scatter_pairs"])
def test_modules_stay_valid_without_the_instruction(module: str) -> None:
    code = load_spirv(module)
    assert FIND_LSB in list_opcodes(code)
    lowered = lower_ballot_find_lsb(code)
    assert FIND_LSB not in list_opcodes(lowered)
    validate_module(
        lowered, f"lowered {module}", vulkan=(1, 3), features=frozenset(), mode="require"
    )


def test_a_module_without_the_instruction_is_returned_as_it_is() -> None:
    code = load_spirv("scan_sums")
    assert lower_ballot_find_lsb(code) is code
