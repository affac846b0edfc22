"""Kernel: valid and invalid declarations, immutability, equality."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import os
import pickle
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_executor import kernels
from gpu_executor.errors import (
    ArgumentTypeError,
    GpuError,
    KernelError,
    NotRunHereError,
    SpirvError,
)
from gpu_executor.kernel import ElementType, Kernel, Reference, Tuning
from tests.support.glsl import shader

TUNABLE = """
layout(constant_id = 1) const uint per_invocation = 1;
layout(constant_id = 2) const float scale = 1.0;
layout(constant_id = 3) const bool flag = true;
"""
ADD = shader("readonly", "readonly", "writeonly", more=TUNABLE)
PUSHED = shader("", "", push="uint count; uint a; uint b;")
NO_PUSH = shader("", "", push="")
LAST_READ_ONLY = shader("readonly", "", "readonly")
ONE_TO_ONE = {"code": PUSHED, "buffers": "in, out"}


def declare(
    code: bytes = ADD,
    buffers: Any = "in, in, out",
    name: str | None = "add",
    **more: Any,
) -> Kernel:
    return Kernel.from_spirv(code, buffers=buffers, name=name, **more)


def make_tuning(**fields: Any) -> Tuning:
    """A tuning with fields of any type."""
    return Tuning(**fields)


def make_reference(*functions: Any) -> Reference:
    """A reference with functions of any type."""
    return Reference(*functions)


def test_a_kernel_has_its_declaration_as_attributes() -> None:
    kernel = declare(
        buffers=[("in", ("u8", (6,))), ("in", "f4"), ("out", "i8")],
        constants={2: 0.5, 0: 64},
        reference=np.add,
    )
    assert (kernel.name, kernel.inputs, kernel.outputs, kernel.split) == ("add", 2, 1, "whole")
    assert kernel.types == (
        ElementType(np.dtype("u8"), (6,)),
        ElementType(np.dtype("f4")),
        ElementType(np.dtype("i8")),
    )
    assert [type_.nbytes for type_ in kernel.types] == [48, 4, 8]
    assert [str(type_) for type_ in kernel.types] == ["uint64[6]", "float32", "int64"]
    assert kernel.constants == ((0, 64), (2, 0.5))
    assert kernel.reference is np.add
    assert (kernel.status, kernel.per_invocation, kernel.push) == (False, None, b"")
    assert kernel.bindings == 3


def test_big_endian_types_become_native() -> None:
    assert declare(buffers=[">u4"] * 3) == declare(buffers=["u4"] * 3)


def test_a_kernel_is_immutable() -> None:
    kernel = declare()
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.name = "sub"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del kernel.push


def test_a_kernel_copies_mutable_arguments() -> None:
    constants, push = {0: 32}, bytearray(8)
    kernel = declare(PUSHED, buffers="in, out", constants=constants, push=push)
    constants[0], push[0] = 64, 1
    assert kernel.constants == ((0, 32),)
    assert kernel.push == bytes(8)


def test_default_parameters_are_copied_and_compared_exactly() -> None:
    """The texts of these arrays are equal: NumPy prints eight digits, and few of many numbers."""
    code = shader("", "", push="uint count; float f[20]; double d[2];")
    f, d = np.zeros(20, np.float32), np.array([0.1, 0.2])
    kernel = declare(code, buffers="in, out", params={"f": f, "d": d})
    d[1] += 1e-12
    other = declare(code, buffers="in, out", params={"f": f, "d": d})
    assert kernel != other
    assert kernel == declare(code, buffers="in, out", params={"f": f, "d": np.array([0.1, 0.2])})
    assert dict(kernel.params)["d"].tolist() == [0.1, 0.2]


def test_default_parameters_are_compared_by_their_bits() -> None:
    code = shader("", "", push="uint count; float f; double d[2];")
    quiet, other_nan = (
        struct.unpack("<d", struct.pack("<Q", 0x7FF8 << 48 | payload))[0] for payload in (0, 5)
    )
    made = [
        declare(code, buffers="in, out", params={"f": f, "d": d})
        for f in (0.0, -0.0, 0, np.float32(0), quiet, other_nan)
        for d in ([quiet, 0.0], [other_nan, 0.0], [other_nan, -0.0], np.array([quiet, 0.0]))
    ]
    for one, other in itertools.combinations(made, 2):
        assert one != other, (one.params, other.params)
    again = declare(code, buffers="in, out", params={"f": quiet, "d": [other_nan, -0.0]})
    assert made.count(again) == 1


def test_shapes_may_be_lists_in_a_tuple() -> None:
    one = declare(PUSHED, buffers="in, out", out_shape=([3, 4],), push=bytes(8))
    assert one == declare(PUSHED, buffers="in, out", out_shape=[(3, 4)], push=bytes(8))


def test_equal_declarations_compare_and_hash_equal() -> None:
    first = declare(constants={1: 2, 0: 64}, buffers="in u4, in u4, out u4")
    listed = [("in", np.uint32), ("in", "u4"), "out uint32"]
    second = declare(bytes(bytearray(ADD)), constants={0: 64, 1: 2}, buffers=listed)
    assert first == second
    assert hash(first) == hash(second)
    assert {first: "found"}[second] == "found"
    assert {copy.deepcopy(first): "found"}[second] == "found"


def shape_of_first(first: tuple[int, ...], _second: tuple[int, ...]) -> tuple[int, ...]:
    return first


@pytest.mark.parametrize(
    "change",
    [
        {"name": "sub"},
        {"constants": {0: 64}},
        {"constants": {1: 1}},
        {"tuning": Tuning(per_invocation=1)},
        {"tuning": Tuning(packed=2)},
        {"tuning": Tuning(in_place=True)},
        {"buffers": "i4, i4, i4"},
        {"buffers": "f4, f4, f4"},
        {"split": "elements"},
        {"grid": (2, 3)},
        {"init": 1},
        {"buffers": ("in", "in", "inout")},
        {"split": "whole", "out_shape": shape_of_first},
        {"buffers": "in, out, out", "code": shader("readonly", "", "writeonly")},
        {"code": shader("readonly", "readonly", "", more=TUNABLE)},
        {"buffers": "in, out, status", "code": shader("", "", "")},
        {"reference": np.add},
        {"reference": Reference(None, at=np.take)},
    ],
    ids=",".join,
)
def test_kernels_with_different_declarations_differ(change: dict[str, Any]) -> None:
    assert declare(**change) != declare()
    assert len({declare(**change), declare(), declare(**change)}) == 2


def test_kernels_with_different_push_bytes_differ() -> None:
    kernels = [declare(PUSHED, buffers="in, out", push=bytes([byte] * 8)) for byte in (0, 1, 0)]
    assert kernels[0] == kernels[2] != kernels[1]


def test_kernels_with_constants_0_and_minus_0_differ() -> None:
    assert declare(constants={2: 0.0}) != declare(constants={2: -0.0})


def test_a_kernel_does_not_equal_other_objects() -> None:
    kernel = declare()
    assert kernel != "add"
    assert kernel != kernel.spirv


def test_an_unpickled_kernel_equals_one_made_in_that_process(tmp_path: Path) -> None:
    (tmp_path / "kernel").write_bytes(pickle.dumps(declare()))
    (tmp_path / "add.spv").write_bytes(ADD)
    program = """
