"""`Witness`: the values of a circuit's signals, and .wtns files, which hold them.

A .wtns file has two sections: the header (bytes of a value, the prime, the number of values) and
the values, plain. Value 0 is the constant 1. Values are secrets: no message and no `repr` shows
one.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Mapping, Set
from typing import Any, NoReturn

import numpy as np

from gpu_executor.calls.arguments import describe
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ElementIndexError,
    WitnessError,
)
from gpu_executor.groth16.proof_curve import ProofCurve, get_proof_curve
from gpu_executor.groth16.sections import (
    Buffer,
    PathLike,
    SectionFile,
    SectionReader,
    Words32,
    find_not_below,
    write_sections,
)

MAGIC = b"wtns"
VERSION = 2
HEADER, VALUES = 1, 2
NAMES = {HEADER: "header", VALUES: "values"}
VALUE_WORDS = 8
NOT_VALUES = (str, bytes, bytearray, memoryview, Mapping, Set)
"""What can be iterated and is no list of integers: texts, bytes and what has no order."""


class Witness:
    """The values of all signals of a circuit: value 0 is the constant 1, then come the public ones.

    `load_witness` reads one from a file, and `Witness.from_values` makes one of integers. The
    values do not change.

    Args:
        curve (ProofCurve): The curve of whose scalar field the values are.
        words (array): The plain values, (n, 8) words of 32 bits, which have been checked. The
            witness keeps the array.
    """

    def __init__(self, curve: ProofCurve, words: Words32) -> None:
        self.curve = curve
        self.words = words.view()
        """The plain values: (n, 8) words, the lowest first."""
        self.words.flags.writeable = False

    @classmethod
    def from_values(cls, values: Any, curve: ProofCurve) -> Witness:
        """A witness of integers, or of words.

        Raises `WitnessError` for a value that is not in 0 .. r - 1, or if value 0 is not 1.

        Args:
            values (Iterable[int] | array): The values: integers, or a NumPy array of words with
                shape (n, 8) and 32 bits, or (n, 4) and 64 bits.
            curve (ProofCurve): The curve of whose scalar field the values are.
        """
        if isinstance(values, np.ndarray) and values.ndim != 1:
            words = _copy_words(values)
        else:
            is_time = isinstance(values, np.ndarray) and values.dtype.kind in "mM"
            if is_time or isinstance(values, NOT_VALUES) or not isinstance(values, Iterable):
                raise ArgumentTypeError(
                    f"values must be integers or an array of words, not {describe(values)}"
                )
            listed = values.tolist() if isinstance(values, np.ndarray) else values
            words = _encode_values(listed, curve)
        bad = find_not_below(words, curve.r)
        if bad is not None:
            _refuse_value(bad, curve)
        if not len(words) or not _is_one(words[0]):
            raise WitnessError("values: value 0 must be 1, the constant of every circuit")
        return cls(curve, words)

    def save(self, path: PathLike) -> None:
        """Write a .wtns file that the user alone may read.

        Args:
            path (str | Path): The file, which is replaced in one step.
        """
        size = self.curve.scalar_bytes
        header = b"".join(
            (
                struct.pack("<I", size),
                self.curve.r.to_bytes(size, "little"),
                struct.pack("<I", len(self)),
            )
        )
        sections: list[tuple[int, list[Buffer]]] = [(HEADER, [header]), (VALUES, [self.words])]
        write_sections(path, MAGIC, VERSION, sections, private=True)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> int:
        try:
            position = operator.index(index)
        except TypeError:
            raise ArgumentTypeError(
                f"the index of a witness is an integer, not {describe(index)}"
            ) from None
        if not -len(self) <= position < len(self):
            raise ElementIndexError(f"value {position} of a witness of {len(self):,} values")
        return int.from_bytes(self.words[position].tobytes(), "little")

    def __repr__(self) -> str:
        return f"<Witness of {len(self):,} values, {self.curve.name}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.curve.name, np.asarray(self.words))


def load_witness(path: PathLike) -> Witness:
    """Read a .wtns file, as circom's calculators and snarkjs write it, and check every value.

    The values are copied: the next witness may be written over the file.

    Args:
        path (str | Path): The file.
    """
    file = SectionFile.open(path, MAGIC, (VERSION,), NAMES)
    reader = SectionReader(file, HEADER)
    curve = reader.read_scalar_curve()
    count = reader.read_u32("the number of values")
    reader.finish()
    size = curve.scalar_bytes
    place = file.require_length(VALUES, count * size, f"the header's number of values, {count:,},")
    if not count:
        file.fail("there are no values; value 0 must be 1", VALUES, place.offset)
    words = np.array(file.view(VALUES, "<u4", (count, VALUE_WORDS)))
    bad = find_not_below(words, curve.r)
    if bad is not None:
        file.fail(
            f"value {bad} is not below the prime of {curve.name}", VALUES, place.offset + bad * size
        )
    if not _is_one(words[0]):
        file.fail("value 0 is not 1, the constant of every circuit", VALUES, place.offset)
    return Witness(curve, words)


def require_fit(witness: Any, curve: ProofCurve, signals: int, whose: str) -> None:
    """Raise an error unless this is a witness with so many values of the curve; `whose` signals
    they are is for the message."""
    if not isinstance(witness, Witness):
        raise ArgumentTypeError(
            f"the witness is {describe(witness)}; load_witness and compute_witness make one"
        )
    if witness.curve != curve:
        raise WitnessError(f"the witness is of {witness.curve.name}, and {whose} of {curve.name}")
    if len(witness) != signals:
        raise WitnessError(
            f"the witness has {len(witness):,} values, and {whose} has {signals:,} signals; it is "
            "the witness of another circuit"
        )


def _restore(curve: str, words: Words32) -> Witness:
    return Witness(get_proof_curve(curve), words)


def _is_one(words: Words32) -> bool:
    return bool(words[0] == 1 and not words[1:].any())


def _copy_words(values: np.ndarray[Any, Any]) -> Words32:
    shapes = {np.dtype(np.uint32): VALUE_WORDS, np.dtype(np.uint64): VALUE_WORDS // 2}
    width = shapes.get(values.dtype)
    if width is None:
        raise ArgumentTypeError(f"values: words are uint32 or uint64, not {values.dtype}")
    if values.ndim != 2 or values.shape[1] != width:
        raise ArgumentShapeError(
            f"values: words of {values.dtype} have the shape (n, {width}), not {values.shape}"
        )
    return np.array(values, order="C").view(np.uint32)


def _encode_values(values: Iterable[Any], curve: ProofCurve) -> Words32:
    size = curve.scalar_bytes
    encoded = bytearray()
    for index, value in enumerate(values):
        try:
            encoded += operator.index(value).to_bytes(size, "little")
        except TypeError:
            raise ArgumentTypeError(
                f"values: value {index} is {describe(value)}, not an integer"
            ) from None
        except OverflowError:
            _refuse_value(index, curve)
    return np.frombuffer(encoded, np.uint32).reshape(-1, VALUE_WORDS)


def _refuse_value(index: int, curve: ProofCurve) -> NoReturn:
    raise WitnessError(f"values: value {index} is not in 0 .. r - 1 of {curve.name}") from None
