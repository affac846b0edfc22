"""The command line: `gpu-executor devices | doctor | smoke | demo | calibrate | bench | report |
soak | top`."""

from __future__ import annotations

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and the number of the signal, as shells have it."""


def main() -> None:
    """Run the command that the arguments of the process name."""
    import signal
    import sys

    try:
        # The commands import much; Ctrl-C meanwhile is no traceback either.
        from gpu_executor.cli.commands import run_command

        code = run_command()
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        # Devices are closed at exit. A second Ctrl-C ends the process without waiting for that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)
