"""The Python blocks of docs/kzg.md and of its API page run, and their assertions hold."""

from __future__ import annotations

import pytest

from gpu_executor import kzg
from tests.support.kzg_setups import SetupPair
from tests.support.pages import REPOSITORY, parse_blocks, run_blocks


@pytest.mark.parametrize(("name", "assertions"), [("kzg.md", 7), ("api/kzg.md", 1)])
@pytest.mark.slow
@pytest.mark.usefixtures("definition_prover")
def test_the_code_of_the_page_runs(
    name: str, assertions: int, known: SetupPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the setup with a known secret, which stays open: it has the quicker proofs of cells."""
    monkeypatch.setattr(kzg, "load_trusted_setup", lambda: known.own)
    monkeypatch.setattr(kzg.TrustedSetup, "close", lambda _setup: None)
    page = REPOSITORY / "docs" / name
    text = page.read_text()
    assert text.count("assert ") >= assertions
    run_blocks(page, parse_blocks(text), {})
