"""The container of files: its table is checked before anything is read."""

from __future__ import annotations

import os
import pickle
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_executor.errors import GpuError, ProofFileError
from gpu_executor.groth16 import sections as module
from gpu_executor.groth16.sections import (
    SectionFile,
    SectionReader,
    find_not_below,
    write_sections,
)
from tests.support.proof_files import (
    R,
    check_every_flip,
    check_every_truncation,
    check_refused,
    pack,
    pack_file,
    pack_modulus,
    write,
)

NAMES = {1: "header", 2: "data"}
CONTENT = pack_file(b"test", 1, [(2, b"abcdefgh"), (1, pack(7, 8)), (9, b"odd")])


def read(path: Path) -> SectionFile:
    return SectionFile.open(path, b"test", (1,), NAMES)


def test_sections_are_found_in_any_order(tmp_path: Path) -> None:
    file = read(write(tmp_path / "file", CONTENT))
    assert {key: (each.offset, each.length) for key, each in file.sections.items()} == {
        2: (24, 8),
        1: (44, 8),
        9: (64, 3),
    }
    view = file.view(2, "<u4", (2,))
    assert view.tobytes() == b"abcdefgh"
    assert not view.flags.writeable
    reader = SectionReader(file, 1)
    assert (reader.read_u32("a"), reader.read_u32("b")) == (7, 8)
    reader.finish()


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    check_every_truncation(read, tmp_path / "file", CONTENT)


def test_flips_of_the_header_and_of_lengths_are_refused(tmp_path: Path) -> None:
    lengths = [*range(16, 24), *range(36, 44), *range(56, 64)]
    check_every_flip(read, tmp_path / "file", CONTENT, [*range(12), *lengths])


@pytest.mark.parametrize(
    ("content", "words", "offset"),
    [
        (b"", "the file is empty", 0),
        (b"zkey" + CONTENT[4:], r"begins with b'zkey', not with b'test'", 0),
        (b"te", "the header is cut off: 2 of 12 bytes", 2),
        (b"test" + pack(3, 0), "the version is 3; 1 can be read", 4),
        (b"test" + pack(1, 2**32 - 1), "claims 4,294,967,295 sections", 8),
        (CONTENT + b"x", "1 bytes follow the last of 3 sections", len(CONTENT)),
        (CONTENT[:14], "the section table is cut off: section number 1 of 3", 12),
        (
            b"test" + pack(1, 1) + struct.pack("<IQ", 2, 2**64 - 1),
            r"section 2 \(data\), byte offset 24: the section runs past the end",
            24,
        ),
        (
            pack_file(b"test", 1, [(2, b"a"), (2, b"b")]),
            r"section 2 \(data\), byte offset 37: the section is there twice, first at byte",
            37,
        ),
    ],
)
def test_faults_are_named(tmp_path: Path, content: bytes, words: str, offset: int) -> None:
    assert check_refused(read, tmp_path / "file", content, words).offset == offset


def test_a_missing_section_is_named(tmp_path: Path) -> None:
    file = read(write(tmp_path / "file", pack_file(b"test", 1, [(2, b"")])))
    with pytest.raises(
        ProofFileError, match=r"section 1 \(header\): the section is missing"
    ) as bad:
        file.get(1)
    assert (bad.value.path, bad.value.section) == (str(tmp_path / "file"), 1)


def test_a_million_empty_sections_are_refused_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "file", b"test" + pack(1, 10**6) + bytes(12 * 10**6))
    begin = time.perf_counter()
    with pytest.raises(ProofFileError, match="claims 1,000,000 sections"):
        read(path)
    assert time.perf_counter() - begin < 1


def test_what_is_no_file_stays_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "missing")
    with pytest.raises(IsADirectoryError):
        read(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="not a regular file"):
            read(tmp_path / "pipe")
        with pytest.raises(OSError, match="not a regular file"):
            write_sections(tmp_path / "pipe", b"test", 1, [])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(CONTENT)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(CONTENT) - 1))] = data.draw(st.integers(0, 255))
    path = write(tmp_path_factory.getbasetemp() / "random", bytes(content))
    try:
        file = read(path)
    except ProofFileError:
        return
    assert sum(each.length + 12 for each in file.sections.values()) <= len(content) - 12


def test_the_error_is_a_value_error_and_survives_pickling() -> None:
    error = ProofFileError("reason", "file", 2, "data", 40)
    assert str(error) == "file: section 2 (data), byte offset 40: reason"
    assert isinstance(error, GpuError)
    assert isinstance(error, ValueError)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == (str(error), vars(error))
    assert str(ProofFileError("text")) == "text"