import pickle, pathlib
from gpu_executor.kernel import Kernel
sent = pickle.loads(pathlib.Path("kernel").read_bytes())
made = Kernel.from_spirv("add.spv", buffers="in, in, out")
print(sent == made, hash(sent) == hash(made))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONHASHSEED": "12345"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "True"]


@pytest.mark.parametrize("kind", [Path, str])
def test_a_kernel_from_a_file_is_named_after_it(
    tmp_path: Path, kind: Callable[[Path], str | Path]
) -> None:
    path = tmp_path / "saxpy.spv"
    path.write_bytes(ADD)
    kernel = Kernel.from_spirv(kind(path), buffers="in, in, out")
    assert kernel == declare(name="saxpy")
    assert Kernel.from_spirv(kind(path), buffers="in, in, out", name="add") == declare()


def test_a_kernel_from_bytes_is_named_after_its_digest() -> None:
    kernel = declare(name=None)
    assert kernel.name == f"spirv-{kernel.digest[:8]}"


def test_code_that_is_not_spirv_is_refused() -> None:
    with pytest.raises(SpirvError, match="source text"):
        declare(b"#version 450\nvoid main() {}\n")


def test_calling_a_kernel_says_how_to_run_it() -> None:
    words = r"kernel 'add' cannot be called; run it with an executor: gpu.run\(kernel, ...\)"
    with pytest.raises(NotRunHereError, match=words) as raised:
        declare()(np.zeros(3), np.zeros(3))
    assert isinstance(raised.value, TypeError)
    assert isinstance(raised.value, GpuError)


