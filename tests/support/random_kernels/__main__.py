"""Draws and compiles the saved corpus anew: `python -m tests.support.random_kernels`."""

from __future__ import annotations

from tests.support.random_kernels.corpus import PATH, build_corpus, save_corpus

if __name__ == "__main__":
    entries = build_corpus()
    save_corpus(entries)
    calls = sum(len(entry.kernel.calls) for entry in entries)
    print(f"{PATH}: {len(entries)} kernels, {calls:,} calls, {PATH.stat().st_size:,} bytes")
