"""Points and numbers in the JSON files of snarkjs: proofs, public values and verification keys.

Every number is a string of decimal digits. A point is [x, y, "1"], or ["0", "1", "0"] for the point
at infinity; a coordinate of G2 is [c0, c1]. What has another form is refused with `ProofFileError`.
Coordinates that are not below the modulus, and points off the curve, have the right form: whether
a point is one of the group is for the caller to decide.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_executor.curves import Curve
from gpu_executor.errors import ArgumentTypeError, ProofFileError
from gpu_executor.groth16.proof_curve import CURVE_NAMES, ProofCurve, get_proof_curve
from gpu_executor.ops.host_coordinates import Coordinate, CoordinateField, ExtensionElement
from gpu_executor.ops.host_points import Point

PROTOCOL = "groth16"
DIGITS = re.compile(r"[0-9]+", re.ASCII)
STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.?)*"?|[][{}]', re.DOTALL)
MAX_DEPTH = 32
"""The files of snarkjs are nested 4 deep."""
SCALAR_BITS = 256
"""A number that takes more bits is no scalar of any of the curves, not even one to be reduced."""


# --- texts ---


def write_json(content: Any) -> str:
    """The text of a file, in the layout of snarkjs: one value a line, indented by one space."""
    return json.dumps(content, indent=1) if content else "[\n]"


def load_json(text: str, what: str) -> Any:
    """The content of a text; `what` names the file in errors."""
    if not isinstance(text, str):
        raise ArgumentTypeError(f"{what}: text must be a str, not {type(text).__name__}")
    _check_depth(text, what)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ProofFileError(f"{what}: not JSON: {error}") from None


def _check_depth(text: str, what: str) -> None:
    """Refuse deeply nested texts. The reader recurses, and where a program has raised Python's
    limit of recursion, such a text would end the process."""
    depth = 0
    for token in STRING_OR_BRACKET.finditer(text):
        character = token[0][0]
        if character != '"':
            depth += 1 if character in "[{" else -1
        if depth > MAX_DEPTH:
            raise ProofFileError(f"{what}: lists are nested more than {MAX_DEPTH} deep")


def load_object(
    text: str, what: str, default_curve: str | None = None
) -> tuple[Mapping[str, Any], ProofCurve]:
    """The content of a text that is an object of Groth16, and its curve: the default if the object
    names none."""
    content = load_json(text, what)
    if not isinstance(content, dict):
        raise ProofFileError(f"{what}: must be a JSON object, not {describe(content)}")
    protocol = get_value(content, "protocol", what)
    if protocol != PROTOCOL:
        raise ProofFileError(
            f'{what}: the protocol is {describe(protocol)}; only "{PROTOCOL}" is supported'
        )
    if default_curve is not None:
        content = {"curve": default_curve} | content
    name = get_value(content, "curve", what)
    if name not in CURVE_NAMES:
        known = " and ".join(f'"{each}"' for each in CURVE_NAMES)
        raise ProofFileError(f"{what}: the curve is {describe(name)}; supported are {known}")
    return content, get_proof_curve(name)


def get_value(content: Mapping[str, Any], key: str, what: str) -> Any:
    """The value of a key that must be there."""
    if key not in content:
        raise ProofFileError(f"{what}: the key {key!r} is missing")
    return content[key]


def describe(value: Any) -> str:
    """A value of a file in an error message: short, whatever it is."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)} keys"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."


# --- numbers ---


def parse_number(value: Any, bits: int, what: str) -> int:
    """The number of a string of decimal digits, below 2^bits."""
    if not isinstance(value, str) or not DIGITS.fullmatch(value):
        raise ProofFileError(f"{what}: must be a string of decimal digits, not {describe(value)}")
    # Python refuses to read very long strings of digits: their length is looked at first.
    if len(value) > bits or (number := int(value)) >> bits:
        raise ProofFileError(f"{what}: {describe(value)} takes more than {bits} bits")
    return number


def parse_list(value: Any, length: int, what: str) -> list[Any]:
    """A list of a certain length."""
    if not isinstance(value, list) or len(value) != length:
        raise ProofFileError(f"{what}: must be a list of {length}, not {describe(value)}")
    return value


# --- points ---


def parse_point(value: Any, group: Curve, what: str) -> Point:
    """The point of a list of 3 coordinates, which need not be on the curve."""
    x, y, z = (
        _parse_coordinate(each, group, f"{what}: coordinate {name}")
        for name, each in zip("xyz", parse_list(value, 3, what), strict=True)
    )
    field = CoordinateField.of(group.key)
    if z == field.one:
        return x, y
    if z or (x, y) != (field.zero, field.one):
        raise ProofFileError(
            f"{what}: z must be 1, or x, y and z must be 0, 1 and 0 for the point at infinity"
        )
    return None


def _parse_coordinate(value: Any, group: Curve, what: str) -> Coordinate:
    key = group.key
    bits = 8 * key.prime.element_bytes
    if key.degree == 1:
        return parse_number(value, bits, what)
    found = [parse_number(each, bits, what) for each in parse_list(value, key.degree, what)]
    # The element is made as it is: the field would reduce coefficients above the modulus.
    return ExtensionElement(tuple(found), CoordinateField.of(key).nonresidue)


def format_point(point: Point, group: Curve) -> list[Any]:
    """A point as files hold it."""
    field = CoordinateField.of(group.key)
    x, y, z = (field.zero, field.one, field.zero) if point is None else (*point, field.one)
    return [_format_coordinate(each) for each in (x, y, z)]


def _format_coordinate(coordinate: Coordinate) -> Any:
    if isinstance(coordinate, ExtensionElement):
        return [str(each) for each in coordinate.coefficients]
    return str(coordinate)


def make_point(group: Curve, x: int | Sequence[int], y: int | Sequence[int]) -> Point:
    """The affine point with these coordinates: integers, or over G2 pairs of integers."""
    if group.key.degree == 1:
        return x, y
    nonresidue = CoordinateField.of(group.key).nonresidue
    pair_x, pair_y = (tuple(each) for each in (x, y) if not isinstance(each, int))
    return ExtensionElement(pair_x, nonresidue), ExtensionElement(pair_y, nonresidue)


def get_integers(point: Point) -> Any:
    """The coordinates of a point as integers, over G2 as pairs of integers; None for infinity."""
    if point is None:
        return None
    x, y = (each.coefficients if isinstance(each, ExtensionElement) else each for each in point)
    return x, y
