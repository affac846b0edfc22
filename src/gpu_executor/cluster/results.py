"""Results as they come from Ray: read-only views, of the object store where they are large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_executor.call import Array
from gpu_executor.cluster.failure import Failure


def own_results(outcomes: Sequence[Any]) -> Sequence[Any]:
    """The only result of a message as it is; of several each a copy, or one would keep the memory
    of all. Read-only either way, so that what a caller may do does not hang on sizes."""
    if len(outcomes) == 1:
        return outcomes
    return [each if isinstance(each, Failure) else _copied(each) for each in outcomes]


def _copied(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(_copy, result))
    return _copy(result)


def _copy(array: Array) -> Array:
    own = array.copy()
    own.flags.writeable = False
    return own
