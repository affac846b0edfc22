"""Proofs and public values in the files of snarkjs."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ProofFileError,
)
from gpu_executor.groth16.point_json import get_integers
from gpu_executor.groth16.proof import Proof, public_from_json, public_to_json
from gpu_executor.groth16.proof_curve import CURVE_NAMES
from tests.support.toy_proofs import make_toy_setup

DATA = Path(__file__).parent / "data"


def make_proof(name: str) -> tuple[Proof, list[int]]:
    """The proof whose files are in the folder of data, and its public values."""
    setup = make_toy_setup(name, 2)
    public = [7, setup.curve.r - 1]
    return setup.prove(public, 1234567, setup.curve.r - 98765), public


PROOF, PUBLIC = make_proof("bn128")
CONTENT = json.loads(PROOF.to_json())


def change(path: tuple[Any, ...], value: Any) -> str:
    """The text of the proof with another value at a place; without the key if it is None."""
    content = copy.deepcopy(CONTENT)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(content)


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_a_proof_is_written_and_read_as_snarkjs_writes_it(name: str) -> None:
    proof, _ = make_proof(name)
    text = (DATA / f"toy_{name}_proof.json").read_text()
    assert proof.to_json() == text
    assert Proof.from_json(text) == proof


def test_public_values_are_written_and_read_as_snarkjs_writes_them() -> None:
    text = (DATA / "toy_bn128_public.json").read_text()
    assert public_to_json(PUBLIC) == text
    assert public_from_json(text) == PUBLIC
    assert public_to_json(np.array([3, 4])) == public_to_json((3, 4)) == '[\n "3",\n "4"\n]'
    assert public_to_json([]) == "[\n]"
    assert public_from_json("[]") == []


def test_calldata_are_those_of_snarkjs() -> None:
    expected = (DATA / "toy_bn128_calldata.txt").read_text()
    assert PROOF.solidity_calldata(PUBLIC) == expected
    assert PROOF.solidity_calldata([]) == expected.rpartition("[")[0] + "[]"


def test_infinity_is_written_as_snarkjs_writes_it_and_as_zeros_for_contracts() -> None:
    proof = Proof(PROOF.curve, None, None, PROOF.pi_c)
    content = json.loads(proof.to_json())
    assert content["pi_a"] == ["0", "1", "0"]
    assert content["pi_b"] == [["0", "0"], ["1", "0"], ["0", "0"]]
    assert Proof.from_json(proof.to_json()) == proof
    words = [int(word.strip('[]" '), 16) for word in proof.solidity_calldata([]).split(",")[:6]]
    assert words == [0] * 6


def test_coordinates_outside_of_the_field_and_points_off_the_curve_are_read() -> None:
    q = PROOF.curve.q
    proof = Proof.from_json(change(("pi_b", 0), [str(q), str(2**256 - 1)]))
    found = get_integers(proof.pi_b)
    assert found is not None
    assert found[0] == (q, 2**256 - 1)
    assert json.loads(proof.to_json())["pi_b"][0] == [str(q), str(2**256 - 1)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested more than 32 deep"),
        ('{"a":' * 100_000, "nested more than 32 deep"),
        ('["]\\"]",' * 33, "nested more than 32 deep"),
        ('{"pi_a": ' + "9" * 5000 + "}", "not JSON"),
        ("[1]", "must be a JSON object, not a list of 1"),
        ("null", "must be a JSON object, not null"),
        (change(("protocol",), "plonk"), 'the protocol is "plonk"'),
        (change(("protocol",), None), "the key 'protocol' is missing"),
        (change(("curve",), "secp256k1"), 'the curve is "secp256k1"'),
        (change(("curve",), ["bn128"]), "the curve is a list of 1"),
        (change(("pi_b",), None), "the key 'pi_b' is missing"),
        (change(("pi_a",), "1"), 'pi_a: must be a list of 3, not "1"'),
        (change(("pi_a",), ["1", "2"]), "pi_a: must be a list of 3, not a list of 2"),
        (change(("pi_a", 0), 1), "pi_a: coordinate x: must be a string of decimal digits, not 1"),
        (change(("pi_a", 0), 1.5), "not 1.5"),
        (change(("pi_a", 0), True), "not true"),
        (change(("pi_a", 0), ["1", "2"]), "not a list of 2"),
        (change(("pi_a", 0), {}), "not an object of 0 keys"),
        (change(("pi_a", 1), "-1"), 'coordinate y: must be a string of decimal digits, not "-1"'),
        (change(("pi_a", 1), "0x10"), "decimal digits"),
        (change(("pi_a", 1), ""), "decimal digits"),
        (change(("pi_a", 1), "1\n"), "decimal digits"),
        (change(("pi_a", 1), "1_0"), "decimal digits"),
        (change(("pi_a", 1), "\u0663"), "decimal digits"),
        (change(("pi_a", 1), str(2**256)), "takes more than 256 bits"),
        (change(("pi_a", 1), "9" * 100_000), "takes more than 256 bits"),
        (change(("pi_b", 0), "5"), "pi_b: coordinate x: must be a list of 2"),
        (change(("pi_b", 1, 1), 5), "pi_b: coordinate y: must be a string"),
        (change(("pi_a", 2), "2"), "pi_a: z must be 1"),
        (change(("pi_a", 2), "0"), "pi_a: z must be 1"),
        (change(("pi_a", 2), str(PROOF.curve.q + 1)), "pi_a: z must be 1"),
        (change(("pi_b", 2), ["0", "1"]), "pi_b: z must be 1"),
    ],
)
def test_what_is_no_proof_is_refused(text: str, words: str) -> None:
    with pytest.raises(ProofFileError) as caught:
        Proof.from_json(text)
    assert words in str(caught.value)
    assert str(caught.value).startswith("proof: ")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "text",
    ["{}", '"1"', "[1]", '["1", null]', '["-1"]', '["1e3"]', f'["{2**256}"]', "[[]]", "[true]"],
)
def test_what_are_no_public_values_is_refused(text: str) -> None:
    with pytest.raises(ProofFileError, match=r"^public values: "):
        public_from_json(text)


def test_a_proof_that_names_no_curve_is_of_bn128() -> None:
    content = json.loads(PROOF.to_json())
    del content["curve"]
    assert Proof.from_json(json.dumps(content)) == PROOF


def test_texts_are_strings() -> None:
    for read in (Proof.from_json, public_from_json):
        with pytest.raises(ArgumentTypeError, match="text must be a str, not dict"):
            read({})  # type: ignore[arg-type]


def test_public_values_that_cannot_be_written_are_refused() -> None:
    for bad in (["1"], [True], [1.0], "12", None, [None], {1: 2}, np.array([1], "m8[ns]")):
        with pytest.raises(ArgumentTypeError, match="public: "):
            public_to_json(bad)  # type: ignore[arg-type]
        with pytest.raises(ArgumentTypeError, match="public: "):
            PROOF.solidity_calldata(bad)  # type: ignore[arg-type]
    with pytest.raises(ArgumentShapeError, match="one axis, not 2"):
        public_to_json(np.zeros((2, 2), np.int64))
    with pytest.raises(ArgumentValueError, match="value 1 is not in 0"):
        public_to_json([0, -1])
    with pytest.raises(ArgumentValueError, match=r"value 0 is not in 0 .. r-1"):
        PROOF.solidity_calldata([PROOF.curve.r])


def test_there_is_no_contract_of_bls12_381() -> None:
    proof, public = make_proof("bls12381")
    with pytest.raises(ArgumentValueError, match="verifier contracts are for 'bn128'"):
        proof.solidity_calldata(public)


def test_a_proof_can_be_pickled_and_hashed() -> None:
    assert pickle.loads(pickle.dumps(PROOF)) == PROOF
    assert len({PROOF, Proof.from_json(PROOF.to_json())}) == 1
