"""Mutants of SPIR-V modules: does one that the reader and spirv-val accept crash the driver?

    .venv/bin/python -m tests.support.spirv_mutants --accepted 2000 --folder build/mutants

runs mutants until so many were accepted, each in a process that a crash may end. The mutants that
crashed are kept in the folder, with a backtrace where gdb is installed.
"""

from __future__ import annotations

import argparse
import os
import random
import selectors
import shutil
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gpu_executor as gx
from gpu_executor.kernels.modules import load_spirv
from gpu_executor.spirv import read_interface
from gpu_executor.spirv.instructions import _TABLES, HEADER_WORDS
from tests.support.glsl import compile_glsl

MODULES = ("vector_add_u32", "scan_sums", "histogram_u32", "monty31_mul", "find_zero")
"""Modules of the package that are mutated."""
SHARED = """
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0) buffer X { float x[]; };
layout(set = 0, binding = 1) buffer Y { float y[]; };
shared float s[64];
float scale(float v) { float t = v; for (int i = 0; i < 3; i++) t += v * float(i); return t; }
void main() {
    uint i = gl_GlobalInvocationID.x;
    s[gl_LocalInvocationID.x] = i < count ? x[i] : 0.0;
    barrier();
    if (i < count) y[i] = scale(s[gl_LocalInvocationID.x]) + min(x[i], 2.0);
}
"""
BUILT_INS = """
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_arithmetic : require
layout(local_size_x_id = 0, local_size_y = 2, local_size_z_id = 1) in;
layout(set = 0, binding = 0) buffer X { uvec4 x[]; };
void main() {
    uvec3 g = gl_GlobalInvocationID + gl_WorkGroupID * gl_WorkGroupSize + gl_LocalInvocationID;
    uint n = gl_LocalInvocationIndex + gl_NumWorkGroups.y + gl_NumSubgroups + gl_SubgroupID;
    n += gl_SubgroupSize + gl_SubgroupInvocationID + subgroupAdd(n);
    uvec4 masks = gl_SubgroupEqMask ^ gl_SubgroupLtMask ^ subgroupBallot(n > 3);
    if (subgroupAny(g.x > 5)) x[g.x & 63] = masks + uvec4(g, n);
}
"""
STRUCTS = """
layout(local_size_x = 8) in;
layout(constant_id = 3) const int LENGTH = 4;
struct Item { vec3 a; float b; mat2 m; uint many[3]; };
layout(set = 0, binding = 0) buffer X { Item items[]; };
layout(set = 0, binding = 1) readonly buffer Y { uint y[]; };
layout(set = 0, binding = 2) uniform Params { ivec2 shift; float factor; };
shared uint counts[LENGTH];
void main() {
    uint i = gl_GlobalInvocationID.x, local[4];
    if (gl_LocalInvocationIndex < LENGTH) counts[gl_LocalInvocationIndex] = 0;
    barrier();
    for (int k = 0; k < 4; k++) local[k] = y[(i + k) & 7] >> shift.x;
    switch (local[0] & 3) {
        case 0: atomicAdd(counts[1], 2); break;
        case 1: atomicMax(counts[2], local[1]); break;
        default: atomicExchange(counts[0], i);
    }
    barrier();
    Item item = items[i & 7];
    item.a = cross(item.a, vec3(factor)) + normalize(vec3(local[1], local[2], 1.0));
    item.m = item.m * mat2(1.0, 2.0, 3.0, 4.0);
    item.many[local[3] % 3] += counts[i & 3] + bitCount(i) + findMSB(i);
    item.b = item.b > 1.0 ? sqrt(item.b) : fract(item.b);
    items[i & 7] = item;
}
"""
ENVIRONMENT = {"GPU_SPIRV_VAL": "require", "GPU_VALIDATION": "0", "GPU_CACHE": "0"}
ACCEPTED = ("ran", "hung", "crashed")
"""What becomes of the mutants that the reader, spirv-val and the other checks accept."""
_DECORATE, _MEMBER_DECORATE, _BUILT_IN = 71, 72, 11
# Opcodes whose instructions have the same layout: one may stand for another.
_ALIKE = (
    (*range(109, 117), 118, 119, 124, 126, 127, 168, 200, 204, 205, 83, 61, 84),
    (*range(128, 153), *range(161, 168), *range(170, 192), *range(194, 200), 65, 67, 77),
    (333, 334, 335), (337, 338), (*range(349, 365),), (*range(234, 243), 229), (232, 233, 227),
    (224, 225), (41, 42, 46, 48, 49, 1), (43, 50), (44, 51, 80), (21, 22, 23, 24), (28, 29),
    (249, 253), (252, 253, 255), (71, 72), (59, 57),
)  # fmt: skip


