"""Points are accumulated with f64 limbs: exact, within the bounds, and only where both allow it.

A device that cannot round float64 toward zero, such as lavapipe, runs the kernel with the halves of
each product computed with integers (`EMULATED` in f64_limbs.glsl).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.curves import Curve, PointArray
from gpu_executor.kernels import curves as curve_kernels
from gpu_executor.kernels import modules
from gpu_executor.kernels.build import GLSL
from gpu_executor.kernels.curves import (
    F64_SLACK,
    choose_variant,
    curve_kernel,
    curve_limbs,
    f64_curve_limbs,
    point_limbs,
)
from gpu_executor.msm.plan import choose_f64_limbs
from gpu_executor.msm.run import run_rows
from gpu_executor.msm.stages import BucketSums, Msm, get_f64_constants
from gpu_executor.ops.points import make_dispatch, to_limb_form
from gpu_executor.primes.prime import Prime, is_prime
from gpu_executor.vulkan.device_memory import DeviceMemory
from gpu_executor.vulkan.device_trials import F64_LIMB_FEATURES
from tests.support.curves_under_test import FILLS_WORDS, NAMED_CURVES, SMALL, get_curve
from tests.support.device_arrays import get_device_memory
from tests.support.f64_emulation import compile_emulated
from tests.support.plans import describe_device

Words = npt.NDArray[np.uint32]
NEGATIVE = 1 << 31
WORD = np.dtype(np.uint32)


def make_baby_jubjub() -> Curve:
    """Baby Jubjub in Weierstrass form: a is not 0, and a point has order 2.

    y^2 = x^3 + A x^2 + x becomes short by x -> x + A / 3, so (A / 3, 0) has order 2.
    """
    field = gx.fields.BN254_FR
    p = field.prime.modulus
    third = 168698 * pow(3, -1, p) % p
    generator = (
        14414009007687342025526645003307639786191886886413750648631138442071909631647,
        14577268218881899420966779687690205425227431577728659819975198491127179315626,
    )
    order = 2736030358979909402780800718157159386076813972158567259200215660948447373041
    a, b = 1 - 3 * third**2, 2 * third**3 - third
    return Curve(field, a % p, b % p, order=order, generator=generator, name="baby jubjub")


BABY_JUBJUB = make_baby_jubjub()
ORDER_2 = 168698 * pow(3, -1, BABY_JUBJUB.key.prime.modulus) % BABY_JUBJUB.key.prime.modulus, 0


def load_emulated(module: str) -> bytes:
    return compile_emulated(module) if "_f64_" in module else modules.load_spirv(module)


@pytest.fixture
def device(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeviceMemory]:
    """A device whose single invocations accumulate, with f64 limbs."""
    memory = get_device_memory(gpu)
    if not memory.info.features >= F64_LIMB_FEATURES:
        monkeypatch.setattr(curve_kernels, "load_spirv", load_emulated)
    monkeypatch.setitem(vars(memory), "f64_limbs", True)
    made = Msm.make_sums

    def make_sums(self: Msm, buckets: DeviceArray | None = None) -> BucketSums:
        limbs = choose_f64_limbs(self._device, self._curve)
        return dataclasses.replace(made(self, buckets), grouped=False, f64_limbs=limbs)

    monkeypatch.setattr(Msm, "make_sums", make_sums)
    curve_kernel.cache_clear()
    yield memory
    curve_kernel.cache_clear()


def accumulate(
    device: DeviceMemory, curve: Curve, points: PointArray, runs: Sequence[Sequence[int]]
) -> list[list[PointArray]]:
    """The sums of runs of entries that the kernel leaves: for each run one or several points.

    An entry is the number of a point plus 1, negative if the point is subtracted.
    """
    key, length = curve.key, 7
    keys = np.array([bucket for bucket, run in enumerate(runs) for _ in run], np.uint32)
    signed = [entry for run in runs for entry in run]
    entries = np.array([abs(each) - 1 | NEGATIVE * (each < 0) for each in signed], np.uint32)
    count, words = -(-len(keys) // length), point_limbs(key)
    buckets, partials = (device.empty((n, words), WORD) for n in (len(runs), 2 * count))
    partial_keys = device.empty((2 * count,), WORD)
    for each in (buckets, partials, partial_keys):
        device.assign(each, np.uint32(0xFFFFFFFF if each is partial_keys else 0))
    limbs = f64_curve_limbs(key)
    assert limbs is not None
    table = to_limb_form(device, key, device.put(points.affine().words()))
    given = device.put(keys), device.put(entries), table, get_f64_constants(device, key, limbs)
    arrays = *given, buckets, partial_keys, partials
    push = len(keys), length, 2, 1
    device.submit(
        [
            make_dispatch(
                device, key, "accumulate", arrays, count, push, grouped=False, f64_limbs=limbs
            )
        ]
    )
    found = [[each] for each in decode(curve, buckets.numpy())]
    for bucket, point in zip(partial_keys.numpy(), decode(curve, partials.numpy()), strict=True):
        if bucket < NEGATIVE:
            found[bucket].append(point)
    return found


def decode(curve: Curve, rows: Words) -> Iterator[PointArray]:
    """The points that limbs stand for; checks what kernels that read the limbs rely on."""
    p, limbs = curve.key.prime.modulus, curve_limbs(curve.key)
    factor = pow(2, limbs.bits * limbs.count, p)
    for row in rows.reshape(len(rows), limbs.count, 4):
        assert (row < 1 << limbs.bits).all()
        numbers = [sum(int(each) << limbs.bits * i for i, each in enumerate(c)) for c in row.T]
        x, y, zz, zzz = (number * pow(factor, -1, p) % p for number in numbers)
        if not any(numbers):
            yield curve.infinity(())
            continue
        bounds = 8 * p, 4 * p, 2.2 * p, 2.2 * p
        assert all(number < bound for number, bound in zip(numbers, bounds, strict=True))
        assert zz and (zz**3 - zzz**2) % p == 0
        yield curve.from_affine(x * pow(zz, -1, p) % p, y * pow(zzz, -1, p) % p, check=False)


RUNS = [
    *([[2, 3], [2, 2, 2], [-2, -2], [2, 4], [2, -3], [1, 1], [1, 2, -1], [1]]),
    *([[2, 3, 5], [2, 3, -5], [2, -2, 2, 2], [-2, -3, 5, 5, 5], [5, 6, 7, -7, -7], [4, 2, 8]]),
]
LOGARITHMS = [0, 1, 1, -1, 2, 3, 5]
"""Infinity, equal and opposite points, and points whose sums are equal and opposite."""


@pytest.mark.slow
def test_sums_are_exact(device: DeviceMemory) -> None:
    """On a curve whose a is not 0; with the least slack of all named curves the code is the same,
    and its bounds are those of `test_numbers_stay_below_the_bounds`."""
    curve = BABY_JUBJUB
    draw = np.random.default_rng(1)
    logarithms = [*LOGARITHMS, *(int(each) for each in draw.integers(1, 1 << 62, 30))]
    runs = [*RUNS, *(draw_run(draw, size) for size in (1, 7, 40, 2, 13, 300, 1, 1, 25))]
    points = curve.generator * [each % curve.order for each in logarithms]
    for run, found in zip(runs, accumulate(device, curve, points, runs), strict=True):
        total = sum(logarithms[abs(each) - 1] * (1 if each > 0 else -1) for each in run)
        assert sum(found[1:], found[0]) == curve.generator * total


def draw_run(draw: np.random.Generator, size: int) -> list[int]:
    numbers, signs = draw.integers(1, 38, size), draw.choice([-1, 1], size)
    return [int(each) for each in numbers * signs]


def test_a_point_of_order_2_is_its_own_opposite(device: DeviceMemory) -> None:
    curve = BABY_JUBJUB
    special = curve.from_affine([ORDER_2[0]], [0], check=False)
    points = curve.concatenate([special, curve.generator.reshape(1)])
    found = accumulate(device, curve, points, [[1, 1], [1, -1, 2], [1, 2, 1], [-1]])
    sums = [sum(each[1:], each[0]) for each in found]
    assert sums[0].is_infinity()
    assert sums[1] == curve.generator and sums[2] == curve.generator
    assert sums[3].tolist() == ORDER_2


@pytest.mark.parametrize("scalars", ["random", "equal", "one bucket"])
def test_other_kernels_read_the_sums(device: DeviceMemory, scalars: str) -> None:
    curve, draw = BABY_JUBJUB, np.random.default_rng(2)
    logarithms = [LOGARITHMS[i % 7] if i % 3 else i for i in range(60)]
    drawn = [int.from_bytes(draw.bytes(31), "little") % curve.order for _ in logarithms]
    chosen = {"random": drawn, "equal": drawn[:1] * 60, "one bucket": [1] * 60}[scalars]
    points = curve.generator * [each % curve.order for each in logarithms]
    words = np.array([[each >> 32 * i & 0xFFFFFFFF for i in range(8)] for each in chosen], WORD)
    there, bits = device.put(points.affine().words()), curve.order.bit_length()
    found = run_rows(device, curve.key, there, device.put(words[None]), bits)
    total = sum(a * b for a, b in zip(logarithms, chosen, strict=True))
    assert (PointArray(curve, found.numpy()) == curve.generator * [total % curve.order]).all()


# --- which curves and devices have f64 limbs ---


def test_primes_with_enough_slack_have_f64_limbs() -> None:
    served = {name for name in NAMED_CURVES if f64_curve_limbs(get_curve(name).key)}
    assert served == {"BN254_G1", "PALLAS", "VESTA"}
    for curve in (*SMALL, FILLS_WORDS):
        assert f64_curve_limbs(curve.key) is None


@pytest.mark.parametrize(("step", "served"), [(-1, True), (1, False)])
def test_the_slack_decides(step: int, served: bool) -> None:
    modulus = 2**260 // F64_SLACK
    while not is_prime(modulus):
        modulus += step
    key = dataclasses.replace(gx.curves.PALLAS.key, prime=Prime("at the limit", modulus))
    limbs = f64_curve_limbs(key)
    assert (limbs is not None) == served
    if limbs is not None:
        assert (limbs.count, limbs.shift) == (5, 1)
        integers = curve_limbs(key)
        assert integers.bits * integers.count == limbs.bits * limbs.count + limbs.shift


def test_devices_decide_and_are_asked_only_by_curves_with_f64_limbs() -> None:
    class Device:
        def __init__(self, answer: bool, vendor: str = "NVIDIA") -> None:
            self.answer, self.asked = answer, 0
            self.info = dataclasses.replace(describe_device(), vendor=vendor)

        @property
        def f64_limbs(self) -> bool:
            self.asked += 1
            return self.answer

    for answer in (False, True):
        device = Device(answer)
        there = cast(ArrayDevice, device)
        assert choose_f64_limbs(there, gx.curves.BLS12_381_G1.key) is None
        assert choose_f64_limbs(there, gx.curves.BN254_G2.key) is None
        assert device.asked == 0
        found = choose_f64_limbs(there, gx.curves.BN254_G1.key)
        assert (found is not None) == answer
    amd = Device(True, "AMD")  # where the accumulation with f64 limbs needs scratch memory
    assert choose_f64_limbs(cast(ArrayDevice, amd), gx.curves.BN254_G1.key) is None
    assert amd.asked == 0
    assert choose_variant("accumulate", 1, grouped=False, f64_limbs=True) == "f64"


@pytest.mark.parametrize("shift", [0, 1])
def test_numbers_stay_below_the_bounds(shift: int) -> None:
    """The bounds of add_affine in units of p, each product at the largest operands."""
    text = (GLSL / "curves" / "point_mixed_f64.glsl").read_text()
    found = {name: int(value) for name, value in re.findall(r"\b(MULTIPLE_\w+) = (\d+)", text)}
    of_x, of_y, of_sum = (found[f"MULTIPLE_{name}"] for name in ("X", "Y", "SUM"))

    def mul(a: Fraction, b: Fraction) -> Fraction:
        return Fraction(math.ceil((1 + a * b / F64_SLACK) * 1000), 1000)

    one = Fraction(1)
    x, y, z = one, one, one  # the first point of a sum
    for _ in range(50):
        r, u = mul(one, z) + of_y, mul(one, z) + of_x
        v = mul(u, u)
        w, s = mul(u, v), mul(x, v)
        square = mul(r, r)
        assert v < 3 and r < 5  # n_is_multiple
        assert w + 2 * s <= of_sum
        assert y * w / F64_SLACK <= 1  # r t - y w + p is not negative
        x, y = 2**shift * square + of_sum, mul(r, s + of_x) + 1
        z = mul(z, max(v, w))
        assert x <= of_x and y <= of_y
    assert x < 8 and y < 4 and 2**shift * z < Fraction(22, 10)  # what other kernels read
    # A doubling: R = 3 x^2 + a and P = 2 y, times 2^shift.
    r, u = 3 * mul(one, one) + 1, 2 * one * 2**shift
    v = mul(u, u)
    w, s = mul(u, v), mul(one, v)
    assert 2 * s <= of_sum and max(v, w) <= z + 1
    assert 2**shift * mul(r, r) + of_sum <= of_x
    assert mul(r, s + of_x) + mul(one, w) <= of_y
