"""GLSL compute shaders compiled to SPIR-V by `glslc`, cached by content.

The cache's key is a hash of the compiler, the options and the source. The source of a shader with
`#include` is its preprocessed text, so a change in an included file, or another file of the same
name earlier in the search, is another key. A shader without `#include` whose SPIR-V is cached does
not start the compiler.

The SPIR-V is not optimized (no `-O`), for two reasons. `-O` strips the names of the parameters, and
it removes buffers that the code does not use, so the arguments of the kernel would depend on what
the optimizer finds. Drivers optimize the code themselves when they build a pipeline. `-O -g` would
keep the names, but it embeds the source, and a comment or a path would make another kernel.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_executor.common.files import read_own_file, write_atomically
from gpu_executor.common.lru import remember
from gpu_executor.errors import KernelError

COMPILER = "glslc"
TARGET = "--target-env=vulkan1.2"
OPTIONS = ("-fshader-stage=compute", "-x", "glsl", TARGET)
SOURCE_TEXT = "<glsl>"
"""The name of source text in messages."""
MAGIC = b"gxglsl1\n"
DIGEST_BYTES = 32
MAX_ENTRY_BYTES = 1 << 24
"""The largest SPIR-V that is read from the cache; shaders have some kilobytes."""
MODULES_IN_PROCESS = 256
FILES_ON_DISK = 1_000
log = logging.getLogger("gpu_executor.kernel.glsl")

_compiled: dict[str, bytes] = {}
"""SPIR-V by key, of this process."""


def compile_glsl(
    source_or_path: str | Path,
    *,
    include: Sequence[str | Path] = (),
    defines: Mapping[str, object] | None = None,
    kernel_name: str | None = None,
    cache_dir: Path | None,
) -> tuple[bytes, str]:
    """Return the SPIR-V of a compute shader and a name for it.

    A string with a line break, `#version` or `void main` is source text; other strings are paths.
    `include` lists the folders that `#include` searches behind the including file's own folder
    (for source text: the working directory). `defines` are macros: None defines a name without a
    value, True and False are 1 and 0. Messages have the `kernel_name`, if it is given. `cache_dir`
    is the folder of the cache on disk; None stores nothing.

    A mistake in the source raises `KernelError` with the compiler's messages, file and line.
    """
    path = _find_path(source_or_path)
    name = SOURCE_TEXT if path is None else str(path)
    refused = name if kernel_name is None else f"the kernel {kernel_name!r}"
    source = str(source_or_path).encode() if path is None else _read(path)
    options = [*_list_include_options(include), *_list_define_options(defines or {})]
    compiler = find_compiler()
    if b"include" in source.replace(b"\\\n", b""):
        # The files that #include finds are known to the compiler alone. What is compiled is the
        # text that was hashed, so a file that changes meanwhile cannot give a wrong entry.
        file = "-" if path is None else str(path)
        source = _run([compiler, "-E", *OPTIONS, *options, file], source, name, refused)
        options = []
    key = _hash([*_identify(compiler), *options], source)
    code = _compiled.get(key)
    if code is None:
        stored = None if cache_dir is None else cache_dir / "glsl" / f"{key}.bin"
        code = None if stored is None else _read_entry(stored)
        if code is None:
            code = _run([compiler, *OPTIONS, *options, "-o", "-", "-"], source, name, refused)
            if stored is not None:
                _write_entry(stored, code)
        remember(_compiled, key, code, MODULES_IN_PROCESS)
    return code, f"glsl-{key[:8]}" if path is None else path.stem


def find_compiler() -> str:
    """Return the path of `glslc`; raises `KernelError` where it is not installed."""
    import shutil  # imported late, like `subprocess`: most kernels are SPIR-V

    found = shutil.which(COMPILER)
    if found is None:
        raise KernelError(
            f"{COMPILER} was not found, and GLSL is compiled with it: install it (Debian and "
            "Ubuntu: apt-get install glslc; elsewhere it is part of the Vulkan SDK), or compile "
            f"the shader on another machine ({COMPILER} {TARGET} shader.comp -o shader.spv) and "
            "pass shader.spv to Kernel.from_spirv"
        )
    return found


def _find_path(source_or_path: object) -> Path | None:
    """Return the path of the source; None for source text."""
    if isinstance(source_or_path, Path):
        return source_or_path
    if not isinstance(source_or_path, str):
        raise KernelError(
            f"source_or_path is of type {type(source_or_path).__name__}; GLSL is given as a str "
            "with the source text or as a path"
        )
    if not source_or_path.strip():
        raise KernelError("source_or_path is empty; give the text of a compute shader or a path")
    if any(mark in source_or_path for mark in ("\n", "#version", "void main")):
        return None
    return Path(source_or_path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise KernelError(
            f"source_or_path is {str(path)!r}, a path that cannot be read ({error}); source text "
            "has a line break, #version or void main"
        ) from error


def _list_include_options(include: Sequence[str | Path]) -> list[str]:
    if isinstance(include, str | Path):
        raise KernelError(f"include is {str(include)!r}; pass a sequence of folders: [{include!r}]")
    for folder in include:
        if not Path(folder).is_dir():
            raise KernelError(f"include lists {str(folder)!r}, which is not a folder")
    return [part for folder in include for part in ("-I", str(folder))]


def _list_define_options(defines: Mapping[str, object]) -> list[str]:
    options = []
    for name, value in defines.items():
        if not isinstance(name, str) or re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) is None:
            raise KernelError(f"defines has the name {name!r}; a macro's name is an identifier")
        text = str(int(value) if isinstance(value, bool) else value)
        if "\n" in text or "\r" in text:
            raise KernelError(f"defines has a line break in the value of {name}: {text!r}")
        options.append(f"-D{name}" if value is None else f"-D{name}={text}")
    return options


def _identify(compiler: str) -> list[str]:
    """Return what tells this compiler from another version of it, without starting it."""
    try:
        status = Path(compiler).resolve().stat()
    except OSError as error:
        raise KernelError(f"{compiler} cannot be read: {error}") from error
    return [compiler, str(status.st_size), str(status.st_mtime_ns), *OPTIONS]


def _hash(options: Sequence[str], source: bytes) -> str:
    return hashlib.sha256("\0".join(options).encode() + b"\0\0" + source).hexdigest()


def _run(command: Sequence[str], source: bytes, name: str, refused: str) -> bytes:
    """Run the compiler on a source and return its output. Messages call the source `name`, and say
    that the compiler `refused` it."""
    import subprocess

    try:
        done = subprocess.run(command, input=source, capture_output=True, check=False)
    except (OSError, ValueError) as error:
        raise KernelError(f"{command[0]} could not be started: {error}") from error
    said = done.stderr.decode(errors="replace").replace("<stdin>", name).strip()
    if done.returncode:
        raise KernelError(f"{COMPILER} refused {refused}:\n{said or f'status {done.returncode}'}")
    if said:
        log.warning("%s", said)
    return done.stdout


def _read_entry(path: Path) -> bytes | None:
    """Read SPIR-V from the cache; None if the entry is missing or damaged."""
    try:
        content = read_own_file(path, MAX_ENTRY_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("cached SPIR-V was not read: %s", error)
        return None
    start = len(MAGIC) + DIGEST_BYTES
    code = content[start:]
    if content[:start] != MAGIC + hashlib.sha256(code).digest():
        log.warning("%s is damaged; the shader is compiled again", path)
        return None
    return code


def _write_entry(path: Path, code: bytes) -> None:
    """Store SPIR-V in the cache and delete the oldest entries beyond `FILES_ON_DISK`. A failing
    write is logged."""
    try:
        write_atomically(path, MAGIC + hashlib.sha256(code).digest() + code)
        entries = list(path.parent.glob("*.bin"))
        if len(entries) > FILES_ON_DISK:
            entries.sort(key=lambda entry: entry.lstat().st_mtime_ns)
            for entry in entries[: len(entries) - FILES_ON_DISK]:
                # Windows does not delete an entry that is being read; the next call deletes it.
                with contextlib.suppress(PermissionError):
                    entry.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the SPIR-V was not stored: %s", error)
