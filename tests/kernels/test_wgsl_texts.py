"""The WGSL kernels on wgpu, compared with Python integers, NumPy and the GLSL kernels."""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import wgpu

from gpu_executor.errors import KernelError
from gpu_executor.kernel.wgsl import PARAMETER_WORDS, WgslCode
from gpu_executor.kernels import wgsl_texts
from gpu_executor.kernels.wgsl_texts import REDUCTION_BLOCK
from gpu_executor.primes.prime import MAX_BITS, WORD_BITS

Array = npt.NDArray[Any]

PARAMETER_BYTES = 4 * PARAMETER_WORDS
NO_STATUS = 0xFFFFFFFF
DTYPES = [np.uint32, np.float32]
MOST_WORDS = MAX_BITS // WORD_BITS
# 13 words have 32 limbs and 14 have 35: from 33 limbs on there is a carry pass midway. Multiples of
# 4 words move in 16-byte loads.
SOME_WORDS = [1, 2, 3, 4, 8, 12, 13, 14, 24]
OTHER_WORDS = [5, 6, 7, 11, 15]
COUNTS = [1, 2, 4095, 4096, 4097, 100_000]

pytestmark = pytest.mark.usefixtures("wgpu_device")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The results of a dispatch."""

    output: bytes
    status: int


class Runner:
    """Runs a text once, waits for it and reads the results back."""

    def __init__(self) -> None:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
        self._device: Any = adapter.request_device_sync(
            required_features=["immediates"],
            required_limits={"max-immediate-size": PARAMETER_BYTES},
        )

    def __call__(
        self,
        code: WgslCode,
        inputs: Sequence[Array],
        output_bytes: int,
        *,
        count: int,
        groups: tuple[int, int],
        constants: dict[str, int] | None = None,
        status: bool = False,
        uniform: bool = False,
    ) -> Outcome:
        device, usage = self._device, wgpu.BufferUsage
        stored = usage.STORAGE | usage.COPY_SRC
        buffers = [device.create_buffer_with_data(data=array, usage=stored) for array in inputs]
        # Not zeros, so that elements that a kernel does not write show.
        buffers.append(device.create_buffer_with_data(data=b"\xa5" * output_bytes, usage=stored))
        output = buffers[-1]
        kinds = ["read-only-storage"] * len(inputs) + ["storage"]
        if status:
            word = struct.pack("<I", NO_STATUS)
            buffers.append(device.create_buffer_with_data(data=word, usage=stored))
            kinds.append("storage")
        parameters = (struct.pack("<I", count) + code.data).ljust(PARAMETER_BYTES, b"\0")
        if uniform:
            text = code.with_prelude(uniform_binding=len(buffers))
            buffers.append(device.create_buffer_with_data(data=parameters, usage=usage.UNIFORM))
            kinds.append("uniform")
        else:
            text = code.with_prelude(uniform_binding=None)
        layout, pipeline = self._compile(
            text, tuple(kinds), tuple((constants or {}).items()), 0 if uniform else PARAMETER_BYTES
        )
        bound = device.create_bind_group(
            layout=layout,
            entries=[
                {"binding": binding, "resource": {"buffer": buffer}}
                for binding, buffer in enumerate(buffers)
            ],
        )
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, bound)
        if not uniform:
            compute.set_immediates(0, parameters, 0, PARAMETER_BYTES)
        compute.dispatch_workgroups(*groups)
        compute.end()
        device.queue.submit([encoder.finish()])
        status_word = NO_STATUS
        if status:
            (status_word,) = struct.unpack("<I", device.queue.read_buffer(buffers[len(inputs) + 1]))
        return Outcome(bytes(device.queue.read_buffer(output)), status_word)

    @functools.cache  # noqa: B019 - the one runner lives as long as the tests of this file
    def _compile(
        self,
        text: str,
        kinds: tuple[str, ...],
        constants: tuple[tuple[str, int], ...],
        immediate_bytes: int,
    ) -> tuple[Any, Any]:
        """The bind group layout and the pipeline."""
        device = self._device
        layout = device.create_bind_group_layout(
            entries=[
                {"binding": binding, "visibility": "COMPUTE", "buffer": {"type": kind}}
                for binding, kind in enumerate(kinds)
            ]
        )
        pipeline = device.create_compute_pipeline(
            layout=device.create_pipeline_layout(
                bind_group_layouts=[layout], immediate_size=immediate_bytes
            ),
            compute={
                "module": device.create_shader_module(code=text),
                "entry_point": "main",
                "constants": dict(constants),
            },
        )
        return layout, pipeline


@pytest.fixture(scope="module")
def wgpu_device(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """One device for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        # Without XDG_RUNTIME_DIR the libraries of the window system print warnings.
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        return Runner()


