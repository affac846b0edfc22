"""Circuits: .r1cs files, against a plain loop over the records."""

from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_executor.errors import ArgumentValueError
from gpu_executor.groth16 import r1cs_file as module
from gpu_executor.groth16.r1cs_file import R1cs, R1csMatrix, write_r1cs
from tests.support.proof_files import (
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

Record = list[tuple[int, int]]
"""The terms of a row: wires and values."""
SMALL: list[Record] = [[(1, 1)], [(2, 5), (0, 7)], [], [], [], [(3, R["bn128"] - 1)]]


def encode(records: list[Record]) -> bytes:
    parts = []
    for record in records:
        parts.append(pack(len(record)))
        parts += [pack(wire) + value.to_bytes(32, "little") for wire, value in record]
    return b"".join(parts)


def make_sections(
    records: list[Record],
    name: str = "bn128",
    n_wires: int = 4,
    counts: tuple[int, ...] = (1, 1, 1),
) -> Sections:
    """A circuit in circom's order of sections."""
    header = pack_modulus(R[name], 32) + pack(n_wires, *counts)
    header += struct.pack("<QI", 99, len(records) // 3)
    labels = struct.pack(f"<{n_wires}Q", *range(n_wires))
    return [(2, encode(records)), (1, header), (3, labels)]


def make(records: list[Record], name: str = "bn128", n_wires: int = 4) -> bytes:
    return pack_file(b"r1cs", 1, make_sections(records, name, n_wires))


def list_rows(matrix: R1csMatrix) -> list[Record]:
    """The rows of a matrix, in plain numbers."""
    values = [int.from_bytes(each.tobytes(), "little") for each in matrix.values]
    terms = list(zip(matrix.wires.tolist(), values, strict=True))
    bounds = matrix.row_starts.tolist()
    return [terms[start:stop] for start, stop in itertools.pairwise(bounds)]


def check_rows(circuit: R1cs, records: list[Record]) -> None:
    for index, matrix in enumerate((circuit.a, circuit.b, circuit.c)):
        assert list_rows(matrix) == records[index::3]


@pytest.mark.parametrize("name", ["bn128", "bls12381"])
def test_a_circuit_is_read(tmp_path: Path, name: str) -> None:
    records: list[Record] = [[(0, R[name] - 1)], [(3, 2)], [(1, 1), (2, 2**200)]]
    circuit = R1cs.open(write(tmp_path / "file", make(records, name)))
    assert circuit.curve.name == name
    assert (circuit.n_wires, circuit.n_public_outputs, circuit.n_public_inputs) == (4, 1, 1)
    assert (circuit.n_private_inputs, circuit.n_labels, circuit.n_constraints) == (1, 99, 1)
    assert circuit.n_public == 2
    assert circuit.a.values.shape == (1, 8)
    check_rows(circuit, records)


def test_sections_may_come_in_any_order_and_at_odd_offsets(tmp_path: Path) -> None:
    odd = [(77, b"odd"), *reversed(make_sections(SMALL))]
    check_rows(R1cs.open(write(tmp_path / "file", pack_file(b"r1cs", 1, odd))), SMALL)


def test_a_circuit_without_constraints(tmp_path: Path) -> None:
    for sections in (make_sections([]), make_sections([])[::-1]):  # the last one may be empty
        circuit = R1cs.open(write(tmp_path / "file", pack_file(b"r1cs", 1, sections)))
        assert circuit.a.row_starts.tolist() == [0]
        assert circuit.c.values.shape == (0, 8)


def draw_records(rng: random.Random, kind: str, constraints: int, n_wires: int) -> list[Record]:
    def draw_value() -> int:
        if kind == "full":
            return rng.randrange(R["bn128"])
        if kind == "zeros":
            return rng.randrange(3)
        return rng.choice((1, 2, R["bn128"] - 1, 1 << rng.randrange(250)))

    def draw_length() -> int:
        if kind == "empty":
            return 0
        if kind == "long" and rng.random() < 0.01:
            return rng.randrange(2000)
        return rng.choice((0, 1, 1, 2, 3, 8))

    return [
        [(rng.randrange(n_wires), draw_value()) for _ in range(draw_length())]
        for _ in range(3 * constraints)
    ]


@pytest.mark.parametrize("kind", ["usual", "full", "zeros", "empty", "long"])
@pytest.mark.parametrize(("part_words", "n_wires"), [(5, 3), (200, 2**30), (5000, 3)])
def test_records_are_found_from_any_number_of_guesses(
    kind: str, part_words: int, n_wires: int
) -> None:
    records = draw_records(random.Random(part_words), kind, 100, n_wires)
    words = np.frombuffer(encode(records), np.uint32)
    expected = np.cumsum([0, *(1 + 9 * len(each) for each in records)])[:-1]
    found = module._find_records(words, len(records), n_wires, part_words)
    assert found is not None
    assert found.tolist() == expected.tolist()
    assert module._find_records(words, len(records) - 1, n_wires, part_words) is None


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 12) | st.integers(0, 2**32 - 1), max_size=120), st.integers(1, 40))
def test_random_words_are_found_as_a_loop_finds_them(numbers: list[int], part_words: int) -> None:
    words = np.array(numbers, np.uint32)
    position, chain = 0, []
    while position < len(numbers):
        chain.append(position)
        position += 1 + 9 * numbers[position]
    found = module._find_records(words, len(chain), 5, part_words)
    if position == len(numbers):
        assert found is not None
        assert found.tolist() == chain
    else:
        assert found is None


