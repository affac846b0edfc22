"""Trusted setups as text, in ckzg's format, and the points of a setup on disk: those that were
checked, and tables of their multiples.

The text has the numbers 4096 and 65, then one compressed point in hexadecimal digits a line: 4,096
points of G1 in Lagrange form in natural order, 65 powers of the secret in G2, and 4,096 powers in
G1.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpu_executor.calls.arguments import describe
from gpu_executor.common.files import read_own_file, write_atomically
from gpu_executor.errors import KzgArgumentError, KzgDataError, MissingExtraError
from gpu_executor.kzg.inputs import Bytes

G1_POINTS, G2_POINTS = 4096, 65
G1_BYTES, G2_BYTES = 48, 96
FILE_VERSION = 2
"""The version of the files of points, which is part of their names: two versions of the package
that share a folder do not replace each other's files."""
MAGIC = b"gxkzg%d\n\n" % FILE_VERSION
log = logging.getLogger("gpu_executor.kzg")


@dataclass(frozen=True)
class SetupBytes:
    """The compressed points of a trusted setup."""

    source: str
    """Where the setup is from, for messages."""
    lagrange: Bytes
    """(4096, 48), in natural order."""
    g2_powers: Bytes
    """(65, 96)."""
    powers: Bytes
    """(4096, 48)."""

    @property
    def digest(self) -> str:
        """SHA-256 of all points."""
        parts = (self.lagrange, self.g2_powers, self.powers)
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def read_setup(source: Any) -> SetupBytes:
    """Read a setup from a path or a file object; None is mainnet's, which eth-account has."""
    if source is None:
        return _parse_setup("mainnet's trusted setup", find_mainnet_setup().read_bytes())
    if isinstance(source, str | Path):
        try:
            text = Path(source).read_bytes()
        except OSError as error:
            raise KzgDataError(f"the trusted setup {source} cannot be read: {error}") from None
        return _parse_setup(str(source), text)
    if not hasattr(source, "read"):
        raise KzgArgumentError(
            f"a trusted setup is a path or a file object, not {describe(source)}; None is mainnet's"
        )
    found = source.read()
    name = str(getattr(source, "name", "the trusted setup"))
    return _parse_setup(name, found if isinstance(found, bytes) else str(found).encode())


def find_mainnet_setup() -> Path:
    """The file of mainnet's trusted setup in eth-account, which is not imported for it."""
    found = importlib.util.find_spec("eth_account")
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError(
            "mainnet's trusted setup (a path names another one)", "eth-account", "kzg"
        )
    folder = Path(found.submodule_search_locations[0])
    return folder / "typed_transactions" / "blob_transactions" / "kzg_trusted_setup.txt"


def _parse_setup(source: str, text: bytes) -> SetupBytes:
    tokens = text.split()
    if tokens[:2] != [b"%d" % G1_POINTS, b"%d" % G2_POINTS]:
        raise KzgDataError(
            f"{source} is not a trusted setup in ckzg's format: it must begin with {G1_POINTS} and "
            f"{G2_POINTS}"
        )
    points = tokens[2:]
    wanted = 2 * G1_POINTS + G2_POINTS
    if len(points) != wanted:
        raise KzgDataError(f"{source} has {len(points):,} points; it must have {wanted:,}")
    first, second = G1_POINTS, G1_POINTS + G2_POINTS
    return SetupBytes(
        source,
        _parse_points(source, points, slice(0, first), G1_BYTES),
        _parse_points(source, points, slice(first, second), G2_BYTES),
        _parse_points(source, points, slice(second, wanted), G1_BYTES),
    )


def _parse_points(source: str, points: list[bytes], which: slice, width: int) -> Bytes:
    chosen = points[which]
    for index, digits in enumerate(chosen):
        if len(digits) != 2 * width:
            raise KzgDataError(
                f"{source}: point {which.start + index} has {len(digits)} characters; it must have "
                f"{2 * width} hexadecimal digits"
            )
    try:
        data = bytes.fromhex(b"".join(chosen).decode("ascii"))
    except ValueError:
        raise KzgDataError(f"{source} has characters that are no hexadecimal digits") from None
    return np.frombuffer(data, np.uint8).reshape(len(chosen), width)


# --- the points that were checked, and their multiples, on disk ---


def read_points(folder: Path | None, name: str, digest: str, size: int) -> bytes | None:
    """The words of points of a setup that was checked before; None if there are none. The name says
    which points.

    A file that is damaged or of another setup is not used. The digest protects against corruption,
    not against whoever can write to the folder.
    """
    if folder is None:
        return None
    path = _get_path(folder, name, digest)
    start = len(MAGIC) + hashlib.sha256().digest_size
    try:
        content = read_own_file(path, start + size)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the points of the trusted setup were not read: %s", error)
        return None
    words = content[start:]
    if content[:start] != MAGIC + _hash_words(name, digest, words) or len(words) != size:
        log.warning("%s has not the points of this trusted setup; it will be replaced", path)
        return None
    return words


def write_points(folder: Path, name: str, digest: str, words: bytes) -> None:
    """Store the words of points of a setup that was checked. A failing write is logged."""
    try:
        content = MAGIC + _hash_words(name, digest, words) + words
        write_atomically(_get_path(folder, name, digest), content)
    except OSError as error:
        log.warning("the points of the trusted setup were not stored: %s", error)


def _get_path(folder: Path, name: str, digest: str) -> Path:
    return folder / f"kzg{FILE_VERSION}-{name}-{digest[:16]}.bin"


def _hash_words(name: str, digest: str, words: bytes) -> bytes:
    return hashlib.sha256(name.encode() + bytes.fromhex(digest) + words).digest()
