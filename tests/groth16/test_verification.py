"""Verification of proofs, one by one and in batches."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ProofFileError
from gpu_executor.groth16 import verification
from gpu_executor.groth16.point_json import get_integers, make_point
from gpu_executor.groth16.proof import Proof
from gpu_executor.groth16.proof_curve import CURVE_NAMES
from gpu_executor.groth16.verification import verify, verify_batch
from gpu_executor.ops.host_points import Point, get_arithmetic
from tests.support.toy_proofs import ToySetup, make_toy_setup, multiply_generator

PUBLIC = [7, 8]


def prove(setup: ToySetup, number: int = 3) -> Proof:
    return setup.prove(PUBLIC, 100 + number, 2**190 + number)


def find_outside(setup: ToySetup, group: Any) -> Point:
    """A point on the curve, outside of the group, whose double is not infinity."""
    arithmetic = get_arithmetic(group.key)
    for number in range(20):
        x = arithmetic.field.make([number, 1][: group.key.degree])
        y = arithmetic.field.sqrt(arithmetic.compute_right_side(x))
        if y is not None and arithmetic.multiply([(x, y)], [setup.curve.r]) != [None]:
            return x, y
    raise AssertionError("no point was found")


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_a_right_proof(name: str) -> None:
    setup = make_toy_setup(name, 2)
    proof = prove(setup)
    forms: list[Any] = [PUBLIC, tuple(PUBLIC), np.array(PUBLIC), [np.uint64(7), np.int8(8)]]
    for public in forms:
        assert verify(setup.key, public, proof) is True


@pytest.mark.parametrize("n_public", [0, 1, 40])
def test_any_number_of_public_values(n_public: int) -> None:
    setup = make_toy_setup("bn128", n_public)
    public = [setup.curve.r - 1 - index for index in range(n_public)]
    proof = setup.prove(public, 5, 6)
    assert verify(setup.key, public, proof)
    assert verify_batch(setup.key, [public] * 2, [proof] * 2) == [True] * 2
    for index in range(min(n_public, 1)):
        assert not verify(setup.key, [*public[:index], 0, *public[index + 1 :]], proof)
    assert not verify(setup.key, [*public, 0], proof)


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_other_public_values_are_refused(name: str) -> None:
    setup = make_toy_setup(name, 2)
    proof, r = prove(setup), setup.curve.r
    wrong = [
        [8, 7],
        [7, 9],
        [7 + r, 8],
        [7, 8 - r],
        [7],
        [7, 8, 0],
        [],
        [-7, 8],
        [7, r],
        [2**300, 8],
    ]
    for public in wrong:
        assert verify(setup.key, public, proof) is False


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_changed_points_are_refused(name: str) -> None:
    setup = make_toy_setup(name, 2)
    proof, curve = prove(setup), setup.curve
    for field, group in (("pi_a", curve.g1), ("pi_b", curve.g2), ("pi_c", curve.g1)):
        arithmetic, point = get_arithmetic(group.key), getattr(proof, field)
        x, y = get_integers(point)
        changed: list[Any]
        if group is curve.g1:
            changed = [(x, y + 1), (x + curve.q, y), (x, y - curve.q), (0, 0), (y, x)]
        else:
            (x0, x1), (y0, y1) = x, y
            pairs = [((x0, x1), (y0, y1 + 1)), ((x0 + curve.q, x1), y), (x, (y0, y1 - curve.q))]
            pairs += [((x1, x0), (y1, y0)), ((0, 0), (0, 0))]
            changed = [make_point(group, *pair) for pair in pairs]
        changed += [None, *arithmetic.negate([point]), *arithmetic.add([point], [point])]
        if group.cofactor != 1:
            outside = find_outside(setup, group)
            changed += [outside, *arithmetic.add([outside], [point])]
        for each in changed:
            changes: dict[str, Any] = {field: each}
            assert verify(setup.key, PUBLIC, dataclasses.replace(proof, **changes)) is False


def test_a_right_point_plus_one_outside_of_g2_is_refused() -> None:
    """The order of the point that is added to pi_b has no factor in common with r."""
    setup = make_toy_setup("bn128", 2)
    proof, group = prove(setup), setup.curve.g2
    arithmetic = get_arithmetic(group.key)
    outside = arithmetic.multiply([find_outside(setup, group)], [setup.curve.r])
    (changed,) = arithmetic.add([proof.pi_b], outside)
    assert arithmetic.is_on_curve(changed)
    assert not verify(setup.key, PUBLIC, dataclasses.replace(proof, pi_b=changed))


@pytest.mark.parametrize("field", ["alpha1", "beta2", "gamma2", "delta2", "ic"])
def test_another_key_is_refused(field: str) -> None:
    setup = make_toy_setup("bn128", 2)
    proof, key = prove(setup), setup.key
    group = setup.curve.g1 if field == "alpha1" else setup.curve.g2
    changes: dict[str, Any] = {field: multiply_generator(group, 99)}
    if field == "ic":
        changes = {"ic": (*key.ic[:2], key.ic[1])}
    assert not verify(dataclasses.replace(key, **changes), PUBLIC, proof)


def test_a_proof_of_another_curve_is_refused() -> None:
    one, other = (make_toy_setup(name, 2) for name in CURVE_NAMES)
    assert not verify(one.key, PUBLIC, prove(other))
    assert verify_batch(other.key, [PUBLIC] * 2, [prove(one), prove(other)]) == [False, True]


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_points_at_infinity(name: str) -> None:
    """As snarkjs decides: pi_a and pi_c may be infinity where the equation holds, pi_b may not."""
    setup = make_toy_setup(name, 2)
    combined = sum(x * y for x, y in zip(setup.ic, [1, *PUBLIC], strict=True))
    b = (setup.alpha * setup.beta + combined * setup.gamma) % setup.curve.r
    without_a, without_b, without_c = (
        setup.prove(PUBLIC, *factors) for factors in ((0, 5), (5, 0), (1, b))
    )
    assert (without_a.pi_a, without_b.pi_b, without_c.pi_c) == (None, None, None)
    proofs = [without_a, without_b, without_c]
    assert [verify(setup.key, PUBLIC, proof) for proof in proofs] == [True, False, True]
    assert verify_batch(setup.key, [PUBLIC] * 3, proofs) == [True, False, True]
    assert not verify(setup.key, [0, 0], without_a)


def test_a_sum_of_public_values_that_is_infinity() -> None:
    setup = make_toy_setup("bn128", 2)
    ic = setup.ic
    last = -(ic[0] + 7 * ic[1]) * pow(ic[2], -1, setup.curve.r) % setup.curve.r
    proof = setup.prove([7, last], 4, 5)
    assert verify(setup.key, [7, last], proof)
    assert not verify(setup.key, [7, last + 1], proof)


# --- batches ---


@pytest.mark.parametrize(
    ("name", "singles", "wrong"),
    [
        *(("bn128", 1, each) for each in [(), (0,), (4,), (2,), (1, 2), (0, 1, 2, 3, 4)]),
        ("bn128", 8, (0, 4)),
        ("bls12381", 2, (1, 2)),
    ],
    ids=str,
)
def test_batches_with_wrong_proofs_in_any_place(
    name: str, singles: int, wrong: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By halves down to one proof, one by one, and both."""
    monkeypatch.setattr(verification, "MAX_SINGLES", singles)
    setup = make_toy_setup(name, 2)
    proofs = [prove(setup, number) for number in range(5)]
    publics = [[7, 9] if index in wrong else PUBLIC for index in range(5)]
    expected = [index not in wrong for index in range(5)]
    assert verify_batch(setup.key, publics, proofs) == expected