def test_reader_refuses_what_the_section_has_not(tmp_path: Path) -> None:
    path = write(tmp_path / "file", pack_file(b"test", 1, [(1, pack(1) + b"ab")]))
    reader = SectionReader(read(path), 1)
    reader.read_u32("the first")
    with pytest.raises(ProofFileError, match="offset 28: the section has 6 bytes; 4 are expected"):
        reader.finish()
    with pytest.raises(ProofFileError, match="ends within the second: 2 of 4 bytes"):
        reader.read_u32("the second")


@pytest.mark.parametrize("size", [0, 8, 31, 33, 49, 2**32 - 1])
def test_a_prime_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    data = pack(size) + R["bn128"].to_bytes(64, "little")
    reader = SectionReader(read(write(tmp_path / "file", pack_file(b"test", 1, [(1, data)]))), 1)
    with pytest.raises(ProofFileError, match="bytes"):
        reader.read_scalar_curve()


@pytest.mark.parametrize("name", ["bn128", "bls12381"])
def test_the_prime_decides_the_curve(tmp_path: Path, name: str) -> None:
    data = pack_modulus(R[name], 32)
    path = write(tmp_path / "file", pack_file(b"test", 1, [(1, data)]))
    assert SectionReader(read(path), 1).read_scalar_curve().name == name


# --- values ---


@pytest.mark.parametrize(("dtype", "width"), [(np.uint32, 8), (np.uint64, 4), (np.uint64, 6)])
@pytest.mark.parametrize("offset", [-1, 0, 1, 2**40])
def test_the_first_number_that_is_not_below_the_modulus(
    monkeypatch: pytest.MonkeyPatch, dtype: npt.DTypeLike, width: int, offset: int
) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    size = np.dtype(dtype).itemsize * width
    modulus = R["bn128"]
    for index in (0, 77, 299):
        numbers = [(modulus - 1 if i % 3 else i) for i in range(300)]
        numbers[index] = modulus + offset
        words = np.frombuffer(b"".join(each.to_bytes(size, "little") for each in numbers), dtype)
        expected = None if offset < 0 else index
        assert find_not_below(words.reshape(-1, width), modulus) == expected
        assert find_not_below(words.reshape(-1, 2, 2, width), modulus) == expected
        wide = np.zeros((300, 2 * width), dtype)
        wide[:, ::2] = words.reshape(-1, width)
        assert find_not_below(wide[:, ::2], modulus) == expected
    assert find_not_below(np.zeros((0, width), dtype), modulus) is None
    assert find_not_below(np.full((2, width), -1).astype(dtype), 2 ** (8 * size) + 1) is None


@given(st.lists(st.integers(0, 2**256 - 1), max_size=20), st.integers(1, 2**256 - 1))
def test_find_not_below_agrees_with_integers(numbers: list[int], modulus: int) -> None:
    words = np.frombuffer(b"".join(each.to_bytes(32, "little") for each in numbers), np.uint32)
    expected = next((i for i, each in enumerate(numbers) if each >= modulus), None)
    assert find_not_below(words.reshape(-1, 8), modulus) == expected


# --- writing ---


def test_written_sections_are_the_bytes_of_the_format(tmp_path: Path) -> None:
    path = tmp_path / "file"
    array = np.arange(12, dtype="<u4").reshape(3, 4)
    data: list[tuple[int, list[Any]]] = [(2, [b"ab", array, array.T]), (1, [])]
    write_sections(path, b"test", 1, data)
    expected = b"ab" + array.tobytes() + np.ascontiguousarray(array.T).tobytes()
    assert path.read_bytes() == pack_file(b"test", 1, [(2, expected), (1, b"")])
    assert list(tmp_path.iterdir()) == [path]


def test_a_failing_write_keeps_the_old_file(tmp_path: Path) -> None:
    def fail() -> Iterator[bytes]:
        yield b"a"
        raise RuntimeError("no more")

    path = write(tmp_path / "file", b"old")
    with pytest.raises(RuntimeError, match="no more"):
        write_sections(path, b"test", 1, [(1, fail())])
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(IsADirectoryError):
        write_sections(tmp_path, b"test", 1, [])
    with pytest.raises(FileNotFoundError):
        write_sections(tmp_path / "missing" / "file", b"test", 1, [])


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_links_are_followed_and_private_files_are_private(tmp_path: Path) -> None:
    target, link = write(tmp_path / "target", b""), tmp_path / "link"
    link.symlink_to(target)
    write_sections(link, b"test", 1, [], private=True)
    assert link.is_symlink()
    assert target.read_bytes() == pack_file(b"test", 1, [])
    assert target.stat().st_mode & 0o777 == 0o600
