"""Transforms from array to array, compared with packages that compute them on the CPU.

galois transforms its arrays of integers. ckzg extends the blobs of EIP-4844 and EIP-7594: 4,096
values of a polynomial, as bytes, become 8,192 by an inverse and a forward transform.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpu_executor.bench.inputs import draw_elements
from gpu_executor.bench.timing import compute_medians, compute_ratio, time_interleaved
from gpu_executor.device_info import DeviceInfo
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, FieldArray
from gpu_executor.ops.elementwise import Words
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

ROUNDS = 5
PACKAGES = ("galois", "ckzg")
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
"""The generators of G1 and G2 of BLS12-381 and the point at infinity of G1, compressed."""


@dataclass(frozen=True, slots=True)
class ComparisonSizes:
    """Sizes of transforms as powers of two, and the number of blobs, which are extended one at a
    time.
    """

    babybear: int
    goldilocks: int
    """Small: galois computes it with Python integers."""
    blobs: int


GPU_SIZES, CPU_SIZES = ComparisonSizes(20, 12, 64), ComparisonSizes(16, 12, 4)


@dataclass(frozen=True, slots=True)
class TransformComparison:
    """The same work by a package and by this one, with the same result."""

    package: str
    what: str
    theirs_ms: float
    ours_ms: float
    faster: float
    """Their time over ours; the samples are the ratios within each round."""


@dataclass(frozen=True, slots=True)
class _ComparedWork:
    """The same work by a package and by this one; both return an array of integers or bytes."""

    package: str
    what: str
    theirs: Callable[[], Any]
    ours: Callable[[], Any]


def choose_sizes(device: DeviceInfo) -> ComparisonSizes:
    """Choose sizes that take little time both on the device and by a package on the CPU."""
    return CPU_SIZES if device.kind == "cpu" else GPU_SIZES


def compare_transforms(
    gpu: PersistentVulkanBackend,
    sizes: ComparisonSizes,
    rounds: int = ROUNDS,
    packages: Sequence[str] = PACKAGES,
) -> tuple[list[TransformComparison], list[str]]:
    """Return the comparisons, and the packages that are not installed."""
    prepare = {"galois": _prepare_galois, "ckzg": _prepare_ckzg}
    work: list[_ComparedWork] = []
    absent = []
    for name in packages:
        try:
            work += prepare[name](gpu, sizes)
        except ModuleNotFoundError:
            absent.append(name)
    return [_compare(each, rounds) for each in work], absent


def _compare(work: _ComparedWork, rounds: int) -> TransformComparison:
    if not np.array_equal(work.theirs(), work.ours()):
        raise AssertionError(f"{work.package}: the results of {work.what} differ")
    taken = list(time_interleaved([work.theirs, work.ours], min_rounds=rounds))
    theirs, ours = compute_medians(taken)
    faster = compute_ratio(taken, 0, 1)
    return TransformComparison(work.package, work.what, theirs * 1e3, ours * 1e3, faster)


def _prepare_galois(
    gpu: PersistentVulkanBackend, sizes: ComparisonSizes
) -> Iterator[_ComparedWork]:
    """Yield transforms by galois, from integers to integers. 255-bit fields are left out: galois
    factors p - 1 for minutes.
    """
    galois = importlib.import_module("galois")
    for field, log_n in ((BABYBEAR, sizes.babybear), (GOLDILOCKS, sizes.goldilocks)):
        words = draw_elements(field.prime, (1 << log_n,), 1)
        galois_field = galois.GF(
            field.modulus, primitive_element=field.prime.generator, verify=False
        )
        x = galois_field(words.astype(galois_field.dtypes[-1]))
        yield _ComparedWork(
            "galois",
            f"{field.name}, 2^{log_n}",
            partial(_transform_by_galois, galois, x),
            partial(_transform, gpu, field.from_words(words, "canonical")),
        )


def _transform_by_galois(galois: Any, x: Any) -> Any:
    return galois.ntt(x).view(np.ndarray)


def _transform(gpu: PersistentVulkanBackend, x: FieldArray) -> Words:
    return x.field.ntt(gpu.to_device(x)).numpy()


def _prepare_ckzg(gpu: PersistentVulkanBackend, sizes: ComparisonSizes) -> Iterator[_ComparedWork]:
    """Yield extensions of blobs by ckzg, from bytes to bytes."""
    ckzg = importlib.import_module("ckzg")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "setup.txt"
        file.write_text(_write_setup(), encoding="ascii")
        setup = ckzg.load_trusted_setup(str(file), 0)
    drawn = draw_elements(BLS12_381_FR.prime, (sizes.blobs, BLOB), 1)
    data = BLS12_381_FR.to_bytes(BLS12_381_FR.from_words(drawn, "canonical"))
    blobs = [blob.tobytes() for blob in data]

    def extend_by_ckzg() -> Words:
        cells = (cell for blob in blobs for cell in ckzg.compute_cells(blob, setup))
        return np.frombuffer(b"".join(cells), np.uint8)

    what = f"{sizes.blobs} blobs extended"
    yield _ComparedWork("ckzg", what, extend_by_ckzg, partial(_extend, gpu, data))


def _extend(gpu: PersistentVulkanBackend, data: Words) -> Words:
    """Extend blobs from the roots of unity of order 4,096 to those of order 8,192.

    All values are in bit-reversed order: first the given values, then the values at the other
    roots.
    """
    field = BLS12_381_FR
    coefficients = field.intt(gpu.to_device(field.from_bytes(data)), order_in="reversed")
    root = field.prime.root_of_unity(LOG_BLOB + 1)
    between = field.ntt(coefficients, coset=root, order_out="reversed")
    return np.concatenate([data, field.to_bytes(between)], axis=1).reshape(-1)


def _write_setup() -> str:
    """Return a trusted setup with the secret 1. ckzg needs a setup, but extending does not use it.

    All powers of 1 are 1. At 1, one Lagrange polynomial is 1 and all others are 0; a multiple by 0
    is the point at infinity.
    """
    lagrange = [G1, *[INFINITY] * (BLOB - 1)]
    powers = [*[G2] * G2_POWERS, *[G1] * BLOB]
    return "\n".join([str(BLOB), str(G2_POWERS), *lagrange, *powers, ""])