def grid(count: int, work_group: int, per_invocation: int) -> tuple[int, int]:
    """A grid of two rows of work-groups, as large calls have."""
    groups = -(-count // (work_group * per_invocation))
    return -(-groups // 2), 2


# --- vectors ---


@pytest.mark.parametrize("uniform", [False, True], ids=["immediates", "uniform"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_are_added(wgpu_device: Runner, dtype: type[np.generic], uniform: bool) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 1 << 32, (2, 1000), np.uint32).astype(dtype)
    constants = {"work_group": 32, "per_invocation": 3}
    outcome = wgpu_device(
        wgsl_texts.render_vector_add(dtype),
        [a, b],
        a.nbytes,
        count=len(a),
        groups=grid(len(a), 32, 3),
        constants=constants,
        uniform=uniform,
    )
    np.testing.assert_array_equal(np.frombuffer(outcome.output, dtype), a + b)


def test_a_vector_kernel_writes_nothing_beyond_the_last_vec4(wgpu_device: Runner) -> None:
    a = np.arange(100, dtype=np.uint32)
    code = wgsl_texts.render_vector_add(np.uint32)
    outcome = wgpu_device(code, [a, a], a.nbytes, count=70, groups=(2, 1))
    result = np.frombuffer(outcome.output, np.uint32)
    np.testing.assert_array_equal(result[:70], 2 * a[:70])
    assert set(result[72:]) == {0xA5A5A5A5}


# --- reductions by blocks ---


def combine_arrays(operation: str, a: Array, b: Array) -> Array:
    combine: Callable[[Array, Array], Array] = {
        "sum": np.add,
        "min": np.minimum,
        "max": np.maximum,
    }[operation]
    with np.errstate(invalid="ignore"):
        return combine(a, b)


def padding(operation: str, dtype: np.dtype[Any]) -> Any:
    """The identity of the operation."""
    if operation == "sum":
        return dtype.type(-0.0 if dtype.kind == "f" else 0)
    lowest, highest = (-np.inf, np.inf) if dtype.kind == "f" else (0, np.iinfo(np.uint32).max)
    return dtype.type(highest if operation == "min" else lowest)


def reduce_blocks(operation: str, array: Array) -> Array:
    """The reduction in the order of the kernels: by 256 within a block, then by halves."""
    blocks = -(-len(array) // REDUCTION_BLOCK)
    padded = np.full(blocks * REDUCTION_BLOCK, padding(operation, array.dtype), array.dtype)
    padded[: len(array)] = array
    rows = padded.reshape(blocks, -1, wgsl_texts.REDUCTION_INVOCATIONS)
    partials = rows[:, 0]
    for step in range(1, rows.shape[1]):
        partials = combine_arrays(operation, partials, rows[:, step])
    while partials.shape[1] > 1:
        half = partials.shape[1] // 2
        partials = combine_arrays(operation, partials[:, :half], partials[:, half:])
    return partials[:, 0]


def reduce_each_block(
    runner: Runner, operation: str, array: Array, groups: tuple[int, int] | None = None
) -> Array:
    blocks = -(-len(array) // REDUCTION_BLOCK)
    outcome = runner(
        wgsl_texts.render_reduction(operation, array.dtype, by_block=True),
        [array],
        4 * blocks,
        count=len(array),
        groups=groups or (blocks, 1),
    )
    return np.frombuffer(outcome.output, array.dtype)


def some_numbers(dtype: type[np.generic], count: int) -> Array:
    rng = np.random.default_rng(count)
    if dtype is np.uint32:
        return rng.integers(0, 1 << 32, count, np.uint32)
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float32)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", wgsl_texts.REDUCTIONS)
def test_blocks_are_reduced_in_a_fixed_order(
    wgpu_device: Runner, operation: str, dtype: type[np.generic], count: int
) -> None:
    array = some_numbers(dtype, count)
    result = reduce_each_block(wgpu_device, operation, array)
    assert result.tobytes() == reduce_blocks(operation, array).tobytes()


@pytest.mark.parametrize("groups", [(1, 1), (3, 1), (5, 2), (40, 1)])
def test_a_sum_does_not_depend_on_the_work_groups(
    wgpu_device: Runner, groups: tuple[int, int]
) -> None:
    array = some_numbers(np.float32, 60_000)
    result = reduce_each_block(wgpu_device, "sum", array, groups)
    assert result.tobytes() == reduce_blocks("sum", array).tobytes()


@pytest.mark.parametrize("place", [0, 255, 256, 4999])
@pytest.mark.parametrize("operation", wgsl_texts.REDUCTIONS)
def test_nan_propagates(wgpu_device: Runner, operation: str, place: int) -> None:
    array = some_numbers(np.float32, 5000)
    array[(place + 1) % 5000] = np.inf
    for nan in (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF):
        array.view(np.uint32)[place] = nan
        result = reduce_each_block(wgpu_device, operation, array)
        np.testing.assert_array_equal(result, reduce_blocks(operation, array))


@pytest.mark.parametrize("operation", wgsl_texts.REDUCTIONS)
@pytest.mark.parametrize(
    "values",
    [
        [np.inf], [-np.inf], [np.inf, -np.inf], [np.inf, 1], [-np.inf, 1], [-0.0], [0.0],
        [-0.0] * 300, [-3, -2, -1], [3, 2, 1], [-1, 1], [np.finfo(np.float32).max] * 2,
    ],
    ids=str,
)  # fmt: skip
def test_infinities_and_signed_zeros(
    wgpu_device: Runner, operation: str, values: Sequence[float]
) -> None:
    array = np.array(values, np.float32)
    with np.errstate(over="ignore"):
        expected = reduce_blocks(operation, array)
    result = reduce_each_block(wgpu_device, operation, array)
    np.testing.assert_array_equal(result, expected)
    if not np.isnan(expected).any():
        assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("operation", ["min", "max"])
def test_subnormal_floats_keep_their_order(wgpu_device: Runner, operation: str) -> None:
    array = np.array([2e-45, -2e-45, 1e-45, -1e-45], np.float32)
    result = reduce_each_block(wgpu_device, operation, array)
    assert result.tobytes() == reduce_blocks(operation, array).tobytes()


# --- refusals ---


def test_unknown_operations_and_types_are_refused() -> None:
    with pytest.raises(KernelError, match="'mean'"):
        wgsl_texts.render_reduction("mean", np.uint32)
    with pytest.raises(KernelError, match="float64"):
        wgsl_texts.render_vector_add(np.float64)
    with pytest.raises(KernelError, match="int32"):
        wgsl_texts.render_matrix_product(np.int32)
