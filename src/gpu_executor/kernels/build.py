"""Compiles the kernels of `glsl/` to `spirv/*.spv` and writes a manifest; `make kernels` runs it.

A source in `glsl/` becomes one module. Sources in the folders of `glsl/` are compiled for several
families of primes: `<family>_<operation>.spv`. The family `f64_limbs` has only the kernels that
multiply. Families of small elements also have packed kernels: `<family>_packed_<operation>.spv`.
Sums, differences and products also have checked kernels: `wide_checked_<operation>.spv`, for every
prime. Hashes of field elements also have kernels for groups of invocations:
`wide_grouped_poseidon.spv`. Kernels on points of curves are compiled for each degree of the curve's
field, and for CPUs in another variant: `curve1_<operation>.spv`, `curve1_serial_<operation>.spv`.
Byte hashes are compiled for each variant of their messages: `sha256_rows.spv`. Kernels of NumPy's
arithmetic are compiled for each kind of numbers that they compute with: `array_reduce_f32.spv`.

The ids of specialization constants are written to `glsl/spec_ids.glsl`, from the list `SpecId`, and
the values of those that name a type or an operation to `glsl/arrays/codes.glsl`.

The manifest holds the SHA-256 of each module's source (with its included files and the compiler
options) and of its SPIR-V, so a test finds stale files without a compiler. Only changing a kernel
needs `glslc`.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_executor.errors import KernelError
from gpu_executor.kernel.glsl import COMPILER, TARGET, find_compiler
from gpu_executor.kernels.arrays import (
    NUMBER_OPTIONS,
    ElementCode,
    OperationCode,
    list_number_variants,
)
from gpu_executor.kernels.byte_hashes import list_hash_variants
from gpu_executor.kernels.curves import (
    CURVE_DEGREES,
    VARIANT_OPTIONS,
    curve_module_name,
    list_variants,
)
from gpu_executor.kernels.elements import CHECKABLE, PACKABLE
from gpu_executor.kernels.families import (
    FAMILIES,
    MONTGOMERY_FAMILIES,
    PACKED_ELEMENTS,
    SCALAR_FAMILIES,
    module_name,
)
from gpu_executor.kernels.field_hashes import GROUPED_HASHES
from gpu_executor.kernels.modules import SpecId

GLSL = Path(__file__).parent / "glsl"
SPIRV = Path(__file__).parent / "spirv"
MANIFEST = SPIRV / "manifest.json"
SPEC_IDS = GLSL / "spec_ids.glsl"
ARRAY_CODES = GLSL / "arrays" / "codes.glsl"
COMMAND = (COMPILER, "-O", TARGET)
FOLDERS: dict[str, Sequence[str]] = {
    "elements": FAMILIES,
    "conversions": MONTGOMERY_FAMILIES,
    "scans": FAMILIES,
    "evaluations": ("wide", "f64_limbs"),
    "sparse": ("wide", "f64_limbs"),
    "chains": ("wide", "f64_limbs"),
    "scalar_chains": SCALAR_FAMILIES,
    "encodings": ("wide",),
    "inversions": ("wide",),
    "inversions/in_passes": ("wide", "f64_limbs"),
    "inversions/in_groups": SCALAR_FAMILIES,
    "field_hashes": FAMILIES,
    "field_hashes/wide": ("wide", "f64_limbs"),
    "field_hashes/goldilocks": ("goldilocks",),
    "transforms": ("wide", *SCALAR_FAMILIES),
    "transforms/by_level": ("wide",),
    "transforms/by_round": SCALAR_FAMILIES,
}
"""The folders whose kernels are compiled for families, and those families. Transforms and
inversions are different algorithms in different families (glsl/transform.glsl, ops/scans.py).
Transforms gain nothing from f64 limbs: on an NVIDIA H200, 2^22 elements of BLS12-381 Fr took
1.69 ms instead of 1.62 ms, 2^24 took 8.69 ms instead of 7.07 ms."""

PACKED_ONLY = ("group_inverse",)
"""Kernels of families of small elements that have no other form than the packed one."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of one module: a GLSL file and, for kernels of a family, its variant."""

    path: Path
    family: str | None = None
    packed: bool = False
    checked: bool = False
    grouped: bool = False
    degree: int = 0
    """Of the curve's field, for kernels on points."""
    variant: str = ""
    """Of kernels on points."""
    messages: str = ""
    """Where the messages of a byte hash are (kernels/byte_hashes.py)."""
    numbers: str = ""
    """What kernels of NumPy's arithmetic compute with (kernels/arrays.py)."""

    @property
    def stem(self) -> str:
        """The name of the module."""
        if self.messages or self.numbers:
            return f"{self.path.stem}_{self.messages or self.numbers}"
        if self.degree:
            return curve_module_name(self.path.stem, self.degree, self.variant)
        if self.family is None:
            return self.path.stem
        return module_name(
            self.family,
            self.path.stem,
            packed=self.packed,
            checked=self.checked,
            grouped=self.grouped,
        )

    @property
    def options(self) -> tuple[str, ...]:
        """The compiler options in addition to those of `COMMAND`."""
        if self.messages:
            return (f"-D{self.messages.upper()}",)
        if self.numbers:
            return NUMBER_OPTIONS[self.numbers]
        if self.degree:
            return (f"-DDEGREE={self.degree}", *VARIANT_OPTIONS[self.variant])
        if self.family is None:
            return ()
        options = [f"-DFAMILY_{self.family.upper()}"]
        if self.family == "f64_limbs":
            options = ["-DFAMILY_WIDE", "-DF64_LIMBS"]
        if self.packed:
            options.append(f"-DPACKED={PACKED_ELEMENTS[self.family]}")
        if self.checked:
            options.append("-DCHECKED")
        if self.grouped:
            options.append("-DGROUPED")
        return tuple(options)

    @property
    def exists(self) -> bool:
        """Whether the module is built: only kernels that multiply have a variant with f64 limbs."""
        return self.family != "f64_limbs" or "#define PRODUCTS" in _read_with_includes(self.path)


