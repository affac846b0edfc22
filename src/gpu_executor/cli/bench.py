"""`gpu-executor bench`: measurements as tables, and as JSON with where they were made."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from gpu_executor.bench import (
    batch,
    buckets,
    fields,
    floors,
    persistent,
    product_peers,
    second_process,
    stream,
    transform_peers,
    transforms,
)
from gpu_executor.bench.persistent import PathFigures, Row
from gpu_executor.cli import bench_buckets as bucket_tables
from gpu_executor.cli import bench_fields as field_tables
from gpu_executor.cli import bench_ntt as ntt_tables
from gpu_executor.cli.bench_executor import bench_executor
from gpu_executor.cli.figures import (
    chosen_device,
    plain_aims,
    show_aims,
    show_device,
    with_progress,
    write,
)
from gpu_executor.cli.screen import console, elements, milliseconds, per_second, table
from gpu_executor.device_info import DeviceInfo
from gpu_executor.settings import Settings
from gpu_executor.telemetry.stages import STAGES
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

Item = TypeVar("Item")


@click.group()
def bench() -> None:
    """Measure this machine."""


bench.add_command(bench_executor)


@bench.command("persistent")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures there.")
def bench_persistent(json_file: Path | None) -> None:
    """One-shot against persistent field additions, the floors, and kernels alone."""
    device = chosen_device()
    show_device(device)
    rows = list(with_progress(persistent.rows(), len(persistent.SIZES), "sizes"))
    console.print(comparison(rows))
    console.print(_stages(rows))
    settings = Settings.from_environment()
    ratios = [floors.fixed_cost(settings), floors.copies_and_kernel(settings)]
    console.print(_ratios(ratios))
    rates = list(with_progress(floors.rates(settings), 6, "kernels alone"))
    console.print(_rates(rates))
    first = second_process.first_calls()
    console.print(
        f"first call of a process: {milliseconds(first.without_ms)} without the disk cache, "
        f"{milliseconds(first.with_ms)} with it (pipeline {milliseconds(first.pipeline_without_ms)}"
        f" and {milliseconds(first.pipeline_with_ms)}; {first.cache_bytes:,} bytes of cache)"
    )
    if json_file is not None:
        figures = {
            "rows": [dataclasses.asdict(row) for row in rows],
            "ratios": [dataclasses.asdict(each) | {"ratio": each.ratio} for each in ratios],
            "rates": [dataclasses.asdict(rate) for rate in rates],
            "first_call_of_a_process": dataclasses.asdict(first),
        }
        write(json_file, device, figures)


@bench.command("batch")
@click.option("--all", "all_sizes", is_flag=True, help="All sizes, on a software device too.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures there.")
def bench_batch(all_sizes: bool, json_file: Path | None) -> None:
    """Batches one after the other, overlapped and left to the plan; the cost of a piece."""
    with PersistentVulkanBackend() as gpu:
        show_device(gpu.device)
        hot_path = batch.hot_path(gpu)
        sizes = batch.sizes_for(gpu.device, all_sizes=all_sizes)
        rows = list(with_progress(batch.rows(gpu, sizes), 2 * len(sizes), "batches"))
    console.print(_batches(rows))
    worst = min(rows, key=lambda row: row.of_best)
    console.print(
        f"left to the plan, {worst.of_best:.2f} of the better of the two or more (aim "
        f"{batch.PLAN_AIM}); least at {worst.jobs} jobs of {elements(worst.elements)}, "
        f"{worst.arrays} arrays\n"
    )
    console.print(_hot_path(hot_path))
    if json_file is not None:
        figures = {
            "rows": [dataclasses.asdict(row) for row in rows],
            "hot_path": [dataclasses.asdict(each) for each in hot_path],
        }
        write(json_file, gpu.device, figures)


@bench.command("stream")
@click.option(
    "--elements", "count", type=click.IntRange(1), help="How many; 16 Mi, 1 Mi without a GPU."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures there.")
def bench_stream(count: int | None, json_file: Path | None) -> None:
    """Streamed additions against the limit of the bus: the same bytes, copied alone."""
    with PersistentVulkanBackend() as gpu:
        show_device(gpu.device)
        count = count or stream.usual_elements(gpu.device)
        figures = stream.measure(
            gpu, count, lambda turns: with_progress(turns, stream.TURNS, "turns")
        )
    console.print(_copies(figures))
    console.print(_streams(figures, gpu.device))
    if json_file is not None:
        write(json_file, gpu.device, dataclasses.asdict(figures))


@bench.command("buckets")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures there.")
def bench_buckets(json_file: Path | None) -> None:
    """Batches of mixed sizes on WebGPU: nothing kept, pipelines kept, buckets; a small task."""
    with buckets.opened() as on:
        console.print(f"{on.adapter.name}, {on.adapter.backend}, wgpu-py {on.adapter.wgpu}\n")
        rows = list(with_progress(buckets.rows(on), len(buckets.SCENARIOS), "batches"))
        singles = buckets.singles(on)
    console.print(bucket_tables.batches(rows))
    console.print(bucket_tables.legend(rows))
    console.print(bucket_tables.single_tasks(singles))
    console.print(bucket_tables.made_in_steady_state(rows, singles))
    for paragraph in bucket_tables.analysis(rows, singles):
        console.print(f"- {paragraph}")
    if json_file is not None:
        figures = {
            "rows": [dataclasses.asdict(row) for row in rows],
            "singles": [dataclasses.asdict(each) | {"tail": each.tail} for each in singles],
        }
        # It is asked for what it is and for nothing else, as devices are.
        write(json_file, cast(DeviceInfo, on.adapter), figures)


@bench.command("fields")
@click.option(
    "--products",
    "count",
    type=click.IntRange(1),
    help="How many beside other packages'; 1 Mi, 64 Ki without a GPU.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures there.")
def bench_fields(count: int | None, json_file: Path | None) -> None:
    """Products, squares and additions of every named field; products beside other packages'."""
    with PersistentVulkanBackend() as gpu:
        show_device(gpu.device)
        measured = fields.rows(gpu, fields.sizes_for(gpu.device))
        rows = list(with_progress(measured, len(fields.FIELDS), "fields"))
        products = product_peers.compare(gpu, count or product_peers.usual_count(gpu.device))
    console.print(field_tables.rates(rows))
    console.print(field_tables.memory(rows))
    console.print(field_tables.whole_arrays(rows))
    console.print(field_tables.LEGEND)
    console.print(field_tables.products(products))
    aims = fields.aims(rows, gpu.device) + product_peers.aims(products, gpu.device)
    show_aims(aims, products.absent)
    if json_file is not None:
        figures = {
            "rows": [dataclasses.asdict(row) for row in rows],
            "products": dataclasses.asdict(products),
            "aims": plain_aims(aims),
        }
        write(json_file, gpu.device, figures)


