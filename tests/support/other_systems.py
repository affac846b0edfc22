"""A process that behaves as on macOS or Windows, as far as that can be simulated on Linux.

Other packages and the standard library are imported as on Linux first. Then `sys.platform` is
another, and modules and functions that the system lacks are gone. Only then the package is imported
(again). What the system itself does differently, such as its drivers, is not simulated.
"""

from __future__ import annotations

WINDOWS = """
modules crypt fcntl grp nis posix pty pwd resource spwd syslog termios tty
os fork forkpty register_at_fork sched_getaffinity sched_setaffinity memfd_create eventfd pipe2
os posix_fadvise posix_fallocate posix_spawn posix_spawnp pread pwrite preadv pwritev sendfile
os sysconf getuid geteuid getgid getegid uname mkfifo mknod chown lchown fchown killpg setsid
os getpgid statvfs fstatvfs wait3 wait4 waitid nice getloadavg
os O_NOFOLLOW O_NONBLOCK O_CLOEXEC O_DIRECTORY
signal pthread_sigmask pthread_kill sigwait SIGKILL SIGUSR1 SIGUSR2 SIGALRM SIGHUP alarm
time clock_gettime clock_gettime_ns CLOCK_MONOTONIC
select epoll poll
socket AF_UNIX
"""
MACOS = """
modules spwd
os sched_getaffinity sched_setaffinity memfd_create eventfd posix_fadvise posix_fallocate pipe2
signal sigtimedwait SIGPOLL SIGPWR
select epoll
"""
MISSING = {"win32": WINDOWS, "darwin": MACOS}
"""Modules, and names of modules, that a system lacks, by `sys.platform`."""

SIMULATE = """
import importlib, pkgutil, sys
import gpu_executor

names = [
    found.name
    for found in pkgutil.walk_packages(gpu_executor.__path__, "gpu_executor.")
    if not found.name.endswith("__main__") and {everything}
]
for name in [*names, "numpy", "platformdirs", "subprocess", "tempfile", "uuid"]:
    importlib.import_module(name)
for name in [name for name in sys.modules if name.partition(".")[0] == "gpu_executor"]:
    del sys.modules[name]
for owner, *gone in map(str.split, {missing!r}.strip().splitlines()):
    for name in gone:
        if owner == "modules":
            sys.modules[name] = None
        else:
            vars(importlib.import_module(owner)).pop(name, None)
sys.platform = {system!r}
import gpu_executor
"""


def simulate(system: str, *, everything: bool = False) -> str:
    """The beginning of a script that runs as on another system; `names` are all modules of the
    package, if it asks for everything."""
    return SIMULATE.format(system=system, missing=MISSING[system], everything=everything)