def sources() -> list[Source]:
    """Return the sources of all modules, sorted by module name; included files have no module."""
    plain = [Source(path) for path in GLSL.glob("*.comp")]
    by_family = [
        Source(path, family)
        for folder, families in FOLDERS.items()
        for path in (GLSL / folder).glob("*.comp")
        for family in families
    ]
    packed = [
        Source(source.path, source.family, packed=True)
        for source in by_family
        if source.family in PACKED_ELEMENTS and source.path.stem in (*PACKABLE, *PACKED_ONLY)
    ]
    checked = [
        Source(GLSL / "elements" / f"{operation}.comp", "wide", checked=True)
        for operation in CHECKABLE
    ]
    grouped = [
        Source(source.path, source.family, grouped=True)
        for source in by_family
        if source.path.stem in GROUPED_HASHES
    ]
    curves = [
        Source(path, degree=degree, variant=variant)
        for path in (GLSL / "curves").glob("*.comp")
        for degree in CURVE_DEGREES
        for variant in list_variants(path.stem, degree)
    ]
    byte_hashes = [
        Source(path, messages=variant)
        for path in (GLSL / "byte_hashes").glob("*.comp")
        for variant in list_hash_variants(path.stem)
    ]
    arrays = [
        Source(path, numbers=variant)
        for path in (GLSL / "arrays").glob("*.comp")
        for variant in list_number_variants(path.stem)
    ]
    by_family = [source for source in by_family if source.path.stem not in PACKED_ONLY]
    found = plain + by_family + packed + checked + grouped + curves + byte_hashes + arrays
    found = [source for source in found if source.exists]
    return sorted(found, key=lambda source: f"{source.stem}.spv")


def source_digest(source: Source | Path) -> str:
    """Return the SHA-256 of the compiler options, a source and all files it includes."""
    source = Source(source) if isinstance(source, Path) else source
    digest = hashlib.sha256(" ".join([*COMMAND, *source.options]).encode())
    for path in _list_includes(source.path):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def render_spec_ids() -> str:
    """Return the text of `glsl/spec_ids.glsl`: a macro for the id of each constant."""
    macros = "".join(f"#define ID_{each.name} {each.value}\n" for each in SpecId)
    return f"""\
// The ids of specialization constants. `make kernels` writes this file from the list SpecId in
// kernels/modules.py: change that list.

#ifndef SPEC_IDS
#define SPEC_IDS
{macros}#endif
"""


def render_array_codes() -> str:
    """Return the text of `glsl/arrays/codes.glsl`: a macro for the code of each type of elements
    and of each operation."""
    lines = [f"#define TYPE_{each.name} {each.value}u\n" for each in ElementCode]
    lines += [f"#define OP_{each.name} {each.value}u\n" for each in OperationCode]
    return f"""\
// The codes of types and operations. `make kernels` writes this file from the lists ElementCode and
// OperationCode in kernels/arrays.py: change those lists.

#ifndef ARRAY_CODES
#define ARRAY_CODES
{"".join(lines)}#endif
"""


def build() -> None:
    """Write `SPEC_IDS`, `ARRAY_CODES` and the manifest, compile every kernel, delete modules
    without a source."""
    try:
        find_compiler()
    except KernelError as error:
        sys.exit(str(error))
    SPEC_IDS.write_text(render_spec_ids(), encoding="utf-8", newline="\n")
    ARRAY_CODES.write_text(render_array_codes(), encoding="utf-8", newline="\n")
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
    text = json.dumps(manifest, indent=2) + "\n"
    MANIFEST.write_text(text, encoding="utf-8", newline="\n")


def _read_with_includes(source: Path) -> str:
    """Return the text of a source and of all files it includes."""
    return "".join(path.read_text(encoding="utf-8") for path in _list_includes(source))


def _list_includes(source: Path) -> list[Path]:
    """Return a source and all files it includes, directly or not."""
    found = [source]
    text = source.read_text(encoding="utf-8")
    for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
        found += _list_includes(source.parent / name)
    return found


if __name__ == "__main__":
    build()
