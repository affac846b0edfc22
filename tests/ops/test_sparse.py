"""Products of sparse matrices: rows of any length, against exact integers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.fields import BLS12_381_FR, BN254_FR, Field
from gpu_executor.ops.scans import make_elements
from gpu_executor.ops.sparse import (
    PIECE_ENTRIES,
    RECORD_HEAD,
    SparseMatrix,
    check_records,
    plan_pieces,
)
from gpu_executor.primes import words

LENGTHS = {
    "short and empty rows": [0, 1, 3, 0, 0, PIECE_ENTRIES, 2],
    "a row of two pieces": [2, PIECE_ENTRIES + 1, 0],
    "one long row": [1, 0, PIECE_ENTRIES**2 + 5, 3, 0],
    "long rows of several levels": [PIECE_ENTRIES**3 + 1, 2, PIECE_ENTRIES + 1, 300],
    "no entries": [0, 0, 0],
}


def make_records(field: Field, columns: list[int], values: list[int]) -> np.ndarray[Any, Any]:
    count = field.prime.words
    records = np.zeros((max(len(columns), 1), RECORD_HEAD + count), np.uint32)
    for record, column, value in zip(records, columns, values, strict=False):
        record[RECORD_HEAD - 1] = column
        record[RECORD_HEAD:] = np.frombuffer(value.to_bytes(4 * count, "little"), np.uint32)
    return records


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("field", [BN254_FR, BLS12_381_FR], ids=str)
def test_products(gpu: gx.PersistentVulkanBackend, field: Field, lengths: list[int]) -> None:
    draw, p, prime = random.Random(sum(lengths)), field.modulus, field.prime
    device, count = gpu.array_device, sum(lengths)
    vector = [draw.randrange(p) for _ in range(20)] + [0, 1, p - 1]
    columns = [draw.choice([0, draw.randrange(len(vector))]) for _ in range(count)]
    values = [draw.choice([0, 1, p - 1, draw.randrange(p)]) for _ in range(count)]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    targets = np.array(draw.sample(range(len(lengths)), len(lengths)))
    records = device.put(make_records(field, columns, values))
    sums = make_elements(device, prime, len(lengths))
    matrix = SparseMatrix(device, prime, records, starts, targets)
    matrix.multiply(device.put(words.from_ints(prime, vector)), sums)
    inverse = pow(prime.r, -1, p)
    found = field.from_words(sums.numpy(), "canonical").tolist()
    for row, target in enumerate(targets.tolist()):
        own = range(starts[row], starts[row + 1])
        wanted = sum(values[each] * vector[columns[each]] for each in own) * inverse % p
        assert found[target] == wanted


def test_pieces_cover_every_entry_once() -> None:
    lengths = np.array([0, 1, PIECE_ENTRIES, PIECE_ENTRIES + 1, PIECE_ENTRIES**2 + 1])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    direct, first, *others = plan_pieces(starts, np.arange(len(lengths)))
    covered = np.concatenate([np.arange(*piece[:2]) for piece in (*direct, *first)])
    assert sorted(covered.tolist()) == list(range(starts[-1]))
    assert max(piece[1] - piece[0] for piece in (*direct, *first)) <= PIECE_ENTRIES
    assert [each[2] for each in direct] == [0, 1, 2]
    assert [each[2] for each in others[-1]] == [3, 4]


def test_wrong_records(gpu: gx.PersistentVulkanBackend) -> None:
    device, p = gpu.array_device, BN254_FR.modulus
    good = make_records(BN254_FR, [3] * 100, [p - 1] * 100)
    limits = 1, 1, 4
    prime = BN254_FR.prime
    assert check_records(prime, device.put(good), limits)[1] is None
    for part in range(RECORD_HEAD):
        bad = good.copy()
        bad[70:, part] = limits[part]
        assert check_records(prime, device.put(bad), limits)[1] == (70, part)
    bad = make_records(BN254_FR, [3] * 100, [p - 1] * 99 + [p])
    assert check_records(prime, device.put(bad), limits)[1] == (99, RECORD_HEAD)
