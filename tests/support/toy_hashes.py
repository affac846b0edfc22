"""Hash functions for tests of trees: hashlib's SHA-256 or any function of bytes, and functions of
field elements that are made of it. They compute one row at a time on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.backend import Backend
from gpu_executor.fields import Field, FieldArray
from gpu_executor.hashes.field_hash import FieldHash
from gpu_executor.hashes.hash_function import HashFunction
from tests.support.merkle_reference import keccak256, sha256


class ToyByteHash(HashFunction):
    """A function of bytes as a hash function of rows."""

    def __init__(self, name: str, function: Callable[[bytes], bytes]) -> None:
        self.name, self.function = name, function
        self.digest_size = len(function(b""))
        self.digest_shape = (self.digest_size,)
        self.calls = 0

    def hash(self, rows: Any, *, device: Backend | None = None, prefix: bytes = b"") -> Any:
        self.calls += 1
        if isinstance(rows, DeviceArray):
            return rows.storage.device.put(self.hash(rows.numpy(), prefix=prefix))
        assert rows.dtype == np.uint8 and rows.ndim == 2
        digests = b"".join(self.function(prefix + bytes(row)) for row in rows)
        return np.frombuffer(digests, np.uint8).reshape(len(rows), self.digest_size).copy()

    def hash_many(self, messages: Sequence[bytes], *, device: Backend | None = None) -> Any:
        return np.stack([np.frombuffer(self.function(bytes(each)), np.uint8) for each in messages])

    def compress(
        self,
        children: Any,
        arity: int = 2,
        *,
        device: Backend | None = None,
        prefix: bytes = b"",
        sort: bool = False,
    ) -> Any:
        if isinstance(children, DeviceArray):
            made = self.compress(children.numpy(), arity, prefix=prefix, sort=sort)
            return children.storage.device.put(made)
        assert len(children) % arity == 0
        groups = children.reshape(-1, arity, self.digest_size)
        if sort:
            groups = [np.stack(sorted(group, key=lambda each: bytes(each))) for group in groups]
        rows = np.array([np.ravel(group) for group in groups], np.uint8)
        return self.hash(rows.reshape(-1, arity * self.digest_size), prefix=prefix)


class ToyFieldHash(FieldHash):
    """SHA-256 of the decimal digits of elements, as elements."""

    def __init__(self, field: Field, digest_shape: tuple[int, ...]) -> None:
        self.name, self._field, self.digest_shape = f"toy {field.name}", field, digest_shape

    @property
    def field(self) -> Field:
        return self._field

    def hash_integers(self, values: Sequence[int]) -> Any:
        text = ",".join(map(str, values))
        made = [
            int.from_bytes(sha256(f"{index}:{text}".encode())) % self.field.order
            for index in range(math.prod(self.digest_shape))
        ]
        return made if self.digest_shape else made[0]

    def hash(self, rows: Any, *, device: Backend | None = None) -> Any:
        assert isinstance(rows, FieldArray) and rows.ndim == 2
        values = [self.hash_integers(row) for row in rows.to_host().tolist()]
        made = self.field.encode(np.array(values, object).reshape(len(rows), *self.digest_shape))
        return made.copy_to_device(rows.device) if rows.on_device else made

    def compress(self, children: Any, arity: int = 2, *, device: Backend | None = None) -> Any:
        size = arity * math.prod(self.digest_shape)
        return self.hash(children.reshape(len(children) // arity, size))


SHA256 = ToyByteHash("sha256", sha256)
KECCAK256 = ToyByteHash("keccak256", keccak256)
