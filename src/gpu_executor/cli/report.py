"""`gpu-executor report`: the results of benchmarks as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from gpu_executor.bench.results import read_run
from gpu_executor.cli.options import make_output_option
from gpu_executor.cli.output import print_text
from gpu_executor.cli.progress import show_work
from gpu_executor.common.files import check_writable
from gpu_executor.errors import SettingsError
from gpu_executor.report.page import make_page
from gpu_executor.report.picture import draw_pictures


def _make_folder(
    _context: click.Context, _option: click.Parameter, folder: Path | None
) -> Path | None:
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            check_writable(folder / "picture.svg")
    except OSError as error:
        reason = error.strerror or error
        raise click.BadParameter(f"{folder} cannot be written: {reason}") from None
    return folder


@click.command()
@click.argument(
    "results", metavar="RESULTS.json", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@make_output_option("report.html", "The page to write.")
@click.option(
    "--pictures",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    callback=_make_folder,
    help="Write every figure as an SVG file of its own, too; the folder is made if it is missing.",
)
def report(results: Path, output: Path, pictures: Path | None) -> None:
    """Draw the results of `bench all` as one HTML page."""
    with show_work(f"drawing {results}"):
        run = read_run(results)
        write_report(make_page(run), output)
        if pictures is not None:
            for name, picture in draw_pictures(run):
                write_report(picture, pictures / f"{name}.svg")
    print_text(f"written to {output}")
    if pictures is not None:
        print_text(f"pictures written to {pictures}")


def write_report(text: str, path: Path) -> None:
    """Write a page or a picture; a file that cannot be written raises `SettingsError`."""
    try:
        check_writable(path)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror or error}") from None
