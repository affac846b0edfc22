"""The command line: `gpu-executor devices | doctor | smoke | demo | calibrate | bench | soak`."""

from gpu_executor.cli.main import main

__all__ = ["main"]
