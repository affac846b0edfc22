"""Results of benchmarks: what a JSON file of `gpu-executor bench` holds.

docs/benchmarks.md describes the format.

A file has the environment of a run (machine, device, versions, commit, date, settings) and the
results of one or more benchmarks. Each result has tables, which are the measurements as the
benchmark computed them, and series, which are all measured figures of these tables with all
samples, in one form for all benchmarks.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

from gpu_executor.bench.measurement import DescribedDevice, Measurement
from gpu_executor.bench.sampled import Sampled
from gpu_executor.common.main_memory import read_main_memory
from gpu_executor.errors import SettingsError
from gpu_executor.settings import Settings
from gpu_executor.version import __version__

FORMAT, FORMAT_VERSION = "gpu-executor bench", 1
State = Literal["measured", "skipped", "failed"]
Key = tuple[tuple[str, str | int | bool], ...]

PACKAGES = (
    *("numpy", "vulkan", "cffi", "wgpu", "galois", "python-flint", "ckzg", "py-ecc"),
    *(
        "py-arkworks-bls12381",
        "blake3",
        "pycryptodome",
        "eth-account",
        "ray",
        "pyopencl",
        "kp",
        "vkdispatch",
        "cupy",
        "cupy-cuda12x",
        "cupy-cuda13x",
        "torch",
    ),
)
"""Packages whose versions a file names, if they are installed."""
KEYS = frozenset((
    "elements", "jobs", "arrays", "direction", "field", "log_n", "rows", "curve", "log_points",
    "batch", "scalars", "name", "kind", "count", "package", "what", "function", "blobs", "queues",
    "private", "operation", "kernel", "inverted", "mode", "circuit", "log_constraints", "hash",
    "length", "log_leaves",
))  # fmt: skip
"""Columns that say which row of a table it is. All other columns are measured or computed."""
UNITS = {"_ms": "ms", "_us": "us", "_s": "s", "bytes_per_second": "B/s", "per_second": "/s"}
"""Units, by how the name of a column ends."""
OWN_UNITS = {
    **{"ms": "ms", "us": "us", "milliseconds": "ms"},
    **dict.fromkeys(("products_in_chains", "squares_in_chains", "additions_bound"), "/s"),
    **dict.fromkeys(("one_thread", "threads"), "/s"),
}
"""Units of columns whose names do not end with one."""
WITH_UNIT_COLUMN = frozenset({"measured", "reference"})
"""Columns whose unit is in the column `unit` of the same row."""
RATIO = "x"
NO_FIGURES = frozenset({"timelines", "aims"})
"""Tables without figures of their own: events, and targets of figures in other tables."""
MILLISECONDS = {"ms": 1.0, "us": 1e-3, "s": 1e3}
"""The units of times, in milliseconds."""
TIMES, RATES = frozenset(MILLISECONDS), frozenset({"/s", "B/s"})


@dataclass(frozen=True, slots=True)
class Series:
    """All samples of one figure."""

    table: str
    figure: str
    """The column of the table; `column.part` for a part of a column."""
    key: Key
    """The columns that say which row of the table it is, with their values."""
    unit: str
    """`ms`, `us`, `s`, `/s`, `B/s`, or `x` for a ratio."""
    value: float
    """The median of the samples, unless the benchmark takes the fastest."""
    samples: tuple[float, ...]

    @property
    def name(self) -> str:
        """What the figure is, in one line."""
        of = ", ".join(f"{name} {value}" for name, value in self.key)
        return f"{self.table}: {self.figure}" + (f" ({of})" if of else "")

    @property
    def identity(self) -> tuple[str, str, Key]:
        """What is equal for the same figure of two runs."""
        return self.table, self.figure, self.key

    @property
    def quartiles(self) -> tuple[float, float]:
        """The quartiles of the samples; the sample itself if there is one."""
        if len(self.samples) < 2:
            return self.value, self.value
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> tuple[float, float]:
        """Within which nine of ten samples lie: their 5th and 95th percentiles."""
        if len(self.samples) < 2:
            return self.value, self.value
        cuts = statistics.quantiles(self.samples, n=20, method="inclusive")
        return cuts[0], cuts[-1]

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"key": dict(self.key), "samples": list(self.samples)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        return cls(
            table=str(content["table"]),
            figure=str(content["figure"]),
            key=tuple(dict(content["key"]).items()),
            unit=str(content["unit"]),
            value=float(content["value"]),
            samples=tuple(map(float, content["samples"])),
        )


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """The result of one benchmark; `reason` says why it was skipped or how it failed."""

    state: State
    date: str
    seconds: float | None = None
    """How long the benchmark took; None if it was not timed."""
    reason: str | None = None
    device: dict[str, Any] | None = None
    """The device that the benchmark ran on."""
    tables: dict[str, Any] = field(default_factory=dict)
    series: tuple[Series, ...] = ()

    @classmethod
    def of(cls, measured: Measurement, seconds: float | None = None) -> Self:
        """The result of a benchmark that has measured something."""
        plain = {name: to_plain(table) for name, table in measured.tables().items()}
        return cls(
            state="measured",
            date=_read_date(),
            seconds=seconds,
            device=measured.device.as_dict(),
            tables=plain,
            series=tuple(list_series(plain)),
        )

    @classmethod
    def without(cls, state: State, reason: str, seconds: float | None = None) -> Self:
        """The result of a benchmark that has measured nothing."""
        return cls(state=state, date=_read_date(), seconds=seconds, reason=reason)

    def as_dict(self) -> dict[str, Any]:
        content = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return content | {"series": [each.as_dict() for each in self.series]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        given = {each.name: content[each.name] for each in dataclasses.fields(cls)}
        return cls(**given | {"series": tuple(map(Series.from_dict, content["series"]))})


@dataclass(slots=True)
class BenchmarkRun:
    """The environment of a run, and the results of its benchmarks by name."""

    environment: dict[str, Any]
    quick: bool = False
    benchmarks: dict[str, BenchmarkResult] = field(default_factory=dict)

    @property
    def device(self) -> dict[str, Any]:
        """The device of the run."""
        found: dict[str, Any] = self.environment["device"]
        return found

    def as_dict(self) -> dict[str, Any]:
        """What the JSON file holds."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **self.environment,
            "quick": self.quick,
            "benchmarks": {name: each.as_dict() for name, each in self.benchmarks.items()},
        }


