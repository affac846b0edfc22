"""Shaders for tests: GLSL compiled by glslc, which the test run requires.

A start of glslc takes a tenth of a second, so what it compiled is kept for the next test run, in a
folder that `make clean` deletes. The key is a hash of the compiler, its options and the source.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gpu_executor.kernel import glsl

SHADERS = Path(__file__).parents[2] / "build" / "test-shaders"


def keep_compiled_shaders() -> None:
    """Let `Kernel.from_glsl` of this process and its children keep SPIR-V for the next test run,
    while the rest of their cache folder begins empty."""
    cache = Path(os.environ["GPU_CACHE_DIR"])
    cache.mkdir(parents=True, exist_ok=True)
    SHADERS.mkdir(parents=True, exist_ok=True)
    if not (cache / "glsl").exists():
        (cache / "glsl").symlink_to(SHADERS)


def run_glslc(command: Sequence[str], source: bytes = b"", *, included: bytes = b"") -> bytes:
    """What the command writes for a source, which `included` completes for the key."""
    key = glsl._hash([*glsl._identify(glsl.find_compiler()), *command], source + included)
    code = glsl._read_entry(SHADERS / f"{key}.bin")
    if code is None:
        code = subprocess.run(command, input=source, stdout=subprocess.PIPE, check=True).stdout
        SHADERS.mkdir(parents=True, exist_ok=True)
        glsl._write_entry(SHADERS / f"{key}.bin", code)
    return code


@functools.cache
def compile_glsl(
    body: str, vulkan: str = "1.1", stage: str = "compute", options: tuple[str, ...] = ()
) -> bytes:
    """SPIR-V of a shader's body; a missing glslc or a mistake in the body fails the test."""
    command = ["glslc", *options, f"-fshader-stage={stage}", f"--target-env=vulkan{vulkan}"]
    command += ["-", "-o", "-"]
    source = f"#version 450\n{body}".encode()
    return run_glslc(command, source)


@functools.cache
def assemble_spirv(text: str, version: str = "1.3") -> bytes:
    """SPIR-V of an assembly text; spirv-as is installed with glslc's libraries."""
    command = ["spirv-as", "--target-env", f"spv{version}", "-", "-o", "-"]
    return subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True).stdout


def validate_spirv(code: bytes) -> str:
    """What spirv-val says against a module."""
    command = ["spirv-val", "--target-env", "vulkan1.2", "-"]
    done = subprocess.run(
        command, input=code, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.stdout.decode()


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
