"""The Python blocks of docs/kzg.md run, and their assertions hold."""

from __future__ import annotations

import pytest

from gpu_executor import kzg
from tests.support.kzg_setups import SetupPair
from tests.support.pages import REPOSITORY, parse_blocks, run_blocks


def test_the_code_of_the_page_runs(mainnet: SetupPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """On mainnet's setup that all tests share, which stays open."""
    monkeypatch.setattr(kzg, "load_trusted_setup", lambda: mainnet.own)
    monkeypatch.setattr(kzg.TrustedSetup, "close", lambda _setup: None)
    page = REPOSITORY / "docs" / "kzg.md"
    text = page.read_text()
    assert text.count("assert ") >= 7
    run_blocks(page, parse_blocks(text), {})