def describe_environment(device: DescribedDevice) -> dict[str, Any]:
    """Describe machine, device, versions, commit, date and settings, for JSON."""
    settings = dataclasses.asdict(Settings.from_environment())
    described: dict[str, Any] = {
        "date": _read_date(),
        "version": __version__,
        "commit": _read_commit(),
        "machine": {
            "system": platform.platform(),
            "processor": _read_processor(),
            "cores": os.cpu_count(),
            "memory_bytes": read_main_memory(),
            "python": platform.python_version(),
            "packages": _read_packages(),
        },
        "device": device.as_dict(),
        # A path names folders of the machine, and says nothing of its speed.
        "settings": {
            name: "a folder" if isinstance(value, Path) else value
            for name, value in settings.items()
        },
    }
    # As a file holds it, with lists for tuples, so that it equals what is read from a file.
    return dict(json.loads(json.dumps(described)))


def read_run(path: Path) -> BenchmarkRun:
    """Read a file that `gpu-executor bench ... --json` wrote; raises `SettingsError` for others."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise SettingsError(
            f"{path} has no results of benchmarks; `gpu-executor bench all --json FILE` writes them"
        )
    if content["format_version"] != FORMAT_VERSION:
        raise SettingsError(
            f"{path} has version {content['format_version']} of the format; this version of the "
            f"package reads version {FORMAT_VERSION}. Measure again."
        )
    try:
        benchmarks = {
            name: BenchmarkResult.from_dict(each) for name, each in content["benchmarks"].items()
        }
        names = ("date", "version", "commit", "machine", "device", "settings")
        environment = {name: content[name] for name in names}
        return BenchmarkRun(environment, content["quick"], benchmarks)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SettingsError(
            f"{path} is damaged: {type(error).__name__} {error}. Measure again."
        ) from None


def to_plain(table: Any) -> Any:
    """Convert dataclasses to dictionaries of their fields, for JSON."""
    if dataclasses.is_dataclass(table) and not isinstance(table, type):
        return {
            each.name: to_plain(getattr(table, each.name)) for each in dataclasses.fields(table)
        }
    if isinstance(table, Mapping):
        return {str(name): to_plain(each) for name, each in table.items()}
    if isinstance(table, Sequence) and not isinstance(table, str):
        return [to_plain(each) for each in table]
    return table


def list_series(tables: Mapping[str, Any]) -> Iterator[Series]:
    """Yield the series of tables: all figures that have samples, or whose column has a unit.

    A table is a list of rows or a single row. A row may have further rows in a column.
    """
    seen: dict[tuple[str, str, Key], int] = {}
    for table, content in tables.items():
        if table in NO_FIGURES:
            continue
        for series in _list_table(table, content, ()):
            count = seen[series.identity] = seen.get(series.identity, 0) + 1
            # Rows that the columns of `KEYS` do not tell apart are numbered.
            key = series.key if count == 1 else (*series.key, ("number", count))
            yield dataclasses.replace(series, key=key)


def _list_table(table: str, content: Any, key: Key) -> Iterator[Series]:
    for row in content if isinstance(content, list) else [content]:
        if not isinstance(row, dict):
            continue
        own = tuple(
            (name, value)
            for name, value in row.items()
            if name in KEYS and isinstance(value, str | int | bool)
        )
        yield from _list_figures(table, "", row, (*key, *own))
        for name, value in row.items():
            if isinstance(value, list):
                yield from _list_table(f"{table}.{name}", value, (*key, *own))


def _list_figures(table: str, prefix: str, row: Mapping[str, Any], key: Key) -> Iterator[Series]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _list_figures(table, f"{prefix}{name}.", value, key)
        if not isinstance(value, float):
            continue
        unit = _find_unit(name) or _find_unit(prefix.rstrip("."))
        if name in WITH_UNIT_COLUMN:
            unit = row.get("unit")
        if unit is None and not isinstance(value, Sampled):
            continue
        samples = value.samples if isinstance(value, Sampled) else (float(value),)
        yield Series(table, prefix + name, key, unit or RATIO, float(value), samples)


def _find_unit(name: str) -> str | None:
    if name in OWN_UNITS:
        return OWN_UNITS[name]
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), None)


def _read_date() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _read_commit() -> str | None:
    """The commit of a checkout, with `+` if files differ from it; None elsewhere."""

    def run_git(*arguments: str) -> str:
        folder = Path(__file__).parent
        git = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
        )
        return git.stdout.strip()

    try:
        commit = run_git("rev-parse", "--short", "HEAD")
        changed = run_git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}+" if changed else commit


def _read_processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _read_packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
