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

TYPES = """
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
layout(local_size_x = 4, local_size_y = 2) in;
layout(constant_id = 5) const uint STEPS = 3;
layout(constant_id = 6) const float SCALE = 0.5;
const uint TWICE = STEPS * 2 + 1;
struct Pair { uint64_t low; int32_t high; };
layout(push_constant) uniform Push { uint count; ivec3 by; mat3x2 turn; };
layout(set = 0, binding = 0) buffer W { uint64_t w[]; };
layout(set = 0, binding = 1) buffer H { u16vec2 h[]; };
layout(set = 0, binding = 2) buffer D { double total; double d[]; };
layout(buffer_reference) buffer Node { uint value; };
Pair add(inout Pair p, const in uint64_t by) { p.low += by; p.high -= 1; return p; }
void store(uint at, double value) { d[at & 31] = value; }
void main() {
    uint i = gl_GlobalInvocationID.x + gl_GlobalInvocationID.y * gl_NumWorkGroups.x;
    Pair pairs[TWICE];
    for (uint k = 0; k < TWICE; ++k) pairs[k] = Pair(w[(i + k) & 31], int(k));
    uint k = 0;
    do {
        add(pairs[k], uint64_t(by.y) << 33);
        if (pairs[k].high < -5) continue;
    } while (++k < STEPS);
    vec2 turned = turn * vec3(by) * SCALE;
    store(i, double(turned.x) + sqrt(double(i)) + total);
    h[i & 31] = u16vec2(uint16_t(turned.y), uint16_t(i)) + h[(i + 1) & 31].yx;
    int8_t narrow = int8_t(i);
    uint carry; uint sum = uaddCarry(i, 0xfffffff0u, carry);
    uvec2 address = uvec2(Node(uvec2(sum, carry)));  // never used: it would be a stray pointer
    if (i < count) w[i & 31] = pairs[i % TWICE].low + address.x + packHalf2x16(turned) + narrow;
}
"""
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
READY = b"ready\n"
ACCEPTED = ("ran", "hung", "crashed")
"""What becomes of the mutants that the reader, spirv-val and the other checks accept."""
_DECORATE, _MEMBER_DECORATE, _BUILT_IN = 71, 72, 11
_SUBGROUP_MASKS = range(4416, 4421)
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
    sources += [(TYPES, ()), (TYPES, ("-O",))]
    compiled = [compile_glsl(source, "1.2", options=options) for source, options in sources]
    return [*compiled, *map(load_spirv, MODULES)]