def list_seeds() -> list[bytes]:
    """The modules to mutate: some of the package's, and kernels compiled from GLSL."""
    sources = [(SHARED, ("-O",)), (SHARED, ()), (BUILT_INS, ()), (STRUCTS, ()), (STRUCTS, ("-O",))]
    compiled = [compile_glsl(source, "1.2", options=options) for source, options in sources]
    return [*compiled, *map(load_spirv, MODULES)]


def mutate(code: bytes, rng: random.Random) -> bytes:
    """Change one to three instructions or words of a module."""
    words = list(struct.unpack(f"<{len(code) // 4}I", code))
    header, instructions = words[:HEADER_WORDS], split_instructions(words)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _mutate_once(header, instructions, rng)
    mutant = [*header, *(word for each in instructions for word in each)]
    return struct.pack(f"<{len(mutant)}I", *mutant)


def split_instructions(words: Sequence[int]) -> list[list[int]]:
    """Split the words of a module into instructions."""
    instructions, at = [], HEADER_WORDS
    while at < len(words):
        instructions.append(list(words[at : at + (words[at] >> 16)]))
        at += words[at] >> 16
    return instructions


def _mutate_once(header: list[int], instructions: list[list[int]], rng: random.Random) -> None:
    at = rng.randrange(len(instructions))
    chosen = instructions[at]
    opcode = chosen[0] & 0xFFFF
    ids = [k for k in range(1, len(chosen)) if _TABLES.ids[opcode] >> min(k, 31) & 1]
    result = int(_TABLES.result[opcode])
    used = [k for k in ids if k != result]
    literals = [k for k in range(1, len(chosen)) if k not in ids]
    kind = rng.randrange(12)
    if kind < 4 and used:
        near = [each for each in instructions if each[0] & 0xFFFF == opcode]
        other = rng.choice(near if rng.random() < 0.5 else instructions)
        ids_there = [k for k in range(1, len(other)) if _TABLES.ids[other[0] & 0xFFFF] >> k & 1]
        chosen[rng.choice(used)] = (
            other[rng.choice(ids_there)] if ids_there else rng.randrange(1, header[3])
        )
    elif kind < 6 and literals:
        place = rng.choice(literals)
        chosen[place] = rng.choice(
            (rng.randrange(8), rng.randrange(48), chosen[place] ^ 1 << rng.randrange(32),
             rng.getrandbits(32), chosen[place] + 1 & 0xFFFFFFFF)
        )  # fmt: skip
    elif kind == 6:
        for group in _ALIKE:
            if opcode in group:
                chosen[0] = chosen[0] & 0xFFFF0000 | rng.choice(group)
    elif kind == 7:
        decorations = [e for e in instructions if e[0] & 0xFFFF in (_DECORATE, _MEMBER_DECORATE)]
        target = rng.choice(decorations or instructions)
        built_ins = [each for each in decorations if _BUILT_IN in each[2:4]]
        if built_ins and rng.random() < 0.5:
            target = rng.choice(built_ins)
            target[-1] = rng.choice((*range(24, 44), 4416, 4417, 4418, 4419, 4420, 4438, 5374))
        else:
            target[rng.randrange(1, len(target))] = rng.randrange(48)
    elif kind == 8:
        del instructions[at]
    elif kind == 9:
        copy = list(chosen)
        if 0 < result < len(copy):
            copy[result], header[3] = header[3], header[3] + 1
        instructions.insert(rng.choice((at + 1, rng.randrange(len(instructions)))), copy)
    elif kind == 10:
        other_at = min(at + rng.choice((1, 1, 2, 5)), len(instructions) - 1)
        instructions[at], instructions[other_at] = instructions[other_at], instructions[at]
    else:
        chosen[rng.randrange(len(chosen))] ^= 1 << rng.randrange(32)
    if not instructions:
        raise AssertionError("nothing is left")


