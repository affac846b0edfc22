"""`Sponge`: how a permutation becomes a hash function of rows.

A sponge says where elements of a row go and what becomes of the rest of a block, the state ahead of
the first element, and which elements are the digest. Those of other libraries are here, each by its
name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

from gpu_executor.calls.arguments import is_integer
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.ops.field_hashes import Absorption, Mode

AbsorptionMode = Literal["keep", "clear", "add"]
Capacity = tuple[tuple[int, int], ...]
"""Elements of the initial state that are not 0: index and value."""


def _begin_with_zeros(_length: int) -> Capacity:
    return ()


@dataclass(frozen=True, slots=True)
class Sponge:
    """The rules by which rows of elements are absorbed into a state and digests taken from it."""

    name: str
    rate: int
    """The elements of a block: so many precede each permutation."""
    first: int = 0
    """The index in the state of the first element of a block."""
    mode: AbsorptionMode = "keep"
    """"keep": elements replace those of the state, whose others remain; "clear": the others of an
    incomplete block become 0; "add": elements are added to those of the state."""
    outputs: int = 1
    """The elements of a digest."""
    output_first: int = 0
    """The index in the state of the digest's first element."""
    squeezed: int | None = None
    """The elements of the digest that a permutation yields; None: the whole digest."""
    begin: Callable[[int], Capacity] = _begin_with_zeros
    """The initial state, from the length of a row."""
    length: int | None = None
    """The only length of a row; None: any."""
    permutes_empty_rows: bool = False
    """Whether a row without elements is one block."""

    def check(self, width: int) -> None:
        """Raise `ArgumentTypeError` or `ArgumentValueError` unless the sponge is one of states of
        `width` elements."""
        if self.mode not in get_args(AbsorptionMode):
            raise ArgumentValueError(
                f"{self.name}: mode is {self.mode!r}; it must be 'keep', 'clear' or 'add'"
            )
        for name in ("rate", "first", "outputs", "output_first", "squeezed", "length"):
            value = getattr(self, name)
            if not is_integer(value) and not (value is None and name in ("squeezed", "length")):
                raise ArgumentTypeError(f"{self.name}: {name} is {value!r}; it must be an integer")
        squeezed = self.outputs if self.squeezed is None else self.squeezed
        for first, count, what in (
            (self.first, self.rate, "elements of a block"),
            (self.output_first, squeezed, "elements that a permutation yields"),
        ):
            if first < 0 or count < 1 or first + count > width:
                raise ArgumentValueError(
                    f"{self.name}: {count} {what} from index {first} on are not in a state of "
                    f"{width} elements; there must be one at least"
                )
        if self.outputs < 1:
            raise ArgumentValueError(f"{self.name}: outputs is {self.outputs}; it must be positive")

    def absorb(self, length: int, width: int) -> Absorption:
        """How rows of a length are absorbed into a state.

        Args:
            length (int): The elements of a row.
            width (int): The elements of the state.
        """
        initial = [0] * width
        for index, value in self.begin(length):
            if not (is_integer(index) and 0 <= index < width and is_integer(value)):
                raise ArgumentValueError(
                    f"{self.name}: begin gives {value!r} for index {index!r}; it must give "
                    f"integers for indices of a state of {width} elements"
                )
            initial[index] = value
        return Absorption(
            length=length,
            rate=self.rate,
            first=self.first,
            mode=Mode[self.mode.upper()],
            initial=tuple(initial),
            blocks=max(-(-length // self.rate), int(self.permutes_empty_rows)),
            output_first=self.output_first,
            outputs=self.outputs,
            squeezed=self.squeezed or self.outputs,
        )


def make_padding_free_sponge(width: int, capacity: int, digest: int) -> Sponge:
    """Plonky3's `PaddingFreeSponge` and Plonky2's `hash_no_pad`: elements replace the first ones of
    the state, and where the last block has none the state remains. Only for rows of one length:
    rows of different lengths may have the same digest."""
    return Sponge("padding-free sponge", rate=width - capacity, outputs=digest)


def make_circomlib_sponge(inputs: int, outputs: int) -> Sponge:
    """circomlib's `PoseidonEx`: the state is 0 followed by all inputs, and the digest its first
    elements after one permutation."""
    return Sponge(
        "circomlib's sponge",
        rate=inputs,
        first=1,
        outputs=outputs,
        length=inputs,
        permutes_empty_rows=True,
    )


def _begin_with_length(index: int, shift: int, length: int) -> Capacity:
    return ((index, length << shift),)


def make_noir_sponge(width: int) -> Sponge:
    """Noir's and Barretenberg's `Poseidon2::hash`: elements are added, and the last element of the
    state begins as 2^64 times the length."""
    return Sponge(
        "Noir's sponge",
        rate=width - 1,
        mode="add",
        begin=partial(_begin_with_length, width - 1, 64),
        permutes_empty_rows=True,
    )


def _begin_with_remainder(index: int, rate: int, length: int) -> Capacity:
    return ((index, length % rate),)


def make_miden_sponge(rate: int, first: int, capacity: int, digest: int) -> Sponge:
    """Miden's `hash_elements`: elements replace those of the state, the rest of the last block is
    0, and the first element of the capacity, at that index, begins as the length modulo the
    rate."""
    return Sponge(
        "Miden's sponge",
        rate=rate,
        first=first,
        mode="clear",
        outputs=digest,
        output_first=first,
        begin=partial(_begin_with_remainder, capacity, rate),
    )
