"""Checked calls: the arrays that a kernel accepts, the shapes of its results, and the errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.calls.arguments import describe
from gpu_executor.calls.call import Array, Call, Operand, SignatureCache, as_arrays, check
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError, KernelError
from gpu_executor.kernel import ElementType, Kernel
from gpu_executor.kernel.arguments import declare_buffers
from tests.support.glsl import shader

LIMBS = ("u8", (6,))


def declare(
    inputs: int = 2, outputs: int = 1, dtypes: Sequence[Any] | None = None, **more: Any
) -> Kernel:
    code = shader(*[""] * (inputs + outputs))
    buffers = declare_buffers(inputs, dtypes or [None] * (inputs + outputs))
    more = {"split": "elements"} | more
    return Kernel.from_spirv(code, buffers=buffers, name="k", **more)


ANY = declare()
UINTS = declare(dtypes=["u4"] * 3)
FIELD = declare(dtypes=[LIMBS] * 3)
TO_FLAGS = declare(dtypes=[LIMBS, "u4", "i4"])


def uints(*shape: int) -> Array:
    return np.arange(np.prod(shape, dtype=int), dtype=np.uint32).reshape(shape)


def limbs(*shape: int) -> Array:
    return np.zeros((*shape, 6), np.uint64)


def declare_whole(out_shape: Callable[..., Any] | None, outputs: int = 1, **more: Any) -> Kernel:
    return declare(1, outputs, split="whole", out_shape=out_shape, **more)


def make_call(kernel: Kernel, *arrays: Array) -> Call:
    """The call, with its outputs allocated."""
    call = check(kernel, arrays).make_call(arrays)
    call.make_outputs()
    return call


def get_refusal(kind: type[GpuError], kernel: Any, *arrays: Any) -> str:
    with pytest.raises(kind) as raised:
        check(kernel, arrays)
    return re.sub(r" \(B\d\)", "", str(raised.value))  # without the names of blocks


@pytest.mark.parametrize("given", [0, 1, 3])
def test_the_number_of_arrays_is_the_kernels(given: int) -> None:
    words = get_refusal(ArgumentTypeError, UINTS, *[uints(4)] * given)
    taken = "B0 (uint32, in), B1 (uint32, in)"
    assert words == f"k takes 2 arrays and got {given}; it takes {taken}"


@pytest.mark.parametrize("other", [[1, 2], 3, None, "ab", np.uint32(3), memoryview(b"abcd")])
@pytest.mark.parametrize("kernel", [ANY, UINTS])
def test_an_argument_that_is_no_array_is_refused(kernel: Kernel, other: object) -> None:
    words = get_refusal(ArgumentTypeError, kernel, uints(2), other)
    assert words == f"k: argument 1 is {describe(other)}; it takes a NumPy array"


def test_an_import_is_refused_and_its_array_is_named() -> None:
    with gx.CpuBackend() as backend, backend.import_array(uints(2)) as imported:
        words = get_refusal(ArgumentTypeError, UINTS, uints(2), imported)
    assert words == "k: argument 1 is a UsedInPlace; it takes a NumPy array: pass its .array"


@pytest.mark.parametrize("kernel", [ANY, UINTS])
def test_a_masked_array_is_refused(kernel: Kernel) -> None:
    words = get_refusal(
        ArgumentTypeError, kernel, uints(2), np.ma.MaskedArray(uints(2), [True, False])
    )
    assert words == (
        "k: argument 1 is a masked array, and kernels ignore masks; pass its .data, or "
        ".filled(value)"
    )


def test_a_device_array_is_refused_by_backends_that_cannot_use_it(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    arrays = uints(2), gpu.to_device(uints(2))
    assert check(UINTS, arrays).count == 2
    with pytest.raises(ArgumentTypeError) as raised:
        check(UINTS, arrays, on_device=False)
    assert str(raised.value) == (
        "k: argument 1 is a device array, which this backend cannot use; copy it to the host with "
        ".numpy()"
    )


@pytest.mark.parametrize("other", [np.zeros(3), "bls12_381_fq_add", None])
def test_the_first_argument_is_a_kernel(other: object) -> None:
    words = get_refusal(ArgumentTypeError, other, uints(2), uints(2))
    assert words == (
        f"the first argument is {describe(other)}, not a Kernel; load one with "
        "gx.kernels.load(name) or make one with gx.Kernel.from_glsl(text)"
    )


@pytest.mark.parametrize("dtype", ["i4", "u8", "f4", "?", "O", "S4", "M8[s]"])
def test_an_array_of_another_dtype_is_refused(dtype: Any) -> None:
    words = get_refusal(ArgumentTypeError, UINTS, uints(3), np.zeros(3, dtype))
    assert words == (
        f"k: argument 1 has dtype {np.dtype(dtype)}; it takes uint32 "
        "(convert with .astype(np.uint32))"
    )


def test_a_device_array_of_another_dtype_is_converted_on_the_host() -> None:
    with gx.CpuBackend() as backend:
        words = get_refusal(ArgumentTypeError, UINTS, uints(3), backend.to_device(np.zeros(3)))
    assert words == (
        "k: argument 1 has dtype float64; it takes uint32 "
        "(convert with gpu.to_device(array.numpy().astype(np.uint32)))"
    )


@pytest.mark.parametrize("dtype", ["O", "S4", "U2", "M8[s]", "m8[s]", "V4", [("a", "u4")]])
def test_arrays_of_no_numbers_are_refused_also_without_dtypes(dtype: Any) -> None:
    words = get_refusal(ArgumentTypeError, ANY, np.zeros(3, dtype), uints(3))
    assert words.startswith("k: argument 0 has dtype ")
    assert "; it takes uint32 (convert" in words


def test_numpy_string_arrays_are_refused() -> None:
    strings = np.array(["a", "b"], np.dtypes.StringDType())
    words = get_refusal(ArgumentTypeError, UINTS, strings, uints(2))
    assert words.startswith("k: argument 0 has dtype StringDType()")


def test_big_endian_arrays_are_accepted_and_results_are_native() -> None:
    for kernel in (UINTS, ANY):
        call = make_call(kernel, uints(3).astype(">u4"), uints(3))
        assert call.results[0].dtype == np.dtype("=u4")
        assert [operand.type.dtype for operand in call.signature.operands] == [np.dtype("=u4")] * 3
        assert call.inputs[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("shape", [(), (5,), (7, 5), (6, 1), (6, 7), (3, 6, 4), (0, 4)])
def test_trailing_axes_that_are_not_the_elements_are_refused(shape: tuple[int, ...]) -> None:
    words = get_refusal(ArgumentShapeError, FIELD, limbs(7), np.zeros(shape, np.uint64))
    assert words == f"k: argument 1 has shape {shape}; it takes (n, 6)"


@pytest.mark.parametrize("kernel", [UINTS, ANY])
def test_elements_in_unequal_shapes_are_refused(kernel: Kernel) -> None:
    for shape in ((5,), (6,), (3, 2), (2, 3, 1)):
        words = get_refusal(ArgumentShapeError, kernel, uints(2, 3), uints(*shape))
        assert words == (
            f"k: argument 1 has elements in shape {shape} and argument 0 in shape (2, 3); they "
            "must be equal"
        )


def list_shapes(call: Call) -> list[tuple[int, ...]]:
    return [array.shape for array in (*call.inputs, *call.outputs)]


@given(st.lists(st.integers(0, 4), max_size=4).map(tuple))
def test_leading_axes_are_flattened_and_come_back_in_the_result(shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape, dtype=int))
    call = make_call(FIELD, limbs(*shape), limbs(*shape))
    assert call.signature.count == count
    assert list_shapes(call) == [(count, 6)] * 3
    assert call.result().shape == (*shape, 6)
    for kernel in (UINTS, ANY):
        call = make_call(kernel, uints(*shape), uints(*shape))
        assert list_shapes(call) == [(count,)] * 3
        assert call.result().shape == shape


@given(st.lists(st.integers(1, 4), max_size=3).map(tuple))
def test_outputs_and_results_share_memory(shape: tuple[int, ...]) -> None:
    for kernel, array in ((FIELD, limbs(*shape)), (ANY, uints(*shape))):
        call = make_call(kernel, array, array)
        call.outputs[0][:] = np.arange(call.outputs[0].size).reshape(call.outputs[0].shape)
        assert call.result().ravel().tolist() == list(range(call.result().size))


def test_a_single_element_has_no_leading_axis() -> None:
    call = make_call(FIELD, limbs(), limbs())
    assert call.signature.count == 1
    assert call.result().shape == (6,)
    assert make_call(ANY, uints(), uints()).result().shape == ()


def test_inputs_and_outputs_may_be_of_different_types() -> None:
    call = make_call(TO_FLAGS, limbs(2, 4), uints(2, 4))
    assert (call.result().dtype, call.result().shape) == (np.int32, (2, 4))
    assert call.signature.operands == (
        Operand(ElementType(np.dtype("u8"), (6,)), 8),
        Operand(ElementType(np.dtype("u4")), 8),
        Operand(ElementType(np.dtype("i4")), 8, False, True),
    )
    assert [operand.nbytes for operand in call.signature.operands] == [384, 32, 32]


def test_empty_arrays_are_accepted() -> None:
    for kernel, array in ((FIELD, limbs(0)), (FIELD, limbs(3, 0)), (ANY, uints(0))):
        call = make_call(kernel, array, array)
        assert call.signature.count == 0
        assert call.result().shape == array.shape


def test_strided_and_read_only_arrays_are_not_copied() -> None:
    strided = uints(12)[::-2]
    strided.flags.writeable = False
    assert all(found is strided for found in make_call(ANY, strided, strided).inputs)
    across = uints(4, 6).T[::2]
    assert make_call(UINTS, across, across).inputs[0].tolist() == across.ravel().tolist()


def test_outputs_have_the_codes_types_and_the_shape_of_the_first_input() -> None:
    first, second = make_call(declare(2, 2), uints(2, 3).astype(">u4"), uints(2, 3)).result()
    assert [(array.dtype, array.shape) for array in (first, second)] == [("=u4", (2, 3))] * 2
    assert not np.shares_memory(first, second)


def test_results_are_new_arrays() -> None:
    a = uints(5)
    assert not np.shares_memory(make_call(UINTS, a, a).result(), a)


def test_a_whole_kernel_without_out_shape_has_results_like_the_first_input() -> None:
    call = make_call(declare(split="whole"), uints(2, 3), uints(4))
    assert list_shapes(call) == [(6,), (4,), (6,)]
    assert call.result().shape == (2, 3)


@pytest.mark.parametrize("asked", [7, (7,), [7], [(7,)], np.int64(7)], ids=repr)
def test_out_shape_may_be_a_number_a_shape_or_a_list(asked: Any) -> None:
    call = make_call(declare_whole(lambda _shape: asked), uints(3))
    assert call.result().shape == (7,)
    assert call.result().dtype == np.uint32


def test_out_shape_gets_the_shapes_of_the_inputs() -> None:
    product = declare(split="whole", out_shape=lambda a, b: (a[0], b[1]))
    call = make_call(product, uints(2, 3), uints(3, 5))
    assert call.result().shape == (2, 5)
    assert list_shapes(call) == [(6,), (15,), (10,)]


@pytest.mark.parametrize("name", ["out_shape", "grid", "push"])
def test_errors_of_declared_functions_name_the_function(name: str) -> None:
    function: dict[str, Any] = {name: lambda a, b: a[7]}
    kernel = declare(split="whole", **function)
    words = f"kernel 'k': its function {name} raised IndexError: tuple index out of range"
    given = rf"it was called with the shapes of the passed arrays: {name}\(\(2, 3\), \(6,\)\)"
    with pytest.raises(KernelError, match=f"{words}; {given}") as raised:
        make_call(kernel, uints(2, 3), uints(6))
    assert isinstance(raised.value.__cause__, IndexError)


def test_out_shape_gives_one_shape_for_each_output() -> None:
    kernel = declare_whole(lambda shape: [shape, (2, 6)], outputs=2, dtypes=["u4", "f4", LIMBS])
    first, second = make_call(kernel, uints(3, 4)).result()
    assert (first.dtype, first.shape) == (np.float32, (3, 4))
    assert (second.dtype, second.shape) == (np.uint64, (2, 6))


@pytest.mark.parametrize(
    ("asked", "outputs", "words"),
    [
        ([(3,), (4,)], 1, "k: out_shape is 2 shapes for 1 outputs"),
        ([(3,)], 2, "k: out_shape is 1 shapes for 2 outputs"),
        ((3, 4, 5), 2, "k: out_shape is 3 shapes for 2 outputs"),
        ((0, 6), 1, "k: out_shape is (0, 6); every axis must be at least 1"),
        ((2, 5), 1, "k: out_shape is (2, 5); its last axes must be (6,)"),
        ((), 1, "k: out_shape is (); its last axes must be (6,)"),
        ((-1, 6), 1, "k: out_shape is (-1, 6)"),
        (None, 1, "k: out_shape is None"),
        (3, 2, "k: out_shape is"),
    ],
)
def test_out_shape_that_does_not_fit_is_refused(asked: Any, outputs: int, words: str) -> None:
    kernel = declare_whole(lambda _shape: asked, outputs, dtypes=["u4"] + [LIMBS] * outputs)
    with pytest.raises(ArgumentShapeError, match=re.escape(words)):
        check(kernel, (uints(3),))


@pytest.mark.parametrize(
    ("fits", "others"),
    [
        ((2, 3), [[2, 3], (2.0, 3), (2, 3.0), np.array([2.0, 3.0]), {2: 0, 3: 0}, {2, 3}, "23"]),
        (1, [1.0, (1.0,), np.float32(1), 1 + 0j, np.array(1), {1}, frozenset({1})]),
        (np.array([2, 3]), [[2, 3], (2.0, 3.0)]),
        ([(2, 3)], [[2, 3], [(2.0, 3)]]),
    ],
    ids=repr,
)
def test_what_is_no_shape_is_refused_after_a_shape_that_it_is_equal_to(
    fits: Any, others: list[Any]
) -> None:
    cache, kernel = SignatureCache(), declare_whole(None)
    known = cache.get(kernel, (uints(3),), fits)
    for other in others:
        with pytest.raises(ArgumentShapeError, match="k: out_shape is"):
            cache.get(kernel, (uints(3),), other)
    assert cache.get(kernel, (uints(3),), fits) is known


def test_out_shape_with_two_negative_numbers_is_refused_too() -> None:
    words = get_refusal(ArgumentShapeError, declare_whole(lambda _shape: (-2, -3)), uints(3))
    assert words.startswith("k: out_shape is (-2, -3)")


@pytest.mark.parametrize("words", [[-1], [1.5], [1 << 32], [None], 7, None, "ab"], ids=repr)
def test_a_function_of_push_that_does_not_return_32_bit_words_is_refused(words: Any) -> None:
    code = shader("", "", push="uint count; uint a;")
    kernel = Kernel.from_spirv(code, buffers="in, out", push=lambda _shape: words, name="k")
    message = get_refusal(KernelError, kernel, uints(3))
    assert message == (
        f"kernel 'k': its function push returned {words!r}; it must return a sequence of whole "
        "numbers from 0 to 2^32 - 1"
    )


def test_a_function_of_push_may_return_numpy_integers() -> None:
    code = shader("", "", push="uint count; uint a; uint b;")
    for words in (np.array([7, 9]), (np.uint32(7), 9), iter([7, 9])):
        kernel = Kernel.from_spirv(code, buffers="in, out", push=lambda _shape, words=words: words)
        assert check(kernel, (uints(3),)).shape_words == bytes([7, 0, 0, 0, 9, 0, 0, 0])


def test_an_out_with_several_leading_axes_must_be_contiguous() -> None:
    with gx.CpuBackend() as backend:
        kernel = gx.kernels.load("vector_add_u32")
        x, out = uints(6).reshape(2, 3), np.zeros((2, 7), np.uint32)
        words = r"out 0 has shape \(2, 3\) and strides \(28, 8\); .* must be contiguous: pass a con"
        with pytest.raises(ArgumentShapeError, match=words):
            backend.run(kernel, x, x, out=out[:, :6:2])
        backend.run(kernel, x[0], x[1], out=out[0, :6:2])
    assert out.tolist() == [[3, 0, 5, 0, 7, 0, 0], [0] * 7]


def test_an_integer_that_no_dtype_holds_is_named_as_such() -> None:
    with pytest.raises(ArgumentTypeError, match="a list with a value that uint32 cannot hold"):
        as_arrays(UINTS, ([1 << 64], [1]))


@pytest.mark.parametrize("empty", [0, 1])
def test_a_whole_kernel_refuses_empty_arrays(empty: int) -> None:
    arrays = [uints(0 if at == empty else 3) for at in range(2)]
    words = get_refusal(ArgumentShapeError, declare(split="whole"), *arrays)
    assert words == (
        f"k: argument {empty} is empty; a kernel with split='whole' needs at least one element: "
        "do not call it for empty arrays"
    )


def test_calls_of_equal_dtypes_and_shapes_have_equal_signatures() -> None:
    big_endian = uints(6).astype(">u4")
    for kernel in (UINTS, ANY):
        signature = check(kernel, (uints(6), uints(6)))
        assert signature == check(kernel, (big_endian, uints(12)[::2]))
        assert hash(signature) == hash(check(kernel, (big_endian, uints(12)[::2])))
        assert signature != check(kernel, (uints(5), uints(5)))
        assert signature != check(kernel, (uints(2, 3), uints(2, 3)))
    whole = declare(split="whole")
    assert check(whole, (uints(6), uints(6))) != check(whole, (uints(6), uints(5)))
    assert check(ANY, (uints(6), uints(6))) != check(whole, (uints(6), uints(6)))
