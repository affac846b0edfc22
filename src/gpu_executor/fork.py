"""fork(): a child has a copy of the parent's memory, none of its threads, and no part in its
devices. Drivers are not made for that: what the parent opened cannot be used in the child, nor
freed there.

Whatever holds a device asks to be told in the child. There it refuses every use, with an error that
says why, and forgets what it would have freed. Locks that a thread of the parent held stay locked
for ever in the child, so nothing that refuses takes one.

Drivers' own clean-up at `exit` is not made for that either: a child of a process with a GPU open
crashed there, or never came to its end (NVIDIA 580; Mesa's OpenGL driver, which WebGPU loads).
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from gpu_executor.errors import ForkedError, NoDeviceError

_handlers: set[weakref.WeakMethod[Callable[[], None]]] = set()
_is_child = False
gpus_of_parent: set[str] = set()
"""Names of those that the parent had open when it forked this process. Its threads may have been in
their driver, whose locks nobody lets go of here: with NVIDIA's (580) a child waits for ever."""


def is_forked_child() -> bool:
    """Whether this process was forked by one that had this module loaded."""
    return _is_child


def register_fork_handler(method: Callable[[], None]) -> None:
    """Call a bound method in every child that is forked while its object lives."""
    _handlers.add(weakref.WeakMethod(method, _handlers.discard))


def raise_forked() -> NoReturn:
    """What was opened in the parent is asked for in the child."""
    raise ForkedError("it was opened in the parent process, before fork(); open another one here")


def check_no_parent_gpus(what: str) -> None:
    """In a child: raise where its parent had GPUs open."""
    if gpus_of_parent:
        raise NoDeviceError(
            f"{', '.join(sorted(gpus_of_parent))} was open in the parent process at the time of "
            f"fork(), and {what} cannot be used in the child then: close it before, or start "
            "children with multiprocessing's 'spawn'"
        )


def skip_driver_cleanup_at_exit() -> None:
    """In a child: when it ends, write out C's streams and leave, as `os._exit` does.

    Whoever comes last is called first at `exit`, so this is before the drivers' turn; what Python
    itself does at the end was before.
    """
    library = ctypes.CDLL(None)
    on_exit = getattr(library, "on_exit", None)
    if on_exit is None:
        return  # not the GNU library
    for function in (library._exit, library.fcloseall):  # in reverse: with the status, and none
        on_exit(function, None)


class _Disowned:
    """In the place of what a child must not touch: every use of it is refused."""

    def __getattr__(self, _name: str) -> Any:
        raise_forked()

    def __enter__(self) -> Any:
        raise_forked()

    def __exit__(self, *_exception: object) -> None:
        raise_forked()


DISOWNED: Any = _Disowned()


def _run_handlers() -> None:
    global _is_child  # noqa: PLW0603 - of the process
    _is_child = True
    for reference in list(_handlers):
        method = reference()
        if method is not None:
            method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_run_handlers)
