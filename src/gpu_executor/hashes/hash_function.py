"""`HashFunction`: what byte hashes and hashes over fields have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from gpu_executor.backend import Backend

Rows = Any
"""Messages, one in each row, on the host or on a device: bytes as a NumPy array or a `DeviceArray`
of uint8, elements as a `FieldArray`."""
Digests = Any
"""Digests along the first axis, of the type of `Rows` and in their place."""


class HashFunction(ABC):
    """A hash function of messages of one length, and of the nodes of a Merkle tree.

    Arrays of a device stay on it, and those of the host come back to the host, also if a device
    hashes them.
    """

    name: str
    """The name in messages and in tables."""
    digest_shape: tuple[int, ...]
    """The shape of one digest: (32,) for 32 bytes, (8,) for eight elements, () for one element."""

    @abstractmethod
    def hash(self, rows: Rows, *, device: Backend | None = None) -> Digests:
        """The digest of every row.

        Args:
            rows (array): The messages, of shape (n, length); a length of 0 is allowed.
            device (Backend): The executor or backend that hashes an array of the host; None: the
                host itself.
        """

    @abstractmethod
    def compress(
        self, children: Digests, arity: int = 2, *, device: Backend | None = None
    ) -> Digests:
        """The parents of digests: one digest of every `arity` neighbours.

        Args:
            children (array): Digests, of shape (n * arity, *digest_shape).
            arity (int): The number of children of a node.
            device (Backend): As for `hash`.
        """
