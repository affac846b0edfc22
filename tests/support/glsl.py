"""Shaders for tests: GLSL compiled by glslc, which the test run requires."""

from __future__ import annotations

import functools
import subprocess


@functools.cache
def compile_glsl(
    body: str, vulkan: str = "1.1", stage: str = "compute", options: tuple[str, ...] = ()
) -> bytes:
    """SPIR-V of a shader's body; a missing glslc or a mistake in the body fails the test."""
    command = ["glslc", *options, f"-fshader-stage={stage}", f"--target-env=vulkan{vulkan}"]
    command += ["-", "-o", "-"]
    source = f"#version 450\n{body}".encode()
    return subprocess.run(command, input=source, stdout=subprocess.PIPE, check=True).stdout


@functools.cache
def assemble_spirv(text: str, version: str = "1.3") -> bytes:
    """SPIR-V of an assembly text; spirv-as is installed with glslc's libraries."""
    command = ["spirv-as", "--target-env", f"spv{version}", "-", "-o", "-"]
    return subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout


def shader(
    *buffers: str, push: str = "uint count;", size: str = "local_size_x_id = 0", more: str = ""
) -> bytes:
    """A kernel that does nothing, with one storage buffer for each qualifier in `buffers`.

    "readonly", "writeonly" and "" are qualifiers; `push` lists the members of the push constants
    ("" for none) and `more` is GLSL of the test's own, such as specialization constants.
    """
    lines = [f"layout({size}) in;", more]
    if push:
        lines.append(f"layout(push_constant, std430) uniform Push {{ {push} }};")
    lines += [
        f"layout(set = 0, binding = {at}) {qualifier} buffer B{at} {{ uint b{at}[]; }};"
        for at, qualifier in enumerate(buffers)
    ]
    return compile_glsl("\n".join([*lines, "void main() {}"]))
