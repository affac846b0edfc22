"""The documentation names files that exist, and links to pages and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import gpu_executor

PACKAGE = Path(gpu_executor.__file__).parent
REPOSITORY = Path(__file__).parent.parent
PAGES = [*sorted((REPOSITORY / "docs").rglob("*.md")), *sorted(REPOSITORY.glob("*.md"))]
FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|glsl|wgsl|comp|json))`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
SECTION_LINK = re.compile(r"\]\(([^)#:]*)#([^)]*)\)")
HEADING = re.compile(r"^#+ (.*)$", flags=re.MULTILINE)
MARK = re.compile(r"(?:<<<<<<<|>>>>>>>) |=======$")
MADE_BY_READERS = {"build/trace.json", "trace.json", "saxpy.comp", "input.json"}
"""Names of files that the reader's own program reads or writes."""


def test_every_file_that_the_documentation_names_exists() -> None:
    missing = [
        f"{page.name}: {name}"
        for page in PAGES
        for name in FILE.findall(page.read_text())
        if name not in MADE_BY_READERS
        and not any((base / name).is_file() for base in (PACKAGE, REPOSITORY, page.parent))
        and not any(path.match(name) for path in REPOSITORY.glob(f"*/**/{Path(name).name}"))
    ]
    assert missing == []


def test_no_page_has_marks_of_a_merge() -> None:
    marks = [line for page in PAGES for line in page.read_text().splitlines() if MARK.match(line)]
    assert marks == []


def test_every_link_leads_to_a_file() -> None:
    missing = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in LINK.findall(page.read_text())
        if not (page.parent / target).exists()
    ]
    assert missing == []


def find_anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = [re.sub(r"[^\w\- ]", "", each.lower()) for each in HEADING.findall(prose)]
    return {each.strip().replace(" ", "-") for each in headings}


def test_every_link_to_a_section_leads_to_a_heading() -> None:
    missing = [
        f"{page.name}: {target}#{anchor}"
        for page in PAGES
        for target, anchor in SECTION_LINK.findall(page.read_text())
        if anchor not in find_anchors(page.parent / target if target else page)
    ]
    assert missing == []


def test_the_pages_name_files_and_link() -> None:
    """The patterns above find something: the page of the architecture names dozens of files."""
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    assert len(FILE.findall(text)) > 40
    assert LINK.findall(text)


def test_the_results_fit_one_screen_and_link_every_page_of_figures() -> None:
    page = REPOSITORY / "docs" / "performance.md"
    assert len(page.read_text().splitlines()) <= 40
    linked = set(LINK.findall(page.read_text()))
    topics = {f"performance/{each.name}" for each in (page.parent / "performance").glob("*.md")}
    assert topics <= linked
