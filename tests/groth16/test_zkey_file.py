"""Proving keys: .zkey files."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ProofFileError,
)
from gpu_executor.groth16.quotient import Quotient
from gpu_executor.groth16.zkey_file import COEFFICIENT, ZkeyFile, write_zkey
from tests.support.proof_files import (
    COORDINATE,
    Q,
    R,
    Sections,
    check_every_flip,
    check_every_truncation,
    check_refused,
    find_section,
    pack,
    pack_file,
    pack_modulus,
    replace,
    write,
)

HEADER_POINTS = {"alpha1": 2, "beta1": 2, "beta2": 4, "gamma2": 4, "delta1": 2, "delta2": 4}
"""The points of the header in order, and their numbers of coordinates."""
POINT_SECTIONS = {"ic": 3, "a": 5, "b1": 6, "b2": 7, "c": 8, "h": 9}


def make_sections(
    name: str = "bn128",
    *,
    n_vars: int = 4,
    n_public: int = 1,
    domain: int = 4,
    coefficients: list[tuple[int, int, int, int]] | None = None,
    protocol: int = 1,
) -> Sections:
    """A key of random coordinates, in snarkjs's order of sections."""
    rng = random.Random(1)

    def draw(coordinates: int) -> bytes:
        width = COORDINATE[name]
        numbers = (rng.randrange(Q[name]) for _ in range(coordinates))
        return b"".join(each.to_bytes(width, "little") for each in numbers)

    if coefficients is None:
        coefficients = [(0, 3, 2, 5), (1, 0, 3, R[name] - 1), (0, 0, 0, 0)]
    entries = [pack(*each[:3]) + each[3].to_bytes(32, "little") for each in coefficients]
    header = pack_modulus(Q[name], COORDINATE[name]) + pack_modulus(R[name], 32)
    header += pack(n_vars, n_public, domain)
    return [
        (1, pack(protocol)),
        (2, header + b"".join(draw(each) for each in HEADER_POINTS.values())),
        (4, pack(len(entries)) + b"".join(entries)),
        (3, draw(2 * (n_public + 1))),
        (9, draw(2 * min(domain, 64))),
        (8, draw(2 * max(n_vars - n_public - 1, 0))),
        (5, draw(2 * n_vars)),
        (6, draw(2 * n_vars)),
        (7, draw(4 * n_vars)),
        (10, bytes(64) + pack(0)),
    ]


def make(name: str = "bn128", **options: Any) -> bytes:
    return pack_file(b"zkey", 1, make_sections(name, **options))


@pytest.mark.parametrize("name", ["bn128", "bls12381"])
def test_a_key_is_read(tmp_path: Path, name: str) -> None:
    sections = make_sections(name)
    key = ZkeyFile.open(write(tmp_path / "key.zkey", pack_file(b"zkey", 1, sections)))
    assert key.curve.name == name
    assert (key.n_vars, key.n_public, key.domain_size, key.log_domain) == (4, 1, 4, 2)
    data = dict(sections)
    words = COORDINATE[name] // 8
    for field, section in POINT_SECTIONS.items():
        points = getattr(key, field)
        assert points.tobytes() == data[section]
        assert points.shape[1:] == ((2, 2, words) if field == "b2" else (2, words))
        assert points.dtype == np.uint64
        assert not points.flags.writeable
    assert [len(getattr(key, field)) for field in POINT_SECTIONS] == [2, 4, 4, 4, 2, 4]
    joined = b"".join(getattr(key, field).tobytes() for field in HEADER_POINTS)
    assert joined == data[2][-len(joined) :]
    assert key.gamma2.shape == key.curve.g2.get_layout("affine").element_shape
    assert key.alpha1.shape == key.curve.g1.get_layout("affine").element_shape
    assert COEFFICIENT.itemsize == 44
    assert key.coefficients["matrix"].tolist() == [0, 1, 0]
    assert key.coefficients["row"].tolist() == [3, 0, 0]
    assert key.coefficients["signal"].tolist() == [2, 3, 0]
    value = int.from_bytes(key.coefficients["value"][1].tobytes(), "little")
    assert value == R[name] - 1


def test_sections_may_come_in_any_order_and_at_odd_offsets(tmp_path: Path) -> None:
    sections = make_sections()
    whole = ZkeyFile.open(write(tmp_path / "whole", pack_file(b"zkey", 1, sections)))
    odd = [(77, b"odd"), *reversed(sections)]
    found = ZkeyFile.open(write(tmp_path / "odd", pack_file(b"zkey", 1, odd)))
    for field in (*POINT_SECTIONS, *HEADER_POINTS):
        assert np.array_equal(getattr(found, field), getattr(whole, field))
    assert found.coefficients.tobytes() == whole.coefficients.tobytes()


def test_the_smallest_circuit(tmp_path: Path) -> None:
    content = make(n_vars=1, n_public=0, domain=1, coefficients=[])
    key = ZkeyFile.open(write(tmp_path / "key", content))
    assert (key.c.shape, key.coefficients.shape, key.log_domain) == ((0, 2, 4), (0,), 0)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content = make(n_vars=2, n_public=0, domain=2, coefficients=[(0, 0, 0, 1)])
    check_every_truncation(ZkeyFile.open, tmp_path / "key", content)


def test_flips_of_numbers_in_headers_are_refused(tmp_path: Path) -> None:
    content = make()
    header, count = find_section(content, 2), find_section(content, 4)
    numbers = [*range(12), *range(24, 28), *range(header, header + 84), *range(count, count + 4)]
    check_every_flip(ZkeyFile.open, tmp_path / "key", content, numbers)


