"""Poseidon2 (https://eprint.iacr.org/2023/323): the permutations of other libraries.

All of them take their round constants from the Grain LFSR. They differ in the matrix of blocks and
in the diagonal of the internal matrix. Diagonals are results of a search, so they are listed here.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from gpu_executor.calls.arguments import is_integer
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.fields import BABYBEAR, BN254_FR, GOLDILOCKS, KOALABEAR, MERSENNE31, Field
from gpu_executor.hashes.field_hash import FieldHash
from gpu_executor.hashes.grain import Grain
from gpu_executor.hashes.permutation import Permutation, raise_column
from gpu_executor.hashes.sponge import make_noir_sponge, make_padding_free_sponge
from gpu_executor.kernels.field_hashes import diagonal_constants
from gpu_executor.kernels.modules import SpecId
from gpu_executor.ops.field_hashes import Column

Variant = Literal["plonky3", "horizen", "noir"]

FULL_ROUNDS = 8
SOURCES: dict[str, str] = {
    "plonky3": "Plonky3 5dc50e51436a811c62443e336f766015fecc9217",
    "horizen": "HorizenLabs/poseidon2 055bde3f4782731ba5f5ce5888a440a94327eaf3",
    "noir": "Noir and Barretenberg, as @zkpassport/poseidon2 0.6.2 has them",
}


@dataclass(frozen=True, slots=True)
class _Instance:
    """What a library chose for a field and a width."""

    exponent: int
    partial_rounds: int
    diagonal: str
    """The diagonal of the internal matrix less one: numbers such as 3, -1/8 or 0x1f; a number of
    the form a>b is a / 2^b, and a<b is a * 2^b."""
    circulant: bool = False
    """Whether blocks are multiplied by circ(2, 3, 1, 1)."""


_MERSENNE_16 = "-2 1 2 4 8 16 32 64 1<7 1<8 1<10 1<12 1<13 1<14 1<15 1<16"
_MERSENNE_24 = "-2 " + " ".join(f"1<{shift}" for shift in range(23))

INSTANCES: dict[tuple[Variant, str, int], _Instance] = {
    ("plonky3", "babybear", 16): _Instance(
        7, 13, "-2 1 2 1>1 3 4 -1>1 -3 -4 1>8 1>2 1>3 1>27 -1>8 -1>4 -1>27", True
    ),
    ("plonky3", "babybear", 24): _Instance(
        7,
        21,
        "-2 1 2 1>1 3 4 -1>1 -3 -4 1>8 1>2 1>3 1>4 1>7 1>9 1>27 "
        "-1>8 -1>2 -1>3 -1>4 -1>5 -1>6 -1>7 -1>27",
        True,
    ),
    ("plonky3", "koalabear", 16): _Instance(
        3, 20, "-2 1 2 1>1 3 4 -1>1 -3 -4 1>8 1>3 1>24 -1>8 -1>3 -1>4 -1>24", True
    ),
    ("plonky3", "koalabear", 24): _Instance(
        3,
        23,
        "-2 1 2 1>1 3 4 -1>1 -3 -4 1>8 1>2 1>3 1>4 1>5 1>6 1>24 "
        "-1>8 -1>3 -1>4 -1>5 -1>6 -1>7 -1>9 -1>24",
        True,
    ),
    ("plonky3", "mersenne31", 16): _Instance(5, 14, _MERSENNE_16, True),
    ("plonky3", "mersenne31", 24): _Instance(5, 22, _MERSENNE_24, True),
    ("plonky3", "goldilocks", 8): _Instance(7, 22, "-2 1 2 1>1 3 -1>1 -3 -4", True),
    ("plonky3", "goldilocks", 12): _Instance(7, 22, "-2 1 2 1>1 3 4 -1>1 -3 -4 1>2 -1>2 1>3", True),
    ("plonky3", "bn254_fr", 3): _Instance(5, 56, "1 1 2"),
    ("horizen", "bn254_fr", 3): _Instance(5, 56, "1 1 2"),
    ("horizen", "goldilocks", 8): _Instance(
        7,
        22,
        "0xa98811a1fed4e3a5 0x1cc48b54f377e2a0 0xe40cd4f6c5609a26 0x11de79ebca97a4a3 "
        "0x9177c73d8b7e929c 0x2a6fe8085797e791 0x3de6e93329f8d5ad 0x3f7af9125da962fe",
    ),
    ("horizen", "goldilocks", 12): _Instance(
        7,
        22,
        "0xc3b6c08e23ba9300 0xd84b5de94a324fb6 0x0d0c371c5b35b84f 0x7964f570e7188037 "
        "0x5daf18bbd996604b 0x6743bc47b9595257 0x5528b9362c59bb70 0xac45e25b7127b68b "
        "0xa2077d7dfbb606b5 0xf3faac6faee378ae 0x0c6388b51545e883 0xd27dbb6944917b60",
    ),
    ("horizen", "babybear", 16): _Instance(
        7,
        13,
        "0x0a632d94 0x6db657b7 0x56fbdc9e 0x052b3d8a 0x33745201 0x5c03108c 0x0beba37b 0x258c2e8b "
        "0x12029f39 0x694909ce 0x6d231724 0x21c3b222 0x3c0904a5 0x01d6acda 0x27705c83 0x5231c802",
    ),
    ("horizen", "babybear", 24): _Instance(
        7,
        21,
        "0x409133f0 0x1667a8a1 0x06a6c7b6 0x6f53160e 0x273b11d1 0x03176c5d 0x72f9bbf9 0x73ceba91 "
        "0x5cdef81d 0x01393285 0x46daee06 0x065d7ba6 0x52d72d6f 0x05dd05e0 0x3bab4b63 0x6ada3842 "
        "0x2fc5fbec 0x770d61b0 0x5715aae9 0x03ef0e90 0x75b6c770 0x242adf5f 0x00d0ca4c 0x36c0e388",
    ),
    ("noir", "bn254_fr", 4): _Instance(
        5,
        56,
        "0x10dc6e9c006ea38b04b1e03b4bd9490c0d03f98929ca1d7fb56821fd19d3b6e7 "
        "0x0c28145b6a44df3e0149b3d0a30b3bb599df9756d4dd9b84a86b38cfb45a740b "
        "0x00544b8338791518b2c7645a50392798b21f75bb60e3596170067d00141cac15 "
        "0x222c01175718386f2e2e82eb122789e352e105a3b8fa852613bc534433ee428b",
    ),
}
"""By variant, name of the field and width."""

CAPACITIES = {"babybear": 8, "koalabear": 8, "mersenne31": 8, "goldilocks": 4, "bn254_fr": 1}
"""The elements of a digest, and those of a state that rows do not enter, by field."""
_FIELDS = {each.name: each for each in (BABYBEAR, KOALABEAR, MERSENNE31, GOLDILOCKS, BN254_FR)}


class Poseidon2Permutation(Permutation):
    """External rounds, which raise every element to a power, around internal ones, which raise the
    first element alone. The external matrix precedes the first round."""

    module = "poseidon2"

    def __init__(
        self,
        field: Field,
        width: int,
        rounds: tuple[int, int],
        exponent: int,
        constants: Sequence[int],
        diagonal: Sequence[int],
        *,
        circulant: bool,
        source: str,
    ) -> None:
        """Args:
        field (Field): The field of the elements.
        width (int): The number of elements of a state: 3, or a multiple of 4.
        rounds (tuple): The numbers of full and partial rounds.
        exponent (int): That of the S-box.
        constants (sequence of int): Those of the first full rounds, `width` of each; one of each
            partial round; those of the other full rounds.
        diagonal (sequence of int): The diagonal of the internal matrix, less one.
        circulant (bool): Whether blocks are multiplied by circ(2, 3, 1, 1), and not by the matrix
            of the paper.
        source (str): Where the parameters come from.
        """
        super().__init__(field, width, source)
        self.full_rounds, self.partial_rounds = rounds
        self.exponent = exponent
        self.diagonal = tuple(each % field.modulus for each in diagonal)
        self.circulant = circulant
        first = self.full_rounds // 2 * width
        self._partial = tuple(constants[first : first + self.partial_rounds])
        self._full = (*constants[:first], *constants[first + self.partial_rounds :])

    @functools.cached_property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        return (
            (SpecId.FULL_ROUNDS, self.full_rounds),
            (SpecId.PARTIAL_ROUNDS, self.partial_rounds),
            (SpecId.EXPONENT, self.exponent),
            (SpecId.CIRCULANT, self.circulant),
            *diagonal_constants(self.prime, self.diagonal),
        )

    def list_constants(self) -> Sequence[int]:
        return (*self._full, *self.diagonal, *self._partial)

    def permute(self, state: list[Column]) -> list[Column]:
        modulus, width, half = self.prime.modulus, self.width, self.full_rounds // 2
        state = self._mix(state)
        for index in range(self.full_rounds):
            if index == half:
                state = self._permute_internally(state)
            constants = self._full[index * width : (index + 1) * width]
            added = [(x + c) % modulus for x, c in zip(state, constants, strict=True)]
            state = self._mix([raise_column(x, self.exponent, modulus) for x in added])
        return state

    def _permute_internally(self, state: list[Column]) -> list[Column]:
        modulus = self.prime.modulus
        for constant in self._partial:
            first = raise_column((state[0] + constant) % modulus, self.exponent, modulus)
            state = [first, *state[1:]]
            total = np.add.reduce(state)
            state = [
                (x * factor + total) % modulus
                for x, factor in zip(state, self.diagonal, strict=True)
            ]
        return state

    def _mix(self, state: list[Column]) -> list[Column]:
        """The external matrix: sums of few elements, so 64-bit integers do not overflow."""
        modulus = self.prime.modulus
        if self.width % 4:
            total = np.add.reduce(state)
            return [(x + total) % modulus for x in state]
        mixed: list[Column] = []
        for at in range(0, self.width, 4):
            a, b, c, d = state[at : at + 4]
            if self.circulant:
                total = a + b + c + d
                mixed += [a + b + b + total, b + c + c + total, c + d + d + total]
                mixed.append(d + a + a + total)
            else:
                mixed += [5 * a + 7 * b + c + 3 * d, 4 * a + 6 * b + c + d]
                mixed += [a + 3 * b + 5 * c + 7 * d, a + b + 4 * c + 6 * d]
        if self.width == 4:
            return [x % modulus for x in mixed]
        totals = [np.add.reduce(mixed[at::4]) for at in range(4)]
        return [(x + totals[at % 4]) % modulus for at, x in enumerate(mixed)]


def poseidon2(field: Field, width: int | None = None, variant: Variant = "plonky3") -> FieldHash:
    """Poseidon2 as another library has it.

    "plonky3" and "horizen" have a padding-free sponge, and truncate the permutation to compress.
    "noir" hashes with the sponge of Noir's `Poseidon2::hash`.

    Args:
        field (Field): BABYBEAR, KOALABEAR, MERSENNE31, GOLDILOCKS or BN254_FR.
        width (int): The number of elements of a state; None: the least that the variant has.
        variant (str): Whose parameters: "plonky3", "horizen" or "noir".
    """
    if not isinstance(field, Field):
        raise ArgumentTypeError(f"poseidon2: field must be a Field, not {type(field).__name__}")
    if variant not in get_args(Variant):
        raise ArgumentValueError(
            f"poseidon2: variant must be one of {', '.join(get_args(Variant))}, not {variant!r}"
        )
    name = next((name for name, each in _FIELDS.items() if each == field), field.name)
    widths = [at for of, at_field, at in INSTANCES if (of, at_field) == (variant, name)]
    chosen = min(widths, default=0) if width is None else width
    if not is_integer(chosen) or chosen not in widths:
        known = [f"{of} {at}" for of, at_field, at in INSTANCES if at_field == name]
        found = f"; there are {', '.join(known)}" if known else f"; fields: {', '.join(_FIELDS)}"
        raise ArgumentValueError(
            f"poseidon2: {variant} has no parameters for {field.name}"
            f"{'' if width is None else f' of width {width!r}'}{found}"
        )
    return _make_poseidon2(name, int(chosen), variant)


def list_poseidon2() -> list[FieldHash]:
    """All that `poseidon2` makes."""
    return [_make_poseidon2(name, width, variant) for variant, name, width in INSTANCES]


@functools.cache
def _make_poseidon2(name: str, width: int, variant: Variant) -> FieldHash:
    field, instance = _FIELDS[name], INSTANCES[variant, name, width]
    rounds = FULL_ROUNDS, instance.partial_rounds
    constants = Grain(field.prime, width, *rounds).draw_elements(
        FULL_ROUNDS * width + instance.partial_rounds
    )
    permutation = Poseidon2Permutation(
        field,
        width,
        rounds,
        instance.exponent,
        constants,
        [_parse_number(text, field.modulus) for text in instance.diagonal.split()],
        circulant=instance.circulant,
        source=SOURCES[variant],
    )
    title = f"Poseidon2 {name} {width} ({variant})"
    if variant == "noir":
        return FieldHash(title, permutation, make_noir_sponge(width), "sponge")
    digest = CAPACITIES[name]
    sponge = make_padding_free_sponge(width, digest, digest)
    return FieldHash(title, permutation, sponge, "permutation")


def _parse_number(text: str, modulus: int) -> int:
    """A number as `_Instance.diagonal` writes it, modulo p."""
    if ">" in text:
        number, shift = map(int, text.split(">"))
        return number * pow(2, -shift, modulus) % modulus
    if "<" in text:
        number, shift = map(int, text.split("<"))
        return (number << shift) % modulus
    return int(text, 0) % modulus
