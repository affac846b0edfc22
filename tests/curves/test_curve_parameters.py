"""Parameters of curves: what is refused, and the named curves."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.curves import Curve
from gpu_executor.errors import ArgumentTypeError, CurveError
from gpu_executor.fields import BLS12_381_FR, Field
from tests.support.curves_under_test import NAMED_CURVES, NAMED_G1, get_curve, multiply_ints

GOOD: dict[str, Any] = {"a": 2, "b": 2, "order": 19, "generator": (0, 6), "name": "test curve"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"b": 0, "a": 1, "generator": (0, 0)}, "test curve: b is 0.*point at infinity"),
        ({"a": 0, "b": 17}, "test curve: b is 0"),
        ({"a": -3, "b": 2}, "test curve: the curve is singular"),
        ({"generator": (0, 5)}, "test curve: the generator is not on the curve"),
        ({"generator": (0, 0)}, "the generator is .0, 0., the point at infinity"),
        ({"order": 17}, "the generator does not have the order 0x11"),
        ({"order": 18}, "the order 0x12 must be an odd prime"),
        ({"order": 1}, "the order 0x1 must be an odd prime"),
        ({"order": -19}, "the order -0x13 must be an odd prime"),
    ],
)
def test_parameters_that_make_no_curve_are_refused(changes: dict[str, Any], words: str) -> None:
    parameters = GOOD | changes
    a, b = parameters.pop("a"), parameters.pop("b")
    with pytest.raises(CurveError, match=words):
        Curve(Field(17), a, b, **parameters)


def test_a_field_of_characteristic_3_is_refused() -> None:
    with pytest.raises(CurveError, match="characteristic 3"):
        Curve(Field(3), 1, 1, order=3, generator=(0, 1))


@pytest.mark.parametrize(
    ("field", "changes", "words"),
    [
        (17, {"name": None}, "curve over 17: the field must be a Field or an ExtensionField"),
        (17, {}, "the field must be a Field or an ExtensionField, not int"),
        (Field(17), {"a": 1.5}, "a must be an integer, not 1.5"),
        (Field(17), {"b": (1, 2)}, "b must be an integer, not "),
        (Field(17), {"order": 19.0}, "the order must be an integer"),
        (Field(17), {"generator": 5}, "the generator must be a pair"),
        (Field(17), {"generator": ("0", 6)}, "x of the generator must be an integer"),
    ],
)
def test_parameters_of_wrong_types_are_refused(
    field: Any, changes: dict[str, Any], words: str
) -> None:
    parameters = GOOD | changes
    a, b = parameters.pop("a"), parameters.pop("b")
    with pytest.raises(ArgumentTypeError, match=words):
        Curve(field, a, b, **parameters)


@pytest.mark.parametrize("name", NAMED_CURVES)
def test_a_named_curve_is_made_once(name: str) -> None:
    curve = get_curve(name)
    assert curve is getattr(gx.curves, name)
    assert curve.name == name.lower()
    assert name in dir(gx.curves)
    assert repr(curve) == f"<Curve {name.lower()}>"


@pytest.mark.parametrize("name", NAMED_G1)
def test_the_generator_has_the_order(name: str) -> None:
    curve = get_curve(name)
    generator = curve.generator.tolist()
    assert multiply_ints(curve, curve.order, generator) is None
    assert multiply_ints(curve, curve.order - 1, generator) == (-curve.generator).tolist()
    assert curve.scalar_field.modulus == curve.order


def test_cofactors_follow_from_the_order() -> None:
    """Those of BLS12-381 and BLS12-377 are (x - 1)^2 / 3, x the parameter of the curve."""
    assert gx.curves.BLS12_381_G1.cofactor == (0xD201000000010000 + 1) ** 2 // 3
    assert gx.curves.BLS12_377_G1.cofactor == (0x8508C00000000001 - 1) ** 2 // 3
    for name in ("BN254_G1", "PALLAS", "VESTA", "SECP256K1"):
        assert get_curve(name).cofactor == 1


def test_pasta_curves_are_a_cycle() -> None:
    pallas, vesta = gx.curves.PALLAS, gx.curves.VESTA
    assert pallas.scalar_field == vesta.field
    assert vesta.scalar_field == pallas.field


def test_curves_with_equal_parameters_are_equal() -> None:
    again = Curve(Field(17), 2, 2, order=19, generator=(5, 1), name="another name")
    curve = Curve(Field(17), 2, 2, order=19, generator=(0, 6))
    other = Curve(Field(17), 2, 2 + 0, order=19, generator=(0, 6))
    assert curve == other == again
    assert hash(curve) == hash(again)
    assert (curve.generator == again.generator).tolist() is False
    assert curve != gx.curves.PALLAS
    assert curve != 5


def test_a_pickled_curve_is_equal() -> None:
    own = Curve(Field(17), 2, 2, order=19, generator=(0, 6))
    for curve in (gx.curves.BN254_G1, gx.curves.BN254_G2, gx.curves.BLS12_381_G1, own):
        again = pickle.loads(pickle.dumps(curve))
        assert again == curve
        assert again.name == curve.name
        assert (again.generator == curve.generator).all()
        assert type(again.encoding) is type(curve.encoding)
        assert again.endomorphism == curve.endomorphism


def test_there_is_no_other_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ED25519'"):
        _ = gx.curves.ED25519


def test_parameters_may_be_given_as_elements() -> None:
    field = Field(17)
    curve = Curve(field, field.encode(2), field.encode(2), order=19, generator=(0, 6))
    assert curve.key.a == curve.key.b == (2,)
    assert gx.curves.BLS12_381_G1.scalar_field == BLS12_381_FR
