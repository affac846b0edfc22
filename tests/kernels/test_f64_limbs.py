"""Kernels with f64 limbs: exact, and used only on devices where they are faster.

A device that cannot round float64 toward zero, such as lavapipe, runs the same kernels with the
halves of each product computed with integers (`EMULATED` in f64_limbs.glsl): limbs, carries and
reductions are tested then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.errors import DeviceLacksError
from gpu_executor.fields import BLS12_381_FR, Field, FieldArray
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import catalogue, elements, modules, passes
from gpu_executor.kernels.catalogue import mont_mul_chain_kernel
from gpu_executor.kernels.elements import CONVERSIONS, OPERATIONS, PRODUCTS, element_kernel
from gpu_executor.kernels.families import module_family
from gpu_executor.ops.polynomials import evaluate_rows
from gpu_executor.primes import BABYBEAR, GOLDILOCKS, Prime, words
from gpu_executor.vulkan import device_trials
from gpu_executor.vulkan.device_memory import DeviceMemory
from gpu_executor.vulkan.device_trials import F64_LIMB_FEATURES, try_f64_limbs
from tests.support.element_operations import (
    compute_expected,
    draw_elements,
    list_edge_values,
    list_exponents,
    make_operands,
    to_words,
)
from tests.support.f64_emulation import compile_emulated

FR = BLS12_381_FR.prime
FULL416 = Prime("full 416 bits", 2**416 - 435)
"""Exactly 8 limbs of 52 bits and exactly 13 words."""
FULL104 = Prime("full 104 bits", 2**104 - 17)
"""Exactly 2 limbs of 52 bits."""
TWO_LIMBS = Prime("53 bits", 2**52 + 21)
PRIMES = [
    *(FR, Field(2**256 - 2**32 - 977).prime, gx.fields.BLS12_381_FQ.prime),
    Prime("full 32 bits", 2**32 - 5),
    TWO_LIMBS,
    Prime("full 64 bits", 2**64 - 59),
    Prime("full 96 bits", 2**96 - 17),
    Prime("full 224 bits", 2**224 - 63),
    FULL416,
    Prime("601 bits", 2**600 + 187),  # 19 words, 12 limbs: the maximum
]
# lavapipe takes seconds to compile products of many limbs, so squares are tested with one limb,
# with even and odd numbers of them and with full ones, and operations that share the code of a
# product with two limbs.
CALLS = [(prime, "mul") for prime in PRIMES]
CALLS += [(prime, "square") for prime in (FR, PRIMES[3], TWO_LIMBS, FULL104)]
CALLS += [(TWO_LIMBS, operation) for operation in ("fma", *CONVERSIONS)]
on_every_call = pytest.mark.parametrize(
    ("prime", "operation"), CALLS, ids=[f"{prime.name}-{name}" for prime, name in CALLS]
)
# 104 bits fill 2 limbs, so powers have 3; 64 and 256 bits fill their words.
POWER_PRIMES = [*PRIMES[1:2], *PRIMES[3:6], FULL104]


def load_emulated(module: str) -> bytes:
    is_f64 = module.startswith("f64_limbs_")
    return compile_emulated(module) if is_f64 else modules.load_spirv(module)


def forget_kernels() -> None:
    elements._make_kernel.cache_clear()
    passes.scan_kernel.cache_clear()
    passes.evaluate_rows_kernel.cache_clear()
    catalogue.mont_mul_chain_kernel.cache_clear()


@pytest.fixture
def device(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeviceMemory]:
    """A device that multiplies f64 limbs."""
    devices = gpu._session.device_memory
    if not devices.info.features >= F64_LIMB_FEATURES:
        for module in (elements, passes, catalogue):
            monkeypatch.setattr(module, "load_spirv", load_emulated)
    forget_kernels()
    monkeypatch.setitem(vars(devices), "f64_limbs", True)
    yield devices
    forget_kernels()


def limb_edges(prime: Prime) -> list[int]:
    """The usual edge values, and values at which a 52-bit limb is full or empty."""
    boundaries = range(0, prime.bits, 52)
    near = {(1 << bit) + off for bit in boundaries for off in (-1, 0, 1)}
    full = sum(1 << bit for bit in range(prime.bits)) - prime.modulus
    return sorted(
        {*list_edge_values(prime), *(n for n in near if 0 <= n < prime.modulus), abs(full)}
    )


@on_every_call
def test_products_are_exact(
    gpu: gx.PersistentVulkanBackend, device: DeviceMemory, prime: Prime, operation: str
) -> None:
    kernel = element_kernel(prime, operation, f64_limbs=True)
    assert kernel.digest != element_kernel(prime, operation).digest
    ints, _ = make_operands(prime, operation, [500] * kernel.inputs)
    known = limb_edges(prime)[:40]
    pairs = [(a, b, known[0]) for a in known for b in known]
    ints = [[*own, *(pair[side] for pair in pairs)] for side, own in enumerate(ints)]
    result = gpu.run(kernel, *(words.from_ints(prime, each) for each in ints))
    assert words.to_ints(prime, result) == compute_expected(prime, operation, ints)


@pytest.mark.parametrize("prime", POWER_PRIMES, ids=lambda prime: prime.name)
def test_powers_are_exact(
    gpu: gx.PersistentVulkanBackend, device: DeviceMemory, prime: Prime
) -> None:
    values = [*draw_elements(prime, 70, 1), *limb_edges(prime)]
    kernel = element_kernel(prime, "power", f64_limbs=True)
    for exponent in list_exponents(prime):
        result = gpu.run(kernel, words.from_ints(prime, values), to_words(exponent, prime.words))
        expected = compute_expected(prime, "power", [values, [exponent]])
        assert words.to_ints(prime, result) == expected


def test_inverses_and_running_products_are_exact(
    gpu: gx.PersistentVulkanBackend, device: DeviceMemory
) -> None:
    prime, field = TWO_LIMBS, Field(TWO_LIMBS.modulus)
    values = draw_elements(prime, 5000, 3)  # more than are inverted singly
    x = gpu.to_device(field.encode(values))
    inverses = [pow(value, -1, prime.modulus) if value else 0 for value in values]
    assert field.inverse(x).ints().tolist() == inverses
    nonzero = [value or 1 for value in values]
    running = [nonzero[0]]
    for value in nonzero[1:]:
        running.append(running[-1] * value % prime.modulus)
    assert field.prefix_product(gpu.to_device(field.encode(nonzero))).ints().tolist() == running


def test_polynomials_are_evaluated_exactly(
    gpu: gx.PersistentVulkanBackend, device: DeviceMemory
) -> None:
    prime, field = TWO_LIMBS, Field(TWO_LIMBS.modulus)
    coefficients, points = draw_elements(prime, 100, 1), draw_elements(prime, 50, 2)
    x, at = (gpu.to_device(field.encode(each)) for each in (coefficients, points))
    values = [
        sum(c * pow(point, i, prime.modulus) for i, c in enumerate(coefficients)) % prime.modulus
        for point in points
    ]
    assert field.poly_eval(x, at).ints().tolist() == values
    rows = gpu.to_device(field.encode([coefficients[:64], coefficients[36:]]))
    assert isinstance(rows.data, DeviceArray)
    found = FieldArray(field, evaluate_rows(prime, rows.data, points[:2]), field.form)
    assert found.tolist() == [
        sum(c * pow(point, i, prime.modulus) for i, c in enumerate(row)) % prime.modulus
        for row, point in zip((coefficients[:64], coefficients[36:]), points, strict=False)
    ]


def test_chains_of_products_are_exact(
    gpu: gx.PersistentVulkanBackend, device: DeviceMemory
) -> None:
    prime = TWO_LIMBS
    a, b = draw_elements(prime, 300, 1), draw_elements(prime, 300, 2)
    kernel = mont_mul_chain_kernel(prime, 6, f64_limbs=True)
    found = gpu.run(kernel, words.from_ints(prime, a), words.from_ints(prime, b))
    r = pow(prime.r, -1, prime.modulus)
    exact = [x * pow(y * r, 6, prime.modulus) % prime.modulus for x, y in zip(a, b, strict=True)]
    assert words.to_ints(prime, found) == exact


def find_nonresidue(modulus: int) -> int:
    return next(each for each in range(2, 100) if pow(each, modulus // 2, modulus) != 1)


def test_products_in_an_extension_are_exact(
    gpu: gx.PersistentVulkanBackend, device: DeviceMemory
) -> None:
    field = gx.ExtensionField(Field(TWO_LIMBS.modulus), find_nonresidue(TWO_LIMBS.modulus))
    edges = limb_edges(field.prime)[:30]
    a, b = (
        field.encode([(x, y) for x in edges for y in edges[:4]]),
        field.random(len(edges) * 4, seed=1),
    )
    kernels = [passes.scan_kernel(field.prime, "extension_products", f64_limbs=f) for f in (0, 1)]
    assert kernels[0].digest != kernels[1].digest
    found = gpu.to_device(a) * gpu.to_device(b)
    assert found.tolist() == (a * b).tolist()


def test_only_products_of_large_primes_have_f64_limbs() -> None:
    for operation in OPERATIONS:
        own = "f64_limbs" if operation in PRODUCTS else "wide"
        assert module_family(FR, operation, f64_limbs=True) == own
        assert module_family(FR, operation, f64_limbs=False) == "wide"
    assert module_family(FR, "dif_pass", f64_limbs=True) == "wide"
    assert module_family(Prime("610 bits", 2**610 - 27), "mul", f64_limbs=True) == "wide"
    assert module_family(GOLDILOCKS, "mul", f64_limbs=True) == "goldilocks"
    assert module_family(BABYBEAR, "mul", f64_limbs=True) == "monty31"


def test_the_code_declares_the_capabilities_it_needs() -> None:
    for operation in PRODUCTS:
        plain, made = (element_kernel(FR, operation, f64_limbs=each) for each in (False, True))
        added = {*made.interface.capability_names()} - {*plain.interface.capability_names()}
        assert added == {"Float64", "RoundingModeRTZ"}


def test_a_device_without_round_toward_zero_refuses_the_kernels(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    features = gpu._session.device_memory.info.features
    a, kernel = words.from_ints(FR, [1, 2, 3]), element_kernel(FR, "square", f64_limbs=True)
    if features >= F64_LIMB_FEATURES:
        assert words.to_ints(FR, gpu.run(kernel, a)) == compute_expected(FR, "square", [[1, 2, 3]])
        return
    assert not gpu._session.device_memory.f64_limbs
    with pytest.raises(DeviceLacksError, match=r"RoundingModeRTZ.*lacks shaderRoundingModeRTZ"):
        gpu.run(kernel, a)


class Trial:
    """The trial of f64 limbs on a device that has the features, with given times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, device: DeviceMemory) -> None:
        self.patch, self.device = monkeypatch, device
        monkeypatch.setattr(device_trials, "F64_LIMB_FEATURES", frozenset())
        for name in ("TRIAL_POINTS", "TRIAL_DISTINCT_POINTS"):
            monkeypatch.setattr(device_trials, name, 1 << 8)
        monkeypatch.setattr(device_trials, "TRIAL_COEFFICIENTS", 16)

    def pays(self, with_integers: float, with_f64_limbs: float) -> bool:
        times = iter([with_integers, with_f64_limbs] * device_trials.TRIAL_REPEATS)

        def seconds(devices: DeviceMemory, work: Any) -> float:
            devices.submit(work)
            return next(times)

        self.patch.setattr(device_trials, "_time", seconds)
        return try_f64_limbs(self.device)


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch, device: DeviceMemory) -> Trial:
    return Trial(monkeypatch, device)


