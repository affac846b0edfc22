"""Random kernels by hand.

    python -m tests.support.random_kernels                          saves the kernels of the tests
    python -m tests.support.random_kernels --calls 100000 --seed 7  draws kernels and runs calls
    python -m tests.support.random_kernels --show 26                prints the kernel of a seed

On a machine without glslc, kernels that were compiled elsewhere run:

    python -m tests.support.random_kernels --kernels 2000 --save build/kernels
    python -m tests.support.random_kernels --load build/kernels --seconds 300
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

from tests.support.random_kernels.corpus import (
    KERNELS,
    PATH,
    Entry,
    build_corpus,
    load_entries,
    make_entries,
    make_entry,
    save_entries,
)
from tests.support.random_kernels.glsl import write_glsl
from tests.support.random_kernels.hunt import METHODS, hunt, open_backend


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.support.random_kernels")
    add = parser.add_argument
    add("--calls", type=int, help="how many calls to run")
    add("--calls-per-kernel", type=int, default=60)
    add("--kernels", type=int, default=KERNELS, help="how many kernels --save saves")
    add("--seed", type=int, default=0, help="the seed of the first kernel")
    add("--save", type=Path, metavar="FOLDER", help="compile kernels into this folder")
    add("--load", type=Path, metavar="FOLDER", help="run the kernels of this folder")
    add("--seconds", type=float, default=1e9, help="when to end")
    add("--backend", choices=list(METHODS), default="vulkan")
    add("--device", help="the name of the device")
    add("--failures", type=Path, metavar="FILE", help="where failures are written, too")
    add("--show", type=int, metavar="SEED", help="print the kernel of a seed")
    given = parser.parse_args()
    if given.show is not None:
        entry = make_entry(given.show)
        print(write_glsl(entry.kernel), entry.kernel, sep="\n")
        return 0
    if given.save is None and given.load is None and given.calls is None:
        return _save(PATH, build_corpus())
    if given.save is not None:
        entries = list(itertools.islice(make_entries(given.seed), given.kernels))
        return _save(given.save / "kernels.zip", entries)
    return _run(given)


def _save(path: Path, entries: list[Entry]) -> int:
    save_entries(entries, path)
    print(f"{path}: {len(entries)} kernels, {path.stat().st_size:,} bytes")
    return 0


def _run(given: argparse.Namespace) -> int:
    began = time.monotonic()
    entries = (
        make_entries(given.seed)
        if given.load is None
        else iter(load_entries(given.load / "kernels.zip"))
    )
    with open_backend(given.backend, given.device) as backend:
        print(f"{backend.device.name}, {given.backend}", flush=True)
        file = None if given.failures is None else given.failures.open("w")

        def report(failure: str) -> None:
            print(failure, flush=True)
            if file is not None:
                print(failure, file=file, flush=True)

        tally = hunt(
            backend,
            given.backend,
            entries,
            calls_per_kernel=given.calls_per_kernel,
            calls=given.calls or sys.maxsize,
            deadline=began + given.seconds,
            report=report,
        )
        print(tally, f"{tally.kernels} kernels, {time.monotonic() - began:.0f} s", sep="; ")
        print(f"predicted: {dict(tally.predicted)}; lacking: {dict(tally.refused)}")
    return bool(tally.failures)


if __name__ == "__main__":
    sys.exit(main())
