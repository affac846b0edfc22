"""Verification keys in the files of snarkjs."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_executor.errors import ArgumentTypeError, ProofFileError
from gpu_executor.groth16.point_json import format_point
from gpu_executor.groth16.proof_curve import CURVE_NAMES, get_proof_curve
from gpu_executor.groth16.verification_key import VerificationKey
from gpu_executor.groth16.zkey_file import COEFFICIENT, KeyArrays, ZkeyFile, write_zkey
from gpu_executor.ops.host_points import get_arithmetic
from tests.support.toy_proofs import make_toy_setup

DATA = Path(__file__).parent / "data"
INFINITY = {1: ["0", "1", "0"], 2: [["0", "0"], ["1", "0"], ["0", "0"]]}


def load(name: str) -> Any:
    return json.loads((DATA / f"toy_{name}_verification_key.json").read_text())


def find_point_outside(name: str, group_number: int) -> Any:
    """A point on the curve that is not in the group, as files hold it."""
    curve = get_proof_curve(name)
    group = curve.g1 if group_number == 1 else curve.g2
    arithmetic = get_arithmetic(group.key)
    for number in range(20):
        x = arithmetic.field.make([number, 1][: group.key.degree])
        y = arithmetic.field.sqrt(arithmetic.compute_right_side(x))
        if y is not None and arithmetic.multiply([(x, y)], [curve.r]) != [None]:
            return format_point((x, y), group)
    raise AssertionError("no point was found")


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_a_key_is_written_as_snarkjs_exports_it(name: str) -> None:
    text = (DATA / f"toy_{name}_verification_key.json").read_text()
    key = make_toy_setup(name, 2).key
    assert key.to_json() == text
    read = VerificationKey.from_json(text)
    assert read == key
    assert read.n_public == 2
    assert read.to_json() == text


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_a_key_from_a_proving_key(name: str, tmp_path: Path) -> None:
    setup = make_toy_setup(name, 2)
    key, path = setup.key, tmp_path / "toy.zkey"
    write_toy_zkey(path, key)
    assert VerificationKey.from_zkey(ZkeyFile.open(path)) == key
    wrong = dataclasses.replace(key, ic=(*key.ic[:2], (1, 1)))
    write_toy_zkey(path, wrong)
    with pytest.raises(ProofFileError, match="verification key: IC: point 2: the coordinates"):
        VerificationKey.from_zkey(ZkeyFile.open(path)).check()


def write_toy_zkey(path: Path, key: VerificationKey) -> None:
    """A proving key with the points of a verification key, and without anything to prove."""
    g1, g2 = get_arithmetic(key.curve.g1.key), get_arithmetic(key.curve.g2.key)
    count = len(key.ic)
    no_points = g1.store([None] * count, (count,))
    arrays = KeyArrays(
        curve=key.curve,
        alpha1=g1.store([key.alpha1], ()),
        beta1=g1.store([key.alpha1], ()),
        beta2=g2.store([key.beta2], ()),
        gamma2=g2.store([key.gamma2], ()),
        delta1=g1.store([key.alpha1], ()),
        delta2=g2.store([key.delta2], ()),
        ic=g1.store(key.ic, (count,)),
        a=no_points,
        b1=no_points,
        b2=g2.store([None] * count, (count,)),
        c=no_points[:0],
        h=g1.store([None] * 4, (4,)),
        coefficients=np.zeros(0, COEFFICIENT),
    )
    write_zkey(path, arrays)


def test_the_pairing_in_a_file_is_not_needed() -> None:
    content = load("bn128")
    del content["vk_alphabeta_12"]
    assert VerificationKey.from_json(json.dumps(content)) == make_toy_setup("bn128", 2).key


def test_points_ic_may_be_infinity() -> None:
    content = load("bn128")
    content["IC"][1] = INFINITY[1]
    assert VerificationKey.from_json(json.dumps(content)).ic[1] is None


@pytest.mark.parametrize("name", CURVE_NAMES)
@pytest.mark.parametrize(
    ("path", "group"),
    [
        (("vk_alpha_1",), 1),
        (("vk_beta_2",), 2),
        (("vk_gamma_2",), 2),
        (("vk_delta_2",), 2),
        (("IC", 2), 1),
    ],
)
def test_keys_with_points_outside_of_the_groups_are_refused(
    name: str, path: tuple[Any, ...], group: int
) -> None:
    content, q = load(name), get_proof_curve(name).q
    where = path[0] if len(path) == 1 else f"{path[0]}: point {path[1]}"
    holder = content if len(path) == 1 else content[path[0]]
    right = holder[path[-1]]
    off = copy.deepcopy(right)
    large = copy.deepcopy(right)
    if group == 1:
        off[1] = str(int(off[1]) ^ 1)
        large[0] = str(int(large[0]) + q)
    else:
        off[1][0] = str(int(off[1][0]) ^ 1)
        large[0][1] = str(int(large[0][1]) + q)
    cases = [(off, "not those of a point on the curve"), (large, "not those of a point")]
    if path[0] != "IC":
        cases.append((INFINITY[group], "it is the point at infinity"))
    if group == 2 or name == "bls12381":  # BN254's G1 is the whole curve
        cases.append((find_point_outside(name, group), "not in the group of order r"))
    for value, words in cases:
        holder[path[-1]] = value
        with pytest.raises(ProofFileError) as caught:
            VerificationKey.from_json(json.dumps(content))
        assert str(caught.value).startswith(f"verification key: {where}: ")
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol": "fflonk"}, 'the protocol is "fflonk"'),
        ({"curve": "bn254"}, 'the curve is "bn254"'),
        ({"nPublic": "2"}, 'nPublic: must be an integer of at least 0, not "2"'),
        ({"nPublic": True}, "not true"),
        ({"nPublic": 2.0}, "not 2.0"),
        ({"nPublic": -1, "IC": []}, "not -1"),
        ({"nPublic": 3}, "IC: must be a list of 4, not a list of 3"),
        ({"IC": None}, "IC: must be a list of 3, not null"),
        ({"IC": [["1", "2", "1"]] * 2 + ["x"]}, "IC: point 2: must be a list of 3"),
        ({"vk_delta_2": ["1", "2", "1"]}, "vk_delta_2: coordinate x: must be a list of 2"),
    ],
)
def test_what_is_no_key_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ProofFileError) as caught:
        VerificationKey.from_json(json.dumps({**load("bn128"), **changes}))
    assert words in str(caught.value)


@pytest.mark.parametrize("key", sorted({*load("bn128")} - {"vk_alphabeta_12"}))
def test_a_missing_key_is_named(key: str) -> None:
    content = load("bn128")
    del content[key]
    with pytest.raises(ProofFileError, match=f"the key '{key}' is missing"):
        VerificationKey.from_json(json.dumps(content))


def test_texts_are_strings() -> None:
    with pytest.raises(ArgumentTypeError, match="text must be a str, not bytes"):
        VerificationKey.from_json(b"{}")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_a_key_can_be_pickled_after_use(name: str) -> None:
    key = VerificationKey.from_json(json.dumps(load(name)))
    assert key.alpha_beta == pickle.loads(pickle.dumps(key)).alpha_beta
    assert pickle.loads(pickle.dumps(key)) == key
