"""Inverses by division steps, for primes that fill their words or not, against integers."""

from __future__ import annotations

import random

import pytest

import gpu_executor as gx
from gpu_executor.ops import scans

PRIMES = [2**64 - 59, 2**97 - 141, 2**255 - 19, 2**384 - 317]


@pytest.mark.parametrize("modulus", PRIMES, ids=lambda modulus: f"{modulus.bit_length()} bits")
def test_inverses_of_any_elements(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, modulus: int
) -> None:
    """Also of elements with few bits, of few bits less than the modulus, and of 0."""
    monkeypatch.setattr(scans, "count_direct_inverses", lambda _: 1 << 10)
    field, draw = gx.Field(modulus), random.Random(1)
    values = [0, 1, 2, 3, modulus // 2, modulus // 2 + 1, modulus - 2, modulus - 1]
    values += [1 << bit for bit in range(1, modulus.bit_length() - 1, 5)]
    values += [modulus - each for each in values[8:]]
    values += [draw.randrange(modulus) for _ in range(50)]
    there = gpu.to_device(field.encode(values)).in_form(field.prime.form)
    found = scans.invert(field.prime, there.data)
    expected = [pow(each, -1, modulus) if each else 0 for each in values]
    assert field.array_type(field, found, field.prime.form).tolist() == expected
