"""Comparison of two runs: which figures changed by more than they vary within a run.

Two runs of one program differ as a whole if the machine was busier or hotter during one of them.
Therefore a figure must also have changed by more than the benchmark as a whole. The change of a
whole benchmark, its drift, is a result of its own.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpu_executor.bench.results import RATES, TIMES, BenchmarkRun, Series

MIN_SAMPLES = 3
"""Figures with fewer samples have no spread and are not judged."""
MIN_CHANGE = 1.05
"""The least ratio that counts as a change."""
MIN_FIGURES = 5
"""Benchmarks with fewer judged figures have no drift."""
Verdict = Literal["faster", "slower", "same", "not judged"]


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in both runs."""

    benchmark: str
    before: Series
    after: Series
    drift: float = 1.0
    """The median speed of all judged figures of the benchmark."""

    @property
    def speed(self) -> float:
        """The speed of the second run over that of the first: above 1 is faster."""
        times = self.before.unit in TIMES
        first, second = (self.after, self.before) if times else (self.before, self.after)
        return second.value / first.value if first.value else float("nan")

    @property
    def verdict(self) -> Verdict:
        """A figure changed if the samples of the two runs do not overlap, neither as they are nor
        without the drift of the benchmark."""
        if not self.is_judged:
            return "not judged"
        if not (self._differs_from(1.0) and self._differs_from(self.drift)):
            return "same"
        return "faster" if self.speed > 1 else "slower"

    @property
    def is_judged(self) -> bool:
        return min(len(each.samples) for each in (self.before, self.after)) >= MIN_SAMPLES

    def _differs_from(self, drift: float) -> bool:
        """Whether the speed differs from the drift by more than the spread of both runs."""
        if 1 / MIN_CHANGE < self.speed / drift < MIN_CHANGE:
            return False
        factor = drift if self.before.unit in TIMES else 1 / drift
        (low, high), after = self.before.spread, self.after.spread
        return after[1] * factor < low or high < after[0] * factor


@dataclass(frozen=True, slots=True)
class RunComparison:
    """All figures of two runs; ratios are left out, because their times are compared."""

    changes: list[Change]
    only_before: int
    """Figures that only the first run has."""
    only_after: int
    differences: list[tuple[str, str, str]]
    """What differs in the environments: a name, and the values of both runs."""

    @property
    def drifts(self) -> dict[str, float]:
        """The median speed of every benchmark that has judged figures enough."""
        return {each.benchmark: each.drift for each in self.changes if each.drift != 1}

    def select(self, *verdicts: Verdict) -> list[Change]:
        """The changes with one of the verdicts, the largest first."""
        chosen = (each for each in self.changes if each.verdict in verdicts)
        return sorted(chosen, key=lambda each: max(each.speed, 1 / each.speed), reverse=True)


def compare_runs(before: BenchmarkRun, after: BenchmarkRun) -> RunComparison:
    """Compare all times and rates that both runs have."""
    first, second = (dict(_list_figures(run)) for run in (before, after))
    changes = [
        Change(name[0], series, second[name]) for name, series in first.items() if name in second
    ]
    drifts = {name: _compute_drift(name, changes) for name in {each.benchmark for each in changes}}
    return RunComparison(
        [dataclasses.replace(each, drift=drifts[each.benchmark]) for each in changes],
        len(first.keys() - second.keys()),
        len(second.keys() - first.keys()),
        list(_list_differences(before, after)),
    )


def _compute_drift(benchmark: str, changes: Sequence[Change]) -> float:
    speeds = [each.speed for each in changes if each.benchmark == benchmark and each.is_judged]
    return statistics.median(speeds) if len(speeds) >= MIN_FIGURES else 1.0


def _list_figures(run: BenchmarkRun) -> Iterator[tuple[tuple[Any, ...], Series]]:
    for name, result in run.benchmarks.items():
        for series in result.series:
            if series.unit in TIMES | RATES and series.value > 0:
                yield (name, *series.identity), series


def _list_differences(before: BenchmarkRun, after: BenchmarkRun) -> Iterator[tuple[str, str, str]]:
    first, second = _describe(before), _describe(after)
    for name, value in first.items():
        if value != second.get(name):
            yield name, str(value), str(second.get(name))


def _describe(run: BenchmarkRun) -> dict[str, Any]:
    """What may explain a difference: device, driver, machine, commit, settings."""
    environment, device = run.environment, run.device
    machine = {name: value for name, value in environment["machine"].items() if name != "packages"}
    return {
        "device": device.get("name"),
        "driver": device.get("driver_version"),
        "version": environment["version"],
        "commit": environment["commit"],
        "quick": run.quick,
        **machine,
        **environment["machine"]["packages"],
        **{f"setting {name}": value for name, value in environment["settings"].items()},
    }
