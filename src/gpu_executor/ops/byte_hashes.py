"""Byte hashes of rows and of messages, on the host and on a device.

A dispatch reads bytes as words. Arrays that end within a word are bound with all of its bytes, of
which kernels ignore those behind the last row.

Long messages of BLAKE3 are trees: the chaining values of all chunks are computed at once, then
those of their parents, level by level. At a level with an odd number of values, the last one moves
up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch, Step
from gpu_executor.device_profiles import get_profile
from gpu_executor.errors import DeviceLacksError
from gpu_executor.kernels.byte_hash_references import CHUNK_BYTES
from gpu_executor.kernels.byte_hashes import (
    MAX_PREFIX_BYTES,
    WORD_BYTES,
    Blake3Mode,
    HashAlgorithm,
    Variant,
    get_parents_kernel,
    get_step_kernel,
)
from gpu_executor.ops.operation import operation

BYTE, WORD = np.dtype(np.uint8), np.dtype(np.uint32)
HostBytes = npt.NDArray[np.uint8]
Bytes = HostBytes | DeviceArray
PART_ROWS = 256
"""Parts of a call have multiples of so many rows, so that they begin where devices bind arrays."""
LONG_ROW_BYTES = 16 << 10
"""Rows of so many bytes are no elements of a call on host arrays, whose invocations hash up to four
rows each."""
UPLOAD_BYTES = 64 << 20
"""Bytes of rows of the host, and of messages, that are copied and hashed at once."""


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
    length = rows.shape[1]
    if algorithm.is_tree(len(prefix) + length):
        return hash_trees(device, algorithm, rows, prefix)
    digests = device.empty((len(rows), algorithm.digest_size), BYTE)
    variant: Variant = "fixed" if algorithm.is_fixed(length) else "rows"
    kernel = get_step_kernel(
        algorithm, variant, length=length, prefix_bytes=len(prefix), sorts=sorts
    )
    steps = [
        Dispatch(
            kernel,
            (as_words(_cut(rows, part)), _cut(digests, part)),
            len(part),
            algorithm.make_push(length, prefix),
            grid_stride=True,
            overwrites=True,
        )
        for part in _split_rows(device, algorithm, rows.shape)
    ]
    device.submit(steps)
    return digests


def _split_rows(
    device: ArrayDevice, algorithm: HashAlgorithm, shape: tuple[int, ...]
) -> Iterator[range]:
    """Ranges of rows that a device binds, and whose digests it binds."""
    count, length = shape
    limit = get_max_bytes(device)
    if length > limit:
        raise DeviceLacksError(
            f"{algorithm.name}: a row has {length:,} bytes; {device.info.name} binds {limit:,} "
            "bytes at most. BLAKE3 hashes longer rows"
        )
    check_iterations(device, algorithm, length + MAX_PREFIX_BYTES)
    most = limit // max(length, algorithm.digest_size)
    step = most // PART_ROWS * PART_ROWS or most
    return (range(start, min(start + step, count)) for start in range(0, count, step))


def check_iterations(device: ArrayDevice, algorithm: HashAlgorithm, length: int) -> None:
    """Refuse a message whose blocks are more than the driver runs loops for."""
    most = get_profile(device.info).max_iterations
    if algorithm.count_iterations(length) > most:
        raise DeviceLacksError(
            f"{algorithm.name}: a message has {length:,} bytes; {device.info.name} ends the loops "
            f"of an invocation after {most:,} iterations, and the digest would be wrong. The host "
            "hashes such messages (without device=); BLAKE3 hashes them on any device"
        )


def _cut(array: DeviceArray, part: range) -> DeviceArray:
    return array if len(part) == len(array) else array[part.start : part.stop]


def as_words(array: DeviceArray) -> DeviceArray:
    """The bytes of an array as words, of which the last may have bytes behind the array: a view, or
    a copy if the bytes are not where a device binds words."""
    device: ArrayDevice = array.storage.device
    aligned = not array.offset % device.info.limits.buffer_offset_alignment
    if not array.is_contiguous or not aligned:
        array = array.copy()
    words = -(-array.nbytes // WORD_BYTES)
    return DeviceArray((words,), WORD, array.storage, array.offset)


# --- trees ---


def hash_trees(
    device: ArrayDevice, algorithm: HashAlgorithm, rows: Bytes, prefix: bytes = b""
) -> DeviceArray:
    """The digests of rows of several chunks. Rows of the host are copied to the device in parts."""
    count, length = rows.shape
    most = get_max_bytes(device)
    if isinstance(rows, np.ndarray):
        most = min(most, UPLOAD_BYTES)
    digests = device.empty((count, algorithm.digest_size), BYTE)
    step = most // length
    if not step:
        for number in range(count):
            _hash_long_row(device, algorithm, rows[number], prefix, digests[number], most)
        return digests
    chunks = -(-(len(prefix) + length) // CHUNK_BYTES)
    for start in range(0, count, step):
        part = rows[start : start + step]
        values = device.empty((len(part), chunks, algorithm.digest_size), BYTE)
        push = algorithm.make_push(length, prefix, chunks=chunks)
        first = _hash_chunks(device, algorithm, part, values, push)
        device.submit(
            [
                first,
                *_join_values(
                    device, algorithm, values, _cut(digests, range(start, start + len(part)))
                ),
            ]
        )
    return digests


def _hash_long_row(
    device: ArrayDevice,
    algorithm: HashAlgorithm,
    row: Bytes,
    prefix: bytes,
    digest: DeviceArray,
    most: int,
) -> None:
    """Submit the digest of a row of more than `most` bytes, in parts of whole chunks."""
    total = len(prefix) + len(row)
    chunks = -(-total // CHUNK_BYTES)
    step = most // CHUNK_BYTES
    values = device.empty((1, chunks, algorithm.digest_size), BYTE)
    for first in range(0, chunks, step):
        last = min(first + step, chunks)
        # The first part has the prefix ahead, so the others begin as many bytes earlier.
        begin = max(first * CHUNK_BYTES - len(prefix), 0)
        part = row[begin : last * CHUNK_BYTES - len(prefix)]
        ahead = b"" if first else prefix
        push = algorithm.make_push(len(part), ahead, chunks=last - first, first=first)
        device.submit([_hash_chunks(device, algorithm, part, values[:, first:last], push)])
    device.submit(_join_values(device, algorithm, values, digest.reshape(1, -1)))


def _hash_chunks(
    device: ArrayDevice,
    algorithm: HashAlgorithm,
    rows: Bytes,
    values: DeviceArray,
    push: tuple[int, ...],
) -> Step:
    """The step that computes the chaining values of the chunks of rows."""
    if isinstance(rows, np.ndarray):
        rows = device.put(np.ascontiguousarray(rows))
    kernel, arrays = get_step_kernel(algorithm, "rows"), (as_words(rows), values)
    count = values.size // algorithm.digest_size
    return Dispatch(kernel, arrays, count, push, grid_stride=True, overwrites=True)


def _join_values(
    device: ArrayDevice, algorithm: HashAlgorithm, values: DeviceArray, digests: DeviceArray
) -> list[Step]:
    """The steps that compute the roots of trees, whose leaves are the chaining values of shape
    (n, m, 32). One submission of all levels saves an NVIDIA H200 most of its time for the small
    ones."""
    mode = algorithm.mode
    assert mode is not None
    count, children, size = values.shape
    steps: list[Step] = []
    while children > 1:
        parents = -(-children // 2)
        made = digests.reshape(count, 1, size)
        if parents > 1:
            made = device.empty((count, parents, size), BYTE)
        # One tree may have more values than the device binds; many trees have fewer.
        step = parents if count > 1 else get_max_bytes(device) // (2 * size) // 8 * 8
        kernel = get_parents_kernel("rows")
        for first in range(0, parents, step):
            last = min(first + step, parents)
            given = values[:, 2 * first : 2 * last]
            push = mode.flags, int(parents == 1), given.shape[1], *mode.key
            arrays = given, made[:, first:last]
            dispatched = count * (last - first)
            step_made = Dispatch(
                kernel, arrays, dispatched, push, grid_stride=True, overwrites=True
            )
            steps.append(step_made)
        values, children = made, parents
    return steps


def hash_long_rows(
    device: ArrayDevice, algorithm: HashAlgorithm, rows: HostBytes, prefix: bytes
) -> HostBytes:
    """The digests of rows of the host of LONG_ROW_BYTES and more, which are copied to the device in
    parts. Trees go through `hash_trees`."""
    digests = np.empty((len(rows), algorithm.digest_size), np.uint8)
    step = max(UPLOAD_BYTES // rows.shape[1], 1)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        made = hash_rows(algorithm, device.put(np.ascontiguousarray(rows[part])), prefix)
        assert isinstance(made, DeviceArray)
        device.fetch(made, digests[part])
    return digests


# --- messages of different lengths ---


def hash_messages(
    device: ArrayDevice, algorithm: HashAlgorithm, messages: Sequence[Any]
) -> HostBytes:
    """The digests of messages of different lengths: byte strings of the host, hashed by a device
    that runs kernels."""
    lengths = np.array([len(each) for each in messages], np.int64)
    if algorithm.mode is None:
        check_iterations(device, algorithm, int(lengths.max()))
    digests = np.empty((len(messages), algorithm.digest_size), np.uint8)
    # Messages of as many blocks are neighbours: the invocations of a subgroup take equally long.
    order = np.argsort(lengths, kind="stable")
    ends = np.cumsum(_round_up(lengths[order]))
    most = min(get_max_bytes(device), UPLOAD_BYTES)
    first = 0
    while first < len(order):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + most, side="right")), first + 1)
        chosen = order[first:last]
        given = [messages[each] for each in chosen.tolist()]
        if len(given) == 1 and lengths[chosen[0]] > most:
            digests[chosen] = _hash_long_message(device, algorithm, given[0])
        else:
            digests[chosen] = _hash_message_part(device, algorithm, given, lengths[chosen])
        first = last
    return digests


def _hash_long_message(device: ArrayDevice, algorithm: HashAlgorithm, message: Any) -> HostBytes:
    """The digest of a message that has more bytes than a part."""
    row = np.frombuffer(message, np.uint8).reshape(1, -1)
    if algorithm.mode is not None:
        return hash_trees(device, algorithm, row).numpy()
    found = hash_rows(algorithm, device.put(row))
    assert isinstance(found, DeviceArray)
    return found.numpy()


def _round_up(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Lengths in whole words: every message begins with a word."""
    return -(-lengths // WORD_BYTES) * WORD_BYTES


def _hash_message_part(
    device: ArrayDevice,
    algorithm: HashAlgorithm,
    messages: Sequence[Any],
    lengths: npt.NDArray[np.int64],
) -> HostBytes:
    padded = _round_up(lengths)
    gaps = [bytes(each) for each in range(WORD_BYTES)]
    joined = b"".join(
        part
        for message, gap in zip(messages, (padded - lengths).tolist(), strict=True)
        for part in (message, gaps[gap])
    )
    starts = np.cumsum(padded) - padded
    counts = np.ones(len(messages), np.int64)
    if algorithm.mode is not None:
        counts = np.maximum(-(-lengths // CHUNK_BYTES), 1)
    owners, numbers = _enumerate_parts(counts)
    table = np.zeros((len(owners), 4), np.uint32)
    table[:, 0] = starts[owners] + numbers * CHUNK_BYTES
    table[:, 1] = lengths[owners] - numbers * CHUNK_BYTES
    if algorithm.mode is not None:
        np.minimum(table[:, 1], CHUNK_BYTES, out=table[:, 1])
        table[:, 2] = numbers
        table[:, 3] = counts[owners] == 1
    made = device.empty((len(owners), algorithm.digest_size), BYTE)
    arrays = device.put(np.frombuffer(joined, np.uint32)), device.put(table), made
    kernel, push = get_step_kernel(algorithm, "messages"), algorithm.make_push(0)
    device.submit([Dispatch(kernel, arrays, len(made), push, grid_stride=True, overwrites=True)])
    if algorithm.mode is not None:
        made = _join_ragged_values(device, algorithm.mode, made, counts)
    return made.numpy()


def _join_ragged_values(
    device: ArrayDevice, mode: Blake3Mode, values: DeviceArray, counts: npt.NDArray[np.int64]
) -> DeviceArray:
    """The roots of trees with different numbers of leaves, one tree's leaves behind another's."""
    kernel = get_parents_kernel("messages")
    while counts.max() > 1:
        parents = -(-counts // 2)
        owners, numbers = _enumerate_parts(parents)
        firsts = (np.cumsum(counts) - counts)[owners]
        table = np.zeros((len(owners), 4), np.uint32)
        table[:, 0] = firsts + 2 * numbers
        table[:, 1] = firsts + np.minimum(2 * numbers + 1, counts[owners] - 1)
        table[:, 2] = counts[owners] == 2
        made = device.empty((len(owners), values.shape[1]), BYTE)
        arrays, push = (values, device.put(table), made), (mode.flags, 0, 0, *mode.key)
        step = Dispatch(kernel, arrays, len(made), push, grid_stride=True, overwrites=True)
        device.submit([step])
        values, counts = made, parents
    return values


def _enumerate_parts(
    counts: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The owner of each part, and its number among those of its owner."""
    owners = np.repeat(np.arange(len(counts)), counts)
    return owners, np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
