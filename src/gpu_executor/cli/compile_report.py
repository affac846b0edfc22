"""`gpu-executor compile-report`: what AMD's compiler makes of every pipeline, without a GPU."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import click

from gpu_executor.cli.options import make_json_option
from gpu_executor.cli.output import JsonOutput, print_text
from gpu_executor.cli.progress import show_work
from gpu_executor.compile_report.null_hardware import PipelineFigures
from gpu_executor.compile_report.report import (
    EXPECTED_SPILLS,
    choose_families,
    compile_families,
    summarize,
)

COLUMNS = {
    "instr.": "instructions",
    "VGPRs": "vgprs",
    "SGPRs": "sgprs",
    "spilled": "spilled",
    "scratch": "scratch_bytes",
    "code": "code_bytes",
    "waves": "waves",
    "LDS": "lds_bytes",
    "latency": "latency",
    "inv.thr.": "inverse_throughput",
}
WIDTH = 9


@click.command("compile-report")
@make_json_option("Write the figures of every pipeline to this file;")
def compile_report(json_file: Path | None) -> None:
    """Compile every pipeline for AMD GPUs; nothing runs, and no GPU is needed.

    Needs RADV, Mesa's driver, of Debian's package mesa-vulkan-drivers. The families are navi21 and
    vega10, or the one that RADV_FORCE_FAMILY names. Sizes are bytes; scratch memory is that of a
    subgroup. Latency and inverse throughput are cycles of the compiler's model. A pipeline with a *
    is a variant for comparison, which operations do not use on these GPUs.

    The status is 1 if a pipeline fails, or keeps registers in memory without being expected to.
    """
    families = choose_families(os.environ)
    with show_work(f"compiling for {' and '.join(families)}"):
        reports = compile_families(families)
    summary = summarize(reports)
    content = {
        "families": [dataclasses.asdict(each) for each in reports],
        "summary": dataclasses.asdict(summary),
    }
    file = JsonOutput(json_file, content)
    for report in reports:
        print_text(f"{report.family}: {report.device}, {report.driver}; compiled, not run")
        print_text("".join(f"{name:>{WIDTH}}" for name in COLUMNS) + "  pipeline")
        for each in report.pipelines:
            print_text(format_row(each))
    file.report()
    for report in reports:
        for each in report.pipelines:
            if each.error:
                print_text(f"{report.family}: {each.module} ({each.kernel}) failed: {each.error}")
            elif each.spills:
                reason = EXPECTED_SPILLS.get(each.module, "not expected")
                print_text(f"{report.family}: {each.module} ({each.kernel}) spills: {reason}")
    print_text(str(summary))
    if not summary.is_good:
        sys.exit(1)


def format_row(figures: PipelineFigures) -> str:
    """Return the line of a pipeline."""
    spilled = figures.spilled_vgprs + figures.spilled_sgprs
    values = [spilled if name == "spilled" else getattr(figures, name) for name in COLUMNS.values()]
    mark = "" if figures.chosen else "*"
    name = f"{figures.module}{mark} {figures.kernel} ({figures.constants})"
    return "".join(f"{value:>{WIDTH}}" for value in values) + f"  {name}"
