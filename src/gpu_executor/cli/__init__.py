"""The command line: `gpu-executor devices | doctor | smoke | demo | calibrate | bench | report |
soak | top | compile-report | groth16`."""

from __future__ import annotations


def main() -> None:
    """Run the command that the arguments of the process name."""
    import signal
    import sys

    interrupted = 128 + signal.SIGINT  # the exit code that shells give to Ctrl-C
    try:
        # The commands import much; Ctrl-C meanwhile is no traceback either.
        from gpu_executor.cli.commands import run_command

        code = run_command()
    except KeyboardInterrupt:
        code = interrupted
    if code == interrupted:
        # Devices are closed at exit. A second Ctrl-C ends the process without waiting for that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)