def test_wrong_proofs_of_a_batch_do_not_cancel() -> None:
    """Two wrong proofs whose errors are opposite, and proofs with exchanged parts."""
    setup = make_toy_setup("bn128", 2)
    first, second = prove(setup, 1), prove(setup, 2)
    g1 = get_arithmetic(setup.curve.g1.key)
    shift = multiply_generator(setup.curve.g1, 11)
    plus, minus = g1.add([first.pi_c, second.pi_c], [shift, *g1.negate([shift])])
    changed = [
        dataclasses.replace(first, pi_c=plus),
        dataclasses.replace(second, pi_c=minus),
    ]
    assert verify_batch(setup.key, [PUBLIC] * 2, changed) == [False, False]
    exchanged = [
        dataclasses.replace(first, pi_c=second.pi_c),
        dataclasses.replace(second, pi_c=first.pi_c),
    ]
    assert verify_batch(setup.key, [PUBLIC] * 2, exchanged) == [False, False]


def test_a_batch_of_different_public_values_and_malformed_proofs() -> None:
    setup = make_toy_setup("bn128", 2)
    publics = [[1, 2], [3, 4], [5], [5, 6], [setup.curve.r, 0]]
    proofs = [setup.prove(public, 3, 4) for public in publics[:2]]
    proofs += [proofs[0], setup.prove(publics[3], 3, 4), proofs[0]]
    off_curve = dataclasses.replace(proofs[0], pi_a=(1, 1))
    outside = dataclasses.replace(proofs[0], pi_b=find_outside(setup, setup.curve.g2))
    found = verify_batch(setup.key, [*publics, [1, 2], [1, 2]], [*proofs, off_curve, outside])
    assert found == [True, True, False, True, False, False, False]
    assert verify_batch(setup.key, np.array(publics[:2]), tuple(proofs[:2])) == [True, True]


def test_large_batches_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAX_PROOFS", 2)
    setup = make_toy_setup("bn128", 2)
    publics: list[list[int]] = [PUBLIC, PUBLIC, [0, 0], PUBLIC, [1, 1]]
    proofs = [prove(setup, number) for number in range(5)]
    assert verify_batch(setup.key, publics, proofs) == [True, True, False, True, False]


def test_an_empty_batch() -> None:
    assert verify_batch(make_toy_setup("bn128", 2).key, [], []) == []


# --- arguments ---


def test_arguments_of_wrong_types_and_lengths_are_refused() -> None:
    setup = make_toy_setup("bn128", 2)
    proof, key = prove(setup), setup.key
    for bad in (["7", "8"], [7.0, 8.0], [True, 8], "78", 7, None, [None, 8]):
        with pytest.raises(ArgumentTypeError, match="public: "):
            verify(key, bad, proof)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="vk must be a VerificationKey, not str"):
        verify("key", PUBLIC, proof)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="proof 0 must be a Proof, not dict"):
        verify(key, PUBLIC, {})  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="proofs must be a list, not Proof"):
        verify_batch(key, [PUBLIC], proof)  # type: ignore[arg-type]
    with pytest.raises(ArgumentShapeError, match="as many, not 1 and 2"):
        verify_batch(key, [PUBLIC], [proof, proof])


@pytest.mark.parametrize("name", CURVE_NAMES)
def test_a_key_that_was_not_read_from_a_file_is_checked_too(name: str) -> None:
    setup = make_toy_setup(name, 2)
    cases: list[dict[str, Any]] = [{"alpha1": (1, 1)}, {"gamma2": None}, {"ic": ((1, 1),) * 3}]
    for changes in cases:
        key = dataclasses.replace(setup.key, **changes)
        with pytest.raises(ProofFileError, match="verification key: "):
            verify(key, PUBLIC, prove(setup))