def test_a_status_word_is_an_additional_binding() -> None:
    kernel = declare(shader("readonly", "readonly", "", ""), "in, in, out, status")
    assert kernel.status
    assert kernel.bindings == 4


def test_a_kernel_need_not_declare_the_element_count() -> None:
    assert declare(NO_PUSH, buffers="in, out").push == b""


def test_the_plan_may_choose_a_constant_that_is_not_fixed() -> None:
    kernel = declare(tuning=Tuning(per_invocation=1), constants={0: 128})
    assert (kernel.per_invocation, kernel.constants) == (1, ((0, 128),))


@pytest.mark.parametrize(
    ("declaration", "words"),
    [
        (
            {"buffers": "out"},
            "'add': buffers lists 1 buffers, but the code has the bindings [0, 1,",
        ),
        ({"buffers": "in, in, in"}, "'add' has no output and no in-out argument"),
        (
            {"buffers": []},
            "'add': buffers lists 0 buffers, but the code has the bindings [0, 1, 2]",
        ),
        ({"buffers": ["u4"] * 4}, "'add': buffers lists 4 buffers, but the code has the bindings"),
        ({"buffers": "u4, u4, u2"}, "'add': buffers has uint16 for binding 2"),
        ({"buffers": ["u4", object, "u4"]}, "buffers has the dtype object; an element is a number"),
        ({"buffers": ["u4", "u4", "S4"]}, "buffers has the dtype |S4; an element is a number, a"),
        (
            {"buffers": [[("a", "M8[s]")], "u4", "u4"]},
            "buffers has the dtype [('a', '<M8[s]')]; an",
        ),
        ({"buffers": ["u4", ("u4", (0,)), "u4"]}, "'add': buffers has the dtype"),
        (
            {"buffers": "in, in, oot"},
            "'add': buffers has 'oot'; a buffer is 'in', 'out' or 'inout'",
        ),
        ({"buffers": "in, in, out,"}, "'add': buffers has ''; a buffer is 'in', 'out' or 'inout'"),
        ({"buffers": "in, in, out (2"}, "'add': buffers has '(2'; a buffer is 'in', 'out' or"),
        ({"buffers": ["in", "in", ["out", "u4"]]}, "'add': buffers has ['out', 'u4']; a buffer is"),
        ({"buffers": ["in", "in", ("out", "inn")]}, "'add': buffers has 'inn'; a buffer is 'in',"),
        ({"buffers": 3}, "'add': buffers is 3; it must be a text such as 'in, in, out', or a list"),
        ({"buffers": {"in": "u4"}}, "'add': buffers is {'in': 'u4'}; it must be a text such as"),
        ({"buffers": "in, status, out"}, "a scratch buffer and a status word are the last of them"),
        ({"buffers": ["out", "status", ("scratch", len)]}, "are the last of them, in this order"),
        ({"buffers": "in, out, scratch"}, "'add': buffers has a scratch buffer with None; give"),
        ({"buffers": "in, out, scratch u4"}, "'add': buffers has a scratch buffer with 'u4'; give"),
        (
            {"buffers": "in, out, status u4"},
            "'add': the status word of buffers has the dtype 'u4'; it has",
        ),
        ({"split": "element"}, "'add': split is 'element'; it must be 'elements' or 'whole'"),
        ({"split": None}, "'add': split is None; it must be 'elements' or 'whole'"),
        (
            {"out_shape": shape_of_first, "split": "elements"},
            "'add' has split='elements', so its outputs have its inputs'",
        ),
        ({"out_shape": shape_of_first, "split": "elements"}, "drop out_shape"),
        ({"grid": (1,), "split": "elements"}, "drop grid or give split='whole'"),
        (
            {"buffers": "in, in, out, status"},
            "lists 4 buffers, but the code has the bindings [0, 1",
        ),
        ({"code": LAST_READ_ONLY}, "'add': binding 2 (B2) is declared as an output, but it is"),
        ({"code": LAST_READ_ONLY, "buffers": "in, out, status"}, "2, the status word, is readonly"),
        (ONE_TO_ONE | {"push": bytes(12)}, "count and push (12 bytes) make 16"),
        (ONE_TO_ONE | {"params": {"c": 1}}, "add: the kernel's default params has 'c'; the param"),
        (ONE_TO_ONE | {"params": (1, 2, 3)}, "has 3 values; the parameters are 'a', 'b'"),
        (
            {"code": shader("", push="float a;"), "buffers": "out", "count": True},
            "count=True, but its",
        ),
        ({"grid": (1, 0)}, "'add': grid is (1, 0); it must be one to three numbers of work-groups"),
        ({"grid": (1, 1, 1, 1)}, "'add': grid is (1, 1, 1, 1); it must be one to three numbers"),
        ({"init": -1}, "'add': init is -1, which does not fit uint32"),
        ({"init": 0.5}, "'add': init is 0.5, which does not fit uint32"),
        ({"init": [0, 0]}, "'add': init lists 2 values for 1 outputs"),
        (ONE_TO_ONE | {"push": bytes(7)}, "'add': push has 7 bytes; it must be a multiple of 4"),
        (ONE_TO_ONE | {"code": NO_PUSH, "push": bytes(4)}, "declares 0 bytes of push constants"),
        ({"constants": {1: 1, 7: 1}}, "'add': constants sets id 7, but the code has the ids [0, 1"),
        ({"work_group": 0}, "'add': work_group is 0; it must be a whole number of invocations"),
        ({"work_group": -64}, "'add': work_group is -64; it must be a whole number"),
        ({"work_group": 64.0}, "'add': work_group is 64.0; it must be a whole number"),
        ({"tuning": Tuning(9)}, "'add': per_invocation of tuning is constant 9; it must be an int"),
        ({"tuning": Tuning(1), "constants": {1: 4}}, "nor the work-group size sets: []"),
        ({"tuning": Tuning(0)}, "'add': per_invocation of tuning is constant 0"),
        ({"tuning": Tuning(3)}, "'add': per_invocation of tuning is constant 3"),
        (
            {"tuning": {"packed": 2}},
            "'add': tuning is {'packed': 2}; it must be a gx.Tuning or None",
        ),
        (
            {"tuning": Tuning(packed=0)},
            "'add': packed of tuning is 0; it must be a whole number of",
        ),
        (
            {"tuning": make_tuning(packed=True)},
            "'add': packed of tuning is True; it must be a whole",
        ),
        ({"tuning": make_tuning(per_invocation=1.0)}, "'add': per_invocation of tuning is 1.0; it"),
        (
            {"tuning": make_tuning(per_invocation=True)},
            "'add': per_invocation of tuning is True; it",
        ),
        ({"tuning": make_tuning(in_place=1)}, "'add': in_place of tuning is 1; it must be True or"),
        (
            ONE_TO_ONE | {"push": [1, 2]},
            "'add': push is [1, 2]; it must be bytes, a function of the",
        ),
        (ONE_TO_ONE | {"push": (bytes(4), 5)}, "5); it must be bytes, a function of the shapes"),
        (ONE_TO_ONE | {"push": (max, bytes(4))}, "); it must be bytes, a function of the shapes"),
        ({"reference": 5}, "'add': reference is 5; it must be a function or None"),
        ({"reference": make_reference(5)}, "'add': reference is 5; it must be a function or None"),
        (
            {"reference": make_reference(None, "f")},
            "'add': at of reference is 'f'; it must be a function",
        ),
    ],
)
def test_an_invalid_declaration_is_refused_with_the_reason(
    declaration: dict[str, Any], words: str
) -> None:
    with pytest.raises(GpuError, match=re.escape(words)) as raised:
        declare(**declaration)
    assert isinstance(raised.value, KernelError)
    assert isinstance(raised.value, ValueError)


