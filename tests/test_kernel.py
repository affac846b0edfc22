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
from gpu_executor.errors import GpuError, KernelError, NotRunHereError, SpirvError
from gpu_executor.kernel import ElementType, Kernel
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
ONE_TO_ONE = {"code": PUSHED, "inputs": 1}


def declare(
    code: bytes = ADD,
    inputs: int | None = 2,
    outputs: int | None = 1,
    name: str | None = "add",
    **more: Any,
) -> Kernel:
    return Kernel.from_spirv(code, inputs=inputs, outputs=outputs, name=name, **more)


def test_a_kernel_has_its_declaration_as_attributes() -> None:
    kernel = declare(dtypes=[("u8", (6,)), "f4", "i8"], constants={2: 0.5, 0: 64}, reference=np.add)
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
    assert declare(dtypes=[">u4"] * 3) == declare(dtypes=["u4"] * 3)


def test_a_kernel_is_immutable() -> None:
    kernel = declare()
    with pytest.raises(dataclasses.FrozenInstanceError):
        kernel.name = "sub"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del kernel.push


def test_a_kernel_copies_mutable_arguments() -> None:
    constants, push = {0: 32}, bytearray(8)
    kernel = declare(PUSHED, inputs=1, constants=constants, push=push)
    constants[0], push[0] = 64, 1
    assert kernel.constants == ((0, 32),)
    assert kernel.push == bytes(8)


def test_default_parameters_are_copied_and_compared_exactly() -> None:
    """The texts of these arrays are equal: NumPy prints eight digits, and few of many numbers."""
    code = shader("", "", push="uint count; float f[20]; double d[2];")
    f, d = np.zeros(20, np.float32), np.array([0.1, 0.2])
    kernel = declare(code, inputs=1, params={"f": f, "d": d})
    d[1] += 1e-12
    other = declare(code, inputs=1, params={"f": f, "d": d})
    assert kernel != other
    assert kernel == declare(code, inputs=1, params={"f": f, "d": np.array([0.1, 0.2])})
    assert dict(kernel.params)["d"].tolist() == [0.1, 0.2]


def test_default_parameters_are_compared_by_their_bits() -> None:
    code = shader("", "", push="uint count; float f; double d[2];")
    quiet, other_nan = (
        struct.unpack("<d", struct.pack("<Q", 0x7FF8 << 48 | payload))[0] for payload in (0, 5)
    )
    made = [
        declare(code, inputs=1, params={"f": f, "d": d})
        for f in (0.0, -0.0, 0, np.float32(0), quiet, other_nan)
        for d in ([quiet, 0.0], [other_nan, 0.0], [other_nan, -0.0], np.array([quiet, 0.0]))
    ]
    for one, other in itertools.combinations(made, 2):
        assert one != other, (one.params, other.params)
    again = declare(code, inputs=1, params={"f": quiet, "d": [other_nan, -0.0]})
    assert made.count(again) == 1


def test_shapes_may_be_lists_in_a_tuple() -> None:
    one = declare(PUSHED, inputs=1, out_shape=([3, 4],), push=bytes(8))
    assert one == declare(PUSHED, inputs=1, out_shape=[(3, 4)], push=bytes(8))


def test_equal_declarations_compare_and_hash_equal() -> None:
    first = declare(constants={1: 2, 0: 64}, dtypes=["u4"] * 3)
    second = declare(bytes(bytearray(ADD)), constants={0: 64, 1: 2}, dtypes=[np.uint32] * 3)
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
        {"per_invocation": 1},
        {"dtypes": ["i4"] * 3},
        {"dtypes": ["f4"] * 3},
        {"split": "elements"},
        {"grid": (2, 3)},
        {"init": 1},
        {"access": ("in", "in", "inout"), "inputs": None, "outputs": None},
        {"split": "whole", "out_shape": shape_of_first},
        {"inputs": 1, "outputs": 2, "code": shader("readonly", "", "writeonly")},
        {"code": shader("readonly", "readonly", "", more=TUNABLE)},
        {"inputs": 1, "status": True, "code": shader("", "", "")},
        {"reference": np.add},
    ],
    ids=",".join,
)
def test_kernels_with_different_declarations_differ(change: dict[str, Any]) -> None:
    assert declare(**change) != declare()
    assert len({declare(**change), declare(), declare(**change)}) == 2


