"""The container of snarkjs's and circom's files: keys, witnesses, circuits and ceremonies.

A file has a magic of four bytes, a version and the number of its sections, then each section as
its id (32 bits), its length (64 bits) and its data. All numbers are little-endian, and sections
may come in any order.

Files are mapped into memory: a section of gigabytes is a view, and only what is read is loaded. A
file must not be changed in place while it is open. `write_sections` replaces it in one step.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu_executor.common.files import open_replacement
from gpu_executor.curves import Curve
from gpu_executor.errors import ProofFileError
from gpu_executor.groth16.proof_curve import ProofCurve, find_by_scalar_modulus

PathLike: TypeAlias = str | os.PathLike[str]
Words32: TypeAlias = npt.NDArray[np.uint32]
Points: TypeAlias = npt.NDArray[np.uint64]
"""Affine points in Montgomery form, as `Curve.get_layout("affine")` has them."""
Buffer: TypeAlias = bytes | npt.NDArray[Any]

FILE_HEADER = struct.Struct("<4sII")
SECTION_HEADER = struct.Struct("<IQ")
MAX_SECTIONS = 256
"""The largest number of sections that is read; no format has more than 20."""
MAX_MODULUS_BYTES = 48
READ_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)
"""Those of these flags that the system has. A pipe is not waited for."""
CHUNK_BYTES = 1 << 20
"""What checks of values read at once."""


@dataclass(frozen=True)
class Section:
    """Where a section's data are in the file."""

    id: int
    offset: int
    length: int


class SectionFile:
    """A file of sections, mapped into memory read-only. Its section table has been checked.

    Args:
        path (str): The file, for messages.
        data (mmap): Its content.
        sections (Mapping): The sections by id.
        names (Mapping): What the format calls its sections, by id.
    """

    def __init__(
        self,
        path: str,
        data: mmap.mmap,
        sections: Mapping[int, Section],
        names: Mapping[int, str],
    ) -> None:
        self.path = path
        self.data = data
        self.sections = sections
        self.names = names

    @classmethod
    def open(
        cls, path: PathLike, magic: bytes, versions: Sequence[int], names: Mapping[int, str]
    ) -> Self:
        """Open a file and check its section table. Raises `ProofFileError` for a file that has not
        this format, and `OSError` for one that cannot be opened.

        Args:
            path (str | Path): The file.
            magic (bytes): The four bytes that it must begin with.
            versions (Sequence[int]): The versions that can be read.
            names (Mapping[int, str]): What the format calls its sections, by id. These must not
                be there twice; others are ignored.
        """
        name = os.fspath(path)
        data = _map_file(name)
        table = _read_table(name, data, magic, versions, names)
        return cls(name, data, table, names)

    def __contains__(self, section: int) -> bool:
        return section in self.sections

    def get(self, section: int) -> Section:
        """The place of a section, which must be there."""
        found = self.sections.get(section)
        if found is None:
            there = ", ".join(map(str, sorted(self.sections))) or "none"
            self.fail(f"the section is missing; the file has: {there}", section)
        return found

    def require_length(self, section: int, length: int, why: str) -> Section:
        """The place of a section, which must have so many bytes.

        Args:
            section (int): Its id.
            length (int): The bytes that it must have.
            why (str): What determines them, for the message.
        """
        found = self.get(section)
        if found.length != length:
            self.fail(
                f"the section has {found.length:,} bytes; {why} makes {length:,}",
                section,
                found.offset,
            )
        return found

    def view(
        self, section: int, dtype: npt.DTypeLike, shape: tuple[int, ...], start: int = 0
    ) -> npt.NDArray[Any]:
        """Data of a section as a read-only array, without a copy. Its memory may be unaligned.

        Args:
            section (int): The id.
            dtype (dtype): The type of an item, little-endian.
            shape (tuple): The lengths of the axes; the caller has checked that they fit.
            start (int): The byte of the section where the array begins.
        """
        offset = self.get(section).offset + start
        return np.ndarray(shape, dtype, buffer=self.data, offset=offset)

    def view_points(self, section: int, curve: Curve, count: int, why: str) -> Points:
        """The points of a section that holds nothing else, without a copy.

        Args:
            section (int): The id.
            curve (Curve): The group of the points.
            count (int): How many there must be.
            why (str): What determines the number, for the message.
        """
        layout = curve.get_layout("affine")
        self.require_length(section, count * layout.element_bytes, why)
        return self.view(section, layout.column_dtype, (count, *layout.element_shape))

    def check_coordinates(self, section: int, points: Points, modulus: int) -> None:
        """Raise `ProofFileError` for the first point of a section with a coordinate that is not
        below the modulus.

        Args:
            section (int): The id of the section, which begins with the points.
            points (array): The view of them.
            modulus (int): That of the coordinates.
        """
        bad = find_not_below(points, modulus)
        if bad is not None:
            width = points.shape[-1] * points.itemsize
            point = bad * width * len(points) // points.nbytes
            self.fail(
                f"a coordinate of point {point} is not below the modulus",
                section,
                self.get(section).offset + bad * width,
            )

    def fail(self, reason: str, section: int | None = None, offset: int | None = None) -> NoReturn:
        """Raise `ProofFileError` for this file.

        Args:
            reason (str): What was found, and what was expected.
            section (int | None): The id of the section.
            offset (int | None): Bytes from the beginning of the file.
        """
        name = None if section is None else self.names.get(section)
        raise ProofFileError(reason, self.path, section, name, offset)


