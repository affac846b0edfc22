"""Control flow that compilers make of GLSL, after the loops are unrolled."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import SpirvError
from gpu_executor.spirv.control_flow import breaks_loop_in_switch, follow_constants
from gpu_executor.spirv.dead_code import remove_dead_code
from gpu_executor.spirv.editor import ModuleEditor, Op
from gpu_executor.spirv.naga_forms import rewrite_for_naga
from tests.support.glsl import compile_glsl, validate_spirv

HEAD = """
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 32) in;
layout(push_constant) uniform Push { uint count; };
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) buffer B { uint b[]; };
"""

LOOPS_OF_ONE_BLOCK = """
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= count) return;
    uint x = a[i];
    [[unroll]] for (uint n = 0; n < 3; n++) {
        uint rounds = 0;
        [[dont_unroll]] do { x = x * 3 + n; rounds++; } while ((x & 7) != n && rounds < 9);
    }
    b[i] = x;
}
"""


def compute(x: int) -> int:
    """What the kernel computes, with integers of Python."""
    for n in range(3):
        rounds = 0
        while rounds == 0 or ((x & 7) != n and rounds < 9):
            x, rounds = (x * 3 + n) & 0xFFFFFFFF, rounds + 1
    return x


def test_a_loop_of_one_block_inside_of_an_unrolled_one() -> None:
    code = compile_glsl(HEAD + LOOPS_OF_ONE_BLOCK, options=("-O",))
    unrolled = remove_dead_code(follow_constants(code, unroll=True))
    loops = [each for each, _ in ModuleEditor(unrolled).functions if each == Op.LOOP_MERGE]
    assert len(loops) == 3
    assert not validate_spirv(unrolled)
    kernel = gx.Kernel.from_spirv(unrolled, count=True, buffers=["in u4", "out u4"], name="rounds")
    words = np.arange(1000, dtype=np.uint32) * 0x9E3779B1
    with gx.PersistentVulkanBackend() as gpu:
        assert gpu.run(kernel, words).tolist() == [compute(x) for x in words.tolist()]


RETURNS_IN_A_SWITCH = """
void main() {
    uint i = gl_GlobalInvocationID.x;
    uint x = a[i];
    [[dont_unroll]] for (uint n = 0; n < count; n++) {
        switch (x & 3) { case 0: LEAVE; x += 9; break; default: x = x * 3 + n; }
        if (x == 77) break;
    }
    b[i] = x;
}
"""


@pytest.mark.parametrize(("leave", "ends_loop"), [("return", True), ("continue", False)])
def test_naga_gets_no_branch_in_a_switch_that_ends_a_loop(leave: str, ends_loop: bool) -> None:
    body = RETURNS_IN_A_SWITCH.replace("LEAVE", f"if (x > 50) {leave}")
    code = compile_glsl(HEAD + body, options=("-O",))
    assert breaks_loop_in_switch(code) == ends_loop
    if ends_loop:
        with pytest.raises(SpirvError, match="inside of a switch ends a loop"):
            rewrite_for_naga(code)
    else:
        rewrite_for_naga(code)
