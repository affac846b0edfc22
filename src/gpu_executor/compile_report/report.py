"""The report on all families: their figures, what is expected to spill, and the summary."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

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
    "wide_fold": "values of large primes at arities of 8 and 16, and their extensions: one pass "
    "over the memory, and more numbers than registers",
    "f64_limbs_fold": "as wide_fold; not chosen on AMD, for comparison",
    "goldilocks_fold": "sixteen values of an extension of degree 3",
    "sha256_fixed": "scalar registers on vega10, to lanes of a vector register, not to memory",
    "wide_poseidon": "states of nine numbers and more are arrays in memory",
    "f64_limbs_poseidon": "not chosen on AMD: integer limbs hash there; for comparison",
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
    """Compile every pipeline for all families, each in a process of its own, side by side. The
    processes end with this call, also if it is interrupted."""
    driver = find_driver()
    with contextlib.ExitStack() as ending:
        processes = []
        for family in families:
            process = subprocess.Popen(
                [sys.executable, "-m", "gpu_executor.compile_report"],
                env=make_environment(family, driver),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C in a terminal is a matter of this process alone
            )
            ending.enter_context(process)
            ending.callback(process.kill)
            processes.append(process)
        return [_wait(family, process) for family, process in zip(families, processes, strict=True)]


def _wait(family: str, process: subprocess.Popen[str]) -> FamilyReport:
    """Return the report of a process when it has ended."""
    printed, errors = process.communicate()
    if process.returncode:
        *_, reason = ["it printed nothing", *errors.strip().splitlines()]
        status = f"status {process.returncode}"
        if process.returncode < 0:
            status = signal.Signals(-process.returncode).name
        raise GpuError(
            f"{FAMILY_VARIABLE}={family}: the process that compiles ended with {status}: {reason}"
        )
    return parse_report(family, printed)


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