def mutate(code: bytes, rng: random.Random) -> bytes:
    """Change one to three instructions of a module."""
    mutant = _Mutant(code, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(_MUTATIONS)(mutant)
    return mutant.encode()


class _Mutant:
    """A module as a list of instructions, and the ways to change it."""

    def __init__(self, code: bytes, rng: random.Random) -> None:
        words = struct.unpack(f"<{len(code) // 4}I", code)
        self._rng = rng
        self._header = list(words[:HEADER_WORDS])
        self._instructions: list[list[int]] = []
        at = HEADER_WORDS
        while at < len(words):
            self._instructions.append(list(words[at : at + (words[at] >> 16)]))
            at += words[at] >> 16

    def encode(self) -> bytes:
        words = [*self._header, *(word for each in self._instructions for word in each)]
        return struct.pack(f"<{len(words)}I", *words)

    def replace_id(self) -> None:
        """Replace an id that an instruction uses by one of another instruction."""
        chosen = self._choose()
        alike = [each for each in self._instructions if _opcode(each) == _opcode(chosen)]
        other = self._rng.choice(alike if self._rng.random() < 0.5 else self._instructions)
        result = _TABLES.result[_opcode(chosen)]
        used = [at for at in _find_ids(chosen) if at != result]
        if used and _find_ids(other):
            chosen[self._rng.choice(used)] = other[self._rng.choice(_find_ids(other))]

    def swap_ids(self) -> None:
        """Swap two ids that an instruction uses."""
        chosen = self._choose()
        result = _TABLES.result[_opcode(chosen)]
        used = [at for at in _find_ids(chosen) if at != result]
        if len(used) > 1:
            one, other = self._rng.sample(used, 2)
            chosen[one], chosen[other] = chosen[other], chosen[one]

    def change_literal(self) -> None:
        """Change a word that is no id."""
        chosen, rng = self._choose(), self._rng
        places = [at for at in range(1, len(chosen)) if at not in _find_ids(chosen)]
        if places:
            at = rng.choice(places)
            flipped = chosen[at] ^ 1 << rng.randrange(32)
            next_one = (chosen[at] + 1) & 0xFFFFFFFF
            chosen[at] = rng.choice(
                (rng.randrange(8), rng.randrange(48), flipped, rng.getrandbits(32), next_one)
            )

    def change_opcode(self) -> None:
        """Replace an opcode by one of the same layout."""
        chosen = self._choose()
        for group in _ALIKE:
            if _opcode(chosen) in group:
                chosen[0] = chosen[0] & 0xFFFF0000 | self._rng.choice(group)
                return

    def change_decoration(self) -> None:
        """Change the target, the decoration or an operand of a decoration."""
        decorations = [e for e in self._instructions if _opcode(e) in (_DECORATE, _MEMBER_DECORATE)]
        if decorations:
            chosen = self._rng.choice(decorations)
            chosen[self._rng.randrange(1, len(chosen))] = self._rng.randrange(48)

    def change_built_in(self) -> None:
        """Make a built-in another one."""
        built_ins = [
            each
            for each in self._instructions
            if _opcode(each) in (_DECORATE, _MEMBER_DECORATE) and _BUILT_IN in each[2:4]
        ]
        if built_ins:
            self._rng.choice(built_ins)[-1] = self._rng.choice((*range(24, 44), *_SUBGROUP_MASKS))

    def drop(self) -> None:
        """Remove an instruction."""
        del self._instructions[self._rng.randrange(len(self._instructions))]

    def duplicate(self) -> None:
        """Repeat an instruction, with a result id of its own, behind it or anywhere."""
        at = self._rng.randrange(len(self._instructions))
        copy = list(self._instructions[at])
        result = int(_TABLES.result[_opcode(copy)])
        if 0 < result < len(copy):
            copy[result] = self._header[3]
            self._header[3] += 1
        anywhere = self._rng.randrange(len(self._instructions))
        self._instructions.insert(self._rng.choice((at + 1, anywhere)), copy)

    def swap(self) -> None:
        """Swap two instructions that are near each other."""
        all_, at = self._instructions, self._rng.randrange(len(self._instructions))
        other = min(at + self._rng.choice((1, 1, 2, 5)), len(all_) - 1)
        all_[at], all_[other] = all_[other], all_[at]

    def flip_bit(self) -> None:
        chosen = self._choose()
        chosen[self._rng.randrange(len(chosen))] ^= 1 << self._rng.randrange(32)

    def _choose(self) -> list[int]:
        return self._rng.choice(self._instructions)


_MUTATIONS = (
    *(_Mutant.replace_id,) * 4, _Mutant.swap_ids, *(_Mutant.change_literal,) * 2,
    _Mutant.change_opcode, _Mutant.change_decoration, _Mutant.change_built_in, _Mutant.drop,
    _Mutant.duplicate, _Mutant.swap, _Mutant.flip_bit,
)  # fmt: skip


def _opcode(instruction: Sequence[int]) -> int:
    return instruction[0] & 0xFFFF


def _find_ids(instruction: Sequence[int]) -> list[int]:
    """Return the positions of an instruction's ids."""
    bits = int(_TABLES.ids[_opcode(instruction)])
    return [at for at in range(1, len(instruction)) if bits >> min(at, 31) & 1]


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
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == READY  # starting is not part of the time limit
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
        print(READY.decode(), end="", flush=True)
        while head := sys.stdin.buffer.read(4):
            code = sys.stdin.buffer.read(struct.unpack("<I", head)[0])
            try:
                run_module(gpu, code)
                answer = "ran"
            except gx.errors.SpirvError as error:
                kind = "validated" if "spirv-val rejects" in str(error) else "read"
                answer = f"{kind} {error}"
            except (gx.GpuError, MemoryError) as error:
                answer = f"refused {error}"
            except Exception as error:
                answer = f"failed {type(error).__name__}: {error}"
            print(answer.replace("\n", " "), flush=True)


def run_module(gpu: gx.PersistentVulkanBackend, code: bytes) -> None:
    """Run a module in two work-groups on small arrays and parameters of ones."""
    interface = read_interface(code)
    options: dict[str, Any] = {
        "constants": {each: 2 for each in interface.local_size.spec_ids if each is not None},
        "grid": (2, 1, 1),
    }
    kernel = gx.Kernel.from_spirv(
        code,
        buffers=[
            (
                "in" if each.binding in interface.read_only else "inout",
                "u4" if each.element is None else (each.element.base, each.element.shape),
            )
            for each in interface.buffers
        ],
        **options,
    )
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
