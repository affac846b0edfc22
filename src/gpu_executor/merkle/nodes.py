"""Arrays of nodes: bytes or elements of a field, on the host or on a device.

The functions move whole nodes, by their positions along the first axis. They look at the words of
an array alone, so that they serve bytes and elements alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.typed_array import TypedArray, get_words
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice, Dispatch, Step
from gpu_executor.fields import FieldArray
from gpu_executor.kernels.indexing import gather_kernel, scatter_kernel
from gpu_executor.ops.indexing import MAX_UNIT_WORDS, gather_rows
from gpu_executor.ops.operation import operation

Nodes = Any
"""NumPy arrays or device arrays of uint8, or arrays of a field."""
Positions = npt.NDArray[np.int64]
"""Positions along the first axis, on the host."""
Words = Any
"""A NumPy array or a device array."""
WORD_BYTES = 4


def find_place(nodes: Nodes) -> ArrayDevice | None:
    """The device that holds an array; None for the host."""
    words = get_words(nodes)
    return words.storage.device if isinstance(words, DeviceArray) else None


def wrap(like: Nodes, words: Words) -> Nodes:
    """Words as an array of the type of `like`."""
    return like.wrap_like(words) if isinstance(like, TypedArray) else words


def fetch(nodes: Nodes) -> Nodes:
    """The array in host memory; an array of the host is returned as it is."""
    if isinstance(nodes, TypedArray):
        return nodes if find_place(nodes) is None else wrap(nodes, nodes.data.numpy())
    return nodes.numpy() if isinstance(nodes, DeviceArray) else nodes


def match_form(nodes: Nodes, like: Nodes) -> Nodes:
    """The nodes in the form of other ones of their field."""
    return nodes.in_form(like.form) if isinstance(nodes, FieldArray) else nodes


def take(nodes: Nodes, positions: Positions) -> Nodes:
    """The nodes at positions, which may repeat, in new memory."""
    return wrap(nodes, _take(get_words(nodes), positions))


def put(nodes: Nodes, positions: Positions, values: Nodes) -> Nodes:
    """Write values to positions, each of which is there once; the array that has them, which is
    in place wherever that is
    possible."""
    values = match_form(values, nodes)
    words = get_words(nodes)
    if isinstance(words, np.ndarray):
        own = words if words.flags.writeable else words.copy()
        own[positions] = get_words(values)
        return wrap(nodes, own)
    return wrap(nodes, _put(words, positions, get_words(values)))


def join(parts: Sequence[Nodes]) -> Nodes:
    """Arrays in one place, one behind the other in new memory."""
    first = parts[0]
    words = [get_words(match_form(each, first)) for each in parts]
    if find_place(first) is None:
        return wrap(first, np.concatenate(words))
    device: ArrayDevice = words[0].storage.device
    shape = (sum(len(each) for each in words), *words[0].shape[1:])
    joined = device.empty(shape, words[0].dtype)
    copies: list[Step] = []
    start = 0
    for each in words:
        if len(each):
            copies.append(ArrayCopy(each, joined[start : start + len(each)]))
        start += len(each)
    device.submit(copies)
    return wrap(first, joined)


def take_levels(levels: Sequence[Nodes], positions: Sequence[Positions]) -> Nodes:
    """The nodes at positions of each of several arrays in one place, on the host, one array behind
    the other. A device gathers from all of them with one submission and one copy to the host."""
    pairs = [(level, each) for level, each in zip(levels, positions, strict=True) if len(each)]
    if not pairs:
        return fetch(levels[0][:0])
    words = [get_words(level) for level, _ in pairs]
    if isinstance(words[0], np.ndarray) or any(map(_is_wide, words)):
        return join([fetch(take(*pair)) for pair in pairs])
    found = _take_all(words, [each for _, each in pairs]).numpy()
    parts, start = [], 0
    for level, each in pairs:
        parts.append(wrap(level, found[start : start + len(each)]))
        start += _round_up(len(each))
    return join(parts)


# --- on a device ---

ROW_STEP = 64
"""Positions of several arrays begin at multiples of it: no device binds buffers at coarser offsets
than 256 bytes."""


def _round_up(count: int) -> int:
    return -(-count // ROW_STEP) * ROW_STEP


@operation
def _take_all(levels: Sequence[Words], positions: Sequence[Positions]) -> Words:
    """The rows at positions of each array; those of the next array begin at a multiple of
    `ROW_STEP`."""
    rows = sum(_round_up(len(each)) for each in positions)
    found = np.zeros((rows, *levels[0].shape[1:]), levels[0].dtype)
    start = 0
    for level, each in zip(levels, positions, strict=True):
        found[start : start + len(each)] = level[each]
        start += _round_up(len(each))
    return found


@_take_all.by_steps
def _take_all_by_steps(
    levels: Sequence[DeviceArray], positions: Sequence[Positions]
) -> DeviceArray:
    device: ArrayDevice = levels[0].storage.device
    starts = np.cumsum([0, *(_round_up(len(each)) for each in positions)])
    where = np.zeros(starts[-1], np.uint32)
    for start, each in zip(starts, positions, strict=False):
        where[start : start + len(each)] = each
    places = device.put(where)
    sources = [_as_words(level) for level in levels]
    own = math.prod(sources[0].shape[1:]) * sources[0].dtype.itemsize // WORD_BYTES
    unit = math.gcd(own, MAX_UNIT_WORDS)
    found = device.empty((len(where), *sources[0].shape[1:]), sources[0].dtype)
    steps: list[Step] = []
    for source, start, stop in zip(sources, starts[:-1], starts[1:], strict=True):
        arrays = source, places[start:stop], found[start:stop]
        count, push = int(stop - start) * own // unit, (unit, own // unit)
        steps.append(Dispatch(gather_kernel(), arrays, count, push, grid_stride=True))
    device.submit(steps)
    return DeviceArray((len(where), *levels[0].shape[1:]), levels[0].dtype, found.storage)


@operation
def _take(words: Words, positions: Positions) -> Words:
    found: Words = words[positions]
    return found


@_take.by_steps
def _take_by_steps(words: DeviceArray, positions: Positions) -> DeviceArray:
    device: ArrayDevice = words.storage.device
    source = _as_words(words)
    parts = _split(source, positions)
    if len(parts) == 1:
        taken = gather_rows(source, device.put(positions.astype(np.uint32)))
    else:
        gathered = []
        for start, stop, chosen in parts:
            where = device.put((positions[chosen] - start).astype(np.uint32))
            gathered.append(gather_rows(source[start:stop], where))
        # Back from the order of the parts to that of the positions.
        order = np.argsort(np.concatenate([chosen for _, _, chosen in parts]), kind="stable")
        taken = gather_rows(join(gathered), device.put(order.astype(np.uint32)))
    return DeviceArray((len(positions), *words.shape[1:]), words.dtype, taken.storage, taken.offset)


@operation
def _put(words: Words, positions: Positions, values: Words) -> Words:
    changed = np.array(words)
    changed[positions] = values
    return changed


@_put.by_steps
def _put_by_steps(words: DeviceArray, positions: Positions, values: DeviceArray) -> DeviceArray:
    device: ArrayDevice = words.storage.device
    target, source = _as_words(words), _as_words(values)
    own = math.prod(target.shape[1:]) * target.dtype.itemsize // WORD_BYTES
    unit = math.gcd(own, MAX_UNIT_WORDS)
    for start, stop, chosen in _split(target, positions):
        part = source
        if len(chosen) < len(positions):
            part = gather_rows(source, device.put(chosen.astype(np.uint32)))
        where = device.put((positions[chosen] - start).astype(np.uint32))
        push = unit, own // unit, part.nbytes // (WORD_BYTES * unit)
        arrays, count = (part, where, target[start:stop]), len(chosen) * own // unit
        device.submit([Dispatch(scatter_kernel(), arrays, count, push, grid_stride=True)])
    return words


def _as_words(array: DeviceArray) -> DeviceArray:
    """A contiguous array of bytes as one of 32-bit words; others as they are."""
    if not array.is_contiguous or array.offset % (WORD_BYTES * MAX_UNIT_WORDS):
        array = array.copy()
    if array.dtype.itemsize >= WORD_BYTES:
        return array
    shape = (*array.shape[:-1], array.shape[-1] * array.dtype.itemsize // WORD_BYTES)
    return DeviceArray(shape, np.dtype(np.uint32), array.storage, array.offset)


def _is_wide(words: DeviceArray) -> bool:
    """Whether no binding covers the array."""
    limit: int = words.storage.device.info.limits.max_storage_buffer_range
    return words.nbytes > limit


def _split(words: DeviceArray, positions: Positions) -> list[tuple[int, int, npt.NDArray[np.intp]]]:
    """The parts of an array that a binding can cover: its first row, its last, and which of the
    positions are in it."""
    if not _is_wide(words):
        return [(0, len(words), np.arange(len(positions)))]
    limit = words.storage.device.info.limits.max_storage_buffer_range * len(words) // words.nbytes
    limit = 1 << (limit.bit_length() - 1)  # a power of 2, whose offset every device can bind
    parts = []
    for start in range(0, len(words), limit):
        chosen = np.flatnonzero((positions >= start) & (positions < start + limit))
        if len(chosen):
            parts.append((start, min(start + limit, len(words)), chosen))
    return parts
