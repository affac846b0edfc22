"""`gpu-executor bench all`: every benchmark of the suite, into one file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gpu_executor.bench.results import (
    BenchmarkResult,
    BenchmarkRun,
    describe_environment,
    read_run,
)
from gpu_executor.bench.suite import BENCHMARKS, Benchmark, Item, select_device
from gpu_executor.cli.bench_output import json_option, print_device
from gpu_executor.cli.options import make_programs_option
from gpu_executor.cli.output import STDOUT, JsonOutput, console, make_table, print_text
from gpu_executor.cli.progress import ProgressView, open_progress
from gpu_executor.common.files import write_atomically

DURATIONS = {True: "2 to 4", False: "5 to 15"}
"""Minutes of all benchmarks, of a quick run and of a full one: on lavapipe with two idle cores."""
PEERS = "peers"
"""The benchmark that measures programs of the user too."""
SAME = ("version", "commit", "machine", "device", "settings")
"""What must be the same for a run to be resumed."""


class SuiteProgress:
    """A task for all benchmarks, and one for the steps of the benchmark that runs."""

    def __init__(self, view: ProgressView, total: int) -> None:
        self._view = view
        self._all = view.begin("all benchmarks", total)
        self._name, self._done = "", 0

    def begin(self, name: str) -> None:
        self._name = name
        self._view.update(self._all, self._done, f"all benchmarks, now {name}")

    def end(self) -> None:
        self._done += 1
        self._view.update(self._all, self._done)

    def watch(self, items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
        """Yield the items and show how many were made."""
        return self._view.watch(items, total, f"{self._name}: {what}")


@click.command("all")
@click.option("--quick", is_flag=True, help="Few sizes and short times.")
@click.option("--resume", is_flag=True, help="Keep what the file of --json has measured already.")
@click.option(
    "--only",
    "names",
    type=click.Choice(tuple(BENCHMARKS)),
    multiple=True,
    help="Benchmarks; all by default.",
)
@make_programs_option("Measure a program of yours in `peers`, after the packages;")
@json_option
def bench_all(
    quick: bool,
    resume: bool,
    names: Sequence[str],
    programs: list[list[str]],
    json_file: Path | None,
) -> None:
    """Every benchmark, into one file for compare and report."""
    if programs and names and PEERS not in names:
        raise click.UsageError(f"--program is measured by {PEERS}: add --only {PEERS}")
    device = select_device()
    run = BenchmarkRun(describe_environment(device), quick)
    if resume:
        run = _resume(run, json_file)
    print_device(device)
    chosen = [each for name, each in BENCHMARKS.items() if not names or name in names]
    if programs:
        chosen = [_with_programs(each, programs) if each.name == PEERS else each for each in chosen]
    left = [each for each in chosen if not _is_measured(run, each.name, programs)]
    for each in chosen:
        if each not in left:
            console.print(f"{each.name}: measured at {run.benchmarks[each.name].date}, kept")
    if left:
        console.print(_estimate(len(left), quick))
    with open_progress() as view:
        progress = SuiteProgress(view, len(left))
        for each in left:
            progress.begin(each.name)
            try:
                result = each.run(progress.watch, quick=quick)
            except KeyboardInterrupt:
                if json_file not in (None, STDOUT) and run.benchmarks:
                    print_text(f"--resume goes on with {json_file}")
                raise
            run.benchmarks[each.name] = result
            _save(run, json_file)
            _print_state(each.name, result)
            progress.end()
    file = JsonOutput(json_file, run.as_dict())
    _print_summary(run)
    file.report()
    if json_file not in (None, STDOUT):
        print_text(f"`gpu-executor report {json_file} -o report.html` draws it.")
    failed = _list_failed_programs(run)
    for program in failed:
        print_text(f"{program['package']}: {program['reason']}")
    if failed or any(result.state == "failed" for result in run.benchmarks.values()):
        raise SystemExit(1)


def _with_programs(benchmark: Benchmark, programs: Sequence[Sequence[str]]) -> Benchmark:
    """The benchmark of other packages, which measures programs of the user too."""
    measure = functools.partial(benchmark.measure, programs=programs)
    return dataclasses.replace(benchmark, measure=measure)


def _resume(run: BenchmarkRun, path: Path | None) -> BenchmarkRun:
    """The run that the file has, if it was made under the same conditions."""
    if path is None or path == STDOUT:
        raise click.UsageError("--resume needs --json FILE, the file of the run to go on with")
    if not path.exists():
        return run
    found = read_run(path)
    different = [name for name in SAME if found.environment[name] != run.environment[name]]
    if found.quick != run.quick:
        different.append("--quick")
    if different:
        raise click.UsageError(
            f"{path} cannot be resumed: it differs in {', '.join(different)}. Name another file, "
            "or measure anew without --resume."
        )
    return found


def _estimate(count: int, quick: bool) -> str:
    return (
        f"{count} of {len(BENCHMARKS)} benchmarks. On an idle machine without a GPU all take "
        f"{DURATIONS[quick]} minutes, the first time the longest, because every pipeline is "
        "compiled.\n"
    )


def _is_measured(run: BenchmarkRun, name: str, programs: Sequence[Sequence[str]]) -> bool:
    """Whether a run has a benchmark, with programs of the user if some were given."""
    result = run.benchmarks.get(name)
    if result is None or result.state != "measured":
        return False
    return name != PEERS or not programs or bool(result.tables["programs"])


def _list_failed_programs(run: BenchmarkRun) -> list[Mapping[str, Any]]:
    """The programs of the user that did not work at all."""
    result = run.benchmarks.get(PEERS)
    programs = [] if result is None else result.tables.get("programs", [])
    return [each for each in programs if each["state"] == "failed"]


def _save(run: BenchmarkRun, path: Path | None) -> None:
    """Write what there is, so that an interrupted run can be resumed. An error is reported when
    the run ends."""
    if path not in (None, STDOUT) and (path.is_file() or not path.exists()):
        with contextlib.suppress(OSError):
            write_atomically(path, json.dumps(run.as_dict()).encode())


def _print_state(name: str, result: BenchmarkResult) -> None:
    took = "" if result.seconds is None else f" in {result.seconds:.0f} s"
    reason = "" if result.reason is None else f": {result.reason}"
    print_text(f"{name}: {result.state}{took}{reason}")


def _print_summary(run: BenchmarkRun) -> None:
    table = make_table("Benchmarks", "benchmark", "state", "seconds", "figures", "samples")
    for name, result in run.benchmarks.items():
        samples = sum(len(series.samples) for series in result.series)
        table.add_row(
            name,
            result.state,
            "" if result.seconds is None else f"{result.seconds:.0f}",
            f"{len(result.series):,}",
            f"{samples:,}",
        )
    console.print(table)
