"""Poseidon (https://eprint.iacr.org/2019/458): circomlib's, Plonky2's, and with parameters of your
own.

A round adds constants, raises elements to a power, and multiplies by a matrix M. Full rounds raise
all elements, partial ones the first alone. Partial rounds are computed with sparse matrices:

- A constant of an element that is not raised may be added after the power as well, so its product
  with M joins the constants of the next round. Only the first element keeps one.
- M is [[m, v], [w, A]] = [[m, v / A], [w, I]] * [[1, 0], [0, A]], and the right factor does not
  touch the first element: it may be applied before the power, and joins the matrix of the round
  before. The left factor has 2 width - 1 entries that are not 0 or 1.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, Literal

from gpu_executor.calls.arguments import describe, is_integer
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.fields import BN254_FR, GOLDILOCKS, Field
from gpu_executor.hashes.field_hash import Compression, FieldHash
from gpu_executor.hashes.grain import Grain
from gpu_executor.hashes.permutation import (
    MAX_WIDTH,
    Permutation,
    check_exponent,
    multiply_sum,
    parse_integer,
    raise_column,
    read_elements,
)
from gpu_executor.hashes.plonky2_constants import PLONKY2_CONSTANTS
from gpu_executor.hashes.sponge import Sponge, make_circomlib_sponge, make_padding_free_sponge
from gpu_executor.kernels.modules import SpecId
from gpu_executor.ops.field_hashes import Column
from gpu_executor.primes import Prime

Matrix = list[list[int]]
Variant = Literal["circomlib", "plonky2"]

FULL_ROUNDS = 8
CIRCOMLIB_PARTIAL_ROUNDS = (56, 57, 56, 60, 60, 63, 64, 63, 60, 66, 60, 65, 70, 60, 64, 68)
"""For 1 to 16 inputs."""
CIRCOMLIB = "circomlib, as circomlibjs 0.1.7 has it"
PLONKY2 = "Plonky2 5d9da5a65bbcba2c66eb29c035090eb2e9ccb05f"
PLONKY2_WIDTH, PLONKY2_PARTIAL_ROUNDS, PLONKY2_DIGEST = 12, 22, 4
PLONKY2_CIRCULANT = (17, 15, 41, 16, 2, 28, 13, 13, 39, 18, 34, 20)
PLONKY2_DIAGONAL = (8, *[0] * 11)


class PoseidonPermutation(Permutation):
    """Poseidon's permutation, with the constants and the matrix of its definition."""

    module = "poseidon"

    def __init__(
        self,
        field: Field,
        width: int,
        rounds: tuple[int, int],
        exponent: int,
        constants: Sequence[Sequence[int]],
        matrix: Matrix,
        source: str,
    ) -> None:
        """Args:
        field (Field): The field of the elements.
        width (int): The number of elements of a state.
        rounds (tuple): The numbers of full and partial rounds.
        exponent (int): That of the S-box.
        constants (sequence): `width` constants of each round, in the order of the rounds.
        matrix (list): The rows of the matrix.
        source (str): Where the parameters come from.
        """
        super().__init__(field, width, source)
        self.full_rounds, self.partial_rounds = rounds
        self.exponent = exponent
        self._matrix = matrix
        modulus, half = field.modulus, self.full_rounds // 2
        last = half + self.partial_rounds
        scalars, carried = _move_constants(constants[half:last], matrix, modulus)
        final = [list(row) for row in constants[last:]]
        final[0] = [(a + b) % modulus for a, b in zip(final[0], carried, strict=True)]
        self._full = [*map(list, constants[:half]), *final]
        sparse, self._last_matrix = _make_sparse(field.prime, matrix, self.partial_rounds)
        self._partial = list(zip(scalars, sparse, strict=True))

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        return (
            (SpecId.FULL_ROUNDS, self.full_rounds),
            (SpecId.PARTIAL_ROUNDS, self.partial_rounds),
            (SpecId.EXPONENT, self.exponent),
        )

    def list_constants(self) -> Sequence[int]:
        found = [value for row in self._full for value in row]
        for matrix in (self._matrix, self._last_matrix):
            found += [value for row in matrix for value in row]
        for constant, (row, column) in self._partial:
            found += [constant, *row, *column]
        return found

    def permute(self, state: list[Column]) -> list[Column]:
        modulus, half = self.prime.modulus, self.full_rounds // 2
        for index, constants in enumerate(self._full):
            if index == half:
                state = self._permute_partially(state)
            added = [(x + c) % modulus for x, c in zip(state, constants, strict=True)]
            raised = [raise_column(x, self.exponent, modulus) for x in added]
            matrix = self._last_matrix if index + 1 == half else self._matrix
            state = [multiply_sum(row, raised, modulus) for row in matrix]
        return state

    def _permute_partially(self, state: list[Column]) -> list[Column]:
        modulus = self.prime.modulus
        for constant, (row, column) in self._partial:
            first = raise_column((state[0] + constant) % modulus, self.exponent, modulus)
            rest = state[1:]
            mixed = multiply_sum(row, [first, *rest], modulus)
            state = [mixed]
            state += [(x + first * c) % modulus for x, c in zip(rest, column, strict=True)]
        return state


