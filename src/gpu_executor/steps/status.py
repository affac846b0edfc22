"""Status words: what a checked kernel has found, and the arrays that depend on it.

A checked kernel writes its status word if an element is out of range. The word of a call on host
arrays is read when its results are. A call on device arrays is not waited for, so the arrays that
it writes refer to its check, and so do the arrays that are computed from them. Fetching one of
these arrays reads the word, and raises the error of that call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gpu_executor.errors import ElementRangeError
from gpu_executor.kernel import Kernel

STATUS_CLEAR = 0xFFFFFFFF
"""The value of a status word that no invocation has written."""
STATUS_BYTES = 4


def make_range_error(
    kernel: Kernel, code: int, start: int, job: int | None = None
) -> ElementRangeError:
    """Make the error of a dispatch that begins at the call's element `start`, from the status word
    that its kernel has lowered."""
    element, argument = divmod(code, max(kernel.inputs, 1))
    return ElementRangeError(kernel.name, argument, start + element, job)


class StatusWord(Protocol):
    """A status word in memory that kernels write to. It is clear when it is made."""

    @property
    def buffer(self) -> Any:
        """The buffer that the word is in."""

    @property
    def handle(self) -> Any:
        """What a binding names the buffer by."""

    @property
    def offset(self) -> int:
        """Where the word is in the buffer, in bytes."""

    def clear(self) -> None:
        """Let the word say that there is no error; no submission in flight may use it."""

    def read(self) -> int:
        """The word as the device has left it; the device has completed its call."""


class StatusCheck:
    """What a checked call has found, by its status word."""

    __slots__ = ("_code", "_make_error", "passed", "was_raised", "word")

    def __init__(self, word: StatusWord, make_error: Callable[[int], Exception]) -> None:
        """`make_error` makes the error from a status word that the kernel has lowered."""
        self.word, self._make_error = word, make_error
        self._code: int | None = None
        """The status word, once it is read for good or used for another check."""
        self.was_raised = False
        """Whether its error was raised, so that it is no news."""
        self.passed = False
        """Whether the device has completed the call and found no error."""

    def renew(self) -> StatusCheck:
        """The check of the next call with the same status word. This check keeps what it found; the
        device has completed its call."""
        if self._code is None:
            self._code = self.word.read()
        self.word.clear()
        return StatusCheck(self.word, self._make_error)

    def settle(self, code: int) -> None:
        """Keep the status word that the completed call has left."""
        self._code, self.passed = code, code == STATUS_CLEAR

    @classmethod
    def of_range(cls, word: StatusWord, kernel: Kernel, start: int) -> StatusCheck:
        """The check of a dispatch that begins at the call's element `start`."""
        return cls(word, lambda code: make_range_error(kernel, code, start))

    def find_error(self) -> Exception | None:
        """The error that the call found; call it once the device has completed the call."""
        code = self.word.read() if self._code is None else self._code
        return None if code == STATUS_CLEAR else self._make_error(code)

    def raise_error(self) -> None:
        """Raise the error that the call found, if any; the device has completed the call."""
        error = self.find_error()
        if error is not None:
            self.was_raised = True
            raise error


def list_pending(checks: list[StatusCheck] | tuple[StatusCheck, ...]) -> tuple[StatusCheck, ...]:
    """Return the distinct checks that have not passed yet."""
    return tuple(dict.fromkeys(each for each in checks if not each.passed))
