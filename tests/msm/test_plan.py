"""Plans of multi-scalar multiplications, tables of multiples, and batches in parts."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.curves import PointArray
from gpu_executor.msm import parts as msm_parts
from gpu_executor.msm.plan import MsmPlan, plan_msm
from gpu_executor.msm.run import run_tables
from gpu_executor.ops.points import to_limb_form
from tests.support.device_arrays import get_device_memory

POINTS, BATCH, WINDOW_BITS = 12, 5, 4


def test_a_plan_grows_its_windows_with_the_number_of_points() -> None:
    chosen = [plan_msm(1 << log_count, 1, 255).window_bits for log_count in (4, 10, 16, 22)]
    assert chosen == sorted(set(chosen))
    assert plan_msm(1 << 20, 1, 255).windows * plan_msm(1 << 20, 1, 255).window_bits >= 256


def test_a_plan_says_what_it_does() -> None:
    plan = MsmPlan(4096, 8, 255, 8, tables=32)
    assert str(plan) == (
        "8 x 4,096 points in 32 windows of 8 bits and 32 tables of multiples: 1,048,576 mixed "
        "additions to 1,024 buckets"
    )


@pytest.mark.parametrize(("tables", "most_entries"), [(1, 1 << 22), (3, 1500), (64, 1 << 22)])
def test_tables_of_multiples_and_parts_of_a_batch_give_the_same_sums(
    gpu: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    tables: int,
    most_entries: int,
) -> None:
    """Windows share the buckets of their table's window; a batch of five runs in parts of one."""
    monkeypatch.setattr(msm_parts, "MAX_ENTRIES", most_entries)
    monkeypatch.setattr(msm_parts, "MAX_ENTRIES_ON_CPU", most_entries)
    curve, device = gx.curves.BLS12_381_G1, get_device_memory(gpu)
    plan = MsmPlan(POINTS, 1, curve.order.bit_length(), WINDOW_BITS, tables)
    generator = np.random.default_rng(tables)
    logarithms = [int.from_bytes(generator.bytes(32), "little") for _ in range(POINTS)]
    scalars = [
        [int.from_bytes(generator.bytes(32), "little") % curve.order for _ in range(POINTS)]
        for _ in range(BATCH)
    ]
    step = plan.table_windows * WINDOW_BITS
    multiples = [each << step * table for table in range(tables) for each in logarithms]
    table = device.put((curve.generator * multiples).affine().words())
    words = np.asarray(curve.scalar_field.encode(scalars)).view(np.uint32)
    tables_of_limbs = to_limb_form(device, curve.key, table)
    sums = run_tables(curve.key, plan, tables_of_limbs, device.put(words), (BATCH,))
    found = PointArray(curve, sums.numpy())
    totals = [sum(a * b for a, b in zip(logarithms, row, strict=True)) for row in scalars]
    assert (found == curve.generator * totals).all()
