"""`ByteHash`: a hash function of bytes, and the functions that have names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.backend import Backend, require_array_device
from gpu_executor.calls.arguments import describe, is_integer, is_masked
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ArgumentValueError
from gpu_executor.hashes.hash_function import HashFunction
from gpu_executor.kernels import byte_hashes
from gpu_executor.kernels.byte_hashes import (
    MAX_PREFIX_BYTES,
    Blake3Mode,
    HashAlgorithm,
    call_kernel,
    count_grouped_rows,
)
from gpu_executor.ops.byte_hashes import (
    LONG_ROW_BYTES,
    hash_long_rows,
    hash_messages,
    hash_rows,
    hash_trees,
)

ARITIES = (2, 4, 8)
KEY_BYTES = 32
Bytes = npt.NDArray[np.uint8]


class ByteHash(HashFunction):
    """A hash function of bytes: `gx.hashes.SHA256` and others. Nothing runs in constant time."""

    __slots__ = ("algorithm", "digest_shape", "name")

    def __init__(self, algorithm: HashAlgorithm) -> None:
        self.algorithm = algorithm
        """The code on devices and on the host."""
        self.name = algorithm.name
        self.digest_shape = (algorithm.digest_size,)

    @property
    def digest_size(self) -> int:
        """The bytes of a digest."""
        return self.algorithm.digest_size

    def hash(self, rows: Any, *, device: Backend | None = None, prefix: bytes = b"") -> Any:
        """The digest of every row.

        Args:
            rows (array): The messages, of shape (n, length) and dtype uint8, on the host or on a
                device; n and length may be 0. One message, `bytes` or an array of one axis, has
                one digest, of shape (digest_size,).
            device (Backend): The executor or backend that hashes an array of the host; None: the
                host itself. An array of a device is hashed there.
            prefix (bytes): Up to 4 bytes that are hashed ahead of every row.

        Returns:
            Digests of shape (n, digest_size) and dtype uint8: a `DeviceArray` for a `DeviceArray`,
            else a NumPy array.

        Raises:
            ArgumentTypeError: `rows` are no bytes, or `prefix` is not `bytes`.
            ArgumentShapeError: `rows` have another number of axes.
            ArgumentValueError: `prefix` is too long.
        """
        where = f"{self.name}.hash"
        found = _check_rows(where, rows)
        checked = _check_prefix(where, prefix)
        _check_device(where, device)
        if found.ndim == 1:
            return self._hash_rows(found.reshape(1, -1), device, checked)[0]
        return self._hash_rows(found, device, checked)

    def hash_many(self, messages: Iterable[Any], *, device: Backend | None = None) -> Bytes:
        """The digests of messages of different lengths.

        Args:
            messages (iterable): `bytes`, `bytearray`, `memoryview` or NumPy arrays of uint8 with
                one axis.
            device (Backend): The executor or backend that hashes them; None: the host itself.

        Returns:
            A NumPy array of shape (n, digest_size) and dtype uint8.

        Raises:
            ArgumentTypeError: A message is of another type.
        """
        where = f"{self.name}.hash_many"
        if isinstance(messages, bytes | bytearray | memoryview | str | np.ndarray | DeviceArray):
            raise ArgumentTypeError(
                f"{where}: messages is a {type(messages).__name__}; it must be a list of messages. "
                "hash() takes one message, or the rows of an array"
            )
        if not isinstance(messages, Iterable):
            raise ArgumentTypeError(
                f"{where}: messages is {describe(messages)}; it must be a list of messages"
            )
        _check_device(where, device)
        found = [check_message(where, number, each) for number, each in enumerate(messages)]
        array_device = None if device is None else require_array_device(device)
        if array_device is not None and array_device.runs_kernels and found:
            return hash_messages(array_device, self.algorithm, found)
        digests = np.empty((len(found), self.digest_size), np.uint8)
        for number, message in enumerate(found):
            row = np.frombuffer(message, np.uint8).reshape(1, -1)
            digests[number] = self.algorithm.hash_on_host(row)
        return digests

    def compress(
        self,
        children: Any,
        arity: int = 2,
        *,
        device: Backend | None = None,
        prefix: bytes = b"",
        sort: bool = False,
    ) -> Any:
        """The parents of digests: the digest of every `arity` neighbours, one behind the other.

        Args:
            children (array): Digests, of shape (n * arity, digest_size) and dtype uint8.
            arity (int): The number of children of a node: 2, 4 or 8.
            device (Backend): As for `hash`.
            prefix (bytes): Up to 4 bytes that are hashed ahead of the children of every node.
            sort (bool): Whether the smaller one of two children, compared as strings of bytes, is
                hashed first.

        Raises:
            ArgumentTypeError: `children` are no bytes, `prefix` is not `bytes`, or `sort` no bool.
            ArgumentShapeError: `children` are not of that shape.
            ArgumentValueError: `arity` is another number, `sort` is given with an arity above 2, or
                `prefix` is too long.
        """
        where = f"{self.name}.compress"
        if not is_integer(arity) or arity not in ARITIES:
            raise ArgumentValueError(f"{where}: arity is {arity!r}; it must be 2, 4 or 8")
        if not isinstance(sort, bool | np.bool_):
            raise ArgumentTypeError(f"{where}: sort is {describe(sort)}; it must be True or False")
        arity = int(arity)
        if sort and arity != 2:
            raise ArgumentValueError(
                f"{where}: sort is True and arity is {arity}; only two children are sorted"
            )
        found = _check_rows(where, children, "children")
        checked = _check_prefix(where, prefix)
        _check_device(where, device)
        if found.ndim != 2 or found.shape[1] != self.digest_size or len(found) % arity:
            raise ArgumentShapeError(
                f"{where}: children has the shape {found.shape}; it must be (n * {arity}, "
                f"{self.digest_size})"
            )
        rows = found.reshape(len(found) // arity, arity * self.digest_size)
        return self._hash_rows(rows, device, checked, sorts=bool(sort))

    def _hash_rows(
        self, rows: Any, device: Backend | None, prefix: bytes, *, sorts: bool = False
    ) -> Any:
        """The digests of checked rows, with two axes."""
        if isinstance(rows, DeviceArray) or device is None or not rows.size:
            return hash_rows(self.algorithm, rows, prefix, sorts=sorts)
        length = rows.shape[1]
        is_tree = self.algorithm.is_tree(len(prefix) + length)
        if is_tree or length >= LONG_ROW_BYTES:
            array_device = require_array_device(device)
            if not array_device.runs_kernels:
                return hash_rows(self.algorithm, rows, prefix)
            if is_tree:
                return hash_trees(array_device, self.algorithm, rows, prefix).numpy()
            return hash_long_rows(array_device, self.algorithm, rows, prefix)
        kernel = call_kernel(self.algorithm, length, prefix, sorts=sorts)
        grouped = count_grouped_rows(length)
        missing = -len(rows) % grouped
        if missing:
            rows = np.concatenate([rows, np.zeros((missing, length), np.uint8)])
        elements = np.ascontiguousarray(rows).reshape(-1, grouped * length)
        digests = device.run(kernel, elements).reshape(len(rows), self.digest_size)
        return digests[: len(rows) - missing] if missing else digests

    def __repr__(self) -> str:
        return f"<ByteHash {self.name}>"

    def __reduce__(self) -> Any:
        """Pickle the name of a named one: it is the same object again."""
        if self.name in NAMED:
            return get_byte_hash, (self.name,)
        return ByteHash, (self.algorithm,)


class Blake3(ByteHash):
    """BLAKE3: `gx.hashes.BLAKE3`. A long message is a tree of chunks, which a device hashes in
    parallel, also if it is the only one."""

    __slots__ = ()

    def keyed(self, key: bytes) -> ByteHash:
        """BLAKE3 with a key: a message authentication code.

        Args:
            key (bytes): 32 bytes.

        Raises:
            ArgumentTypeError: The key is not `bytes`.
            ArgumentValueError: The key has another length.
        """
        if not isinstance(key, bytes):
            raise ArgumentTypeError(
                f"{self.name}.keyed: key is a {type(key).__name__}; it must be bytes"
            )
        if len(key) != KEY_BYTES:
            raise ArgumentValueError(
                f"{self.name}.keyed: key has {len(key)} bytes; it must have {KEY_BYTES}"
            )
        return self._with_mode("keyed", Blake3Mode.keyed(key))

    def derive_key(self, context: str) -> ByteHash:
        """BLAKE3 that derives keys: the digests are keys, and the messages the material that they
        are derived from.

        Args:
            context (str): What the keys are for: a text that no other use has.

        Raises:
            ArgumentTypeError: The context is not a text.
            ArgumentValueError: The context has no UTF-8 bytes.
        """
        if not isinstance(context, str):
            raise ArgumentTypeError(
                f"{self.name}.derive_key: context is a {type(context).__name__}; it must be a str"
            )
        try:
            encoded = context.encode()
        except UnicodeEncodeError as error:
            raise ArgumentValueError(
                f"{self.name}.derive_key: context is no text that UTF-8 encodes: {error}"
            ) from None
        return self._with_mode("derive_key", Blake3Mode.derive_key(encoded))

    def _with_mode(self, name: str, mode: Blake3Mode) -> ByteHash:
        algorithm = dataclasses.replace(self.algorithm, name=f"{self.name} {name}", mode=mode)
        return ByteHash(algorithm)


def _check_rows(where: str, rows: Any, name: str = "rows") -> Any:
    """Messages as an array of uint8 with one or two axes."""
    if isinstance(rows, bytes | bytearray | memoryview):
        rows = _view_bytes(where, name, rows)
    if not isinstance(rows, np.ndarray | DeviceArray):
        raise ArgumentTypeError(
            f"{where}: {name} is a {type(rows).__name__}; it must be an array of uint8 on the host "
            "or on a device, or bytes. hash_many() takes a list of messages"
        )
    _refuse_mask(where, name, rows)
    if rows.dtype != np.uint8:
        raise ArgumentTypeError(
            f"{where}: {name} has the dtype {rows.dtype}; it must be uint8. view(np.uint8) gives "
            "the bytes of an array"
        )
    if rows.ndim not in (1, 2):
        raise ArgumentShapeError(
            f"{where}: {name} has the shape {rows.shape}; it must be (n, length), or (length,) for "
            "one message"
        )
    return rows


def _view_bytes(where: str, name: str, message: Any) -> Bytes:
    view = memoryview(message)
    if view.itemsize != 1 or view.ndim != 1 or view.format not in ("B", "b", "c"):
        raise ArgumentTypeError(
            f"{where}: {name} is a memoryview of format {view.format!r} with {view.ndim} axes; it "
            "must be one of bytes with one axis, as cast('B') gives it"
        )
    return (
        np.frombuffer(view, np.uint8) if view.contiguous else np.frombuffer(bytes(view), np.uint8)
    )


def check_message(where: str, number: int, message: Any) -> Any:
    """A message as `bytes`, or as a contiguous memoryview of bytes; `number` is that of the message
    among others, for errors."""
    name = f"message {number}"
    _refuse_mask(where, name, message)
    if isinstance(message, bytes):
        return message
    if isinstance(message, bytearray | memoryview):
        viewed: Any = _view_bytes(where, name, message)
        return memoryview(viewed)
    if isinstance(message, np.ndarray) and message.dtype == np.uint8 and message.ndim == 1:
        contiguous: Any = np.ascontiguousarray(message)
        return memoryview(contiguous)
    described = type(message).__name__
    if isinstance(message, np.ndarray | DeviceArray):
        described += f" of {message.dtype} and shape {message.shape}"
    raise ArgumentTypeError(
        f"{where}: {name} is a {described}; a message is bytes, a bytearray, a memoryview or a "
        "NumPy array of uint8 with one axis"
    )


def _refuse_mask(where: str, name: str, array: Any) -> None:
    if is_masked(array):
        raise ArgumentTypeError(
            f"{where}: {name} is a masked array; filled() gives an array without a mask"
        )


def _check_device(where: str, device: Any) -> None:
    if not (device is None or isinstance(device, Backend)):
        raise ArgumentTypeError(
            f"{where}: device is {describe(device)}; it must be an executor or a backend, or None "
            "for the host"
        )


def _check_prefix(where: str, prefix: Any) -> bytes:
    if not isinstance(prefix, bytes):
        raise ArgumentTypeError(
            f"{where}: prefix is a {type(prefix).__name__}; it must be bytes, such as b'\\x00'"
        )
    if len(prefix) > MAX_PREFIX_BYTES:
        raise ArgumentValueError(
            f"{where}: prefix has {len(prefix)} bytes; it must have {MAX_PREFIX_BYTES} at most"
        )
    return prefix


SHA256 = ByteHash(byte_hashes.SHA256)
SHA256D = ByteHash(byte_hashes.SHA256D)
SHA512 = ByteHash(byte_hashes.SHA512)
SHA3_256 = ByteHash(byte_hashes.SHA3_256)
KECCAK256 = ByteHash(byte_hashes.KECCAK256)
BLAKE2S = ByteHash(byte_hashes.BLAKE2S)
BLAKE3 = Blake3(byte_hashes.BLAKE3)
RIPEMD160 = ByteHash(byte_hashes.RIPEMD160)
NAMED = {
    each.name: each
    for each in (SHA256, SHA256D, SHA512, SHA3_256, KECCAK256, BLAKE2S, BLAKE3, RIPEMD160)
}
"""The byte hashes by their names."""


def get_byte_hash(name: str) -> ByteHash:
    """The byte hash of that name.

    Args:
        name (str): Such as "SHA256".

    Raises:
        ArgumentValueError: There is none of that name.
    """
    try:
        return NAMED[name]
    except KeyError:
        raise ArgumentValueError(
            f"there is no byte hash {name!r}; there are {', '.join(NAMED)}"
        ) from None