@pytest.mark.parametrize("section", range(1, 10))
def test_sections_that_lack_or_are_longer(tmp_path: Path, section: int) -> None:
    sections = make_sections()
    rest = [each for each in sections if each[0] != section]
    check_refused(
        ZkeyFile.open,
        tmp_path / "key",
        pack_file(b"zkey", 1, rest),
        rf"section {section} \(.*\): the section is missing",
    )
    data = dict(sections)[section]
    for changed in (data + bytes(64), data[:-1], b""):
        content = pack_file(b"zkey", 1, replace(sections, section, changed))
        error = check_refused(ZkeyFile.open, tmp_path / "key", content, rf"section {section} \(")
        assert error.section == section


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protocol": 2}, "a key of PLONK; only Groth16"),
        ({"protocol": 10}, "a key of FFLONK; only Groth16"),
        ({"protocol": 3}, "the protocol is 3; it must be 1"),
        ({"n_public": 4}, "4 public signals of 4"),
        ({"n_vars": 0, "n_public": 0}, "0 public signals of 0"),
        ({"domain": 3}, "the domain has 3 points; it must be a power of two"),
        ({"domain": 0}, "the domain has 0 points; it must be a power of two"),
        ({"domain": 2, "n_public": 2}, "more than the 2 public signals"),
        ({"domain": 1 << 28}, "bn128 is proved up to 134,217,728, because keys of larger"),
        ({"domain": 1 << 27}, "the header's domain, 134,217,728, makes"),
        ({"name": "bls12381", "domain": 1 << 31}, "the header's domain, 2,147,483,648, makes"),
    ],
)
def test_headers_that_no_groth16_key_has(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    check_refused(ZkeyFile.open, tmp_path / "key", make(**options), words)


def test_moduli_of_two_curves_are_refused(tmp_path: Path) -> None:
    header = pack_modulus(Q["bn128"], 32) + pack_modulus(R["bls12381"], 32)
    content = pack_file(b"zkey", 1, replace(make_sections(), 2, header + bytes(1000)))
    check_refused(ZkeyFile.open, tmp_path / "key", content, "the moduli are q = .* and r = ")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ((2, 0, 0, 1), "entry 2: the matrix is 2; it must be below 2"),
        ((0, 4, 0, 1), "entry 2: the row is 4; it must be below 4"),
        ((0, 0, 4, 1), "entry 2: the signal is 4; it must be below 4"),
        ((0, 0, 0, R["bn128"]), "entry 2: the value is not below the order of bn128"),
        ((2**32 - 1, 2**32 - 1, 2**32 - 1, 2**256 - 1), "entry 2: "),
    ],
)
@pytest.mark.parametrize("padding", [0, 60_000])
def test_coefficients_outside_their_ranges(
    gpu: gx.PersistentVulkanBackend,
    tmp_path: Path,
    entry: tuple[int, int, int, int],
    words: str,
    padding: int,
) -> None:
    good = [(0, 0, 0, 1)] * (2 + padding)
    content = make(coefficients=[*good, entry, (9, 9, 9, 0)])
    key = ZkeyFile.open(write(tmp_path / "key", content))
    index = f"entry {2 + padding:,}: "
    with pytest.raises(ProofFileError, match=words.replace("entry 2: ", index)) as caught:
        Quotient(gpu.array_device, key)
    assert caught.value.offset == find_section(content, 4) + 4 + 44 * (2 + padding)


def test_coordinates_of_the_header_are_checked_at_once(tmp_path: Path) -> None:
    sections = make_sections()
    data = dict(sections)[2][:-32] + Q["bn128"].to_bytes(32, "little")
    content = pack_file(b"zkey", 1, replace(sections, 2, data))
    check_refused(ZkeyFile.open, tmp_path / "key", content, "a coordinate of delta2 is not below")


# --- writing ---


@pytest.mark.parametrize("name", ["bn128", "bls12381"])
def test_a_written_key_has_the_bytes_of_the_format(tmp_path: Path, name: str) -> None:
    content = make(name)
    key = ZkeyFile.open(write(tmp_path / "in", content))
    write_zkey(tmp_path / "out", key)
    assert (tmp_path / "out").read_bytes() == content


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"b1": np.zeros((3, 2, 4), np.uint64)}, ArgumentShapeError),
        ({"b2": np.zeros((4, 2, 4), np.uint64)}, ArgumentShapeError),
        ({"c": np.zeros((3, 2, 4), np.uint64)}, ArgumentShapeError),
        ({"alpha1": np.zeros((1, 2, 4), np.uint64)}, ArgumentShapeError),
        ({"delta2": np.zeros((2, 2, 8), np.uint32)}, ArgumentTypeError),
        ({"h": np.zeros((3, 2, 4), np.uint64)}, ArgumentValueError),
        ({"ic": np.zeros((0, 2, 4), np.uint64)}, ArgumentValueError),
        ({"coefficients": np.zeros((3, 11), np.uint32)}, ArgumentTypeError),
    ],
)
def test_arrays_that_make_no_key(
    tmp_path: Path, change: dict[str, Any], error: type[Exception]
) -> None:
    key = ZkeyFile.open(write(tmp_path / "in", make()))
    with pytest.raises(error, match=next(iter(change))):
        write_zkey(tmp_path / "out", dataclasses.replace(key, **change))
    assert not (tmp_path / "out").exists()