@bench.command("ntt")
@click.option(
    "--largest",
    type=click.IntRange(transforms.SMALLEST, 27),
    help="Size of the largest as a power of two; 24, 16 without a GPU.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures there.")
def bench_ntt(largest: int | None, json_file: Path | None) -> None:
    """Number-theoretic transforms on the card and NumPy to NumPy; beside other packages'."""
    with PersistentVulkanBackend() as gpu:
        show_device(gpu.device)
        sizes = transforms.sizes_for(gpu.device, largest)
        by_field = list(
            with_progress(transforms.rows(gpu, sizes), len(transforms.FIELDS), "fields")
        )
        duels, absent = transform_peers.compare(gpu, transform_peers.sizes_for(gpu.device))
    for of_field in by_field:
        console.print(ntt_tables.transforms(of_field))
    rows = [row for of_field in by_field for row in of_field]
    console.print(ntt_tables.LEGEND)
    if duels:
        console.print(ntt_tables.duels(duels))
    aims = transforms.aims(rows, gpu.device)
    show_aims(aims, absent)
    if json_file is not None:
        growth = transforms.growth(rows)
        figures = {
            "rows": [
                dataclasses.asdict(row) | {"growth": grown}
                for row, grown in zip(rows, growth, strict=True)
            ],
            "duels": [dataclasses.asdict(each) for each in duels],
            "absent": absent,
            "aims": plain_aims(aims),
        }
        write(json_file, gpu.device, figures)


def comparison(rows: list[Row]) -> Any:
    """One-shot and persistent side by side."""
    made = table(
        "BLS12-381 base-field additions, NumPy to NumPy",
        *("size", "path", "one-shot", "init", "first", "average", "speed-up", "seeds", "adds"),
    )
    for row in rows:
        seed = f"{row.seed_speed_up:.1f}x" if row.seed_speed_up else ""
        for path, figures in (("host", row.host_visible), ("device", row.device_local)):
            first = path == "host"
            made.add_row(
                elements(row.elements) if first else "",
                path,
                milliseconds(row.one_shot_ms) if first else "",
                *_path_cells(figures),
                seed if first else "",
                per_second(figures.additions_per_second),
            )
    return made


