"""Members of push constants and uniform buffers, and the values encoded into them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_executor.errors import KernelError
from gpu_executor.spirv import BlockMember, ShaderInterface, read_interface
from tests.support.glsl import compile_glsl

EXTENSIONS = """
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 1) in;
layout(constant_id = 0) const uint N = 3;
struct Light { float power; vec3 color; };
struct Scene { Light light; int count; };
layout(buffer_reference) buffer Node { uint x; };
"""


def read(body: str, options: tuple[str, ...] = ()) -> ShaderInterface:
    return read_interface(compile_glsl(f"{EXTENSIONS}{body}", "1.2", options=options))


def make(dtype: str, shape: tuple[int, ...] = (), offset: int = 4) -> BlockMember:
    size = np.dtype(dtype).itemsize
    strides = tuple(size * int(np.prod(shape[at + 1 :])) for at in range(len(shape)))
    return BlockMember("factor", offset, np.dtype(dtype), shape, strides)


def encode(member: BlockMember, value: object) -> bytes:
    buffer = bytearray(b"\xaa" * (member.offset + member.nbytes + 4))
    member.encode_into(buffer, value)
    end = member.offset + member.nbytes
    assert buffer[: member.offset] == b"\xaa" * member.offset
    assert buffer[end:] == b"\xaa" * 4
    return bytes(buffer[member.offset : end])


def test_push_constants_are_flattened_in_the_order_of_their_offsets() -> None:
    found = read("""
layout(push_constant) uniform Push {
    uint count; Scene scene; layout(offset = 64) double d; mat2x3 m; layout(row_major) mat2x3 r;
    float f[N]; uint8_t b; layout(offset = 4) float x;
} push;
void main() {}
""")
    expected = [
        ("count", 0, "u4", (), ()),
        ("x", 4, "f4", (), ()),
        ("scene.light.power", 16, "f4", (), ()),
        ("scene.light.color", 32, "f4", (3,), (4,)),
        ("scene.count", 48, "i4", (), ()),
        ("d", 64, "f8", (), ()),
        ("m", 80, "f4", (2, 3), (16, 4)),
        ("r", 112, "f4", (3, 2), (8, 4)),
        ("f", 136, "f4", (3,), (4,)),
        ("b", 148, "u1", (), ()),
    ]
    assert [
        (each.name, each.offset, each.dtype.str[1:], each.shape, each.strides)
        for each in found.push_members
    ] == expected
    assert found.unusable_members == ()
    assert found.push_constant_bytes == 152


def test_uniform_buffers_have_the_layout_of_std140() -> None:
    found = read("""
layout(binding = 6) uniform U { float a; vec3 b; float c[2]; mat2 m; Scene scene; } u;
layout(binding = 1) buffer B { float x[]; };
void main() { x[0] = u.a; }
""")
    uniform = found.uniform
    assert uniform is not None
    assert (uniform.binding, uniform.nbytes) == (6, 144)
    assert [(each.name, each.offset, each.strides) for each in uniform.members] == [
        ("a", 0, ()), ("b", 16, (4,)), ("c", 32, (16,)), ("m", 64, (16, 4)),
        ("scene.light.power", 96, ()), ("scene.light.color", 112, (4,)), ("scene.count", 128, ()),
    ]  # fmt: skip
    assert found.bindings == (1,)


def test_the_optimizer_strips_the_names() -> None:
    body = """
layout(push_constant) uniform Push { uint count; Light light; };
layout(binding = 1) buffer B { float x[]; };
void main() { x[count] = light.power; }
"""
    found = read(body, ("-O",))
    assert [(each.name, each.offset) for each in found.push_members] == [
        ("", 0),
        ("", 16),
        ("", 32),
    ]


def test_members_that_take_no_values_are_named_apart() -> None:
    found = read("""
