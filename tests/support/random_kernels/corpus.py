"""Saved kernels: random kernels with their SPIR-V, for machines without glslc."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

from tests.support.random_kernels.declarations import draw_kernel
from tests.support.random_kernels.description import Description
from tests.support.random_kernels.glsl import compile_kernel, write_glsl

PATH = Path(__file__).parents[2] / "data" / "random_kernels" / "corpus.zip"
"""The kernels of the tests."""
KERNELS = 160
FAILED: dict[int, tuple[int, str]] = {
    22: (11, "the constants of a graph changed in a container that stayed the same"),
    28: (0, "a struct was copied to too little device memory"),
    32: (11, "out= was an input in imported memory"),
    37: (0, "an array in a block had the length of a constant's default"),
    40: (3, "a push member that is not called count was filled"),
    155: (2, "an array next to a struct in device memory was overwritten"),
    1113: (2, "out= was an input in mapped memory"),
    1201: (0, "out= was an input on the device"),
    1640: (1, "the plan chose the constant of the work-group size, which the code reads"),
}
"""The seeds of kernels that once had a wrong result: the number of the call, and what it was."""
RARE = (162, 192, 200, 223, 245, 259, 268, 281, 292, 300, 309, 417)
"""Seeds of kernels with parts of the contract that the first ones do not have."""
_DATE = (2026, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Entry:
    """A kernel with its code."""

    kernel: Description
    code: bytes
    digest: str
    """SHA-256 of the GLSL text that the SPIR-V was compiled from."""


def make_entry(seed: int) -> Entry:
    """Draw and compile the kernel of a seed; needs glslc."""
    kernel, code = compile_kernel(draw_kernel(Random(seed), f"random-{seed}"))
    return Entry(kernel, code, compute_digest(kernel))


def make_entries(first: int) -> Iterator[Entry]:
    """Draw and compile distinct kernels without end, from a seed on."""
    found = set()
    with ThreadPoolExecutor(2) as compilers:
        while True:
            for entry in compilers.map(make_entry, range(first, first + 16)):
                if entry.code not in found:
                    found.add(entry.code)
                    yield entry
            first += 16


def build_corpus() -> list[Entry]:
    """The kernels of the tests: the first ones, rare ones, and those that failed."""
    found = list(islice(make_entries(0), KERNELS))
    names = {each.kernel.name for each in found}
    return found + [make_entry(seed) for seed in (*RARE, *FAILED) if f"random-{seed}" not in names]


def compute_digest(kernel: Description) -> str:
    return hashlib.sha256(write_glsl(kernel).encode()).hexdigest()


def save_entries(entries: Sequence[Entry], path: Path = PATH) -> None:
    """Write the archive; the same entries give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    described = [{"digest": each.digest, **each.kernel.to_json()} for each in entries]
    text = "\n".join(json.dumps(each, separators=(",", ":")) for each in described)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr(_make_info("kernels.jsonl"), text)
        archive.writestr(_make_info("spirv.bin"), b"".join(each.code for each in entries))
        sizes = json.dumps([len(each.code) for each in entries])
        archive.writestr(_make_info("sizes.json"), sizes)


def _make_info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _DATE)
    info.compress_type = zipfile.ZIP_LZMA
    return info


def load_entries(path: Path = PATH) -> list[Entry]:
    """Read an archive."""
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("kernels.jsonl").decode().splitlines()
        code, at, entries = archive.read("spirv.bin"), 0, []
        for line, size in zip(lines, json.loads(archive.read("sizes.json")), strict=True):
            described = json.loads(line)
            digest = described.pop("digest")
            entries.append(Entry(Description.from_json(described), code[at : at + size], digest))
            at += size
    return entries