REMOVED = {
    "access": 'give buffers=["in", "out", ...]',
    "inputs": 'give buffers="in, out"',
    "outputs": 'give buffers="in, out"',
    "dtypes": 'give buffers=["u4", ...], or with the access buffers=[("in", "u4"), ...]',
    "push_of": "give push=function, or push=(bytes, function)",
    "data": "give push=bytes",
    "status": 'give "status" as the last entry of buffers=',
    "scratch": 'give ("scratch", function) behind the arguments in buffers=',
    "per_invocation": "give tuning=gx.Tuning(per_invocation=...)",
    "packed": "give tuning=gx.Tuning(per_invocation=..., packed=...)",
    "in_place": "give tuning=gx.Tuning(in_place=True)",
    "reference_at": "give reference=gx.Reference(function, at=...)",
    "param_types": 'give params={"factor": "f32", ...}',
}


@pytest.mark.parametrize("removed", REMOVED)
def test_a_removed_keyword_is_an_error_that_says_the_new_form(removed: str) -> None:
    old: dict[str, Any] = {removed: None}
    for constructor in (Kernel.from_spirv, Kernel.from_glsl, Kernel.from_wgsl):
        words = f"Kernel.{constructor.__name__} has no {removed}=; {REMOVED[removed]}"
        with pytest.raises(ArgumentTypeError, match=re.escape(words)):
            constructor("", **old)