layout(push_constant) uniform Push { uint count; Light lights[2]; Node node; float x; };
void main() {}
""")
    assert [each.name for each in found.push_members] == ["count", "x"]
    assert found.unusable_members == (
        "struct Light { float power @0; vec3 color @16; } lights[2] @16 stride 32;",
        "Node reference node @80;",
    )


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("u4", 0xFFFFFFFF, b"\xff" * 4), ("i4", -2, b"\xfe\xff\xff\xff"), ("u1", 255, b"\xff"),
        ("i2", np.int64(-1), b"\xff\xff"), ("u8", np.uint64(1 << 63), b"\0" * 7 + b"\x80"),
        ("u4", np.uint8(3), b"\3\0\0\0"), ("i8", -(1 << 63), b"\0" * 7 + b"\x80"),
        ("f4", 1, b"\0\0\x80\x3f"),
        ("f4", 1.0, b"\0\0\x80\x3f"), ("f4", np.int32(1), b"\0\0\x80\x3f"),
        ("f4", np.float64(1), b"\0\0\x80\x3f"), ("f8", Fraction(1, 2), b"\0" * 6 + b"\xe0\x3f"),
        ("f2", np.float32(1.5), b"\0\x3e"), ("f4", float("-inf"), b"\0\0\x80\xff"),
        ("f4", np.array(1.0), b"\0\0\x80\x3f"), ("u4", np.array(7, "i2"), b"\7\0\0\0"),
    ],
)  # fmt: skip
def test_scalars(dtype: str, value: object, expected: bytes) -> None:
    assert encode(make(dtype), value) == expected


def test_not_a_number_is_a_float() -> None:
    assert np.isnan(np.frombuffer(encode(make("f4"), float("nan")), "f4")[0])
    assert np.isnan(np.frombuffer(encode(make("f2", (2,)), [np.nan, 1]), "f2")[0])


@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [
        (
            "u4",
            -1,
            r"parameter 'factor' \(uint32\): found int -1; give an int in 0 \.\. 4294967295",
        ),
        ("i1", 128, r"found int 128; give an int in -128 \.\. 127"),
        ("u4", 1.0, "found float 1.0; give an int"),
        ("u4", np.float32(1), "found float32 1.0"),
        ("u4", True, "found bool True"),
        ("u4", np.True_, "found bool"),
        ("f4", False, "found bool False; give a number"),
        ("f4", np.False_, "found bool"),
        ("f4", 1e39, r"found float 1e\+39; give a number in the range of a 32-bit float"),
        ("f4", np.float64(1e39), "found float64"),
        ("f2", 65520.0, "16-bit float"),
        ("f8", 10**400, "found int of 1329 bits"),
        ("f8", np.longdouble("1e400"), "found longdouble"),
        ("u8", 1 << 64, "found int 18446744073709551616"),
        ("f4", "3", "found str; give a number"),
        ("f4", None, "found NoneType"),
        ("f4", 1j, "found complex"),
        ("f4", [1.0], "found list"),
        ("u4", np.array([1]), "found ndarray"),
        ("u4", np.array(True), "found bool"),
    ],
)
def test_scalars_that_do_not_fit_are_refused(dtype: str, value: object, words: str) -> None:
    buffer = bytearray(12)
    with pytest.raises(KernelError, match=words):
        make(dtype).encode_into(buffer, value)


def test_a_member_without_a_name_is_called_by_its_offset() -> None:
    with pytest.raises(KernelError, match=r"parameter at byte 8 \(float32\[3\]\): found str"):
        BlockMember("", 8, np.dtype("f4"), (3,), (4,)).encode_into(bytearray(20), "abc")


VALUES: list[Any] = [
    [[1, 2, 3], [4, 5, 6]],
    ((1.0, 2, 3), (4, np.float32(5), 6)),
    np.arange(1, 7).reshape(2, 3),
    np.asfortranarray(np.arange(1, 7, dtype="f8").reshape(2, 3)),
    [np.array([1, 2, 3], "u1"), [4, 5, 6]],
    np.arange(1, 13, dtype=">f4")[::2].reshape(2, 3) / 2 + 0.5,
]


@pytest.mark.parametrize("value", VALUES)
def test_matrices_are_written_with_their_strides(value: Any) -> None:
    member = BlockMember("m", 16, np.dtype("f4"), (2, 3), (16, 4))
    buffer = bytearray(b"\xaa" * 48)
    member.encode_into(buffer, value)
    rows = np.frombuffer(buffer, "f4")[4:].reshape(2, 4)
    assert rows[:, :3].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert buffer[28:32] == b"\xaa" * 4  # the padding is not written
    assert member.nbytes == 28


@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [
        ("f4", [1, 2], "found 2 entries along axis 0; give a sequence or array of shape .3,."),
        ("f4", np.zeros(4), r"found an array of float64 of shape \(4,\)"),
        ("f4", np.zeros((3, 1)), r"of shape \(3, 1\)"),
        ("f4", [1, True, 2], "found bool True"),
        ("f4", np.array([True] * 3), "found an array of bool"),
        ("f4", np.array([0, 1e39, 0]), r"found float 1e\+39"),
        ("f4", [0, 1e39, 0], r"found float 1e\+39"),
        ("f4", 1.0, "found float 1.0; give a sequence"),
        ("f4", "abc", "found str"),
        ("f4", b"abc", "found bytes"),
        ("f4", [[1], [2], [3]], "found list"),
        ("u4", [1, 2.0, 3], "found float 2.0"),
        ("u4", np.array([1.0, 2, 3]), "found an array of float64"),
        ("u4", np.array([1, -2, 3]), "found int -2"),
        ("u1", np.array([1, 256, 3]), "found int 256"),
        ("i4", np.array([1, 1 << 31, 3], "u8"), "found int 2147483648"),
        ("i8", np.array([1, 1 << 63, 3], "u8"), "found int 9223372036854775808"),
        ("u4", np.array(["a", "b", "c"]), "found an array of"),
        ("u4", np.array([1, 2, 3], object), "found an array of object"),
        ("f4", np.array([1, 2, 3], "c8"), "found an array of complex64"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(dtype: str, value: object, words: str) -> None:
    with pytest.raises(KernelError, match=words):
        make(dtype, (3,)).encode_into(bytearray(64), value)


@given(
    st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]),
    st.lists(st.integers(-(1 << 64), 1 << 65), min_size=4, max_size=4),
)
def test_integers_arrive_exactly_or_are_refused(dtype: str, values: list[int]) -> None:
    member, limits = make(dtype, (4,)), np.iinfo(dtype)
    given_values: list[Any] = [values]
    if all(-(1 << 63) <= value < 1 << 63 for value in values):
        given_values.append(np.array(values, "i8"))
    if all(0 <= value < 1 << 64 for value in values):
        given_values.append(np.array(values, "u8"))
    for value in given_values:
        if all(limits.min <= each <= limits.max for each in values):
            assert np.frombuffer(encode(member, value), dtype).tolist() == values
        else:
            with pytest.raises(KernelError):
                encode(member, value)
