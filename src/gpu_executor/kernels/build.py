"""Compiles the kernels of `glsl/` to `spirv/*.spv` and writes a manifest; `make kernels` runs it.

A source in `glsl/` is one module. Those of `glsl/elements`, `glsl/scans` and `glsl/transforms` are
compiled for each family of primes, those of `glsl/conversions` for each that has a Montgomery form:
`<family>_<operation>.spv`. The family `doubles` has those that multiply. Families of small elements
have those that take several at once besides: `<family>_neighbours_<operation>.spv`.

The manifest holds the SHA-256 of each module's source (with what it includes and the compiler's
options) and of its SPIR-V, so that a stale file shows without a compiler. Only whoever changes a
kernel needs `glslc`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_executor.kernels.elements import OF_ELEMENTS
from gpu_executor.kernels.families import FAMILIES, MONTGOMERY_FAMILIES, NEIGHBOURS, module_name

GLSL = Path(__file__).parent / "glsl"
SPIRV = Path(__file__).parent / "spirv"
MANIFEST = SPIRV / "manifest.json"
COMMAND = ("glslc", "-O", "--target-env=vulkan1.2")
FOLDERS: dict[str, Sequence[str]] = {
    "elements": FAMILIES,
    "conversions": MONTGOMERY_FAMILIES,
    "scans": FAMILIES,
    "transforms": [family for family in FAMILIES if family != "doubles"],
}
"""The folders whose kernels are compiled once for each of several families. Transforms gain nothing
from doubles: on an NVIDIA H200 2^22 elements of BLS12-381 Fr took 1.69 ms instead of 1.62, 2^24
8.69 instead of 7.07."""


@dataclass(frozen=True, slots=True)
class Source:
    """What one module is compiled from."""

    path: Path
    family: str | None = None
    neighbours: bool = False

    @property
    def stem(self) -> str:
        """The module's name."""
        if self.family is None:
            return self.path.stem
        return module_name(self.family, self.path.stem, neighbours=self.neighbours)

    @property
    def options(self) -> tuple[str, ...]:
        """What the compiler is told besides what it is told for every module."""
        if self.family == "doubles":
            return ("-DFAMILY_WIDE", "-DDOUBLES")
        if self.family is None:
            return ()
        chosen = (f"-DFAMILY_{self.family.upper()}",)
        return (*chosen, f"-DNEIGHBOURS={NEIGHBOURS[self.family]}") if self.neighbours else chosen

    @property
    def exists(self) -> bool:
        """Whether there is a module of it: doubles are for what multiplies."""
        return self.family != "doubles" or "#define PRODUCTS" in _text(self.path)


def sources() -> list[Source]:
    """What is compiled, in the order of the modules' names; included files are not among it."""
    plain = [Source(path) for path in GLSL.glob("*.comp")]
    by_family = [
        Source(path, family)
        for folder, families in FOLDERS.items()
        for path in (GLSL / folder).glob("*.comp")
        for family in families
    ]
    together = [
        Source(source.path, source.family, neighbours=True)
        for source in by_family
        if source.family in NEIGHBOURS and source.path.stem in OF_ELEMENTS
    ]
    found = [source for source in plain + by_family + together if source.exists]
    found.append(Source(GLSL / "field_mul_chain.comp", "doubles"))
    return sorted(found, key=lambda source: f"{source.stem}.spv")


def source_digest(source: Source | Path) -> str:
    """SHA-256 over the compiler's options, a source and everything it includes."""
    source = Source(source) if isinstance(source, Path) else source
    digest = hashlib.sha256(" ".join([*COMMAND, *source.options]).encode())
    for path in _with_includes(source.path):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build() -> None:
    """Compile every kernel and write the manifest anew."""
    if shutil.which(COMMAND[0]) is None:
        sys.exit("glslc is missing: apt-get install glslc")
    SPIRV.mkdir(exist_ok=True)
    manifest = {}
    for source in sources():
        target = SPIRV / f"{source.stem}.spv"
        command = [*COMMAND, *source.options, "-o", "-", str(source.path)]
        target.write_bytes(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        manifest[source.stem] = {
            "source": source_digest(source),
            "spirv": hashlib.sha256(target.read_bytes()).hexdigest(),
        }
        print(f"{target.name}: {target.stat().st_size:,} bytes")
    for module in SPIRV.glob("*.spv"):
        if module.stem not in manifest:
            module.unlink()
    MANIFEST.write_text(json.dumps(manifest, indent=2) + "\n")


def _text(source: Path) -> str:
    """A source with all that it includes."""
    return "".join(path.read_text() for path in _with_includes(source))


def _with_includes(source: Path) -> list[Path]:
    found = [source]
    for name in re.findall(r'^#include "([^"]+)"', source.read_text(), re.MULTILINE):
        found += _with_includes(source.parent / name)
    return found


if __name__ == "__main__":
    build()
