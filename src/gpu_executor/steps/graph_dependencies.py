"""`GraphDependencies`: the checks that the arrays of a graph depend on, run after run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_executor.steps.status import StatusCheck, list_pending
from gpu_executor.steps.step_binder import StorageStep
from gpu_executor.steps.storage import DeviceStorage


class GraphDependencies:
    """The storages of recorded steps, and the checks that a run makes them depend on.

    Steps that are submitted pass the checks of what they read on to what they write, when they are
    bound. Recorded steps are bound once and run often, each time with other contents of their
    inputs. All that a run writes depends on all that it uses.
    """

    def __init__(self, steps: Sequence[StorageStep], made: Sequence[DeviceStorage]) -> None:
        """`made` are the storages that were made while the steps were recorded."""
        own = {step.check for step in steps if step.check is not None}
        first_read: dict[DeviceStorage, bool] = {}
        written: dict[DeviceStorage, None] = {}
        for step in steps:
            for number, storage in enumerate(step.memory):
                first_read.setdefault(storage, number < step.inputs)
                if number >= step.inputs:
                    written[storage] = None
        self._made = set(made)
        self._first_read = {
            storage: is_read for storage, is_read in first_read.items() if storage not in self._made
        }
        """The other storages, and whether the first step that uses one reads it."""
        self._recorded = {
            storage: tuple(check for check in storage.checks if check in own)
            for storage in {**written, **dict.fromkeys(made)}
        }
        """The storages that a run writes or makes anew, with the checks of the steps themselves."""
        self._added: dict[DeviceStorage, set[StatusCheck]] = {}
        """The checks that the run before has added to storages."""

    def begin_run(self, renewed: Mapping[StatusCheck, StatusCheck]) -> None:
        """Let the storages depend on the checks of the next run; `renewed` has its own checks for
        those of the run before."""
        used = list_pending(
            [check for storage in self._first_read for check in self._list_earlier(storage)]
        )
        if not (used or renewed or any(storage.checks for storage in self._recorded)):
            return
        if renewed:
            self._recorded = {
                storage: tuple(renewed.get(check, check) for check in checks)
                for storage, checks in self._recorded.items()
            }
        added: dict[DeviceStorage, set[StatusCheck]] = {}
        for storage, checks in self._recorded.items():
            earlier = () if storage in self._made else list_pending(self._list_earlier(storage))
            storage.checks = tuple(dict.fromkeys((*earlier, *checks, *used)))
            new = set(storage.checks).difference(earlier)
            if new:
                added[storage] = new
        self._added = added

    def _list_earlier(self, storage: DeviceStorage) -> tuple[StatusCheck, ...]:
        """The checks that the contents of a storage depend on before a run. What the run before has
        added is none of them, unless this run reads what that run wrote."""
        added = self._added.get(storage)
        if added is None or self._first_read[storage]:
            return storage.checks
        return tuple(check for check in storage.checks if check not in added)
