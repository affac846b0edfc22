"""`gpu-executor report`: the results of benchmarks as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from gpu_executor.bench.results import read_run
from gpu_executor.cli.output import check_output_path, console
from gpu_executor.errors import SettingsError
from gpu_executor.files import check_writable
from gpu_executor.report.page import make_page
from gpu_executor.report.picture import draw_pictures


@click.command()
@click.argument(
    "results", metavar="RESULTS.json", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=check_output_path,
    default=Path("report.html"),
    show_default=True,
    help="The page to write.",
)
@click.option(
    "--pictures",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Write every figure as an SVG file of its own, too.",
)
def report(results: Path, output: Path, pictures: Path | None) -> None:
    """Draw the results of `bench all` as one HTML page."""
    run = read_run(results)
    write_report(make_page(run), output)
    console.print(f"written to {output}", markup=False, soft_wrap=True)
    if pictures is not None:
        for name, picture in draw_pictures(run):
            write_report(picture, pictures / f"{name}.svg")
        console.print(f"pictures written to {pictures}", markup=False, soft_wrap=True)


def write_report(text: str, path: Path) -> None:
    """Write a page or a picture; a file that cannot be written raises `SettingsError`."""
    try:
        check_writable(path)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror or error}") from None
