"""`gpu-executor demo`: devices, a check of every backend, a comparison of calls, a report page."""

from __future__ import annotations

from pathlib import Path

import click
from rich.markup import escape

from gpu_executor.bench import suite
from gpu_executor.bench.results import BenchmarkResult, BenchmarkRun, describe_environment
from gpu_executor.cli.bench_persistent import print_comparison
from gpu_executor.cli.options import make_output_option, use_usual_forms
from gpu_executor.cli.output import console, print_text
from gpu_executor.cli.progress import show_progress
from gpu_executor.cli.report import write_report
from gpu_executor.cli.smoke import print_checks
from gpu_executor.report.page import make_page
from gpu_executor.report.verdict import list_verdict
from gpu_executor.vulkan.instance import find_devices


@click.command()
@make_output_option("gpu-executor-demo.html", "The report page to write.")
def demo(output: Path) -> None:
    """Show the devices, check every backend, compare speeds."""
    for device in find_devices():
        text = f"({device.kind}), {device.driver_version}"
        console.print(f"[bold]{escape(device.name)}[/] {escape(text)}")
    console.print("\nField additions on every backend and data path, compared with exact integers:")
    print_checks(1_000, indent="  ")
    console.print()
    click.get_current_context().with_resource(use_usual_forms())
    calls = suite.measure_persistent(show_progress, quick=True)
    print_comparison(calls.rows)
    batches = suite.measure_batches(show_progress, quick=True)
    streams = suite.measure_stream(show_progress, quick=True)
    others = suite.measure_peers(show_progress, quick=True)
    run = BenchmarkRun(describe_environment(calls.device), quick=True)
    measured = {"persistent": calls, "batch": batches, "stream": streams, "peers": others}
    for name, each in measured.items():
        run.benchmarks[name] = BenchmarkResult.of(each)
    for sentence in list_verdict(run):
        print_text(sentence.text)
        for package in sentence.packages:
            print_text(f"- {package}")
    console.print()
    write_report(make_page(run), output)
    console.print("`gpu-executor bench all` measures everything.")
    print_text(f"A page with charts and the pipeline: {output.resolve()}")
