"""The documentation site is built without a warning, and its pages load nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.browser import open_browser, open_page
from tests.support.pages import REPOSITORY

LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)\""
    r"|<link\b(?=[^>]*\brel=\"(?:stylesheet|icon|preload)\")[^>]*\bhref=\"([^\"]+)\""
)
FENCE = re.compile(r"^```(\S*)$", re.MULTILINE)
LANGUAGES = {"glsl", "python", "sh", "text", "yaml"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_built(site: Path) -> None:
    docs = REPOSITORY / "docs"
    for page in docs.rglob("*.md"):
        built = (site / page.relative_to(docs)).with_suffix(".html")
        assert len(built.read_text()) > 5_000, built


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    found = [
        (page, script or link)
        for page in site.rglob("*.html")
        for script, link in LOADED.findall(page.read_text())
    ]
    assert len(found) > 50
    assert [(page, target) for page, target in found if "//" in target] == []
    missing = [
        (page, target)
        for page, target in found
        if page.name != "404.html"
        and not target.startswith("data:")
        and not (page.parent / target.partition("?")[0]).is_file()
    ]
    assert missing == []


@pytest.mark.slow
def test_the_reference_has_the_methods_of_the_executor(site: Path) -> None:
    text = (site / "api" / "executor.html").read_text()
    for method in ("run_batch", "to_device", "explain", "profile"):
        assert f'id="gpu_executor.executor.GpuExecutor.{method}"' in text


def test_every_block_of_code_says_its_language() -> None:
    for page in (REPOSITORY / "docs").rglob("*.md"):
        opened = FENCE.findall(page.read_text())[::2]
        assert set(opened) <= LANGUAGES, page


def check_search(browser: Any, site: Path, page: str) -> None:
    """Search for a page, from another one."""
    open_page(browser, site / page, width=1300)
    wait = WebDriverWait(browser, 20)
    query = wait.until(
        expected_conditions.element_to_be_clickable(
            (By.CSS_SELECTOR, "input[data-md-component=search-query]")
        )
    )
    query.click()
    query.send_keys("low degree extension")
    links = (By.CSS_SELECTOR, "a.md-search-result__link")
    found = wait.until(expected_conditions.presence_of_all_elements_located(links))
    pages = [re.split("[?#]", each.get_attribute("href") or "")[0] for each in found]
    assert (site / "fields.html").as_uri() in pages
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_the_search_works_on_pages_that_are_opened_from_the_disk(site: Path) -> None:
    with open_browser() as browser:
        for page in ("index.html", "api/fields.html"):
            check_search(browser, site, page)


@pytest.mark.slow
def test_the_reference_shows_types_and_examples(site: Path) -> None:
    for page in sorted((REPOSITORY / "docs" / "api").glob("*.md")):
        if page.name != "index.md":
            assert "```python" in page.read_text(), page
    text = re.sub(r"<[^>]*>", "", (site / "api" / "fields.html").read_text())
    assert re.search(r"ones\(\s*shape: int \| Sequence\[int\]\s*\) -&gt; ", text)
