"""Products of 255 bits from array to array, beside packages that have them on the CPU."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.bench.aims import Aim
from gpu_executor.bench.batch import in_turns, medians
from gpu_executor.bench.draws import drawn
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import BLS12_381_FR, FieldArray
from gpu_executor.kernels import load
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

GPU_COUNT, CPU_COUNT = 1 << 20, 1 << 16
TURNS = 5
PACKAGES = ("galois", "python-flint")
AIM = 5.0
"""On a software device, over each of the packages."""
FIELD = BLS12_381_FR


@dataclass(frozen=True, slots=True)
class Way:
    """Somebody's products, from arrays or lists of their own kind to such."""

    name: str
    kind: str
    """Of what: `words`, or the package's own `elements`, or Python's `integers`."""
    milliseconds: float
    per_second: float
    slower: float
    """Its time over that of the first way, a kernel that checks what it multiplies."""


@dataclass(frozen=True, slots=True)
class Products:
    """One comparison; all gave the same products."""

    count: int
    ways: list[Way]
    absent: list[str]
    """Packages that are not installed."""


@dataclass(frozen=True, slots=True)
class _Contestant:
    name: str
    kind: str
    multiply: Callable[[], Any]
    ints: Callable[[Any], Any]
    """Its result as integers."""


def usual_count(device: DeviceInfo) -> int:
    """Enough for what a call costs by itself not to show."""
    return CPU_COUNT if device.kind == "cpu" else GPU_COUNT


def compare(gpu: PersistentVulkanBackend, count: int, turns: int = TURNS) -> Products:
    """All of them in turns, after their products were found to be the same."""
    contestants, absent = _contestants(gpu, count)
    _check(contestants)
    calls = [each.multiply for each in contestants]
    taken = list(in_turns(calls, budget=0, least=turns, most=turns))
    # Within each turn, as the ratios of batches are taken, and for the same reason.
    slower = [statistics.median(turn[i] / turn[0] for turn in taken) for i in range(len(calls))]
    ways = [
        Way(each.name, each.kind, seconds * 1e3, count / seconds, ratio)
        for each, seconds, ratio in zip(contestants, medians(taken), slower, strict=True)
    ]
    return Products(count, ways, absent)


def aims(products: Products, device: DeviceInfo) -> list[Aim]:
    """What was aimed for on this device."""
    if device.kind != "cpu":
        return []
    return [
        Aim(f"{FIELD.prime.bits}-bit products over {way.name}'s", way.slower, AIM, "x")
        for way in products.ways
        if way.name in PACKAGES
    ]


def _contestants(gpu: PersistentVulkanBackend, count: int) -> tuple[list[_Contestant], list[str]]:
    kernel, words = load(f"{FIELD.name}_mul"), [drawn(FIELD.prime, (count,), n) for n in (1, 2)]
    x, y = (FIELD.from_words(each, "montgomery") for each in words)
    a, b = x.ints(), y.ints()

    def of_words(result: Any) -> Any:
        return FieldArray(FIELD, result, "montgomery").ints()

    def by_field() -> Any:
        return FIELD.mul(gpu.to_device(x), gpu.to_device(y)).numpy()

    def by_field_from_ints() -> Any:
        return FIELD.mul(gpu.to_device(FIELD.encode(a)), gpu.to_device(FIELD.encode(b))).ints()

    def as_they_are(result: Any) -> Any:
        return result

    found = [
        _Contestant("gpu.run", "words", lambda: gpu.run(kernel, *words), of_words),
        _Contestant("Field.mul", "words", by_field, of_words),
        _Contestant("Field.mul", "integers", by_field_from_ints, as_they_are),
        _Contestant("NumPy", "integers", lambda: a * b % FIELD.modulus, as_they_are),
    ]
    absent = []
    for name, make in (("galois", _galois), ("python-flint", _flint)):
        try:
            found.append(make(a, b))
        except ModuleNotFoundError:
            absent.append(name)
    return found, absent


def _galois(a: Any, b: Any) -> _Contestant:
    """Arrays of one of its fields; one of 255 bits keeps Python integers."""
    galois = importlib.import_module("galois")
    # Given the generator it need not factor p - 1, which takes it minutes.
    field = galois.GF(FIELD.modulus, primitive_element=FIELD.prime.generator, verify=False)
    x, y = field(a), field(b)
    return _Contestant("galois", "elements", lambda: x * y, lambda result: result.view(np.ndarray))


def _flint(a: Any, b: Any) -> _Contestant:
    """Element by element: it has no arrays of them."""
    context = importlib.import_module("flint").fmpz_mod_ctx(FIELD.modulus)
    x, y = ([context(each) for each in ints] for ints in (a.tolist(), b.tolist()))
    return _Contestant(
        "python-flint",
        "elements",
        lambda: [p * q for p, q in zip(x, y, strict=True)],
        lambda result: np.array([int(each) for each in result], object),
    )


def _check(contestants: list[_Contestant]) -> None:
    first, *others = contestants
    expected = first.ints(first.multiply())
    for each in others:
        if not np.array_equal(each.ints(each.multiply()), expected):
            raise AssertionError(f"{each.name} on {each.kind}: other products than {first.name}")
