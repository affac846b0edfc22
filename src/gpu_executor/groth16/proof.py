"""`Proof`: three points that prove a statement, and the values that the statement is about, in the
files of snarkjs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ProofFileError,
)
from gpu_executor.groth16.point_json import (
    PROTOCOL,
    SCALAR_BITS,
    describe,
    format_point,
    get_integers,
    get_value,
    load_json,
    load_object,
    parse_number,
    parse_point,
    write_json,
)
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.ops.host_points import Point

PublicValues = Sequence[int | np.integer[Any]] | npt.NDArray[np.integer[Any]]
"""Integers of Python or NumPy."""
WORD_DIGITS = 64
"""Hexadecimal digits of a word of Ethereum's virtual machine."""


@dataclass(frozen=True)
class Proof:
    """A proof of Groth16. Its points are not checked before `verify` does it."""

    curve: ProofCurve
    pi_a: Point
    """A point of G1, affine; None is the point at infinity."""
    pi_b: Point
    """A point of G2."""
    pi_c: Point
    """A point of G1."""

    def to_json(self) -> str:
        """The text of snarkjs's proof.json."""
        return write_json(
            {
                "pi_a": format_point(self.pi_a, self.curve.g1),
                "pi_b": format_point(self.pi_b, self.curve.g2),
                "pi_c": format_point(self.pi_c, self.curve.g1),
                "protocol": PROTOCOL,
                "curve": self.curve.name,
            }
        )

    @staticmethod
    def from_json(text: str) -> Proof:
        """The proof of a proof.json; `ProofFileError` if the text is no proof of Groth16.

        Points that are not in their groups are read as they are, and `verify` returns False. A
        proof that names no curve, such as those of rapidsnark, is of bn128.
        """
        content, curve = load_object(text, "proof", default_curve="bn128")
        pi_a, pi_b, pi_c = (
            parse_point(get_value(content, key, "proof"), group, f"proof: {key}")
            for key, group in (("pi_a", curve.g1), ("pi_b", curve.g2), ("pi_c", curve.g1))
        )
        return Proof(curve, pi_a, pi_b, pi_c)

    def solidity_calldata(self, public: PublicValues) -> str:
        """The arguments of the verifier contract's `verifyProof`, as snarkjs prints them.

        The point at infinity is written as (0, 0), which is what the precompiled contracts take
        for it. Only proofs of bn128 have a contract: its coordinates fit words of 256 bits.

        Args:
            public (sequence of int): The public values, each at least 0 and below the order r.
        """
        if self.curve.name != "bn128":
            raise ArgumentValueError(
                f"solidity_calldata: the proof is of the curve {self.curve.name!r}; "
                "verifier contracts are for 'bn128'"
            )
        values = parse_public(public)
        for index, value in enumerate(values):
            if not 0 <= value < self.curve.r:
                raise ArgumentValueError(
                    f"solidity_calldata: public value {index} is not in 0 .. r-1"
                )
        ax, ay = get_integers(self.pi_a) or (0, 0)
        (bx0, bx1), (by0, by1) = get_integers(self.pi_b) or ((0, 0), (0, 0))
        cx, cy = get_integers(self.pi_c) or (0, 0)
        # The precompiled contract takes the coefficient of u first.
        b = f"[{_join_words(bx1, bx0)}],[{_join_words(by1, by0)}]"
        inputs = ",".join(_join_words(each) for each in values)
        return f"[{_join_words(ax, ay)}],[{b}],[{_join_words(cx, cy)}],[{inputs}]"


def _join_words(*numbers: int) -> str:
    return ", ".join(f'"0x{each:0{WORD_DIGITS}x}"' for each in numbers)


# --- public values ---


def parse_public(public: PublicValues) -> list[int]:
    """Public values as Python integers of any size.

    Args:
        public (sequence of int): A list, a tuple or an array of one axis, of integers of Python or
            NumPy.
    """
    if isinstance(public, np.ndarray):
        if public.ndim != 1:
            raise ArgumentShapeError(f"public: must have one axis, not {public.ndim}")
    elif not isinstance(public, list | tuple):
        raise ArgumentTypeError(
            f"public: must be a list or a tuple of integers, not {type(public).__name__}"
        )
    for index, value in enumerate(public):
        # A time of NumPy is one of its integers, too.
        is_other = isinstance(value, bool | np.timedelta64)
        if is_other or not isinstance(value, int | np.integer):
            raise ArgumentTypeError(
                f"public: value {index} must be an integer, not {type(value).__name__}; "
                "public_from_json reads the strings of a public.json"
            )
    return [int(value) for value in public]


def public_to_json(public: PublicValues) -> str:
    """The text of snarkjs's public.json.

    Args:
        public (sequence of int): The public values.
    """
    values = parse_public(public)
    for index, value in enumerate(values):
        if value < 0 or value >> SCALAR_BITS:
            raise ArgumentValueError(
                f"public_to_json: public value {index} is not in 0 .. 2^{SCALAR_BITS}-1"
            )
    return write_json([str(each) for each in values])


def public_from_json(text: str) -> list[int]:
    """The public values of a public.json; `ProofFileError` if the text is no list of decimal
    strings. Values that are not below r are read as they are, and `verify` returns False.

    Args:
        text (str): The text of the file.
    """
    content = load_json(text, "public values")
    if not isinstance(content, list):
        raise ProofFileError(f"public values: must be a list, not {describe(content)}")
    return [
        parse_number(value, SCALAR_BITS, f"public values: value {index}")
        for index, value in enumerate(content)
    ]
