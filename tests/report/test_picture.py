"""Figures as SVG files of their own, and timelines."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from gpu_executor.cli.commands import commands
from gpu_executor.errors import GpuError
from gpu_executor.report.charts import ChartAxis, ChartLine, DataPoint
from gpu_executor.report.picture import MARGIN, WIDTH, draw_picture
from gpu_executor.report.shared_figures import make_line_figure
from gpu_executor.report.timeline import (
    find_overlaps,
    make_timeline,
    make_timeline_figure,
    name_tracks,
)
from gpu_executor.telemetry.spans import Span
from tests.support.benchmark_runs import FIGURES, make_run

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text><script>alert(1)</script>"


def make_span(track: str, stage: str, begin: float, end: float) -> dict[str, object]:
    return {"track": track, "stage": stage, "chunk": 0, "begin_us": begin, "end_us": end}


def test_the_command_writes_every_figure_as_a_picture(tmp_path: Path) -> None:
    results, folder = tmp_path / "results.json", tmp_path / "missing" / "pictures"
    results.write_text(json.dumps(make_run().as_dict()))
    arguments = ["report", str(results), "-o", str(tmp_path / "r.html"), "--pictures", str(folder)]
    shown = CliRunner().invoke(commands, arguments)
    assert shown.exit_code == 0, shown.output
    pictures = {path.stem: path for path in folder.glob("*.svg")}
    assert pictures.keys() >= set(FIGURES)
    for path in pictures.values():
        root = ElementTree.parse(path).getroot()  # well-formed
        text = "".join(root.itertext())
        assert "Measured on Fictitious GPU, 2" in text
        assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("folder", ["results.json", "results.json/pictures"])
def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_drawn(
    tmp_path: Path, folder: str
) -> None:
    results, page = tmp_path / "results.json", tmp_path / "r.html"
    results.write_text(json.dumps(make_run().as_dict()))
    arguments = ["report", str(results), "-o", str(page), "--pictures", str(tmp_path / folder)]
    refused = CliRunner().invoke(commands, arguments)
    assert refused.exit_code == 2
    assert "Invalid value for '--pictures'" in refused.output
    assert not page.exists()


def test_text_of_a_picture_is_escaped_and_inside_its_frame() -> None:
    lines = [ChartLine(f"{HOSTILE} {number}", [DataPoint(1, 2)], number) for number in range(5)]
    axis = ChartAxis("x", str)
    figure = make_line_figure("name", HOSTILE, HOSTILE * 9, lines, axis, axis)
    text = draw_picture(figure, HOSTILE)
    assert "<script" not in text
    root = ElementTree.fromstring(text)
    height, width = float(root.get("height", 0)), float(root.get("width", 0))
    assert width == WIDTH + 2 * MARGIN
    own = root.findall(f"{SVG}text")
    assert all(0 < float(each.get("y", -1)) < height - 8 for each in own)
    legend = [each.get("transform", "") for each in root.findall(f"{SVG}g")]
    assert len(legend) == 5 and len(set(legend)) == 5
    assert len({each.split()[1] for each in legend}) > 1  # in several lines


def test_overlaps_are_the_times_in_which_two_tracks_are_busy() -> None:
    spans = [
        make_span("a", "fill", 0, 10),
        make_span("a", "fill", 10, 12),  # touches the one before: the same track is not two
        make_span("a", "drain", 11, 14),  # overlaps on its own track
        make_span("b", "compute", 5, 13),
        make_span("c", "compute", 12, 20),
        make_span("b", "compute", 19, 30),
    ]
    assert find_overlaps(spans) == [(5, 14), (19, 20)]
    assert find_overlaps(spans[:3]) == []
    assert find_overlaps([]) == []


def test_a_timeline_of_a_profile_has_its_stages_alone() -> None:
    spans = [
        Span("host gpu-executor GPU by vulkan", "some_kernel", 1_000, 9_000, 1),
        Span("host gpu-executor GPU by vulkan", "drain", 6_000, 8_000, 7),
        Span("host Thread-3", "fill", 2_000, 3_000, 7),
        Span("queue", "compute", 3_500, 5_500, 7),
    ]
    timeline = make_timeline("batch", spans)
    assert [
        (each["track"], each["stage"], each["chunk"], each["begin_us"], each["end_us"])
        for each in name_tracks(timeline["spans"])
    ] == [
        ("copy thread 1", "fill", 0, 0.0, 1.0),
        ("queue", "compute", 0, 1.5, 3.5),
        ("executor thread 1", "drain", 0, 4.0, 6.0),
    ]
    figure = make_timeline_figure("timeline", "title", "caption", [timeline])
    assert figure.table.rows[0][:4] == ["batch", "copy thread 1", "1", "fill"]
    with pytest.raises(GpuError, match="batch: the profile has no stages; profile calls of"):
        make_timeline("batch", spans[:1])


def test_spans_lie_where_their_times_are() -> None:
    """Two spans of 10 of 40 microseconds: at a quarter and at three quarters of the width."""
    spans = [make_span("queue", "compute", 10, 20), make_span("queue", "copy out", 30, 40)]
    timeline = {"mode": "one", "spans": spans}
    figure = make_timeline_figure("timeline", "title", "caption", [timeline])
    root = ElementTree.fromstring(
        figure.draw(513, "label").replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    )
    bars = [each for each in root.iter(f"{SVG}rect") if "bar" in each.get("class", "")]
    places = [(float(each.get("x", 0)), float(each.get("width", 0))) for each in bars]
    assert places == [(112 + 100, 100), (112 + 300, 100)]
    assert [each.get("class") for each in bars] == ["bar s2", "bar s3"]
