"""SPIR-V as naga reads it: every module of the package, and instructions that it might mistake."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernels import build
from gpu_executor.kernels.modules import get_module_names
from gpu_executor.webgpu import device as webgpu_device
from gpu_executor.webgpu import spirv_pipelines, trusted_modules
from gpu_executor.webgpu.spirv_pipelines import is_readable
from tests.conftest import OpenWebGpu, RunPython
from tests.support.glsl import compile_glsl

NUMBERS = """
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 32) in;
layout(push_constant) uniform Push { uint count; };
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { uint b[]; };
layout(binding = 2) writeonly buffer C { uint c[]; };
layout(constant_id = 3) const uint ROUNDS = 5;
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= count) return;
    uint x = a[i], y = b[i], at = 24 * i;
    int s = int(x), t = int(y);
    uint shift = y & 31;
    c[at++] = uint(s >> shift);
    c[at++] = x >> shift;
    c[at++] = uint(int(x >> 3) >> 2);
    c[at++] = uint(min(s, t));
    c[at++] = min(x, y);
    c[at++] = uint(max(s, t));
    c[at++] = max(x, y);
    c[at++] = x / (y | 1);
    c[at++] = uint(s / int(y >> 1 | 1));
    c[at++] = x % (y | 1);
    c[at++] = uint(findMSB(x));
    c[at++] = uint(findMSB(s));
    c[at++] = uint(findLSB(x));
    c[at++] = uint(bitfieldExtract(s, 4, 9));
    c[at++] = bitfieldExtract(x, 4, 9);
    int64_t wide = int64_t(s) * int64_t(t);
    c[at++] = uint(uint64_t(wide) >> 32);
    uint64_t zero_extended = uint64_t(x) + uint64_t(y);
    c[at++] = uint(zero_extended >> 32);
    c[at++] = uint(int64_t(s) >> 40);
    uint high, low;
    umulExtended(x, y, high, low);
    c[at++] = high;
    int signed_high, signed_low;
    imulExtended(s, t, signed_high, signed_low);
    c[at++] = uint(signed_high);
    uint carry;
    uint sum = uaddCarry(x, y, carry);
    c[at++] = sum + carry;
    uint total = 0;
    [[unroll]] for (uint n = 0; n < ROUNDS; n++) {
        if (n == 3) continue;
        [[unroll]] for (uint m = n; m < ROUNDS; m++) total += (x >> m) * (y + n);
        if ((x & 1) != 0) total ^= n;
    }
    c[at++] = total;
    uint steps = 0;
    [[unroll]] for (uint n = 0; n < ROUNDS; n++) {
        if ((y >> n & 1) != 0) break;
        steps++;
    }
    c[at++] = steps;
    switch (x % 3) {
        case 0: c[at++] = x; break;
        case 1: c[at++] = y;
        default: c[at - (x % 3 == 1 ? 1 : 0)] = x ^ y;
    }
}
"""


def compute(x: int, y: int, rounds: int) -> list[int]:
    """What the kernel computes, with integers of Python."""
    s, t = (each - (each >> 31 << 32) for each in (x, y))
    shift, sum_ = y & 31, x + y
    found = [s >> shift, x >> shift, x >> 5, min(s, t), min(x, y), max(s, t), max(x, y)]
    divisor = y >> 1 | 1
    quotient = abs(s) // divisor
    found += [x // (y | 1), quotient if s >= 0 else -quotient, x % (y | 1)]
    found += [x.bit_length() - 1, (~s if s < 0 else s).bit_length() - 1, (x & -x).bit_length() - 1]
    field = s >> 4 & 0x1FF
    found += [field - (field >> 8 << 9), x >> 4 & 0x1FF]
    found += [s * t >> 32, sum_ >> 32, s >> 40, x * y >> 32, s * t >> 32]
    found.append(sum_ + (sum_ >> 32))
    total = 0
    for n in range(rounds):
        if n != 3:
            total += sum((x >> m) * (y + n) for m in range(n, rounds))
            total = (total & 0xFFFFFFFF) ^ (n if x & 1 else 0)
    steps = next((n for n in range(rounds) if y >> n & 1), rounds)
    found += [total, steps, x if x % 3 == 0 else x ^ y]
    return [each & 0xFFFFFFFF for each in found]


@pytest.fixture
def reads_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spirv_pipelines, "_is_readable", lambda _digest: True)


@pytest.fixture(scope="module")
def backend() -> Iterator[gx.WgpuExecutor]:
    with gx.WgpuExecutor() as opened:
        yield opened


@pytest.mark.parametrize("rounds", [0, 1, 2, 7])
@pytest.mark.parametrize("form", ["int64", "halves"])
@pytest.mark.usefixtures("reads_anything")
def test_numbers_with_and_without_a_sign_and_loops(
    backend: gx.WgpuExecutor, form: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend._pipelines.spirv, "form", form)
    draw = random.Random(rounds)
    edges = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]
    pairs = [(x, y) for x in edges for y in edges]
    pairs += [(draw.getrandbits(32), draw.getrandbits(32)) for _ in range(36)]
    kernel = gx.Kernel.from_spirv(
        compile_glsl(NUMBERS),
        count=True,
        buffers=["in u4", "in u4", "out (24,)u4"],
        constants={3: rounds},
        name=f"numbers {form} {rounds}",
    )
    x, y = np.array(pairs, np.uint32).T
    found = backend.run(kernel, x, y).tolist()
    assert found == [compute(*pair, rounds) for pair in pairs]


def test_only_the_packages_modules_are_read(backend: gx.WgpuExecutor) -> None:
    kernel = gx.Kernel.from_spirv(
        compile_glsl(NUMBERS), count=True, buffers=["in u4", "in u4", "out (24,)u4"], name="mine"
    )
    words = np.zeros(4, np.uint32)
    for keep in (None, True):
        with pytest.raises(gx.errors.KernelError, match="'mine' has no WGSL, so WebGPU cannot run"):
            backend.run(kernel, words, words, keep=keep)
    assert not is_readable(gx.kernels.load("reduce_sum_f32"))  # which forbids contraction
    ones = backend.to_device(np.ones(10_000, np.float32))
    assert float(backend.run(gx.kernels.load("reduce_sum_f32"), ones).numpy()) == 10_000


def test_a_missing_feature_is_named_with_the_adapters_that_have_it(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = [each for each in webgpu_device.SHADER_FEATURES if not each.startswith("subgroup")]
    monkeypatch.setattr(webgpu_device, "SHADER_FEATURES", tuple(features))
    gpu = open_webgpu()
    words = gpu.to_device(np.arange(100, dtype=np.uint32))
    with pytest.raises(gx.errors.DeviceLacksError, match=r"needs subgroup.*has it; the kernel"):
        gx.ops.sort(words)
    assert words.numpy().tolist() == list(range(100))


def test_modules_of_other_versions_keep_their_loop_bounds(
    backend: gx.WgpuExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trusted_modules, "is_known_version", lambda *_: False)
    field = gx.Field(2**61 - 1)
    x = backend.to_device(field.encode([3, 5]))
    assert (x * x).tolist() == [9, 25]


ALL = """
import wgpu
from gpu_executor.kernels.modules import SpecId, load_interface, load_spirv
from gpu_executor.webgpu import trusted_modules
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.spirv_pipelines import prepare_module
FEW = {{SpecId.WORDS: 2, SpecId.LIMBS: 3}}
device = WebGpuDevice(None)
for form, names in {names!r}.items():
    for name in names:
        constants = {{each.spec_id for each in load_interface(name).constants}}
        few = {{each: size for each, size in FEW.items() if each in constants}}
        code = prepare_module(load_spirv(name), few, form)
        trusted_modules.create_trusted_module(device.wgpu, device.device, code, name)
print("read all")
"""


@pytest.mark.slow
def test_naga_reads_every_module(run_python: RunPython) -> None:
    """In a process of its own: what naga does not expect ends it. Numbers have two words and three
    limbs and not twelve and thirteen, which only repeat the instructions of unrolled loops. Modules
    for devices without 64-bit integers are made by the same passes, of the same few instructions:
    there one module of each shader is read, of its families in turn."""
    digests = {name: digest for digest, name in get_module_names().items()}
    of_shaders: dict[Path, list[str]] = {}
    for source in build.sources():
        if spirv_pipelines._is_readable(digests[source.stem]):
            of_shaders.setdefault(source.path, []).append(source.stem)
    every = [name for names in of_shaders.values() for name in names]
    one_each = [names[at % len(names)] for at, names in enumerate(of_shaders.values())]
    assert len(every) > 180 and len(one_each) > 100
    script = ALL.format(names={"int64": every, "halves": one_each})
    assert run_python(script).stdout.endswith("read all\n")
