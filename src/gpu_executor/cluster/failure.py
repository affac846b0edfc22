"""Errors on their way from an actor to the future they belong to, with their type."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from ray import cloudpickle

from gpu_executor.errors import GpuError


@dataclass(frozen=True, slots=True)
class Failure:
    """What an actor returns in place of a result. Raised, Ray would wrap it, and a message of
    many calls would have one answer."""

    pickled: bytes
    """Empty where the error cannot travel; then its text does."""
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        text = "".join(traceback.format_exception_only(error)).strip()
        try:
            return cls(cloudpickle.dumps(_parts(error)), text)
        except Exception:
            return cls(b"", text)

    def error(self) -> BaseException:
        """The error again, or a `GpuError` with its words where this process cannot make it."""
        try:
            return _whole(cloudpickle.loads(self.pickled))
        except Exception:
            return GpuError(self.text)


def _parts(error: BaseException) -> Any:
    # Ours make their text from several arguments; pickle would call them with the text alone.
    if isinstance(error, GpuError):
        return type(error), error.args, error.__dict__
    return error


def _whole(parts: Any) -> BaseException:
    if isinstance(parts, BaseException):
        return parts
    kind, args, state = parts
    error: BaseException = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error