def test_f64_limbs_are_used_where_they_are_faster(trial: Trial) -> None:
    assert trial.pays(2, 1)
    assert not trial.pays(1, 2)


def test_a_device_with_wrong_results_does_not_use_f64_limbs(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(prime: Prime, name: str, *, f64_limbs: bool) -> Kernel:
        other = Prime("another", 2**255 - 19)
        return passes.scan_kernel(other if f64_limbs else prime, name)

    monkeypatch.setattr(device_trials, "scan_kernel", wrong)
    assert not trial.pays(2, 1)


def test_the_trial_is_not_recorded_into_a_graph(
    gpu: gx.PersistentVulkanBackend, trial: Trial, device: DeviceMemory
) -> None:
    x = gpu.to_device(BLS12_381_FR.encode([1, 2, 3]))
    with gpu.graph(x) as graph:
        assert trial.pays(2, 1)
        y = BLS12_381_FR.square(x)
    assert len(graph) == 1
    graph()
    assert y.ints().tolist() == [1, 4, 9]


def test_times_are_taken_on_an_idle_device(device: DeviceMemory) -> None:
    x = device.put(words.from_ints(FR, [5, 6, 7]))
    y = device.empty(x.shape, x.dtype)
    work = Dispatch(element_kernel(FR, "add"), (x, x, y), 3)
    assert device_trials._time(device, [work]) > 0
    assert np.array_equal(y.numpy(), words.from_ints(FR, [10, 12, 14]))
