"""GLSL is compiled once, cached by content, and mistakes are reported with file and line."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import KernelError
from gpu_executor.kernel import glsl
from gpu_executor.kernel.glsl import compile_glsl
from gpu_executor.spirv import read_interface

TEXT = """#version 450
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint count; uint factor; };
layout(set = 0, binding = 0) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1) writeonly buffer Y { uint y[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < count) y[i] = factor * x[i] + OFFSET;
}
"""
PLAIN = TEXT.replace("OFFSET", "1")
WITH_INCLUDE = PLAIN.replace("void main", '#include "offset.glsl"\nvoid main').replace(
    "+ 1;", "+ offset();"
)


@pytest.fixture(autouse=True)
def no_modules_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test begins with an empty cache in this process."""
    monkeypatch.setattr(glsl, "_compiled", {})


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the compiler was started for: "-E" (preprocess) or "-o" (compile)."""
    seen: list[str] = []
    run = subprocess.run

    def counting(command: list[str], **options: Any) -> Any:
        seen.append("-E" if "-E" in command else "-o")
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", counting)
    return seen


def forget() -> None:
    """Empty the cache of this process, as a new process would begin."""
    glsl._compiled.clear()


def has_words(code: bytes, text: str) -> bool:
    """Whether the SPIR-V contains a string, such as a name."""
    return text.encode() in code


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_source_text_is_compiled_and_keeps_the_names_of_the_parameters() -> None:
    code, name = compile_glsl(PLAIN, cache_dir=None)
    interface = read_interface(code)
    assert interface.bindings == (0, 1)
    assert interface.push_constant_bytes == 8
    assert has_words(code, "count") and has_words(code, "factor")
    assert name.startswith("glsl-")


def test_the_compiled_shader_computes(gpu: gx.PersistentVulkanBackend) -> None:
    code, _ = compile_glsl(TEXT, defines={"OFFSET": 5}, cache_dir=None)
    kernel = gx.Kernel.from_spirv(code, buffers="in u4, out u4", push=np.uint32(3).tobytes())
    x = np.arange(1000, dtype=np.uint32)
    assert np.array_equal(gpu.run(kernel, x), 3 * x + 5)


def test_an_unused_buffer_stays_an_argument() -> None:
    text = PLAIN.replace("void main", "layout(binding = 2) buffer Z { uint z[]; };\nvoid main")
    code, _ = compile_glsl(text, cache_dir=None)
    assert read_interface(code).bindings == (0, 1, 2)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_read_and_names_the_kernel(tmp_path: Path, kind: type) -> None:
    path = write(tmp_path, "scaled.comp", PLAIN)
    code, name = compile_glsl(kind(path), cache_dir=None)
    assert (code, name) == (compile_glsl(PLAIN, cache_dir=None)[0], "scaled")


@pytest.mark.parametrize("name", ["shader.vert", "shader.hlsl", "shader"])
def test_the_name_of_a_file_does_not_choose_its_language(tmp_path: Path, name: str) -> None:
    write(tmp_path, "offset.glsl", "uint offset() { return 1; }")
    path = write(tmp_path, name, WITH_INCLUDE)
    assert read_interface(compile_glsl(path, cache_dir=None)[0]).bindings == (0, 1)


@pytest.mark.parametrize("missing", ["missing.comp", ".", "a\0b"])
def test_a_path_that_cannot_be_read_is_an_error_in_words(missing: str) -> None:
    with pytest.raises(KernelError, match=r"cannot be read.*source text has a line break"):
        compile_glsl(missing, cache_dir=None)


@pytest.mark.parametrize("empty", ["", " "])
def test_empty_text_is_refused(empty: str) -> None:
    with pytest.raises(KernelError, match="source_or_path is empty; give the text of"):
        gx.Kernel.from_glsl(empty)


def test_text_on_one_line_is_source() -> None:
    with pytest.raises(KernelError, match="<glsl>"):
        compile_glsl("void main() { nothing }", cache_dir=None)


def test_bytes_are_refused() -> None:
    with pytest.raises(KernelError, match="source_or_path is of type bytes"):
        compile_glsl(PLAIN.encode(), cache_dir=None)  # type: ignore[arg-type]


def test_a_mistake_in_source_text_has_its_line() -> None:
    with pytest.raises(KernelError, match=r"glslc refused <glsl>:\n<glsl>:8: error: 'OFFSET'"):
        compile_glsl(TEXT, cache_dir=None)
    with pytest.raises(KernelError, match=r"refused the kernel 'mine':\n<glsl>:8: error: 'OFFSET'"):
        gx.Kernel.from_glsl(TEXT, name="mine")


def test_a_mistake_in_a_file_has_its_path_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, "wrong.comp", TEXT)
    with pytest.raises(KernelError) as error:
        compile_glsl(path, cache_dir=None)
    assert f"{path}:8: error: 'OFFSET'" in str(error.value)


def test_a_mistake_in_an_included_file_has_its_path_and_line(tmp_path: Path) -> None:
    included = write(tmp_path, "offset.glsl", "\nuint offset() { return nothing; }")
    path = write(tmp_path, "main.comp", WITH_INCLUDE)
    with pytest.raises(KernelError) as error:
        compile_glsl(path, cache_dir=None)
    assert f"{included}:2: error: 'nothing'" in str(error.value)


def test_a_mistake_behind_an_include_has_the_line_of_its_own_file(tmp_path: Path) -> None:
    write(tmp_path, "offset.glsl", "\n\n\nuint offset() { return 1; }\n\n")
    path = write(tmp_path, "main.comp", WITH_INCLUDE.replace("x[i]", "nothing"))
    line = 1 + WITH_INCLUDE[: WITH_INCLUDE.index("x[i]")].count("\n")
    with pytest.raises(KernelError) as error:
        compile_glsl(path, cache_dir=None)
    assert f"{path}:{line}: error: 'nothing'" in str(error.value)


def test_a_missing_include_has_the_line_of_its_directive(tmp_path: Path) -> None:
    path = write(tmp_path, "main.comp", WITH_INCLUDE)
    with pytest.raises(KernelError) as error:
        compile_glsl(path, cache_dir=None)
    assert f"{path}:6: error: '#include'" in str(error.value)


def test_includes_are_found_beside_the_file_and_in_folders_in_their_order(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "main.comp", WITH_INCLUDE)
    folders: list[str | Path] = [tmp_path / "b", str(tmp_path / "c")]
    for number, folder in enumerate(["a", "b", "c"]):
        write(tmp_path / folder, "offset.glsl", f"uint offset() {{ return {number}; }}")
    beside = compile_glsl(path, include=folders, cache_dir=None)[0]
    (tmp_path / "a" / "offset.glsl").unlink()
    first = compile_glsl(path, include=folders, cache_dir=None)[0]
    second = compile_glsl(path, include=folders[::-1], cache_dir=None)[0]
    text = compile_glsl(WITH_INCLUDE, include=folders, cache_dir=None)[0]
    assert len({beside, first, second}) == 3
    assert text == first


@pytest.mark.parametrize("folder", ["folder", Path("folder")])
def test_one_folder_instead_of_a_sequence_is_refused(folder: Any) -> None:
    with pytest.raises(KernelError, match="include is 'folder'; pass a sequence"):
        compile_glsl(PLAIN, include=folder, cache_dir=None)


def test_an_include_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"include lists .*missing.*not a folder"):
        compile_glsl(PLAIN, include=[tmp_path / "missing"], cache_dir=None)


def test_defines_are_macros() -> None:
    values = {"A": 7, "B": True, "C": False, "D": np.uint32(9), "E": "3 * 4"}
    text = TEXT.replace("OFFSET", "100 * (A + 20 * B + 300 * C) + D * x[i + 1] + E")
    code = compile_glsl(text, defines=values, cache_dir=None)[0]
    for name, value in zip(values, ("7", "1", "0", "9", "3 * 4"), strict=True):
        text = re.sub(rf"\b{name}\b", value, text)
    assert code == compile_glsl(text, cache_dir=None)[0]


def test_a_define_without_a_value_is_defined() -> None:
    text = "#version 450\n#ifndef FLAG\n#error no flag\n#endif\nvoid main() {}"
    with pytest.raises(KernelError, match="no flag"):
        compile_glsl(text, cache_dir=None)
    assert compile_glsl(text, defines={"FLAG": None}, cache_dir=None)[0]


def test_defines_reach_included_files(tmp_path: Path) -> None:
    write(tmp_path, "offset.glsl", "uint offset() { return OFFSET; }")
    path = write(tmp_path, "main.comp", WITH_INCLUDE)
    two, three = (compile_glsl(path, defines={"OFFSET": v}, cache_dir=None)[0] for v in (2, 3))
    assert two != three


@pytest.mark.parametrize("name", ["", "1a", "a b", "a=b", "ä", 3])
def test_a_define_needs_an_identifier(name: Any) -> None:
    with pytest.raises(KernelError, match="a macro's name is an identifier"):
        compile_glsl(PLAIN, defines={name: 1}, cache_dir=None)


def test_a_line_break_in_a_define_is_refused() -> None:
    with pytest.raises(KernelError, match="line break in the value of OFFSET"):
        compile_glsl(TEXT, defines={"OFFSET": "1\n2"}, cache_dir=None)


def test_a_missing_compiler_is_an_error_that_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelError, match=r"apt-get install glslc.*Vulkan SDK.*from_spirv"):
        compile_glsl(PLAIN, cache_dir=None)


def test_a_compiler_that_cannot_start_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tmp_path, "glslc", "not a program").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelError, match="could not be started"):
        compile_glsl(PLAIN, cache_dir=None)


def test_a_second_call_does_not_start_the_compiler(starts: list[str]) -> None:
    first = compile_glsl(PLAIN, cache_dir=None)
    assert compile_glsl(PLAIN, cache_dir=None) == first
    assert starts == ["-o"]


def test_a_second_process_does_not_start_the_compiler(starts: list[str], tmp_path: Path) -> None:
    first = compile_glsl(PLAIN, cache_dir=tmp_path)
    forget()
    assert compile_glsl(PLAIN, cache_dir=tmp_path) == first
    assert starts == ["-o"]


def test_without_a_cache_folder_nothing_is_stored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    compile_glsl(PLAIN, cache_dir=None)
    assert list(tmp_path.iterdir()) == []


def test_a_change_of_the_source_the_defines_or_the_compiler_is_noticed(
    starts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "main.comp", TEXT)
    cache = tmp_path / "cache"
    codes = {compile_glsl(path, defines={"OFFSET": value}, cache_dir=cache)[0] for value in (1, 2)}
    path.write_text(TEXT.replace("factor *", "2 * factor *"))
    codes.add(compile_glsl(path, defines={"OFFSET": 1}, cache_dir=cache)[0])
    assert (len(codes), starts) == (3, ["-o"] * 3)
    other = write(tmp_path / "bin", "glslc", f'#!/bin/sh\nexec {glsl.find_compiler()} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    compile_glsl(path, defines={"OFFSET": 1}, cache_dir=cache)
    assert starts == ["-o"] * 4


def test_a_change_of_an_included_file_is_noticed(starts: list[str], tmp_path: Path) -> None:
    included = write(tmp_path, "offset.glsl", "uint offset() { return 1; }")
    path = write(tmp_path, "main.comp", WITH_INCLUDE)
    first = compile_glsl(path, cache_dir=tmp_path)[0]
    assert compile_glsl(path, cache_dir=tmp_path)[0] == first
    assert starts == ["-E", "-o", "-E"]
    included.write_text("uint offset() { return 2; }")
    assert compile_glsl(path, cache_dir=tmp_path)[0] != first


def test_a_file_that_comes_earlier_in_the_search_is_noticed(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    folders[0].mkdir()
    write(folders[1], "offset.glsl", "uint offset() { return 1; }")
    before = compile_glsl(WITH_INCLUDE, include=folders, cache_dir=tmp_path)[0]
    write(folders[0], "offset.glsl", "uint offset() { return 2; }")
    assert compile_glsl(WITH_INCLUDE, include=folders, cache_dir=tmp_path)[0] != before


def test_an_include_that_continues_on_the_next_line_is_noticed(tmp_path: Path) -> None:
    included = write(tmp_path, "offset.glsl", "uint offset() { return 1; }")
    path = write(tmp_path, "main.comp", WITH_INCLUDE.replace("#include", "#inc\\\nlude"))
    first = compile_glsl(path, cache_dir=tmp_path)[0]
    included.write_text("uint offset() { return 2; }")
    assert compile_glsl(path, cache_dir=tmp_path)[0] != first


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_entry_is_compiled_again_and_replaced(
    damage: bytes | None, starts: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = compile_glsl(PLAIN, cache_dir=tmp_path)
    [entry] = (tmp_path / "glsl").iterdir()
    good = entry.read_bytes()
    entry.write_bytes(good[:-4] + b"\0\0\0\1" if damage is None else damage)
    forget()
    assert compile_glsl(PLAIN, cache_dir=tmp_path) == first
    assert starts == ["-o", "-o"]
    assert entry.read_bytes() == good
    assert "is damaged" in caplog.text


@pytest.mark.parametrize("what", ["fifo", "link", "sparse file", "folder"])
def test_what_is_no_entry_of_the_user_is_not_read(
    what: str, starts: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = compile_glsl(PLAIN, cache_dir=tmp_path)
    [entry] = (tmp_path / "glsl").iterdir()
    good = entry.read_bytes()
    entry.unlink()
    if what == "fifo":
        os.mkfifo(entry)
    elif what == "link":
        write(tmp_path, "elsewhere", "").write_bytes(good)
        entry.symlink_to(tmp_path / "elsewhere")
    elif what == "folder":
        entry.mkdir()
    else:
        with entry.open("wb") as file:
            file.truncate(20 << 30)
    forget()
    assert compile_glsl(PLAIN, cache_dir=tmp_path) == first
    assert starts == ["-o", "-o"]
    assert "was not read" in caplog.text
    assert entry.is_dir() if what == "folder" else entry.read_bytes() == good


def test_a_folder_that_cannot_be_written_costs_the_cache_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "glsl").write_text("a file where the folder should be")
    assert compile_glsl(PLAIN, cache_dir=tmp_path)[0]
    assert "was not stored" in caplog.text


def test_a_failure_is_not_cached(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KernelError):
            compile_glsl(TEXT, cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    text = PLAIN.replace("#version 450", "#version 450\n#extension GL_NOTHING_here : enable")
    with caplog.at_level(logging.WARNING, "gpu_executor.kernel.glsl"):
        compile_glsl(text, cache_dir=None)
    assert "<glsl>:2: warning" in caplog.text


def test_the_oldest_entries_on_disk_are_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(glsl, "FILES_ON_DISK", 2)
    kept = []
    for value in range(4):
        before = set((tmp_path / "glsl").glob("*"))
        compile_glsl(TEXT, defines={"OFFSET": value}, cache_dir=tmp_path)
        [new] = set((tmp_path / "glsl").glob("*")) - before
        os.utime(new, ns=(value, value))
        kept.append(new)
    assert set((tmp_path / "glsl").iterdir()) == set(kept[2:])


def test_threads_and_processes_may_compile_at_once(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from gpu_executor.kernel.glsl import compile_glsl\n"
        "code, _ = compile_glsl(Path(sys.argv[1]), cache_dir=Path(sys.argv[2]))\n"
        "sys.stdout.buffer.write(code)"
    )
    path, cache = write(tmp_path, "main.comp", PLAIN), tmp_path / "cache"
    command = [sys.executable, "-c", script, str(path), str(cache)]

    def compile_elsewhere(_number: int) -> bytes:
        return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout

    def compile_here(_number: int) -> bytes:
        return compile_glsl(path, cache_dir=cache)[0]

    with ThreadPoolExecutor(8) as threads:
        codes = [*threads.map(compile_elsewhere, range(3)), *threads.map(compile_here, range(8))]
    assert len(set(codes)) == 1
    assert len(list((cache / "glsl").iterdir())) == 1  # no temporary files
