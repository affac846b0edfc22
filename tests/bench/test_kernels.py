"""The benchmark of matrix products and reductions: what it measures, prints and writes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gpu_executor as gx
from gpu_executor.bench import kernel_timing, kernels
from gpu_executor.bench.kernels import KernelMeasurement, KernelRow, KernelSizes
from gpu_executor.cli.commands import commands
from gpu_executor.kernels.catalogue import fma_chain_kernel
from gpu_executor.vulkan.instance import find_devices
from tests.support.benchmark_files import read_tables

SMALL = KernelSizes((20, 5), 100, 10, 8_000, 64, 16)
SQUARE = (4096, 4096)
MEASURED = KernelMeasurement(
    find_devices()[0],
    60e12,
    4e12,
    (
        KernelRow("matmul_f32", (SQUARE, SQUARE), 4.6, "f32 arithmetic", 2.3, 0.5),
        KernelRow("matmul_f32", ((8, 8), (8, 8)), 0.002, "memory", 0.001, 0.1),
        KernelRow("reduce_sum_f32", ((1 << 26,),), 0.09, "memory", 0.067, 0.74),
    ),
    targets=[],
)


def test_every_call_is_measured_beside_the_roofline(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_timing, "WARM_UP_SECONDS", 0.01)
    found = kernels.measure_kernels(gpu, SMALL, repeats=2)
    assert min(found.f32_flops, found.copy_bytes_per_second) > 0
    assert [(row.kernel, kernels.describe_shapes(row.shapes)) for row in found.rows] == [
        ("matmul_f32", "20x20 @ 20x20"),
        ("matmul_f32", "5x5 @ 5x5"),
        ("matmul_f32", "100x10 @ 10x1"),
        ("matmul_f32", "1x10 @ 10x100"),
        ("matmul_u32", "20x20 @ 20x20"),
        ("reduce_sum_f32", "8,000"),
        ("reduce_max_f32", "8,000"),
        ("reduce_sum_u32", "8,000"),
    ]
    for row in found.rows:
        assert min(row.ms, row.roofline_ms) > 0
        assert row.of_roofline == pytest.approx(row.roofline_ms / row.ms)
    # A reduction reads each element once.
    assert found.rows[-1].limit == "memory"
    moved = 4 * 8_000 / found.copy_bytes_per_second
    assert found.rows[-1].roofline_ms == pytest.approx(moved * 1e3)


def test_the_limit_is_the_slower_of_arithmetic_and_memory(gpu: gx.PersistentVulkanBackend) -> None:
    a, b = (gpu.to_device(np.zeros(shape, np.float32)) for shape in ((3, 5), (5, 7)))
    operations, moved = 2 * 3 * 5 * 7, 4 * (15 + 35 + 21)
    assert kernels._find_limit([a, b], 10.0, 1e9) == ("f32 arithmetic", operations / 10)
    assert kernels._find_limit([a, b], 1e9, 10.0) == ("memory", moved / 10)


def test_wrong_results_are_detected(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_wrongly(_gpu: Any, _kernel: Any, a: Any, *_: Any) -> Any:
        return a.numpy() + 1

    monkeypatch.setattr(gx.PersistentVulkanBackend, "run", run_wrongly)
    with pytest.raises(AssertionError, match="matmul_f32 20x20 @ 20x20: wrong results"):
        kernels.measure_kernels(gpu, SMALL, repeats=1)


def test_chains_multiply_and_add(gpu: gx.PersistentVulkanBackend) -> None:
    """The kernel behind the roofline of arithmetic computes what it counts."""
    a = np.array([0.5, 0.25, 1.0], np.float32)
    result = gpu.run(fma_chain_kernel(16), a)
    expected = np.zeros(3, np.float64)
    for start in range(8):
        x = np.full(3, start, np.float64)
        for _ in range(16):
            x = x * a + a
        expected += x
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_there_are_targets_on_an_h200_only(gpu: gx.PersistentVulkanBackend) -> None:
    h200 = dataclasses.replace(gpu.device, name="NVIDIA H200")
    targets = kernels.check_targets(MEASURED.rows, h200)
    assert [(target.what, target.met) for target in targets] == [
        ("matmul_f32 4,096x4,096 @ 4,096x4,096, of its roofline", True),
        ("reduce_sum_f32 67,108,864, of its roofline", False),
    ]
    other = dataclasses.replace(gpu.device, name="some other")
    assert kernels.check_targets(MEASURED.rows, other) == []


def test_the_command_prints_a_table_and_writes_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernels, "measure_kernels", lambda _gpu, _sizes: MEASURED)
    file = tmp_path / "kernels.json"
    shown = CliRunner().invoke(commands, ["bench", "kernels", "--json", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "4.6 ms" in shown.output and "60 TFLOP/s" in shown.output
    assert "…" not in shown.output  # which rich prints where it truncates
    written = read_tables(file, "kernels")
    assert written["f32_flops"] == 60e12
    assert [row["of_roofline"] for row in written["rows"]] == [
        row["of_roofline"] for row in map(dataclasses.asdict, MEASURED.rows)
    ]