def _map_file(path: str) -> mmap.mmap:
    handle = os.open(path, READ_FLAGS)
    try:
        info = os.fstat(handle)
        _require_regular(path, info.st_mode)
        if not info.st_size:  # an empty file cannot be mapped
            raise ProofFileError("the file is empty", path, offset=0)
        return mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(handle)


def _require_regular(path: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)


def _read_table(
    path: str, data: mmap.mmap, magic: bytes, versions: Sequence[int], names: Mapping[int, str]
) -> dict[int, Section]:
    size = len(data)
    if data[:4] != magic[: min(size, 4)]:
        raise ProofFileError(f"it begins with {data[:4]!r}, not with {magic!r}", path, offset=0)
    if size < FILE_HEADER.size:
        reason = f"the header is cut off: {size} of {FILE_HEADER.size} bytes"
        raise ProofFileError(reason, path, offset=size)
    _, version, count = FILE_HEADER.unpack_from(data)
    if version not in versions:
        known = " or ".join(map(str, versions))
        raise ProofFileError(f"the version is {version}; {known} can be read", path, offset=4)
    if count > MAX_SECTIONS:
        reason = f"it claims {count:,} sections; a file has at most {MAX_SECTIONS}"
        raise ProofFileError(reason, path, offset=8)
    found: dict[int, Section] = {}
    offset = FILE_HEADER.size
    for index in range(count):
        start = offset + SECTION_HEADER.size
        if start > size:
            reason = (
                f"the section table is cut off: section number {index + 1} of {count} begins here, "
                f"and the file has {size - offset} bytes more"
            )
            raise ProofFileError(reason, path, offset=offset)
        section, length = SECTION_HEADER.unpack_from(data, offset)
        if length > size - start:
            reason = f"the section runs past the end: {length:,} bytes of {size - start:,} left"
            raise ProofFileError(reason, path, section, names.get(section), start)
        if section in found and section in names:
            reason = f"the section is there twice, first at byte offset {found[section].offset}"
            raise ProofFileError(reason, path, section, names[section], start)
        found.setdefault(section, Section(section, start, length))
        offset = start + length
    if offset != size:
        reason = f"{size - offset:,} bytes follow the last of {count} sections"
        raise ProofFileError(reason, path, offset=offset)
    return found


