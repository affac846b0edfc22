"""The table of steps of curve kernels, and sums of points that need every part of the table."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve, PointArray
from gpu_executor.fields import Field
from gpu_executor.kernels.build import GLSL
from gpu_executor.kernels.curves import choose_variant, choose_work_group
from gpu_executor.msm.run import run_rows
from tests.support.device_arrays import get_device_memory

TEXT = (GLSL / "curves" / "point_serial.glsl").read_text()
P256 = Curve(
    Field(2**256 - 2**224 + 2**192 + 2**96 - 1),
    -3,
    0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
    order=0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    generator=(
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    ),
    name="p256",
)
"""A curve whose coefficient a is not 0."""


def test_the_parts_of_the_table_begin_where_the_boundaries_say() -> None:
    """A comment in the table begins each part: two of an addition, and three of a doubling."""
    table = TEXT[TEXT.index("const uvec2 PROGRAM[]") : TEXT.index("#define BOUNDARIES")]
    parts = re.split(r"// (?:the beginning of|its end)", table)[1:]
    steps = [len(re.findall(r"\b(?:MULX?|SQR|LIN|COPY)\(", part)) for part in parts]
    found = re.search(r"#define BOUNDARIES uint\[\]\(([\d, ]+)\)", TEXT)
    assert found is not None
    boundaries = [int(each) for each in found[1].split(",")]
    assert boundaries == [sum(steps[:number]) for number in range(len(steps) + 1)]
    assert boundaries[-1] == 44  # the iterations of the loops in get_step


@pytest.mark.parametrize(
    ("operation", "lanes", "grouped", "variant"),
    [
        ("combine", 1, False, "serial"),
        ("combine", 4, False, ""),
        ("accumulate", 1, True, "serial"),
        ("accumulate", 8, True, "grouped"),
        ("accumulate", 1, False, ""),
        ("to_limb_form", 1, False, ""),
    ],
)
def test_groups_of_one_invocation_have_the_serial_variant(
    operation: str, lanes: int, grouped: bool, variant: str
) -> None:
    assert choose_variant(operation, lanes, grouped=grouped) == variant


@pytest.mark.parametrize("count", [1, 40])
def test_sums_add_equal_points_opposite_points_and_infinity(
    gpu: gx.PersistentVulkanBackend, count: int
) -> None:
    """Few different points meet in the buckets. One point has the most iterations of one loop."""
    curve, device, generator = P256, get_device_memory(gpu), np.random.default_rng(count)
    logarithms = [(1, -1, 0, 5)[i % 4] for i in range(count)]
    scalars = [curve.order - 1, *(int(each) for each in generator.integers(0, 900, count - 1))]
    points = device.put((curve.generator * logarithms).affine().words())
    words = np.array(
        [[scalar >> 32 * i & 0xFFFFFFFF for i in range(8)] for scalar in scalars], np.uint32
    )
    bits = curve.order.bit_length()
    found = PointArray(
        curve, run_rows(device, curve.key, points, device.put(words[None]), bits).numpy()
    )
    total = sum(a * b for a, b in zip(logarithms, scalars, strict=True))
    assert (found == curve.generator * [total]).all()


@pytest.mark.parametrize(("shared_memory", "size"), [(32768, 8), (12000, 4), (3000, 1), (100, 1)])
def test_a_work_group_has_as_many_groups_as_shared_memory_has_room_for(
    gpu: gx.PersistentVulkanBackend, shared_memory: int, size: int
) -> None:
    """On a CPU a group is one invocation; over the field of G2 it has 2,560 bytes of registers."""
    info = get_device_memory(gpu).info
    limits = dataclasses.replace(info.limits, max_shared_memory=shared_memory)
    smaller = dataclasses.replace(info, kind="cpu", limits=limits)
    assert choose_work_group(gx.curves.BLS12_381_G2.key, smaller) == size
