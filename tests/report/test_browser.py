"""The report page in Chromium: nothing overlaps, is cut off or empty; the timeline zooms and moves.

The script measures the boxes of the text in every chart, because a browser lays the text out.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from gpu_executor.report.page import make_page
from tests.support.benchmark_runs import make_run
from tests.support.browser import count_colors, open_browser, open_page

pytestmark = pytest.mark.slow
MISPLACED = """
const name = (chart, text) => chart.closest("figure").id + ": " + text;
return arguments[0].flatMap((chart) => {
  const outer = chart.getBoundingClientRect(), found = [];
  const texts = [...chart.querySelectorAll("text")];
  const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
  for (const [index, [text, box]] of boxes.entries()) {
    const beside = box.left < outer.left - 1 || box.right > outer.right + 1;
    if (beside || box.top < outer.top - 1 || box.bottom > outer.bottom + 1)
      found.push(name(chart, text + " is cut off"));
    for (const [other, second] of boxes.slice(index + 1)) {
      const wide = Math.min(box.right, second.right) - Math.max(box.left, second.left);
      const high = Math.min(box.bottom, second.bottom) - Math.max(box.top, second.top);
      if (wide > 1 && high > 3) found.push(name(chart, text + " overlaps " + other));
    }
  }
  return found;
});
"""
SHOWN = """
return [...document.querySelectorAll(arguments[0])]
  .filter((each) => each.checkVisibility({ visibilityProperty: true }));
