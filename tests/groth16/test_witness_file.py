"""Witnesses and .wtns files."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ElementIndexError,
    WitnessError,
)
from gpu_executor.groth16.proof_curve import get_proof_curve
from gpu_executor.groth16.witness_file import Witness, load_witness
from tests.support.proof_files import (
    R,
    check_every_flip,
    check_every_truncation,
    check_refused,
    find_section,
    pack,
    pack_file,
    pack_modulus,
    write,
)


def make(name: str, values: list[int], version: int = 2, count: int | None = None) -> bytes:
    header = pack_modulus(R[name], 32) + pack(len(values) if count is None else count)
    data = b"".join(each.to_bytes(32, "little") for each in values)
    return pack_file(b"wtns", version, [(1, header), (2, data)])


@pytest.mark.parametrize("name", ["bn128", "bls12381"])
def test_values_are_read_and_written(tmp_path: Path, name: str) -> None:
    values = [1, R[name] - 1, 0, 2**200 + 5]
    content = make(name, values)
    witness = load_witness(write(tmp_path / "in.wtns", content))
    assert witness.curve.name == name
    assert [witness[index] for index in range(4)] == values
    assert (len(witness), witness[-1]) == (4, values[-1])
    assert repr(witness) == f"<Witness of 4 values, {name}>"
    assert not witness.words.flags.writeable
    assert witness.words.tobytes() == content[-128:]
    witness.save(tmp_path / "out.wtns")
    assert (tmp_path / "out.wtns").read_bytes() == content
    if os.name == "posix":
        assert (tmp_path / "out.wtns").stat().st_mode & 0o777 == 0o600


def test_the_file_may_be_written_over(tmp_path: Path) -> None:
    path = write(tmp_path / "file", make("bn128", [1, 2, 3]))
    witness = load_witness(path)
    path.write_bytes(b"")
    assert witness[2] == 3


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    check_every_truncation(load_witness, tmp_path / "file", make("bn128", [1, 2, 3]))


def test_every_flip_before_the_values_is_refused(tmp_path: Path) -> None:
    content = make("bn128", [1, 2])
    check_every_flip(load_witness, tmp_path / "file", content, range(len(content) - 32))


@pytest.mark.parametrize("large", [0, 1, 2**255 - R["bn128"]])
def test_a_value_that_is_too_large_is_named_and_not_shown(tmp_path: Path, large: int) -> None:
    value = R["bn128"] + large
    content = make("bn128", [1, R["bn128"] - 1, value, value])
    error = check_refused(load_witness, tmp_path / "file", content, "value 2 is not below")
    assert error.offset == find_section(content, 2) + 64
    assert str(value) not in str(error)
    assert f"{value:x}" not in str(error)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (make("bn128", []), "there are no values"),
        (make("bn128", [2]), "value 0 is not 1"),
        (make("bn128", [1 + 2**32]), "value 0 is not 1"),
        (make("bn128", [1, 2], count=3), r"section has 64 bytes; .* 3, makes 96"),
        (make("bn128", [1], count=2**32 - 1), "makes 137,438,953,440"),
        (make("bn128", [1], version=1), "the version is 1; 2 can be read"),
        (pack_file(b"wtns", 2, [(1, b"")]), r"section 1 \(header\).*the section ends within"),
        (pack_file(b"wtns", 2, [(2, b"")]), r"section 1 \(header\): the section is missing"),
        (
            pack_file(b"wtns", 2, [(1, pack(8) + struct.pack("<QI", 2**64 - 2**32 + 1, 0))]),
            "the prime is 0xffffffff00000001 in 8 bytes; it must be the order of bn128",
        ),
    ],
)
def test_faults_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    check_refused(load_witness, tmp_path / "file", content, words)


@pytest.mark.parametrize("kind", ["list", "tuple", "iterator", "uint32", "uint64", "array"])
def test_witnesses_of_values(kind: str) -> None:
    values = [1, 7, 2**60]
    data = b"".join(each.to_bytes(32, "little") for each in values)
    given: Any = {
        "list": values,
        "tuple": tuple(values),
        "iterator": iter(values),
        "uint32": np.frombuffer(data, np.uint32).reshape(3, 8),
        "uint64": np.frombuffer(data, np.uint64).reshape(3, 4),
        "array": np.array(values),
    }[kind]
    witness = Witness.from_values(given, get_proof_curve("bn128"))
    assert [witness[index] for index in range(3)] == values


def test_a_witness_has_its_own_values() -> None:
    words = np.zeros((2, 8), np.uint32)
    words[0, 0] = 1
    witness = Witness.from_values(words, get_proof_curve("bn128"))
    words[1] = 5
    assert witness[1] == 0


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ([], WitnessError, "value 0 must be 1"),
        ([0, 1], WitnessError, "value 0 must be 1"),
        ([1, -1], WitnessError, "value 1 is not in 0"),
        ([1, 2**256], WitnessError, "value 1 is not in 0"),
        ([1, 5, R["bn128"]], WitnessError, "value 2 is not in 0"),
        ([1, 2.5], ArgumentTypeError, "value 1 is a float, not an integer"),
        (5, ArgumentTypeError, "not an int"),
        ("1", ArgumentTypeError, "not a str"),
        (b"\1\2", ArgumentTypeError, "integers or an array of words, not "),
        ({1, 2}, ArgumentTypeError, "integers or an array of words, not "),
        ({1: 2}, ArgumentTypeError, "integers or an array of words, not "),
        (np.array([1, 2], "m8[ns]"), ArgumentTypeError, "integers or an array of words, not "),
        (np.ones((1, 8)), ArgumentTypeError, "uint32 or uint64, not float64"),
        (np.ones((1, 4), np.uint32), ArgumentShapeError, r"shape \(n, 8\), not \(1, 4\)"),
    ],
)
def test_values_that_are_no_witness(values: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Witness.from_values(values, get_proof_curve("bn128"))


def test_an_index_outside_is_refused() -> None:
    witness = Witness.from_values([1, 2], get_proof_curve("bn128"))
    for index in (2, -3):
        with pytest.raises(ElementIndexError):
            witness[index]
    with pytest.raises(ArgumentTypeError):
        witness[0:1]  # type: ignore[index]


def test_a_witness_survives_pickling() -> None:
    witness = Witness.from_values([1, 2], get_proof_curve("bls12381"))
    copy = pickle.loads(pickle.dumps(witness))
    assert (copy[1], copy.curve, copy.words.flags.writeable) == (2, witness.curve, False)