class SectionReader:
    """Reads numbers from a section one after the other.

    Args:
        file (SectionFile): The file.
        section (int): The id of the section, which must be there.
    """

    def __init__(self, file: SectionFile, section: int) -> None:
        place = file.get(section)
        self.file = file
        self.section = section
        self.offset = place.offset
        """Where the next number begins in the file."""
        self._start = place.offset
        self._end = place.offset + place.length

    def read_integer(self, size: int, what: str) -> int:
        """The next number.

        Args:
            size (int): Its bytes.
            what (str): Its name, for the message if the section ends before it does.
        """
        if size > self._end - self.offset:
            self.fail(f"the section ends within {what}: {self._end - self.offset} of {size} bytes")
        value = int.from_bytes(self.file.data[self.offset : self.offset + size], "little")
        self.offset += size
        return value

    def read_u32(self, what: str) -> int:
        """The next number of 32 bits; the name is for messages."""
        return self.read_integer(4, what)

    def read_modulus(self, what: str) -> int:
        """A modulus, after its bytes as 32 bits; the name is for messages."""
        size = self.read_u32(f"the size of {what}")
        if not 0 < size <= MAX_MODULUS_BYTES:
            self.fail(f"{what} has {size:,} bytes; it must have 32 (or 48 for coordinates)", 4)
        return self.read_integer(size, what)

    def read_scalar_curve(self) -> ProofCurve:
        """The curve whose scalar field's modulus comes next, after its bytes."""
        start = self.offset
        modulus = self.read_modulus("the prime")
        size = self.offset - start - 4
        curve = find_by_scalar_modulus(modulus)
        if curve is None or size != curve.scalar_bytes:
            self.fail(
                f"the prime is {modulus:#x} in {size} bytes; it must be the order of bn128 or of "
                "bls12381 in 32 bytes",
                size,
            )
        return curve

    def finish(self) -> None:
        """Raise unless the section ends here."""
        if self.offset != self._end:
            found, read = self._end - self._start, self.offset - self._start
            self.fail(f"the section has {found:,} bytes; {read:,} are expected")

    def fail(self, reason: str, back: int = 0) -> NoReturn:
        """Raise `ProofFileError` for this section.

        Args:
            reason (str): What was found, and what was expected.
            back (int): How many bytes before the next number the fault is.
        """
        self.file.fail(reason, self.section, self.offset - back)


def find_not_below(words: npt.NDArray[Any], modulus: int) -> int | None:
    """The flat index of the first number that is not below the modulus; None if all are.

    Five million numbers of 32 bytes take 10 ms, and 90 ms where many are just below the modulus.

    Args:
        words (array): Numbers as words of 32 or 64 bits, the lowest first, on the last axis.
        modulus (int): The first number that is too large.
    """
    if words.itemsize == 4 and words.shape[-1] % 2 == 0 and words.strides[-1] == 4:
        words = words.view(np.uint64)
    width, bits = words.shape[-1], 8 * words.itemsize
    if modulus >> (width * bits):
        return None  # every number of so many words is below it
    limits = [(modulus >> (bits * index)) & ((1 << bits) - 1) for index in range(width)]
    row_bytes = words.itemsize * int(np.prod(words.shape[1:]))
    numbers_of_row = row_bytes // (width * words.itemsize)
    step = max(1, CHUNK_BYTES // max(row_bytes, 1))
    for start in range(0, len(words), step):
        rows = words[start : start + step].reshape(-1, width)
        # Only these can be too large. Random numbers have hardly any; in circuits -1 is common.
        near = np.flatnonzero(rows[:, -1] >= limits[-1])
        if not near.size:
            continue
        if near.size > len(rows) // 8:
            near, chosen = np.arange(len(rows)), rows
        else:
            chosen = rows[near]
        not_below = np.ones(len(near), bool)
        for column, limit in zip(chosen.T, limits, strict=True):
            not_below = (column > limit) | ((column == limit) & not_below)
        bad = near[not_below]
        if bad.size:
            return int(start * numbers_of_row + bad[0])
    return None


def write_sections(
    path: PathLike,
    magic: bytes,
    version: int,
    sections: Iterable[tuple[int, Iterable[Buffer]]],
    *,
    private: bool = False,
) -> None:
    """Write a file of sections beside the path, then put it in its place. After an exception the
    path has its old content.

    Args:
        path (str | Path): The file.
        magic (bytes): Its first four bytes.
        version (int): Its version.
        sections (Iterable): The id and the data of each section; the data in parts, which are
            asked for one after the other.
        private (bool): Whether nobody but the user may read the file.
    """
    target = Path(os.path.realpath(path))  # the file that a symbolic link leads to
    if target.exists():
        _require_regular(os.fspath(path), target.stat().st_mode)
    count = 0
    with open_replacement(target, 0o600 if private else 0o666) as file:
        file.write(FILE_HEADER.pack(magic, version, 0))
        for section, parts in sections:
            header = file.tell()
            file.write(SECTION_HEADER.pack(section, 0))
            for part in parts:
                file.write(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
            end = file.tell()
            file.seek(header)
            file.write(SECTION_HEADER.pack(section, end - header - SECTION_HEADER.size))
            file.seek(end)
            count += 1
        file.seek(0)
        file.write(FILE_HEADER.pack(magic, version, count))
