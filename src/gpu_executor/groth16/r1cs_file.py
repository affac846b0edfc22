"""Circuits as systems of rank-1 constraints: .r1cs files, as circom writes them.

Constraint i says <A_i, w> <B_i, w> = <C_i, w> of the witness w. Section 2 has three records for
each constraint, of A, B and C: the number of terms (32 bits), then a wire (32 bits) and a plain
value of 32 bytes for each term. Where a record begins depends on the lengths of all before it.

`_find_records` walks through many parts of the section at once: it guesses a record in each part,
walks from all of them in step, and keeps a walk only if the one before it arrives at its beginning.
A guess can be wrong and costs time only: the records that are found always form one chain from the
first word to the last. At 2^20 constraints (3.1 million records, 255 MB) this takes 0.2 s on a
server of two cores, and a walk of one record after the other 1.6 s. `R1cs.open` takes 0.7 s in all:
the rest is copying and checking the terms. Its arrays have the size of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ArgumentValueError
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.sections import (
    Buffer,
    PathLike,
    SectionFile,
    SectionReader,
    Words32,
    find_not_below,
    write_sections,
)

Positions: TypeAlias = npt.NDArray[np.int64]

MAGIC = b"r1cs"
VERSION = 1
HEADER, CONSTRAINTS, WIRE_MAP, CUSTOM_GATES, CUSTOM_GATE_USES = range(1, 6)
NAMES = {
    HEADER: "header",
    CONSTRAINTS: "constraints",
    WIRE_MAP: "wire map",
    CUSTOM_GATES: "custom gates",
    CUSTOM_GATE_USES: "uses of custom gates",
}
MATRICES = "ABC"
VALUE_WORDS = 8
TERM_WORDS = 1 + VALUE_WORDS
PART_WORDS = 1 << 15
"""Words of the constraints' section that one walk goes through."""
GUESS_CANDIDATES = 512
"""Words at the beginning of a part that are tried as a record's beginning."""
GUESS_STEP = 64
"""How many of them are tried at once."""
GUESS_RECORDS = 8
"""Records with terms, one after the other, that must look like records before a guess is made."""
LEAST_WALKS = 16
"""So many walks take a step together in the time in which one record after the other is read."""
WRITE_CONSTRAINTS = 1 << 16
"""Constraints that are encoded at once."""


@dataclass(frozen=True, eq=False)
class R1csMatrix:
    """A sparse matrix with a row for each constraint. A wire that a row has twice counts as the
    sum."""

    row_starts: Positions
    """Where the terms of each row begin, and where those of the last row end."""
    wires: Words32
    """The wire of each term."""
    values: Words32
    """The plain value of each term: (terms, 8) words, the lowest first."""


@dataclass(frozen=True, eq=False)
class R1cs:
    """A circuit: its numbers of wires, and the matrices of its constraints."""

    curve: ProofCurve
    n_wires: int
    """Signals of the witness, the constant 1 included."""
    n_public_outputs: int
    n_public_inputs: int
    n_private_inputs: int
    n_labels: int
    """Signals of the source, before any were optimized away."""
    n_constraints: int
    a: R1csMatrix
    b: R1csMatrix
    c: R1csMatrix

    @property
    def n_public(self) -> int:
        """Public signals: outputs, then inputs."""
        return self.n_public_outputs + self.n_public_inputs

    @classmethod
    def open(cls, path: PathLike) -> R1cs:
        """Read a circuit and check every term. Custom gates are refused.

        Args:
            path (str | Path): The file.
        """
        file = SectionFile.open(path, MAGIC, (VERSION,), NAMES)
        reader = SectionReader(file, HEADER)
        curve = reader.read_scalar_curve()
        n_wires, outputs, inputs, private = (
            reader.read_u32(f"the number of {what}")
            for what in ("wires", "public outputs", "public inputs", "private inputs")
        )
        n_labels = reader.read_integer(8, "the number of labels")
        n_constraints = reader.read_u32("the number of constraints")
        reader.finish()
        if n_wires <= outputs + inputs:
            reader.fail(
                f"the circuit has {n_wires:,} wires, {outputs:,} public outputs and {inputs:,} "
                "public inputs; there must be more wires than these, because the constant 1 is one",
                reader.offset - file.get(HEADER).offset - 4 - curve.scalar_bytes,
            )
        _refuse_custom_gates(file)
        if WIRE_MAP in file:
            file.require_length(
                WIRE_MAP, 8 * n_wires, f"the header's number of wires, {n_wires:,},"
            )
        matrices = _read_matrices(file, curve, n_wires, n_constraints)
        return cls(curve, n_wires, outputs, inputs, private, n_labels, n_constraints, *matrices)


