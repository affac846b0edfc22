"""Multiples and sums on a curve with a long order, whose loops lavapipe would end silently."""

from __future__ import annotations

import random

import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve

Gpu = gx.PersistentVulkanBackend


def parse(*parts: str) -> int:
    """A number in hexadecimal digits, in parts that fit a line."""
    return int("".join(parts), 16)


P521 = Curve(
    gx.Field(2**521 - 1),
    -3,
    parse(
        "51953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109",
        "e156193951ec7e937b1652c0bd3bb1bf073573df883d2c34f1ef451fd46b503f00",
    ),
    order=2**521
    - parse(
        "5ae79787c40d069948033feb708f65a2fc44a36477663b851449048e16ec79bf7",
    ),
    generator=(
        parse(
            "c6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3d",
            "baa14b5e77efe75928fe1dc127a2ffa8de3348b3c1856a429bf97e7e31c2e5bd66",
        ),
        parse(
            "11839296a789a3bc0045c8a5fb42c7d1bd998f54449579b446817afbd17273e6",
            "62c97ee72995ef42640c550b9013fad0761353c7086a272c24088be94769fd16650",
        ),
    ),
    name="P-521",
)


@pytest.mark.slow
def test_sums_of_few_points_and_multiples_of_p521(gpu: Gpu) -> None:
    """Windows of 2 bits take 783 steps to join, and 750 are joined by one dispatch."""
    draw, order = random.Random(1), P521.order
    logarithms = [draw.randrange(order) for _ in range(5)]
    rows = [[draw.randrange(order) for _ in range(5)] for _ in range(3)]
    rows[0] = [order - 1, 2**520, 1, 0, order // 3]
    host = P521.generator * logarithms
    points = gpu.to_device(host)
    for count in (1, 5):
        terms = [zip(row[:count], logarithms[:count], strict=True) for row in rows]
        sums = P521.generator * [sum(k * x for k, x in each) for each in terms]
        for row, expected in zip(rows, sums, strict=True):
            assert P521.msm(points[:count], row[:count]).to_host() == expected
        batch = [row[:count] for row in rows]
        assert (P521.msm(points[:count], batch).to_host() == sums).all()
    table = P521.precompute(points, window=2, memory=points.data.nbytes)
    assert (P521.msm(table, rows).to_host() == sums).all()
    products = [k * x for k, x in zip(rows[0], logarithms, strict=True)]
    assert ((points * rows[0]).to_host() == P521.generator * products).all()
    assert (points[0] * rows[0][0]).to_host() == P521.generator * products[0]