@pytest.mark.parametrize("least", [1, 4, 16])
def test_wrong_guesses_cost_time_only(monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    monkeypatch.setattr(module, "LEAST_WALKS", least)
    records = draw_records(random.Random(3), "usual", 100, 9)
    words = np.frombuffer(encode(records), np.uint32)
    expected = np.cumsum([0, *(1 + 9 * len(each) for each in records)])[:-1]
    rng = np.random.default_rng(4)
    for _ in range(30):
        guesses = rng.integers(0, len(words), 12)
        monkeypatch.setattr(module, "_guess_records", lambda *_, made=guesses: made)
        found = module._find_records(words, len(records), 9)
        assert found is not None
        assert np.array_equal(found, expected)


def test_few_walks_do_not_walk_in_step() -> None:
    # 300,000 constraints without terms, where nothing can be guessed, took 40 s in steps of one.
    words = np.zeros(3 * module.PART_WORDS, np.uint32)
    starts = np.arange(3) * module.PART_WORDS
    found, ends = module._walk_in_step(words, starts, starts + module.PART_WORDS)
    assert not found.size
    assert ends.tolist() == starts.tolist()
    every = module._find_records(words, len(words), 5)
    assert every is not None
    assert np.array_equal(every, np.arange(len(words)))


@pytest.mark.parametrize("kind", ["usual", "long"])
def test_a_larger_circuit_is_read_in_parts(tmp_path: Path, kind: str) -> None:
    records = draw_records(random.Random(5), kind, 2500, 1000)
    content = make(records, n_wires=1000)
    assert len(content) > 4 * 4 * module.PART_WORDS
    check_rows(R1cs.open(write(tmp_path / "file", content)), records)


def test_most_guesses_are_right() -> None:
    records = draw_records(random.Random(6), "usual", 2000, 2000)
    words = np.frombuffer(encode(records), np.uint32)
    starts = np.cumsum([0, *(1 + 9 * len(each) for each in records)])
    guesses = module._guess_records(words, 2000, 2048)
    assert len(guesses) >= 0.9 * (len(words) // 2048 - 1)
    assert np.isin(guesses, starts).mean() >= 0.9


# --- faults ---


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    check_every_truncation(R1cs.open, tmp_path / "file", make(SMALL))


def test_flips_of_numbers_in_the_header_are_refused(tmp_path: Path) -> None:
    content = make(SMALL)
    header = find_section(content, 1)
    prime_and_wires, constraints = range(header, header + 40), range(header + 60, header + 64)
    offsets = [*range(12), *prime_and_wires, *constraints]
    check_every_flip(R1cs.open, tmp_path / "file", content, offsets)


def replace_constraints(data: bytes) -> bytes:
    return pack_file(b"r1cs", 1, replace(make_sections(SMALL), 2, data))


TERM = pack(1) + (1).to_bytes(32, "little")


@pytest.mark.parametrize(
    ("data", "words", "place"),
    [
        (pack(0) * 5, "the section has 20 bytes; .* 2, makes 24 and 36 for each term", 0),
        (pack(0) * 7, "the section has 28 bytes", 0),
        (pack(2**32 - 1) + pack(0) * 5, "constraint 0: A has 4,294,967,295 terms, which run", 0),
        (pack(0, 0, 0, 0, 1, 0), "constraint 1: B has 1 terms, which run past", 16),
        (pack(0) * 6 + TERM, "36 bytes follow the last of 2 constraints", 24),
        (pack(1) + TERM + pack(0, 0, 0, 0, 1), "constraint 1: C has 1 terms, which run past", 56),
        (
            pack(0, 1) + pack(4) + TERM[4:] + pack(0, 0, 0, 0),
            "constraint 0, term 0 of B: the wire is 4; the circuit has 4 wires",
            8,
        ),
        (
            pack(0, 0, 0, 0, 0, 2) + TERM + pack(0) + R["bn128"].to_bytes(32, "little"),
            "constraint 1, term 1 of C: the value is not below the prime",
            60,
        ),
    ],
)
def test_faults_of_constraints_are_named(
    tmp_path: Path, data: bytes, words: str, place: int
) -> None:
    content = replace_constraints(data)
    error = check_refused(R1cs.open, tmp_path / "file", content, words)
    assert (error.section, error.offset) == (2, find_section(content, 2) + place)


def test_a_section_that_ends_before_the_last_constraint(tmp_path: Path) -> None:
    data = pack(1) + TERM + pack(0, 0)  # the term takes the words of nine records
    content = pack_file(b"r1cs", 1, replace(make_sections([[]] * 12), 2, data))
    check_refused(R1cs.open, tmp_path / "file", content, "ends before A of constraint 1")


def test_custom_gates_are_refused(tmp_path: Path) -> None:
    sections = make_sections(SMALL)
    for section in (4, 5):
        for data in (b"", pack(0)):
            content = pack_file(b"r1cs", 1, [*sections, (section, data)])
            check_rows(R1cs.open(write(tmp_path / "file", content)), SMALL)
        content = pack_file(b"r1cs", 1, [*sections, (section, pack(2) + b"gate")])
        check_refused(R1cs.open, tmp_path / "file", content, r"has custom gates \(2\), which only")
        content = pack_file(b"r1cs", 1, [*sections, (section, b"ab")])
        check_refused(R1cs.open, tmp_path / "file", content, "ends within the number of custom")


def test_other_faults_of_headers(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = pack_file(b"r1cs", 1, make_sections(SMALL, counts=(2, 2, 0)))
    check_refused(R1cs.open, path, content, "4 wires, 2 public outputs and 2 public inputs")
    content = pack_file(b"r1cs", 1, replace(make_sections(SMALL), 3, bytes(24)))
    check_refused(R1cs.open, path, content, r"section 3 \(wire map\).* 24 bytes; .*makes 32")
    for section in (1, 2):
        rest = [each for each in make_sections(SMALL) if each[0] != section]
        content = pack_file(b"r1cs", 1, rest)
        check_refused(R1cs.open, path, content, rf"section {section} \(.*is missing")
    header = dict(make_sections(SMALL))[1][:-4] + pack(2**32 - 1)
    content = pack_file(b"r1cs", 1, replace(make_sections(SMALL), 1, header))
    check_refused(R1cs.open, path, content, "4,294,967,295, makes 51,539,607,540")


# --- writing ---


@pytest.mark.parametrize("chunk", [7, 1 << 16])
def test_a_written_circuit_has_the_bytes_of_the_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(module, "WRITE_CONSTRAINTS", chunk)
    for records in ([], SMALL, draw_records(random.Random(7), "usual", 50, 4)):
        sections = make_sections(records)
        labels_at = 4 + 32 + 16
        header = dict(sections)[1]
        own = header[:labels_at] + struct.pack("<Q", 4) + header[labels_at + 8 :]
        content = pack_file(b"r1cs", 1, replace(sections, 1, own))
        circuit = R1cs.open(write(tmp_path / "in", content))
        write_r1cs(
            tmp_path / "out",
            circuit.curve,
            n_wires=4,
            n_public_outputs=1,
            n_public_inputs=1,
            n_private_inputs=1,
            a=circuit.a,
            b=circuit.b,
            c=circuit.c,
        )
        assert (tmp_path / "out").read_bytes() == content


def test_matrices_that_make_no_circuit(tmp_path: Path) -> None:
    circuit = R1cs.open(write(tmp_path / "in", make(SMALL)))
    one = R1csMatrix(np.zeros(2, np.int64), circuit.a.wires[:0], circuit.a.values[:0])
    flat = R1csMatrix(circuit.a.row_starts, circuit.a.wires, circuit.a.values[:, :4])
    for a, n_wires, words in (
        (one, 4, "the same number of rows"),
        (circuit.a, 2, "n_wires is 2; it must be more"),
        (circuit.a, 3, "c: a wire is not below n_wires"),
        (flat, 4, "a: values have the shape"),
    ):
        with pytest.raises(ArgumentValueError, match=words):
            write_r1cs(
                tmp_path / "out",
                circuit.curve,
                n_wires=n_wires,
                n_public_outputs=1,
                n_public_inputs=1,
                n_private_inputs=1,
                a=a,
                b=circuit.b,
                c=circuit.c,
            )