def test_buffers_that_are_none_are_as_the_code_says() -> None:
    code = shader("readonly", "writeonly", "", "")
    kernel = declare(code, [None, ("out", None), ("scratch", max), "status"])
    assert [each.access for each in kernel.arguments] == ["in", "out"]
    assert (kernel.scratch, kernel.status, kernel.bindings) == (max, True, 4)


def test_the_bytes_and_the_function_of_push_are_given_together() -> None:
    given: dict[Any, Any] = {
        bytes(4): (bytes(4), None),
        shape_of_first: (b"", shape_of_first),
        (bytes(4), shape_of_first): (bytes(4), shape_of_first),
    }
    for push, expected in given.items():
        kernel = declare(PUSHED, "in, out", push=push)
        assert (kernel.push, kernel.push_of) == expected


@pytest.mark.parametrize(
    ("buffers", "words"),
    [
        ("in, out", "entry 0 of buffers has no dtype; a kernel of WGSL declares both"),
        ("in u4, u4", "entry 1 of buffers has no access; a kernel of WGSL declares both"),
        (None, "buffers is None; WGSL needs them"),
    ],
)
def test_a_wgsl_kernel_declares_every_access_and_dtype(buffers: Any, words: str) -> None:
    with pytest.raises(KernelError, match=f"kernel 'k': {words}"):
        Kernel.from_wgsl("", buffers=buffers, name="k")


@pytest.mark.parametrize("work_group", [0, -1, "64"])
def test_a_wgsl_kernel_refuses_a_work_group_size_below_1(work_group: Any) -> None:
    with pytest.raises(KernelError, match=f"'k': work_group is {work_group!r}; it must be"):
        Kernel.from_wgsl("", buffers="in u4, out u4", name="k", work_group=work_group)


@pytest.mark.parametrize(
    ("spec_id", "value", "words"),
    [
        (1, -1, "constant 1 is a 32-bit uint: found int -1; give an int in 0 .. 4294967295"),
        (1, 1 << 32, "found int 4294967296; give an int in 0 .. 4294967295"),
        (1, 1.5, "found float 1.5; give an int"),
        (1, True, "found bool True; give an int"),
        (2, 1e40, "constant 2 is a 32-bit float: found float 1e+40; give a number"),
        (2, "1", "found str; give a number in the range of a 32-bit float"),
        (3, 1, "constant 3 is a 32-bit bool: found int 1; give True or False"),
    ],
)
def test_a_constant_that_does_not_fit_its_type_is_refused(
    spec_id: int, value: Any, words: str
) -> None:
    with pytest.raises(SpirvError, match=re.escape(words)):
        declare(constants={spec_id: value})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "#version 450\nvoid main() {}",
            r"code_or_path is a text; .* Kernel.from_glsl compiles GLSL",
        ),
        ("missing.spv", "code_or_path is 'missing.spv', a path that cannot be read"),
        (Path("/"), "code_or_path is '/', a path that cannot be read"),
        (5, "code_or_path is a int; SPIR-V is given as bytes or as the path of a file"),
    ],
)
def test_what_is_no_spirv_is_refused(code: Any, words: str) -> None:
    with pytest.raises(KernelError, match=words):
        Kernel.from_spirv(code)


def test_a_kernel_is_shown_with_its_arguments() -> None:
    kernel = kernels.load("vector_add_u32")
    assert repr(kernel) == (
        "<Kernel vector_add_u32: binding 0 (uint32, in), binding 1 (uint32, in), "
        "binding 2 (uint32, out)>"
    )
