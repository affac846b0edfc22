"""Files of Groth16 as bytes, built with `struct` alone, and faults in them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gpu_executor.errors import ProofFileError

R = {
    "bn128": 21888242871839275222246405745257275088548364400416034343698204186575808495617,
    "bls12381": 52435875175126190479447740508185965837690552500527637822603658699938581184513,
}
Q = {
    "bn128": 21888242871839275222246405745257275088696311157297823662689037894645226208583,
    "bls12381": int(
        "40024095552216673934177898257359041565568828199390078853320581361240316504908378644426876291"
        "29015664037894272559787"
    ),
}
COORDINATE = {"bn128": 32, "bls12381": 48}
Sections = list[tuple[int, bytes]]


def pack(*numbers: int) -> bytes:
    """Numbers of 32 bits."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


def pack_modulus(modulus: int, size: int) -> bytes:
    """A modulus after its size."""
    return pack(size) + modulus.to_bytes(size, "little")


def pack_file(magic: bytes, version: int, sections: Sections) -> bytes:
    """A file of sections."""
    parts = [magic, pack(version, len(sections))]
    for section, data in sections:
        parts += [struct.pack("<IQ", section, len(data)), data]
    return b"".join(parts)


def replace(sections: Sections, section: int, data: bytes) -> Sections:
    """The sections with other data in one of them."""
    return [(each, data if each == section else old) for each, old in sections]


def write(path: Path, content: bytes) -> Path:
    """The path, with that content."""
    path.write_bytes(content)
    return path


def check_refused(
    read: Callable[[Path], Any], path: Path, content: bytes, match: str | None = None
) -> ProofFileError:
    """The error that reading this content raises, which names the file."""
    with pytest.raises(ProofFileError, match=match) as caught:
        read(write(path, content))
    assert str(caught.value).startswith(f"{path}: ")
    return caught.value


def check_every_truncation(read: Callable[[Path], Any], path: Path, content: bytes) -> None:
    """No beginning of a file is read as a whole one."""
    write(path, content)
    for length in reversed(range(len(content))):
        os.truncate(path, length)
        assert _is_refused(read, path), f"{length} of {len(content)} bytes"


def check_every_flip(
    read: Callable[[Path], Any], path: Path, content: bytes, offsets: Iterable[int]
) -> None:
    """No bit of these bytes may change."""
    with write(path, content).open("r+b", buffering=0) as file:
        for offset in offsets:
            for bit in range(8):
                file.seek(offset)
                file.write(bytes([content[offset] ^ 1 << bit]))
                assert _is_refused(read, path), f"bit {bit} of byte {offset}"
            file.seek(offset)
            file.write(content[offset : offset + 1])
    read(path)


def _is_refused(read: Callable[[Path], Any], path: Path) -> bool:
    try:
        read(path)
    except ProofFileError:
        return True
    return False


def find_section(content: bytes, section: int) -> int:
    """Where a section's data begin."""
    offset = 12
    while True:
        found, length = struct.unpack_from("<IQ", content, offset)
        if found == section:
            return offset + 12
        offset += 12 + length