def _path_cells(figures: PathFigures) -> tuple[str, str, str, str]:
    return (
        milliseconds(figures.init_ms),
        milliseconds(figures.first_ms),
        milliseconds(figures.average_ms),
        f"{figures.speed_up:.1f}x",
    )


def _stages(rows: list[Row]) -> Any:
    headings = [{"descriptors": "sets", "recording": "record"}.get(s, s) for s in STAGES]
    made = table("Where a call goes (ms)", "size", "path", *headings)
    for row in rows:
        for name, stages in (
            ("one-shot", row.one_shot_stages_ms),
            ("host", row.host_visible.stages_ms),
            ("device", row.device_local.stages_ms),
        ):
            cells = [f"{stages[stage]:.3f}" if stages.get(stage) else "-" for stage in STAGES]
            made.add_row(elements(row.elements) if name == "one-shot" else "", name, *cells)
    return made


def _ratios(ratios: list[floors.Ratio]) -> Any:
    made = table("Against the floor of the same run", "what", "took", "floor", "ratio", "aim")
    for each in ratios:
        made.add_row(
            each.name,
            f"{each.measured:.1f} {each.unit}",
            f"{each.floor:.1f} {each.unit}",
            f"{each.ratio:.2f}",
            f"{each.allowed:.1f}",
        )
    return made


def _rates(rates: list[floors.Rate]) -> Any:
    made = table("Kernels alone, by the device's clock", "kernel", "size", "rate", "memory")
    for rate in rates:
        moved = "" if rate.bytes_per_second is None else f"{rate.bytes_per_second / 1e9:,.1f} GB/s"
        made.add_row(rate.name, elements(rate.elements), per_second(rate.per_second), moved)
    return made


def _batches(rows: list[batch.Row]) -> Any:
    made = table(
        "Batches of BLS12-381 base-field additions (ms)",
        *("size", "arrays", "jobs", "sequential", "pipelined", "a job", "faster", "seeds"),
        *("plan", "ratio"),
    )
    for row in rows:
        first = row.jobs == batch.JOBS[0]
        seed = "" if row.seed_speed_up is None else f"{row.seed_speed_up:.2f}x"
        made.add_row(
            elements(row.elements) if first and row.arrays == "plain" else "",
            row.arrays if first else "",
            str(row.jobs),
            _three_figures(row.sequential_ms),
            _three_figures(row.pipelined_ms),
            _three_figures(row.job_ms),
            f"{row.speed_up:.2f}x",
            seed,
            _three_figures(row.plan_ms),
            f"{row.of_best:.2f}",
        )
    return made


def _three_figures(value: float) -> str:
    decimals = sum(value < limit for limit in (0.9995, 9.995, 99.95))
    return f"{value:.{decimals}f}"


def _hot_path(measured: list[batch.HotPath]) -> Any:
    made = table(
        f"Host time of a mapped piece of {batch.SMALL_PIECE} (us)",
        *("queues", "submissions", "start", "finish", "both", "aim"),
    )
    names = {"one": "one", "split": "three"}
    for each in measured:
        made.add_row(
            names[each.queues],
            str(each.submissions),
            f"{each.start_us:.1f}",
            f"{each.finish_us:.1f}",
            f"{each.piece_us:.1f}",
            f"{batch.HOT_PATH_AIM_US:.0f}",
        )
    return made


def _copies(figures: stream.Figures) -> Any:
    made = table(
        f"Copies alone, {elements(figures.chunk)} elements each",
        *("direction", "rate", "in", "out"),
    )
    for each in figures.copies:
        moved = each.bytes_in_per_second, each.bytes_out_per_second
        made.add_row(
            each.direction,
            per_second(each.elements_per_second),
            *(f"{rate / 1e9:.1f} GB/s" if rate else "" for rate in moved),
        )
    return made


def _streams(figures: stream.Figures, device: DeviceInfo) -> Any:
    made = table(
        f"{elements(figures.elements)} BLS12-381 base-field additions",
        *("arrays", "took", "additions", "of the limit", "aim"),
    )
    aims = {"mapped": f"{stream.MAPPED_AIM} of it"}
    plain = f"{per_second(stream.PLAIN_AIM)} on H200"
    for each in figures.streams:
        aim = plain if each.arrays.startswith("plain") else aims.get(each.arrays, "")
        made.add_row(
            each.arrays,
            milliseconds(each.milliseconds),
            per_second(each.additions_per_second),
            f"{each.of_limit:.2f}",
            aim if device.kind == "discrete" else "",
        )
    return made
