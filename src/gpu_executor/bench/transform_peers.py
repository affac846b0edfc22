"""Transforms beside those of packages that have them on the CPU, from array to array.

galois transforms its arrays of integers. ckzg extends the blobs of EIP-4844 and EIP-7594: 4,096
values of a polynomial, as bytes, to 8,192, by a transform there and one back.
"""

from __future__ import annotations

import importlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpu_executor.bench.batch import in_turns, medians
from gpu_executor.bench.draws import drawn
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, FieldArray
from gpu_executor.fields.array import Words
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

TURNS = 5
LOG_BLOB = 12
BLOB = 1 << LOG_BLOB
G2_POWERS = 65

G1 = (
    "97f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac58"
    "6c55e83ff97a1aeffb3af00adb22c6bb"
)
G2 = (
    "93e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049"
    "334cf11213945d57e5ac7d055d042b7e024aa2b2f08f0a91260805272dc51051"
    "c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8"
)
INFINITY = "c0" + "00" * 47
"""The generators of the groups of BLS12-381 and nothing, as points are written."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of transforms as powers of two, and of blobs extended one after the other."""

    babybear: int
    goldilocks: int
    """Which galois does on Python integers."""
    blobs: int


GPU_SIZES, CPU_SIZES = Sizes(20, 12, 64), Sizes(16, 12, 4)


@dataclass(frozen=True, slots=True)
class Duel:
    """The same work by a package and by us, with the same outcome."""

    package: str
    what: str
    theirs_ms: float
    ours_ms: float
    faster: float
    """How many times we are: the median of each turn's own ratio."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What a package does and what we do, each to an array of integers or bytes."""

    package: str
    what: str
    theirs: Callable[[], Any]
    ours: Callable[[], Any]


def sizes_for(device: DeviceInfo) -> Sizes:
    """What does not take long on it, or with a package on the CPU."""
    return CPU_SIZES if device.kind == "cpu" else GPU_SIZES


def compare(
    gpu: PersistentVulkanBackend, sizes: Sizes, turns: int = TURNS
) -> tuple[list[Duel], list[str]]:
    """The duels, and the packages that are not installed."""
    work: list[_Work] = []
    absent = []
    for name, make in (("galois", _galois), ("ckzg", _ckzg)):
        try:
            work += make(gpu, sizes)
        except ModuleNotFoundError:
            absent.append(name)
    return [_duel(each, turns) for each in work], absent


def _duel(work: _Work, turns: int) -> Duel:
    if not np.array_equal(work.theirs(), work.ours()):
        raise AssertionError(f"{work.package}: another outcome of {work.what}")
    both = list(in_turns([work.theirs, work.ours], budget=0, least=turns, most=turns))
    theirs, ours = medians(both)
    faster = statistics.median(turn[0] / turn[1] for turn in both)
    return Duel(work.package, work.what, theirs * 1e3, ours * 1e3, faster)


def _galois(gpu: PersistentVulkanBackend, sizes: Sizes) -> Iterator[_Work]:
    """Integers to integers; 255-bit fields are left out, for which it factors p - 1 for minutes."""
    galois = importlib.import_module("galois")
    for field, log_n in ((BABYBEAR, sizes.babybear), (GOLDILOCKS, sizes.goldilocks)):
        words = drawn(field.prime, (1 << log_n,), 1)
        kind = galois.GF(field.modulus, primitive_element=field.prime.generator, verify=False)
        x = kind(words.astype(kind.dtypes[-1]))
        yield _Work(
            "galois",
            f"{field.name}, 2^{log_n}",
            partial(_ntt_by_galois, galois, x),
            partial(_ntt, gpu, field.from_words(words, "canonical")),
        )


def _ntt_by_galois(galois: Any, x: Any) -> Any:
    return galois.ntt(x).view(np.ndarray)


def _ntt(gpu: PersistentVulkanBackend, x: FieldArray) -> Words:
    return x.field.ntt(gpu.to_device(x)).in_form("canonical").numpy()


def _ckzg(gpu: PersistentVulkanBackend, sizes: Sizes) -> Iterator[_Work]:
    """Bytes to bytes."""
    ckzg = importlib.import_module("ckzg")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "setup.txt"
        file.write_text(_setup_of_one())
        setup = ckzg.load_trusted_setup(str(file), 0)
    words = BLS12_381_FR.from_words(drawn(BLS12_381_FR.prime, (sizes.blobs, BLOB), 1), "canonical")
    data = BLS12_381_FR.to_bytes(words)
    blobs = [blob.tobytes() for blob in data]

    def theirs() -> Words:
        cells = (cell for blob in blobs for cell in ckzg.compute_cells(blob, setup))
        return np.frombuffer(b"".join(cells), np.uint8)

    yield _Work("ckzg", f"{sizes.blobs} blobs extended", theirs, partial(_extended, gpu, data))


def _extended(gpu: PersistentVulkanBackend, data: Words) -> Words:
    """Values at the roots of order 4,096, then at those of order 8,192 between them.

    All in bit-reversed order, in which the former come first.
    """
    field = BLS12_381_FR
    coefficients = field.intt(gpu.to_device(field.from_bytes(data)), order_in="reversed")
    root = field.prime.root_of_unity(LOG_BLOB + 1)
    between = field.ntt(coefficients, coset=root, order_out="reversed")
    return np.concatenate([data, field.to_bytes(between)], axis=1).reshape(-1)


def _setup_of_one() -> str:
    """A setup whose secret is 1, which extending does not use; ckzg does nothing without one.

    The powers of 1 are all 1; of the Lagrange polynomials, the one that belongs to 1 is 1 there and
    the others are 0, the point at infinity.
    """
    lagrange = [G1, *[INFINITY] * (BLOB - 1)]
    powers = [*[G2] * G2_POWERS, *[G1] * BLOB]
    return "\n".join([str(BLOB), str(G2_POWERS), *lagrange, *powers, ""])
