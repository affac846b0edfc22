"""Kernels with 64-bit integers compute the same without them.

Each kernel runs on the device of the tests as it is and lowered, with both forms of products of
words, and is compared with exact integers.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.spirv.int64_lowering import lower_int64
from gpu_executor.spirv.interface import INT64, read_interface
from gpu_executor.spirv.product_lowering import lower_products
from gpu_executor.spirv.specialization import specialize
from tests.support.glsl import compile_glsl

Expected = Callable[[int, int], int]
WORD, MASK = 2**32 - 1, 2**64 - 1
EDGES = (
    0, 1, 2, 0xFFFF, 0x10000, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 2**32,
    2**64 - 2, 2**64 - 1, 0x0123456789ABCDEF,
)  # fmt: skip
FORMS: dict[str, Callable[[bytes], bytes]] = {
    "64-bit integers": lambda code: code,
    "pairs of words": lower_int64,
    "16-bit halves": lambda code: lower_products(lower_int64(code), "halves"),
    "64-bit products": lambda code: lower_products(code, "int64"),
}
HEAD = """
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_spirv_intrinsics : require
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0, std430) readonly buffer A { uint64_t values_a[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { uint64_t values_b[]; };
layout(set = 0, binding = 2, std430) writeonly buffer R { uint64_t results[]; };
struct Wide { uint64_t low; uint64_t high; };
spirv_instruction(id = 151) Wide mul_extended(uint64_t a, uint64_t b);
spirv_instruction(id = 149) Wide add_carry(uint64_t a, uint64_t b);
spirv_instruction(id = 150) Wide sub_borrow(uint64_t a, uint64_t b);
"""
LOCALS = """
    uint i = gl_GlobalInvocationID.x;
    uint64_t a = values_a[min(i, count - 1)], b = values_b[min(i, count - 1)];
    int64_t s = int64_t(a), t = int64_t(b);
    uint u = uint(a), v = uint(b), n = uint(b) & 63u;
    int x = int(u), y = int(v);
"""


def signed(value: int, bits: int = 64) -> int:
    """The low bits of an integer, read as a signed one."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def draw_operands(count: int = 120) -> tuple[list[int], list[int]]:
    """All pairs of edge values, and random ones of random lengths."""
    draw = random.Random(36)
    pairs = list(itertools.product(EDGES, repeat=2))
    pairs += [
        (draw.getrandbits(draw.randint(1, 64)), draw.getrandbits(draw.randint(1, 64)))
        for _ in range(count)
    ]
    return [a for a, _ in pairs], [b for _, b in pairs]


def run(
    gpu: gx.PersistentVulkanBackend,
    code: bytes,
    form: str,
    a: Sequence[int],
    b: Sequence[int],
    results: int,
) -> npt.NDArray[np.uint64]:
    """The results of each pair of operands, in rows."""
    lowered = FORMS[form](specialize(code, {}))
    capabilities = read_interface(lowered).capabilities
    assert (INT64 in capabilities) == (form in ("64-bit integers", "64-bit products"))
    parts = 2 if INT64 in capabilities else 4
    memory = len(read_interface(lowered).bindings) > 3  # of `STRUCTURES`, also behind the count
    kernel = gx.Kernel.from_spirv(
        lowered,
        buffers="in u8, in u8, out u8" + ", out, out" * memory,
        split="whole",
        count=True,
        out_shape=[(len(a) * results,), *([(len(a) + 64,), (len(a) + 64, parts)] * memory)],
    )
    found = gpu.run(kernel, np.array(a, np.uint64), np.array(b, np.uint64))
    return np.asarray(found[0] if memory else found).reshape(-1, results)


def check(
    gpu: gx.PersistentVulkanBackend,
    form: str,
    cases: Sequence[tuple[str, Expected]],
    *,
    head: str = "",
    before: str = "",
    options: tuple[str, ...] = ("-O",),
) -> None:
    """Compare expressions of a, b and the other locals with integers."""
    lines = [
        f"if (i < count) results[i * {len(cases)} + {at}] = uint64_t({text});"
        for at, (text, _) in enumerate(cases)
    ]
    body = "\n".join([HEAD, head, "void main() {", LOCALS, before, *lines, "}"])
    a, b = draw_operands()
    found = run(gpu, compile_glsl(body, "1.2", options=options), form, a, b, len(cases))
    for at, (text, expected) in enumerate(cases):
        wanted = [expected(x, y) & MASK for x, y in zip(a, b, strict=True)]
        differ = [
            (hex(x), hex(y), hex(want), hex(int(got)))
            for x, y, want, got in zip(a, b, wanted, found[:, at], strict=True)
            if want != int(got)
        ]
        assert not differ, f"{text}: {differ[:3]}"


ARITHMETIC: list[tuple[str, Expected]] = [
    ("a + b", lambda a, b: a + b),
    ("a - b", lambda a, b: a - b),
    ("a * b", lambda a, b: a * b),
    ("-s", lambda a, b: -a),
    ("~a", lambda a, b: ~a),
    ("a & b", lambda a, b: a & b),
    ("a | b", lambda a, b: a | b),
    ("a ^ b", lambda a, b: a ^ b),
    ("a & 0xFFFFFFFFul", lambda a, b: a & WORD),
    ("a + 1ul", lambda a, b: a + 1),
    ("a * 0xFFFFFFFF00000001ul", lambda a, b: a * 0xFFFFFFFF00000001),
    # Products and sums of operands that were widened or not, from signed and unsigned words.
    ("uint64_t(u) * uint64_t(v)", lambda a, b: (a & WORD) * (b & WORD)),
    ("uint64_t(u) * b", lambda a, b: (a & WORD) * b),
    ("a * uint64_t(v)", lambda a, b: a * (b & WORD)),
    ("int64_t(x) * int64_t(y)", lambda a, b: signed(a, 32) * signed(b, 32)),
    ("int64_t(x) * t", lambda a, b: signed(a, 32) * b),
    ("uint64_t(int64_t(x)) * uint64_t(v)", lambda a, b: signed(a, 32) * (b & WORD)),
    ("int64_t(u) * int64_t(y)", lambda a, b: (a & WORD) * signed(b, 32)),
    ("uint64_t(int64_t(x)) * uint64_t(int64_t(y))", lambda a, b: signed(a, 32) * signed(b, 32)),
    ("uint64_t(u) + uint64_t(v)", lambda a, b: (a & WORD) + (b & WORD)),
    ("uint64_t(u) - uint64_t(v)", lambda a, b: (a & WORD) - (b & WORD)),
    ("int64_t(x) + int64_t(y)", lambda a, b: signed(a, 32) + signed(b, 32)),
    ("int64_t(x) - t", lambda a, b: signed(a, 32) - b),
    ("a + uint64_t(v)", lambda a, b: a + (b & WORD)),
    ("uint64_t(u) * uint64_t(v) + uint64_t(u) + uint64_t(v)",
     lambda a, b: (a & WORD) * (b & WORD) + (a & WORD) + (b & WORD)),
    ("min(a, b)", min),
    ("max(a, b)", max),
    ("min(s, t)", lambda a, b: min(signed(a), signed(b))),
    ("max(s, t)", lambda a, b: max(signed(a), signed(b))),
    ("clamp(a, 5ul, 0xFFFFFFFFFFul)", lambda a, b: min(max(a, 5), 0xFFFFFFFFFF)),
    ("clamp(s, -5l, 0xFFFFFFFFFFl)", lambda a, b: min(max(signed(a), -5), 0xFFFFFFFFFF)),
    ("abs(s)", lambda a, b: abs(signed(a))),
    ("sign(s)", lambda a, b: (signed(a) > 0) - (signed(a) < 0)),
    ("mul_extended(a, b).low", lambda a, b: a * b),
    ("mul_extended(a, b).high", lambda a, b: a * b >> 64),
    ("add_carry(a, b).low", lambda a, b: a + b),
    ("add_carry(a, b).high", lambda a, b: a + b >> 64),
    ("sub_borrow(a, b).low", lambda a, b: a - b),
    ("sub_borrow(a, b).high", lambda a, b: int(a < b)),
]  # fmt: skip
DIVISIONS: list[tuple[str, Expected]] = [
    ("a / max(b, 1ul)", lambda a, b: a // max(b, 1)),
    ("a % max(b, 1ul)", lambda a, b: a % max(b, 1)),
    ("a / 10ul", lambda a, b: a // 10),
    ("uint64_t(u) % 1000003ul", lambda a, b: (a & WORD) % 1000003),
    ("s / (t == 0l ? 7l : t)", lambda a, b: divide(signed(a), signed(b) or 7)),
    ("(u64vec2(a, b) / u64vec2(max(b, 1ul), 3ul)).y", lambda a, b: b // 3),
]
SIGNED_REMAINDER: tuple[str, Expected] = (
    "s % (t == 0l ? 7l : t)",
    lambda a, b: signed(a) % (signed(b) or 7),
)
"""OpSMod, whose sign is the divisor's. Lavapipe of Mesa 22.3 computes OpSRem with 64 bits."""


def divide(a: int, b: int) -> int:
    """The quotient, rounded toward zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


COMPARISONS: list[tuple[str, Expected]] = [
    ("a < b", lambda a, b: a < b),
    ("a <= b", lambda a, b: a <= b),
    ("a > b", lambda a, b: a > b),
    ("a >= b", lambda a, b: a >= b),
    ("a == b", lambda a, b: a == b),
    ("a != b", lambda a, b: a != b),
    ("s < t", lambda a, b: signed(a) < signed(b)),
    ("s <= t", lambda a, b: signed(a) <= signed(b)),
    ("s > t", lambda a, b: signed(a) > signed(b)),
    ("s >= t", lambda a, b: signed(a) >= signed(b)),
    ("a < uint64_t(v)", lambda a, b: a < (b & WORD)),
    ("s < int64_t(y)", lambda a, b: signed(a) < signed(b, 32)),
    ("s < 0l", lambda a, b: signed(a) < 0),
    ("bool(a)", lambda a, b: a != 0),
    ("a < b ? a + 1ul : b", lambda a, b: a + 1 if a < b else b),
    ("u < v ? s : t", lambda a, b: a if a & WORD < b & WORD else b),
]
CONVERSIONS: list[tuple[str, Expected]] = [
    ("uint(a)", lambda a, b: a & WORD),
    ("int64_t(int(s))", lambda a, b: signed(a, 32)),
    ("int64_t(x)", lambda a, b: signed(a, 32)),
    ("int64_t(u)", lambda a, b: a & WORD),
    ("uint64_t(x)", lambda a, b: signed(a, 32)),
    ("uint16_t(a)", lambda a, b: a & 0xFFFF),
    ("int64_t(int16_t(s))", lambda a, b: signed(a, 16)),
    ("int64_t(int16_t(x))", lambda a, b: signed(a, 16)),
    ("uint8_t(a)", lambda a, b: a & 0xFF),
    ("int64_t(int8_t(s))", lambda a, b: signed(a, 8)),
    ("a << uint16_t(n)", lambda a, b: a << (b & 63)),
    ("packUint2x32(uvec2(u, v))", lambda a, b: (a & WORD) | (b & WORD) << 32),
    ("unpackUint2x32(a).y", lambda a, b: a >> 32),
    ("unpackUint2x32(a + b).x", lambda a, b: a + b & WORD),
    ("packInt2x32(ivec2(x, y))", lambda a, b: (a & WORD) | (b & WORD) << 32),
    ("uint(unpackInt2x32(s).y)", lambda a, b: a >> 32),
]
AMOUNTS = (0, 1, 31, 32, 33, 63)


def make_shift(operation: str, amount: int | None) -> Expected:
    def shift(a: int, b: int) -> int:
        by = b & 63 if amount is None else amount
        if operation == "<<":
            return a << by
        return (signed(a) if operation == "signed >>" else a) >> by

    return shift


SHIFTS = [
    (text.format(amount), make_shift(operation, amount))
    for operation, text in (("<<", "a << {}"), (">>", "a >> {}"), ("signed >>", "s >> {}"))
    for amount in AMOUNTS
] + [
    (text.format(amount), make_shift(operation, None))
    for operation, text in (("<<", "a << {}"), (">>", "a >> {}"), ("signed >>", "s >> {}"))
    for amount in ("n", "int(n)", "(b & 63ul)", "(t & 63l)")
]


on_both_levels = pytest.mark.parametrize(
    ("form", "options"),
    [(form, ("-O" if at % 2 else "-O0",)) for at, form in enumerate(FORMS)]
    + [("pairs of words", ("-O",))],
    ids=str,
)


@on_both_levels
def test_arithmetic(gpu: gx.PersistentVulkanBackend, form: str, options: tuple[str, ...]) -> None:
    cases = ARITHMETIC + COMPARISONS + SHIFTS
    check(gpu, form, cases, options=options)


@pytest.mark.parametrize("form", FORMS)
def test_divisions(gpu: gx.PersistentVulkanBackend, form: str) -> None:
    lowered = form in ("pairs of words", "16-bit halves")
    check(gpu, form, [*DIVISIONS, *[SIGNED_REMAINDER] * lowered])


@pytest.mark.parametrize("form", FORMS)
def test_conversions(gpu: gx.PersistentVulkanBackend, form: str) -> None:
    check(gpu, form, CONVERSIONS)


STRUCTURES = """
layout(constant_id = 5) const uint64_t K = 0xFEDCBA9876543210ul;
layout(constant_id = 6) const int64_t NEGATIVE = -3l;
const uint64_t TABLE[3] = { 7ul, 0xFFFFFFFF00000001ul, 5ul };
struct Pair { uint small; uint64_t large; u64vec2 both; };
layout(set = 0, binding = 3, std430) buffer S { Pair pairs[]; };
layout(set = 0, binding = 4, std430) buffer V { u64vec2 vectors[]; };
shared uint64_t exchanged[64];
uint64_t power(uint64_t base, uint exponent) {
    uint64_t result = 1ul;
    while (exponent != 0u) {
        if ((exponent & 1u) != 0u) result *= base;
        base *= base;
        exponent >>= 1;
    }
    return result;
}
void double_it(inout uint64_t value) { value += value; }
uint64_t fibonacci(uint64_t a, uint64_t b, uint steps) {
    for (uint k = 0u; k < steps; ++k) { uint64_t next = a + b; a = b; b = next; }
    return a;
}
uint64_t gather(uint64_t a, uint64_t b, uint place) {
    uint64_t array[4];
    for (uint k = 0u; k < 4u; ++k) array[k] = a + uint64_t(k) * b;
    array[place & 3u] ^= K;
    return array[(place + 1u) & 3u] + array[place & 3u] * 3ul;
}
"""
BEFORE = """
    uint64_t doubled = a;
    double_it(doubled);
    exchanged[gl_LocalInvocationIndex] = a ^ b;
    barrier();
    uint64_t other = exchanged[gl_LocalInvocationIndex ^ 1u] ^ exchanged[gl_LocalInvocationIndex];
    uint64_t again = exchanged[gl_LocalInvocationIndex ^ 1u] ^ other;
    pairs[i].small = u;
    pairs[i].large = a + b;
    pairs[i].both = u64vec2(a, b);
    pairs[i].both.y += 1ul;
    vectors[i] = pairs[i].both.yx;
    vectors[i][n & 1u] -= a;
    u64vec2 sum = vectors[i] + u64vec2(b, a), scaled = sum * u64vec2(v, 3);
    bvec2 less = lessThan(sum, scaled);
    uvec2 narrow = uvec2(sum);
    scaled.x = mix(a, b, less.x);
    u64vec2 one = u64vec2(a, b), other_one = u64vec2(b, K);
    u64vec2 chosen = (n & 1u) != 0u ? one : other_one;
"""


def fibonacci(a: int, b: int, steps: int) -> int:
    for _ in range(steps):
        a, b = b, a + b
    return a


def gather(a: int, b: int, place: int) -> int:
    array = [a + k * b for k in range(4)]
    array[place & 3] = (array[place & 3] & MASK) ^ K
    return array[(place + 1) & 3] + array[place & 3] * 3


def add_vectors(a: int, b: int) -> tuple[int, int]:
    """The variable `sum`."""
    vector = [b + 1, a]
    vector[b & 1] -= a
    return (vector[0] + b) & MASK, (vector[1] + a) & MASK


K = 0xFEDCBA9876543210
STRUCTURED: list[tuple[str, Expected]] = [
    ("K", lambda a, b: K),
    ("a * K", lambda a, b: a * K),
    ("a >> uint(NEGATIVE + 4l)", lambda a, b: a >> 1),
    ("TABLE[n % 3u]", lambda a, b: (7, 0xFFFFFFFF00000001, 5)[(b & 63) % 3]),
    ("power(a, v)", lambda a, b: pow(a, b & WORD, 2**64)),
    ("doubled", lambda a, b: 2 * a),
    ("again", lambda a, b: a ^ b),
    ("fibonacci(a, b, n)", lambda a, b: fibonacci(a, b, b & 63)),
    ("gather(a, b, n)", lambda a, b: gather(a, b, b & 63)),
    ("uint64_t(pairs[i].small) + pairs[i].large", lambda a, b: (a & WORD) + a + b),
    ("pairs[i].both.x", lambda a, b: a),
    ("pairs[i].both[1]", lambda a, b: b + 1),
    ("sum.x", lambda a, b: add_vectors(a, b)[0]),
    ("sum[(n >> 1) & 1u]", lambda a, b: add_vectors(a, b)[b >> 1 & 1]),
    ("scaled.y", lambda a, b: 3 * add_vectors(a, b)[1]),
    (
        "scaled.x",
        lambda a, b: b if add_vectors(a, b)[0] < add_vectors(a, b)[0] * (b & WORD) & MASK else a,
    ),
    ("narrow.y", lambda a, b: add_vectors(a, b)[1] & WORD),
    ("chosen.x", lambda a, b: a if b & 1 else b),
    ("chosen.y", lambda a, b: b if b & 1 else K),
]


@on_both_levels
def test_structures(gpu: gx.PersistentVulkanBackend, form: str, options: tuple[str, ...]) -> None:
    check(gpu, form, STRUCTURED, head=STRUCTURES, before=BEFORE, options=options)
