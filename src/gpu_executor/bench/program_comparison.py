"""Programs of the user beside this package: the same work, by turns in the same run.

A program that dies, hangs or breaks the protocol is not asked again, and one whose result is wrong
is not timed. The work of this package is measured in any case.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Literal

import numpy as np

from gpu_executor.bench.peers import OWN
from gpu_executor.bench.program_works import (
    CPU_SIZES,
    CURVES,
    FIELDS,
    GPU_SIZES,
    QUICK_SIZES,
    ProgramOperation,
    ProgramSizes,
    ProgramWork,
    list_works,
    prepare_work,
)
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.timing import MIN_ROUNDS, call_for, compute_ratio, list_orders
from gpu_executor.bench.user_program import (
    FailedWorkError,
    ProgramError,
    UnsupportedWorkError,
    UserProgram,
    name_command,
)
from gpu_executor.device_info import DeviceInfo
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

ProgramRowState = Literal["measured", "unsupported", "failed"]
MAX_CALLS = 1_000
TIMEOUT = 300.0
"""Seconds of a program for one answer."""


@dataclass(frozen=True, slots=True)
class RoundBudget:
    """How long each side is timed."""

    seconds: float = 0.02
    """Of a round: shorter work is done several times in a row."""
    rounds: int = 7
    warm_up: float = 0.3
    """Of this package, before the first round, so that the GPU has its full clock."""
    per_work: float = 60.0
    """No new round starts after this time, except the first `MIN_ROUNDS`."""


QUICK_BUDGET = RoundBudget(seconds=0.005, rounds=3, warm_up=0.1)


@dataclass(frozen=True, slots=True)
class ProgramState:
    """A program and what became of it; the attributes are the keys of the JSON files."""

    package: str
    """Name and version; the command if it never told them."""
    state: Literal["measured", "failed"]
    name: str | None = None
    version: str | None = None
    device: str | None = None
    """What it computes on, if it says so."""
    reason: str | None = None
    """How it failed."""


@dataclass(frozen=True, slots=True)
class ProgramRow:
    """One work by one side; the attributes are the keys of the JSON files."""

    package: str
    operation: str
    what: str
    """Where the inputs are, the order of a transform, the length of a chain."""
    field: str | None
    curve: str | None
    elements: int
    """Elements or points."""
    state: ProgramRowState
    checked: bool
    """Whether the result was compared with that of this package, which is checked by itself."""
    ms: float | None = None
    """The median of the rounds."""
    per_second: float | None = None
    """Elements or points; of chains the products or squares."""
    slower: float | None = None
    """The median time over that of gpu-executor; its samples are the ratios within each round."""
    answer_ms: float | None = None
    """By the clock of this package: from a request to its answer, for each call."""
    reason: str | None = None
    """How the program failed at this work, or why it does not support it."""


@dataclass(slots=True)
class OpenPrograms:
    """Programs that are running, and the state of all."""

    programs: list[UserProgram] = field(default_factory=list)
    states: list[ProgramState] = field(default_factory=list)

    @classmethod
    def start(cls, commands: Sequence[Sequence[str]], timeout: float = TIMEOUT) -> OpenPrograms:
        """Start the programs and ask what they are; one that fails has a state that says so."""
        opened = cls()
        try:
            for command in commands:
                opened._add(command, timeout)
        except BaseException:
            opened.close()
            raise
        return opened

    def _add(self, command: Sequence[str], timeout: float) -> None:
        try:
            program = UserProgram(command, timeout)
        except ProgramError as error:
            self.states.append(ProgramState(name_command(command), "failed", reason=str(error)))
            return
        reason = None
        if any(each.package == program.label for each in self.states):
            reason = f"two programs say that they are {program.label}; each needs another version"
        elif not any(
            program.supports(each.operation, each.structure) for each in list_works(GPU_SIZES)
        ):
            reason = "it supports no operation that this benchmark has"
        if reason is None:
            self.programs.append(program)
        else:
            program.close()
        self.states.append(
            ProgramState(
                program.label,
                "measured" if reason is None else "failed",
                program.name,
                program.version,
                program.device,
                reason,
            )
        )

    def fail(self, program: UserProgram, reason: str) -> None:
        """Ask a program no more."""
        self.programs.remove(program)
        at = next(i for i, each in enumerate(self.states) if each.package == program.label)
        self.states[at] = dataclasses.replace(self.states[at], state="failed", reason=reason)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for each in self.programs:
                stack.callback(each.close)

    def __enter__(self) -> OpenPrograms:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def choose_works(
    device: DeviceInfo,
    programs: Sequence[UserProgram],
    *,
    quick: bool = False,
    operations: Sequence[ProgramOperation] = (),
    log_sizes: Sequence[int] = (),
) -> list[ProgramWork]:
    """Choose the work that a program supports: of these operations and sizes, or else of all."""
    sizes = QUICK_SIZES if quick else CPU_SIZES if device.kind == "cpu" else GPU_SIZES
    chosen = ProgramSizes(
        {
            name: log_sizes or given
            for name, given in sizes.log_sizes.items()
            if not operations or name in operations
        },
        sizes.length,
    )
    return [
        work
        for work in list_works(chosen)
        if any(each.supports(work.operation, work.structure) for each in programs)
    ]


def measure_works(
    gpu: PersistentVulkanBackend,
    works: Sequence[ProgramWork],
    opened: OpenPrograms,
    budget: RoundBudget,
) -> Iterator[list[ProgramRow]]:
    """Yield the rows of each work, this package's first."""
    for work in works:
        with tempfile.TemporaryDirectory(
            prefix="gpu-executor-", ignore_cleanup_errors=True
        ) as folder:
            try:
                rows = _WorkComparison(gpu, work, opened, budget, Path(folder)).measure()
            except MemoryError as error:  # the other work may fit
                rows = [_make_row(work, OWN, "failed", str(error))]
        yield rows
        gpu.trim()


