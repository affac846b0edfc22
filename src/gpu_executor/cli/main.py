"""The root command, and the entry point of the command line."""

from __future__ import annotations

import sys

import click

from gpu_executor.cli.bench import bench
from gpu_executor.cli.calibrate import calibrate
from gpu_executor.cli.demo import demo
from gpu_executor.cli.devices import devices
from gpu_executor.cli.doctor import doctor
from gpu_executor.cli.report import report
from gpu_executor.cli.smoke import smoke
from gpu_executor.cli.soak import soak
from gpu_executor.cli.top import top
from gpu_executor.errors import GpuError
from gpu_executor.version import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpu-executor")
def commands() -> None:
    """A persistent GPU executor for Python.

    GPU_DEVICE selects the device: its index, a prefix of its UUID or a part of its name.
    """


commands.add_command(devices)
commands.add_command(doctor)
commands.add_command(smoke)
commands.add_command(demo)
commands.add_command(calibrate)
commands.add_command(bench)
commands.add_command(report)
commands.add_command(soak)
commands.add_command(top)


def main() -> None:
    """Run a command; print an error of this package as one line, without a traceback."""
    try:
        commands()
    except GpuError as error:
        click.echo(f"gpu-executor: {error}", err=True)
        sys.exit(1)