class Runner:
    """Runs modules in a process of its own, and starts another process after a crash."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self.message = ""
        """The error of a module that was refused; the end of a process that crashed."""

    def run(self, code: bytes) -> str:
        """Return what became of a module: "read", "validated" or "refused" (refused by the reader,
        by spirv-val, by another check), "ran", "hung" or "crashed"."""
        process = self._start() if self._process is None else self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(struct.pack("<I", len(code)) + code)
            process.stdin.flush()
        except BrokenPipeError:
            return self._bury("crashed")
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(self._seconds):
                return self._bury("hung")
        answer = process.stdout.readline().decode()
        if not answer:
            return self._bury("crashed")
        outcome, _, self.message = answer.rstrip("\n").partition(" ")
        return outcome

    def close(self) -> None:
        if self._process is not None:
            self._bury("")

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.spirv_mutants", "--work"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=os.environ | ENVIRONMENT,
        )  # fmt: skip
        return self._process

    def _bury(self, outcome: str) -> str:
        assert self._process is not None
        if outcome != "crashed":
            self._process.kill()
        self.message = f"exit status {self._process.wait()}"
        self._process.communicate()
        self._process = None
        return outcome


def work() -> None:
    """Run the modules of the standard input: each is its number of bytes, then the bytes."""
    with gx.PersistentVulkanBackend() as gpu:
        while head := sys.stdin.buffer.read(4):
            code = sys.stdin.buffer.read(struct.unpack("<I", head)[0])
            try:
                run_module(gpu, code)
                answer = "ran"
            except gx.errors.SpirvError as error:
                kind = "validated" if "spirv-val rejects" in str(error) else "read"
                answer = f"{kind} {error}"
            except gx.GpuError as error:
                answer = f"refused {error}"
            except Exception as error:
                answer = f"failed {type(error).__name__}: {error}"
            print(answer.replace("\n", " "), flush=True)


def run_module(gpu: gx.PersistentVulkanBackend, code: bytes) -> None:
    """Run a module in two work-groups on small arrays and parameters of ones."""
    interface = read_interface(code)
    options: dict[str, Any] = {
        "access": ["in" if each in interface.read_only else "inout" for each in interface.bindings],
        "constants": {each: 2 for each in interface.local_size.spec_ids if each is not None},
        "grid": (2, 1, 1),
    }
    try:
        kernel = gx.Kernel.from_spirv(code, **options)
    except gx.errors.KernelError:  # a layout that no dtype has
        kernel = gx.Kernel.from_spirv(code, dtypes=["u4"] * len(interface.bindings), **options)
    arrays = [
        np.ones((each.length or 100, *each.type.shape), each.type.dtype)
        for each in kernel.arguments
    ]
    members = [each for each in interface.push_members if each.offset or not kernel.count]
    members += interface.uniform.members if interface.uniform else ()
    gpu.run(kernel, *arrays, params=tuple(np.ones(each.shape, each.dtype) for each in members))


def fuzz(accepted: int, folder: Path, seed: int, seconds: float) -> Counter[str]:
    """Run mutants until so many were accepted or the time is over; return what became of them."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, seeds, counts = random.Random(seed), list_seeds(), Counter[str]()
    runner, start, number = Runner(), time.monotonic(), 0
    said = start
    while sum(counts[kind] for kind in ACCEPTED) < accepted:
        if time.monotonic() - start > seconds:
            break
        code, number = mutate(rng.choice(seeds), rng), number + 1
        outcome = runner.run(code)
        counts[outcome] += 1
        if outcome in ("crashed", "hung", "failed"):
            path = folder / f"{outcome}-{seed}-{number}.spv"
            path.write_bytes(code)
            print(path, runner.message, flush=True)
            if outcome == "crashed":
                path.with_suffix(".txt").write_text(trace(path))
        if time.monotonic() - said > 30:
            said = time.monotonic()
            print(dict(counts), flush=True)
    runner.close()
    print(dict(counts), flush=True)
    return counts


def trace(path: Path) -> str:
    """Run a module in a process of its own under gdb; return the backtrace of its crash."""
    code = path.read_bytes()
    command = [sys.executable, "-m", "tests.support.spirv_mutants", "--work"]
    if shutil.which("gdb"):
        gdb = ["gdb", "-q", "-batch", "-ex", "set pagination off", "-ex", "run", "-ex", "bt 25"]
        command = [*gdb, "--args", *command]
    done = subprocess.run(
        command,
        input=struct.pack("<I", len(code)) + code,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=120,
        env=os.environ | ENVIRONMENT,
    )
    return done.stdout.decode(errors="replace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", action="store_true", help="run modules of the standard input")
    parser.add_argument("--accepted", type=int, default=2000, help="stop after so many")
    parser.add_argument("--folder", type=Path, default=Path("build/mutants"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after this time")
    options = parser.parse_args()
    if options.work:
        work()
    else:
        counts = fuzz(options.accepted, options.folder, options.seed, options.seconds)
        sys.exit(1 if counts["crashed"] else 0)


if __name__ == "__main__":
    main()