def test_kernels_with_different_push_bytes_differ() -> None:
    kernels = [declare(PUSHED, inputs=1, push=bytes([byte] * 8)) for byte in (0, 1, 0)]
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
made = Kernel.from_spirv("add.spv", inputs=2, outputs=1)
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
    kernel = Kernel.from_spirv(kind(path), inputs=2, outputs=1)
    assert kernel == declare(name="saxpy")
    assert Kernel.from_spirv(kind(path), inputs=2, outputs=1, name="add") == declare()


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
    kernel = declare(shader("readonly", "readonly", "", ""), status=True)
    assert kernel.status
    assert kernel.bindings == 4


def test_a_kernel_need_not_declare_the_element_count() -> None:
    assert declare(NO_PUSH, inputs=1).push == b""


def test_the_plan_may_choose_a_constant_that_is_not_fixed() -> None:
    kernel = declare(per_invocation=1, constants={0: 128})
    assert (kernel.per_invocation, kernel.constants) == (1, ((0, 128),))


@pytest.mark.parametrize(
    ("declaration", "words"),
    [
        ({"inputs": 0}, "'add': the declaration has 1 arguments, but the code has the bindings"),
        ({"inputs": 3, "outputs": 0}, "'add' has no output and no in-out argument"),
        ({"inputs": -1, "outputs": 4}, "has -1 inputs and 4 outputs"),
        ({"access": ("in",) * 3}, "'add': give access= or inputs= and outputs=, not both"),
        ({"dtypes": []}, "'add': dtypes lists 0 types for 3 arguments"),
        ({"dtypes": ["u4"] * 4}, "'add': dtypes lists 4 types for 3 arguments"),
        ({"dtypes": ["u4", "u4", "u2"]}, "'add': dtypes has uint16 for binding 2"),
        ({"dtypes": ["u4", object, "u4"]}, "dtypes has object; an element is a number, a struct"),
        ({"dtypes": ["u4", "u4", "S4"]}, "dtypes has |S4; an element is a number, a struct of"),
        ({"dtypes": [[("a", "M8[s]")], "u4", "u4"]}, "dtypes has [('a', '<M8[s]')]; an element is"),
        ({"dtypes": ["u4", ("u4", (0,)), "u4"]}, "dtypes has"),
        ({"split": "element"}, "'add': split is 'element'; it must be 'elements' or 'whole'"),
        ({"split": None}, "'add': split is None; it must be 'elements' or 'whole'"),
        (
            {"out_shape": shape_of_first, "split": "elements"},
            "'add' has split='elements', so its outputs have its inputs'",
        ),
        ({"out_shape": shape_of_first, "split": "elements"}, "drop out_shape"),
        ({"grid": (1,), "split": "elements"}, "drop grid or give split='whole'"),
        ({"inputs": 3}, "'add': the declaration has 4 arguments, but the code has the bindings"),
        ({"inputs": 1}, "has 2 arguments, but the code has the bindings [0, 1, 2]"),
        ({"status": True}, "has 3 arguments, but the code has the bindings [0, 1]"),
        ({"code": LAST_READ_ONLY}, "'add': binding 2 (B2) is declared as an output, but it is"),
        ({"code": LAST_READ_ONLY, "inputs": 1, "status": True}, "2, the status word, is readonly"),
        (ONE_TO_ONE | {"push": bytes(12)}, "count and push (12 bytes) make 16"),
        (ONE_TO_ONE | {"params": {"c": 1}}, "add: the kernel's default params has 'c'; the param"),
        (ONE_TO_ONE | {"params": (1, 2, 3)}, "has 3 values; the parameters are 'a', 'b'"),
        ({"code": shader("", push="float a;"), "inputs": 0, "count": True}, "count=True, but its"),
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
        ({"per_invocation": 9}, "'add': per_invocation is constant 9; it must be an integer"),
        ({"per_invocation": 1, "constants": {1: 4}}, "nor the work-group size sets: []"),
        ({"per_invocation": 0}, "'add': per_invocation is constant 0"),
        ({"per_invocation": 3}, "'add': per_invocation is constant 3"),
        ({"reference": 5}, "'add': reference is 5; it must be a function or None"),
        ({"reference_at": "f"}, "'add': reference_at is 'f'; it must be a function or None"),
    ],
)
def test_an_invalid_declaration_is_refused_with_the_reason(
    declaration: dict[str, Any], words: str
) -> None:
    with pytest.raises(GpuError, match=re.escape(words)) as raised:
        declare(**declaration)
    assert isinstance(raised.value, KernelError)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("work_group", [0, -1, "64"])
def test_a_wgsl_kernel_refuses_a_work_group_size_below_1(work_group: Any) -> None:
    with pytest.raises(KernelError, match=f"'k': work_group is {work_group!r}; it must be"):
        Kernel.from_wgsl(
            "", inputs=1, outputs=1, dtypes=["u4"] * 2, name="k", work_group=work_group
        )


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