"""
CONTRAST = """
const parse = (color) => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
const light = (color) => {
  const [r, g, b] = parse(color).map((value) => {
    const share = value / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
const style = (query) => getComputedStyle(document.querySelector(query));
const panel = light(style("figure").backgroundColor), back = light(style("body").backgroundColor);
const bar = light(style(".bar.s0").fill);
return {
  text: ratio(light(style("body").color), back),
  link: ratio(light(style("nav a").color), back),
  caption: ratio(light(style("figcaption").color), panel),
  tick: ratio(light(style("svg .tick").fill), panel),
  "on bar": Math.min(...[...document.querySelectorAll("#msm-stages .wide .bar")].map((each) =>
    ratio(light(getComputedStyle(each).fill), light(style("svg .on-bar").fill)))),
  line: Math.min(...[...document.querySelectorAll("#calls-by-size .wide .line")].map((each) =>
    ratio(light(getComputedStyle(each).stroke), panel))),
};
"""
UNNAMED = """
const named = "svg:not([aria-hidden]), button, figure, section, [role=region], [role=application]";
const names = ["aria-label", "aria-labelledby"];
return [...document.querySelectorAll(named)]
  .filter((each) => !names.some((name) => each.getAttribute(name)) && !each.textContent.trim())
  .map((each) => each.outerHTML.slice(0, 80));
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(make_page(make_run()), encoding="utf-8")
    return file


def list_charts(browser: Any) -> list[Any]:
    """The charts that are shown at this width, the timeline among them."""
    found: list[Any] = browser.execute_script(SHOWN, ".chart svg, .timeline svg")
    return found


def read_range(browser: Any) -> str:
    return str(browser.find_element(By.CSS_SELECTOR, "#timeline .range").text)


@pytest.mark.parametrize(
    ("width", "dark"),
    [(1000, False), (1000, True), (375, False), (320, True)],
    ids=["1000-light", "1000-dark", "375-light", "320-dark"],
)
def test_no_chart_is_empty_and_no_text_overlaps_or_is_cut_off(
    browser: Any, page: Path, width: int, dark: bool
) -> None:
    open_page(browser, page, width=width, dark=dark)
    charts = list_charts(browser)
    assert len(charts) >= 20
    assert browser.execute_script(MISPLACED, charts) == []
    if width == 1000:
        assert min(count_colors(browser, charts)) > 8
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width, "the page scrolls sideways"
    assert browser.get_log("browser") == []


def test_overlaps_and_empty_charts_would_be_noticed(browser: Any, page: Path) -> None:
    open_page(browser, page)
    chart = browser.find_element(By.CSS_SELECTOR, "#calls-by-size .wide svg")
    browser.execute_script(
        "for (const text of arguments[0].querySelectorAll('text')) text.style.fontSize = '60px'",
        chart,
    )
    found = browser.execute_script(MISPLACED, [chart])
    assert all(each.startswith("calls-by-size: ") for each in found)
    assert any(each.endswith(" is cut off") for each in found)
    assert any(" overlaps " in each for each in found)
    browser.execute_script("arguments[0].replaceChildren()", chart)
    assert count_colors(browser, [chart]) == [1]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_colors_have_contrast(browser: Any, page: Path, dark: bool) -> None:
    open_page(browser, page, dark=dark)
    found = browser.execute_script(CONTRAST)
    least = dict.fromkeys(("text", "link", "caption", "tick", "on bar"), 4.5) | {"line": 3.0}
    assert {name: value for name, value in found.items() if value < least[name]} == {}


def test_everything_has_a_name_for_screen_readers(browser: Any, page: Path) -> None:
    open_page(browser, page)
    assert browser.execute_script(UNNAMED) == []
    assert browser.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"
    levels = [each.tag_name for each in browser.find_elements(By.CSS_SELECTOR, "h1, h2, h3")]
    assert levels[0] == "h1" and levels.count("h1") == 1


def test_the_timeline_shows_that_pipelined_jobs_overlap(browser: Any, page: Path) -> None:
    open_page(browser, page)
    titles = browser.find_elements(By.CSS_SELECTOR, "#timeline .panel-title")
    assert [title.text for title in titles] == ["sequential: 399 µs", "pipelined: 189 µs"]
    assert titles[0].rect["y"] < titles[1].rect["y"]
    assert len(browser.find_elements(By.CSS_SELECTOR, "#timeline .span")) == 2 * 8 * 5
    tracks = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "#timeline text.tick")]
    assert tracks[:5] == [
        "calling thread",
        "copy thread 1",
        "upload queue",
        "compute queue",
        "download queue",
    ]
    assert read_range(browser) == "0 µs to 399 µs of 399 µs"


def test_the_timeline_zooms_and_moves_by_buttons(browser: Any, page: Path) -> None:
    open_page(browser, page)

    def click(action: str) -> str:
        browser.find_element(By.CSS_SELECTOR, f'[data-action="{action}"]').click()
        return read_range(browser)

    assert click("in") == "99.8 µs to 299 µs of 399 µs"
    assert len(browser.find_elements(By.CSS_SELECTOR, "#timeline .span")) < 2 * 8 * 5
    assert click("right") == "150 µs to 349 µs of 399 µs"
    assert click("left") == "99.8 µs to 299 µs of 399 µs"
    assert click("out") == "0 µs to 399 µs of 399 µs"
    assert click("out") == "0 µs to 399 µs of 399 µs"  # there is nothing outside
    button = browser.find_element(By.CSS_SELECTOR, '[data-action="in"]')
    browser.execute_script("for (let count = 0; count < 20; ++count) arguments[0].click()", button)
    assert "NaN" not in read_range(browser)
    assert click("reset") == "0 µs to 399 µs of 399 µs"
    assert browser.get_log("browser") == []


def test_the_timeline_obeys_the_keyboard(browser: Any, page: Path) -> None:
    open_page(browser, page)
    timeline = browser.find_element(By.CSS_SELECTOR, ".timeline")
    browser.execute_script("arguments[0].focus()", timeline)
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    timeline.send_keys("+")
    assert read_range(browser) == "99.8 µs to 299 µs of 399 µs"
    timeline.send_keys(Keys.ARROW_RIGHT)
    assert read_range(browser) == "150 µs to 349 µs of 399 µs"
    timeline.send_keys("0")
    assert read_range(browser) == "0 µs to 399 µs of 399 µs"


def test_the_timeline_is_dragged_and_marks_a_job(browser: Any, page: Path) -> None:
    open_page(browser, page)
    browser.find_element(By.CSS_SELECTOR, '[data-action="in"]').click()
    timeline = browser.find_element(By.CSS_SELECTOR, ".timeline")
    ActionChains(browser).drag_and_drop_by_offset(timeline, -100, 0).perform()
    begin = float(read_range(browser).split()[0])
    assert begin > 110
    browser.find_element(By.CSS_SELECTOR, '[data-action="reset"]').click()
    span = browser.find_element(By.CSS_SELECTOR, "#timeline .span rect")
    ActionChains(browser).move_to_element(span).perform()
    dimmed = browser.find_elements(By.CSS_SELECTOR, "#timeline .span.dim")
    assert len(dimmed) == 2 * 8 * 5 - 5  # all but the five stages of one job


def test_the_button_switches_between_light_and_dark(browser: Any, page: Path) -> None:
    open_page(browser, page)
    button = browser.find_element(By.ID, "theme")

    def read_background() -> str:
        return str(
            browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
        )

    light = read_background()
    assert (button.text, button.get_attribute("aria-pressed")) == ("Dark", "false")
    button.click()
    assert read_background() != light
    assert (button.text, button.get_attribute("aria-pressed")) == ("Light", "true")
    button.click()
    assert read_background() == light


def test_values_are_in_tables_that_open(browser: Any, page: Path) -> None:
    open_page(browser, page)
    details = browser.find_element(By.CSS_SELECTOR, "#calls-by-size details")
    table = details.find_element(By.TAG_NAME, "table")
    assert not table.is_displayed()
    details.find_element(By.TAG_NAME, "summary").click()
    assert table.is_displayed()
    assert "29.9 µs" in table.text


def test_paper_shows_charts_without_controls(browser: Any, page: Path) -> None:
    open_page(browser, page, dark=True)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not browser.find_element(By.ID, "theme").is_displayed()
    assert not browser.find_element(By.CSS_SELECTOR, "#timeline .controls").is_displayed()
    body = browser.find_element(By.TAG_NAME, "body")
    assert body.value_of_css_property("background-color") == "rgba(255, 255, 255, 1)"
    assert len(list_charts(browser)) >= 20
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
