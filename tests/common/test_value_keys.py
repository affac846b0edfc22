"""Value keys: values are the same only if their types and bits are."""

from __future__ import annotations

import copy
import functools
import itertools
import struct
import sys
from collections import Counter, OrderedDict, defaultdict, namedtuple
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, IntEnum, IntFlag
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.common.value_keys import ByIdentity, NoKeyError, ValueKey


def make_key(value: Any, max_array_bytes: int = 4096) -> Hashable:
    key = ValueKey(max_array_bytes)
    key.add(value)
    return key.freeze()


def make_nan(payload: int, sign: int = 0) -> float:
    bits = sign << 63 | 0x7FF8 << 48 | payload
    found: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return found


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mode(Enum):
    FAST = "fast"


class Access(IntFlag):
    READ = 1
    WRITE = 2


class Pair(NamedTuple):
    first: Any
    second: Any


Other = namedtuple("Other", "first second")


@dataclass(frozen=True)
class Options:
    rate: Any
    ignored: Any = field(default=0, compare=False)

    @functools.cached_property
    def doubled(self) -> Any:
        return self.rate * 2


@dataclass(frozen=True, slots=True)
class Slotted:
    rate: Any


DIFFERENT: list[Any] = [
    None, "", "1", b"1", "None", (), [], {}, np.array([]), np.array([], np.int64),
    0, 1, -1, True, False, 1 << 200,
    0.0, -0.0, 1.0, float("inf"), make_nan(0), make_nan(1), make_nan(0, sign=1),
    0j, complex(-0.0, 0.0), complex(0.0, -0.0), complex(-0.0, -0.0), 1 + 0j,
    complex(make_nan(0), 0),
    np.float32(0), np.float32(-0.0), np.float64(0), np.float64(-0.0), np.float16(0), np.int64(1),
    np.int32(1), np.uint32(1), np.bool_(True), np.complex64(0), np.str_("1"), np.bytes_(b"1"),
    np.datetime64(1, "D"), np.datetime64(1, "s"), np.timedelta64(1, "D"), np.float32("nan"),
    np.dtype("f4"), np.dtype(">f4"), np.dtype("f8"), np.dtype([("a", "f4")]),
    np.float32, float, int,
    Level.LOW, Level.HIGH, Mode.FAST, Access.READ, Access.READ | Access.WRITE,
    (1,), [1], (True,), (1.0,), (1, 2), ((1,), 2), ((1, 2),), (1, (2,)), [[]], [[], []], [(), []],
    [0.0], [-0.0], (0.0, -0.0), Pair(1, 2), Other(1, 2), Pair(1, True), Pair(2, 1),
    {"a": 1}, {"a": True}, {"b": 1}, {1: "a"}, {True: "a"}, {"a": 1, "b": 2}, {"b": 2, "a": 1},
    {"a": {"b": 1}}, {"a": [1]}, {"a": (1,)},
    Options(1), Options(1.0), Options(1, ignored=1), Options([1]), Slotted(1), Slotted(-0.0),
    Slotted(0.0), Options(Slotted(1)),
    np.array(1), np.array([1]), np.array([[1]]), np.array([1], np.int32), np.array([1], ">i8"),
    np.array([0.0]), np.array([-0.0]), np.array([np.nan]), np.array([True]), np.arange(6),
    np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2), np.zeros(2, [("a", "i4")]),
    gx.fields.GOLDILOCKS, gx.fields.BABYBEAR, gx.kernels.load("vector_add_u32"),
    gx.kernels.load("vector_add_f32"), gx.curves.BN254_G1, gx.curves.BLS12_381_G1,
]  # fmt: skip


def test_values_that_differ_in_type_or_bits_have_different_keys() -> None:
    keys = [make_key(each) for each in DIFFERENT]
    for (i, one), (j, other) in itertools.combinations(enumerate(keys), 2):
        assert one != other, (DIFFERENT[i], DIFFERENT[j])
    together = [make_key(pair) for pair in itertools.product(DIFFERENT[:40], repeat=2)]
    assert len(set(together)) == 1600


def test_a_copy_of_a_value_has_its_key() -> None:
    for value in DIFFERENT:
        copied = value if isinstance(value, ByIdentity) else copy.deepcopy(value)
        assert make_key(copied) == make_key(value), value
        assert hash(make_key(copied)) == hash(make_key(value)), value


def test_a_strided_array_has_the_key_of_its_contents() -> None:
    numbers = np.arange(12, dtype=np.uint16).reshape(3, 4)
    assert make_key(numbers[::2, ::-1]) == make_key(numbers[::2, ::-1].copy())
    assert make_key(numbers.T) == make_key(np.asfortranarray(numbers.T))
    assert make_key(numbers.T) != make_key(numbers.reshape(4, 3))


def test_a_key_does_not_change_with_the_value() -> None:
    values: list[Any] = [[1, 2], {"a": [1]}, np.arange(3), Options([1]), Pair([1], 2)]
    keys = [make_key(each) for each in values]
    values[0].append(3)
    values[1]["a"][0] = 2
    values[2][0] = 7
    values[3].rate.clear()
    values[4].first[0] = True
    for key, value in zip(keys, values, strict=True):
        assert make_key(value) != key


def test_cached_properties_of_a_dataclass_do_not_count() -> None:
    options = Options(3)
    key = make_key(options)
    assert options.doubled == 6
    assert make_key(options) == key


def test_the_key_holds_what_it_names_by_identity() -> None:
    field_ = gx.Field(97)
    key = ValueKey(0)
    key.add([1, {"field": field_}, "text"])
    assert len(key.held) == 1
    assert key.held[0] is field_


class Tagged(int):
    pass


class Marked(Pair):
    pass


@dataclass
class Changeable:
    rate: int = 1


@dataclass(frozen=True)
class FrozenList(list[int]):
    rate: int = 1


def make_with_attributes(value: Any) -> Any:
    object.__setattr__(value, "note", 1)
    return value


@pytest.mark.parametrize(
    "value",
    [
        object(), len, make_nan, {1, 2}, frozenset({1}), bytearray(b"1"), slice(1, 2), range(3),
        iter([]), Changeable(), FrozenList(), Tagged(3), defaultdict(int), OrderedDict(a=1),
        Counter("a"), make_with_attributes(Options(1)), make_with_attributes(Marked(1, 2)),
        sys.version_info, np.array([1, None]), np.array(["a"], np.dtypes.StringDType()),
        np.zeros(2, [("a", "O")]), np.zeros(1, [("a", "O")])[0], np.ma.array([1]),
        np.rec.array([(1,)], dtype=[("a", "i4")]),
        np.zeros(4097, np.uint8), np.zeros(513), gx.fields.BABYBEAR.encode([1]),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_cannot_be_told_from_others_has_no_key(value: Any) -> None:
    for wrapped in (value, [value], {"a": (1, value)}, Options(value), Pair(value, 1)):
        with pytest.raises(NoKeyError) as found:
            make_key(wrapped)
        assert found.value.value is value


def test_a_list_that_contains_itself_has_no_key() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        make_key(endless)
