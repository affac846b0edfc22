"""Results that are large enough for recycled memory, and every way to hold on to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import gpu_executor as gx
from tests.support.jobs import Array

RECYCLED_BYTES = 32 << 10
"""The smallest result that is recycled in tests, which set it in the modules under test: a software
driver computes an eighth of the elements that real limits would need."""
COUNT = RECYCLED_BYTES // 4 + 70
"""Elements of a result that is large enough to be recycled."""
ZEROS = np.zeros(COUNT, np.uint32)


def filled(number: int) -> Array:
    """An array of `COUNT` equal elements."""
    return np.full(COUNT, number, np.uint32)


def address(array: Array) -> int:
    """The address of the array's first element."""
    return int(array.__array_interface__["data"][0])


# Each function makes an object that keeps the memory of a result alive.
HOLDS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda r: r,
    "a slice": lambda r: r[7:9],
    "a slice of a slice": lambda r: r[5:][::3][4:6],
    "every other": lambda r: r[::-2],
    "a reshape": lambda r: r[:60].reshape(3, 4, 5),
    "a transpose": lambda r: r[:60].reshape(3, 20).T[1:],
    "another dtype": lambda r: r.view(np.uint8)[4:8],
    "one element as an array": lambda r: r[3, ...],
    "a subclass": lambda r: r.view(np.recarray),
    "a broadcast": lambda r: np.broadcast_to(r[:1], (3, 5)),
    "an iterator": lambda r: r.flat,
    "a memoryview": memoryview,
    "a part of a memoryview": lambda r: memoryview(r).cast("B").cast("I")[5:9],
    "an array from a memoryview": lambda r: np.frombuffer(memoryview(r)[2:6], np.uint32),
    "what asarray makes of a memoryview": lambda r: np.asarray(memoryview(r)),
    "what asarray makes of a slice": lambda r: np.asarray(r[3:])[2:5],
    "an array from dlpack": lambda r: np.from_dlpack(r)[1:],
    "a ctypes array": lambda r: np.ctypeslib.as_ctypes(r[:9]),
    "what it lies in": lambda r: np.frombuffer(r.base, np.uint8)[: r.nbytes],
    "a list of views": lambda r: [r[:1], r[1:2]],
    "a closure": lambda r: [lambda: r][0],
}


def numbers_in(held: Any) -> set[int]:
    """The distinct bytes of the memory that `held` refers to."""
    if callable(held):
        held = held()
    if isinstance(held, list):
        return set().union(*(numbers_in(each) for each in held))
    if isinstance(held, np.flatiter):
        held = held.base
    array: Array = np.asarray(held)
    return set(array.reshape(-1).tobytes())


def lies_in_mapped_memory(gpu: gx.PersistentVulkanBackend, array: Any) -> bool:
    return gpu._session.mapped.find(array) is not None
