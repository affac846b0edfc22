"""fork(): what the parent process opened can neither be used nor freed in the child.

A forked child has a copy of the parent's memory, but none of its threads and no access to its
devices: drivers do not support fork().

An object that holds a device registers a fork handler, which runs in the child. The handler makes
every later use of the object raise `ForkedError`, and drops the handles that the object would have
freed. A lock that a thread of the parent held stays locked for ever in the child, so the code that
raises takes no lock.

The drivers' own clean-up at `exit` does not support fork() either. An exit handler of Mesa's
drivers joins the threads of every queue that is alive, and in the child also those of the parent's
devices: threads that the child does not have, whose stacks the C library has freed or given to the
child's own threads. A child crashed there (lavapipe) or hung (lavapipe; Mesa's OpenGL driver, which
WebGPU loads); with NVIDIA's driver (580) it did both. So a child ends without the exit handlers of
the drivers that its parent had loaded, whatever the device.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from gpu_executor.errors import ForkedError, NoDeviceError

_handlers: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()
"""The function to call in a child, for each object that registered one of its methods. Not
`weakref.WeakMethod`: in Python 3.11 it prints an error when the interpreter collects its object at
exit."""
_is_child = False
parent_gpus: set[str] = set()
"""Names of the GPUs that the parent had open when it forked this process. A thread of the parent
may have held a lock of their driver, which is never released here: with NVIDIA's driver (580) a
child that opens a device hangs."""


def is_forked_child() -> bool:
    """Whether this process was forked from one that had loaded this module."""
    return _is_child


def register_fork_handler(method: Callable[[], None]) -> None:
    """Call a bound method in every child that is forked while the method's object is alive. An
    object registers one method."""
    bound: Any = method
    _handlers[bound.__self__] = bound.__func__


def raise_forked() -> NoReturn:
    """Refuse the use of an object that the parent process opened."""
    raise ForkedError(
        "it was opened in the parent process, before fork(); open another one here, or start "
        "children with multiprocessing's 'spawn' if the parent had a GPU open or used WebGPU"
    )


def check_no_parent_gpus(what: str) -> None:
    """Raise `NoDeviceError` in a child whose parent had GPUs open; `what` cannot be used then."""
    if parent_gpus:
        raise NoDeviceError(
            f"{', '.join(sorted(parent_gpus))} was open in the parent process at the time of "
            f"fork(), so {what} cannot be used in the child; close it before fork(), or start "
            "children with multiprocessing's 'spawn'"
        )


def skip_driver_cleanup_at_exit() -> None:
    """Make this child end without the exit handlers of the drivers that its parent had loaded: it
    flushes C's streams and then ends as by `os._exit`, with its exit status.

    Exit handlers run in the reverse order of their registration, so these two run before the
    handlers of drivers that the parent loaded, and after those of drivers that the child loads.
    Python has finalized by then. A child of this child inherits both handlers.
    """
    library = ctypes.CDLL(None)
    on_exit = getattr(library, "on_exit", None)
    if on_exit is None:
        return  # a C library other than glibc
    # The last one registered runs first: fcloseall, then _exit with the exit status.
    for function in (library._exit, library.fcloseall):
        on_exit(function, None)


class _Disowned:
    """Replaces an object that a child must not touch: every use of it raises `ForkedError`."""

    def __getattr__(self, _name: str) -> Any:
        raise_forked()

    def __enter__(self) -> Any:
        raise_forked()

    def __exit__(self, *_exception: object) -> None:
        raise_forked()


DISOWNED: Any = _Disowned()


def _run_handlers() -> None:
    global _is_child  # noqa: PLW0603 - a property of the process
    _is_child = True
    for handled, function in list(_handlers.items()):
        function(handled)


def register_at_fork(**functions: Callable[[], object]) -> None:
    """Call functions at every fork of this process, as `os.register_at_fork` does. A system without
    fork(), such as Windows, has no such function and needs none."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**functions)


register_at_fork(after_in_child=_run_handlers)
