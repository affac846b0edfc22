"""The report on all families: their figures, what is expected to spill, and the summary."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpu_executor.bench.child_process import run_python
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.compile_report.null_hardware import (
    DEFAULT_FAMILIES,
    FAMILY_VARIABLE,
    PipelineFigures,
    find_driver,
    make_environment,
)
from gpu_executor.errors import GpuError

EXPECTED_SPILLS = {
    "curve2_accumulate": "not chosen on AMD: groups of invocations accumulate there "
    "(device_profiles.py); for comparison",
    "curve1_f64_accumulate": "not chosen on AMD: integer limbs accumulate there "
    "(device_profiles.py); for comparison",
}
"""The modules whose pipelines may keep registers in memory, and why they stay."""


@dataclass(frozen=True, slots=True)
class FamilyReport:
    """The figures of all pipelines on one family."""

    family: str
    device: str
    driver: str
    pipelines: tuple[PipelineFigures, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What the last line says."""

    pipelines: int
    failed: int
    spilling: int
    unexpected: int
    """Of those that spill, the pipelines whose modules `EXPECTED_SPILLS` does not list."""

    @property
    def is_good(self) -> bool:
        """Whether all pipelines are as they should be."""
        return not (self.failed or self.unexpected)

    def __str__(self) -> str:
        return (
            f"{self.pipelines:,} pipelines, {self.failed:,} failed, {self.spilling:,} spilling or "
            f"with scratch memory ({self.unexpected:,} of them not expected to)"
        )


def choose_families(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the family that the environment names, or else the usual ones."""
    named = environment.get(FAMILY_VARIABLE, "").strip()
    return (named,) if named else DEFAULT_FAMILIES


def compile_families(families: Sequence[str]) -> list[FamilyReport]:
    """Compile for all families, each in a process of its own, side by side."""
    with ThreadPoolExecutor(len(families)) as threads:
        return list(threads.map(compile_family, families))


def compile_family(family: str) -> FamilyReport:
    """Compile every pipeline for a family, in another process."""
    environment = make_environment(family, find_driver())
    done = run_python(["-m", "gpu_executor.compile_report"], environment=environment)
    if done.returncode:
        *_, reason = ["it printed nothing", *done.stderr.strip().splitlines()]
        status = f"status {done.returncode}"
        if done.returncode < 0:
            status = signal.Signals(-done.returncode).name
        raise GpuError(
            f"{FAMILY_VARIABLE}={family}: the process that compiles ended with {status}: {reason}"
        )
    return parse_report(family, done.stdout)


def parse_report(family: str, text: str) -> FamilyReport:
    """Return the report that a process has printed as JSON."""
    found: dict[str, Any] = json.loads(text)
    pipelines = tuple(PipelineFigures(**each) for each in found["pipelines"])
    return FamilyReport(family, found["device"], found["driver"], pipelines)


def summarize(
    reports: Sequence[FamilyReport], expected: Mapping[str, str] = EXPECTED_SPILLS
) -> Summary:
    """Count the pipelines of all families."""
    figures = [each for report in reports for each in report.pipelines]
    spilling = [each for each in figures if each.spills]
    return Summary(
        len(figures),
        sum(bool(each.error) for each in figures),
        len(spilling),
        sum(each.module not in expected for each in spilling),
    )
