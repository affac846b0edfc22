"""The sections of the report, one for each question that the benchmarks answer; head figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpu_executor.bench.results import BenchmarkRun
from gpu_executor.report.call_sections import (
    describe_stream,
    find_speed_up,
    show_batches,
    show_buckets,
    show_calls,
    show_executor,
    show_pipeline,
    show_stages,
    show_streams,
)
from gpu_executor.report.contents import (
    HeadFigure,
    Measurements,
    ReportSection,
    find_benchmark,
)
from gpu_executor.report.format import (
    format_count,
    format_rate,
    format_ratio,
    format_time,
)
from gpu_executor.report.groth16_section import show_groth16
from gpu_executor.report.hashes_section import make_label, show_hashes
from gpu_executor.report.kzg_section import show_kzg
from gpu_executor.report.number_sections import show_fields, show_msms, show_transforms
from gpu_executor.report.peer_section import show_peers


def list_sections(run: BenchmarkRun) -> list[ReportSection]:
    """All sections; those without measurements say why."""
    return [
        _describe(run, "persistent", "calls", "One-shot and persistent calls", show_calls),
        _describe(run, "batch", "batches", "Batches", show_batches),
        _describe(run, "batch", "pipeline", "The pipeline itself", show_pipeline),
        _describe(run, "stream", "streams", "Streams against the bus", show_streams),
        _describe(run, "persistent", "stages", "Where a call spends its time", show_stages),
        _describe(run, "buckets", "buckets", "Size buckets on WebGPU", show_buckets),
        _describe(run, "fields", "fields", "Fields and the roofline", show_fields),
        _describe(run, "ntt", "transforms", "Number-theoretic transforms", show_transforms),
        _describe(run, "msm", "msm", "Multi-scalar multiplication", show_msms),
        _describe(run, "kzg", "kzg", "KZG beside ckzg", show_kzg),
        _describe(run, "groth16", "groth16", "Groth16 proofs", show_groth16),
        _describe(run, "hashes", "hashes", "Hashes and Merkle trees", show_hashes),
        _describe(run, "executor", "executor", "GpuExecutor", show_executor),
        _describe(run, "peers", "peers", "Other packages on the same work", show_peers),
    ]


def _describe(run: BenchmarkRun, benchmark: str, name: str, title: str, show: Any) -> ReportSection:
    result = run.benchmarks.get(benchmark)
    if result is None:
        missing = f"`bench {benchmark}` was not part of this run; `gpu-executor bench all` runs it."
        return ReportSection(name, title, "", missing=missing)
    if result.state != "measured":
        state = "was skipped" if result.state == "skipped" else result.state
        reason = f"`bench {benchmark}` {state}: {result.reason}"
        return ReportSection(name, title, "", missing=reason)
    section: ReportSection = show(name, title, Measurements.of(result), run)
    return section


# --- head figures ---


def list_head_figures(run: BenchmarkRun) -> Iterator[HeadFigure]:
    """The numbers at the head of the page, of the benchmarks that were measured."""
    if (given := find_benchmark(run, "persistent")) is not None:
        row = given.rows("rows")[0]
        best = min(row["host_visible"]["average_ms"], row["device_local"]["average_ms"])
        yield HeadFigure(
            format_time(best),
            f"a call of {format_count(row['elements'])} elements",
            f"one-shot {format_time(row['one_shot_ms'])}",
        )
    if (given := find_benchmark(run, "batch")) is not None:
        row = max(given.rows("rows"), key=find_speed_up)
        yield HeadFigure(
            format_ratio(find_speed_up(row)),
            "pipelined over sequential batch",
            f"{row['jobs']} jobs of {format_count(row['elements'])}: "
            f"{format_time(row['sequential_ms'])} to {format_time(row['pipelined_ms'])}",
        )
    if (given := find_benchmark(run, "stream")) is not None:
        row = max(given.rows("streams"), key=lambda each: each["additions_per_second"])
        yield HeadFigure(
            format_rate(row["additions_per_second"]),
            f"streamed additions {describe_stream(row)}",
            f"copies alone {format_rate(given.rows('copies')[0]['elements_per_second'])}",
        )
    if (given := find_benchmark(run, "fields")) is not None:
        row = max(given.rows("rows"), key=lambda each: each["products_in_chains"] or 0)
        if row["products_in_chains"]:
            yield HeadFigure(
                format_rate(row["products_in_chains"]),
                f"products in {row['field']}, in registers",
                f"{row['bits']} bits",
            )
    if (given := find_benchmark(run, "ntt")) is not None:
        rows = [row for row in given.rows("rows") if row["rows"] == 1]
        row = max(rows, key=lambda each: (each["field"] == rows[0]["field"], each["log_n"]))
        yield HeadFigure(
            format_time(row["to_natural_ms"]),
            f"transform of 2^{row['log_n']} in {row['field']}",
            "device-resident",
        )
    if (given := find_benchmark(run, "msm")) is not None:
        times = given.rows("curves")[0]
        row = max(times["rows"], key=lambda each: each["log_points"])
        yield HeadFigure(
            format_time(row["ms"]),
            f"sum of 2^{row['log_points']} multiples on {times['curve']}",
            "scalars from NumPy",
        )
    if (given := find_benchmark(run, "kzg")) is not None:
        row = max(
            given.rows("rows"),
            key=lambda each: (each["function"] == "cells and proofs", each["blobs"]),
        )
        peer = "" if row["ckzg_ms"] is None else f"ckzg {format_time(row['ckzg_ms'])} on one thread"
        yield HeadFigure(
            format_time(row["ms"] / row["blobs"]), f"{row['function']}, per blob", peer
        )
    if (given := find_benchmark(run, "groth16")) is not None:
        rows = given.rows("rows")
        own = [row for row in rows if row["circuit"] == rows[0]["circuit"]]
        row = max(own, key=lambda each: each["log_constraints"])
        peers = [
            f"{each['package']} {format_time(each['ms'])}"
            for each in given.rows("peers")
            if each["ms"] is not None
            and all(each[name] == row[name] for name in ("circuit", "log_constraints"))
        ]
        yield HeadFigure(
            format_time(row["ms"]),
            f"Groth16 proof of 2^{row['log_constraints']} constraints",
            ", ".join(peers),
        )
    if (given := find_benchmark(run, "hashes")) is not None:
        row = max(given.rows("rows"), key=lambda each: each["hashes_per_second"])
        yield HeadFigure(
            format_rate(row["hashes_per_second"]),
            make_label(row),
            f"bound {format_rate(min(row['arithmetic_per_second'], row['memory_per_second']))}",
        )
