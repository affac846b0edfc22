"""255-bit products from array to array, compared with packages that compute them on the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.bench.inputs import draw_elements
from gpu_executor.bench.measurement import Target
from gpu_executor.bench.timing import compute_medians, compute_ratio, time_interleaved
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import BLS12_381_FR, FieldArray
from gpu_executor.kernels import load
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

GPU_COUNT, CPU_COUNT = 1 << 20, 1 << 16
ROUNDS = 5
PACKAGES = ("galois", "python-flint")
CPU_TARGET = 5.0
"""The target on a software device: how many times as fast as each of the packages."""
FIELD = BLS12_381_FR


@dataclass(frozen=True, slots=True)
class ProductTime:
    """Products by one package, from arrays or lists of one kind to the same kind."""

    name: str
    kind: str
    """The operands: `words`, the package's own `elements`, or Python `integers`."""
    milliseconds: float
    per_second: float
    slower: float
    """The time relative to that of the first method, `gpu.run`."""


@dataclass(frozen=True, slots=True)
class ProductComparison:
    """The result of a comparison, in which all methods computed the same products."""

    count: int
    ways: list[ProductTime]
    absent: list[str]
    """Packages that are not installed."""


@dataclass(frozen=True, slots=True)
class _ProductMethod:
    name: str
    kind: str
    multiply: Callable[[], Any]
    to_ints: Callable[[Any], Any]
    """Converts the result to integers."""


def choose_count(device: DeviceInfo) -> int:
    """Choose enough products to make the fixed cost of a call negligible."""
    return CPU_COUNT if device.kind == "cpu" else GPU_COUNT


def compare_products(
    gpu: PersistentVulkanBackend, count: int, rounds: int = ROUNDS
) -> ProductComparison:
    """Check that all products are the same, then time them in interleaved rounds."""
    methods, absent = _prepare_methods(gpu, count)
    _check(methods)
    calls = [each.multiply for each in methods]
    taken = list(time_interleaved(calls, min_rounds=rounds))
    slower = [compute_ratio(taken, index, 0) for index in range(len(calls))]
    times = [
        ProductTime(each.name, each.kind, seconds * 1e3, count / seconds, ratio)
        for each, seconds, ratio in zip(methods, compute_medians(taken), slower, strict=True)
    ]
    return ProductComparison(count, times, absent)


def check_targets(comparison: ProductComparison, device: DeviceInfo) -> list[Target]:
    """Return the targets on a software device; none on a GPU."""
    if device.kind != "cpu":
        return []
    return [
        Target(f"{FIELD.prime.bits}-bit products over {each.name}'s", each.slower, CPU_TARGET, "x")
        for each in comparison.ways
        if each.name in PACKAGES
    ]


def _prepare_methods(
    gpu: PersistentVulkanBackend, count: int
) -> tuple[list[_ProductMethod], list[str]]:
    """Return the methods of this package and of the installed packages, and the names of the absent
    packages.
    """
    kernel = load(f"{FIELD.name}_mont_mul")
    words = [draw_elements(FIELD.prime, (count,), seed) for seed in (1, 2)]
    x, y = (FIELD.from_words(each, "montgomery") for each in words)
    a, b = x.ints(), y.ints()

    def words_to_ints(result: Any) -> Any:
        return FieldArray(FIELD, result, "montgomery").ints()

    def multiply_words() -> Any:
        return FIELD.mul(gpu.to_device(x), gpu.to_device(y)).words()

    def multiply_ints() -> Any:
        return FIELD.mul(gpu.to_device(FIELD.encode(a)), gpu.to_device(FIELD.encode(b))).ints()

    def keep(result: Any) -> Any:
        return result

    methods = [
        _ProductMethod("gpu.run", "words", lambda: gpu.run(kernel, *words), words_to_ints),
        _ProductMethod("Field.mul", "words", multiply_words, words_to_ints),
        _ProductMethod("Field.mul", "integers", multiply_ints, keep),
        _ProductMethod("NumPy", "integers", lambda: a * b % FIELD.modulus, keep),
    ]
    absent = []
    for name, prepare in (("galois", _prepare_galois), ("python-flint", _prepare_flint)):
        try:
            methods.append(prepare(a, b))
        except ModuleNotFoundError:
            absent.append(name)
    return methods, absent


def _prepare_galois(a: Any, b: Any) -> _ProductMethod:
    """Prepare arrays of a galois field, which holds 255-bit elements as Python integers."""
    galois = importlib.import_module("galois")
    # With the generator given, galois does not factor p - 1, which takes minutes.
    field = galois.GF(FIELD.modulus, primitive_element=FIELD.prime.generator, verify=False)
    x, y = field(a), field(b)
    return _ProductMethod(
        "galois", "elements", lambda: x * y, lambda result: result.view(np.ndarray)
    )


def _prepare_flint(a: Any, b: Any) -> _ProductMethod:
    """Prepare products one element at a time: python-flint has no arrays of elements."""
    context = importlib.import_module("flint").fmpz_mod_ctx(FIELD.modulus)
    x, y = ([context(each) for each in ints] for ints in (a.tolist(), b.tolist()))
    return _ProductMethod(
        "python-flint",
        "elements",
        lambda: [p * q for p, q in zip(x, y, strict=True)],
        lambda result: np.array([int(each) for each in result], object),
    )


def _check(methods: list[_ProductMethod]) -> None:
    first, *others = methods
    expected = first.to_ints(first.multiply())
    for each in others:
        if not np.array_equal(each.to_ints(each.multiply()), expected):
            raise AssertionError(
                f"{each.name} on {each.kind}: products differ from those of {first.name}"
            )
