"""Work that a user's program does beside this package: what is computed, from which inputs, and how
this package does it.

The inputs are the same in every run. Every result of this package is checked against exact integers
or known discrete logarithms, and then in full against the result of the program.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from gpu_executor.bench import fields as field_bench
from gpu_executor.bench.inputs import CHECKED, draw_elements
from gpu_executor.bench.msm import draw_scalars, make_known_points
from gpu_executor.bench.timing import Function, record_graph
from gpu_executor.bench.transforms import MAX_CALLS_IN_GRAPH, check_value
from gpu_executor.curves import Curve, PointArray
from gpu_executor.curves.parameters import get_named
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FQ,
    BLS12_381_FR,
    BN254_FQ,
    BN254_FR,
    GOLDILOCKS,
    KOALABEAR,
    MERSENNE31,
    Field,
    FieldArray,
)
from gpu_executor.kernels import load
from gpu_executor.kernels.catalogue import mont_mul_chain_kernel
from gpu_executor.ops.elementwise import with_f64_limbs
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

ProgramOperation = Literal[
    "sum", "product", "product_chain", "square_chain", "inversion", "transform", "msm"
]
OPERATIONS: tuple[ProgramOperation, ...] = get_args(ProgramOperation)
Memory = Literal["host", "device"]
MEMORIES: tuple[Memory, ...] = get_args(Memory)
Order = Literal["natural", "reversed"]
Bytes = npt.NDArray[np.uint8]
UINT32 = "uint32"
FIELDS = {
    each.name.upper(): each
    for each in (
        *(BLS12_381_FQ, BLS12_381_FR, BN254_FQ, BN254_FR),
        *(GOLDILOCKS, BABYBEAR, KOALABEAR, MERSENNE31),
    )
}
TRANSFORMED = ("BLS12_381_FR", "BN254_FR", "GOLDILOCKS", "BABYBEAR", "KOALABEAR")
CURVES = ("BLS12_381_G1", "BN254_G1", "BLS12_377_G1", "BLS12_381_G2")
DIRECTIONS: tuple[tuple[bool, Order, Order], ...] = (
    (False, "natural", "reversed"),
    (False, "natural", "natural"),
    (True, "reversed", "natural"),
)
"""Of transforms: whether it is the inverse, and the orders of its input and of its result."""


@dataclass(frozen=True, slots=True)
class ProgramSizes:
    """log2 of the sizes by operation, and the operations of a chain."""

    log_sizes: dict[ProgramOperation, Sequence[int]]
    length: int


GPU_SIZES = ProgramSizes(
    {
        "sum": (10, 14, 18, 22),
        "product": (20, 24),
        "product_chain": (22,),
        "square_chain": (22,),
        "inversion": (22,),
        "transform": (16, 20, 22, 24),
        "msm": (10, 12, 14, 16, 18, 20, 22),
    },
    256,
)
CPU_SIZES = ProgramSizes(
    {
        "sum": (10, 14, 18),
        "product": (16,),
        "product_chain": (10,),
        "square_chain": (10,),
        "inversion": (14,),
        "transform": (12, 16),
        "msm": (8,),
    },
    field_bench.CPU_SIZES.length,
)
ELEMENTS_IN_GRAPH = 1 << 26
"""A graph has as many calls as compute so many elements together: on an NVIDIA H200 a product of
2^22 elements of 31 bits takes 13 us, the submission of a graph 15 to 40 us of the host, which CUDA
programs that launch their calls in a row do not have."""
QUICK_SIZES = ProgramSizes(
    {each: (6 if each == "msm" else 10,) for each in OPERATIONS}, field_bench.CPU_SIZES.length
)


@dataclass(frozen=True, slots=True)
class ProgramWork:
    """One operation over one field or curve at one size."""

    operation: ProgramOperation
    structure: str
    """The name of the field or curve, or "uint32"."""
    log_size: int
    memory: Memory = "device"
    """Where the inputs are before the work is timed; of a multi-scalar multiplication the scalars.
    Results are in the same memory, the point of a multi-scalar multiplication on the host."""
    length: int = 1
    """Dependent products or squares in a chain."""
    inverse: bool = False
    order_in: Order = "natural"
    order_out: Order = "natural"

    @property
    def size(self) -> int:
        return 1 << self.log_size

    @property
    def count(self) -> int:
        """What a rate counts: elements or points; of chains the products or squares."""
        return self.size * self.length

    @property
    def field(self) -> Field:
        return FIELDS[self.structure]

    @property
    def curve(self) -> Curve:
        return get_named(self.structure)

    @property
    def variant(self) -> str:
        """What tells it from other work of its operation, structure and size."""
        match self.operation:
            case "transform":
                inverse = "inverse, " if self.inverse else ""
                return f"{inverse}{self.order_in} to {self.order_out}"
            case "product_chain" | "square_chain":
                return f"{self.length} in a chain"
            case "msm":
                return f"scalars on the {self.memory}"
        return f"{self.memory} memory"

    @property
    def name(self) -> str:
        return f"{self.operation} of 2^{self.log_size}, {self.structure}, {self.variant}"

    def describe(self) -> dict[str, Any]:
        """What a request says of it."""
        content: dict[str, Any] = {"operation": self.operation, "size": self.size}
        match self.operation:
            case "sum":
                content["type"] = UINT32
            case "msm":
                content["curve"] = self.structure
            case _:
                content |= {"field": self.structure, "modulus": hex(self.field.modulus)}
        content["memory"] = self.memory
        if self.operation in ("product_chain", "square_chain"):
            content["length"] = self.length
        if self.operation == "transform":
            root = self.field.prime.root_of_unity(self.log_size)
            content |= {"root": hex(root), "inverse": self.inverse}
            content |= {"order_in": self.order_in, "order_out": self.order_out}
        return content


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Work as this package does it, with its inputs and its checked result as rows of bytes."""

    gpu: PersistentVulkanBackend
    call: Function
    """Makes `calls` calls, which are not waited for if the work is on the device."""
    inputs: Sequence[Bytes]
    result: Bytes
    calls: int = 1

    def time(self, calls: int) -> float:
        """Return the seconds of a call: one that is not timed, then so many in a row."""
        repeats = -(-calls // self.calls)
        self.call()
        self.gpu.synchronize()
        begun = time.perf_counter()
        for _ in range(repeats):
            self.call()
        self.gpu.synchronize()
        return (time.perf_counter() - begun) / (repeats * self.calls)

    def write_inputs(self, folder: Path) -> list[dict[str, Any]]:
        """Write the inputs to files, and return what a request says of them."""
        files = []
        for number, rows in enumerate(self.inputs):
            path = folder / f"input-{number}.bin"
            rows.tofile(path)
            files.append({"path": str(path), "bytes_each": rows.shape[1]})
        return files


def list_works(sizes: ProgramSizes) -> Iterator[ProgramWork]:
    """Yield all work, ordered by operation, structure and variant."""
    for operation, variants in _list_variants(sizes.length).items():
        for work in variants:
            for log_size in sizes.log_sizes.get(operation, ()):
                # A field without a root of unity of that order has no such transform.
                if operation != "transform" or log_size <= work.field.prime.two_adicity:
                    yield dataclasses.replace(work, log_size=log_size)


def _list_variants(length: int) -> dict[ProgramOperation, list[ProgramWork]]:
    """The work of each operation, without its size."""
    counts = {name: field_bench.count_squares(each, length) for name, each in FIELDS.items()}
    chained = [name for name, each in FIELDS.items() if field_bench.has_product_chains(each)]
    return {
        "sum": [ProgramWork("sum", UINT32, 0, "host")],
        "product": [
            ProgramWork("product", name, 0, memory) for name in FIELDS for memory in MEMORIES
        ],
        "product_chain": [ProgramWork("product_chain", name, 0, length=length) for name in chained],
        "square_chain": [
            ProgramWork("square_chain", name, 0, length=count) for name, count in counts.items()
        ],
        "inversion": [ProgramWork("inversion", name, 0) for name in FIELDS],
        "transform": [
            ProgramWork(
                "transform", name, 0, inverse=inverse, order_in=order_in, order_out=order_out
            )
            for name in TRANSFORMED
            for inverse, order_in, order_out in DIRECTIONS
        ],
        "msm": [ProgramWork("msm", name, 0, memory) for name in CURVES for memory in MEMORIES],
    }


def prepare_work(gpu: PersistentVulkanBackend, work: ProgramWork) -> OwnWork:
    """Do the work once and check its result; raises `AssertionError` if it is wrong."""
    prepare = {
        "sum": _prepare_sum,
        "product": _prepare_product,
        "product_chain": _prepare_product_chain,
        "square_chain": _prepare_square_chain,
        "inversion": _prepare_inversion,
        "transform": _prepare_transform,
        "msm": _prepare_msm,
    }
    return prepare[work.operation](gpu, work)


def _prepare_sum(gpu: PersistentVulkanBackend, work: ProgramWork) -> OwnWork:
    kernel = load("vector_add_u32")
    a, b = (
        np.random.default_rng(seed).integers(0, 1 << 32, work.size, np.uint32) for seed in (1, 2)
    )
    call = partial(gpu.run, kernel, a, b)
    found = call()
    expected = (a.astype(np.uint64) + b).astype(np.uint32)
    if not np.array_equal(found, expected):
        raise AssertionError(f"gpu-executor: wrong result of {work.name}")
    return OwnWork(gpu, call, [_to_rows(each) for each in (a, b)], _to_rows(found))


def _prepare_product(gpu: PersistentVulkanBackend, work: ProgramWork) -> OwnWork:
    field, (a, b) = work.field, _draw(work, 2)
    modulus = field.modulus

    def multiply(x: int, y: int) -> int:
        return x * y % modulus

    if work.memory == "device":
        x, y = (_load(gpu, each) for each in (a, b))
        return _finish(gpu, work, partial(field.mul, x, y), [a, b], multiply)

    def multiply_arrays() -> FieldArray:
        x, y = (gpu.to_device(each) for each in (a, b))
        return field.from_words(field.mul(x, y).numpy(), "canonical")

    found = multiply_arrays()
    _check_sample(work, multiply, [a, b], found)

    def call() -> Any:
        x, y = (gpu.to_device(each) for each in (a, b))
        return field.mul(x, y).numpy()

    return OwnWork(gpu, call, _list_rows([a, b]), _to_rows(found.numpy()))


def _prepare_product_chain(gpu: PersistentVulkanBackend, work: ProgramWork) -> OwnWork:
    field, (a, b) = work.field, _draw(work, 2)
    limbs = with_f64_limbs(gpu._session.device_memory, field.prime)
    kernel = mont_mul_chain_kernel(field.prime, work.length, f64_limbs=limbs)
    x, y = (_load(gpu, each).data for each in (a, b))

    def multiply() -> FieldArray:
        return FieldArray(field, gpu.run(kernel, x, y), field.form)

    def multiply_ints(p: int, q: int) -> int:
        return p * pow(q, work.length, field.modulus) % field.modulus

    return _finish(gpu, work, multiply, [a, b], multiply_ints)


def _prepare_square_chain(gpu: PersistentVulkanBackend, work: ProgramWork) -> OwnWork:
    field, (a,) = work.field, _draw(work, 1)
    exponent = 1 << work.length
    call = partial(field.power, _load(gpu, a), exponent)
    return _finish(gpu, work, call, [a], lambda x: pow(x, exponent, field.modulus))


def _prepare_inversion(gpu: PersistentVulkanBackend, work: ProgramWork) -> OwnWork:
    field, (a,) = work.field, _draw(work, 1)
    words = a.words().copy()
    rows = _to_rows(words)
    rows[~rows.any(axis=1), 0] = 1  # 0 has no inverse
    a = field.from_words(words, "canonical")
    call = partial(field.inverse, _load(gpu, a))
    return _finish(gpu, work, call, [a], lambda x: pow(x, -1, field.modulus))


def _prepare_transform(gpu: PersistentVulkanBackend, work: ProgramWork) -> OwnWork:
    field, (a,) = work.field, _draw(work, 1)
    x = _load(gpu, a)
    if work.inverse:
        call = partial(field.intt, x, order_in=work.order_in, order_out=work.order_out)
    else:
        call = partial(field.ntt, x, order_in=work.order_in, order_out=work.order_out)
    found = call()
    coefficients, values = (found, x) if work.inverse else (x, found)
    order = work.order_in if work.inverse else work.order_out
    check_value(
        coefficients,
        values if order == "natural" else None,
        values if order == "reversed" else None,
    )
    return _record(gpu, work, call, [a], found)


def _prepare_msm(gpu: PersistentVulkanBackend, work: ProgramWork) -> OwnWork:
    curve = work.curve
    known = make_known_points(gpu, curve, work.log_size)
    words = draw_scalars(curve, work.size)
    field = curve.scalar_field
    scalars = field.from_words(words.view(field.prime.column_dtype), "canonical")
    given = gpu.to_device(scalars) if work.memory == "device" else scalars

    def add_up() -> PointArray:
        return curve.msm(known.points, given).to_host().affine()

    found = add_up()
    (logarithm,) = known.compute_logarithms(words[None])
    if not bool((found == curve.generator * logarithm).all()):
        raise AssertionError(f"gpu-executor: wrong result of {work.name}")
    inputs = [_join_coordinates(known.points), _to_rows(words)]
    return OwnWork(gpu, add_up, inputs, _join_coordinates(found.reshape(1)))


def _draw(work: ProgramWork, count: int) -> list[FieldArray]:
    """Random elements on the host."""
    field = work.field
    return [
        field.from_words(draw_elements(field.prime, (work.size,), seed), "canonical")
        for seed in range(1, count + 1)
    ]


def _load(gpu: PersistentVulkanBackend, array: FieldArray) -> FieldArray:
    """The elements on the device, in the form in which their field computes."""
    return gpu.to_device(array).in_form(array.field.form)


def _finish(
    gpu: PersistentVulkanBackend,
    work: ProgramWork,
    call: Callable[[], FieldArray],
    operands: Sequence[FieldArray],
    exact: Callable[..., int],
) -> OwnWork:
    """Check the result of work on device arrays, then record its calls."""
    found = call()
    _check_sample(work, exact, operands, found)
    return _record(gpu, work, call, operands, found)


def _record(
    gpu: PersistentVulkanBackend,
    work: ProgramWork,
    call: Callable[[], FieldArray],
    operands: Sequence[FieldArray],
    found: FieldArray,
) -> OwnWork:
    """Record a graph of several calls, of one if they are long."""
    calls = max(min(ELEMENTS_IN_GRAPH // work.count, MAX_CALLS_IN_GRAPH), 1)

    def repeat() -> None:
        for _ in range(calls):
            call()

    graph = record_graph(gpu, repeat)
    return OwnWork(gpu, graph, _list_rows(operands), _to_rows(found.numpy()), calls)


def _check_sample(
    work: ProgramWork,
    exact: Callable[..., int],
    operands: Sequence[FieldArray],
    found: FieldArray,
) -> None:
    """Compare evenly spaced elements, the first and last among them, with exact integers."""
    sample = np.linspace(0, work.size - 1, min(CHECKED, work.size), dtype=np.intp)
    host = work.field.from_words(found.numpy(), "canonical")
    *given, results = (each[sample].ints().tolist() for each in (*operands, host))
    if [exact(*each) for each in zip(*given, strict=True)] != results:
        raise AssertionError(f"gpu-executor: wrong result of {work.name}")


def _list_rows(arrays: Sequence[FieldArray]) -> list[Bytes]:
    return [_to_rows(each.numpy()) for each in arrays]


def _to_rows(words: npt.NDArray[Any]) -> Bytes:
    """The bytes of each element in a row, the lowest first."""
    return np.ascontiguousarray(words).reshape(len(words), -1).view(np.uint8)


def _join_coordinates(points: PointArray) -> Bytes:
    """The bytes of x, then of y, of each point."""
    return np.concatenate([_to_rows(each.numpy()) for each in (points.x, points.y)], axis=1)
