"""`gpu-executor bench ntt`: number-theoretic transforms, and those of other packages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from gpu_executor.bench import transform_comparison, transforms
from gpu_executor.bench.transform_comparison import TransformComparison
from gpu_executor.bench.transforms import TransformRow
from gpu_executor.cli.bench_output import (
    json_option,
    print_device,
    print_targets,
    targets_as_dicts,
    write_json,
)
from gpu_executor.cli.output import console, format_milliseconds, make_table, show_progress
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

LEGEND = (
    "The first four times are of device arrays: transforms from natural to bit-reversed or natural "
    "order, and inverse transforms from these orders back to natural order. Each was recorded as a "
    "graph and submitted many times in a row; only the last submission was waited for. NumPy to "
    "NumPy: upload, transform in natural order and readback, each call waited for. growth: the "
    "time to natural order over n log2 n, relative to the largest size. All inverses gave the "
    "original input, and one value of each size was checked against the polynomial at its point.\n"
)


@click.command("ntt")
@click.option(
    "--largest",
    type=click.IntRange(transforms.SMALLEST, 27),
    show_default="24; 16 without a GPU",
    help="Log2 of the largest size.",
)
@json_option
def bench_ntt(largest: int | None, json_file: Path | None) -> None:
    """Number-theoretic transforms, ours and other packages'."""
    with PersistentVulkanBackend() as gpu:
        print_device(gpu.device)
        sizes = transforms.choose_sizes(gpu.device, largest)
        measured = transforms.measure_transforms(gpu, sizes)
        by_field = list(show_progress(measured, len(transforms.FIELDS), "fields"))
        comparisons, absent = transform_comparison.compare_transforms(
            gpu, transform_comparison.choose_sizes(gpu.device)
        )
    rows = [row for field_rows in by_field for row in field_rows]
    targets = transforms.check_targets(rows, gpu.device)
    growth = transforms.compute_growth(rows)
    content = {
        "rows": [
            dataclasses.asdict(row) | {"growth": grown}
            for row, grown in zip(rows, growth, strict=True)
        ],
        "duels": [dataclasses.asdict(each) for each in comparisons],
        "absent": absent,
        "aims": targets_as_dicts(targets),
    }
    file = write_json(json_file, gpu.device, content)
    for field_rows in by_field:
        console.print(_make_transforms_table(field_rows))
    console.print(LEGEND)
    if comparisons:
        console.print(_make_comparisons_table(comparisons))
    print_targets(targets, absent)
    file.report()


def _make_transforms_table(rows: Sequence[TransformRow]) -> Table:
    """Make a table of all sizes of one field."""
    table = make_table(
        f"Number-theoretic transforms in {rows[0].field}",
        *("size", "to reversed\norder", "to natural\norder"),
        *("back from\nreversed", "back from\nnatural", "NumPy to\nNumPy", "growth"),
    )
    for row, growth in zip(rows, transforms.compute_growth(rows), strict=True):
        table.add_row(
            f"2^{row.log_n}" if row.rows == 1 else f"{row.rows} x 2^{row.log_n}",
            format_milliseconds(row.to_reversed_ms),
            format_milliseconds(row.to_natural_ms),
            format_milliseconds(row.back_from_reversed_ms),
            format_milliseconds(row.back_from_natural_ms),
            format_milliseconds(row.numpy_ms),
            f"{growth:.2f}",
        )
    return table


def _make_comparisons_table(comparisons: Sequence[TransformComparison]) -> Table:
    table = make_table(
        "The same work by packages on the CPU, array to array",
        *("package", "work", "package's time", "our time", "speed-up"),
    )
    for each in comparisons:
        table.add_row(
            each.package,
            each.what,
            format_milliseconds(each.theirs_ms),
            format_milliseconds(each.ours_ms),
            f"{each.faster:.2f}x",
        )
    return table
