"""Chromium, driven by selenium."""

from __future__ import annotations

import contextlib
import shutil
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


MEASURE = """
const { scrollWidth: width, scrollHeight: height } = document.documentElement;
const boxes = arguments[0].map((each) => each.getBoundingClientRect()).map((box) =>
  [box.x + scrollX, box.y + scrollY, box.width, box.height]);
return [{ x: 0, y: 0, width, height }, boxes];
"""
COUNT_COLORS = """
const [data, boxes, scale, done] = arguments;
const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
createImageBitmap(new Blob([bytes], { type: "image/png" })).then((image) => {
  const canvas = new OffscreenCanvas(image.width, image.height).getContext(
    "2d", { willReadFrequently: true });
  canvas.drawImage(image, 0, 0);
  done(boxes.map((box) => {
    const pixels = canvas.getImageData(...box.map((each) => Math.round(each * scale)));
    return new Set(new Uint32Array(pixels.data.buffer)).size;
  }));
});
"""


def count_colors(browser: Any, elements: list[Any], scale: float = 0.25) -> list[int]:
    """The number of colors in each element of the page, shown at a quarter of its size."""
    # Measured before the screenshot, which resizes the page, so that scripts draw anew.
    whole, boxes = browser.execute_script(MEASURE, elements)
    answer = browser.execute_cdp_cmd(
        "Page.captureScreenshot",
        {"format": "png", "captureBeyondViewport": True, "clip": whole | {"scale": scale}},
    )
    found: list[int] = browser.execute_async_script(COUNT_COLORS, answer["data"], boxes, scale)
    return found
