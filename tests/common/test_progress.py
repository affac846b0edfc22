"""The progress bar of long calls: on a terminal, after a second, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

import gpu_executor as gx
from gpu_executor.common import progress
from gpu_executor.common.progress import show_progress
from tests.support.curves_under_test import OVER_MERSENNE31, draw_points


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in place of the standard error stream. Not a fixture: pytest replaces the stream
    after the fixtures are made."""
    monkeypatch.setenv("TERM", "xterm")
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


@pytest.mark.parametrize("delay", [0.0, 1.0])
def test_every_item_comes_once(monkeypatch: pytest.MonkeyPatch, delay: float) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(progress, "DELAY_SECONDS", delay)
    assert list(show_progress(range(5), "items")) == [0, 1, 2, 3, 4]
    assert list(show_progress([], "items")) == []
    assert ("items" in terminal.getvalue()) == (delay == 0)


def test_the_bar_appears_after_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, now = open_terminal(monkeypatch), 0.0
    monkeypatch.setattr(progress, "monotonic", lambda: now)
    seen = []
    for item in show_progress(range(4), "items"):
        seen.append((item, "items" in terminal.getvalue()))
        now += 0.6
    assert seen == [(0, False), (1, False), (2, True), (3, True)]


def test_nothing_is_printed_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0.0)
    assert list(show_progress(range(3), "items")) == [0, 1, 2]
    monkeypatch.setattr(sys, "stderr", None)
    assert list(show_progress(range(3), "items")) == [0, 1, 2]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("delay", [0.0, 60.0])
def test_precompute_shows_its_tables(
    gpu: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    delay: float,
) -> None:
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr(progress, "DELAY_SECONDS", delay)
    curve = OVER_MERSENNE31
    points = draw_points(curve, 5, seed=1)
    table = curve.precompute(gpu.to_device(points), window=4)
    assert table.plan.tables > 2
    assert ("tables of multiples" in terminal.getvalue()) == (delay == 0)
    assert curve.msm(table, [1, 2, 3, 4, 5]).to_host() == curve.msm(points, [1, 2, 3, 4, 5])


def test_an_interrupt_ends_precompute_between_tables(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = OVER_MERSENNE31
    points = gpu.to_device(draw_points(curve, 5, seed=1))
    kind, waits = type(points.device), 0
    wait = kind.wait_for

    def interrupt_second(self: object, array: object) -> None:
        nonlocal waits
        waits += 1
        if waits == 2:
            raise KeyboardInterrupt
        wait(self, array)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(kind, "wait_for", interrupt_second)
        with pytest.raises(KeyboardInterrupt):
            curve.precompute(points, window=4)
    table = curve.precompute(points, window=4)
    assert curve.msm(table, [1] * 5).to_host() == points.sum().to_host()
