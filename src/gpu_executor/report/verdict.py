"""The verdict of a report: what is faster here and what is slower, in words.

Every ratio is the quotient of two figures of the same run, which the sections below show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpu_executor.bench.peer_programs import FIRST_WORK
from gpu_executor.bench.peers import OWN
from gpu_executor.bench.results import BenchmarkRun
from gpu_executor.report.contents import find_benchmark
from gpu_executor.report.format import format_count, format_range, format_ratio, format_time
from gpu_executor.report.hashes_section import describe_row
from gpu_executor.report.kzg_section import find_time_per_blob
from gpu_executor.report.peer_section import OPERATIONS, PROGRAM_OPERATIONS

EVEN = 1.05
"""Times that differ by less than this factor are about the same."""
MOST_SIZES = 4
"""Sizes of a work that are named, where not all of them are on one side; more are counted."""
KINDS = {
    "cpu": "Software driver",
    "integrated": "Integrated GPU",
    "discrete": "Discrete GPU",
    "virtual": "Virtual GPU",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same work by another package and by this one."""

    package: str
    work: str
    size: str
    """How much work it was, in words; empty if the work says it."""
    speed: float
    """The time of the package over that of this package: above 1 this package is faster."""


@dataclass(frozen=True, slots=True)
class VerdictSentence:
    """A sentence of the verdict, and what it lists below it."""

    text: str
    packages: Sequence[str] = ()
    """A package and its works in each."""


def list_verdict(run: BenchmarkRun) -> list[VerdictSentence]:
    """The sentences of the verdict."""
    device = run.device
    kind = KINDS.get(str(device.get("kind")), "Device")
    text = f"{kind}: {device.get('name', 'a device')}."
    if device.get("kind") == "cpu":
        text += " The CPU of this machine runs the kernels, beside programs that are made for it."
    sentences = [VerdictSentence(text)]
    compared = list(list_comparisons(run))
    for begin, choose in (
        ("Faster here than this package", lambda each: each.speed < 1 / EVEN),
        ("About as fast as this package", lambda each: 1 / EVEN <= each.speed <= EVEN),
        ("Slower here than this package", lambda each: each.speed > EVEN),
    ):
        if packages := list(_list_side(compared, choose)):
            sentences.append(VerdictSentence(f"{begin}:", packages))
    if not compared:
        sentences.append(VerdictSentence("No other package was measured in this run."))
    sentences += map(VerdictSentence, _describe_calls(run))
    return sentences


def list_comparisons(run: BenchmarkRun) -> Iterator[Comparison]:
    """All work that this run has by this package and by another one."""
    yield from _list_peers(run)
    yield from _list_programs(run)
    yield from _list_kzg(run)
    if (given := find_benchmark(run, "ntt")) is not None:
        for row in given.rows("duels"):
            speed = row["theirs_ms"] / row["ours_ms"]
            yield Comparison(row["package"], f"transforms ({row['what']})", "", speed)
    if (given := find_benchmark(run, "groth16")) is not None:
        names = "curve", "circuit", "log_constraints"
        own = {tuple(row[name] for name in names): row["ms"] for row in given.rows("rows")}
        for row in given.rows("peers"):
            if row["ms"] is not None:
                speed = row["ms"] / own[tuple(row[name] for name in names)]
                size = f"2^{row['log_constraints']} constraints"
                work = f"Groth16 proofs ({row['circuit']})"
                yield Comparison(row["package"], work, size, speed)
    if (given := find_benchmark(run, "hashes")) is not None:
        rates = {(row["hash"], row["what"], row["length"]): row for row in given.rows("rows")}
        for row in given.rows("peers"):
            own_row = rates.get((row["hash"], row["what"], row["length"]))
            if row["per_second"] is not None and own_row is not None:
                speed = own_row["hashes_per_second"] / row["per_second"]
                package = f"{row['package']} on all cores"
                yield Comparison(package, row["hash"], describe_row(own_row), speed)