@dataclass(slots=True)
class _ProgramSide:
    """A program at one work: its calls in a round, and what each round took."""

    program: UserProgram
    checked: bool
    calls: int
    reason: str | None = None
    """How it failed."""
    seconds: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)


class _WorkComparison:
    """One work by this package and by all programs that support it."""

    def __init__(
        self,
        gpu: PersistentVulkanBackend,
        work: ProgramWork,
        opened: OpenPrograms,
        budget: RoundBudget,
        folder: Path,
    ) -> None:
        self._work, self._opened, self._budget, self._folder = work, opened, budget, folder
        self._own = prepare_work(gpu, work)
        self._on_cpu = gpu.device.kind == "cpu"
        self._failed: list[ProgramRow] = []

    def measure(self) -> list[ProgramRow]:
        own, sides = self._own, self._prepare_sides()
        if not self._on_cpu:
            call_for(lambda: own.time(1), self._budget.warm_up)
        calls = self._count_calls(own.time(1))
        taken: list[float] = []
        end = perf_counter() + self._budget.per_work
        for order in list_orders(len(sides) + 1, self._budget.rounds):
            if len(taken) >= MIN_ROUNDS and perf_counter() > end:
                break
            for at in order:
                if at == 0:
                    taken.append(own.time(calls))
                else:
                    self._time(sides[at - 1])
        rows = [self._make_measured_row(OWN, taken, taken, checked=True)]
        for side in sides:
            if side.reason is None:
                row = self._make_measured_row(
                    side.program.label, side.seconds, taken, checked=side.checked
                )
                answered = Sampled.median(side.waited) * 1e3
                rows.append(dataclasses.replace(row, answer_ms=answered))
        return rows + self._failed

    def _prepare_sides(self) -> list[_ProgramSide]:
        """Let all programs read the inputs, and check their results."""
        work, sides = self._work, []
        programs = [
            each for each in self._opened.programs if each.supports(work.operation, work.structure)
        ]
        try:
            inputs = self._own.write_inputs(self._folder)
        except OSError as error:
            reason = f"the inputs were not written to {self._folder}: {error.strerror or error}"
            self._failed += [_make_row(work, each.label, "failed", reason) for each in programs]
            return []
        request = work.describe() | {"inputs": inputs}
        for number, program in enumerate(programs):
            with self._catch(program):
                result = self._folder / f"result-{number}.bin"
                file = {"path": str(result), "bytes_each": self._own.result.shape[1]}
                program.prepare(request | {"result": file})
                checked = self._check_result(result)
                seconds, _ = program.run(1)
                sides.append(_ProgramSide(program, checked, self._count_calls(seconds)))
        return sides

    def _time(self, side: _ProgramSide) -> None:
        """One round of a program, unless it has failed before."""
        if side.reason is not None:
            return
        with self._catch(side.program) as failed:
            seconds, waited = side.program.run(side.calls)
            side.seconds.append(seconds)
            side.waited.append(waited / side.calls)
        side.reason = next(iter(failed), None)

    @contextlib.contextmanager
    def _catch(self, program: UserProgram) -> Iterator[list[str]]:
        """Note a row and, in the list that is yielded, a reason if the program fails."""
        reasons: list[str] = []
        state: ProgramRowState = "failed"
        try:
            yield reasons
        except UnsupportedWorkError as error:
            state = "unsupported"
            reasons.append(str(error))
        except FailedWorkError as error:
            reasons.append(str(error))
        except ProgramError as error:
            reasons.append(str(error))
            self._opened.fail(program, str(error))
        self._failed += [_make_row(self._work, program.label, state, each) for each in reasons]

    def _check_result(self, path: Path) -> bool:
        """Compare the result that a program wrote with that of this package; False if it wrote
        none."""
        expected = self._own.result
        try:
            if not path.exists():
                return False
            if not path.is_file() or path.stat().st_size != expected.nbytes:
                raise FailedWorkError(
                    f"wrong result: the file has to have {expected.nbytes:,} bytes, "
                    f"{expected.shape[1]} for each of {len(expected):,}"
                )
            found = np.fromfile(path, np.uint8).reshape(expected.shape)
        except OSError as error:
            raise FailedWorkError(f"its result cannot be read: {error.strerror}") from None
        wrong = np.flatnonzero((found != expected).any(axis=1))
        if len(wrong):
            raise FailedWorkError(
                f"wrong result: {len(wrong):,} of {len(expected):,} differ from that of "
                f"{OWN}, which is checked; the first at index {wrong[0]:,}"
            )
        return True

    def _count_calls(self, seconds: float) -> int:
        """How many calls fill a round."""
        return min(max(int(self._budget.seconds / seconds), 1), MAX_CALLS)

    def _make_measured_row(
        self, package: str, taken: Sequence[float], own: Sequence[float], *, checked: bool
    ) -> ProgramRow:
        seconds = Sampled.median(taken)
        return dataclasses.replace(
            _make_row(self._work, package, "measured", None),
            checked=checked,
            ms=seconds * 1e3,
            per_second=self._work.count / seconds,
            slower=compute_ratio(list(zip(taken, own, strict=True)), 0, 1),
        )


def _make_row(
    work: ProgramWork, package: str, state: ProgramRowState, reason: str | None
) -> ProgramRow:
    return ProgramRow(
        package,
        work.operation,
        work.variant,
        work.structure if work.structure in FIELDS else None,
        work.structure if work.structure in CURVES else None,
        work.size,
        state,
        checked=False,
        reason=reason,
    )
