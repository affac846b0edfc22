"""`FieldHash`: a hash function of field elements, a permutation inside a sponge."""

from __future__ import annotations

import contextlib
import operator
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    GpuError,
)
from gpu_executor.fields import Field, FieldArray
from gpu_executor.fields.layout_array import find_array_device
from gpu_executor.hashes.hash_function import HashFunction
from gpu_executor.hashes.permutation import Permutation
from gpu_executor.hashes.sponge import Sponge
from gpu_executor.ops import elementwise
from gpu_executor.ops.field_hashes import Absorption, absorb, absorb_nothing

if TYPE_CHECKING:
    from gpu_executor.backend import Backend
    from gpu_executor.calls.dispatch import ArrayDevice

CHUNK_BYTES = 64 << 20
"""Bytes of rows of the host that a device hashes at once."""
FETCHES_IN_FLIGHT = 2
"""Chunks of digests that are copied back while the next rows are copied to the device."""
Compression = Literal["permutation", "sponge"]
"""How children become their parent: by a truncated permutation or by the sponge."""


class FieldHash(HashFunction):
    """A hash function of rows of field elements.

    `permute` applies the permutation alone. Arrays may be in any form and may be views.
    """

    def __init__(
        self, name: str, permutation: Permutation, sponge: Sponge, compression: Compression
    ) -> None:
        """A hash function from its parts; functions such as `poseidon2` make the known ones.

        Args:
            name (str): The name in messages and in tables.
            permutation (Permutation): The permutation of states.
            sponge (Sponge): How rows are absorbed.
            compression (str): "permutation": children are the first elements of a state whose
                others are 0, and their parent the first elements after the permutation. Children
                that do not fit, and all with "sponge": the sponge absorbs them.
        """
        if compression not in get_args(Compression):
            raise ArgumentValueError(
                f"{name}: compression must be 'permutation' or 'sponge', not {compression!r}"
            )
        sponge.check(permutation.width)
        self.name = name
        self.permutation = permutation
        self.sponge = sponge
        self.compression: Compression = compression
        self.digest_shape = () if sponge.outputs == 1 else (sponge.outputs,)

    @property
    def field(self) -> Field:
        """The field of the elements."""
        return self.permutation.field

    @property
    def width(self) -> int:
        """The number of elements of a state."""
        return self.permutation.width

    @property
    def source(self) -> str:
        """Where the parameters come from, with the commit."""
        return self.permutation.source

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, {self.sponge.name}; {self.source}>"

    def hash(self, rows: FieldArray, *, device: Backend | None = None) -> FieldArray:
        """The digest of every row.

        Args:
            rows (FieldArray): The messages, of shape (n, length), on the host or on a device.
            device (Backend): The executor or backend that hashes an array of the host; None: the
                host itself.
        """
        given = self._check("rows", rows, 2)
        length, only = given.shape[1], self.sponge.length
        if only is not None and length != only:
            raise ArgumentShapeError(
                f"{self.name} hashes rows of exactly {only} elements, and rows has shape "
                f"{given.shape}"
            )
        return self._hash(given, length, device)

    def compress(
        self, children: FieldArray, arity: int = 2, *, device: Backend | None = None
    ) -> FieldArray:
        """The parents of digests: one digest of every `arity` neighbours.

        Args:
            children (FieldArray): Digests, of shape (n * arity, *digest_shape).
            arity (int): The number of children of a node.
            device (Backend): As for `hash`.
        """
        many = self._check_arity(arity)
        given = self._check("children", children, 1 + len(self.digest_shape))
        if given.shape[1:] != self.digest_shape or given.shape[0] % many:
            raise ArgumentShapeError(
                f"{self.name}: children has shape {given.shape}; it must be (n * {many}, "
                f"*{self.digest_shape}), digests of {self.sponge.outputs} elements"
            )
        size = many * self.sponge.outputs
        rows = given.reshape(given.shape[0] // many, size)
        if self.compression == "sponge" or size > self.width:
            return self._hash(rows, size, device)
        return self._run(rows, self._truncate(size), self.digest_shape, device)

    def permute(self, state: FieldArray, *, device: Backend | None = None) -> FieldArray:
        """The states after the permutation.

        Args:
            state (FieldArray): The states, of shape (n, width).
            device (Backend): As for `hash`.
        """
        given = self._check("state", state, 2)
        if given.shape[1] != self.width:
            raise ArgumentShapeError(
                f"{self.name} permutes states of {self.width} elements, and state has shape "
                f"{given.shape}"
            )
        return self._run(given, self._truncate(self.width, self.width), (self.width,), device)

    # --- checks ---

    def _check(self, name: str, array: Any, ndim: int) -> FieldArray:
        if not isinstance(array, FieldArray):
            raise ArgumentTypeError(
                f"{self.name}: {name} must be a FieldArray of {self.field.name}, not "
                f"{type(array).__name__}; {self.field.name}'s encode(ints) makes one"
            )
        if array.field != self.field:
            raise ArgumentTypeError(
                f"{self.name}: {name} is an array of {array.field.name}; the hash function is one "
                f"of {self.field.name}"
            )
        if array.ndim != ndim:
            raise ArgumentShapeError(
                f"{self.name}: {name} has shape {array.shape}; it must have {ndim} axes"
            )
        return array

    def _check_arity(self, arity: Any) -> int:
        if isinstance(arity, bool) or not hasattr(arity, "__index__"):
            raise ArgumentTypeError(f"arity must be an integer, not {arity!r}")
        many = operator.index(arity)
        if many < 2:
            raise ArgumentValueError(f"arity must be at least 2, not {many}")
        only = self.sponge.length
        if only is not None and many * self.sponge.outputs != only:
            raise ArgumentValueError(
                f"{self.name} hashes exactly {only} elements, and {many} children have "
                f"{many * self.sponge.outputs}; {self._suggest(many)}"
            )
        return many

    def _suggest(self, arity: int) -> str:
        """What to do about another arity."""
        return "use a hash function of as many inputs"

    # --- runs ---

    def _truncate(self, size: int, outputs: int | None = None) -> Absorption:
        """A permutation of states whose first `size` elements are a row and the others 0."""
        return Absorption.truncate(self.width, size, outputs or self.sponge.outputs)

    def _hash(self, rows: FieldArray, length: int, device: Backend | None) -> FieldArray:
        return self._run(rows, self.sponge.absorb(length, self.width), self.digest_shape, device)

    def _run(
        self,
        rows: FieldArray,
        absorption: Absorption,
        shape: tuple[int, ...],
        device: Backend | None,
    ) -> FieldArray:
        """The digests of rows, of that shape each, where the rows are."""
        if device is None:
            return self._absorb(rows, absorption, shape)
        memory = find_array_device(self.name, device)
        if rows.on_device:
            raise ArgumentTypeError(
                f"{self.name}: device= is for an array on the host, and this one is on a device, "
                "which hashes it: leave device= out"
            )
        if memory.is_recording:
            raise GpuError(
                f"{self.name}: a graph is being recorded, which has no arrays of the host; leave "
                "device= out and hash arrays of the device"
            )
        return self._stream(memory, rows, absorption, shape)

    def _stream(
        self,
        memory: ArrayDevice,
        rows: FieldArray,
        absorption: Absorption,
        shape: tuple[int, ...],
    ) -> FieldArray:
        """The digests of rows of the host, which a device hashes in chunks. At once the host copies
        a chunk to the device, the device hashes the chunk before, and the digests of the one before
        that are copied back: a thread waits for these."""
        prime, count = self.field.prime, rows.shape[0]
        source: Any = rows.data
        step = max(1, CHUNK_BYTES // (prime.element_bytes * max(1, absorption.length)))
        found = memory.empty_result((count, *shape, *prime.element_shape), prime.column_dtype)
        fetches: deque[Future[Any]] = deque()
        with ThreadPoolExecutor(1) as thread:
            try:
                for start in range(0, count, step):
                    part = slice(start, start + step)
                    x = FieldArray(self.field, memory.put_ahead(source[part]), rows.form)
                    digests: Any = self._absorb(x, absorption, shape).data
                    if start + step >= count:  # nothing is copied meanwhile
                        memory.fetch(digests, found[part])
                        break
                    if len(fetches) == FETCHES_IN_FLIGHT:
                        fetches.popleft().result()
                    fetches.append(thread.submit(memory.fetch, digests, found[part]))
                while fetches:
                    fetches.popleft().result()
            except BaseException:
                with contextlib.suppress(GpuError):
                    memory.synchronize()
                raise
        return FieldArray(self.field, found, prime.form)

    def _absorb(
        self, rows: FieldArray, absorption: Absorption, shape: tuple[int, ...]
    ) -> FieldArray:
        field, prime = self.field, self.field.prime
        count = rows.shape[0]
        if not absorption.length:
            digest = field.encode(absorb_nothing(self.permutation, absorption)).reshape(shape)
            full = elementwise.broadcast_to(prime, digest.data, (count, *shape))
            made = FieldArray(field, np.array(full), "canonical")
            return made.copy_to_device(rows.device) if rows.on_device else made
        form = prime.form if rows.on_device else rows.form
        data: Any = rows.in_form(form).data
        if not isinstance(data, DeviceArray) and not count:
            return FieldArray(field, np.empty((0, *shape, *prime.element_shape), data.dtype), form)
        digests = absorb(self.permutation, absorption, data, form)
        return FieldArray(field, elementwise.reshape(prime, digests, (count, *shape)), form)