def _list_peers(run: BenchmarkRun) -> Iterator[Comparison]:
    given = find_benchmark(run, "peers")
    rows = [row for row in given.rows("rows") if row["ms"] is not None] if given else []
    own = {(row["operation"], row["elements"]): row["ms"] for row in rows if row["package"] == OWN}
    for row in rows:
        if row["package"] != OWN:
            title, unit = OPERATIONS[row["operation"]]
            count = row["elements"]
            size = f"{format_count(count)} {unit}" + ("" if count == 1 else "s")
            speed = row["ms"] / own[row["operation"], count]
            yield Comparison(row["package"], _lower_first(title), size, speed)
    firsts = [row for row in given.rows("first_calls") if row["ms"] is not None] if given else []
    own_first = {row["operation"]: row["ms"] for row in firsts if row["package"] == OWN}
    for row in firsts:
        if row["package"] != OWN:
            work = f"{FIRST_WORK[row['operation']]} in a new process"
            yield Comparison(row["package"], work, "", row["ms"] / own_first[row["operation"]])


def _list_programs(run: BenchmarkRun) -> Iterator[Comparison]:
    """The works of programs of the user."""
    given = find_benchmark(run, "peers")
    rows = [row for row in given.rows("program_rows") if row["ms"] is not None] if given else []
    names = "operation", "field", "curve", "what", "elements"
    own = {tuple(row[name] for name in names): row["ms"] for row in rows if row["package"] == OWN}
    for row in rows:
        if row["package"] != OWN:
            structure = row["field"] or row["curve"]
            within = "" if structure is None else f" in {structure}"
            size = f"{format_count(row['elements'])}{within} ({row['what']})"
            speed = row["ms"] / own[tuple(row[name] for name in names)]
            yield Comparison(row["package"], PROGRAM_OPERATIONS[row["operation"]], size, speed)


def _list_kzg(run: BenchmarkRun) -> Iterator[Comparison]:
    given = find_benchmark(run, "kzg")
    for row in given.rows("rows") if given else ():
        own = row["ms"] / row["blobs"]
        size = f"{row['blobs']} blob" + ("" if row["blobs"] == 1 else "s")
        for column, package in (
            ("ckzg_ms", "ckzg on one thread"),
            ("ckzg_all_cores_ms", "ckzg on all cores"),
        ):
            theirs = find_time_per_blob(row, column)
            if theirs is not None:
                yield Comparison(package, f"KZG {row['function']}", size, theirs / own)


def _lower_first(title: str) -> str:
    """A title within a sentence; names such as BabyBear and KZG stay as they are."""
    first = title.split(maxsplit=1)[0]
    return title if first[1:] != first[1:].lower() else title[0].lower() + title[1:]


def _list_side(
    compared: Sequence[Comparison], choose: Callable[[Comparison], bool]
) -> Iterator[str]:
    """The works of one side for each package: "NumPy for sums (2x to 3x), products (4x)"."""
    for package in dict.fromkeys(each.package for each in compared):
        own = [each for each in compared if each.package == package]
        works = [
            _describe_work([each for each in own if each.work == work], choose)
            for work in dict.fromkeys(each.work for each in own)
        ]
        if shown := [words for words in works if words]:
            yield f"{package} for {', '.join(shown)}"


def _describe_work(measured: Sequence[Comparison], choose: Callable[[Comparison], bool]) -> str:
    """One work of one package with its ratios; its sizes, or how many there are, if not all of them
    are on this side."""
    chosen = [each for each in measured if choose(each)]
    if not chosen:
        return ""
    work = chosen[0].work
    sizes = [each.size for each in chosen if each.size]
    if MOST_SIZES < len(sizes) < len(measured):
        work = f"{len(sizes)} of {len(measured)} {work}"
    elif sizes and (len(chosen) == 1 or len(chosen) < len(measured)):
        work += f" of {' and '.join([*([', '.join(sizes[:-1])] if sizes[1:] else []), sizes[-1]])}"
    ratios = [max(each.speed, 1 / each.speed) for each in chosen]
    return f"{work} ({format_range(min(ratios), max(ratios))})"


def _describe_calls(run: BenchmarkRun) -> Iterator[str]:
    """What this package's own ways to call cost beside each other."""
    if (given := find_benchmark(run, "persistent")) is None:
        return
    for row in given.rows("rows")[:1]:
        best = min(row["host_visible"]["average_ms"], row["device_local"]["average_ms"])
        yield (
            f"A call of {format_count(row['elements'])} elements takes {format_time(best)} with an "
            f"open device; opening one for the call takes {format_time(row['one_shot_ms'])}, "
            f"{format_ratio(row['one_shot_ms'] / best)} as long."
        )
