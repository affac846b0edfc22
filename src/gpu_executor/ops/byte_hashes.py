"""Byte hashes of rows and of messages, on the host and on a device.

A dispatch reads bytes as words. Arrays that end within a word are bound with all of its bytes, of
which kernels ignore those behind the last row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch, Step
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.byte_hashes import (
    WORD_BYTES,
    HashAlgorithm,
    encode_prefix,
    step_kernel,
)
from gpu_executor.ops.operation import operation

BYTE, WORD = np.dtype(np.uint8), np.dtype(np.uint32)
Bytes = npt.NDArray[np.uint8] | DeviceArray
PART_ROWS = 256
"""Parts of a call have multiples of so many rows, so that they begin where devices bind arrays."""
MAX_MESSAGE_BYTES = 256 << 20
"""Bytes of messages that one dispatch hashes: larger lists are copied in parts."""


def get_max_bytes(device: ArrayDevice) -> int:
    """The bytes of an array that a kernel binds at most."""
    return device.info.limits.max_storage_buffer_range


@operation
def hash_rows(
    algorithm: HashAlgorithm, rows: Bytes, prefix: bytes = b"", *, sorts: bool = False
) -> Bytes:
    """The digests of rows, of shape (n, length), each behind the prefix. With `sorts`, a row is two
    digests, of which the smaller one comes first."""
    assert isinstance(rows, np.ndarray)
    return algorithm.hash_on_host(rows, prefix, sorts=sorts)


@hash_rows.by_steps
def _hash_rows_by_steps(
    algorithm: HashAlgorithm, rows: DeviceArray, prefix: bytes = b"", *, sorts: bool = False
) -> DeviceArray:
    device: ArrayDevice = rows.storage.device
    count, length = rows.shape
    digests = device.empty((count, algorithm.digest_size), BYTE)
    kernel, push = _choose_kernel(algorithm, length, prefix, sorts=sorts)
    most = get_max_bytes(device) // max(length, algorithm.digest_size)
    part = most // PART_ROWS * PART_ROWS or max(most, 1)
    steps: list[Step] = []
    for start in range(0, count, part):
        whole = count <= part
        given = rows if whole else rows[start : start + part]
        made = digests if whole else digests[start : start + part]
        arrays = as_words(given), made
        step = Dispatch(kernel, arrays, len(made), push, grid_stride=True, overwrites=True)
        steps.append(step)
    device.submit(steps)
    return digests


def _choose_kernel(
    algorithm: HashAlgorithm, length: int, prefix: bytes, *, sorts: bool
) -> tuple[Kernel, tuple[int, ...]]:
    """The kernel for rows of a length, and its push words."""
    push = length, *encode_prefix(prefix)
    if not algorithm.is_fixed(length):
        return step_kernel(algorithm, "rows"), push
    kernel = step_kernel(algorithm, "fixed", length=length, prefix_bytes=len(prefix), sorts=sorts)
    return kernel, push


def as_words(array: DeviceArray) -> DeviceArray:
    """The bytes of an array as words, of which the last may have bytes behind the array: a view, or
    a copy if the bytes are not where a device binds words."""
    device: ArrayDevice = array.storage.device
    aligned = not array.offset % device.info.limits.buffer_offset_alignment
    if not array.is_contiguous or not aligned:
        array = array.copy()
    words = -(-array.nbytes // WORD_BYTES)
    return DeviceArray((words,), WORD, array.storage, array.offset)


def hash_messages(
    device: ArrayDevice, algorithm: HashAlgorithm, messages: Sequence[Any]
) -> npt.NDArray[np.uint8]:
    """The digests of messages of different lengths: byte strings of the host, hashed by a device
    that runs kernels."""
    lengths = np.array([len(each) for each in messages], np.int64)
    digests = np.empty((len(messages), algorithm.digest_size), np.uint8)
    # Messages of as many blocks are neighbours: the invocations of a subgroup take equally long.
    order = np.argsort(lengths, kind="stable")
    starts = np.cumsum(-(-lengths[order] // WORD_BYTES) * WORD_BYTES)
    most = min(get_max_bytes(device), MAX_MESSAGE_BYTES)
    first = 0
    while first < len(order):
        before = int(starts[first - 1]) if first else 0
        last = max(int(np.searchsorted(starts, before + most, side="right")), first + 1)
        chosen = order[first:last]
        digests[chosen] = _hash_message_part(
            device, algorithm, [messages[each] for each in chosen.tolist()], lengths[chosen]
        )
        first = last
    return digests


def _hash_message_part(
    device: ArrayDevice,
    algorithm: HashAlgorithm,
    messages: Sequence[Any],
    lengths: npt.NDArray[np.int64],
) -> npt.NDArray[np.uint8]:
    padded = -(-lengths // WORD_BYTES) * WORD_BYTES
    gaps = [bytes(each) for each in range(WORD_BYTES)]
    joined = b"".join(
        part
        for message, gap in zip(messages, (padded - lengths).tolist(), strict=True)
        for part in (message, gaps[gap])
    )
    table = np.zeros((len(messages), 4), np.uint32)
    table[:, 0] = np.cumsum(padded) - padded
    table[:, 1] = lengths
    data = device.put(np.frombuffer(joined, np.uint32))
    made = device.empty((len(messages), algorithm.digest_size), BYTE)
    kernel = step_kernel(algorithm, "messages")
    arrays = data, device.put(table), made
    push = 0, *encode_prefix(b"")
    device.submit(
        [Dispatch(kernel, arrays, len(messages), push, grid_stride=True, overwrites=True)]
    )
    return made.numpy()
