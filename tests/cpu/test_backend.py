"""CpuBackend: every named kernel against the field oracle, on arrays of every layout."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_executor import CpuBackend, Kernel, open_backend
from gpu_executor.cpu import field_oracle
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ElementRangeError,
    KernelError,
    SettingsError,
)
from gpu_executor.kernels import load, names
from gpu_executor.kernels.catalogue import field_kernel, mont_mul_chain_kernel, split_field_name
from gpu_executor.primes import NAMED, Prime, words
from tests.support.contract_kernels import (
    PARTICLE,
    RENAMED_PARTICLE,
    expect_step,
    make_particles,
    move,
    ramp,
    reverse,
    scale,
    step,
)
from tests.support.glsl import shader

Array = npt.NDArray[Any]
Exact = Callable[[Prime, list[int], list[int]], list[int]]

EXACT: dict[str, Exact] = {
    "add": field_oracle.add,
    "sub": field_oracle.sub,
    "mont_mul": field_oracle.mont_mul,
}
FIELD_NAMES = [f"{field}_{operation}" for field in NAMED for operation in EXACT]
FQ = NAMED["bls12_381_fq"]
SMALL = Prime("2^31-1", 2**31 - 1)
on_every_field_kernel = pytest.mark.parametrize("name", FIELD_NAMES)


def elements(prime: Prime) -> st.SearchStrategy[int]:
    p = prime.modulus
    edges = st.sampled_from([0, 1, p // 2, p // 2 + 1, p - 1, prime.r_mod_p])
    return edges | st.integers(0, p - 1)


def fq(*values: int) -> Array:
    return words.from_ints(FQ, values)


def test_every_named_kernel_is_tested_here() -> None:
    # conformance/test_kernels.py tests the whole kernels.
    elementwise = {name for name in names() if load(name).split == "elements"}
    assert elementwise == {"vector_add_u32", "vector_add_f32", *FIELD_NAMES}


@pytest.mark.parametrize("field", NAMED)
@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_field_kernels_against_exact_integers(field: str, data: st.DataObject) -> None:
    prime = NAMED[field]
    # Drawing takes longer than computing, so all operations share the pairs.
    pairs = data.draw(st.lists(st.tuples(elements(prime), elements(prime)), max_size=12))
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    a, b = words.from_ints(prime, xs), words.from_ints(prime, ys)
    for operation, oracle in EXACT.items():
        found = CpuBackend().run(load(f"{field}_{operation}"), a, b)
        assert words.to_ints(prime, found) == oracle(prime, xs, ys)
        assert (words.to_ints(prime, a), words.to_ints(prime, b)) == (xs, ys)


@given(st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 2), max_size=20))
def test_vector_add_u32_wraps_around(pairs: list[tuple[int, int]]) -> None:
    columns = np.array(pairs, np.uint32).reshape(-1, 2)
    found = CpuBackend().run(load("vector_add_u32"), columns[:, 0], columns[:, 1])
    assert found.tolist() == [(x + y) % 2**32 for x, y in pairs]


@given(st.lists(st.tuples(*[st.floats(-(2.0**126), 2.0**126, width=32)] * 2), max_size=20))
def test_vector_add_f32_rounds_once(pairs: list[tuple[float, float]]) -> None:
    columns = np.array(pairs, np.float32).reshape(-1, 2)
    found = CpuBackend().run(load("vector_add_f32"), columns[:, 0], columns[:, 1])
    assert found.dtype == np.float32
    # A double has more than twice a float's bits: rounding it again changes nothing.
    assert found.tolist() == [float(np.float32(x + y)) for x, y in pairs]


def test_run_field_add_adds_in_the_base_field() -> None:
    found = CpuBackend().run_field_add(fq(5, FQ.modulus - 1), fq(7, 3))
    assert words.to_ints(FQ, found) == [12, 2]


def test_a_kernel_of_a_users_own_field_runs() -> None:
    a, b = (words.from_ints(SMALL, [value]) for value in (2**30, 2**30 + 5))
    found = CpuBackend().run(field_kernel(SMALL, "add"), a, b)
    assert words.to_ints(SMALL, found) == [(2**31 + 5) % SMALL.modulus]


@on_every_field_kernel
def test_the_error_names_an_element_not_below_the_modulus(name: str) -> None:
    found = split_field_name(name)
    assert found is not None
    prime = NAMED[found[0]]
    good = words.from_ints(prime, [prime.modulus - 1] * 9001)
    for argument, bad in product((0, 1), ([0], [3, 5], [9000], [8191, 8192])):
        arrays = [good.copy(), good.copy()]
        arrays[argument][bad] = words.from_ints(prime, [prime.modulus])[0]
        with pytest.raises(ElementRangeError) as raised:
            CpuBackend().run(load(name), *arrays)
        error = raised.value
        assert (error.kernel, error.argument, error.index) == (name, argument, bad[0])
        assert str(error) == (
            f"{name}: element {bad[0]} of argument {argument} is not below the modulus; "
            "reduce it first, as field.encode(integers, reduce=True) does (the elements must be in "
            "0 .. p-1)"
        )


@pytest.mark.parametrize(
    ("bad_in_first", "bad_in_second", "named"), [(2, 5, (0, 2)), (3, 3, (0, 3)), (4, 1, (1, 1))]
)
def test_the_error_names_the_first_of_two_bad_elements(
    bad_in_first: int, bad_in_second: int, named: tuple[int, int]
) -> None:
    a, b = fq(*[1] * 8), fq(*[1] * 8)
    a[bad_in_first] = b[bad_in_second] = fq(FQ.modulus)[0]
    with pytest.raises(ElementRangeError) as raised:
        CpuBackend().run_field_add(a, b)
    assert (raised.value.argument, raised.value.index) == named


def test_inputs_may_have_leading_axes_strides_and_be_read_only() -> None:
    a = fq(*range(24)).reshape(2, 3, 4, 6)[:, ::-1, ::2]
    b = fq(*range(100, 112)).reshape(2, 3, 2, 6)
    a.flags.writeable = b.flags.writeable = False
    found = CpuBackend().run_field_add(a, b)
    assert found.shape == (2, 3, 2, 6)
    expected = [x + y for x, y in zip(words.to_ints(FQ, a), range(100, 112), strict=True)]
    assert words.to_ints(FQ, found) == expected


def test_inputs_may_be_big_endian() -> None:
    found = CpuBackend().run_field_add(fq(1, 2).astype(">u8"), fq(3, 4))
    assert words.to_ints(FQ, found) == [4, 6]


def test_one_element_and_no_elements() -> None:
    one = CpuBackend().run_field_add(fq(2)[0], fq(3)[0])
    assert one.tolist() == [5, 0, 0, 0, 0, 0]
    assert CpuBackend().run_field_add(fq(), fq()).shape == (0, 6)
    assert CpuBackend().run(load("vector_add_u32"), *np.ones((2, 0), np.uint32)).shape == (0,)


def test_arguments_of_another_dtype_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="bls12_381_fq_add: argument 1 has dtype float64"):
        CpuBackend().run_field_add(fq(1), np.zeros((1, 6)))


def test_a_kernel_without_a_reference_cannot_run() -> None:
    kernel = mont_mul_chain_kernel(FQ, 4)
    words_ = f"kernel '{kernel.name}' has no reference, so the CPU cannot run it"
    with pytest.raises(KernelError, match=words_):
        CpuBackend().run(kernel, fq(1), fq(2))


def test_several_outputs_are_returned_as_a_tuple() -> None:
    kernel = Kernel.from_spirv(
        shader("", "", "", ""),
        buffers="in i8, in i8, out i8, out i8",
        reference=lambda a, b: (a // b, a % b),
    )
    quotient, remainder = CpuBackend().run(kernel, np.array([17, 20]), np.array([5, 7]))
    assert (quotient.tolist(), remainder.tolist()) == ([3, 2], [2, 6])


def test_the_output_of_a_whole_kernel_has_the_shape_that_out_shape_returns() -> None:
    kernel = Kernel.from_spirv(
        shader("", ""),
        buffers="in, out",
        split="whole",
        out_shape=lambda shape: shape[:1],
        reference=lambda a: a.sum(axis=1),
    )
    found = CpuBackend().run(kernel, np.arange(6, dtype=np.uint32).reshape(2, 3))
    assert (found.tolist(), found.dtype) == ([3, 12], np.uint32)


def test_stats_count_calls_elements_and_time() -> None:
    with CpuBackend() as cpu:
        opened = cpu.stats()
        assert (opened.calls, opened.elements, opened.seconds_by_stage["compute"]) == (0, 0, 0.0)
        cpu.run_field_add(fq(1, 2, 3), fq(4, 5, 6))
        first = cpu.stats()
        cpu.run(load("vector_add_u32"), *np.ones((2, 5), np.uint32))
        second = cpu.stats()
    assert (first.calls, first.elements) == (1, 3)
    assert (second.calls, second.elements) == (2, 8)
    assert 0 < first.seconds_by_stage["compute"] < second.seconds_by_stage["compute"]


def test_calls_from_many_threads_are_correct_and_counted() -> None:
    cpu = CpuBackend()

    def added(number: int) -> list[int]:
        return words.to_ints(FQ, cpu.run_field_add(fq(*[number] * 9), fq(*[1000] * 9)))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(added, range(200)))
    assert found == [[number + 1000] * 9 for number in range(200)]
    assert (cpu.stats().calls, cpu.stats().elements) == (200, 1800)


def test_open_backend_opens_it_by_name() -> None:
    with open_backend("cpu") as cpu:
        assert isinstance(cpu, CpuBackend)
    words_ = "there is no backend 'gpu'; there are vulkan, vulkan-one-shot, webgpu, cpu"
    with pytest.raises(SettingsError, match=f"^{words_}$"):
        open_backend("gpu")


# --- parameters, in-out arguments, structs and no inputs ---


def test_references_get_the_parameters_of_their_call() -> None:
    x, cpu = np.arange(5, dtype=np.uint32), CpuBackend()
    assert cpu.run(scale(), x, params={"factor": 3, "offset": 1}).tolist() == [1, 4, 7, 10, 13]
    found = cpu.run_batch(scale(), [(x,)] * 3, params=[(1,), (2, 5), {"factor": 0}])
    assert [each.tolist() for each in found] == [[0, 1, 2, 3, 4], [5, 7, 9, 11, 13], [0] * 5]
    with pytest.raises(ArgumentTypeError, match="parameter 'factor' has no value"):
        cpu.run(scale(), x)
    with pytest.raises(ArgumentTypeError, match="params lists 2 entries for 3 jobs"):
        cpu.run_batch(scale(), [(x,)] * 3, params=[(1,), (2,)])


@pytest.mark.parametrize("kernel", [step(), reverse()], ids=lambda kernel: kernel.name)
def test_an_in_out_argument_changes_only_with_out(kernel: Kernel) -> None:
    x = np.arange(9, dtype=np.uint32)
    others = (x[::-1].copy(),) if kernel.inputs == 2 else ()
    expected = expect_step(x, *others) if others else x[::-1].copy()
    given = x.copy()
    found = CpuBackend().run(kernel, given, *others)
    assert (found.tolist(), given.tolist()) == (expected.tolist(), x.tolist())
    assert CpuBackend().run(kernel, given, *others, out=given) is given
    assert given.tolist() == expected.tolist()
    read_only = x.copy()
    read_only.flags.writeable = False
    assert CpuBackend().run(kernel, read_only, *others).tolist() == expected.tolist()


def test_references_that_compute_in_place_do_not_change_the_passed_arrays() -> None:
    def sort(x: Array) -> Array:
        x.sort()
        return x

    x = np.arange(9, dtype=np.uint32)[::-1].copy()
    assert CpuBackend().run(reverse(reference=sort), x).tolist() == list(range(9))
    assert x.tolist() == list(range(8, -1, -1))

    def spoil(x: Array, factor: int, offset: int) -> Array:
        x *= factor
        return x

    with pytest.raises(ValueError, match="read-only") as raised:
        CpuBackend().run(scale(reference=spoil), x, params=(2,))
    assert "its reference raised this; it was called with the arrays (uint32[9])" in "".join(
        raised.value.__notes__
    )
    assert x.tolist() == list(range(8, -1, -1))


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (0, r"a result of shape \(\); the shape must be \(3,\)"),
        (np.zeros(1, np.uint32), r"a result of shape \(1,\); the shape must be \(3,\)"),
        (np.zeros((3, 1), np.uint32), r"a result of shape \(3, 1\); the shape must be \(3,\)"),
        (None, r"a result of shape \(\)"),
        (np.zeros(3), r"a result that cannot be converted to uint32 .*float64"),
        (np.zeros(3, object), r"a result that cannot be converted to uint32"),
        ((np.zeros(3, np.uint32),) * 2, r"2 results for 1 outputs"),
    ],
    ids=str,
)
def test_a_result_of_a_reference_that_does_not_fit_is_refused(result: Any, words: str) -> None:
    kernel = scale(reference=lambda x, factor, offset: result)
    with pytest.raises(KernelError, match=rf"'{kernel.name}': its reference returned {words}"):
        CpuBackend().run(kernel, np.arange(3, dtype=np.uint32), params=(2,))


def test_a_kernel_without_inputs_gets_its_output_shape() -> None:
    found = CpuBackend().run(ramp(), params={"first": 3, "slope": 2}, out_shape=(2, 3))
    assert found.tolist() == [[3, 5, 7], [9, 11, 13]]
    fixed = ramp(out_shape=(4,), reference=lambda first, slope: np.arange(1, 5, dtype=np.uint32))
    assert CpuBackend().run(fixed, params=(1,)).tolist() == [1, 2, 3, 4]
    with pytest.raises(ArgumentShapeError, match="give out_shape="):
        CpuBackend().run(ramp(), params=(1,))


def test_references_get_structs_with_the_names_of_the_code() -> None:
    particles = make_particles(6).reshape(2, 3)
    for passed in (particles, particles.view(RENAMED_PARTICLE), particles[:, ::-1]):
        moved = CpuBackend().run(move(), passed)
        assert (moved.dtype, moved.shape) == (PARTICLE, (2, 3))
        np.testing.assert_array_equal(moved["id"], passed.view(PARTICLE)["id"] + 1)
    out = np.zeros((2, 3), RENAMED_PARTICLE)
    assert CpuBackend().run(move(), particles, out=out) is out
    np.testing.assert_array_equal(out["number"], particles["id"] + 1)
    np.testing.assert_array_equal(particles, make_particles(6).reshape(2, 3))
