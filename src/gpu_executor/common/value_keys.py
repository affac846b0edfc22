"""Value keys: hashable keys of values whose bits matter.

`==` is no measure for a key: 1, 1.0 and True are equal, and so are 0.0 and -0.0; a NaN is not equal
to itself; a list that changed is still the same list. A `ValueKey` tells all of these apart, and
two values with equal keys are the same to whoever computes with them.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Hashable
from enum import Enum
from typing import Any

import numpy as np

EQUAL_BY_VALUE = frozenset({type(None), bool, int, str, bytes})
"""Types whose values are the same if their types and they themselves are equal."""
BUILTINS = (int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset)
"""Types with contents that fields and attributes do not show."""
KINDS_WITH_BYTES = "biufcmMSUV"
"""The kinds of dtypes whose elements are their bytes, and not references to something else."""
_pack_complex = struct.Struct("dd").pack


class ByIdentity:
    """An object that is compared by identity: a key has its id, and never looks at its contents."""

    __slots__ = ()


class NoKeyError(Exception):
    """A value that has no key, with what to do in words. Whoever makes the key names the value."""

    def __init__(self, value: Any, advice: str = "") -> None:
        super().__init__(value, advice)
        self.value, self.advice = value, advice


class ValueKey:
    """The key of values that are added one after the other, and the objects that it refers to.

    The parts are a prefix code: each value begins with its type, or with the number of parts of one
    kind that follow. So the parts of different values differ.
    """

    __slots__ = ("_max_array_bytes", "held", "parts")

    def __init__(self, max_array_bytes: int) -> None:
        """Larger NumPy arrays than `max_array_bytes` have no key."""
        self._max_array_bytes = max_array_bytes
        self.parts: list[Any] = []
        """Hashable values."""
        self.held: list[Any] = []
        """Objects whose ids are in the key: whoever keeps the key keeps these, or an id could come
        to mean another object."""

    def freeze(self) -> Hashable:
        """The key of all values that were added."""
        return tuple(self.parts)

    def add(self, value: Any) -> None:
        """Add a value: raises `NoKeyError` if it, or one inside it, cannot be told from others.

        A container that contains itself raises `RecursionError`.
        """
        kind = type(value)
        if kind in EQUAL_BY_VALUE:
            self.parts += (kind, value)
        elif kind is float or kind is complex:
            self.parts += (kind, _pack_complex(value.real, value.imag))
        elif kind is tuple or kind is list or is_namedtuple(value):
            self.parts += (kind, len(value))
            for each in value:
                self.add(each)
        elif kind is dict:
            self.parts += (dict, len(value))
            for name, each in value.items():  # in their order, which a function may depend on
                self.add(name)
                self.add(each)
        elif isinstance(value, np.generic | np.ndarray):
            self._add_array(kind, value)
        elif isinstance(value, np.dtype):
            self.parts += (np.dtype, value)
        elif isinstance(value, Enum | type | ByIdentity):
            self.add_identity(value)
        elif _is_frozen_dataclass(value):
            self.parts.append(kind)
            for name in _list_fields(value):
                self.add(getattr(value, name))
        else:
            raise NoKeyError(value)

    def add_identity(self, value: Any) -> None:
        """Add an object that only it itself is equal to, whatever changes in it."""
        self.parts += (ByIdentity, id(value))
        self.held.append(value)

    def _add_array(self, kind: type, array: Any) -> None:
        """Add a NumPy array or scalar: its dtype, shape and bytes."""
        if isinstance(array, np.ndarray) and kind is not np.ndarray:
            raise NoKeyError(array, "pass np.asarray(value)")
        dtype = array.dtype
        if dtype.hasobject or dtype.kind not in KINDS_WITH_BYTES:
            raise NoKeyError(array, f"its dtype {dtype} refers to objects; pass numbers")
        if array.nbytes > self._max_array_bytes:
            raise NoKeyError(
                array,
                f"it has {array.nbytes:,} bytes, and a constant has at most "
                f"{self._max_array_bytes:,}; gpu.to_device(array) makes it an input",
            )
        self.parts += (kind, dtype, array.shape, array.tobytes())


def is_namedtuple(value: Any) -> bool:
    """Whether a value is a named tuple, without further attributes."""
    return (
        isinstance(value, tuple)
        and hasattr(type(value), "_fields")
        and not getattr(value, "__dict__", None)
    )


def _is_frozen_dataclass(value: Any) -> bool:
    """Whether a value is an instance of a frozen dataclass that is no container besides."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and parameters.frozen and not isinstance(value, BUILTINS)


def _list_fields(value: Any) -> list[str]:
    """The names of a dataclass's fields; raises `NoKeyError` if there are other attributes, which
    nobody would compare. Cached properties are computed from the fields."""
    names = [each.name for each in dataclasses.fields(value)]
    for base in type(value).__mro__[:-1]:
        is_own = "__dataclass_params__" in vars(base)
        if not is_own and base.__module__ not in ("abc", "typing"):
            raise NoKeyError(value, f"its class derives from {base.__name__}, no frozen dataclass")
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in names and name not in ("__dict__", "__weakref__"):
                raise NoKeyError(value, f"its attribute {name!r} is no field; make it one")
    for name in getattr(value, "__dict__", {}):
        known = name in names or isinstance(
            getattr(type(value), name, None), functools.cached_property
        )
        if not known:
            raise NoKeyError(value, f"its attribute {name!r} is no field; make it one")
    return names
