"""Compiles `glsl/*.comp` to `spirv/*.spv` and writes a manifest; `make kernels` runs it.

The manifest holds the SHA-256 of each kernel's source (with what it includes) and of its SPIR-V, so
that a stale file shows without a compiler. Only whoever changes a kernel needs `glslc`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

GLSL = Path(__file__).parent / "glsl"
SPIRV = Path(__file__).parent / "spirv"
MANIFEST = SPIRV / "manifest.json"
COMMAND = ("glslc", "-O", "--target-env=vulkan1.2")


def sources() -> list[Path]:
    """The kernels' sources; the files they include are not among them."""
    return sorted(GLSL.glob("*.comp"))


def source_digest(source: Path) -> str:
    """SHA-256 over the compiler's options, a source and everything it includes."""
    digest = hashlib.sha256(" ".join(COMMAND).encode())
    for path in _with_includes(source):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build() -> None:
    """Compile every kernel and write the manifest anew."""
    if shutil.which(COMMAND[0]) is None:
        sys.exit("glslc is missing: apt-get install glslc")
    SPIRV.mkdir(exist_ok=True)
    for old in SPIRV.glob("*.spv"):
        old.unlink()
    manifest = {}
    for source in sources():
        target = SPIRV / f"{source.stem}.spv"
        subprocess.run([*COMMAND, "-o", str(target), str(source)], check=True)
        manifest[source.stem] = {
            "source": source_digest(source),
            "spirv": hashlib.sha256(target.read_bytes()).hexdigest(),
        }
        print(f"{target.name}: {target.stat().st_size:,} bytes")
    MANIFEST.write_text(json.dumps(manifest, indent=2) + "\n")


def _with_includes(source: Path) -> list[Path]:
    found = [source]
    for name in re.findall(r'^#include "([^"]+)"', source.read_text(), re.MULTILINE):
        found += _with_includes(source.parent / name)
    return found


if __name__ == "__main__":
    build()
