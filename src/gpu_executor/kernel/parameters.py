"""Parameters: values that a call passes to its kernel beside the arrays.

They are the members of the kernel's push constants behind the element count, `push` and the words
of `push_of`, and then the members of its uniform buffer. `ParameterLayout` encodes what a caller
gives as `params=`. New values need no new kernel, pipeline or slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from gpu_executor.errors import ArgumentTypeError, KernelError
from gpu_executor.spirv import BlockMember, ShaderInterface


class Parameter(Protocol):
    """One value that a call sets: a `spirv.BlockMember` or a `wgsl_parameters.WordParameter`."""

    @property
    def name(self) -> str: ...

    @property
    def offset(self) -> int:
        """In bytes, from the beginning of the block."""

    def encode_into(self, buffer: bytearray, value: Any) -> None:
        """Write a value at its offset; raises where the value does not fit the type."""


class ParameterValues(NamedTuple):
    """The encoded values of one call. Hashable: calls with equal values can be gathered."""

    push: bytes = b""
    """The push constants behind the element count, `push` and the words of `push_of`."""
    uniform: bytes = b""
    """The contents of the uniform buffer."""
    given_count: bytes = b""
    """A value that takes the place of the number of elements; b"" where the caller gave none."""


NO_VALUES = ParameterValues()


_COUNT = -1
"""The position of the number of elements, which no tuple of values reaches."""


class ParameterLayout:
    """Where the parameters of a kernel lie, and the values that calls may leave out."""

    def __init__(
        self,
        kernel_name: str,
        push: Sequence[Parameter],
        start: int,
        push_bytes: int,
        uniform: Sequence[Parameter] = (),
        uniform_bytes: int = 0,
        count: Parameter | None = None,
        defaults: Any = None,
    ) -> None:
        """`start` is the offset of the first push constant that is a parameter; offsets of `push`
        count from the beginning of all `push_bytes`. `count` holds the number of elements, unless
        a call gives it another value by name."""
        self._kernel_name, self._count = kernel_name, count
        self._start, self._push_bytes, self._uniform_bytes = start, push_bytes, uniform_bytes
        self._members = [*push, *uniform]
        self._in_push = len(push)
        self.has_push = bool(push)
        """Whether any parameter is a push constant."""
        self._positions: dict[str, list[int]] = {}
        """The positions of a name: a push constant and a member of the uniform buffer may share
        it."""
        for position, member in enumerate(self._members):
            if member.name:
                self._positions.setdefault(member.name, []).append(position)
        if count is not None and count.name:
            self._positions.setdefault(count.name, []).append(_COUNT)
        self._defaults: dict[int, Any] = {}
        self._defaults = self._match(defaults, "the kernel's default params")
        self.default_values: ParameterValues | None = None
        """The values of a call without `params=`; None where some have no default."""
        if len(self._defaults.keys() - {_COUNT}) == len(self._members):
            self.default_values = self._encode(self._defaults)

    @classmethod
    def of_code(
        cls,
        kernel_name: str,
        interface: ShaderInterface,
        start: int,
        count: BlockMember | None,
        defaults: Any,
    ) -> ParameterLayout:
        """The parameters of SPIR-V whose first `start` bytes of push constants are taken. `count`
        is the push constant that holds the number of elements, if one does."""
        if count is not None and 0 < count.offset < start:
            raise KernelError(
                f"kernel {kernel_name!r}: the first {start} bytes of its push constants are push, "
                f"and the number of elements, {count.name!r}, is at byte "
                f"{count.offset}; place it first, or behind them"
            )
        for member in interface.push_members:
            if member.offset < start < member.offset + member.nbytes:
                raise KernelError(
                    f"kernel {kernel_name!r}: the first {start} bytes of its push constants are "
                    f"the element count and push; they end inside member "
                    f"{member.name or 'at offset ' + str(member.offset)!r}"
                )
        uniform = interface.uniform
        if interface.unusable_members and (start < interface.push_constant_bytes or uniform):
            raise KernelError(
                f"kernel {kernel_name!r}: the parameter {interface.unusable_members[0]} cannot be "
                "set by a call; give the push constants with push="
            )
        return cls(
            kernel_name,
            interface.list_push_parameters(start, count),
            start,
            interface.push_constant_bytes,
            () if uniform is None else uniform.members,
            0 if uniform is None else uniform.nbytes,
            count,
            defaults,
        )

    @property
    def names(self) -> list[str]:
        """The parameters' names; "" for one whose name the compiler removed."""
        return [member.name for member in self._members]

    def encode(self, params: Any) -> ParameterValues:
        """Encode what a caller gave: a dict by name, a tuple by position, or None."""
        if params is None and self.default_values is not None:
            return self.default_values
        given = self._match(params, "params")
        return self._encode({**self._defaults, **given} if self._defaults else given)

    def as_keywords(self, params: Any) -> dict[str, Any]:
        """The values by name, for a reference; a parameter without a name is `p<position>`."""
        given = {**self._defaults, **self._match(params, "params")}
        keywords = {
            member.name or f"p{position}": given[position]
            for position, member in enumerate(self._members)
            if position in given
        }
        for name, positions in self._positions.items():
            values = [given[position] for position in positions if position in given]
            if any(not np.array_equal(values[0], value) for value in values[1:]):
                raise ArgumentTypeError(
                    f"{self._kernel_name}: the push constant {name!r} and the member {name!r} of "
                    "the uniform buffer have different values, and a function of the kernel gets "
                    "one keyword of that name; rename one of them"
                )
            if values:
                keywords[name] = values[0]
        return keywords

    def _encode(self, given: Mapping[int, Any]) -> ParameterValues:
        push, uniform = bytearray(self._push_bytes), bytearray(self._uniform_bytes)
        for position, member in enumerate(self._members):
            if position not in given:
                raise ArgumentTypeError(
                    f"{self._kernel_name}: parameter {self._describe(position)} has no value and "
                    f"no default; give it in params={self._advise(position)}"
                )
            block = push if position < self._in_push else uniform
            self._encode_member(member, block, given[position])
        count = b""
        if _COUNT in given and self._count is not None:
            whole = bytearray(self._push_bytes)
            self._encode_member(self._count, whole, given[_COUNT])
            count = bytes(whole[self._count.offset : self._count.offset + 4])
        return ParameterValues(bytes(push[self._start :]), bytes(uniform), count)

    def _encode_member(self, member: Parameter, buffer: bytearray, value: Any) -> None:
        try:
            member.encode_into(buffer, value)
        except KernelError as error:
            raise ArgumentTypeError(f"{self._kernel_name}: {error}") from None

    def _advise(self, position: int) -> str:
        """What else may be meant by a missing value: a first push constant that is a 32-bit integer
        may be the number of elements."""
        member = self._members[position]
        is_first = self._count is None and position == 0 < self._in_push and member.offset == 0
        if not (is_first and isinstance(member, BlockMember)) or (
            member.shape or member.dtype not in (np.uint32, np.int32)
        ):
            return ""
        return "; if it is the number of elements, make the kernel with count=True"

    def _match(self, params: Any, what: str) -> dict[int, Any]:
        """The given values by position."""
        if params is None:
            return {}
        if isinstance(params, Mapping):
            unknown = [name for name in params if name not in self._positions]
            if unknown:
                raise ArgumentTypeError(
                    f"{self._kernel_name}: {what} has {unknown[0]!r}; {self._describe_all()}"
                )
            return {
                position: value
                for name, value in params.items()
                for position in self._positions[name]
            }
        if not isinstance(params, tuple):
            raise ArgumentTypeError(
                f"{self._kernel_name}: {what} is a {type(params).__name__}; it must be a dict by "
                "name or a tuple by position (a list is one entry per job of a batch)"
            )
        if len(params) > len(self._members):
            advice = self._describe_all()
            if self._count is not None:
                advice += (
                    f"; {self._count.name or 'the first push constant'!r} is the number of "
                    "elements, which every call sets unless params gives it by name"
                )
            raise ArgumentTypeError(
                f"{self._kernel_name}: {what} has {len(params)} values; {advice}"
            )
        return dict(enumerate(params))

    def _describe(self, position: int) -> str:
        return repr(self._members[position].name or position)

    def _describe_all(self) -> str:
        if not self._members:
            return "the kernel has no parameters"
        if not any(member.name for member in self._members):
            return (
                f"the code has {len(self._members)} parameters without names (glslc -O removes "
                "them): pass a tuple"
            )
        return f"the parameters are {', '.join(map(self._describe, range(len(self._members))))}"
