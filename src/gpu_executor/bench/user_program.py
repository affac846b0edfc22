"""A program of the user that measures another implementation: a process that answers requests.

Requests and answers are lines of JSON on its standard input and output; docs/benchmarks.md has the
protocol. Whatever the program does wrong is an error in words, and no program is waited for longer
than its timeout.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

PROTOCOL = 1
MAX_LINE = 1 << 16
"""Bytes of an answer."""
MAX_TEXT = 200
"""Characters that are shown of what a program says."""
KEPT_ERRORS = 1 << 12
"""Bytes that are kept of what a program last wrote to its standard error."""
GRACE = 5.0
"""Seconds in which a program ends when its standard input has ended; then it is killed."""
CLOCK_SLACK = 1.02, 1e-4
"""The calls that a program reports may take this much longer than its answer, as a factor and in
seconds, because its clock may be another one."""


class ProgramError(Exception):
    """The program broke the protocol or ended. It was killed, and is not asked again."""


class UnsupportedWorkError(Exception):
    """The program does not do this work. It can be asked for other work."""


class FailedWorkError(Exception):
    """The program failed at this work. It can be asked for other work."""


class UserProgram:
    """A running program, with what it said of itself.

    Args:
        command (Sequence[str]): The program and its arguments.
        timeout (float): Seconds for each answer.
    """

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        self._timeout, self._number, self._ended = timeout, 0, False
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ProgramError(f"cannot be started: {reason}") from None
        self._lines: queue.Queue[bytes] = queue.Queue(maxsize=1)
        self._errors = bytearray()
        self._threads = [
            threading.Thread(target=target, name=f"program {what}", daemon=True)
            for what, target in (("answers", self._read_lines), ("errors", self._read_errors))
        ]
        for thread in self._threads:
            thread.start()
        try:
            self._describe()
        except BaseException:
            self.close()
            raise

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"

    def supports(self, operation: str, structure: str) -> bool:
        """Whether the program named this operation over this field or curve."""
        return structure in self.operations.get(operation, ())

    def prepare(self, work: Mapping[str, Any]) -> None:
        """Let the program read its inputs and write its result."""
        answer, _ = self._ask({"request": "prepare", **work})
        if answer.get("prepared") is not True:
            self._fail_protocol("prepare", '"prepared": true', answer)

    def run(self, calls: int) -> tuple[float, float]:
        """Return the seconds of a call as the program measured them, and those until its answer.

        Args:
            calls (int): How many calls the program makes in a row.
        """
        answer, waited = self._ask({"request": "run", "calls": calls})
        found = answer.get("milliseconds")
        if isinstance(found, bool) or not isinstance(found, int | float):
            self._fail_protocol("run", '"milliseconds": a number', answer)
        try:
            seconds = float(found) / 1e3
        except OverflowError:
            seconds = math.inf
        if not 0 < seconds < math.inf:
            raise self._end(
                f'answered "run" with {_shorten(str(answer["milliseconds"]))} milliseconds, which '
                "no call takes: the number has to be finite and above 0"
            )
        factor, slack = CLOCK_SLACK
        if calls * seconds > factor * waited + slack:
            raise self._end(
                f'answered "run" after {waited * 1e3:.4g} ms, in which {calls} calls of '
                f"{seconds * 1e3:.4g} ms cannot have been made; milliseconds are those of one call"
            )
        return seconds, waited

    def close(self) -> None:
        """End the program: by the end of its input, or else by killing it."""
        process = self._process
        if process.returncode is None:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
        self._kill()

    def __enter__(self) -> UserProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _describe(self) -> None:
        answer, _ = self._ask({"request": "describe", "protocol": PROTOCOL})
        self.name, self.version = (self._read_text(answer, key) for key in ("name", "version"))
        self.device = self._read_text(answer, "device") if "device" in answer else None
        found = answer.get("operations")
        if not isinstance(found, dict) or not all(
            isinstance(each, list) and all(isinstance(name, str) for name in each)
            for each in found.values()
        ):
            self._fail_protocol("describe", '"operations": {operation: [fields or curves]}', answer)
        self.operations: dict[str, list[str]] = found

    def _read_text(self, answer: Mapping[str, Any], key: str) -> str:
        text = answer.get(key)
        if not isinstance(text, str) or not (shown := _shorten(text)):
            self._fail_protocol("describe", f'"{key}": a text', answer)
        return shown

    def _ask(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
        """Return the answer to a request, and the seconds that it took."""
        name, self._number = request["request"], self._number + 1
        line = json.dumps({"id": self._number, **request}).encode() + b"\n"
        stdin = self._process.stdin
        assert stdin is not None
        begun = perf_counter()
        with contextlib.suppress(OSError):  # it has ended, which its output says too
            stdin.write(line)
            stdin.flush()
        try:
            found = self._lines.get(timeout=self._timeout)
        except queue.Empty:
            raise self._end(f'gave no answer to "{name}" in {self._timeout:g} s') from None
        waited = perf_counter() - begun
        if not found:
            raise self._explain_end(name)
        if len(found) > MAX_LINE:
            raise self._end(f'answered "{name}" with a line of more than {MAX_LINE:,} bytes')
        try:
            answer = json.loads(found)
        except (ValueError, RecursionError):
            self._fail_protocol(name, "a line of JSON", found.decode(errors="replace"))
        if not isinstance(answer, dict):
            self._fail_protocol(name, "an object of JSON", answer)
        if answer.get("id") != self._number:
            self._fail_protocol(name, f'"id": {self._number}, the number of the request', answer)
        for key, error in (("unsupported", UnsupportedWorkError), ("error", FailedWorkError)):
            if key in answer:
                reason = _shorten(str(answer[key])) or "no reason was given"
                if name == "describe":
                    raise self._end(f'answered "describe" with "{key}": {reason}')
                raise error(reason)
        return answer, waited

    def _fail_protocol(self, request: str, expected: str, found: Any) -> NoReturn:
        shown = found if isinstance(found, str) else json.dumps(found)
        raise self._end(
            f'answered "{request}" with {_shorten(shown)!r}; expected {expected}. '
            "docs/benchmarks.md has the protocol."
        )

    def _explain_end(self, request: str) -> ProgramError:
        """The error of a program that closed its output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        code = self._process.returncode
        if code is None:
            return self._end(f'closed its standard output before it answered "{request}"')
        self._threads[1].join(GRACE)  # what it wrote last
        end = f"exit code {code}" if code >= 0 else f"signal {-code}"
        lines = self._errors.decode(errors="replace").strip().splitlines()
        said = f": {_shorten(lines[-1])}" if lines else ""
        return self._end(f'ended with {end} before it answered "{request}"{said}')

    def _end(self, message: str) -> ProgramError:
        self._kill()
        return ProgramError(message)

    def _kill(self) -> None:
        """Kill the program with all processes that it started, and let the threads end."""
        process = self._process
        if process.returncode is None:  # not waited for, so its number is still its own
            with contextlib.suppress(OSError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
            process.wait()
        self._ended = True
        with contextlib.suppress(queue.Empty):
            self._lines.get_nowait()  # makes room for the thread that waits to hand over a line
        for thread, pipe in zip(self._threads, (process.stdout, process.stderr), strict=True):
            thread.join(GRACE)
            # A process that left the group may hold the pipe, and then the thread reads it.
            if pipe is not None and not thread.is_alive():
                pipe.close()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()

    def _read_lines(self) -> None:
        """Hand over lines, one at a time: a program that writes more waits in its pipe."""
        assert self._process.stdout is not None
        line = b"\n"
        while line and not self._ended:
            line = self._process.stdout.readline(MAX_LINE + 1)
            self._lines.put(line)

    def _read_errors(self) -> None:
        """Keep the end of what the program writes to its standard error."""
        assert self._process.stderr is not None
        while found := os.read(self._process.stderr.fileno(), KEPT_ERRORS):
            self._errors += found
            del self._errors[:-KEPT_ERRORS]


def name_command(command: Sequence[str]) -> str:
    """What a program is called before it says its name: its command without folders."""
    return _shorten(" ".join(Path(each).name for each in command))


def _shorten(text: str) -> str:
    """Text of a program in one line, without characters that a terminal would obey."""
    words = "".join(each if each.isprintable() else " " for each in text).split()
    line = " ".join(words)
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 3] + "..."