def _refuse_custom_gates(file: SectionFile) -> None:
    for section in (CUSTOM_GATES, CUSTOM_GATE_USES):
        if section in file and file.get(section).length:
            count = SectionReader(file, section).read_u32("the number of custom gates")
            if count:
                file.fail(
                    f"the circuit has custom gates ({count:,}), which only PLONK can prove; "
                    "compile it without custom templates",
                    section,
                    file.get(section).offset,
                )


def _read_matrices(
    file: SectionFile, curve: ProofCurve, n_wires: int, n_constraints: int
) -> list[R1csMatrix]:
    place = file.get(CONSTRAINTS)
    records = 3 * n_constraints
    terms, rest = divmod(place.length - 4 * records, 4 * TERM_WORDS)
    if terms < 0 or rest:
        file.fail(
            f"the section has {place.length:,} bytes; the header's number of constraints, "
            f"{n_constraints:,}, makes {12 * n_constraints:,} and {4 * TERM_WORDS} for each term",
            CONSTRAINTS,
            place.offset,
        )
    words = file.view(CONSTRAINTS, "<u4", (place.length // 4,))
    starts = _find_records(words, records, n_wires)
    if starts is None:
        _refuse_chain(file, words, records)
    found = []
    for index, name in enumerate(MATRICES):
        matrix, positions = _gather_matrix(words, starts[index::3])
        _check_terms(file, curve, n_wires, name, matrix, positions)
        found.append(matrix)
    return found


def _gather_matrix(words: Words32, starts: Positions) -> tuple[R1csMatrix, Positions]:
    """The matrix whose records begin at these words, and the first word of each term."""
    row_starts, positions = _place_terms(starts, words[starts].astype(np.int64))
    values = _view_values(words)[positions + 1].view(np.uint32).reshape(-1, VALUE_WORDS)
    return R1csMatrix(row_starts, words[positions], values), positions


def _place_terms(starts: Positions, counts: Positions) -> tuple[Positions, Positions]:
    """Where the terms of each row begin among all terms, and the first word of each term."""
    row_starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=row_starts[1:])
    positions = np.repeat(starts + 1 - TERM_WORDS * row_starts[:-1], counts)
    positions += np.arange(0, TERM_WORDS * len(positions), TERM_WORDS)
    return row_starts, positions


def _view_values(words: Words32) -> npt.NDArray[np.void]:
    """The value of 32 bytes that begins at each word."""
    size = max(len(words) - VALUE_WORDS + 1, 0)
    return np.ndarray((size,), "V32", buffer=words.view(np.uint8), strides=(4,))


def _check_terms(
    file: SectionFile,
    curve: ProofCurve,
    n_wires: int,
    name: str,
    matrix: R1csMatrix,
    positions: Positions,
) -> None:
    def fail(term: int, reason: str) -> None:
        row = int(np.searchsorted(matrix.row_starts, term, "right")) - 1
        number = term - int(matrix.row_starts[row])
        offset = file.get(CONSTRAINTS).offset + 4 * int(positions[term])
        file.fail(f"constraint {row:,}, term {number:,} of {name}: {reason}", CONSTRAINTS, offset)

    if matrix.wires.size and int(matrix.wires.max()) >= n_wires:
        term = int(np.argmax(matrix.wires >= n_wires))
        fail(term, f"the wire is {int(matrix.wires[term]):,}; the circuit has {n_wires:,} wires")
    bad = find_not_below(matrix.values, curve.r)
    if bad is not None:
        fail(bad, f"the value is not below the prime of {curve.name}")


# --- records of the constraints' section ---


def _find_records(
    words: Words32, records: int, n_wires: int, part_words: int = PART_WORDS
) -> Positions | None:
    """The first word of each record; None if the words are not a chain of so many records."""
    starts = np.unique(np.append(_guess_records(words, n_wires, part_words), 0))
    limits = np.append(starts[1:], len(words))
    visited, ends = _walk_in_step(words, starts, limits)
    if not np.array_equal(ends, limits):
        chained = _link_walks(words, starts, visited, ends)
        if chained is None:
            return None
        visited = chained
    return visited if len(visited) == records else None


def _walk_in_step(
    words: Words32, starts: Positions, limits: Positions
) -> tuple[Positions, Positions]:
    """Walk from each of the starts to the first record at or after its limit, as long as there are
    enough walks. Returns all records before the limits, sorted, and the word where each walk ended.
    """
    ends, lengths = starts.copy(), np.zeros(len(starts), np.int64)
    walks = np.flatnonzero(starts < limits)
    positions, bounds = starts[walks], limits[walks]
    visited = []
    while walks.size >= LEAST_WALKS:
        visited.append((walks, positions))
        positions = positions + words[positions] * np.int64(TERM_WORDS) + 1
        inside = positions < bounds
        if not inside.all():
            ends[walks] = positions
            lengths[walks[~inside]] = len(visited)
            walks, positions, bounds = walks[inside], positions[inside], bounds[inside]
    ends[walks], lengths[walks] = positions, len(visited)
    # Walk by walk, the records are in order: no sort, which would take most of the time.
    places = np.cumsum(lengths) - lengths
    found = np.empty(int(lengths.sum()), np.int64)
    while visited:
        walks, positions = visited.pop()
        found[places[walks] + len(visited)] = positions
    return found, ends


def _link_walks(
    words: Words32, starts: Positions, visited: Positions, ends: Positions
) -> Positions | None:
    """The one chain from the first word to the last: where a walk did not end at the start of the
    next one, one record after the other up to the start of a later one. None if it ends elsewhere.
    """
    counts = words.view(np.uint8).data.cast("I")
    walk_at = {start: walk for walk, start in enumerate(starts.tolist())}
    borders = np.append(np.searchsorted(visited, starts), len(visited)).tolist()
    parts: list[Positions] = []
    single: list[int] = []
    position, size = 0, len(counts)
    while position < size:
        walk = walk_at.get(position)
        if walk is None or ends[walk] == position:
            single.append(position)
            position += 1 + TERM_WORDS * counts[position]
        else:
            parts += [np.array(single, np.int64), visited[borders[walk] : borders[walk + 1]]]
            single = []
            position = int(ends[walk])
    if position != size:
        return None
    return np.concatenate([*parts, np.array(single, np.int64)])


def _guess_records(words: Words32, n_wires: int, part_words: int) -> Positions:
    """Words where records probably begin, at most one for each part of the section but the first.

    A guess is a word from which a row of records follows that all look like records: they have
    wires that exist and values that are not 0.
    """
    begins = np.arange(part_words, len(words), part_words)
    guesses = np.full(len(begins), -1)
    for shift in range(0, GUESS_CANDIDATES, GUESS_STEP):
        parts = np.flatnonzero(guesses < 0)
        if not parts.size:
            break
        shifts = np.arange(shift, shift + GUESS_STEP)
        positions = (begins[parts, np.newaxis] + shifts).ravel()
        owners, reached = _follow_candidates(
            words, n_wires, np.repeat(parts, GUESS_STEP), positions, part_words
        )
        # Of several candidates of a part the first counts; most arrive at the same chain.
        found, first = np.unique(owners, return_index=True)
        guesses[found] = reached[first]
    return guesses[guesses >= 0]


def _follow_candidates(
    words: Words32, n_wires: int, owners: Positions, positions: Positions, part_words: int
) -> tuple[Positions, Positions]:
    """Walk on from candidates while they look like records. Returns the owners of those that did
    to the end, and the words where they are then."""
    values = _view_values(words)
    limits = np.minimum(positions + part_words, len(words) - 1)
    lasting = np.zeros(len(positions), np.int64)
    inside = positions <= limits
    owners, positions, limits, lasting = (
        each[inside] for each in (owners, positions, limits, lasting)
    )
    for _ in range(4 * GUESS_RECORDS):
        going = np.flatnonzero(lasting < GUESS_RECORDS)
        if not going.size:
            break
        counts = words[positions[going]]
        after = positions[going] + counts * np.int64(TERM_WORDS) + 1
        good = after <= limits[going]
        filled = np.flatnonzero(good & (counts > 0))
        first = positions[going[filled]] + 1
        value = values[first + 1].view(np.uint32).reshape(-1, VALUE_WORDS)
        good[filled] = (
            (words[first] < n_wires)
            & (words[after[filled] - TERM_WORDS] < n_wires)
            & value.any(axis=1)
        )
        positions[going] = after
        lasting[going[filled]] += 1
        keep = np.ones(len(positions), bool)
        keep[going[~good]] = False
        owners, positions, limits, lasting = (
            each[keep] for each in (owners, positions, limits, lasting)
        )
    done = lasting >= GUESS_RECORDS
    return owners[done], positions[done]


def _refuse_chain(file: SectionFile, words: Words32, records: int) -> NoReturn:
    """Raise for the first record that does not fit."""
    offset = file.get(CONSTRAINTS).offset
    counts = words.view(np.uint8).data.cast("I")
    position, size = 0, len(counts)
    for record in range(records):
        row, name = record // 3, MATRICES[record % 3]
        place = offset + 4 * position
        if position >= size:
            file.fail(f"the section ends before {name} of constraint {row:,}", CONSTRAINTS, place)
        after = position + 1 + TERM_WORDS * counts[position]
        if after > size:
            file.fail(
                f"constraint {row:,}: {name} has {counts[position]:,} terms, which run past the "
                "end of the section",
                CONSTRAINTS,
                place,
            )
        position = after
    file.fail(
        f"{4 * (size - position):,} bytes follow the last of {records // 3:,} constraints",
        CONSTRAINTS,
        offset + 4 * position,
    )


# --- writing ---


def write_r1cs(
    path: PathLike,
    curve: ProofCurve,
    *,
    n_wires: int,
    n_public_outputs: int,
    n_public_inputs: int,
    n_private_inputs: int,
    a: R1csMatrix,
    b: R1csMatrix,
    c: R1csMatrix,
) -> None:
    """Write a circuit in the order of sections that circom writes; wire i has label i.

    Args:
        path (str | Path): The file, which is replaced in one step.
        curve (ProofCurve): The curve of whose scalar field the values are.
        n_wires (int): Signals of the witness, the constant 1 included.
        n_public_outputs (int): Public outputs, which come after the constant.
        n_public_inputs (int): Public inputs, which come next.
        n_private_inputs (int): Private inputs.
        a (R1csMatrix): The left factors.
        b (R1csMatrix): The right factors.
        c (R1csMatrix): The products.
    """
    rows = {name: len(each.row_starts) - 1 for name, each in zip("abc", (a, b, c), strict=True)}
    if len(set(rows.values())) != 1:
        raise ArgumentValueError(f"a, b and c must have the same number of rows, not {rows}")
    if n_wires <= n_public_outputs + n_public_inputs:
        raise ArgumentValueError(
            f"n_wires is {n_wires:,}; it must be more than the {n_public_outputs:,} public outputs "
            f"and {n_public_inputs:,} public inputs"
        )
    for name, each in zip("abc", (a, b, c), strict=True):
        if len(each.wires) and int(each.wires.max()) >= n_wires:
            raise ArgumentValueError(f"{name}: a wire is not below n_wires, {n_wires:,}")
        if each.values.shape != (len(each.wires), VALUE_WORDS):
            raise ArgumentValueError(
                f"{name}: values have the shape {each.values.shape}; it must be "
                f"{(len(each.wires), VALUE_WORDS)}"
            )
    size = curve.scalar_bytes
    header = b"".join(
        (
            struct.pack("<I", size),
            curve.r.to_bytes(size, "little"),
            struct.pack("<4I", n_wires, n_public_outputs, n_public_inputs, n_private_inputs),
            struct.pack("<QI", n_wires, rows["a"]),
        )
    )
    sections: list[tuple[int, Iterable[Buffer]]] = [
        (CONSTRAINTS, _encode_constraints((a, b, c))),
        (HEADER, [header]),
        (WIRE_MAP, [np.arange(n_wires, dtype="<u8")]),
    ]
    write_sections(path, MAGIC, VERSION, sections)


def _encode_constraints(matrices: tuple[R1csMatrix, ...]) -> Iterator[Words32]:
    rows = len(matrices[0].row_starts) - 1
    for start in range(0, rows, WRITE_CONSTRAINTS):
        stop = min(start + WRITE_CONSTRAINTS, rows)
        bounds = [each.row_starts[start : stop + 1] for each in matrices]
        counts = np.stack([np.diff(each) for each in bounds], axis=1)
        ends = np.cumsum(1 + TERM_WORDS * counts.ravel())
        starts = (ends - 1 - TERM_WORDS * counts.ravel()).reshape(counts.shape)
        words = np.zeros(ends[-1], np.uint32)
        words[starts] = counts
        for index, (matrix, bound) in enumerate(zip(matrices, bounds, strict=True)):
            _, positions = _place_terms(starts[:, index], counts[:, index])
            terms = slice(bound[0], bound[-1])
            words[positions] = matrix.wires[terms]
            values = np.ascontiguousarray(matrix.values[terms], np.uint32)
            _view_values(words)[positions + 1] = values.view("V32").ravel()
        yield words