def _move_constants(
    constants: Sequence[Sequence[int]], matrix: Matrix, modulus: int
) -> tuple[list[int], list[int]]:
    """The constants of the first element in partial rounds, and what joins those of the round after
    them."""
    carried, scalars = [0] * len(matrix), []
    for row in constants:
        first, *rest = ((a + b) % modulus for a, b in zip(row, carried, strict=True))
        scalars.append(first)
        carried = [row[0] for row in _multiply(matrix, [[each] for each in (0, *rest)], modulus)]
    return scalars, carried


def _make_sparse(
    prime: Prime, matrix: Matrix, count: int
) -> tuple[list[tuple[list[int], list[int]]], Matrix]:
    """The first row and the rest of the first column of each partial round's matrix, and the matrix
    of the last full round before them."""
    modulus = prime.modulus
    corner, *right = matrix[0]
    below, minor = [row[:1] for row in matrix[1:]], [row[1:] for row in matrix[1:]]
    inverse = _invert(minor, modulus)
    found: list[tuple[list[int], list[int]]] = []
    # A round followed by n others has the left factor of [[1, 0], [0, minor^n]] * matrix.
    for _ in range(count):
        (right,) = _multiply([right], inverse, modulus)
        found.append(([corner, *right], [row[0] for row in below]))
        below = _multiply(minor, below, modulus)
    power = minor
    for bit in f"{count + 1:b}"[1:]:
        power = _multiply(power, power, modulus)
        power = _multiply(power, minor, modulus) if bit == "1" else power
    joined = [[*first, *rest] for first, rest in zip(below, power, strict=True)]
    return found[::-1], [matrix[0], *joined]


def _multiply(a: Matrix, b: Matrix, modulus: int) -> Matrix:
    """The product of two matrices."""
    columns = list(zip(*b, strict=True))
    return [[sum(map(operator.mul, row, each)) % modulus for each in columns] for row in a]


