"""The saved corpus: random kernels with their SPIR-V, for machines without glslc."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.support.random_kernels.description import Description
from tests.support.random_kernels.draw import draw_kernel
from tests.support.random_kernels.glsl import compile_kernel, write_glsl

PATH = Path(__file__).parents[2] / "data" / "random_kernels" / "corpus.zip"
KERNELS = 240
_DATE = (2026, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Entry:
    """A kernel of the corpus."""

    kernel: Description
    code: bytes
    digest: str
    """SHA-256 of the GLSL text that the SPIR-V was compiled from."""


def build_corpus() -> list[Entry]:
    """Draw and compile distinct kernels; needs glslc."""
    found: dict[bytes, Entry] = {}
    seed = 0
    while len(found) < KERNELS:
        kernel, code = compile_kernel(draw_kernel(Random(seed), f"random-{seed}"))
        found.setdefault(code, Entry(kernel, code, compute_digest(kernel)))
        seed += 1
    return list(found.values())


def compute_digest(kernel: Description) -> str:
    return hashlib.sha256(write_glsl(kernel).encode()).hexdigest()


def save_corpus(entries: list[Entry]) -> None:
    """Write the archive; the same entries give the same bytes."""
    PATH.parent.mkdir(parents=True, exist_ok=True)
    described = [{"digest": each.digest, **each.kernel.to_json()} for each in entries]
    text = "\n".join(json.dumps(each, separators=(",", ":")) for each in described)
    with zipfile.ZipFile(PATH, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr(_make_info("kernels.jsonl"), text)
        archive.writestr(_make_info("spirv.bin"), b"".join(each.code for each in entries))
        sizes = json.dumps([len(each.code) for each in entries])
        archive.writestr(_make_info("sizes.json"), sizes)


def _make_info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _DATE)
    info.compress_type = zipfile.ZIP_LZMA
    return info


def load_corpus() -> list[Entry]:
    """Read the archive."""
    with zipfile.ZipFile(PATH) as archive:
        lines = archive.read("kernels.jsonl").decode().splitlines()
        code, at, entries = archive.read("spirv.bin"), 0, []
        for line, size in zip(lines, json.loads(archive.read("sizes.json")), strict=True):
            described = json.loads(line)
            digest = described.pop("digest")
            entries.append(Entry(Description.from_json(described), code[at : at + size], digest))
            at += size
    return entries
