"""Powers of tau: .ptau files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gpu_executor.errors import ArgumentValueError, ProofFileError
from gpu_executor.groth16.ptau_file import PtauFile
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


def make_sections(name: str, power: int, *, prepared: bool) -> Sections:
    rng = random.Random(2)

    def draw(coordinates: int) -> bytes:
        numbers = (rng.randrange(Q[name]) for _ in range(coordinates))
        return b"".join(each.to_bytes(COORDINATE[name], "little") for each in numbers)

    n = 2**power
    sections = [
        (1, pack_modulus(Q[name], COORDINATE[name]) + pack(power, power + 1)),
        (2, draw(2 * (2 * n - 1))),
        (3, draw(4 * n)),
        (4, draw(2 * n)),
        (5, draw(2 * n)),
        (6, draw(4)),
        (7, pack(0)),
    ]
    if prepared:
        sections += [
            (12, draw(2 * (4 * n - 1))),
            (13, draw(4 * (2 * n - 1))),
            (14, draw(2 * (2 * n - 1))),
            (15, draw(2 * (2 * n - 1))),
        ]
    return sections


def make(name: str = "bn128", power: int = 1, *, prepared: bool = True) -> bytes:
    return pack_file(b"ptau", 1, make_sections(name, power, prepared=prepared))


@pytest.mark.parametrize("name", ["bn128", "bls12381"])
def test_a_prepared_ceremony_is_read(tmp_path: Path, name: str) -> None:
    data = dict(make_sections(name, 2, prepared=True))
    ceremony = PtauFile.open(write(tmp_path / "file", make(name, 2)))
    ceremony.check_coordinates()
    assert ceremony.curve.name == name
    assert (ceremony.power, ceremony.ceremony_power, ceremony.prepared) == (2, 3, True)
    views = (ceremony.tau_g1, ceremony.tau_g2, ceremony.alpha_tau_g1, ceremony.beta_tau_g1)
    assert [len(each) for each in views] == [7, 4, 4, 4]
    for section, view in zip((2, 3, 4, 5, 6), (*views, ceremony.beta_g2), strict=True):
        assert view.tobytes() == data[section]
    bases = {
        12: (ceremony.get_lagrange_tau_g1, 3),
        13: (ceremony.get_lagrange_tau_g2, 2),
        14: (ceremony.get_lagrange_alpha_tau_g1, 2),
        15: (ceremony.get_lagrange_beta_tau_g1, 2),
    }
    for section, (get, largest) in bases.items():
        found = [get(power) for power in range(largest + 1)]
        assert [len(each) for each in found] == [2**power for power in range(largest + 1)]
        assert b"".join(each.tobytes() for each in found) == data[section]
        for power in (-1, largest + 1):
            with pytest.raises(ArgumentValueError, match=f"log_domain is {power}; .* 0 to "):
                get(power)


def test_a_ceremony_that_was_not_prepared(tmp_path: Path) -> None:
    ceremony = PtauFile.open(write(tmp_path / "file", make(prepared=False)))
    assert not ceremony.prepared
    with pytest.raises(ProofFileError, match="prepare phase2"):
        ceremony.get_lagrange_tau_g1(0)


@pytest.mark.parametrize("prepared", [True, False])
def test_every_truncation_is_refused(tmp_path: Path, prepared: bool) -> None:
    check_every_truncation(PtauFile.open, tmp_path / "file", make(power=0, prepared=prepared))


def test_flips_of_the_header_are_refused(tmp_path: Path) -> None:
    content = make()
    start = find_section(content, 1)
    offsets = [*range(12), *range(start, start + 40)]
    check_every_flip(PtauFile.open, tmp_path / "file", content, offsets)


@pytest.mark.parametrize("section", [1, 2, 3, 4, 5, 6, 12, 13, 14, 15])
def test_sections_that_lack_or_are_longer(tmp_path: Path, section: int) -> None:
    sections = make_sections("bn128", 1, prepared=True)
    rest = [each for each in sections if each[0] != section]
    content = pack_file(b"ptau", 1, rest)
    check_refused(PtauFile.open, tmp_path / "file", content, rf"section {section} \(.*missing")
    data = dict(sections)[section]
    for changed in (data + bytes(64), data[:-1], b""):
        content = pack_file(b"ptau", 1, replace(sections, section, changed))
        check_refused(PtauFile.open, tmp_path / "file", content, rf"section {section} \(")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (pack_modulus(R["bn128"], 32) + pack(1, 1), "the modulus is 0x.* in 32 bytes"),
        (pack_modulus(Q["bn128"], 48) + pack(1, 1), "the modulus is 0x.* in 48 bytes"),
        (pack_modulus(Q["bn128"], 32) + pack(2**32 - 1, 2**32 - 1), "the power is 4,294,967,295"),
        (pack_modulus(Q["bn128"], 32) + pack(2, 1), "the power is 2, and the ceremony's only 1"),
        (pack_modulus(Q["bn128"], 32) + pack(1), "ends within the ceremony's power"),
    ],
)
def test_headers_that_no_ceremony_has(tmp_path: Path, header: bytes, words: str) -> None:
    sections = replace(make_sections("bn128", 1, prepared=False), 1, header)
    check_refused(PtauFile.open, tmp_path / "file", pack_file(b"ptau", 1, sections), words)


@pytest.mark.parametrize("section", [2, 3, 6, 12, 13, 15])
def test_coordinates_above_the_modulus(tmp_path: Path, section: int) -> None:
    sections = make_sections("bn128", 1, prepared=True)
    data = dict(sections)[section][:-32] + Q["bn128"].to_bytes(32, "little")
    content = pack_file(b"ptau", 1, replace(sections, section, data))
    ceremony = PtauFile.open(write(tmp_path / "file", content))
    with pytest.raises(ProofFileError, match=rf"section {section} \(.*is not below") as caught:
        ceremony.check_coordinates()
    assert caught.value.offset == find_section(content, section) + len(data) - 32
