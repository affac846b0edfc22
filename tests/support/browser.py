"""Chromium, driven by selenium."""

from __future__ import annotations

import base64
import contextlib
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

BROWSERS = ("chromium", "google-chrome", "chromium-browser")
MISSING = (
    "the tests of the report page need Chromium and chromedriver: `tools/system-parts develop` "
    "installs them, or `apt-get install chromium chromium-driver`"
)


@contextlib.contextmanager
def open_browser() -> Iterator[Any]:
    """A browser without a window. A machine without one fails the tests that need it."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if found is None or driver is None:
        raise RuntimeError(MISSING)
    options = webdriver.ChromeOptions()
    options.binary_location = found
    for argument in (
        "--headless=new",
        "--no-sandbox",  # CI may run as root
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


def open_page(browser: Any, page: Path, *, width: int = 1000, dark: bool = False) -> None:
    """Open a file with a window of that width and the color scheme."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get(page.as_uri())


def count_colors(browser: Any, box: dict[str, float]) -> int:
    """The number of colors in a part of the page, shown at a quarter of its size."""
    answer = browser.execute_cdp_cmd(
        "Page.captureScreenshot",
        {"format": "png", "captureBeyondViewport": True, "clip": box | {"scale": 0.25}},
    )
    pixels = read_png(base64.b64decode(answer["data"]))
    return len({row[at : at + 3] for row in pixels for at in range(0, len(row), 3)})


def read_png(data: bytes) -> list[bytes]:
    """The rows of an image as red, green and blue bytes: 8 bits a channel, not interlaced."""
    position, compressed, header = 8, b"", b""
    while position < len(data):
        length, kind = struct.unpack(">I4s", data[position : position + 8])
        content = data[position + 8 : position + 8 + length]
        if kind == b"IHDR":
            header = content
        elif kind == b"IDAT":
            compressed += content
        position += 12 + length
    width, _height, depth, color = struct.unpack(">IIBB", header[:10])
    channels = {2: 3, 6: 4}[color]
    assert depth == 8
    raw, stride = zlib.decompress(compressed), width * channels
    rows: list[bytes] = []
    before = bytearray(stride)
    for start in range(0, len(raw), stride + 1):
        row = _undo_filter(raw[start], raw[start + 1 : start + 1 + stride], before, channels)
        before = row
        if channels == 4:
            row = bytearray(value for index, value in enumerate(row) if index % 4 != 3)
        rows.append(bytes(row))
    return rows


def _undo_filter(kind: int, line: bytes, above: bytearray, channels: int) -> bytearray:
    row = bytearray(line)
    for index in range(len(row)):
        left = row[index - channels] if index >= channels else 0
        up = above[index]
        corner = above[index - channels] if index >= channels else 0
        added = (0, left, up, (left + up) // 2, _predict(left, up, corner))[kind]
        row[index] = (row[index] + added) & 255
    return row


def _predict(left: int, up: int, corner: int) -> int:
    """Paeth's predictor."""
    estimate = left + up - corner
    distances = abs(estimate - left), abs(estimate - up), abs(estimate - corner)
    return (left, up, corner)[distances.index(min(distances))]
