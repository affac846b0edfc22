"""`gpu-executor report`: the results of benchmarks as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from gpu_executor.bench.results import read_run
from gpu_executor.cli.output import console
from gpu_executor.errors import SettingsError
from gpu_executor.files import check_writable
from gpu_executor.report.page import make_page


@click.command()
@click.argument(
    "results", metavar="RESULTS.json", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="The page to write.",
)
def report(results: Path, output: Path) -> None:
    """Draw the results of `bench all` as one HTML page."""
    run = read_run(results)
    write_report(make_page(run), output)
    console.print(f"written to {output}", markup=False, soft_wrap=True)


def write_report(page: str, path: Path) -> None:
    """Write a page; a file that cannot be written raises `SettingsError`."""
    try:
        check_writable(path)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror or error}") from None