def _invert(matrix: Matrix, modulus: int) -> Matrix:
    """The inverse by Gauss-Jordan elimination; raises for a singular matrix."""
    size = len(matrix)
    rows = [[*row, *(int(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for at in range(size):
        pivot = next((i for i in range(at, size) if rows[i][at] % modulus), None)
        if pivot is None:
            raise ArgumentValueError(
                "matrix: without its first row and column it is singular, so it is no MDS matrix"
            )
        rows[at], rows[pivot] = rows[pivot], rows[at]
        scale = pow(rows[at][at], -1, modulus)
        rows[at] = [value * scale % modulus for value in rows[at]]
        for i, row in enumerate(rows):
            if i != at and row[at]:
                factor = row[at]
                rows[i] = [(x - factor * y) % modulus for x, y in zip(row, rows[at], strict=True)]
    return [row[size:] for row in rows]


class Poseidon(FieldHash):
    """Poseidon with parameters of your own; `poseidon` has those of other libraries."""

    def __init__(
        self,
        field: Field,
        width: int,
        rounds: tuple[int, int],
        constants: Any,
        matrix: Any,
        *,
        exponent: int | None = None,
        sponge: Sponge | None = None,
        compression: Compression = "sponge",
        name: str | None = None,
        source: str = "parameters of the caller's",
    ) -> None:
        """Poseidon from its parameters.

        Args:
            field (Field): The field of the elements.
            width (int): The number of elements of a state.
            rounds (tuple): The numbers of full and partial rounds; that of full rounds is even.
            constants (list or FieldArray): `width` integers of each round, in the order of the
                rounds, in nested lists or in one.
            matrix (list or FieldArray): The rows of the MDS matrix, `width` integers of each.
            exponent (int): That of the S-box; None: the smallest that makes a permutation.
            sponge (Sponge): How rows are absorbed; None: circomlib's, for rows of `width` - 1
                elements and digests of one.
            compression (str): How children are compressed, "sponge" or "permutation".
            name (str): The name in messages and in tables; None: one from the field and the width.
            source (str): Where the parameters come from, for `repr`.
        """
        if not isinstance(field, Field):
            raise ArgumentTypeError(f"Poseidon: field must be a Field, not {type(field).__name__}")
        width = parse_integer("Poseidon: width", width, 2, MAX_WIDTH)
        if not (sponge is None or isinstance(sponge, Sponge)):
            raise ArgumentTypeError(f"Poseidon: sponge is {describe(sponge)}, not a Sponge")
        full, partial = _check_rounds(rounds)
        permutation = PoseidonPermutation(
            field,
            width,
            (full, partial),
            check_exponent(field.prime, exponent),
            read_elements("constants", field, constants, (full + partial, width)),
            read_elements("matrix", field, matrix, (width, width)),
            source,
        )
        title = name or f"Poseidon {field.name} {width}"
        chosen = make_circomlib_sponge(width - 1, 1) if sponge is None else sponge
        super().__init__(title, permutation, chosen, compression)

    def _suggest(self, arity: int) -> str:
        if self.field == BN254_FR:
            return f"poseidon(BN254_FR, inputs={arity}) is circomlib's for {arity} children"
        return super()._suggest(arity)


def _check_rounds(rounds: Any) -> tuple[int, int]:
    try:
        full, partial = rounds
        valid = is_integer(full) and is_integer(partial)
        valid = valid and full % 2 == 0 and 2 <= full < 1024 and 0 <= partial < 1024
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ArgumentValueError(
            "rounds must be the numbers of full and partial rounds, the first of them even, such "
            f"as (8, 57), not {rounds!r}"
        )
    return int(full), int(partial)


def poseidon(
    field: Field = BN254_FR,
    inputs: int | None = None,
    outputs: int = 1,
    variant: Variant | None = None,
) -> FieldHash:
    """Poseidon as another library has it.

    "circomlib" hashes rows of exactly `inputs` elements of BN254_FR. "plonky2" is of width 12 over
    GOLDILOCKS: a padding-free sponge (`hash_no_pad`) with digests of four elements, and a truncated
    permutation to compress (`two_to_one`).

    Args:
        field (Field): BN254_FR or GOLDILOCKS.
        inputs (int): For circomlib's, the elements of a row, 1 to 16; None for 2.
        outputs (int): For circomlib's, the elements of a digest.
        variant (str): Whose parameters, "circomlib" or "plonky2"; None: those of the field.
    """
    if not isinstance(field, Field):
        raise ArgumentTypeError(f"poseidon: field must be a Field, not {type(field).__name__}")
    fields = {"circomlib": BN254_FR, "plonky2": GOLDILOCKS}
    if variant is None:
        variant = "plonky2" if field == GOLDILOCKS else "circomlib"
    if not isinstance(variant, str) or variant not in fields:
        raise ArgumentValueError(
            f"poseidon: variant must be 'circomlib' or 'plonky2', not {variant!r}"
        )
    if fields[variant] != field:
        raise ArgumentValueError(
            f"poseidon: {variant}'s parameters are for {fields[variant].name}, not for "
            f"{field.name}; Poseidon(field, width, rounds, constants, matrix) takes your own"
        )
    if variant == "plonky2":
        if inputs is not None or outputs != 1:
            raise ArgumentValueError(
                "poseidon: inputs and outputs are for circomlib's; Plonky2's takes rows of any "
                "length and has digests of 4 elements"
            )
        return _make_plonky2()
    count = parse_integer("poseidon: inputs", 2 if inputs is None else inputs, 1, 16)
    return _make_circomlib(count, parse_integer("poseidon: outputs", outputs, 1, count + 1))


@functools.cache
def _make_circomlib(inputs: int, outputs: int) -> Poseidon:
    width, rounds = inputs + 1, (FULL_ROUNDS, CIRCOMLIB_PARTIAL_ROUNDS[inputs - 1])
    grain = Grain(BN254_FR.prime, width, *rounds)
    constants = grain.draw_elements(width * sum(rounds))
    return Poseidon(
        BN254_FR,
        width,
        rounds,
        constants,
        grain.draw_cauchy_matrix(width),
        exponent=5,
        sponge=make_circomlib_sponge(inputs, outputs),
        name=f"Poseidon bn254_fr, {inputs} inputs (circomlib)",
        source=CIRCOMLIB,
    )


@functools.cache
def _make_plonky2() -> Poseidon:
    width = PLONKY2_WIDTH
    matrix = [
        [PLONKY2_CIRCULANT[(j - i) % width] + (i == j) * PLONKY2_DIAGONAL[i] for j in range(width)]
        for i in range(width)
    ]
    return Poseidon(
        GOLDILOCKS,
        width,
        (FULL_ROUNDS, PLONKY2_PARTIAL_ROUNDS),
        PLONKY2_CONSTANTS,
        matrix,
        exponent=7,
        sponge=make_padding_free_sponge(width, PLONKY2_DIGEST, PLONKY2_DIGEST),
        compression="permutation",
        name="Poseidon goldilocks 12 (plonky2)",
        source=PLONKY2,
    )
